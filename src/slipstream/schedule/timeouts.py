"""Waits for other ranks: in short polls, and with a limit."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from functools import partial

from slipstream.collective import WaitedTooLong, longer_pause
from slipstream.device import Device

# Most exchanges end within this many seconds. Until then a waiting rank does not sleep: waking up
# would take longer than the exchange.
_BRISK = 2e-4
# After this many seconds the others are late, and the core is free for other work.
_LONG = 2e-2


class Patience:
    """The waiting times and pauses of the runs of one step.

    Each run sets the `limit` in seconds, which the environment may change. The pause between polls
    is the longest of the devices in use.
    """

    def __init__(self, *devices: Device) -> None:
        # If operations run in the caller, nothing else needs the core while this thread polls.
        self._inline = all(device.inline for device in devices)
        pause = max(device.pause for device in devices)
        # Also gives the interpreter to the threads of other lanes, which a busy loop would block
        # for milliseconds. time.sleep(0) would sleep for as long as a pause.
        self._pause = partial(time.sleep, pause) if pause else os.sched_yield
        self.limit = math.inf
        self._moved = time.perf_counter()

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Poll until something is done, with nothing else to do."""
        began = time.perf_counter()
        while not done():
            waited = time.perf_counter() - began
            if waited > self.limit:
                raise WaitedTooLong(what, self.limit)
            self._sleep(waited, waited < _BRISK)

    def moved(self) -> None:
        """Note progress: more may follow soon."""
        self._moved = time.perf_counter()

    def check(self, since: float, what: str) -> None:
        """Raise `WaitedTooLong` if the wait since `since` is too long."""
        if time.perf_counter() - since > self.limit:
            raise WaitedTooLong(what, self.limit)

    def rest(self, obstacle: Callable[[], str] = str) -> None:
        """Leave the core to kernels until the next poll; raise without progress for too long.

        `obstacle` returns a description of the wait.
        """
        idle = time.perf_counter() - self._moved
        if idle > self.limit:
            raise WaitedTooLong(obstacle(), self.limit)
        self._sleep(idle, self._inline and idle < _BRISK)

    def _sleep(self, waited: float, brisk: bool) -> None:
        if brisk:
            os.sched_yield()
        elif waited < _LONG:
            self._pause()
        else:
            time.sleep(longer_pause(waited))
