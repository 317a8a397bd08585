"""``slipstream report``: the page of a run, or of several runs side by side with their curves."""

from __future__ import annotations

import os
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

from slipstream.engine.errors import InputError
from slipstream.engine.text import escaped, one_line, shown
from slipstream.files.durable_files import errors_name, replace_file
from slipstream.files.foreign_files import open_file
from slipstream.show.figure_style import COLOURS, draw_grid, legend_inside, new_figure
from slipstream.show.run_page import (
    GENERATOR,
    figure,
    grid_table,
    page,
    run_checks,
    run_page,
    seconds_of,
    section,
    state_of,
    timeline_of,
)
from slipstream.show.run_pictures import (
    Picture,
    SpectrumWishes,
    axis_labels,
    draw_average,
    finish_spectrum,
    resolved_shells,
    thinned,
    visible_shells,
)
from slipstream.show.stored_run import StoredRun, average_of_spectrum

# Runs on one page, at most.
_MOST_RUNS = 24
_COMPARISON = "comparison.html"
# Inches: 86 mm, a column of most journals.
_COLUMN_WIDTH = 3.386
_COLUMN_STYLE = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "axes.linewidth": 0.6,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.1,
    "savefig.dpi": 300,
    # Text that editors of journals can select.
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
}
# Curves against time in a column of a journal, at most.
_MOST_IN_COLUMN = 2
# Curves against time on a page, at most.
_MOST_PANELS = 6
# Keys that label a run, at most.
_MOST_KEYS = 3
# Keys that differ between runs without being their subject.
_AROUND = ("time.", "run.", "initial.restart")
# Keys that differ between runs of any kind, and say nothing about them.
_OF_NO_INTEREST = ("output.", "title")
_DASHES = ("-", "--", ":", "-.")
Runs = Mapping[str, StoredRun]


def write_report(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Write a page of one run, or of several side by side, and return its path.

    Runs may be under way; their folders are only read. By default the page is in ``reports``, with
    the name of the run, or ``comparison.html``. A file that is no such page is not replaced.
    """
    if len(folders) > _MOST_RUNS:
        raise InputError(f"report: {len(folders)} runs; accepted: at most {_MOST_RUNS} on one page")
    runs = runs_by_name(folders)
    first, is_single = next(iter(runs)), len(runs) == 1
    path = out or Path("reports") / (f"{first}.html" if is_single else _COMPARISON)
    _check(path)
    text = page_of(runs[first]) if is_single else comparison_page(runs)
    with errors_name(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode("utf-8", "replace"))
    return path


def page_of(run: StoredRun) -> str:
    """Return the page of a run, with plots of what it has written."""
    with run.drawn():
        return run_page(
            run.path,
            run.record,
            {one.name: one.svg() for one in run.pictures() if not one.is_summary},
            run_checks(run.series[0], run.planes(), run.case, run.choice.balances_energy),
            case=run.case_text,
            is_running=run.is_running,
            timeline=timeline_of(run.folder),
        )


def _check(path: Path) -> None:
    """Refuse to replace a file that is not a report."""
    if path.is_dir():
        raise InputError(f"--out: {path} is a folder; accepted: a file, such as report.html")
    if os.path.lexists(path):
        try:
            with open_file(path) as file:
                is_ours = GENERATOR.encode() in file.read(1000)
        except OSError:
            is_ours = False
        if not is_ours:
            raise InputError(f"--out: {path} exists and is no report; choose another file")


def runs_by_name(folders: Sequence[Path]) -> dict[str, StoredRun]:
    """Return runs by short names of their folders, each another one."""
    paths = [folder.absolute() for folder in folders]
    for parts in range(1, 4):
        names = [one_line("/".join(path.parts[-parts:])) or "run" for path in paths]
        if len(set(names)) == len(names):
            break
    else:
        # The same run twice, or folders of equal names deep down.
        names = [f"{number} {name}" for number, name in enumerate(names, 1)]
    return {name: StoredRun(folder) for name, folder in zip(names, folders, strict=True)}


def comparison_page(runs: Runs) -> str:
    """Return a page of several runs, by their names."""
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


def differences(runs: Runs) -> list[tuple[str, ...]]:
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


def _overview(runs: Runs) -> list[tuple[str, ...]]:
    records = [run.record for run in runs.values()]
    last = [record.segments[-1] if record.segments else None for record in records]
    rows = [
        ("title", *(run.title for run in runs.values())),
        ("state", *(state_of(run.record, run.is_running)[1] for run in runs.values())),
        ("steps", *(str(segment.to_step) if segment else "" for segment in last)),
        ("time", *(f"{segment.to_time:.6g}" if segment else "" for segment in last)),
        ("seconds", *(f"{seconds_of(record.segments):.0f}" for record in records)),
        ("devices", *(", ".join(segment.devices) if segment else "" for segment in last)),
        ("ranks", *(str(segment.ranks) if segment else "" for segment in last)),
        (
            "Slipstream",
            *(f"{segment.version} {segment.commit}".strip() if segment else "" for segment in last),
        ),
    ]
    return [row for row in rows if any(row[1:])]


def _results(runs: Runs) -> list[tuple[str, ...]]:
    results = [
        run.record.segments[-1].results if run.record.segments else {} for run in runs.values()
    ]
    names = dict.fromkeys(name for result in results for name in result)
    rows = [
        (name, *(result[name][0] if name in result else "" for result in results)) for name in names
    ]
    columns = dict.fromkeys(name for run in runs.values() for name in run.choice.columns)
    for name in columns:
        last = [run.series[0].get(name, np.zeros(0)) for run in runs.values()]
        if any(len(column) for column in last):
            values = (f"{column[-1]:.6g}" if len(column) else "" for column in last)
            rows.append((f"{name} at the end", *values))
    return rows


def labels_by_difference(runs: Runs) -> dict[str, str]:
    """Return labels of runs: the values of what differs between their cases, or else the names."""
    rows = differences(runs)
    # Duration and devices distinguish runs only if nothing else does.
    rows = ([row for row in rows if not row[0].startswith(_AROUND)] or rows)[:_MOST_KEYS]
    keys = [row[0].rpartition(".")[2] for row in rows]
    keys = [row[0] if keys.count(key) > 1 else key for row, key in zip(rows, keys, strict=True)]
    labels = {}
    for number, name in enumerate(runs, 1):
        parts = [f"{key} = {row[number] or 'none'}" for key, row in zip(keys, rows, strict=True)]
        labels[name] = ", ".join(parts) or name
    texts = list(labels.values())
    return {
        name: text if texts.count(text) == 1 else f"{name}: {text}" if text != name else name
        for name, text in labels.items()
    }


def comparison_picture(runs: Runs, wishes: SpectrumWishes, tell: Callable[[str], None]) -> Picture:
    """Return one figure of several runs, as wide as a column of a journal.

    Curves against time are above the spectra; labels say what differs between the cases.
    """
    columns = [] if wishes.name else _drawn_columns(runs)[:_MOST_IN_COLUMN]
    last = _last_spectra(runs)
    there = dict.fromkeys(name for _, spectra in last.values() for name in spectra)
    if wishes.name and wishes.name not in there:
        names = ", ".join(map(one_line, there)) or "none yet"
        raise InputError(f"--spectrum: there is no {shown(wishes.name)}; there are: {names}")
    if not wishes.name and last:
        wishes = replace(wishes, name=_kind(runs, last, next(iter(last))))
    last = {name: one for name, one in last.items() if wishes.name in one[1]}
    if not columns and not last:
        raise InputError("there is nothing to draw of these runs yet")
    averages = {
        name: average_of_spectrum(runs[name].folder, wishes.name, wishes.since, tell)
        for name in (last if wishes.is_average else ())
    }
    labels = labels_by_difference(runs)

    def spectra(axes: Axes) -> None:
        for (name, run), style in zip(runs.items(), _styles(), strict=False):
            if name in averages:
                draw_average(axes, averages[name], wishes, run.choice.cutoff, **style)
            elif name in last:
                wavenumber, values = _visible(run, last[name][1][wishes.name])
                axes.plot(wavenumber, wishes.compensated(wavenumber, np.abs(values)), **style)
        texts = (axis_labels({}, run.choice).get(wishes.name) for run in runs.values())
        label = wishes.label(next(filter(None, texts), wishes.name))
        finish_spectrum(axes, label, [runs[name].choice.cutoff for name in last])
        axes.yaxis.set_minor_formatter(NullFormatter())

    def draw() -> Figure:
        count = len(columns) + bool(last)
        whole = new_figure((_COLUMN_WIDTH, 0.55 + 0.16 * len(runs) + 1.35 * count), "")
        panels = list(whole.subplots(count, 1, squeeze=False)[:, 0])
        _draw_columns(panels[: len(columns)], runs, columns)
        for axes in panels[: len(columns)]:
            axes.set_xlim(left=0 if axes.get_xlim()[0] < 0 else None)
            axes.tick_params(labelbottom=axes is panels[len(columns) - 1])
        if last:
            spectra(panels[-1])
        lines = [Line2D([], [], **style) for _, style in zip(runs, _styles(), strict=False)]
        where: Any = "outside upper left"
        texts = [labels[name] for name in runs]
        legend = whole.legend(lines, texts, loc=where, fontsize="small", handlelength=1.8)
        for text in legend.get_texts():
            text.set_parse_math(False)
        whole.align_ylabels(panels)
        return whole

    return Picture("comparison", draw, style=_COLUMN_STYLE)


def comparison_pictures(runs: Runs) -> list[Picture]:
    """Return the series, and the last spectra, of several runs in the same axes."""
    pictures = []
    if columns := _drawn_columns(runs)[:_MOST_PANELS]:

        def series() -> Figure:
            drawn = new_figure((6.4, 0.6 + 2.2 * len(columns)), "")
            rows = list(drawn.subplots(len(columns), 1, sharex=True, squeeze=False)[:, 0])
            _draw_columns(rows, runs, columns, "small")
            legend_inside(rows[0])
            drawn.align_ylabels(rows)
            return drawn

        pictures.append(Picture("series", series))
    if last := _last_spectra(runs):
        pictures.append(Picture("spectra", lambda: _spectra_figure(runs, last)))
    return pictures


def _spectra_figure(runs: Runs, last: Mapping[str, Any]) -> Figure:
    drawn = new_figure((6.4, 4.8), "")
    axes = drawn.subplots()
    labels, cutoffs = list[str](), set[float]()
    for (name, run), style in zip(runs.items(), _styles(), strict=False):
        if kind := _kind(runs, last, name):
            time, spectra = last[name]
            wavenumber, values = _visible(run, spectra[kind])
            text = f"{_plain(name)}, $t$ = {time:.3g}"
            axes.plot(wavenumber, np.abs(values), label=text, **style)
            cutoffs.add(run.choice.cutoff)
            labels.append(axis_labels({}, run.choice).get(kind, kind))
    finish_spectrum(axes, _common_label(labels, "spectrum"), cutoffs, has_room=True)
    return drawn


def _draw_columns(
    panels: Sequence[Axes], runs: Runs, columns: Sequence[str], size: str | None = None
) -> None:
    """Draw a column of the series of all runs in each panel, with labels of a size."""
    for axes, column in zip(panels, columns, strict=True):
        labels = []
        for (name, run), style in zip(runs.items(), _styles(), strict=False):
            if _is_in(column, run):
                series, names = run.series
                curve = thinned(series["time"], series[column])
                axes.plot(*curve, label=_plain(name), **style)
                labels.append(axis_labels(names, run.choice).get(column, column))
        axes.set_ylabel(_common_label(labels, column), fontsize=size)
        draw_grid(axes)
    if columns:
        panels[-1].set_xlabel(next(iter(runs.values())).choice.time_label)


def _drawn_columns(runs: Runs) -> list[str]:
    """Return the columns that are drawn of any run."""
    names = (name for run in runs.values() for name in run.choice.columns if _is_in(name, run))
    return list(dict.fromkeys(names))


def _is_in(name: str, run: StoredRun) -> bool:
    return len(run.series[0].get(name, ())) > 1


def _last_spectra(runs: Runs) -> dict[str, Any]:
    """Return the time and the spectra of the last snapshot of each run that has some."""
    spectra = {name: run.spectra for name, run in runs.items()}
    return {name: one[-1] for name, one in spectra.items() if len(one) and one[-1][1]}


def _kind(runs: Runs, last: Mapping[str, Any], name: str) -> str:
    """Return the spectrum that is drawn first of a run; "" without any."""
    there = last[name][1] if name in last else {}
    kinds = (*runs[name].choice.spectra, *there)
    return next((kind for kind in kinds if kind in there), "")


def _visible(run: StoredRun, shells: tuple[np.ndarray, np.ndarray]) -> Any:
    return visible_shells(*resolved_shells(*shells, run.choice.cutoff))


def _styles() -> Iterator[dict[str, Any]]:
    """Yield colours and dashes of lines, a pair for each run."""
    return cycle({"color": one, "linestyle": dashes} for dashes in _DASHES for one in COLOURS)


def _common_label(labels: Sequence[str], name: str) -> str:
    """Return the label of a curve if all runs have the same, else its name."""
    return labels[0] if len(set(labels)) == 1 else name.replace("_", " ")


def _plain(name: str) -> str:
    """Return the name of a folder, in which dollars are no mathematics."""
    return name.replace("$", r"\$")
