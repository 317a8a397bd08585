"""Processors: buffers, streams, events, run-time compiled kernels and local transforms.

`open_device` returns a `Device`, the contract in `base`; `host` and `cuda` implement it.
"""

import os

from slipstream.device.array_addresses import REAL_NAMES, address_of
from slipstream.device.copy_bandwidth import large_copy, quick_bandwidth
from slipstream.device.cpu_device import HostDevice
from slipstream.device.device_interface import (
    BlockLaunch,
    Device,
    Event,
    Kernel,
    Operation,
    RowLaunch,
    Scratch,
    Span,
    Stream,
)
from slipstream.errors import InputError

__all__ = [
    "REAL_NAMES",
    "BlockLaunch",
    "Device",
    "Event",
    "HostDevice",
    "Kernel",
    "Operation",
    "RowLaunch",
    "Scratch",
    "Span",
    "Stream",
    "address_of",
    "cuda_device_count",
    "large_copy",
    "open_device",
    "open_devices",
    "quick_bandwidth",
]


def cuda_device_count() -> int:
    """Return how many GPUs CuPy sees; 0 without CuPy, a driver or a GPU."""
    # A kernel that waits for another GPU must not keep the work of other streams waiting behind it
    # in one of the few queues that CUDA has by default. It is read when CUDA starts.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    try:
        import cupy

        return cupy.cuda.runtime.getDeviceCount()
    except Exception:  # CuPy raises its own, private kinds when driver or GPU are missing
        return 0


def open_device(kind: str = "auto", local_rank: int = 0) -> Device:
    """Open the CPU or a GPU.

    Parameters
    ----------
    kind : {"auto", "cpu", "cuda"}
        "auto" takes a GPU if there is one.
    local_rank : int
        Rank within the node: ranks share the node's GPUs in turn.

    Raises
    ------
    InputError
        If `kind` is unknown, or "cuda" is asked for where there is none.
    """
    if kind not in ("auto", "cpu", "cuda"):
        raise InputError(f"device {kind!r} is unknown; accepted: auto, cpu, cuda")
    count = cuda_device_count() if kind != "cpu" else 0
    if kind == "cuda" and not count:
        raise InputError(
            "device 'cuda' was asked for, but CuPy finds no GPU; install the extra for your "
            "driver (pip install 'slipstream[cuda13]') or use device 'cpu'"
        )
    if not count:
        return HostDevice()
    from slipstream.device.cuda_device import CudaDevice

    return CudaDevice(local_rank % count)


def open_devices(first: Device, local_rank: int, count: int) -> list[Device]:
    """Open several devices for one rank.

    Parameters
    ----------
    first : Device
        A device of the rank's; the CPU stands for as many as one likes.
    local_rank : int
        Rank within the node: each has the next `count` GPUs.
    count : int
        How many.

    Raises
    ------
    InputError
        If the node has not so many GPUs.
    """
    if first.kind == "cpu":
        alike = first.tiled_transforms()
        return [first, *(HostDevice(tiled=alike) for _ in range(count - 1))]
    found = cuda_device_count()
    if count > found:
        raise InputError(f"streaming: devices is {count}; this node has {found} GPUs")
    from slipstream.device.cuda_device import CudaDevice

    # The one that is opened last is CuPy's current device: the first.
    return [CudaDevice((local_rank * count + i) % found) for i in reversed(range(count))][::-1]
