"""The system C++ compiler behind a content-addressed cache.

A compiled kernel is found again by what it depends on: the full source text, the flags, the
compiler's version, the target that ``-march`` means on this machine, and the binary interface.
Entries lie where nobody else can write, and are made once per node (`private_cache.py`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from slipstream.device.compilation_count import COUNT
from slipstream.errors import InputError, RunError
from slipstream.private_cache import SCRATCH, find_or_make

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
_LEVELS = ("0", "1", "2", "3")


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
    """Run a compiler; return its status and what it has to say."""
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
    try:
        messages = process.communicate()[1]
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
