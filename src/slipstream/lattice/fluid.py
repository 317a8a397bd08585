"""The fluid and what drives it through the pores, on the lattice and in SI units.

Stokes flow is proportional to the driving force and inversely proportional to the viscosity, so one
solution, with any force on the lattice, scales to any fluid and pressure gradient. With inertia
only flows of the same Reynolds number are similar, so the force on the lattice follows from the
fluid.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from slipstream.case import LatticeCase
from slipstream.case.table import key_at
from slipstream.engine.errors import InputError, is_finite, three_numbers
from slipstream.lattice.velocity_set import D3Q19

# The relaxation time of flows that are followed in time, and of those with inertia.
USUAL_TIME = 1.0
# The relaxation time of extrapolated flows grows with the width of pores in voxels, between limits.
# The pressure is solved for, so what takes time is momentum that crosses pores: the larger the
# viscosity, the fewer steps. Beyond 1.5 little is gained, and straight ducts, where 1 is best, lose
# more.
_LEAST_TIME = 1.25
_TIME_PER_WIDTH = 1 / 8
_MOST_TIME = 1.5


class _OfFluid:
    """What follows from the fields of a `Fluid`, which are its arguments."""

    viscosity: float


@dataclass(frozen=True)
class Fluid(_OfFluid):
    """The fluid and what drives it, in lattice units: voxels, steps, and the density at rest.

    Attributes
    ----------
    relaxation_time : float
        Relaxation time of the even part of the populations; the viscosity is
        (relaxation_time - 1/2) / 3.
    magic : float
        (relaxation_time - 1/2) * (odd - 1/2), with the relaxation time of the odd part; with 3/16
        walls are half way between solid and pore (Ginzburg and d'Humieres 2003).
    force : tuple of float
        Force per volume along z, y and x.
    pressure_drop : tuple of float
        How much the pressure falls along z, y and x, in addition to the effect of the force; these
        axes are periodic otherwise.
    inertia : bool
        Navier-Stokes instead of Stokes flow.
    viscosity : float
        Kinematic viscosity, as follows.

    Raises
    ------
    InputError
        If a number is out of range.
    """

    relaxation_time: float = USUAL_TIME
    magic: float = key_at(LatticeCase, "flow.magic").default
    force: tuple[float, float, float] = (0.0, 0.0, 0.0)
    pressure_drop: tuple[float, float, float] = (0.0, 0.0, 0.0)
    inertia: bool = key_at(LatticeCase, "flow.inertia").default

    def __post_init__(self) -> None:
        if not (is_finite(self.relaxation_time) and self.relaxation_time > 0.5):
            raise InputError(
                f"relaxation_time is {self.relaxation_time!r}; accepted: a number more than 0.5, "
                "where the viscosity vanishes"
            )
        if not (is_finite(self.magic) and self.magic > 0):
            raise InputError(f"magic is {self.magic!r}; accepted: a number more than 0, as 3/16")
        if not isinstance(self.inertia, bool | np.bool_):
            raise InputError(f"inertia is {self.inertia!r}; accepted: True or False")
        # Numbers of NumPy's would make all that is computed with them as short as they are.
        object.__setattr__(self, "relaxation_time", float(self.relaxation_time))
        object.__setattr__(self, "magic", float(self.magic))
        object.__setattr__(self, "inertia", bool(self.inertia))
        for name in ("force", "pressure_drop"):
            object.__setattr__(self, name, three_numbers(name, getattr(self, name)))
        viscosity = D3Q19.sound_speed_squared * (self.relaxation_time - 0.5)
        object.__setattr__(self, "viscosity", viscosity)

    def along(
        self,
        axis: int,
        force: float | None = None,
        pressure_drop: float | None = None,
        falling: Collection[int] = (),
    ) -> Fluid:
        """Return this fluid, driven along an axis; the pressure may fall along others too."""
        force, drop = force or 0.0, pressure_drop or 0.0
        z, y, x = (force if along == axis else 0.0 for along in range(3))
        falls = {axis, *falling}
        drop_z, drop_y, drop_x = (drop if along in falls else 0.0 for along in range(3))
        return dataclasses.replace(self, force=(z, y, x), pressure_drop=(drop_z, drop_y, drop_x))

    def numbers(self, unit: float = 1.0) -> tuple[float, ...]:
        """Return the kernels' arguments for populations in a unit, a power of two.

        They are the relaxation rates, even and odd, the force along x, y and z, and the unit.
        """
        odd = 0.5 + self.magic / (self.relaxation_time - 0.5)
        force = (along / unit for along in self.force[::-1])
        return 1 / self.relaxation_time, 1 / odd, *force, unit


def with_relaxation_time(case: LatticeCase, width: float, has_room: bool = True) -> LatticeCase:
    """Return a case with a relaxation time that suits pores of a width, unless it has one.

    Without room for vectors the flow is not extrapolated.
    """
    if case.flow.relaxation_time is not None:
        return case
    time = USUAL_TIME
    is_short = case.numerics.precision == "float16"
    extrapolates = case.convergence.vectors and case.ends_early and has_room
    if extrapolates and not (case.flow.inertia or is_short):
        time = round(min(max(1 + _TIME_PER_WIDTH * width, _LEAST_TIME), _MOST_TIME), 2)
    flow = case.flow.model_copy(update={"relaxation_time": time})
    return case.model_copy(update={"flow": flow})


def fluid_of(case: LatticeCase) -> Fluid:
    """Return the fluid of a case, without a driving force."""
    flow = case.flow
    time = USUAL_TIME if flow.relaxation_time is None else flow.relaxation_time
    return Fluid(time, flow.magic, inertia=flow.inertia)


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
        assert self.density is not None  # which cases see to
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


def physical_fluid_of(case: LatticeCase) -> PhysicalFluid | None:
    """Return the fluid of a case in SI units, or None if it is not given."""
    flow = case.flow
    if flow.viscosity is None or flow.pressure_gradient is None:
        return None
    return PhysicalFluid(
        case.image.voxel_size, flow.viscosity, flow.pressure_gradient, flow.density
    )
