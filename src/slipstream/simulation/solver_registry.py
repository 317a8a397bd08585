"""Which class simulates a case; only the solver family that is needed is imported."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from slipstream.array_types import Comm
from slipstream.case import Case
from slipstream.device import Device
from slipstream.simulation.simulation_base import Simulation

# By name of the solver: module and class.
SIMULATIONS = {
    "spectral": ("slipstream.spectral.spectral_simulation", "SpectralSimulation"),
    "advection": ("slipstream.advection.advection_simulation", "AdvectionSimulation"),
    "lattice": ("slipstream.lattice.lattice_simulation", "LatticeSimulation"),
}


def make_simulation(
    case: Case,
    comm: Comm = None,
    device: str | Device | Mapping[str, Device] = "auto",
    **beside: Any,
) -> Simulation:
    """Make the simulation of a case, without allocating its fields. Collective.

    Parameters
    ----------
    case : Case
        What to simulate, from `slipstream.case.load_case` or `slipstream.case.make_case`.
    comm : mpi4py.MPI.Comm, optional
        The ranks that share the work.
    device : {"auto", "cpu", "cuda"} or Device
        What computes; "auto" leaves it to the case's ``run.device``. Ranks of a node share its GPUs
        in turn. An advection by a strategy of two devices takes a mapping with "cpu" and "gpu".
    **beside
        What else the family's class takes, such as an ``image`` in memory.

    Returns
    -------
    Simulation
        Ask it for `facts` of what it would take, or `prepare` it and `advance` it.

    Raises
    ------
    InputError
        If there is no such device, or the case does not suit the devices or the ranks.
    """
    module, name = SIMULATIONS[case.solver]
    made: Simulation = getattr(importlib.import_module(module), name)(case, comm, device, **beside)
    return made
