"""Driving a flow until it is steady."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import numpy as np

from slipstream.array_types import Comm
from slipstream.lattice.convergence import Steadiness
from slipstream.lattice.darcy import force_on_sample
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.relaxation_rates import Fluid


@dataclass(frozen=True)
class SteadyFlow:
    """The final state of a flow along one axis, in lattice units."""

    column: np.ndarray  # of the permeability tensor, along z, y and x
    velocity: float  # superficial velocity along the axis
    mach: float
    residual: float  # estimated relative distance from the steady flow
    converged: bool
    steps: int
    updates: int  # number of sites updated
    seconds: float
    history: list[tuple[int, float]]  # steps, and the permeability along the axis then


def run_to_steady(
    flow: PoreFlow,
    axis: int,
    force: float,
    sample_fraction: float,
    tolerance: float,
    max_steps: int,
    interval: int,
    comm: Comm,
) -> SteadyFlow:
    """Drive a flow along an axis until its permeability is steady. Collective.

    `sample_fraction` is the fraction of the domain's length that is sample.
    """
    fluid = flow.fluid
    z, y, x = (force if one == axis else 0.0 for one in range(3))
    drive = (z, y, x)
    flow.drive(Fluid(fluid.relaxation_time, fluid.magic, drive, inertia=fluid.inertia))
    flow.rest()
    resisted = force_on_sample(force, sample_fraction)
    steadiness = Steadiness(flow, axis, resisted, tolerance, interval, comm)
    history, began = [], time.perf_counter()
    while flow.steps < max_steps and not steadiness.is_steady:
        left = max_steps - flow.steps
        flow.advance(min(interval, left + left % 2))
        steadiness.look()
        means = steadiness.means()
        history.append((flow.steps, means.permeability))
        # On all ranks, so that all of them stop where warnings are errors.
        for text in steadiness.warnings():
            warnings.warn(text, RuntimeWarning, stacklevel=3)
    seconds = time.perf_counter() - began
    sites = flow.sites.count if comm is None else comm.allreduce(flow.sites.count)
    return SteadyFlow(
        means.column,
        float(means.velocity[axis]),
        means.mach,
        steadiness.residual,
        steadiness.is_steady,
        flow.steps,
        sites * flow.steps,
        seconds,
        history,
    )
