"""Facts about this machine and this installation, for people and for benchmark records.

Each fact is found independently and none may fail: a machine without GPU, MPI or compiler is
as legitimate as any, and says so in its table.
"""

import functools
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

from slipstream import __version__
from slipstream.device.host_compiler import find_compiler
from slipstream.mpi_launch import INSTALL_MPI, find_mpiexec, how_to_install
from slipstream.private_cache import cache_text


def gather_facts() -> dict[str, str]:
    """Return facts about machine and installation, in the order in which to show them."""
    sources: dict[str, Callable[[], str]] = {
        "Slipstream": lambda: __version__,
        "Python": platform.python_version,
        "NumPy": lambda: importlib.metadata.version("numpy"),
        "CPU": _processor,
        "GPU": _graphics_processors,
        "MPI": mpi_library,
        "mpiexec": lambda: find_mpiexec(),
        "C++ compiler": lambda: _compiler_version(*find_compiler()),
        "transports": _transports,
        "cache folder": cache_text,
    }
    return {name: _found(source) for name, source in sources.items()}


def _found(source: Callable[[], str]) -> str:
    try:
        return source()
    except Exception as error:  # any library may be missing or broken in any way
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return f"not available ({reason})"


def _processor() -> str:
    from slipstream.device.cpu_device import processor_name

    cores = len(os.sched_getaffinity(0))
    return f"{processor_name()}, {cores} {'core' if cores == 1 else 'cores'}"


def _graphics_processors() -> str:
    if importlib.util.find_spec("cupy") is None:
        return f"none: CuPy is not installed; {how_to_install('cuda13')}"
    import cupy

    lines = []
    for index in range(cupy.cuda.runtime.getDeviceCount()):
        properties = cupy.cuda.runtime.getDeviceProperties(index)
        memory = properties["totalGlobalMem"] / 2**30
        lines.append(f"{properties['name'].decode()}, {memory:.0f} GiB")
    return "\n".join(lines) or "none"


def mpi_library() -> str:
    """Return the MPI library and the version of mpi4py."""
    if importlib.util.find_spec("mpi4py") is None:
        return f"none: mpi4py is not installed; {INSTALL_MPI}"
    import mpi4py

    # Asking for the version needs no running MPI, whose start may take long or print.
    mpi4py.rc.initialize = False
    from mpi4py import MPI

    library = MPI.Get_library_version().partition(",")[0].splitlines()[0].strip("\0 ")
    library = " ".join(library.replace("Version:", "").split())  # MPICH's words
    return f"{library}, mpi4py {mpi4py.__version__}"


def compiler_name() -> str:
    """Return the C++ compiler of this machine and its version, or why there is none."""
    return _found(lambda: _compiler_version(*find_compiler()))


@functools.cache
def _compiler_version(*command: str) -> str:
    answer = subprocess.run(
        [*command, "--version"], capture_output=True, text=True, check=True, timeout=20
    )
    return answer.stdout.splitlines()[0]


def facts_to_publish() -> dict[str, str]:
    """Return the facts without paths, which are private and explain no figure."""
    return {k: v for k, v in gather_facts().items() if k not in ("cache folder", "mpiexec")}


@functools.cache
def commit_name() -> str:
    """Return the commit of the source tree, marked if changed; "unknown" outside of one."""
    folder, unknown = Path(__file__).parent, os.environ.get("SLIPSTREAM_COMMIT", "unknown")
    if "site-packages" in folder.parts:
        return unknown  # where an environment lies within a tree, that is of something else
    git = ["git", "--no-optional-locks", "-C", str(folder)]
    command = [*git, "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return unknown
    return result.stdout.strip() or unknown


def _transports() -> str:
    if importlib.util.find_spec("mpi4py") is None:
        return "none (one rank only)"
    from slipstream.device import cuda_device_count
    from slipstream.exchange import names_on

    return ", ".join(names_on("cuda" if cuda_device_count() else "cpu"))
