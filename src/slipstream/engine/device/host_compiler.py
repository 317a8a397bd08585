"""Kernels for CPUs: the system C++ compiler, in the background and behind a cache."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import platform
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

from slipstream.engine.errors import InputError, RunError
from slipstream.engine.private_cache import SCRATCH, find_or_make
from slipstream.engine.processes import renew_in_child, result_of
from slipstream.engine.stop_signals import signals_held

# No contraction: multiply and add round separately, as in the GPU build, unless a kernel asks
# for fma(); that is what lets both machines give the same bits.
FLAGS = (
    "-std=c++17",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp",
    "-fPIC",
    "-shared",
    "-w",
    # Registers of MMX share their state with long double numbers: a kernel that leaves them in use
    # makes NumPy's transforms not-a-number.
    *(["-mno-mmx"] if platform.machine().lower() in ("x86_64", "amd64") else []),
)
# The processor that kernels are compiled for, a name that the compiler takes after -march=.
# Machines that name the same processor can share a cache.
MARCH = "SLIPSTREAM_MARCH"
# Levels of optimisation give the same bits, since FLAGS allow no arithmetic to be rearranged. Tests
# take a level that compiles in half the time.
OPTIMISATION = "SLIPSTREAM_OPTIMISATION"
# The levels that are accepted.
_LEVELS = ("0", "1", "2", "3")
# The most threads that compile.
_MOST_THREADS = 8
# Seconds without work after which a thread ends.
_PATIENCE = 2.0
# Seconds that the end of the process waits for compilers that it has stopped.
_AT_EXIT = 2.0


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
        """Count a kernel that waits, or by -1 a kernel that waits no longer."""
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


def optimisation_level() -> str:
    """Return the level in ``$SLIPSTREAM_OPTIMISATION``, by default 3.

    Raises
    ------
    InputError
        If it is none of 0 to 3.
    """
    level = os.environ.get(OPTIMISATION) or _LEVELS[-1]
    if level not in _LEVELS:
        raise InputError(f"{OPTIMISATION}: {level!r} is no level; use {', '.join(_LEVELS)}")
    return level


def find_compiler() -> list[str]:
    """Return the command of the C++ compiler: ``$CXX``, else g++, c++ or clang++ on the path."""
    if os.environ.get("CXX"):
        command = shlex.split(os.environ["CXX"])
        if shutil.which(command[0]):
            return command
        raise RunError(f"the C++ compiler named by CXX, {command[0]!r}, is not on the path")
    for name in ("g++", "c++", "clang++"):
        if shutil.which(name):
            return [name]
    raise RunError(
        "no C++ compiler found: install one (Debian, Ubuntu: 'apt install g++'; Fedora: "
        "'dnf install gcc-c++'; conda: 'conda install cxx-compiler') or set CXX to its name"
    )


@functools.cache
def compiler_identity(command: tuple[str, ...], path: str | None, march: str) -> str:
    """Return version, resolved target and binary interface as one text.

    The path of the compiler that the command finds is passed for the cache alone.

    Raises
    ------
    InputError
        If the compiler does not know the target.
    """
    version = subprocess.run([*command, "--version"], capture_output=True, text=True)
    verbose = [*command, f"-march={march}", "-E", "-x", "c++", "-v", os.devnull]
    target = subprocess.run(verbose, capture_output=True, text=True)
    if target.returncode and march != "native":
        raise InputError(
            f"{MARCH}: {command[0]} does not know {march!r}; use native, or a processor that it"
            " accepts after -march="
        )
    # The front end's command line is where -march=native has been expanded.
    expanded = [line for line in target.stderr.splitlines() if "cc1" in line]
    interface = (platform.machine(), sys.platform, *platform.libc_ver())
    return "\n".join([version.stdout, *expanded, *interface])


def compile_library(text: str, fast: bool = True) -> Path:
    """Return the path of the shared library made from C++ `text`, compiled if it is not cached.

    What need not be `fast` is compiled in a tenth of the time.
    """
    command, march = find_compiler(), os.environ.get(MARCH) or "native"
    identity = compiler_identity(tuple(command), shutil.which(command[0]), march)
    flags = (f"-O{optimisation_level() if fast else 0}", f"-march={march}", *FLAGS)
    key_text = "\0".join([text, " ".join(flags), identity])
    key = hashlib.sha256(key_text.encode()).hexdigest()
    return find_or_make(f"{key}.so", lambda folder: _compile([*command, *flags], text, folder))[0]


def _compile(command: list[str], text: str, folder: Path) -> bytes:
    with tempfile.TemporaryDirectory(dir=folder, prefix=SCRATCH) as scratch:
        source, target = Path(scratch, "kernel.cpp"), Path(scratch, "kernel.so")
        source.write_text(text, encoding="utf-8")
        arguments = [*command, str(source), "-o", str(target)]
        with COUNT.one_running():
            status, messages = _run(arguments)
        if status:
            raise RunError(f"the C++ compiler failed: {' '.join(arguments)}\n{messages}")
        return target.read_bytes()


# Compilers that are running, by process, and for how many callers of `no_compilers` they may not.
_running: set[subprocess.Popen[str]] = set()
_forbidden = 0


def _run(arguments: list[str]) -> tuple[int, str]:
    """Run a compiler; return its status and its output."""
    # In its own process group: Ctrl-C is for the run, which finishes the step that needs the
    # kernel, and a compiler that is stopped ends with its passes.
    process = subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    _running.add(process)
    if _forbidden:
        _stop(process)
    messages = ""

    def is_over(seconds: float) -> bool:
        nonlocal messages
        try:
            messages = process.communicate(timeout=seconds)[1]
        except subprocess.TimeoutExpired:
            return False
        return True

    try:
        signals_held.wait(is_over, own=1)
    except BaseException:
        _stop(process)
        process.communicate()
        raise
    finally:
        _running.discard(process)
    return process.returncode, messages


@contextlib.contextmanager
def no_compilers() -> Iterator[None]:
    """End all running compilers, and any that start within the context.

    Their callers get an error.
    """
    global _forbidden
    _forbidden += 1
    for process in list(_running):
        _stop(process)
    try:
        yield
    finally:
        _forbidden -= 1


def _stop(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


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
        with signals_held, self._lock:
            begun = self._libraries.get((text, fast))
            is_compiled = begun and begun.done() and not (begun.cancelled() or begun.exception())
            if is_needed and not is_compiled:
                self._needed[text, fast] = None
            if begun is not None:
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
        with signals_held:
            with self._lock:
                begun = self._libraries.setdefault((text, fast), Future())
            if not begun.done():
                self._compile(text, fast, begun)
            try:
                return result_of(begun, own=1)
            except Exception:
                # Whoever needs it next tries again.
                with self._lock:
                    self._libraries.pop((text, fast), None)
                raise

    def finish(self) -> None:
        """Wait for all programs that have been begun and are needed."""
        while True:
            with self._lock:
                # Another thread may have finished the last one by now.
                program = next(iter(self._needed), None)
            if program is None:
                return
            self.library(*program)
            with self._lock:
                self._needed.pop(program, None)

    def stop(self) -> None:
        """Compile nothing more, and end compilers that are running."""
        with signals_held, self._lock:
            for library in self._libraries.values():
                library.cancel()
        with signals_held, no_compilers():
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
            library.set_result(compile_library(text, fast))
        except Exception as error:
            library.set_exception(error)
        except BaseException:  # the user's interrupt, here in the main thread
            with self._lock:
                self._libraries.pop((text, fast), None)
            library.set_exception(RunError("the compiler was interrupted"))
            raise


COMPILATIONS = HostCompilations()
