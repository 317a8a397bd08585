"""The device contract: everything that the layers above may ask of a processor.

A device allocates arrays, runs kernels and local transforms, and orders them by streams and
events. An *operation* is a function of one argument, the stream it is to run on; recording a
time step means collecting operations, and a schedule later decides on which stream, and after
which events, each is submitted. Host and GPU differ only behind this contract.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from slipstream.engine.array_types import Array

if TYPE_CHECKING:
    from slipstream.engine.device.lane_programs import LaneNode, LanePrograms


# By the name of the dtype.
REAL_NAMES = {"float32": "float", "float64": "double"}


class _ArrayStruct(ctypes.Structure):
    """NumPy's description of an array for C (`PyArrayInterface`)."""

    _fields_ = (
        ("two", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("typekind", ctypes.c_char),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
    )


_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def address_of(array: Array) -> int:
    """Return the address of the first element of an array, or of a view."""
    if isinstance(array, np.ndarray):
        # In a quarter of the time of `array.ctypes.data`: recording a step asks for thousands, and
        # each call of a recorded transform for two.
        capsule = array.__array_struct__
        return _ArrayStruct.from_address(_pointer_of(capsule, None)).data or 0
    address: int = array.data.ptr
    return address


def host_values(array: Array) -> np.ndarray:
    """Return an array of either module as one of NumPy, copied if it is on a GPU."""
    if isinstance(array, np.ndarray):
        return array
    copied: np.ndarray = cast(Any, array).get()
    return copied


def merged_axes(first: Array, second: Array) -> tuple[list[int], list[list[int]]]:
    """Return the shape and the strides, in bytes, of two arrays of one shape with few axes.

    Axes of one element are left out, and neighbours are one axis where both arrays allow it; at
    least one axis remains.
    """
    shape: list[int] = []
    strides: list[list[int]] = [[], []]
    for axis, size in enumerate(first.shape):
        steps = first.strides[axis], second.strides[axis]
        if size == 1:
            continue
        if shape and all(o[-1] == size * s for o, s in zip(strides, steps, strict=True)):
            shape[-1] *= size
            for axis_steps, step in zip(strides, steps, strict=True):
                axis_steps[-1] = step
            continue
        shape.append(size)
        for axis_steps, step in zip(strides, steps, strict=True):
            axis_steps.append(step)
    if not shape:
        return [1], [[first.itemsize], [second.itemsize]]
    return shape, strides


Operation = Callable[["Stream"], None]


class Event(ABC):
    """A point in a stream that can be waited for."""

    @abstractmethod
    def done(self) -> bool:
        """Return whether all work before the event has finished."""

    @abstractmethod
    def synchronize(self) -> None:
        """Block the calling thread until the event is done; raise what failed before it."""


class Span(ABC):
    """When an operation ran."""

    @abstractmethod
    def interval(self) -> tuple[float, float]:
        """Return start and stop in seconds of `time.perf_counter`; the operation must be done."""


class Stream(ABC):
    """An ordered queue of operations; different streams may run at the same time."""

    @abstractmethod
    def submit(self, operation: Operation) -> None:
        """Append an operation; return without waiting where the device allows it."""

    @abstractmethod
    def submit_timed(self, operation: Operation) -> Span:
        """Append an operation and return the span of time in which it will have run."""

    @abstractmethod
    def record(self) -> Event:
        """Append an event and return it."""

    @abstractmethod
    def wait(self, event: Event) -> None:
        """Make all later work in this stream start only after `event`."""

    @abstractmethod
    def synchronize(self) -> None:
        """Block until everything submitted has finished; raise what failed."""

    def capture(self, enqueue: Callable[[], None]) -> Operation:
        """Return all that `enqueue` submits, here and to streams that wait for this, as one graph.

        Only the streams of a GPU can.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class RowLaunch:
    """Iteration space of a ``FOR_ROWS`` / ``FOR_COLUMNS`` kernel: the extent of the loops."""

    rows: int
    columns: int
    # Whether the kernel sums along rows, so that one warp must have a row to itself.
    reduces: bool = False


@dataclass(frozen=True)
class BlockLaunch:
    """Iteration space of a ``FOR_BLOCKS`` kernel: independent blocks of cooperating threads.

    Threads, and bytes of shared memory, are those of one block on a GPU. A ``FOR_BLOCK_GRID``
    kernel has `blocks` in each of `rows` rows in each of `layers` layers.
    """

    blocks: int
    threads: int
    shared_bytes: int
    rows: int = 1
    layers: int = 1


class Kernel(ABC):
    """A kernel, compiled once it is bound. `bind` fixes its arguments and returns an operation.

    The first run of the operation waits for the compiler, unless `Device.load_kernels` has.
    """

    def begin(self) -> None:
        """Start compiling the kernel for later use, if that can be done in the background."""
        return

    @abstractmethod
    def bind(self, launch: RowLaunch | BlockLaunch, *arguments: Any) -> Operation:
        """Return the operation that runs the kernel on these arguments.

        Parameters
        ----------
        launch : RowLaunch or BlockLaunch
            The iteration space, which sizes a GPU's grid. The CPU takes it from the arguments.
        *arguments
            Arrays (passed as pointers to their first element; kept alive by the operation),
            ``int`` (64-bit), ``float`` (64-bit) or NumPy scalars (their own type).
        """


class Scratch:
    """Resources of transforms that never run at the same time: plans, and work memory.

    First transforms are planned to find out what they need; then the memory is provided, and they
    are planned again.
    """

    # Bytes that the transforms planned so far need, apart from source and target.
    needed = 0

    def provide(self, memory: Array) -> None:
        """Take an array of at least `needed` bytes, for all transforms that follow."""


class Device(ABC):
    """One processor with its memory.

    Devices are equal if this process means the same GPU by them. Several objects of the CPU, which
    may stand for several GPUs, are not equal.

    Attributes
    ----------
    name : str
        For people, for example ``"NVIDIA H200"``.
    kind : str
        A name of `slipstream.engine.accepted.DEVICES`.
    processor : str
        "cpu", or "gpu" for those of any vendor: what sizes of batches go by.
    memory_kind : str
        Where its arrays are, as `MemoryMeter` counts them: "host", "device" or "disk".
    array_module : module
        NumPy or CuPy: the module whose arrays live in this device's memory.
    default_stream : Stream
        The stream of work that is not scheduled.
    identity : str
        Which piece of hardware this is: ranks whose devices have the same identity share it.
    lanes : int
        How many streams of work on parts of an array keep the device busy: the threads of a CPU,
        which share nothing while each works through its own batches; one on a GPU.
    shared_memory_limit : int
        Bytes of shared memory that a block of a tiled kernel may have.
    multiprocessors, blocks_per_multiprocessor : int
        How many there are, and how many blocks one of them holds at most; of a CPU, those of the
        GPU that its tiled kernels are laid out for.
    inline : bool
        Whether operations are over when they have been submitted.
    pause : float
        Seconds for which a thread that polls leaves its core to the kernels, between two polls.
    row_bytes : int
        Rows of large arrays are best accessed where they start at multiples of this.
    has_graphs : bool
        Whether a stream can `capture` what it is given, to replay it by one call.
    notes : bool
        Whether nothing runs: graphs are recorded to count what their nodes access, which they keep.
    """

    name: str
    kind: str
    processor: str
    memory_kind: str
    identity: str
    lanes: int
    shared_memory_limit: int
    multiprocessors: int
    blocks_per_multiprocessor: int
    inline: bool = False
    has_graphs: bool = False
    notes: bool = False
    pause: float
    row_bytes: int
    array_module: ModuleType
    default_stream: Stream

    @property
    def memory_home(self) -> Device:
        """Return the device whose arrays are in memory: itself, unless its arrays are in files."""
        return self

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an uninitialised, aligned, C-ordered array in device memory."""

    def in_cache(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return the same for an array that batches share, on a CPU in the cache of a core."""
        return self.empty(shape, dtype)

    @abstractmethod
    def pinned(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return a C-ordered NumPy array to and from which this device copies asynchronously."""

    def pin(self, memory: np.ndarray) -> None:
        """Make copies from and to memory of the host asynchronous, until it is freed.

        A CPU copies from and to any.
        """
        return

    @abstractmethod
    def stream(self, urgent: bool = False) -> Stream:
        """Return a new stream; the device prefers the work of urgent ones where it can."""

    def stream_of(self, handle: Any) -> Stream:
        """Return a stream of the array module's as one of this device; only a GPU has such."""
        raise NotImplementedError

    @abstractmethod
    def kernel(self, header: str, name: str, **constants: Any) -> Kernel:
        """Compile (or load from the cache) kernel `name` of `header` with these constants."""

    def kernel_variants(
        self, header: str, name: str, variants: Sequence[dict[str, Any]]
    ) -> list[Kernel]:
        """Return a kernel with each of some sets of constants; all of them will be needed."""
        return [self.kernel(header, name, **constants) for constants in variants]

    def load_kernels(self) -> None:
        """Wait until all kernels that have been bound are compiled, and load them."""
        return

    @abstractmethod
    def copy(self, target: Array, source: Array) -> Operation:
        """Return the operation ``target[...] = source``; either array may be pinned."""

    @abstractmethod
    def fill(self, target: Array, value: float) -> Operation:
        """Return the operation that sets all elements of an array, or a view, to a number."""

    @abstractmethod
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
        """Return the unnormalised transform along `axis`, all other axes batched, times a constant.

        Real to complex if `source` is real, complex to real if `target` is, else complex. The
        arrays may be strided views. A complex-to-real transform may overwrite its source. Complex
        transforms may be in place. Transforms with the same scratch must not run at the same time.
        Rows `among_many` of planes have the bits that they have between products of fields
        (`vector_fft.bind_products`), which treat rows together however long they are.
        """

    def has_cosine_transforms(self) -> bool:
        """Return whether the device has cosine and sine transforms."""
        return False

    def cosine_transform(
        self,
        source: Array,
        target: Array,
        axis: int,
        kind: str,
        orthonormal: bool = False,
        scale: float = 1.0,
    ) -> Operation:
        """Return a cosine or sine transform along `axis` of real arrays, times a constant.

        Of `kind` "dct1" to "dct4", or "dst1" to "dst4". It is unnormalised, or, with `orthonormal`,
        orthogonal up to a factor common to all modes. The source is kept; the arrays may be
        strided views.
        """
        raise NotImplementedError

    def fft_scratch(self) -> Scratch:
        """Return new scratch, which does nothing if transforms of this device need none."""
        return Scratch()

    def fft_all(self, source: Array, target: Array, forward: bool) -> Operation:
        """Return the unnormalised transform along all axes but the first, by one library plan.

        As `fft`, of contiguous arrays; of GPUs.
        """
        raise NotImplementedError

    @abstractmethod
    def tiled_transforms(self) -> bool:
        """Return whether this device prefers tiled kernels (`strided_fft.hpp`) where they fit."""

    def with_all_threads(self, operation: Operation) -> Operation:
        """Return an operation that may use the threads of all lanes, while the others are idle."""
        return operation

    def lane_programs(self, lanes: Sequence[Sequence[LaneNode]]) -> LanePrograms:
        """Return programs that run lists of nodes concurrently, for the lanes of a CPU."""
        raise NotImplementedError

    def calling_stream(self) -> Stream:
        """Return a stream that runs operations in the caller, with the threads of a lane."""
        raise NotImplementedError

    @abstractmethod
    def memory_total(self) -> int:
        """Return the number of bytes in all."""

    @abstractmethod
    def memory_free(self) -> int:
        """Return the number of bytes that can be allocated now."""

    @abstractmethod
    def synchronize(self) -> None:
        """Block until all work of this device has finished."""

    # Whether to use users' arrays in place from the first time on: a copy would take too long.
    in_place_at_once = False

    def holds(self, array: object) -> bool:
        """Return whether an array lies in memory such as `empty` returns."""
        return isinstance(array, self.array_module.ndarray)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return a zeroed array in device memory."""
        array = self.empty(shape, dtype)
        array[...] = 0
        return array

    def array(self, values: Any, dtype: Any = None) -> Array:
        """Return a copy of host values in device memory."""
        values = np.ascontiguousarray(values, dtype=dtype)
        target = self.empty(values.shape, values.dtype)
        self.run(self.copy(target, values))
        return target

    def to_host(self, array: Array) -> np.ndarray:
        """Return `array` as a NumPy array, after all work submitted so far."""
        self.synchronize()
        return host_values(array)

    def scale(self, target: Array, factor: float) -> Operation:
        """Return the operation that multiplies an array, or a view, by a number."""
        multiply, value = self.array_module.multiply, target.real.dtype.type(factor)
        return lambda stream: multiply(target, value, out=target)

    def run(self, operation: Operation) -> None:
        """Run one operation now and wait for it."""
        self.default_stream.submit(operation)
        self.default_stream.synchronize()
