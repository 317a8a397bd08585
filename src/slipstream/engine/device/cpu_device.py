"""The CPU as a device: a stream is a worker thread, a kernel is a compiled shared library.

Asynchronous schedules, overlap and out-of-core pipelines can thus be run, and tested, without a
GPU. The threads, ``OMP_NUM_THREADS`` of them, are divided among the streams of a schedule, each of
which works through its own batches; within a stream they are OpenMP's. Operations
on whole arrays, outside of schedules, have all of them. A device with a single thread has no
workers: its streams run each operation in the caller.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import platform
import queue
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from slipstream.engine import kernels
from slipstream.engine.array_types import Array
from slipstream.engine.device import gpu_fft_launch, vector_fft
from slipstream.engine.device.device_interface import (
    REAL_NAMES,
    BlockLaunch,
    Device,
    Event,
    Kernel,
    Operation,
    RowLaunch,
    Scratch,
    Span,
    Stream,
    address_of,
)
from slipstream.engine.device.host_compiler import COMPILATIONS
from slipstream.engine.device.lane_programs import (
    Crew,
    HostCall,
    LaneNode,
    LanePrograms,
    in_sequence,
)
from slipstream.engine.device.memory import (
    MappedBytes,
    map_file,
    note,
    running,
    unmap,
    use_huge_pages,
)
from slipstream.engine.processes import renew_in_child, thread_count
from slipstream.engine.stop_signals import signals_held

# The code that sets the number of threads of OpenMP.
_THREADS = kernels.source("openmp_threads.hpp", {})
# Arrays begin at multiples of this many bytes: a line of the cache, and the largest vector.
_ALIGNMENT = 64


class HostEvent(Event):
    """Set by the worker thread that reaches it."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._failure: BaseException | None = None

    def set(self, failure: BaseException | None = None) -> None:
        """Mark the event as reached now, or as never to be reached because of `failure`."""
        self._failure = failure
        self._reached.set()

    def done(self) -> bool:
        return self._reached.is_set()

    def synchronize(self) -> None:
        if not self._reached.is_set():
            signals_held.wait(self._reached.wait)
        if self._failure is not None:
            raise self._failure


# What a stream records that has nothing under way.
_REACHED = HostEvent()
_REACHED.set()


class HostSpan(Span):
    """Filled by the thread that runs the operation."""

    def __init__(self) -> None:
        self.start = self.stop = 0.0

    def interval(self) -> tuple[float, float]:
        return self.start, self.stop

    def around(self, operation: Operation) -> Operation:
        """Return the operation with its time taken."""

        def timed(stream: Stream) -> None:
            self.start = time.perf_counter()
            operation(stream)
            self.stop = time.perf_counter()

        return timed


class _TimedStream(Stream):
    def submit_timed(self, operation: Operation) -> Span:
        span = HostSpan()
        self.submit(span.around(operation))
        return span


class InlineStream(_TimedStream):
    """Runs every operation in the calling thread, between `begin` and `end` if given."""

    def __init__(self, begin: Operation | None = None, end: Operation | None = None) -> None:
        self._begin, self._end = begin, end

    def submit(self, operation: Operation) -> None:
        if self._begin is None or self._end is None:
            operation(self)
            return
        self._begin(self)
        try:
            operation(self)
        finally:
            self._end(self)

    def record(self) -> Event:
        return _REACHED

    def wait(self, event: Event) -> None:
        event.synchronize()

    def synchronize(self) -> None:
        pass


class SoloStream(InlineStream):
    """Runs every operation in the caller, and otherwise behaves as `HostStream`."""

    _failure: BaseException | None = None

    def submit(self, operation: Operation) -> None:
        if self._failure is None:
            try:
                super().submit(operation)
            except BaseException as failure:
                self._failure = failure

    def record(self) -> Event:
        if self._failure is None:
            return _REACHED
        event = HostEvent()
        event.set(self._failure)
        return event

    def wait(self, event: Event) -> None:
        self.submit(lambda stream: event.synchronize())

    def synchronize(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


class HostStream(_TimedStream):
    """A worker thread that runs operations in order, `begin` first.

    After an operation has failed, the rest of the queue is skipped; `synchronize` and the events
    behind the failure raise it. The thread begins with the first operation, also in a forked
    process, and ends with the stream object.
    """

    def __init__(self, begin: Operation | None = None) -> None:
        self._begin = begin
        self._worker: _Worker | None = None

    def submit(self, operation: Operation) -> None:
        (self._worker or self._started()).queue.put(operation)

    def record(self) -> Event:
        if self._worker is None:
            return _REACHED
        event = HostEvent()
        self._worker.queue.put(event)
        return event

    def wait(self, event: Event) -> None:
        self.submit(lambda stream: event.synchronize())

    def synchronize(self) -> None:
        try:
            self.record().synchronize()
        finally:
            if self._worker is not None:
                self._worker.failure = None

    def renew(self) -> None:
        """Do without the thread of the parent process."""
        self._worker = None

    def _started(self) -> _Worker:
        # An operation of the host does not look at the stream that it runs on.
        with signals_held:
            self._worker = worker = _Worker(InlineStream())
            renew_in_child(self)
            weakref.finalize(self, worker.queue.put, None)
            if self._begin is not None:
                worker.queue.put(self._begin)
            threading.Thread(target=worker.work, daemon=True).start()
        return worker


class _Worker:
    """The thread's data. It must not hold the stream, whose end is the thread's end."""

    def __init__(self, stream: Stream) -> None:
        self.queue: queue.SimpleQueue[Operation | HostEvent | None] = queue.SimpleQueue()
        self.failure: BaseException | None = None
        self._stream = stream

    def work(self) -> None:
        while (item := self.queue.get()) is not None:
            if isinstance(item, HostEvent):
                item.set(self.failure)
            elif self.failure is None:
                try:
                    item(self._stream)
                except BaseException as failure:
                    self.failure = failure


class HostKernel(Kernel):
    """A function of a compiled shared library; the interpreter lock is released while it runs."""

    def __init__(self, text: str, name: str, fast: bool = True) -> None:
        self._text, self._name, self._fast = text, name, fast

    def begin(self) -> None:
        COMPILATIONS.begin(self._text, self._fast, is_needed=False)

    def bind(self, launch: RowLaunch | BlockLaunch, *arguments: Any) -> HostCall:
        COMPILATIONS.begin(self._text, self._fast)
        load = functools.partial(_function, self._text, self._name, self._fast)
        return HostCall(load, [_convert_argument(one) for one in arguments], arguments)


def _describe_reals(array: Array) -> tuple[np.dtype, list[int], list[int]] | None:
    """Return the type, four sizes and three strides of an array of numbers, or of their parts.

    None if it has more than four axes, or gaps along the last.
    """
    real = np.zeros(0, array.dtype).real.dtype
    gapless = array.ndim and array.size and array.strides[-1] == array.itemsize
    if not gapless or array.ndim > 4 or real.name not in REAL_NAMES:
        return None
    lacking = 4 - array.ndim
    parts = array.itemsize // real.itemsize
    shape = [*[1] * lacking, *array.shape[:-1], array.shape[-1] * parts]
    strides = [*[0] * lacking, *(stride // real.itemsize for stride in array.strides[:-1])]
    return real, shape, strides


def _convert_argument(value: Any) -> Any:
    if isinstance(value, int):  # by far the most
        return ctypes.c_longlong(value)
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(address_of(value))
    if isinstance(value, np.generic):
        return np.ctypeslib.as_ctypes_type(cast(Any, value.dtype))(value.item())
    return ctypes.c_double(value)


class HostDevice(Device):
    """All cores that this process may use.

    `threads` threads, by default `thread_count`, are divided among `lanes` lanes: a few, such that
    most threads are used, or one for work that is done in microseconds. With `spare_core`, and
    several threads, the core of one thread stays free for a thread that polls for messages, which
    then need not pause.
    `tiled` takes the tiled kernels of GPUs, for tests: others are faster here.
    """

    kind = processor = "cpu"
    memory_kind = "host"
    array_module = np
    shared_memory_limit = gpu_fft_launch.SHARED_LIMIT
    multiprocessors = gpu_fft_launch.MULTIPROCESSORS
    blocks_per_multiprocessor = gpu_fft_launch.BLOCKS_PER_MULTIPROCESSOR

    def __init__(
        self,
        tiled: bool = False,
        threads: int | None = None,
        lanes: int | None = None,
        spare_core: bool = False,
    ) -> None:
        self.threads = threads or thread_count()
        # Polling without a pause would take a core from the kernels.
        self.pause = 0.0 if spare_core and self.threads > 1 else 2e-5
        if spare_core:
            self.threads = max(1, self.threads - 1)
        self._tiled = tiled
        # Threads that share one core would take it from each other at every turn: there, the thread
        # that schedules computes too, and looks for messages in between.
        self.inline = self.threads == 1
        self.lanes = lanes or lane_count(self.threads)
        self._threads_per_lane = max(1, self.threads // self.lanes)
        self.row_bytes = 128 if tiled else _ALIGNMENT
        self.name = f"{processor_name()}, {self.threads} thread{'s' * (self.threads > 1)}"
        self.identity = platform.node()
        usual = thread_count()
        limits = [] if self.threads == usual else [self._limit(self.threads), self._limit(usual)]
        self.default_stream = InlineStream(*limits)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        array = _aligned(shape, np.dtype(dtype))
        return array if getattr(running, "meter", None) is None else note(array)

    pinned = empty

    def shared_files(self, size: int) -> list[int]:
        """Return anonymous files that `map_shared` takes, in this process and in others.

        Unlike files in /dev/shm, those in memory are not limited to a part of it.
        """
        file = os.memfd_create("slipstream")
        os.ftruncate(file, size)
        return [file]

    def map_shared(self, files: Sequence[int], size: int) -> np.ndarray:
        """Return the bytes of `shared_files`, which may be closed then."""
        address = map_file(files[0], size)
        use_huge_pages(address, size)
        owner = MappedBytes(address, (size,))
        weakref.finalize(owner, unmap, address, size).atexit = False
        array = np.asarray(owner)
        self.pin(array)
        return array

    def array(self, values: Any, dtype: Any = None) -> np.ndarray:
        values = np.ascontiguousarray(values, dtype=dtype)
        target = self.empty(values.shape, values.dtype)
        target[...] = values  # nothing is under way that it would have to wait for
        return target

    def stream(self, urgent: bool = False) -> Stream:
        if self.inline:
            return self.calling_stream()
        return HostStream(self._limit(self._threads_per_lane))

    def calling_stream(self) -> Stream:
        return SoloStream(self._limit(self._threads_per_lane), self._limit(thread_count()))

    def _limit(self, threads: int) -> HostCall:
        """Return the operation that gives the kernels of the calling thread `threads` threads."""
        return HostKernel(_THREADS, "set_threads").bind(RowLaunch(1, 1), threads)

    def kernel(self, header: str, name: str, **constants: Any) -> Kernel:
        # Only tests run the kernels of GPUs, which are for blocks of threads, on a CPU.
        fast = not (self._tiled and "THREADS" in constants)
        return HostKernel(kernels.source(header, constants), name, fast)

    def kernel_variants(
        self, header: str, name: str, variants: Sequence[dict[str, Any]]
    ) -> list[Kernel]:
        text = kernels.source_of_variants(header, name, variants)
        return [HostKernel(text, f"{name}_{number}") for number in range(len(variants))]

    def load_kernels(self) -> None:
        COMPILATIONS.finish()

    def copy(self, target: Any, source: Any) -> Operation:
        return lambda stream: np.copyto(target, source)

    def fill(self, target: Array, value: float) -> Operation:
        if value == 0 and target.dtype.kind == "i" and target.itemsize >= 4:
            target = target.view(f"f{target.itemsize}")  # whose zero has the same bits
        box = _describe_reals(target) if target.dtype.kind == "f" or value == 0 else None
        if box is None:
            return lambda stream: target.fill(value)
        real, shape, strides = box
        kernel = self.kernel("strided_copy.hpp", "fill_box", REAL=REAL_NAMES[real.name])
        rows, columns = math.prod(shape[:3]), shape[3]
        sizes = rows, *shape[1:], *strides
        return kernel.bind(RowLaunch(rows, columns), target, real.type(value), *sizes)

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
        return vector_fft.plan(
            self, source, target, axis, forward, scale=scale, among_many=among_many
        )

    def with_all_threads(self, operation: Operation) -> Operation:
        if self._threads_per_lane == self.threads or not isinstance(operation, HostCall):
            return operation
        limits = self._limit(self.threads), self._limit(self._threads_per_lane)
        return in_sequence(self, [limits[0], operation, limits[1]])

    def lane_programs(self, lanes: Sequence[Sequence[LaneNode]]) -> LanePrograms:
        begin, end = self._limit(self._threads_per_lane), self._limit(thread_count())
        return LanePrograms(self, lanes, self._crew, begin, end)

    @functools.cached_property
    def _crew(self) -> Crew:
        return Crew(self)

    def has_cosine_transforms(self) -> bool:
        # For tests, which run the GPU's path through its own kernels.
        return not self._tiled

    def cosine_transform(
        self,
        source: Array,
        target: Array,
        axis: int,
        kind: str,
        orthonormal: bool = False,
        scale: float = 1.0,
    ) -> Operation:
        return vector_fft.plan(self, source, target, axis, True, scale, (kind, orthonormal))

    def tiled_transforms(self) -> bool:
        return self._tiled

    def memory_total(self) -> int:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def memory_free(self) -> int:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":") for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024

    def synchronize(self) -> None:
        return  # the default stream runs everything immediately

    def run(self, operation: Operation) -> None:
        self.default_stream.submit(operation)

    def to_host(self, array: Array) -> np.ndarray:
        return cast(np.ndarray, array)


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an uninitialised array whose first element is aligned."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    begin = -address_of(memory) % _ALIGNMENT
    return memory[begin : begin + size].view(dtype).reshape(shape)


@functools.cache
def _load(text: str, fast: bool = True) -> ctypes.CDLL:
    return ctypes.CDLL(str(COMPILATIONS.library(text, fast)))


@functools.cache
def _function(text: str, name: str, fast: bool) -> Any:
    """Return the function of a kernel, once it is compiled."""
    function = getattr(_load(text, fast), name)
    function.restype = None
    return function


def _keep_to_one_thread() -> None:
    """Make the only thread of a forked child run kernels by itself.

    GNU's OpenMP would wait for threads that it had in the parent. Threads that begin in the child
    have their own teams.
    """
    if _load.cache_info().currsize:
        HostKernel(_THREADS, "keep_to_one_thread").bind(RowLaunch(1, 1), 1)(InlineStream())


os.register_at_fork(after_in_child=_keep_to_one_thread)


def lane_count(threads: int, alone: bool = False) -> int:
    """Return the number of lanes that keeps a CPU busy and leaves the fewest threads idle.

    Lanes of a single rank run without the interpreter; otherwise, more lanes would wait for it.
    """
    most = 64 if alone else 8
    return max(range(1, min(threads, most) + 1), key=lambda n: (threads // n * n, n))


@functools.cache
def processor_name() -> str:
    """Return the processor's model, as the system tells it."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return "CPU"
