"""How the permeability of a run develops: looked at now and then, until it is steady."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.case import LatticeCase
from slipstream.lattice.convergence import Convergence
from slipstream.lattice.domain import Domain
from slipstream.lattice.flow import PoreFlow
from slipstream.lattice.fluid import Fluid
from slipstream.lattice.permeability import MACH_WARNING, check_mach, mean_flow
from slipstream.lattice.velocities import AXES

# What tells all that is needed to go on looking: three values make an estimate, two estimates a
# verdict.
KEPT_LOOKS = 4


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
    permeability : float
        Permeability along the axis.
    """

    steps: int
    velocity: np.ndarray
    mass: float
    mach: float
    permeability: float


class Steadiness:
    """Follows the permeability of a flow. Its methods are collective.

    Parameters
    ----------
    case : LatticeCase
        The settings.
    domain : Domain
        What the fluid flows through.
    flow : PoreFlow
        The flow.
    communicator : mpi4py.MPI.Comm or None
        The ranks.

    Attributes
    ----------
    residual : float
        Estimated relative distance from the steady flow, as of the last look; 1 as long as nothing
        can be said.
    looks : list of float
        The last few permeabilities that were looked at.
    """

    def __init__(
        self, case: LatticeCase, domain: Domain, flow: PoreFlow, communicator: Any
    ) -> None:
        self._flow, self._communicator = flow, communicator
        self._axis = AXES.index(case.flow.axis)
        self._force = driving_force(case, domain)
        self._tolerance = case.convergence.tolerance
        self._interval = case.convergence.interval
        self._convergence = Convergence(self._tolerance)
        self._means: Means | None = None
        self._has_warned = False
        self._warnings: list[str] = []
        self.residual, self.looks = 1.0, []

    @property
    def is_steady(self) -> bool:
        """Whether the flow is as near to the steady one as was asked for."""
        # Without a tolerance nothing is near enough, not even what does not change any more.
        return self._tolerance > 0 and self._convergence.converged

    def means(self) -> Means:
        """Return what is known of the flow now.

        Raises
        ------
        RunError
            If it is faster than the method holds for.
        """
        flow = self._flow
        if self._means is None or self._means.steps != flow.steps:
            velocity, mass, mach = mean_flow(flow, self._communicator)
            check_mach(mach, flow.steps)
            self._warn(mach)
            permeability = flow.fluid.viscosity * float(velocity[self._axis]) / self._force
            self._means = Means(flow.steps, velocity, mass, mach, permeability)
        return self._means

    def look(self) -> None:
        """Judge how steady the flow is, if it is time for it."""
        if self._flow.steps % self._interval == 0:
            self.add(self.means().permeability)

    def add(self, permeability: float) -> None:
        """Take what was seen by a look; also to go on with those of an earlier run."""
        self.looks = [*self.looks, permeability][-KEPT_LOOKS:]
        residual = self._convergence.add(permeability)
        self.residual = residual if math.isfinite(residual) else 1.0

    def _warn(self, mach: float) -> None:
        if mach > MACH_WARNING and not self._has_warned:
            self._has_warned = True
            self._warnings.append(
                f"the Mach number reached {mach:.3g} at step {self._flow.steps}; beyond "
                f"{MACH_WARNING} compressibility makes the result inaccurate; a smaller flow.force "
                "(or flow.pressure_drop) helps"
            )

    def warnings(self) -> list[str]:
        """Return what has to be warned of, each time something else; does not communicate."""
        warnings, self._warnings = self._warnings, []
        return warnings
