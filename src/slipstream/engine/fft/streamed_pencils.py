"""Tiles smaller than a plane, of fields on the host: the passes along y and along x.

If whole planes do not fit on the device, or belong to several ranks, a pass over planes has three
steps: tiles of some kx are transformed along y, from packed planes to rows of modes on the host;
tiles of rows are transformed along x to physical space, multiplied, and transformed back; and tiles
of some kx are transformed back along y. Pieces of a few planes follow each other. With pencils
ranks exchange them in between, as in core (`pencil_planes.py`); a slab has all rows of its planes,
and exchanges nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.decomposition import Box
from slipstream.engine.exchange import PackTargets
from slipstream.engine.fft.device_exchange import crossing, placed_points
from slipstream.engine.fft.line_transforms import Rows
from slipstream.engine.fft.pencil_planes import LEAST_BLOCK, BlockRun, Piece, PieceExchange
from slipstream.engine.fft.plane_transforms import PackedPlanes, PlaneTask, PointOperation
from slipstream.engine.fft.slab_layout import (
    PackedBlocks,
    PencilGeometry,
    RowGeometry,
    planes_of_run,
)
from slipstream.engine.schedule import StepGraph

if TYPE_CHECKING:
    from slipstream.engine.fft.slab_engine import SlabExchange
    from slipstream.engine.fft.slab_tiles import SlabWorker
    from slipstream.engine.fft.streamed_slabs import StreamedPasses
    from slipstream.engine.outofcore.tile_slots import Slot


def planes_of_piece(geometry: PencilGeometry, planes: int, itemsize: int) -> int:
    """Return the number of planes of a piece, from the planes of a tile; the same on all ranks."""
    block = geometry.most_rows * geometry.widest_kx * itemsize
    least = -(-LEAST_BLOCK // max(1, block)) if geometry.over > 1 else 1
    return min(max(planes, least), max(1, geometry.planes))


class PackedPart:
    """Planes of this rank from `low` to `high`, and some columns of a range of kx, in a slot.

    They are packed as on the host, in arrays of `planes` planes with rows of `row` elements.
    """

    def __init__(
        self,
        graph: StepGraph,
        slot: Slot[SlabWorker],
        passes: StreamedPasses,
        kx: int,
        low: int,
        high: int,
        planes: int,
        row: int,
        columns: slice = slice(None),
    ) -> None:
        self._graph, self._slot, self._host, self._kx = graph, slot, passes.fields, kx
        self.low, self.high, self._columns = low, high, columns
        self._g = self._host.needs.geometry.ranges[kx].geometry
        self._blocks = self._g.alike(planes, row)
        first, last, _ = columns.indices(self._g.row)
        # Rows of the slot may be longer.
        self._own = slice(0, last - first)
        self._is_whole = self._own.stop == row == self._g.row
        size = planes * self._g.spectral_shape[1] * row
        self.array = slot.allocate((self._host.needs.fields, size), self._host.needs.dtype)

    def record_in(self, fields: int) -> None:
        """Record copies from the host."""
        record_copies(self._graph, self._slot, self._pairs(fields, leaves=False), True)
        g, resident = self._g, self._host.resident[self._kx]
        packed = self._planes_of_rank(g.rank, fields)
        resident.record_in(self._slot.work(self._graph), packed, self.low, self._columns)
        record_copies(self._graph, self._slot, self._list_local_pairs(fields, leaves=False), True)

    def record_out(self, fields: int, targets: PackTargets) -> None:
        """Record copies to the memory of an exchange."""
        g, low = self._g, self.low
        resident = self._host.resident[self._kx]
        if not targets.stores:
            # Planes are packed already, except perhaps for the block of this rank itself.
            record_copies(self._graph, self._slot, self._pairs(fields, leaves=True), False)
        if self._host.leaves_whole:
            packed = self._planes_of_rank(g.rank, fields)
            resident.record_out(self._slot.work(self._graph), packed, low, self._columns)
            record_copies(
                self._graph, self._slot, self._list_local_pairs(fields, leaves=True), False
            )
            return
        z, planes = g.physical_box.start[0] + low, self.high - low
        first_x, last_x, _ = self._columns.indices(g.row)
        for rank in range(len(g.part_counts)):
            if rank != g.rank and not targets.stores:
                continue
            first = int(g.part_starts[rank])
            ky = first + int(g.part_counts[rank])
            packed = self._planes_of_rank(rank, fields)
            if rank == g.rank:
                work = self._slot.work(self._graph)
                resident.record_out(work, packed, low, self._columns)
                packed, first = packed[:, :, resident.ky :], first + resident.ky
            box = Box((z, first, first_x), (z + planes, max(first, ky), last_x))
            for field, values in enumerate(packed):
                for part, target in targets.views(field, box, rank):
                    value = values[part.slices(box)]
                    record_store(self._graph, self._slot, self._host.by_device, target, value)

    def _planes_of_rank(self, rank: int, fields: int) -> Array:
        """Return the part for one rank: (fields, planes, ky, columns)."""
        blocks, planes = self._blocks, self.high - self.low
        start, size = blocks.packed_block(rank)
        packed = self.array[:fields, start : start + planes * size]
        return packed.reshape(fields, planes, size // blocks.row, blocks.row)[..., self._own]

    def _list_local_pairs(self, fields: int, leaves: bool) -> Iterator[tuple[Array, Array]]:
        """Yield the part of this rank's own block, and its place on the host, by ranges of ky."""
        packed, part = self._planes_of_rank(self._g.rank, fields), (self.low, self.high)
        for ky, own in self._host.own_planes(self._kx, fields, leaves, *part):
            yield packed[:, :, ky], own[..., self._columns]

    def _pairs(self, fields: int, leaves: bool) -> Iterator[tuple[Array, Array]]:
        """Yield the part of other ranks' blocks, and its place on the host, run by run."""
        if self._host.apart:
            return
        g, held, low, high = self._g, self._blocks.planes, self.low, self.high
        runs = self._blocks.packed_runs(None, g.rank), g.packed_runs(None, g.rank)
        for run, run_on_host in zip(*runs, strict=True):
            in_slot = planes_of_run(self.array[:fields], run, held, 0, high - low)
            there = self._host.planes_of_run(self._kx, fields, leaves, run_on_host, low, high)
            if self._is_whole:
                yield in_slot.reshape(there.shape), there
                continue
            in_slot, there = (
                one.reshape(*there.shape[:3], -1, row)
                for one, row in ((in_slot, self._blocks.row), (there, g.row))
            )
            yield from field_by_field(in_slot[..., self._own], there[..., self._columns])


def field_by_field(first: Array, second: Array) -> Iterator[tuple[Array, Array]]:
    """Yield two views (fields, blocks, planes, rows, row), by field if copies need it.

    Copies take up to four axes that cannot be merged.
    """
    if first.shape[2] == 1:
        yield first[:, :, 0], second[:, :, 0]
        return
    yield from zip(first, second, strict=True)


def tile_blocks(packed: Array, blocks: PackedBlocks, run: BlockRun, planes: int) -> Array:
    """Return the part of a tile for a run of blocks: (fields, blocks, planes, elements)."""
    start, size = blocks.packed_block(run.rank)
    found = planes_of_run(packed, (start, size, run.count), blocks.planes, 0, planes)
    result: Array = found.reshape(len(packed), run.count, planes, size)
    return result


def record_copies(
    graph: StepGraph, slot: Slot[SlabWorker], pairs: Iterable[tuple[Array, Array]], inward: bool
) -> None:
    """Record copies between arrays in a slot and on the host."""
    for in_slot, on_host in pairs:
        if inward:
            slot.record_in(graph, in_slot, on_host)
        else:
            slot.record_out(graph, on_host, in_slot)


def record_store(
    graph: StepGraph,
    slot: Slot[SlabWorker],
    by_device: bool,
    target: Array,
    values: Array,
) -> None:
    """Record a copy of values of a tile to a block of an exchange, on the host or the device."""
    if by_device:
        slot.work(graph).add_copy(target, values, label="keep")
    else:
        slot.record_out(graph, target, values)


class DividedPlanes:
    """Planes of this rank from `low` to `high`, in smaller tiles; as `PlaneTile`."""

    def __init__(self, graph: StepGraph, passes: StreamedPasses, low: int, high: int) -> None:
        self._graph, self._passes, self.low, self.high = graph, passes, low, high
        self._host, self.device = passes.fields, passes.devices[0]

    def record(
        self, task: PlaneTask, exchanges: Sequence[SlabExchange], closing: StepGraph | None
    ) -> None:
        pieces = self._passes.pieces
        for piece in pieces.of_range(self.low, self.high):
            of_piece, staged = task, callable(task.points)
            if staged:
                fields = max(task.inputs, task.outputs)
                of_piece = replace(task, points=self._passes.staged_points(fields, piece))
            if staged and task.leaves:
                self._record_at_home(task.points, of_piece.points, piece, fills=True)
            if task.arrives:
                self._record_to_rows(task.inputs, piece)
            arrived, leaving = (
                pieces.exchange(fields, piece, forward) if moves else None
                for fields, forward, moves in (
                    (task.inputs, False, task.arrives),
                    (task.outputs, True, task.leaves),
                )
            )
            for tile in self._list_row_tiles(piece):
                if arrived:
                    tile.record_modes(task.inputs, arrived, inward=True)
                tile.record(of_piece)
                if leaving:
                    tile.record_modes(task.outputs, leaving, inward=False)
            if staged and task.arrives:
                self._record_at_home(task.points, of_piece.points, piece, fills=False)
            if leaving:
                self._record_from_rows(task.outputs, piece, exchanges, closing)

    def _record_at_home(
        self, points: PointOperation, staging: StagedPoints, piece: Piece, fills: bool
    ) -> None:
        """Record the operation that fills, or uses, the points of a piece on the host."""
        of_piece = staging.of_planes(piece.low, piece.high)
        operation, accessed = points(of_piece, piece.low)
        self._graph.on(self._host.home).add(
            operation,
            reads=[] if fills else [of_piece],
            # Operations may overwrite their points, and access other arrays.
            writes=[of_piece, *accessed],
            label="load" if fills else "store",
            category="pack",
        )

    def _record_to_rows(self, fields: int, piece: Piece) -> None:
        """Record packed planes -> columns along y -> rows of modes at the ranks of their points."""
        exchange = self._passes.pieces.exchange(fields, piece, forward=False)
        for tile in self._list_line_tiles(piece):
            tile.modes.record_in(fields)
            tile.record_transform(fields, forward=False)
            tile.record_points(fields, exchange, inward=False)
        # Messages have separate lanes.
        exchange.targets.record_close(self._graph.on(self._host.home), "transpose")

    def _record_from_rows(
        self,
        fields: int,
        piece: Piece,
        exchanges: Sequence[SlabExchange],
        closing: StepGraph | None,
    ) -> None:
        exchange = self._passes.pieces.exchange(fields, piece, forward=True)
        exchange.targets.record_close(self._graph.on(self._host.home), "transpose")
        for tile in self._list_line_tiles(piece):
            tile.record_points(fields, exchange, inward=True)
            tile.record_transform(fields, forward=True)
            tile.modes.record_out(fields, exchanges[tile.number].targets)
        for slab_exchange in exchanges:
            slab_exchange.targets.record_written(self._graph, piece.high)
            if piece.is_last and closing is not None:
                slab_exchange.targets.record_close(closing, "transpose")

    def _list_line_tiles(self, piece: Piece) -> Iterator[LineTile]:
        """Yield the tiles of a piece along y, each in the next slot."""
        shape, columns = self._host.shape, self._passes.pieces.geometry.columns_along_y
        for low in range(piece.low, piece.high, shape.planes):
            high = min(low + shape.planes, piece.high)
            for number, all_kx in enumerate(one.row for one in columns):
                width = shape.kx or all_kx
                for first in range(0, all_kx, width):
                    part = slice(first, min(first + width, all_kx))
                    yield LineTile(self._graph, self._passes, piece, low, high, number, part)

    def _list_row_tiles(self, piece: Piece) -> Iterator[RowTile]:
        """Yield the tiles of a piece along x, each in the next slot."""
        shape, all_rows = self._host.shape, self._passes.pieces.geometry.plane_points[0]
        step = shape.rows or all_rows
        for low in range(piece.low, piece.high, shape.planes):
            high = min(low + shape.planes, piece.high)
            for first in range(0, all_rows, step):
                part = slice(first, min(first + step, all_rows))
                yield RowTile(self._graph, self._passes, piece, low, high, part)


class LineTile:
    """Some planes of a piece, in a slot: the modes, and columns along y.

    It has some `kx` of range `number`.
    """

    def __init__(
        self,
        graph: StepGraph,
        passes: StreamedPasses,
        piece: Piece,
        low: int,
        high: int,
        number: int,
        kx: slice,
    ) -> None:
        self._graph, self._piece, self.number = graph, piece, number
        slot = self._slot = passes.next_slot()
        needs, shape = passes.fields.needs, passes.fields.shape
        width = shape.kx or 0
        self._low, self._high, self._kx, self._dtype = low, high, kx, needs.dtype
        self.modes = PackedPart(graph, slot, passes, number, low, high, shape.planes, width, kx)
        self._g = passes.pieces.geometry
        self._blocks = self._g.columns_along_y[number].alike(shape.planes, width)
        self._ny = self._g.shape[1]
        size = shape.planes * self._ny * width
        self._columns = slot.allocate((needs.fields, size), needs.dtype)

    def record_transform(self, fields: int, forward: bool) -> None:
        """Record the transform between modes and columns along y."""
        worker = self._slot.worker
        line = worker.line
        assert line is not None
        planes, width = self._high - self._low, self._kx.stop - self._kx.start
        size = fields, planes, self._ny, width
        if line.tiled:
            work: Any = np.broadcast_to(np.zeros((), self._dtype), size)
        else:
            held = self._blocks.planes, self._ny, self._blocks.row
            work = self._slot.allocate((fields, *held), self._dtype)[:, :planes, :, :width]
        modes, columns = self.modes.array[:fields], self._columns[:fields]
        line.record(
            self._slot.work(self._graph),
            Rows(modes, [modes], worker.mode_tables[self.number]),
            Rows(columns, [columns], worker.column_tables),
            forward,
            work,
        )

    def record_points(self, fields: int, exchange: PieceExchange, inward: bool) -> None:
        """Record copies of columns along y from, or to, the memory of an exchange."""
        record_copies(self._graph, self._slot, self._pairs(fields, exchange), inward)

    def _pairs(self, fields: int, exchange: PieceExchange) -> Iterator[tuple[Array, Array]]:
        """Yield parts of blocks in the slot and on the host."""
        low, high = self._low - self._piece.low, self._high - self._piece.low
        width, blocks = self._kx.stop - self._kx.start, self._blocks
        kx = self._g.columns_along_y[self.number].row
        for run in exchange.column_blocks(self.number):
            in_slot = tile_blocks(self._columns[:fields], blocks, run, high - low)
            on_host = run.of_fields(fields, low, high)
            yield from field_by_field(
                in_slot.reshape(*in_slot.shape[:3], -1, blocks.row)[..., :width],
                on_host.reshape(*on_host.shape[:3], -1, kx)[..., self._kx],
            )


class RowTile:
    """Some planes of a piece and some rows of their points, in a slot, as `rows_of_tile`."""

    def __init__(
        self,
        graph: StepGraph,
        passes: StreamedPasses,
        piece: Piece,
        low: int,
        high: int,
        rows: slice,
    ) -> None:
        self._graph, self._piece = graph, piece
        slot = self._slot = passes.next_slot()
        self._fields, self._low, self._high, self._rows = passes.fields, low, high, rows
        self._held = cast(RowGeometry, slot.worker.planes.geometry)
        needs = passes.fields.needs
        size = self._held.planes * self._held.plane_points[0] * self._held.x_row
        self._modes = slot.allocate((needs.fields, size), needs.dtype)
        # Units of rows, which are planes for a pass.
        self._units = (high - low) * (rows.stop - rows.start) // self._held.plane_points[0]
        self._all_rows = passes.pieces.geometry.plane_points[0]

    def record(self, task: PlaneTask) -> None:
        """Record a task between rows of modes in the slot and points, which may be on the host."""
        product, slot, padded = task.product, self._slot, self._fields.padded
        leaving: tuple[Any, Any] | None = None
        if product is not None:
            row = self._low * self._all_rows + self._rows.start
            product = replace(product, maxima=product.maxima[row:])
            if product.stored:
                in_slot, on_host = self._points(product.points)
                product = replace(product, points=self._split_into_units(in_slot))
                leaving = on_host, in_slot
        elif task.points is not None:
            in_slot, on_host = self._points(task.points)
            if task.leaves:
                slot.record_in(self._graph, *crossing(in_slot, on_host, padded))
            else:
                leaving = crossing(on_host, in_slot, padded)
            task = replace(task, points=self._split_into_units(in_slot))
        sources, targets = (
            [self._packed(fields)] if moves else []
            for fields, moves in ((task.inputs, task.arrives), (task.outputs, task.leaves))
        )
        task = replace(task, product=product)
        work = slot.work(self._graph)
        slot.worker.planes.record(work, task, sources, targets, 0, self._units)
        if leaving is not None:
            slot.record_out(self._graph, *leaving)

    def record_modes(self, fields: int, exchange: PieceExchange, inward: bool) -> None:
        """Record copies of rows of modes from, or to, the memory of an exchange."""
        record_copies(self._graph, self._slot, self._pairs(fields, exchange), inward)

    def _packed(self, fields: int) -> PackedPlanes:
        worker = self._slot.worker
        return replace(worker.planes.packed(0, self._modes[:fields]), tables=worker.shares)

    def _points(self, points: Any) -> tuple[Array, Array]:
        """Return the tile's points, in the slot and on the host."""
        on_host, host = points[:, self._low : self._high, self._rows], self._fields
        return placed_points(self._slot, on_host.shape, on_host.dtype, host.padded), on_host

    def _split_into_units(self, array: Array) -> Array:
        unit = self._held.plane_points[0]
        return array.reshape(len(array), self._units, unit, array.shape[-1])

    def _pairs(self, fields: int, exchange: PieceExchange) -> Iterator[tuple[Array, Array]]:
        """Yield parts of blocks, in the slot and on the host: (fields, blocks, planes, rows)."""
        low, high = self._low - self._piece.low, self._high - self._piece.low
        for run in exchange.row_blocks():
            in_slot = tile_blocks(self._modes[:fields], self._held, run, self._units)
            there = run.of_fields(fields, low, high)
            kx = there.shape[3] // self._all_rows
            part = slice(self._rows.start * kx, self._rows.stop * kx)
            yield in_slot.reshape(*there.shape[:3], -1), there[..., part]


@dataclass(frozen=True)
class StagedPoints:
    """Points of a piece on the host, (fields, planes, rows, nx), that begin at plane `first`."""

    array: Array
    first: int

    def of_planes(self, low: int, high: int) -> Array:
        """Return the points of planes of this rank."""
        return self.array[:, low - self.first : high - self.first]

    def __getitem__(self, part: tuple[slice, ...]) -> Array:
        fields, planes, *rest = part
        of_piece = self.of_planes(planes.start, planes.stop)
        return of_piece[(fields, slice(None), *rest)]
