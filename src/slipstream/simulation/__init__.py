"""Simulations of any solver family, and running a case with one.

`make_simulation` makes the simulation of a case, which can be described, prepared, advanced and
asked for results without files. `run_case` runs one to its end: it announces it, writes what the
case asks for, and sums up. A run that is interrupted or blows up ends in order, with one line.
"""

from slipstream.field import Field
from slipstream.simulation.output_folder import OutputFolder, check_folder, claim_folder
from slipstream.simulation.resuming import resume_run
from slipstream.simulation.run_case import AtItsEnd, RunOptions, run_case
from slipstream.simulation.simulation_base import Simulation
from slipstream.simulation.solver_registry import make_simulation
from slipstream.simulation.stop_requests import Interrupted

__all__ = [
    "AtItsEnd",
    "Field",
    "Interrupted",
    "OutputFolder",
    "RunOptions",
    "Simulation",
    "check_folder",
    "claim_folder",
    "make_simulation",
    "resume_run",
    "run_case",
]
