"""Checks that formulas are finite and periodic, and that a grid resolves them.

A function is sampled along a few lines parallel to each axis, much finer than the grid. This shows
which waves the grid would alias or drop. All ranks sample the same points, and find the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import sympy

from slipstream.equations.fourier_forms import AXES, COORDINATES
from slipstream.errors import InputError
from slipstream.spectral.formula_parser import evaluator
from slipstream.spectral.kept_modes import unit_wavenumbers
from slipstream.spectral.spectral_problem import SpectralProblem

# The shares of energy lost that are refused, and that get a warning.
REFUSED, WARNED = 0.99, 1e-6
# Places in the box, as fractions of its lengths, where no symmetry applies; and a time.
_PLACES = np.modf(np.outer(np.arange(1, 9), np.sqrt([2.0, 3.0, 5.0])))[0]
A_TIME = 0.37
# Grids of more points along an axis fit into no memory, and are refused when it is checked.
_MOST_POINTS = 1 << 16


def check_periodic(expression: sympy.Expr, lengths: tuple[float, float, float], key: str) -> None:
    """Refuse a function that is not finite, or that jumps, or has a kink, where the box repeats."""
    for axis, (name, length) in enumerate(zip(AXES, reversed(lengths), strict=True)):
        along = _lines(expression, lengths, axis)
        places = length * _PLACES[:, axis, None]
        low, high, inside = along(0.0), along(length), along(places)
        if not np.isfinite([low, high, inside]).all():
            raise InputError(f"{key}: {expression} is not a finite number everywhere in the box")
        where = (
            f"along {name} in a box of length {length:.6g}; expected a function that is the same "
            "at both ends"
        )
        scale = max(np.abs(inside - low).max(), np.abs(high - low).max())
        if np.abs(along(places + length) - inside).max() <= 1e-6 * scale:
            continue  # the values continue unchanged beyond the box
        if np.abs(high - low).max() > 1e-2 * scale:
            raise InputError(f"{key}: {expression} is not periodic {where}")
        if expression.has(sympy.Abs, sympy.sign):
            continue  # kinks are intended
        near = 1e-6 * length
        first, last, others = along(near) - low, high - along(length - near), along(places + near)
        steepest = max(np.abs(slope).max() for slope in (first, last, others - inside))
        if np.abs(last - first).max() > 0.1 * steepest:
            raise InputError(f"{key}: {expression} is not periodic, since its slope jumps, {where}")


def check_resolved(expression: sympy.Expr, problem: SpectralProblem, key: str) -> list[str]:
    """Return warnings of unresolved parts of a function; refuse one that is lost entirely."""
    warnings = []
    for axis, name in enumerate(AXES):
        modes, length = problem.geometry.modes[2 - axis], problem.periods[2 - axis]
        if not expression.has(COORDINATES[axis]) or modes.size > _MOST_POINTS:
            continue
        if modes.size == 1:
            warnings.append(
                f"{key}: {expression} varies along {name}, where grid.points is 1: its values at "
                f"{name} = 0 are taken"
            )
            continue
        along, size = _lines(expression, problem.periods, axis), modes.period
        # An odd number of places, so that no wave vanishes both here and on the grid.
        count = max(4096, 16 * size) + 1
        fine, coarse = (along(length * np.arange(n) / n) for n in (count, size))
        if not (np.isfinite(fine).all() and np.isfinite(coarse).all()):
            raise InputError(f"{key}: {expression} is not a finite number everywhere in the box")
        scale = max(np.abs(fine).max(), np.abs(coarse).max()) or 1.0
        there, seen = (_modes_of_lines(values / scale) for values in (fine, coarse))
        kept = slice(modes.low)
        whole, missing = _sum_of_squares(there), _sum_of_squares(there[:, modes.low :])
        # Waves that the grid takes for others.
        aliased = _sum_of_squares(there[:, kept] - seen[:, kept])
        largest = max(whole, _sum_of_squares(seen[:, kept]))
        share = min(1.0, max(missing / (whole or 1.0), aliased / (largest or 1.0)))
        held = f"the {modes.low - 1} that grid.points = {modes.size} can resolve"
        what = f"{key}: {expression} has waves along {name} beyond {held}"
        warnings += judge_loss(share, what, "use more points")
    return warnings


def check_mirrored(
    expression: sympy.Expr, problem: SpectralProblem, component: int, key: str
) -> None:
    """Refuse a function without the parity of its component, between walls."""
    if problem.mirror is None:
        return
    axis, sign = problem.mirror.axis, problem.signs[component]
    along = _lines(expression, problem.periods, axis)
    places = problem.periods[2 - axis] * _PLACES[:, axis, None]
    here, there = along(places), along(-places)
    if np.abs(there - sign * here).max() > 1e-6 * np.abs(here).max():
        name, kind = AXES[axis], "even" if sign > 0 else "odd"
        such = "cosines" if sign > 0 else "sines"
        raise InputError(
            f"{key}: {expression} for {problem.model.components[component]}, which is {kind} across"
            f" the walls at {name} = 0 and {name} = {problem.lengths[2 - axis]:.6g}; accepted:"
            f" {such} of multiples of pi*{name}/{problem.lengths[2 - axis]:.6g}, and other {kind}"
            " functions"
        )


def _modes_of_lines(values: np.ndarray) -> np.ndarray:
    modes: np.ndarray = np.fft.rfft(values) / values.shape[1]
    modes[:, 0] = 0  # the mean
    return modes


def _sum_of_squares(modes: np.ndarray) -> float:
    return float(np.square(np.abs(modes)).sum())


def judge_loss(share: float, what: str, remedy: str) -> list[str]:
    """Return the warning of a lost share of energy, if any; refuse a loss of nearly all."""
    if share < WARNED:
        return []
    text = f"{what}: {100 * share:.3g} % of its energy is lost; {remedy}"
    if share >= REFUSED:
        raise InputError(text)
    return [text]


def _lines(
    expression: sympy.Expr, lengths: tuple[float, float, float], axis: int
) -> Callable[[Any], np.ndarray]:
    """Return a function's values on lines along an axis, (line, place), at places along it."""
    function = functools.partial(evaluator(expression), module=np, time=A_TIME)
    where = [length * _PLACES[:, n, None] for n, length in enumerate(reversed(lengths))]

    def values(places: Any) -> np.ndarray:
        own = np.broadcast_to(places, np.broadcast_shapes(np.shape(places), (len(_PLACES), 1)))
        with np.errstate(all="ignore"):
            found = function(*where[:axis], own, *where[axis + 1 :])
        return np.broadcast_to(np.asarray(found, dtype=float), own.shape)

    return values


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
    physical = np.multiply(wavevector, unit_wavenumbers(problem.periods))
    reach = np.dot(physical**2, problem.over_radii)
    if problem.dealiasing.is_spherical and reach >= 1:
        raise InputError(
            f"{key}: needs the wavevector {list(wavevector)}, which is beyond the sphere that "
            "numerics.dealiasing keeps; use more points"
        )
