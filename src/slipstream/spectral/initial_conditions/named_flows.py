"""Flows of the literature as formulas of x, y and z: Taylor-Green, ABC, Orszag-Tang.

Boxes need not be cubes: components of a Taylor-Green vortex are scaled so that it has no divergence
in a box whose sides differ. `waves` are 2 pi over the lengths of the box along x, y and z.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def taylor_green(amplitude: float, wavenumber: int, waves: Sequence[float]) -> list[str]:
    """Taylor-Green vortex (Taylor and Green, Proc. R. Soc. A 158, 499 (1937)).

    Its energy is ``amplitude^2 (1 + aspect^2) / 16``, where all axes have more than one point; the
    aspect is the length of the box along y over that along x.
    """
    kx, ky, kz = (wavenumber * wave for wave in waves)
    x, y, z = f"{kx!r}*x", f"{ky!r}*y", f"{kz!r}*z"
    u, v = amplitude, -amplitude * kx / ky
    return [f"{u!r}*sin({x})*cos({y})*cos({z})", f"{v!r}*cos({x})*sin({y})*cos({z})", "0"]


# By kind of magnetic field: its wavenumber over that of the flow; for each component the product of
# sines and cosines along x, y and z; and the contributions to the divergence, which sum to 0.
MAGNETIC_FIELDS = {
    "insulating": (1, ("css", "scs", "ssc"), (1, 1, -2)),
    "conducting": (2, ("scc", "csc", "ccs"), (1, 1, -2)),
    "alternative": (2, ("css", "scs", "ccc"), (1, -1, 0)),
}


def taylor_green_magnetic(
    amplitude: float, wavenumber: int, kind: str, waves: Sequence[float]
) -> list[str]:
    """Magnetic field for a Taylor-Green vortex, of the same energy and symmetries.

    Lee, Brachet, Pouquet, Mininni and Rosenberg, Phys. Rev. E 81, 016318 (2010): the walls between
    the cells of the vortex are insulating or conducting, or the field is the alternative one. All
    axes need more than one point.
    """
    multiple, products, shares = MAGNETIC_FIELDS[kind]
    names = {"s": "sin", "c": "cos"}
    phases = [
        f"{multiple * wavenumber * wave!r}*{axis}" for axis, wave in zip("xyz", waves, strict=True)
    ]
    # Products of three sines or cosines have equal mean squares, so sums of squares are compared.
    strengths = [share / wave for share, wave in zip(shares, waves, strict=True)]
    scale = amplitude * math.hypot(1, waves[0] / waves[1]) / math.hypot(*strengths)
    return [
        "*".join(
            [
                repr(scale * strength),
                *(f"{names[one]}({phase})" for one, phase in zip(product, phases, strict=True)),
            ]
        )
        for strength, product in zip(strengths, products, strict=True)
    ]


def abc(
    amplitude: float, wavenumber: int, coefficients: Sequence[float], waves: Sequence[float]
) -> list[str]:
    """Arnold-Beltrami-Childress flow, ``curl u = m u``; energy amplitude^2 (A^2+B^2+C^2)/2."""
    kx, ky, kz = (wavenumber * wave for wave in waves)
    x, y, z = f"{kx!r}*x", f"{ky!r}*y", f"{kz!r}*z"
    a, b, c = (amplitude * value for value in coefficients)
    return [
        f"{a!r}*sin({z}) + {c!r}*cos({y})",
        f"{b!r}*sin({x}) + {a!r}*cos({z})",
        f"{c!r}*sin({y}) + {b!r}*cos({x})",
    ]


def orszag_tang(amplitude: float, waves: Sequence[float]) -> tuple[list[str], list[str]]:
    """Return the vortex of Orszag and Tang, J. Fluid Mech. 90, 129 (1979), in two dimensions."""
    (kx, ky, _), a = waves, amplitude
    velocity = [f"-{a!r}*sin({ky!r}*y)", f"{a!r}*sin({kx!r}*x)", "0"]
    magnetic = [f"-{a!r}*sin({ky!r}*y)", f"{a!r}*sin({2 * kx!r}*x)", "0"]
    return velocity, magnetic


# The largest numbers of waves along x, y and z of the flow below.
ORSZAG_TANG_3D_WAVES = (1, 2, 1)


def orszag_tang_3d(amplitude: float, waves: Sequence[float]) -> tuple[list[str], list[str]]:
    """Return the vortex of Orszag and Tang in three dimensions.

    Mininni, Pouquet and Montgomery, Phys. Rev. Lett. 97, 244503 (2006). Its kinetic energy is
    ``2 amplitude^2``, its magnetic energy ``1.92 amplitude^2``.
    """
    (kx, ky, kz), a = waves, 2 * amplitude
    b, c = 0.8 * a, 0.4 * a
    x, y, z = f"sin({kx!r}*x)", f"sin({ky!r}*y)", f"sin({kz!r}*z)"
    velocity = [f"{-a!r}*{y}", f"{a!r}*{x}", "0"]
    magnetic = [
        f"{-b!r}*sin({2 * ky!r}*y) + {c!r}*{z}",
        f"{b!r}*{x} + {c!r}*{z}",
        f"{c!r}*{x} + {c!r}*{y}",
    ]
    return velocity, magnetic
