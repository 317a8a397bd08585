"""Tiles between files and memory: several threads, around the system's pages where files allow it.

Rows that begin and end at sectors of the drive go straight to their places. Others pass through a
buffer of their thread; of those that are written, the sectors that they share with others go
through the system's pages.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from slipstream.array_types import Array
from slipstream.device import Stream, address_of
from slipstream.device.array_addresses import merged_axes
from slipstream.outofcore.file_arrays import MappedFiles, OpenFile

# Requests of a transfer that are under way together, and bytes of one at most.
_DEPTH, _MOST = 8, 1 << 20
# Pages are what the system reads and writes as a whole.
_PAGE = mmap.PAGESIZE

_local = threading.local()


class FileTransfer:
    """The operation ``target[...] = source`` of arrays of one shape, one of them in files."""

    def __init__(self, target: Array, source: Array, files: MappedFiles, reads: bool):
        self._target, self._source, self._files, self._reads = target, source, files, reads

    def __call__(self, stream: Stream) -> None:
        """Transfer all, and wait for it."""
        if not self._target.size:
            return
        pair = (self._source, self._target) if self._reads else (self._target, self._source)
        shape, (steps, memory_steps) = merged_axes(*pair)
        item = self._target.itemsize
        if steps[-1] != item or memory_steps[-1] != item:
            self._target[...] = self._source  # through the system's pages
            return
        size = shape[-1] * item
        there, here = (
            _starts(address_of(array), shape[:-1], own)
            for array, own in zip(pair, (steps, memory_steps), strict=True)
        )
        requests = list(self._requests(there, here, size))
        depth = min(_DEPTH * len(self._files.files), len(requests))
        run = functools.partial(_transfer, self._reads)
        jobs = [_pool(self._reads).submit(run, requests[one::depth]) for one in range(depth)]
        failures = [job.exception() for job in jobs]  # all have ended before any is raised
        for failure in failures:
            if failure is not None:
                raise failure

    def _requests(
        self, there: np.ndarray, here: np.ndarray, size: int
    ) -> Iterator[tuple[OpenFile, int, int, int]]:
        """Yield file, offset, address and size of parts of rows."""
        for address, target in zip(there.tolist(), here.tolist(), strict=True):
            for file, offset, count in self._files.pieces(address, size):
                low = 0
                while low < count:
                    # Ends of parts are ends of pages.
                    end = min(count, (offset + low + _MOST) // _PAGE * _PAGE - offset)
                    yield file, offset + low, target + low, end - low
                    low = end
                target += count


def _starts(address: int, shape: list[int], steps: list[int]) -> np.ndarray:
    """Return where the rows of an array begin."""
    starts = np.full((1,), address, np.int64)
    for count, step in zip(shape, steps, strict=False):
        starts = (starts[:, None] + step * np.arange(count)).ravel()
    return starts


@functools.cache
def _pools() -> dict[bool, ThreadPoolExecutor]:
    return {reads: ThreadPoolExecutor(4 * _DEPTH, "files") for reads in (True, False)}


os.register_at_fork(after_in_child=_pools.cache_clear)


def _pool(reads: bool) -> ThreadPoolExecutor:
    return _pools()[reads]


def _transfer(reads: bool, requests: list[tuple[OpenFile, int, int, int]]) -> None:
    for file, offset, address, size in requests:
        if reads:
            _read(file, offset, address, size)
        else:
            _write(file, offset, address, size)


def _buffer() -> mmap.mmap:
    if not hasattr(_local, "buffer"):
        _local.buffer = mmap.mmap(-1, _MOST + 2 * _PAGE)
        _local.address = address_of(np.frombuffer(_local.buffer, np.uint8))
    buffer: mmap.mmap = _local.buffer
    return buffer


def _memory(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


def _read(file: OpenFile, offset: int, address: int, size: int) -> None:
    if file.direct is None:
        _all(os.preadv, file.pages, _memory(address, size), offset, size)
        return
    if not (offset | address | size) % file.sector:
        _all(os.preadv, file.direct, _memory(address, size), offset, size)
        return
    first = offset // _PAGE * _PAGE
    stop = -(-(offset + size) // _PAGE) * _PAGE
    part = memoryview(_buffer())[: stop - first]
    _all(os.preadv, file.direct, part, first, offset + size - first)
    ctypes.memmove(address, _local.address + offset - first, size)


def _write(file: OpenFile, offset: int, address: int, size: int) -> None:
    if file.direct is None:
        _all(os.pwritev, file.pages, _memory(address, size), offset, size)
        return
    if not (offset | address | size) % file.sector:
        _all(os.pwritev, file.direct, _memory(address, size), offset, size)
        return
    low, high = -(-offset // _PAGE) * _PAGE, (offset + size) // _PAGE * _PAGE
    if low < high:
        part = memoryview(_buffer())[: high - low]
        ctypes.memmove(_local.address, address + low - offset, high - low)
        _all(os.pwritev, file.direct, part, low, high - low)
    else:
        low = high = offset + size
    # These pages have neighbours of other rows.
    for start, end in ((offset, low), (high, offset + size)):
        if start < end:
            part = _memory(address + start - offset, end - start)
            _all(os.pwritev, file.pages, part, start, end - start)


def _all(call: object, file: int, memory: memoryview, offset: int, least: int) -> None:
    """Transfer at least so many bytes of some memory."""
    done = 0
    while done < least:
        count = call(file, [memory[done:]], offset + done)  # type: ignore[operator]
        if count <= 0:
            raise OSError(f"a file ended {least - done} bytes too early")
        done += count
