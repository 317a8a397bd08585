"""``report.html``: what a run was, on one page that opens from disk, on a phone and on paper."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from slipstream.io.run_folder import RunFolder
from slipstream.io.run_record import RunRecord, Segment
from slipstream.report.number_text import STEPPING, duration, inner_times
from slipstream.report.page_style import (
    escaped,
    facts,
    figure,
    folded,
    grid_table,
    page,
    preformatted,
    section,
)
from slipstream.report.run_checks import Check

REPORT_NAME, TIMELINE_NAME = "report.html", "timeline.png"
# A page is to stay small enough to be sent.
_MOST_PLOTS, _MOST_PICTURE = 1_100_000, 250_000
# Width over height of plots that take a whole row.
_WIDE = 1.7
_MOST_SEGMENTS, _MOST_WARNINGS = 30, 20
_STATES = {
    "end": ("good", "finished: it has come to its end time"),
    "finished": ("good", "finished: the flow is steady"),
    "interrupted": ("warn", "interrupted: it can go on"),
    "wall": ("warn", "ended by time.wall: it can go on"),
    "max_steps": ("warn", "ended by time.max_steps: it can go on"),
    "stopped": ("warn", "stopped by its program: it can go on"),
    "failed": ("warn", "failed"),
}
_REFERENCES = {
    "spectral": (
        "Canuto, Hussaini, Quarteroni and Zang (2007), Spectral Methods: Evolution to Complex"
        " Geometries and Applications to Fluid Dynamics, Springer (the pseudospectral method)",
    ),
    "lattice": (
        "Ginzburg, Verhaeghe and d'Humières (2008), Two-relaxation-time lattice Boltzmann scheme,"
        " Communications in Computational Physics 3, 427 (the collision)",
    ),
    "advection": (
        "White and Dongarra (2011), Overlapping computation and communication for advection on"
        " hybrid parallel computers, IPDPS (the test and its strategies)",
    ),
}


def run_page(
    folder: Path,
    record: RunRecord,
    plots: Mapping[str, str],
    checks: Sequence[Check] = (),
    *,
    case: str = "",
    is_running: bool = False,
    timeline: bytes = b"",
) -> str:
    """Return the page of a run.

    Parameters
    ----------
    folder : pathlib.Path
        Where the run is, as those who go on with it would name it.
    record : RunRecord
        What has run.
    plots : mapping of str to str
        Inline SVG by the names of the pictures.
    checks : sequence of Check
        What the numbers say.
    case : str
        The effective case, if the record has none.
    is_running : bool
        Whether the run is under way.
    timeline : bytes
        A PNG of what ran when in a step, if there is one.
    """
    last = record.segments[-1] if record.segments else Segment()
    title = record.title or folder.absolute().name
    chosen = [*last.description.items(), *last.step.items()]
    return page(
        f"{title} (Slipstream)",
        [
            _heading(title, folder, record, last, is_running),
            section("Results", facts(_results(last))),
            section("Needs attention", _warnings(record, checks)),
            section("Plots", _figures(plots) or _no_plots(folder)),
            section("Checks", _checks(checks)),
            section("Where the time went", _timers(last), _step_timeline(timeline)),
            section("Segments", _segments(record)),
            section("Machine", _in_columns(_machine(last))),
            section("What was chosen", _in_columns(chosen)),
            section("Case", _case(last.case or case)),
            section("How to go on", _going_on(folder, last)),
            section("How to cite", _citation(record, last)),
            f"<footer>{escaped(_when(last.ended or last.updated))} · written by Slipstream"
            f" {escaped(last.version)}</footer>\n",
        ],
    )


def timeline_of(run: RunFolder) -> bytes:
    """Return the picture of a step's timeline, if there is a small one."""
    return run.content(TIMELINE_NAME, _MOST_PICTURE)


def _heading(title: str, folder: Path, record: RunRecord, last: Segment, is_running: bool) -> str:
    kind, state = state_of(record, is_running)
    rows = [
        record.family,
        f"step {last.to_step}, t = {last.to_time:.6g}"
        + (f" of {last.end_time:.6g}" if last.end_time is not None else "")
        if record.segments
        else "",
        ", ".join(last.devices),
        f"{last.ranks} ranks" if last.ranks > 1 else "",
        duration(seconds_of(record.segments)) if seconds_of(record.segments) else "",
    ]
    text = " · ".join(escaped(one) for one in rows if one)
    error = f"<p class='warn'>{escaped(last.error)}</p>" if last.error else ""
    return (
        f"<header><p class='soft'>{escaped(folder)}</p><h1>{escaped(title)}</h1>"
        f"<p><span class='badge {kind}'>{escaped(state)}</span></p><p>{text}</p>{error}</header>\n"
    )


def state_of(record: RunRecord, is_running: bool) -> tuple[str, str]:
    """Return whether all is well, "good" or "warn", and how a run is doing in words."""
    if is_running:
        return "good", "under way"
    if not record.segments:
        return "warn", "of a version that kept no record"
    ended_by = record.segments[-1].ended_by
    if ended_by is None:
        return "warn", "killed, or under way elsewhere: it can go on"
    return _STATES[ended_by]


def _results(last: Segment) -> Iterable[tuple[str, str]]:
    for name, (value, remark) in last.results.items():
        yield name, f"{value} ({remark})" if remark else value


def _warnings(record: RunRecord, checks: Sequence[Check]) -> str:
    said = [text for segment in record.segments for text in segment.warnings]
    # What the run has said itself is not said twice.
    texts = [
        f"{one.name} {one.value}: {one.remark}"
        for one in checks
        if one.is_warning and not any(one.name.split(", ")[-1] in text for text in said)
    ]
    texts += list(dict.fromkeys(said))
    more = len(texts) - _MOST_WARNINGS
    if more > 0:
        texts = [*texts[:_MOST_WARNINGS], f"and {more} more, in run.json"]
    rows = "".join(f"<li>{escaped(text)}</li>" for text in texts)
    return f"<ul class='warnings'>{rows}</ul>" if rows else ""


def _figures(plots: Mapping[str, str]) -> str:
    kept, size = [], 0
    for name, svg in plots.items():
        if size + len(svg) <= _MOST_PLOTS:
            kept.append(figure(svg, is_wide=_is_wide(svg)))
            size += len(svg)
        else:
            text = f"{name} is too large for this page; see {name}.png"
            kept.append(f"<p class='soft'>{escaped(text)}</p>")
    return f"<div class='figures'>{''.join(kept)}</div>" if kept else ""


def _no_plots(folder: Path) -> str:
    text = f"slipstream report {shlex.quote(str(folder))}   # a page with plots of what there is"
    return preformatted(text)


def _is_wide(svg: str) -> bool:
    """Return whether a plot would be too small to be read in half a page."""
    size = re.search(r'viewBox="[-0-9.]+ [-0-9.]+ ([0-9.]+) ([0-9.]+)"', svg)
    return size is not None and float(size.group(1)) > _WIDE * float(size.group(2))


def _checks(checks: Sequence[Check]) -> str:
    rows = [
        (one.name, one.value, "look" if one.is_warning else "good", one.remark) for one in checks
    ]
    return grid_table(("figure", "value", "", "what it means"), rows)


def _timers(last: Segment) -> str:
    whole = sum(last.parts.values())
    if whole <= 0:
        return ""
    rows = []
    for name, seconds in last.parts.items():
        rows.append(_bar(name, seconds, seconds / whole, ""))
        if name == STEPPING:
            inner = inner_times(seconds, last.timers)
            largest = max([seconds, *last.timers.values()])
            rows += [
                _bar(kind, one, seconds / whole * one / largest, "inner") for kind, one in inner
            ]
    return (
        f"<table>{''.join(rows)}</table><p class='soft'>Of the last segment; categories of the time"
        " steps overlap, so that they may sum to more.</p>"
    )


def _bar(name: str, seconds: float, share: float, kind: str) -> str:
    return (
        f"<tr class='{kind}'><th>{escaped(name)}</th><td class=number>{escaped(duration(seconds))}"
        f"</td><td style='width:50%'><div class=bar style='width:{100 * min(1.0, share):.1f}%'>"
        "</div></td></tr>"
    )


def _step_timeline(png: bytes) -> str:
    if not png:
        return ""
    data = base64.b64encode(png).decode()
    alt = "what ran when in a step"
    return figure(f"<img alt='{alt}' src='data:image/png;base64,{data}'>", is_wide=True)


def _segments(record: RunRecord) -> str:
    rows = [
        (
            str(number),
            _when(one.began),
            _when(one.ended) if one.ended else "",
            f"{one.from_step} to {one.to_step}",
            f"{one.from_time:.6g} to {one.to_time:.6g}",
            one.ended_by or "",
            ", ".join(filter(None, [f"{one.ranks} ranks" if one.ranks > 1 else "", one.host])),
            " ".join(one.settings),
        )
        for number, one in enumerate(record.segments, 1)
    ]
    head = ("", "began (UTC)", "ended", "steps", "time", "ended by", "where", "changed")
    left_out = len(rows) - _MOST_SEGMENTS
    note = f"<p class='soft'>{left_out} earlier ones are in run.json.</p>" if left_out > 0 else ""
    return grid_table(head, rows[-_MOST_SEGMENTS:]) + note


def _machine(last: Segment) -> list[tuple[str, str]]:
    if not last.version:
        return []
    rows = [
        ("host", last.host),
        ("devices", ", ".join(last.devices)),
        ("ranks", str(last.ranks)),
        ("MPI", last.mpi),
        ("compiler", last.compiler),
        ("Python", f"{last.python}, NumPy {last.numpy}"),
        ("Slipstream", " ".join(filter(None, [last.version, _commit(last)]))),
        ("command", shlex.join(last.command)),
    ]
    return [(name, value) for name, value in rows if value]


def _in_columns(rows: Sequence[tuple[str, str]]) -> str:
    """Return facts in two columns, where there is room for them."""
    half = (len(rows) + 1) // 2
    columns = facts(rows[:half]) + facts(rows[half:])
    return f"<div class='facts'>{columns}</div>" if columns else ""


def _case(text: str) -> str:
    return folded("the case as it was run", preformatted(text)) if text else ""


def _going_on(folder: Path, last: Segment) -> str:
    resume = f"slipstream resume {shlex.quote(str(folder))}"
    if last.ended_by == "end" and last.end_time is not None:
        text = f"{resume} --set time.end={2 * last.end_time:g}   # further than it has come"
    elif last.ended_by == "finished":
        text = f"{resume} --set convergence.tolerance=1e-4   # closer to the steady flow"
    elif last.ended_by == "max_steps":
        text = f"{resume} --set time.max_steps={2 * max(1, last.to_step)}"
    else:
        text = resume
    rest = f"slipstream plot {shlex.quote(str(folder))} --format pdf   # the plots, for a paper"
    return preformatted(f"{text}\n{rest}\n")


def _commit(last: Segment) -> str:
    """Return the commit of the program; nothing where none is known, as of a wheel."""
    return "" if last.commit == "unknown" else last.commit or ""


def _citation(record: RunRecord, last: Segment) -> str:
    version = last.version or "unknown"
    year = (last.ended or last.updated or last.began)[:4]
    note = f", commit {_commit(last)}" if _commit(last) else ""
    bibtex = (
        "@software{slipstream,\n"
        "  title = {Slipstream: flow on structured grids, from one laptop to many GPUs},\n"
        f"  author = {{{{The Slipstream founders}}}},\n  version = {{{version}}},\n"
        f"  year = {{{year}}},\n  note = {{version {version}{note}}}\n}}\n"
    )
    methods = "".join(f"<li>{escaped(one)}</li>" for one in _REFERENCES.get(record.family, ()))
    return preformatted(bibtex) + (f"<ul>{methods}</ul>" if methods else "")


def _when(text: str | None) -> str:
    return (text or "").replace("T", " ").removesuffix("Z")


def seconds_of(segments: Sequence[Segment]) -> float:
    """Return how long segments took by the clock."""
    total = 0.0
    for one in segments:
        try:
            began = datetime.fromisoformat(one.began)
            ended = datetime.fromisoformat(one.ended or one.updated)
        except ValueError:
            continue
        total += max(0.0, (ended - began).total_seconds())
    return total
