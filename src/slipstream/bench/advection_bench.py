"""``bench advection``: all overlap strategies side by side, on one problem and these ranks."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.advection import FLOPS, STRATEGIES, Advection, gaussian
from slipstream.advection.overlap_strategies import checked_strategy
from slipstream.array_types import Comm
from slipstream.bench.comparison import headline
from slipstream.bench.harness import (
    Draw,
    Outcome,
    draw_rules,
    exposed_moves,
    left_out,
    mark_ticks,
    medians,
    number_of,
    picture,
    plot_timelines,
    read_results,
    seconds_of,
    show_table,
    text_of,
)
from slipstream.bench.requests import AdvectionRequest
from slipstream.device import Device, HostDevice, large_copy
from slipstream.errors import InputError
from slipstream.schedule import Timeline
from slipstream.tuner import measure

# Thicknesses of a shell to try, and threads; None stands for all.
SHELLS = (0, 1, 2, 4, 8)
_THREADS = (None, 4)
# Steps of each pair that are timed, of which the median counts.
_TUNING_STEPS = 5
_WIDTH = 0.1
_COURANT = (0.5, 0.5, 0.5)
# A copy that does not read what it overwrites; that of a GPU never does.
_STREAMED = "cpu, bypassing caches"


def run(request: AdvectionRequest, device: Device, comm: Comm) -> Outcome:
    """Measure, and say how to show it. Collective."""
    timelines: dict[str, Timeline] = {}
    result = measure_advection(request, comm, device.kind != "cpu", timelines)
    records = [*read_results("advection", request.beside or [], "--beside"), result]
    title = f"advection, {' x '.join(map(str, request.shape))}, on {device.name}"

    def draw_steps(path: Path, title: str) -> None:
        plot_timelines(path, f"{title}: one step on rank 0", timelines)

    draw: list[tuple[Path | None, Draw]] = [
        (request.plot, partial(plot_advection, results=records)),
        (request.timelines, draw_steps),
    ]
    headlines = {
        row["strategy"]: headline(
            row["seconds per step"], row["seconds per step"] * row["fraction of copy"]
        )
        for row in result["rows"]
    }
    return Outcome("advection", title, device, result, print_advection, draw, headlines=headlines)


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
    comm: Comm,
    gpu: bool,
    timelines: dict[str, Timeline] | None = None,
) -> dict[str, Any]:
    """Return figures of the strategies, timed in turn beside large copies. Collective.

    `timelines` is given what ran when in one of this rank's steps, by name of the strategy. A
    strategy that is named must be possible; of all, one at least.
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
        "left out": left_out,
    }


def _prepared(request: AdvectionRequest, name: str, comm: Comm) -> _Candidate:
    settings: dict[str, Any] = {
        "courant": _COURANT,
        "dtype": request.dtype,
        "grid": request.grid,
    }
    tuned: Mapping[str, Any] = {}
    shell, threads = request.shell, request.threads
    strategy = checked_strategy(name, 1 if comm is None else comm.size)
    if len(strategy.devices) == 2 and shell is None:
        tried = _THREADS if threads is None else (threads,)
        tuned = _tuned_shell(request.shape, name, tried, comm=comm, **settings)
        shell, threads = tuned["shell"], tuned["threads"]
    solver = Advection(
        request.shape,
        strategy=name,
        shell=1 if shell is None else shell,
        threads=threads,
        comm=comm,
        **settings,
    )
    solver.set(gaussian(solver.box, solver.shape, (0.0, 0.0, 0.0), _WIDTH))
    return _Candidate(solver, tuned)


def _tuned_shell(
    shape: Sequence[int], strategy: str, threads: Sequence[int | None], comm: Comm, **settings: Any
) -> Mapping[str, Any]:
    """Return the fastest shell and number of threads, and the seconds of all pairs. Collective."""

    def prepare(pair: tuple[int, int | None]) -> Callable[[], None]:
        solver = Advection(
            shape, strategy=strategy, comm=comm, shell=pair[0], threads=pair[1], **settings
        )
        solver.set(np.ones(solver.box.shape, solver.dtype))

        def step() -> None:
            solver.advance()
            solver.synchronize()

        return step

    pairs = list(itertools.product(SHELLS, threads))
    seconds = measure(lambda _: pairs, prepare, comm, repetitions=_TUNING_STEPS)
    shell, best = seconds.best()
    return {"shell": shell, "threads": best, "seconds": seconds}


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

    def profile() -> Timeline:
        solver.advance(profile=True)
        solver.synchronize()
        return solver.timeline(forget=True)

    uncovered, timeline = exposed_moves(profile)
    if timelines is not None:
        timelines[name] = timeline
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


def print_advection(title: str, result: Mapping[str, Any]) -> None:
    """Print a row for each strategy, and what they are measured against."""
    copies = result["copy bandwidth (B/s)"].items()
    bound = ", ".join(f"{name} {rate / 1e9:.4g} GB/s" for name, rate in copies)
    rows = result["rows"]
    show_table(
        title,
        {
            "strategy": text_of("strategy"),
            "Gpoint/s": number_of("Gpoint/s"),
            "GF": number_of("GF", ".4g"),
            "of copy": number_of("fraction of copy", ".2f"),
            "exposed": seconds_of("exposed (s per step)"),
            "error": number_of("error", ".2e"),
        },
        rows,
        [
            f"copy bandwidth of all ranks in this run: {bound}",
            "all strategies give the same bits" if result["same bits"] else "strategies DIFFER",
            *(f"{row['strategy']}: shell of {row['shell']}" for row in rows if "shell" in row),
            *left_out(result),
        ],
    )


def plot_advection(path: str | Path, title: str, results: Sequence[Mapping[str, Any]]) -> None:
    """Draw points per second against the number of ranks, the best of each strategy."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    from slipstream.schedule.timeline import COLOURS

    # Where a strategy computes, by colour; which one it is, by mark.
    colours = {
        ("cpu",): COLOURS["fft"],
        ("gpu",): COLOURS["compute"],
        ("cpu", "gpu"): COLOURS["communication"],
    }
    marks = dict(zip(STRATEGIES, "osD^osD^vP", strict=True))
    best = best_of(results)
    ranks = sorted({number for values in best.values() for number in values})
    with picture(path, (7.2, 4.4)) as figure:
        axes = figure.subplots()
        for name in STRATEGIES:
            if name not in best:
                continue
            axes.plot(
                *zip(*sorted(best[name].items()), strict=True),
                color=colours[STRATEGIES[name].devices],
                marker=marks[name],
                label=name,
            )
        axes.set_title(title)
        axes.set(xscale="log", yscale="log", xlabel="MPI ranks", ylabel="Gpoint/s")
        mark_ticks(axes.xaxis, ranks, "{:g}".format)
        rates = [rate for values in best.values() for rate in values.values()]
        axes.set_ylim(min(rates) / 2, max(rates) * 2)
        flops = axes.secondary_yaxis(
            "right", functions=(partial(np.multiply, FLOPS), partial(np.multiply, 1 / FLOPS))
        )
        flops.set_ylabel(f"GF ({FLOPS} operations a point)")
        for axis in (axes.yaxis, flops.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:g}"))
        draw_rules(axes)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
