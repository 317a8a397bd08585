"""Checks that a grid resolves the waves that a case asks for."""

from __future__ import annotations

import numpy as np

from slipstream.errors import InputError
from slipstream.spectral.spectral_problem import SpectralProblem
from slipstream.spectral.wavenumbers import unit_wavenumbers


def check_resolution(problem: SpectralProblem, wavenumber: int, kind: str, table: str) -> None:
    """Refuse a pattern that the grid does not resolve."""
    # The Taylor-Green vortex needs x and y; any other axis may have one point, without waves.
    needed = (1, 2) if kind == "taylor-green" else ()
    for axis, m in enumerate(problem.geometry.modes):
        if wavenumber >= m.low and (m.size > 1 or axis in needed):
            raise InputError(
                f"{table}.wavenumber: {wavenumber} is beyond the {m.low - 1} waves "
                f"that grid.points = {m.size} along {'zyx'[axis]} can resolve; use more points"
            )


def check_waves(problem: SpectralProblem, wavevector: tuple[int, int, int], key: str) -> None:
    """Refuse waves that the grid does not resolve."""
    modes = reversed(problem.geometry.modes)
    for axis, waves, m in zip("xyz", wavevector, modes, strict=True):
        if abs(waves) >= m.low:
            raise InputError(
                f"{key}: needs {abs(waves)} waves along {axis}, and grid.points = {m.size} can "
                f"resolve {m.low - 1}; use more points"
            )
    physical = np.multiply(wavevector, unit_wavenumbers(problem.lengths))
    reach = np.dot(physical**2, problem.over_radii)
    if problem.dealiasing.is_spherical and reach >= 1:
        raise InputError(
            f"{key}: needs the wavevector {list(wavevector)}, which is beyond the sphere that "
            "numerics.dealiasing keeps; use more points"
        )
