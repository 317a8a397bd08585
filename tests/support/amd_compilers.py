"""Compilers for AMD's GPUs, where they are installed: hiprtc, as runs use it, or else clang.

Neither needs a GPU. Of Debian 12, `libamdhip64-dev` has hiprtc for gfx90a, and with `clang-19`,
`lld-19` and `rocm-device-libs` there is a compiler for gfx942.
"""

import atexit
import ctypes.util
import functools
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from slipstream.device import nvrtc_processes
from slipstream.device.nvrtc_compiler import CompilationError
from slipstream.device.nvrtc_processes import AMD
from slipstream.private_cache import find_or_make

_EMPTY = 'extern "C" __global__ void nothing() {}'
_CLANGS = ("amdclang++", *(f"clang++-{version}" for version in range(25, 16, -1)), "clang++")
# Where ROCm is, and where its libraries for devices are below that.
_ROOTS = {
    "/opt/rocm": ("amdgcn/bitcode",),
    "/usr": ("lib/x86_64-linux-gnu/amdgcn/bitcode", "lib/amdgcn/bitcode"),
}


def compiler_for(architecture):
    """Return a function from texts to binaries; skip the test where there is no compiler."""
    reasons = []
    for compiler in (_by_hiprtc, _by_clang):
        try:
            compiler(_EMPTY, architecture)
        except (CompilationError, OSError) as failure:
            reasons.append(str(failure).strip().splitlines()[0])
        else:
            return functools.partial(_kept, compiler, architecture)
    pytest.skip(f"no compiler for {architecture}: {'; '.join(reasons)}")


def _kept(compiler, architecture, text):
    """Return the binary of a text, which is kept as those of runs are."""
    key = repr((compiler.__name__, compiler(_EMPTY, architecture), text, AMD.options)).encode()
    name = f"amd-{hashlib.sha256(key).hexdigest()}.cubin"
    return find_or_make(name, lambda folder: compiler(text, architecture))[1]


@functools.cache
def _by_hiprtc(text, architecture):
    process, library = _hiprtc(architecture)
    try:
        return process.compile(library, text, (*AMD.options, f"--offload-arch={architecture}"))
    except EOFError:  # it dies of architectures that it does not know
        raise OSError("hiprtc knows no such architecture") from None


@functools.cache
def _hiprtc(architecture):
    """Return a process that compiles for one architecture, and the library that it is to use."""
    found = (ctypes.util.find_library(name) for name in ("hiprtc", "amdhip64"))
    library = next((name for name in found if name), None)
    if library is None:
        raise OSError("hiprtc is not installed")
    process = nvrtc_processes._Process()
    atexit.register(process.end)
    return process, library


@functools.cache
def _by_clang(text, architecture):
    clang = next((found for found in map(shutil.which, _CLANGS) if found), None)
    root, libraries = _rocm()
    with tempfile.TemporaryDirectory() as folder:
        libraries = _with_isa(clang, libraries, architecture.removeprefix("gfx"), folder)
        Path(folder, "kernel.hip").write_text(text)
        command = [clang, "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output"]
        command += [f"--offload-arch={architecture}", f"--rocm-path={root}"]
        command += [f"--rocm-device-lib-path={libraries}", "-include", "hip/hip_runtime.h"]
        command += [*AMD.options, "-fuse-cuid=none", "-c", "kernel.hip", "-o", "kernel.o"]
        answer = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        if answer.returncode:
            raise CompilationError(answer.stderr)
        return Path(folder, "kernel.o").read_bytes()


def _rocm():
    """Return where ROCm is, and the folder of its libraries for devices."""
    for root, folders in _ROOTS.items():
        for folder in folders:
            has_headers = Path(root, "include/hip/hip_runtime.h").exists()
            if has_headers and Path(root, folder, "ocml.bc").exists():
                return root, Path(root, folder)
    raise OSError("there are no headers of HIP with libraries for devices")


def _with_isa(clang, libraries, number, folder):
    """Return a folder of the libraries and the constant that tells them the architecture.

    Those of Debian 12 know no gfx942, whose code differs from that of others in this number only.
    """
    if clang is None:
        raise OSError("clang is not installed")
    name = f"oclc_isa_version_{number}.bc"
    if (libraries / name).exists():
        return libraries
    for library in libraries.glob("*.bc"):
        Path(folder, library.name).symlink_to(library)
    source = Path(folder, "isa.c")
    value = 1000 * int(number[:-2]) + 100 * int(number[-2]) + int(number[-1], 16)
    attributes = '__attribute__((address_space(4), visibility("hidden")))'
    source.write_text(f"{attributes} const int __oclc_ISA_version = {value};\n")
    command = [clang, "-x", "c", "--target=amdgcn-amd-amdhsa", "-nogpulib", "-emit-llvm", "-c"]
    answer = subprocess.run(
        [*command, str(source), "-o", str(Path(folder, name))], capture_output=True, text=True
    )
    if answer.returncode:
        raise CompilationError(answer.stderr)
    return Path(folder)
