"""Transforms in z: columns of complex modes, some ky at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.array_types import Array
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
    With `stored`, columns of `record_backward_stored` have working memory where a library
    transforms them.
    """

    def __init__(
        self,
        device: Device,
        geometry: SlabGeometry,
        fields: int,
        complex_dtype: Any,
        ky: int | None = None,
        scratch: Scratch | None = None,
        columns: int | None = None,
        tiled: bool = True,
        stored: bool = False,
    ) -> None:
        nz, self._ky, row = geometry.columns_shape
        self._ky = self._ky if ky is None else ky
        count = row if columns is None else columns
        self.line = LineTransform(device, "z", nz, complex_dtype, count, tiled, scratch)
        self._tables = RowTables(device, geometry.column_rows(ky))
        kept = geometry.modes[0].positions() >= 0
        self._kept = float(kept.mean())
        offset = np.where(kept, self._ky * row * np.arange(nz, dtype=np.int64), NOT_KEPT)
        self._in_place = RowTables(device, (offset, np.full_like(offset, row)))
        row_bytes = fields * nz * row * np.dtype(complex_dtype).itemsize
        limit = max(1, BATCH_BYTES[device.processor] // max(1, row_bytes))
        self.batch = max(1, balanced_batch(self._ky, limit, device.lanes))
        self._count = count
        self._work: list[Array] = []
        if stored and not self.line.tiled:
            shape = (fields, nz, self.batch, row)
            self._work = [device.empty(shape, complex_dtype) for _ in range(device.lanes)]
        self.work_bytes = sum(one.nbytes for one in self._work)

    def batches(self) -> list[tuple[int, int]]:
        """Return the ranges of this rank's ky, batch by batch."""
        return [(a, min(a + self.batch, self._ky)) for a in range(0, self._ky, self.batch)]

    def lane(self, graph: StepGraph, low: int) -> str:
        """Return the lane in which the batch that starts at local ky `low` is recorded."""
        return graph.lane_of_batch(low // self.batch)[1]

    def record_backward(
        self,
        graph: StepGraph,
        spectral: Array,
        columns: Array,
        low: int,
        high: int,
        tables: RowTables | None = None,
    ) -> None:
        """Record spectral modes -> columns for local ky from `low` to `high`.

        Spectral is (fields, kz kept, ky of this rank, kx), and kept; of other strides than those of
        stored arrays it has `tables`. Columns are (fields, nz, ky of this rank, row), unnormalised.
        """
        source, lane = spectral[:, :, low:high], self.lane(graph, low)
        points = self._points(columns, low, high)
        tables = tables or self._tables
        self.line.record_backward(graph, source, points, tables, 0, [source], lane)

    def record_backward_stored(
        self,
        graph: StepGraph,
        spectral: Array,
        columns: Array,
        low: int,
        high: int,
        tables: RowTables,
        place: tuple[Array, RowTables, list[Array]],
    ) -> None:
        """Record spectral modes -> columns that are stored where their receivers want them.

        The place is the array from which tables of columns count, these tables, and the memory that
        they lead to; `columns` are overwritten, or only their shape counts.
        """
        (turn, lane), (base, stored, accessed) = graph.lane_of_batch(low // self.batch), place
        source = spectral[:, :, low:high]
        points = self._points(columns, low, high)
        if self._work:
            points = self._points(self._work[turn], 0, high - low)
        to = base, stored, low, accessed
        self.line.record_backward_stored(graph, source, points, tables, to, lane)

    def record_forward(
        self,
        graph: StepGraph,
        columns: Array,
        low: int,
        high: int,
        spectral: Array = None,
        tables: RowTables | None = None,
        lane: str | None = None,
    ) -> None:
        """Record columns -> spectral modes, in the lane of the batch or in the given one.

        Columns are transformed in place. Without `spectral` the kept modes stay in their places
        among them, and what lies in the places of other modes is undefined.
        """
        points, lane = self._points(columns, low, high), lane or self.lane(graph, low)
        if spectral is not None:
            target, tables = spectral[:, :, low:high], tables or self._tables
            self.line.record_forward(graph, points, target, tables, 0, [target], lane)
        elif self.line.tiled:
            # Only the modes that are kept are stored.
            moves = points.nbytes, points.nbytes * self._kept
            self.line.record_forward(
                graph, points, points, self._in_place, 0, [points], lane, moves
            )
        else:
            self.line.record_in_place(graph, points, True, lane)

    def _points(self, columns: Array, low: int, high: int) -> Array:
        """Return columns as (fields, ky, nz, kx)."""
        return columns[:, :, low:high, : self._count].swapaxes(1, 2)
