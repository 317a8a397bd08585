"""Ctrl-C at every point of a call, one after the other, or at random moments."""

import contextlib
import os
import signal
import sys
import threading

from flows import PATIENCE
from slipstream.engine.stop_signals import signals_held

# Code whose locks an interrupt could cost, besides the package's own.
_OTHERS = {
    os.path.realpath(module.__file__)
    for module in (contextlib, threading, sys.modules["concurrent.futures._base"])
}
_PACKAGE = os.path.dirname(os.path.dirname(sys.modules[signals_held.__module__].__file__))


class Points:
    """The points of a call at which Python may handle a signal: more than there really are.

    They are all entries of functions and all lines, or, with `every`, all operations; with
    `begun`, those after the call has begun to hold signals back: before that, other ranks are in a
    call that this one has not made.
    """

    def __init__(self, every=False, begun=False):
        self._every, self._begun, self._files = every, begun, {}
        self.count, self._wanted = 0, None

    def run(self, call, wanted=None):
        """Call, with a signal at a point, by its number; return whether that raised."""
        self.count, self._wanted, self._counts = 0, wanted, not self._begun
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            call()
            return False
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)

    def _trace(self, frame, event, _argument):
        file = frame.f_code.co_filename
        if file not in self._files:
            path = os.path.realpath(file)
            self._files[file] = path.startswith(_PACKAGE) or path in _OTHERS
        if not self._files[file]:
            return None
        frame.f_trace_opcodes = self._every
        self._counts = self._counts or signals_held.depth > 0
        if not self._counts:
            return self._trace
        if self.count == self._wanted:
            self.count += 1
            handler = signal.getsignal(signal.SIGINT)
            handler(signal.SIGINT, frame)
        else:
            self.count += 1
        return self._trace


def spread(count, most):
    """Return `most` numbers of 0 to `count`, spread evenly, or all of them."""
    most = min(most, count)
    return sorted({round(i * (count - 1) / max(1, most - 1)) for i in range(most)})


@contextlib.contextmanager
def plain_handler():
    """Have Ctrl-C raise as Python has it, and find that again in the end."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
        with signals_held:
            pass  # settles what a signal has cut short in the hold itself
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signals_held.depth == 0
    finally:
        signal.signal(signal.SIGINT, before)


def ends(call):
    """Return what a call returns in another thread, which a lost lock would keep for ever."""
    results, errors = [], []

    def work():
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(min(60, PATIENCE))
    assert not thread.is_alive(), "hangs after an interrupt"
    if errors:
        raise errors[0]
    return results[0]


def interrupt_after(seconds):
    """Return a started timer that sends Ctrl-C to the main thread."""
    main = threading.main_thread().ident
    timer = threading.Timer(seconds, signal.pthread_kill, (main, signal.SIGINT))
    timer.daemon = True
    timer.start()
    return timer
