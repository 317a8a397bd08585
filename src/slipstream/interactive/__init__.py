"""Simulations as Python objects, of every family: stepped, looked at and changed from a program.

`Turbulence`, `Flow`, `PorousFlow` and `Advection` are made from arguments, `load` makes one from a
case, and `open_run` reads what a run has written. All are names of ``slipstream`` itself.
"""

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
