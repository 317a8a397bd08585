"""Local transforms on the CPU: FFTW plans, measured once and remembered.

Plans are measured, because a good plan is often twice as fast as a guessed one, and kept as
wisdom in the cache folder, because a plan measured anew may differ in its last bits: with
wisdom, the same case gives the same bits in the next run too.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
from typing import Any

import numpy as np
import pyfftw

from slipstream.device.device_interface import Operation
from slipstream.device.host_compiler import cache_folder, write_atomically


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an uninitialised array, aligned for FFTW's vector code."""
    return pyfftw.empty_aligned(shape, dtype=dtype, n=64)


def plan(
    source: np.ndarray, target: np.ndarray, axes: tuple[int, ...], forward: bool, threads: int
) -> Operation:
    """Return the planned transform ``source -> target`` along `axes`; see `Device.fft`.

    Measuring destroys the content of both arrays, so a problem that is not known yet is measured on
    other memory with the same shape, strides and alignment; wisdom then serves the arrays.
    """
    if 0 in source.shape or 0 in target.shape:
        return lambda stream: None
    in_place = source.ctypes.data == target.ctypes.data
    if in_place and min(source.strides) < 0:
        return _through_memory(source, target, axes, forward, threads)
    _load_wisdom()
    measured = max(source.size, target.size) >= _MEASURED

    def make(source: np.ndarray, target: np.ndarray, *flags: str) -> pyfftw.FFTW:
        return pyfftw.FFTW(
            source,
            target,
            axes=axes,
            direction="FFTW_FORWARD" if forward else "FFTW_BACKWARD",
            flags=flags if target.dtype.kind == "c" else (*flags, "FFTW_DESTROY_INPUT"),
            threads=threads,
        )

    if not measured:
        execute = make(source, target, "FFTW_ESTIMATE").execute
        return lambda stream: execute()
    known = ("FFTW_MEASURE", "FFTW_WISDOM_ONLY")
    try:
        execute = make(source, target, *known).execute
    except RuntimeError:  # FFTW knows no plan
        twin = _twin(source)
        make(twin, twin if in_place else _twin(target), "FFTW_MEASURE")
        _planned.append(True)
        execute = make(source, target, *known).execute
    return lambda stream: execute()


def _through_memory(
    source: np.ndarray, target: np.ndarray, axes: tuple[int, ...], forward: bool, threads: int
) -> Operation:
    """Return a transform that is not in place: FFTW's planner fails in place on reversed axes."""
    memory = empty(target.shape, target.dtype)
    transform = plan(source, memory, axes, forward, threads)

    def run(stream: Any) -> None:
        transform(stream)
        target[...] = memory

    return run


# Elements of a transform from which measuring, some hundredths of a second, is worth while.
_MEASURED = 1 << 15

_planned: list[bool] = []


def _twin(array: np.ndarray) -> np.ndarray:
    """Return uninitialised memory with the shape, strides and alignment of `array`."""
    extent = sum((n - 1) * abs(s) for n, s in zip(array.shape, array.strides, strict=True))
    before = sum((n - 1) * -s for n, s in zip(array.shape, array.strides, strict=True) if s < 0)
    first = before + (array.ctypes.data - before) % 64
    memory = pyfftw.empty_aligned(extent + array.itemsize + 64, dtype="uint8", n=64)
    return np.ndarray(array.shape, array.dtype, memory.data, first, array.strides)


_PARTS = ("double", "single", "long_double")


@functools.cache
def _load_wisdom() -> None:
    with contextlib.suppress(OSError):
        folder = cache_folder()
        parts = [folder / f"fftw-{part}.wisdom" for part in _PARTS]
        pyfftw.import_wisdom(tuple(p.read_bytes() if p.exists() else b"" for p in parts))
    atexit.register(_save_wisdom)


def _save_wisdom() -> None:
    # One rank per node is enough, and the ranks' plans are much the same.
    if not _planned or os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0") != "0":
        return
    with contextlib.suppress(Exception):
        for part, wisdom in zip(_PARTS, pyfftw.export_wisdom(), strict=True):
            write_atomically(cache_folder() / f"fftw-{part}.wisdom", wisdom)
