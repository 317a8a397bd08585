"""What a step of a case would take on a machine that one does not have.

A machine is described by a few rates (`machine_description`). What a step must move is counted from
the plans that would be made on so many ranks, without allocating a field (`spectral_counts`,
`advection_counts`, `lattice_counts`), and what that takes follows (`step_time`). `published_runs`
are figures of papers, beside which the forecast is put.
"""

from slipstream.forecast.case_forecast import Forecast, forecast
from slipstream.forecast.machine_description import Machine, load_machine
from slipstream.forecast.noted_advection import advection_counts
from slipstream.forecast.noted_lattice import lattice_counter
from slipstream.forecast.noted_spectral import spectral_counts
from slipstream.forecast.step_counts import StepCounts
from slipstream.forecast.step_time import StepTime, step_time

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
