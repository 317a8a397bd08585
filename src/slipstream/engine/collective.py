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
from slipstream.engine.error_terms import KeyedError, spelled
from slipstream.engine.errors import InputError, OutOfMemory, RunError, SlipstreamError
from slipstream.engine.stop_signals import signals_held

if TYPE_CHECKING:
    from mpi4py import MPI

    from slipstream.engine.own_communicator import OwnCommunicator


Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")
Failure = TypeVar("Failure", bound=BaseException)
Number = TypeVar("Number", int, float)
# Pauses between looks grow with the wait, and make it at most this fraction longer.
_FRACTION = 1 / 200
# The longest pause, in seconds.
_LONGEST_PAUSE = 0.02


class RankFailed(RunError):
    """Another rank has failed; the message names its error."""


def is_own(comm: Comm) -> TypeGuard[OwnCommunicator]:
    """Return whether a communicator is one from `own`."""
    return hasattr(comm, "meet")


def own(comm: Comm, what: str) -> Comm:
    """Return a communicator between the same ranks that nobody else uses. Collective.

    `what` names its owner, such as "DistributedFFT", the same on all ranks. None of its collective
    calls waits for longer than ``SLIPSTREAM_TIMEOUT``. It is freed some time after it was dropped.
    A communicator that has an owner is returned as it is.
    """
    if comm is None or is_own(comm):
        return comm
    check_communicator(comm)
    from slipstream.engine.own_communicator import lend

    return lend(cast("MPI.Intracomm", comm), what)


def check_communicator(comm: Comm) -> None:
    """Refuse, on this rank, an object that is no usable intracommunicator."""
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
    position = list(inspect.signature(function).parameters).index("comm")

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Result:
        users_comm = arguments[position] if len(arguments) > position else options.get("comm")
        if users_comm is None:
            return function(*arguments, **options)
        with signals_held:
            comm = own(users_comm, function.__qualname__.removesuffix(".__init__"))
            if len(arguments) > position:
                arguments = (*arguments[:position], comm, *arguments[position + 1 :])
            else:
                options["comm"] = comm
            with together(comm):
                return function(*arguments, **options)

    return call


@contextlib.contextmanager
def together(comm: Comm, call: str = "", holds: bool = True) -> Iterator[None]:
    """Fail on all ranks if the block fails on one of them. Collective.

    The communicator is one from `own`, through which the ranks communicate within the block. With
    any other, or None, this does nothing but hold signals back: one on this rank is handled when
    the call is done on all. Without `holds`, a block that nothing depends on yet may be cut short,
    unless a caller holds signals back. `call` names a call of the user, which is refused unless all
    ranks make it.
    """
    with signals_held:
        lifted = signals_held.lifted(not holds and signals_held.depth == 1)
        if comm is None or not is_own(comm):
            with lifted:
                yield
            return
        comm.check()
        outer, comm.call = comm.call, call or comm.call
        try:
            if call:
                comm.meet()
            try:
                with lifted:
                    yield
            except Exception as failure:
                if not is_on_all_ranks(failure):
                    comm.fail(failure)
                    on_all_ranks(failure)
                raise
            except BaseException as failure:
                if not is_on_all_ranks(failure):
                    comm.notify_ranks(failure)
                raise
            comm.meet()
        finally:
            comm.call = outer


def give_up(comm: Comm, failure: BaseException | None) -> None:
    """Free the other ranks from waiting for this one, which failed alone and left."""
    if failure is not None and is_own(comm) and not is_on_all_ranks(failure):
        comm.notify_ranks(failure)


def on_every_rank(comm: Comm, function: Callable[[], Result], names_rank: bool = True) -> Result:
    """Return the result of `function`, which must not communicate, on each rank. Collective.

    If it fails, all ranks raise the error of the lowest rank that failed, with its number unless
    all ranks failed alike. It is an `InputError` if that was one, else a `RunError`; any other
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
    rank = next(rank for rank, problem in enumerate(problems) if problem)
    raise failure_of(problems[rank], rank if names_rank else None) from failure


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
                        f"ranks disagree on {name}: rank 0 has {_shorten(value)}, rank {rank} has "
                        f"{_shorten(theirs[name])}; all ranks must give the same"
                    )
                )


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def on_first_rank(comm: Comm, function: Callable[[], Result]) -> Result:
    """Return on all ranks what `function` returns on rank 0, picklable. Collective."""
    if comm is None:
        return function()
    result = on_every_rank(comm, lambda: function() if comm.rank == 0 else None, False)
    result = comm.bcast(result, root=0)
    return cast(Result, result)


# An exception that ranks send each other: its type, and the parts of its message.
Description = tuple[type[Exception], tuple[Any, ...]]


def described(failure: BaseException) -> Description:
    """Return the exception that other ranks raise if one fails.

    A defect, with its traceback on one rank, is a `RunError` on the others.
    """
    if isinstance(failure, KeyedError):
        return KeyedError, failure.plain_parts()
    if isinstance(failure, SlipstreamError):
        return (InputError if isinstance(failure, InputError) else RunError), (str(failure),)
    text = f"{type(failure).__name__}: {failure}".removesuffix(": ")
    return (OutOfMemory if isinstance(failure, MemoryError) else RunError), (text,)


def failure_text(failure: BaseException) -> str:
    """Return the text of the exception that other ranks raise if one fails."""
    return spelled(described(failure)[1])


def failure_of(description: Description, rank: int | None) -> Exception:
    """Return the exception that the other ranks raise because one has failed."""
    kind, parts = description
    parts = (*parts, "" if rank is None else f" (on rank {rank})")
    return on_all_ranks(KeyedError(*parts) if kind is KeyedError else kind(spelled(parts)))


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
    if is_own(comm):  # ranks reduce it as they meet
        return comm.greatest(value)
    return float(np.max(comm.allgather(value)))


def sum_over_ranks(comm: Comm, values: np.ndarray) -> np.ndarray:
    """Return the sum of all ranks' arrays, the same on all of them. Collective."""
    if comm is None:
        return values
    total = np.empty_like(values)
    comm.Allreduce(values, total)
    return total


# Requests and arrays that MPI may still use after ranks gave up waiting: kept for ever.
abandoned: list[Any] = []


def longer_pause(waited: float) -> float:
    """Return the seconds to sleep, so that others get the core, after a wait in seconds."""
    return min(waited * _FRACTION, _LONGEST_PAUSE)


def timeout() -> float:
    """Return the seconds for which a rank waits for others: ``$SLIPSTREAM_TIMEOUT``, or 600."""
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
