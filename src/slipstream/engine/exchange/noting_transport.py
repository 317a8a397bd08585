"""Transports that send nothing: exchanges of one rank of many are recorded to be counted.

They record the same nodes (copies, packing, waits) and messages as the real transports of the same
names, for ranks in order on nodes with equally many ranks. No other rank exists. So if a number
depends on other ranks (such as the aggregated messages of a node), all ranks are assumed to be like
this one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.device import Device, Stream, address_of
from slipstream.engine.device.noting_device import HOST, PEER, NotingDevice, place_of
from slipstream.engine.exchange.exchange_plan import (
    ExchangePlan,
    part_of,
    ranges_of,
    views_of_ranges,
)
from slipstream.engine.exchange.mpi_transport import Carriers, Leg, Legs, MessageExchange, counts_of
from slipstream.engine.exchange.peer_memory import FLAGS, allocated_bytes
from slipstream.engine.exchange.peer_transport import PeerTransport
from slipstream.engine.exchange.reduced_precision_wire import NarrowWire
from slipstream.engine.exchange.transport_base import Exchange, Transport
from slipstream.engine.exchange.transport_registry import GridTransports, RankPlace
from slipstream.engine.schedule import StepGraph


def usual_transport(rank_place: RankPlace, device: Device) -> str:
    """Return the transport that `auto` selects if each rank has its own device (NVIDIA GPUs)."""
    if rank_place.is_one_node:
        return "peer"
    return _choose_far_transport(device)


def _choose_far_transport(device: Device) -> str:
    return "mpi-p2p" if device.kind == "cpu" else "nccl"


def noting_grid(
    name: str,
    rank_place: RankPlace,
    device: NotingDevice,
    wire: str | None = None,
    grid: tuple[int, int] | None = None,
) -> Transport | GridTransports | None:
    """Return the noting transport of slabs, or the transports along both axes of a grid."""
    if grid is None:
        return noting_transport(name, rank_place, device, wire)
    along, across = (
        noting_transport(name, axis_place, device, wire) for axis_place in rank_place.of_grid(grid)
    )
    return GridTransports(along, across, device.lanes)


def noting_transport(
    name: str, rank_place: RankPlace, device: NotingDevice, wire: str | None = None
) -> Transport | None:
    """Return the noting transport of this name; None for a single rank."""
    if rank_place.ranks == 1 or name == "none":
        return None
    if wire is not None:
        inner = noting_transport(name, rank_place, device)
        return inner and NarrowWire(inner, device, None, wire)
    if name == "auto":
        name = usual_transport(rank_place, device)
    if name == "peer":
        return _make_noted_peers(rank_place, device)
    return _NotingTransport(name, rank_place, device)


class _NotingTransport(Transport):
    """Exchanges by messages."""

    def __init__(self, name: str, rank_place: RankPlace, device: NotingDevice) -> None:
        super().__init__(device)
        self.name, self.rank_place, self._notes = name, rank_place, device
        self._is_staged = device.kind != "cpu" and name in ("mpi", "mpi-p2p", "mpi-hierarchical")
        self._staging: dict[tuple[int, int], Array] = {}
        self._carriers: Carriers | None = None
        if name == "mpi-hierarchical":
            nodes = [
                rank_place.number(rank) // rank_place.ranks_of_node
                for rank in range(rank_place.ranks)
            ]
            # Not all nodes have ranks of one axis of a process grid.
            numbers = {node: number for number, node in enumerate(dict.fromkeys(nodes))}
            self._carriers = Carriers([numbers[node] for node in nodes], rank_place.rank)

    def prepare(
        self, plan: ExchangePlan, pairs: Sequence[tuple[Any, Any]], whole: bool = False
    ) -> Exchange:
        if self.name == "nccl":
            group = _NotedGroup(self.device, plan, pairs, whole)
            group.rank_place = self.rank_place
            return group
        exchange = _NotedMessages(self.device, plan, pairs, whole, self.staging)
        exchange.rank_place = self.rank_place
        exchange.is_collective = self.name in ("mpi", "mpi-device")
        exchange.in_host_memory = self.device.kind == "cpu" or self._is_staged
        if self._carriers is not None:
            exchange.aggregate(self._carriers, self._notes)
        return exchange

    def staging(self, array: Array) -> Array:
        """Return the array for MPI, always the same."""
        if not self._is_staged or place_of(array) == HOST:
            return array
        key = address_of(array), array.nbytes
        if key not in self._staging:
            self._staging[key] = self.device.pinned(array.shape, array.dtype)
        return self._staging[key]


class _NotedMessages(MessageExchange):
    """Messages that are never sent."""

    rank_place: RankPlace
    _legs: list[Leg] | None = None

    def aggregate(self, carriers: Carriers, device: NotingDevice) -> None:
        """Aggregate the messages of all ranks of this node to other nodes."""
        counts = counts_of(carriers, self.sends, self.receives)
        said = dict.fromkeys(carriers.members[carriers.here], counts)
        legs = Legs(carriers, self.sends, self.receives, said)
        self._legs = [leg for leg in legs.sends if leg.peer != self.plan.rank]
        self._scratch = [
            device.pinned((legs.relay_size,), source.dtype) for source, _ in self._staged
        ]

    def messages(self) -> list[tuple[int, int]]:
        if self._legs is None:
            messages = super().messages()
        else:
            messages = self._messages_of((leg.peer, leg.elements()) for leg in self._legs)
        return [(self.rank_place.number(peer), size) for peer, size in messages]

    @property
    def relayed_bytes(self) -> int:
        """Bytes of messages within the node, before and after the messages between nodes."""
        relayed = [leg for leg in self._legs or () if leg.stage in ("gather", "scatter")]
        itemsize = self.pairs[0][0].itemsize
        return len(self.pairs) * itemsize * sum(leg.elements() for leg in relayed)


class _NotedGroup(Exchange):
    """Messages from device to device, as one node of the device; also its operation."""

    rank_place: RankPlace

    def messages(self) -> list[tuple[int, int]]:
        return [(self.rank_place.number(peer), size) for peer, size in super().messages()]

    def _record_messages(self, graph: StepGraph, label: str) -> None:
        if not self.sends and not self.receives:
            return
        sent, arriving = (
            [part for array in arrays for part in views_of_ranges(array, ranges)]
            for arrays, ranges in zip(
                zip(*self.pairs, strict=True),
                (ranges_of(self.sends), ranges_of(self.receives)),
                strict=True,
            )
        )
        graph.add(
            self,
            reads=sent,
            writes=arriving,
            label=label,
            category="communication",
            lane="communication",
            device=self.device,
        )

    def __call__(self, stream: Stream) -> None:
        raise RuntimeError("an exchange that is only noted cannot be run")


class _Flags:
    """Flags of all ranks; this rank does not see the flags of other nodes."""

    def __init__(self, rank_place: RankPlace, device: NotingDevice) -> None:
        self.memories: list[Any] = [None] * rank_place.ranks
        for rank in range(rank_place.ranks):
            if rank == rank_place.rank:
                self.memories[rank] = device.empty((8 * FLAGS,), np.uint8)
            elif rank_place.is_near(rank):
                owner = rank_place.number(rank)
                self.memories[rank] = device.memory.empty((8 * FLAGS,), np.uint8, HOST, owner)


class _NotedSharedArrays:
    """Memory of the ranks of a node, as `SharedArrays`."""

    def __init__(self, rank_place: RankPlace, device: NotingDevice) -> None:
        self._rank_place, self._device = rank_place, device
        self.near = [rank_place.is_near(rank) for rank in range(rank_place.ranks)]
        self.everywhere = rank_place.is_one_node
        self.new_flags(None)

    def new_flags(self, comm: Any) -> None:
        self.flags, self.flags_used = _Flags(self._rank_place, self._device), 0

    def empty(self, comm: Any, shape: Sequence[int], dtype: Any) -> Array:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        memory = self._device.empty((allocated_bytes(size),), np.uint8)
        array: Array = memory[:size].view(dtype).reshape(shape)
        return array

    def exchange_places(
        self, comm: Any, plan: ExchangePlan, targets: Sequence[Any]
    ) -> list[dict[int, Any]]:
        own_blocks = {block.peer: block for block in plan.receives if block.peer == plan.rank}
        memory = self._device.memory
        return [
            {
                block.peer: part_of(target, own_blocks[block.peer])
                if block.peer in own_blocks
                else memory.empty(
                    (block.count,), target.dtype, PEER, self._rank_place.number(block.peer)
                )
                for block in plan.sends
            }
            for target in targets
        ]


@dataclass(frozen=True)
class _SilentComm:
    """The methods of a communicator that a transport calls."""

    rank: int
    size: int

    def new_topic(self) -> int:
        """Return the name under which failures would be reported."""
        return 0


def _make_noted_peers(rank_place: RankPlace, device: NotingDevice) -> Transport:
    """Return the transport itself, with other ranks' memory as addresses only."""
    comm: Any = _SilentComm(rank_place.rank, rank_place.ranks)
    memory = cast(Any, _NotedSharedArrays(rank_place, device))
    far = _choose_far_transport(device)
    return PeerTransport(comm, device, memory, lambda: _NotingTransport(far, rank_place, device))
