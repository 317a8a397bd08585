"""Pack targets: the memory in which the blocks of an exchange have to be written.

An exchange moves blocks from a packed source to a packed target. If a transport lets every rank
store into the memory of the others, blocks are written directly to their targets there, and flags
notify the receivers. Otherwise they are written to the packed source, and the transport moves them.
`pack_targets` hides the difference::

    targets = pack_targets(transport, plan, [(source, target)])      # collective
    targets.record_open(graph, "transpose")
    ...                   # nodes that write the blocks targets.blocks[0][peer], for all receivers
    targets.record_close(graph, "transpose")
    ...                   # nodes that read the blocks which have arrived in `target`

- `blocks[i][peer]` is the flat array for the block of the i-th pair for `peer`. A rank's own block
  is always written to its place in the rank's own target.
- `views(i, box)` returns the same memory as arrays of the shape of (parts of) a box of global
  indices.
- `record_open` comes before the first node that writes a block, `record_close` after the last.
  Neither is collective: an object can be recorded in any number of graphs.
- A source that nothing else uses is allocated by ``transport.pack_buffer``, which takes no memory
  of the device if blocks never pass through it; ``pack_buffer_bytes`` is its size.
- Without a transport, on a single rank, there is nothing to exchange, and the object still works.
- `stores` is for reports only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from slipstream.array_types import Array
from slipstream.decomposition import Box
from slipstream.device import REAL_NAMES, Device, Operation, RowLaunch, Stream, address_of
from slipstream.exchange.exchange_plan import Block, ExchangePlan, part_of
from slipstream.schedule import StepGraph

if TYPE_CHECKING:
    from slipstream.exchange.transport_base import Transport

# Parts of a box of global indices, each with the array of its shape that holds it.
Views = list[tuple[Box, Array]]


class PackTargets:
    """The memory in which the blocks of an exchange are written: here, of a single rank."""

    # Whether blocks are written into the memory of their receivers.
    stores = False
    # Whether parts are exchanged as soon as they are written.
    closes_early = False

    def __init__(self, plan: ExchangePlan, blocks: Sequence[dict[int, Array]]) -> None:
        self.plan, self.blocks = plan, list(blocks)

    def views(self, number: int, box: Box, peer: int | None = None) -> Views:
        """Return the memory for the parts of a box of the `number`-th pair, block by block.

        For all blocks, or the block for one rank.
        """
        views = []
        for block in self.plan.sends:
            if peer is not None and block.peer != peer:
                continue
            part = box.intersect(block.box)
            if part.size:
                values = self.blocks[number][block.peer].reshape(block.box.shape)
                views.append((part, values[part.slices(block.box)]))
        return views

    def shown_as(self, label: str) -> tuple[str, str]:
        """Return label and category in timelines for nodes that only move data to the blocks."""
        return f"{label}: own", "pack"

    def limited_to(self, written: Sequence[Array], arriving: Sequence[Array]) -> PackTargets:
        """Return the same targets, for blocks with only some views written here, or by others."""
        return self

    def record_open(self, graph: StepGraph, label: str) -> None:
        """Record the nodes before the first block is written."""

    def record_written(self, graph: StepGraph, last: int) -> None:
        """Record the nodes that may follow a written tile, which ends at plane or column `last`."""

    def record_close(self, graph: StepGraph, label: str) -> None:
        """Record that all blocks are written, and the receipt of the blocks of other ranks."""


def pack_targets(
    transport: Transport | None,
    plan: ExchangePlan,
    pairs: Sequence[tuple[Array, Array]],
    store: bool = True,
    alternating: bool = False,
) -> PackTargets:
    """Return the targets of the blocks of an exchange. Collective.

    Pairs (source, target) are as for `Transport.prepare`; sources may be from
    `Transport.pack_buffer`, unless `store` is False, which packs blocks even if they could be
    stored. In `alternating` exchanges two sets of targets take turns, and all neighbours take part
    in each: a rank's blocks then imply that it no longer uses the previous targets, and need no
    handshake.
    """
    if transport is None:
        return PackTargets(plan, packed_blocks(plan, pairs))
    if store:
        stored = transport.stored_targets(plan, [target for _, target in pairs], alternating)
        if stored is not None:
            return stored
    return transport.prepare(plan, pairs)


def packed_exchange(
    transport: Transport | None, plan: ExchangePlan, pairs: Sequence[tuple[Array, Array]]
) -> PackTargets:
    """Return the exchange of sources with all blocks packed. Collective.

    Its targets are not written by others: `record_close` alone records it. On one rank, a source
    and its target are the same memory.
    """
    if transport is None:
        return PackTargets(plan, [])
    return transport.prepare(plan, pairs, whole=True)


@dataclass(frozen=True)
class ArrayBox:
    """A box of the receiver's array, and its start in the packed blocks.

    `peer` is the other rank, and `shape` the shape of the whole array.
    """

    peer: int
    offset: int
    shape: tuple[int, ...]
    slices: tuple[slice, ...]

    def of_array(self, array: Array) -> Array:
        """Return the box as a view of the array, which may be flat."""
        return array.reshape(self.shape)[self.slices]

    def of_packed(self, packed: Array) -> Array:
        """Return the box as a view of packed blocks."""
        box = tuple(part.stop - part.start for part in self.slices)
        return packed[self.offset : self.offset + math.prod(box)].reshape(box)


@dataclass(frozen=True)
class BoxTargets:
    """The targets of boxes at any place in arrays of other ranks.

    `targets` are views for the boxes in order. After `record_close` of `blocks`, packed data have
    to be moved from the first view of each pair in `unpacking` to the second; `unpacking` is empty
    if blocks are stored.
    """

    blocks: PackTargets
    targets: Sequence[Array]
    unpacking: Sequence[tuple[Array, Array]]


def box_targets(
    transport: Transport | None,
    plan: ExchangePlan,
    array: Array,
    sends: Sequence[ArrayBox],
    receives: Sequence[ArrayBox],
    alternating: bool = True,
    packed: Callable[[], tuple[Array, Array]] | None = None,
) -> BoxTargets:
    """Return the targets of the boxes of packed blocks. Collective.

    `plan` is the plan of the packed blocks, and `array`, made by the transport's `empty`, the
    target of other ranks' boxes. If `alternating`, they may be overwritten without a handshake.
    Boxes that cannot be stored are packed in the two flat arrays of `packed`, or in new ones.
    """
    if transport is None:
        return BoxTargets(PackTargets(plan, []), [], [])
    flat = array.reshape(-1)
    sizes = {box.peer: math.prod(box.shape) for box in sends}
    whole = ExchangePlan(
        plan.rank,
        tuple(Block(peer, Box((0,), (size,)), 0, size) for peer, size in sizes.items()),
        tuple(Block(b.peer, Box((0,), (flat.size,)), 0, flat.size) for b in plan.receives),
        flat.size,
        flat.size,
    )
    stored = transport.stored_targets(whole, [flat], alternating)
    if stored is not None:
        targets = [box.of_array(stored.blocks[0][box.peer]) for box in sends]
        arriving = [box.of_array(array) for box in receives]
        return BoxTargets(stored.limited_to(targets, arriving), targets, [])
    if packed is None:
        outgoing, incoming = (
            transport.empty((size,), array.dtype) for size in (plan.send_size, plan.receive_size)
        )
    else:
        outgoing, incoming = packed()
    return BoxTargets(
        transport.prepare(plan, [(outgoing, incoming)]),
        [box.of_packed(outgoing) for box in sends],
        [(box.of_packed(incoming), box.of_array(array)) for box in receives],
    )


def packed_blocks(
    plan: ExchangePlan, pairs: Sequence[tuple[Array, Array]]
) -> list[dict[int, Array]]:
    """Return the memory for packed blocks in each source, and for this rank's own block."""
    own = [block for block in plan.receives if block.peer == plan.rank]
    blocks = []
    for source, target in pairs:
        where = {block.peer: part_of(source.reshape(-1), block) for block in plan.sends}
        where.update((block.peer, part_of(target.reshape(-1), block)) for block in own)
        blocks.append(where)
    return blocks


# Rows are along the last axis, or along the longest one if the last has fewer elements than this.
_SHORT = 8


def copy_boxes(device: Device, pairs: Sequence[tuple[Array, Array]]) -> Operation:
    """Return the operation ``target[...] = source`` for pairs (source, target) of views.

    All have one dtype, float32 or float64, and three axes. If the two views of a pair differ in
    shape, `ValueError` is raised. Targets must not overlap each other or the sources, and the
    device's kernels must have access to all of the memory.
    """
    tables = [_rows(source, target) for source, target in pairs]
    tables = [table for table in tables if len(table)]
    if not tables:
        return lambda stream: None
    table = np.concatenate(tables)
    dtype = np.dtype(pairs[0][0].dtype).name
    kernel = device.kernel("listed_rows.hpp", "copy_listed_rows", REAL=REAL_NAMES[dtype])
    launch = RowLaunch(len(table), int(table[:, 2].max()))
    bound = kernel.bind(launch, device.array(table), len(table))

    def operation(stream: Stream, keep_alive: Any = pairs) -> None:
        bound(stream)

    return operation


def _rows(source: Array, target: Array) -> np.ndarray:
    """Return the table's entries of one pair."""
    if source.shape != target.shape:
        raise ValueError(f"cannot move {source.shape} to {target.shape}")
    if not source.size:
        return np.empty((0, 5), np.int64)
    inner = 2 if source.shape[2] >= _SHORT else int(np.argmax(source.shape))
    outer = [axis for axis in range(3) if axis != inner]
    first, second = np.indices([source.shape[axis] for axis in outer]).reshape(2, -1)
    table = np.empty((first.size, 5), np.int64)
    for column, array in enumerate((source, target)):
        steps = [array.strides[axis] for axis in outer]
        table[:, column] = address_of(array) + first * steps[0] + second * steps[1]
        table[:, 3 + column] = array.strides[inner] // array.itemsize
    table[:, 2] = source.shape[inner]
    return table
