"""Which device a rank opens.

A GPU is one object in a process, however often it is opened: operations of different plans, and of
what plans share, then belong to the same device, and their steps need no host to order them.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from slipstream.device.cpu_device import HostDevice, lane_count, thread_count
from slipstream.device.device_interface import Device
from slipstream.errors import InputError

if TYPE_CHECKING:
    from slipstream.device.cuda_device import CudaDevice


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


def open_device(kind: str = "auto", local_rank: int = 0, ranks: int = 1) -> Device:
    """Return the CPU or a GPU, the same object every time.

    "auto" takes a GPU if there is one. Ranks share the node's GPUs in turn, by `local_rank`; with
    several in all, a CPU of many threads has fewer lanes.
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
        threads = thread_count()
        return _host(threads, lane_count(threads, alone=ranks == 1))
    return _gpu(local_rank % count)


def open_devices(first: Device, local_rank: int, count: int) -> list[Device]:
    """Return several devices for one rank: GPUs, or objects of the CPU that stand for as many."""
    if first.kind == "cpu":
        alike = first.tiled_transforms()
        threads = thread_count()
        others = (_host(threads, lane_count(threads), alike, n) for n in range(1, count))
        return [first, *others]
    found = cuda_device_count()
    if count > found:
        raise InputError(f"streaming: devices is {count}; this node has {found} GPUs")
    # The one that is opened last is CuPy's current device: the first.
    opened = [_gpu((local_rank * count + i) % found) for i in reversed(range(count))]
    return [*reversed(opened)]


@functools.cache
def _host(threads: int, lanes: int, tiled: bool = False, number: int = 0) -> Device:
    """Return the CPU; those of different numbers stand for different GPUs."""
    return HostDevice(tiled=tiled, threads=threads, lanes=lanes)


def _gpu(ordinal: int) -> CudaDevice:
    device = _opened_gpu(ordinal)
    device.make_current()
    return device


@functools.cache
def _opened_gpu(ordinal: int) -> CudaDevice:
    from slipstream.device.cuda_device import CudaDevice

    return CudaDevice(ordinal)
