"""The folder of a run: its record, its states and series, and the segments before a restart."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import re
import tomllib
import weakref
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from slipstream.case import Case, parse_stored_case
from slipstream.case.toml_text import toml_value
from slipstream.engine.accepted import STATISTICS
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_every_rank
from slipstream.engine.errors import InputError
from slipstream.engine.text import one_line, shortened
from slipstream.files.checkpoint import (
    CHECKPOINTS_NAME,
    Damage,
    Manifest,
    generations,
    read_manifest,
)
from slipstream.files.durable_files import as_path, flush_folder, held_path, is_locked, replace_file
from slipstream.files.folder_seals import KeptOutput, Seal, fault_of, raise_if_disk_fails
from slipstream.files.foreign_files import content_of, kind_of
from slipstream.files.stored_arrays import StoredArrays, errors_of_store, numbered_stores, reason_of
from slipstream.files.time_series import SeriesTail, read_series

if TYPE_CHECKING:
    from slipstream.files.checkpoint import Checkpoint


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
        What is drawn: a `slipstream.engine.fields.PictureChoice`.
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


CASE_NAME, SERIES_NAME, OUTPUTS_NAME = "case.toml", "diagnostics.csv", "outputs"
STEPS_NAME = "steps.csv"
FIELDS_NAME, SPECTRA_NAME = "fields.zarr", "spectra.zarr"
_MOST_CASE = 1 << 20
# Bytes of a store that is compared each time it is opened.
_MOST_COMPARED = 1 << 28
# Folders in folders: a run has fewer than ten.
_DEEPEST = 32


class RunFolder:
    """A run's folder that has been opened and walked. As a context it is closed at the end.

    Everything is read on demand: the run may be under way, and the folder may come from somebody
    else.

    Attributes
    ----------
    path : pathlib.Path
        The folder. Paths below it lead into it even after it is renamed.

    Raises
    ------
    InputError
        If there is no such folder, or something in it is neither a file nor a folder. If it
        `for_writing`, everything must belong to this user or to the owner of the folder.
    """

    def __init__(self, folder: str | Path, for_writing: bool = False) -> None:
        try:
            self._enter(folder)
        except (FileNotFoundError, NotADirectoryError) as error:
            reason = "no such folder" if isinstance(error, FileNotFoundError) else "is a file"
            raise InputError(f"{folder}: {reason}; expected the output folder of a run") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{folder}: cannot be opened: {reason_of(error)}") from error
        self._owners = None
        if for_writing:
            self._owners = {os.geteuid(), os.fstat(self._descriptor).st_uid}
        self.check()

    def _enter(self, folder: str | Path) -> None:
        self.path, self._descriptor, close = held_path(folder)
        # Called at the latest when this object is freed. Paths are ordinary paths from then on.
        self.close: Callable[[], object] = weakref.finalize(self, close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self) -> None:
        """Refuse the folder if it holds anything but files and folders."""
        waiting = [(self.path, 0)]
        while waiting:
            folder, depth = waiting.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        path = folder / entry.name
                        self._check_entry(path, entry)
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append((path, depth + 1))
            except FileNotFoundError:
                continue  # a run that is under way removes old states
            except OSError as error:
                raise InputError(f"{folder}: cannot be read: {reason_of(error)}") from error
            if depth > _DEEPEST:
                raise InputError(f"{folder}: too many folders in folders; move it elsewhere")

    def _check_entry(self, path: Path, entry: os.DirEntry[str]) -> None:
        if not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)):
            with contextlib.suppress(FileNotFoundError):
                kind = kind_of(os.lstat(path).st_mode)
                raise InputError(
                    f"{path} is {kind}; accepted in the folder of a run: files and folders"
                )
        if self._owners is not None:
            with contextlib.suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_uid not in self._owners:
                    raise InputError(f"{path} belongs to another user; copy the folder")

    # -- contents -------------------------------------------------------------------------

    @property
    def is_there(self) -> bool:
        """Whether its path still leads to it."""
        with contextlib.suppress(OSError):
            return os.path.samestat(os.stat(str(self.path)), os.fstat(self._descriptor))
        return False

    @property
    def is_active(self) -> bool:
        """Whether a run is writing to it now, on file systems that have locks."""
        return is_locked(self.path)

    def has(self, name: str) -> bool:
        """Return whether the folder has an entry of this name."""
        return self.status(name) is not None

    def status(self, name: str) -> os.stat_result | None:
        """Return the status of an entry; None if it is not there."""
        with contextlib.suppress(OSError):
            return os.lstat(self.path / name)
        return None

    def content(self, name: str, most: int) -> bytes:
        """Return the content of a file; empty if it is missing or longer than `most` bytes."""
        with contextlib.suppress(OSError):
            return content_of(self.path / name, most)
        return b""

    def names(self) -> list[str]:
        """Return the names of all entries."""
        try:
            return sorted(os.listdir(self.path))
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {reason_of(error)}") from error

    def outputs(self, ending: str) -> list[str]:
        """Return the relative paths of output with an ending, chosen output last."""
        found = [one for one in self.names() if one.endswith(ending) and one[0] != "."]
        with contextlib.suppress(OSError):
            chosen = sorted(os.listdir(self.path / OUTPUTS_NAME))
            found += [f"{OUTPUTS_NAME}/{one}" for one in chosen if one.endswith(ending)]
        return found

    def states(self) -> list[Path]:
        """Return the states, latest first, damaged ones included."""
        try:
            return generations(self.path / CHECKPOINTS_NAME)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise InputError(
                f"{self.path / CHECKPOINTS_NAME}: cannot be read: {reason_of(error)}"
            ) from error

    def manifests(self) -> Iterator[tuple[Path, Manifest]]:
        """Yield the states whose manifest is intact, and their manifests, latest first."""
        for path in self.states():
            with contextlib.suppress(Damage, OSError):
                yield path, read_manifest(path)

    def check_is_a_run(self) -> None:
        """Refuse a folder that holds neither a case nor a state."""
        if not self.has(CASE_NAME) and not self.states():
            raise InputError(
                f"{self.path}: holds no output of a run; expected {CASE_NAME}, which runs write, or"
                f" {CHECKPOINTS_NAME}"
            )

    def own_case(self) -> str:
        """Return the text of ``case.toml``; raise `InputError` if it is not a case."""
        path = self.path / CASE_NAME
        try:
            text = content_of(path, _MOST_CASE).decode()
            if not tomllib.loads(text):
                raise ValueError("it is empty")
            return text
        except (ValueError, RecursionError, OSError) as error:
            raise_if_disk_fails(error, path)
            raise InputError(f"{path}: cannot be read as a case: {reason_of(error)}") from error

    def case_text(self) -> str:
        """Return the text of the case; of the last state if ``case.toml`` is missing or damaged."""
        try:
            return self.own_case()
        except InputError:
            for _, said in self.manifests():
                if said.case:
                    return said.case
            raise

    def case_tables(self) -> dict[str, Any]:
        """Return the tables of the case, without validation."""
        try:
            return tomllib.loads(self.case_text())
        except (ValueError, RecursionError) as error:  # a state's
            path = self.path / CASE_NAME
            raise InputError(f"{path}: cannot be read as a case: {reason_of(error)}") from error

    def record(self) -> RunRecord:
        """Return ``run.json``; without segments if an earlier version wrote the folder."""
        return read_run_record(self.path)

    def series(self, name: str = SERIES_NAME) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the columns of a time series and their labels; empty if it has not begun."""
        path = self.path / name
        try:
            return read_series(path)
        except FileNotFoundError:
            return {}, {}
        except OSError as error:
            raise InputError(f"{path}: {reason_of(error)}") from error

    def follow(self, name: str = SERIES_NAME) -> SeriesTail:
        """Return a reader of a time series that is still being written."""
        return SeriesTail(self.path / name)

    def store(self, name: str) -> StoredArrays | None:
        """Return a store as it is now; None if there is none."""
        if not self.has(name):
            return None
        with errors_of_store(self.path / name):
            return StoredArrays(self.path / name)

    def stores(self, name: str) -> list[StoredArrays]:
        """Return a store and those that continue from it with other points, in order of time."""
        found = (self.store(one.name) for one in numbered_stores(self.path / name))
        return [one for one in found if one is not None]

    def last_store(self, name: str) -> StoredArrays | None:
        """Return the last of these that has a snapshot; None if there is none."""
        found = None
        for one in self.stores(name):
            with errors_of_store(one.path):
                if found is None or len(one.times):
                    found = one
        return found

    # -- whether it is as it was written ---------------------------------------------------------

    @cached_property
    def _last(self) -> Manifest | None:
        """The manifest of the last intact state."""
        return next((said for _, said in self.manifests()), None)

    @property
    def last_seals(self) -> Mapping[str, Seal]:
        """The seals of all output but the states, as the last intact state has them."""
        return (self._last and self._last.seals) or {}

    def faults(self, names: Collection[str] | None = None) -> list[str]:
        """Return what has been damaged, in words: the case, the record, and other output.

        Other output, all or of some names, is compared with what the last state knows. Large output
        is not compared, nor that of a run which is under way.
        """
        if self.is_active:
            return []
        found = []
        for path in self.states() if names is None else ():
            try:
                read_manifest(path)
            except Damage as damage:
                found.append(f"{path} is damaged: {damage}")
        if self._has_foreign_case():
            found.append(f"{self.path / CASE_NAME}: no part of the run had this case")
        knows_record = self._last is not None and self._last.began is not None
        with contextlib.suppress(InputError):  # readers of the record report this
            if knows_record and not self.record().segments:
                reason = "has no segments" if self.has(RUN_RECORD_NAME) else "is missing"
                found.append(f"{self.path / RUN_RECORD_NAME}: it {reason}")
        for name, seal in self.last_seals.items():
            if names is not None and name not in names:
                continue
            is_large = seal.length is None and self._bytes(name) > _MOST_COMPARED
            if not is_large and (reason := self.fault_of(name, seal)):
                found.append(f"{self.path / name}: {reason}")
        return found

    def _has_foreign_case(self) -> bool:
        """Return whether the folder's case can be read, but differs from those of the run."""
        known = [self._last.case] if self._last is not None else []
        with contextlib.suppress(InputError):
            known += [one.case for one in self.record().segments]
        try:
            text = self.own_case()
            return any(known) and tomllib.loads(text) not in [tomllib.loads(one) for one in known]
        except (InputError, ValueError, RecursionError):
            return False

    def _bytes(self, name: str) -> int:
        """Return the size of a store, roughly, in bytes."""
        try:
            stored = StoredArrays(self.path / name)
            return sum(8 * math.prod(shape) for shape in stored.shapes.values())
        except Exception:  # readers of the store report this
            return 0

    def fault_of(self, name: str, seal: Seal | None) -> str:
        """Return the fault of some output, or nothing."""
        return fault_of(self.path / name, seal) if self.has(name) else "it is missing"

    def kept_output(self, seals: Mapping[str, Seal] | None, recorded: set[str]) -> KeptOutput:
        """Return which output continues from a state with these seals; change nothing.

        `recorded` are the names in ``.slipstream.json``.
        """
        aside = {}
        present = [one for one in self.names() if one.endswith(".zarr") and _is_output(one)]
        for name in sorted({*present, *(seals or {})}):
            if seals is not None and name not in seals:
                # Begun by a run that was killed after the state, or not ours.
                reason = "" if name in recorded else "no run is known to have written it"
            else:
                reason = self.fault_of(name, None if seals is None else seals[name])
            if reason:
                aside[name] = reason
            if reason and name.endswith(".csv"):
                # The next segment would replace its copy by one without the rows before.
                copy = f"{name.removesuffix('.csv')}.zarr"
                if self.has(copy):
                    aside[copy] = f"it goes with {name}"
        return KeptOutput(seals, aside)


def _is_output(name: str) -> bool:
    stem = name.removesuffix(".zarr").partition("~")[0]
    return stem in ("fields", "spectra", *STATISTICS)


# Tables that do not change the problem.
_AROUND = ("title", "time", "run", "output", "initial")
_MOST_LETTERS = 60
AnyCase = TypeVar("AnyCase", bound=Case)


def open_earlier_run(
    place: str | Checkpoint, case: AnyCase, comm: Comm
) -> tuple[Checkpoint, AnyCase]:
    """Return the last state of the run in a folder, unless it is open, and its case. Collective.

    Another solver's is refused.
    """
    from slipstream.files.checkpoint import open_checkpoint  # not by who only compares cases

    checkpoint = open_checkpoint(place, comm) if isinstance(place, str) else place

    def parsed() -> Case:
        where = f"initial.restart: {checkpoint.path}"
        return parse_stored_case(checkpoint.case, case, where)

    return checkpoint, cast(AnyCase, on_every_rank(comm, parsed))


@dataclass(frozen=True)
class EarlierSegments:
    """The part of a run that is done.

    Attributes
    ----------
    step, time
        At which the run began: times of output and ``time.max_steps`` count from there.
    case : Case
        Of the segment before.
    is_whole : bool
        Whether that has written all that it was to write: it was not killed, and did not fail.
    state : pathlib.Path or None
        From which it continues.
    kept : KeptOutput
        What of its output continues.
    warnings : tuple of str
        What of it does not, and why.
    """

    step: int
    time: float
    case: Case
    is_whole: bool = True
    state: Path | None = None
    kept: KeptOutput = field(default_factory=KeptOutput)
    warnings: tuple[str, ...] = ()

    def changes(self, case: Case) -> list[str]:
        """Return what another case changes, for people, each ``key: before -> now``."""
        return [text_of(key, *values) for key, values in differences(self.case, case).items()]


def solve_the_same(before: Case, now: Case) -> bool:
    """Return whether two cases are of the same problem, numerically too."""
    return all(key.partition(".")[0] in _AROUND for key in differences(before, now))


def differences(before: Case, now: Case) -> dict[str, tuple[Any, Any]]:
    """Return the keys in which two cases differ, each with both values."""
    return table_differences(before.model_dump(mode="json"), now.model_dump(mode="json"))


def table_differences(
    before: Mapping[str, Any], now: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Return the keys in which the tables of two cases differ, each with both values."""
    first, second = _flat(before), _flat(now)
    return {
        key: (first.get(key), second.get(key))
        for key in dict.fromkeys([*first, *second])
        if first.get(key) != second.get(key)
    }


def text_of(key: str, before: Any, now: Any) -> str:
    """Return a difference for people."""
    return f"{key}: {_text(before)} -> {_text(now)}"


def _flat(data: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and not above:
            found |= _flat(value, f"{key}.")
        else:
            found[above + key] = value
    return found


def _text(value: Any) -> str:
    if value is None or value == []:
        return "none"
    try:
        return shortened(toml_value(value), _MOST_LETTERS)
    except TypeError:
        return shortened(str(value), _MOST_LETTERS)
