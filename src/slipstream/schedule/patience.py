"""How steps wait for other ranks: in short polls, and not for ever."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

from slipstream.device import Device
from slipstream.errors import InputError, RunError

# Most exchanges are over within this many seconds: until then nobody waiting sleeps, lest the
# wake-up take longer than what was waited for.
_BRISK = 2e-4
# Seconds between polls while no kernel of this process wants the core.
_IDLE_PAUSE = 2e-5


def timeout() -> float:
    """Return for how many seconds a step waits for other ranks: ``$SLIPSTREAM_TIMEOUT``, or 600.

    Raises
    ------
    InputError
        If the variable is not a positive number.
    """
    text = os.environ.get("SLIPSTREAM_TIMEOUT", "600")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:  # false for not-a-number, too
        raise InputError(f"SLIPSTREAM_TIMEOUT is {text!r}; accepted: a positive number of seconds")
    return seconds


class Patience:
    """Waits during one run, which the environment limits.

    Parameters
    ----------
    device : Device
        Whose pause between polls is kept.
    """

    def __init__(self, device: Device) -> None:
        self._pause = device.pause
        self._limit = timeout()

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Poll until something is done; a poll that finds it done is the last one."""
        began = time.perf_counter()
        while not done():
            if self.check(began, what) < _BRISK:
                os.sched_yield()
            else:
                self.rest()

    def rest(self, idle: Callable[[], bool] = lambda: True) -> None:
        """Leave the core to others until the next poll, for longer unless the device is idle."""
        if self._pause:
            time.sleep(min(self._pause, _IDLE_PAUSE) if idle() else self._pause)
        else:
            # Also lets the threads of other lanes have the interpreter, which a busy loop would
            # keep from them for milliseconds. time.sleep(0) would sleep for as long as a pause.
            os.sched_yield()

    def check(self, since: float, what: str) -> float:
        """Return for how long something has been waited for; raise `RunError` if too long."""
        waited = time.perf_counter() - since
        if waited > self._limit:
            raise RunError(
                f"{what} has waited for {self._limit:g} s: a rank has died or takes another path; "
                "set SLIPSTREAM_TIMEOUT to wait longer"
            )
        return waited
