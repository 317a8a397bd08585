"""``slipstream project``: the forecast as a table, a record and a picture."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from slipstream import __version__
from slipstream.accepted import PICTURE_FORMATS
from slipstream.argument_checks import check_folder_of
from slipstream.byte_sizes import bytes_text
from slipstream.case import Case
from slipstream.errors import InputError
from slipstream.forecast.case_forecast import Forecast, forecast
from slipstream.forecast.published_runs import NOT_COMPARED, Comparison, published_runs
from slipstream.printable_text import one_line, printable
from slipstream.report.number_text import counted, quantity
from slipstream.running.output_writer import files_warning
from slipstream.simulation.machine_description import Machine, load_machine
from slipstream.simulation.step_price import StepTime

# By which fraction a forecast may miss a published figure and still count as right, or as good.
_TOLERANCE, _GOOD = 0.3, 0.2
_MOST_NODES = 1_000_000
# Columns of a table at most.
_WIDEST = 200
# Parts of a step, as headings and labels.
_PARTS = {
    "total": "step",
    "memory": "memory",
    "launches": "launches",
    "host": "host",
    "bus": "bus",
    "in_node": "in node",
    "network": "network",
}


def numbers_of_nodes(text: str) -> list[int]:
    """Return numbers of nodes written with commas, such as "1,8,64"."""
    parts = [part.strip() for part in text.split(",")]
    found = [int(part) if part.isdecimal() else 0 for part in parts]
    if not all(0 < one <= _MOST_NODES for one in found):
        raise InputError(
            f"--nodes {text!r}; accepted: whole numbers from 1 to {_MOST_NODES}, such as 1,8,64"
        )
    return sorted(set(found))


def print_forecast(
    case: Case,
    machine: str,
    nodes: str,
    steps: int | None,
    console: Console,
    record: Path | None = None,
    picture: Path | None = None,
    devices: int | None = None,
) -> None:
    """Print the forecast of a case, and record and draw it where asked.

    Of each node so many `devices` take part, by default all.
    """
    _check_files(record, picture)
    described = load_machine(machine)
    if devices is not None:
        if devices > described.devices_per_node:
            raise InputError(
                f"--devices {devices}: a node of {described.title} has"
                f" {described.devices_per_node}; accepted: up to that many"
            )
        described = described.model_copy(update={"devices_per_node": devices})
    found = forecast(case, described, numbers_of_nodes(nodes), steps)
    title = f"time of a step on {described.title}: {one_line(case.title) or 'the case'}"
    console.print(title, style="italic", highlight=False, markup=False)
    _show(console, _table(found))
    for one in found:
        if one.obstacle:
            console.print(
                f"{one.nodes} node{'s' * (one.nodes > 1)}, {one.obstacle}",
                highlight=False,
                markup=False,
            )
    for remark in dict.fromkeys(one.counts.remark for one in found if one.counts is not None):
        if remark:
            console.print(remark, highlight=False, markup=False)
    if all(one.hours is None for one in found):
        unknown = "the number of steps is not known, so the hours are unknown too: see --steps"
        console.print(unknown, highlight=False, markup=False)
    if not described.device.is_tried:
        untried = f"warning: Slipstream has never run on a {described.device.name}: a forecast only"
        console.print(untried, highlight=False, markup=False)
    for line in _output_lines(described, found):
        console.print(line, highlight=False, markup=False)
    for source in described.sources:
        console.print(f"source: {source}", highlight=False, markup=False, style="dim")
    if record is not None:
        content = {
            "Slipstream": __version__,
            "machine": described.model_dump(),
            "case": case.to_toml(),
            "forecast": [asdict(one) for one in found],
        }
        record.write_text(json.dumps(content, indent=1), encoding="utf-8")
        console.print(f"record:  {printable(str(record))}", highlight=False, markup=False)
    if picture is not None:
        _draw(case, described, found, picture)
        console.print(f"picture: {printable(str(picture))}", highlight=False, markup=False)


def _check_files(record: Path | None, picture: Path | None) -> None:
    """Refuse what cannot be written before anything is worked out."""
    for option, path in (("--json", record), ("--plot", picture)):
        check_folder_of(option, path)
    if picture is not None and picture.suffix.lower().lstrip(".") not in PICTURE_FORMATS:
        endings = ", ".join(f".{name}" for name in PICTURE_FORMATS)
        raise InputError(f"--plot {str(picture)!r} is no picture; accepted: {endings}")


def _show(console: Console, table: Table) -> None:
    """Print a table as wide as it is: numbers are not shortened, not even in a file."""
    options = console.options.update(width=_WIDEST)
    width = console.width
    console.width = max(width, Measurement.get(console, options, table).maximum)
    console.print(table, highlight=False, crop=False)
    console.width = width


def _table(found: Sequence[Forecast]) -> Table:
    """Return a table of the parts of a step that take any time."""
    table = Table(box=box.HORIZONTALS, padding=(0, 0, 0, 1))
    times = [one.time for one in found if one.time is not None]
    parts = [name for name in _PARTS if any(getattr(time, name) for time in times)]
    for heading in ("nodes", "ranks", *(_PARTS[name] for name in parts), "GiB each", "efficient"):
        table.add_column(heading, justify="right", no_wrap=True)
    divided = any(one.counts is not None and one.counts.division for one in found)
    if divided:
        table.add_column("divided", justify="right", no_wrap=True)
    tells_writing = any(one.output_seconds is not None for one in found)
    if tells_writing:
        table.add_column("writing", justify="right", no_wrap=True)
    if any(one.node_hours is not None for one in found):
        for heading in ("hours", "node hours"):
            table.add_column(heading, justify="right", no_wrap=True)
    for one in found:
        cells = [str(one.nodes), str(one.ranks)]
        if one.time is not None and one.counts is not None:
            seconds = [getattr(one.time, name) for name in parts]
            cells += [quantity(own, "s") if own else "-" for own in seconds]
            cells += [f"{one.counts.fields_bytes / 2**30:.3g}", f"{one.efficiency:.0%}"]
        else:
            cells += ["-"] * (len(parts) + 2)
        if divided:
            cells.append((one.counts and one.counts.division) or "-")
        if tells_writing:
            cells.append("-" if one.output_seconds is None else quantity(one.output_seconds, "s"))
        if one.hours is not None and one.node_hours is not None:
            cells += [f"{one.hours:.3g}", f"{one.node_hours:.3g}"]
        table.add_row(*cells)
    return table


def _output_lines(machine: Machine, found: Sequence[Forecast]) -> Iterator[str]:
    """Yield what snapshots and states are, of the most nodes that can run the case."""
    able = [one for one in found if one.outputs]
    if not able:
        return
    one = able[-1]
    where = f" on {one.nodes} nodes" if len(able) > 1 else ""
    for kind, name in (("fields", "snapshot of fields"), ("checkpoint", "state")):
        size = one.outputs.get(kind)
        if size is None:
            continue
        text = f"{name}: {bytes_text(size.bytes)} in {counted(size.files, 'file')}{where}"
        if size.seconds is not None:
            text += f", {quantity(size.seconds, 's')} each"
        if size.times is not None:
            text += f"; {counted(size.times, 'time')}"
            if size.kept is not None and size.kept < size.times:
                text += f", the last {size.kept} are kept"
        yield text
    if one.output_seconds is not None:
        yield "hours include writing these, but no chosen output and no statistics"
    elif machine.storage is None and one.node_hours is not None:
        yield "hours are without output: nothing is known of this machine's storage"
    if one.files is not None and (warning := files_warning(one.files)):
        yield f"warning: {warning}"


def _draw(case: Case, machine: Machine, found: Sequence[Forecast], path: Path) -> None:
    from slipstream.report import figure_style as style

    can_run = [one for one in found if one.time is not None]
    if not can_run:
        raise InputError("--plot: the case can run on none of these numbers of nodes")
    nodes = [one.nodes for one in can_run]
    title = one_line(case.title) or "the case"
    with style.in_our_style():
        figure = style.new_figure((6.4, 4.4), f"{title}, on {machine.title}")
        axes = figure.add_subplot()
        for (name, label), colour in zip(_PARTS.items(), style.COLOURS, strict=False):
            # What takes no time has no place on a logarithmic axis.
            seconds = [getattr(one.time, name) or math.nan for one in can_run]
            if not all(map(math.isnan, seconds)):
                line = "-" if name == "total" else "--"
                axes.loglog(nodes, seconds, line, color=colour, marker="o", ms=4, label=label)
        first = cast(StepTime, can_run[0].time).total * nodes[0]
        ideal = [first / count for count in nodes]
        axes.loglog(nodes, ideal, ":", color=style.NOTHING, label="ideal")
        axes.set_xlabel("nodes")
        axes.set_ylabel("time of a step (s)")
        axes.set_xticks(nodes, [str(count) for count in nodes])
        axes.minorticks_off()
        style.legend_inside(axes)
        style.save_figure(figure, path.parent, path.name)


def compare_with_papers(console: Console) -> None:
    """Print the measurements of papers and the forecast."""
    comparisons = published_runs()
    for title in dict.fromkeys(one.table for one in comparisons):
        console.print(Text(title))
        table = Table(box=box.HORIZONTALS, padding=(0, 0, 0, 1))
        table.add_column("run", no_wrap=True)
        for heading in ("published", "forecast", "error", "constants"):
            table.add_column(heading, justify="right")
        for one in comparisons:
            if one.table == title:
                cells: list[Any] = [f"{one.published:.4g}", f"{one.forecast:.3g}"]
                table.add_row(one.what, *cells, f"{one.error:+.0%}", one.known)
        _show(console, table)
    for text in NOT_COMPARED:
        console.print(f"not compared: {text}", highlight=False, markup=False, style="dim")
    for line in _verdict(comparisons):
        console.print(line, highlight=False, markup=False)


def _verdict(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield the forecasts that miss, and how many are right among those without fitted numbers."""
    for one in comparisons:
        if abs(one.error) > _TOLERANCE:
            missed = f"missed by more than {_TOLERANCE:.0%}"
            yield f"{missed}: {one.what}, {one.error:+.0%} ({one.known})"
    numbers = Counter(one.known for one in comparisons)
    held_out = [abs(one.error) for one in comparisons if one.known == "held out"]
    right, good = (sum(error <= most for error in held_out) for most in (_TOLERANCE, _GOOD))
    yield (
        f"of {len(held_out)} held-out figures {right} are within {_TOLERANCE:.0%} and {good} within"
        f" {_GOOD:.0%}; constants of machines were fitted to {numbers['fitted']} others, and chosen"
        f" by who had seen {numbers['seen']}"
    )
