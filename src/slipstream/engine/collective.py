"""Operations of all ranks: if one fails on some rank, it fails on all.

A rank that raised an exception alone would leave the others waiting for it for ever. A function
that must not communicate is called by `on_every_rank`; one that may is called `together`, on its
own communicator.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeGuard, TypeVar, cast

import numpy as np

from slipstream.engine.array_types import Comm
from slipstream.engine.errors import InputError, OutOfMemory, RunError, SlipstreamError

if TYPE_CHECKING:
    from mpi4py import MPI

    from slipstream.engine.own_communicator import OwnCommunicator


Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")
Failure = TypeVar("Failure", bound=BaseException)
Number = TypeVar("Number", int, float)


class RankFailed(RunError):
    """Another rank has failed, and said by what: the message names it."""


def is_own(comm: Comm) -> TypeGuard[OwnCommunicator]:
    """Return whether a communicator is one from `own`."""
    return hasattr(comm, "meet")


def own(comm: Comm, what: str) -> Comm:
    """Return a communicator between the same ranks that nobody else uses. Collective.

    `what` it is for, such as "DistributedFFT", must be the same on all ranks. No collective call of
    it waits for longer than ``SLIPSTREAM_TIMEOUT``. It is freed some time after it was dropped. One
    that is from here already is returned as it is.
    """
    if comm is None or is_own(comm):  # which belongs to the same owner
        return comm
    check_communicator(comm)
    from slipstream.engine.own_communicator import lend

    return lend(cast("MPI.Intracomm", comm), what)


def check_communicator(comm: Comm) -> None:
    """Refuse, on this rank, what ranks cannot do anything together by."""
    if not hasattr(comm, "Is_inter"):  # of mpi4py's communicators
        raise InputError(f"comm is {comm!r}; accepted: None or an intracommunicator of mpi4py")
    if not comm:  # as also one that has been freed
        raise InputError(
            "comm is MPI.COMM_NULL, as where a rank is not in a communicator, or has been freed; "
            "accepted: None or an intracommunicator that this rank is in"
        )
    if comm.Is_inter():
        raise InputError("comm is an intercommunicator; accepted: None or an intracommunicator")


def collectively(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Give a function, or a constructor, its own communicator as its argument `comm`.

    If it fails on one rank, it fails on all.
    """
    place = list(inspect.signature(function).parameters).index("comm")

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Result:
        given = arguments[place] if len(arguments) > place else options.get("comm")
        if given is None:
            return function(*arguments, **options)
        comm = own(given, function.__qualname__.removesuffix(".__init__"))
        if len(arguments) > place:
            arguments = (*arguments[:place], comm, *arguments[place + 1 :])
        else:
            options["comm"] = comm
        with together(comm):
            return function(*arguments, **options)

    return call


@contextlib.contextmanager
def together(comm: Comm, call: str = "") -> Iterator[None]:
    """Fail on all ranks if what follows fails on one of them. Collective.

    The communicator is one from `own`, through which the ranks do all that they do together in
    between. With any other, or None, this does nothing. A `call` of the user's by its name is
    refused if not all ranks make it.
    """
    if not is_own(comm):
        yield
        return
    comm.check()
    outer, comm.call = comm.call, call or comm.call
    try:
        if call:
            comm.meet()
        try:
            yield
        except Exception as failure:
            if not is_on_all_ranks(failure):
                comm.fail(failure)
                on_all_ranks(failure)
            raise
        except BaseException as failure:
            if not is_on_all_ranks(failure):
                comm.tell(failure)
            raise
        comm.meet()
    finally:
        comm.call = outer


def give_up(comm: Comm, failure: BaseException | None) -> None:
    """Free the other ranks from waiting for this one, which failed alone and left."""
    if failure is not None and is_own(comm) and not is_on_all_ranks(failure):
        comm.tell(failure)


def on_every_rank(
    comm: Comm, function: Callable[[], Result], message: str = "{text} (on rank {rank})"
) -> Result:
    """Return what `function`, which must not communicate, returns on each rank. Collective.

    If it fails, all ranks raise the same: what the lowest rank that failed has to say, with its
    number unless all say so. It is an `InputError` if that was one, else a `RunError`; any other
    exception is a defect, which keeps its type and traceback where it happened.
    """
    if comm is None:
        return function()
    failure: Exception | None = None
    try:
        result = function()
    except Exception as error:
        failure = error
    problems = comm.allgather(None if failure is None else described(failure))
    if not any(problems):
        return result
    if failure is not None:
        defect = not isinstance(failure, SlipstreamError)
        if defect or all(problem == problems[0] for problem in problems):
            raise on_all_ranks(failure)
    rank, (kind, text) = next((r, p) for r, p in enumerate(problems) if p is not None)
    raise on_all_ranks(kind(message.format(text=text, rank=rank))) from failure


def check_agreement(comm: Comm, values: Mapping[str, Any]) -> None:
    """Refuse arguments, given by name, that differ between ranks, on all of them. Collective."""
    if comm is None:
        return
    # Representations are compared: they are short, and equal for equal arguments.
    everyone = comm.allgather({name: repr(value) for name, value in values.items()})
    for rank, theirs in enumerate(everyone):
        for name, value in everyone[0].items():
            if theirs[name] != value:
                raise on_all_ranks(
                    InputError(
                        f"ranks disagree on {name}: rank 0 has {_short(value)}, rank {rank} has "
                        f"{_short(theirs[name])}; all ranks must give the same"
                    )
                )


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def on_first_rank(comm: Comm, function: Callable[[], Result]) -> Result:
    """Return on all ranks what `function` returns on rank 0, picklable. Collective."""
    if comm is None:
        return function()
    result = on_every_rank(comm, lambda: function() if comm.rank == 0 else None, "{text}")
    result = comm.bcast(result, root=0)
    return cast(Result, result)


def described(failure: BaseException) -> tuple[type[Exception], str]:
    """Return the exception that other ranks raise if one fails: a type and a text.

    What is a defect, with its traceback, on one rank is a `RunError` on the others.
    """
    if isinstance(failure, SlipstreamError):
        return (InputError if isinstance(failure, InputError) else RunError), str(failure)
    text = f"{type(failure).__name__}: {failure}".removesuffix(": ")
    return (OutOfMemory if isinstance(failure, MemoryError) else RunError), text


def failure_of(kind: type[Exception], text: str, rank: int) -> Exception:
    """Return the exception that the other ranks raise because one has failed."""
    return on_all_ranks(kind(f"{text} (on rank {rank})"))


def on_all_ranks(failure: Failure) -> Failure:
    """Mark an exception that all ranks raise at this point, so that none sends it to the others."""
    with contextlib.suppress(AttributeError):
        failure.on_all_ranks = True  # type: ignore[attr-defined]
    return failure


def is_on_all_ranks(failure: BaseException) -> bool:
    """Return whether all ranks raise an exception at the same point."""
    return getattr(failure, "on_all_ranks", False)


def largest(comm: Comm, value: Number) -> Number:
    """Return the largest value of any rank. Collective."""
    return value if comm is None else max(comm.allgather(value))


def greatest(comm: Comm, value: float) -> float:
    """Return the largest value of any rank, not-a-number if it is one anywhere. Collective."""
    if comm is None:
        return value
    if hasattr(comm, "greatest"):  # an OwnCommunicator, whose ranks reduce it as they meet
        return float(comm.greatest([value])[0])
    return float(np.max(comm.allgather(value)))


def sum_over_ranks(comm: Comm, values: np.ndarray) -> np.ndarray:
    """Return the sum of all ranks' arrays, the same on all of them. Collective."""
    if comm is None:
        return values
    total = np.empty_like(values)
    comm.Allreduce(values, total)
    return total


# What MPI may still read from, or write to, after ranks gave up waiting: kept for ever.
abandoned: list[Any] = []


# What has been waited for long is looked for less often: the wait is at most this fraction longer.
_FRACTION, _LONGEST_PAUSE = 1 / 200, 0.02


def longer_pause(waited: float) -> float:
    """Return how long to sleep after so many fruitless seconds, so that others get the core."""
    return min(waited * _FRACTION, _LONGEST_PAUSE)


def timeout() -> float:
    """Return for how many seconds a rank waits for others: ``$SLIPSTREAM_TIMEOUT``, or 600."""
    text = os.environ.get("SLIPSTREAM_TIMEOUT", "600")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:  # false for not-a-number, too
        raise InputError(f"SLIPSTREAM_TIMEOUT is {text!r}; accepted: a positive number of seconds")
    return seconds


class WaitedTooLong(RunError):
    """A rank has not answered within the time limit."""

    def __init__(self, who: str, seconds: float) -> None:
        super().__init__(
            f"{who} has waited for {seconds:g} s: a rank has died or takes another path; "
            "set SLIPSTREAM_TIMEOUT to wait longer"
        )
