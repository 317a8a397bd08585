"""Darcy's law, which defines the permeability of a porous medium: ``k = viscosity * q / g``.

q is the *superficial* velocity, the mean over all voxels, solid ones included, and g the force per
volume of the sample that drives the flow. In lattice units k is in squares of voxels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.array_types import Comm
from slipstream.case import LatticeCase
from slipstream.collective import sum_over_ranks
from slipstream.lattice.flow_domain import Domain
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.velocity_set import AXES

# One darcy in square metres.
DARCY = 9.869233e-13


def darcy_permeability(viscosity: float, velocity: np.ndarray, force: float) -> np.ndarray:
    """Return a column of the permeability tensor, along z, y and x, for a force along an axis."""
    return viscosity * velocity / force


def force_on_sample(force: float, sample_fraction: float) -> float:
    """Return the force per volume of the sample, as only the sample resists the flow."""
    return force / sample_fraction


def driving_force(case: LatticeCase, domain: Domain) -> float:
    """Return the force per volume of the sample that drives a case's flow."""
    if case.flow.pressure_drop is not None:
        return case.flow.pressure_drop / domain.sample.shape[AXES.index(case.flow.axis)]
    return force_on_sample(case.flow.force or 0.0, domain.sample_fraction)


@dataclass(frozen=True)
class Means:
    """Means over a whole flow, in lattice units; vectors are along z, y and x."""

    steps: int  # done so far
    velocity: np.ndarray  # superficial
    alternation: float  # of the velocity along the axis of the flow, relative; see `mean_flow`
    mass: float  # sum of the density's deviations from that at rest
    mach: float  # largest Mach number
    column: np.ndarray  # of the permeability tensor, for a force along the axis of the flow
    permeability: float  # along that axis


def mean_flow(flow: PoreFlow, comm: Comm) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Return superficial velocity, its alternation, density and Mach number. Collective.

    The alternation is what the velocity has more in this step than on average in this one and the
    one before. The density is the sum of deviations from that at rest, the Mach number the largest.
    """
    sums, fastest = flow.sums()
    sums = sum_over_ranks(comm, sums)
    if comm is not None:
        from mpi4py import MPI

        fastest = comm.allreduce(fastest, MPI.MAX)
    voxels = float(np.prod(flow.subdomain.shape))
    velocity, mean = sums[:3] / voxels, sums[4:] / voxels
    return velocity, velocity - mean, float(sums[3]), fastest * 3**0.5
