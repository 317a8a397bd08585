"""Timelines of nodes, which show overlap, and their totals by category."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch

    from slipstream.schedule.step_graph import Node

# Colour-blind safe (Okabe and Ito 2008), one per category.
COLOURS = {
    "fft": "#0072B2",
    "pack": "#E69F00",
    "communication": "#D55E00",
    "copy": "#CC79A7",
    "compute": "#009E73",
    "io": "#999999",
}


@dataclass(frozen=True)
class Entry:
    """One node's run; times in seconds."""

    label: str
    category: str
    lane: str
    start: float
    stop: float


class Timeline:
    """The entries of all profiled runs of a step; with several devices, lanes name theirs."""

    def __init__(self, several_devices: bool = False) -> None:
        self.entries: list[Entry] = []
        self._several_devices = several_devices

    def add(self, node: Node, start: float, stop: float) -> None:
        """Append the run of a node."""
        of_device = self._several_devices and not node.transfer
        lane = f"{node.device.kind}: {node.lane}" if of_device else node.lane
        self.entries.append(Entry(node.label, node.category, lane, start, stop))

    @classmethod
    def merged(cls, timelines: Sequence[Timeline], forget: bool = False) -> Timeline:
        """Return the joint timeline of several steps, in order; `forget` clears their timelines."""
        result = cls()
        result.entries = sorted(
            (entry for one in timelines for entry in one.entries), key=lambda entry: entry.start
        )
        for one in timelines if forget else ():
            one.clear()
        return result

    def clear(self) -> None:
        """Forget all entries."""
        self.entries.clear()

    def duration(self) -> float:
        """Return the seconds from the first start to the last end."""
        start = min((entry.start for entry in self.entries), default=0.0)
        return max((entry.stop for entry in self.entries), default=start) - start

    def totals(self) -> dict[str, float]:
        """Return the busy seconds of each category; overlapping work counts in each."""
        result: dict[str, float] = {}
        for entry in self.entries:
            result[entry.category] = result.get(entry.category, 0.0) + entry.stop - entry.start
        return result

    def exposed(self, *categories: str) -> float:
        """Return the seconds in which only `categories` ran, not hidden by overlap.

        By default that is "communication".
        """
        chosen = categories or ("communication",)
        mine = _union((e.start, e.stop) for e in self.entries if e.category in chosen)
        others = _union((e.start, e.stop) for e in self.entries if e.category not in chosen)
        hidden = sum(
            max(0.0, min(b, d) - max(a, c)) for a, b in mine for c, d in others if c < b and a < d
        )
        return sum(b - a for a, b in mine) - hidden

    def write_chrome_trace(self, path: str | Path, rank: int = 0) -> None:
        """Write the entries as Chrome-trace JSON, which Perfetto and chrome://tracing open."""
        origin = min((e.start for e in self.entries), default=0.0)
        events = [
            {
                "name": entry.label,
                "cat": entry.category,
                "ph": "X",
                "pid": rank,
                "tid": entry.lane,
                "ts": (entry.start - origin) * 1e6,
                "dur": (entry.stop - entry.start) * 1e6,
            }
            for entry in self.entries
        ]
        Path(path).write_text(json.dumps({"traceEvents": events}))

    def write_picture(self, path: str | Path, title: str = "") -> None:
        """Draw one bar per entry, lanes as rows, colour by category, as PNG."""
        import matplotlib
        from matplotlib.figure import Figure

        lanes = {entry.lane for entry in self.entries}
        with matplotlib.rc_context():
            matplotlib.rcdefaults()  # a matplotlibrc has no effect
            figure = Figure(figsize=(9, 1.2 + 0.5 * len(lanes)), layout="constrained")
            axes = figure.subplots()
            self.draw(axes, title)
            axes.legend(
                handles=legend_of([self]),
                loc="upper center",
                bbox_to_anchor=(0.5, -0.35),
                ncols=len(COLOURS),
                frameon=False,
            )
            figure.savefig(path, dpi=160)

    def draw(self, axes: Axes, title: str = "") -> None:
        """Draw the entries into Matplotlib's axes."""
        origin = min((e.start for e in self.entries), default=0.0)
        lanes = list(dict.fromkeys(entry.lane for entry in self.entries))
        for entry in self.entries:
            bar = [((entry.start - origin) * 1e3, (entry.stop - entry.start) * 1e3)]
            row = lanes.index(entry.lane)
            axes.broken_barh(bar, (row - 0.4, 0.8), color=COLOURS[entry.category], linewidth=0.3)
        axes.set(xlabel="time (ms)", yticks=range(len(lanes)), yticklabels=lanes, title=title)
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)


def legend_of(timelines: Sequence[Timeline]) -> list[Patch]:
    """Return the legend's handles for the categories in some timelines."""
    from matplotlib.patches import Patch

    present = {entry.category for timeline in timelines for entry in timeline.entries}
    return [Patch(color=COLOURS[c], label=c) for c in COLOURS if c in present]


def _union(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[list[float]] = []
    for start, stop in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], stop)
        else:
            merged.append([start, stop])
    return [(a, b) for a, b in merged]
