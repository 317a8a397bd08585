"""Runs of simulations of any solver family: the loop, output, records, results and replays.

`make_simulation` makes the simulation of a case, which can be described, prepared, advanced and
asked for results without files. `run_case.run_case` runs one to its end, `resuming.resume_run`
resumes one in its folder, and `trial_run.check_run` says what one would take.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Imported on demand: drawing the values of a simulation needs no module that computes them.
_MODULE_OF = {
    "Interrupted": "slipstream.engine.processes",
    "Simulation": "slipstream.runs.simulation_base",
    "make_simulation": "slipstream.runs.simulation_base",
}

if TYPE_CHECKING:
    from slipstream.engine.processes import Interrupted
    from slipstream.runs.simulation_base import Simulation, make_simulation

__all__ = ["Interrupted", "Simulation", "make_simulation"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
