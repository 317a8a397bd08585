"""Ranks that have nothing to do while another one is measured, and leave it all cores.

MPI's own waits poll without a pause, which takes a core from whoever works.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

_PAUSE = 1e-3


def wait_idly(comm: Any) -> None:
    """Wait until all ranks are here, asleep most of the time. Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or None
        The ranks; nothing to wait for if None.
    """
    if comm is None:
        return
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(_PAUSE)


class OnFirstRank:
    """An action of rank 0, timed there, while all other ranks sleep. Calls are collective.

    The clock of the other ranks would count how late they wake up.

    Parameters
    ----------
    action : callable or None
        What to do on rank 0, and to wait for until it is done; None on the other ranks.
    comm : mpi4py.MPI.Comm or None
        The ranks.
    """

    def __init__(self, action: Callable[[], None] | None, comm: Any) -> None:
        self._action, self._comm = action, comm
        self._samples: list[float] = []

    def __call__(self) -> None:
        """Run the action on rank 0."""
        if self._action is not None:
            start = time.perf_counter()
            self._action()
            self._samples.append(time.perf_counter() - start)
        wait_idly(self._comm)

    def seconds(self) -> float:
        """Return the median seconds of all calls but the first. Collective."""
        mine = statistics.median(self._samples[1:]) if self._action is not None else None
        return mine if self._comm is None else self._comm.bcast(mine, root=0)
