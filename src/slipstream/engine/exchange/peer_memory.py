"""Memory of one rank that other ranks of its node access directly.

On CPUs a shared buffer is an anonymous file, in memory or on disk, which the others map too; on
GPUs it is an allocation that the others open through CUDA's inter-process handles, so that their
copy engines and kernels access it over NVLink. Ranks on other nodes, or without a link, cannot
access it.
"""

from __future__ import annotations

import math
import os
import platform
import weakref
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import numpy as np

from slipstream.engine.array_types import Array, Communicator
from slipstream.engine.collective import on_every_rank
from slipstream.engine.device import Device, HostDevice, address_of
from slipstream.engine.device.memory import note_owned
from slipstream.engine.exchange.exchange_plan import ExchangePlan, part_of

# Flags of a rank in one piece of memory; every exchange takes one or two per rank.
FLAGS = 1 << 18
# CUDA places smaller allocations in common ones of this size, whose handle they would share.
_GRANULARITY = 2 << 20


def allocated_bytes(size: int) -> int:
    """Return the size of a shared buffer for `size` bytes."""
    return -(-max(size, 1) // _GRANULARITY) * _GRANULARITY


class SharedBuffer:
    """Shared memory of all ranks of a communicator, each its own. Collective.

    Ranks may ask for different sizes, in bytes; all raise `InputError` if one is out of memory.
    `memories` are the buffers of all ranks, as arrays of bytes; None if this rank cannot access
    one. `memory` is this rank's own.
    """

    def __init__(self, comm: Communicator, device: Device, size: int) -> None:
        size = allocated_bytes(size)
        make: Any = HostMemory
        if device.kind == "cuda":
            from slipstream.engine.exchange.cuda_ipc_memory import CudaMemory as make
        self.memory = on_every_rank(comm, lambda: make(device, size))
        note_owned(self.memory, device.memory_kind, size)
        offers = comm.allgather((self.memory.where, self.memory.handle, size))
        self.memories: list[Any] = []
        for rank, (where, handle, length) in enumerate(offers):
            if rank == comm.rank:
                self.memories.append(self.memory.own)
            else:
                self.memories.append(self.memory.open(where, handle, length))
        comm.Barrier()  # from here on no rank opens any memory
        self.memory.opened()

    def close_others(self) -> None:
        """Release the memory of other ranks; then, after a barrier, this rank's can be freed."""
        self.memory.close_others()
        self.memories = []

    def free(self) -> None:
        """Free this rank's memory, after all other ranks have released it."""
        self.memory.free()


class SharedArrays:
    """Arrays of all ranks of a communicator that the others access. Collective.

    `near` are the ranks with access; tests exclude others by `reachable`, symmetrically. Memory is
    freed when no rank uses it any more.
    """

    def __init__(
        self,
        comm: Communicator,
        device: Device,
        reachable: Callable[[int], bool] = lambda rank: True,
    ) -> None:
        self._device, self._made = device, 0
        # On a CPU arrays keep their buffers alive.
        self._buffers: MutableMapping[int, SharedBuffer] = weakref.WeakValueDictionary()
        if device.kind == "cuda":
            self._buffers = {}
        self._dropped: set[int] = set()
        self.new_flags(comm)
        seen = [memory is not None for memory in self.flags.memories]
        seen = [one and reachable(rank) for rank, one in enumerate(seen)]
        pairs = zip(seen, comm.alltoall(seen), strict=True)
        self.near = [mine and theirs for mine, theirs in pairs]
        self.everywhere = all(comm.allgather(all(self.near)))

    def new_flags(self, comm: Communicator) -> None:
        """Provide new flags, not raised. Collective."""
        # Earlier flags on a GPU are never freed: other ranks have them open, and may still use
        # them.
        self.flags, self.flags_used = SharedBuffer(comm, self._device.memory_home, 8 * FLAGS), 0
        if self._device.kind == "cuda":  # new memory of the host is zero
            self._device.run(self._device.fill(self.flags.memories[comm.rank], 0))
            comm.Barrier()

    def empty(self, comm: Communicator, shape: Sequence[int], dtype: Any) -> Array:
        """Return an array that the other ranks can access. Collective."""
        if self._device.kind == "cuda":
            self._free_dropped(comm)
        shape, dtype = tuple(shape), np.dtype(dtype)
        buffer = SharedBuffer(comm, self._device, math.prod(shape) * dtype.itemsize)
        number, self._made = self._made, self._made + 1
        self._buffers[number] = buffer
        array: Array
        array, owner = buffer.memory.own_array(shape, dtype)
        if self._device.kind == "cpu":
            owner.kept = buffer
        else:
            weakref.finalize(owner, self._dropped.add, number).atexit = False
        return array

    def exchange_places(
        self, comm: Communicator, plan: ExchangePlan, targets: Sequence[Array]
    ) -> list[dict[int, Any]]:
        """Send senders the places of their blocks; return those from receivers. Collective."""
        outgoing: list[Any] = [None] * comm.size
        for block in plan.receives:
            outgoing[block.peer] = [
                self._locate(comm, part_of(target, block)) for target in targets
            ]
        incoming = comm.alltoall(outgoing)
        places: list[dict[int, Any]] = [{} for _ in targets]
        for block in plan.sends:
            for target, where, location in zip(targets, places, incoming[block.peer], strict=True):
                number, offset = location
                memory = self._buffers[number].memories[block.peer]
                length = block.count * target.itemsize
                where[block.peer] = memory[offset : offset + length].view(target.dtype)
        return places

    def _locate(self, comm: Communicator, array: Any) -> tuple[int, int]:
        """Return the buffer of an array, and its start there in bytes."""
        address = address_of(array)
        for number, buffer in self._buffers.items():
            memory = buffer.memories[comm.rank]
            if 0 <= address - address_of(memory) < memory.nbytes:
                return number, address - address_of(memory)
        raise ValueError("only arrays made by the transport's empty() can be exchanged by it")

    def close(self, comm: Communicator) -> None:
        """Free unused memory, for the last time. Collective."""
        self._free_dropped(comm)
        if not any(comm.allgather(len(self._buffers))):
            self.flags.close_others()
            comm.Barrier()
            self.flags.free()

    def _free_dropped(self, comm: Communicator) -> None:
        """Free GPU memory that no rank uses any more; others have it open until then."""
        everywhere = set.intersection(*comm.allgather(self._dropped.copy()))
        if not everywhere:
            return
        self._device.synchronize()
        buffers = [self._buffers.pop(number) for number in sorted(everywhere)]
        self._dropped -= everywhere
        for buffer in buffers:
            buffer.close_others()
        comm.Barrier()
        for buffer in buffers:
            buffer.free()


class HostMemory:
    """Anonymous files, which other processes of the machine map too."""

    def __init__(self, device: Device, size: int) -> None:
        assert isinstance(device, HostDevice)
        self._files, self._device = device.shared_files(size), device
        self.own = device.map_shared(self._files, size)
        self.where = platform.node(), os.readlink("/proc/self/ns/pid")
        self.handle = os.getpid(), self._files

    def open(self, where: Any, handle: Any, size: int) -> np.ndarray | None:
        if where != self.where:
            return None
        process, numbers = handle
        files: list[int] = []
        try:
            for number in numbers:
                files.append(os.open(f"/proc/{process}/fd/{number}", os.O_RDWR))
        except OSError:
            _close(files)
            return None
        try:
            return self._device.map_shared(files, size)
        finally:
            _close(files)

    def own_array(self, shape: tuple[int, ...], dtype: np.dtype) -> tuple[np.ndarray, Any]:
        """Return an array in this memory, and an object that lives as long as it is used."""
        owner = Owner(self.own[: math.prod(shape) * dtype.itemsize])
        owner.__array_interface__ = owner.memory.__array_interface__
        return np.asarray(owner).view(dtype).reshape(shape), owner

    def opened(self) -> None:
        _close(self._files)

    def close_others(self) -> None:
        """Do nothing: mappings end with the arrays that use them."""

    free = close_others


def _close(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)


class Owner:
    """The owner of memory, which NumPy and CuPy keep alive as the base of arrays."""

    __array_interface__: dict[str, Any]

    def __init__(self, memory: Any) -> None:
        self.memory, self.kept = memory, None
