"""Pictures of benchmarks: speed by ranks, bandwidth by size of message, and timelines."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from slipstream.engine.accepted import TRANSPORTS
from slipstream.engine.errors import InputError, bytes_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from slipstream.engine.schedule import Timeline

_MOST_TICKS = 5


def check_format(path: str | Path | None, option: str = "--plot") -> None:
    """Raise InputError if an option names a file that cannot be a picture; None is no picture."""
    if path is None:
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    formats = FigureCanvasAgg(Figure()).get_supported_filetypes()
    if Path(path).suffix.lstrip(".").lower() not in formats:
        raise InputError(
            f"{option} {str(path)!r} is no picture; accepted: such as FILE.png, FILE.pdf"
        )


@contextmanager
def _picture(path: str | Path, size: tuple[float, float], title: str = "") -> Iterator[Figure]:
    """Yield a figure in the style of all pictures, perhaps with a title, and write it to a file."""
    from slipstream.show.figure_style import in_our_style

    with in_our_style():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=size)
        FigureCanvasAgg(figure)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=12)
        yield figure
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def _mark_ticks(axis: Axis, places: Sequence[float], text: Callable[[float], str]) -> None:
    """Set the ticks of an axis and their texts."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_major_locator(FixedLocator(places))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def _draw_rules(axes: Axes) -> None:
    """Draw faint horizontal lines behind the curves."""
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)


def _label_ends(figure: Figure, axes: Axes, size: float = 8.5) -> None:
    """Write the label of each curve at its last point, in its colour; labels do not overlap."""
    figure.draw_without_rendering()
    points_per_dot = 72 / figure.dpi
    ends = []
    for line in axes.get_lines():
        x, y = (float(np.asarray(data)[-1]) for data in line.get_data())
        height = axes.transData.transform((x, y))[1] * points_per_dot
        ends.append((x, height, y, line))
    used: dict[float, float] = {}
    for x, height, y, line in sorted(ends, key=lambda end: end[:2]):
        at = max(height, used.get(x, -np.inf) + 1.15 * size)
        used[x] = at
        axes.annotate(
            str(line.get_label()),
            (x, y),
            (7, at - height),
            textcoords="offset points",
            va="center",
            fontsize=size,
            color=line.get_color(),
            annotation_clip=False,
        )


def plot_timelines(path: str | Path, title: str, timelines: Mapping[str, Timeline]) -> None:
    """Draw the timelines of steps, with a panel for each way to compute them.

    Panels of steps that take about as long share their axis: see `shared_ends`.
    """
    import matplotlib

    from slipstream.engine.schedule.committed_steps import legend_of

    heights = [len({entry.lane for entry in one.entries}) + 2.4 for one in timelines.values()]
    size = 7.6, 0.8 + 0.26 * sum(heights)
    ends = shared_ends([1e3 * one.duration() for one in timelines.values()])
    with matplotlib.rc_context(), _picture(path, size, title) as figure:
        matplotlib.rcParams.update({"font.size": 9, "axes.labelsize": 9})
        panels = figure.subplots(len(timelines), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (name, timeline), end in zip(panels, timelines.items(), ends, strict=True):
            timeline.draw(axes, name)
            axes.set_xlim(-0.01 * end, 1.02 * end)
        for axes, end, below in zip(panels, ends, [*ends[1:], None], strict=True):
            if end == below:
                axes.set(xlabel="", xticklabels=[])
        handles = legend_of(list(timelines.values()))
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))


def shared_ends(spans: Sequence[float]) -> list[float]:
    """Return the end of the axis of each span: the longest span of its group.

    A group ends where the next shorter span is less than a third and would look like a dot.
    """
    ends: dict[float, float] = {}
    end = before = 0.0
    for span in sorted(spans, reverse=True):
        if not ends or before > 3 * span:
            end = span
        ends[span], before = end, span
    return [ends[span] for span in spans]


def best_of(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """Return Gpoint/s by strategy and number of ranks, the best of several results."""
    best: dict[str, dict[int, float]] = {}
    for record in records:
        for row in record["rows"]:
            at = best.setdefault(row["strategy"], {})
            at[record["ranks"]] = max(at.get(record["ranks"], 0.0), row["Gpoint/s"])
    return best


def plot_advection(path: str | Path, title: str, results: Sequence[Mapping[str, Any]]) -> None:
    """Draw points per second against the number of ranks, the best of each strategy."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    from slipstream.advection import FLOPS, STRATEGIES
    from slipstream.engine.schedule.committed_steps import COLOURS

    # The devices of a strategy have a colour, strategies of the same devices different marks.
    colours = {
        ("cpu",): COLOURS["fft"],
        ("gpu",): COLOURS["compute"],
        ("cpu", "gpu"): COLOURS["communication"],
    }
    best = best_of(results)
    ranks = sorted({number for values in best.values() for number in values})
    with _picture(path, (7.2, 4.4)) as figure:
        axes = figure.subplots()
        for (name, strategy), mark in zip(STRATEGIES.items(), "osD^osD^vP", strict=True):
            if name in best:
                points = zip(*sorted(best[name].items()), strict=True)
                colour = colours[strategy.devices]
                axes.plot(*points, color=colour, marker=mark, label=name)
        axes.set_title(title)
        axes.set(xscale="log", yscale="log", xlabel="MPI ranks", ylabel="Gpoint/s")
        _mark_ticks(axes.xaxis, ranks, "{:g}".format)
        rates = [rate for values in best.values() for rate in values.values()]
        axes.set_ylim(min(rates) / 2, max(rates) * 2)
        axes.set_xlim(ranks[0] / 1.15, ranks[-1] * 2.1)  # room for the names
        flops = axes.secondary_yaxis(
            "right", functions=(partial(np.multiply, FLOPS), partial(np.multiply, 1 / FLOPS))
        )
        flops.set_ylabel(f"GF ({FLOPS} operations per point)")
        for axis in (axes.yaxis, flops.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:g}"))
        _draw_rules(axes)
        _label_ends(figure, axes)


def plot_exchange(path: str | Path, title: str, result: Mapping[str, Any]) -> None:
    """Draw bandwidth per rank against size of message, a panel for each pattern."""
    from slipstream.show.figure_style import COLOURS, GREY

    # Colours for colour-blind readers, and marks for a grey print.
    lines = zip((*COLOURS, "#000000"), "os^DvPX", strict=True)
    rows, limits = result["rows"], result["limits (GB/s per rank)"]
    names = list(dict.fromkeys(row["transport"] for row in rows))
    # A transport has the same colour and mark in every picture.
    looks = dict(zip({**TRANSPORTS, **dict.fromkeys(names)}, itertools.cycle(lines), strict=False))
    sizes = sorted({row["bytes"] for row in rows})
    with _picture(path, (9.6, 4.0), title) as figure:
        panels = figure.subplots(1, len(limits), sharex=True, sharey=True)
        for axes, (pattern, limit) in zip(panels, limits.items(), strict=True):
            for name in names:
                transport_rows = [
                    row for row in rows if (row["pattern"], row["transport"]) == (pattern, name)
                ]
                points = [
                    [row[key] for row in transport_rows] for key in ("bytes", "GB/s per rank")
                ]
                colour, mark = looks[name]
                axes.plot(*points, color=colour, marker=mark, markersize=4.5, label=name)
            rest = {"color": GREY, "linestyle": "--", "linewidth": 1.2}
            axes.plot((sizes[0], sizes[-1]), (limit, limit), label="limit", **rest)
            axes.set_title(pattern)
            axes.set_xscale("log", base=2)
            _mark_ticks(axes.xaxis, sizes[:: -(-len(sizes) // _MOST_TICKS)], bytes_text)
            axes.tick_params(axis="x", labelsize=8.5)
            axes.set_xlabel("message between two ranks")
            _draw_rules(axes)
        panels[0].set_ylabel("sent per rank (GB/s)")
        panels[0].set_ylim(bottom=0)
        _label_ends(figure, panels[-1])
