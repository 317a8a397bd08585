"""Exchanges of halos, and of listed numbers anywhere in an array."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.decomposition import Box, PaddedBox
from slipstream.engine.device import REAL_NAMES, Device, Operation, RowLaunch, address_of
from slipstream.engine.exchange.exchange_plan import Block, ExchangePlan
from slipstream.engine.exchange.transport_base import (
    ArrayBox,
    Transport,
    box_targets,
    copy_boxes,
    pack_targets,
)
from slipstream.engine.schedule import StepGraph

# Types of elements; half precision is only moved.
_ELEMENTS = {**REAL_NAMES, "float16": "unsigned short"}
# The numbers that one row of threads gathers for one neighbour.
_ROW = 1024


@dataclass(frozen=True)
class HaloBox:
    """A box of points of one rank in the halo of another.

    `target` is its place there: the same box, or its periodic image. `offset` is its start in the
    packed array of all points sent to, or received from, other ranks.
    """

    peer: int
    source: Box
    target: Box
    offset: int


@dataclass(frozen=True)
class HaloPlan:
    """The points that one rank sends into the halos of others, and receives into its own.

    `packed` has one block per peer, whose box is in packed elements. `own` are the boxes in this
    rank's halo that come from its own box.
    """

    packed: ExchangePlan
    sends: tuple[HaloBox, ...]
    receives: tuple[HaloBox, ...]
    own: tuple[HaloBox, ...]

    @classmethod
    def make(
        cls, boxes: Sequence[Box], shape: Sequence[int], widths: Sequence[int], rank: int
    ) -> HaloPlan:
        """Plan the halos of a periodic array of a shape, for one rank.

        The boxes of all ranks cover the array once; empty ones have no halo. Halos are at most as
        wide, along each axis, as the array.
        """
        # Halos are symmetric, so that a rank sends to the ranks from which it receives.
        near = []
        if len(boxes) > 1:
            near = [peer for peer in _find_neighbours(boxes, shape, widths, rank) if peer != rank]

        def between(sender: int, receiver: int, peer: int, offset: int) -> list[HaloBox]:
            boxes_there = []
            for source, target in _find_images(boxes[sender], boxes[receiver], shape, widths):
                boxes_there.append(HaloBox(peer, source, target, offset))
                offset += source.size
            return boxes_there

        def gather(kind: str) -> tuple[tuple[HaloBox, ...], tuple[Block, ...]]:
            pieces, blocks, offset = [], [], 0
            for peer in near:
                pair = (rank, peer) if kind == "send" else (peer, rank)
                pair_boxes = between(*pair, peer, offset)
                if pair_boxes:
                    stop = pair_boxes[-1].offset + pair_boxes[-1].source.size
                    blocks.append(Block(peer, Box((offset,), (stop,)), offset, stop - offset))
                    pieces += pair_boxes
                    offset = stop
            return tuple(pieces), tuple(blocks)

        sends, outgoing = gather("send") if near else ((), ())
        receives, incoming = gather("receive") if near else ((), ())
        sizes = (sum(block.count for block in blocks) for blocks in (outgoing, incoming))
        packed = ExchangePlan(rank, outgoing, incoming, *sizes)
        return cls(packed, sends, receives, tuple(between(rank, rank, rank, 0)))


def _find_neighbours(
    boxes: Sequence[Box], shape: Sequence[int], widths: Sequence[int], rank: int
) -> list[int]:
    """Return the ranks that may have an image in the halo of one rank: few of thousands."""
    reach = boxes[rank].grown(widths)
    starts, stops = (np.array([getattr(box, end) for box in boxes]) for end in ("start", "stop"))
    is_near = np.ones(len(boxes), bool)
    for axis, (size, width) in enumerate(zip(shape, widths, strict=True)):
        is_near &= np.any(
            [
                (starts[:, axis] + shift < reach.stop[axis])
                & (stops[:, axis] + shift > reach.start[axis])
                for shift in ((-size, 0, size) if width else (0,))
            ],
            axis=0,
        )
    return list(map(int, np.flatnonzero(is_near)))


def _find_images(
    sender: Box, receiver: Box, shape: Sequence[int], widths: Sequence[int]
) -> list[tuple[Box, Box]]:
    """Return the parts of a box with images in the halo of another, and the images."""
    if not receiver.size or not sender.size:
        return []
    reach, pairs = receiver.grown(widths), []
    for signs in itertools.product(*((-1, 0, 1) if width else (0,) for width in widths)):
        distances = [sign * size for sign, size in zip(signs, shape, strict=True)]
        if sender == receiver and not any(distances):
            continue
        target = sender.shifted(distances).intersect(reach)
        if target.size:
            pairs.append((target.shifted([-distance for distance in distances]), target))
    return pairs


class HaloExchange:
    """The halos of some arrays, ready to be filled in step graphs. Making one is collective.

    `layouts` are the layouts of the points of each rank in its arrays; this rank's `arrays`, of
    shape ``layouts[rank].shape``, are made by the transport's `empty`. A single rank has no
    transport. Unless arrays are filled in turn (`alternating`), ranks wait for each other before
    they store.
    """

    def __init__(
        self,
        device: Device,
        plan: HaloPlan,
        layouts: Sequence[PaddedBox],
        arrays: Sequence[Array],
        transport: Transport | None,
        alternating: bool = True,
    ) -> None:
        self._halos = [
            _ArrayHalo(device, plan, layouts, array, transport, alternating) for array in arrays
        ]

    def record(self, graph: StepGraph, number: int, label: str = "halo") -> None:
        """Record an exchange that fills the halo of array `number`.

        With `alternating` arrays, other ranks may store into a halo as soon as this rank has sent
        its part of the previous exchange: by then it must have read the old values. This holds for
        steps that fill two arrays in turn, and read halos only to compute the data that they send.
        """
        self._halos[number].record(graph, label)


class _ArrayHalo:
    """The halo of one array: one kernel moves images of own points, and what others need."""

    # Nodes that feed other ranks must not queue behind large kernels.
    _lane = "halo"

    def __init__(
        self,
        device: Device,
        plan: HaloPlan,
        layouts: Sequence[PaddedBox],
        array: Array,
        transport: Transport | None,
        alternating: bool,
    ) -> None:
        self._device, layout = device, layouts[plan.packed.rank]
        sends = [_make_array_box(box, layouts[box.peer]) for box in plan.sends]
        receives = [_make_array_box(box, layout) for box in plan.receives]
        made = box_targets(transport, plan.packed, array, sends, receives, alternating)
        self._blocks, self._unpacking = made.blocks, made.unpacking
        own = [(array[layout.slices(b.source)], array[layout.slices(b.target)]) for b in plan.own]
        sources = [array[layout.slices(box.source)] for box in plan.sends]
        self._moves = [*own, *zip(sources, made.targets, strict=True)]

    def record(self, graph: StepGraph, label: str) -> None:
        self._blocks.record_open(graph, label)
        self._record_moves(graph, self._moves, *self._blocks.shown_as(label))
        self._blocks.record_close(graph, label)
        self._record_moves(graph, self._unpacking, f"{label}: unpack", "pack")

    def _record_moves(
        self, graph: StepGraph, pairs: Sequence[tuple[Array, Array]], label: str, category: str
    ) -> None:
        if pairs:
            graph.add(
                copy_boxes(self._device, pairs),
                reads=[source for source, _ in pairs],
                writes=[target for _, target in pairs],
                label=label,
                category=category,
                device=self._device,
                lane=self._lane,
            )


def _make_array_box(box: HaloBox, layout: PaddedBox) -> ArrayBox:
    return ArrayBox(box.peer, box.offset, tuple(layout.shape), layout.slices(box.target))


def swap_plan(counts: Mapping[int, int], rank: int) -> ExchangePlan:
    """Return the plan of a swap of `counts` numbers with each neighbour, in rank order."""
    blocks, offset = [], 0
    for peer, count in counts.items():
        blocks.append(Block(peer, Box((offset,), (offset + count,)), offset, count))
        offset += count
    return ExchangePlan(rank, tuple(blocks), tuple(blocks), offset, offset)


class SparseExchange:
    """A swap in each of several arrays that take turns, ready to be recorded. Collective.

    `addresses` (int64) are indices of elements of the arrays, for all blocks of the plan from
    `swap_plan` one after the other. Swaps alternate between arrays, so no handshake is needed
    before data of the swap before last are overwritten.
    """

    def __init__(
        self,
        device: Device,
        plan: ExchangePlan,
        addresses: Array,
        arrays: Sequence[Array],
        transport: Transport,
    ) -> None:
        self._swaps = [_Swap(device, plan, addresses, array, transport) for array in arrays]

    def record(self, graph: StepGraph, number: int, places: Array, label: str) -> None:
        """Record the swap in array `number`.

        `places` stands for all addressed elements in the graph's dependencies.
        """
        self._swaps[number].record(graph, places, label)


class _Swap:
    """The swap in one array: one kernel gathers numbers to send, another scatters received ones."""

    def __init__(
        self,
        device: Device,
        plan: ExchangePlan,
        addresses: Array,
        array: Array,
        transport: Transport,
    ) -> None:
        self._device, self._plan, self._array = device, plan, array
        self._addresses = addresses
        self._constants = {"REAL": "double", "STORED": _ELEMENTS[np.dtype(array.dtype).name]}
        self._incoming = transport.empty((plan.receive_size,), array.dtype)
        outgoing = transport.pack_buffer((plan.send_size,), array.dtype)
        self._targets = pack_targets(
            transport, plan, [(outgoing, self._incoming)], alternating=True
        )
        self._gather = self._bind_gathering(self._targets.blocks[0])

    def record(self, graph: StepGraph, places: Array, label: str) -> None:
        self._targets.record_open(graph, label)
        if self._plan.send_size:
            written, category = self._targets.shown_as(label)
            graph.add(
                self._gather,
                reads=[places],
                writes=list(self._targets.blocks[0].values()),
                label=written,
                category=category,
                device=self._device,
                lane="exchange",
                moves=self._moves(self._plan.send_size),
            )
        self._targets.record_close(graph, label)
        self._record_scatter(graph, places, label)

    def _moves(self, count: int) -> tuple[int, int]:
        """Return the bytes of `count` numbers and their addresses."""
        item = self._array.itemsize
        return count * (item + self._addresses.itemsize), count * item

    def _kernel(self, name: str, launch: RowLaunch, *arguments: Any) -> Operation:
        return self._device.kernel("indexed_gather.hpp", name, **self._constants).bind(
            launch, *arguments
        )

    def _bind_gathering(self, blocks: Mapping[int, Array]) -> Operation:
        """Return the operation that stores the numbers for each neighbour in their places."""
        rows = [
            (
                address_of(blocks[block.peer][start:]),
                block.offset + start,
                min(_ROW, block.count - start),
            )
            for block in self._plan.sends
            for start in range(0, block.count, _ROW)
        ]
        table = self._device.array(np.array(rows, np.int64).reshape(-1, 3))
        launch = RowLaunch(len(rows), _ROW)
        gather = self._kernel(
            "gather_elements", launch, self._array, self._addresses, table, len(rows)
        )

        def operation(stream: Any, keep_alive: Any = blocks) -> None:
            gather(stream)

        return operation

    def _record_scatter(self, graph: StepGraph, places: Array, label: str) -> None:
        count = self._plan.receive_size
        if not count:
            return
        rows = -(-count // _ROW)
        launch = RowLaunch(rows, _ROW)
        graph.add(
            self._kernel(
                "scatter_elements",
                launch,
                self._array,
                self._addresses,
                self._incoming,
                rows,
                _ROW,
                count,
            ),
            reads=[self._incoming],
            writes=[places],
            label=f"{label}: unpack",
            category="pack",
            device=self._device,
            lane="exchange",
            moves=self._moves(count),
        )
