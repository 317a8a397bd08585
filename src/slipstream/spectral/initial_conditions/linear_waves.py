"""Plane waves: eigenmodes of the linear terms of a model without decay.

A wave is ``a exp(i (k . x - omega t))``, where the vector a has a number for each component of the
state. It is an eigenvector of the linear part, with the eigenvalue ``-i omega``, among the states
whose solenoidal vectors have no divergence.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.errors import InputError
from slipstream.spectral.formula_checks import check_waves
from slipstream.spectral.initial_conditions.quantum_fluids import coefficients, is_quantum_fluid
from slipstream.spectral.linear_operator import LinearOperator, projector
from slipstream.spectral.spectral_problem import SpectralProblem

# Rates that differ by less than this fraction of the largest are equal; smaller rates are 0.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Wave:
    """A plane wave."""

    frequency: (
        float  # omega; a positive one travels along its wavevector, a negative one against it
    )
    mode: np.ndarray  # the vector a: complex, by component, of length 1


def waves_of(problem: SpectralProblem, wavevector: tuple[int, int, int]) -> list[Wave]:
    """Return the waves of a wavevector, from the highest frequency to the lowest (negative) one.

    The first wave of a frequency has the largest possible first component. The waves of `gpe` are
    Bogoliubov waves about psi = 1, ``omega = +-c k sqrt(1 + (k xi)^2 / 2)``; waves of other models
    are about rest.
    """
    k = physical(problem, wavevector)
    matrix, allowed = _linear_part(problem, k), _without_divergence(problem, k)
    rates, modes = np.linalg.eig(allowed.T @ matrix @ allowed)
    modes = allowed @ modes
    rounding = _ROUNDING * np.abs(rates).max(initial=0.0)
    waves, left = [], np.abs(rates.imag) > rounding
    while left.any():
        same = left & (np.abs(rates - rates[left.argmax()]) <= rounding)
        frequency = -float(rates[same].imag.mean())
        waves += [Wave(frequency, mode) for mode in _standard(modes[:, same])]
        left &= ~same
    return sorted(waves, key=lambda wave: -wave.frequency)


def wave_formulas(
    problem: SpectralProblem, wavevector: tuple[int, int, int], amplitude: float, branch: int
) -> dict[str, Callable[..., Any]]:
    """Return the formulas of a wave, by component; `branch` counts as `waves_of` does, from 0.

    The amplitude is the root mean square of all components together (for `gpe` of psi - 1): the
    energy is half its square.
    """
    if problem.model.coefficients:
        raise InputError(
            "initial.flow: 'wave' is for homogeneous models; in this one functions of x, y "
            "and z multiply fields"
        )
    text = list(wavevector)
    if not any(wavevector):
        raise InputError(f"initial.wavevector: {text} is not a wave; accepted: a nonzero one")
    check_waves(problem, wavevector, "initial.wavevector")
    if not any(problem.model.linear):
        raise InputError(
            "initial.flow: 'wave' needs a model with waves, and this one has no linear terms but "
            "decay; accepted: rotation, stratification, a mean field, gpe, or another flow"
        )
    waves = waves_of(problem, wavevector)
    if not waves:
        raise InputError(
            f"initial.wavevector: no wave of this model has {text}: every frequency is 0; accepted:"
            " another direction"
        )
    if branch >= len(waves):
        frequencies = ", ".join(f"{wave.frequency:.6g}" for wave in waves)
        raise InputError(
            f"initial.branch: {branch} is beyond the {len(waves)} waves of {text}, which have the "
            f"frequencies {frequencies}; accepted: 0 to {len(waves) - 1}"
        )
    k, strength = physical(problem, wavevector), math.sqrt(2) * amplitude
    result: dict[str, Callable[..., Any]] = {}
    for value, factor in zip(problem.model.components, waves[branch].mode, strict=True):
        rest = 1.0 if is_quantum_fluid(problem) and str(value) == "psi_real" else 0.0
        parts = strength * float(factor.real), strength * float(factor.imag)
        result[str(value)] = functools.partial(_plane_wave, k, *parts, rest)
    return result


def physical(problem: SpectralProblem, wavevector: tuple[int, int, int]) -> tuple[float, ...]:
    """Return a wavevector in radians per unit of length, along x, y and z."""
    lengths = reversed(problem.lengths)
    return tuple(2 * math.pi * n / length for n, length in zip(wavevector, lengths, strict=True))


def _plane_wave(
    k: tuple[float, ...],
    real: float,
    imaginary: float,
    rest: float,
    x: Any,
    y: Any,
    z: Any,
    module: Any,
) -> Any:
    phase = k[0] * x + k[1] * y + k[2] * z
    return rest + real * module.cos(phase) - imaginary * module.sin(phase)


def _linear_part(problem: SpectralProblem, k: tuple[float, ...]) -> np.ndarray:
    """Return the matrix that gives the rate of change of a mode."""
    if is_quantum_fluid(problem):
        # For psi = 1 + a + i b: the linear part of the product.
        (alpha, beta), square = coefficients(problem), float(np.dot(k, k))
        return np.array([[0, alpha * square], [-alpha * square - 2 * beta, 0]])
    return LinearOperator(problem).matrix(k)


def _without_divergence(problem: SpectralProblem, k: tuple[float, ...]) -> np.ndarray:
    """Return an orthonormal basis of the solenoidal states, as columns."""
    sizes, columns = np.linalg.eigh(projector(k, problem.size, problem.model.vectors))
    return columns[:, sizes > 0.5]


def _standard(modes: np.ndarray) -> list[np.ndarray]:
    """Return orthonormal modes that depend only on the space that the given columns span.

    Libraries return arbitrary modes, with arbitrary phases, for equal frequencies.
    """
    columns, sizes, _ = np.linalg.svd(modes, full_matrices=False)
    columns = columns[:, sizes > 1e-6]
    result: list[np.ndarray] = []
    for column in (columns @ columns.conj().T).T:
        own = column - sum((np.vdot(other, column) * other for other in result), 0)
        if len(result) < columns.shape[1] and np.linalg.norm(own) > 1e-6:
            result.append(own / np.linalg.norm(own))
    return result
