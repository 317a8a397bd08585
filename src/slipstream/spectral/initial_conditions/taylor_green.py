"""The Taylor-Green vortex, and magnetic fields that go with it, as formulas of x, y and z.

Boxes need not be cubes: components are scaled so that there is no divergence in a box whose sides
differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def taylor_green(amplitude: float, wavenumber: int, waves: Sequence[float]) -> list[str]:
    """Taylor-Green vortex (Taylor and Green, Proc. R. Soc. A 158, 499 (1937)).

    Its energy is ``amplitude^2 (1 + aspect^2) / 16``, where all axes have more than one point; the
    aspect is the length of the box along y over that along x. `waves` are 2 pi over the lengths of
    the box along x, y and z, here and below.
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


def magnetic_waves(kind: str, wavenumber: int) -> int:
    """Return the largest number of waves along an axis of a Taylor-Green magnetic field."""
    return MAGNETIC_FIELDS[kind][0] * wavenumber
