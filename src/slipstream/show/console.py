"""The console output of runs and of `slipstream verify`: announcement, progress, summary, verdicts.

Only rank 0 prints. On a terminal there is a progress bar, and in a notebook; in a file or the log
of a batch system it becomes a line for every tenth of the way.
"""

from __future__ import annotations

import math
import os
import threading
import time as clock
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from slipstream import __version__
from slipstream.case import SHIPPED_CASES
from slipstream.case.case_loading import read_tables
from slipstream.case.common_tables import Case
from slipstream.engine.device.host_compiler import COUNT
from slipstream.engine.processes import TERMINAL, launched_size
from slipstream.engine.stop_signals import signals_held
from slipstream.engine.text import (
    REST,
    STEPPING,
    counted,
    duration,
    html_text,
    inner_times,
    one_line,
    printable,
    quantity,
)

# Steps that are counted.
_MOST_STEPS = 1e15
# Seconds between two changes of a bar: each is a message to the browser.
_PAUSE = 0.25


def in_notebook() -> bool:
    """Return whether output is displayed in a notebook."""
    return Console().is_jupyter


class NotebookDisplay:
    """The output of a notebook cell, whose content can be replaced."""

    def __init__(self) -> None:
        self._handle: Any = None

    def html(self, text: str) -> None:
        """Show HTML."""
        from IPython.display import HTML  # type: ignore[import-not-found]

        self._show(HTML(text))

    def png(self, content: bytes) -> None:
        """Show a picture."""
        from IPython.display import Image

        self._show(Image(data=content, format="png"))

    def _show(self, what: Any) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(what, display_id=True)
        else:
            self._handle.update(what)


class NotebookBar:
    """A progress bar in a notebook."""

    def __init__(self) -> None:
        self._display = NotebookDisplay()
        self._began = self._shown = clock.perf_counter()
        self._last = 0.0, ""
        self._is_late = False

    def update(self, part: float, state: str) -> None:
        """Show the fraction done and the state; frequent updates are skipped, but not the last."""
        self._last, now = (min(max(part, 0.0), 1.0), state), clock.perf_counter()
        self._is_late = now - self._shown < _PAUSE
        if not self._is_late:
            self._show(now)

    def close(self) -> None:
        """Show the latest message again."""
        if self._is_late:
            self._show(clock.perf_counter())

    def _show(self, now: float) -> None:
        self._shown, self._is_late, (part, state) = now, False, self._last
        elapsed = now - self._began
        left = f", {duration(elapsed / part - elapsed)} left" if 0 < part < 1 else ""
        self._display.html(
            f"<progress style='width:50%' max='1' value='{part:.4f}'></progress>"
            f" {100 * part:.0f} %&ensp;{html_text(state + left)}"
        )


class TextConsole(Console):
    """A console that prints letters which terminals obey as text, whatever file quotes them."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


def make_console() -> Console:
    """Return the console on standard output, which knows whether that is a terminal.

    Under an MPI launcher ranks cannot see this: the process that started the launcher tells them,
    and if that was not Slipstream the output is treated as a log.
    """
    if launched_size() is None:
        return TextConsole()
    is_watched = os.environ.get(TERMINAL) == "1"
    return TextConsole(force_terminal=is_watched, force_interactive=is_watched)


def announce(console: Console, case: Case, description: dict[str, str], folder: Path) -> None:
    """Print the settings of a run, before anything is allocated."""
    table = Table(
        title=Text(f"Slipstream {__version__}  {one_line(case.title)}".rstrip(), style="bold"),
        title_justify="left",
        show_header=False,
        box=box.HORIZONTALS,
    )
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in description.items():
        # Values are plain text: rich would take brackets for mark-up, and terminals escapes.
        table.add_row(name, Text(printable(value)))
    table.add_row("time", f"to t = {case.time.end:g}, {case.stepping}")
    table.add_row("output", Text(printable(str(folder))))
    console.print(table, highlight=False)


def announce_steps(
    console: Console,
    case: Case,
    description: Mapping[str, str],
    time: float,
    step_size: float,
    restart: str | None = None,
    most: int | None = None,
    courant: float | None = None,
) -> None:
    """Print where the run continues from, the first time step, and the expected number of steps.

    `restart` is the folder with the state that is resumed, `most` the largest number of steps, and
    `courant` the Courant number of a fixed step, if it has one.
    """
    origin = "" if restart is None else f"resuming {restart} from t = {time:.6g}"
    known = [text if name == "step" else f"{name}: {text}" for name, text in description.items()]
    for text in filter(None, (*known, origin)):
        _print_line(console, text)
    # An end that is out of reach has more steps than a number counts.
    exact = (case.time.end - time) / step_size - 1e-9
    steps = max(1, math.ceil(min(exact, _MOST_STEPS))) * case.steps_at_once
    if most is not None:
        steps = min(steps, most)
    number_of_steps = counted(steps, "step") if exact < _MOST_STEPS else f"{exact:.1g} steps"
    is_fixed = case.fixed_step is not None
    kind = "time step" if is_fixed else "first time step"
    about = ("at most " if case.ends_early else "") if is_fixed else "about "
    size = step_size / case.steps_at_once
    number = "" if courant is None else f" (Courant number {courant:.3g})"
    console.print(f"{kind} {size:.4g}{number}, {about}{number_of_steps}", highlight=False)


def show_warnings(console: Console, warnings: Iterable[str]) -> None:
    """Print warnings, a line each."""
    for text in warnings:
        console.print(Text(printable(f"warning: {text}"), style="yellow"), soft_wrap=True)


class Progress:
    """A progress display between two times or step numbers, as a context manager.

    `state` describes the simulation before the first update.
    """

    def __init__(self, console: Console, start: float, end: float, state: str = "") -> None:
        self._console = console
        self._start, self._end = start, end
        self._tenths = 0
        self._began = clock.perf_counter()
        self._bar: RichProgress | None = None
        # Rich's own bar needs ipywidgets in notebooks.
        in_notebook = console.is_jupyter and not console.quiet
        self._notebook = NotebookBar() if in_notebook else None
        if console.is_terminal and not console.quiet:
            self._bar = RichProgress(
                BarColumn(bar_width=None),
                TextColumn("{task.percentage:>3.0f} %  {task.fields[state]}"),
                TimeRemainingColumn(compact=True),
                console=console,
                refresh_per_second=4,
            )
            self._task = self._bar.add_task("", total=end - start, state=state)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_details: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._notebook is not None:
            self._notebook.close()

    def warn(self, warnings: Iterable[str]) -> None:
        """Print warnings, above the bar."""
        show_warnings(self._console, warnings)

    def update(self, time: float, state: str, end: float | None = None) -> None:
        """Show the time or step reached, and what the simulation says of its state.

        `end` is the expected end of the run, by default the end of the case.
        """
        whole = (self._end if end is None else end) - self._start
        if self._bar is not None:
            self._bar.update(self._task, completed=time - self._start, total=whole, state=state)
            return
        if self._notebook is not None:
            self._notebook.update((time - self._start) / whole, state)
            return
        tenths = int(10 * (time - self._start) / whole + 1e-9)
        if tenths > self._tenths:
            self._tenths = tenths
            elapsed = duration(clock.perf_counter() - self._began)
            self._console.print(f"{10 * tenths:3d} %  {state}, {elapsed}", highlight=False)


class CompilingLine:
    """Announces kernels that are compiled for the first time, as a context manager.

    On a terminal a line counts them until they are ready.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._before, self._began = COUNT.compiled, 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> CompilingLine:
        if not self._console.quiet:
            with signals_held:
                self._thread.start()
        return self

    def __exit__(self, *_details: object) -> None:
        with signals_held:
            self._is_over.set()
            if self._console.quiet:
                return
            self._thread.join()
            if self._live is not None:
                self._live.stop()
        done = COUNT.compiled - self._before
        if self._began and done:
            took = duration(clock.perf_counter() - self._began)
            _print_line(self._console, f"compiled {counted(done, 'kernel')} in {took}")

    def _watch(self) -> None:
        while not self._is_over.wait(0.05):
            if COUNT.running:
                break
        else:
            return
        self._began = clock.perf_counter()
        if self._console.is_terminal and not self._console.is_jupyter:
            self._live = Live(get_renderable=self._progress, console=self._console, transient=True)
            self._live.start()
        else:
            _print_line(self._console, "compiling kernels (once) ...")

    def _progress(self) -> Text:
        done = COUNT.compiled - self._before
        number = done + COUNT.running + COUNT.waiting
        return Text(f"compiling {number} kernels (once) ... {done} done")


@dataclass(frozen=True)
class Summary:
    """The results and the cost of a finished run."""

    # Seconds from announcement to end.
    wall: float
    steps: int
    time: float
    # Number of grid points; None leaves it to the results to say how fast the run was.
    points: int | None
    # Seconds by part of the run, one after the other; one of them is `STEPPING`.
    parts: dict[str, float] = field(default_factory=dict)
    # Seconds in the time steps by category of work, mean over ranks. Work that overlaps counts in
    # each, so they may sum to more than the time steps took.
    timers: dict[str, float] = field(default_factory=dict)
    # The reason that ended the run before its end time, such as the key of a limit.
    stopped_by: str = ""
    folder: Path = Path()
    pictures: list[Path] = field(default_factory=list)
    # Results by name: a value and a remark.
    results: dict[str, tuple[str, str]] = field(default_factory=dict)
    # The page of the run, if one was written.
    report: list[Path] = field(default_factory=list)
    # Files that only this solver family writes.
    extras: list[Path] = field(default_factory=list)
    # The next step for the user if the run has not reached its goal.
    advice: str = ""


def summarise(console: Console, summary: Summary) -> None:
    """Print the results and the cost of a finished run."""
    table = Table(show_header=False, box=box.HORIZONTALS)
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_column(justify="right", style="dim")
    table.add_row("steps", str(summary.steps), f"to t = {summary.time:.6g}")
    table.add_row("wall time", duration(summary.wall), "")
    stepping = summary.parts.get(STEPPING, 0.0)
    if summary.steps and stepping > 0:
        per_step = stepping / summary.steps
        table.add_row("time per step", quantity(per_step, "s"), "")
        if summary.points is not None:
            table.add_row("throughput", quantity(summary.points / per_step, "points/s"), "")
    table.add_section()
    for name, (value, remark) in summary.results.items():
        table.add_row(Text(printable(name)), Text(printable(value)), Text(printable(remark)))
    table.add_section()
    rest = max(summary.wall - sum(summary.parts.values()), 0.0)
    for name, seconds in {**summary.parts, REST: rest}.items():
        table.add_row(name, duration(seconds), f"{100 * seconds / summary.wall:.0f} %")
        if name == STEPPING:
            for category, inner in inner_times(seconds, summary.timers):
                table.add_row(f"  {category}", Text(duration(inner), style="dim"), "")
    console.print(table, highlight=False)
    if summary.stopped_by:
        _print_line(
            console, f"stopped after {counted(summary.steps, 'step')}: {summary.stopped_by}"
        )
    if summary.advice:
        _print_line(console, summary.advice)
    written = {
        "picture: ": summary.pictures,
        "written: ": summary.extras,
        "report:  ": summary.report,
        "output:  ": [summary.folder],
    }
    for heading, paths in written.items():
        for path in paths:
            _print_line(console, f"{heading}{path}")


def _print_line(console: Console, text: str) -> None:
    """Print text with paths and names, which are neither mark-up nor escapes."""
    console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


def list_of_cases() -> Group:
    """Return a table of the shipped cases, and how to run and copy one."""
    table = Table(box=box.HORIZONTALS)
    table.add_column("name", no_wrap=True)
    table.add_column("what it is")
    table.add_column("family", no_wrap=True)
    table.add_column("size", no_wrap=True)
    table.add_column("2 cores", no_wrap=True)
    for name, shipped in SHIPPED_CASES.items():
        tables, _ = read_tables(name)
        table.add_row(name, shipped.what, tables["solver"], _size_of(tables), shipped.duration)
    return Group(
        table,
        "run one:        slipstream run taylor-green",
        "copy one:       slipstream new mine --from taylor-green",
        "make it small:  slipstream run taylor-green --set grid.points=64",
    )


def _size_of(tables: Mapping[str, Any]) -> str:
    """Return the number of points, or voxels, along the axes."""
    size = tables["image"]["shape"] if "image" in tables else tables["grid"]["points"]
    sizes = size if isinstance(size, list) else [size] * 3
    sizes = [one for one in sizes if one > 1]
    if len(set(sizes)) == 1:
        return f"{sizes[0]}^{len(sizes)}"
    return " x ".join(map(str, sizes))


@dataclass(frozen=True)
class PartVerdict:
    """The verdict of `slipstream verify` on a part of a run, between two steps."""

    # From where it was repeated, for people.
    origin: str
    start: int
    end: int
    # Why it could not be repeated, and why its bits may differ without an error.
    problem: str = ""
    doubt: str = ""
    # Numbers of digests, and rows of the series, that were compared.
    digests: int = 0
    rows: int = 0
    # Between which steps it deviates from the record; twice the same if it begins so.
    deviates: tuple[int, int] | None = None
    # The largest difference of diagnostics, relative to the largest value of each.
    difference: float = 0.0
    # Whether small differences have grown so much that later rows were not compared.
    is_lost: bool = False
    # Other changes since the run was computed.
    other_software: tuple[str, ...] = ()

    @property
    def steps(self) -> str:
        """The first and last step for people."""
        return str(self.end) if self.start == self.end else f"{self.start} to {self.end}"

    @property
    def remarks(self) -> list[str]:
        """Remarks that are too long for a table."""
        return [
            f"steps {self.steps}: {text}" for text in (self.problem, *self.other_software) if text
        ]

    @property
    def text(self) -> str:
        """The verdict in words."""
        if self.problem:
            return "cannot be repeated"
        if self.deviates is not None:
            low, high = self.deviates
            where = f"at step {high}" if low == high else f"between steps {low} and {high}"
            by = f" by {self.difference:.2g}" if self.difference else ""
            return f"DEVIATES {where}{by}"
        if self.doubt:
            end = ", until small differences had grown" if self.is_lost else ""
            return (
                f"other bits, {self.doubt}; the same but for rounding: {counted(self.rows, 'row')}"
                f" to within {self.difference:.1g}{end}"
            )
        return "the same bits"


def verification_table(verdicts: Sequence[PartVerdict]) -> Table:
    """Return a row for each part."""
    table = Table(box=box.HORIZONTALS)
    for name in ("from", "steps", "digests"):
        table.add_column(name, justify="left" if name == "from" else "right")
    table.add_column("result", overflow="fold")
    for verdict in verdicts:
        style = (
            "bold red"
            if verdict.deviates
            else "yellow"
            if verdict.problem or verdict.doubt
            else "green"
        )
        cells = printable(verdict.origin), verdict.steps, str(verdict.digests)
        table.add_row(*map(Text, cells), Text(printable(verdict.text), style=style))
    return table
