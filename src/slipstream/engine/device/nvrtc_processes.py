"""Programs for GPUs, compiled in parallel by a few processes while this one continues.

A process is started when there is work for it and ends shortly after it runs out of work. It also
ends with this one, whose end of the pipe is then closed. Binaries are kept on disk
(`engine/private_cache.py`); a program that several ranks of a node want is compiled once.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import queue
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path

from slipstream.engine.device import nvrtc_compiler
from slipstream.engine.device.host_compiler import COUNT
from slipstream.engine.device.nvrtc_compiler import CompilationError, compile_program
from slipstream.engine.errors import RunError
from slipstream.engine.private_cache import find_or_make
from slipstream.engine.stop_signals import signals_held

# No contraction to fused multiply-adds: see FLAGS in `host_compiler`. The options about subnormal
# numbers are CuPy's, so that its kernels and these agree.
OPTIONS = ("--std=c++17", "--fmad=false", "-ftz=true", "--device-as-default-execution-space")

# Each has the compiler in memory, about 100 MB.
_MOST_PROCESSES = 12
# Seconds without work after which a process ends.
_PATIENCE = 2.0


class SideCompiler:
    """Compiles programs with NVRTC's library at a path, in a limited number of processes."""

    def __init__(self, library: str, version: str, processes: int | None = None) -> None:
        self._library = library
        size = os.path.getsize(library)  # distinguishes builds of one version
        self._identity = f"NVRTC {version} of {size} bytes"
        cores = len(os.sched_getaffinity(0))
        self._most = min(_MOST_PROCESSES, cores) if processes is None else processes
        self._queue: queue.SimpleQueue[tuple[str, tuple[str, ...], Future[bytes]]]
        self._queue = queue.SimpleQueue()
        self._threads = 0

    def submit(self, text: str, options: tuple[str, ...]) -> Future[bytes]:
        """Return a future of the binary of a program."""
        binary: Future[bytes] = Future()
        with signals_held:
            self._queue.put((text, options, binary))
            COUNT.add_waiting(1)
            if self._threads < max(1, self._most):
                self._threads += 1
                # A daemon: nothing is lost if the process ends before everything is compiled.
                threading.Thread(target=self._work, daemon=True).start()
        return binary

    def _work(self) -> None:
        process: _Process | None = None
        while True:
            try:
                text, options, binary = self._queue.get(timeout=_PATIENCE if process else None)
            except queue.Empty:
                process = _end(process)
                continue
            COUNT.add_waiting(-1)
            key = hashlib.sha256("\0".join([text, *options, self._identity]).encode()).hexdigest()

            def compiled(_: Path, text: str = text, options: tuple[str, ...] = options) -> bytes:
                nonlocal process
                with COUNT.one_running():
                    if self._most > 1:
                        try:
                            process = process or _Process()
                            return process.compile(self._library, text, options)
                        except (OSError, EOFError, pickle.UnpicklingError):
                            # It was killed, or could not be started: this process compiles.
                            process = _end(process)
                    return compile_program(self._library, text, options)

            try:
                binary.set_result(find_or_make(f"{key}.cubin", compiled)[1])
            except CompilationError as error:
                binary.set_exception(RunError(f"NVRTC failed: {error}"))
            except BaseException as error:
                binary.set_exception(error)


class _Process:
    def __init__(self) -> None:
        # Isolated: only the standard library.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", nvrtc_compiler.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def compile(self, *request: object) -> bytes:
        requests, answers = self._process.stdin, self._process.stdout
        if requests is None or answers is None:
            raise EOFError
        pickle.dump(request, requests)
        requests.flush()
        content: bytes
        is_compiled, content = pickle.load(answers)
        if not is_compiled:
            raise CompilationError(content.decode())
        return content

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def _end(process: _Process | None) -> _Process | None:
    """End a process, if there is one; return None."""
    if process is not None:
        process.end()
    return None


def loaded_library(name: str) -> str | None:
    """Return the path of a library that this process has loaded, the first by such a name."""
    with open("/proc/self/maps") as file:
        paths = [line.rstrip("\n").partition("/")[2] for line in file]
    return next((f"/{path}" for path in paths if Path(path).name.startswith(name)), None)
