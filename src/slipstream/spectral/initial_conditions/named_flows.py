"""Flows that are a formula: each text is one of x, y and z, see `formulas.formula`.

Boxes need not be cubes: where a flow would have sources in a box whose sides differ, its components
are scaled so that it has none.
"""

from __future__ import annotations

import math
from typing import Any


def taylor_green(settings: Any, waves: list[float]) -> list[str]:
    """Taylor-Green vortex (Taylor and Green, Proc. R. Soc. A 158, 499 (1937)).

    Its energy is ``amplitude^2 (1 + aspect^2) / 16``, where all axes have more than one point; the
    aspect is the length of the box along y over that along x, without which there would be sources.

    Parameters
    ----------
    settings : slipstream.case.spectral_case.Initial or slipstream.case.spectral_case.Forcing
        The case's table: amplitude and wavenumber.
    waves : list of float
        2 pi over the lengths of the box along x, y and z; so also below.
    """
    kx, ky, kz = (settings.wavenumber * wave for wave in waves)
    x, y, z = f"{kx!r}*x", f"{ky!r}*y", f"{kz!r}*z"
    u, v = settings.amplitude, -settings.amplitude * kx / ky
    return [f"{u!r}*sin({x})*cos({y})*cos({z})", f"{v!r}*cos({x})*sin({y})*cos({z})", "0"]


# By kind of magnetic field: how often its waves fit into those of the flow, what each component is
# a product of along x, y and z, and its share of the divergence, all of which add up to nothing.
_MAGNETIC = {
    "insulating": (1, ("css", "scs", "ssc"), (1, 1, -2)),
    "conducting": (2, ("scc", "csc", "ccs"), (1, 1, -2)),
    "alternative": (2, ("css", "scs", "ccc"), (1, -1, 0)),
}


def taylor_green_magnetic(settings: Any, waves: list[float]) -> list[str]:
    """Magnetic field for a Taylor-Green vortex, of the same energy and symmetries.

    Lee, Brachet, Pouquet, Mininni and Rosenberg, Phys. Rev. E 81, 016318 (2010): the walls between
    the cells of the vortex are insulating or conducting, or the field is the alternative one. All
    axes need more than one point.

    Parameters
    ----------
    settings, waves
        As of `taylor_green`; `settings.magnetic` is the kind.
    """
    multiple, products, shares = _MAGNETIC[settings.magnetic]
    names = {"s": "sin", "c": "cos"}
    phases = [
        f"{multiple * settings.wavenumber * wave!r}*{axis}"
        for axis, wave in zip("xyz", waves, strict=True)
    ]
    # Products of three sines or cosines have equal mean squares, so sums of squares are compared.
    strengths = [share / wave for share, wave in zip(shares, waves, strict=True)]
    scale = settings.amplitude * math.hypot(1, waves[0] / waves[1]) / math.hypot(*strengths)
    return [
        "*".join(
            [
                repr(scale * strength),
                *(f"{names[one]}({phase})" for one, phase in zip(product, phases, strict=True)),
            ]
        )
        for strength, product in zip(strengths, products, strict=True)
    ]


def magnetic_waves(kind: str, wavenumber: int) -> int:
    """Return the largest number of waves along an axis of a Taylor-Green magnetic field."""
    return _MAGNETIC[kind][0] * wavenumber


def abc(settings: Any, waves: list[float]) -> list[str]:
    """Arnold-Beltrami-Childress flow, ``curl u = m u``; energy amplitude^2 (A^2+B^2+C^2)/2."""
    kx, ky, kz = (settings.wavenumber * wave for wave in waves)
    x, y, z = f"{kx!r}*x", f"{ky!r}*y", f"{kz!r}*z"
    a, b, c = (settings.amplitude * value for value in settings.coefficients)
    return [
        f"{a!r}*sin({z}) + {c!r}*cos({y})",
        f"{b!r}*sin({x}) + {a!r}*cos({z})",
        f"{c!r}*sin({y}) + {b!r}*cos({x})",
    ]


def orszag_tang(settings: Any, waves: list[float]) -> tuple[list[str], list[str]]:
    """Return the vortex of Orszag and Tang, J. Fluid Mech. 90, 129 (1979), in two dimensions."""
    (kx, ky, _), a = waves, settings.amplitude
    velocity = [f"-{a!r}*sin({ky!r}*y)", f"{a!r}*sin({kx!r}*x)", "0"]
    magnetic = [f"-{a!r}*sin({ky!r}*y)", f"{a!r}*sin({2 * kx!r}*x)", "0"]
    return velocity, magnetic


# The largest numbers of waves along x, y and z of the flow below.
ORSZAG_TANG_3D_WAVES = (1, 2, 1)


def orszag_tang_3d(settings: Any, waves: list[float]) -> tuple[list[str], list[str]]:
    """Return the vortex of Orszag and Tang in three dimensions.

    Mininni, Pouquet and Montgomery, Phys. Rev. Lett. 97, 244503 (2006). Its kinetic energy is
    ``2 amplitude^2``, its magnetic energy ``1.92 amplitude^2``.
    """
    (kx, ky, kz), a = waves, 2 * settings.amplitude
    b, c = 0.8 * a, 0.4 * a
    x, y, z = f"sin({kx!r}*x)", f"sin({ky!r}*y)", f"sin({kz!r}*z)"
    velocity = [f"{-a!r}*{y}", f"{a!r}*{x}", "0"]
    magnetic = [
        f"{-b!r}*sin({2 * ky!r}*y) + {c!r}*{z}",
        f"{b!r}*{x} + {c!r}*{z}",
        f"{c!r}*{x} + {c!r}*{y}",
    ]
    return velocity, magnetic
