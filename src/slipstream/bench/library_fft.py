"""One three-dimensional transform by the vendor's own plan: the yardstick."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from slipstream.device import Device


def plain_transforms(
    device: Device, shape: tuple[int, int, int], dtype: Any, threads: int | None = None
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return the forward and the backward transform of one field, FFTW's or cuFFT's 3-D plan.

    Unpruned, of a single rank, on this device.

    Parameters
    ----------
    device : Device
        Where to transform.
    shape : tuple of int
        Physical shape.
    dtype : dtype
        Physical type, real or complex.
    threads : int, optional
        Threads of FFTW; as many as kernels have if not given.
    """
    complex_dtype, dtype = np.result_type(dtype, np.complex64), np.dtype(dtype)
    points = device.empty(shape, dtype)
    length = shape[2] // 2 + 1 if dtype.kind == "f" else shape[2]
    modes = device.empty((*shape[:2], length), complex_dtype)
    if device.kind == "cuda":
        forward, backward = _cufft(device, points, modes)
    else:
        forward, backward = _fftw(points, modes, threads or device.threads)
    # Zeros would be flattered: they cost a GPU less power.
    values = np.random.default_rng(0).standard_normal(shape[1:])
    for plane in range(shape[0]):
        device.run(device.copy(points[plane], device.array(values, dtype)))
    return forward, backward


def plain_bytes(device: Device, shape: tuple[int, int, int], dtype: Any) -> int:
    """Return the memory that `plain_transforms` needs; parameters as there."""
    size = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    # Points and modes; on a GPU also the result of the way back, and cuFFT's work area.
    return (4 if device.kind == "cuda" else 2) * size


def _fftw(points: np.ndarray, modes: np.ndarray, threads: int):
    import pyfftw

    def plan(source: np.ndarray, target: np.ndarray, direction: str) -> Callable[[], None]:
        with _openmp_threads(threads):
            made = pyfftw.FFTW(
                source,
                target,
                axes=(0, 1, 2),
                direction=direction,
                threads=threads,
                flags=("FFTW_MEASURE", "FFTW_DESTROY_INPUT"),
            )

        def execute() -> None:
            with _openmp_threads(threads):
                made.execute()

        return execute

    # Measured here and now: wisdom may stem from an hour in which the machine was busy.
    wisdom = pyfftw.export_wisdom()
    pyfftw.forget_wisdom()
    try:
        return plan(points, modes, "FFTW_FORWARD"), plan(modes, points, "FFTW_BACKWARD")
    finally:
        pyfftw.forget_wisdom()
        pyfftw.import_wisdom(wisdom)


@contextlib.contextmanager
def _openmp_threads(count: int) -> Iterator[None]:
    """Let FFTW have so many threads: it is bound by ``OMP_NUM_THREADS``, which is for one rank."""
    runtimes = _openmp_runtimes()
    before = [runtime.omp_get_max_threads() for runtime in runtimes]
    for runtime in runtimes:
        runtime.omp_set_num_threads(count)
    try:
        yield
    finally:
        for runtime, threads in zip(runtimes, before, strict=True):
            runtime.omp_set_num_threads(threads)


@functools.cache
def _openmp_runtimes() -> list[ctypes.CDLL]:
    """Return the OpenMP libraries of this process; packages bring their own."""
    with open("/proc/self/maps") as file:
        paths = {line.split()[-1] for line in file if "gomp" in line or "libomp" in line}
    return [ctypes.CDLL(path) for path in sorted(paths)]


def _cufft(device: Any, points: Any, modes: Any):
    from cupy.cuda import cufft
    from cupyx.scipy.fft import get_fft_plan

    axes, real = (0, 1, 2), points.dtype.kind == "f"
    with device.context:
        there = get_fft_plan(points, axes=axes, value_type="R2C" if real else "C2C")
        back = there
        if real:
            back = get_fft_plan(modes, shape=points.shape, axes=axes, value_type="C2R")
    # Unnormalised results put back would soon be infinite, and infinity costs a GPU less power.
    result = device.empty(points.shape, points.dtype)
    return (
        lambda: device.run(lambda stream: there.fft(points, modes, cufft.CUFFT_FORWARD)),
        lambda: device.run(lambda stream: back.fft(modes, result, cufft.CUFFT_INVERSE)),
    )
