"""The magnetic vortex of Orszag and Tang, in two and in three dimensions."""

from __future__ import annotations

from collections.abc import Sequence


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
