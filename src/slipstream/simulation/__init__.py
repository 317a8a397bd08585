"""Simulations of any solver family, and running a case with one.

`make_simulation` makes the simulation of a case, which can be described, prepared, advanced and
asked for results without files. `run_case` runs one to its end: it announces it, writes what the
case asks for, and sums up. A run that is interrupted or blows up ends in order, with one line.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# A program that only steps need not load what writes files.
_MODULE_OF = {
    "Field": "slipstream.field",
    "Interrupted": "slipstream.simulation.stop_requests",
    "OutputFolder": "slipstream.io.output_folder",
    "Simulation": "slipstream.simulation.simulation_base",
    "check_folder": "slipstream.io.output_folder",
    "claim_folder": "slipstream.io.output_folder",
    "make_simulation": "slipstream.simulation.solver_registry",
    "resume_run": "slipstream.simulation.resuming",
}

if TYPE_CHECKING:
    from slipstream.field import Field
    from slipstream.io.output_folder import OutputFolder, check_folder, claim_folder
    from slipstream.simulation.resuming import resume_run
    from slipstream.simulation.simulation_base import Simulation
    from slipstream.simulation.solver_registry import make_simulation
    from slipstream.simulation.stop_requests import Interrupted

__all__ = [
    "Field",
    "Interrupted",
    "OutputFolder",
    "Simulation",
    "check_folder",
    "claim_folder",
    "make_simulation",
    "resume_run",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
