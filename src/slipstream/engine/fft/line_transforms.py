"""Transforms along axes that are not contiguous: lines of working arrays, and columns in z."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.device import Device, Operation, RowLaunch, Scratch
from slipstream.engine.fft.slab_layout import NOT_KEPT, PackedBlocks, SlabGeometry
from slipstream.engine.fft.strided_fft import (
    RowMover,
    RowTables,
    StridedTransform,
    VectorTransform,
    real_name,
)
from slipstream.engine.fft.transform_parts import Modes
from slipstream.engine.schedule import StepGraph


def balanced_batch(size: int, limit: int, lanes: int) -> int:
    """Return the size of batches, at most `limit`, with the same number for every lane."""
    rounds = -(-size // (limit * lanes))
    return -(-size // max(1, rounds * lanes))


class MovedRows(ABC):
    """Moves rows without a transform in y; as `LineTransform`."""

    of_gpus = False

    def record_forward(
        self,
        graph: StepGraph,
        points: Array,
        packed: Array,
        tables: RowTables,
        first: int,
        accessed: list[Array],
    ) -> None:
        """Record rows of modes -> the ranks' shares; for parameters see `LineTransform`."""
        self._record(graph, points, (packed, tables), first, accessed, True)

    def record_backward(
        self,
        graph: StepGraph,
        packed: Array,
        points: Array,
        tables: RowTables,
        first: int,
        accessed: list[Array],
    ) -> None:
        """Record the ranks' shares -> rows of modes; only the kept modes are written."""
        self._record(graph, points, (packed, tables), first, accessed, False)

    @abstractmethod
    def _record(
        self,
        graph: StepGraph,
        points: Array,
        packed: tuple[Array, Any],
        first: int,
        accessed: list[Array],
        forward: bool,
    ) -> None:
        """Record one direction: `packed` is an array and its tables."""

    def plan(self, points: Array) -> None:  # noqa: B027
        """Do nothing: there is no transform to plan."""


class SharedRows(MovedRows):
    """Rows of arrays of two axes, which have no transform in y.

    Each rank gets a share of every row of modes; `kept` of a row's modes are kept.
    """

    def __init__(self, kept: Modes) -> None:
        # The places of the modes of each sign: among the kept modes, and among all.
        self._sides = [(0, kept.low, 0), (kept.low, kept.count, kept.gap)]

    def _record(
        self,
        graph: StepGraph,
        points: Array,
        packed: tuple[Array, Any],
        first: int,
        accessed: list[Array],
        forward: bool,
    ) -> None:
        for share, part in self._pairs(points, accessed):
            target, source = (share, part) if forward else (part, share)
            graph.add_copy(target, source, label="pack x")

    def _pairs(self, modes: Array, accessed: list[Array]) -> Iterator[tuple[Array, Array]]:
        fields, planes, _, _ = modes.shape
        first = 0
        for run in accessed:
            for number in range(run.shape[1]):
                share = run[:, number].reshape(fields, planes, -1)
                last = first + share.shape[2]
                for low, high, gap in self._sides:
                    a, b = max(low, first), min(high, last)
                    if a < b:
                        part = modes[:, :, 0, a + gap : b + gap]
                        yield share[:, :, a - first : b - first], part
                first = last


class Shares:
    """Tables of blocks [z][y][kx], one for each rank; every row has a share in each block.

    Blocks begin at the elements `starts`, by rank; by default they are contiguous in arrays of all
    planes of `rows`. `together` fields are side by side: blocks are [z][y][field][kx]. The ranks of
    a run have equally many kx, and one operation moves them. It accesses `views`, by run; by
    default one. The modes of runs are contiguous in a row, unless `places` has their starts.
    """

    def __init__(
        self,
        device: Device,
        rows: PackedBlocks,
        starts: Sequence[int] | None = None,
        together: int = 0,
        views: Sequence[int] | None = None,
        places: Sequence[int] | None = None,
    ) -> None:
        self._together, beside = together, max(1, together)
        if starts is None:
            starts = [beside * start for start, _ in rows.packed_blocks()]
        self.runs: list[tuple[RowTables, int, int, int]] = []
        shares = []
        first = rank = 0
        counts = enumerate(rows.part_counts.tolist())
        for (kx, _), ranks in itertools.groupby(
            counts, lambda one: (one[1], one[0] if places else 0)
        ):
            count = len(list(ranks))
            offset = np.array(starts[rank : rank + count], np.int64)
            tables = RowTables(device, (offset, np.full_like(offset, beside * kx)))
            if places is not None:
                first = places[len(self.runs)]
            if kx:
                self.runs.append((tables, first, count, kx))
                shares += [
                    (first + n * kx, kx, start, beside * kx) for n, start in enumerate(offset)
                ]
            first, rank = first + count * kx, rank + count
        self.views = views or [1] * len(self.runs)
        self._shares = np.array(shares, np.int64).reshape(-1, 4)

    def of_rows(self, packed: Array, first: int) -> tuple[Array, np.ndarray]:
        """Return rows of a packed array, from row `first` on, as a side of `bind_products`."""
        place, kx, start, pitch = self._shares.T
        field = kx if self._together else np.full_like(kx, packed.strides[0] // packed.itemsize)
        return packed, np.stack([place, kx, start + first * pitch, pitch, field], axis=1)

    def seen_from(self, packed: Array, kx: int) -> Array:
        """Return an array with the stride between fields of blocks of `kx` modes."""
        return fields_beside(packed, kx) if self._together else packed


def fields_beside(packed: Array, kx: int) -> Array:
    """Return a view (fields, kx) of the memory of packed fields, with one row of each."""
    flat = packed.reshape(-1)
    return flat[: len(packed) * kx].reshape(len(packed), kx)


class RowsOfShares(MovedRows):
    """Rows that are shared by ranks; the tables of packed arrays are `Shares`."""

    def __init__(self, device: Device, complex_dtype: Any, of_gpus: bool) -> None:
        self.of_gpus = of_gpus
        self._mover = RowMover(device, complex_dtype)

    def _record(
        self,
        graph: StepGraph,
        points: Array,
        packed: tuple[Array, Any],
        first: int,
        accessed: list[Array],
        forward: bool,
    ) -> None:
        array, shares = packed
        rows = points.reshape(len(points), -1, points.shape[3])
        left = iter(accessed)
        for views, (tables, low, count, kx) in zip(shares.views, shares.runs, strict=True):
            part = rows[..., low : low + count * kx]
            work = part.reshape(*part.shape[:2], count, kx)
            there = list(itertools.islice(left, views))
            sides = shares.seen_from(array, kx), work, tables, first * points.shape[2]
            move, reads, writes = (
                (self._mover.scatter(work, sides[0], *sides[2:]), [work], there)
                if forward
                else (self._mover.gather(*sides), there, [work])
            )
            graph.add(move, reads=reads, writes=writes, label="pack x", category="pack")


class LineTransform:
    """Transforms of one length along one axis, in both directions.

    Timelines show the name `axis`. Without `scratch` each transform of a library has separate
    memory. The attribute `tiled` is whether one kernel transforms and moves the rows, and `of_gpus`
    whether it is a kernel for GPUs.
    """

    def __init__(
        self,
        device: Device,
        axis: str,
        n: int,
        complex_dtype: Any,
        tiled: bool = True,
        scratch: Scratch | None = None,
    ) -> None:
        real_dtype = np.zeros(0, complex_dtype).real.dtype
        able = device.tiled_transforms() and StridedTransform.supports(device, n, real_dtype)
        self.of_gpus = tiled and able
        self.tiled = self.of_gpus or device.kind == "cpu"
        self._device, self._axis, self._scratch = device, axis, scratch
        self._kernel: StridedTransform | VectorTransform
        if self.of_gpus:
            self._kernel = StridedTransform(device, n, real_dtype)
        elif self.tiled:
            self._kernel = VectorTransform(device, n)
        else:
            self._mover = RowMover(device, complex_dtype)

    def record_forward(
        self,
        graph: StepGraph,
        points: Array,
        packed: Array,
        tables: RowTables,
        first: int,
        accessed: list[Array],
        moves: tuple[float, float] | None = None,
    ) -> None:
        """Record points -> packed modes.

        Points are (fields, outer, n, columns), and may be overwritten. The fields of the packed
        array are addressed by its leading stride, its rows by the tables, in the memory `accessed`;
        plane 0 of the points is plane `first` of the modes. For `moves`, of a tiled kernel, see
        `StepGraph.add`.
        """
        if self.tiled:
            operation = self._kernel.bind(packed, points, tables, first, True)
            self._add(graph, operation, [points], accessed, "fft", moves)
            return
        self.record_in_place(graph, points, True)
        scatter = self._mover.scatter(points, packed, tables, first)
        self._add(graph, scatter, [points], accessed, "pack")

    def record_backward(
        self,
        graph: StepGraph,
        packed: Array,
        points: Array,
        tables: RowTables,
        first: int,
        accessed: list[Array],
    ) -> None:
        """Record packed modes -> points; as `record_forward`."""
        if self.tiled:
            operation = self._kernel.bind(packed, points, tables, first, False)
            self._add(graph, operation, accessed, [points], "fft")
            return
        gather = self._mover.gather(packed, points, tables, first)
        self._add(graph, gather, accessed, [points], "pack")
        self.record_in_place(graph, points, False)

    def record_backward_stored(
        self,
        graph: StepGraph,
        packed: Array,
        points: Array,
        tables: RowTables,
        stored: tuple[Array, RowTables, int, list[Array]],
    ) -> None:
        """Record packed modes -> points, stored at places given by tables.

        `stored` is the array that the tables of the points refer to, these tables, the first of
        their planes, and the memory that they address. The points are working memory for a
        library's transform; else only their shape matters.
        """
        base, point_tables, first, accessed = stored
        if self.tiled:
            place = base, point_tables, first
            operation = self._kernel.bind(packed, points, tables, 0, False, place)
            self._add(graph, operation, [packed], accessed, "fft")
            return
        self.record_backward(graph, packed, points, tables, 0, [packed])
        scatter = self._mover.scatter(points, base, point_tables, first)
        self._add(graph, scatter, [points], accessed, "pack")

    def record_between(
        self,
        graph: StepGraph,
        modes: tuple[Array, RowTables, list[Array], int],
        points: tuple[Array, RowTables, list[Array], int],
        forward: bool,
        work: Array,
    ) -> None:
        """Record packed modes -> packed points, or back.

        Each side is an array, its tables, the memory that they address for these planes, and the
        first plane. Only the shape of the working memory (fields, planes, n, columns) matters if
        the transform is tiled.
        """
        source, target = (points, modes) if forward else (modes, points)
        if self.tiled:
            place = *points[:2], points[3]
            operation = self._kernel.bind(modes[0], work, modes[1], modes[3], forward, place)
            self._add(graph, operation, source[2], target[2], "fft")
            return
        gather = self._mover.gather(source[0], work, source[1], source[3])
        self._add(graph, gather, source[2], [work], "pack")
        self.record_in_place(graph, work, forward)
        scatter = self._mover.scatter(work, target[0], target[1], target[3])
        self._add(graph, scatter, [work], target[2], "pack")

    def record_in_place(self, graph: StepGraph, points: Array, forward: bool) -> None:
        """Record a library's transform of points in place; all modes are there afterwards."""
        operation = self._device.fft(points, points, 2, forward, self._scratch)
        self._add(graph, operation, [points], [points], "fft")

    def plan(self, points: Array) -> None:
        """Plan a library's transforms of points, if there are any, so that scratch is known."""
        if not self.tiled:
            for forward in (True, False):
                self._device.fft(points, points, 2, forward, self._scratch)

    def _add(
        self,
        graph: StepGraph,
        operation: Operation,
        reads: list[Array],
        writes: list[Array],
        category: str,
        moves: tuple[float, float] | None = None,
    ) -> None:
        graph.add(
            operation,
            reads=reads,
            writes=writes,
            label=f"fft {self._axis}" if category == "fft" else f"pack {self._axis}",
            category=category,
            moves=moves,
        )


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
