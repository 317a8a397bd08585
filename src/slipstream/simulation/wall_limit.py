"""The end of a run by the clock, ``time.wall``, early enough to write its last state."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

from slipstream.mpi_launch import STARTED
from slipstream.simulation.time_loop import TimeLoop

# Of the time that writing has taken at most; of the whole while none has been written; of all.
_MORE, _UNKNOWN, _MARGIN = 1.5, 0.1, 0.05
_MOST_UNKNOWN, _MOST_MARGIN = 60.0, 1.0
# Steps that a GPU may be given before the host looks at the clock again.
_STEPS_UNDER_WAY = 34


class WallLimit:
    """Tells when a run has to end so that it is over in so many seconds from its process's start.

    `elapsed` are the seconds before this was made, `is_ahead` tells that steps are only queued.
    """

    def __init__(self, seconds: float | None, elapsed: float = 0.0, is_ahead: bool = False) -> None:
        self._seconds = math.inf if seconds is None else seconds
        self._began = time.monotonic() - elapsed
        self._steps = _STEPS_UNDER_WAY if is_ahead else 2

    def elapsed(self) -> float:
        """Return the seconds since the process began."""
        return time.monotonic() - self._began

    def is_over(self, loop: TimeLoop, slowest_writes: Mapping[str, float]) -> bool:
        """Return whether what is left is needed for another step, and to write all."""
        if math.isinf(self._seconds):
            return False
        step = loop.stepping / loop.steps if loop.steps else 0.0
        reserve = self._steps * step + _MORE * sum(slowest_writes.values())
        reserve += min(_MOST_MARGIN, _MARGIN * self._seconds)
        if "checkpoint" not in slowest_writes:
            reserve += min(_MOST_UNKNOWN, _UNKNOWN * self._seconds)
        return self.elapsed() + reserve >= self._seconds


def process_age() -> float:
    """Return the seconds since this command was started; by its starter if ranks were."""
    try:
        return max(0.0, time.time() - float(os.environ[STARTED]))
    except (KeyError, ValueError):
        return own_age()


def own_age() -> float:
    """Return the seconds since the start of this process, as far as the system tells."""
    try:
        # The name of the program, in parentheses, may have blanks.
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began)
    except (OSError, ValueError, IndexError, AttributeError):
        return time.process_time()
