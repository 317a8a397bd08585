"""The arrays that users pass to a plan and get from it, immediately or when they are ready."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from slipstream.engine.array_types import Array
from slipstream.engine.device import Device, Event, Stream, address_of
from slipstream.engine.device.memory import MemoryMeter
from slipstream.engine.errors import InputError, KnownAttributes, RunError, finite_number
from slipstream.engine.fft.device_exchange import padded_row
from slipstream.engine.fft.fft_arguments import Arguments
from slipstream.engine.processes import renew_in_child, result_of
from slipstream.engine.schedule import CommittedStep
from slipstream.engine.schedule.step_graph import ByteRegion
from slipstream.engine.stop_signals import signals_held

# DLPack's device types of host memory, pinned or not.
_DLPACK_HOST = (1, 3, 11)
# DLPack's device types of GPUs by kind of device, managed or not.
_DLPACK_GPU = {"cuda": (2, 13)}
# The number of recent arrays that are recognised.
_RECOGNISED = 8
# The number of pairs of arrays for which a recorded step is kept.
_REMEMBERED = 4
# The number of calls after which another pair may replace an unused one.
_IDLE = 64


def array_key(array: Array) -> Hashable:
    """Return the identity of an array: address, layout, and whether it is writable."""
    is_writable = array.flags.writeable if isinstance(array, np.ndarray) else True
    return address_of(array), is_writable, array.shape, array.strides, array.dtype


def _converts(given: np.dtype, taken: np.dtype) -> bool:
    """Return whether numbers are converted without loss: integers, and other orders of bytes."""
    exact = given.kind in "biu" and np.can_cast(given, taken, "safe")
    return given != taken and (exact or given.newbyteorder("=") == taken)


class UserArrays:
    """Physical ("input") and spectral ("output") arrays of one rank.

    Arrays that are used in place are at `home`: on the device that transforms, or on the host.
    """

    def __init__(
        self, arguments: Arguments, rank: int, device: Device, home: Device, meter: MemoryMeter
    ) -> None:
        self._arguments, self._rank, self._meter = arguments, rank, meter
        self._device, self._home = device, home
        # Whether rows of real points become rows of modes, so that both can share memory.
        self._pads_rows = arguments.half_axis == len(arguments.shape) - 1
        self._kinds: dict[str, tuple[tuple[int, ...], np.dtype]] = {}
        for side, boxes, dtype in (
            ("input", arguments.input_boxes, arguments.dtype),
            ("output", arguments.output_boxes, arguments.spectral_dtype),
        ):
            shape = boxes[rank].shape
            self._kinds[side] = (
                shape if arguments.fields == 1 else (arguments.fields, *shape),
                dtype,
            )
        # The plan's arrays, by side.
        self.of_plan: dict[str, Array] = {}
        self._seen: deque[tuple[Hashable, weakref.ref[Any]]] = deque(maxlen=_RECOGNISED)

    def empty(self, side: str) -> npt.NDArray[Any]:
        """Return an uninitialised array that is used in place from the first call on."""
        array: Any = self._home.empty(*self._kinds[side])  # NumPy or CuPy, which has no types
        self.note(array)
        result: npt.NDArray[Any] = array
        return result

    def in_place(self) -> tuple[Any, Any]:
        """Return both arrays in one memory; rows of real points are padded, as in FFTW."""
        (physical, dtype), (spectral, complex_dtype) = self._kinds["input"], self._kinds["output"]
        half = self._arguments.half_axis
        if half is not None and not self._pads_rows:
            raise InputError(
                f"the transform along axis {half} halves the number of modes, which cannot share "
                "memory with the points; accepted: plans where this is the last axis"
            )
        row = padded_row(physical[-1]) if self._pads_rows else physical[-1]
        stored = (*physical[:-1], row)
        sizes = math.prod(stored) * dtype.itemsize, math.prod(spectral) * complex_dtype.itemsize
        memory = self._home.empty((max(sizes),), np.uint8)
        first = memory[: sizes[0]].view(dtype).reshape(stored)[..., : physical[-1]]
        second = memory[: sizes[1]].view(complex_dtype).reshape(spectral)
        self.note(first)
        self.note(second)
        return first, second

    def note(self, array: Array) -> None:
        """Remember an array that will be passed again."""
        self._seen.append((array_key(array), weakref.ref(self._owner(array))))

    def _import_array(self, array: Any, name: str) -> Any:
        """Return a NumPy or CuPy array in the memory of another library's array, through DLPack.

        NumPy's and CuPy's arrays, and arrays on devices that the plan does not use, are unchanged.
        """
        ours = np.ndarray, self._device.array_module.ndarray
        if isinstance(array, ours) or not hasattr(array, "__dlpack__"):
            return array
        try:
            kind = int(array.__dlpack_device__()[0])
            if kind in _DLPACK_HOST:
                return np.from_dlpack(array)
            if kind in _DLPACK_GPU.get(self._device.kind, ()):
                return self._device.array_module.from_dlpack(array)
        except Exception as error:
            raise InputError(
                f"{name} of type {type(array).__name__} is not available by DLPack: {error};"
                " accepted: strided arrays of this plan's type, detached from gradients"
            ) from error
        return array

    def checked(self, array: Any, side: str, name: str, is_written: bool = False) -> Array:
        """Return an array that the plan takes, or raise `InputError`.

        Unless it is written to, lists become arrays, and integers and other orders of bytes are
        converted, as by NumPy.
        """
        shape, dtype = self._kinds[side]
        if not isinstance(array, np.ndarray):
            array = self._import_array(array, name)

        def takes() -> str:  # the name of a type takes as long as all checks
            return f"this plan takes shape {shape} and type {dtype} on rank {self._rank}"

        if isinstance(array, list | tuple) and not is_written:
            try:
                array = np.asarray(array).astype(dtype, casting="same_kind")
            except (TypeError, ValueError) as error:
                raise InputError(f"{name} is a list, but not of such numbers; {takes()}") from error
        if not isinstance(array, (np.ndarray, self._device.array_module.ndarray)):
            modules = " or ".join(dict.fromkeys(("numpy", self._device.array_module.__name__)))
            raise InputError(f"{name} is of type {type(array).__name__}; {takes()}, from {modules}")
        if not is_written and tuple(array.shape) == shape and _converts(array.dtype, dtype):
            array = array.astype(dtype)
        if tuple(array.shape) != shape or array.dtype != dtype:
            found = f"shape {tuple(array.shape)} and type {array.dtype}"
            raise InputError(f"{name} is an array of {found}; {takes()}")
        if isinstance(array, np.ma.MaskedArray):
            raise InputError(f"{name} is a masked array; {takes()}, with a value everywhere")
        if isinstance(array, np.ndarray):
            array = array.view(np.ndarray)
        elif array.device.id != (ordinal := getattr(self._device, "ordinal", None)):
            raise InputError(f"{name} is on GPU {array.device.id}; this plan is on GPU {ordinal}")
        result: Array = array
        if not is_written:
            return result
        if not getattr(array.flags, "writeable", True):
            raise InputError(f"{name} is read-only; accepted: a writable array")
        # In the order of their strides, the extent of an axis must not exceed the next stride.
        reach = array.itemsize
        steps = [(abs(step), n) for step, n in zip(array.strides, array.shape, strict=True)]
        for step, n in sorted(steps) if array.size else ():
            if n > 1 and step < reach:
                raise InputError(
                    f"{name} has overlapping elements; accepted: an array without overlap"
                )
            reach += (n - 1) * step
        return result

    def usable(self, array: Array) -> bool:
        """Return whether an array is used in place; others are copied to the plan's."""
        if not self._home.holds(array):
            return False
        fits = array.size and address_of(array) % 16 == 0 and min(array.strides) > 0
        if self._home.kind != "cpu":
            # A library may choose another algorithm for other strides, and so return other bits.
            fits = fits and array.flags.c_contiguous
        else:
            fits = fits and array.strides[-1] == array.itemsize and array.flags.writeable
        if not fits:
            return False
        key, owner = array_key(array), self._owner(array)
        if any(known == key and ref() is owner for known, ref in self._seen):
            return True
        self._seen.append((key, weakref.ref(owner)))
        return self._home.in_place_at_once

    def apart(self, points: Array, modes: Array) -> bool:
        """Return whether one may be written while the other is read.

        This holds if they share no memory, are the same array, or have the layout of `in_place`.
        """
        start = address_of(points)
        known = self._pads_rows or self._arguments.half_axis is None
        if known and start == address_of(modes) and modes.flags.c_contiguous:
            rows = padded_row(points.shape[-1]) if self._pads_rows else points.shape[-1]
            step, steps = points.itemsize, []
            for n in reversed((*points.shape[:-1], rows)):
                steps.append(step)
                step *= n
            if points.strides == tuple(reversed(steps)):
                return True
        if array_key(points) == array_key(modes):
            return True
        return not ByteRegion(start, points).overlaps(ByteRegion(address_of(modes), modes))

    def get_plan_array(self, side: str) -> Array:
        """Return the plan's array on a side."""
        if side not in self.of_plan:
            with self._meter:
                self.of_plan[side] = self.empty(side)
        return self.of_plan[side]

    def copy(self, target: Array, source: Array, stream: Stream) -> None:
        """Copy between users' arrays and the plan's, in order with a stream."""
        if isinstance(target, np.ndarray):
            stream.synchronize()
            target[...] = self._device.to_host(source)
            return
        if isinstance(source, np.ndarray):  # a GPU copies only contiguous arrays from there
            source = np.ascontiguousarray(source)
        stream.submit(self._device.copy(target, source))

    def stream(self, user_stream: Any) -> Stream:
        """Return a stream of CuPy as a `Stream`."""
        if self._device.kind == "cpu" or not hasattr(user_stream, "ptr"):
            accepted = "a stream of this device" + ", or of CuPy" * (self._device.kind != "cpu")
            raise InputError(f"stream {user_stream!r}; accepted: {accepted}")
        return self._device.stream_of(user_stream)

    def _owner(self, array: Array) -> Array:
        """Return the base array of a view."""
        kinds = np.ndarray, self._device.array_module.ndarray
        while isinstance(array.base, kinds):
            array = array.base
        return array


@dataclass
class _Recorded:
    step: CommittedStep
    # Kept alive, so that no other array can get their address while the step exists.
    arrays: tuple[Array, Array]
    # The number of the plan's call that used it last.
    used: float


class RecordedSteps:
    """The steps of one direction, by pairs of arrays.

    Steps in use are not replaced by new ones: otherwise, with more arrays in turn than are
    remembered, a plan would record a step in every call.
    """

    def __init__(self) -> None:
        self._steps: dict[Hashable, _Recorded] = {}
        self._calls = 0

    def find(self, source: Array, target: Array) -> CommittedStep | None:
        """Return the step between two arrays, if there is one."""
        self._calls += 1
        recorded = self._steps.get((array_key(source), array_key(target)))
        if recorded is None:
            return None
        if recorded.used < self._calls:
            recorded.used = self._calls
        return recorded.step

    def has_room(self) -> bool:
        """Return whether there is room for another step."""
        used = [one.used for one in self._steps.values() if one.used < math.inf]
        return len(used) < _REMEMBERED or min(used) < self._calls - _IDLE

    def add(self, source: Array, target: Array, step: CommittedStep, always: bool) -> None:
        """Remember a step, perhaps instead of the least recently used; `always`: until the end."""
        used = {key: one.used for key, one in self._steps.items() if one.used < math.inf}
        if len(used) >= _REMEMBERED and not always:
            del self._steps[min(used, key=used.__getitem__)]
        last = math.inf if always else self._calls
        key = array_key(source), array_key(target)
        self._steps[key] = _Recorded(step, (source, target), last)

    def clear(self) -> None:
        """Forget all steps, and release their arrays."""
        self._steps.clear()


class PendingTransform(KnownAttributes):
    """A transform that has been started by `DistributedFFT.forward_async` or `backward_async`.

    Do not write or free its arrays before `wait` has returned.
    """

    def __init__(self, started: Future[Any] | None, result: Any, event: Event | None) -> None:
        self._started, self._result, self._event = started, result, event
        self._process = os.getpid()

    def __reduce__(self) -> Any:
        raise InputError("pickle: this transform has begun; accepted: what its wait() returns")

    def done(self) -> bool:
        """Return whether the transform has finished or failed, without waiting."""
        if self._event is not None:
            return self._event.done()
        return self._started is None or self._started.done()

    def wait(self, timeout: float | None = None) -> npt.NDArray[Any]:
        """Wait for the result and return it, as `forward` and `backward` do.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for a transform on CPUs; without limit by default, apart from
            ``SLIPSTREAM_TIMEOUT`` in each exchange.

        Raises
        ------
        RunError
            If the transform is not ready in time, in which case it continues; or if it has failed.
        """
        if timeout is not None:
            timeout = min(finite_number("timeout", timeout), threading.TIMEOUT_MAX)
        if self._event is not None:
            self._event.synchronize()
        if self._started is None:
            result: npt.NDArray[Any] = self._result
            return result
        if self._process != os.getpid() and not self._started.done():
            raise RunError(
                "this transform was begun before the process was forked, and its thread is gone; "
                "begin it again"
            )
        try:
            outcome: npt.NDArray[Any] = result_of(
                self._started, math.inf if timeout is None else timeout
            )
            return outcome
        except NotYet:
            if self._started.done():
                raise
            raise RunError(f"the transform is not done after {timeout:g} s") from None


class _NoRank:
    """Instead of a lock: refuses calls in a process that is not a rank of MPI."""

    def acquire(self, blocking: bool = True) -> bool:
        raise InputError(
            "this process was forked from a rank of MPI, and is not one itself; accepted: a "
            "plan made in this process, with comm=None"
        )

    def release(self) -> None:
        return

    def __enter__(self) -> None:
        return

    def __exit__(self, *exception: object) -> None:
        return


class Turns:
    """Serialises the plans that share a communicator: one call at a time, in order.

    A call holds signals back from before it takes its turn until it has given that back.
    Asynchronous calls run in a separate thread, one after the other, and other calls wait for them.
    """

    def __init__(self, alone: bool) -> None:
        self._alone = alone
        self._lock: Any = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._last: Future[Array] | None = None
        self._thread: int | None = None
        renew_in_child(self)

    def renew(self) -> None:
        """Reset in a forked process: no ranks, no thread, no pending calls."""
        self._lock = threading.Lock() if self._alone else _NoRank()
        self._executor = self._last = self._thread = None

    def __enter__(self) -> None:
        signals_held.__enter__()
        try:
            if self._last is not None:
                self.settle()
            if self._lock.acquire(blocking=False):
                return
            # On one rank calls take turns; several ranks might order calls of threads differently.
            if not self._alone:
                raise InputError(
                    "another thread is running this plan; accepted: one call at a time, or a plan "
                    "for each thread"
                )
            signals_held.wait(functools.partial(self._lock.acquire, True), own=1)
        except BaseException:
            signals_held.__exit__()
            raise

    def __exit__(self, *exception: object) -> None:
        self._lock.release()
        signals_held.__exit__()

    @contextlib.contextmanager
    def last(self) -> Iterator[None]:
        """Wait for all calls, and end the thread of asynchronous ones."""
        self.settle()
        with self._lock:
            if self._executor is not None:
                self._executor.shutdown()
            self._executor = None
            yield

    def start(self, call: Callable[[], Array]) -> Future[Array]:
        """Run a call after all earlier calls."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "slipstream-fft")
        self._last = self._executor.submit(self._noting_thread, call)
        return self._last

    def settle(self) -> None:
        """Wait for earlier calls, unless called by one; their own callers get their errors."""
        last = self._last
        if last is not None and self._thread != threading.get_ident():
            signals_held.wait(lambda seconds: wait([last], seconds).done, own=1)
            if self._last is last:
                self._last = None

    def _noting_thread(self, call: Callable[[], Array]) -> Array:
        # Not as the thread's target: the thread would keep this object alive, and never end.
        self._thread = threading.get_ident()
        return call()
