"""Simulations as Python objects, of every family: stepped, looked at and changed from a program.

`Turbulence`, `Flow`, `PorousFlow` and `Advection` are made from arguments, `load` makes one from a
case, and `open_run` reads what a run has written. All are names of ``slipstream`` itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# A program imports the family that it uses.
_MODULE_OF = {
    "Advection": "tracer_advection",
    "Flow": "spectral_flow",
    "InteractiveSimulation": "interactive_simulation",
    "OpenedRun": "opened_run",
    "PorousFlow": "porous_flow",
    "Turbulence": "spectral_flow",
    "load": "loading",
    "open_run": "opened_run",
}

if TYPE_CHECKING:
    from slipstream.interactive.interactive_simulation import InteractiveSimulation
    from slipstream.interactive.loading import load
    from slipstream.interactive.opened_run import OpenedRun, open_run
    from slipstream.interactive.porous_flow import PorousFlow
    from slipstream.interactive.spectral_flow import Flow, Turbulence
    from slipstream.interactive.tracer_advection import Advection

__all__ = [
    "Advection",
    "Flow",
    "InteractiveSimulation",
    "OpenedRun",
    "PorousFlow",
    "Turbulence",
    "load",
    "open_run",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
