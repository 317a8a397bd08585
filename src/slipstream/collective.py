"""What ranks do together, each by itself: if it fails on one of them, it fails on all.

A rank that raised an exception alone would leave the others waiting for it for ever.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from slipstream.array_types import Comm
from slipstream.errors import InputError, RunError, SlipstreamError

Result = TypeVar("Result")


def on_every_rank(comm: Comm, function: Callable[[], Result]) -> Result:
    """Return what `function`, which must not communicate, returns on each rank. Collective.

    If it fails, all ranks raise the same: what the lowest rank that failed has to say, with its
    number unless all say so. It is an `InputError` if that was one, else a `RunError`; what is no
    `SlipstreamError` is a defect, which keeps its type and traceback where it happened.
    """
    return _on_ranks(comm, function, "{text} (on rank {rank})")


def on_first_rank(comm: Comm, function: Callable[[], Result]) -> Result:
    """Return on all ranks what `function` returns on rank 0, picklable. Collective."""
    if comm is None:
        return function()
    result = _on_ranks(comm, lambda: function() if comm.rank == 0 else None, "{text}")
    return comm.bcast(result, root=0)


def _on_ranks(comm: Comm, function: Callable[[], Result], message: str) -> Result:
    if comm is None:
        return function()
    failure: Exception | None = None
    try:
        result = function()
    except Exception as error:
        failure = error
    problems = comm.allgather(None if failure is None else _described(failure))
    if not any(problems):
        return result
    if failure is not None and not isinstance(failure, SlipstreamError):
        raise failure
    if failure is not None and all(problem == problems[0] for problem in problems):
        raise failure
    rank, (kind, text) = next((r, p) for r, p in enumerate(problems) if p is not None)
    raise kind(message.format(text=text, rank=rank)) from failure


def _described(error: Exception) -> tuple[type[SlipstreamError], str]:
    if isinstance(error, SlipstreamError):
        return (InputError if isinstance(error, InputError) else RunError), str(error)
    return RunError, f"{type(error).__name__}: {error}".removesuffix(": ")


def largest(comm: Comm, value: int) -> int:
    """Return the largest value of any rank. Collective."""
    return value if comm is None else max(comm.allgather(value))


def sum_over_ranks(comm: Comm, values: np.ndarray) -> np.ndarray:
    """Return the sum of all ranks' arrays, the same on all of them. Collective."""
    if comm is None:
        return values
    total = np.empty_like(values)
    comm.Allreduce(values, total)
    return total
