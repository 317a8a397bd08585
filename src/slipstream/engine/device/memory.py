"""Memory of processors: how much something takes, and mapped memory of the host."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import threading
import weakref
from typing import Any, TypeVar

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.processes import map_in_threads, thread_count

Allocated = TypeVar("Allocated", bound=Array)
# The meter that counts in this thread, if one does.
running = threading.local()
# So many things that are gone do not matter.
_FEW = 64
# Bytes whose pages one thread touches before it takes the next.
_TOUCHED = 64 << 20
# The result of a mapping that failed.
_FAILED = ctypes.c_void_p(-1).value
# The flag MAP_FIXED, which maps at an address.
_FIXED = 0x10
# The flags of private memory that belongs to no file.
_RESERVE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class MemoryMeter:
    """Counts what devices allocate in a thread in the ``with`` statements that this is used in."""

    def __init__(self) -> None:
        # Noted allocations: an owner, where, and how many bytes; and how many of these were left
        # at the last search for released ones.
        self.taken: list[tuple[weakref.ref[Any], str, int]] = []
        self.pruned = 0

    def __enter__(self) -> None:
        self._outer = getattr(running, "meter", None)
        running.meter = self

    def __exit__(self, *exception: object) -> None:
        running.meter = self._outer

    def total(self) -> dict[str, int]:
        """Return the bytes that are taken now on the "device", a GPU, the "host" and "disk"."""
        result = {"device": 0, "host": 0}
        for owner, place, size in self.taken:
            if owner() is not None:
                result[place] = result.get(place, 0) + size
        return result


def note(array: Allocated) -> Allocated:
    """Count an array that was allocated, if a meter runs; return it."""
    if getattr(running, "meter", None) is not None:
        owner: Any = array
        while isinstance(owner.base, type(array)):
            owner = owner.base
        note_owned(owner, "host" if isinstance(array, np.ndarray) else "device", array.nbytes)
    return array


def note_owned(owner: Any, kind: str, size: int) -> None:
    """Count bytes on the "host" or a "device" for as long as their owner lives, if a meter runs."""
    meter = getattr(running, "meter", None)
    if meter is None:
        return
    if len(meter.taken) > 2 * meter.pruned + _FEW:
        meter.taken = [entry for entry in meter.taken if entry[0]() is not None]
        meter.pruned = len(meter.taken)
    meter.taken.append((weakref.ref(owner), kind, size))


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def map_file(file: int, size: int, address: int | None = None, offset: int = 0) -> int:
    """Return the address of some bytes of a file, to be read and written.

    At an `address` they replace the mapping there. Python's own mappings keep an open file each,
    and a process may have few; nor do they take an address.

    Raises
    ------
    MemoryError, OSError
        If the system does not allow it.
    """
    how = mmap.MAP_SHARED | (0 if address is None else _FIXED)
    return _map_bytes(address, size, mmap.PROT_READ | mmap.PROT_WRITE, how, file, offset)


def reserve(size: int) -> int:
    """Return the address of bytes that files will be mapped to."""
    return _map_bytes(None, size, mmap.PROT_READ, _RESERVE, -1, 0)


def _map_bytes(
    address: int | None, size: int, access: int, how: int, file: int, offset: int
) -> int:
    mapped: int | None = _libc.mmap(address, size, access, how, file, offset)
    if mapped is None or mapped == _FAILED:
        number = ctypes.get_errno() or errno.ENOMEM
        kind = MemoryError if number == errno.ENOMEM else OSError
        raise kind(number, f"mapping {size} bytes of shared memory: {os.strerror(number)}")
    return mapped


def new_memory(size: int) -> np.ndarray:
    """Return bytes that are 0 and have their pages, large ones where the system has them."""
    address = _map_bytes(None, size, mmap.PROT_READ | mmap.PROT_WRITE, _RESERVE, -1, 0)
    use_huge_pages(address, size)
    owner = MappedBytes(address, (size,))
    weakref.finalize(owner, unmap, address, size).atexit = False
    memory = np.asarray(owner)
    touch(memory, is_new=True)
    return memory


def touch(memory: np.ndarray, is_new: bool = False) -> None:
    """Have the system find the pages of some bytes by all threads, since it clears each of them.

    Bytes that are 0 because they are `is_new` must be written for it.
    """

    def of_part(first: int) -> None:
        pages = memory[first : first + _TOUCHED : mmap.PAGESIZE]
        if is_new:
            pages[...] = 0
        else:
            pages.max()

    map_in_threads(thread_count(), of_part, range(0, len(memory), _TOUCHED))


def unmap(address: int, size: int) -> None:
    """Give up a mapping."""
    _libc.munmap(address, size)


def use_huge_pages(address: int, size: int) -> None:
    """Ask the system for large pages, where it has them."""
    _libc.madvise(address, size, getattr(mmap, "MADV_HUGEPAGE", 0))


def cache_bytes(name: str = "SC_LEVEL3_CACHE_SIZE", usual: int = 32 << 20) -> int:
    """Return the size of a cache in bytes, by default the last level; if unknown, `usual`."""
    try:
        size = os.sysconf(name)
    except (OSError, ValueError):
        size = 0
    return size if size > 0 else usual


class MappedBytes:
    """Mapped memory in a form that NumPy accepts, unmapped when no array uses it."""

    def __init__(self, address: int, shape: tuple[int, ...], typestr: str = "|u1") -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": typestr,
            "data": (address, False),
        }
