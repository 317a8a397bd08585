"""The progress of a run, read from its folder, and ``slipstream watch``, which shows it.

The run may be on another machine. The folder may not exist yet, files may be half written, and a
run that was killed leaves no note: the time since its last sign of life shows it.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time as clock
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slipstream.engine.errors import InputError
from slipstream.engine.text import duration, one_line, printable
from slipstream.files.checkpoint import CHECKPOINTS_NAME
from slipstream.files.run_folder import RUN_RECORD_NAME, SERIES_NAME, RunFolder, RunRecord, Segment
from slipstream.files.time_series import SeriesTail

# Files whose changes show that a run is alive.
_SIGNS = (SERIES_NAME, RUN_RECORD_NAME, "run.log", CHECKPOINTS_NAME)
# Seconds for which a run may be silent: a log has a line every ten minutes at least.
_LONGEST_SILENCE = 900.0
# Seconds for which signs of life count, even if the process is missing: another machine may have
# the same name.
_SHORTEST_SILENCE = 10.0
# Seconds of watching from which the speed is taken.
_WINDOW = 120.0

# Conditions of a run.
WAITING = "waiting"
RUNNING = "running"
SILENT = "silent"
KILLED = "killed"
FAILED = "failed"
# The end of a segment: the words for a line; for a page, whether all is well, and its words.
ENDINGS = {
    "end": ("ended", "good", "finished: end time reached"),
    "finished": ("finished: steady", "good", "finished: the flow is steady"),
    "interrupted": ("interrupted", "warn", "interrupted: can be resumed"),
    "wall": ("stopped by time.wall", "warn", "ended by time.wall: can be resumed"),
    "max_steps": ("stopped by time.max_steps", "warn", "ended by time.max_steps: can be resumed"),
    "stopped": ("stopped by its program", "warn", "stopped by its program: can be resumed"),
    "failed": (FAILED, "warn", "failed"),
}
_BARS = "▁▂▃▄▅▆▇█"
# Positive values that span more than this are drawn by their logarithms.
_SPAN = 1e3
# Columns that are shown first, if they exist.
_MAIN = (
    "energy",
    "velocity_energy",
    "magnetic_energy",
    "dissipation",
    "injection",
    "enstrophy",
    "kmax_eta",
    "budget_residual",
    "permeability_millidarcy",
    "permeability_lattice",
    "residual",
    "mach",
    "error_rms",
    "error_max",
)
_NO_SERIES = ("step", "time")
# Diagnostics that are shown, at most.
_ROWS = 8
# Warnings that are shown: the last ones.
_WARNINGS = 3
# Characters of a bar or a curve, at least.
_NARROWEST = 10


@dataclass
class RunStatus:
    """The state of a run at a moment; unknown entries are empty or not-a-number."""

    # "waiting" (for a folder with a run), "running", "silent" (for too long), "killed", or how it
    # has ended.
    state: str = WAITING
    # Whether nothing more is to be expected of it.
    is_over: bool = False
    title: str = ""
    # Number of times that it was started.
    segments: int = 0
    step: float = math.nan
    time: float = math.nan
    # Begin and end of this segment: it ends earlier than its case says if the flow is steady.
    start: float = math.nan
    end: float = math.nan
    steps_per_second: float = math.nan
    # Seconds that it will still take, and since the last sign of life.
    remaining: float = math.nan
    silence: float = math.nan
    # Step of the last state, and its age in seconds.
    state_step: float = math.nan
    state_age: float = math.nan
    # Machine, devices and ranks.
    where: str = ""
    # Of this segment.
    warnings: list[str] = field(default_factory=list)
    # The error that ended it, or the fault of its files.
    error: str = ""

    @property
    def fraction(self) -> float:
        """The share of this segment's time that is over; not-a-number if unknown."""
        length = self.end - self.start
        done = (self.time - self.start) / length if length > 0 else math.nan
        return min(max(done, 0.0), 1.0) if math.isfinite(done) else math.nan


class RunWatcher:
    """Reads the progress of a run from its folder, repeatedly; it writes nothing."""

    def __init__(self, folder: str | Path | RunFolder) -> None:
        self._run = folder if isinstance(folder, RunFolder) else None
        self.folder = folder.path if isinstance(folder, RunFolder) else Path(folder)
        self._faults: list[str] = []
        self.series = SeriesTail(self.folder / SERIES_NAME)
        # Progress of the run while it was watched: seconds by the clock, step and time.
        self._seen: list[tuple[float, float, float]] = []

    def look(self) -> RunStatus:
        """Return the present progress."""
        status = RunStatus()
        record = RunRecord()
        run = self._entered()
        if run is None:
            return status
        try:
            record = run.record()
        except InputError as error:
            status.error = str(error)
        self.series.read()
        segment = record.segments[-1] if record.segments else None
        if segment is None and not len(self.series):
            return status
        status.title, status.segments = record.title, len(record.segments)
        self._add_place(status, segment)
        self._add_state(status, segment, run)
        self._add_end(status, segment)
        if not status.is_over:
            self._add_speed(status, segment, run)
        for path in run.states()[:1]:
            name = f"{CHECKPOINTS_NAME}/{path.name}"
            status.state_step = float(path.name.partition(".")[0].partition("-")[0])
            status.state_age = max(0.0, clock.time() - _time_of_change(run, name))
        if segment is not None:
            devices = ", ".join(segment.devices)
            ranks = f"{segment.ranks} ranks" if segment.ranks != 1 else ""
            status.where = "; ".join(filter(None, (segment.host, devices, ranks)))
            status.warnings = list(dict.fromkeys(segment.warnings))
            status.error = status.error or (segment.error or "")
        status.warnings += self._faults
        return status

    def _entered(self) -> RunFolder | None:
        """Return the folder, entered once it exists, and again if another replaces it."""
        if self._run is None or not self._run.is_there:
            self._run = None
            try:
                os.lstat(self.folder)
            except FileNotFoundError:
                return None
            except (OSError, ValueError):
                pass  # to enter it says why
            self._run = RunFolder(self.folder)
            self._faults = self._run.faults((SERIES_NAME,))
            self.series = self._run.follow()
        return self._run

    def _add_place(self, status: RunStatus, segment: Segment | None) -> None:
        """Add step and time: of the last row, or of the last state if that is later."""
        status.step, status.time = self.series.last("step"), self.series.last("time")
        if segment is None:
            times = self.series.values("time")
            status.start = float(times[0]) if times.size else math.nan
            return
        status.start = segment.from_time
        if not status.time >= segment.to_time:
            status.step, status.time = float(segment.to_step), segment.to_time

    def _add_state(self, status: RunStatus, segment: Segment | None, run: RunFolder) -> None:
        latest = max(_time_of_change(run, name) for name in _SIGNS)
        status.silence = max(0.0, clock.time() - latest)
        status.state = RUNNING
        if segment is None:  # no record of how it ended
            status.state = RUNNING if status.silence < _LONGEST_SILENCE else SILENT
        elif segment.ended is not None:
            status.state, status.is_over = ENDINGS[segment.ended_by or "end"][0], True
        elif status.silence > _SHORTEST_SILENCE and _is_gone(segment):
            status.state, status.is_over = KILLED, True
        elif status.silence > _LONGEST_SILENCE:
            status.state = SILENT

    def _add_end(self, status: RunStatus, segment: Segment | None) -> None:
        """Add where the run is to end: earlier if its flow is steady before."""
        if segment is None:
            return
        if segment.end_time is not None:
            status.end = status.time if segment.ended_by == "finished" else segment.end_time
        tolerance = _tolerance(segment.case)
        if tolerance is not None and not status.is_over:
            steady = steady_at(
                self.series.values("time"), self.series.values("residual"), tolerance
            )
            if steady is not None:
                status.end = min(status.end, max(steady, status.time))

    def _add_speed(self, status: RunStatus, segment: Segment | None, run: RunFolder) -> None:
        """Add steps per second: since it is watched, or else since this segment began."""
        now = clock.time()
        here = now, status.step, status.time
        if not self._seen or here[1:] != self._seen[-1][1:]:
            self._seen.append(here)
        while len(self._seen) > 2 and now - self._seen[1][0] > _WINDOW:
            del self._seen[0]
        first, last = self._seen[0], self._seen[-1]
        seconds, steps, length = (b - a for a, b in zip(first, last, strict=True))
        if not (seconds > 0 and steps > 0) and segment is not None:
            began = math.nan
            with contextlib.suppress(ValueError):
                began = datetime.fromisoformat(segment.began).timestamp()
            seconds = _time_of_change(run, SERIES_NAME) - began
            steps, length = status.step - segment.from_step, status.time - segment.from_time
        if seconds > 0 and steps > 0:
            status.steps_per_second = steps / seconds
            if length > 0 and math.isfinite(status.end):
                status.remaining = max(0.0, status.end - status.time) * seconds / length


def steady_at(times: np.ndarray, residuals: np.ndarray, tolerance: float) -> float | None:
    """Return when a distance from the steady state will be within a tolerance, at its last pace."""
    known = (residuals > 0) & (residuals < 1)
    times, residuals = times[known], residuals[known]
    if times.size < 3 or not tolerance > 0:
        return None
    late = slice(-max(3, times.size // 3), None)
    pace, offset = np.polyfit(times[late], np.log(residuals[late]), 1)
    if not pace < 0:
        return None
    return float((math.log(tolerance) - offset) / pace)


def _tolerance(case: str) -> float | None:
    """Return the tolerance of a case that ends when its flow is steady."""
    try:
        said: Mapping[str, Any] = tomllib.loads(case)
        value = float(said["convergence"]["tolerance"])
    except (ValueError, KeyError, TypeError):
        return None
    return value if value > 0 else None


def _time_of_change(run: RunFolder, name: str) -> float:
    """Return when a file was changed, by the clock of its machine; 0 if there is none."""
    status = run.status(name)
    return 0.0 if status is None else status.st_mtime


def _is_gone(segment: Segment) -> bool:
    """Return whether the process of a segment is known to have gone: on this machine alone."""
    if segment.host != socket.gethostname() or segment.pid <= 0:
        return False
    try:
        os.kill(segment.pid, 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False


def watch(
    folder: str | Path,
    console: Console,
    *,
    once: bool = False,
    interval: float = 2.0,
    names: tuple[str, ...] = (),
    sleep: Callable[[float], None] = clock.sleep,
) -> None:
    """Show the progress of a run until it ends, or only `once`; it may run on another machine.

    On a terminal the display is renewed in place every `interval` seconds; elsewhere a line is
    added when something has changed. `names` are the columns to show, by default the main ones;
    `sleep` waits between two looks. Unless `once`, the folder may be yet to come.
    """
    if not interval > 0:
        raise InputError(f"--interval {interval:g}; accepted: a number of seconds more than 0")
    watcher = RunWatcher(folder)
    status = watcher.look()
    if once:
        if status.state == WAITING:
            raise InputError(status.error or f"{folder}: no run is there, or none has begun yet")
        _check_names(watcher, names)
        console.print(picture(watcher, status, console.width, names), highlight=False)
        return
    before = ""
    in_place = Live(console=console, auto_refresh=False) if console.is_terminal else None
    with in_place or contextlib.nullcontext():
        while True:
            status = watcher.look()
            if in_place is not None:
                in_place.update(picture(watcher, status, console.width, names), refresh=True)
            elif (text := line(watcher, status, names)) != before:
                now = datetime.now().strftime("%H:%M:%S")
                console.print(f"{now}  {text}", markup=False, highlight=False, soft_wrap=True)
                before = text
            if status.is_over:
                break
            sleep(interval)
    if status.error and in_place is None:
        console.print(one_line(status.error), markup=False, highlight=False)


def _check_names(watcher: RunWatcher, names: tuple[str, ...]) -> None:
    known = [name for name in watcher.series.columns if name not in _NO_SERIES]
    for name in names:
        if name not in known:
            raise InputError(f"--series {name!r} is unknown; accepted: {', '.join(known)}")


def shown_columns(series: SeriesTail, names: tuple[str, ...] = ()) -> list[str]:
    """Return the columns of a series that are shown."""
    if names:
        return [name for name in names if name in series.columns]
    main = [name for name in _MAIN if name in series.columns]
    rest = [name for name in series.columns if name not in (*_MAIN, *_NO_SERIES)]
    changing = [name for name in rest if np.unique(series.values(name)).size > 1]
    return [*main, *changing][:_ROWS]


# -- as one line -----------------------------------------------------------------------------------


def line(watcher: RunWatcher, status: RunStatus, names: tuple[str, ...] = ()) -> str:
    """Return the progress of a run as a line."""
    if status.state == WAITING:
        return f"waiting for a run in {watcher.folder}"
    parts = [place_text(status), state_text(status), speed_text(status)]
    shown = shown_columns(watcher.series, names)[: len(names) or 2]
    parts += [f"{name} {watcher.series.last(name):.4g}" for name in shown]
    return ", ".join(filter(None, parts))


def place_text(status: RunStatus) -> str:
    """Return step and time, and the end time."""
    if not math.isfinite(status.time):
        return "not begun"
    text = f"step {status.step:.0f}, t = {status.time:.5g}"
    if math.isfinite(status.end):
        text += f" of {status.end:.5g}"
    return text


def state_text(status: RunStatus) -> str:
    """Return the state of a run in words."""
    if status.state == SILENT:
        return f"no sign of life for {duration(status.silence)}: slow, or killed elsewhere"
    if status.state == KILLED:
        return "killed: its process is gone"
    return status.state


def speed_text(status: RunStatus) -> str:
    """Return the speed of a run, and the time left."""
    parts = []
    if math.isfinite(status.steps_per_second):
        parts.append(f"{status.steps_per_second:.3g} steps/s")
    if math.isfinite(status.remaining) and status.state == RUNNING:
        left = status.remaining
        parts.append(f"{duration(left)} left" if left > 0 else "finishing")
    return ", ".join(parts)


# -- as a picture ----------------------------------------------------------------------------------


def picture(
    watcher: RunWatcher, status: RunStatus, width: int, names: tuple[str, ...] = ()
) -> RenderableType:
    """Return the progress of a run, with its main series as sparklines."""
    if status.state == WAITING:
        return Text(f"waiting for a run in {watcher.folder}", "dim")
    title = one_line(status.title) or str(watcher.folder)
    where = " | ".join(filter(None, (str(watcher.folder), status.where)))
    style = {KILLED: "bold red", FAILED: "bold red", SILENT: "yellow"}.get(status.state, "green")
    begun = f", started {status.segments} times" if status.segments > 1 else ""
    parts: list[RenderableType] = [
        Text(printable(title), "bold", overflow="ellipsis", no_wrap=True),
        Text(printable(where), "dim", overflow="ellipsis", no_wrap=True),
        Text(state_text(status), style).append(begun, "default"),
        Text(", ".join(filter(None, (place_text(status), speed_text(status))))),
    ]
    if math.isfinite(status.fraction):
        bar = Table.grid(padding=(0, 1), expand=False)
        bar.add_column()
        bar.add_column(justify="right", width=5)
        bar.add_row(
            ProgressBar(1.0, status.fraction, width=max(_NARROWEST, min(width, 100) - 8)),
            f"{status.fraction:.0%}",
        )
        parts.append(bar)
    if shown := shown_columns(watcher.series, names):
        parts.append(_series_table(watcher, shown, width))
    if math.isfinite(status.state_step):
        age = duration(status.state_age)
        parts.append(Text(f"last state: step {status.state_step:.0f}, {age} ago", "dim"))
    latest = status.warnings[-_WARNINGS:]
    if len(status.warnings) > len(latest):
        parts.append(Text(f"{len(status.warnings)} warnings, the last ones:", "yellow"))
    parts += [Text(printable(f"warning: {one_line(text)}"), "yellow") for text in latest]
    if status.error:
        parts.append(Text(printable(f"error: {one_line(status.error)}"), "red"))
    return Group(*parts)


def _series_table(watcher: RunWatcher, shown: list[str], width: int) -> Table:
    times = watcher.series.values("time")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    longest = max(map(len, shown))
    table.add_column("", style="dim", no_wrap=True)
    room = max(_NARROWEST, min(width, 120) - longest - 3 * 11 - 6)
    table.add_column("", no_wrap=True, width=room)
    for heading in ("now", "least", "most"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in shown:
        values = watcher.series.values(name)
        # The first row of what compares rows is not a number.
        finite = values[np.isfinite(values)]
        range_ = (finite.min(), finite.max()) if finite.size else (math.nan, math.nan)
        cells = [f"{number:.4g}" for number in (watcher.series.last(name), *range_)]
        table.add_row(Text(name), sparkline(times, values, room), *cells)
    return table


def sparkline(times: np.ndarray, values: np.ndarray, width: int) -> str:
    """Return values against time as a line of at most `width` characters.

    Each is the mean of a part of the time; parts without a finite value are left blank.
    """
    finite = np.isfinite(values) & np.isfinite(times)
    times, values = times[finite], values[finite]
    if not values.size or width < 1:
        return ""
    if values.min() > 0 and values.max() > _SPAN * values.min():
        values = np.log(values)
    width = min(width, values.size)
    span = times[-1] - times[0]
    parts = (times - times[0]) / span * width if span > 0 else np.zeros(times.size)
    places = np.clip(parts.astype(int), 0, width - 1)
    counts = np.bincount(places, minlength=width)
    sums = np.bincount(places, values, width)
    with np.errstate(invalid="ignore"):
        means = sums / counts
    low, high = np.nanmin(means), np.nanmax(means)
    # Values that differ by rounding alone are level.
    scale = high - low if high - low > 1e-12 * max(abs(low), abs(high)) else 0.0
    text = ""
    for mean, count in zip(means, counts, strict=True):
        height = (mean - low) / scale if scale else 0.5
        text += _BARS[min(int(height * len(_BARS)), len(_BARS) - 1)] if count else " "
    return text
