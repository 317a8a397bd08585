"""Which device a rank opens.

A GPU is one object in a process, however often it is opened: operations of different plans, and of
what plans share, then belong to the same device, and their steps need no host to order them.
"""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from slipstream.engine.accepted import DEVICES
from slipstream.engine.device.cpu_device import HostDevice, lane_count
from slipstream.engine.device.device_interface import Device
from slipstream.engine.device.memory import touch
from slipstream.engine.device.noting_device import NotingDevice
from slipstream.engine.errors import InputError
from slipstream.engine.processes import how_to_install, thread_count

if TYPE_CHECKING:
    from slipstream.engine.device.cuda_device import CudaDevice


def cuda_device_count() -> int:
    """Return the number of NVIDIA GPUs that CuPy sees; 0 without CuPy, a driver or a GPU."""
    # A kernel that waits for another GPU must not keep the work of other streams waiting behind it
    # in one of the few queues that CUDA has by default. It is read when CUDA starts.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    try:
        import cupy

        runtime = cupy.cuda.runtime
        return 0 if runtime.is_hip else int(runtime.getDeviceCount())
    except Exception:  # CuPy raises its own, private kinds when driver or GPU are missing
        return 0


def visible_gpus() -> list[str]:
    """Return the addresses on the bus of the GPUs that this process sees, by their ordinals."""
    count = cuda_device_count()
    if not count:
        return []
    import cupy

    return [cupy.cuda.runtime.deviceGetPCIBusId(ordinal) for ordinal in range(count)]


def current_gpu() -> int:
    """Return the ordinal of CuPy's current device, which users may have chosen."""
    import cupy

    return int(cupy.cuda.runtime.getDevice())


def choose_gpus(seen: Sequence[Sequence[str]]) -> list[int]:
    """Return the ordinal of the GPU that each rank of a node takes, by the GPUs that each sees.

    They share as few as they can: in turn, where all see the same. Raises `InputError` if ranks
    would have the same one while another is idle.
    """
    ranks_of_gpu: dict[str, list[int]] = {gpu: [] for gpus in seen for gpu in gpus}
    chosen = [0] * len(seen)
    # Who sees few has less of a choice.
    for rank in sorted(range(len(seen)), key=lambda rank: len(seen[rank])):
        if seen[rank]:
            chosen[rank] = min(
                range(len(seen[rank])), key=lambda n: len(ranks_of_gpu[seen[rank][n]])
            )
            ranks_of_gpu[seen[rank][chosen[rank]]].append(rank)
    shared = {gpu: ranks for gpu, ranks in ranks_of_gpu.items() if len(ranks) > 1}
    idle = [gpu for gpu, ranks in ranks_of_gpu.items() if not ranks]
    if shared and idle:
        gpu, ranks = next(iter(shared.items()))
        raise InputError(
            f"device: ranks {ranks[0]} and {ranks[1]} of node {platform.node()} have the same GPU"
            f" ({gpu}) while {idle[0]} is idle; let all ranks of a node see all its GPUs"
            " (CUDA_VISIBLE_DEVICES; Slurm: --gpu-bind=none)"
        )
    return chosen


def open_device(kind: str = "auto", local_rank: int = 0, ranks: int = 1) -> Device:
    """Return the CPU or a GPU, the same object every time.

    "auto" takes a GPU if there is one. Ranks share the node's GPUs in turn, by `local_rank`; with
    several in all, a CPU of many threads has fewer lanes.
    """
    if kind not in ("auto", *DEVICES):
        raise InputError(f"device {kind!r} is unknown; accepted: {', '.join(['auto', *DEVICES])}")
    if kind != "cpu" and _process_of_gpus not in (None, os.getpid()):
        raise InputError(
            f"device {kind!r}: this process was forked from one that used a GPU, which drivers do "
            "not allow; accepted: 'cpu', or processes that are started by 'spawn' "
            "(multiprocessing.get_context)"
        )
    count = cuda_device_count() if kind != "cpu" else 0
    if kind == "cuda" and not count:
        raise InputError(
            "device 'cuda' was asked for, but CuPy finds no GPU; install CuPy for your driver "
            f"({how_to_install('cuda13')}) or use device 'cpu'"
        )
    if not count:
        threads = thread_count()
        return _host(threads, lane_count(threads, alone=ranks == 1))
    return _gpu(local_rank % count)


def open_devices(first: Device, local_rank: int, count: int) -> list[Device]:
    """Return several devices for one rank: GPUs, or objects of the CPU that stand for as many."""
    if isinstance(first, NotingDevice):
        return [first, *(first.alike() for _ in range(1, count))]
    if first.kind == "cpu":
        alike = first.tiled_transforms()
        threads = thread_count()
        copies = (_host(threads, lane_count(threads), alike, n) for n in range(1, count))
        return [first, *copies]
    available = cuda_device_count()
    if count > available:
        raise InputError(f"streaming: devices is {count}; this node has {available} GPUs")
    # The device opened last is CuPy's current device: the first.
    ordinals = [(local_rank * count + i) % available for i in range(count)]
    opened = [_gpu(ordinal) for ordinal in reversed(ordinals)]
    return [*reversed(opened)]


@functools.cache
def _host(threads: int, lanes: int, tiled: bool = False, number: int = 0) -> Device:
    """Return the CPU as a device; different numbers stand for different GPUs."""
    return HostDevice(tiled=tiled, threads=threads, lanes=lanes)


def _gpu(ordinal: int) -> CudaDevice:
    device = _opened_gpu(ordinal)
    device.make_current()
    return device


# The process that has opened a GPU.
_process_of_gpus: int | None = None


@functools.cache
def _opened_gpu(ordinal: int) -> CudaDevice:
    global _process_of_gpus
    _process_of_gpus = os.getpid()
    from slipstream.engine.device.cuda_device import CudaDevice

    return CudaDevice(ordinal)


class PinnedHost(HostDevice):
    """The CPU, with arrays that a GPU allocates and reaches."""

    def __init__(self, device: CudaDevice) -> None:
        super().__init__()
        self._device = device
        # Memory that ranks share through it is pinned, unlike memory shared through the CPU alone.
        self.identity = f"{self.identity}, pinned"

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return an uninitialised array that is pinned."""
        return self._device.pinned(shape, dtype)

    pinned = empty

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return self._device.pinned_zeros(shape, dtype)

    def pin(self, memory: np.ndarray) -> None:
        touch(memory)
        self._device.pin(memory)

    def holds(self, array: object) -> bool:
        """Return whether an array is pinned; other arrays would have to be copied."""
        return isinstance(array, np.ndarray) and self._device.is_pinned(array)


@functools.cache
def _make_pinned_host(device: CudaDevice) -> PinnedHost:
    return PinnedHost(device)


def home_of(device: Device) -> Device:
    """Return the host as the home of arrays that a device copies, always the same object.

    A CPU is its own home.
    """
    if isinstance(device, NotingDevice):
        return device.home
    return device if device.kind == "cpu" else _make_pinned_host(cast("CudaDevice", device))
