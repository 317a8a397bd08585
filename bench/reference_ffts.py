"""Other transforms for comparison: plain plans of FFTW and cuFFT, and mpi4py-fft.

A yardstick is made on all ranks together, and is a forward and a backward action that all of them
call. Where it is impossible, a text says why.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from bench.harness import OnFirstRank
from slipstream.engine.array_types import Array, Comm
from slipstream.engine.device import Device, HostDevice, host_values
from slipstream.engine.text import counted

INSTALL_MPI4PY_FFT = "mpi4py-fft is not installed; pip install mpi4py-fft would add it here"
_SHARE_OF_MEMORY = 0.9

Actions: TypeAlias = tuple[Callable[[], None], Callable[[], None]]


@dataclass(frozen=True)
class Yardstick:
    """A transform to compare with; its actions are collective."""

    name: str
    forward: Callable[[], None]
    backward: Callable[[], None]


def plain_yardstick(
    shape: tuple[int, int, int], dtype: np.dtype, device: Device, comm: Comm
) -> Yardstick | str:
    """Return the vendor's own 3-D plan, on the first rank with the threads of all. Collective."""
    name, threads = "cuFFT, 1 GPU", None
    if isinstance(device, HostDevice):
        node_threads = device.identity, device.threads
        everyone = [node_threads] if comm is None else comm.allgather(node_threads)
        threads = sum(count for node, count in everyone if node == everyone[0][0])
        name = f"FFTW, {counted(threads, 'thread')}"
    needed = plain_bytes(device, shape, dtype)
    free = device.memory_free()
    if comm is not None:
        free = comm.bcast(free, root=0)
    if needed > _SHARE_OF_MEMORY * free:
        return f"{name}: needs {needed / 2**30:.3g} GiB of the {free / 2**30:.3g} GiB that are free"
    forward = backward = None
    if comm is None or comm.rank == 0:
        forward, backward = plain_transforms(device, shape, dtype, threads)
    if comm is not None:
        comm.Barrier()
    return Yardstick(name, OnFirstRank(forward, comm), OnFirstRank(backward, comm))


def mpi4py_fft_yardstick(
    shape: tuple[int, int, int], dtype: np.dtype, device: HostDevice, comm: Comm
) -> Yardstick | str:
    """Return mpi4py-fft's transform on slabs, on the same ranks and threads. Collective."""
    ranks = 1 if comm is None else comm.size
    has_it = importlib.util.find_spec("mpi4py_fft") is not None
    if not (has_it if comm is None else all(comm.allgather(has_it))):
        return INSTALL_MPI4PY_FFT
    if ranks > min(shape[:2]):
        return "mpi4py-fft: needs a plane for every rank"
    try:
        from mpi4py import MPI
        from mpi4py_fft import PFFT, newDistArray

        # Collapsed, the two axes that a rank has whole are transformed by one plan, which is
        # faster.
        plan = PFFT(
            MPI.COMM_SELF if comm is None else comm,
            list(shape),
            dtype=dtype,
            slab=True,
            collapse=True,
            threads=device.threads,
        )
        points, modes = newDistArray(plan, False), newDistArray(plan, True)
    except Exception as error:  # any error of the library, with any FFTW, on all ranks alike
        return f"mpi4py-fft: cannot be used here ({error})"
    points[...] = np.random.default_rng(0).random(points.shape)
    return Yardstick(
        f"mpi4py-fft, {counted(ranks, 'rank')}",
        lambda: plan.forward(points, modes),
        lambda: plan.backward(modes, points),
    )


def plain_transforms(
    device: Device, shape: tuple[int, int, int], dtype: Any, threads: int | None = None
) -> Actions:
    """Return the forward and the backward transform of one field, FFTW's or cuFFT's 3-D plan.

    Unpruned, on a single rank, on this device; by default with as many threads as kernels.
    """
    complex_dtype, dtype = np.result_type(dtype, np.complex64), np.dtype(dtype)
    points = device.empty(shape, dtype)
    length = shape[2] // 2 + 1 if dtype.kind == "f" else shape[2]
    modes = device.empty((*shape[:2], length), complex_dtype)
    if isinstance(device, HostDevice):
        forward, backward = _fftw(
            host_values(points), host_values(modes), threads or device.threads
        )
    else:
        forward, backward = _cufft(device, points, modes)
    # Zeros would be flattered: they cost a GPU less power.
    values = np.random.default_rng(0).standard_normal(shape[1:])
    for plane in range(shape[0]):
        device.run(device.copy(points[plane], device.array(values, dtype)))
    return forward, backward


def plain_bytes(device: Device, shape: tuple[int, int, int], dtype: Any) -> int:
    """Return the memory that `plain_transforms` needs."""
    size: int = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    # Points and modes; on a GPU also the result of the way back, and cuFFT's work area.
    return (4 if device.kind != "cpu" else 2) * size


def _fftw(points: np.ndarray, modes: np.ndarray, threads: int) -> Actions:
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

    # Measured in this run: stored wisdom may be of a time when the machine was busy.
    wisdom = pyfftw.export_wisdom()
    pyfftw.forget_wisdom()
    try:
        return plan(points, modes, "FFTW_FORWARD"), plan(modes, points, "FFTW_BACKWARD")
    finally:
        pyfftw.forget_wisdom()
        pyfftw.import_wisdom(wisdom)


@contextlib.contextmanager
def _openmp_threads(count: int) -> Iterator[None]:
    """Set more threads for FFTW than ``OMP_NUM_THREADS``, which is the number for one rank."""
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


def _cufft(device: Any, points: Array, modes: Array) -> Actions:
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
