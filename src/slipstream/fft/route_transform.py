"""The three-dimensional transform along any route of layouts, as kernels for GPUs do it.

Every transform is one trip through memory, and the last one before an exchange stores what it
makes where the next layout has it, in the memory of the ranks that get it: nothing is packed,
copied or unpacked. Where a transport cannot store, blocks are packed by the transform that makes
them, and unpacked when they have arrived.

A stage of the route has one working array on every rank. What arrives lies there, and all of its
transforms but the last work in place: real rows too, which begin where their modes do. Stages take
turns with two memories.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from slipstream.array_types import Array
from slipstream.decomposition import Box
from slipstream.device import Device, address_of
from slipstream.exchange import (
    ArrayBox,
    ExchangePlan,
    Transport,
    box_targets,
    copy_boxes,
)
from slipstream.fft.fft_arguments import Arguments
from slipstream.fft.layout_search import Boxes, Stage
from slipstream.fft.layout_stages import Part
from slipstream.fft.pack_unpack import RowTables
from slipstream.fft.slab_layout import NOT_KEPT
from slipstream.fft.strided_fft import RealRows, StridedTransform
from slipstream.schedule import StepGraph

# Parts of a local array, each with the view that it is stored in.
Pieces = list[tuple[tuple[slice, ...], Array]]

_X = 3
_NAMES = {1: "z", 2: "y", 3: "x"}


class RouteTransform(Part):
    """Records transforms of real arrays along a route. Collective.

    Complex arrays travel by `transport`, real ones by `full`, which does not narrow them.
    """

    def __init__(
        self,
        device: Device,
        transport: Transport,
        full: Transport,
        arguments: Arguments,
        route: Sequence[Stage],
        rank: int,
    ) -> None:
        self._device, self._route, self._rank, self._full = device, route, rank, full
        self._dtype, self._complex = arguments.dtype, arguments.complex_dtype
        self._modes = arguments.modes
        self._lines = {
            axis: StridedTransform(device, arguments.shape[axis - 1], self._dtype)
            for axis in (1, 2)
        }
        self._rows = RealRows(device, arguments.shape[2], self._dtype)
        self._x_stage = next(n for n, stage in enumerate(route) if _X in stage.axes)
        self._alignment = max(1, device.row_bytes // self._complex.itemsize)
        shapes = [self._stored(number, rank) for number in range(len(route))]
        self._memories = [
            full.empty((max(map(math.prod, shapes[turn::2]), default=0),), self._complex)
            for turn in (0, 1)
        ]
        self._packed: tuple[Array, Array] | None = None
        # The ways between each stage and the next: forward, backward.
        pairs = list(enumerate(zip(route[:-1], route[1:], strict=True)))
        self._plans = [
            ExchangePlan.redistribution(one.after, other.before, rank) for _, (one, other) in pairs
        ]
        self._ways = []
        for (number, (one, other)), plan in zip(pairs, self._plans, strict=True):
            real = number < self._x_stage
            used = full if real else transport
            self._ways.append(
                (
                    _Way(self, used, plan, number + 1, other.before, real),
                    _Way(self, used, plan.reversed(), number, one.after, real),
                )
            )
        self.exchanges = len(pairs)
        sent = [plan.off_rank_elements() for plan in self._plans]
        self.wire_elements = sum(sent[self._x_stage :])
        self.real_wire_elements = sum(sent[: self._x_stage])
        self.buffer_bytes = sum(one.nbytes for one in (*self._memories, *(self._packed or ())))

    @staticmethod
    def supports(device: Device, arguments: Arguments) -> bool:
        """Return whether the device has kernels for the transforms of a cube."""
        a = arguments
        return (
            a.real
            and device.tiled_transforms()
            and RealRows.supports(device, a.shape[2], a.dtype)
            and all(StridedTransform.supports(device, n, a.dtype) for n in a.shape[:2])
        )

    def describe(self) -> str:
        stores = all(way.stores for ways in self._ways for way in ways)
        stages = []
        for stage in self._route:
            shape = " x ".join(map(str, stage.before[self._rank].shape[1:]))
            axes = ", ".join(_NAMES[axis] for axis in stage.axes)
            stages.append(f"transforms along {axes} of {shape}" if axes else f"boxes of {shape}")
        how = "stored by them" if stores else "packed by them"
        return f", exchange, {how}, ".join(stages)

    def record_forward(self, graph: StepGraph, source: Array, target: Array) -> None:
        array = source
        for number, stage in enumerate(self._route):
            way = self._ways[number][0] if number < len(self._ways) else None
            if number:
                array = self.landing(number, stage.before, number <= self._x_stage)
            if way:
                way.record_open(graph)
            end = way.pieces if way else _whole(target)
            for axis in stage.axes:
                pieces = end
                if axis != stage.axes[-1]:
                    shape = list(array.shape)
                    shape[axis] = self._modes[axis - 1].count if array.size else 0
                    pieces = _whole(self._view(number, shape))
                if axis == _X:
                    self._record_rows(graph, array, pieces)
                else:
                    self._record_lines(graph, axis, array, pieces, True)
                array = pieces[0][1] if pieces else array
            if not stage.axes:
                self._record_copies(graph, array, end)
            if way:
                way.record_close(graph)

    def record_backward(
        self, graph: StepGraph, source: Array, target: Array, scale: float = 1.0
    ) -> None:
        array = source
        for number, stage in reversed(list(enumerate(self._route))):
            way = self._ways[number - 1][1] if number else None
            if number < len(self._ways):
                array = self.landing(number, stage.after, number < self._x_stage)
            if way:
                way.record_open(graph)
            end = way.pieces if way else _whole(target)
            for axis in reversed(stage.axes):
                pieces = end
                if axis != stage.axes[0]:
                    shape = list(array.shape)
                    shape[axis] = self._modes[axis - 1].size if array.size else 0
                    pieces = _whole(self._view(number, shape))
                if axis == _X:
                    # Rows of one rank may belong to several: then they are made in place.
                    points = target
                    if way:
                        points = self.landing(number, stage.before, True)
                    self._record_points(graph, array, points, scale)
                    if way:
                        self._record_copies(graph, points, pieces)
                else:
                    self._record_lines(graph, axis, array, pieces, False)
                array = pieces[0][1] if pieces else array
            if not stage.axes:
                self._record_copies(graph, array, end)
            if way:
                way.record_close(graph)

    def landing(self, number: int, boxes: Boxes, real: bool) -> Array:
        """Return where this rank's box arrives in the working array of a stage."""
        return self._view(number, boxes[self._rank].shape, real)

    def whole_landing(self, number: int, real: bool) -> Array:
        """Return all of the working array of a stage."""
        return self._view(number, self.landing_shape(number, self._rank, real), real)

    def landing_shape(self, number: int, rank: int, real: bool) -> tuple[int, ...]:
        """Return the shape of all of the working array of a stage on some rank."""
        *shape, row = self._stored(number, rank)
        return (*shape, 2 * row if real else row)

    def packed(self, plan: ExchangePlan, real: bool) -> tuple[Array, Array]:
        """Return where what cannot be stored is packed: by its sender, and for its receiver."""
        if self._packed is None:
            sizes = [max(one.send_size, one.receive_size) for one in self._plans]
            size = max(sizes, default=0)
            self._packed = (
                self._full.empty((size,), self._complex),
                self._full.empty((size,), self._complex),
            )
        dtype = self._dtype if real else self._complex
        outgoing, incoming = (one.view(dtype) for one in self._packed)
        return outgoing[: plan.send_size], incoming[: plan.receive_size]

    def _stored(self, number: int, rank: int) -> tuple[int, ...]:
        """Return the shape, in complex numbers, of the working array of a stage on some rank."""
        stage = self._route[number]
        before, after = stage.before[rank], stage.after[rank]
        *shape, _ = map(max, before.shape, after.shape)
        row = after.shape[_X] if number >= self._x_stage else 0
        if number <= self._x_stage and (number or number < self._x_stage):
            row = max(row, -(-before.shape[_X] // 2))
        return (*shape, -(-row // self._alignment) * self._alignment)

    def _view(self, number: int, shape: Sequence[int], real: bool = False) -> Array:
        stored = self.landing_shape(number, self._rank, real)
        memory = self._memories[number % 2]
        memory = memory.view(self._dtype) if real else memory
        array = memory[: math.prod(stored)].reshape(stored)
        return array[tuple(slice(0, extent) for extent in shape)]

    def _record_rows(self, graph: StepGraph, points: Array, pieces: Pieces) -> None:
        """Record the forward transform along x of local points into pieces of their modes."""
        for group in _groups(pieces, (0, 1, 2)):
            part = points[group[0][0][:_X]]
            for selected, views in _by_field(part, [view for _, view in group]):
                if len(pieces) == 1:
                    operation = self._rows.bind(selected, views[0], True)
                else:
                    tables = [
                        np.full(self._modes[2].count, value, np.int64) for value in (NOT_KEPT, 0, 0)
                    ]
                    for (slices, _), view in zip(group, views, strict=True):
                        one = slices[_X]
                        steps = [stride // view.itemsize for stride in view.strides]
                        columns = np.arange(one.stop - one.start)
                        tables[0][one] = _distance(views[0], view) + columns
                        tables[1][one], tables[2][one] = steps[1:3]
                    on_device = (
                        self._device.array(tables[0]),
                        self._device.array(tables[1]),
                        self._device.array(tables[2]),
                    )
                    operation = self._rows.bind_stored(
                        selected, views[0], on_device, len(tables[0])
                    )
                graph.add(operation, reads=[selected], writes=views, label="fft x", category="fft")

    def _record_points(self, graph: StepGraph, modes: Array, points: Array, scale: float) -> None:
        """Record the backward transform along x."""
        if points.size:
            operation = self._rows.bind(points, modes, False, scale)
            both = [modes, points]
            graph.add(operation, reads=both, writes=both, label="fft x", category="fft")

    def _record_lines(
        self, graph: StepGraph, axis: int, array: Array, pieces: Pieces, forward: bool
    ) -> None:
        """Record the transform along y or z of a local array into pieces of the result."""
        other, modes = 3 - axis, self._modes[axis - 1]
        positions = modes.positions()
        for group in _groups(pieces, (0, other, _X)):
            slices = list(group[0][0])
            slices[axis] = slice(None)
            part = array[tuple(slices)]
            for selected, views in _by_field(part, [view for _, view in group]):
                steps = [stride // selected.itemsize for stride in selected.strides]
                local = (
                    steps[axis] * np.arange(selected.shape[axis], dtype=np.int64),
                    np.full(selected.shape[axis], steps[other], np.int64),
                )
                count = modes.count if forward else modes.size
                offset = np.full(count, NOT_KEPT, np.int64)
                pitch = np.zeros(count, np.int64)
                for (where, _), view in zip(group, views, strict=True):
                    one = where[axis]
                    rows = np.arange(one.stop - one.start)
                    steps = [stride // view.itemsize for stride in view.strides]
                    offset[one] = _distance(views[0], view) + rows * steps[axis]
                    pitch[one] = steps[other]
                stored = offset, pitch
                kept, points = (stored, local) if forward else (local, stored)
                spread = (
                    np.where(positions < 0, NOT_KEPT, kept[0][positions]),
                    np.where(positions < 0, 0, kept[1][positions]),
                )
                tables = RowTables(self._device, spread), RowTables(self._device, points)
                bases = (views[0], selected) if forward else (selected, views[0])
                shape = selected.shape[0], selected.shape[other], selected.shape[_X]
                operation = self._lines[axis].bind_between(
                    (bases[0], tables[0]), (bases[1], tables[1]), shape, forward
                )
                label = f"fft {_NAMES[axis]}"
                graph.add(operation, reads=[selected], writes=views, label=label, category="fft")

    def _record_copies(self, graph: StepGraph, array: Array, pieces: Pieces) -> None:
        """Record copies of a local array into pieces."""
        for slices, view in pieces:
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


class _Way:
    """An exchange from one layout to the next, or back. Collective.

    `pieces` are the parts of what this rank has, with the views that they are stored in.
    """

    def __init__(
        self,
        route: RouteTransform,
        transport: Transport,
        plan: ExchangePlan,
        number: int,
        targets: Boxes,
        real: bool,
    ) -> None:
        rank, self._device = plan.rank, transport.device
        array = route.whole_landing(number, real)
        shapes = {
            block.peer: route.landing_shape(number, block.peer, real)
            for block in (*plan.sends, *plan.receives)
        }
        others = [block for block in plan.sends if block.peer != rank]
        made = box_targets(
            transport,
            plan.among(set(shapes) - {rank}),
            array,
            [
                ArrayBox(b.peer, b.offset, shapes[b.peer], b.box.slices(targets[b.peer]))
                for b in others
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
        start = _start([block.box for block in plan.sends])
        boxes = [
            (block.box, array[block.box.slices(targets[rank])])
            for block in plan.sends
            if block.peer == rank
        ]
        boxes += [(block.box, view) for block, view in zip(others, made.targets, strict=True)]
        self.pieces: Pieces = [
            (
                tuple(
                    slice(low - first, high - first)
                    for low, high, first in zip(box.start, box.stop, start, strict=True)
                ),
                view,
            )
            for box, view in boxes
        ]

    def record_open(self, graph: StepGraph) -> None:
        self._blocks.record_open(graph, "redistribute")

    def record_close(self, graph: StepGraph) -> None:
        self._blocks.record_close(graph, "redistribute")
        for packed, place in self._unpacking:
            graph.add_copy(place, packed, label="unpack", device=self._device)


def _start(boxes: Sequence[Box]) -> tuple[int, ...]:
    """Return the first corner of what boxes fill together."""
    return tuple(map(min, zip(*(box.start for box in boxes), strict=True)))


def _whole(array: Array) -> Pieces:
    """Return an array as the only piece, if it is not empty."""
    return [(tuple(slice(0, extent) for extent in array.shape), array)] if array.size else []


def _groups(pieces: Pieces, axes: Sequence[int]) -> list[Pieces]:
    """Divide pieces into groups that have the same ranges along some axes."""
    groups: dict[tuple, Pieces] = {}
    for slices, view in pieces:
        key = tuple((slices[axis].start, slices[axis].stop) for axis in axes)
        groups.setdefault(key, []).append((slices, view))
    return list(groups.values())


def _by_field(part: Array, views: list[Array]) -> list[tuple[Array, list[Array]]]:
    """Return parts and views of which one stride leads from field to field in all views."""
    if len({view.strides[0] for view in views}) == 1:
        return [(part, views)]
    return [
        (part[field : field + 1], [view[field : field + 1] for view in views])
        for field in range(len(part))
    ]


def _distance(base: Array, view: Array) -> int:
    return (address_of(view) - address_of(base)) // view.itemsize
