"""An NVIDIA GPU as a device, through CuPy: memory, streams, events, graphs and kernels."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import platform
import time
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import cupy
import numpy as np

from slipstream.engine import kernels
from slipstream.engine.array_types import Array
from slipstream.engine.device.cufft import CufftScratch, strided_plan, whole_plan
from slipstream.engine.device.device_interface import (
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
    merged_axes,
)
from slipstream.engine.device.memory import new_memory, note
from slipstream.engine.device.nvrtc_processes import OPTIONS, SideCompiler, loaded_library
from slipstream.engine.device.pool_limit import give_back, keep_to_limit, reserve
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.processes import result_of

if TYPE_CHECKING:
    pass


_THREADS = 256
_MAXIMUM_BLOCKS = 1 << 30
# Bytes of shared memory that a block may have without asking for more.
_USUAL_SHARED = 48 * 1024
_MAXIMUM_ROWS = 65535  # along the second and third axis of a grid
# That have a row to themselves where a kernel reduces: ROW_THREADS of portability.hpp.
_ROW_THREADS = 32
# Rectangles that are copied may not have longer rows, in bytes.
_LONGEST_ROW = (1 << 31) - 1
# Pinned arrays of fewer bytes share a pool.
_POOLED = 64 << 20
# cudaErrorMemoryAllocation.
_OUT_OF_MEMORY = 2
# cudaHostRegisterPortable.
_PORTABLE = 1
# cudaMemoryTypeHost.
_HOST_MEMORY = 1
# cudaErrorNotReady.
_NOT_READY = 600


class CudaKernel(Kernel):
    """A kernel of one GPU."""

    def __init__(self, device: CudaDevice, text: str, name: str) -> None:
        self._device, self._text, self._name = device, text, name

    def begin(self) -> None:
        _ = self._program

    def bind(self, launch: RowLaunch | BlockLaunch, *arguments: Any) -> Operation:
        program, values = self._program, tuple(_argument(value) for value in arguments)
        grid: tuple[int, ...]
        block: tuple[int, ...]
        if isinstance(launch, BlockLaunch):
            grid, block = (launch.blocks, launch.rows, launch.layers), (launch.threads,)
            shared = launch.shared_bytes
        else:
            grid, block = _choose_row_grid(launch)
            shared = 0
        # Kernels continue with the rows, or blocks, that a smaller grid leaves.
        grid = (min(grid[0], _MAXIMUM_BLOCKS), *(min(n, _MAXIMUM_ROWS) for n in grid[1:]))
        if 0 in grid:
            return lambda stream: None
        program.want(self._name, shared)
        function = None

        def operation(stream: Stream, keep_alive: Any = arguments) -> None:
            nonlocal function
            if function is None:
                function = program.function(self._name)
            function(grid, block, values, shared_mem=shared)

        return operation

    @functools.cached_property
    def _program(self) -> _Program:
        return _program(self._text, self._device)


class _Program:
    """The compiled and loaded program of one source text, on one GPU."""

    def __init__(self, device: CudaDevice, text: str) -> None:
        self._context = device.context
        with self._context:
            self._binary = _compiler().submit(text, (*OPTIONS, f"-arch={device.architecture}"))
        # By kernel name: bytes of shared memory that a block may use.
        self._wanted: dict[str, int] = {}
        self._functions: dict[str, Any] = {}
        self._shared: dict[str, int] = {}

    def want(self, name: str, shared: int) -> None:
        """Note that a kernel will be launched with this much shared memory."""
        if shared > self._shared.get(name, -1):
            self._shared[name] = self._wanted[name] = shared
            _not_loaded.setdefault(self)

    def load(self) -> None:
        """Wait for the binary, and load the kernels that are wanted from it."""
        driver = cupy.cuda.driver
        try:
            module = self._module
        except Exception:
            # It fails for its own users, each time they launch it, and for nobody else.
            _not_loaded.pop(self, None)
            raise
        with self._context:  # each GPU has its own function
            while self._wanted:
                name, shared = next(iter(self._wanted.items()))
                if name not in self._functions:
                    self._functions[name] = module.get_function(name)
                if shared > _USUAL_SHARED:
                    limit = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                    driver.funcSetAttribute(self._functions[name].ptr, limit, shared)
                del self._wanted[name]
        _not_loaded.pop(self, None)

    def function(self, name: str) -> Any:
        """Return a wanted kernel, ready to be launched."""
        if self._wanted:
            self.load()
        return self._functions[name]

    @functools.cached_property
    def _module(self) -> Any:
        module = cupy.cuda.function.Module()
        with self._context:
            module.load(result_of(self._binary))
        return module


_not_loaded: dict[_Program, None] = {}


def load_kernels() -> None:
    """Load all kernels that have been bound, which is impossible while a graph is captured."""
    for program in list(_not_loaded):
        program.load()


@functools.cache
def _program(text: str, device: CudaDevice) -> _Program:
    return _Program(device, text)


@functools.cache
def _compiler() -> SideCompiler:
    version = cupy.cuda.nvrtc.getVersion()  # which loads the library
    library = loaded_library("libnvrtc.so")
    if library is None:
        raise RunError("CuPy has loaded no NVRTC to compile kernels with")
    return SideCompiler(library, ".".join(map(str, version)))


def _argument(value: Any) -> Any:
    if isinstance(value, float):
        return np.float64(value)
    if isinstance(value, np.ndarray):  # pinned memory, which the GPU reaches under its own address
        return np.int64(address_of(value))
    return np.int64(value) if isinstance(value, int) else value


def _choose_row_grid(launch: RowLaunch) -> tuple[tuple[int, ...], tuple[int, ...]]:
    across = min(_THREADS, max(_ROW_THREADS, 1 << max(0, launch.columns - 1).bit_length()))
    across = _ROW_THREADS if launch.reduces else across
    rows_per_block = _THREADS // across
    return (-(-launch.rows // rows_per_block),), (across, rows_per_block)


# Streams beyond this many share queues of the device and wait for each other without need, for ever
# if one of them waits for another rank. CUDA reads this when it starts: whoever uses the GPU before
# this module is imported sets it in the environment.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")


class CudaEvent(Event):
    """A CUDA event."""

    def __init__(self) -> None:
        self.handle = cupy.cuda.Event()

    def done(self) -> bool:
        runtime = cupy.cuda.runtime
        # A fault of the device is no reason to continue waiting.
        status: int = runtime.eventQuery(self.handle.ptr)
        if status not in (0, _NOT_READY):
            raise runtime.CUDARuntimeError(status)
        return status == 0

    def synchronize(self) -> None:
        self.handle.synchronize()


class CudaSpan(Span):
    """Two CUDA events, placed in the host's time by an earlier event of the device."""

    def __init__(self, device: CudaDevice) -> None:
        self._origin = device.origin
        self.start, self.stop = cupy.cuda.Event(), cupy.cuda.Event()

    def interval(self) -> tuple[float, float]:
        origin, at = self._origin
        elapsed = cupy.cuda.get_elapsed_time
        return at + elapsed(origin, self.start) * 1e-3, at + elapsed(origin, self.stop) * 1e-3


class CudaStream(Stream):
    """A CUDA stream. Submitting an operation enqueues it from the calling thread."""

    def __init__(self, device: CudaDevice, handle: cupy.cuda.Stream) -> None:
        self._device, self.handle = device, handle

    def submit(self, operation: Operation) -> None:
        with self._device.context, self.handle:
            operation(self)

    def submit_timed(self, operation: Operation) -> Span:
        with self._device.context, self.handle:
            span = CudaSpan(self._device)
            span.start.record(self.handle)
            operation(self)
            span.stop.record(self.handle)
        return span

    def record(self) -> CudaEvent:
        with self._device.context:
            event = CudaEvent()
            event.handle.record(self.handle)
        return event

    # CUDA's default stream belongs to the current device, which users may have changed.

    def wait(self, event: Event) -> None:
        with self._device.context:
            self.handle.wait_event(cast(CudaEvent, event).handle)

    def synchronize(self) -> None:
        with self._device.context:
            self.handle.synchronize()

    def capture(self, enqueue: Callable[[], None]) -> Operation:
        """Return a graph of the work that `enqueue` submits here and to streams waiting for this.

        Nothing runs during the capture. The result is an operation that replays the graph.
        """
        load_kernels()
        with self._device.context:
            self.handle.begin_capture()
            try:
                enqueue()
            except BaseException:
                with contextlib.suppress(Exception):  # which would hide the first failure
                    self.handle.end_capture()
                raise
            graph = self.handle.end_capture()
        return lambda stream: graph.launch(cast(CudaStream, stream).handle)


class CudaDevice(Device):
    """One GPU, by its ordinal among the GPUs that this process sees."""

    kind = "cuda"
    processor = "gpu"
    memory_kind = "device"
    has_graphs = True
    array_module = cupy
    lanes = 1
    # The host has nothing else to do, and messages through it advance only when polled.
    pause = 0.0
    row_bytes = 128

    def __init__(self, ordinal: int = 0) -> None:
        self.ordinal = ordinal
        self.context = cupy.cuda.Device(ordinal)
        properties = cupy.cuda.runtime.getDeviceProperties(ordinal)
        self.name = properties["name"].decode()
        bus = cupy.cuda.runtime.deviceGetPCIBusId(ordinal)
        self.identity = f"{platform.node()} {bus}"
        self.shared_memory_limit = int(properties["sharedMemPerBlockOptin"])
        self.multiprocessors = int(properties["multiProcessorCount"])
        self.blocks_per_multiprocessor = int(properties["maxBlocksPerMultiProcessor"])
        self.architecture = f"sm_{self.context.compute_capability}"
        # CuPy's own default, so that array expressions, and memory that is freed and allocated
        # again between them, are in order with the operations submitted here.
        self.default_stream = CudaStream(self, cupy.cuda.Stream.null)
        # By the addresses of memory outside of CuPy's pool: by how much they lower its limit.
        self._reserved: dict[int, int] = {}
        self.make_current()
        keep_to_limit()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CudaDevice) and self.ordinal == other.ordinal

    def __hash__(self) -> int:
        return hash((CudaDevice, self.ordinal))

    def make_current(self) -> None:
        """Make arrays of users and of default streams live on this GPU, and reset its clock.

        The times of spans count from a recent event, as CUDA rounds them to single precision.
        """
        self.context.use()
        event = cupy.cuda.Event()
        event.record(cupy.cuda.Stream.null)
        event.synchronize()
        self.origin = event, time.perf_counter()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> cupy.ndarray:
        with self.context, self._explain_lack_of(f"an array of shape {tuple(shape)}"):
            return note(cupy.empty(shape, dtype))

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> cupy.ndarray:
        array = self.empty(shape, dtype)
        self.run(lambda stream: array.fill(0))
        return array

    def allocate(self, size: int) -> int:
        """Return the address of `size` bytes outside of CuPy's pool, but within its limit."""
        with self.context, self._explain_lack_of(f"{size} bytes to share"):
            cupy.get_default_memory_pool().free_all_blocks()
            reserved = reserve(size)
            try:
                address: int = cupy.cuda.runtime.malloc(size)
            except BaseException:
                give_back(reserved)
                raise
        self._reserved[address] = reserved
        return address

    def release(self, address: int) -> None:
        """Free what `allocate` has returned."""
        with self.context:
            cupy.cuda.runtime.free(address)
            give_back(self._reserved.pop(address))

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        count = math.prod(shape)
        size = max(1, count * np.dtype(dtype).itemsize)
        with self.context:
            if size < _POOLED:
                memory = cupy.cuda.alloc_pinned_memory(size)
            else:  # the runtime would clear page after page by one thread
                memory = new_memory(size)
                self.pin(memory)
        array: np.ndarray = np.frombuffer(memory, dtype, count).reshape(shape)
        return note(array)

    def pinned_zeros(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return an array of zeros on the host that is pinned."""
        array = self.pinned(shape, dtype)
        if array.nbytes < _POOLED:
            array[...] = 0
        return array

    def pin(self, memory: np.ndarray) -> None:
        runtime, address = cupy.cuda.runtime, address_of(memory)
        with self.context:
            runtime.hostRegister(address, memory.nbytes, _PORTABLE)
        weakref.finalize(memory, runtime.hostUnregister, address).atexit = False

    def is_pinned(self, array: np.ndarray) -> bool:
        """Return whether the GPU reaches an array of the host."""
        with self.context:
            attributes = cupy.cuda.runtime.pointerGetAttributes(address_of(array))
        return bool(attributes.type == _HOST_MEMORY)

    def stream(self, urgent: bool = False) -> CudaStream:
        with self.context:
            priority = -1 if urgent else 0
            handle = cupy.cuda.Stream(non_blocking=True, priority=priority)
            return CudaStream(self, handle)

    def stream_of(self, handle: cupy.cuda.Stream) -> CudaStream:
        """Return a stream of CuPy's as a stream of this device."""
        return CudaStream(self, handle)

    def kernel(self, header: str, name: str, **constants: Any) -> Kernel:
        return CudaKernel(self, kernels.source(header, constants), name)

    def load_kernels(self) -> None:
        load_kernels()

    def copy(self, target: Array, source: Array) -> Operation:
        on_device = isinstance(target, cupy.ndarray) and isinstance(source, cupy.ndarray)
        alike = target.flags.c_contiguous and source.flags.c_contiguous
        if on_device and not (
            alike and (target.shape, target.dtype) == (source.shape, source.dtype)
        ):
            return lambda stream: cupy.copyto(target, source)
        if target.shape != source.shape or target.dtype != source.dtype:
            raise ValueError(f"cannot copy {source.shape} {source.dtype} to {target.shape}")
        kind = cupy.cuda.runtime.memcpyDefault
        if alike:
            copy_1d, run = cupy.cuda.runtime.memcpyAsync, (address_of(target), address_of(source))

            def copy_all(stream: Stream, keep_alive: Any = (target, source)) -> None:
                copy_1d(*run, source.nbytes, kind, cast(CudaStream, stream).handle.ptr)

            return copy_all
        rectangles, copy_2d = (
            _split_into_rectangles(target, source),
            cupy.cuda.runtime.memcpy2DAsync,
        )

        def operation(stream: Stream, keep_alive: Any = (target, source)) -> None:
            for rectangle in rectangles:
                copy_2d(*rectangle, kind, cast(CudaStream, stream).handle.ptr)

        return operation

    def fill(self, target: Array, value: float) -> Operation:
        return lambda stream: target.fill(value)

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
        with self.context, self._explain_lack_of("cuFFT's work area"):
            plan = strided_plan(source, target, axis, forward, cast(CufftScratch | None, scratch))
        if scale == 1.0:
            return plan
        multiply = self.scale(target, scale)

        def run(stream: Stream) -> None:
            plan(stream)
            multiply(stream)

        return run

    def fft_scratch(self) -> CufftScratch:
        return CufftScratch()

    def fft_all(self, source: Array, target: Array, forward: bool) -> Operation:
        with self.context, self._explain_lack_of("cuFFT's work area"):
            return whole_plan(source, target, forward)

    @contextlib.contextmanager
    def _explain_lack_of(self, what: str) -> Iterator[None]:
        try:
            yield
        except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError) as failure:
            if getattr(failure, "status", _OUT_OF_MEMORY) != _OUT_OF_MEMORY:
                raise
            raise InputError(
                f"{self.name} has no memory left for {what}: use a smaller grid or more devices"
            ) from failure

    def tiled_transforms(self) -> bool:
        return True

    def memory_total(self) -> int:
        with self.context:
            total = int(cupy.cuda.runtime.memGetInfo()[1])
            limit = cupy.get_default_memory_pool().get_limit()
        return min(total, limit + sum(self._reserved.values())) if limit else total

    def memory_free(self) -> int:
        pool = cupy.get_default_memory_pool()
        with self.context:
            free = int(cupy.cuda.runtime.memGetInfo()[0] + pool.free_bytes())
            limit = pool.get_limit()
            return max(0, min(free, limit - pool.used_bytes())) if limit else free

    def synchronize(self) -> None:
        self.context.synchronize()


def _split_into_rectangles(target: Array, source: Array) -> list[tuple[int, ...]]:
    """Split a strided copy into rectangles (target, pitch, source, pitch, width, height)."""
    shape, strides = merged_axes(target, source)
    if 0 in shape:
        return []
    if all(steps[-1] == target.itemsize for steps in strides):
        width, shape, strides = shape[-1] * target.itemsize, shape[:-1], [s[:-1] for s in strides]
    else:
        width = target.itemsize
    # The longest axis makes the rows of rectangles; where its steps are too long, each has one.
    usable = [
        n if max(steps[i] for steps in strides) <= _LONGEST_ROW else 0 for i, n in enumerate(shape)
    ]
    rows = int(np.argmax(usable)) if any(usable) else None
    looped = [range(1 if axis == rows else n) for axis, n in enumerate(shape)]
    height, pitches = (
        (1, (width, width)) if rows is None else (shape[rows], [steps[rows] for steps in strides])
    )
    result: list[tuple[int, ...]] = []
    for index in itertools.product(*looped):
        to, of = (
            address_of(array) + sum(i * step for i, step in zip(index, steps, strict=True))
            for array, steps in zip((target, source), strides, strict=True)
        )
        for low in range(0, width, _LONGEST_ROW):
            length = min(_LONGEST_ROW, width - low)
            result.append((to + low, pitches[0], of + low, pitches[1], length, height))
    return result
