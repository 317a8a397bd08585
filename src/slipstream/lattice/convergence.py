"""Darcy's law, and whether the permeability it gives has converged."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.case import LatticeCase
from slipstream.engine.array_types import Array, Comm
from slipstream.engine.collective import largest, on_all_ranks, sum_over_ranks
from slipstream.engine.errors import RunError
from slipstream.engine.fields import MACH_WARNING
from slipstream.lattice.acceleration import PERIOD, Acceleration, Extrapolation
from slipstream.lattice.flow_domain import Domain
from slipstream.lattice.fluid import fluid_of, physical_fluid_of
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.runs.simulation_base import StepTimer

# One darcy in square metres.
DARCY = 9.869233e-13
# The Mach number above which the method does not hold.
MACH_LIMIT = 0.3
# The name in timers of the seconds that extrapolations take.
_EXTRAPOLATION = "extrapolation"
# How many times the distance by the present pace a quantity is taken to be away from its limit: of
# 47 tight media (porosities of 0.13 to 0.4), by five tolerances, 94 to 100 % were within; with 1,
# 29 to 40 %.
_SLOWER = 2.0
# Looks at a flow that only alternates, after which a warning says so.
_PATIENCE = 10
# Extrapolations by which those before are judged, at least: half of all, since what converges
# slowly shows late.
_JUDGED = 20
# The factor by which an error is increased.
_SAFETY = 1.5
# What the factor grows by for each decimal digit of the error beyond `_DIGITS`: slow modes take the
# longer to show, the smaller they are.
_MORE = 0.4
_DIGITS = 3
# The factor by which round-off is increased.
_SAFETY_OF_FLOOR = 2.0
# The round-off of the steps between two extrapolations, in the last digit of each number, as
# measured every 20 and every 10 steps. 0.36, in proportion to six steps, is too little: of 37
# flows in single and mixed precision with a tolerance of 1e-5, three had errors above the estimate.
_ROUNDED = 0.6
# Extrapolations that do not come nearer, after which round-off is taken to be the reason.
_STUCK = 20
# Extrapolations from which the flow may depart, before time steps continue alone.
_MOST_REJECTIONS = 4


def resisted_force(
    force: float | None, pressure_drop: float | None, axis: int, domain: Domain
) -> float:
    """Return the force per volume of the sample that drives a flow along an axis of the array.

    It exceeds the force per volume of the domain if layers of pore are added to the sample, as only
    the sample resists the flow.
    """
    if pressure_drop is not None:
        return pressure_drop / domain.sample.shape[axis]
    return (force or 0.0) / domain.sample_fraction


def drive_of(case: LatticeCase, domain: Domain) -> tuple[float | None, float | None]:
    """Return a case's force per volume and its pressure drop; one of them is None."""
    fluid = physical_fluid_of(case)
    if fluid is not None and case.flow.inertia:
        return fluid.force(fluid_of(case).viscosity) * domain.sample_fraction, None
    return case.flow.force, case.flow.pressure_drop


@dataclass(frozen=True)
class FlowSums:
    """Sums over all pores of a flow, in lattice units; vectors are along z, y and x.

    Attributes
    ----------
    velocity : numpy.ndarray
        Superficial velocity.
    alternation : numpy.ndarray
        Superficial velocity of the last step, less the average of the last two steps.
    mass : float
        Sum of deviations of the density from that at rest.
    mach : float
        Largest Mach number.
    wall_force : numpy.ndarray
        Force on the walls: the momentum that populations transferred when they bounced back in the
        last step (momentum exchange, Ladd 1994). In a steady flow it equals `driving_force`. Walls
        that a population meets across a face feel the pressure drop, as pores there do.
    driving_force : numpy.ndarray
        Force on the fluid: the momentum per step from the force per volume and the pressure drop.
    """

    velocity: np.ndarray
    alternation: np.ndarray
    mass: float
    mach: float
    wall_force: np.ndarray
    driving_force: np.ndarray


@dataclass(frozen=True)
class Means:
    """Means over a whole flow after a number of steps; vectors are along z, y and x."""

    steps: int
    sums: FlowSums
    alternation: float  # of the velocity along the axis of the flow, relative; see `FlowSums`
    column: np.ndarray  # of the permeability tensor, for a force along the axis of the flow
    permeability: float  # along that axis


def sum_up(flow: PoreFlow, comm: Comm) -> FlowSums:
    """Return the sums over all pores of a flow. Collective."""
    sums, fastest = flow.sums()
    sums = np.concatenate([sums, flow.driving_force()])
    if comm is not None:
        sums, fastest = sum_over_ranks(comm, sums), largest(comm, fastest)
    voxels = float(np.prod(flow.subdomain.shape))
    velocity, mean = sums[:3] / voxels, sums[4:7] / voxels
    # The mean counts populations that came through links. The others have bounced back: they make
    # up the part of the last step's change of momentum that the driving force does not account for.
    change = 2 * (sums[:3] - sums[4:7])
    drive = sums[7:]
    return FlowSums(
        velocity, velocity - mean, float(sums[3]), fastest * 3**0.5, drive - change, drive
    )


def at_rest(sums: FlowSums) -> FlowSums:
    """Return the sums of the same fluid when walls hold it back: they take all of the drive."""
    none = np.zeros(3)
    return FlowSums(none, none, sums.mass, 0.0, sums.driving_force, sums.driving_force)


class Convergence:
    """Follows a quantity until it is within a relative `tolerance` of its limit.

    What slows down is farther from its limit than the estimate says, which knows a single pace: so
    it is doubled, and the larger of the last two is given, as one could be small by chance.
    """

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.values: list[float] = []
        # Whether the last two estimates are within the tolerance.
        self.converged = False
        self._last = math.inf
        # How many estimates in a row were, without alternations.
        self._still = 0

    def add(self, value: float, alternation: float = 0.0) -> float:
        """Add a value; return the estimated relative distance to the limit, infinite if unknown.

        Values may be those of every other step: `alternation` tells by how much, relative, they are
        away from the mean of two successive steps.
        """
        self.values.append(value)
        lag, distance = len(self.values) // 3, 0.0
        if not lag:
            return math.inf
        while lag:
            distance = max(distance, _SLOWER * self._distance(lag))
            lag //= 2
        self._still = self._still + 1 if distance <= self.tolerance else 0
        before, self._last = self._last, max(distance, alternation)
        self.converged = bool(max(before, self._last) <= self.tolerance)
        return max(before, self._last) if math.isfinite(before) else self._last

    @property
    def only_alternates(self) -> bool:
        """Whether nothing but the alternation has been beyond the tolerance for a while."""
        return 0 < self.tolerance < self._last and self._still >= _PATIENCE

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
        looks = math.log(_SLOWER * distance / self.tolerance) / -math.log(factor)
        # Two estimates in a row have to be within the tolerance.
        return max(2.0, lag * looks + 1)

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
        # The limit of an oscillation lies between; a change that grows, or stays, has none.
        return abs(change) / scale if change * before < 0 else math.inf


class IterationError:
    """Follows how far a quantity is from its limit while a flow is extrapolated to it.

    The error is how far the extrapolation goes, and what its own residual may still hide: that
    residual times the largest change of the quantity that followed from a residual before. Each
    estimate is compared with where the quantity has gone since, and if one was too small, all that
    follow are larger by that factor. What is given is the larger of the last two. The last digit of
    each number is taken to be wrong in the worst way: this is the floor.
    """

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self._values: list[float] = []
        self._extrapolations: list[Extrapolation] = []
        # Estimates before and after the correction that earlier ones taught.
        self._raw: list[float] = []
        self._errors: list[float] = []
        # The largest change of the quantity by a residual, so far.
        self._reach = 0.0
        # The least relative error, whatever the residual, and the share of it in the last estimate.
        self._floor, self._floor_share = 0.0, 0.0
        # Whether the last two estimates are within the tolerance.
        self.converged = False
        # Whether round-off keeps the quantity from coming nearer.
        self.is_stuck = False

    def add(self, value: float, extrapolation: Extrapolation) -> float:
        """Add a value; return the estimated relative distance to the limit, infinite if unknown."""
        judged = max(_JUDGED, len(self._values) // 2)
        before = list(zip(self._values, self._extrapolations, self._raw, strict=True))[-judged:]
        self._values.append(value)
        self._extrapolations.append(extrapolation)
        raw, factor = math.inf, 1.0
        if before and value:
            limits = value, extrapolation.value
            reach = max(
                abs(limit - other) / earlier.norm if earlier.norm else 0.0
                for other, earlier, _ in before
                for limit in limits
            )
            self._reach = max(self._reach, reach)
            floor = _ROUNDED * (
                self._reach * extrapolation.round_off + extrapolation.digit * abs(value)
            )
            raw = abs(extrapolation.value - value) + reach * extrapolation.expected_norm + floor
            known = [(other, error) for other, _, error in before if 0 < error < math.inf]
            factor = max(
                [1.0, *(abs(extrapolation.value - other) / error for other, error in known)]
            )
            self._floor, self._floor_share = _SAFETY_OF_FLOOR * floor / abs(value), floor / raw
        self._raw.append(raw)
        error = factor * raw / abs(value) if value else math.inf
        if 0 < error < math.inf:
            safety = _SAFETY + _MORE * max(0.0, -math.log10(error) - _DIGITS)
            error *= safety + (_SAFETY_OF_FLOOR - safety) * self._floor_share
        errors = self._errors
        errors.append(error)
        latest = max(errors[-2:]) if len(errors) > 1 else math.inf
        self.converged = len(errors) > 1 and latest <= self.tolerance
        may_be_stuck = len(errors) > 2 * _STUCK and not extrapolation.norm > extrapolation.round_off
        self.is_stuck = may_be_stuck and min(errors[-_STUCK:]) > min(errors[:-_STUCK]) / 2
        return latest

    @property
    def is_beyond_reach(self) -> bool:
        """Whether round-off alone, which most of the estimate is, exceeds the tolerance."""
        is_most = len(self._errors) > _STUCK // 2 and self._floor_share > 0.5
        return is_most and self._floor > self.tolerance

    def looks_left(self) -> float:
        """Return the number of values until it has converged; infinity if unknown."""
        if self.converged:
            return 0.0
        errors = [one for one in self._errors[-_JUDGED:] if math.isfinite(one)]
        if len(errors) < 4 or self.tolerance <= 0:
            return math.inf
        half = len(errors) // 2
        fall = math.log(min(errors[:half]) / min(errors[half:])) / half
        return max(2.0, math.log(errors[-1] / self.tolerance) / fall) if fall > 0 else math.inf


class Steadiness:
    """Takes a flow to its steady state and follows its permeability. Its methods are collective.

    A `force` per volume of the sample drives the flow along an axis of the array. With a tolerance
    of 0 no flow is steady. There are `interval` steps between two looks. With `vectors` the flow is
    extrapolated every `PERIOD` steps, and looked at before. `residual` is the estimated relative
    distance from the steady flow as of the last look, 1 while it is unknown; `history` has the
    steps and permeabilities of all looks. A `timer` gets what extrapolations and looks take. Along
    `closed` axes a steady flow carries nothing: one that is driven along such an axis `is_blocked`,
    and steady immediately.
    """

    def __init__(
        self,
        flow: PoreFlow,
        axis: int,
        force: float,
        tolerance: float,
        interval: int,
        comm: Comm,
        vectors: int = 0,
        timer: StepTimer | None = None,
        closed: Sequence[int] = (),
    ) -> None:
        self.is_blocked, self._closed = axis in closed, list(closed)
        self._flow, self._comm = flow, comm
        self._timer = timer or StepTimer()
        # Without a tolerance the flow is to be followed in time, as it is.
        self._vectors = vectors if tolerance > 0 else 0
        self._acceleration: Acceleration | None = None
        self._error = IterationError(tolerance)
        self.history: list[tuple[int, float]] = []
        self.axis, self._force = axis, force
        self._interval = interval
        self._convergence = Convergence(tolerance)
        self._means: Means | None = None
        self._has_warned = self._has_alternated = False
        self._warnings: list[str] = []
        self._is_due = False
        self.residual = 0.0 if self.is_blocked else 1.0

    @property
    def is_steady(self) -> bool:
        """Whether the flow is within the tolerance of the steady one."""
        if self.is_blocked:
            return True
        # Without a tolerance no flow is, not even one that no longer changes.
        judge = self._error if self._vectors else self._convergence
        return judge.tolerance > 0 and judge.converged

    @property
    def is_stuck(self) -> bool:
        """Whether round-off keeps the flow from coming nearer to the steady one."""
        if self._flow.storage.has_unit and self._error.is_beyond_reach:
            return True
        return self._vectors > 0 and self._error.is_stuck

    def begin_from(self, numbers: Array) -> None:
        """Begin from density and momentum of all sites, less those of a fluid at rest."""
        self._acceleration = Acceleration(self._flow, self._vectors, self._comm)
        self._acceleration.add(numbers)

    def kept(self) -> dict[str, Any]:
        """Return the state of the search for a steady flow, on the host."""
        return {
            "looks": list(self.looks),
            "history": list(self.history),
            "residual": self.residual,
            "error": copy.deepcopy(self._error),
            "is_due": self._is_due,
            "acceleration": None if self._acceleration is None else self._acceleration.kept(),
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Continue from what another one has kept, whose flow this one's has been set to."""
        for permeability in kept["looks"]:
            self.add(permeability)
        self.history = list(kept["history"])
        self.residual = kept["residual"]
        self._error = copy.deepcopy(kept["error"])
        self._is_due = kept["is_due"]
        if kept["acceleration"] is not None:
            self._acceleration = Acceleration(self._flow, self._vectors, self._comm)
            self._acceleration.restore(kept["acceleration"])

    @property
    def looks(self) -> list[float]:
        """The permeabilities of all looks, from which a restarted run continues."""
        return self._convergence.values

    @property
    def steps_left(self) -> float:
        """About how many steps it takes until the flow is steady; infinity if unknown."""
        if self._vectors:
            return PERIOD * self._error.looks_left()
        return self._interval * self._convergence.looks_left()

    def means(self) -> Means:
        """Return the flow's means now; a RunError if it is too fast for the method."""
        flow = self._flow
        if self._means is None or self._means.steps != flow.steps:
            flow.synchronize()  # whose steps are not the time of these sums
            with self._timer.measured("permeability"):
                sums = sum_up(flow, self._comm)
            if self.is_blocked and not flow.steps:
                sums = at_rest(sums)
            self._judge(sums)
            column = flow.fluid.viscosity * sums.velocity / self._force
            column[self._closed] = 0.0
            along, more = sums.velocity[self.axis], sums.alternation[self.axis]
            share = float(abs(more / along)) if along else 0.0
            self._means = Means(flow.steps, sums, share, column, float(column[self.axis]))
        return self._means

    def advance(self, profile: bool = False) -> None:
        """Do a pair of steps, extrapolate the flow before them if it is time to, and look at it."""
        flow, accelerates = self._flow, self._vectors > 0
        if accelerates and self._acceleration is None:
            with self._timer.measured(_EXTRAPOLATION):
                self._acceleration = Acceleration(flow, self._vectors, self._comm)
        elif self._acceleration is not None and self._is_due:
            with self._timer.measured(_EXTRAPOLATION):
                self._acceleration.go_on()
        flow.advance(2, profile)
        self._is_due = accelerates and flow.steps % PERIOD == 0
        if self._acceleration is not None and self._is_due:
            value = self.means().permeability
            with self._timer.measured(_EXTRAPOLATION):
                found = self._acceleration.measure(value)
            if found is not None:
                residual = self._error.add(value, found)
                self.residual = residual if math.isfinite(residual) else 1.0
            # Without inertia there always is a steady state.
            if flow.fluid.inertia and self._acceleration.rejections > _MOST_REJECTIONS:
                self._give_up()
        self.look()

    def _give_up(self) -> None:
        """Continue by time steps alone, as a flow does that has no steady state."""
        if self._flow.storage.has_unit:
            raise on_all_ranks(
                RunError(
                    f"the flow had no steady state near that could be extrapolated at step"
                    f" {self._flow.steps}, by which the error of float16 is measured; accepted:"
                    " another precision, or a tolerance of 0"
                )
            )
        self._vectors, self._acceleration, self._is_due = 0, None, False
        self._convergence = Convergence(self._convergence.tolerance)
        self.residual = 1.0
        self._warnings.append(
            f"the flow had no steady state near that could be extrapolated at step"
            f" {self._flow.steps}; time steps alone continue"
        )

    def look(self) -> None:
        """Judge how steady the flow is, if it is time to."""
        is_time = self._flow.steps % self._interval == 0
        if is_time or self._is_due:
            self.history.append((self._flow.steps, self.means().permeability))
        if is_time:
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
        if not self._vectors:
            self.residual = residual if math.isfinite(residual) else 1.0

    def _judge(self, sums: FlowSums) -> None:
        """Refuse a flow that is too fast for the method; warn once of a fast one.

        Without inertia the equations are linear: no speed is too large, and a flow has blown up, or
        not.
        """
        mach = sums.mach
        reached = f"the Mach number reached {mach:.3g} at step {self._flow.steps}"
        # A maximum ignores not-a-number, a sum does not.
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
