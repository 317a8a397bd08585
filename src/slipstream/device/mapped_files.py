"""Memory of the host that the system maps: from files, which others may map too, or new pages."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from slipstream.process_threads import thread_count

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
# Bytes whose pages one thread touches before it takes the next.
_TOUCHED = 64 << 20
_FAILED = ctypes.c_void_p(-1).value
_FIXED, _RESERVE = 0x10, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


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
    return _map(address, size, mmap.PROT_READ | mmap.PROT_WRITE, how, file, offset)


def reserve(size: int) -> int:
    """Return the address of bytes that files will be mapped to."""
    return _map(None, size, mmap.PROT_READ, _RESERVE, -1, 0)


def _map(address: int | None, size: int, access: int, how: int, file: int, offset: int) -> int:
    found: int | None = _libc.mmap(address, size, access, how, file, offset)
    if found is None or found == _FAILED:
        number = ctypes.get_errno() or errno.ENOMEM
        kind = MemoryError if number == errno.ENOMEM else OSError
        raise kind(number, f"mapping {size} bytes of shared memory: {os.strerror(number)}")
    return found


def new_memory(size: int) -> np.ndarray:
    """Return bytes that are 0 and have their pages, large ones where the system has them."""
    address = _map(None, size, mmap.PROT_READ | mmap.PROT_WRITE, _RESERVE, -1, 0)
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

    with ThreadPoolExecutor(thread_count()) as pool:
        list(pool.map(of_part, range(0, len(memory), _TOUCHED)))


def unmap(address: int, size: int) -> None:
    """Give up a mapping."""
    _libc.munmap(address, size)


def use_huge_pages(address: int, size: int) -> None:
    """Ask the system for large pages, where it has them."""
    _libc.madvise(address, size, getattr(mmap, "MADV_HUGEPAGE", 0))


class MappedBytes:
    """Mapped memory as NumPy takes it for that of an array, unmapped when no array uses it."""

    def __init__(self, address: int, shape: tuple[int, ...], typestr: str = "|u1") -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": typestr,
            "data": (address, False),
        }
