"""Where tiles come from and go to: arrays, and the packed buffers of exchanges.

A tile is a box of the global index space. A store names the arrays that hold such a box, part by
part: one view of an array, or a part of every block that is sent to, or has come from, another
rank. What copies a tile to the host so packs it for its receivers, and what copies it back
unpacks it: nothing is packed on the host. Where ranks see each other's memory, the copy from the
device goes straight to the receiver, and nothing is left to be sent. Or tiles are exchanged
between devices, and only what has arrived goes to the host.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.decomposition import Box
from slipstream.exchange import Block, ExchangePlan, Transport, part_of
from slipstream.fft.host_device_copy import Bus
from slipstream.schedule import StepGraph

# Groups of tiles that are exchanged between devices at the same time.
_IN_FLIGHT = 2

# Parts of a box, each with the view that holds it.
Views = list[tuple[Box, Any]]


class ArrayStore:
    """An array that holds one box.

    Parameters
    ----------
    box : Box
        Which part of the index space it holds.
    array : array, shape of the box
        On the host, pinned, or on a device.
    stays : bool
        Whether it stays on the device; all fields take turns in it then, and it has no axis for
        them.
    padded : bool
        Whether rows of real numbers end with padding that may be written: it crosses the bus with
        them, since that is one piece then.
    """

    def __init__(self, box: Box, array: Any, stays: bool = False, padded: bool = False) -> None:
        self._box, self._array, self.padded = box, array, padded
        self.written_on_device = self.read_on_device = self._stays = stays

    def write_views(self, box: Box) -> Views:
        """Return where to write a box."""
        part = box.intersect(self._box)
        if not part.size:
            return []
        slices = part.slices(self._box)
        view = self._array[slices[1:]][None] if self._stays else self._array[slices]
        return [(part, view)]

    read_views = write_views

    def record_before(self, graph: StepGraph, field: int, tile: int) -> None:
        """Record what must come before a tile is written: nothing."""

    def record_written(self, graph: StepGraph, field: int, tile: int) -> None:
        """Record what follows when a tile has been written: nothing."""


class ExchangeStore:
    """Packed buffers of an exchange between all ranks, in groups of tiles. Collective.

    Parameters
    ----------
    transport : Transport
        How ranks exchange, from host to host; allocates the buffers.
    sources : sequence of sequence of Box
        By group, the box that each rank sends.
    targets : sequence of Box
        What each rank wants.
    tiles, together : int
        How many tiles a field has, and a group: the last one of a field may have fewer.
    rank : int
        This rank.
    dtype : dtype
        Of the elements.
    """

    padded = written_on_device = read_on_device = False

    def __init__(
        self,
        transport: Transport,
        sources: Sequence[Sequence[Box]],
        targets: Sequence[Box],
        tiles: int,
        together: int,
        rank: int,
        dtype: Any,
    ) -> None:
        self._tiles, self._together, self._rank = tiles, together, rank
        plans = [ExchangePlan.redistribution(boxes, targets, rank) for boxes in sources]
        pairs = self._buffers(transport, [group_sizes(plan) for plan in plans], np.dtype(dtype))
        self._groups = [
            (plan, pair, transport.prepare(plan, [pair]))
            for plan, pair in zip(plans, pairs, strict=True)
        ]

    def _buffers(
        self, transport: Transport, sizes: Sequence[tuple[int, int]], dtype: np.dtype
    ) -> list[tuple[Any, Any]]:
        """Return the memory of each group, of so many elements to send and to receive."""
        sent, received = (itertools.accumulate(one, initial=0) for one in zip(*sizes, strict=True))
        sent, received = list(sent), list(received)
        # Where everything goes straight to the receivers, this memory is never touched.
        empty = np.empty if transport.reaches_all else transport.empty
        packed = empty((sent[-1],), dtype), transport.empty((received[-1],), dtype)
        return [
            (packed[0][sent[i] : sent[i + 1]], packed[1][received[i] : received[i + 1]])
            for i in range(len(sizes))
        ]

    @property
    def bytes(self) -> int:
        """Number of bytes that leave this rank."""
        return sum(plan.off_rank_elements() * send.itemsize for plan, (send, _), _ in self._groups)

    @property
    def allocated(self) -> int:
        """Number of bytes on the host that the buffers take."""
        return sum(
            receive.nbytes + (0 if exchange.places else send.nbytes)
            for _, (send, receive), exchange in self._groups
        )

    def write_views(self, box: Box) -> Views:
        """Return where to write a box: what this rank keeps goes to where it is read."""
        views: Views = []
        for plan, (send, receive), exchange in self._groups:
            if exchange.places:
                for block in plan.sends:
                    views += views_of(exchange.places[0][block.peer], block, box)
                continue
            own = [block for block in plan.receives if block.peer == self._rank]
            for block in plan.sends:
                is_own = block.peer == self._rank
                views += _views(receive if is_own else send, own[0] if is_own else block, box)
        return views

    def read_views(self, box: Box) -> Views:
        """Return where to read a box."""
        return [
            view
            for plan, (_, receive), _ in self._groups
            for block in plan.receives
            for view in _views(receive, block, box)
        ]

    def record_before(self, graph: StepGraph, field: int, tile: int) -> None:
        """Record the wait for the receivers' memory before the first tile of a group."""
        _, _, exchange = self._groups[self._group_of(field, tile)]
        if tile % self._together == 0 and exchange.places:
            exchange.record_open(graph, "transpose")

    def record_written(self, graph: StepGraph, field: int, tile: int) -> None:
        """Record the exchange of a group when its last tile has been written."""
        if self._is_last(tile):
            _, _, exchange = self._groups[self._group_of(field, tile)]
            if exchange.places:
                exchange.record_close(graph, "transpose")
            else:
                exchange.record(graph, "transpose", own=False)

    def _is_last(self, tile: int) -> bool:
        return (tile + 1) % self._together == 0 or tile + 1 == self._tiles

    def _group_of(self, field: int, tile: int) -> int:
        return field * -(-self._tiles // self._together) + tile // self._together


class DeviceExchangeStore(ExchangeStore):
    """An exchange between the devices of ranks, which leaves on the host what has arrived.

    Groups of tiles take turns in a few buffers on the device. Collective.

    Parameters
    ----------
    transport, sources, targets, tiles, together, rank, dtype
        As of `ExchangeStore`; the transport exchanges from device to device.
    bus : Bus
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
        dtype: Any,
        bus: Bus,
        arrived: Any,
        buffers: Sequence[tuple[Any, Any]],
    ) -> None:
        self._bus, self._in_turn = bus, buffers
        self._box, self._arrived = targets[rank], arrived
        super().__init__(transport, sources, targets, tiles, together, rank, dtype)

    def _buffers(
        self, transport: Transport, sizes: Sequence[tuple[int, int]], dtype: np.dtype
    ) -> list[tuple[Any, Any]]:
        pairs = []
        for (sent, received), (out, back) in zip(sizes, itertools.cycle(self._in_turn)):
            parts = out[: sent * dtype.itemsize], back[: received * dtype.itemsize]
            pairs.append(tuple(part.view(dtype) for part in parts))
        return pairs

    @property
    def allocated(self) -> int:
        """Number of bytes on the host that the buffers take."""
        return self._arrived.nbytes

    def write_views(self, box: Box) -> Views:
        """Return where on a device to write a box, that of a receiver if it can be reached."""
        views: Views = []
        for plan, (send, _), exchange in self._groups:
            for block in plan.sends:
                if exchange.places:
                    views += views_of(exchange.places[0][block.peer], block, box)
                else:
                    views += _views(send, block, box)
        return views

    def read_views(self, box: Box) -> Views:
        """Return where to read a box."""
        part = box.intersect(self._box)
        return [(part, self._arrived[part.slices(self._box)])] if part.size else []

    def record_written(self, graph: StepGraph, field: int, tile: int) -> None:
        """Record the exchange of a group, and the copy to the host of what arrives."""
        if not self._is_last(tile):
            return
        plan, (_, received), exchange = self._groups[self._group_of(field, tile)]
        if exchange.places:
            exchange.record_close(graph, "transpose")
        else:
            exchange.record(graph, "transpose")
        for block in plan.receives:
            source = part_of(received, block).reshape(block.box.shape)
            target = self._arrived[block.box.slices(self._box)]
            self._bus.record(graph, target, source, False, "copy out", None)


def group_sizes(plan: ExchangePlan) -> tuple[int, int]:
    """Return how many elements of a group a rank sends, and how many of them it receives."""
    # What arrives is only what the group has, not all that this rank wants.
    return plan.send_size, sum(block.count for block in plan.receives)


def device_buffers(transport: Transport, sizes: tuple[int, int]) -> list[tuple[Any, Any]]:
    """Return memory for a few groups of so many bytes to send and to receive. Collective."""
    # Where everything goes straight to the receivers, what is sent takes no memory of a device.
    empty = np.empty if transport.reaches_all else transport.empty
    return [
        (empty((sizes[0],), np.uint8), transport.empty((sizes[1],), np.uint8))
        for _ in range(_IN_FLIGHT)
    ]


def device_buffer_bytes(transport: Transport, sizes: tuple[int, int]) -> int:
    """Return the bytes of a device that `device_buffers` allocates."""
    sent = 0 if transport.reaches_all else transport.allocated_bytes(sizes[0])
    return _IN_FLIGHT * (sent + transport.allocated_bytes(sizes[1]))


def _views(packed: Any, block: Block, box: Box) -> Views:
    return views_of(part_of(packed, block), block, box)


def views_of(values: Any, block: Block, box: Box) -> Views:
    """Return the part of a block, whose values these are, that is in a box; nothing if none is."""
    part = box.intersect(block.box)
    if not part.size:
        return []
    return [(part, values.reshape(block.box.shape)[part.slices(block.box)])]
