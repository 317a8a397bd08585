"""The time of a step of a case on a machine that one does not have.

A machine is described by a few rates (`machine_description`), which `calibration` measures on this
one. The step of one rank is recorded without allocating a field (`noted_steps`, `noted_lattice`);
what its nodes move has a price (`step_price`). `published_runs` compares figures of papers with
forecasts.
"""

from slipstream.forecast.case_forecast import Forecast, forecast
from slipstream.forecast.noted_lattice import lattice_counter
from slipstream.forecast.noted_steps import advection_counts, spectral_counts
from slipstream.simulation.machine_description import Machine, load_machine
from slipstream.simulation.step_price import StepCounts, StepTime, step_time

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
