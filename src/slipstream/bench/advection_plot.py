"""The picture of the advection benchmark: speed against ranks, a line for each strategy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from slipstream.advection import FLOPS, STRATEGIES
from slipstream.bench.advection_bench import best_of
from slipstream.errors import InputError
from slipstream.report.figure_style import STYLE
from slipstream.schedule.timeline import COLOURS, Timeline, legend_of

# Where a strategy computes, by colour; which one it is, by mark.
_COLOURS = {
    ("cpu",): COLOURS["fft"],
    ("gpu",): COLOURS["compute"],
    ("cpu", "gpu"): COLOURS["communication"],
}
_MARKS = dict(zip(STRATEGIES, "osD^osD^vP", strict=True))


def read_results(paths: Sequence[str | Path]) -> list[Mapping[str, Any]]:
    """Return the results in records of this benchmark.

    Raises
    ------
    InputError
        If a file is no such record.
    """
    results = []
    for path in paths:
        try:
            record = json.loads(Path(path).read_text(encoding="utf-8"))
            if record["benchmark"] != "advection":
                raise KeyError("benchmark")
            results.append(record["result"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"--beside {path}: no record of 'slipstream bench advection --json'"
            ) from error
    return results


def plot_advection(path: str | Path, title: str, results: Sequence[Mapping[str, Any]]) -> None:
    """Draw points per second against the number of ranks, the best of each strategy.

    Parameters
    ----------
    path : path
        The file; its ending names the format.
    title : str
        Heads the picture.
    results : sequence of mapping
        What `measure_advection` returned, for some numbers of ranks.
    """
    best = best_of(results)
    ranks = sorted({number for values in best.values() for number in values})
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 4.4))
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        for name in STRATEGIES:
            if name not in best:
                continue
            points = sorted(best[name].items())
            axes.plot(
                [number for number, _ in points],
                [rate for _, rate in points],
                color=_COLOURS[STRATEGIES[name].devices],
                marker=_MARKS[name],
                label=name,
            )
        axes.set_title(title)
        axes.set(xscale="log", yscale="log", xlabel="MPI ranks", ylabel="Gpoint/s")
        axes.xaxis.set_major_locator(FixedLocator(ranks))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
        rates = [rate for values in best.values() for rate in values.values()]
        axes.set_ylim(min(rates) / 2, max(rates) * 2)
        flops = axes.secondary_yaxis(
            "right", functions=(lambda rate: rate * FLOPS, lambda rate: rate / FLOPS)
        )
        flops.set_ylabel(f"GF ({FLOPS} operations a point)")
        for axis in (axes.yaxis, flops.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:g}"))
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.6)
        axes.set_axisbelow(True)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def plot_timelines(path: str | Path, title: str, timelines: Mapping[str, Timeline]) -> None:
    """Draw what ran when in a step, a panel for each strategy.

    Parameters
    ----------
    path : path
        The file; its ending names the format.
    title : str
        Heads the picture.
    timelines : mapping of str to Timeline
        One step by name of strategy.
    """
    heights = [len({entry.lane for entry in one.entries}) + 2.4 for one in timelines.values()]
    with matplotlib.rc_context({**STYLE, "font.size": 9, "axes.labelsize": 9}):
        figure = Figure(figsize=(7.6, 0.8 + 0.26 * sum(heights)))
        FigureCanvasAgg(figure)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        panels = figure.subplots(len(timelines), 1, squeeze=False, height_ratios=heights)
        for axes, (name, timeline) in zip(panels[:, 0], timelines.items(), strict=True):
            timeline.draw(axes, name)
        handles = legend_of(list(timelines.values()))
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
