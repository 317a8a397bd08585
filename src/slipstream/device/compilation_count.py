"""How many kernels wait for the compiler, are compiled now, and have been compiled by this process.

Those that the cache has do not count: only who compiles knows that it has not.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from slipstream.process_threads import renew_in_child


class CompilationCount:
    """Numbers that threads change, and who shows progress reads."""

    def __init__(self) -> None:
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Count nothing of the parent process."""
        self.waiting = self.running = self.compiled = 0
        self._lock = threading.Lock()

    def add_waiting(self, number: int) -> None:
        """Count a kernel that waits, or, by -1, one that does not any more."""
        with self._lock:
            self.waiting += number

    @contextlib.contextmanager
    def one_running(self) -> Iterator[None]:
        """Count a kernel that is compiled, by the context."""
        with self._lock:
            self.running += 1
        try:
            yield
        finally:
            with self._lock:
                self.running -= 1
                self.compiled += 1


COUNT = CompilationCount()
