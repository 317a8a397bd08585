"""Values of expressions, as output that users choose asks for them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from slipstream.accepted import REDUCTIONS
from slipstream.array_types import Array
from slipstream.simulation.point_values import PointValues, Take, check_reduction
from slipstream.spectral.evaluation import Evaluation
from slipstream.spectral.expressions import accepted_names, quantity_of

if TYPE_CHECKING:
    from slipstream.spectral.spectral_simulation import SpectralSimulation

_SUFFIXES = {
    0: ("",),
    1: ("_x", "_y", "_z"),
    2: tuple(f"_{row}{column}" for row in "xyz" for column in "xyz"),
}


class ExpressionValues(PointValues):
    """The values of an expression on the state of a simulation, at any time."""

    def __init__(self, simulation: SpectralSimulation, of: Any, where: str) -> None:
        self._simulation, self._of, self._where = simulation, of, where
        problem = simulation.problem
        self._quantity = quantity_of(of, problem, where)
        suffixes = _SUFFIXES[self._quantity.rank]
        if self._quantity.is_complex:
            suffixes = tuple(f"{one}_{part}" for part in ("real", "imag") for one in suffixes)
        self.suffixes, self.dtype = suffixes, np.dtype(problem.real_dtype)
        self.long_name = accepted_names(problem).get(str(of), self._quantity.text)

    @cached_property
    def _evaluation(self) -> Evaluation:
        return Evaluation(self._simulation.flow, self._of, self._where)

    def each_chunk(self, take: Take, components: slice) -> None:
        time = self._simulation.time
        if not self._quantity.is_complex:
            self._evaluation.each_chunk(take, time, components=components)
            return
        module = self._simulation.device.array_module

        def take_parts(values: Array, plane: int) -> None:
            take(module.concatenate([values.real, values.imag])[components], plane)

        self._evaluation.each_chunk(take_parts, time)

    def reduce(self, how: str) -> np.ndarray:
        kind = f"{self._quantity.text}, {self._quantity.kind}"
        accepted = ("mean", "rms") if self._quantity.is_complex else tuple(REDUCTIONS)
        check_reduction(how, accepted, self._where, kind)
        simulation = self._simulation
        found = self._evaluation.reduce(how, simulation.comm, simulation.time)
        parts = np.ravel(found)
        if not self._quantity.is_complex:
            return parts
        # A root mean square is real.
        return np.concatenate([parts.real, parts.imag if how == "mean" else np.zeros(parts.size)])
