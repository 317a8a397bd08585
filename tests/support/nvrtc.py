"""NVRTC from its wheel: compiles for GPUs on machines that have none."""

import hashlib
from functools import cache
from importlib.metadata import files, version

from slipstream.engine.device.nvrtc_compiler import compile_program
from slipstream.engine.private_cache import find_or_make

_PACKAGE = "nvidia-cuda-nvrtc"


@cache
def library():
    """Return the path of the library of the ``nvidia-cuda-nvrtc`` package."""
    (path,) = (entry for entry in files(_PACKAGE) if entry.match("libnvrtc.so.*"))
    return str(path.locate())


def compiled(text, architecture, options=()):
    """Return the binary of `text` for a GPU such as ``"sm_90"``; it is kept as those of runs are.

    Nothing is kept of a text that does not compile.
    """
    options = (*options, f"--gpu-architecture={architecture}")
    key = repr((version(_PACKAGE), text, options)).encode()
    name = f"nvrtc-{hashlib.sha256(key).hexdigest()}.cubin"
    return find_or_make(name, lambda folder: compile_program(library(), text, options))[1]
