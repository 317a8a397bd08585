"""``slipstream watch RUN``: how far a run is, in a terminal, or as lines of text."""

from __future__ import annotations

import contextlib
import math
import time as clock
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from slipstream.errors import InputError
from slipstream.io.time_series import SeriesTail
from slipstream.printable_text import one_line, printable
from slipstream.report.number_text import duration
from slipstream.report.run_status import (
    FAILED,
    KILLED,
    RUNNING,
    SILENT,
    WAITING,
    RunStatus,
    RunWatcher,
)

_BARS = "▁▂▃▄▅▆▇█"
# Positive values that span more than this are drawn by their logarithms.
_SPAN = 1e3
# Shown first, where there are any; then others, up to so many rows.
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
_ROWS, _WARNINGS, _NARROWEST = 8, 3, 10


def watch(
    folder: str | Path,
    console: Console,
    *,
    once: bool = False,
    interval: float = 2.0,
    names: tuple[str, ...] = (),
    sleep: Callable[[float], None] = clock.sleep,
) -> None:
    """Show how far a run is until it is over; it may run on another machine.

    Parameters
    ----------
    folder : str or pathlib.Path
        The run's folder. Unless `once`, it may be yet to come.
    console : rich.console.Console
        Where to print. On a terminal the picture is renewed in place, elsewhere a line is added
        when something has changed.
    once : bool
        Print the present state, and return.
    interval : float
        Seconds between two looks.
    names : tuple of str
        Columns of the series to show; by default the main ones.
    sleep : callable
        What waits between two looks.

    Raises
    ------
    InputError
        If there is no run to show once, or no such column.
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
    """Return which of the columns of a series are shown."""
    if names:
        return [name for name in names if name in series.columns]
    main = [name for name in _MAIN if name in series.columns]
    rest = [name for name in series.columns if name not in (*_MAIN, *_NO_SERIES)]
    changing = [name for name in rest if np.unique(series.values(name)).size > 1]
    return [*main, *changing][:_ROWS]


# -- as one line -----------------------------------------------------------------------------------


def line(watcher: RunWatcher, status: RunStatus, names: tuple[str, ...] = ()) -> str:
    """Return how far a run is, as a line."""
    if status.state == WAITING:
        return f"waiting for a run in {watcher.folder}"
    parts = [place_text(status), state_text(status), speed_text(status)]
    shown = shown_columns(watcher.series, names)[: len(names) or 2]
    parts += [f"{name} {watcher.series.last(name):.4g}" for name in shown]
    return ", ".join(filter(None, parts))


def place_text(status: RunStatus) -> str:
    """Return step and time, and what that is of the whole."""
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
    """Return how fast a run is, and what remains."""
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
    """Return how far a run is, with its main series as sparklines."""
    if status.state == WAITING:
        return Text(f"waiting for a run in {watcher.folder}", "dim")
    parts: list[RenderableType] = []
    title = one_line(status.title) or str(watcher.folder)
    parts.append(Text(printable(title), "bold", overflow="ellipsis", no_wrap=True))
    where = " | ".join(filter(None, (str(watcher.folder), status.where)))
    parts.append(Text(printable(where), "dim", overflow="ellipsis", no_wrap=True))
    style = {KILLED: "bold red", FAILED: "bold red", SILENT: "yellow"}.get(status.state, "green")
    begun = f", started {status.segments} times" if status.segments > 1 else ""
    parts.append(Text(state_text(status), style).append(begun, "default"))
    parts.append(Text(", ".join(filter(None, (place_text(status), speed_text(status))))))
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
    told = status.warnings[-_WARNINGS:]
    if len(status.warnings) > len(told):
        parts.append(Text(f"{len(status.warnings)} warnings, the last ones:", "yellow"))
    parts += [Text(printable(f"warning: {one_line(text)}"), "yellow") for text in told]
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
    """Return values against time as a line of so many characters at most.

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
    # What differs by rounding alone is level.
    scale = high - low if high - low > 1e-12 * max(abs(low), abs(high)) else 0.0
    text = ""
    for mean, count in zip(means, counts, strict=True):
        height = (mean - low) / scale if scale else 0.5
        text += _BARS[min(int(height * len(_BARS)), len(_BARS) - 1)] if count else " "
    return text
