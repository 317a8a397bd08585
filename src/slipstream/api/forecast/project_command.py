"""``slipstream project``: the forecast of a case on more and more nodes of a machine."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from slipstream import __version__
from slipstream.api.forecast.noted_steps import advection_counts, lattice_counter, spectral_counts
from slipstream.api.forecast.published_runs import NOT_COMPARED, Comparison, published_runs
from slipstream.case import AdvectionCase, Case, LatticeCase, SpectralCase
from slipstream.case.machine_description import Machine, load_machine
from slipstream.engine.accepted import PICTURE_FORMATS
from slipstream.engine.errors import InputError, bytes_text, check_folder_of
from slipstream.engine.text import counted, one_line, printable, quantity
from slipstream.runs.output_writer import counts_until, files_warning
from slipstream.runs.step_price import OutputSize, StepCounts, StepTime, step_time

# The fraction by which a forecast may miss a published figure and still count as right.
_TOLERANCE = 0.3
# The fraction by which it may miss the figure and still count as good.
_GOOD = 0.2
# Nodes of a forecast, at most.
_MOST_NODES = 1_000_000
# Characters of a line of a table, at most.
_WIDEST = 200
# Headings and labels of the parts of a step.
_PARTS = {
    "total": "step",
    "memory": "memory",
    "launches": "launches",
    "host": "host",
    "bus": "bus",
    "in_node": "in node",
    "network": "network",
}


@dataclass(frozen=True)
class OutputForecast:
    """The forecast of one kind of output.

    Attributes
    ----------
    bytes, files : int
        Size of one output.
    seconds : float or None
        Seconds to write one, where the rates of the storage are known.
    times, kept : int or None
        Numbers that the whole case writes, and keeps, where the number of its steps is known.
    """

    bytes: int
    files: int
    seconds: float | None
    times: int | None
    kept: int | None


@dataclass(frozen=True)
class Forecast:
    """The forecast of a case on some nodes.

    Attributes
    ----------
    nodes, ranks : int
        Nodes and ranks that take part; one rank per device.
    counts, time : StepCounts, StepTime or None
        Traffic and seconds of a step; None if the case cannot run there.
    obstacle : str
        Why not.
    efficiency : float or None
        Efficiency of the devices, relative to the first number of nodes on which the case can run.
    hours, node_hours : float or None
        To the end of the case, where the number of its steps is known, by the clock, and of all
        nodes; with `output_seconds`.
    outputs : mapping of str to OutputForecast
        Snapshots of all fields ("fields") and states ("checkpoint").
    output_seconds : float or None
        Seconds for all output of the case, where the rates of the storage are known as well.
    """

    nodes: int
    ranks: int
    counts: StepCounts | None
    time: StepTime | None
    obstacle: str = ""
    efficiency: float | None = None
    hours: float | None = None
    node_hours: float | None = None
    outputs: Mapping[str, OutputForecast] = field(default_factory=dict)
    output_seconds: float | None = None

    @property
    def files(self) -> int | None:
        """Number of files of these outputs that are kept; None if unknown."""
        if not self.outputs or any(one.kept is None for one in self.outputs.values()):
            return None
        return sum(one.files * (one.kept or 0) for one in self.outputs.values())


def forecast(
    case: Case, machine: Machine, nodes: Sequence[int], steps: int | None = None
) -> list[Forecast]:
    """Return the forecast of a case for each number of nodes.

    Parameters
    ----------
    case : Case
        A case of any family.
    machine : Machine
        The machine for the run, with one rank per device.
    nodes : sequence of int
        Numbers of nodes.
    steps : int, optional
        Number of steps of the whole run; by default as a case with a fixed step has it.

    Raises
    ------
    InputError
        If the case is of a family without a forecast, or for another kind of device.
    """
    kind, asked = machine.device.kind, case.run.device
    # The strategy of an advection decides where its points are.
    if asked != "auto" and (asked == "cpu") != (kind == "cpu") and case.solver != "advection":
        raise InputError(
            f"run.device is {asked!r}, but devices of {machine.title} are {kind.upper()}s"
            " (device.kind); leave it out, or take the description of another machine"
        )
    count_step = step_counter(case, machine)
    steps = steps or _steps(case)
    forecasts: list[Forecast] = []
    reference: float | None = None
    for count in nodes:
        ranks = count * machine.devices_per_node
        try:
            counts = count_step(ranks)
            time = step_time(counts, machine)
        except InputError as error:
            forecasts.append(Forecast(count, ranks, None, None, str(error)))
            continue
        cost = time.total * count
        reference = reference or cost
        stepping = None if steps is None else steps * time.total
        outputs = _outputs(case, machine, count, counts, stepping)
        writing = _seconds_of_outputs(outputs)
        hours = None if stepping is None else (stepping + (writing or 0.0)) / 3600
        forecasts.append(
            Forecast(
                count,
                ranks,
                counts,
                time,
                efficiency=reference / cost,
                hours=hours,
                node_hours=None if hours is None else hours * count,
                outputs=outputs,
                output_seconds=writing,
            )
        )
    return forecasts


def _outputs(
    case: Case, machine: Machine, nodes: int, counts: StepCounts, stepping: float | None
) -> dict[str, OutputForecast]:
    """Return the numbers and sizes of snapshots and states in some seconds of steps."""
    times: Mapping[str, int] = {}
    if stepping is not None:
        times = counts_until(case, case.time.end)
    outputs = {}
    for kind, size in counts.outputs.items():
        seconds = _seconds_of_output(machine, nodes, counts.ranks, size)
        number = times.get(kind)
        if kind == "checkpoint" and number and stepping is not None:
            # By the clock, too.
            number = max(number, 1 + int(stepping / (60 * case.output.checkpoint_minutes)))
        if number == 0:
            continue
        kept = number
        if kind == "checkpoint" and number:
            kept = min(number, case.output.keep_checkpoints)
        outputs[kind] = OutputForecast(size.bytes, size.files, seconds, number, kept)
    return outputs


def _seconds_of_output(machine: Machine, nodes: int, ranks: int, size: OutputSize) -> float | None:
    """Return the seconds that all ranks take to write one output; None if unknown."""
    rate = machine.write_rate(nodes)
    if rate is None or machine.storage is None:
        return None
    return size.bytes / rate + 1e-3 * machine.storage.file_ms * math.ceil(size.files / ranks)


def _seconds_of_outputs(outputs: Mapping[str, OutputForecast]) -> float | None:
    """Return the seconds that all outputs of a run take; None if unknown."""
    total = 0.0
    for output in outputs.values():
        if output.seconds is None or output.times is None:
            return None
        total += output.seconds * output.times
    return total


def step_counter(case: Case, machine: Machine) -> Callable[[int], StepCounts]:
    """Return the counter of a step of a case, by the number of ranks."""
    if isinstance(case, SpectralCase):
        return lambda ranks: spectral_counts(case, machine, ranks)
    if isinstance(case, AdvectionCase):
        return lambda ranks: advection_counts(case, machine, ranks)
    if isinstance(case, LatticeCase):
        return lattice_counter(case, machine)
    raise InputError(
        f"solver: {case.solver!r} cannot be forecast; accepted: advection, lattice, spectral"
    )


def _steps(case: Case) -> int | None:
    """Return the number of steps of a case, at most, if their size is fixed."""
    step: float | None = None
    if isinstance(case, AdvectionCase):
        step = case.fixed_step
    elif isinstance(case, SpectralCase):
        step = case.time.step
    elif isinstance(case, LatticeCase):
        step = 1
    return None if step is None else math.ceil(case.time.end / step)


def numbers_of_nodes(text: str) -> list[int]:
    """Return numbers of nodes written with commas, such as "1,8,64"."""
    parts = [part.strip() for part in text.split(",")]
    counts = [int(part) if part.isdecimal() else 0 for part in parts]
    if not all(0 < count <= _MOST_NODES for count in counts):
        raise InputError(
            f"--nodes {text!r}; accepted: whole numbers from 1 to {_MOST_NODES}, such as 1,8,64"
        )
    return sorted(set(counts))


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

    On each node `devices` of the devices take part, by default all.
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
    forecasts = forecast(case, described, numbers_of_nodes(nodes), steps)
    title = f"time of a step on {described.title}: {one_line(case.title) or 'the case'}"
    console.print(title, style="italic", highlight=False, markup=False)
    _show(console, _table(forecasts))
    for predicted in forecasts:
        if predicted.obstacle:
            console.print(
                f"{predicted.nodes} node{'s' * (predicted.nodes > 1)}, {predicted.obstacle}",
                highlight=False,
                markup=False,
            )
    for remark in dict.fromkeys(
        predicted.counts.remark for predicted in forecasts if predicted.counts is not None
    ):
        if remark:
            console.print(remark, highlight=False, markup=False)
    if all(predicted.hours is None for predicted in forecasts):
        unknown = "the number of steps is not known, so the hours are unknown too: see --steps"
        console.print(unknown, highlight=False, markup=False)
    if not described.device.is_tried:
        untried = f"warning: Slipstream has never run on a {described.device.name}: a forecast only"
        console.print(untried, highlight=False, markup=False)
    for line in _output_lines(described, forecasts):
        console.print(line, highlight=False, markup=False)
    for source in described.sources:
        console.print(f"source: {source}", highlight=False, markup=False, style="dim")
    if record is not None:
        content = {
            "Slipstream": __version__,
            "machine": described.model_dump(),
            "case": case.to_toml(),
            "forecast": [asdict(predicted) for predicted in forecasts],
        }
        record.write_text(json.dumps(content, indent=1), encoding="utf-8")
        console.print(f"record:  {printable(str(record))}", highlight=False, markup=False)
    if picture is not None:
        _draw(case, described, forecasts, picture)
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


def _table(forecasts: Sequence[Forecast]) -> Table:
    """Return a table of the parts of a step that take any time."""
    table = Table(box=box.HORIZONTALS, padding=(0, 0, 0, 1))
    times = [predicted.time for predicted in forecasts if predicted.time is not None]
    parts = [name for name in _PARTS if any(getattr(time, name) for time in times)]
    for heading in ("nodes", "ranks", *(_PARTS[name] for name in parts), "GiB each", "efficient"):
        table.add_column(heading, justify="right", no_wrap=True)
    divided = any(
        predicted.counts is not None and predicted.counts.division for predicted in forecasts
    )
    if divided:
        table.add_column("divided", justify="right", no_wrap=True)
    tells_writing = any(predicted.output_seconds is not None for predicted in forecasts)
    if tells_writing:
        table.add_column("writing", justify="right", no_wrap=True)
    if any(predicted.node_hours is not None for predicted in forecasts):
        for heading in ("hours", "node hours"):
            table.add_column(heading, justify="right", no_wrap=True)
    for predicted in forecasts:
        cells = [str(predicted.nodes), str(predicted.ranks)]
        if predicted.time is not None and predicted.counts is not None:
            seconds = [getattr(predicted.time, name) for name in parts]
            cells += [
                quantity(seconds_of_part, "s") if seconds_of_part else "-"
                for seconds_of_part in seconds
            ]
            cells += [f"{predicted.counts.fields_bytes / 2**30:.3g}", f"{predicted.efficiency:.0%}"]
        else:
            cells += ["-"] * (len(parts) + 2)
        if divided:
            cells.append((predicted.counts and predicted.counts.division) or "-")
        if tells_writing:
            cells.append(
                "-" if predicted.output_seconds is None else quantity(predicted.output_seconds, "s")
            )
        if predicted.hours is not None and predicted.node_hours is not None:
            cells += [f"{predicted.hours:.3g}", f"{predicted.node_hours:.3g}"]
        table.add_row(*cells)
    return table


def _output_lines(machine: Machine, forecasts: Sequence[Forecast]) -> Iterator[str]:
    """Yield what snapshots and states are, of the most nodes that can run the case."""
    able = [predicted for predicted in forecasts if predicted.outputs]
    if not able:
        return
    predicted = able[-1]
    where = f" on {predicted.nodes} nodes" if len(able) > 1 else ""
    for kind, name in (("fields", "snapshot of fields"), ("checkpoint", "state")):
        size = predicted.outputs.get(kind)
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
    if predicted.output_seconds is not None:
        yield "hours include writing these, but no chosen output and no statistics"
    elif machine.storage is None and predicted.node_hours is not None:
        yield "hours are without output: nothing is known of this machine's storage"
    if predicted.files is not None and (warning := files_warning(predicted.files)):
        yield f"warning: {warning}"


def _draw(case: Case, machine: Machine, forecasts: Sequence[Forecast], path: Path) -> None:
    from slipstream.show import figure_style as style

    can_run = [predicted for predicted in forecasts if predicted.time is not None]
    if not can_run:
        raise InputError("--plot: the case can run on none of these numbers of nodes")
    nodes = [predicted.nodes for predicted in can_run]
    title = one_line(case.title) or "the case"
    with style.in_our_style():
        figure = style.new_figure((6.4, 4.4), f"{title}, on {machine.title}")
        axes = figure.add_subplot()
        for (name, label), colour in zip(_PARTS.items(), style.COLOURS, strict=False):
            # A part that takes no time cannot be drawn on a logarithmic axis.
            seconds = [getattr(predicted.time, name) or math.nan for predicted in can_run]
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
    for title in dict.fromkeys(comparison.table for comparison in comparisons):
        console.print(Text(title))
        table = Table(box=box.HORIZONTALS, padding=(0, 0, 0, 1))
        table.add_column("run", no_wrap=True)
        for heading in ("published", "forecast", "error", "constants"):
            table.add_column(heading, justify="right")
        for comparison in comparisons:
            if comparison.table == title:
                cells: list[Any] = [f"{comparison.published:.4g}", f"{comparison.forecast:.3g}"]
                table.add_row(comparison.what, *cells, f"{comparison.error:+.0%}", comparison.known)
        _show(console, table)
    for text in NOT_COMPARED:
        console.print(f"not compared: {text}", highlight=False, markup=False, style="dim")
    for line in _verdict(comparisons):
        console.print(line, highlight=False, markup=False)


def _verdict(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield the forecasts that miss, and how many are right among those without fitted numbers."""
    for comparison in comparisons:
        if abs(comparison.error) > _TOLERANCE:
            missed = f"missed by more than {_TOLERANCE:.0%}"
            yield f"{missed}: {comparison.what}, {comparison.error:+.0%} ({comparison.known})"
    numbers = Counter(comparison.known for comparison in comparisons)
    held_out = [
        abs(comparison.error) for comparison in comparisons if comparison.known == "held out"
    ]
    right, good = (sum(error <= most for error in held_out) for most in (_TOLERANCE, _GOOD))
    yield (
        f"of {len(held_out)} held-out figures {right} are within {_TOLERANCE:.0%} and {good} within"
        f" {_GOOD:.0%}; constants of machines were fitted to {numbers['fitted']} others, and chosen"
        f" by who had seen {numbers['seen']}"
    )
