"""Exchanges between ranks: one plan, many transports.

An `ExchangePlan` says which elements go to whom; a `Transport` records its execution in a step
graph.
"""

from slipstream.exchange.choice import (
    TRANSPORTS,
    check_devices,
    chosen_transport,
    local_rank,
    make_transport,
    open_matching_device,
)
from slipstream.exchange.halo import HaloExchange, HaloPlan
from slipstream.exchange.moves import move
from slipstream.exchange.narrow import NarrowWire
from slipstream.exchange.plan import Block, ExchangePlan
from slipstream.exchange.redistribute import redistribute
from slipstream.exchange.sparse import SparseExchange, swap_plan
from slipstream.exchange.transport import Exchange, Transport, part_of

__all__ = [
    "TRANSPORTS",
    "Block",
    "Exchange",
    "ExchangePlan",
    "HaloExchange",
    "HaloPlan",
    "NarrowWire",
    "SparseExchange",
    "Transport",
    "check_devices",
    "chosen_transport",
    "local_rank",
    "make_transport",
    "move",
    "open_matching_device",
    "part_of",
    "redistribute",
    "swap_plan",
]
