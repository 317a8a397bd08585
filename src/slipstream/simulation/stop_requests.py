"""What ends a run before its end, between two time steps and on all ranks alike.

Signals ask for it, and the clock: ``time.wall``, early enough to write the last state.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import math
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from slipstream.array_types import Comm
from slipstream.errors import RunError
from slipstream.mpi_launch import STARTED
from slipstream.stop_signals import SECONDS_OF_ONE_REQUEST, caught_signals

# What `signal.signal` calls between two conversions of numbers to enumerations, which would take
# 20 us of each single step.
_set_handler: Callable[[int, Any], Any] = _signal.signal

# Of the time that writing has taken at most; of the whole while none has been written; of all.
_MORE, _UNKNOWN, _MARGIN = 1.5, 0.1, 0.05
_MOST_UNKNOWN, _MOST_MARGIN = 60.0, 1.0
# Steps that a GPU may be given before the host looks at the clock again.
_STEPS_UNDER_WAY = 34


class Interrupted(RunError):
    """The run ended in order, before its end, because it was asked to.

    Its `exit_status` is 75 if the same command, or ``slipstream resume``, continues with it.

    Attributes
    ----------
    is_signalled : bool
        Whether a signal asked for it, such as Ctrl-C, and not the case's ``time.wall``.
    """

    is_signalled = True


class Interruption:
    """Within this context, signals that would end the process only raise a flag.

    A second Ctrl-C, a while after the first, does what it did before: it raises. Outside the main
    thread, where signals cannot be caught, nothing changes; nor does a hang-up that is ignored.
    """

    def __init__(self, comm: Comm = None) -> None:
        self._comm = comm
        self._first_at: float | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        self._previous = {n: _set_handler(n, self._handle) for n in caught_signals()}
        return self

    def __exit__(self, *_details: object) -> None:
        for number, handler in self._previous.items():
            _set_handler(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first_at is None:
            self._first_at = now
        elif number == signal.SIGINT and now - self._first_at > SECONDS_OF_ONE_REQUEST:
            before = self._previous[number]
            if callable(before):
                before(number, frame)

    def requested(self, *wishes: bool) -> tuple[bool, ...]:
        """Return whether any rank was asked to stop, and has each of these wishes. Collective."""
        mine = self._first_at is not None, *wishes
        if self._comm is None:
            return mine
        from mpi4py import MPI

        flags = np.array(mine, dtype=np.int32)
        self._comm.Allreduce(MPI.IN_PLACE, flags, op=MPI.MAX)
        return tuple(map(bool, flags))


class WallLimit:
    """Tells when a run has to end so that it is over in so many seconds from its process's start.

    `elapsed` are the seconds before this was made, `is_ahead` says that steps are only queued.
    """

    def __init__(self, seconds: float | None, elapsed: float = 0.0, is_ahead: bool = False) -> None:
        self._seconds = math.inf if seconds is None else seconds
        self._began = time.monotonic() - elapsed
        self._steps = _STEPS_UNDER_WAY if is_ahead else 2

    def elapsed(self) -> float:
        """Return the seconds since the process began."""
        return time.monotonic() - self._began

    def is_over(self, step_seconds: float, slowest_writes: Mapping[str, float]) -> bool:
        """Return whether the time left is too short for another step and all output."""
        if math.isinf(self._seconds):
            return False
        reserve = self._steps * step_seconds + _MORE * sum(slowest_writes.values())
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
