"""Flows in theory and literature: formulas and numbers, each with its source.

`slipstream validate` and the tests of physics compare with these. This module is independent of
solvers.
"""

from __future__ import annotations

import math

import numpy as np

# -- Taylor-Green vortex ---------------------------------------------------------------------------

TAYLOR_GREEN_ENSTROPHY = (
    "Taylor and Green (1937), Proc. R. Soc. Lond. A 158, 499: power series in time"
)


def taylor_green_enstrophy(time: float, viscosity: float) -> float:
    """Return the mean enstrophy of the vortex of unit velocity and wavenumber at a short time.

    It is 3/8 at first; the series is truncated at the sixth order in time.
    """
    t, r = time, 1 / viscosity
    growth = (
        1
        - 6 * t / r
        + (5 / 48 + 18 / r**2) * t**2
        - (5 / 3 + 36 / r**2) * t**3 / r
        + (50 / (99 * 64) + 1835 / (9 * 16 * r**2) + 54 / r**4) * t**4
        - (361 / (44 * 32) + 761 / (12 * r**2) + 324 / (5 * r**4)) * t**5 / r
    )
    return 3 / 8 * growth


TAYLOR_GREEN_PLANE = "Taylor (1923), Phil. Mag. 46, 671: exact"


def plane_taylor_green_decay(time: float, viscosity: float, wavenumber: float) -> float:
    """Return the velocity of the vortices in a plane as a fraction of the initial one."""
    return math.exp(-2 * viscosity * wavenumber**2 * time)


# -- Beltrami flow ---------------------------------------------------------------------------------

BELTRAMI = "Trkal (1919), Casopis Pest. Mat. Fys. 48, 302: exact"


def beltrami_decay(time: float, viscosity: float, wavenumber: float = 1) -> float:
    """Return the velocity of a flow parallel to its vorticity as a fraction of the initial one."""
    return math.exp(-viscosity * wavenumber**2 * time)


# -- waves -----------------------------------------------------------------------------------------

GRAVITY_WAVES = "Lighthill (1978), Waves in Fluids, sect. 4.1"


def gravity_wave_frequency(wavevector: tuple[float, ...], buoyancy_frequency: float) -> float:
    """Return the angular frequency of an internal wave in uniform stratification along z."""
    kx, ky, _ = wavevector
    return buoyancy_frequency * math.hypot(kx, ky) / math.hypot(*wavevector)


INERTIAL_WAVES = "Greenspan (1968), The Theory of Rotating Fluids, sect. 4.2"


def inertial_wave_frequency(wavevector: tuple[float, ...], rotation: float) -> float:
    """Return the angular frequency of a wave in a fluid that rotates about z."""
    return 2 * rotation * abs(wavevector[2]) / math.hypot(*wavevector)


ALFVEN_WAVES = "Alfven (1942), Nature 150, 405"


def alfven_wave_frequency(wavevector: tuple[float, ...], mean_field: float) -> float:
    """Return the angular frequency of a wave along a mean field, in units of velocity, along z."""
    return abs(wavevector[2]) * mean_field


BOGOLIUBOV_WAVES = "Bogoliubov (1947), J. Phys. USSR 11, 23"


def bogoliubov_frequency(
    wavevector: tuple[float, ...], sound_speed: float, healing_length: float
) -> float:
    """Return the angular frequency of a small wave in a quantum fluid at rest."""
    k = math.hypot(*wavevector)
    return sound_speed * k * math.sqrt(1 + (healing_length * k) ** 2 / 2)


SHEARED_WAVES = "Orr (1907), Proc. R. Irish Acad. A 27, 69; with viscosity"


def sheared_wave_growth(
    wavevector: tuple[float, ...], shear: float, viscosity: float, time: float
) -> float:
    """Return the velocity along y of a wave in a mean flow ``shear y`` along x, over the first."""
    kx, ky, kz = wavevector
    now = ky - shear * kx * time
    decay = (kx**2 + kz**2) * time + (ky**3 - now**3) / (3 * shear * kx)
    growth = (kx**2 + ky**2 + kz**2) / (kx**2 + now**2 + kz**2)
    return growth * math.exp(-viscosity * decay)


CONVECTION = "Rayleigh (1916), Phil. Mag. 32, 529"


def convection_growth(rayleigh: float, width: float) -> float:
    """Return the rate at which rolls in a layer grow, between free-slip walls at a distance of 1.

    The width is the width of two rolls; the buoyancy frequency and the Prandtl number are 1.
    """
    wave = 2 * math.pi / width
    square = wave**2 + math.pi**2
    return wave / math.sqrt(square) - square / math.sqrt(rayleigh)


# -- magnetic flow ---------------------------------------------------------------------------------

ORSZAG_TANG = (
    "Orszag and Tang (1979), J. Fluid Mech. 90, 129; numbers of an independent NumPy solver"
)
# With viscosity and resistivity 0.01 at time 1: the digits common to 128 and 256 points.
ORSZAG_TANG_AT_1 = {
    "velocity_energy": 0.42015556,
    "magnetic_energy": 0.53416812,
    "enstrophy": 1.00630389,
    "magnetic_enstrophy": 2.6287981,
}

# -- flow between walls ----------------------------------------------------------------------------

CHANNEL = "Ginzburg and d'Humieres (2003), Phys. Rev. E 68, 066614: parabola and slip of the scheme"


def channel_permeability(width: float, magic: float = 3 / 16) -> float:
    """Return the permeability between walls that are half way between solid and pore voxels.

    The parabola of Poiseuille flow plus a constant slip, from the effective displacement of the
    walls; with 3/16 there is none.
    """
    return (width**2 + 8 * magic - 1) / 12


DUCT = "White (2006), Viscous Fluid Flow, sect. 3-3: series"


def square_duct_permeability(width: float) -> float:
    """Return the permeability of a square duct, which is 0.0351443 of its section."""
    odd = np.arange(1, 200, 2)
    series = (np.tanh(odd * math.pi / 2) / odd**5).sum()
    return width**2 / 12 * (1 - 192 / math.pi**5 * float(series))


# The velocity in the middle over gradient / viscosity, in squared widths.
SQUARE_DUCT_MIDDLE = 0.0736714

# -- flow through spheres --------------------------------------------------------------------------

CUBIC_SPHERES = "Zick and Homsy (1982), J. Fluid Mech. 115, 13: table 2"
# The drag of a sphere in a simple cubic lattice over the drag of a single one, by solid fraction.
_CUBIC_DRAG = {
    0.008: 1.525,
    0.027: 2.008,
    0.064: 2.810,
    0.125: 4.292,
    0.216: 7.442,
    0.343: 15.4,
    0.45: 28.1,
    0.5236: 42.1,
}


def cubic_spheres_permeability(solid_fraction: float, edge: float) -> float:
    """Return the permeability of a simple cubic lattice of spheres with cells of this edge.

    Between the solid fractions of the table the drag is interpolated.
    """
    radius = (3 * solid_fraction / (4 * math.pi)) ** (1 / 3) * edge
    fractions, drags = np.array(list(_CUBIC_DRAG.items())).T
    drag = math.exp(np.interp(solid_fraction ** (1 / 3), fractions ** (1 / 3), np.log(drags)))
    return float(2 * radius**2 / (9 * solid_fraction * drag))


INERTIA = "Mei and Auriault (1991), J. Fluid Mech. 222, 647"
# At first inertia reduces the permeability in proportion to the square of the velocity.
INERTIAL_LOSS_EXPONENT = 2
