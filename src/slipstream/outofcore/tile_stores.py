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

import numpy as np

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


class Store:
    """Where tiles come from or go to, here on the host or on the device."""

    written_on_device = read_on_device = False

    def write_views(self, box: Box) -> Views:
        """Return where to write a box."""
        raise NotImplementedError

    def read_views(self, box: Box) -> Views:
        """Return where to read a box."""
        raise NotImplementedError

    def paired(self, place: Array, view: Array) -> Pair:
        """Return what to copy between a part of a tile and the view that holds it."""
        return place, view

    def record_before(self, graph: StepGraph, field: int, tile: int) -> None:
        """Record what must come before a tile is written."""

    def record_written(self, graph: StepGraph, field: int, tile: int) -> None:
        """Record what follows when a tile has been written."""


class ArrayStore(Store):
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


@dataclass(frozen=True)
class _Group:
    """Tiles that are exchanged together, and the memory to and from which they are."""

    plan: ExchangePlan
    sent: Array
    received: Array
    targets: PackTargets


@dataclass(frozen=True)
class TileGroups:
    """Which tiles are exchanged together.

    `sources` has by group the box that each rank sends, and `targets` what each rank wants. A field
    has so many `tiles`, and a group so many of them `together`; the last one may have fewer.
    """

    sources: Sequence[Sequence[Box]]
    targets: Sequence[Box]
    tiles: int
    together: int

    def plans(self, rank: int) -> list[ExchangePlan]:
        """Return the exchange of each group."""
        return [ExchangePlan.redistribution(boxes, self.targets, rank) for boxes in self.sources]


@dataclass(frozen=True)
class ByDevice:
    """What an exchange between devices needs, which leaves on the host what has arrived.

    `arrived`, on the host and pinned, has the shape of this rank's target, and `bus` leads there.
    Groups take turns in the `buffers`, bytes to send and to receive: see `device_buffers`.
    """

    bus: HostDeviceCopier
    arrived: Array
    buffers: Sequence[Pair]


class ExchangeStore(Store):
    """Exchanges between all ranks in groups of tiles, from the host or by devices. Collective."""

    def __init__(
        self,
        transport: Transport,
        groups: TileGroups,
        rank: int,
        dtype: np.dtype,
        by_device: ByDevice | None = None,
    ) -> None:
        self._tiles, self._together = groups.tiles, groups.together
        self._box, self._by_device = groups.targets[rank], by_device
        self.written_on_device = by_device is not None
        plans = groups.plans(rank)
        sizes = [group_sizes(plan) for plan in plans]
        self._groups = [
            _Group(plan, *pair, pack_targets(transport, plan, [pair]))
            for plan, pair in zip(plans, self._buffers(transport, sizes, dtype), strict=True)
        ]

    def _buffers(self, transport: Transport, sizes: Sequence[Sizes], dtype: np.dtype) -> list[Pair]:
        """Return the buffers of each group: with room for what is sent and received."""
        if self._by_device is not None:
            item, in_turn = dtype.itemsize, itertools.cycle(self._by_device.buffers)
            return [
                (out[: sent * item].view(dtype), back[: received * item].view(dtype))
                for (sent, received), (out, back) in zip(sizes, in_turn, strict=False)
            ]
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
        if self._by_device is not None:
            return self._by_device.arrived.nbytes
        return sum(
            one.received.nbytes + (0 if one.targets.stores else one.sent.nbytes)
            for one in self._groups
        )

    def write_views(self, box: Box) -> Views:
        return [view for one in self._groups for view in one.targets.views(0, box)]

    def read_views(self, box: Box) -> Views:
        if self._by_device is not None:
            part = box.intersect(self._box)
            view = self._by_device.arrived[part.slices(self._box)]
            return [(part, view)] if part.size else []
        return [
            view
            for one in self._groups
            for block in one.plan.receives
            for view in views_of(part_of(one.received, block), block, box)
        ]

    def record_before(self, graph: StepGraph, field: int, tile: int) -> None:
        # The receivers' memory is waited for before the first tile of a group.
        if tile % self._together == 0:
            self._group_of(field, tile).targets.record_open(graph, "transpose")

    def record_written(self, graph: StepGraph, field: int, tile: int) -> None:
        # A group is exchanged when its last tile has been written.
        if (tile + 1) % self._together and tile + 1 != self._tiles:
            return
        group, by_device = self._group_of(field, tile), self._by_device
        group.targets.record_close(graph, "transpose")
        if by_device is not None:
            for block in group.plan.receives:
                source = part_of(group.received, block).reshape(block.box.shape)
                target = by_device.arrived[block.box.slices(self._box)]
                by_device.bus.record(graph, target, source, False, "copy out", None)

    def _group_of(self, field: int, tile: int) -> _Group:
        return self._groups[field * -(-self._tiles // self._together) + tile // self._together]


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
