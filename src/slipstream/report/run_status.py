"""How far a run is, by its folder alone: it may be running on another machine.

The folder may not exist yet, files may be half written, and a run that was killed leaves no note:
the time since its last sign of life shows it.
"""

from __future__ import annotations

import math
import os
import socket
import time as clock
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.errors import InputError
from slipstream.io.checkpoint import CHECKPOINTS_NAME
from slipstream.io.run_folder import SERIES_NAME, RunFolder
from slipstream.io.run_record import RUN_RECORD_NAME, RunRecord, Segment
from slipstream.io.time_series import SeriesTail

# What shows that a run is alive, and for how many seconds it may be silent: a log has a line every
# ten minutes at least.
_SIGNS = (SERIES_NAME, RUN_RECORD_NAME, "run.log", CHECKPOINTS_NAME)
_LONGEST_SILENCE = 900.0
# Another machine may have the same name: a process is not missed while there are signs of life.
_SHORTEST_SILENCE = 10.0
# Over how many seconds of watching the speed is taken.
_WINDOW = 120.0

WAITING, RUNNING, SILENT, KILLED, FAILED = "waiting", "running", "silent", "killed", "failed"
_ENDED = {
    "end": "ended",
    "finished": "finished: steady",
    "interrupted": "interrupted",
    "wall": "stopped by time.wall",
    "max_steps": "stopped by time.max_steps",
    "stopped": "stopped by its program",
    "failed": FAILED,
}


@dataclass
class RunStatus:
    """The state of a run at a moment; unknown entries are empty, None or not-a-number.

    Attributes
    ----------
    state : str
        "waiting" (for a folder with a run), "running", "silent" (too long to be running), "killed",
        or how it has ended.
    is_over : bool
        Whether nothing more is to be expected of it.
    title, family : str
        Of the case.
    segments : int
        How often it was started.
    step, time : float
        How far it is.
    start, end : float
        From where this segment went on, and where it is to end; the latter by convergence, if that
        comes first.
    steps_per_second : float
        Its speed.
    remaining : float
        Seconds that it will still take.
    silence : float
        Seconds since the last sign of life.
    state_step, state_age : float
        Step of the last state, and its age in seconds.
    where : str
        Machine, devices and ranks.
    warnings : list of str
        Of this segment.
    error : str
        The error by which it has failed, or the fault of its files.
    """

    state: str = WAITING
    is_over: bool = False
    title: str = ""
    family: str = ""
    segments: int = 0
    step: float = math.nan
    time: float = math.nan
    start: float = math.nan
    end: float = math.nan
    steps_per_second: float = math.nan
    remaining: float = math.nan
    silence: float = math.nan
    state_step: float = math.nan
    state_age: float = math.nan
    where: str = ""
    warnings: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def fraction(self) -> float:
        """How much of this segment's time is over; not-a-number if that is not known."""
        length = self.end - self.start
        done = (self.time - self.start) / length if length > 0 else math.nan
        return min(max(done, 0.0), 1.0) if math.isfinite(done) else math.nan


class RunWatcher:
    """Looks at the folder of a run again and again; it reads files, and nothing else."""

    def __init__(self, folder: str | Path | RunFolder) -> None:
        self._run = folder if isinstance(folder, RunFolder) else None
        self.folder = folder.path if isinstance(folder, RunFolder) else Path(folder)
        self._faults: list[str] = []
        self.series = SeriesTail(self.folder / SERIES_NAME)
        # When the run was how far, as far as it was watched: by the clock, step and time.
        self._seen: list[tuple[float, float, float]] = []

    def look(self) -> RunStatus:
        """Return how far the run is now."""
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
        status.title, status.family = record.title, record.family
        status.segments = len(record.segments)
        self._add_place(status, segment)
        self._add_state(status, segment, run)
        self._add_end(status, segment)
        if not status.is_over:
            self._add_speed(status, segment, run)
        self._add_last_state(status, run)
        if segment is not None:
            devices = ", ".join(segment.devices)
            ranks = f"{segment.ranks} ranks" if segment.ranks != 1 else ""
            status.where = "; ".join(filter(None, (segment.host, devices, ranks)))
            status.warnings = list(dict.fromkeys(segment.warnings))
            status.error = status.error or (segment.error or "")
        status.warnings += self._faults
        return status

    def _entered(self) -> RunFolder | None:
        """Return the folder, entered as soon as it is there, or if another takes its place."""
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
        now = clock.time()
        signs = [_changed(run, name) for name in _SIGNS]
        status.silence = max(0.0, now - max(signs))
        status.state = RUNNING
        if segment is None:
            # A run of an earlier version has no record of how it ended.
            status.state = RUNNING if status.silence < _LONGEST_SILENCE else SILENT
        elif segment.ended is not None:
            status.state = _ENDED.get(segment.ended_by or "", "ended")
            status.is_over = True
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
            seconds = _changed(run, SERIES_NAME) - _timestamp(segment.began)
            steps, length = status.step - segment.from_step, status.time - segment.from_time
        if seconds > 0 and steps > 0:
            status.steps_per_second = steps / seconds
            if length > 0 and math.isfinite(status.end):
                status.remaining = max(0.0, status.end - status.time) * seconds / length

    def _add_last_state(self, status: RunStatus, run: RunFolder) -> None:
        for path in run.states()[:1]:
            name = f"{CHECKPOINTS_NAME}/{path.name}"
            status.state_step = float(path.name.partition(".")[0].partition("-")[0])
            status.state_age = max(0.0, clock.time() - _changed(run, name))


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


def _changed(run: RunFolder, name: str) -> float:
    """Return when a file has changed, by the clock of who has it; 0 if there is none."""
    status = run.status(name)
    return 0.0 if status is None else status.st_mtime


def _timestamp(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return math.nan


def _is_gone(segment: Segment) -> bool:
    """Return whether the process of a segment is known to have gone: on this machine alone."""
    if segment.host != socket.gethostname() or segment.pid <= 0:
        return False
    try:
        os.kill(segment.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
