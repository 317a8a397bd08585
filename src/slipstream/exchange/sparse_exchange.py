"""Sparse exchanges: numbers anywhere in an array are swapped with other ranks.

Each rank has a list of places for each neighbour; the numbers there are swapped with those at the
places of the neighbour's list. Numbers are packed and sent by any transport; if ranks share memory,
the kernel that gathers them stores them there directly, and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slipstream.array_types import Array
from slipstream.decomposition import Box
from slipstream.device import REAL_NAMES, Device, Operation, RowLaunch, address_of
from slipstream.exchange.exchange_plan import Block, ExchangePlan
from slipstream.exchange.pack_targets import pack_targets
from slipstream.exchange.transport_base import Transport
from slipstream.schedule import StepGraph

# Types of elements; half precision is only moved.
_ELEMENTS = {**REAL_NAMES, "float16": "unsigned short"}
# The numbers that one row of threads gathers for one neighbour.
_ROW = 1024


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
        self._gather = self._gathering(self._targets.blocks[0])

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

    def _gathering(self, blocks: Mapping[int, Array]) -> Operation:
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
