"""User functions that are called between time steps."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from slipstream.argument_checks import is_finite, plain_value, whole_number
from slipstream.errors import InputError
from slipstream.known_attributes import KnownAttributes
from slipstream.output.occasions import EverySteps, Occasions, occasions_of


def checked_occasions(interval: Any, steps: Any, times: Any, time: float, step: int) -> Occasions:
    """Return when a function is to be called, from the arguments of `every`."""
    if callable(interval):
        raise InputError(
            "every: the first argument is the interval of time between calls; give the function"
            " after it, or as call="
        )
    given = [one for one in (interval, steps, times) if one is not None]
    if len(given) != 1:
        raise InputError(
            "every: exactly one of interval (of time), steps and times is needed,"
            f" {len(given) or 'none'} given"
        )
    if steps is not None:
        return EverySteps(whole_number("steps", steps, 1), step)
    if times is not None:
        wanted = np.asarray(plain_value(times), dtype=object).ravel().tolist()
        if not all(map(is_finite, wanted)):
            raise InputError(f"times are {times!r}; accepted: finite numbers")
        times = list(map(float, wanted))
    else:
        wished = plain_value(interval)
        if not (is_finite(wished) and wished > 0):
            raise InputError(f"every: interval is {interval!r}; accepted: a positive number")
        interval = float(wished)
    return occasions_of(interval, times, start=time, now=time)


class Callback(KnownAttributes):
    """A function that a simulation calls when it is due, until it is cancelled."""

    occasions: Occasions

    def __init__(
        self, simulation: Any, function: Callable[[Any], object], occasions: Occasions
    ) -> None:
        # The simulation owns its callbacks: a strong reference back would keep it alive.
        self._simulation = weakref.ref(simulation)
        self._function, self.occasions = function, occasions
        self._is_cancelled = False

    def __repr__(self) -> str:
        name = getattr(self._function, "__name__", type(self._function).__name__)
        return f"<callback {name}{', cancelled' if self.is_cancelled else ''}>"

    @property
    def is_cancelled(self) -> bool:
        """Whether the function is not called any more."""
        return self._is_cancelled

    def cancel(self) -> None:
        """Stop calling the function."""
        self._is_cancelled = True

    def next_time(self, time: float) -> float:
        """Return the next time at which the function is to be called, or infinity."""
        return np.inf if self.is_cancelled else self.occasions.after(time)

    def is_due(self) -> bool:
        """Return whether the function is to be called now."""
        simulation = self._simulation()
        if simulation is None or self.is_cancelled:
            return False
        return self.occasions.is_due(simulation.solver.time, simulation.solver.step)

    def check_hits(self, start: float, end: float, step_size: float) -> None:
        """Refuse steps of one size that miss the times at which the function is to be called."""
        if not self.is_cancelled:
            self.occasions.check_hits("every", start, end, step_size)

    def record(self, step_size: float) -> None:
        """Call the function."""
        simulation = self._simulation()
        if simulation is not None:
            self.occasions.take(simulation.solver.time, simulation.solver.step)
            self._function(simulation)
