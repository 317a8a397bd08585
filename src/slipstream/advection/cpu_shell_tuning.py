"""How thick a shell the CPU should have, and with how many threads: measured, not guessed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from slipstream.advection.advection_solver import Advection
from slipstream.tuner import measure

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
        Steps to time, of which the median counts.

    Returns
    -------
    dict
        "shell" and "threads", to be given to `Advection`, and "seconds", per step by pair of them.
    """

    def prepare(pair: tuple[int, int | None]) -> Callable[[], None]:
        solver = Advection(shape, strategy=strategy, shell=pair[0], threads=pair[1], **arguments)
        solver.set(np.ones(solver.box.shape, solver.dtype))

        def step() -> None:
            solver.advance()
            solver.synchronize()

        return step

    pairs = list(itertools.product(shells, threads))
    seconds = measure(lambda _: pairs, prepare, arguments.get("comm"), repetitions=steps)
    shell, best = seconds.best()
    return {"shell": shell, "threads": best, "seconds": seconds}
