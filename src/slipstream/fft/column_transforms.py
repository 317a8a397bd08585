"""Transforms in z: columns of complex modes, some ky at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.array_types import Array
from slipstream.device import Device, RowLaunch, Scratch
from slipstream.fft.line_transforms import LineTransform, balanced_batch
from slipstream.fft.pack_unpack import RowTables, real_name
from slipstream.fft.slab_layout import NOT_KEPT, SlabGeometry
from slipstream.schedule import StepGraph

# Bytes of one batch; see `batches`. A GPU takes all columns together. On a CPU a step uses its
# batch several times, so it fits a core's cache; a transform uses it once, so it is larger.
BATCH_BYTES = {"cpu": 1 << 20, "gpu": 1 << 62}
_TRANSFORM_BATCH_BYTES = 1 << 22


class ColumnPass:
    """Transforms along z between truncated spectral arrays and the columns layout.

    One call takes columns of at most `fields` fields. Their arrays have the shape (fields, nz, ky,
    row), where `ky` is by default a batch of those of this rank, and `row` at most that of the
    layout. Only the first `columns` elements of a row are transformed, by default all. With
    `stored`, a library transforms columns in working memory, from which they are then stored
    elsewhere.
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
        row: int | None = None,
    ) -> None:
        nz, self._ky, all_row = geometry.columns_shape
        self._device, self._geometry = device, geometry
        self._row = row = min(row or all_row, all_row)
        self._count = row if columns is None else columns
        self.line = LineTransform(device, "z", nz, complex_dtype, tiled, scratch)
        self._tables: dict[tuple[int, int], RowTables] = {}
        self._in_place: dict[tuple[int, int], RowTables] = {}
        self._is_kept = geometry.modes[0].positions() >= 0
        row_bytes = fields * nz * row * np.dtype(complex_dtype).itemsize
        most = BATCH_BYTES[device.processor]
        if columns is not None:  # a transform alone
            most = max(most, _TRANSFORM_BATCH_BYTES)
        limit = max(1, most // max(1, row_bytes))
        self._batch = ky or max(1, balanced_batch(self._ky, limit, device.lanes))
        # Only GPUs use a library for columns, for all of them in one batch.
        self._work: Any = None
        if stored and not self.line.tiled:
            self._work = device.empty((fields, nz, self._batch, row), complex_dtype)
        self.work_bytes = 0 if self._work is None else self._work.nbytes

    def plan(self, columns: Array) -> None:
        """Plan a library's transforms of columns, if there are any, so that scratch is known."""
        self.line.plan(self._points(columns))

    def batches(self) -> list[tuple[int, int]]:
        """Return the ranges of this rank's ky, batch by batch."""
        return [(a, min(a + self._batch, self._ky)) for a in range(0, self._ky, self._batch)]

    def record_backward(
        self,
        graph: StepGraph,
        spectral: Array,
        columns: Array,
        place: tuple[Array, RowTables, int, list[Array]] | None = None,
        signs: Sequence[int] = (),
    ) -> None:
        """Record spectral modes -> columns, unnormalised, in their array or another place.

        `spectral` is (fields, kz kept, some ky, kx), and not changed. `place` is the array that
        tables of columns refer to, these tables, the number of the first column in them, and the
        memory that they address; then the columns are working memory, or only their shape matters.
        Between walls, `signs` is 1 for each even field and -1 for each odd one.
        """
        points, tables = self._points(columns), self._tables_of(spectral)
        if place is None:
            self.line.record_backward(graph, spectral, points, tables, 0, [spectral])
            return
        if self._work is not None:
            points = self._points(self._work[:, :, : columns.shape[2]])
        self.line.record_backward_stored(graph, spectral, points, tables, place)

    def record_forward(
        self,
        graph: StepGraph,
        columns: Array,
        spectral: Any = None,
        signs: Sequence[int] = (),
    ) -> None:
        """Record columns -> spectral modes.

        Columns are transformed in place. Without `spectral` the kept modes stay there, and the
        other modes are undefined. For `signs` see `record_backward`.
        """
        points = self._points(columns)
        if spectral is not None:
            tables = self._tables_of(spectral)
            self.line.record_forward(graph, points, spectral, tables, 0, [spectral])
        elif self.line.tiled:
            # Only the kept modes are stored.
            moves = points.nbytes, points.nbytes * float(self._is_kept.mean())
            tables = self._tables_in_place(columns)
            self.line.record_forward(graph, points, points, tables, 0, [points], moves)
        else:
            self.line.record_in_place(graph, points, True)

    def _tables_of(self, spectral: Array) -> RowTables:
        """Return the tables of a spectral array, which depend on its strides alone."""
        z, y = (stride // spectral.itemsize for stride in spectral.strides[1:3])
        if (z, y) not in self._tables:
            self._tables[z, y] = RowTables(self._device, self._geometry.mode_rows(z, y))
        return self._tables[z, y]

    def _tables_in_place(self, columns: Array) -> RowTables:
        """Return the tables of modes that stay in the columns."""
        z, y = (stride // columns.itemsize for stride in columns.strides[1:3])
        if (z, y) not in self._in_place:
            places = z * np.arange(columns.shape[1], dtype=np.int64)
            offset = np.where(self._is_kept, places, NOT_KEPT)
            self._in_place[z, y] = RowTables(self._device, (offset, np.full_like(offset, y)))
        return self._in_place[z, y]

    def _points(self, columns: Array) -> Array:
        """Return columns as (fields, ky, nz, kx)."""
        if self._geometry.flat:  # single elements are transformed together
            return columns[:, None, :, :, 0]
        return columns[..., : self._count].swapaxes(1, 2)


class WallColumns(ColumnPass):
    """Columns between walls: cosine transforms of even fields, and sine transforms of odd ones.

    Lines are transformed in working memory, which each lane has.
    """

    def __init__(
        self,
        device: Device,
        geometry: SlabGeometry,
        fields: int,
        complex_dtype: Any,
        *options: Any,
        **named: Any,
    ) -> None:
        super().__init__(device, geometry, fields, complex_dtype, *options, **named)
        nz, kept = geometry.columns_shape[0], geometry.modes[0].count
        self._kept, self._real = kept, real_name(complex_dtype)
        turns = np.exp(0.5j * np.pi * np.arange(nz) / nz)
        self._turns = device.array(turns.astype(complex_dtype))
        self._lanes: dict[str, Array] = {}
        self._memory = [
            device.empty((fields, self._batch, nz, self._row), complex_dtype)
            for _ in range(min(device.lanes, len(self.batches())))
        ]
        self.work_bytes = sum(one.nbytes for one in self._memory)
        self._rows: dict[int, RowTables] = {}

    def plan(self, columns: Array) -> None:
        self.line.plan(self._part(self._memory[0], columns))

    def record_backward(
        self,
        graph: StepGraph,
        spectral: Array,
        columns: Array,
        place: tuple[Array, RowTables, int, list[Array]] | None = None,
        signs: Sequence[int] = (),
    ) -> None:
        work, given = self._work_of(graph, columns), self._signs(signs, columns)
        self._add(graph, "begin_from_modes", (spectral, work), spectral, (self._turns, given), True)
        self._transform(graph, work, False)
        self._add(graph, "end_at_points", (work, columns), columns, (given,))

    def record_forward(
        self,
        graph: StepGraph,
        columns: Array,
        spectral: Any = None,
        signs: Sequence[int] = (),
    ) -> None:
        work, given = self._work_of(graph, columns), self._signs(signs, columns)
        target = columns[:, : self._kept] if spectral is None else spectral
        self._add(graph, "begin_from_points", (columns, work), columns, (given,))
        self._transform(graph, work, True)
        self._add(graph, "end_at_modes", (work, target), target, (self._turns, given), True)

    def _transform(self, graph: StepGraph, work: Array, forward: bool) -> None:
        if self.line.tiled:
            record = self.line.record_forward if forward else self.line.record_backward
            record(graph, work, work, self._rows_of(*work.shape[2:]), 0, [work])
        else:
            self.line.record_in_place(graph, work, forward)

    def _signs(self, signs: Sequence[int], columns: Array) -> Array:
        if len(signs) != len(columns):
            raise ValueError(f"{len(columns)} fields between walls have {len(signs)} signs")
        return self._device.array(np.array(signs), self._turns.real.dtype)

    def _work_of(self, graph: StepGraph, columns: Array) -> Array:
        """Return working memory of the lane that a graph records in, (fields, ky, nz, kx)."""
        lane = graph.lane_of_batch(0)[1]
        memory = self._lanes.setdefault(lane, self._memory[len(self._lanes) % len(self._memory)])
        return self._part(memory, columns)

    @staticmethod
    def _part(memory: Array, columns: Array) -> Array:
        fields, nz, lines, row = columns.shape
        return memory.reshape(-1)[: columns.size].reshape(fields, lines, nz, row)

    def _rows_of(self, nz: int, row: int) -> RowTables:
        if row not in self._rows:
            order = row * np.arange(nz, dtype=np.int64)
            self._rows[row] = RowTables(self._device, (order, np.full_like(order, row * nz)))
        return self._rows[row]

    def _add(
        self,
        graph: StepGraph,
        name: str,
        arrays: tuple[Array, Array],
        strided: Array,
        tables: tuple[Array, ...],
        of_modes: bool = False,
    ) -> None:
        """Record one of the kernels, between the work and an array (fields, z, ky, kx)."""
        (source, target), work = arrays, arrays[1 if arrays[0] is strided else 0]
        fields, lines, nz, row = work.shape
        field, z, line = (stride // strided.itemsize for stride in strided.strides[:3])
        rows = fields * lines * (self._kept if source is work and of_modes else nz)
        kept = (self._kept,) if of_modes else ()
        kernel = self._device.kernel("wall_columns.hpp", name, REAL=self._real)
        operation = kernel.bind(
            RowLaunch(rows, row),
            *arrays,
            *tables,
            *(fields, lines, nz, row, *kept, field, line, z),
        )
        graph.add(operation, reads=[source], writes=[target], label="walls", category="pack")


def column_pass(geometry: SlabGeometry) -> type[ColumnPass]:
    """Return the class that transforms the columns of a geometry."""
    return WallColumns if geometry.modes[0].walls else ColumnPass
