"""Running a case: the same for every solver family.

A family offers a `Simulation`; `run_case` announces it, steps it to the end, writes what the
case asks for, and sums up. A run that is interrupted or blows up ends in order, with one line.
"""

from slipstream.field import Field
from slipstream.simulation.output_folder import check_folder, prepare_folder
from slipstream.simulation.run_case import run_case
from slipstream.simulation.simulation_base import Simulation
from slipstream.simulation.stop_requests import Interrupted

__all__ = ["Field", "Interrupted", "Simulation", "check_folder", "prepare_folder", "run_case"]
