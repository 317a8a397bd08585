"""What all transports share: the recording of an exchange, and which transport to take.

A transport records, in a step graph, how the blocks of a plan travel. What a rank sends to itself
is a copy on its device, whatever the transport.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from slipstream.exchange.plan import Block, ExchangePlan
from slipstream.schedule import StepGraph


class Transport(ABC):
    """Records exchanges between the ranks of a communicator.

    Attributes
    ----------
    name : str
        As in a case file.
    """

    name: str

    def record(
        self, graph: StepGraph, plan: ExchangePlan, pairs: Sequence[tuple[Any, Any]], label: str
    ) -> None:
        """Record the exchange of several arrays by one plan.

        Parameters
        ----------
        graph : StepGraph
            Where nodes are added. All ranks must record the same exchanges in the same order.
        plan : ExchangePlan
            This rank's plan.
        pairs : sequence of (source, target)
            Packed, contiguous arrays of ``plan.send_size`` and ``plan.receive_size`` elements, of
            any shape, on the graph's device.
        label : str
            Name in timelines.
        """
        flat = [(source.reshape(-1), target.reshape(-1)) for source, target in pairs]
        own_sends, sends = _own_and_others(plan.sends, plan.rank)
        own_receives, receives = _own_and_others(plan.receives, plan.rank)
        for source, target in flat:
            for send, receive in zip(own_sends, own_receives, strict=True):
                part, place = part_of(source, send), part_of(target, receive)
                graph.add(
                    graph.device.copy(place, part), reads=[part], writes=[place],
                    label=f"{label}: own", category="pack",
                )  # fmt: skip
        self._record_messages(graph, sends, receives, flat, label)

    @abstractmethod
    def _record_messages(
        self,
        graph: StepGraph,
        sends: list[Block],
        receives: list[Block],
        pairs: list[tuple[Any, Any]],
        label: str,
    ) -> None:
        """Record what goes to, and comes from, other ranks."""


def part_of(array: Any, block: Block) -> Any:
    """Return the part of a flat packed array that a block describes."""
    return array[block.offset : block.offset + block.count]


def _own_and_others(blocks: Sequence[Block], rank: int) -> tuple[list[Block], list[Block]]:
    own = [block for block in blocks if block.peer == rank]
    return own, [block for block in blocks if block.peer != rank]
