"""The three-dimensional transform along any route of layouts, with kernels for GPUs.

Every transform is one pass through memory, and the last one before an exchange stores its result in
the next layout, in the memory of the receiving ranks: nothing is packed, copied or unpacked. If a
transport cannot store, the transform packs its blocks, and they are unpacked after the exchange. A
stage of the route has one working array on every rank. Received data are there, and all transforms
but the last are in place: real rows too, which begin where their modes do. Stages alternate between
two memories. Between transforms along z and y an exchange may be divided into chunks of x: while a
chunk is sent, the previous one is transformed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.decomposition import split
from slipstream.engine.device import Device, address_of
from slipstream.engine.exchange import (
    ArrayBox,
    Block,
    ExchangePlan,
    Transport,
    box_targets,
    copy_boxes,
)
from slipstream.engine.fft.fft_arguments import Arguments, Boxes, Stage
from slipstream.engine.fft.line_transforms import LineTransform, RealRows, Rows, has_gpu_kernel
from slipstream.engine.fft.pack_unpack import RowTables
from slipstream.engine.fft.slab_engine import LANE_AFTER_EXCHANGE
from slipstream.engine.fft.slab_layout import NOT_KEPT
from slipstream.engine.fft.transform_parts import Part, split_scale
from slipstream.engine.schedule import MAIN_LANE, StepGraph

# Parts of a local array, each with the view that it is stored to.
Pieces = list[tuple[tuple[slice, ...], Array]]

_X = 3
_ALL = [slice(None)]
_NAMES = {1: "z", 2: "y", 3: "x"}


class RouteTransform(Part):
    """Records transforms of real arrays along a route. Collective.

    `transport` exchanges complex arrays, `full` real arrays, in full precision.
    """

    def __init__(
        self,
        device: Device,
        transport: Transport,
        full: Transport,
        arguments: Arguments,
        route: Sequence[Stage],
        rank: int,
        chunks: int = 1,
    ) -> None:
        self._device, self._route, self._rank, self._full = device, route, rank, full
        self._dtype, self._complex = arguments.dtype, arguments.complex_dtype
        self._modes, self._shape = arguments.modes, arguments.shape
        self._lines = {
            axis: LineTransform(device, _NAMES[axis], arguments.shape[axis - 1], self._complex)
            for axis in (1, 2)
        }
        self._rows = RealRows(device, arguments.shape[2], self._dtype)
        self._x_stage = next(n for n, stage in enumerate(route) if _X in stage.axes)
        self.alignment = max(1, device.row_bytes // self._complex.itemsize)
        shapes = [self._stored(number, rank) for number in range(len(route))]
        self._memories = [
            full.empty((max(map(math.prod, shapes[turn::2]), default=0),), self._complex)
            for turn in (0, 1)
        ]
        self._packed: tuple[Array, Array] | None = None
        # The exchanges between each stage and the next: forward, backward.
        pairs = list(enumerate(zip(route[:-1], route[1:], strict=True)))
        self._plans = [
            ExchangePlan.redistribution(stage.after, next_stage.before, rank)
            for _, (stage, next_stage) in pairs
        ]
        self._ways: list[tuple[list[_Way], list[_Way]]] = []
        for (number, (stage, next_stage)), plan in zip(pairs, self._plans, strict=True):
            real = number < self._x_stage
            used = full if real else transport
            count = chunks if _divides(stage, next_stage) else 1
            self._ways.append(
                (
                    _ways(
                        self, used, plan, number + 1, (stage.after, next_stage.before), real, count
                    ),
                    _ways(
                        self,
                        used,
                        plan.reversed(),
                        number,
                        (next_stage.before, stage.after),
                        real,
                        count,
                    ),
                )
            )
        self.exchanges = len(pairs)
        sent = [plan.off_rank_elements() for plan in self._plans]
        self.wire_elements = sum(sent[self._x_stage :])
        self.real_wire_elements = sum(sent[: self._x_stage])
        self.buffer_bytes = sum(
            memory.nbytes for memory in (*self._memories, *(self._packed or ()))
        )

    @staticmethod
    def supports(device: Device, arguments: Arguments) -> bool:
        """Return whether the device has kernels for the transforms of a cube."""
        a = arguments
        return (
            a.real
            and device.tiled_transforms()
            and RealRows.supports(device, a.shape[2], a.dtype)
            and all(has_gpu_kernel(device, n, a.complex_dtype) for n in a.shape[:2])
        )

    def describe(self) -> str:
        stores = all(way.stores for pair in self._ways for ways in pair for way in ways)
        stages = []
        for stage in self._route:
            shape = " x ".join(map(str, stage.before[self._rank].shape[1:]))
            axes = ", ".join(_NAMES[axis] for axis in stage.axes)
            stages.append(f"transforms along {axes} of {shape}" if axes else f"boxes of {shape}")
        how = "stored by them" if stores else "packed by them"
        return f", exchange, {how}, ".join(stages)

    def record_forward(
        self, graph: StepGraph, source: Array, target: Array, scale: float = 1.0
    ) -> None:
        self._record(graph, source, target, True, scale)

    def record_backward(
        self, graph: StepGraph, source: Array, target: Array, scale: float = 1.0
    ) -> None:
        self._record(graph, source, target, False, scale)

    def _record(
        self, graph: StepGraph, source: Array, target: Array, forward: bool, scale: float
    ) -> None:
        """Record all stages in order, or if not `forward` in reverse order."""
        array, arrived = source, [_ALL]
        first, along_x = (1.0, scale) if forward else split_scale(scale, self._shape)
        # The ways from each stage to the next in this direction.
        ways_between = [pair[0 if forward else 1] for pair in self._ways]
        numbers = range(len(self._route))
        for number in numbers if forward else reversed(numbers):
            stage = self._route[number]
            came, goes = (number - 1, number) if forward else (number, number - 1)
            ways = ways_between[goes] if 0 <= goes < len(ways_between) else []
            if 0 <= came < len(ways_between):
                boxes = stage.before if forward else stage.after
                is_real = number < self._x_stage or (forward and number == self._x_stage)
                array = self._landing(number, boxes, is_real)
                arrived = [way.columns for way in ways_between[came]]
            for way in ways:
                way.record_open(graph)
            axes = stage.axes if forward else stage.axes[::-1]
            for axis in axes:
                if axis == _X and not forward:
                    # Rows of one rank may go to several ranks: then they are transformed in place.
                    points = self._landing(number, stage.before, True) if ways else target
                    if points.size:
                        operation = self._rows.bind(points, array, False, along_x)
                        both = [array, points]
                        graph.add(operation, reads=both, writes=both, label="fft x", category="fft")
                    if ways:
                        self._record_moves(graph, points, ways, target)
                    continue
                inside, modes = axis != axes[-1], self._modes[axis - 1]
                shape = list(array.shape)
                shape[axis] = (modes.count if forward else modes.size) if array.size else 0
                result = self._view(number, shape) if inside or ways else target
                ends: list[_Way | None] = [None] if inside or not ways else [*ways]
                for end in ends:
                    pieces = end.pieces if end else _whole(result)
                    if axis == _X:
                        self._record_rows(graph, array, pieces, along_x)
                    else:
                        self._record_chunks(graph, axis, array, pieces, forward, arrived, first)
                    if end:
                        end.record_close(graph)
                first = 1.0
                array, arrived = result, [_ALL]
            if not stage.axes:
                self._record_moves(graph, array, ways, target)

    def _landing(self, number: int, boxes: Boxes, real: bool) -> Array:
        """Return the view of this rank's box in the working array of a stage."""
        return self._view(number, boxes[self._rank].shape, real)

    def whole_landing(self, number: int, real: bool) -> Array:
        """Return the whole working array of a stage."""
        return self._view(number, self.landing_shape(number, self._rank, real), real)

    def landing_shape(self, number: int, rank: int, real: bool) -> tuple[int, ...]:
        """Return the shape of the whole working array of a stage on some rank."""
        *shape, row = self._stored(number, rank)
        return (*shape, 2 * row if real else row)

    def packed(self, plan: ExchangePlan, real: bool) -> tuple[Array, Array]:
        """Return the buffers, sent and received, of blocks that cannot be stored directly."""
        if self._packed is None:
            sizes = [
                max(stage_plan.send_size, stage_plan.receive_size) for stage_plan in self._plans
            ]
            size = max(sizes, default=0)
            self._packed = (
                self._full.empty((size,), self._complex),
                self._full.empty((size,), self._complex),
            )
        dtype = self._dtype if real else self._complex
        outgoing, incoming = (buffer.view(dtype) for buffer in self._packed)
        return outgoing[: plan.send_size], incoming[: plan.receive_size]

    def _stored(self, number: int, rank: int) -> tuple[int, ...]:
        """Return the shape, in complex numbers, of the working array of a stage on some rank."""
        stage = self._route[number]
        before, after = stage.before[rank], stage.after[rank]
        *shape, _ = map(max, before.shape, after.shape)
        row = after.shape[_X] if number >= self._x_stage else 0
        if number <= self._x_stage and (number or number < self._x_stage):
            row = max(row, -(-before.shape[_X] // 2))
        return (*shape, -(-row // self.alignment) * self.alignment)

    def _view(self, number: int, shape: Sequence[int], real: bool = False) -> Array:
        stored = self.landing_shape(number, self._rank, real)
        memory = self._memories[number % 2]
        memory = memory.view(self._dtype) if real else memory
        array = memory[: math.prod(stored)].reshape(stored)
        return array[tuple(slice(0, extent) for extent in shape)]

    def _record_rows(self, graph: StepGraph, points: Array, pieces: Pieces, scale: float) -> None:
        """Record the forward transform along x of local points into pieces of their modes."""
        for group in _groups(pieces, (0, 1, 2)):
            part = points[group[0][0][:_X]]
            for selected, views in _split_by_field(part, [view for _, view in group]):
                if len(pieces) == 1:
                    operation = self._rows.bind(selected, views[0], True, scale)
                else:
                    tables = [
                        np.full(self._modes[2].count, value, np.int64) for value in (NOT_KEPT, 0, 0)
                    ]
                    for (slices, _), view in zip(group, views, strict=True):
                        span = slices[_X]
                        steps = [stride // view.itemsize for stride in view.strides]
                        columns = np.arange(span.stop - span.start)
                        tables[0][span] = _distance(views[0], view) + columns
                        tables[1][span], tables[2][span] = steps[1:3]
                    on_device = (
                        self._device.array(tables[0]),
                        self._device.array(tables[1]),
                        self._device.array(tables[2]),
                    )
                    operation = self._rows.bind_stored(
                        selected, views[0], on_device, len(tables[0]), scale
                    )
                graph.add(operation, reads=[selected], writes=views, label="fft x", category="fft")

    def _record_chunks(
        self,
        graph: StepGraph,
        axis: int,
        array: Array,
        pieces: Pieces,
        forward: bool,
        arrived: list[list[slice]],
        scale: float,
    ) -> None:
        """Record the transform along y or z, of columns chunk by chunk as they arrive."""
        is_late = len(arrived) > 1 and graph.device.kind != "cpu"
        lane = LANE_AFTER_EXCHANGE if is_late else MAIN_LANE
        for columns in arrived:
            for one in columns:
                part = _within(pieces, one)
                self._record_lines(graph, axis, array, part, forward, lane, scale)

    def _record_lines(
        self,
        graph: StepGraph,
        axis: int,
        array: Array,
        pieces: Pieces,
        forward: bool,
        lane: str,
        scale: float,
    ) -> None:
        """Record the transform along y or z of a local array into pieces of the result."""
        other, modes = 3 - axis, self._modes[axis - 1]
        positions = modes.positions()
        for group in _groups(pieces, (0, other, _X)):
            slices = list(group[0][0])
            slices[axis] = slice(None)
            part = array[tuple(slices)]
            for selected, views in _split_by_field(part, [view for _, view in group]):
                steps = [stride // selected.itemsize for stride in selected.strides]
                local = (
                    steps[axis] * np.arange(selected.shape[axis], dtype=np.int64),
                    np.full(selected.shape[axis], steps[other], np.int64),
                )
                count = modes.count if forward else modes.size
                offset = np.full(count, NOT_KEPT, np.int64)
                pitch = np.zeros(count, np.int64)
                for (where, _), view in zip(group, views, strict=True):
                    span = where[axis]
                    rows = np.arange(span.stop - span.start)
                    steps = [stride // view.itemsize for stride in view.strides]
                    offset[span] = _distance(views[0], view) + rows * steps[axis]
                    pitch[span] = steps[other]
                stored = offset, pitch
                kept, points = (stored, local) if forward else (local, stored)
                spread = (
                    np.where(positions < 0, NOT_KEPT, kept[0][positions]),
                    np.where(positions < 0, 0, kept[1][positions]),
                )
                tables = RowTables(self._device, spread), RowTables(self._device, points)
                sides = (views[0], views), (selected, [selected])
                modes_side, points_side = (
                    Rows(*side, table)
                    for side, table in zip(sides if forward else sides[::-1], tables, strict=True)
                )
                shape = selected.shape[0], selected.shape[other], selected.shape[_X]
                line = self._lines[axis]
                operation = line.bind(modes_side, points_side, shape, forward, scale)
                label = f"fft {_NAMES[axis]}"
                graph.add(
                    operation,
                    reads=[selected],
                    writes=views,
                    label=label,
                    category="fft",
                    lane=lane,
                )

    def _record_moves(
        self, graph: StepGraph, array: Array, ways: list[_Way], target: Array
    ) -> None:
        """Record copies of a local array into the next layout."""
        ends: list[_Way | None] = [*ways] or [None]
        for way in ends:
            for slices, view in way.pieces if way else _whole(target):
                part = array[slices]
                pairs = [
                    (part[field].view(self._dtype), view[field].view(self._dtype))
                    for field in range(len(part))
                ]
                graph.add(
                    copy_boxes(self._device, pairs),
                    reads=[part],
                    writes=[view],
                    label="redistribute",
                    category="pack",
                )
            if way:
                way.record_close(graph)


class _Way:
    """An exchange from one layout to the next, or back. Collective.

    `pieces` are the parts of this rank's array, with the views that they are stored to; `columns`
    are the received ranges of x. `boxes` are the boxes before and after.
    """

    def __init__(
        self,
        route: RouteTransform,
        transport: Transport,
        plan: ExchangePlan,
        number: int,
        boxes: tuple[Boxes, Boxes],
        real: bool,
    ) -> None:
        rank, self._device, targets = plan.rank, transport.device, boxes[1]
        first = targets[rank].start[_X]
        ranges = {(block.box.start[_X], block.box.stop[_X]) for block in plan.receives}
        self.columns = [slice(low - first, high - first) for low, high in sorted(ranges)]
        array = route.whole_landing(number, real)
        shapes = {
            block.peer: route.landing_shape(number, block.peer, real)
            for block in (*plan.sends, *plan.receives)
        }
        sent = [block for block in plan.sends if block.peer != rank]
        made = box_targets(
            transport,
            plan.among(set(shapes) - {rank}),
            array,
            [
                ArrayBox(b.peer, b.offset, shapes[b.peer], b.box.slices(targets[b.peer]))
                for b in sent
            ],
            [
                ArrayBox(b.peer, b.offset, array.shape, b.box.slices(targets[rank]))
                for b in plan.receives
                if b.peer != rank
            ],
            alternating=False,
            packed=lambda: route.packed(plan, real),
        )
        self._blocks, self._unpacking, self.stores = made.blocks, made.unpacking, made.blocks.stores
        parts = [
            (block.box, array[block.box.slices(targets[rank])])
            for block in plan.sends
            if block.peer == rank
        ]
        parts += [(block.box, view) for block, view in zip(sent, made.targets, strict=True)]
        self.pieces: Pieces = [(box.slices(boxes[0][rank]), view) for box, view in parts]

    def record_open(self, graph: StepGraph) -> None:
        self._blocks.record_open(graph, "redistribute")

    def record_close(self, graph: StepGraph) -> None:
        self._blocks.record_close(graph, "redistribute")
        for packed, place in self._unpacking:
            graph.add_copy(place, packed, label="unpack", device=self._device)


def _ways(
    route: RouteTransform,
    transport: Transport,
    plan: ExchangePlan,
    number: int,
    boxes: tuple[Boxes, Boxes],
    real: bool,
    chunks: int,
) -> list[_Way]:
    """Return an exchange in chunks: every block is divided along x. Collective."""
    if chunks == 1:
        way = _Way(route, transport, plan, number, boxes, real)
        way.columns = _ALL
        return [way]

    def cut(blocks: tuple[Block, ...], chunk: int) -> tuple[Block, ...]:
        result = []
        for block in blocks:
            start, stop = block.box.start[_X], block.box.stop[_X]
            # Chunks begin on cache lines, if rows do.
            units = split(-(-(stop - start) // route.alignment), chunks)[chunk]
            low, high = (min(one * route.alignment, stop - start) for one in units)
            if low < high:
                rows = block.count // (stop - start)
                box = block.box.with_range(_X, start + low, start + high)
                offset, count = block.offset + low * rows, (high - low) * rows
                result.append(Block(block.peer, box, offset, count))
        return tuple(result)

    return [
        _Way(route, transport, part, number, boxes, real)
        for part in (
            replace(plan, sends=cut(plan.sends, chunk), receives=cut(plan.receives, chunk))
            for chunk in range(chunks)
        )
    ]


def _divides(stage: Stage, following: Stage) -> bool:
    """Return whether columns can be transformed along z and y as they arrive, on all ranks.

    The blocks that a rank sends or receives must have ranges of x that are equal or disjoint.
    """
    if not stage.axes or not following.axes or _X in (stage.axes[-1], following.axes[0]):
        return False
    for mine, theirs in ((stage.after, following.before), (following.before, stage.after)):
        for box in mine:
            met = (box.intersect(their) for their in theirs)
            ranges = sorted({(part.start[_X], part.stop[_X]) for part in met if part.size})
            if any(high > low for (_, high), (low, _) in itertools.pairwise(ranges)):
                return False
    return True


def _within(pieces: Pieces, columns: slice) -> Pieces:
    """Return the parts of pieces that are among some columns."""
    if columns == slice(None):
        return pieces
    result: Pieces = []
    for slices, view in pieces:
        held = slices[_X]
        low, high = max(held.start, columns.start), min(held.stop, columns.stop)
        if low < high:
            part = view[..., low - held.start : high - held.start]
            result.append(((*slices[:_X], slice(low, high)), part))
    return result


def _whole(array: Array) -> Pieces:
    """Return an array as the only piece, if it is not empty."""
    return [(tuple(slice(0, extent) for extent in array.shape), array)] if array.size else []


def _groups(pieces: Pieces, axes: Sequence[int]) -> list[Pieces]:
    """Divide pieces into groups that have the same ranges along some axes."""
    groups: dict[tuple[Any, ...], Pieces] = {}
    for slices, view in pieces:
        key = tuple((slices[axis].start, slices[axis].stop) for axis in axes)
        groups.setdefault(key, []).append((slices, view))
    return list(groups.values())


def _split_by_field(part: Array, views: list[Array]) -> list[tuple[Array, list[Array]]]:
    """Return parts and views, split so that all views have the same stride between fields."""
    if len({view.strides[0] for view in views}) == 1:
        return [(part, views)]
    return [
        (part[field : field + 1], [view[field : field + 1] for view in views])
        for field in range(len(part))
    ]


def _distance(base: Array, view: Array) -> int:
    return (address_of(view) - address_of(base)) // view.itemsize
