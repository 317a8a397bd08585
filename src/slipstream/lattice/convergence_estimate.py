"""When a flow is steady: judged by how far its permeability has to go, not by how little moves.

Towards the end the distance to the steady state shrinks by the same factor in equal times. Three
values at equal distances tell the factor, and so what remains: Aitken's estimate. A flow that moves
little because it moves slowly is thus not taken for a steady one.

What swings slowly hardly moves where it turns, and seems to be near its limit there. Values further
apart tell: the estimate is the largest of those at several distances, from that of neighbours to a
third of all that has been seen. For a decay they are all the same, so that it costs no time.
"""

from __future__ import annotations

import math


class Convergence:
    """Follows a quantity and estimates how far it is from its limit.

    Parameters
    ----------
    tolerance : float
        Relative distance at which it counts as converged.

    Attributes
    ----------
    values : list of float
        All values so far.
    """

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.values: list[float] = []
        self._calm = 0

    def add(self, value: float) -> float:
        """Take the next value; return the estimated relative distance to the limit.

        Infinite as long as nothing can be said.
        """
        self.values.append(value)
        residual = self._estimate()
        # Once could be chance, where the quantity swings.
        self._calm = self._calm + 1 if residual <= self.tolerance else 0
        return residual

    @property
    def converged(self) -> bool:
        """Whether the last two estimates are within the tolerance."""
        return self._calm >= 2

    def _estimate(self) -> float:
        lag, largest = len(self.values) // 3, 0.0
        if not lag:
            return math.inf
        while lag:
            largest = max(largest, self._distance(lag))
            lag //= 2
        return largest

    def _distance(self, lag: int) -> float:
        """Return the estimate by the last value and two that came before it, so far apart."""
        first, second, third = self.values[-1 - 2 * lag :: lag]
        change, before, scale = third - second, second - first, abs(third)
        if not math.isfinite(change):
            return math.inf
        # Changes of rounding errors tell nothing of the flow.
        if abs(change) <= 1e-13 * scale:
            return 0.0 if scale else math.inf
        if abs(change) < abs(before):
            factor = abs(change / before)
            remaining = factor / (1 - factor)
            # Neighbours are near enough to be careful: to go no less than the last change.
            return abs(change) * (max(1.0, remaining) if lag == 1 else remaining) / scale
        # To and fro, the limit lies between; what goes on at the same pace or faster has none.
        return abs(change) / scale if change * before < 0 else math.inf
