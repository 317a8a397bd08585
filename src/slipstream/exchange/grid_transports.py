"""Transports of a process grid: one along each of its axes, between fewer ranks."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.array_types import Comm
from slipstream.exchange.transport_base import Transport


@dataclass(frozen=True)
class GridTransports:
    """The transports of a rank of a process grid, whose ranks are in C order.

    `along` the first axis it is between ranks with the same place in the last one, and `across` it
    is between neighbours in rank order. None where there is a single rank. A rank has at most
    `lanes` lanes: all divide what they exchange alike.
    """

    along: Transport | None
    across: Transport | None
    lanes: int

    def relative_error(self, comm: Comm = None) -> float:
        """Return how much data lose on the longer of both ways. Collective."""
        both = (self.along, self.across)
        return max((one.relative_error(comm) for one in both if one is not None), default=0.0)
