"""What all benchmarks share: ways that are made and timed, records, comparisons and tables.

A benchmark is a row of `benchmarks.BENCHMARKS`: a request, whose fields are the command's options,
and ``run(request, device, comm)``, which measures and returns an `Outcome`. It measures ways to do
one thing (`Way`), which `measure_ways` makes and times. Their bound is the bytes that the recorded
nodes move, at a rate that was measured in the same run.
"""

from __future__ import annotations

import gc
import json
import math
import statistics
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from bench.requests import Request
from slipstream import mpi_launch
from slipstream.array_types import Comm
from slipstream.collective import on_first_rank, own, together
from slipstream.device import Device
from slipstream.errors import InputError, RunError
from slipstream.machine_info import commit_name, facts_to_publish
from slipstream.report.console import make_console
from slipstream.report.number_text import quantity
from slipstream.schedule import CommittedStep, Timeline
from slipstream.tuner import medians

# Options that change the display or the record, not the measurement.
_ASIDE = ("json", "against", "tolerance", "plot", "timelines", "beside", "repetitions", "processes")
# What a step does besides computing.
MOVING = ("communication", "copy", "pack")
# Steps whose every node is timed: the shortest of them counts, as one alone may be disturbed.
_PROFILED = 3


@dataclass(frozen=True)
class Headline:
    """A time that a benchmark is about, in seconds.

    `seconds` is the median of repetitions, on the slowest rank; `spread` the distance of their
    quartiles, over the median; `bound` what the bandwidth of the same run allows.
    """

    seconds: float
    spread: float = 0.0
    bound: float | None = None


def headline(seconds: float, bound: float | None = None) -> Headline:
    """Return a headline of what `medians` measured."""
    return Headline(float(seconds), getattr(seconds, "spread", 0.0), bound)


Pictures = Sequence[tuple[Path | None, Callable[[Path, str], None]]]


@dataclass(frozen=True)
class Outcome:
    """What was measured, how to show it, and what to draw into which file, if one is named."""

    benchmark: str
    title: str
    device: Device
    result: Mapping[str, Any]
    show: Callable[[str, Mapping[str, Any]], None]
    headlines: Mapping[str, Headline] = field(default_factory=dict)
    pictures: Pictures = ()
    # What ran when, to be drawn if the request asks for it; what of it, for the title.
    timelines: Mapping[str, Timeline] = field(default_factory=dict)
    timelines_of: str = ""


Run = Callable[[Any, Device, Comm], Outcome]


def run_benchmark(name: str, run: Callable[[], Run], request: Request) -> None:
    """Check a request, start ranks if so asked, measure, print, record, draw and compare.

    What measures is imported only where it is needed: `run` returns it.
    """
    request.check_pictures()
    request.check()
    if mpi_launch.should_relaunch(request.ranks):
        raise typer.Exit(mpi_launch.relaunch(request.ranks or 1, module="bench"))
    from slipstream.exchange import open_matching_device

    comm = own(mpi_launch.world_comm(), "benchmark")
    with together(comm):
        device = open_matching_device(request.device, comm)
        # Before anything is measured for nothing.
        earlier = on_first_rank(comm, lambda: _earlier(name, request, device))
        outcome = run()(request, device, comm)
    on_first_rank(comm, lambda: _report(request, outcome, earlier))


def _earlier(name: str, request: Request, device: Device) -> dict[str, float]:
    """Return the headlines of the record to compare with."""
    if request.against is None:
        return {}
    return read_headlines(request.against, name, device.name, asked_of(request))


def _report(request: Request, outcome: Outcome, earlier: Mapping[str, float]) -> None:
    """Print, record and draw the results, and compare them if so asked; fail if they are worse."""
    outcome.show(outcome.title, outcome.result)
    if request.json is not None:
        headlines = {name: asdict(one) for name, one in outcome.headlines.items()}
        more = {"asked": asked_of(request), "headlines": headlines}
        write_record(request.json, outcome.benchmark, outcome.device, outcome.result, more)
    for path, draw in outcome.pictures:
        if path is not None:
            draw(path, outcome.title)
    if timelines := getattr(request, "timelines", None):
        from bench.pictures import plot_timelines

        title = outcome.title + (outcome.timelines_of and f": {outcome.timelines_of}")
        plot_timelines(timelines, title, outcome.timelines)
    if request.against is None:
        return
    rows = changes(earlier, outcome.headlines, request.tolerance)
    columns: dict[str, Column] = {
        "figure": "figure",
        "before": "before|s",
        "now": "now|s",
        "now / before": lambda row: f"{row['now'] / row['before']:.3f}",
        "": lambda row: "worse" if row["is worse"] else "",
    }
    show_table(f"beside {request.against}", columns, rows)
    worse = [row["figure"] for row in rows if row["is worse"]]
    if worse:
        raise RunError(
            f"{len(worse)} of {len(rows)} figures take longer than in {request.against}, by more"
            f" than {request.tolerance:.0%}: {'; '.join(worse)}"
        )


# -- records --------------------------------------------------------------------------------


def asked_of(request: Request) -> dict[str, Any]:
    """Return the options of a request that define the measurement, as a record has them."""
    options = {one.name: getattr(request, one.name) for one in fields(request)}
    kept = {name: value for name, value in options.items() if name not in _ASIDE}
    recorded: dict[str, Any] = json.loads(json.dumps(kept, default=str))
    return recorded


def write_record(
    path: str | Path,
    benchmark: str,
    device: Device,
    result: Mapping[str, Any],
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write a result as JSON, with all that it takes to understand or compare it later."""
    record = {
        "benchmark": benchmark,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit_name(),
        "device": device.name,
        "machine": facts_to_publish(),
        **(more or {}),
        "result": dict(result),
    }
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(record, indent=1) + "\n")


def read_results(
    benchmark: str, paths: Iterable[str | Path], option: str
) -> list[Mapping[str, Any]]:
    """Return the results in records of a benchmark, which an option names."""
    results = []
    for path in paths:
        try:
            record = json.loads(Path(path).read_text(encoding="utf-8"))
            if record["benchmark"] != benchmark:
                raise KeyError("benchmark")
            results.append(record["result"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{option} {path}: no record of 'python -m bench {benchmark} --json'"
            ) from error
    return results


def read_headlines(
    path: Path, benchmark: str, device: str, asked: Mapping[str, Any]
) -> dict[str, float]:
    """Return the seconds of the headlines of a record; refuse one of something else."""
    option = f"--against {path}"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        theirs = {name: float(one["seconds"]) for name, one in record["headlines"].items()}
        # Of fields on the host, a record says so behind the name; so do the options.
        found = {"benchmark": record["benchmark"].split(" ")[0], "device": record["device"]}
        earlier = dict(record["asked"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{option}: no record with headlines; accepted: a file that 'python -m bench"
            f" {benchmark} --json FILE' has written"
        ) from error
    for name, mine in {"benchmark": benchmark, "device": device}.items():
        if found[name] != mine:
            raise InputError(f"{option}: its {name} is {found[name]!r}, that of this run {mine!r}")
    for name in asked.keys() | earlier.keys():
        if asked.get(name) != earlier.get(name):
            raise InputError(
                f"{option}: it was measured with {name} = {earlier.get(name)!r}, this run with"
                f" {asked.get(name)!r}"
            )
    return theirs


def changes(
    before: Mapping[str, float], now: Mapping[str, Headline], tolerance: float
) -> list[dict[str, Any]]:
    """Return a row for each headline of a record; one that is gone, or takes longer, is worse."""
    gone = Headline(math.inf)
    rows = []
    for name, seconds in before.items():
        mine = now.get(name, gone).seconds
        is_worse = mine > seconds * (1 + tolerance)
        rows.append({"figure": name, "before": seconds, "now": mine, "is worse": is_worse})
    return rows


# -- measuring ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """One way to do the measured work, made and ready.

    `actions` are timed in turn, by name, and `profile` runs once with every node timed. `row` makes
    the figures of the seconds of the actions and what ran when.
    """

    device: Device
    comm: Comm
    actions: Mapping[Any, Callable[[], object]]
    profile: Callable[[], Timeline]
    row: Callable[[Mapping[str, float], Timeline], dict[str, Any]]


@dataclass
class Measured:
    """A row of figures for each way, why others were left out, and what ran when on this rank."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    timelines: dict[str, Timeline] = field(default_factory=dict)


def measure_ways(
    ways: Mapping[str, Callable[[], Way]],
    needed: Container[str],
    repetitions: int,
    beside: Callable[[], Mapping[Any, Callable[[], object]]] | None = None,
) -> Measured:
    """Make and time some ways, and return the results. Collective.

    What makes a way raises InputError, on all ranks alike, if it cannot be; `needed` ways must be
    possible, and one at least. Ways are measured one after the other, as memory may have room for
    one only; with `beside`, all together, in turn with the actions that this then returns.
    """
    found, made = Measured(), dict[str, Way]()

    def measure(more: Mapping[Any, Callable[[], object]]) -> None:
        first, actions = next(iter(made.values())), dict[Any, Callable[[], object]]()
        for name, way in made.items():
            actions |= {(name, key): one for key, one in way.actions.items()}
        seconds = medians(first.device, {**actions, **more}, repetitions, first.comm)
        rates = {key: seconds[key] for key in more}
        for name, way in made.items():
            own = {key: seconds[name, key] for key in way.actions}
            timeline = quietest(way.profile)
            found.rows.append(way.row({**own, **rates}, timeline))
            found.timelines[name] = timeline

    for name, make in ways.items():
        try:
            made[name] = make()
        except InputError as error:
            found.left_out[name] = str(error)
            if name in needed or len(found.left_out) == len(ways):
                raise
            continue
        if beside is None:
            measure({})
            made.clear()  # the next one may take as much
            gc.collect()
    if beside is not None:
        measure(beside())
    return found


def quietest(profile: Callable[[], Timeline]) -> Timeline:
    """Return what ran when in the shortest of some profiled runs: one alone may be disturbed."""
    runs = [Timeline.merged([profile()], forget=True) for _ in range(_PROFILED)]
    return min(runs, key=Timeline.duration)


def timers_of(timeline: Timeline) -> dict[str, Any]:
    """Return busy seconds by category, and those in which nothing else ran."""
    totals = timeline.totals()
    ways = {
        label: sum(e.stop - e.start for e in timeline.entries if e.label == label)
        for label in ("copy in", "copy out")
    }
    return {
        "total": timeline.duration(),
        **totals,
        **ways,
        "exposed": {name: timeline.exposed(name) for name in totals},
    }


def over_ranks(comm: Comm, value: Any, combine: Callable[[list[Any]], Any]) -> Any:
    """Return what `combine`, such as max, makes of the values of all ranks. Collective."""
    return combine([value] if comm is None else comm.allgather(value))


def computed_bytes(step: CommittedStep) -> float:
    """Return the bytes that the kernels of a step must read and write, as its nodes say."""
    return sum(sum(one.moves) for one in step.nodes if one.category == "compute" and one.moves)


class OnFirstRank:
    """An action of rank 0, timed there, while all other ranks sleep. Calls are collective.

    The clock of the other ranks would count how late they wake up. There the action is None.
    """

    def __init__(self, action: Callable[[], None] | None, comm: Comm) -> None:
        self._action, self._comm = action, comm
        self._samples: list[float] = []

    def __call__(self) -> None:
        """Run the action on rank 0."""
        if self._action is not None:
            start = time.perf_counter()
            self._action()
            self._samples.append(time.perf_counter() - start)
        wait_idly(self._comm)

    def seconds(self) -> float:
        """Return the median seconds of all calls but the first. Collective."""
        mine = statistics.median(self._samples[1:]) if self._action is not None else math.nan
        return mine if self._comm is None else self._comm.bcast(mine, root=0)


def wait_idly(comm: Comm) -> None:
    """Wait until all ranks are here, asleep most of the time. Collective."""
    if comm is not None:
        comm.Barrier()


# -- tables ---------------------------------------------------------------------------------

# What a row shows in a column: a name of what it has, perhaps with a format behind a bar ("s" for
# seconds with their unit); or a function of the row.
Column = str | Callable[[Mapping[str, Any]], object]


def cell(row: Mapping[str, Any], column: Column) -> str:
    """Return what a row shows in a column."""
    if not isinstance(column, str):
        return str(column(row))
    name, _, form = column.partition("|")
    return quantity(row[name], "s") if form == "s" else format(row[name], form)


def show_table(
    title: str,
    columns: Mapping[str, Column],
    rows: Iterable[Mapping[str, Any]],
    notes: Iterable[str] = (),
    left: int = 1,
    first_width: int | None = None,
) -> None:
    """Print a row for each result, cells by heading, and notes; no number is cut.

    A line is drawn below a row that says so by "ends group".
    """
    table = Table(title=Text(title), box=box.HORIZONTALS, padding=(0, 0, 0, 1))
    for place, heading in enumerate(columns):
        if place < left:
            table.add_column(heading, no_wrap=first_width is None, max_width=first_width)
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        cells = (Text(cell(row, column)) for column in columns.values())
        table.add_row(*cells, end_section=row.get("ends group", False))
    console = make_console()
    # Lines too long for a screen, but whole.
    needed = Measurement.get(console, console.options.update(max_width=1000), table).maximum
    width, console.width = console.width, max(console.width, needed)
    console.print(table, highlight=False)
    console.width = width
    for note in notes:
        console.print(note, highlight=False, markup=False)


def print_figures(title: str, result: Mapping[str, Any]) -> None:
    """Print figures by name, those of a group as ``group: name``."""
    table = Table(title=Text(title), show_header=False, box=box.HORIZONTALS)
    for name, value in result.items():
        inner = value.items() if isinstance(value, Mapping) else [(None, value)]
        for key, one in inner:
            table.add_row(Text(name if key is None else f"{name}: {key}"), Text(_text(one)))
    make_console().print(table, highlight=False)


def left_out(result: Mapping[str, Any]) -> list[str]:
    """Return a line for whatever was left out, and why."""
    return [f"left out: {name}: {why}" for name, why in result.get("left out", {}).items()]


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if value is None:
        return "none"
    return " x ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
