"""Transforms in z: columns of complex modes, some ky at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.device import Device
from slipstream.fft.modes import Modes
from slipstream.fft.planes import balanced_chunk
from slipstream.fft.rows import RowMover, RowTables
from slipstream.fft.slab import SlabGeometry
from slipstream.schedule import StepGraph

# Working set of one chunk in bytes; see `planes`. A GPU takes all columns at once.
CHUNK_BYTES = {"cpu": 1 << 20, "cuda": 1 << 62}


class ColumnPass:
    """Transforms along z between truncated spectral arrays and the columns layout.

    Parameters
    ----------
    device : Device
        Where all arrays live.
    geometry : SlabGeometry
        Shapes and tables.
    fields : int
        Largest number of fields that one call handles; sizes the chunks.
    complex_dtype : dtype
        complex64 or complex128.
    """

    def __init__(
        self, device: Device, geometry: SlabGeometry, fields: int, complex_dtype: Any
    ) -> None:
        self._device, self._geometry = device, geometry
        self._tables = RowTables(device, geometry.column_rows)
        nz, self._ky, row = geometry.columns_shape
        self._mover = RowMover(device, complex_dtype, Modes(row, row, 0))
        row_bytes = fields * nz * row * np.dtype(complex_dtype).itemsize
        limit = max(1, CHUNK_BYTES[device.kind] // max(1, row_bytes))
        self.chunk = max(1, balanced_chunk(self._ky, limit, device.lanes))

    def chunks(self) -> list[tuple[int, int]]:
        """Return the ranges of this rank's ky, chunk by chunk."""
        return [(a, min(a + self.chunk, self._ky)) for a in range(0, self._ky, self.chunk)]

    def lane(self, graph: StepGraph, low: int) -> str:
        """Return the lane in which the chunk that starts at local ky `low` is recorded."""
        return graph.lane_of_chunk(low // self.chunk)[1]

    def record_backward(
        self, graph: StepGraph, spectral: Any, columns: Any, low: int, high: int
    ) -> None:
        """Record spectral modes -> columns for local ky from `low` to `high`.

        Parameters
        ----------
        graph : StepGraph
            Where nodes are added.
        spectral : array, shape (fields, kz kept, ky of this rank, row)
            Kept.
        columns : array, shape (fields, nz, ky of this rank, row)
            Result, unnormalised.
        low, high : int
            Range of local ky.
        """
        source, target = spectral[:, :, low:high], columns[:, :, low:high]
        gather = self._mover.gather(source, self._as_rows(target), self._tables)
        self._add(graph, gather, source, target, "gather modes", "pack", low)
        transform = self._device.fft(target, target, 1, False)
        self._add(graph, transform, target, target, "fft z", "fft", low)

    def record_forward(
        self, graph: StepGraph, columns: Any, low: int, high: int, spectral: Any = None
    ) -> None:
        """Record columns -> spectral modes.

        Parameters
        ----------
        graph, columns, low, high
            As in `record_backward`; columns are transformed in place.
        spectral : array, optional
            Where the kept modes go. Without it they stay in their places among the columns, and
            what lies in the places of other modes is undefined.
        """
        part = columns[:, :, low:high]
        self._add(graph, self._device.fft(part, part, 1, True), part, part, "fft z", "fft", low)
        if spectral is not None:
            target = spectral[:, :, low:high]
            scatter = self._mover.scatter(self._as_rows(part), target, self._tables)
            self._add(graph, scatter, part, target, "scatter modes", "pack", low)

    def _as_rows(self, columns: Any) -> Any:
        """Return columns (fields, nz, ky, row) as rows kz of each ky: (fields, ky, nz, row)."""
        return columns.swapaxes(1, 2)

    def _add(self, graph, operation, source, target, label, category, low) -> None:
        graph.add(
            operation, reads=[source], writes=[target], label=label, category=category,
            lane=self.lane(graph, low),
        )  # fmt: skip
