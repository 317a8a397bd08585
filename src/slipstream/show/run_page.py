"""``report.html``: a run on one page that opens from disk, on a phone and on paper.

A page is one file without scripts, and loads nothing.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from slipstream import __version__
from slipstream.engine.fields import MACH_WARNING, MANY_NARROW, NARROW, UNRESOLVED
from slipstream.engine.text import STEPPING, below, duration, escaped, inner_times
from slipstream.files.run_folder import RunFolder, RunRecord, Segment
from slipstream.show.field_planes import FieldPlane
from slipstream.show.run_status import ENDINGS
from slipstream.show.solver_texts import FAMILIES

# Marks a file as a report, which another report may replace.
GENERATOR = '<meta name="generator" content="Slipstream'

_STYLE = """
:root{--ink:#1d2126;--soft:#5b6470;--line:#dde1e6;--page:#fff;--card:#f6f7f9;--accent:#0072b2;
--warn:#b04400;--warnbg:#fff3e8;--good:#00694c;color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--ink:#e6e8eb;--soft:#a3abb5;--line:#363b42;
--page:#14171b;--card:#1d2126;--accent:#56b4e9;--warn:#ffb27a;--warnbg:#33241a;--good:#5fd3a8}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:76rem;margin:0 auto;padding:1.2rem clamp(.8rem,3vw,2rem) 3rem}
h1{font-size:1.6rem;line-height:1.25;margin:.2rem 0;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.2rem 0 .7rem;padding-top:.4rem;border-top:1px solid var(--line)}
p{margin:.4rem 0}.soft{color:var(--soft)}
.badge{display:inline-block;padding:.05rem .6rem;border-radius:1rem;border:1px solid currentColor;
font-size:.9rem}.good{color:var(--good)}.warn{color:var(--warn)}
ul.warnings{list-style:none;margin:0;padding:0}
ul.warnings li{background:var(--warnbg);border-left:4px solid var(--warn);margin:.4rem 0;
padding:.45rem .8rem;overflow-wrap:anywhere}
.figures{display:grid;align-items:start;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,27rem),1fr))}
figure{margin:0;background:#fff;border:1px solid var(--line);border-radius:.4rem;padding:.5rem;
break-inside:avoid}
figure svg,figure img{display:block;width:100%;height:auto}
.wide{grid-column:1/-1}
.scroll{overflow-x:auto}.scroll td{overflow-wrap:normal}
.scroll td:first-child{min-width:5rem}.scroll td:last-child{min-width:10rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.28rem .8rem .28rem 0;
border-bottom:1px solid var(--line)}
th{font-weight:500;color:var(--soft)}td{overflow-wrap:anywhere}
td.number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.facts{display:grid;gap:0 2.5rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr))}
.facts th{width:34%}
.bar{height:.75rem;background:var(--accent);border-radius:.15rem;min-width:2px;
print-color-adjust:exact;-webkit-print-color-adjust:exact}
.inner .bar{opacity:.55}.inner th{padding-left:1.2rem}
pre{background:var(--card);border:1px solid var(--line);border-radius:.4rem;padding:.7rem .9rem;
overflow-x:auto;font:13.5px/1.45 ui-monospace,"DejaVu Sans Mono",Consolas,monospace;margin:.5rem 0}
summary{cursor:pointer;color:var(--accent)}
a{color:var(--accent)}
footer{margin-top:2.5rem;color:var(--soft);font-size:.9rem}
@media print{:root{--ink:#000;--soft:#444;--line:#ccc;--page:#fff;--card:#fff;--accent:#0072b2;
--warn:#b04400;--warnbg:#fff;--good:#00694c}body{font-size:10.5pt}main{max-width:none;padding:0}
pre{white-space:pre-wrap;overflow-wrap:anywhere}h2{break-after:avoid}
.figures{grid-template-columns:1fr 1fr}}
"""
# The columns that are checked.
CHECKED = ("kmax_eta", "mach", "mass", "hamiltonian", "budget_residual")
# The largest wavenumber times the Kolmogorov length that resolves gradients.
_RESOLVES_GRADIENTS = 1.5
# The same product that resolves energies.
_RESOLVES = 1.0
_MOST_DRIFT = {"mass": 1e-3, "hamiltonian": 1e-2}
# The model that relaxes a state, and conserves nothing.
_RELAXES = "argle"
_MOST_RESIDUAL = 0.05
REPORT_NAME = "report.html"
TIMELINE_NAME = "timeline.png"
# Bytes of all plots, at most: a page is to stay small enough to be sent.
_MOST_PLOTS = 1_100_000
# Bytes of a picture, at most.
_MOST_PICTURE = 250_000
# Width over height of plots that take a whole row.
_WIDE = 1.7
# Segments on a page, at most: the last ones.
_MOST_SEGMENTS = 30
# Warnings on a page, at most.
_MOST_WARNINGS = 20


def page(title: str, body: Iterable[str]) -> str:
    """Return a whole page; the title is a person's, and the body is HTML."""
    return "".join(
        [
            "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>\n",
            f'{GENERATOR} {escaped(__version__)}">\n',
            "<meta name='viewport' content='width=device-width,initial-scale=1'>\n",
            # Nothing is loaded or run, whatever has got into the page.
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'
            " img-src data:; style-src 'unsafe-inline'\">\n",
            f"<title>{escaped(title)}</title>\n<style>{_STYLE}</style></head>\n<body><main>\n",
            *body,
            "</main></body></html>\n",
        ]
    )


def section(title: str, *content: str) -> str:
    """Return a part of a page with a heading, or nothing if it is empty."""
    inside = "".join(content)
    return f"<section><h2>{escaped(title)}</h2>{inside}</section>\n" if inside else ""


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and values, or nothing if there are none."""
    cells = "".join(
        f"<tr><th>{escaped(name)}</th><td>{escaped(value)}</td></tr>" for name, value in rows
    )
    return f"<table>{cells}</table>" if cells else ""


def grid_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with a heading, which scrolls where it is wider than the screen."""
    top = "".join(f"<th>{escaped(one)}</th>" for one in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escaped(one)}</td>" for one in row) + "</tr>" for row in rows
    )
    return f"<div class='scroll'><table><tr>{top}</tr>{body}</table></div>" if body else ""


def figure(svg: str, is_wide: bool = False) -> str:
    """Return a figure, of SVG or an ``img``."""
    return f"<figure{' class=wide' if is_wide else ''}>{svg}</figure>\n"


def folded(title: str, text: str) -> str:
    """Return a text with its lines that is shown on demand, or nothing if it is empty."""
    content = f"<summary>{escaped(title)}</summary>{preformatted(text)}"
    return f"<details>{content}</details>" if text else ""


def preformatted(text: str) -> str:
    """Return a text with its lines, such as a command or a case."""
    lines = "\n".join(escaped(line) for line in text.splitlines())
    return f"<pre>{lines}</pre>"


@dataclass(frozen=True)
class Check:
    """A figure, what it means, and whether it is a reason for doubt."""

    name: str
    value: str
    remark: str
    is_warning: bool = False


def run_checks(
    series: Mapping[str, np.ndarray],
    planes: Sequence[FieldPlane],
    case: Mapping[str, Any],
    balances_energy: bool = True,
) -> list[Check]:
    """Return the checks of the series, of the planes that are drawn and of the case.

    The residual of the energy budget is one if the model's products `balances_energy`.
    """
    checks = []
    time = series.get("time", np.zeros(0))
    columns = {name: values[np.isfinite(values)] for name, values in series.items()}
    resolution = series.get("kmax_eta", np.zeros(0))
    known = np.isfinite(resolution) & (resolution > 0)
    if known.any():
        least = float(resolution[known].min())
        when = float(time[known][np.argmin(resolution[known])])
        remark = f"smallest, at t = {when:.4g}; "
        if least < _RESOLVES:
            remark += f"below 1 {UNRESOLVED}: use more grid.points"
        elif least < _RESOLVES_GRADIENTS:
            remark += "above 1 the energy is resolved, above 1.5 also the gradients"
        else:
            remark += "above 1.5 the gradients are resolved too"
        value = below(least, 1) if 0.99 < least < 1 else f"{least:.2f}"
        checks.append(Check("resolution, kmax_eta", value, remark, least < _RESOLVES_GRADIENTS))
    # Without inertia the equations are linear, and no speed is too large.
    if len(columns.get("mach", ())) and case.get("flow", {}).get("inertia", False):
        fastest = float(columns["mach"].max())
        remark = f"largest; beyond {MACH_WARNING} compressibility matters: a smaller force"
        checks.append(Check("Mach number", f"{fastest:.2g}", remark, fastest > MACH_WARNING))
    relaxes = case.get("equation", {}).get("model") == _RELAXES
    for name, most in ({} if relaxes else _MOST_DRIFT).items():
        values = columns.get(name, np.zeros(0))
        if len(values) > 1 and values[0]:
            drift = float(np.abs(values / values[0] - 1).max())
            remark = "relative, largest since the start; it should be conserved"
            checks.append(Check(f"drift of {name}", f"{drift:.1e}", remark, drift > most))
    # The first differences are those of an initial state that adjusts.
    residual = np.abs(series.get("budget_residual", np.zeros(0))[3:])
    residual = residual[np.isfinite(residual)]
    if len(residual) and balances_energy:
        largest = float(residual.max())
        remark = "largest residual, relative to the dissipation; sparse output inflates it"
        checks.append(Check("energy budget", f"{largest:.1e}", remark, largest > _MOST_RESIDUAL))
    return checks + [check for plane in planes if (check := _narrow_pores(plane))]


def _narrow_pores(plane: FieldPlane) -> Check | None:
    """Return the fraction of the pores in a plane that is too narrow for a velocity profile."""
    pores = ~np.ma.getmaskarray(plane.values)
    if pores.all() or not pores.any():
        return None
    narrow = np.zeros_like(pores)
    for axis in range(2):
        along = np.moveaxis(pores, axis, -1)
        is_narrow = np.zeros_like(along)
        for row, out in zip(along, is_narrow, strict=True):
            edges = np.flatnonzero(np.diff(np.r_[False, row, False]))
            for start, end in edges.reshape(-1, 2):
                # At the faces of the image a pore may continue.
                if end - start <= NARROW and start > 0 and end < len(row):
                    out[start:end] = True
        narrow |= np.moveaxis(is_narrow, -1, axis)
    share = float(narrow.sum() / pores.sum())
    remark = "of those in the plane drawn: one or two voxels wide, where a finer image changes k"
    return Check("narrow pores", f"{share:.0%}", remark, share > MANY_NARROW)


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
    """Return the page of a run; the folder is named as users who resume the run name it.

    `plots` are inline SVG by the names of the pictures, `case` is the effective case if the record
    has none, and `timeline` a PNG of a step's timeline.
    """
    last = record.segments[-1] if record.segments else Segment()
    title = record.title or folder.absolute().name
    chosen = [*last.description.items(), *last.step.items()]
    results = [
        (name, f"{value} ({remark})" if remark else value)
        for name, (value, remark) in last.results.items()
    ]
    verdicts = [
        (one.name, one.value, "look" if one.is_warning else "good", one.remark) for one in checks
    ]
    step_figure = ""
    if timeline:
        source = f"data:image/png;base64,{base64.b64encode(timeline).decode()}"
        step_figure = figure(f"<img alt='timeline of a step' src='{source}'>", is_wide=True)
    how = f"slipstream report {shlex.quote(str(folder))}   # a page with plots of what there is"
    return page(
        f"{title} (Slipstream)",
        [
            _heading(title, folder, record, last, is_running),
            section("Results", facts(results)),
            section("Needs attention", _warnings(record, checks)),
            section("Plots", _figures(plots) or preformatted(how)),
            section("Checks", grid_table(("figure", "value", "", "what it means"), verdicts)),
            section("Where the time went", _timers(last), step_figure),
            section("Segments", _segments(record)),
            section("Machine", _in_columns(_machine(last))),
            section("What was chosen", _in_columns(chosen)),
            section("Case", folded("the case as it was run", last.case or case)),
            section("How to continue", _continuation(folder, last)),
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
    """Return the state of a run: "good" or "warn", and a text."""
    if is_running:
        return "good", "under way"
    if not record.segments:
        return "warn", "without a record"
    ended_by = record.segments[-1].ended_by
    if ended_by is None:
        return "warn", "killed, or under way elsewhere: can be resumed"
    return ENDINGS[ended_by][1:]


def _warnings(record: RunRecord, checks: Sequence[Check]) -> str:
    said = [text for segment in record.segments for text in segment.warnings]
    # Warnings of the run itself are not repeated.
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


def _is_wide(svg: str) -> bool:
    """Return whether a plot would be too small to be read in half a page."""
    size = re.search(r'viewBox="[-0-9.]+ [-0-9.]+ ([0-9.]+) ([0-9.]+)"', svg)
    return size is not None and float(size.group(1)) > _WIDE * float(size.group(2))


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


def _segments(record: RunRecord) -> str:
    rows = [
        (
            str(number),
            _when(segment.began),
            _when(segment.ended) if segment.ended else "",
            f"{segment.from_step} to {segment.to_step}",
            f"{segment.from_time:.6g} to {segment.to_time:.6g}",
            segment.ended_by or "",
            ", ".join(
                filter(None, [f"{segment.ranks} ranks" if segment.ranks > 1 else "", segment.host])
            ),
            " ".join(segment.settings),
        )
        for number, segment in enumerate(record.segments, 1)
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


def _continuation(folder: Path, last: Segment) -> str:
    resume = f"slipstream resume {shlex.quote(str(folder))}"
    if last.ended_by == "end" and last.end_time is not None:
        text = f"{resume} --set time.end={2 * last.end_time:g}   # further"
    elif last.ended_by == "finished":
        text = f"{resume} --set convergence.tolerance=1e-4   # closer to the steady flow"
    elif last.ended_by == "max_steps":
        text = f"{resume} --set time.max_steps={2 * max(1, last.to_step)}"
    else:
        text = resume
    rest = f"slipstream plot {shlex.quote(str(folder))} --format pdf   # the plots, for a paper"
    return preformatted(f"{text}\n{rest}\n")


def _commit(last: Segment) -> str:
    """Return the commit of the program; empty if unknown, such as for a wheel."""
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
    family = FAMILIES.get(record.family)
    method = f"<ul><li>{escaped(family.reference)}</li></ul>" if family else ""
    return preformatted(bibtex) + method


def _when(text: str | None) -> str:
    return (text or "").replace("T", " ").removesuffix("Z")


def seconds_of(segments: Sequence[Segment]) -> float:
    """Return the wall-clock time of segments in seconds."""
    total = 0.0
    for segment in segments:
        try:
            began = datetime.fromisoformat(segment.began)
            ended = datetime.fromisoformat(segment.ended or segment.updated)
        except ValueError:
            continue
        total += max(0.0, (ended - began).total_seconds())
    return total
