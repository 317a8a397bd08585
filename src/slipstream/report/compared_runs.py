"""Several runs on one page: what differs between them, what came out, and their curves together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from slipstream.errors import InputError
from slipstream.printable_text import one_line, shown
from slipstream.report.figure_style import (
    COLOURS,
    label_in_plain_numbers,
    legend_inside,
    new_figure,
    set_empty_limits,
)
from slipstream.report.page_style import escaped, figure, grid_table, page, section
from slipstream.report.run_averages import average_of_spectrum
from slipstream.report.run_page import seconds_of, state_of
from slipstream.report.run_pictures import (
    Picture,
    SpectrumWishes,
    axis_labels,
    draw_average,
    finish_spectrum,
    mark_cutoff,
    resolved_shells,
    thinned,
    visible_shells,
)
from slipstream.report.stored_run import StoredRun
from slipstream.simulation.solver_values import Spectra
from slipstream.time_averages import TimeAverage

# Inches: 86 mm, a column of most journals.
_COLUMN_WIDTH = 3.386
_COLUMN_STYLE = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.1,
    "savefig.dpi": 300,
    # Text that editors of journals can select.
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
}
_MOST_IN_COLUMN, _MOST_TOLD = 2, 3
# What differs between runs without being their subject.
_AROUND = ("time.", "run.", "initial.restart")
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


def runs_by_name(folders: Sequence[Path]) -> dict[str, StoredRun]:
    """Return runs by short names of their folders that tell them apart."""
    return {name: StoredRun(path) for name, path in _names(folders).items()}


def _names(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the folders by short names that tell them apart."""
    paths = [folder.absolute() for folder in folders]
    for parts in range(1, 4):
        names = [one_line("/".join(path.parts[-parts:])) or "run" for path in paths]
        if len(set(names)) == len(names):
            return dict(zip(names, folders, strict=True))
    # The same run twice, or folders of equal names deep down.
    numbered = [f"{number} {name}" for number, name in enumerate(names, 1)]
    return dict(zip(numbered, folders, strict=True))


def comparison_picture(
    runs: Mapping[str, StoredRun], wishes: SpectrumWishes, tell: Callable[[str], None]
) -> Picture:
    """Return one figure of several runs, as wide as a column of a journal.

    Curves against time are above the spectra; labels say what differs between the cases.
    """
    columns = [one for one in _common_columns(runs) if not wishes.name][:_MOST_IN_COLUMN]
    spectra = {name: run.spectra for name, run in runs.items()}
    kind = wishes.name or _common_spectrum(runs, spectra)
    if wishes.name and not any(len(one) and kind in one[-1][1] for one in spectra.values()):
        there = dict.fromkeys(name for one in spectra.values() if len(one) for name in one[-1][1])
        names = ", ".join(map(one_line, there)) or "none yet"
        raise InputError(f"--spectrum: there is no {shown(kind)}; there are: {names}")
    wishes = replace(wishes, name=kind)
    drawn = {name: one for name, one in spectra.items() if len(one) and kind in one[-1][1]}
    if not columns and not drawn:
        raise InputError("there is nothing to draw of these runs yet")
    averages = {
        name: average_of_spectrum(runs[name].folder, kind, wishes.since, tell)
        for name in (drawn if wishes.is_average else ())
    }
    labels = labels_by_difference(runs)

    def figure() -> Figure:
        count = len(columns) + bool(drawn)
        whole = new_figure((_COLUMN_WIDTH, 0.55 + 0.16 * len(runs) + 1.35 * count), "")
        panels = list(whole.subplots(count, 1, squeeze=False)[:, 0])
        _draw_columns(panels[: len(columns)], runs, columns, labels)
        if drawn:
            _draw_spectra(panels[-1], runs, drawn, wishes, averages)
        lines = [
            Line2D([], [], color=colour, linestyle=dashes)  # type: ignore[arg-type]
            for colour, dashes in _styles(runs)
        ]
        where: Any = "outside upper left"
        texts = [labels[name] for name in runs]
        legend = whole.legend(lines, texts, loc=where, fontsize="small", handlelength=1.8)
        for text in legend.get_texts():
            text.set_parse_math(False)
        whole.align_ylabels(panels)
        return whole

    return Picture("comparison", figure, style=_COLUMN_STYLE)


def _common_columns(runs: Mapping[str, StoredRun]) -> list[str]:
    every = dict.fromkeys(
        name for run in runs.values() for name in run.choice.columns if _is_in(name, run)
    )
    return list(every)


def _common_spectrum(runs: Mapping[str, StoredRun], spectra: Mapping[str, Spectra]) -> str:
    """Return the first spectrum that is drawn of any run."""
    for name, run in runs.items():
        there = spectra[name][-1][1] if len(spectra[name]) else {}
        for kind in (*run.choice.spectra, *there):
            if kind in there:
                return kind
    return ""


def labels_by_difference(runs: Mapping[str, StoredRun]) -> dict[str, str]:
    """Return labels of runs: the values of what differs between their cases, or else the names."""
    rows = differences(runs)
    # How long they run, and on what, tells runs apart only if nothing else does.
    told = [row for row in rows if not row[0].startswith(_AROUND)] or rows
    told = told[:_MOST_TOLD]
    keys = [row[0].rpartition(".")[2] for row in told]
    keys = [row[0] if keys.count(key) > 1 else key for row, key in zip(told, keys, strict=True)]
    labels = {}
    for number, name in enumerate(runs, 1):
        parts = [f"{key} = {row[number] or 'none'}" for key, row in zip(keys, told, strict=True)]
        labels[name] = ", ".join(parts) or name
    texts = list(labels.values())
    return {
        name: text if texts.count(text) == 1 else f"{name}: {text}" if text != name else name
        for name, text in labels.items()
    }


def _styles(runs: Mapping[str, StoredRun]) -> list[tuple[str, str]]:
    return [style for _, style in zip(runs, _style(), strict=False)]


def _draw_columns(
    panels: Sequence[Axes],
    runs: Mapping[str, StoredRun],
    columns: Sequence[str],
    names: Mapping[str, str],
) -> None:
    """Draw a column of the series of all runs in each panel."""
    labels: dict[str, str] = {}
    for run in runs.values():
        labels = axis_labels(run.series[1], run.choice) | labels
    for axes, column in zip(panels, columns, strict=True):
        for run, (colour, dashes) in zip(runs.values(), _styles(runs), strict=True):
            if _is_in(column, run):
                series = run.series[0]
                curve = thinned(series["time"], series[column])
                axes.plot(*curve, dashes, color=colour)
        axes.set_ylabel(labels.get(column, column))
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.5)
        axes.set_xlim(left=0 if axes.get_xlim()[0] < 0 else None)
        axes.tick_params(labelbottom=axes is panels[-1])
    if panels:
        panels[-1].set_xlabel(next(iter(runs.values())).choice.time_label)


def _draw_spectra(
    axes: Axes,
    runs: Mapping[str, StoredRun],
    spectra: Mapping[str, Spectra],
    wishes: SpectrumWishes,
    averages: Mapping[str, TimeAverage],
) -> None:
    """Draw the last spectrum of each run, or its average with a band of its standard error."""
    label = ""
    for (name, run), (colour, dashes) in zip(runs.items(), _styles(runs), strict=True):
        cutoff = run.choice.cutoff
        if name in averages:
            draw_average(axes, averages[name], wishes, cutoff, color=colour, linestyle=dashes)
        elif name in spectra:
            shells = resolved_shells(*spectra[name][-1][1][wishes.name], cutoff)
            wavenumber, values = visible_shells(*shells)
            values = wishes.compensated(wavenumber, np.abs(values))
            axes.plot(wavenumber, values, dashes, color=colour)
        label = label or axis_labels({}, run.choice).get(wishes.name, "")
    axes.set(xscale="log", yscale="log")
    cutoffs = [runs[name].choice.cutoff for name in spectra]
    finish_spectrum(axes, wishes.label(label or wishes.name), cutoffs)
    axes.yaxis.set_minor_formatter(NullFormatter())


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
    for axes, column in zip(rows, columns, strict=True):
        for (name, run), (colour, dashes) in zip(runs.items(), _style(), strict=False):
            if _is_in(column, run):
                series = run.series[0]
                axes.plot(series["time"], series[column], dashes, color=colour, label=_plain(name))
        labels = [
            axis_labels(run.series[1], run.choice).get(column, column)
            for run in runs.values()
            if _is_in(column, run)
        ]
        axes.set_ylabel(_common_label(labels, column), fontsize="small")
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.6)
    rows[-1].set_xlabel(next(iter(runs.values())).choice.time_label)
    legend_inside(rows[0])
    drawn.align_ylabels(rows)
    return drawn


def _spectra_figure(runs: Mapping[str, StoredRun], last: Mapping[str, Any]) -> Figure:
    drawn = new_figure((6.4, 4.8), "")
    axes = drawn.subplots()
    labels, cutoffs = list[str](), set[float]()
    for (name, run), (colour, dashes) in zip(runs.items(), _style(), strict=False):
        if name not in last:
            continue
        time, spectra = last[name]
        kind = next((one for one in (*run.choice.spectra, *spectra) if one in spectra), None)
        if kind is None:
            continue
        cutoff = run.choice.cutoff
        shells, every = spectra[kind]
        wavenumber, values = visible_shells(*resolved_shells(shells, every, cutoff))
        cutoffs.add(cutoff)
        text = f"{_plain(name)}, $t$ = {time:.3g}"
        axes.plot(wavenumber, np.abs(values), dashes, color=colour, label=text)
        labels.append(axis_labels({}, run.choice).get(kind, kind))
    axes.set(xscale="log", yscale="log")
    if not any(len(np.asarray(line.get_xdata())) for line in axes.lines):
        set_empty_limits(axes)
    for cutoff in cutoffs:
        mark_cutoff(axes, cutoff)
    label_in_plain_numbers(axes.xaxis)
    axes.set_xlabel("wavenumber $k$")
    axes.set_ylabel(_common_label(labels, "spectrum"))
    legend_inside(axes, "lower left")
    return drawn


def _common_label(labels: Sequence[str], name: str) -> str:
    """Return what runs call a curve, or its name if they differ: not all energy is kinetic."""
    return labels[0] if len(set(labels)) == 1 else name.replace("_", " ")


def _plain(name: str) -> str:
    """Return the name of a folder, in which dollars are no mathematics."""
    return name.replace("$", r"\$")
