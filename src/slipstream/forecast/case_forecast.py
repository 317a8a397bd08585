"""The forecast of a case on more and more nodes of a machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slipstream.case import AdvectionCase, Case, LatticeCase, SpectralCase
from slipstream.errors import InputError
from slipstream.forecast.advection_counts import advection_counts
from slipstream.forecast.lattice_counts import lattice_counter
from slipstream.forecast.machine_description import Machine
from slipstream.forecast.spectral_counts import spectral_counts
from slipstream.forecast.step_counts import StepCounts
from slipstream.forecast.step_time import StepTime, step_time


@dataclass(frozen=True)
class Forecast:
    """What is foretold of a case on some nodes.

    Attributes
    ----------
    nodes, ranks : int
        How many take part; a rank for each device.
    counts, time : StepCounts, StepTime or None
        What a step moves and takes; None if the case cannot run there.
    obstacle : str
        Why not.
    efficiency : float or None
        Of the devices, beside the first number of nodes on which the case can run.
    node_hours : float or None
        To the end of the case, where the number of its steps is known.
    """

    nodes: int
    ranks: int
    counts: StepCounts | None
    time: StepTime | None
    obstacle: str = ""
    efficiency: float | None = None
    node_hours: float | None = None


def forecast(
    case: Case, machine: Machine, nodes: Sequence[int], steps: int | None = None
) -> list[Forecast]:
    """Return the forecast of a case for each number of nodes.

    Parameters
    ----------
    case : Case
        Of any family.
    machine : Machine
        Where it is to run, a rank for each of its devices.
    nodes : sequence of int
        Numbers of nodes.
    steps : int, optional
        Number of steps of the whole run; by default that of a case with a fixed step.

    Raises
    ------
    InputError
        If the case is of a family that cannot be foretold.
    """
    count_step = _counter(case, machine)
    steps = steps or _steps(case)
    found: list[Forecast] = []
    reference: float | None = None
    for count in nodes:
        ranks = count * machine.devices_per_node
        try:
            counts = count_step(ranks)
            time = step_time(counts, machine)
        except InputError as error:
            found.append(Forecast(count, ranks, None, None, str(error)))
            continue
        cost = time.total * count
        reference = reference or cost
        hours = None if steps is None else steps * cost / 3600
        found.append(
            Forecast(count, ranks, counts, time, efficiency=reference / cost, node_hours=hours)
        )
    return found


def _counter(case: Case, machine: Machine) -> Callable[[int], StepCounts]:
    """Return what counts a step of a case on so many ranks."""
    if isinstance(case, SpectralCase):
        return lambda ranks: spectral_counts(case, machine, ranks)
    if isinstance(case, AdvectionCase):
        return lambda ranks: advection_counts(case, machine, ranks)
    if isinstance(case, LatticeCase):
        return lattice_counter(case, machine)
    raise InputError(
        f"solver: {case.solver!r} cannot be foretold; accepted: advection, lattice, spectral"
    )


def _steps(case: Case) -> int | None:
    """Return the number of steps of a case, at most, if their size is fixed."""
    step: float | None = None
    if isinstance(case, AdvectionCase):
        step = case.fixed_step
    elif isinstance(case, SpectralCase):
        step = case.time.step
    elif isinstance(case, LatticeCase):
        step = 1
    return None if step is None else math.ceil(case.time.end / step)
