"""Where tiles come from and go to: arrays, and what ranks exchange.

A tile is a box of the global index space. A store names the arrays that hold such a box, part by
part: one view of an array, or a part of every block that is sent to, or has come from, another
rank. Copying a tile to the host therefore also packs it for its receivers, and copying it back
unpacks it: nothing is packed on the host. Where ranks see each other's memory, the copy from the
device goes straight to the receiver, and nothing is left to be sent. Or tiles are exchanged
between devices, and only what has arrived goes to the host.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from slipstream.array_types import Array
from slipstream.decomposition import Box
from slipstream.exchange import (
    ExchangePlan,
    PackTargets,
    Transport,
    Views,
    pack_targets,
    part_of,
    views_of,
)
from slipstream.outofcore.host_device_copy import HostDeviceCopier
from slipstream.schedule import StepGraph

# Groups of tiles that are exchanged between devices at the same time.
_AT_ONCE = 2

Sizes = tuple[int, int]
# Memory to send from, and to receive in.
Pair = tuple[Array, Array]


class Store(Protocol):
    """Where tiles come from or go to, here on the host or on the device."""

    written_on_device: bool
    read_on_device: bool

    def write_views(self, box: Box) -> Views:
        """Return where to write a box."""

    def read_views(self, box: Box) -> Views:
        """Return where to read a box."""

    def paired(self, place: Array, view: Array) -> Pair:
        """Return what to copy between a part of a tile and the view that holds it."""

    def record_before(self, graph: StepGraph, field: int, tile: int) -> None:
        """Record what must come before a tile is written."""

    def record_written(self, graph: StepGraph, field: int, tile: int) -> None:
        """Record what follows when a tile has been written."""


class ArrayStore:
    """An array that holds one box: pinned on the host, or on a device, where it stays.

    One that stays has no axis for the fields, which take turns in it. `whole_rows` returns rows of
    real numbers with the padding behind them, if that may be written: it crosses the bus too, since
    all rows are one piece then.
    """

    def __init__(
        self,
        box: Box,
        array: Array,
        stays: bool = False,
        whole_rows: Callable[[Array], Array] | None = None,
    ) -> None:
        self._box, self._array, self._whole_rows = box, array, whole_rows
        self.written_on_device = self.read_on_device = self._stays = stays

    def write_views(self, box: Box) -> Views:
        part = box.intersect(self._box)
        if not part.size:
            return []
        slices = part.slices(self._box)
        view = self._array[slices[1:]][None] if self._stays else self._array[slices]
        return [(part, view)]

    read_views = write_views

    def paired(self, place: Array, view: Array) -> Pair:
        whole_rows = self._whole_rows
        return (place, view) if whole_rows is None else (whole_rows(place), whole_rows(view))

    def record_before(self, graph: StepGraph, field: int, tile: int) -> None:
        pass

    def record_written(self, graph: StepGraph, field: int, tile: int) -> None:
        pass


@dataclass(frozen=True)
class _Group:
    """Tiles that are exchanged together, and the memory to and from which they are."""

    plan: ExchangePlan
    sent: Array
    received: Array
    targets: PackTargets


class ExchangeStore:
    """Exchanges between all ranks from host to host, in groups of tiles. Collective.

    Parameters
    ----------
    sources : sequence of sequence of Box
        By group, the box that each rank sends.
    targets : sequence of Box
        What each rank wants.
    tiles, together : int
        How many tiles a field has, and a group: the last one of a field may have fewer.
    """

    written_on_device = read_on_device = False

    def __init__(
        self,
        transport: Transport,
        sources: Sequence[Sequence[Box]],
        targets: Sequence[Box],
        tiles: int,
        together: int,
        rank: int,
        dtype: DTypeLike,
    ) -> None:
        self._tiles, self._together = tiles, together
        plans = [ExchangePlan.redistribution(boxes, targets, rank) for boxes in sources]
        pairs = self._buffers(transport, [group_sizes(plan) for plan in plans], np.dtype(dtype))
        self._groups = [
            _Group(plan, *pair, pack_targets(transport, plan, [pair]))
            for plan, pair in zip(plans, pairs, strict=True)
        ]

    def _buffers(self, transport: Transport, sizes: Sequence[Sizes], dtype: np.dtype) -> list[Pair]:
        """Return the buffers of each group: with room for what is sent and received."""
        sent, received = (
            list(itertools.accumulate(one, initial=0)) for one in zip(*sizes, strict=True)
        )
        packed = transport.pack_buffer((sent[-1],), dtype)
        arrived = transport.empty((received[-1],), dtype)
        return [
            (packed[sent[i] : sent[i + 1]], arrived[received[i] : received[i + 1]])
            for i in range(len(sizes))
        ]

    @property
    def bytes(self) -> int:
        """Number of bytes that leave this rank."""
        return sum(one.plan.off_rank_elements() * one.sent.itemsize for one in self._groups)

    @property
    def allocated(self) -> int:
        """Number of bytes on the host that the buffers take."""
        return sum(
            one.received.nbytes + (0 if one.targets.stores else one.sent.nbytes)
            for one in self._groups
        )

    def write_views(self, box: Box) -> Views:
        return [view for one in self._groups for view in one.targets.views(0, box)]

    def read_views(self, box: Box) -> Views:
        return [
            view
            for one in self._groups
            for block in one.plan.receives
            for view in views_of(part_of(one.received, block), block, box)
        ]

    def paired(self, place: Array, view: Array) -> Pair:
        return place, view

    def record_before(self, graph: StepGraph, field: int, tile: int) -> None:
        """Record the wait for the receivers' memory before the first tile of a group."""
        if tile % self._together == 0:
            self._group_of(field, tile).targets.record_open(graph, "transpose")

    def record_written(self, graph: StepGraph, field: int, tile: int) -> None:
        """Record the exchange of a group when its last tile has been written."""
        if (tile + 1) % self._together == 0 or tile + 1 == self._tiles:
            self._record_exchange(graph, self._group_of(field, tile))

    def _record_exchange(self, graph: StepGraph, group: _Group) -> None:
        group.targets.record_close(graph, "transpose")

    def _group_of(self, field: int, tile: int) -> _Group:
        return self._groups[field * -(-self._tiles // self._together) + tile // self._together]


class DeviceExchangeStore(ExchangeStore):
    """An exchange between the devices of ranks, which leaves on the host what has arrived.

    Groups of tiles take turns in a few buffers on the device. Collective.

    Parameters
    ----------
    bus : HostDeviceCopier
        How to get to the host.
    arrived : array, shape of this rank's target
        On the host, pinned.
    buffers : list of (array, array)
        Bytes on the device to send and to receive, see `device_buffers`.
    """

    written_on_device = True

    def __init__(
        self,
        transport: Transport,
        sources: Sequence[Sequence[Box]],
        targets: Sequence[Box],
        tiles: int,
        together: int,
        rank: int,
        dtype: DTypeLike,
        bus: HostDeviceCopier,
        arrived: Array,
        buffers: Sequence[Pair],
    ) -> None:
        self._bus, self._in_turn = bus, buffers
        self._box, self._arrived = targets[rank], arrived
        super().__init__(transport, sources, targets, tiles, together, rank, dtype)

    def _buffers(self, transport: Transport, sizes: Sequence[Sizes], dtype: np.dtype) -> list[Pair]:
        return [
            (
                out[: sent * dtype.itemsize].view(dtype),
                back[: received * dtype.itemsize].view(dtype),
            )
            for (sent, received), (out, back) in zip(sizes, itertools.cycle(self._in_turn))
        ]

    @property
    def allocated(self) -> int:
        return self._arrived.nbytes

    def read_views(self, box: Box) -> Views:
        part = box.intersect(self._box)
        return [(part, self._arrived[part.slices(self._box)])] if part.size else []

    def _record_exchange(self, graph: StepGraph, group: _Group) -> None:
        super()._record_exchange(graph, group)
        for block in group.plan.receives:
            source = part_of(group.received, block).reshape(block.box.shape)
            target = self._arrived[block.box.slices(self._box)]
            self._bus.record(graph, target, source, False, "copy out", None)


def group_sizes(plan: ExchangePlan) -> Sizes:
    """Return how many elements of a group a rank sends, and how many of them it receives."""
    # What arrives is only what the group has, not all that this rank wants.
    return plan.send_size, sum(block.count for block in plan.receives)


def device_buffers(transport: Transport, sizes: Sizes) -> list[Pair]:
    """Return memory for a few groups of so many bytes to send and to receive. Collective."""
    return [
        (transport.pack_buffer((sizes[0],), np.uint8), transport.empty((sizes[1],), np.uint8))
        for _ in range(_AT_ONCE)
    ]


def device_buffer_bytes(transport: Transport, sizes: Sizes) -> int:
    """Return the bytes of a device that `device_buffers` allocates."""
    return _AT_ONCE * (transport.pack_buffer_bytes(sizes[0]) + transport.allocated_bytes(sizes[1]))
