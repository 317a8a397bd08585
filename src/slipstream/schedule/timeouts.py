"""How steps wait for other ranks: in short polls, and not for ever."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

from slipstream.collective.time_limit import WaitedTooLong, timeout
from slipstream.device import Device

# Most exchanges are over within this many seconds. Until then a rank that waits does not sleep:
# waking up would take longer than the exchange.
_BRISK = 2e-4


class Patience:
    """How long, and how, the runs of one step wait.

    Of the devices whose operations run, the longest pause between polls is kept.
    """

    def __init__(self, *devices: Device) -> None:
        # Where operations run at once, nobody else wants the core while this thread polls.
        self._inline = all(device.inline for device in devices)
        self._pause = max(device.pause for device in devices)
        self._limit = math.inf
        self._moved = time.perf_counter()

    def begin(self) -> None:
        """Begin a run: the environment limits its waits."""
        self._limit = timeout()
        self._moved = time.perf_counter()

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Poll until something is done, with nothing else to do."""
        began = time.perf_counter()
        while not done():
            waited = time.perf_counter() - began
            if waited > self._limit:
                raise WaitedTooLong(what, self._limit)
            self._leave_core(brisk=waited < _BRISK)

    def moved(self) -> None:
        """Note that something was done: more may be soon."""
        self._moved = time.perf_counter()

    def check(self, since: float, what: str) -> None:
        """Raise `WaitedTooLong` if something has been waited for too long."""
        if time.perf_counter() - since > self._limit:
            raise WaitedTooLong(what, self._limit)

    def rest(self, obstacle: Callable[[], str] = str) -> None:
        """Leave the core to kernels until the next poll, unless nothing was done for too long.

        `obstacle` says who waits.
        """
        idle = time.perf_counter() - self._moved
        if idle > self._limit:
            raise WaitedTooLong(obstacle(), self._limit)
        self._leave_core(brisk=self._inline and idle < _BRISK)

    def _leave_core(self, brisk: bool) -> None:
        if brisk or not self._pause:
            # Also lets the threads of other lanes have the interpreter, which a busy loop would
            # keep from them for milliseconds. time.sleep(0) would sleep for as long as a pause.
            os.sched_yield()
        else:
            time.sleep(self._pause)
