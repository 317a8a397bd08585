"""Kernels for CPUs, compiled in the background as soon as they are bound.

A few threads run the compiler, each as a process. A caller that needs a kernel that none of them
has started compiles it immediately. A forked process has no such threads: its callers compile
everything themselves.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
from concurrent.futures import Future
from pathlib import Path

from slipstream.device import host_compiler
from slipstream.device.compilation_count import COUNT
from slipstream.errors import RunError
from slipstream.process_threads import renew_in_child

_MOST_THREADS = 8
# Seconds without work after which a thread ends.
_PATIENCE = 2.0
# Seconds that the end of the process waits for compilers that it has stopped.
_AT_EXIT = 2.0

# A source text, and whether the kernel is to be fast.
_Program = tuple[str, bool]


class HostCompilations:
    """The programs that have been begun, and the threads that compile them."""

    def __init__(self) -> None:
        self._most = min(_MOST_THREADS, len(os.sched_getaffinity(0)))
        self.renew()
        renew_in_child(self)
        atexit.register(self.stop)

    def renew(self) -> None:
        """Do without the threads of the parent process."""
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[_Program | None] = queue.SimpleQueue()
        self._libraries: dict[_Program, Future[Path]] = {}
        self._needed: dict[_Program, None] = {}
        self._threads: list[threading.Thread] = []

    def begin(self, text: str, fast: bool, is_needed: bool = True) -> None:
        """Have a program compiled in the background, if it has not been begun.

        `finish` waits for it if it is needed.
        """
        with self._lock:
            if is_needed:
                self._needed[text, fast] = None
            if (text, fast) in self._libraries:
                return
            self._libraries[text, fast] = Future()
            self._queue.put((text, fast))
            COUNT.add_waiting(1)
            self._threads = [one for one in self._threads if one.is_alive()]
            if len(self._threads) < self._most:
                # A daemon: nothing is lost if the process ends before everything is compiled.
                thread = threading.Thread(target=self._work, daemon=True)
                self._threads.append(thread)
                thread.start()

    def library(self, text: str, fast: bool) -> Path:
        """Return the shared library of a program, once it is compiled.

        Raises
        ------
        RunError
            If it cannot be.
        """
        with self._lock:
            begun = self._libraries.setdefault((text, fast), Future())
        self._compile(text, fast, begun)
        try:
            return begun.result()
        except Exception:
            # Whoever needs it next tries again.
            with self._lock:
                self._libraries.pop((text, fast), None)
            raise

    def finish(self) -> None:
        """Wait for all programs that have been begun and are needed."""
        while self._needed:
            with self._lock:
                program = next(iter(self._needed))
            self.library(*program)
            with self._lock:
                self._needed.pop(program, None)

    def stop(self) -> None:
        """Compile nothing more, and end compilers that are running."""
        with self._lock:
            for library in self._libraries.values():
                library.cancel()
        with host_compiler.no_compilers():
            for _ in self._threads:
                self._queue.put(None)
            for thread in self._threads:
                thread.join(_AT_EXIT)

    def _work(self) -> None:
        while True:
            try:
                program = self._queue.get(timeout=_PATIENCE)
            except queue.Empty:
                return
            if program is None:
                return
            COUNT.add_waiting(-1)
            library = self._libraries.get(program)
            if library is not None:
                self._compile(*program, library)

    def _compile(self, text: str, fast: bool, library: Future[Path]) -> None:
        """Compile a program, unless that has been begun or stopped."""
        with self._lock:
            if library.running() or library.done():
                return
            library.set_running_or_notify_cancel()
        try:
            library.set_result(host_compiler.compile_library(text, fast))
        except Exception as error:
            library.set_exception(error)
        except BaseException:  # the user's interrupt, here in the main thread
            with self._lock:
                self._libraries.pop((text, fast), None)
            library.set_exception(RunError("the compiler was interrupted"))
            raise


COMPILATIONS = HostCompilations()
