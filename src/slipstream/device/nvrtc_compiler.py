"""Compilation by the NVRTC library. Run as a script, it compiles programs for its parent process.

NVRTC compiles one program at a time per process, however many threads there are, so
`nvrtc_processes.py` starts several of these. They need no GPU and only the standard library, so
they start quickly. A request is the library, the source text and the options; an answer says
whether the binary or the compiler's log follows.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

# No contraction to fused multiply-adds: see FLAGS in `host_compiler`. The others are CuPy's, so
# that its kernels and these agree about subnormal numbers.
OPTIONS = ("--std=c++17", "--fmad=false", "-ftz=true", "--device-as-default-execution-space")


class CompilationError(Exception):
    """The compiler's log."""


def compile_program(library: str, text: str, options: Sequence[str]) -> bytes:
    """Return the binary of a program, compiled by the NVRTC library at a path.

    Raises
    ------
    CompilationError
        If the program does not compile.
    """
    nvrtc = _loaded(library)
    program = ctypes.c_void_p()
    _check(
        nvrtc,
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None),
    )
    try:
        arguments = [option.encode() for option in options]
        array = (ctypes.c_char_p * len(arguments))(*arguments)
        if nvrtc.nvrtcCompileProgram(program, len(arguments), array):
            log = _output(nvrtc, program, "ProgramLog")
            raise CompilationError(log.rstrip(b"\0").decode(errors="replace"))
        return _output(nvrtc, program, "CUBIN")
    finally:
        _check(nvrtc, nvrtc.nvrtcDestroyProgram(ctypes.byref(program)))


@functools.cache
def _loaded(library: str) -> Any:
    nvrtc = ctypes.CDLL(library)
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    return nvrtc


def _output(nvrtc: Any, program: ctypes.c_void_p, kind: str) -> bytes:
    size = ctypes.c_size_t()
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)))
    content = ctypes.create_string_buffer(size.value)
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{kind}")(program, content))
    return content.raw


def _check(nvrtc: Any, status: int) -> None:
    if status:
        raise CompilationError(nvrtc.nvrtcGetErrorString(status).decode())


def _serve() -> None:
    """Answer requests until the parent closes the pipe or ends; then exit at once."""
    # A parent that is asked to stop still finishes its step, which may need a kernel.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    requests: queue.SimpleQueue[tuple[str, str, tuple[str, ...]]] = queue.SimpleQueue()
    # What the compiler prints must not be mixed with the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def work() -> None:
        while True:
            try:
                answer = True, compile_program(*requests.get())
            except CompilationError as error:
                answer = False, str(error).encode()
            pickle.dump(answer, answers)
            answers.flush()

    threading.Thread(target=work, daemon=True).start()
    while True:
        try:
            requests.put(pickle.load(sys.stdin.buffer))
        except EOFError:
            os._exit(0)


if __name__ == "__main__":
    _serve()
