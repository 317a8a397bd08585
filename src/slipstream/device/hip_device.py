"""An AMD GPU as a device, through CuPy's build for ROCm. No part of it has ever run on one.

That build has HIP's functions by CUDA's names, so this is a `CudaDevice` but for what it lacks, as
far as its sources (14.2) tell. Copies of rectangles, pinning of memory that the process has
already, and graphs of whole steps are called in HIP's own library (`hip_runtime.py`); tests have a
stand-in for it. Memory of other ranks in which flags are seen while kernels run is not there:
the transport "peer" is refused.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from slipstream.device.array_addresses import address_of
from slipstream.device.cuda_device import CudaDevice, CudaStream
from slipstream.device.cuda_kernel import load_kernels
from slipstream.device.device_interface import Operation
from slipstream.device.hip_runtime import HipRuntime
from slipstream.device.nvrtc_processes import AMD
from slipstream.errors import InputError


class HipStream(CudaStream):
    """A stream of an AMD GPU."""

    def capture(self, enqueue: Callable[[], None]) -> Operation:
        load_kernels()
        runtime = _runtime()
        with self._device.context:
            runtime.begin_capture(self.handle.ptr)
            try:
                enqueue()
            except BaseException:
                with contextlib.suppress(Exception):  # which would hide the first failure
                    runtime.end_capture(self.handle.ptr)
                raise
            graph = runtime.end_capture(self.handle.ptr)
        return lambda stream: graph.launch(cast(HipStream, stream).handle.ptr)


class HipDevice(CudaDevice):
    """One AMD GPU. Untested."""

    kind = "hip"
    vendor = AMD
    stream_class = HipStream
    pins_any_memory = False

    def __init__(self, ordinal: int = 0) -> None:
        super().__init__(ordinal)
        self.name = f"{self.name} (untested)"

    def _shared_memory_limit(self, properties: dict[str, Any]) -> int:
        return int(properties["sharedMemPerBlock"])

    def _architecture(self, properties: dict[str, Any]) -> str:
        return str(properties["gcnArchName"].decode())  # such as gfx90a:sramecc+:xnack-

    def pin(self, memory: np.ndarray) -> None:
        runtime, address = _runtime(), address_of(memory)
        with self.context:
            is_pinned = runtime.pin(address, memory.nbytes)
        if not is_pinned:
            raise InputError(
                f"{self.name} reaches memory that ranks share on the host under another address; "
                "accepted with device 'hip': transport 'mpi-p2p' or 'mpi'"
            )
        weakref.finalize(memory, runtime.unpin, address).atexit = False

    def is_pinned(self, array: np.ndarray) -> bool:
        with self.context:
            return _runtime().is_pinned(address_of(array))

    @staticmethod
    def _copy_rectangle(*rectangle: int) -> None:
        _runtime().copy_rectangle(*rectangle)


@functools.cache
def _runtime() -> HipRuntime:
    return HipRuntime()
