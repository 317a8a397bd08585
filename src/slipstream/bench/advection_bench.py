"""``bench advection``: all overlap strategies side by side, on one problem and these ranks."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slipstream.advection import FLOPS, STRATEGIES, Advection, gaussian, tuned_shell
from slipstream.advection.advection_solver import checked_strategy
from slipstream.bench.advection_lines import lines_of
from slipstream.bench.repetitions import large_copy, medians
from slipstream.device import Device, HostDevice
from slipstream.errors import InputError
from slipstream.schedule import Timeline

# Steps whose every node is timed, of which the median counts.
_PROFILED = 4
# Threads to try for a shell; None stands for all.
_THREADS = (None, 4)
_WIDTH = 0.1
_COURANT = (0.5, 0.5, 0.5)
# A copy that does not read what it overwrites; that of a GPU never does.
_STREAMED = "cpu, bypassing caches"
# What a step does besides computing.
_MOVING = ("communication", "copy", "pack")


@dataclass(frozen=True)
class AdvectionRequest:
    """What to measure.

    Attributes
    ----------
    shape : tuple of int
        Points along z, y and x.
    dtype : str
        "float64" or "float32".
    strategies : tuple of str
        Names, of `STRATEGIES`; none for all that fit ranks and devices.
    grid : tuple of int or None
        Process grid.
    shell : int or None
        Thickness of the CPU's shell; None for the fastest.
    threads : int or None
        Threads of the CPU on each rank.
    steps, repetitions : int
        Steps that are timed together, and how often.
    """

    shape: tuple[int, int, int]
    dtype: str = "float64"
    strategies: tuple[str, ...] = ()
    grid: tuple[int, int, int] | None = None
    shell: int | None = None
    threads: int | None = None
    steps: int = 10
    repetitions: int = 7


@dataclass
class _Candidate:
    """A strategy that is measured."""

    solver: Advection
    tuned: Mapping[str, Any] = field(default_factory=dict)

    def run(self, steps: int) -> None:
        self.solver.advance(steps)
        self.solver.synchronize()


def fitting(ranks: int, gpu: bool) -> tuple[str, ...]:
    """Return the strategies that make sense on so many ranks, with or without GPUs."""
    return tuple(
        name
        for name, one in STRATEGIES.items()
        if (gpu or "gpu" not in one.devices)
        and ((one.transport != "none") == (ranks > 1) or len(one.devices) == 2)
    )


def measure_advection(
    request: AdvectionRequest,
    comm: Any,
    gpu: bool,
    timelines: dict[str, Timeline] | None = None,
) -> dict[str, Any]:
    """Time the strategies in turn, beside the copy bandwidth of the devices. Collective.

    Parameters
    ----------
    request : AdvectionRequest
        What to measure.
    comm : mpi4py.MPI.Comm or None
        The ranks.
    gpu : bool
        Whether strategies that need a GPU are among all.
    timelines : dict, optional
        Where to put, by name of the strategy, what ran when in one of this rank's steps.

    Returns
    -------
    dict
        Settings, "rows" with the figures of each strategy, and why others were "left out".

    Raises
    ------
    InputError
        If a strategy that is named cannot be run here, or none can.
    """
    ranks = 1 if comm is None else comm.size
    named = request.strategies or fitting(ranks, gpu)
    candidates, left_out = {}, {}
    for name in named:
        try:
            candidates[name] = _prepared(request, name, comm)
        except InputError as error:
            left_out[name] = str(error)
            if request.strategies or len(left_out) == len(named):
                raise
    actions: dict[str, Any] = {
        name: lambda one=one: one.run(request.steps) for name, one in candidates.items()
    }
    devices = _devices(candidates)
    copies = {name: large_copy(device) for name, device in devices.items()}
    if "cpu" in devices:
        copies[_STREAMED] = large_copy(devices["cpu"], kernel="stream_rows")
    actions |= {f"copy {name}": copy for name, (copy, _) in copies.items()}
    seconds = medians(HostDevice(), actions, request.repetitions, comm)
    bandwidths = {
        name: ranks * moved / seconds[f"copy {name}"] for name, (_, moved) in copies.items()
    }
    rows = [
        _row(request, name, one, seconds[name] / request.steps, bandwidths, timelines)
        for name, one in candidates.items()
    ]
    digests = {row["digest"] for row in rows}
    return {
        "points (z, y, x)": request.shape,
        "dtype": request.dtype,
        "ranks": ranks,
        "grid (z, y, x)": next(iter(candidates.values())).solver.grid,
        "copy bandwidth (B/s)": bandwidths,
        "rows": rows,
        "same bits": len(digests) == 1,
        "lines": {
            "first two strategies": lines_of(tuple(STRATEGIES)[:2]),
            "all strategies": lines_of(STRATEGIES),
        },
        "left out": left_out,
    }


def _prepared(request: AdvectionRequest, name: str, comm: Any) -> _Candidate:
    settings: dict[str, Any] = {
        "courant": _COURANT,
        "dtype": request.dtype,
        "comm": comm,
        "grid": request.grid,
    }
    tuned: Mapping[str, Any] = {}
    shell, threads = request.shell, request.threads
    strategy = checked_strategy(name, 1 if comm is None else comm.size)
    if len(strategy.devices) == 2 and shell is None:
        tried = _THREADS if threads is None else (threads,)
        tuned = tuned_shell(request.shape, name, threads=tried, **settings)
        shell, threads = tuned["shell"], tuned["threads"]
    solver = Advection(
        request.shape,
        strategy=name,
        shell=1 if shell is None else shell,
        threads=threads,
        **settings,
    )
    solver.set(gaussian(solver.box, solver.shape, (0.0, 0.0, 0.0), _WIDTH))
    return _Candidate(solver, tuned)


def _devices(candidates: Mapping[str, _Candidate]) -> dict[str, Device]:
    """Return one device of each kind; of CPUs, one whose lanes are the most."""
    found: dict[str, Device] = {}
    for one in candidates.values():
        for name, device in one.solver.devices.items():
            if name not in found or device.lanes > found[name].lanes:
                found[name] = device
    return found


def _row(
    request: AdvectionRequest,
    name: str,
    one: _Candidate,
    seconds: float,
    bandwidths: Mapping[str, float],
    timelines: dict[str, Timeline] | None,
) -> dict[str, Any]:
    solver = one.solver
    rate = np.prod(request.shape, dtype=float) / seconds
    moved = 2 * solver.dtype.itemsize * rate
    bound = sum(bandwidths[device] for device in solver.devices)
    values = solver.values()
    exact = solver.exact(_WIDTH)
    error = float(np.abs(values - exact).max()) if values.size else 0.0
    digest = hashlib.sha256(values.tobytes()).hexdigest()
    exposed = []
    for _ in range(_PROFILED):
        solver.advance(profile=True)
        solver.synchronize()
        timeline = solver.timeline(forget=True)
        exposed.append(timeline.exposed(*_MOVING))
    if timelines is not None:
        timelines[name] = timeline
    uncovered = statistics.median(exposed)
    if solver.comm is not None:
        everyone = solver.comm.allgather((error, digest, uncovered))
        error = max(one[0] for one in everyone)
        digest = hashlib.sha256("".join(one[1] for one in everyone).encode()).hexdigest()
        uncovered = max(one[2] for one in everyone)
    row = {
        "strategy": name,
        "seconds per step": seconds,
        "Gpoint/s": rate / 1e9,
        "GF": FLOPS * rate / 1e9,
        "bytes per second": moved,
        "fraction of copy": moved / bound,
        "exposed (s per step)": uncovered,
        "lines": lines_of([name]),
        "error": error,
        "digest": digest[:16],
    }
    if len(solver.devices) == 2:
        row["shell"] = solver.shell
        row["seconds by shell and threads"] = {
            f"{shell}, {threads or 'all'}": trial
            for (shell, threads), trial in one.tuned.get("seconds", {}).items()
        }
    return row


def best_of(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """Return Gpoint/s by strategy and number of ranks, the best of several results."""
    best: dict[str, dict[int, float]] = {}
    for record in records:
        for row in record["rows"]:
            at = best.setdefault(row["strategy"], {})
            at[record["ranks"]] = max(at.get(record["ranks"], 0.0), row["Gpoint/s"])
    return best
