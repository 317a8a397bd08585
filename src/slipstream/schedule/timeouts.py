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
    *devices : Device
        Whose operations run: the longest of their pauses between polls is kept.
    """

    def __init__(self, *devices: Device) -> None:
        # Where operations run at once, none wants the core while somebody polls.
        self._inline = all(device.inline for device in devices)
        self._pause = max(device.pause for device in devices)
        self._moved = time.perf_counter()
        self._limit = timeout()

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Poll until something is done, with nothing beside; the poll that finds it is the last."""
        began = time.perf_counter()
        while not done():
            self.check(began, what)
            self._rest(brisk=time.perf_counter() - began < _BRISK)

    def moved(self) -> None:
        """Note that something was done: more may be soon."""
        self._moved = time.perf_counter()

    def check_moved(self, what: Callable[[], str]) -> None:
        """Raise `RunError` if nothing has been done for too long; `what` tells who waits."""
        if time.perf_counter() - self._moved > self._limit:
            self.check(self._moved, what())

    def rest(self) -> None:
        """Leave the core to kernels until the next poll."""
        self._rest(brisk=self._inline and time.perf_counter() - self._moved < _BRISK)

    def _rest(self, brisk: bool) -> None:
        if brisk or not self._pause:
            # Also lets the threads of other lanes have the interpreter, which a busy loop would
            # keep from them for milliseconds. time.sleep(0) would sleep for as long as a pause.
            os.sched_yield()
        else:
            time.sleep(self._pause)

    def check(self, since: float, what: str) -> None:
        """Raise `RunError` if something has been waited for too long."""
        if time.perf_counter() - since > self._limit:
            raise RunError(
                f"{what} has waited for {self._limit:g} s: a rank has died or takes another path; "
                "set SLIPSTREAM_TIMEOUT to wait longer"
            )
