"""All overlap strategies of the advection test, timed alternately on the same problem and ranks."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from bench.harness import (
    MOVING,
    Column,
    Outcome,
    Picture,
    Request,
    Shape,
    Way,
    choice,
    computed_bytes,
    headline,
    measure_ways,
    names_of,
    notes_of,
    option,
    over_ranks,
    read_results,
    show_table,
)
from bench.pictures import plot_advection
from slipstream.advection import FLOPS, STRATEGIES, Advection, gaussian
from slipstream.advection.overlap_strategies import checked_strategy
from slipstream.engine import accepted
from slipstream.engine.array_types import Comm
from slipstream.engine.device import Device, HostDevice
from slipstream.engine.device.array_kernels import large_copy
from slipstream.engine.errors import InputError
from slipstream.engine.schedule import Timeline
from slipstream.engine.tuner import measure

# Thicknesses of a hybrid's shell to try.
SHELLS = (0, 1, 2, 4, 8)
# Numbers of threads to try with each thickness; None for all.
_THREADS = (None, 4)
# Steps that are timed for each pair.
_TUNING_STEPS = 5
# Steps of a profile: as many for all strategies, whose bits are compared afterwards.
_STEPS_OF_PROFILE = 2
# The width of the Gaussian, and the Courant numbers along the axes.
_WIDTH = 0.1
_COURANT = (0.5, 0.5, 0.5)
# A copy that does not read the memory that it overwrites; a GPU's never does.
_STREAMED = "cpu, bypassing caches"


@dataclass(frozen=True, kw_only=True)
class AdvectionRequest(Request):
    """Time the overlap strategies of the advection test alternately.

    Bound: a read and a write of every point, at the rate of a large copy.
    """

    shape: Shape = (420, 420, 420)
    strategies: Annotated[
        tuple[str, ...],
        choice(accepted.STRATEGIES, "With commas: {}.", parse=names_of, metavar="NAMES"),
    ] = ()
    every: Annotated[
        bool, option("All strategies that fit ranks and devices (default).", "--all")
    ] = False
    dtype: Annotated[str, choice(accepted.PRECISIONS)] = "float64"
    steps_per_pass: Annotated[
        int | None,
        option("Steps of a pass over memory; chosen for the device by default.", min=1, max=2),
    ] = None
    steps: Annotated[int, option("Steps timed together.", min=1)] = 10
    repetitions: Annotated[int, option("Timed runs of each part.", min=1)] = 7
    plot: Picture = None
    beside: Annotated[
        list[Path] | None,
        option("Records of other numbers of ranks, for the picture.", metavar="FILE"),
    ] = None
    timelines: Picture = None

    def check(self) -> None:
        if self.every and self.strategies:
            raise InputError("--all and --strategies exclude each other")
        read_results("advection", self.beside or [], "--beside")


def run(request: AdvectionRequest, device: Device, comm: Comm) -> Outcome:
    """Measure all strategies. Collective."""
    result, timelines = measure_advection(request, comm, device.kind != "cpu")
    records = [*read_results("advection", request.beside or [], "--beside"), result]
    title = f"advection, {' x '.join(map(str, request.shape))}, on {device.name}"
    headlines = {
        row["strategy"]: headline(
            row["seconds per step"], row["seconds per step"] * row["fraction of copy"]
        )
        for row in result["rows"]
    }
    plot, what = partial(plot_advection, results=records), "one step on rank 0"
    show = print_advection
    return Outcome("advection", title, device, result, show, headlines, plot, timelines, what)


def fitting(ranks: int, gpu: bool) -> tuple[str, ...]:
    """Return the strategies for a number of ranks, with or without GPUs."""
    return tuple(
        name
        for name, one in STRATEGIES.items()
        if (gpu or "gpu" not in one.devices)
        and ((one.transport != "none") == (ranks > 1) or len(one.devices) == 2)
    )


def measure_advection(
    request: AdvectionRequest, comm: Comm, gpu: bool
) -> tuple[dict[str, Any], dict[str, Timeline]]:
    """Return figures of strategies, and timelines of a step of this rank. Collective.

    Large copies on their devices are timed alternately with them. A named strategy must be
    possible; of all strategies, at least one.
    """
    ranks = 1 if comm is None else comm.size
    named = request.strategies or fitting(ranks, gpu)
    grids: list[Any] = []
    devices: dict[str, Device] = {}
    moved: dict[str, int] = {}
    bandwidths: dict[str, float] = {}

    def copies() -> dict[str, Callable[[], None]]:
        made = {name: large_copy(device) for name, device in devices.items()}
        if "cpu" in devices:
            made[_STREAMED] = large_copy(devices["cpu"], kernel="stream_rows")
        moved.update({name: size for name, (_, size) in made.items()})
        return {f"copy {name}": copy for name, (copy, _) in made.items()}

    def make(name: str) -> Way:
        solver, tuned = _prepare(request, name, comm)
        for kind, device in solver.devices.items():  # of the strategy with the most lanes
            if kind not in devices or device.lanes > devices[kind].lanes:
                devices[kind] = device
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
            rates = {kind: ranks * size / seconds[f"copy {kind}"] for kind, size in moved.items()}
            bandwidths.update(rates)
            return _row(request, name, solver, tuned, seconds["steps"], bandwidths, timeline)

        return Way(HostDevice(), comm, {"steps": steps}, profile, row)

    ways = {name: partial(make, name) for name in named}
    measured = measure_ways(ways, request.strategies, request.repetitions, copies)
    return {
        "points (z, y, x)": request.shape,
        "dtype": request.dtype,
        "ranks": ranks,
        "grid (z, y, x)": grids[0],
        "copy bandwidth (B/s)": bandwidths,
        "rows": measured.rows,
        "same bits": len({row["digest"] for row in measured.rows}) == 1,
        "left out": measured.left_out,
    }, measured.timelines


def _prepare(
    request: AdvectionRequest, name: str, comm: Comm
) -> tuple[Advection, dict[str, float]]:
    """Return a strategy's solver, and for a hybrid one the seconds of its trials.

    The fastest thickness of the CPU's shell and number of its threads are measured.
    """

    def solver(shell: int, threads: int | None) -> Advection:
        return Advection(
            request.shape,
            _COURANT,
            name,
            request.dtype,
            comm,
            None,
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

    chosen: tuple[int, int | None] = (1, None)
    trials: dict[str, float] = {}
    if len(checked_strategy(name, 1 if comm is None else comm.size).devices) == 2:
        pairs = list(itertools.product(SHELLS, _THREADS))
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
    """Print a row for each strategy, and the copy bandwidth."""
    columns: dict[str, Column] = {
        "strategy": "strategy",
        "steps/pass": "steps per pass",
        "shell": lambda row: row.get("shell", ""),
        "Gpoint/s": "Gpoint/s|.3g",
        "GF": "GF|.4g",
        "of copy": "fraction of copy|.2f",
        "exposed": "exposed (s per step)|s",
        "error": "error|.2e",
    }
    show_table(title, columns, result["rows"], notes_of(result))
