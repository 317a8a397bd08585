"""Requests to stop a run, honoured between two time steps and on all ranks alike."""

import signal
import time
from types import FrameType
from typing import Any

import numpy as np

from slipstream.array_types import Comm
from slipstream.errors import RunError
from slipstream.stop_signals import SECONDS_OF_ONE_REQUEST, heeded_signals


class Interrupted(RunError):
    """The run ended in order, before its end, because it was asked to.

    Its `exit_status` is 75 if the same command, or ``slipstream resume``, goes on with it.

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

    def __enter__(self) -> "Interruption":
        self._previous = {n: signal.signal(n, self._handle) for n in heeded_signals()}
        return self

    def __exit__(self, *_details: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

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
