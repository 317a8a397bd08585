"""How thick a shell the CPU should have, and with how many threads: measured, not guessed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slipstream.advection.advection_solver import Advection

SHELLS = (0, 1, 2, 4, 8)


def tuned_shell(
    shape: Sequence[int],
    strategy: str,
    shells: Sequence[int] = SHELLS,
    threads: Sequence[int | None] = (None,),
    steps: int = 5,
    **arguments: Any,
) -> Mapping[str, Any]:
    """Return the fastest shell, and number of threads, of a hybrid strategy. Collective.

    Parameters
    ----------
    shape, strategy, **arguments
        As for `Advection`.
    shells : sequence of int
        Thicknesses to try.
    threads : sequence of int or None
        Numbers of threads to try; None stands for all.
    steps : int
        Steps to time, of which the fastest counts.

    Returns
    -------
    dict
        "shell" and "threads", to be given to `Advection`, and "seconds", per step by pair of them.
    """
    seconds = {}
    for pair in itertools.product(shells, threads):
        solver = Advection(shape, strategy=strategy, shell=pair[0], threads=pair[1], **arguments)
        solver.set(np.ones(solver.box.shape, solver.dtype))
        seconds[pair] = _fastest(solver, steps)
    shell, best = min(seconds, key=seconds.get)
    return {"shell": shell, "threads": best, "seconds": seconds}


def _fastest(solver: Advection, steps: int) -> float:
    """Return the seconds of the fastest step, the slowest rank counting, after one untimed."""
    samples = []
    for _ in range(steps + 1):
        began = time.perf_counter()
        solver.advance()
        solver.synchronize()
        samples.append(time.perf_counter() - began)
    slowest = samples[1:]
    if solver.comm is not None:
        everyone = solver.comm.allgather(slowest)
        slowest = [max(times) for times in zip(*everyone, strict=True)]
    return min(slowest)
