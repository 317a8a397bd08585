"""Memory of one rank that other ranks of its node access directly.

On CPUs a segment is an anonymous file in memory, which the others map too; on GPUs it is an
allocation that the others open through CUDA's inter-process handles, so that their copy engines
and kernels reach it over NVLink. Ranks on other nodes, or behind no link, simply do not see it.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import platform
from typing import Any

import numpy as np

from slipstream.array_types import Comm
from slipstream.collective import on_every_rank
from slipstream.device import Device

# CUDA hands out smaller allocations from common ones of this size, whose handle they would share.
_GRANULARITY = 2 << 20


def allocated_bytes(size: int) -> int:
    """Return how many bytes a segment for `size` bytes takes."""
    return -(-max(size, 1) // _GRANULARITY) * _GRANULARITY


class Segment:
    """Shared memory of all ranks of a communicator, each its own. Collective.

    Ranks may ask for different sizes, in bytes; all raise `InputError` if one has no memory left.
    `memories` are those of all ranks, as arrays of bytes; None where this rank does not see one.
    """

    def __init__(self, comm: Comm, device: Device, size: int) -> None:
        size = allocated_bytes(size)
        make: Any = HostMemory
        if device.kind == "cuda":
            from slipstream.exchange.cuda_ipc_memory import CudaMemory as make
        self._memory = on_every_rank(comm, lambda: make(device, size))
        offers = comm.allgather((self._memory.where, self._memory.handle, size))
        self.memories: list[Any] = []
        for rank, (where, handle, length) in enumerate(offers):
            if rank == comm.rank:
                self.memories.append(self._memory.own)
            else:
                self.memories.append(self._memory.open(where, handle, length))
        comm.Barrier()  # from here on nobody opens anything any more
        self._memory.opened()

    def own_array(self, shape: tuple[int, ...], dtype: np.dtype) -> tuple[Any, Any]:
        """Return an array in this rank's memory, and an object that lives as long as it is used."""
        return self._memory.own_array(shape, dtype)

    def close_others(self) -> None:
        """Give up the memory of other ranks; then, after a barrier, this rank's can be freed."""
        self._memory.close_others()
        self.memories = []

    def free(self) -> None:
        """Free this rank's memory, which no other rank may hold open."""
        self._memory.free()


class HostMemory:
    """An anonymous file in memory, which other processes of the same machine map too."""

    def __init__(self, device: Device, size: int) -> None:
        # Unlike files in /dev/shm, anonymous ones are not limited to a part of memory.
        self._file, self._device = os.memfd_create("slipstream"), device
        os.ftruncate(self._file, size)
        self.own = self._mapped(self._file, size)
        self.where = platform.node(), os.readlink("/proc/self/ns/pid")
        self.handle = os.getpid(), self._file

    def open(self, where: Any, handle: Any, size: int) -> np.ndarray | None:
        if where != self.where:
            return None
        try:
            file = os.open("/proc/{}/fd/{}".format(*handle), os.O_RDWR)
        except OSError:
            return None
        try:
            return self._mapped(file, size)
        finally:
            os.close(file)

    def _mapped(self, file: int, size: int) -> np.ndarray:
        memory = mmap.mmap(file, size)
        with contextlib.suppress(OSError, AttributeError):
            memory.madvise(mmap.MADV_HUGEPAGE)
        array = np.frombuffer(memory, np.uint8)
        self._device.pin(array)
        return array

    def own_array(self, shape: tuple[int, ...], dtype: np.dtype) -> tuple[np.ndarray, Any]:
        owner = Owner(self.own[: math.prod(shape) * dtype.itemsize])
        owner.__array_interface__ = owner.memory.__array_interface__
        return np.asarray(owner).view(dtype).reshape(shape), owner

    def opened(self) -> None:
        os.close(self._file)

    def close_others(self) -> None:
        """Do nothing: mappings end with the arrays that use them."""

    free = close_others


class Owner:
    """What NumPy and CuPy keep as the base of arrays, and with them."""

    __array_interface__: dict[str, Any]

    def __init__(self, memory: Any) -> None:
        self.memory = memory
