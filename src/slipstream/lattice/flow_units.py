"""Physical units of a flow: lattice units in metres per second, pascals and newtons.

Stokes flow is proportional to the driving force and inversely proportional to the viscosity, so one
solution, with any force on the lattice, scales to any fluid and pressure gradient. With inertia
only flows of the same Reynolds number are similar, so the force on the lattice follows from the
fluid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from slipstream.argument_checks import check_positive
from slipstream.case import LatticeCase
from slipstream.errors import InputError

_ALL = "viscosity (Pa s) and pressure_gradient (Pa/m) together"


@dataclass(frozen=True)
class PhysicalFluid:
    """A fluid in SI units, and the pressure gradient that drives it through a sample.

    Attributes
    ----------
    voxel_size : float
        Edge of a voxel in metres.
    viscosity : float
        Dynamic viscosity in Pa s.
    pressure_gradient : float
        Mean force per volume of the sample, in Pa/m.
    density : float or None
        In kg/m³; only flow with inertia and Reynolds numbers depend on it.
    """

    voxel_size: float
    viscosity: float
    pressure_gradient: float
    density: float | None = None

    def force(self, viscosity: float) -> float:
        """Return the force per volume on the lattice that gives the same Reynolds number.

        `viscosity` is the lattice's kinematic viscosity.
        """
        if self.density is None:
            raise InputError("density: flow with inertia depends on it; accepted: kg/m³, as 1000")
        # Seconds per step, per square of the voxel size.
        ratio = viscosity * self.density / self.viscosity
        return self.pressure_gradient / self.density * self.voxel_size**3 * ratio**2

    def units(self, viscosity: float, force: float) -> Units:
        """Return the units of a flow on a lattice with a kinematic viscosity and a force on it."""
        gradient = self.pressure_gradient / force
        return Units(
            length=self.voxel_size,
            velocity=self.voxel_size**2 * gradient * viscosity / self.viscosity,
            pressure=self.voxel_size * gradient,
            force=self.voxel_size**3 * gradient,
            kinematic_viscosity=None if self.density is None else self.viscosity / self.density,
        )


@dataclass(frozen=True)
class Units:
    """One lattice unit in metres, m/s, Pa and N; None where that is not known."""

    length: float | None = None
    velocity: float | None = None
    pressure: float | None = None
    force: float | None = None
    kinematic_viscosity: float | None = None  # of the fluid, in m²/s

    def reynolds(self, velocity: float, permeability: float) -> float:
        """Return the Reynolds number of a velocity in m/s, by the root of a permeability.

        The permeability is in squares of voxels. NaN if the viscosity is not known.
        """
        if self.kinematic_viscosity is None or self.length is None:
            return math.nan
        return velocity * math.sqrt(max(permeability, 0.0)) * self.length / self.kinematic_viscosity


def physical_fluid(
    voxel_size: float,
    viscosity: float | None,
    pressure_gradient: float | None,
    density: float | None,
) -> PhysicalFluid | None:
    """Return a fluid in SI units, or None if none is given; refuse an incomplete one."""
    given = {"viscosity": viscosity, "pressure_gradient": pressure_gradient, "density": density}
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return None
    check_positive(**given)
    if viscosity is None or pressure_gradient is None:
        raise InputError(f"{', '.join(given)}: not enough for physical units; accepted: {_ALL}")
    if voxel_size == 1:
        raise InputError(
            f"voxel_size is 1; accepted with {', '.join(given)}: the edge of a voxel in metres"
        )
    return PhysicalFluid(
        voxel_size,
        float(viscosity),
        float(pressure_gradient),
        None if density is None else float(density),
    )


def physical_fluid_of(case: LatticeCase) -> PhysicalFluid | None:
    """Return the fluid of a case in SI units, or None if it is not given."""
    flow = case.flow
    return physical_fluid(
        case.image.voxel_size, flow.viscosity, flow.pressure_gradient, flow.density
    )
