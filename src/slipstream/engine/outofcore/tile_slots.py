"""Slots on the device for tiles of arrays on the host, and the copies between them."""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.device import (
    REAL_NAMES,
    Device,
    Operation,
    RowLaunch,
    Scratch,
    Stream,
    address_of,
)
from slipstream.engine.device.device_interface import merged_axes
from slipstream.engine.outofcore.file_arrays import FileHome, MappedFiles, OpenFile, files_of
from slipstream.engine.outofcore.memory_budget import Streaming, TooLittleMemory
from slipstream.engine.schedule import MAIN_LANE, StepGraph
from slipstream.engine.schedule.step_graph import Node
from slipstream.engine.stop_signals import signals_held

# The most requests of a transfer that are under way together.
_DEPTH = 8
# The most bytes of a request.
_MOST = 1 << 20
# Bytes that are worth one more request under way.
_WORTH = 1 << 18
# Pieces of memory of one request: the least number that systems allow.
_PIECES = 1024
# Bytes of a page, which the system reads and writes as a whole.
_PAGE = mmap.PAGESIZE
# Bytes of rows that copy engines write to the host at less than full speed.
_SHORT_ROW = 32 << 10
# Numbers of a row that some threads copy together.
_PART = 4096
# By whether a file is read.
_LABELS = {True: "read", False: "write"}
# Transfers of files, each way, that are under way at the same time: while a rank waits for the last
# requests of one, a drive has the requests of the next.
_AT_ONCE = 4
# The ways in which copies cross the bus.
COPIES = ("memcpy2D", "zero-copy", "packed")
# Buffers begin at multiples of this many bytes, as cuFFT, vector code and drives like it.
ALIGNMENT = 512

_local = threading.local()
# Addresses and sizes.
_Pieces: TypeAlias = "list[tuple[int, int]]"
# A file, an offset in it, and its memory.
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
        requests = _Shared(self._list_all_requests())
        files = max(len(files.files) for _, _, files in self._pairs)
        depth = min(_DEPTH * files, 1 + size // _WORTH)
        run = functools.partial(_transfer, self._reads)
        with signals_held:
            jobs = [_pool(self._reads).submit(run, requests) for _ in range(depth)]
            failures = [job.exception() for job in jobs]  # all have ended before any is raised
        for failure in failures:
            if failure is not None:
                raise failure

    def _list_all_requests(self) -> Iterator[_Request]:
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
                _find_row_starts(address_of(array), shape[:-1], own)
                for array, own in zip(pair, (steps, memory_steps), strict=True)
            )
            yield from _list_requests(files, there, here, shape[-1] * item)


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


def _list_requests(
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
                position = offset + low
                full = total == _MOST or len(pieces) == _PIECES
                if full or of is not file or position != start + total:
                    if file is not None:
                        yield file, start, pieces
                    file, start, total, pieces = of, position, 0, []
                # Requests end where pages end.
                most = (start + _MOST) // _PAGE * _PAGE - position
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


def _find_row_starts(address: int, shape: list[int], steps: list[int]) -> np.ndarray:
    """Return the addresses of the rows of an array."""
    starts = np.full((1,), address, np.int64)
    for count, step in zip(shape, steps, strict=False):
        starts = (starts[:, None] + step * np.arange(count)).ravel()
    return starts


@functools.cache
def _make_pools() -> dict[bool, ThreadPoolExecutor]:
    return {reads: ThreadPoolExecutor(4 * _DEPTH, "files") for reads in (True, False)}


os.register_at_fork(after_in_child=_make_pools.cache_clear)


def _pool(reads: bool) -> ThreadPoolExecutor:
    return _make_pools()[reads]


def _transfer(reads: bool, requests: Iterable[_Request]) -> None:
    for file, offset, pieces in requests:
        size = sum(part for _, part in pieces)
        aligned = not any((address | part) % file.sector for address, part in pieces)
        if file.direct is None:
            _transfer_all(reads, file.pages, _view_pieces(pieces), offset, size)
        elif aligned and not offset % file.sector:
            _transfer_all(reads, file.direct, _view_pieces(pieces), offset, size)
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
    _transfer_all(True, file.direct, [buffer[: stop - first]], first, offset + size - first)
    address += offset - first
    for target, part in pieces:
        ctypes.memmove(target, address, part)
        address += part


def _write_within(file: OpenFile, offset: int, pieces: _Pieces, size: int) -> None:
    """Write whole pages from a buffer, and parts of shared pages through the system's cache."""
    assert file.direct is not None
    buffer, address = _buffer()
    first = offset // _PAGE * _PAGE
    target = address + offset - first
    for source, part in pieces:
        ctypes.memmove(target, source, part)
        target += part
    low, high = -(-offset // _PAGE) * _PAGE, (offset + size) // _PAGE * _PAGE
    if low < high:
        _transfer_all(False, file.direct, [buffer[low - first : high - first]], low, high - low)
    else:
        low = high = offset + size
    for start, end in ((offset, low), (high, offset + size)):
        if start < end:
            _transfer_all(
                False, file.pages, [buffer[start - first : end - first]], start, end - start
            )


def _buffer() -> tuple[memoryview, int]:
    """Return the buffer of this thread, and its address."""
    if not hasattr(_local, "buffer"):
        memory = mmap.mmap(-1, _MOST + 2 * _PAGE)
        _local.buffer = memoryview(memory), address_of(np.frombuffer(memory, np.uint8))
    buffer: tuple[memoryview, int] = _local.buffer
    return buffer


def _view_pieces(pieces: _Pieces) -> list[memoryview]:
    return [
        memoryview((ctypes.c_char * part).from_address(address)).cast("B")
        for address, part in pieces
    ]


def _transfer_all(
    reads: bool, file: int, memories: list[memoryview], offset: int, least: int
) -> None:
    """Transfer at least `least` bytes between a file and memory."""
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


class HostDeviceCopier:
    """Records copies between a device and the host, whose arrays are pinned."""

    def __init__(self, device: Device, home: Device, copies: str) -> None:
        self._device, self._home, self._copies = device, home, copies
        self._turn = 0
        # The transfer of files each way that another of the same tile may join: its graph's nodes,
        # its place among them, and what it does.
        self._latest: dict[bool, tuple[list[Node], int, FileTransfer]] = {}

    def begin_tile(self) -> None:
        """Begin a tile, whose transfers of files are others than those before."""
        self._latest.clear()

    def staging(self, size: int) -> Array | None:
        """Return memory of `size` bytes in which boxes are packed, if they are.

        Data between a GPU and a file pass through it.
        """
        home = self._home
        if isinstance(home, FileHome):
            return home.host.empty((size,), np.uint8) if self._device.kind != "cpu" else None
        return home.empty((size,), np.uint8) if self._copies == "packed" else None

    def record(
        self,
        graph: StepGraph,
        target: Array,
        source: Array,
        inward: bool,
        lane: str,
        staging: Array | None,
    ) -> None:
        """Record ``target[...] = source``, views of one shape.

        If `inward`, the source is on the host. `staging` is a buffer from the method of
        that name, at least as large as the source.
        """
        files = None
        if isinstance(self._home, FileHome):
            files = files_of(source if inward else target)
        operation: Operation
        label = "copy in" if inward else "copy out"
        # Copy engines are slow outward, where rows are short and not side by side.
        is_slow = False
        if staging is None and not inward and self._device.kind != "cpu":
            shape, _ = merged_axes(target, source)
            is_slow = len(shape) > 1 and shape[-1] * target.itemsize < _SHORT_ROW
        if files is not None and staging is None:
            self._record_transfer(graph, target, source, files, inward, self._device)
            return
        if files is None and (self._copies == "zero-copy" or is_slow):
            operation = copy_box(self._device, target, source)
        elif staging is None:
            operation = self._device.copy(target, source)
        else:
            self._record_packed(graph, target, source, inward, lane, staging, files)
            return
        graph.add(
            operation,
            reads=[source],
            writes=[target],
            label=label,
            category="copy",
            lane=lane,
            device=self._device,
        )

    def _record_transfer(
        self,
        graph: StepGraph,
        target: Array,
        source: Array,
        files: MappedFiles,
        inward: bool,
        device: Device,
    ) -> None:
        """Record a transfer of files, together with the others of the same tile if possible."""
        nodes, index, operation = self._latest.get(inward, ([], 0, None))
        if nodes is graph.nodes and operation and graph.extend(index, [source], [target]):
            operation.add(target, source, files)
            return
        operation = FileTransfer(target, source, files, inward)
        self._latest[inward] = graph.nodes, len(graph.nodes), operation
        self._turn += 1
        graph.add(
            operation,
            reads=[source],
            writes=[target],
            label=_LABELS[inward],
            category="io",
            lane=f"{_LABELS[inward]} {self._turn % _AT_ONCE}",
            device=device,
        )

    def _record_packed(
        self,
        graph: StepGraph,
        target: Array,
        source: Array,
        inward: bool,
        lane: str,
        staging: Array,
        files: MappedFiles | None,
    ) -> None:
        packed = staging[: source.nbytes].view(source.dtype).reshape(source.shape)
        ways: list[tuple[Array, Array]] = [(packed, source), (target, packed)]
        for number, (to, of) in enumerate(ways):
            on_host = inward == (number == 0)
            device = self._home if on_host else self._device
            label = "pack" if on_host else "copy in" if inward else "copy out"
            if on_host and files is not None:
                self._record_transfer(graph, to, of, files, inward, device)
                continue
            operation = copy_box(device, to, of) if on_host else device.copy(to, of)
            graph.add(
                operation,
                reads=[of],
                writes=[to],
                label=label,
                category="pack" if on_host else "copy",
                lane=lane,
                device=device,
            )


def copy_box(device: Device, target: Array, source: Array) -> Operation:
    """Return the operation ``target[...] = source`` as a kernel that reaches both.

    They have one shape of up to four axes, and one type, on the device or pinned on the host.
    """
    shape, strides = merged_axes(target, source)
    if 0 in shape:
        return lambda stream: None
    real = np.zeros(0, target.dtype).real.dtype
    words, size = target.itemsize // real.itemsize, real.itemsize
    if any(steps[-1] != target.itemsize for steps in strides):  # no axis is contiguous in both
        shape, strides = [*shape, 1], [[*steps, target.itemsize] for steps in strides]
    shape, strides = (
        [1] * (4 - len(shape)) + shape,
        [[0] * (4 - len(steps)) + [step // size for step in steps] for steps in strides],
    )
    rows, columns = int(np.prod(shape[:3])), shape[3] * words
    part = min(columns, _PART)
    parts = -(-columns // part)
    kernel = device.kernel("strided_copy.hpp", "copy_box", REAL=REAL_NAMES[real.name])
    return kernel.bind(
        RowLaunch(rows * parts, part),
        target,
        source,
        rows,
        shape[1],
        shape[2],
        columns,
        parts,
        part,
        *strides[0][:3],
        *strides[1][:3],
    )


def aligned(size: int) -> int:
    """Return the bytes after which the next buffer may begin."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Worker(Protocol):
    """Works on tiles in one lane, one after the other."""

    @property
    def scratch(self) -> Scratch:
        """The resources that a library's transforms in this lane share."""

    def plan(self, slot: Slot[Any]) -> None:
        """Plan a library's transforms of tiles in a slot, so that its scratch is known."""


W = TypeVar("W", bound=Worker)


class Slot(Generic[W]):
    """Memory for one tile at a time, and its lanes: `stream`, or if empty the pipeline's three."""

    def __init__(
        self, device: Device, bus: HostDeviceCopier, size: int, stream: str, worker: W
    ) -> None:
        self.device, self.worker = device, worker
        self._bus, self._stream = bus, stream
        self._buffer = device.empty((size,), np.uint8)
        self._staging = [bus.staging(size) for _ in range(2)]
        self._used = 0
        # The used bytes of the staging memory, inward and outward.
        self._staged = [0, 0]

    def clear(self) -> None:
        """Make room for the next tile."""
        self._used, self._staged = 0, [0, 0]
        self._bus.begin_tile()

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an uninitialised array of this tile."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        array = self._buffer[self._used : self._used + size].view(dtype).reshape(shape)
        self._used = aligned(self._used + size)
        return array

    def work(self, graph: StepGraph) -> StepGraph:
        """Return the graph in which work on this tile is recorded."""
        return graph.on(self.device, self._stream or MAIN_LANE)

    def record_in(self, graph: StepGraph, target: Array, source: Array) -> None:
        """Record a copy from the host."""
        lane = self._stream or "copy in"
        self._bus.record(graph, target, source, True, lane, self._take_staging(0, source.nbytes))

    def record_out(self, graph: StepGraph, target: Array, source: Array) -> None:
        """Record a copy to the host."""
        lane = self._stream or "copy out"
        self._bus.record(graph, target, source, False, lane, self._take_staging(1, source.nbytes))

    def _take_staging(self, way: int, size: int) -> Array | None:
        """Return memory for a copy, apart from other copies of the tile if there is enough."""
        staging = self._staging[way]
        if staging is None:
            return None
        low = self._staged[way] if self._staged[way] + size <= staging.nbytes else 0
        self._staged[way] = aligned(low + size)
        return staging[low : low + size]


class TileDevice(Generic[W]):
    """A device with slots for tiles, in turns, and with a worker for each of its lanes.

    A slot has `size` bytes, and `beside` are the bytes of everything else on the device.
    `TooLittleMemory` is raised if all `bytes` exceed the limit.
    """

    def __init__(
        self,
        device: Device,
        home: Device,
        streaming: Streaming,
        size: int,
        make_worker: Callable[[str], W],
        beside: int,
        limit: int,
    ) -> None:
        self.device = device
        self.bytes = beside + streaming.slots * size
        if self.bytes > limit:
            raise TooLittleMemory
        bus = HostDeviceCopier(device, home, streaming.copies)
        lanes = streaming.lanes
        self._workers = [make_worker(lane) for lane in lanes]
        self.slots = [
            Slot(device, bus, size, lanes[number % len(lanes)], self._workers[number % len(lanes)])
            for number in range(streaming.slots)
        ]
        # Planned to learn a library's work area, and again when it has that memory.
        for slot in self.slots:
            slot.worker.plan(slot)
        self.bytes += sum(worker.scratch.needed for worker in self._workers)
        if self.bytes > limit:
            raise TooLittleMemory
        self.provide_scratch()

    def provide_scratch(self) -> None:
        """Allocate the work area of a library's transforms."""
        for worker in self._workers:
            worker.scratch.provide(self.device.empty((worker.scratch.needed,), np.uint8))


class TileSlots(Generic[W]):
    """The slots of all devices, in turn."""

    def __init__(self, devices: Sequence[TileDevice[W]]) -> None:
        self._devices, self._turn = list(devices), 0

    @property
    def bytes(self) -> int:
        """Bytes allocated on each device."""
        return max((one.bytes for one in self._devices), default=0)

    def next_slot(self) -> Slot[W]:
        """Return the next slot, cleared for a tile."""
        devices, turn = len(self._devices), self._turn
        self._turn += 1
        slots = self._devices[turn % devices].slots
        slot = slots[turn // devices % len(slots)]
        slot.clear()
        return slot
