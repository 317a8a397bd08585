"""Stepping a simulation until an end, with output and observers between steps.

All drivers step by this loop: runs of cases, which write output, and simulations that a user
drives from Python, which call functions of the user's.
"""

from __future__ import annotations

import math
import time as clock
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from slipstream.case import Case
from slipstream.errors import InputError, RunError
from slipstream.output.occasions import check_hits
from slipstream.simulation.simulation_base import Simulation
from slipstream.simulation.stop_requests import Interruption

# Why a loop stops, in the order of what `Interruption.requested` returns.
_REASONS = ("interrupted", "wall", "stopped", "seconds")


class Observer(Protocol):
    """What looks at a simulation between two steps. Collective."""

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
    """Where a loop ends: at a time, after so many steps, or seconds by the clock, or by itself."""

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
        What ended the loop before its time: "interrupted", "wall", "seconds", "stopped" (by an
        observer), "steps" or "finished".
    """

    def __init__(
        self, simulation: Simulation, observers: Sequence[Observer], limits: Limits
    ) -> None:
        self._simulation, self._observers, self._limits = simulation, observers, limits
        self._first_step = simulation.step
        simulation.is_to_stop = False
        # Weakly: a simulation is freed when it is closed, not when cycles are looked for.
        simulation.check_step = weakref.WeakMethod(self.check_hits)
        self._began = clock.monotonic()
        self.stepping = self.observing = 0.0
        self.stopped_by = ""
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
            # What steps still take is not the observers' time.
            began = clock.perf_counter()
            self._simulation.synchronize()
            self.stepping += clock.perf_counter() - began
        began = clock.perf_counter()
        for observer in due:
            observer.record(self.step_size)
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
            if self._limits.steps is not None and self.steps >= self._limits.steps:
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
        if step_size != math.inf:
            check_finite("the state", step_size, simulation)
        if simulation.time + step_size <= simulation.time:
            raise RunError(
                f"the time step shrank to {step_size:.3g} at step {simulation.step},"
                f" t = {simulation.time:.6g}: the flow has blown up"
            )
        if not simulation.shortens_steps or self.is_at_end():
            return step_size
        stop = self._limits.until
        if simulation.case.fixed_step is None:
            stop = min([stop, *(one.next_time(simulation.time) for one in self._observers)])
        if math.isinf(min(stop, step_size)):
            raise InputError(
                "the fluid is at rest, so the Courant number does not bound the time step; give an"
                " end time, or a largest step (max_step)"
            )
        remaining = stop - simulation.time
        # The rest may differ from a fixed step by rounding alone. It is then taken as that step, so
        # that a run has the same bits wherever it was interrupted.
        if simulation.case.fixed_step is not None:
            return step_size if remaining >= step_size * (1 - 1e-6) else remaining
        return remaining if remaining <= step_size * (1 + 1e-9) else step_size


def is_reached(end: float, time: float, case: Case) -> bool:
    """Return whether a time is that of the end of a run, or beyond it."""
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
