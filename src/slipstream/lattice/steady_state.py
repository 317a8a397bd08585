"""How the permeability of a flow develops: looked at now and then, until it is steady.

Darcy's law defines it: ``k = viscosity * q / g``, where q is the *superficial* velocity, the mean
over all voxels, solid ones included, and g the force per volume that drives the flow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.case import LatticeCase
from slipstream.collective import sum_over_ranks
from slipstream.errors import RunError
from slipstream.lattice.convergence_estimate import Convergence
from slipstream.lattice.d3q19 import AXES
from slipstream.lattice.flow_domain import Domain
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.relaxation_rates import Fluid

# Mach numbers beyond which a flow is not incompressible any more, and beyond which nothing is true.
MACH_WARNING, MACH_LIMIT = 0.1, 0.3
# What people are told of a distance of which nothing can be said.
UNKNOWN = "unknown"


def distance_text(residual: float) -> str:
    """Return the estimated distance from the steady flow for people: 1 says that it is unknown."""
    return UNKNOWN if residual == 1 else f"{residual:.2g}"


def fluid_of(case: LatticeCase) -> Fluid:
    """Return the fluid of a case, and what drives it."""
    flow = case.flow
    along = [float(name == flow.axis) for name in AXES]
    return Fluid(
        flow.relaxation_time,
        flow.magic,
        force=tuple((flow.force or 0.0) * one for one in along),
        pressure_drop=tuple((flow.pressure_drop or 0.0) * one for one in along),
        inertia=flow.inertia,
    )


def driving_force(case: LatticeCase, domain: Domain) -> float:
    """Return the force per volume of the sample that drives the flow.

    Only the sample resists: what drives the whole domain is all lost there.
    """
    if case.flow.pressure_drop is not None:
        return case.flow.pressure_drop / domain.sample.shape[AXES.index(case.flow.axis)]
    return case.flow.force / domain.sample_fraction


def mean_flow(flow: PoreFlow, comm: Any) -> tuple[np.ndarray, float, float]:
    """Return what is known of a flow as a whole, the same on all ranks. Collective.

    Returns
    -------
    numpy.ndarray
        Superficial velocity along z, y and x.
    float
        Sum of the density's deviations from one.
    float
        Largest Mach number.
    """
    sums, fastest = flow.sums()
    sums = sum_over_ranks(comm, sums)
    if comm is not None:
        from mpi4py import MPI

        fastest = comm.allreduce(fastest, MPI.MAX)
    voxels = float(np.prod(flow.portion.shape))
    return sums[:3] / voxels, float(sums[3]), fastest * 3**0.5


@dataclass(frozen=True)
class Means:
    """A flow as a whole, in lattice units.

    Attributes
    ----------
    steps : int
        When.
    velocity : numpy.ndarray
        Superficial velocity along z, y and x: the mean over all voxels.
    mass : float
        Sum of the density's deviations from that at rest.
    mach : float
        Largest Mach number.
    column : numpy.ndarray
        Permeabilities along z, y and x that a force along the axis shows.
    permeability : float
        That along the axis.
    """

    steps: int
    velocity: np.ndarray
    mass: float
    mach: float
    column: np.ndarray
    permeability: float


class Steadiness:
    """Follows the permeability of a flow. Its methods are collective.

    Parameters
    ----------
    flow : PoreFlow
        The flow.
    axis : int
        Axis of the array along which it is driven.
    force : float
        Force per volume of the sample that drives it.
    tolerance : float
        Estimated relative distance from the steady flow that is near enough; 0 if none is.
    interval : int
        Steps between two looks.
    comm : mpi4py.MPI.Comm or None
        The ranks.

    Attributes
    ----------
    residual : float
        Estimated relative distance from the steady flow, as of the last look; 1 as long as nothing
        can be said.
    """

    def __init__(
        self,
        flow: PoreFlow,
        axis: int,
        force: float,
        tolerance: float,
        interval: int,
        comm: Any,
    ) -> None:
        self._flow, self._comm = flow, comm
        self._axis, self._force = axis, force
        self._interval = interval
        self._convergence = Convergence(tolerance)
        self._means: Means | None = None
        self._has_warned = False
        self._warnings: list[str] = []
        self.residual = 1.0

    @property
    def is_steady(self) -> bool:
        """Whether the flow is as near to the steady one as was asked for."""
        # Without a tolerance nothing is near enough, not even what does not change any more.
        return self._convergence.tolerance > 0 and self._convergence.converged

    @property
    def looks(self) -> list[float]:
        """The permeabilities that were looked at: all that it takes to go on looking."""
        return self._convergence.values

    def means(self) -> Means:
        """Return what is known of the flow now.

        Raises
        ------
        RunError
            If it is faster than the method holds for.
        """
        flow = self._flow
        if self._means is None or self._means.steps != flow.steps:
            velocity, mass, mach = mean_flow(flow, self._comm)
            self._judge(mach)
            column = flow.fluid.viscosity * velocity / self._force
            permeability = float(column[self._axis])
            self._means = Means(flow.steps, velocity, mass, mach, column, permeability)
        return self._means

    def look(self) -> None:
        """Judge how steady the flow is, if it is time for it."""
        if self._flow.steps % self._interval == 0:
            self.add(self.means().permeability)

    def add(self, permeability: float) -> None:
        """Take what was seen by a look; also to go on with those of an earlier run."""
        residual = self._convergence.add(permeability)
        self.residual = residual if math.isfinite(residual) else 1.0

    def _judge(self, mach: float) -> None:
        """Refuse flows that are so fast that the method does not hold; warn of fast ones, once."""
        reached = f"the Mach number reached {mach:.3g} at step {self._flow.steps}"
        if not mach <= MACH_LIMIT:
            raise RunError(
                f"{reached}, beyond {MACH_LIMIT}: the flow is not incompressible any more; drive it"
                f" with a force at least {max(2, mach / MACH_WARNING):.2g} times smaller"
            )
        if mach > MACH_WARNING and not self._has_warned:
            self._has_warned = True
            self._warnings.append(
                f"{reached}; beyond {MACH_WARNING} compressibility makes the result inaccurate; a "
                "smaller force (of a case: flow.force or flow.pressure_drop) helps"
            )

    def warnings(self) -> list[str]:
        """Return what has to be warned of, each time something else; does not communicate."""
        warnings, self._warnings = self._warnings, []
        return warnings
