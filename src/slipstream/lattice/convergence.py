"""Convergence: when a flow is steady.

It is judged by how far its permeability has to go, not by how little moves.

Towards the end the distance to the steady state shrinks by the same factor in equal times. Three
values at equal distances tell the factor, and so what remains: Aitken's estimate. A flow that moves
little because it moves slowly is thus not taken for a steady one.

What swings slowly hardly moves where it turns, and seems to be near its limit there. Values further
apart tell: the estimate is the largest of those at several distances, from that of neighbours to a
third of all that has been seen. For a decay they are all the same, so that it costs no time.
"""

from __future__ import annotations

import math

from slipstream.array_types import Comm
from slipstream.errors import RunError
from slipstream.lattice.darcy import Means, darcy_permeability, mean_flow
from slipstream.lattice.pore_flow import PoreFlow

# Mach numbers beyond which a flow is not incompressible any more, and beyond which nothing is true.
MACH_WARNING, MACH_LIMIT = 0.1, 0.3
# What people are told of a distance of which nothing can be said.
UNKNOWN = "unknown"


def distance_text(residual: float) -> str:
    """Return the estimated distance from the steady flow for people: 1 says that it is unknown."""
    return UNKNOWN if residual == 1 else f"{residual:.2g}"


class Convergence:
    """Follows a quantity, which converges within a relative `tolerance` of its limit."""

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
        """Return Aitken's estimate by the last value and two that came before it, so far apart."""
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


class Steadiness:
    """Follows the permeability of a flow. Its methods are collective.

    A `force` per volume of the sample drives the flow along an axis of the array. A `tolerance` of
    0 says that nothing is near enough. There are `interval` steps between two looks. `residual` is
    the estimated relative distance from the steady flow as of the last look; 1 as long as nothing
    can be said.
    """

    def __init__(
        self,
        flow: PoreFlow,
        axis: int,
        force: float,
        tolerance: float,
        interval: int,
        comm: Comm,
    ) -> None:
        self._flow, self._comm = flow, comm
        self._axis, self._force = axis, force
        self._interval = interval
        self._convergence = Convergence(tolerance)
        self._means: Means | None = None
        self._has_warned = False
        self._warnings: list[str] = []
        self.residual = 1.0

    @property
    def is_steady(self) -> bool:
        """Whether the flow is as near to the steady one as was asked for."""
        # Without a tolerance nothing is near enough, not even what does not change any more.
        return self._convergence.tolerance > 0 and self._convergence.converged

    @property
    def looks(self) -> list[float]:
        """The permeabilities that were looked at: all that it takes to go on looking."""
        return self._convergence.values

    def means(self) -> Means:
        """Return what is known of the flow now.

        Raises
        ------
        RunError
            If it is faster than the method holds for.
        """
        flow = self._flow
        if self._means is None or self._means.steps != flow.steps:
            velocity, mass, mach = mean_flow(flow, self._comm)
            self._judge(mach)
            column = darcy_permeability(flow.fluid.viscosity, velocity, self._force)
            permeability = float(column[self._axis])
            self._means = Means(flow.steps, velocity, mass, mach, column, permeability)
        return self._means

    def look(self) -> None:
        """Judge how steady the flow is, if it is time for it."""
        if self._flow.steps % self._interval == 0:
            self.add(self.means().permeability)

    def add(self, permeability: float) -> None:
        """Take what was seen by a look; also to go on with those of an earlier run."""
        residual = self._convergence.add(permeability)
        self.residual = residual if math.isfinite(residual) else 1.0

    def _judge(self, mach: float) -> None:
        """Refuse flows that are so fast that the method does not hold; warn of fast ones, once."""
        reached = f"the Mach number reached {mach:.3g} at step {self._flow.steps}"
        if not mach <= MACH_LIMIT:
            raise RunError(
                f"{reached}, beyond {MACH_LIMIT}: the flow is not incompressible any more; drive it"
                f" with a force at least {max(2, mach / MACH_WARNING):.2g} times smaller"
            )
        if mach > MACH_WARNING and not self._has_warned:
            self._has_warned = True
            self._warnings.append(
                f"{reached}; beyond {MACH_WARNING} compressibility makes the result inaccurate; a "
                "smaller force (of a case: flow.force or flow.pressure_drop) helps"
            )

    def warnings(self) -> list[str]:
        """Return what has to be warned of, each time something else; does not communicate."""
        warnings, self._warnings = self._warnings, []
        return warnings
