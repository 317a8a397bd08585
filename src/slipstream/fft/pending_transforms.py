"""Asynchronous transforms: calls that return before the result is ready, on CPUs as on GPUs."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as NotYet
from typing import Any

import numpy.typing as npt

from slipstream.array_types import Array
from slipstream.device import Event
from slipstream.errors import InputError, RunError
from slipstream.known_attributes import KnownAttributes
from slipstream.process_threads import renew_in_child


class PendingTransform(KnownAttributes):
    """A transform that has been started by `DistributedFFT.forward_async` or `backward_async`.

    Do not write or free its arrays before `wait` has returned.
    """

    def __init__(self, started: Future[Any] | None, result: Any, event: Event | None) -> None:
        self._started, self._result, self._event = started, result, event
        self._process = os.getpid()

    def done(self) -> bool:
        """Return whether the transform has finished or failed, without waiting."""
        if self._event is not None:
            return self._event.done()
        return self._started is None or self._started.done()

    def wait(self, timeout: float | None = None) -> npt.NDArray[Any]:
        """Wait for the result and return it, as `forward` and `backward` do.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for a transform on CPUs; without limit by default, apart from
            ``SLIPSTREAM_TIMEOUT`` in each exchange.

        Raises
        ------
        RunError
            If the transform is not ready in time, in which case it continues; or if it has failed.
        """
        if self._event is not None:
            self._event.synchronize()
        if self._started is None:
            result: npt.NDArray[Any] = self._result
            return result
        if self._process != os.getpid() and not self._started.done():
            raise RunError(
                "this transform was begun before the process was forked, and its thread is gone; "
                "begin it again"
            )
        try:
            outcome: npt.NDArray[Any] = self._started.result(timeout)
            return outcome
        except NotYet:
            if self._started.done():
                raise
            raise RunError(f"the transform is not done after {timeout:g} s") from None


class _NoRank:
    """Instead of a lock: refuses calls in a process that is not a rank of MPI."""

    def acquire(self, blocking: bool = True) -> bool:
        raise InputError(
            "this process was forked from a rank of MPI, and is not one itself; accepted: a "
            "plan made in this process, with comm=None"
        )

    def release(self) -> None:
        return

    def __enter__(self) -> None:
        return

    def __exit__(self, *exception: object) -> None:
        return


class Turns:
    """Serialises the plans that share a communicator: one call at a time, in order.

    Asynchronous calls run in a separate thread, one after the other, and other calls wait for them.
    """

    def __init__(self, alone: bool) -> None:
        self._alone = alone
        self._lock: Any = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._last: Future[Array] | None = None
        self._thread: int | None = None
        renew_in_child(self)

    def renew(self) -> None:
        """Reset in a forked process: no ranks, no thread, no pending calls."""
        self._lock = threading.Lock() if self._alone else _NoRank()
        self._executor = self._last = self._thread = None

    def __enter__(self) -> None:
        if self._last is not None:
            self.settle()
        # On one rank calls take turns; several ranks might order calls of threads differently.
        if not self._lock.acquire(blocking=self._alone):
            raise InputError(
                "another thread is running this plan; accepted: one call at a time, or a plan for "
                "each thread"
            )

    def __exit__(self, *exception: object) -> None:
        self._lock.release()

    @contextlib.contextmanager
    def last(self) -> Iterator[None]:
        """Wait for all calls, and end the thread of asynchronous ones."""
        self.settle()
        with self._lock:
            if self._executor is not None:
                self._executor.shutdown()
            self._executor = None
            yield

    def start(self, call: Callable[[], Array]) -> Future[Array]:
        """Run a call after all earlier calls."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "slipstream-fft")
        self._last = self._executor.submit(self._noting_thread, call)
        return self._last

    def settle(self) -> None:
        """Wait for earlier calls, unless called by one; their own callers get their errors."""
        last = self._last
        if last is not None and self._thread != threading.get_ident():
            wait([last])
            if self._last is last:
                self._last = None

    def _noting_thread(self, call: Callable[[], Array]) -> Array:
        # Not as the thread's target: the thread would keep this object alive, and never end.
        self._thread = threading.get_ident()
        return call()
