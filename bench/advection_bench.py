"""``bench advection``: all overlap strategies side by side, on one problem and these ranks."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bench.harness import (
    MOVING,
    Outcome,
    Way,
    computed_bytes,
    headline,
    left_out,
    measure_ways,
    over_ranks,
    read_results,
    show_table,
)
from bench.pictures import plot_advection
from bench.requests import AdvectionRequest
from slipstream.advection import FLOPS, STRATEGIES, Advection, gaussian
from slipstream.advection.overlap_strategies import checked_strategy
from slipstream.array_types import Comm
from slipstream.device import Device, HostDevice
from slipstream.device.copy_bandwidth import large_copy
from slipstream.schedule import Timeline
from slipstream.tuner import measure

# Thicknesses of a shell to try, and threads (None for all); and timed steps of each pair, whose
# median counts.
SHELLS = (0, 1, 2, 4, 8)
_THREADS, _TUNING_STEPS = (None, 4), 5
# In which a pass is timed node by node; the same for all, whose bits are compared afterwards.
_STEPS_OF_PROFILE = 2
_WIDTH, _COURANT = 0.1, (0.5, 0.5, 0.5)
# A copy that does not read what it overwrites; that of a GPU never does.
_STREAMED = "cpu, bypassing caches"


def run(request: AdvectionRequest, device: Device, comm: Comm) -> Outcome:
    """Measure, and say how to show it. Collective."""
    result, timelines = measure_advection(request, comm, device.kind != "cpu")
    records = [*read_results("advection", request.beside or [], "--beside"), result]
    title = f"advection, {' x '.join(map(str, request.shape))}, on {device.name}"

    pictures = [(request.plot, partial(plot_advection, results=records))]
    headlines = {
        row["strategy"]: headline(
            row["seconds per step"], row["seconds per step"] * row["fraction of copy"]
        )
        for row in result["rows"]
    }
    show, what = print_advection, "one step on rank 0"
    return Outcome("advection", title, device, result, show, headlines, pictures, timelines, what)


def fitting(ranks: int, gpu: bool) -> tuple[str, ...]:
    """Return the strategies that make sense on so many ranks, with or without GPUs."""
    return tuple(
        name
        for name, one in STRATEGIES.items()
        if (gpu or "gpu" not in one.devices)
        and ((one.transport != "none") == (ranks > 1) or len(one.devices) == 2)
    )


@dataclass
class _Copies:
    """Large copies on the devices of all strategies: of CPUs, on one whose lanes are the most."""

    devices: dict[str, Device] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)

    def add(self, devices: Mapping[str, Device]) -> None:
        for name, device in devices.items():
            if name not in self.devices or device.lanes > self.devices[name].lanes:
                self.devices[name] = device

    def actions(self) -> dict[str, Callable[[], None]]:
        copies = {name: large_copy(device) for name, device in self.devices.items()}
        if "cpu" in self.devices:
            copies[_STREAMED] = large_copy(self.devices["cpu"], kernel="stream_rows")
        self.moved = {name: moved for name, (_, moved) in copies.items()}
        return {f"copy {name}": copy for name, (copy, _) in copies.items()}

    def bandwidths(self, ranks: int, seconds: Mapping[str, float]) -> dict[str, float]:
        return {name: ranks * one / seconds[f"copy {name}"] for name, one in self.moved.items()}


def measure_advection(
    request: AdvectionRequest, comm: Comm, gpu: bool
) -> tuple[dict[str, Any], dict[str, Timeline]]:
    """Return figures of strategies, and what ran when in a step of this rank. Collective.

    They are timed in turn with large copies. A named strategy must be possible; of all
    strategies, at least one.
    """
    ranks = 1 if comm is None else comm.size
    named, copies = request.strategies or fitting(ranks, gpu), _Copies()
    grids, bandwidths = [], {}

    def make(name: str) -> Way:
        solver, tuned = _prepared(request, name, comm)
        copies.add(solver.devices)
        grids.append(solver.problem.grid)

        def steps() -> None:
            solver.advance(request.steps)
            solver.synchronize()

        def profile() -> Timeline:
            per_pass = solver.problem.steps_per_pass
            solver.advance(per_pass, profile=True)
            solver.advance(_STEPS_OF_PROFILE - per_pass)
            solver.synchronize()
            return solver.timeline(forget=True)

        def row(seconds: Mapping[str, float], timeline: Timeline) -> dict[str, Any]:
            bandwidths.update(copies.bandwidths(ranks, seconds))
            return _row(request, name, solver, tuned, seconds["steps"], bandwidths, timeline)

        return Way(HostDevice(), comm, {"steps": steps}, profile, row)

    ways = {name: partial(make, name) for name in named}
    found = measure_ways(ways, request.strategies, request.repetitions, copies.actions)
    return {
        "points (z, y, x)": request.shape,
        "dtype": request.dtype,
        "ranks": ranks,
        "grid (z, y, x)": grids[0],
        "copy bandwidth (B/s)": bandwidths,
        "rows": found.rows,
        "same bits": len({row["digest"] for row in found.rows}) == 1,
        "left out": found.left_out,
    }, found.timelines


def _prepared(
    request: AdvectionRequest, name: str, comm: Comm
) -> tuple[Advection, dict[str, float]]:
    """Return a strategy's solver, and for a hybrid one the seconds of its trials.

    How thick a shell the CPU should have, and with how many threads, is measured where it is open.
    """
    strategy = checked_strategy(name, 1 if comm is None else comm.size)

    def solver(shell: int | None, threads: int | None) -> Advection:
        shell = 1 if shell is None else shell
        return Advection(
            request.shape,
            _COURANT,
            name,
            request.dtype,
            comm,
            request.grid,
            shell,
            threads,
            steps_per_pass=request.steps_per_pass,
        )

    def trial(pair: tuple[int, int | None]) -> Callable[[], None]:
        tried = solver(*pair)
        tried.set(np.ones(tried.box.shape, request.dtype))

        def step() -> None:
            tried.advance()
            tried.synchronize()

        return step

    chosen, trials = (request.shell, request.threads), {}
    if len(strategy.devices) == 2 and request.shell is None:
        threads = _THREADS if request.threads is None else (request.threads,)
        pairs = list(itertools.product(SHELLS, threads))
        times = measure(lambda _: pairs, trial, comm, repetitions=_TUNING_STEPS)
        chosen = times.best()
        trials = {f"{shell}, {count or 'all'}": one for (shell, count), one in times.items()}
    made = solver(*chosen)
    made.set(gaussian(made.box, made.shape, (0.0, 0.0, 0.0), _WIDTH))
    return made, trials


def _row(
    request: AdvectionRequest,
    name: str,
    solver: Advection,
    trials: Mapping[str, float],
    seconds: float,
    bandwidths: Mapping[str, float],
    timeline: Timeline,
) -> dict[str, Any]:
    per_step, comm = seconds / request.steps, solver.comm
    rate = np.prod(request.shape, dtype=float) / per_step
    steps = solver.problem.steps_per_pass
    moved = over_ranks(comm, computed_bytes(solver.committed[0]), sum) / steps / per_step
    values = solver.values()
    error = float(np.abs(values - solver.exact(_WIDTH)).max()) if values.size else 0.0
    digest = hashlib.sha256(values.tobytes()).hexdigest()
    if comm is not None:
        digest = hashlib.sha256("".join(comm.allgather(digest)).encode()).hexdigest()
    row = {
        "strategy": name,
        "steps per pass": steps,
        "seconds per step": per_step,
        "Gpoint/s": rate / 1e9,
        "GF": FLOPS * rate / 1e9,
        "bytes per second": moved,
        "fraction of copy": moved / sum(bandwidths[device] for device in solver.devices),
        "exposed (s per step)": over_ranks(comm, timeline.exposed(*MOVING), max) / steps,
        "error": over_ranks(comm, error, max),
        "digest": digest[:16],
    }
    if len(solver.devices) == 2:
        row |= {"shell": solver.problem.shell, "seconds by shell and threads": dict(trials)}
    return row


def print_advection(title: str, result: Mapping[str, Any]) -> None:
    """Print a row for each strategy, and what they are measured against."""
    copies = result["copy bandwidth (B/s)"].items()
    bound = ", ".join(f"{name} {rate / 1e9:.4g} GB/s" for name, rate in copies)
    rows = result["rows"]
    show_table(
        title,
        {
            "strategy": "strategy",
            "steps/pass": "steps per pass",
            "Gpoint/s": "Gpoint/s|.3g",
            "GF": "GF|.4g",
            "of copy": "fraction of copy|.2f",
            "exposed": "exposed (s per step)|s",
            "error": "error|.2e",
        },
        rows,
        [
            f"copy bandwidth of all ranks in this run: {bound}",
            "all strategies give the same bits" if result["same bits"] else "strategies DIFFER",
            *(f"{row['strategy']}: shell of {row['shell']}" for row in rows if "shell" in row),
            *left_out(result),
        ],
    )
