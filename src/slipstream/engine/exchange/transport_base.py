"""The base of all transports, and pack targets: the memory in which blocks have to be written."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from slipstream.engine.accepted import DEVICES
from slipstream.engine.array_types import Array, Comm
from slipstream.engine.collective import RankFailed, failure_text
from slipstream.engine.decomposition import Box
from slipstream.engine.device import REAL_NAMES, Device, Operation, RowLaunch, Stream, address_of
from slipstream.engine.errors import RunError
from slipstream.engine.exchange.exchange_plan import Block, ExchangePlan, part_of
from slipstream.engine.schedule import StepGraph

if TYPE_CHECKING:
    from slipstream.engine.own_communicator import OwnCommunicator


# Parts of a box of global indices, each with the array of its shape that holds it.
Views = list[tuple[Box, Array]]
# Rows are along the last axis, or along the longest one if the last has fewer elements than this.
_SHORT = 8
# The seconds to wait for a message that another rank is known to have sent.
_ON_ITS_WAY = 1.0
# The seconds between two looks for it.
_PAUSE = 1e-4


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
    in each: a rank's blocks then imply that it has finished with the previous targets, without a
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
    own_blocks = [block for block in plan.receives if block.peer == plan.rank]
    blocks = []
    for source, target in pairs:
        where = {block.peer: part_of(source.reshape(-1), block) for block in plan.sends}
        where.update((block.peer, part_of(target.reshape(-1), block)) for block in own_blocks)
        blocks.append(where)
    return blocks


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


class Exchange(PackTargets, ABC):
    """An exchange whose blocks are packed in the source, from where a transport sends them.

    Pairs are (source, target). A `whole` source also has this rank's own block, which is copied.
    All ranks must run the same exchanges in the same order.
    """

    def __init__(
        self,
        device: Device,
        plan: ExchangePlan,
        pairs: Sequence[tuple[Array, Array]],
        whole: bool = False,
    ) -> None:
        super().__init__(plan, [] if whole else packed_blocks(plan, pairs))
        self.device, self._whole = device, whole
        self.pairs = [(source.reshape(-1), target.reshape(-1)) for source, target in pairs]
        self.sends = [block for block in plan.sends if block.peer != plan.rank]
        self.receives = [block for block in plan.receives if block.peer != plan.rank]

    def shown_as(self, label: str) -> tuple[str, str]:
        return f"{label}: pack", "pack"

    def record_close(self, graph: StepGraph, label: str) -> None:
        rank = self.plan.rank
        sends = [block for block in self.plan.sends if block.peer == rank]
        receives = [block for block in self.plan.receives if block.peer == rank]
        for source, target in self.pairs if self._whole else ():
            for send, receive in zip(sends, receives, strict=True):
                sent, received = part_of(source, send), part_of(target, receive)
                graph.add_copy(received, sent, label=f"{label}: own", device=self.device)
        self._record_messages(graph, label)

    def messages(self) -> list[tuple[int, int]]:
        """Return receiver and bytes of each message that this rank sends in one exchange."""
        return [
            (block.peer, block.count * source.itemsize)
            for source, _ in self.pairs
            for block in self.sends
        ]

    @abstractmethod
    def _record_messages(self, graph: StepGraph, label: str) -> None:
        """Record the messages to and from other ranks."""


class Transport(ABC):
    """Prepares exchanges between the ranks of a communicator, from and to memory of a device."""

    # The name in a case file.
    name: str
    # For the registry: the kinds of devices that it supports, whether ranks cannot share a GPU,
    # whether "auto" selects it for ranks of one node only, and the transport that it equals without
    # a GPU.
    devices: tuple[str, ...] = tuple(DEVICES)
    needs_own_gpu = False
    within_node = False
    without_gpu: str | None = None
    # Whether ranks store into the memory of others that they can access.
    can_store = False
    # Whether it aggregates many small messages between nodes into few large ones.
    aggregates = False

    @classmethod
    def lacks(cls, kind: str) -> str:
        """Return the missing requirements of this rank for a kind of device; "" if none."""
        return ""

    @classmethod
    def make(cls, comm: OwnCommunicator, device: Device) -> Transport:
        """Return a transport between these ranks, new or existing. Collective."""
        raise NotImplementedError

    def __init__(self, device: Device) -> None:
        self.device = device

    def empty(self, shape: Sequence[int], dtype: Any) -> Array:
        """Return an uninitialised array for this transport to exchange from and to. Collective."""
        return self.device.empty(tuple(shape), dtype)

    def allocated_bytes(self, size: int) -> int:
        """Return the device memory of an array of `size` bytes from `empty`, in bytes."""
        return size

    @abstractmethod
    def prepare(
        self, plan: ExchangePlan, pairs: Sequence[tuple[Array, Array]], whole: bool = False
    ) -> Exchange:
        """Prepare the exchange of several pairs (source, target) by one plan. Collective.

        Arrays are packed and contiguous, of at least ``plan.send_size`` and ``plan.receive_size``
        elements and any shape, and made by `empty`; for `whole` see `Exchange`.
        """

    def stored_targets(
        self, plan: ExchangePlan, targets: Sequence[Array], alternating: bool
    ) -> PackTargets | None:
        """Return the targets of blocks in the memory of all receivers, None if out of reach.

        Collective; called by `pack_targets`. All ranks get an object, or none.
        """
        return None

    def pack_buffer(self, shape: Sequence[int], dtype: Any) -> Array:
        """Return memory to pack blocks in. Collective.

        If blocks are stored at receivers, it is never used, and takes no device memory.
        """
        return self.empty(shape, dtype)

    def pack_buffer_bytes(self, size: int) -> int:
        """Return the device memory of a `pack_buffer` of `size` bytes, in bytes."""
        return self.allocated_bytes(size)

    def relative_error(self, comm: Comm = None) -> float:
        """Return the error of exchanged data, relative to their size. Collective."""
        return 0.0

    def check(self) -> None:
        """Raise `RunError` if a rank or its device has aborted an exchange."""
        return

    def give_up(self, failure: BaseException) -> None:
        """Note that a step with an exchange of this transport has failed; notify the others."""
        return


class FailureNotice:
    """Messages among the ranks of a transport about failed steps. Collective."""

    def __init__(self, comm: OwnCommunicator) -> None:
        self._comm, self._topic = comm, comm.new_topic()
        self._text = ""

    def notify_ranks(self, failure: BaseException) -> None:
        """Send the failure to all other ranks, unless one of them has already sent one."""
        if not self._text:
            self._text = failure_text(failure)
            self._comm.notify_ranks(failure, self._topic)

    def check(self) -> None:
        """Raise RunError if this rank knows of a failure."""
        if self._text:
            raise RunError(f"an exchange was aborted; make a new plan: {self._text}")

    def look(self) -> None:
        """Raise RunError if a message of failure has arrived, from within a step or before one."""
        if self._text:
            self.check()
        self._comm.look(self._topic)

    def expect(self) -> None:
        """Wait for the message of a rank that is known to have failed, and raise RunError."""
        until = time.perf_counter() + _ON_ITS_WAY
        while time.perf_counter() < until:
            try:
                self.look()
            except RankFailed as failure:
                self._text = failure.text()
                self.check()
            time.sleep(_PAUSE)
        self._text = "a step has failed on another rank"
        self.check()
