"""When a flow is steady: judged by how far its permeability has to go, not by how little moves.

Towards the end the distance to the steady state shrinks by the same factor in equal times. Three
values at equal distances tell the factor, and so what remains: Aitken's estimate. A flow that moves
little because it moves slowly is thus not taken for a steady one.
"""

from __future__ import annotations

import math


class Convergence:
    """Follows a quantity and estimates how far it is from its limit.

    Parameters
    ----------
    tolerance : float
        Relative distance at which it counts as converged.
    """

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self._values: list[float] = []
        self._calm = 0

    def add(self, value: float) -> float:
        """Take the next value; return the estimated relative distance to the limit.

        Infinite as long as nothing can be said.
        """
        self._values = [*self._values[-2:], value]
        residual = self._estimate()
        # Once could be chance, where the quantity swings.
        self._calm = self._calm + 1 if residual <= self.tolerance else 0
        return residual

    @property
    def converged(self) -> bool:
        """Whether the last two estimates are within the tolerance."""
        return self._calm >= 2

    def _estimate(self) -> float:
        if len(self._values) < 3:
            return math.inf
        first, second, third = self._values
        change, before = abs(third - second), abs(second - first)
        scale = abs(third)
        # Changes of rounding errors tell nothing of the flow.
        if change <= 1e-13 * scale:
            return 0.0 if scale else math.inf
        if not change < before:
            return math.inf
        factor = change / before
        return change * max(1.0, factor / (1 - factor)) / scale
