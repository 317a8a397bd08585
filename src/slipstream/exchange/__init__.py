"""Exchanges between ranks: one plan, many transports.

An `ExchangePlan` says which elements go to whom; a `Transport` records its execution in a step
graph.
"""

from slipstream.exchange.exchange_plan import Block, ExchangePlan, part_of
from slipstream.exchange.halo_exchange import HaloExchange, HaloPlan
from slipstream.exchange.pack_targets import PackTargets, Views, pack_targets, views_of
from slipstream.exchange.pack_unpack import move
from slipstream.exchange.redistribute import redistribute
from slipstream.exchange.reduced_precision_wire import NarrowWire
from slipstream.exchange.sparse_exchange import SparseExchange, swap_plan
from slipstream.exchange.transport_base import Exchange, Transport
from slipstream.exchange.transport_registry import (
    TRANSPORTS,
    check_devices,
    chosen_transport,
    local_rank,
    make_transport,
    open_matching_device,
)

__all__ = [
    "TRANSPORTS",
    "Block",
    "Exchange",
    "ExchangePlan",
    "HaloExchange",
    "HaloPlan",
    "NarrowWire",
    "PackTargets",
    "SparseExchange",
    "Transport",
    "Views",
    "check_devices",
    "chosen_transport",
    "local_rank",
    "make_transport",
    "move",
    "open_matching_device",
    "pack_targets",
    "part_of",
    "redistribute",
    "swap_plan",
    "views_of",
]
