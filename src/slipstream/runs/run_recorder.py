"""The record of a run: ``run.json``, ``run.log``, ``steps.csv``, and the machine it runs on."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import importlib.util
import math
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from slipstream import __version__
from slipstream.engine.accepted import LOG_LEVELS
from slipstream.engine.collective import on_first_rank
from slipstream.engine.device.host_compiler import find_compiler
from slipstream.engine.errors import InputError
from slipstream.engine.private_cache import cache_text
from slipstream.engine.processes import INSTALL_MPI, find_mpiexec, how_to_install
from slipstream.engine.text import one_line
from slipstream.files.folder_seals import KeptOutput, Seal
from slipstream.files.output_folder import RUN_LOG_NAME, OutputFolder
from slipstream.files.run_folder import (
    RUN_RECORD_NAME,
    STEPS_NAME,
    Change,
    EndedBy,
    RunRecord,
    Segment,
    write_run_record,
)
from slipstream.files.time_series import Series
from slipstream.runs.simulation_base import Simulation, StepRun
from slipstream.runs.time_loop import EverySteps

LABELS = {
    "step_size": "size of the steps since the row before (non-dimensional)",
    "digest": "digest of the state, a number of 53 bits",
    "set": "1 if a program had set fields before the first of these steps",
}
# Runs of steps that wait for a digest, at most.
_MOST_WAITING = 1000
# Names of machines in a record: more would only make the file long.
_MOST_HOSTS = 8
# Warnings in a record: more would only make the file long.
_MOST_WARNINGS = 1000
# Seconds between the first lines about the progress of a run.
_FIRST = 30.0
# Seconds between later lines, at most.
_MOST = 600.0
# Seconds between later lines, as a share of the age of the run.
_SHARE = 0.05
# Characters of a line of the log.
_LONGEST_LINE = 4000


def gather_facts() -> dict[str, str]:
    """Return facts about machine and installation, in the order in which to show them."""
    sources: dict[str, Callable[[], str]] = {
        "Slipstream": lambda: __version__,
        "Python": platform.python_version,
        "NumPy": lambda: importlib.metadata.version("numpy"),
        "CPU": _processor,
        "GPU": _graphics_processors,
        "MPI": mpi_library,
        "mpiexec": lambda: find_mpiexec(),
        "C++ compiler": lambda: _compiler_version(*find_compiler()),
        "transports": _transports,
        "cache folder": cache_text,
    }
    return {name: _find_version(source) for name, source in sources.items()}


def _find_version(source: Callable[[], str]) -> str:
    try:
        return source()
    except Exception as error:  # any library may be missing or broken in any way
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return f"not available ({reason})"


def _processor() -> str:
    from slipstream.engine.device.cpu_device import processor_name

    cores = len(os.sched_getaffinity(0))
    return f"{processor_name()}, {cores} {'core' if cores == 1 else 'cores'}"


def _graphics_processors() -> str:
    if importlib.util.find_spec("cupy") is None:
        return f"none: CuPy is not installed; {how_to_install('cuda13')}"
    import cupy

    lines = []
    for index in range(cupy.cuda.runtime.getDeviceCount()):
        properties = cupy.cuda.runtime.getDeviceProperties(index)
        memory = properties["totalGlobalMem"] / 2**30
        lines.append(f"{properties['name'].decode()}, {memory:.0f} GiB")
    return "\n".join(lines) or "none"


def mpi_library() -> str:
    """Return the MPI library and the version of mpi4py."""
    if importlib.util.find_spec("mpi4py") is None:
        return f"none: mpi4py is not installed; {INSTALL_MPI}"
    import mpi4py

    # Asking for the version needs no running MPI, whose start may take long or print.
    mpi4py.rc.initialize = False
    from mpi4py import MPI

    library = MPI.Get_library_version().partition(",")[0].splitlines()[0].strip("\0 ")
    library = " ".join(library.replace("Version:", "").split())  # MPICH's words
    return f"{library}, mpi4py {mpi4py.__version__}"


def compiler_name() -> str:
    """Return the C++ compiler of this machine and its version, or why there is none."""
    return _find_version(lambda: _compiler_version(*find_compiler()))


@functools.cache
def _compiler_version(*command: str) -> str:
    answer = subprocess.run(
        [*command, "--version"], capture_output=True, text=True, check=True, timeout=20
    )
    return answer.stdout.splitlines()[0]


def facts_to_publish() -> dict[str, str]:
    """Return the facts without paths, which are private and explain no figure."""
    return {k: v for k, v in gather_facts().items() if k not in ("cache folder", "mpiexec")}


@functools.cache
def commit_name() -> str:
    """Return the commit of the source tree, marked if changed; "unknown" outside of one."""
    folder, unknown = Path(__file__).parents[1], os.environ.get("SLIPSTREAM_COMMIT", "unknown")
    if "site-packages" in folder.parts:
        return unknown  # where an environment lies within a tree, that is of something else
    git = ["git", "--no-optional-locks", "-C", str(folder)]
    command = [*git, "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return unknown
    return result.stdout.strip() or unknown


def _transports() -> str:
    if importlib.util.find_spec("mpi4py") is None:
        return "none (one rank only)"
    from slipstream.engine.device import cuda_device_count
    from slipstream.engine.exchange import names_on

    return ", ".join(names_on("cuda" if cuda_device_count() else "cpu"))


class StepRecord:
    """Writes the steps of a simulation down. Its methods are collective."""

    def __init__(self, simulation: Simulation, folder: Path) -> None:
        self._simulation, self._folder = simulation, folder
        self._series = self._new_series() if simulation.rank == 0 else None
        self._goes_on = self._is_begun = False
        self._written = -1
        self._every = simulation.case.output.digest_steps
        self._due = EverySteps(self._every or 1, 0)

    def _new_series(self, until: int | None = None, sealed: Seal | None = None) -> Series:
        name = STEPS_NAME.removesuffix(".csv")
        return Series(self._folder, LABELS, name, until, sealed, has_store=False)

    def find(self, kept: KeptOutput) -> None:
        """Find the rows that continue; change nothing."""

        def look() -> bool:
            if not (self._folder / STEPS_NAME).exists() or not kept.goes_on(STEPS_NAME):
                return False
            sealed = (kept.seals or {}).get(STEPS_NAME)
            self._series = self._new_series(self._simulation.step, sealed)
            rows = self._series.last_rows
            return bool(rows) and int(rows[-1]["step"]) == self._simulation.step

        self._goes_on = on_first_rank(self._simulation.comm, look)

    def begin(self) -> None:
        """Begin with the present state, or continue after the rows of before."""
        simulation = self._simulation
        if self._series is not None:
            self._series.begin()
        step, sets = simulation.step, simulation.times_fields_set
        resumed = simulation.resumed
        # Fields that an earlier process set after its last step count as set before the next one.
        earlier = int(resumed is not None and bool(resumed.is_set))
        has_gap = simulation.step_log.begin(step, sets - earlier, self._goes_on)
        self._is_begun = True
        self._written = step if self._goes_on else -1
        self._due.take(simulation.time, step)
        if not self._goes_on or has_gap:
            first = StepRun(step, simulation.time, math.nan, sets > 0 or has_gap)
            self._write([first])

    def is_due(self) -> bool:
        """Return whether a digest is due, or many steps wait; does not communicate."""
        if not self._is_begun:
            return False
        is_full = self._simulation.step_log.waiting > _MOST_WAITING
        return is_full or self._is_digest_due()

    def _is_digest_due(self) -> bool:
        return self._every > 0 and self._due.is_due(self._simulation.time, self._simulation.step)

    def record_if_due(self) -> None:
        """Write the rows that are due."""
        if not self._is_begun:
            return
        if self._is_digest_due():
            self.record()
        elif self._simulation.step_log.waiting > _MOST_WAITING:
            self._append(self._simulation.step_log.take())

    def record(self) -> None:
        """Write all steps up to now, with a digest of the state."""
        simulation = self._simulation
        if self._is_begun and simulation.step != self._written:
            self._write(simulation.step_log.take_until(simulation.step, simulation.time))

    def _write(self, runs: list[StepRun]) -> None:
        simulation = self._simulation
        digest = float(simulation.digest()) if self._every else math.nan
        self._append(runs, digest)
        self._written = simulation.step
        self._due.take(simulation.time, simulation.step)

    def _append(self, runs: list[StepRun], digest: float = math.nan) -> None:
        if self._series is None:
            return
        for number, steps_alike in enumerate(runs, 1):
            is_last = number == len(runs)
            row = {"digest": digest if is_last else math.nan, "set": float(steps_alike.is_set)}
            self._series.append(
                steps_alike.step, steps_alike.time, steps_alike.size, row, is_flushed=is_last
            )

    def seals(self) -> dict[str, Seal]:
        """Return the seal of the file, on the first rank. Not collective."""
        seal = None if self._series is None else self._series.seal()
        return {} if seal is None else {STEPS_NAME: seal}

    def flush(self) -> None:
        """Flush the rows to the disk. Not collective."""
        if self._series is not None:
            self._series.flush()

    def close(self) -> None:
        """Note no more steps, and close the file. Not collective."""
        self._simulation.step_log.pause()
        if self._series is not None:
            self._series.close()


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
            reads_state=simulation.resumed is not None,
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
        """The record so far, on the first rank."""
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

    Lines before `begin` are kept until then.
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
