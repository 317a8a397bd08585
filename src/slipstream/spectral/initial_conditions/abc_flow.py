"""The flow of Arnold, Beltrami and Childress."""

from __future__ import annotations

from collections.abc import Sequence


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
