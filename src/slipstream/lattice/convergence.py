"""Convergence: when a flow is steady, judged by how far its permeability is from its limit.

Towards the end the distance to the steady state shrinks by the same factor in equal times. Three
equidistant values yield the factor, and so the remaining distance: Aitken's estimate. So a flow
that changes little because it changes slowly is not taken for a steady one.

A slow oscillation hardly changes at its turning points and seems to have converged there, unless it
is seen from further apart: the estimate is the largest of those at several distances, from that of
neighbours to a third of all values. They agree for a plain decay, which is therefore not delayed.
"""

from __future__ import annotations

import math

import numpy as np

from slipstream.array_types import Comm
from slipstream.errors import RunError
from slipstream.lattice.darcy import FlowSums, Means, darcy_permeability, sum_up
from slipstream.lattice.pore_flow import PoreFlow

# Mach numbers beyond which compressibility matters, and beyond which the method does not hold.
MACH_WARNING, MACH_LIMIT = 0.1, 0.3
UNKNOWN = "unknown"
# Looks at a flow that only alternates, after which that is told.
_PATIENCE = 10


def distance_text(residual: float) -> str:
    """Return the estimated distance from the steady flow as text; 1 means that it is unknown."""
    return UNKNOWN if residual == 1 else f"{residual:.2g}"


class Convergence:
    """Follows a quantity until it is within a relative `tolerance` of its limit."""

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.values: list[float] = []
        # How many estimates in a row were within the tolerance, without and with alternations.
        self._still = self._calm = 0

    def add(self, value: float, alternation: float = 0.0) -> float:
        """Add a value; return the estimated relative distance to the limit, infinite if unknown.

        Values may be those of every other step: `alternation` tells by how much, relative, they are
        away from the mean of two successive steps.
        """
        self.values.append(value)
        lag = len(self.values) // 3
        residual = 0.0 if lag else math.inf
        while lag:
            residual = max(residual, self._distance(lag))
            lag //= 2
        # One small estimate could be chance where the quantity oscillates.
        self._still = self._still + 1 if residual <= self.tolerance else 0
        residual = max(residual, alternation)
        self._calm = self._calm + 1 if residual <= self.tolerance else 0
        return residual

    @property
    def only_alternates(self) -> bool:
        """Whether nothing but the alternation has been beyond the tolerance for a while."""
        return self.tolerance > 0 and self._still >= _PATIENCE and not self._calm

    @property
    def converged(self) -> bool:
        """Whether the last two estimates are within the tolerance."""
        return self._calm >= 2

    def looks_left(self) -> float:
        """Return about how many more values it takes until it has converged; infinity if unknown.

        The distance to the limit is taken to shrink as it has between the last few values.
        """
        if self.converged:
            return 0.0
        lag = max(1, len(self.values) // 6)
        if self.tolerance <= 0 or len(self.values) < 2 * lag + 1:
            return math.inf
        first, second, third = self.values[-1 - 2 * lag :: lag]
        before, change, scale = abs(second - first), abs(third - second), abs(third)
        if not (0 < change < before and scale):
            return math.inf
        factor = change / before
        distance = change * factor / (1 - factor) / scale
        # Two estimates in a row have to be within the tolerance.
        return max(2.0, lag * math.log(distance / self.tolerance) / -math.log(factor) + 1)

    def _distance(self, lag: int) -> float:
        """Return Aitken's estimate from the last value and those one and two lags before it."""
        first, second, third = self.values[-1 - 2 * lag :: lag]
        change, before, scale = third - second, second - first, abs(third)
        if not math.isfinite(change):
            return math.inf
        # Changes by rounding errors say nothing about the flow.
        if abs(change) <= 1e-13 * scale:
            return 0.0 if scale else math.inf
        if abs(change) < abs(before):
            factor = abs(change / before)
            remaining = factor / (1 - factor)
            # Of neighbours, be careful and assume no less than the last change.
            return abs(change) * (max(1.0, remaining) if lag == 1 else remaining) / scale
        # The limit of an oscillation lies between; what goes on at this pace or faster has none.
        return abs(change) / scale if change * before < 0 else math.inf


class Steadiness:
    """Follows the permeability of a flow. Its methods are collective.

    A `force` per volume of the sample drives the flow along an axis of the array. With a tolerance
    of 0 no flow is steady. There are `interval` steps between two looks. `residual` is the
    estimated relative distance from the steady flow as of the last look, 1 while it is unknown.
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
        self._has_warned = self._has_alternated = False
        self._warnings: list[str] = []
        self.residual = 1.0

    @property
    def is_steady(self) -> bool:
        """Whether the flow is within the tolerance of the steady one."""
        # Without a tolerance no flow is, not even one that no longer changes.
        return self._convergence.tolerance > 0 and self._convergence.converged

    @property
    def looks(self) -> list[float]:
        """The permeabilities of all looks, from which a restarted run goes on."""
        return self._convergence.values

    @property
    def steps_left(self) -> float:
        """About how many steps it takes until the flow is steady; infinity if unknown."""
        return self._interval * self._convergence.looks_left()

    def means(self) -> Means:
        """Return the flow's means now; a RunError if it is too fast for the method."""
        flow = self._flow
        if self._means is None or self._means.steps != flow.steps:
            sums = sum_up(flow, self._comm)
            self._judge(sums)
            column = darcy_permeability(flow.fluid.viscosity, sums.velocity, self._force)
            along, more = sums.velocity[self._axis], sums.alternation[self._axis]
            share = float(abs(more / along)) if along else 0.0
            self._means = Means(flow.steps, sums, share, column, float(column[self._axis]))
        return self._means

    def look(self) -> None:
        """Judge how steady the flow is, if it is time to."""
        if self._flow.steps % self._interval == 0:
            means = self.means()
            self.add(means.permeability, means.alternation)
            if self._convergence.only_alternates and not self._has_alternated:
                self._has_alternated = True
                self._warnings.append(
                    f"the velocity alternates from step to step by {means.alternation:.2g} of its"
                    " mean, which hardly anything damps between walls: the permeability may not"
                    " converge; begin at rest, or with a larger tolerance"
                )

    def add(self, permeability: float, alternation: float = 0.0) -> None:
        """Add a look's permeability, which may be of an earlier run, and how it alternates."""
        residual = self._convergence.add(permeability, alternation)
        self.residual = residual if math.isfinite(residual) else 1.0

    def _judge(self, sums: FlowSums) -> None:
        """Refuse a flow that is too fast for the method; warn once of a fast one.

        Without inertia the equations are linear: no speed is too large, and a flow has blown up, or
        not.
        """
        mach = sums.mach
        reached = f"the Mach number reached {mach:.3g} at step {self._flow.steps}"
        # A largest value ignores what is no number, a sum does not.
        if not (math.isfinite(mach) and np.isfinite([*sums.velocity, sums.mass]).all()):
            raise RunError(
                f"the flow is not finite any more at step {self._flow.steps}: it has blown up; a"
                " larger relaxation_time, or a smaller force, helps"
            )
        if not self._flow.fluid.inertia:
            return
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
        """Return the warnings since the last call; does not communicate."""
        warnings, self._warnings = self._warnings, []
        return warnings
