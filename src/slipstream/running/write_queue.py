"""Writing by a thread, while the run makes its next time steps."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from slipstream.device import open_device
from slipstream.field import Field

# What of the host's free memory may wait to be written.
_SHARE = 0.25
# Seconds after which Python lets the other thread continue. By default steps would wait for 5 ms
# whenever they have something to submit while files are written.
_TURN = 2e-4


def _nothing() -> None:
    pass


class WriteQueue:
    """Writes one thing after the other: in the caller, or, if it is `deferred`, in a thread.

    Once something could not be written, nothing that comes later is. The next call raises what has
    failed, once.
    """

    def __init__(self, deferred: bool, most_bytes: int | None = None) -> None:
        self._thread = ThreadPoolExecutor(1, "slipstream-output") if deferred else None
        self._changed = threading.Condition()
        self._most = most_bytes
        self._bytes = 0
        self._failure: BaseException | None = None
        self._is_told = False
        # Writes under way, and the function to call after each.
        self._under_way: deque[tuple[Future[None], Callable[[], None]]] = deque()
        self._usual_turn: float | None = None

    def write(
        self,
        function: Callable[[Iterator[Field]], object],
        fields: Iterable[Field] = (),
        then: Callable[[], None] = _nothing,
    ) -> Future[None]:
        """Let a function write fields, which are made here one by one; return what waits for it.

        Their memory must not be used for anything else later. Where it is done, `then` is called by
        the thread that calls this: now, or in a later call.
        """
        if self._thread is None:
            function(iter(fields))
            then()
            done: Future[None] = Future()
            done.set_result(None)
            return done
        self.check()
        if self._usual_turn is None:
            self._usual_turn = sys.getswitchinterval()
            sys.setswitchinterval(_TURN)
        if self._most is None:
            self._most = int(_SHARE * open_device("cpu").memory_free())
        handed = _HandedFields(self)
        future = self._thread.submit(self._run, function, handed)
        self._under_way.append((future, then))
        try:
            for field in fields:
                handed.put(field)
                del field  # before the next one is made
        except BaseException as failure:
            handed.end(failure)
            raise
        handed.end()
        return future

    def has_news(self) -> bool:
        """Return whether `check` has something to do."""
        return bool(self._under_way) and self._under_way[0][0].done()

    def check(self) -> None:
        """Call the functions that wait for finished writes; raise the errors of failed ones."""
        while self.has_news():
            _, then = self._under_way.popleft()
            if self._failure is None:
                then()
        if self._failure is not None and not self._is_told:
            self._is_told = True
            raise self._failure

    def finish(self) -> None:
        """Wait until all is written."""
        for future, _ in list(self._under_way):
            future.result()
        self.check()

    def close(self) -> None:
        """Wait until all is written, and end the thread."""
        if self._thread is None:
            return
        try:
            self.finish()
        finally:
            self._thread.shutdown()
            self._thread = None
            if self._usual_turn is not None:
                sys.setswitchinterval(self._usual_turn)

    def _run(self, function: Callable[[Iterator[Field]], object], fields: _HandedFields) -> None:
        try:
            if self._failure is None:
                function(fields)
        except BaseException as failure:
            # What failed where fields are made is raised there.
            if failure is not fields.failure:
                self._failure = failure
        finally:
            fields.drop()


class _HandedFields(Iterator[Field]):
    """Fields that one thread makes and another one takes."""

    def __init__(self, queue: WriteQueue) -> None:
        self._queue, self._changed = queue, queue._changed
        self._waiting: deque[Field] = deque()
        self._taken = 0
        self._is_ended = self._is_dropped = False
        self.failure: BaseException | None = None

    def put(self, field: Field) -> None:
        """Hand over a field as soon as there is room."""
        queue, size = self._queue, field.data.nbytes
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._is_dropped
                    or not queue._bytes
                    or queue._most is None
                    or queue._bytes + size <= queue._most
                )
            )
            if not self._is_dropped:
                queue._bytes += size
                self._waiting.append(field)
                self._changed.notify_all()

    def end(self, failure: BaseException | None = None) -> None:
        """Report the end, or that the next one could not be made."""
        with self._changed:
            self._is_ended, self.failure = True, failure
            self._changed.notify_all()

    def __next__(self) -> Field:
        with self._changed:
            self._release(self._taken)
            self._taken = 0
            self._changed.wait_for(lambda: self._waiting or self._is_ended)
            if self._waiting:
                field = self._waiting.popleft()
                self._taken = field.data.nbytes
                return field
            if self.failure is not None:
                raise self.failure
            raise StopIteration

    def drop(self) -> None:
        """Take no more."""
        with self._changed:
            self._release(self._taken + sum(one.data.nbytes for one in self._waiting))
            self._waiting.clear()
            self._taken, self._is_dropped = 0, True

    def _release(self, size: int) -> None:
        self._queue._bytes -= size
        self._changed.notify_all()
