"""Keeping the record of a run, ``run.json``, and its log, ``run.log``, while it is under way.

The log has progress lines, warnings, and the names of written files. It continues in each
segment of the run. A log that cannot be written ends no run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from slipstream import __version__
from slipstream.accepted import LOG_LEVELS
from slipstream.collective import on_first_rank
from slipstream.errors import InputError
from slipstream.io.output_folder import RUN_LOG_NAME, OutputFolder
from slipstream.io.run_record import (
    RUN_RECORD_NAME,
    Change,
    EndedBy,
    RunRecord,
    Segment,
    write_run_record,
)
from slipstream.machine_info import commit_name, compiler_name, mpi_library
from slipstream.printable_text import one_line
from slipstream.simulation.simulation_base import Simulation

# Of names of machines, and of warnings: what more there are would only make the file long.
_MOST_HOSTS, _MOST_WARNINGS = 8, 1000
# Seconds between lines about the progress of a run: at first, at most, and as a share of its age.
_FIRST, _MOST, _SHARE = 30.0, 600.0, 0.05
_LONGEST_LINE = 4000


class RunRecorder:
    """The record of a run, with a segment for this process.

    Its methods are collective, unless they say so. Making it writes nothing; `begin` does. A record
    that cannot be read begins again.
    """

    def __init__(
        self,
        simulation: Simulation,
        output: OutputFolder,
        description: Mapping[str, str],
        settings: Sequence[str] = (),
    ) -> None:
        self._simulation, self._output = simulation, output
        hosts, devices = hosts_and_devices(simulation)
        case = simulation.case
        self._record = RunRecord()
        self._changes_before = len(simulation.changes)
        self._segment = Segment(
            command=_command(),
            settings=list(settings),
            began=_now(),
            from_step=simulation.step,
            from_time=simulation.time,
            end_time=case.time.end,
            version=__version__,
            host=", ".join(hosts[:_MOST_HOSTS]) + (" ..." if len(hosts) > _MOST_HOSTS else ""),
            pid=os.getpid(),
            ranks=simulation.ranks,
            devices=devices,
            python=platform.python_version(),
            numpy=np.__version__,
            case=case.to_toml(),
            description=dict(description),
            pictures=dataclasses.asdict(simulation.pictures()),
        )

    def begin(self) -> None:
        """Add this segment to what the folder has."""

        def start() -> None:
            segment, case = self._segment, self._simulation.case
            segment.commit = commit_name()
            segment.compiler = compiler_name()
            segment.mpi = mpi_library() if self._simulation.comm is not None else ""
            try:
                self._record = self._output.record()
            except InputError as error:
                segment.warnings.append(str(error))
            self._record.title, self._record.family = case.title, case.solver
            self._record.segments.append(segment)
            self._output.wrote(RUN_RECORD_NAME)

        on_first_rank(self._simulation.comm, start)
        self.update()

    @property
    def record(self) -> RunRecord:
        """What is known of the run, on the first rank."""
        return self._record

    @property
    def news(self) -> list[Change]:
        """The changes of settings that have not been written yet."""
        return self._simulation.changes[self._changes_before + len(self._segment.changes) :]

    def update(
        self, parts: Mapping[str, float] | None = None, timers: Mapping[str, float] | None = None
    ) -> None:
        """Write how far the run is."""
        segment, simulation = self._segment, self._simulation
        segment.updated = _now()
        segment.to_step, segment.to_time = simulation.step, simulation.time
        segment.changes += self.news
        if parts is not None:
            segment.parts = dict(parts)
        if timers is not None:
            segment.timers = dict(timers)
        on_first_rank(simulation.comm, self._write)

    def describe_step(self, description: Mapping[str, str]) -> None:
        """Record settings that only the step knows, by name."""
        self._segment.step |= description

    def warn(self, texts: Iterable[str]) -> None:
        """Add warnings, which are written with the next update. Not collective."""
        self._segment.warnings += texts
        del self._segment.warnings[_MOST_WARNINGS:]

    def end(
        self,
        ended_by: EndedBy,
        results: Mapping[str, tuple[str, str]] | None = None,
        parts: Mapping[str, float] | None = None,
        timers: Mapping[str, float] | None = None,
    ) -> None:
        """Write that this segment has ended in order. On the first rank; not collective."""
        segment = self._segment
        segment.results = dict(results or {})
        segment.parts, segment.timers = dict(parts or {}), dict(timers or {})
        self._end(ended_by)

    def fail(self, error: BaseException) -> None:
        """Write what ended this segment. Not collective: ranks may have failed alone."""
        self._segment.error = str(error) or type(error).__name__
        self._end("failed" if isinstance(error, Exception) else "interrupted")

    def _end(self, ended_by: EndedBy) -> None:
        if self._simulation.rank == 0 and self._record.segments:
            segment, simulation = self._segment, self._simulation
            segment.ended = segment.updated = _now()
            segment.changes += self.news
            segment.ended_by = ended_by
            segment.to_step, segment.to_time = simulation.step, simulation.time
            self._write()

    def _write(self) -> None:
        write_run_record(self._output.path, self._record)


def hosts_and_devices(simulation: Simulation) -> tuple[list[str], list[str]]:
    """Return the names of all ranks' machines and devices, each once. Collective."""
    mine = socket.gethostname(), [device.name for device, _ in simulation.memory()]
    ranks = [mine] if simulation.comm is None else simulation.comm.allgather(mine)
    hosts = dict.fromkeys(host for host, _ in ranks)
    devices = dict.fromkeys(name for _, names in ranks for name in names)
    return list(hosts), list(devices)


def _command() -> list[str]:
    """Return the command line; the module `slipstream`, started by Python, by its own name."""
    program, *arguments = sys.argv or [""]
    path = Path(program)
    name = path.parent.name if path.name == "__main__.py" else path.name
    return [name, *arguments]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class RunLog:
    """Appends lines with a date, each with its level; on the first rank only.

    What comes before `begin` is kept until then.
    """

    def __init__(self, folder: Path, level: str = "info", is_first: bool = True) -> None:
        self._path = folder / RUN_LOG_NAME
        self._least = LOG_LEVELS.index(level) if is_first else len(LOG_LEVELS)
        self._waiting: list[str] | None = []
        self._began = self._told = time.monotonic()

    def begin(self, text: str) -> None:
        """Write the first line, and all that has waited for it."""
        waiting, self._waiting = self._waiting or [], None
        self.info(text)
        self._append(waiting)

    def progress(self, text: Callable[[], str]) -> None:
        """Write how far the run is, if it is time to: every 30 seconds at first, then slower."""
        now = time.monotonic()
        if now - self._told >= min(_MOST, max(_FIRST, _SHARE * (now - self._began))):
            self._told = now
            self.info(text())

    def debug(self, text: str) -> None:
        """Write a detail."""
        self._write("debug", text)

    def info(self, text: str) -> None:
        """Write an event."""
        self._write("info", text)

    def warning(self, text: str) -> None:
        """Write a problem that does not end the run."""
        self._write("warning", text)

    def error(self, text: str) -> None:
        """Write the error that has ended the run."""
        self._write("error", text)

    def _write(self, level: str, text: str) -> None:
        if LOG_LEVELS.index(level) < self._least:
            return
        date = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        line = f"{date} {level:7} {one_line(text, _LONGEST_LINE)}\n"
        if self._waiting is None:
            self._append([line])
        else:
            self._waiting.append(line)

    def _append(self, lines: list[str]) -> None:
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.writelines(lines)
