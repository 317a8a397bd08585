"""An AMD GPU as a device, through CuPy's build for ROCm. Untested: no part of it has ever run.

That build has HIP's functions by CUDA's names, so this is a `CudaDevice` but for what it lacks, as
far as its sources (14.2) tell: CUDA graphs, which `commit` makes of kind "cuda" only; copies of
rectangles; pinning of memory that the process has already; and memory of other ranks in which flags
are seen while kernels run, for which the transport "peer" is refused.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from slipstream.device.cuda_device import CudaDevice
from slipstream.device.nvrtc_processes import AMD
from slipstream.errors import InputError


class HipDevice(CudaDevice):
    """One AMD GPU. Untested."""

    kind = "hip"
    vendor = AMD

    def __init__(self, ordinal: int = 0) -> None:
        super().__init__(ordinal)
        self.name = f"{self.name} (untested)"

    def _shared_memory_limit(self, properties: dict[str, Any]) -> int:
        return int(properties["sharedMemPerBlock"])

    def _architecture(self, properties: dict[str, Any]) -> str:
        return str(properties["gcnArchName"].decode())  # such as gfx90a:sramecc+:xnack-

    def pin(self, memory: np.ndarray) -> None:
        raise InputError(
            f"{self.name} cannot reach memory that ranks share on the host; accepted with device"
            " 'hip': transport 'mpi-p2p' or 'mpi'"
        )

    def is_pinned(self, array: np.ndarray) -> bool:
        try:
            return super().is_pinned(array)
        except cupy.cuda.runtime.CUDARuntimeError:  # HIP knows nothing of other memory
            return False

    @staticmethod
    def _copy_rectangle(
        target: int,
        target_pitch: int,
        source: int,
        source_pitch: int,
        width: int,
        height: int,
        kind: int,
        stream: int,
    ) -> None:
        """Copy a rectangle row by row."""
        for row in range(height):
            to, of = target + row * target_pitch, source + row * source_pitch
            cupy.cuda.runtime.memcpyAsync(to, of, width, kind, stream)
