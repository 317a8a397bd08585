"""Sparse exchanges: numbers that lie anywhere in an array are swapped with other ranks.

Each rank has, for each neighbour, a list of places; what is there changes hands with what is at the
places of the neighbour's list. Numbers are packed and travel by any transport; where ranks see each
other's memory, the kernel that gathers them stores them there at once, and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slipstream.decomposition import Box
from slipstream.device import REAL_NAMES, Device, RowLaunch, address_of
from slipstream.exchange.exchange_plan import Block, ExchangePlan
from slipstream.exchange.transport_base import Exchange, Transport
from slipstream.schedule import StepGraph

# Numbers that one row of threads gathers for one neighbour.
_PIECE = 1024


def swap_plan(counts: Mapping[int, int], rank: int) -> ExchangePlan:
    """Return the plan by which so many numbers change hands with each neighbour.

    Parameters
    ----------
    counts : mapping of int to int
        How many, by rank, in rank order; the neighbours have the same number.
    rank : int
        The rank to plan for.
    """
    blocks, offset = [], 0
    for peer, count in counts.items():
        blocks.append(Block(peer, Box((offset,), (offset + count,)), offset, count))
        offset += count
    return ExchangePlan(rank, tuple(blocks), tuple(blocks), offset, offset)


class SparseExchange:
    """A swap in each of several arrays that take turns, ready to be recorded. Collective.

    Parameters
    ----------
    device : Device
        Where the arrays are.
    plan : ExchangePlan
        From `swap_plan`.
    addresses : array of int64
        For all blocks of the plan, one after the other: indices of elements of the arrays.
    arrays : sequence of arrays
        Swaps in one array and in the next take turns, so that nobody need ask whether what came
        with the one before last has been used.
    transport : Transport
        What carries the numbers.
    """

    def __init__(
        self,
        device: Device,
        plan: ExchangePlan,
        addresses: Any,
        arrays: Sequence[Any],
        transport: Transport,
    ) -> None:
        stored = transport.reaches_all
        kind = _Stored if stored else _Packed
        self._swaps = [kind(device, plan, addresses, array, transport) for array in arrays]

    def record(self, graph: StepGraph, number: int, places: Any, label: str) -> None:
        """Record the swap in one of the arrays.

        Parameters
        ----------
        graph : StepGraph
            Where nodes are added.
        number : int
            Which array.
        places : array
            Stands for all that the addresses lead to, in the graph's dependencies.
        label : str
            Name in timelines.
        """
        self._swaps[number].record(graph, places, label)


class _Swap:
    def __init__(self, device, plan, addresses, array, transport: Transport) -> None:
        self._device, self._plan, self._array = device, plan, array
        self._addresses, self._transport = addresses, transport
        self._constants = {"REAL": "double", "STORED": REAL_NAMES[np.dtype(array.dtype).name]}
        self._incoming = transport.empty((plan.receive_size,), array.dtype)

    def _kernel(self, name: str, launch: RowLaunch, *arguments: Any) -> Any:
        return self._device.kernel("slots.hpp", name, **self._constants).bind(launch, *arguments)

    def _gather(self, places: Mapping[int, Any]) -> Any:
        """Return the operation that stores what each neighbour gets in its place."""
        pieces = [
            (
                address_of(places[block.peer][start:]),
                block.offset + start,
                min(_PIECE, block.count - start),
            )
            for block in self._plan.sends
            for start in range(0, block.count, _PIECE)
        ]
        table = self._device.array(np.array(pieces, np.int64).reshape(-1, 3))
        gather = self._kernel(
            "gather_slots",
            RowLaunch(len(pieces), _PIECE),
            self._array,
            self._addresses,
            table,
            len(pieces),
        )

        def operation(stream: Any, keep_alive: Any = places) -> None:
            gather(stream)

        return operation

    def _record_scatter(self, graph: StepGraph, places: Any, label: str) -> None:
        count = self._plan.receive_size
        if not count:
            return
        rows = -(-count // _PIECE)
        graph.add(
            self._kernel(
                "scatter_slots",
                RowLaunch(rows, _PIECE),
                self._array,
                self._addresses,
                self._incoming,
                rows,
                _PIECE,
                count,
            ),
            reads=[self._incoming],
            writes=[places],
            label=f"{label}: unpack",
            category="pack",
            device=self._device,
            lane="exchange",
        )

    def _record_gather(self, graph, operation, places, writes, label, category) -> None:
        if self._plan.send_size:
            graph.add(
                operation,
                reads=[places],
                writes=writes,
                label=label,
                category=category,
                device=self._device,
                lane="exchange",
            )


class _Packed(_Swap):
    """Numbers are packed into one block per neighbour, which any transport takes."""

    def __init__(self, device, plan, addresses, array, transport) -> None:
        super().__init__(device, plan, addresses, array, transport)
        self._outgoing = transport.empty((plan.send_size,), array.dtype)
        self._exchange: Exchange = transport.prepare(plan, [(self._outgoing, self._incoming)])
        outgoing = self._outgoing
        self._packing = self._gather(
            {b.peer: outgoing[b.offset : b.offset + b.count] for b in plan.sends}
        )

    def record(self, graph: StepGraph, places: Any, label: str) -> None:
        self._record_gather(
            graph, self._packing, places, [self._outgoing], f"{label}: pack", "pack"
        )
        self._exchange.record(graph, label)
        self._record_scatter(graph, places, label)


class _Stored(_Swap):
    """One kernel stores the numbers in the neighbours' memory; flags tell them."""

    def __init__(self, device, plan, addresses, array, transport) -> None:
        super().__init__(device, plan, addresses, array, transport)
        (self._places,) = transport.exchange_places(plan, [self._incoming])
        self._storing = self._gather(self._places)
        peers = [block.peer for block in plan.sends]
        self._arrived = transport.handshake(peers, peers)

    def record(self, graph: StepGraph, places: Any, label: str) -> None:
        stored = list(self._places.values())
        self._record_gather(graph, self._storing, places, stored, label, "communication")
        lanes = ("signal", "arrival")
        self._arrived.record(graph, stored, [], [self._incoming], f"{label}: wait", lanes)
        self._record_scatter(graph, places, label)
