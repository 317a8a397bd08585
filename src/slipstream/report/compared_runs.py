"""Several runs on one page: what differs between them, what came out, and their curves together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from slipstream.printable_text import shown
from slipstream.report.figure_style import (
    COLOURS,
    label_in_plain_numbers,
    legend_inside,
    new_figure,
    set_empty_limits,
)
from slipstream.report.page_style import escaped, figure, grid_table, page, section
from slipstream.report.run_page import seconds_of, state_of
from slipstream.report.run_pictures import Picture, axis_labels, visible_shells
from slipstream.report.stored_run import StoredRun

_DASHES = ("-", "--", ":", "-.")
_MOST_PANELS = 6
# What differs between runs of any kind, and says nothing about them.
_OF_NO_INTEREST = ("output.", "title")


def comparison_page(runs: Mapping[str, StoredRun]) -> str:
    """Return a page of several runs, by the names that tell them apart."""
    names = list(runs)
    plots = [picture.svg() for picture in comparison_pictures(runs)]
    heading = f"{len(runs)} runs side by side"
    figures = "".join(figure(svg) for svg in plots)
    return page(
        f"{heading} (Slipstream)",
        [
            f"<header><h1>{escaped(heading)}</h1></header>\n",
            section("Runs", grid_table(("", *names), _overview(runs))),
            section("What differs between the cases", grid_table(("", *names), differences(runs))),
            section("Results", grid_table(("", *names), _results(runs))),
            section("Curves together", f"<div class='figures'>{figures}</div>" if figures else ""),
        ],
    )


def comparison_pictures(runs: Mapping[str, StoredRun]) -> list[Picture]:
    """Return the series, and the last spectra, of several runs in the same axes."""
    columns = dict.fromkeys(
        name for run in runs.values() for name in run.choice.columns if _is_in(name, run)
    )
    pictures = []
    if columns:
        shown_columns = list(columns)[:_MOST_PANELS]
        pictures.append(Picture("series", lambda: _series_figure(runs, shown_columns)))
    spectra = {name: run.spectra for name, run in runs.items()}
    last = {name: one[-1] for name, one in spectra.items() if len(one)}
    if last:
        pictures.append(Picture("spectra", lambda: _spectra_figure(runs, last)))
    return pictures


def differences(runs: Mapping[str, StoredRun]) -> list[tuple[str, ...]]:
    """Return the keys of the cases whose values differ, and these values."""
    cases = [dict(_flat(run.case)) for run in runs.values()]
    keys = dict.fromkeys(key for case in cases for key in case)
    rows = []
    for key in keys:
        values = [case.get(key) for case in cases]
        if any(value != values[0] for value in values) and not key.startswith(_OF_NO_INTEREST):
            rows.append((key, *("" if one is None else shown(one, 60) for one in values)))
    return rows


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _overview(runs: Mapping[str, StoredRun]) -> list[tuple[str, ...]]:
    records = [run.record for run in runs.values()]
    last = [record.segments[-1] if record.segments else None for record in records]
    rows = [
        ("title", *(run.title for run in runs.values())),
        ("state", *(state_of(run.record, run.is_running)[1] for run in runs.values())),
        ("steps", *(str(one.to_step) if one else "" for one in last)),
        ("time", *(f"{one.to_time:.6g}" if one else "" for one in last)),
        ("seconds", *(f"{seconds_of(record.segments):.0f}" for record in records)),
        ("devices", *(", ".join(one.devices) if one else "" for one in last)),
        ("ranks", *(str(one.ranks) if one else "" for one in last)),
        ("Slipstream", *(f"{one.version} {one.commit}".strip() if one else "" for one in last)),
    ]
    return [row for row in rows if any(row[1:])]


def _results(runs: Mapping[str, StoredRun]) -> list[tuple[str, ...]]:
    found = [
        run.record.segments[-1].results if run.record.segments else {} for run in runs.values()
    ]
    names = dict.fromkeys(name for one in found for name in one)
    rows = [(name, *(one[name][0] if name in one else "" for one in found)) for name in names]
    columns = dict.fromkeys(name for run in runs.values() for name in run.choice.columns)
    for name in columns:
        last = [run.series[0].get(name, np.zeros(0)) for run in runs.values()]
        if any(len(one) for one in last):
            values = (f"{one[-1]:.6g}" if len(one) else "" for one in last)
            rows.append((f"{name} at the end", *values))
    return rows


def _is_in(name: str, run: StoredRun) -> bool:
    return len(run.series[0].get(name, ())) > 1


def _style() -> Iterator[tuple[str, str]]:
    return cycle((colour, dashes) for dashes in _DASHES for colour in COLOURS)


def _series_figure(runs: Mapping[str, StoredRun], columns: Sequence[str]) -> Figure:
    drawn = new_figure((6.4, 0.6 + 2.2 * len(columns)), "")
    rows = drawn.subplots(len(columns), 1, sharex=True, squeeze=False)[:, 0]
    labels: dict[str, str] = {}
    for run in runs.values():
        labels = axis_labels(run.series[1], run.choice) | labels
    for axes, column in zip(rows, columns, strict=True):
        for (name, run), (colour, dashes) in zip(runs.items(), _style(), strict=False):
            if _is_in(column, run):
                series = run.series[0]
                axes.plot(series["time"], series[column], dashes, color=colour, label=_plain(name))
        axes.set_ylabel(labels.get(column, column), fontsize="small")
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.6)
    rows[-1].set_xlabel(next(iter(runs.values())).choice.time_label)
    legend_inside(rows[0])
    drawn.align_ylabels(rows)
    return drawn


def _spectra_figure(runs: Mapping[str, StoredRun], last: Mapping[str, Any]) -> Figure:
    drawn = new_figure((6.4, 4.8), "")
    axes = drawn.subplots()
    label = ""
    for (name, run), (colour, dashes) in zip(runs.items(), _style(), strict=False):
        if name not in last:
            continue
        time, spectra = last[name]
        kind = next((one for one in (*run.choice.spectra, *spectra) if one in spectra), None)
        if kind is None:
            continue
        wavenumber, values = visible_shells(*spectra[kind])
        text = f"{_plain(name)}, $t$ = {time:.3g}"
        axes.plot(wavenumber, np.abs(values), dashes, color=colour, label=text)
        label = label or axis_labels({}, run.choice).get(kind, kind)
    axes.set(xscale="log", yscale="log")
    if not any(len(np.asarray(line.get_xdata())) for line in axes.lines):
        set_empty_limits(axes)
    label_in_plain_numbers(axes.xaxis)
    axes.set_xlabel("wavenumber $k$ (non-dimensional)")
    axes.set_ylabel(label)
    legend_inside(axes, "lower left")
    return drawn


def _plain(name: str) -> str:
    """Return the name of a folder, in which dollars are no mathematics."""
    return name.replace("$", r"\$")
