"""The picture of an exchange benchmark: bandwidth per rank against the size of messages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from slipstream.bench.exchange_patterns import PATTERNS
from slipstream.byte_sizes import bytes_text
from slipstream.report.figure_style import GREY, STYLE
from slipstream.schedule.timeline import COLOURS

# Colours for colour-blind readers, and a mark each for those of a grey print.
_LINES = tuple(
    zip(
        [COLOURS[c] for c in ("fft", "communication", "compute", "pack", "copy", "io")],
        ["o", "s", "^", "D", "v", "P"],
        strict=True,
    )
)
_MOST_TICKS = 5


def plot_exchange(path: str | Path, title: str, result: Mapping[str, Any]) -> None:
    """Draw bandwidth per rank against size of message, a panel for each pattern.

    Parameters
    ----------
    path : path
        The file; its ending names the format.
    title : str
        Heads the picture.
    result : mapping
        What `slipstream.bench.exchange_bench.measure_exchange` returned.
    """
    names = list(dict.fromkeys(row["transport"] for row in result["rows"]))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 4.0))
        FigureCanvasAgg(figure)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12)
        panels = figure.subplots(1, len(PATTERNS), sharex=True, sharey=True)
        for axes, pattern in zip(panels, PATTERNS, strict=True):
            _draw_pattern(axes, pattern, names, result)
        panels[0].set_ylabel("sent per rank (GB/s)")
        panels[0].set_ylim(bottom=0)
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(names) + 1
        )
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def _draw_pattern(axes: Axes, pattern: str, names: list[str], result: Mapping[str, Any]) -> None:
    for number, name in enumerate(names):
        colour, mark = _LINES[number % len(_LINES)]
        rows = [r for r in result["rows"] if (r["pattern"], r["transport"]) == (pattern, name)]
        axes.plot(
            [row["bytes"] for row in rows],
            [row["GB/s per rank"] for row in rows],
            color=colour,
            marker=mark,
            markersize=4.5,
            label=name,
        )
    limit = result["limits (GB/s per rank)"][pattern]
    axes.axhline(limit, color=GREY, linestyle="--", linewidth=1.2, label="limit")
    sizes = sorted({row["bytes"] for row in result["rows"]})
    axes.set_title(pattern)
    axes.set_xscale("log", base=2)
    every = -(-len(sizes) // _MOST_TICKS)
    axes.xaxis.set_major_locator(FixedLocator(sizes[::every]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: bytes_text(size)))
    axes.tick_params(axis="x", labelsize=8.5)
    axes.set_xlabel("message between two ranks")
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
