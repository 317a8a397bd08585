"""The time of a step of a case on a machine that one does not have.

A machine is described by a few rates (`machine_description`), which `calibration` measures on this
one. The step of one rank is recorded without allocating a field (`noted_steps`, `noted_lattice`);
what its nodes move has a price (`step_price`). `published_runs` compares figures of papers with
forecasts.
"""

from slipstream.api.forecast.noted_steps import advection_counts, lattice_counter, spectral_counts
from slipstream.api.forecast.project_command import Forecast, forecast
from slipstream.case.machine_description import Machine, load_machine
from slipstream.runs.step_price import StepCounts, StepTime, step_time

__all__ = [
    "Forecast",
    "Machine",
    "StepCounts",
    "StepTime",
    "advection_counts",
    "forecast",
    "lattice_counter",
    "load_machine",
    "spectral_counts",
    "step_time",
]
