"""Signals that ask a command to stop, from its first import to its last line.

While a run steps, `slipstream.engine.processes` takes them as a request to finish the step,
write and leave. Before and after, nothing would be lost: they raise `StopRequest` then. Nothing but
Python's own modules is imported here, since a command listens before it loads anything else.

Python may handle a signal between any two operations of the main thread, and a handler that raises
there can cost a lock: `Condition`, `Event`, `Future` and every ``__exit__`` written in Python are
entered by a call that may never begin. So whatever takes a lock, or changes more than one thing
that belongs together, holds signals back until it is done (`signals_held`).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
# Launchers answer an interrupt by killing the ranks, but all of them pass this one on.
STOP_SIGNAL = signal.SIGUSR1
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, STOP_SIGNAL)
# One request may arrive as several signals, from the terminal and from the launcher.
SECONDS_OF_ONE_REQUEST = 1.0
# Names a file for the exit status; rank 0 and its starter exchange messages in files next to it.
STATUS_FILE = "SLIPSTREAM_STATUS_FILE"

_INTERRUPTED = 130  # what shells return for a command that Ctrl-C has ended
_last_at = -SECONDS_OF_ONE_REQUEST
_main_thread: int | None = None
# Signals whose handlers may raise: the above, and the one by which programs limit a call's time.
_RAISING = tuple(map(int, (*SIGNALS, signal.SIGALRM)))
# Seconds between two looks for a signal while something else is waited for.
_SECONDS_BETWEEN_LOOKS = 0.05
# What `signal.signal` calls between two conversions of numbers to enumerations, which would take
# 20 us of each single step.
_set_handler: Callable[[int, Any], Any] = _signal.signal
_get_handler: Callable[[int], Any] = _signal.getsignal


class StopRequest(BaseException):
    """A signal asks for the end, and there is nothing to finish.

    No `Exception`, since ranks must not tell each other: each gets the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__("interrupted")
        self.is_interrupt = number == signal.SIGINT
        self.exit_status = _INTERRUPTED if self.is_interrupt else 1


class SignalHold:
    """Within this context, signals in the main thread wait for its end, and are handled then.

    So a call is done as a whole, or not begun. A second Ctrl-C, a while after the first, ends it
    where it waits for something (`check`): the call has failed then. There is one object,
    `signals_held`, a decorator, too; in other threads, which handle no signals, it does nothing.
    """

    def __init__(self) -> None:
        # The contexts that are entered: of this object, and of those that take signals as requests.
        self._holds = self._requests = 0
        # The handlers to call later, by number, and the signals to call them for.
        self._previous: dict[int, Any] = {}
        self._came: list[int] = []
        self._first_at: float | None = None
        self._is_urgent = False
        # One object, to be recognised: each access to a method makes another.
        self._handler = self._handle
        # A signal that raises in these functions would leave an entered context behind.
        self._ends = {type(self).end_requests.__code__}

    def __enter__(self) -> None:
        if _is_main_thread():
            if not self._holds:
                self._catch(_RAISING)
            self._holds += 1

    def __exit__(self, *_details: object) -> None:
        if _is_main_thread():
            self._holds = max(0, self._holds - 1)
            if not self._holds:
                self._settle()

    def __call__(self, function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def call(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
            with self:
                return function(*arguments, **options)

        return call

    @property
    def depth(self) -> int:
        """How many contexts of this object the main thread is in."""
        return self._holds if _is_main_thread() else 0

    def begin_requests(self, end: Callable[..., None]) -> None:
        """Note signals, those without a handler too; a second Ctrl-C raises, unless it is held.

        The function `end` calls `end_requests`.
        """
        if numbers := caught_signals():
            self._ends.add(end.__code__)
            self._catch(tuple(map(int, numbers)), is_request=True)
            self._requests += 1

    def end_requests(self) -> None:
        """Handle signals as before. A request that came too late is left to a call around this."""
        if _is_main_thread() and self._requests:
            self._requests -= 1
            if not (self._holds or self._requests):
                self._came = []
                self._settle()

    def take_requests(self) -> bool:
        """Return whether a signal came, as a request that the caller answers."""
        if not (self._came and self._requests and _is_main_thread()):
            return False
        self._came = []
        return True

    def lifted(self, when: bool = True) -> Lifted:
        """Return a context in which signals raise: for what is the user's, or can begin again."""
        return Lifted(self, when)

    def swap(self, holds: int) -> int:
        """Set how many contexts hold signals back; return how many did."""
        before, self._holds = self._holds, 0
        if before and not holds:
            self._settle()
        elif holds:
            self._catch(_RAISING)
            self._holds = holds
        return before

    def check(self, own: int = 0) -> None:
        """Handle, in a wait, signals that came: the second Ctrl-C, or an alarm.

        The first is handled, too, if nobody but the caller, in `own` contexts, holds it back.
        """
        only_waits = self._holds <= own and not self._requests
        if self._came and (self._is_urgent or only_waits) and _is_main_thread():
            self._call_handlers()

    def wait(self, is_over: Callable[[float], object], own: int = 0) -> None:
        """Wait until a function, which waits for some seconds itself, returns a true value.

        See `check` for `own`.
        """
        with self:
            while not is_over(_SECONDS_BETWEEN_LOOKS):
                self.check(own + 1)

    def _catch(self, numbers: Sequence[int], is_request: bool = False) -> None:
        if not (self._holds or self._requests):
            self._came, self._first_at, self._is_urgent = [], None, False
        for number in numbers:
            before = _get_handler(number)
            if before is not self._handler and (callable(before) or is_request):
                self._previous[number] = before
                _set_handler(number, self._handler)

    def _settle(self) -> None:
        """Handle what was held back; give signals their handlers back, unless they are requests."""
        if self._requests:
            if self._is_urgent:
                self._call_handlers()
            return
        for number, before in self._previous.items():
            if _get_handler(number) is self._handler:  # and not one that was set meanwhile
                _set_handler(number, before)
        self._previous = {}
        if self._came:
            number, self._came = self._came[0], []
            signal.raise_signal(number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        is_again = self._first_at is not None and now - self._first_at > SECONDS_OF_ONE_REQUEST
        is_urgent = number == signal.SIGALRM or (number == signal.SIGINT and is_again)
        is_held = self._holds > 0 or (frame is not None and frame.f_code in self._ends)
        if not (is_held or (self._requests and not is_urgent)):
            self._came = []
            self._call(number, frame)
            return
        if self._first_at is None:
            self._first_at = now
        self._is_urgent |= is_urgent
        if number not in self._came:
            self._came.append(number)

    def _call_handlers(self) -> None:
        came, self._came, self._is_urgent = self._came, [], False
        for number in came:
            self._call(number, None)

    def _call(self, number: int, frame: FrameType | None) -> None:
        before = self._previous.get(number)
        if callable(before):
            before(number, frame)
        elif before == signal.SIG_DFL:
            _set_handler(number, before)
            signal.raise_signal(number)


class Lifted:
    """In this context signals raise. One that raises at its end leaves the hold lifted."""

    def __init__(self, hold: SignalHold, when: bool) -> None:
        self._hold, self._is_on = hold, when and _is_main_thread()
        self._holds = 0

    def __enter__(self) -> None:
        if self._is_on:
            self._holds = self._hold.swap(0)

    def __exit__(self, *_details: object) -> None:
        if self._is_on and self._holds:
            self._hold.swap(self._holds)


signals_held = SignalHold()


def _is_main_thread() -> bool:
    return threading.get_ident() == _main_thread


def _note_main_thread() -> None:
    """Note the thread that handles signals: in a forked process, the one that has forked."""
    global _main_thread
    _main_thread = threading.main_thread().ident


_note_main_thread()
os.register_at_fork(after_in_child=_note_main_thread)


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Have the signals of `SIGNALS` raise `StopRequest` in the main thread, within this context."""
    numbers = caught_signals()
    previous = {number: signal.signal(number, _handle_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _handle_signal(number: int, _frame: FrameType | None) -> None:
    global _last_at
    now = time.monotonic()
    if now - _last_at >= SECONDS_OF_ONE_REQUEST:
        _last_at = now
        raise StopRequest(asked_signal() if number == STOP_SIGNAL else number)


def caught_signals() -> list[signal.Signals]:
    """Return the signals to listen to: none but in the main thread, where Python has its handlers.

    Who starts a command by nohup wants its hang-up to be ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        return []
    is_nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [number for number in SIGNALS if not (is_nohup and number == signal.SIGHUP)]


def report_readiness() -> None:
    """Tell the process that started these ranks, if there is one, that they listen to signals."""
    _touch_mark("ready")


def is_ready(status_file: Path) -> bool:
    """Return whether the ranks that this process has started listen to signals."""
    return status_file.with_name("ready").exists()


def report_explanation() -> None:
    """Tell the process that started these ranks that they have said why they end."""
    _touch_mark("explained")


def is_explained(status_file: Path) -> bool:
    """Return whether the ranks that this process has started have said why they end."""
    return status_file.with_name("explained").exists()


def report_signal(status_file: Path, number: int) -> None:
    """Tell the ranks that this process has started which signal `STOP_SIGNAL` stands for."""
    status_file.with_name("asked").write_text(str(int(number)))


def asked_signal() -> int:
    """Return the signal that `STOP_SIGNAL` stands for."""
    path = _find_beside_status("asked")
    try:
        return int(path.read_text()) if path is not None else STOP_SIGNAL
    except (OSError, ValueError):
        return STOP_SIGNAL


def _touch_mark(name: str) -> None:
    path = _find_beside_status(name)
    if path is not None:
        path.touch()


def _find_beside_status(name: str) -> Path | None:
    """Return a file next to that for the status, if that is on this machine."""
    status = os.environ.get(STATUS_FILE)
    return Path(status).with_name(name) if status and os.path.exists(status) else None
