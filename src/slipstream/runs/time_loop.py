"""Stepping a simulation until an end, with output and observers between the steps."""

from __future__ import annotations

import math
import time as clock
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from slipstream.case import Case
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.processes import Interruption
from slipstream.runs.simulation_base import Simulation

# Why a loop stops, in the order of what `Interruption.requested` returns.
_REASONS = ("interrupted", "wall", "stopped", "seconds")


class Occasions(ABC):
    """The times or steps at which something is due; time and steps never decrease."""

    @abstractmethod
    def is_due(self, time: float, step: int) -> bool:
        """Return whether an occasion has been reached since the last one that was taken."""

    @abstractmethod
    def take(self, time: float, step: int) -> None:
        """Count all occasions up to now as taken."""

    def take_if_due(self, time: float, step: int = 0) -> bool:
        """Return whether an occasion has been reached, and take it."""
        is_due = self.is_due(time, step)
        if is_due:
            self.take(time, step)
        return is_due

    def resume_at(self, time: float, last: float | None, before: Occasions | None) -> None:
        """Resume at a time: earlier occasions are over, one at this time may be done.

        `last` is when something was written last, by occasions `before`; None for never, and for
        nothing of that kind.
        """
        return

    def is_occasion(self, time: float, previous: float | None) -> bool:
        """Return whether one was reached at a time, and not yet at the `previous` one, if any."""
        return True

    def after(self, time: float) -> float:
        """Return the next time at which it is due; infinity if steps decide, or none is left."""
        return math.inf

    def check_hits(self, key: str, start: float, end: float, step_size: float) -> None:
        """Refuse occasions that steps of one size, counted from `start`, do not hit."""
        return


class AtIntervals(Occasions):
    """At intervals of time from a start, which may be yet to come; never if it is None."""

    def __init__(self, interval: float | None, start: float) -> None:
        self._interval = interval
        self._start = start
        self._occasions = 0

    def is_due(self, time: float, step: int) -> bool:
        return self._interval is not None and self._passed(time, self._interval) > self._occasions

    def take(self, time: float, step: int) -> None:
        if self._interval is not None:
            self._occasions = self._passed(time, self._interval)

    def resume_at(self, time: float, last: float | None, before: Occasions | None) -> None:
        if self._interval is None:
            return
        self._occasions = passed = self._passed(time, self._interval)
        is_same = isinstance(before, AtIntervals) and before._interval == self._interval
        if last is not None and is_same:
            # The run may have ended after it wrote a state and before it wrote the other output
            # that was due. Then it has used fewer occasions than have passed.
            self._occasions = min(passed, self._passed(last, self._interval))
        elif not (last is not None and _same(last, time)):
            hit = self._start + (passed - 1) * self._interval
            is_hit = passed > 0 and abs(time - hit) <= 1e-9 * max(abs(time), self._interval)
            self._occasions = passed - is_hit

    def is_occasion(self, time: float, previous: float | None) -> bool:
        if self._interval is None:
            return False
        passed = self._passed(time, self._interval)
        return previous is None or passed > self._passed(previous, self._interval)

    def after(self, time: float) -> float:
        if self._interval is None:
            return math.inf
        return self._start + self._passed(time, self._interval) * self._interval

    def check_hits(self, key: str, start: float, end: float, step_size: float) -> None:
        if self._interval is not None:
            check_hits(key, [self._start + self._interval], self._start, step_size, "interval")
            if start > self._start:
                check_hits(key, [self.after(start)], start, step_size, "time")
            elif start < self._start:
                check_hits(key, [self._start], start, step_size, "time")

    def _passed(self, time: float, interval: float) -> int:
        # Steps that add up to an occasion may fall short of it by rounding.
        passed = math.floor((time - self._start) / interval * (1 + 1e-12) + 1e-9) + 1
        return max(passed, 0)


class EverySteps(Occasions):
    """At the start, and then after every interval of steps."""

    def __init__(self, interval: int, start: int) -> None:
        self._interval, self._next = interval, start

    def is_due(self, time: float, step: int) -> bool:
        return step >= self._next

    def take(self, time: float, step: int) -> None:
        self._next += self._interval * ((step - self._next) // self._interval + 1)


class AtTimes(Occasions):
    """At given times, each once; past ones are dropped."""

    def __init__(self, times: Iterable[float], start: float) -> None:
        self._times = [one for one in sorted(times) if one >= start or _same(one, start)]

    def is_due(self, time: float, step: int) -> bool:
        return bool(self._reached(time))

    def take(self, time: float, step: int) -> None:
        del self._times[: len(self._reached(time))]

    def resume_at(self, time: float, last: float | None, before: Occasions | None) -> None:
        self._times = [one for one in self._times if one > time or _same(one, time)]
        if last is not None:
            self.take(last, 0)

    def _reached(self, time: float) -> list[float]:
        return [one for one in self._times if one <= time or _same(one, time)]

    def after(self, time: float) -> float:
        return next((one for one in self._times if one > time and not _same(one, time)), math.inf)

    def check_hits(self, key: str, start: float, end: float, step_size: float) -> None:
        within = [one for one in self._times if one <= end]
        check_hits(key, within, start, step_size, "time")


def occasions_of(
    interval: float | None, times: Iterable[float] | None, start: float, now: float
) -> Occasions:
    """Return when output is due: at intervals from the start of the run, or at times from now on.

    Output with neither is written only at the end, or with the diagnostics.
    """
    if interval is None and times is not None:
        return AtTimes(times, now)
    return AtIntervals(interval, start)


class OutputTimes:
    """When an output of a run is due, and when it was written last."""

    def __init__(self, occasions: Occasions) -> None:
        self.occasions = occasions
        self.last: float | None = None

    def resume_at(self, time: float, times: Sequence[float], before: Occasions | None) -> bool:
        """Resume at a time after output at these times; return whether the last one is replaced.

        It is if it was written only because a segment ended there, not at one of the occasions
        `before`: those of the segment before, or None if that did not ask for this output.
        """
        self.last = times[-1] if times else None
        self.occasions.resume_at(time, self.last, before)
        if self.last is None or before is None:
            return False
        return not before.is_occasion(self.last, times[-2] if len(times) > 1 else None)


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-9 * max(abs(one), abs(other))


def check_hits(key: str, times: Sequence[float], start: float, step_size: float, what: str) -> None:
    """Refuse times that steps of one size do not hit; `what` names them in the message."""
    for time in times:
        count = (time - start) / step_size
        if math.isinf(count):
            raise InputError(
                f"{key}: {what} {time:.12g} is too far for steps of {step_size:.12g}; use a smaller"
                " number"
            )
        if abs(count - round(count)) <= 1e-6 * max(1.0, abs(count) * 1e-3):
            continue
        offset = start if what == "interval" else 0.0
        low, high = (start + n * step_size - offset for n in (math.floor(count), math.ceil(count)))
        nearest = f"{high:.12g}" if low <= 0 else f"{low:.12g} and {high:.12g}"
        raise InputError(
            f"{key}: steps of {step_size:.12g} do not hit {what} {time - offset:.12g}; nearest:"
            f" {nearest}"
        )


class Observer(Protocol):
    """An observer of a simulation between two steps. Collective."""

    def next_time(self, time: float) -> float:
        """Return the next time after this one that adaptive steps are to hit; or infinity."""

    def is_due(self) -> bool:
        """Return whether it has something to do in the present state; does not communicate."""

    def record(self, step_size: float) -> None:
        """Write the output that is due, before a time step of this size."""

    def check_hits(self, start: float, end: float, step_size: float) -> None:
        """Refuse steps of one size from `start` on that miss a time at which it is due."""


@dataclass(frozen=True)
class Limits:
    """Limits of a loop, which may also end by itself: a time, steps, or seconds by the clock."""

    until: float = math.inf
    steps: int | None = None
    seconds: float | None = None
    stops_if_finished: bool = True


class TimeLoop:
    """Steps a simulation; see `run`.

    Attributes
    ----------
    stepping, observing : float
        Seconds that steps and observers have taken so far.
    step_size : float
        The size of the next step.
    stopped_by : str
        The reason that ended the loop before its time: "interrupted", "wall", "seconds",
        "stopped" (by an observer), "steps" or "finished".
    """

    def __init__(
        self, simulation: Simulation, observers: Sequence[Observer], limits: Limits
    ) -> None:
        self._simulation, self._observers, self._limits = simulation, observers, limits
        self._first_step = simulation.step
        self._last_step = math.inf if limits.steps is None else simulation.step + limits.steps
        simulation.is_to_stop = False
        # Weakly: a simulation is freed when it is closed, not when cycles are looked for.
        simulation.check_step = weakref.WeakMethod(self.check_hits)
        self._began = clock.monotonic()
        self.stepping = self.observing = 0.0
        self.stopped_by = ""
        # The one that has ended the loop by an error, if any.
        self.failed_observer: Observer | None = None
        self.step_size = self._next_step_size()

    @property
    def steps(self) -> int:
        """Number of steps done."""
        return self._simulation.step - self._first_step

    @property
    def elapsed(self) -> float:
        """Seconds since the loop began."""
        return clock.monotonic() - self._began

    @property
    def stopped_by_request(self) -> bool:
        """Whether it is to continue another time: after a signal, or the end of ``time.wall``."""
        return self.stopped_by in ("interrupted", "wall")

    def check_hits(self, step_size: float) -> None:
        """Refuse steps of one size, from now on, that miss the end or what observers do."""
        time, until = self._simulation.time, self._limits.until
        if until < math.inf:
            check_hits("until", [until], time, step_size, "time")
        for observer in self._observers:
            observer.check_hits(time, until, step_size)

    def observe(self) -> None:
        """Call the observers that are due, and choose the step again where they have set fields."""
        due = [one for one in self._observers if one.is_due()]
        if not due:
            return
        self._simulation.complete_steps()
        if self._simulation.is_timed:
            # Time that steps still take is not the observers'.
            began = clock.perf_counter()
            self._simulation.synchronize()
            self.stepping += clock.perf_counter() - began
        began = clock.perf_counter()
        for observer in due:
            try:
                observer.record(self.step_size)
            except BaseException:
                self.failed_observer = observer
                raise
        self.observing += clock.perf_counter() - began
        # An observer may have asked for the new step already, but this loop has not.
        if self._simulation.times_set != self._times_set:
            self.step_size = self._next_step_size()

    def run(
        self,
        interruption: Interruption,
        after_step: Callable[[], None],
        is_overdue: Callable[[], bool] = lambda: False,
        when_overdue: Callable[[], None] = lambda: None,
        is_wall_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Step until the end, or a request to stop. Collective.

        After each step the observers that are due are called, and `after_step` shows the progress.
        All ranks write what one of them finds overdue, and end where one finds that time is over.
        """
        simulation = self._simulation
        while True:
            is_at_end = self.is_at_end()
            if simulation.step >= self._last_step:
                self.stopped_by = "" if is_at_end else "steps"
                break
            if simulation.finished and self._limits.stops_if_finished:
                self.stopped_by = "finished"
                break
            if is_at_end:
                break
            is_late = self._limits.seconds is not None and (
                clock.monotonic() - self._began >= self._limits.seconds
            )
            *reasons, overdue = interruption.requested(
                is_wall_over(), simulation.is_to_stop, is_late, is_overdue()
            )
            if True in reasons:
                self.stopped_by = _REASONS[reasons.index(True)]
                break
            if overdue:
                began = clock.perf_counter()
                when_overdue()
                self.observing += clock.perf_counter() - began
            began = clock.perf_counter()
            simulation.advance(self.step_size)
            self.step_size = self._next_step_size()
            self.stepping += clock.perf_counter() - began
            self.observe()
            after_step()
        began = clock.perf_counter()
        simulation.synchronize()
        # Not every step of one size has been looked at.
        if not simulation.is_finite():
            check_finite("the state", math.nan, simulation)
        self.stepping += clock.perf_counter() - began

    def is_at_end(self) -> bool:
        """Return whether the end time has been reached."""
        return is_reached(self._limits.until, self._simulation.time, self._simulation.case)

    def _next_step_size(self) -> float:
        """Return the next step: shortened to hit the end, and observers if steps adapt anyway."""
        simulation = self._simulation
        step_size, self._times_set = simulation.step_size(), simulation.times_set
        # In a fluid at rest a Courant number allows any step, so infinity is legitimate.
        if math.isnan(step_size):
            check_finite("the state", step_size, simulation)
        if simulation.time + step_size <= simulation.time:
            raise RunError(
                f"the time step shrank to {step_size:.3g} at step {simulation.step},"
                f" t = {simulation.time:.6g}: the flow has blown up; a smaller time.cfl, or more"
                " grid.points, may help"
            )
        if not simulation.shortens_steps or self.is_at_end():
            return step_size
        stop = self._limits.until
        if simulation.case.fixed_step is None:
            stop = min([stop, *(one.next_time(simulation.time) for one in self._observers)])
        if math.isinf(min(stop, step_size)):
            raise InputError(
                "the fluid is at rest, so the Courant number does not bound the time step; use an"
                " end time, or a largest step (max_step)"
            )
        remaining = stop - simulation.time
        # The rest may differ from a fixed step by rounding alone. It is then taken as that step, so
        # that a run has the same bits wherever it was interrupted.
        if simulation.case.fixed_step is not None:
            return step_size if remaining >= step_size * (1 - 1e-6) else remaining
        return remaining if remaining <= step_size * (1 + 1e-9) else step_size


def is_reached(end: float, time: float, case: Case) -> bool:
    """Return whether a time is the end of a run, or beyond it."""
    if end == math.inf:
        return False
    # Times are sums of many steps: without a tolerance rounding could ask for one more.
    tolerance = max(1e-12 * abs(end), 1e-6 * (case.fixed_step or 0.0))
    return end - time <= tolerance


def check_finite(name: str, value: float, simulation: Simulation) -> None:
    """Raise if a value, the same on all ranks, shows that the flow has blown up."""
    if not math.isfinite(value):
        raise RunError(
            f"{name} became {value} at step {simulation.step}, t = {simulation.time:.6g}: the flow"
            " has blown up; a smaller time.cfl or time.step, or more grid.points, may help"
        )
