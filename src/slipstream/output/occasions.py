"""When something is due between time steps: at intervals of time or of steps, or at given times."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from slipstream.errors import InputError


class Occasions(ABC):
    """Tells when something is due; time and steps never decrease."""

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
        """Return when it is due next after a time; infinity where time does not tell."""
        return math.inf

    def check_hits(self, key: str, start: float, end: float, step_size: float) -> None:
        """Refuse occasions that steps of one size, counted from `start`, do not hit."""
        return


class AtIntervals(Occasions):
    """At the start and at intervals of time from there; never if the interval is None.

    The start may be yet to come.
    """

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
    """When an output of a run is due, and when it was written last.

    Attributes
    ----------
    occasions : Occasions
        When it is due.
    last : float or None
        The time at which it was written last.
    """

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
            raise InputError(f"{key}: {what} {time:.12g} is too far for steps of {step_size:.12g}")
        if abs(count - round(count)) <= 1e-6 * max(1.0, abs(count) * 1e-3):
            continue
        offset = start if what == "interval" else 0.0
        low, high = (start + n * step_size - offset for n in (math.floor(count), math.ceil(count)))
        nearest = f"{high:.12g}" if low <= 0 else f"{low:.12g} and {high:.12g}"
        raise InputError(
            f"{key}: steps of {step_size:.12g} do not hit {what} {time - offset:.12g}; nearest:"
            f" {nearest}"
        )
