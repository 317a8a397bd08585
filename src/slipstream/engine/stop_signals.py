"""Signals that ask a command to stop, from its first import to its last line.

While a run steps, `slipstream.engine.processes` takes them as a request to finish the step,
write and leave. Before and after, nothing would be lost: they raise `StopRequest` then. Nothing but
Python's own modules is imported here, since a command listens before it loads anything else.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

# Launchers answer an interrupt by killing the ranks, but all of them pass this one on.
STOP_SIGNAL = signal.SIGUSR1
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, STOP_SIGNAL)
# One request may arrive as several signals, from the terminal and from the launcher.
SECONDS_OF_ONE_REQUEST = 1.0
# Names a file for the exit status; rank 0 and its starter exchange messages in files next to it.
STATUS_FILE = "SLIPSTREAM_STATUS_FILE"

_INTERRUPTED = 130  # what shells return for a command that Ctrl-C has ended
_last_at = -SECONDS_OF_ONE_REQUEST


class StopRequest(BaseException):
    """A signal asks for the end, and there is nothing to finish.

    No `Exception`, since ranks must not tell each other: each gets the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__("interrupted")
        self.is_interrupt = number == signal.SIGINT
        self.exit_status = _INTERRUPTED if self.is_interrupt else 1


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
