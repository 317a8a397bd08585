"""The dipole of Lamb and Chaplygin, which moves through a plane and keeps its shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from slipstream.errors import InputError
from slipstream.spectral.spectral_problem import SpectralProblem

# The first zero of Bessel's function J1, and J0 there.
_ZERO, _J0 = 3.831705970207512, -0.402759395702553
# The number of points of the integral for J1, exact to round-off up to its first zero.
_POINTS = 32


def lamb_dipole(
    problem: SpectralProblem, speed: float, radius: float | None
) -> dict[str, Callable[..., Any]]:
    """Return the vorticity of a dipole in the middle of the box that moves along x.

    Within the radius it is -2 U k J1(k r) sin(theta) / J0(k R), k R = 3.8317; outside it is 0
    (Meleshko and van Heijst, J. Fluid Mech. 272, 157 (1994)). The speed is that in an unbounded
    plane; the images in a periodic square of side L reduce it by the fraction pi (R / L)^2.
    """
    _, length_y, length_x = problem.lengths
    shorter = min(length_x, length_y)
    size = shorter / 8 if radius is None else radius
    if size > shorter / 2:
        raise InputError(f"initial.radius: {size:g}; accepted: at most {shorter / 2:g}, to fit in")
    k, strength = _ZERO / size, -2 * speed * _ZERO / size / _J0

    def vorticity(x: Any, y: Any, z: Any, module: Any) -> Any:
        x, y = x - length_x / 2, y - length_y / 2
        r = module.sqrt(x * x + y * y)
        inside = module.minimum(k * r, _ZERO)
        angles = [2 * math.pi * n / _POINTS for n in range(_POINTS)]
        bessel = sum(module.cos(one - inside * math.sin(one)) for one in angles) / _POINTS
        # Where r is 0 so is J1.
        sine = y / module.maximum(r, 1e-300)
        return strength * module.where(r < size, bessel, 0.0) * sine + 0 * z

    return {"vorticity": vorticity}
