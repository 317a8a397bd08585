"""The pass over planes whose rows belong to several ranks: along y, an exchange, and along x.

For modes, a rank of a process grid has whole columns along y of some kx of its planes; at the
points, all x of some of their rows. Between the transforms along y and along x, ranks with the same
planes exchange these. The transforms are those of `plane_transforms.py`, so results have the same
bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.decomposition import split
from slipstream.engine.device import Device, address_of
from slipstream.engine.exchange import PackTargets, Transport, pack_targets, part_of
from slipstream.engine.fft.line_transforms import (
    LineTransform,
    RowsOfShares,
    Shares,
    balanced_batch,
    fields_beside,
)
from slipstream.engine.fft.pack_unpack import RowTables
from slipstream.engine.fft.plane_transforms import (
    BATCH_BYTES,
    PackedPlanes,
    PlaneBatches,
    PlanePass,
    PlaneTables,
    PlaneTask,
)
from slipstream.engine.fft.slab_layout import (
    PackedBlocks,
    PencilGeometry,
    planes_beside,
    planes_of_run,
)
from slipstream.engine.schedule import StepGraph

# The least bytes of a field's blocks, if there are enough planes: each piece waits for two
# exchanges. At 64³ on two ranks of two cores one piece took 0.88 of the time of three.
LEAST_BLOCK = 1 << 20


class PencilExchanges:
    """The arrays of pieces between the transforms along y and x, and their exchange.

    A piece has up to `planes` planes of this rank; pieces use slots in turn. `across` exchanges
    among the ranks with the same planes. All fields of a piece go to a rank in one message. If it
    `stores`, kernels store blocks at the receiver, on CPUs that share memory; else they store them
    in the first array of a slot. Received blocks are in the second array. If nothing leaves the
    first array, it receives the blocks of the way back: so ranks need not wait until others have
    read all earlier blocks. Without `across` a rank has all rows of its planes, in one place.
    """

    def __init__(
        self,
        device: Device,
        geometry: PencilGeometry,
        fields: int,
        complex_dtype: Any,
        across: Transport | None,
        planes: int,
        stores: bool = True,
    ) -> None:
        self.planes, self.geometry = planes, geometry
        self._slots = 2 if planes < geometry.planes else 1  # two pieces can be in progress
        self.device, self._across = device, across
        self._plan = geometry.across(planes)
        size = max(self._plan.send_size, self._plan.receive_size)
        empty = across.empty if across else device.empty
        self._memory = [
            [empty((fields, size), complex_dtype) for _ in range(2 if across else 1)]
            for _ in range(self._slots)
        ]
        self.buffer_bytes = sum(one.nbytes for slot in self._memory for one in slot)
        # Kernels of GPUs are slow to store rows of a few kilobytes in other memory.
        self._stores = (
            stores
            and device.kind == "cpu"
            and across is not None
            and not across.pack_buffer_bytes(size)
        )
        self._made: dict[tuple[int, int, int, bool], PieceExchange] = {}

    def of_range(self, first: int, last: int) -> Iterator[Piece]:
        """Yield the pieces of planes from `first` to `last`, in slots in turn."""
        count = -(-(last - first) // self.planes)
        for number, (low, high) in enumerate(split(last - first, max(1, count))):
            yield Piece(first + low, first + high, number % self._slots, high + first == last)

    def exchange(self, fields: int, piece: Piece, forward: bool) -> PieceExchange:
        """Return the exchange of a piece: rows to columns along y if `forward`. Collective."""
        planes = piece.high - piece.low
        key = fields, planes, piece.slot, forward
        if key not in self._made:
            plan = self._plan.reversed() if forward else self._plan
            plan = plan.of_fields(fields).between(0, planes)
            memory = self._memory[piece.slot]
            leaving, arriving = memory[0][:fields], memory[-1][:fields]
            if forward and self._stores:
                arriving = leaving
            pairs, kept = [(leaving.reshape(-1), arriving.reshape(-1))], {}
            if forward and not self._stores:
                # A rank's own block is not moved: its place has rows that have not been read.
                kept = {one.peer: part_of(pairs[0][0], one) for one in plan.sends}
                others = [rank for rank in range(self.geometry.over) if rank != self.geometry.part]
                plan = plan.among(others)
            targets = pack_targets(self._across, plan, pairs, self._stores)
            self._made[key] = PieceExchange(self, targets, leaving, arriving, forward, kept)
        return self._made[key]


class PieceExchange:
    """One exchange of a piece: the blocks of all ranks before and after it.

    Columns along y are on one side, and rows of points on the other; `forward` is from rows to
    columns. Kernels take `columns` and `rows`, with rows of all fields side by side: blocks are
    [z][y][field][kx]. Tiles are copied from and to `column_blocks` and `row_blocks`, with planes
    side by side: blocks are [z][field][y][kx]. If `kept`, this rank's own block is not sent.
    """

    def __init__(
        self,
        exchanges: PencilExchanges,
        targets: PackTargets,
        leaving: Array,
        arriving: Array,
        forward: bool,
        kept: Mapping[int, Array],
    ) -> None:
        self.targets, self._leaving, self._arriving = targets, leaving, arriving
        self._held, self._geometry = exchanges.planes, exchanges.geometry
        self._device, self._forward, self._kept = exchanges.device, forward, kept
        # Without other ranks everything is in one place, for any number of fields.
        self._is_alone = self._geometry.over == 1

    @cached_property
    def columns(self) -> PackedPlanes:
        """Columns along y, for kernels."""
        blocks, arrived = self._geometry.columns_along_y[0], self._forward
        beside = blocks.alike(self._held, len(self._leaving) * blocks.row)
        starts, views = self._side(beside, arrived)
        tables = RowTables(self._device, beside.packed_rows(None, dict(enumerate(starts))))
        array = fields_beside(self._array(arrived), blocks.row)
        return PackedPlanes(array, tables, self._accessed(views))

    @cached_property
    def rows(self) -> PackedPlanes:
        """Rows of points, for kernels."""
        blocks, fields, arrived = self._geometry.rows, len(self._leaving), not self._forward
        starts, views = self._side(blocks.alike(self._held, fields * blocks.row), arrived)
        shares = Shares(self._device, blocks, starts, fields, [len(one) for one in views])
        return PackedPlanes(self._array(arrived), shares, self._accessed(views))

    def column_blocks(self, kx: int = 0) -> list[BlockRun]:
        """Return the blocks of columns along y of a range of kx, for tiles."""
        g = self._geometry
        if self._is_alone:
            # Blocks of rows belong to ranges.
            start, size = g.rows.packed_block(kx, self._held)
            return [BlockRun(self._leaving, start, size, 1, self._held)] if size else []
        return self._blocks(g.columns_along_y[kx], self._forward)

    def row_blocks(self) -> list[BlockRun]:
        """Return the blocks of rows of points, for tiles."""
        rows = self._geometry.rows
        if self._is_alone:
            sizes = enumerate(rows.packed_blocks(self._held))
            return [
                BlockRun(self._leaving, start, size, 1, self._held, rank)
                for rank, (start, size) in sizes
                if size
            ]
        return self._blocks(rows, not self._forward)

    def _blocks(self, blocks: PackedBlocks, arrived: bool) -> list[BlockRun]:
        beside = blocks.alike(self._held, len(self._leaving) * blocks.row)
        return list(itertools.chain(*self._side(beside, arrived)[1]))

    def _array(self, arrived: bool) -> Array:
        return self._arriving if arrived else self._leaving

    def _side(self, blocks: PackedBlocks, arrived: bool) -> tuple[list[int], list[list[BlockRun]]]:
        """Return the starts of the blocks of all ranks, and views of them by size per plane.

        Contiguous blocks, perhaps thousands, are one view.
        """
        array = self._array(arrived)
        memory, origin = array.reshape(1, -1), address_of(array)
        starts, views = [], []
        sizes = enumerate(blocks.packed_blocks())
        for size, of_size in itertools.groupby(sizes, lambda entry: entry[1][1]):
            runs: list[BlockRun] = []
            joins = False
            for rank, (start, _) in of_size:
                block = self._block(rank, arrived)
                if block is None:
                    starts.append(start)
                    if joins:
                        runs[-1] = replace(runs[-1], count=runs[-1].count + 1)
                    else:
                        runs.append(BlockRun(memory, start, size, 1, self._held, rank))
                    joins = True
                    continue
                starts.append((address_of(block) - origin) // block.itemsize)
                held = block.size // size
                runs.append(BlockRun(block.reshape(1, -1), 0, size, 1, held, rank))
                joins = False
            if size:
                views.append(runs)
        return starts, views

    def _block(self, rank: int, arrived: bool) -> Array | None:
        """Return the memory of a block outside the array of its side."""
        is_own = rank == self._geometry.part
        if arrived:
            return self._kept.get(rank) if is_own else None
        if not self.targets.blocks or not (self.targets.stores or is_own):
            return None
        return self.targets.blocks[0].get(rank)

    @staticmethod
    def _accessed(views: list[list[BlockRun]]) -> Callable[[int, int], list[Array]]:
        runs = list(itertools.chain(*views))
        return lambda low, high: [run.planes(low, high) for run in runs]


@dataclass(frozen=True)
class BlockRun:
    """Contiguous blocks for, or from, `count` ranks from `rank` on.

    They have `held` planes each. The memory is (1, all) if fields are side by side, and `size`
    elements are a plane of all fields; or (fields, all), and `size` elements are a plane of each
    field.
    """

    memory: Array
    start: int
    size: int
    count: int
    held: int
    rank: int = 0

    def planes(self, low: int, high: int) -> Array:
        """Return planes of all fields: (1, blocks, elements), or (fields, blocks, elements)."""
        run = self.start, self.size, self.count
        planes: Array = planes_of_run(self.memory, run, self.held, low, high)
        return planes

    def of_fields(self, fields: int, low: int, high: int) -> Array:
        """Return planes of fields that are side by side: (fields, blocks, planes, elements)."""
        planes: Array
        if len(self.memory) == fields:
            planes = self.planes(low, high).reshape(fields, self.count, high - low, self.size)
            return planes
        size = self.size // fields
        memory = self.memory[:, self.start :]
        planes = planes_beside(memory, fields, (0, size, self.count), self.held, low, high)
        return planes


@dataclass(frozen=True)
class Piece:
    """Some planes that are transformed together, and the slot of their arrays."""

    low: int
    high: int
    slot: int
    is_last: bool


class PencilPass:
    """Transforms in x and y between packed planes of some kx and rows of points; as `PlanePass`.

    `across` exchanges among the ranks with the same planes, which have up to `lanes` lanes each.
    Planes are transformed in pieces of a few: on a CPU these stay in cache from one transform to
    the other and back.
    """

    def __init__(
        self,
        device: Device,
        geometry: PencilGeometry,
        fields: int,
        complex_dtype: Any,
        across: Transport,
        lanes: int,
    ) -> None:
        self._device, self.geometry = device, geometry
        of_kx, rows, ny = geometry.ranges[0].geometry, geometry.rows, geometry.shape[1]
        plane_bytes = fields * ny * geometry.widest_kx * np.dtype(complex_dtype).itemsize
        block_bytes = geometry.most_rows * geometry.widest_kx * np.dtype(complex_dtype).itemsize
        most = max(
            1, lanes * BATCH_BYTES[device.processor] // plane_bytes, LEAST_BLOCK // block_bytes
        )
        piece = min(most, max(1, geometry.planes))
        self._pieces = PencilExchanges(device, geometry, fields, complex_dtype, across, piece)
        self.buffer_bytes = self._pieces.buffer_bytes
        self._modes = PlaneTables(device, of_kx, of_kx.planes)
        self._line = LineTransform(device, "y", ny, complex_dtype)
        shares = RowsOfShares(device, complex_dtype, self._line.of_gpus)
        batches = PlaneBatches.of_step(device, rows, fields, complex_dtype, piece)
        self._points = PlanePass(device, rows, fields, complex_dtype, batches, lines=[shares])
        self._batch = max(1, balanced_batch(piece, piece, device.lanes))
        size = fields, self._batch, ny, of_kx.modes[2].count
        # Without a library only the shape matters.
        self._work: Any = np.broadcast_to(np.zeros((), complex_dtype), size)
        if not self._line.tiled:
            self._work = device.empty(size, complex_dtype)

    def packed(
        self, number: int, array: Array, record_close: Callable[[], None] | None = None
    ) -> PackedPlanes:
        """Return the planes of the kx of this rank; see `PlaneTables`."""
        return self._modes.of(array, record_close)

    def record(
        self,
        graph: StepGraph,
        task: PlaneTask,
        sources: Sequence[PackedPlanes],
        targets: Sequence[PackedPlanes],
        first: int = 0,
        last: int | None = None,
    ) -> None:
        """Record a task between packed planes; see `PlanePass`."""
        last = self.geometry.planes if last is None else last
        for piece in self._pieces.of_range(first, last):
            arrived, leaving = [], []
            # Pencils have one range of kx: one source, one target.
            for source in sources:
                inward = self._pieces.exchange(len(source.array), piece, forward=False)
                inward.targets.record_open(graph, "transpose")
                self._record_along_y(graph, source, inward.columns, piece, forward=False)
                # Messages have separate lanes.
                inward.targets.record_close(graph.on(graph.device), "transpose")
                arrived.append(replace(inward.rows, origin=piece.low))
            for target in targets:
                outward = self._pieces.exchange(len(target.array), piece, forward=True)
                outward.targets.record_open(graph, "transpose")
                leaving.append(replace(outward.rows, origin=piece.low))
            self._points.record(graph, task, arrived, leaving, piece.low, piece.high)
            for target in targets:
                outward.targets.record_close(graph.on(graph.device), "transpose")
                self._record_along_y(graph, target, outward.columns, piece, forward=True)
                if piece.is_last and target.record_close is not None:
                    target.record_close()

    def _record_along_y(
        self,
        graph: StepGraph,
        planes: PackedPlanes,
        columns: PackedPlanes,
        piece: Piece,
        forward: bool,
    ) -> None:
        for number, low in enumerate(range(piece.low, piece.high, self._batch)):
            lane = graph.lane_of_batch(number)[1] if self._line.tiled else None
            high = min(low + self._batch, piece.high)
            points = columns.rows(low - piece.low, high - piece.low)
            work = self._work[: len(planes.array), : high - low]
            batch = graph.on(graph.device, lane)
            self._line.record(batch, planes.rows(low, high), points, forward, work)
