"""What tells the GPUs of one vendor from those of another, where CuPy does not hide it.

The twin of ``kernels/gpu_vendor.hpp``. It needs neither CuPy nor a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuVendor:
    """A vendor's run-time compiler, and limits of launches.

    Attributes
    ----------
    compiler : str
        For people.
    libraries : tuple of str
        How names of files begin that may be the compiler's library.
    options : tuple of str
        What all kernels are compiled with.
    architecture_option : str
        What the name of an architecture follows.
    usual_shared : int
        Bytes of shared memory that a block may have without asking for more.
    most_threads : int
        How many threads all blocks of a launch may have together.
    """

    compiler: str
    libraries: tuple[str, ...]
    options: tuple[str, ...]
    architecture_option: str
    usual_shared: int
    most_threads: int


# No contraction to fused multiply-adds: see FLAGS in `host_compiler`. The options about subnormal
# numbers are CuPy's, so that its kernels and these agree.
NVIDIA = GpuVendor(
    compiler="NVRTC",
    libraries=("libnvrtc.so",),
    options=("--std=c++17", "--fmad=false", "-ftz=true", "--device-as-default-execution-space"),
    architecture_option="-arch=",
    usual_shared=48 * 1024,
    most_threads=1 << 62,
)
AMD = GpuVendor(
    compiler="hiprtc",
    libraries=("libhiprtc.so", "libamdhip64.so"),  # the second has it before ROCm 6
    options=("-std=c++17", "-O3", "-ffp-contract=off", "-fgpu-flush-denormals-to-zero"),
    architecture_option="--offload-arch=",
    usual_shared=64 * 1024,
    most_threads=(1 << 32) - 1,  # the width of the size of a grid, which is counted in threads
)
