"""How large a time step may be: the Courant number, and the linear terms that a step integrates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import sympy

from slipstream.case.spectral_case import SpectralTime
from slipstream.engine.array_types import Array
from slipstream.engine.device import Operation
from slipstream.engine.errors import InputError
from slipstream.engine.fft.slab_engine import record_through
from slipstream.engine.schedule import StepGraph
from slipstream.equations.code_generation import wave_function
from slipstream.equations.fourier_forms import with_numbers
from slipstream.spectral.kept_modes import Wavenumbers
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import SpectralProblem

# Up to this size a GPU's results are read as a whole: a maximum on the GPU would take longer.
_BYTES_TO_READ = 1 << 16
# The highest threshold of the Courant number above which a fixed step gets a warning.
LARGEST = 1.0
# The largest frequency times the step at which waves do not grow, by the number of substages. For
# linear terms all methods here have the order of that number: the factor of a step is the series of
# exp(i y) up to that order, whose magnitude exceeds 1 for any y with two substages.
_LARGEST_PHASES = {2: 0.0, 3: math.sqrt(3), 4: math.sqrt(8)}


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
        """Yield wavevectors along axes, edges and diagonals of the kept modes, and the smallest."""
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


def check_step(time: SpectralTime, problem: SpectralProblem, linear: LinearOperator) -> None:
    """Refuse an adaptive step without any bound."""
    has_rate = linear.explicit_rate > 0  # which is refused if it is not finite
    bounded = problem.model.speeds or has_rate
    if time.step is None and time.max_step is None and (problem.forced or not bounded):
        why = "a forced flow may start at rest" if bounded else "the model has no speed"
        raise InputError(f"time.max_step: needed with time.cfl, since {why}")


def stable_courant(problem: SpectralProblem) -> float:
    """Return the Courant number up to which undamped advected waves do not grow.

    It is 0 for methods of two substages, with which such waves grow slowly for any step.
    """
    geometry = problem.geometry
    phases = [
        2 * math.pi * float(np.abs(modes.wavenumbers()).max(initial=0.0)) / modes.period
        for modes in geometry.modes
    ]
    largest = max(phases)
    return _LARGEST_PHASES[problem.method.substages] / largest if largest > 0 else math.inf


def warned_courant(problem: SpectralProblem) -> float:
    """Return the Courant number above which a fixed step gets a warning."""
    return min(LARGEST, stable_courant(problem) or LARGEST)


def too_large(courant: float, most: float, time: SpectralTime, now: float) -> list[str]:
    """Return the warning of a fixed step whose Courant number exceeds `most`; None below it."""
    if not (time.step is not None and courant > most):
        return []
    return [
        f"time.step: {time.step:g} has a Courant number above {most:.3g}, where a flow may blow up"
        f" or lose its waves; use a smaller step, or time.cfl instead: {courant:.3g} at"
        f" t = {now:.4g}"
    ]


def courant_rate(flow: SpectralStep) -> float:
    """Return max(|u|/dx + |v|/dy + |w|/dz) at the start of the last step, over this rank's points.

    The result is not-a-number if a velocity, or a mode of this rank since then, is not finite.
    """
    maxima: list[int] = []

    def largest(bits: Array) -> Operation:
        return lambda stream: maxima.append(int(bits.max()))

    for tables in flow.tables_on.values():
        device, bits = tables.device, tables.found
        if bits.nbytes <= _BYTES_TO_READ:
            maxima.append(int(device.to_host(bits).max()))
            continue
        device.synchronize()
        device.run(largest(bits))
        device.synchronize()
    return float(np.int64(max(maxima)).view(np.float64))


def record_courant(flow: SpectralStep) -> StepGraph:
    """Return the graph that measures the velocity, as the first substage of a step does."""
    graph, model = flow.new_graph(), flow.problem.model
    flow.is_ahead = False
    flow.record_inputs(graph, flow.passes)
    counts = len(model.inputs), len(model.products)
    record_through(graph, flow.passes, flow.product_on(True), *counts)
    return graph
