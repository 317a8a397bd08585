"""Local transforms on the CPU by FFTW, whose plans are the same in every run.

A plan that FFTW measures may be several times as fast as one that it estimates (docs/fft.md), but
not the same from run to run: timings decide, and with them the last bits of a result. So plans are
estimated, within limits that make good ones of them (see `_FLAGS`), and in no way by what anybody
has measured in this process. Whoever wants the speed more than the bits sets
``SLIPSTREAM_FFTW=measure``: plans are then measured once and kept as wisdom in the cache folder.

pyFFTW brings FFTW and plans with the flags of its manual only, so FFTW is called directly here.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyfftw

from slipstream.device.device_interface import Operation
from slipstream.device.host_calls import HostCall, RepeatedCall
from slipstream.device.private_cache import cache_folder, locked, write_atomically
from slipstream.errors import InputError

MEASURING = "SLIPSTREAM_FFTW"
_CHOICES = ("estimate", "measure")

# FFTW's api/fftw3.h. Estimates make too little of memory: FFTW copies a few columns of a strided
# transform at a time to transform them, which takes twice as long as what it does without a buffer.
_MEASURE, _DESTROY_INPUT, _ESTIMATE, _NO_BUFFERING, _WISDOM_ONLY = 0, 1, 1 << 6, 1 << 11, 1 << 21
_FLAGS = (_ESTIMATE | _NO_BUFFERING, _ESTIMATE)

# Plans serve arrays that are aligned like those that they were made for.
_ALIGNMENT = 64
PREFIXES = {"f": "fftwf", "d": "fftw", "F": "fftwf", "D": "fftw"}
_PARTS = ("double", "single", "long_double")
# FFTW's planner serves one thread at a time.
planner = threading.Lock()
# A process is forked between two plans: nobody would finish one in the child.
os.register_at_fork(
    before=planner.acquire, after_in_parent=planner.release, after_in_child=planner.release
)


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an uninitialised array, aligned for FFTW's vector code."""
    return pyfftw.empty_aligned(shape, dtype=dtype, n=_ALIGNMENT)


def plan(
    source: np.ndarray, target: np.ndarray, axes: tuple[int, ...], forward: bool, threads: int
) -> Operation:
    """Return the planned transform ``source -> target`` along `axes`; see `Device.fft`."""
    if 0 in source.shape or 0 in target.shape:
        return lambda stream: None
    problem = _Problem(source, target, axes, forward, threads)
    if problem.fails:
        return _through_memory(source, target, axes, forward, threads)
    return _plan_of(problem).call(source.ctypes.data, target.ctypes.data, (source, target))


def plan_planes(
    source: np.ndarray, target: np.ndarray, inner: Sequence[int], axis: int, forward: bool
) -> RepeatedCall | None:
    """Return the transforms along `axis`, each by one thread, of all planes with the axes `inner`.

    None if there is no plan for them. Planes are many, and differ in their addresses only: few
    are looked at as arrays.
    """
    if 0 in source.shape or 0 in target.shape:
        return None
    first, second = (array.ctypes.data for array in (source, target))
    # Addresses of planes may be equal only where memory is shared.
    apart = abs(second - first) >= _extent(source) + _extent(target)
    key = (
        "planes",
        *((array.dtype.char, array.shape, array.strides) for array in (source, target)),
        *(first % _ALIGNMENT, second % _ALIGNMENT, None if apart else second - first),
        *(tuple(inner), axis, forward, os.environ.get(MEASURING)),
    )
    known = _plans.get(key)
    if known is None:
        known = _planned_planes(source, target, inner, axis, forward)
        if known is None:
            return None
        if len(known[1]) <= _REMEMBERED_PLANES:
            _plans[key] = known
    execute, places = known
    return RepeatedCall(execute, places + np.array([0, first, second]), (source, target))


def _extent(array: np.ndarray) -> int:
    steps = ((n - 1) * abs(step) for n, step in zip(array.shape, array.strides, strict=True))
    return sum(steps) + array.itemsize


def _planned_planes(
    source: np.ndarray, target: np.ndarray, inner: Sequence[int], axis: int, forward: bool
) -> tuple[Any, np.ndarray] | None:
    """Return FFTW's function, and for each plane its plan and how far behind the first it lies."""
    outer = [k for k in range(source.ndim) if k not in inner]
    counts = [source.shape[k] for k in outer]
    distances, begins = [], []
    for array in (source, target):
        distance = np.zeros(1, np.int64)
        for k, count in zip(outer, counts, strict=True):
            distance = (distance[:, None] + array.strides[k] * np.arange(count)).reshape(-1)
        distances.append(distance)
        begins.append(array.ctypes.data + distance)
    # What else a plan is made for is the same of all planes.
    alignments = [begin % _ALIGNMENT for begin in begins]
    kinds = 2 * (_ALIGNMENT * alignments[0] + alignments[1]) + (begins[0] == begins[1])
    _, firsts, kind_of = np.unique(kinds, return_index=True, return_inverse=True)
    plans = []
    for first in firsts:
        place = dict(zip(outer, np.unravel_index(first, counts), strict=True))
        plane = tuple(slice(None) if k in inner else place[k] for k in range(source.ndim))
        along = (sorted(inner).index(axis),)
        problem = _Problem(source[plane], target[plane], along, forward, 1)
        if problem.fails:
            return None
        plans.append(_plan_of(problem))
    addresses = np.array([plan.address for plan in plans])[kind_of]
    return plans[0].execute, np.stack([addresses, *distances], axis=1)


def _through_memory(
    source: np.ndarray, target: np.ndarray, axes: tuple[int, ...], forward: bool, threads: int
) -> Operation:
    """Return a transform that is not in place, for a problem that fails so."""
    memory = empty(target.shape, target.dtype)
    transform = plan(source, memory, axes, forward, threads)

    def run(stream: Any) -> None:
        transform(stream)
        target[...] = memory

    return run


class _Problem:
    """What FFTW is to plan; problems with the same key share a plan."""

    def __init__(
        self,
        source: np.ndarray,
        target: np.ndarray,
        axes: tuple[int, ...],
        forward: bool,
        threads: int,
    ) -> None:
        self.source, self.target = source, target
        self.axes = tuple(axis % source.ndim for axis in axes)
        self.forward, self.threads = forward, threads
        begins = [source.ctypes.data, target.ctypes.data]
        self.in_place = begins[0] == begins[1]
        # FFTW's planner does, in place on reversed axes.
        self.fails = self.in_place and min(source.strides) < 0
        self.key = (
            *((a.dtype.char, a.shape, a.strides) for a in (source, target)),
            *(begin % _ALIGNMENT for begin in begins),
            (self.axes, forward, threads, self.in_place),
        )

    def on_other_memory(self) -> _Problem:
        """Return the same problem on memory whose content does not matter."""
        source = _twin(self.source)
        target = source if self.in_place else _twin(self.target)
        if self.in_place and source.dtype != self.target.dtype:
            target = np.ndarray(
                self.target.shape, self.target.dtype, source, 0, self.target.strides
            )
        return _Problem(source, target, self.axes, self.forward, self.threads)


class _Plan:
    """A plan of FFTW's, which serves all arrays with the geometry of those that it was made for."""

    def __init__(self, address: int, prefix: str, kind: str) -> None:
        self.address = address
        self.execute = getattr(fftw_library(), f"{prefix}_execute_{kind}")

    def call(self, source: int, target: int, kept: Any) -> HostCall:
        """Return the transform between two addresses, which keeps what lies there."""
        arguments = [ctypes.c_void_p(one) for one in (self.address, source, target)]
        return HostCall(self.execute, arguments, kept)


# By problem; also, by their geometry, what is known of planes, as long as these are few.
_plans: dict[tuple, Any] = {}
_REMEMBERED_PLANES = 1024
_LIBC = ctypes.CDLL(None)
_LIBC.open_memstream.restype = ctypes.c_void_p


def _plan_of(problem: _Problem) -> _Plan:
    """Return the plan of a problem, made if need be. Plans stay: they are few, and small."""
    choice = os.environ.get(MEASURING) or _CHOICES[0]
    if choice not in _CHOICES:
        raise InputError(f"{MEASURING} is {choice!r}; accepted: {', '.join(_CHOICES)}")
    key = (choice, *problem.key)
    with planner:
        if key not in _plans:
            _plans[key] = _measured(problem) if choice == "measure" else _estimated(problem)
        return _plans[key]


def _estimated(problem: _Problem) -> _Plan:
    with without_wisdom(PREFIXES[problem.source.dtype.char]):
        made = next(filter(None, (_make(problem, flags) for flags in _FLAGS)), None)
    if made is None:
        raise InputError(f"FFTW cannot transform an array of shape {problem.source.shape}")
    return made


def _measured(problem: _Problem) -> _Plan:
    """Return a plan that is remembered, or measured now, on other memory: measuring destroys."""
    _load_wisdom()
    made = _make(problem, _MEASURE | _WISDOM_ONLY)
    if made is None and _make(problem.on_other_memory(), _MEASURE) is not None:
        _save_wisdom()
        made = _make(problem, _MEASURE | _WISDOM_ONLY)
    return made or _estimated(problem)


class Dimension(ctypes.Structure):
    """A dimension of FFTW's guru interface: its size, and strides of source and target."""

    _fields_ = [(name, ctypes.c_ssize_t) for name in ("n", "source", "target")]


def _make(problem: _Problem, flags: int) -> _Plan | None:
    """Return a plan made with these flags, or None if there is none."""
    source, target, axes = problem.source, problem.target, problem.axes
    is_real = source.dtype.kind != "c" or target.dtype.kind != "c"
    if target.dtype.kind != "c":
        flags |= _DESTROY_INPUT
    # Of a real transform, the points: they are more than the modes.
    points = source if source.dtype.kind != "c" else target
    dimensions = [
        Dimension(n, s // source.itemsize, t // target.itemsize)
        for n, s, t in zip(points.shape, source.strides, target.strides, strict=True)
    ]
    inner = [dimensions[axis] for axis in axes]
    outer = [one for axis, one in enumerate(dimensions) if axis not in axes]
    kind = "dft" if not is_real else "dft_r2c" if source.dtype.kind != "c" else "dft_c2r"
    prefix, sign = PREFIXES[source.dtype.char], -1 if problem.forward else 1
    library = fftw_library()
    getattr(library, f"{prefix}_plan_with_nthreads")(problem.threads)
    make = getattr(library, f"{prefix}_plan_guru64_{kind}")
    make.restype = ctypes.c_void_p
    address = make(
        len(inner),
        (Dimension * len(inner))(*inner),
        len(outer),
        (Dimension * len(outer))(*outer),
        ctypes.c_void_p(source.ctypes.data),
        ctypes.c_void_p(target.ctypes.data),
        *(() if is_real else (sign,)),
        ctypes.c_uint(flags),
    )
    return _Plan(address, prefix, kind) if address else None


@functools.cache
def fftw_library() -> ctypes.CDLL:
    """Return the FFTW that pyFFTW ships: symbols are also looked up in a library's dependencies."""
    return ctypes.CDLL(pyfftw.pyfftw.__file__)


def _twin(array: np.ndarray) -> np.ndarray:
    """Return uninitialised memory with the shape, strides and alignment of `array`."""
    extent = sum((n - 1) * abs(s) for n, s in zip(array.shape, array.strides, strict=True))
    before = sum((n - 1) * -s for n, s in zip(array.shape, array.strides, strict=True) if s < 0)
    first = before + (array.ctypes.data - before) % _ALIGNMENT
    extent += array.itemsize + _ALIGNMENT
    memory = pyfftw.empty_aligned(extent, dtype="uint8", n=_ALIGNMENT)
    return np.ndarray(array.shape, array.dtype, memory.data, first, array.strides)


@contextlib.contextmanager
def without_wisdom(prefix: str) -> Iterator[None]:
    """Hide what has been planned in this process before: FFTW would take it for an estimate.

    Of one precision, by the prefix of its functions: to export or import wisdom, FFTW computes a
    checksum of all that it can do, which takes longer than to estimate a small plan.
    """
    library = fftw_library()
    kept, forget = _wisdom(prefix), getattr(library, f"{prefix}_forget_wisdom")
    forget()
    try:
        yield
    finally:
        forget()
        if kept.count(b"(") > 1:  # more than its head
            getattr(library, f"{prefix}_import_wisdom_from_string")(kept)


def _wisdom(prefix: str) -> bytes:
    """Return FFTW's wisdom as text. Asked for a string, FFTW writes it twice."""
    text, size = ctypes.c_void_p(), ctypes.c_size_t()
    file = ctypes.c_void_p(_LIBC.open_memstream(ctypes.byref(text), ctypes.byref(size)))
    getattr(fftw_library(), f"{prefix}_export_wisdom_to_file")(file)
    _LIBC.fclose(file)
    try:
        return ctypes.string_at(text, size.value)
    finally:
        _LIBC.free(text)


@functools.cache
def _load_wisdom() -> None:
    with contextlib.suppress(OSError):
        pyfftw.import_wisdom(_remembered())


def _remembered() -> tuple[bytes, ...]:
    paths = [cache_folder() / f"fftw-{part}.wisdom" for part in _PARTS]
    return tuple(path.read_bytes() if path.exists() else b"" for path in paths)


def _save_wisdom() -> None:
    """Add what this process has measured to what others have saved meanwhile."""
    try:
        with locked(cache_folder() / "fftw.lock"):
            pyfftw.import_wisdom(_remembered())
            for part, wisdom in zip(_PARTS, pyfftw.export_wisdom(), strict=True):
                write_atomically(cache_folder() / f"fftw-{part}.wisdom", wisdom)
    except OSError as error:
        warnings.warn(f"FFTW's wisdom cannot be kept: {error}", stacklevel=2)
