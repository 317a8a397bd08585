"""What all benchmarks share: repetitions taken in turn, tables, pictures, records, and their order.

A benchmark is a request (`requests`) and a module with ``run(request, device, comm)``, which
measures and returns an `Outcome`: figures, beside the bound that was measured in the same run.
`run_benchmark` shows and records any of them, and `read_results` reads what it has recorded.
"""

from __future__ import annotations

import importlib
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from slipstream import mpi_launch
from slipstream.array_types import Comm
from slipstream.bench.comparison import (
    Change,
    Headline,
    Median,
    asked_of,
    changes,
    headlines_as_json,
    read_headlines,
)
from slipstream.bench.requests import Request
from slipstream.collective import on_first_rank, own, together
from slipstream.device import Device, large_copy
from slipstream.errors import InputError, RunError
from slipstream.machine_info import commit_name, facts_to_publish
from slipstream.report.console import make_console
from slipstream.report.number_text import quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from slipstream.schedule import Timeline

Show = Callable[[str, Mapping[str, Any]], None]
Draw = Callable[[Path, str], None]

# What a step does besides computing; and steps whose every node is timed.
_MOVING = ("communication", "copy", "pack")
_PROFILED = 4


@dataclass(frozen=True)
class Outcome:
    """What was measured, how to show it, and what to draw into which file, if one is named."""

    benchmark: str
    title: str
    device: Device
    result: Mapping[str, Any]
    show: Show
    pictures: Sequence[tuple[Path | None, Draw]] = field(default_factory=tuple)
    headlines: Mapping[str, Headline] = field(default_factory=dict)


def run_benchmark(module: str, request: Request) -> None:
    """Check a request, start ranks if so asked, measure, print, record, draw and compare."""
    request.check()
    if mpi_launch.should_relaunch(request.ranks):
        raise typer.Exit(mpi_launch.relaunch(request.ranks or 1))
    from slipstream.exchange import open_matching_device

    comm = own(mpi_launch.world_comm(), "benchmark")
    with together(comm):
        device = open_matching_device(request.device, comm)
        # Before anything is measured in vain.
        earlier = on_first_rank(comm, lambda: _earlier(module, request, device))
        outcome = importlib.import_module(module).run(request, device, comm)
    on_first_rank(comm, lambda: _tell(request, outcome, earlier))


def _earlier(module: str, request: Request, device: Device) -> dict[str, float]:
    """Return the headlines of the record to compare with."""
    if request.against is None:
        return {}
    name = module.rpartition(".")[2].removesuffix("_bench")
    return read_headlines(request.against, name, device.name, asked_of(request))


def _tell(request: Request, outcome: Outcome, earlier: Mapping[str, float]) -> None:
    """Print, record and draw what was measured, and compare it if so asked."""
    outcome.show(outcome.title, outcome.result)
    if request.json is not None:
        asked = {"asked": asked_of(request), "headlines": headlines_as_json(outcome.headlines)}
        write_record(request.json, outcome.benchmark, outcome.device, outcome.result, asked)
    for path, draw in outcome.pictures:
        if path is not None:
            draw(path, outcome.title)
    if request.against is not None:
        _compare(request.against, changes(earlier, outcome.headlines, request.tolerance), request)


def _compare(path: Path, rows: Sequence[Change], request: Request) -> None:
    """Print what has become of the headlines of a record; fail if one is worse."""
    columns: dict[str, Column] = {
        "figure": lambda row: row["change"].name,
        "before": lambda row: quantity(row["change"].before, "s"),
        "now": lambda row: quantity(row["change"].now, "s"),
        "now / before": lambda row: f"{row['change'].ratio:.3f}",
        "": lambda row: "worse" if row["change"].is_worse else "",
    }
    show_table(f"beside {path}", columns, [{"change": one} for one in rows])
    worse = [one.name for one in rows if one.is_worse]
    if worse:
        raise RunError(
            f"{len(worse)} of {len(rows)} figures take longer than in {path}, by more than"
            f" {request.tolerance:.0%}: {'; '.join(worse)}"
        )


def medians(
    device: Device,
    actions: Mapping[Any, Callable[[], object]],
    repetitions: int,
    comm: Comm = None,
) -> dict[Any, float]:
    """Return median seconds of actions side by side, on the slowest rank. Collective.

    One repetition runs each action once, so that all of them see the same noise; the first one
    is not timed. The device is waited for before and after each action.
    """
    samples: dict[Any, list[float]] = {name: [] for name in actions}
    for repetition in range(repetitions + 1):
        for name, action in actions.items():
            device.synchronize()
            if comm is not None:
                comm.Barrier()
            start = time.perf_counter()
            action()
            device.synchronize()
            elapsed = time.perf_counter() - start
            if repetition:
                samples[name].append(elapsed)
    result: dict[Any, float] = {name: Median.of(values) for name, values in samples.items()}
    if comm is not None:
        everyone = comm.allgather(result)
        result = {name: max(one[name] for one in everyone) for name in result}
    return result


def repeated(action: Callable[[], object], count: int) -> Callable[[], None]:
    """Return what runs an action some times."""

    def run() -> None:
        for _ in range(count):
            action()

    return run


def over_ranks(comm: Comm, value: float, combine: Callable[..., float]) -> float:
    """Return what `combine`, such as max, makes of the values of all ranks. Collective."""
    return value if comm is None else combine(comm.allgather(value))


def exposed_moves(step: Callable[[], Timeline]) -> tuple[float, Timeline]:
    """Return the median seconds in which a step only moves data, and the last step's timeline."""
    timelines = [step() for _ in range(_PROFILED)]
    return statistics.median(one.exposed(*_MOVING) for one in timelines), timelines[-1]


def copy_bandwidth(device: Device, size: int = 1 << 30) -> Callable[[], float]:
    """Return a function that measures bytes read plus written per second by a large copy."""
    copy, moved = large_copy(device, size)
    return lambda: moved / medians(device, {"copy": copy}, 5)["copy"]


def write_record(
    path: str | Path,
    benchmark: str,
    device: Device,
    result: Mapping[str, Any],
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write a result as JSON, with what is needed to understand it, or compare it, later."""
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
                f"{option} {path}: no record of 'slipstream bench {benchmark} --json'"
            ) from error
    return results


def wait_idly(comm: Comm) -> None:
    """Wait until all ranks are here, asleep most of the time. Collective."""
    if comm is not None:
        comm.Barrier()


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


Column = Callable[[Mapping[str, Any]], object]


def text_of(key: str) -> Column:
    """Return a column of what rows have by a name."""
    return lambda row: row[key]


def number_of(key: str, form: str = ".3g") -> Column:
    """Return a column of numbers in a format."""
    return lambda row: format(row[key], form)


def seconds_of(key: str) -> Column:
    """Return a column of seconds, with their unit."""
    return lambda row: quantity(row[key], "s")


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
        cells = (Text(str(cell(row))) for cell in columns.values())
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


@contextmanager
def picture(path: str | Path, size: tuple[float, float], title: str = "") -> Iterator[Figure]:
    """Give a figure in the style of all pictures, perhaps with a title, and write it to a file."""
    import matplotlib

    from slipstream.report.figure_style import STYLE

    with matplotlib.rc_context(STYLE):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=size)
        FigureCanvasAgg(figure)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=12)
        yield figure
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def mark_ticks(axis: Axis, places: Sequence[float], text: Callable[[float], str]) -> None:
    """Put ticks at these places alone, with these texts."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_major_locator(FixedLocator(places))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def draw_rules(axes: Axes) -> None:
    """Draw faint horizontal lines behind the curves."""
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)


def plot_timelines(
    path: str | Path, title: str, timelines: Mapping[str, Timeline], same_axis: bool = False
) -> None:
    """Draw what ran when in a step, a panel for each way to take it."""
    import matplotlib

    from slipstream.schedule.timeline import legend_of

    heights = [len({entry.lane for entry in one.entries}) + 2.4 for one in timelines.values()]
    with (
        matplotlib.rc_context(),
        picture(path, (7.6, 0.8 + 0.26 * sum(heights)), title) as figure,
    ):
        matplotlib.rcParams.update({"font.size": 9, "axes.labelsize": 9})
        panels = figure.subplots(
            len(timelines), 1, squeeze=False, height_ratios=heights, sharex=same_axis
        )
        for axes, (name, timeline) in zip(panels[:, 0], timelines.items(), strict=True):
            timeline.draw(axes, name)
            if same_axis:
                axes.label_outer()
        handles = legend_of(list(timelines.values()))
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
