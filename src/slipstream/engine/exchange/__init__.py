"""Exchanges between ranks: one plan, many transports.

An `ExchangePlan` has the elements for each rank; a `Transport` records its execution in a step
graph. A single rank imports no transport.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from slipstream.engine.exchange.exchange_plan import Block, ExchangePlan, part_of
from slipstream.engine.exchange.transport_base import (
    ArrayBox,
    Exchange,
    PackTargets,
    Transport,
    Views,
    box_targets,
    copy_boxes,
    pack_targets,
    packed_exchange,
)
from slipstream.engine.exchange.transport_registry import (
    TRANSPORTS,
    GridTransports,
    RankPlace,
    can_store,
    chosen_transport,
    local_rank,
    make_grid_transports,
    make_transport,
    names_on,
    open_matching_device,
    transports_to_try,
)

if TYPE_CHECKING:
    from slipstream.engine.exchange.halo_exchange import (
        HaloExchange,
        HaloPlan,
        SparseExchange,
        swap_plan,
    )
    from slipstream.engine.exchange.reduced_precision_wire import NarrowWire

# Modules that few runs need are imported on access.
_MODULES = {
    "halo_exchange": ("HaloExchange", "HaloPlan", "SparseExchange", "swap_plan"),
    "reduced_precision_wire": ("NarrowWire",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "TRANSPORTS",
    "ArrayBox",
    "Block",
    "Exchange",
    "ExchangePlan",
    "GridTransports",
    "HaloExchange",
    "HaloPlan",
    "NarrowWire",
    "PackTargets",
    "RankPlace",
    "SparseExchange",
    "Transport",
    "Views",
    "box_targets",
    "can_store",
    "chosen_transport",
    "copy_boxes",
    "local_rank",
    "make_grid_transports",
    "make_transport",
    "names_on",
    "open_matching_device",
    "pack_targets",
    "packed_exchange",
    "part_of",
    "swap_plan",
    "transports_to_try",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
