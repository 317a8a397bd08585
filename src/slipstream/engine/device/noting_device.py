"""A device that allocates and computes nothing: steps are recorded on it to count their work.

Its arrays have shapes, types and addresses, so that dependencies between nodes are found as ever,
but there is no memory at these addresses. One rank of thousands is so recorded on any machine, as
it would be on a GPU or on a CPU. Graphs on such a device keep what their nodes access, and a
`MemoryMeter` counts allocations on it as on any other device.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.device import gpu_fft_launch
from slipstream.engine.device.cpu_device import InlineStream
from slipstream.engine.device.device_interface import (
    BlockLaunch,
    Device,
    Kernel,
    Operation,
    RowLaunch,
    Scratch,
    Stream,
    address_of,
)
from slipstream.engine.device.memory import note_owned
from slipstream.engine.errors import InputError

# Memory of the device.
DEVICE = 0
# Memory of the host.
HOST = 1
# Memory of other ranks of the node.
PEER = 2
# A core's cache.
CACHE = 3
# The lowest address of an array. No processor maps it, so that whoever touches such an address by
# mistake gets no memory of another array.
_FIRST_ADDRESS = 1 << 62
# The bits of an address within one of these kinds of memory.
_ZONE_BITS = 56
# The bytes to which addresses are aligned.
_ALIGNMENT = 4096
# The most bytes that an array of NumPy can have.
_MOST_BYTES = (1 << 63) - 1


class _Address:
    """The interface by which NumPy finds the memory of an array."""

    def __init__(self, address: int, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype.str,
            "data": (address, False),
        }


class NotedArray(np.ndarray):
    """An array without memory; setting elements does nothing, and it cannot be computed with."""

    def __setitem__(self, where: Any, value: Any) -> None:
        return

    def __array_ufunc__(self, *arguments: Any, **options: Any) -> Any:
        raise TypeError("this array has no memory: steps are only counted on its device")


class NotedMemory:
    """The addresses of arrays of one rank, and of the arrays of other ranks that it sees."""

    def __init__(self) -> None:
        self._used = [_FIRST_ADDRESS + (zone << _ZONE_BITS) for zone in range(4)]
        # Where the memory of other ranks begins, and whose it is.
        self._starts: list[int] = []
        self._owners: list[int] = []

    def empty(
        self, shape: tuple[int, ...], dtype: Any, zone: int, owner: int | None = None
    ) -> NotedArray:
        """Return an array at addresses that no other one has; another rank may be its owner."""
        shape, dtype = tuple(map(int, shape)), np.dtype(dtype)
        address = self._used[zone]
        size = math.prod(shape) * dtype.itemsize
        if size > _MOST_BYTES:
            raise InputError(f"an array of shape {shape} is larger than any memory")
        self._used[zone] += -(-max(size, 1) // _ALIGNMENT) * _ALIGNMENT
        if zone == PEER:
            self._starts.append(address)
            self._owners.append(owner or 0)
        memory = _Address(address, shape, dtype)
        if owner is None:
            note_owned(memory, "device" if zone == DEVICE else "host", size)
        return np.asarray(memory).view(NotedArray)

    def owner_of(self, array: Array) -> int:
        """Return the rank whose memory an array in the place `PEER` is in."""
        return self._owners[bisect_right(self._starts, address_of(array)) - 1]


def place_of(array: Array) -> int:
    """Return the kind of memory of an array; small tables have real memory, of the device."""
    address = address_of(array)
    return (address - _FIRST_ADDRESS) >> _ZONE_BITS if address >= _FIRST_ADDRESS else DEVICE


class _NotedKernel(Kernel):
    def bind(self, launch: RowLaunch | BlockLaunch, *arguments: Any) -> Operation:
        return nothing


def nothing(stream: Stream) -> None:
    """Be an operation that does nothing."""


class NotingDevice(Device):
    """Stands for a GPU, or for a CPU of one thread, with a number of bytes of memory.

    A GPU has a `home`, which stands for the host with as many bytes as `host_bytes`. Both have
    addresses of the same `memory`.
    """

    notes = True
    array_module = np
    pause = 0.0
    shared_memory_limit = gpu_fft_launch.SHARED_LIMIT
    multiprocessors = gpu_fft_launch.MULTIPROCESSORS
    blocks_per_multiprocessor = gpu_fft_launch.BLOCKS_PER_MULTIPROCESSOR

    def __init__(
        self,
        kind: str,
        bytes_free: float = math.inf,
        host_bytes: float = math.inf,
        memory: NotedMemory | None = None,
        lanes: int = 1,
    ) -> None:
        self.kind, self.processor = kind, "cpu" if kind == "cpu" else "gpu"
        self.memory_kind = "host" if kind == "cpu" else "device"
        self.memory = memory or NotedMemory()
        self.lanes, self.inline = lanes, kind == "cpu" and lanes == 1
        self.row_bytes, self._is_tiled = (64, False) if kind == "cpu" else (128, True)
        self.name, self.identity = f"a {kind} that only notes", kind
        self.default_stream = InlineStream()
        self._bytes = bytes_free
        self._place = HOST if kind == "cpu" else DEVICE
        is_cpu = kind == "cpu"
        self._home = None if is_cpu else NotingDevice("cpu", host_bytes, memory=self.memory)

    @classmethod
    def like(cls, device: Device, kind: str | None = None) -> NotingDevice:
        """Return a device on which the same is allocated as on another, perhaps of another kind."""
        noting = cls(kind or device.kind, lanes=device.lanes)
        noting.row_bytes, noting._is_tiled = device.row_bytes, device.tiled_transforms()
        return noting

    def alike(self) -> NotingDevice:
        """Return another device of the same rank, such as this."""
        other = NotingDevice(self.kind, self._bytes, memory=self.memory, lanes=self.lanes)
        other._home = self._home
        return other

    @property
    def home(self) -> NotingDevice:
        """The stand-in for the host; a CPU is its own."""
        return self._home or self

    def empty(self, shape: tuple[int, ...], dtype: Any) -> NotedArray:
        return self.memory.empty(shape, dtype, self._place)

    zeros = empty

    def in_cache(self, shape: tuple[int, ...], dtype: Any) -> NotedArray:
        place = CACHE if self.kind == "cpu" else DEVICE
        return self.memory.empty(shape, dtype, place)

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> NotedArray:
        return self.memory.empty(shape, dtype, HOST)

    def array(self, values: Any, dtype: Any = None) -> np.ndarray:
        # Tables are small, and some are looked into.
        table = np.array(values, dtype=dtype, order="C")
        note_owned(table, "device" if self._place == DEVICE else "host", table.nbytes)
        return table

    def stream(self, urgent: bool = False) -> Stream:
        return InlineStream()

    def kernel(self, header: str, name: str, **constants: Any) -> Kernel:
        return _NotedKernel()

    def copy(self, target: Array, source: Array) -> Operation:
        if target.shape != source.shape or target.dtype != source.dtype:
            raise ValueError(f"cannot copy {source.shape} {source.dtype} to {target.shape}")
        return nothing

    def fill(self, target: Array, value: float) -> Operation:
        return nothing

    def fft(
        self,
        source: Array,
        target: Array,
        axis: int,
        forward: bool,
        scratch: Scratch | None = None,
        scale: float = 1.0,
        among_many: bool = False,
    ) -> Operation:
        return nothing

    def fft_all(self, source: Array, target: Array, forward: bool) -> Operation:
        return nothing

    def tiled_transforms(self) -> bool:
        return self._is_tiled

    def memory_total(self) -> int:
        return self.memory_free()

    def memory_free(self) -> int:
        return int(min(self._bytes, 1 << 62))

    def run(self, operation: Operation) -> None:
        return

    def synchronize(self) -> None:
        return
