"""The linear terms of a model other than decay: their matrix at a wavevector, and its rates."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import sympy

from slipstream.equations.code_generation import wave_function
from slipstream.equations.fourier_forms import with_numbers
from slipstream.errors import InputError
from slipstream.spectral.kept_modes import Wavenumbers
from slipstream.spectral.spectral_problem import SpectralProblem


class LinearOperator:
    """The linear terms of a problem's model: waves, and growth if they have any."""

    def __init__(self, problem: SpectralProblem) -> None:
        self._problem = problem

    def matrix(self, k: tuple[float, ...]) -> np.ndarray:
        """Return the matrix that gives the rate of change of a mode, without decay."""
        return np.array(self._matrix_of(*k), complex)

    @cached_property
    def _matrix_of(self) -> Callable[..., Any]:
        problem = self._problem
        values, matrix = problem.values, sympy.zeros(problem.size, problem.size)
        for own, row in enumerate(problem.model.linear):
            for other, factor in row.items():
                matrix[own, other] = with_numbers(factor, values)
        return wave_function(matrix.as_immutable())

    @cached_property
    def wave_rate(self) -> float:
        """The largest frequency or growth rate."""
        own = max((float(np.abs(rates).max()) for rates in self._rates), default=0.0)
        # Shear changes wavevectors at its rate.
        return own + abs(self._problem.shear)

    @cached_property
    def explicit_rate(self) -> float:
        """The largest rate of linear terms that limits an explicit time step."""
        problem = self._problem
        if problem.propagates:
            return 0.0
        if problem.integrating_factor:
            return self.wave_rate
        tried = list(self._wavevectors())
        decays = problem.decay_functions
        largest = max((abs(decay(*k)) for decay in decays for k in tried), default=0.0)
        return self.wave_rate + float(largest)

    @cached_property
    def grows(self) -> bool:
        """Whether some modes grow."""
        tried = list(self._wavevectors())
        decays = self._problem.decay_functions
        negative = any(decay(*k) < 0 for decay in decays for k in tried)
        return negative or any(float(rates.real.max()) > 1e-12 for rates in self._rates)

    def _wavevectors(self) -> Iterator[tuple[float, ...]]:
        """Yield wavevectors along axes, edges and diagonals of the kept modes, and the smallest.

        Their frequencies bound those of the usual waves.
        """
        waves = Wavenumbers(self._problem.geometry, self._problem.lengths)
        tried = []
        for axis in reversed(waves.all_axes):
            largest = float(axis.max())
            tried.append(sorted({0.0, min(waves.unit, largest), largest, -largest}))
        return (k for k in itertools.product(*tried) if any(k))

    @cached_property
    def _rates(self) -> list[np.ndarray]:
        """Complex growth rates at these wavevectors."""
        problem = self._problem
        if not any(problem.model.linear):
            return []
        size, vectors = problem.size, problem.model.vectors
        if not all(np.isfinite(self.matrix(k)).all() for k in self._wavevectors()):
            raise InputError("equation: a parameter of a linear term is too large for its modes")
        return [
            np.linalg.eigvals(projector(k, size, vectors) @ self.matrix(k))
            for k in self._wavevectors()
        ]


def projector(k: tuple[float, ...], size: int, vectors: Iterable[int]) -> np.ndarray:
    """Return the matrix that projects the vectors beginning at `vectors` on solenoidal ones."""
    result = np.eye(size)
    for first in vectors:
        part = slice(first, first + 3)
        result[part, part] -= np.outer(k, k) / np.dot(k, k)
    return result
