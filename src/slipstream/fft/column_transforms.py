"""Transforms in z: columns of complex modes, some ky at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.device import Device, Scratch
from slipstream.fft.batch_size import balanced_batch
from slipstream.fft.line_transforms import LineTransform
from slipstream.fft.pack_unpack import RowTables
from slipstream.fft.slab_layout import NOT_KEPT, SlabGeometry
from slipstream.schedule import StepGraph

# Working set of one batch in bytes; see `batches`. A GPU takes all columns at once.
BATCH_BYTES = {"cpu": 1 << 20, "gpu": 1 << 62}


class ColumnPass:
    """Transforms along z between truncated spectral arrays and the columns layout.

    One call handles at most so many fields; arrays hold `ky` of them, by default all of this rank.
    """

    def __init__(
        self,
        device: Device,
        geometry: SlabGeometry,
        fields: int,
        complex_dtype: Any,
        ky: int | None = None,
        scratch: Scratch | None = None,
    ) -> None:
        nz, self._ky, row = geometry.columns_shape
        self._ky = self._ky if ky is None else ky
        self.line = LineTransform(device, "z", nz, complex_dtype, row, scratch=scratch)
        self._tables = RowTables(device, geometry.column_rows(ky))
        kept = geometry.modes[0].positions() >= 0
        offset = np.where(kept, self._ky * row * np.arange(nz, dtype=np.int64), NOT_KEPT)
        self._in_place = RowTables(device, (offset, np.full_like(offset, row)))
        row_bytes = fields * nz * row * np.dtype(complex_dtype).itemsize
        limit = max(1, BATCH_BYTES[device.processor] // max(1, row_bytes))
        self.batch = max(1, balanced_batch(self._ky, limit, device.lanes))

    def batches(self) -> list[tuple[int, int]]:
        """Return the ranges of this rank's ky, batch by batch."""
        return [(a, min(a + self.batch, self._ky)) for a in range(0, self._ky, self.batch)]

    def lane(self, graph: StepGraph, low: int) -> str:
        """Return the lane in which the batch that starts at local ky `low` is recorded."""
        return graph.lane_of_batch(low // self.batch)[1]

    def record_backward(
        self, graph: StepGraph, spectral: Any, columns: Any, low: int, high: int
    ) -> None:
        """Record spectral modes -> columns for local ky from `low` to `high`.

        Spectral is (fields, kz kept, ky of this rank, row), and kept; columns are (fields, nz, ky
        of this rank, row), unnormalised.
        """
        source, points = spectral[:, :, low:high], columns[:, :, low:high].swapaxes(1, 2)
        lane = self.lane(graph, low)
        self.line.record_backward(graph, source, points, self._tables, 0, [source], lane)

    def record_forward(
        self, graph: StepGraph, columns: Any, low: int, high: int, spectral: Any = None
    ) -> None:
        """Record columns -> spectral modes.

        Columns are transformed in place. Without `spectral` the kept modes stay in their places
        among them, and what lies in the places of other modes is undefined.
        """
        points, lane = columns[:, :, low:high].swapaxes(1, 2), self.lane(graph, low)
        if spectral is not None:
            target = spectral[:, :, low:high]
            self.line.record_forward(graph, points, target, self._tables, 0, [target], lane)
        elif self.line.tiled:
            self.line.record_forward(graph, points, points, self._in_place, 0, [points], lane)
        else:
            self.line.record_in_place(graph, points, True, lane)
