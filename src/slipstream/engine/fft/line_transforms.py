"""Transforms along axes that are not contiguous: lines of working arrays, and columns in z."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.device import (
    Device,
    Operation,
    RowLaunch,
    Scratch,
    address_of,
    gpu_fft_launch,
    vector_fft,
)
from slipstream.engine.fft.pack_unpack import RowMover, RowTables, real_name
from slipstream.engine.fft.slab_layout import NOT_KEPT, PackedBlocks, SlabGeometry
from slipstream.engine.fft.transform_parts import Modes
from slipstream.engine.schedule import StepGraph

# Bytes of one batch; see `batches`. A GPU takes all columns together. On a CPU a step uses its
# batch several times, so it fits a core's cache; a transform uses it once, so it is larger.
BATCH_BYTES = {"cpu": 1 << 20, "gpu": 1 << 62}
_TRANSFORM_BATCH_BYTES = 1 << 22


class Rows(NamedTuple):
    """The rows of an array (fields, ...), from plane `first` on, in the memory `accessed`.

    They lie at its strides, or where tables have them; fields always lie at its leading stride.
    """

    array: Array
    accessed: Sequence[Array]
    tables: Any = None
    first: int = 0

    def strides(self) -> list[int]:
        """Return the strides of fields, planes and rows in elements; without planes in tables."""
        count = 3 if self.tables is None else 1
        steps = [stride // self.array.itemsize for stride in self.array.strides[:count]]
        return [*steps, 0, 0][:3]


def in_strides(array: Array) -> Rows:
    """Return all rows of an array without tables."""
    return Rows(array, [array])


def balanced_batch(size: int, limit: int, lanes: int) -> int:
    """Return the size of batches, at most `limit`, with the same number for every lane."""
    rounds = -(-size // (limit * lanes))
    return -(-size // max(1, rounds * lanes))


class MovedRows:
    """Moves rows without a transform in y; as `LineTransform`."""

    of_gpus = False

    def plan(self, points: Array) -> None:
        """Do nothing: there is no transform to plan."""


class SharedRows(MovedRows):
    """Rows of arrays of two axes, which have no transform in y.

    Each rank gets a share of every row of modes; `kept` of a row's modes are kept.
    """

    def __init__(self, kept: Modes) -> None:
        # The places of the modes of each sign: among the kept modes, and among all.
        self._sides = [(0, kept.low, 0), (kept.low, kept.count, kept.gap)]

    def record(self, graph: StepGraph, modes: Rows, points: Rows, forward: bool) -> None:
        """Record rows of modes -> the ranks' shares, or back; only the kept modes are written."""
        for share, part in self._pairs(points.array, modes.accessed):
            target, source = (share, part) if forward else (part, share)
            graph.add_copy(target, source, label="pack x")

    def _pairs(self, modes: Array, accessed: Sequence[Array]) -> Iterator[tuple[Array, Array]]:
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
    """Tables of blocks [z][y][kx], by rank; every row has a share in each block.

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
            counts, lambda entry: (entry[1], entry[0] if places else 0)
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

    def record(self, graph: StepGraph, modes: Rows, points: Rows, forward: bool) -> None:
        """Record rows of modes -> the ranks' shares, or back; see `SharedRows`."""
        array, accessed, shares, first = modes
        values = points.array
        rows = values.reshape(len(values), -1, values.shape[3])
        left = iter(accessed)
        for views, (tables, low, count, kx) in zip(shares.views, shares.runs, strict=True):
            part = rows[..., low : low + count * kx]
            work = part.reshape(*part.shape[:2], count, kx)
            there = list(itertools.islice(left, views))
            packed = shares.seen_from(array, kx)
            operation = self._mover.bind(packed, work, tables, first * values.shape[2], forward)
            reads, writes = ([work], there) if forward else (there, [work])
            graph.add(operation, reads=reads, writes=writes, label="pack x", category="pack")


def has_gpu_kernel(device: Device, n: int, complex_dtype: Any) -> bool:
    """Return whether a device transforms strided lines of this length by a kernel for GPUs."""
    real_dtype, limit = np.zeros(0, complex_dtype).real.dtype, device.shared_memory_limit
    return (
        device.tiled_transforms()
        and gpu_fft_launch.strided_fft(n, real_dtype, -1, limit) is not None
    )


class LineTransform:
    """Transforms of one length along one axis, in both directions: by a kernel or a library.

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
        self.of_gpus = tiled and has_gpu_kernel(device, n, complex_dtype)
        self.tiled = self.of_gpus or device.kind == "cpu"
        self._device, self._axis, self._n, self._scratch = device, axis, n, scratch
        self._real_dtype = np.zeros(0, complex_dtype).real.dtype
        if self.of_gpus:
            self._roots = device.array(gpu_fft_launch.roots(n, self._real_dtype))
        elif not self.tiled:
            self._mover = RowMover(device, complex_dtype)

    def record(
        self,
        graph: StepGraph,
        modes: Rows,
        points: Rows,
        forward: bool,
        work: Any = None,
        moves: tuple[float, float] | None = None,
        scale: float = 1.0,
    ) -> None:
        """Record points -> modes if `forward`, else modes -> points, which it may overwrite.

        Backward, points are multiplied by a constant.
        Points are (fields, planes, n, columns), transformed along the third axis, or where tables
        have their rows. Then `work` has that shape: working memory for a library, else only its
        shape matters. For `moves`, of a kernel, see `StepGraph.add`.
        """
        work = points.array if work is None else work
        source, target = (points, modes) if forward else (modes, points)
        if self.tiled:
            fields, planes, _, columns = work.shape
            operation = self.bind(modes, points, (fields, planes, columns), forward, scale)
            self._add(graph, operation, source.accessed, target.accessed, "fft", moves)
            return
        if source.tables is not None:
            rows = source.array, work, source.tables, source.first
            gather = self._mover.bind(*rows, False, scale)
            self._add(graph, gather, source.accessed, [work], "pack")
        self.record_in_place(graph, work, forward)
        if target.tables is not None:
            scatter = self._mover.bind(target.array, work, target.tables, target.first, True)
            self._add(graph, scatter, [work], target.accessed, "pack")

    def record_in_place(self, graph: StepGraph, points: Array, forward: bool) -> None:
        """Record a library's transform of points in place; all modes are there afterwards."""
        operation = self._device.fft(points, points, 2, forward, self._scratch)
        self._add(graph, operation, [points], [points], "fft")

    def plan(self, points: Array) -> None:
        """Plan a library's transforms of points, if there are any, so that scratch is known."""
        if not self.tiled:
            for forward in (True, False):
                self._device.fft(points, points, 2, forward, self._scratch)

    def bind(
        self,
        modes: Rows,
        points: Rows,
        shape: tuple[int, int, int],
        forward: bool,
        scale: float = 1.0,
    ) -> Operation:
        """Return a kernel's transform between modes and points, times a constant; see `record`.

        The shape is (fields, planes, columns). Modes have tables.
        """
        fields, planes, columns = shape
        sides = [(rows, rows.strides()) for rows in (modes, points)]
        if not self.of_gpus:
            source, target = (
                (
                    rows.array,
                    strides,
                    (None, None, 0) if rows.tables is None else (*rows.tables.both, rows.first),
                )
                for rows, strides in (reversed(sides) if forward else sides)
            )
            if source[1][0] == target[1][0] == columns:
                # Fields side by side count as more columns.
                fields, columns = 1, fields * columns
            size = fields, planes, self._n, columns
            return vector_fft.bind_lines(self._device, source, target, size, forward, scale)
        # Two columns are one access if every row of both sides begins at an even element.
        are_even = all(
            (rows.tables is None or rows.tables.are_even)
            and not any(stride % 2 for stride in strides)
            and not address_of(rows.array) % 16
            for rows, strides in sides
        )
        limit, sign = self._device.shared_memory_limit, -1 if forward else 1
        tile = gpu_fft_launch.strided_fft(self._n, self._real_dtype, sign, limit, are_even)
        if tile is None:
            raise ValueError(f"there is no kernel for transforms of {self._n} points")
        radices = cast("tuple[int, ...]", tile.constants["RADICES"])
        constants = {
            **tile.constants,
            "POINT_TABLES": int(points.tables is not None),
            "STORED_PARTS": modes.tables.stored_parts(radices[-1] if forward else radices[0]),
            "SCALED": int(scale != 1.0),
        }
        return self._device.kernel(tile.header, tile.name, **constants).bind(
            tile.launch(columns, planes, fields),
            (points if forward else modes).array,
            (modes if forward else points).array,
            self._roots,
            modes.tables.entries,
            modes.first,
            fields,
            planes,
            columns,
            sides[0][1][0],
            *sides[1][1],
            (points.tables or modes.tables).entries,
            points.first,
            self._real_dtype.type(scale),
        )

    def _add(
        self,
        graph: StepGraph,
        operation: Operation,
        reads: Sequence[Array],
        writes: Sequence[Array],
        category: str,
        moves: tuple[float, float] | None = None,
    ) -> None:
        label = f"{category} {self._axis}"
        graph.add(
            operation, reads=reads, writes=writes, label=label, category=category, moves=moves
        )


class RealRows:
    """The tiled transform of real rows along the contiguous axis, in both directions."""

    def __init__(self, device: Device, n: int, real_dtype: np.dtype) -> None:
        self._real = np.dtype(real_dtype).type
        self._roots = device.array(gpu_fft_launch.roots(n, real_dtype))
        self._device, self._kernels = device, {}
        for forward in (True, False):
            sign = -1 if forward else 1
            tile = gpu_fft_launch.real_rows(n, real_dtype, sign, device.shared_memory_limit)
            if tile is None:
                raise ValueError(f"there is no kernel for rows of {n} points")
            self._kernels[forward] = tile, device.kernel(tile.header, tile.name, **tile.constants)
        self._no_tables = [device.zeros((1,), np.int64)] * 3

    @staticmethod
    def supports(device: Device, n: int, real_dtype: np.dtype) -> bool:
        """Return whether the device has a kernel for this length."""
        limit = device.shared_memory_limit
        return gpu_fft_launch.real_rows(n, real_dtype, -1, limit) is not None

    def bind(self, points: Array, modes: Array, forward: bool, scale: float = 1.0) -> Operation:
        """Return the transform between points and kept modes.

        Points are (fields, outer, rows, n), real; modes (fields, outer, rows, kept), complex.
        Further modes are zero, and not accessed. Rows are contiguous; points to which modes go
        backward may lie in chunks of rows instead, (fields, outer, rows, chunks, points of each).
        """
        tile, kernel = self._kernels[forward]
        if points.ndim == 5:
            constants = {**tile.constants, "CHUNK": points.shape[-1]}
            kernel = self._device.kernel(tile.header, tile.name, **constants)
        fields, outer, rows, kept = modes.shape
        strides = [s // array.itemsize for array in (points, modes) for s in array.strides[:3]]
        return kernel.bind(
            tile.launch(-(-rows // 2) * fields * outer),
            points,
            modes,
            self._roots,
            self._real(scale),
            fields,
            outer,
            rows,
            kept,
            *strides,
            *self._no_tables,
        )

    def bind_stored(
        self,
        points: Array,
        base: Array,
        tables: tuple[Array, Array, Array],
        kept: int,
        scale: float = 1.0,
    ) -> Operation:
        """Return the forward transform whose modes are stored at places given by tables.

        Mode k of row r of plane o lies at ``offset[k] + o * plane[k] + r * pitch[k]`` of the
        base, whose fields lie at its leading stride; points are as for `bind`.
        """
        tile, _ = self._kernels[True]
        constants = {**tile.constants, "MODE_TABLES": 1}
        kernel = self._device.kernel(tile.header, tile.name, **constants)
        fields, outer, rows, _ = points.shape
        return kernel.bind(
            tile.launch(-(-rows // 2) * fields * outer),
            points,
            base,
            self._roots,
            self._real(scale),
            fields,
            outer,
            rows,
            kept,
            *(stride // points.itemsize for stride in points.strides[:3]),
            base.strides[0] // base.itemsize,
            0,
            0,
            *tables,
        )


class ColumnPass:
    """Transforms along z between truncated spectral arrays and the columns layout.

    One call takes columns of at most `fields` fields. Their arrays have the shape (fields, nz, ky,
    row), where `ky` is by default a batch of this rank's ky, and `row` at most the row of the
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
        # The ranges of this rank's ky, batch by batch.
        starts = range(0, self._ky, self._batch)
        self.batches = [(low, min(low + self._batch, self._ky)) for low in starts]
        # Only GPUs use a library for columns, for all of them in one batch.
        self._work: Any = None
        if stored and not self.line.tiled:
            self._work = device.empty((fields, nz, self._batch, row), complex_dtype)
        self.work_bytes = 0 if self._work is None else self._work.nbytes

    def plan(self, columns: Array) -> None:
        """Plan a library's transforms of columns, if there are any, so that scratch is known."""
        self.line.plan(self._points(columns))

    def record_backward(
        self,
        graph: StepGraph,
        spectral: Array,
        columns: Array,
        rows: Rows | None = None,
        signs: Sequence[int] = (),
        scale: float = 1.0,
    ) -> None:
        """Record spectral modes -> columns, times a constant, in their array or other rows.

        `spectral` is (fields, kz kept, some ky, kx), and not changed. With `rows`, tables of
        columns in another array, the columns are working memory, or only their shape matters.
        Between walls, `signs` is 1 for each even field and -1 for each odd one.
        """
        if rows is not None and self._work is not None:
            columns = self._work[:, :, : columns.shape[2]]
        points = self._points(columns)
        target = rows or in_strides(points)
        self.line.record(graph, self._modes(spectral), target, False, points, scale=scale)

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
            self.line.record(graph, self._modes(spectral), in_strides(points), True)
        elif self.line.tiled:
            # Only the kept modes are stored.
            moves = points.nbytes, points.nbytes * float(self._is_kept.mean())
            kept = Rows(points, [points], self._make_tables_in_place(columns))
            self.line.record(graph, kept, in_strides(points), True, moves=moves)
        else:
            self.line.record_in_place(graph, points, True)

    def _modes(self, spectral: Array) -> Rows:
        """Return the rows of a spectral array; their tables depend on its strides alone."""
        z, y = (stride // spectral.itemsize for stride in spectral.strides[1:3])
        if (z, y) not in self._tables:
            self._tables[z, y] = RowTables(self._device, self._geometry.mode_rows(z, y))
        return Rows(spectral, [spectral], self._tables[z, y])

    def _make_tables_in_place(self, columns: Array) -> RowTables:
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
            for _ in range(min(device.lanes, len(self.batches)))
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
        rows: Rows | None = None,
        signs: Sequence[int] = (),
        scale: float = 1.0,
    ) -> None:
        if scale != 1.0:
            raise ValueError("transforms between walls do not scale")
        work, factors = self._work_of(graph, columns), self._signs(signs, columns)
        self._add(
            graph, "begin_from_modes", (spectral, work), spectral, (self._turns, factors), True
        )
        self._transform(graph, work, False)
        self._add(graph, "end_at_points", (work, columns), columns, (factors,))

    def record_forward(
        self,
        graph: StepGraph,
        columns: Array,
        spectral: Any = None,
        signs: Sequence[int] = (),
    ) -> None:
        work, factors = self._work_of(graph, columns), self._signs(signs, columns)
        target = columns[:, : self._kept] if spectral is None else spectral
        self._add(graph, "begin_from_points", (columns, work), columns, (factors,))
        self._transform(graph, work, True)
        self._add(graph, "end_at_modes", (work, target), target, (self._turns, factors), True)

    def _transform(self, graph: StepGraph, work: Array, forward: bool) -> None:
        if self.line.tiled:
            nz, row = work.shape[2:]
            if row not in self._rows:
                order = row * np.arange(nz, dtype=np.int64)
                self._rows[row] = RowTables(self._device, (order, np.full_like(order, row * nz)))
            modes = Rows(work, [work], self._rows[row])
            self.line.record(graph, modes, in_strides(work), forward)
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
