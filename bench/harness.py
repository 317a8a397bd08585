"""The shared part of all benchmarks: options, timing, records, comparisons and tables.

A benchmark has a request, whose fields are the options of its command, and a function
``run(request, device, comm)`` that measures and returns an `Outcome`. It compares ways to do the
same work (`Way`), which `measure_ways` makes and times.
"""

from __future__ import annotations

import gc
import json
import math
import statistics
import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich import box
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text
from typer.models import OptionInfo

from bench.pictures import check_format, plot_timelines
from slipstream.engine import accepted
from slipstream.engine import processes as mpi_launch
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_first_rank, own, together
from slipstream.engine.device import Device
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.exchange import open_matching_device
from slipstream.engine.schedule import CommittedStep, Timeline
from slipstream.engine.text import quantity
from slipstream.engine.tuner import medians
from slipstream.runs.run_recorder import commit_name, facts_to_publish
from slipstream.show.console import make_console

# The folder that has this package.
ROOT = Path(__file__).resolve().parent.parent
# Options that change the display or the record, not the measurement.
_ASIDE = ("json", "against", "tolerance", "plot", "timelines", "beside", "repetitions", "processes")
# The categories of nodes that move data between ranks.
MOVING = ("communication", "copy", "pack")
# The shortest of several profiled runs counts: a single one may be disturbed.
_PROFILED = 3


# -- options --------------------------------------------------------------------------------


def option(
    help: str, *names: str, parse: Callable[[str], Any] | None = None, **settings: Any
) -> OptionInfo:
    """Return an option of a command; `parse` converts its text to a value."""
    if parse is not None:
        # Typer passes the default through the parser too.
        settings["parser"] = lambda value: parse(value) if isinstance(value, str) else value
    made: OptionInfo = typer.Option(*names, help=help, **settings)
    return made


def choice(values: Iterable[str], help: str = "{}.", *names: str, **settings: Any) -> OptionInfo:
    """Return an option that takes one of the values, which its help lists."""
    return option(help.format(accepted.listed(values)), *names, **settings)


def names_of(text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated list."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_shape(text: str) -> tuple[int, int, int]:
    """Return a shape from ``N`` or three comma-separated numbers in the order of the arrays."""
    sizes = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    sizes = 3 * sizes if len(sizes) == 1 else sizes
    if len(sizes) != 3 or min(sizes) < 1:
        raise InputError(
            f"--n {text!r} is no shape; accepted: points along each axis, one number or three "
            "with commas between, in the order of the arrays (z,y,x)"
        )
    return sizes[0], sizes[1], sizes[2]


_POINTS = "Points along each axis: one number, or z,y,x as in arrays."
Shape: TypeAlias = Annotated[
    tuple[int, int, int], option(_POINTS, "--n", parse=parse_shape, metavar="N")
]
Transport: TypeAlias = Annotated[str, choice(["auto", *accepted.TRANSPORTS])]
Sweep: TypeAlias = Annotated[bool, option("Vary one thing after another.", "--sweep")]
Picture: TypeAlias = Annotated[Path | None, option("Draw it.", metavar="FILE.png")]


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of every benchmark."""

    ranks: Annotated[int | None, option("Start N MPI ranks.", metavar="N", min=1)] = None
    device: Annotated[str, choice([*accepted.DEVICES, "auto"])] = "auto"
    repetitions: Annotated[int, option("Timed runs of each part.", min=1)] = 15
    json: Annotated[Path | None, option("Write a record.", metavar="FILE")] = None
    against: Annotated[
        Path | None,
        option("Compare with an earlier record; exit with 1 if a time is worse.", metavar="FILE"),
    ] = None
    tolerance: Annotated[
        float, option("The accepted increase of a time, as a fraction of the record's.", min=0)
    ] = 0.05

    def check(self) -> None:
        """Refuse invalid options before ranks are started."""


# -- running --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Headline:
    """A time that a benchmark is about, in seconds.

    `seconds` is the median of repetitions on the slowest rank, `spread` the distance of their
    quartiles over the median, `bound` the shortest time that the bandwidth of the same run allows.
    """

    seconds: float
    spread: float = 0.0
    bound: float | None = None


def headline(seconds: float, bound: float | None = None) -> Headline:
    """Return a headline of a time that `medians` measured."""
    return Headline(float(seconds), getattr(seconds, "spread", 0.0), bound)


@dataclass(frozen=True)
class Outcome:
    """The result of a benchmark, how to print it, and pictures to draw if the request asks."""

    benchmark: str
    title: str
    device: Device
    result: Mapping[str, Any]
    show: Callable[[str, Mapping[str, Any]], None]
    headlines: Mapping[str, Headline] = field(default_factory=dict)
    # For the option --plot.
    plot: Callable[[Path, str], None] | None = None
    # For the option --timelines, and what of it for the title.
    timelines: Mapping[str, Timeline] = field(default_factory=dict)
    timelines_of: str = ""


Run = Callable[[Any, Device, Comm], Outcome]


def run_benchmark(name: str, run: Run, request: Request) -> None:
    """Check a request, start ranks if it asks for them, measure, print, record and compare."""
    for picture in ("plot", "timelines"):
        check_format(getattr(request, picture, None), f"--{picture}")
    request.check()
    if mpi_launch.should_relaunch(request.ranks):
        program = ("-m", "bench")
        raise typer.Exit(mpi_launch.relaunch(request.ranks or 1, program=program))
    comm = own(mpi_launch.world_comm(), "benchmark")
    with together(comm):
        device = open_matching_device(request.device, comm)
        # A record that cannot be compared is refused before anything is measured.
        earlier = on_first_rank(comm, lambda: _earlier(name, request, device))
        outcome = run(request, device, comm)
    on_first_rank(comm, lambda: _report(request, outcome, earlier))


def _earlier(name: str, request: Request, device: Device) -> dict[str, float]:
    if request.against is None:
        return {}
    return read_headlines(request.against, name, device.name, asked_of(request))


def _report(request: Request, outcome: Outcome, earlier: Mapping[str, float]) -> None:
    """Print, record and draw the results; compare them if requested, and fail if they are worse."""
    outcome.show(outcome.title, outcome.result)
    if request.json is not None:
        headlines = {name: asdict(one) for name, one in outcome.headlines.items()}
        more = {"asked": asked_of(request), "headlines": headlines}
        write_record(request.json, outcome.benchmark, outcome.device, outcome.result, more)
    if outcome.plot is not None and (path := getattr(request, "plot", None)):
        outcome.plot(path, outcome.title)
    if path := getattr(request, "timelines", None):
        title = outcome.title + (outcome.timelines_of and f": {outcome.timelines_of}")
        plot_timelines(path, title, outcome.timelines)
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
    show_table(f"compared with {request.against}", columns, rows)
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
    """Write a result as JSON, with the machine, the versions and the commit."""
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
    """Return the results in the records of a benchmark that an option names."""
    results = []
    for path in paths:
        try:
            record = json.loads(Path(path).read_text(encoding="utf-8"))
            if record["benchmark"] != benchmark:
                raise KeyError("benchmark")
            results.append(record["result"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{option} {path}: no record of the benchmark {benchmark}") from error
    return results


def read_headlines(
    path: Path, benchmark: str, device: str, asked: Mapping[str, Any]
) -> dict[str, float]:
    """Return the seconds of the headlines of a record; refuse one of another measurement."""
    option = f"--against {path}"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        theirs = {name: float(one["seconds"]) for name, one in record["headlines"].items()}
        # Records of fields on the host say so after the name; so do the options.
        recorded = {"benchmark": record["benchmark"].split(" ")[0], "device": record["device"]}
        earlier = dict(record["asked"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{option}: no record with headlines; use a file that 'python -m bench {benchmark}"
            " --json FILE' has written"
        ) from error
    for name, value in {"benchmark": benchmark, "device": device}.items():
        if recorded[name] != value:
            raise InputError(f"{option}: its {name} is {recorded[name]!r}, this run has {value!r}")
    for name, value in asked.items():
        if value != earlier.get(name):
            raise InputError(
                f"{option}: it was measured with {name} = {earlier.get(name)!r}, this run with"
                f" {value!r}"
            )
    return theirs


def changes(
    before: Mapping[str, float], now: Mapping[str, Headline], tolerance: float
) -> list[dict[str, Any]]:
    """Return a row for each headline of a record; one that is missing or slower is worse."""
    rows = []
    for name, seconds in before.items():
        current = now[name].seconds if name in now else math.inf
        is_worse = current > seconds * (1 + tolerance)
        rows.append({"figure": name, "before": seconds, "now": current, "is worse": is_worse})
    return rows


# -- measuring ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """One way to do the measured work, allocated and ready.

    `actions` are timed alternately, `profile` runs once with every node timed, and `row` computes
    the figures from the seconds of the actions and the timeline.
    """

    device: Device
    comm: Comm
    actions: Mapping[Any, Callable[[], object]]
    profile: Callable[[], Timeline]
    row: Callable[[Mapping[str, float], Timeline], dict[str, Any]]


@dataclass
class Measured:
    """A row of figures for each way, why others were left out, and timelines of this rank."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    timelines: dict[str, Timeline] = field(default_factory=dict)


def measure_ways(
    ways: Mapping[str, Callable[[], Way]],
    needed: Container[str],
    repetitions: int,
    beside: Callable[[], Mapping[Any, Callable[[], object]]] | None = None,
) -> Measured:
    """Make and time several ways, and return the results. Collective.

    The function that makes a way raises InputError, on all ranks alike, if it is impossible;
    `needed` ways, and at least one, must be possible. Ways are measured one after another, as
    memory may have room for only one way. With `beside`, all are measured together, alternately
    with the actions that `beside` then returns.
    """
    measured, made = Measured(), dict[str, Way]()

    def measure(more: Mapping[Any, Callable[[], object]]) -> None:
        first, actions = next(iter(made.values())), dict[Any, Callable[[], object]]()
        for name, way in made.items():
            actions |= {(name, key): action for key, action in way.actions.items()}
        seconds = medians(first.device, {**actions, **more}, repetitions, first.comm)
        shared = {key: seconds[key] for key in more}
        for name, way in made.items():
            timeline = quietest(way.profile)
            its = {key: seconds[name, key] for key in way.actions}
            measured.rows.append(way.row({**its, **shared}, timeline))
            measured.timelines[name] = timeline

    for name, make in ways.items():
        try:
            made[name] = make()
        except InputError as error:
            measured.left_out[name] = str(error)
            if name in needed or len(measured.left_out) == len(ways):
                raise
            continue
        if beside is None:
            measure({})
            made.clear()  # the next one may need as much memory
            gc.collect()
    if beside is not None:
        measure(beside())
    return measured


def quietest(profile: Callable[[], Timeline]) -> Timeline:
    """Return the timeline of the shortest of several profiled runs."""
    runs = [Timeline.merged([profile()], forget=True) for _ in range(_PROFILED)]
    return min(runs, key=Timeline.duration)


def timers_of(timeline: Timeline) -> dict[str, Any]:
    """Return the busy seconds of each category, and those in which nothing else ran."""
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
    """Combine the values of all ranks, for example by max. Collective."""
    return combine([value] if comm is None else comm.allgather(value))


def computed_bytes(step: CommittedStep) -> float:
    """Return the bytes that the kernels of a step must read and write, as its nodes say."""
    return sum(sum(one.moves) for one in step.nodes if one.category == "compute" and one.moves)


class OnFirstRank:
    """An action of rank 0, timed there while all other ranks sleep. Calls are collective.

    The clocks of the other ranks would include how late they wake up. There the action is None.
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
        if self._comm is not None:
            self._comm.Barrier()

    def seconds(self) -> float:
        """Return the median seconds of all calls but the first. Collective."""
        median = statistics.median(self._samples[1:]) if self._action is not None else math.nan
        return median if self._comm is None else self._comm.bcast(median, root=0)


# -- tables ---------------------------------------------------------------------------------

# The contents of a column: a key of the row, perhaps with a format after a bar ("s" for seconds
# with their unit), or a function of the row.
Column = str | Callable[[Mapping[str, Any]], object]


def cell(row: Mapping[str, Any], column: Column) -> str:
    """Return the text of a row in a column."""
    if not isinstance(column, str):
        return str(column(row))
    name, _, form = column.partition("|")
    return quantity(row[name], "s") if form == "s" else format(row[name], form)


def show_table(
    title: str,
    columns: Mapping[str, Column],
    rows: Iterable[Mapping[str, Any]],
    notes: Iterable[str] = (),
    first_width: int | None = None,
) -> None:
    """Print a row for each result, cells by heading, and notes; no number is cut."""
    table = Table(title=Text(title), box=box.HORIZONTALS, padding=(0, 0, 0, 1))
    for number, heading in enumerate(columns):
        if number:
            table.add_column(heading, justify="right", no_wrap=True)
        else:
            table.add_column(heading, no_wrap=first_width is None, max_width=first_width)
    for row in rows:
        table.add_row(*(Text(cell(row, column)) for column in columns.values()))
    console = make_console()
    # Lines may be longer than the screen, but numbers are not cut.
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
        group = value.items() if isinstance(value, Mapping) else [("", value)]
        for key, figure in group:
            table.add_row(Text(f"{name}: {key}" if key else name), Text(_text(figure)))
    make_console().print(table, highlight=False)


def notes_of(result: Mapping[str, Any], rows: str = "rows") -> list[str]:
    """Return a line for each entry of a result but its rows: a name, and its value or values."""
    lines = []
    for name, value in result.items():
        if name == "left out":
            lines += left_out(result)
        elif isinstance(value, Mapping):
            values = "; ".join(f"{key} = {_text(one)}" for key, one in value.items())
            lines.append(f"{name}: {values}")
        elif name != rows:
            lines.append(f"{name}: {_text(value)}")
    return lines


def left_out(result: Mapping[str, Any]) -> list[str]:
    """Return a line for each way that was left out, with the reason."""
    return [f"left out: {name}: {why}" for name, why in result["left out"].items()]


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if value is None:
        return "none"
    return " x ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
