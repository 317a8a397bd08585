"""NVRTC from its wheel: compiles for GPUs on machines that have none."""

from functools import cache
from importlib.metadata import files

from slipstream.device.nvrtc_compiler import compile_program


@cache
def library():
    """Return the path of the library of the ``nvidia-cuda-nvrtc`` package."""
    (path,) = (entry for entry in files("nvidia-cuda-nvrtc") if entry.match("libnvrtc.so.*"))
    return str(path.locate())


def compiled(text, architecture, options=()):
    """Return the binary of `text` for a GPU such as ``"sm_90"``."""
    return compile_program(library(), text, (*options, f"--gpu-architecture={architecture}"))
