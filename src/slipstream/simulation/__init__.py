"""Simulations of any solver family: what a run asks of them, and what they return.

`make_simulation` makes the simulation of a case, which can be described, prepared, advanced and
asked for results without files.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# What draws the values of a simulation need not load what computes them.
_MODULE_OF = {
    "Interrupted": "slipstream.simulation.stop_requests",
    "Simulation": "slipstream.simulation.simulation_base",
    "make_simulation": "slipstream.simulation.solver_registry",
}

if TYPE_CHECKING:
    from slipstream.simulation.simulation_base import Simulation
    from slipstream.simulation.solver_registry import make_simulation
    from slipstream.simulation.stop_requests import Interrupted

__all__ = ["Interrupted", "Simulation", "make_simulation"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
