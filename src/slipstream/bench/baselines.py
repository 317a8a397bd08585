"""What a distributed transform is compared with: plain library plans, and mpi4py-fft.

A yardstick is made on all ranks together, and is a forward and a backward action that all of them
call. Where it cannot be had there is a reason instead, for people.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.bench.idle_ranks import OnFirstRank, wait_idly
from slipstream.bench.library_fft import plain_bytes, plain_transforms
from slipstream.device import Device

INSTALL_MPI4PY_FFT = "mpi4py-fft is not installed; pip install mpi4py-fft would add it here"
_SHARE_OF_MEMORY = 0.9


@dataclass(frozen=True)
class Problem:
    """What is transformed.

    Attributes
    ----------
    shape : tuple of int
        Physical shape, in the order of the arrays.
    dtype : numpy.dtype
        Physical type.
    fields : int
        Number of fields.
    """

    shape: tuple[int, int, int]
    dtype: np.dtype
    fields: int = 1


@dataclass(frozen=True)
class Yardstick:
    """A transform to compare with.

    Attributes
    ----------
    name : str
        For people.
    forward, backward : callable
        Transform all fields. Collective.
    """

    name: str
    forward: Callable[[], None]
    backward: Callable[[], None]


def plain_yardstick(problem: Problem, device: Device, comm: Any) -> Yardstick | str:
    """Return the vendor's own 3-D plan, on the first rank with the threads of all. Collective.

    Parameters
    ----------
    problem : Problem
        What to transform.
    device : Device
        This rank's device; the first rank's is used.
    comm : mpi4py.MPI.Comm or None
        The ranks.

    Returns
    -------
    Yardstick or str
        Or why there is none.
    """
    name, threads = "cuFFT, 1 GPU", None
    if device.kind == "cpu":
        mine = device.identity, device.threads
        everyone = [mine] if comm is None else comm.allgather(mine)
        threads = sum(count for node, count in everyone if node == everyone[0][0])
        name = f"FFTW, {threads} thread{'s' * (threads > 1)}"
    needed = plain_bytes(device, problem.shape, problem.dtype)
    free = device.memory_free()
    if comm is not None:
        free = comm.bcast(free, root=0)
    if needed > _SHARE_OF_MEMORY * free:
        return f"{name}: needs {needed / 2**30:.3g} GiB of the {free / 2**30:.3g} GiB that are free"
    pair: tuple[Any, Any] = None, None
    if comm is None or comm.rank == 0:
        plain = plain_transforms(device, problem.shape, problem.dtype, threads)
        pair = tuple(_for_each_field(problem, one) for one in plain)
    wait_idly(comm)
    return Yardstick(name, *(OnFirstRank(one, comm) for one in pair))


def mpi4py_fft_yardstick(problem: Problem, device: Device, comm: Any) -> Yardstick | str:
    """Return mpi4py-fft's transform on slabs, on the same ranks and threads. Collective.

    Parameters as for `plain_yardstick`.

    Returns
    -------
    Yardstick or str
        Or why there is none.
    """
    ranks = 1 if comm is None else comm.size
    has_it = importlib.util.find_spec("mpi4py_fft") is not None
    if not (has_it if comm is None else all(comm.allgather(has_it))):
        return INSTALL_MPI4PY_FFT
    if ranks > min(problem.shape[:2]):
        return "mpi4py-fft: needs a plane for every rank"
    try:
        plan, points, modes = _mpi4py_fft_plan(problem, device, comm)
    except Exception as error:  # a library of others, with any FFTW, on all ranks alike
        return f"mpi4py-fft: cannot be used here ({error})"
    return Yardstick(
        f"mpi4py-fft, {ranks} rank{'s' * (ranks > 1)}",
        _for_each_field(problem, lambda: plan.forward(points, modes)),
        _for_each_field(problem, lambda: plan.backward(modes, points)),
    )


def _mpi4py_fft_plan(problem: Problem, device: Device, comm: Any) -> tuple[Any, Any, Any]:
    from mpi4py import MPI
    from mpi4py_fft import PFFT, newDistArray

    # Collapsed, the two axes that a rank has whole are transformed by one plan, which is faster.
    plan = PFFT(
        MPI.COMM_SELF if comm is None else comm,
        list(problem.shape),
        dtype=problem.dtype,
        slab=True,
        collapse=True,
        threads=device.threads,
    )
    points, modes = newDistArray(plan, False), newDistArray(plan, True)
    points[...] = np.random.default_rng(0).random(points.shape)
    return plan, points, modes


def _for_each_field(problem: Problem, action: Callable[[], Any]) -> Callable[[], None]:
    def all_fields() -> None:
        for _ in range(problem.fields):
            action()

    return all_fields
