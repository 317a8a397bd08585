"""Transports of a process grid: one along each of its axes, between fewer ranks."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.array_types import Comm
from slipstream.exchange.transport_base import Transport


@dataclass(frozen=True)
class GridTransports:
    """The transports of a rank of a process grid, whose ranks are in C order.

    `along` connects ranks along the first axis, with the same place along the last; `across`
    connects neighbours in rank order. None for a single rank. A rank has at most `lanes` lanes: all
    divide exchanged data equally.
    """

    along: Transport | None
    across: Transport | None
    lanes: int

    def relative_error(self, comm: Comm = None) -> float:
        """Return the larger of the errors of exchanges along both axes. Collective."""
        both = (self.along, self.across)
        return max((one.relative_error(comm) for one in both if one is not None), default=0.0)
