"""The record of a run: ``run.json`` in its folder.

A run is made of *segments*, each of them one process, or the ranks of one MPI job, from its start
to its end: the first begins the run, and each later one continues where those before it stopped.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from slipstream.errors import InputError
from slipstream.io.durable_files import flush_folder, replace_file
from slipstream.io.foreign_files import content_of
from slipstream.io.held_paths import as_path
from slipstream.printable_text import one_line

RUN_RECORD_NAME = "run.json"
FORMAT = 1
# Of thousands of segments.
_MOST_BYTES = 1 << 26

EndedBy = Literal["end", "finished", "interrupted", "wall", "max_steps", "stopped", "failed"]


@dataclass
class Change:
    """A setting that was changed while a run was under way.

    Attributes
    ----------
    step, time : int, float
        From which on it was as it is after the change.
    key : str
        Of the case, ``section.key``.
    before, after : object
        Its values; None for none.
    """

    step: int
    time: float
    key: str
    before: Any
    after: Any

    def text(self) -> str:
        """Return it for people."""
        return f"{self.key}: {self.before} -> {self.after}"


@dataclass
class Segment:
    """One process, or one MPI job, that has worked on a run; unknown entries are empty.

    Attributes
    ----------
    command : list of str
        The command line.
    settings : list of str
        What was changed of the case for this segment, each ``section.key=value``.
    changes : list of Change
        What a program changed between two of its steps, in the order in which it did.
    began, updated, ended : str or None
        ISO 8601, UTC; `ended` is None while it is under way, and for ever if it was killed.
    ended_by : str or None
        "end" (of the time of the case), "finished" (a steady flow), "interrupted" (by a signal),
        "wall" (``time.wall``), "max_steps", "stopped" (from Python) or "failed".
    error : str or None
        What has failed.
    from_step, from_time, to_step, to_time : int, float
        Steps and times of the run at which it began, and up to which it is known to have come.
    end_time : float
        ``time.end`` of its case.
    version, commit : str
        Of Slipstream.
    host : str
        Names of the machines, at most a few of them.
    pid : int
        Number of the process, of the first rank.
    ranks : int
        How many there were.
    devices : list of str
        What computed, each kind once.
    mpi, compiler, python, numpy : str
        Versions; "" of MPI where there was one process.
    case : str
        The effective case, as TOML.
    description, step : dict of str to str
        The choices, as they were announced; and those known only for the step.
    parts, timers : dict of str to float
        Seconds by part of the run, and by category of work within the steps.
    results : dict of str to list
        What was found out: a value and a remark for people, by name.
    warnings : list of str
        In the order in which they came.
    pictures : dict of str to object
        What is drawn: a `slipstream.simulation.solver_values.PictureChoice`.
    """

    command: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    began: str = ""
    updated: str = ""
    ended: str | None = None
    ended_by: EndedBy | None = None
    error: str | None = None
    from_step: int = 0
    from_time: float = 0.0
    to_step: int = 0
    to_time: float = 0.0
    end_time: float | None = None
    version: str = ""
    commit: str = ""
    host: str = ""
    pid: int = 0
    ranks: int = 1
    devices: list[str] = field(default_factory=list)
    mpi: str = ""
    compiler: str = ""
    python: str = ""
    numpy: str = ""
    case: str = ""
    description: dict[str, str] = field(default_factory=dict)
    step: dict[str, str] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)
    timers: dict[str, float] = field(default_factory=dict)
    results: dict[str, tuple[str, str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    pictures: dict[str, Any] = field(default_factory=dict)


@dataclass
class RunRecord:
    """A run and its segments, the earliest first.

    Attributes
    ----------
    title, family : str
        Of the case, and the solver family.
    segments : list of Segment
        Empty of a run that an earlier version has written.
    format : int
        Version of the file.
    """

    title: str = ""
    family: str = ""
    segments: list[Segment] = field(default_factory=list)
    format: int = FORMAT


# At the end of the file, of all that is before it.
_CHECKSUM = re.compile(rb',\n "checksum": "([0-9a-f]{8})"\n\}\s*\Z')
_RECORDS: TypeAdapter[RunRecord] = TypeAdapter(RunRecord)


def read_run_record(folder: str | Path) -> RunRecord:
    """Return the record in a run's folder, ``run.json``; an empty one if there is none.

    The run may be under way, and the file somebody else's: an `InputError` tells if it is none.
    """
    path = as_path(folder) / RUN_RECORD_NAME
    try:
        content = content_of(path, _MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return RunRecord()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {one_line(str(error))}") from error
    try:
        record = _RECORDS.validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(one) for one in first["loc"])
        reason = f"{where}: {first['msg']}" if where else first["msg"]
        raise InputError(f"{path}: not the record of a run: {one_line(reason)}") from error
    if record.format != FORMAT:
        raise InputError(f"{path}: format {record.format}; this version reads {FORMAT}")
    sealed = _CHECKSUM.search(content)
    if sealed and int(sealed[1], 16) != zlib.crc32(content[: sealed.start()]):
        raise InputError(f"{path}: not as it was written: its checksum differs")
    for number, one in enumerate(record.segments):
        times = one.from_time, one.to_time
        if not (0 <= one.from_step <= one.to_step < 1 << 62 and all(map(math.isfinite, times))):
            raise InputError(f"{path}: not the record of a run: steps of segments.{number}")
    return record


def write_run_record(folder: Path, record: RunRecord) -> None:
    """Write ``run.json``: others see it as it was or whole."""
    content = json.dumps(dataclasses.asdict(record), indent=1, ensure_ascii=False)
    # Names of files may hold bytes that are no text.
    text = content.removesuffix("\n}").encode("utf-8", "replace")
    checksum = f',\n "checksum": "{zlib.crc32(text):08x}"\n}}\n'
    replace_file(folder / RUN_RECORD_NAME, text + checksum.encode())
    flush_folder(folder)
