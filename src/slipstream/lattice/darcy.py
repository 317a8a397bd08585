"""Darcy's law, which defines the permeability of a porous medium: ``k = viscosity * q / g``.

q is the *superficial* velocity, the mean over all voxels, solid ones included, and g the force per
volume of the sample that drives the flow. In lattice units k is in squares of voxels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.array_types import Comm
from slipstream.case import LatticeCase
from slipstream.collective import largest, sum_over_ranks
from slipstream.lattice.flow_domain import Domain
from slipstream.lattice.fluid import fluid_of, physical_fluid_of
from slipstream.lattice.pore_flow import PoreFlow

# One darcy in square metres.
DARCY = 9.869233e-13


def darcy_permeability(viscosity: float, velocity: np.ndarray, force: float) -> np.ndarray:
    """Return a column of the permeability tensor, along z, y and x, for a force along an axis."""
    return viscosity * velocity / force


def resisted_force(
    force: float | None, pressure_drop: float | None, axis: int, domain: Domain
) -> float:
    """Return the force per volume of the sample that drives a flow along an axis of the array.

    It exceeds the force per volume of the domain if layers of pore are added to the sample, as only
    the sample resists the flow.
    """
    if pressure_drop is not None:
        return pressure_drop / domain.sample.shape[axis]
    return (force or 0.0) / domain.sample_fraction


def drive_of(case: LatticeCase, domain: Domain) -> tuple[float | None, float | None]:
    """Return a case's force per volume and its pressure drop; one of them is None."""
    fluid = physical_fluid_of(case)
    if fluid is not None and case.flow.inertia:
        return fluid.force(fluid_of(case).viscosity) * domain.sample_fraction, None
    return case.flow.force, case.flow.pressure_drop


@dataclass(frozen=True)
class FlowSums:
    """Sums over all pores of a flow, in lattice units; vectors are along z, y and x.

    Attributes
    ----------
    velocity : numpy.ndarray
        Superficial velocity.
    alternation : numpy.ndarray
        Superficial velocity of the last step, less the average of that step and the one before.
    mass : float
        Sum of deviations of the density from that at rest.
    mach : float
        Largest Mach number.
    wall_force : numpy.ndarray
        Force on the walls: the momentum that populations transferred when they bounced back in the
        last step (momentum exchange, Ladd 1994). In a steady flow it equals `driving_force`. Walls
        that a population meets across a face feel the pressure drop, as pores there do.
    driving_force : numpy.ndarray
        Force on the fluid: the momentum per step from the force per volume and the pressure drop.
    """

    velocity: np.ndarray
    alternation: np.ndarray
    mass: float
    mach: float
    wall_force: np.ndarray
    driving_force: np.ndarray


@dataclass(frozen=True)
class Means:
    """Means over a whole flow after a number of steps; vectors are along z, y and x."""

    steps: int
    sums: FlowSums
    alternation: float  # of the velocity along the axis of the flow, relative; see `FlowSums`
    column: np.ndarray  # of the permeability tensor, for a force along the axis of the flow
    permeability: float  # along that axis


def sum_up(flow: PoreFlow, comm: Comm) -> FlowSums:
    """Return the sums over all pores of a flow. Collective."""
    sums, fastest = flow.sums()
    sums = sum_over_ranks(comm, np.concatenate([sums, flow.driving_force()]))
    fastest = largest(comm, fastest)
    voxels = float(np.prod(flow.subdomain.shape))
    velocity, mean = sums[:3] / voxels, sums[4:7] / voxels
    # The mean counts populations that came through links. The others have bounced back: they make
    # up the part of the last step's change of momentum that the driving force does not account for.
    change = 2 * (sums[:3] - sums[4:7])
    drive = sums[7:]
    return FlowSums(
        velocity, velocity - mean, float(sums[3]), fastest * 3**0.5, drive - change, drive
    )


def at_rest(sums: FlowSums) -> FlowSums:
    """Return the sums of the same fluid when walls hold it back: they take all of the drive."""
    none = np.zeros(3)
    return FlowSums(none, none, sums.mass, 0.0, sums.driving_force, sums.driving_force)
