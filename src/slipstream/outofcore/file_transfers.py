"""Tiles between files and memory: several threads, around the system's pages where files allow it.

Rows that begin and end at sectors of the drive go straight to their places. Others pass through a
buffer of their thread; if they are written, sectors shared with other rows go through the system's
pages.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np

from slipstream.array_types import Array
from slipstream.device import Stream, address_of
from slipstream.device.array_addresses import merged_axes
from slipstream.outofcore.file_arrays import MappedFiles, OpenFile

# Requests of a transfer that are under way together, and bytes of one at most.
_DEPTH, _MOST = 8, 1 << 20
# Bytes that are worth one more request under way.
_WORTH = 1 << 18
# Pieces of memory of one request: the least number that systems allow.
_PIECES = 1024
# Pages are what the system reads and writes as a whole.
_PAGE = mmap.PAGESIZE

_local = threading.local()
# Addresses and sizes; and a file, an offset in it, and its memory.
_Pieces: TypeAlias = "list[tuple[int, int]]"
_Request: TypeAlias = "tuple[OpenFile, int, _Pieces]"


class FileTransfer:
    """The operation ``target[...] = source`` of arrays of one shape, one of them in files.

    More pairs may be added; all are read, or written.
    """

    def __init__(self, target: Array, source: Array, files: MappedFiles, reads: bool):
        self._pairs = [(target, source, files)]
        self._reads = reads

    def add(self, target: Array, source: Array, files: MappedFiles) -> None:
        """Transfer another pair too."""
        self._pairs.append((target, source, files))

    def __call__(self, stream: Stream) -> None:
        """Transfer all, and wait for it."""
        size = sum(target.nbytes for target, _, _ in self._pairs)
        if not size:
            return
        requests = _Shared(self._all_requests())
        files = max(len(files.files) for _, _, files in self._pairs)
        depth = min(_DEPTH * files, 1 + size // _WORTH)
        run = functools.partial(_transfer, self._reads)
        jobs = [_pool(self._reads).submit(run, requests) for _ in range(depth)]
        failures = [job.exception() for job in jobs]  # all have ended before any is raised
        for failure in failures:
            if failure is not None:
                raise failure

    def _all_requests(self) -> Iterator[_Request]:
        for target, source, files in self._pairs:
            if not target.size:
                continue
            pair = (source, target) if self._reads else (target, source)
            shape, (steps, memory_steps) = merged_axes(*pair)
            item = target.itemsize
            if steps[-1] != item or memory_steps[-1] != item:
                target[...] = source  # through the system's pages
                continue
            there, here = (
                _starts(address_of(array), shape[:-1], own)
                for array, own in zip(pair, (steps, memory_steps), strict=True)
            )
            yield from _requests_of(files, there, here, shape[-1] * item)


class _Shared:
    """An iterator that several threads advance."""

    def __init__(self, items: Iterator[_Request]) -> None:
        self._items, self._turn = items, threading.Lock()

    def __iter__(self) -> Iterator[_Request]:
        while True:
            with self._turn:
                item = next(self._items, None)
            if item is None:
                return
            yield item


def _requests_of(
    files: MappedFiles, there: np.ndarray, here: np.ndarray, size: int
) -> Iterator[_Request]:
    """Yield requests in the order of the file; rows that follow each other there are in one."""
    order = np.argsort(there, kind="stable")
    file: OpenFile | None = None
    start, total = 0, 0
    pieces: _Pieces = []
    for address, target in zip(there[order].tolist(), here[order].tolist(), strict=True):
        for of, offset, count in files.pieces(address, size):
            low = 0
            while low < count:
                place = offset + low
                full = total == _MOST or len(pieces) == _PIECES
                if full or of is not file or place != start + total:
                    if file is not None:
                        yield file, start, pieces
                    file, start, total, pieces = of, place, 0, []
                # Requests end where pages end.
                most = (start + _MOST) // _PAGE * _PAGE - place
                part = min(count - low, most if most > 0 else count)
                pieces.append((target + low, part))
                total += part
                low += part
                if most == part:
                    yield file, start, pieces
                    file = None
            target += count
    if file is not None:
        yield file, start, pieces


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


def _transfer(reads: bool, requests: Iterable[_Request]) -> None:
    for file, offset, pieces in requests:
        size = sum(part for _, part in pieces)
        aligned = not any((address | part) % file.sector for address, part in pieces)
        if file.direct is None:
            _all(reads, file.pages, _memories(pieces), offset, size)
        elif aligned and not offset % file.sector:
            _all(reads, file.direct, _memories(pieces), offset, size)
        elif reads:
            _read_around(file, offset, pieces, size)
        else:
            _write_within(file, offset, pieces, size)


def _read_around(file: OpenFile, offset: int, pieces: _Pieces, size: int) -> None:
    """Read whole pages to a buffer, and from there to where they belong."""
    assert file.direct is not None
    buffer, address = _buffer()
    first = offset // _PAGE * _PAGE
    stop = -(-(offset + size) // _PAGE) * _PAGE
    _all(True, file.direct, [buffer[: stop - first]], first, offset + size - first)
    address += offset - first
    for target, part in pieces:
        ctypes.memmove(target, address, part)
        address += part


def _write_within(file: OpenFile, offset: int, pieces: _Pieces, size: int) -> None:
    """Write whole pages from a buffer, and parts of shared pages through the system's cache."""
    assert file.direct is not None
    buffer, address = _buffer()
    first = offset // _PAGE * _PAGE
    place = address + offset - first
    for source, part in pieces:
        ctypes.memmove(place, source, part)
        place += part
    low, high = -(-offset // _PAGE) * _PAGE, (offset + size) // _PAGE * _PAGE
    if low < high:
        _all(False, file.direct, [buffer[low - first : high - first]], low, high - low)
    else:
        low = high = offset + size
    for start, end in ((offset, low), (high, offset + size)):
        if start < end:
            _all(False, file.pages, [buffer[start - first : end - first]], start, end - start)


def _buffer() -> tuple[memoryview, int]:
    """Return the buffer of this thread, and its address."""
    if not hasattr(_local, "buffer"):
        memory = mmap.mmap(-1, _MOST + 2 * _PAGE)
        _local.buffer = memoryview(memory), address_of(np.frombuffer(memory, np.uint8))
    buffer: tuple[memoryview, int] = _local.buffer
    return buffer


def _memories(pieces: _Pieces) -> list[memoryview]:
    return [
        memoryview((ctypes.c_char * part).from_address(address)).cast("B")
        for address, part in pieces
    ]


def _all(reads: bool, file: int, memories: list[memoryview], offset: int, least: int) -> None:
    """Transfer at least so many bytes of some memory."""
    done = 0
    while True:
        count = (os.preadv if reads else os.pwritev)(file, memories, offset + done)
        if count <= 0:
            raise OSError(f"a file ended {least - done} bytes too early")
        done += count
        if done >= least:
            return
        while memories and count >= len(memories[0]):
            count -= len(memories.pop(0))
        memories[:1] = [memories[0][count:]]
