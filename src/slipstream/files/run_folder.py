"""The folder of a run: its record, its states and series, and the segments before a restart."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import re
import stat
import tomllib
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from slipstream.case import Case, parse_stored_case
from slipstream.case.toml_text import toml_value
from slipstream.engine.accepted import STATISTICS
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_every_rank
from slipstream.engine.errors import InputError, path_of
from slipstream.engine.text import one_line, shortened
from slipstream.files.checkpoint import (
    CHECKPOINTS_NAME,
    Damage,
    Manifest,
    generations,
    read_manifest,
)
from slipstream.files.durable_files import flush_folder, named, replace_file
from slipstream.files.folder_lock import is_locked
from slipstream.files.folder_seals import KeptOutput, Seal, fault_of, raise_if_disk_fails
from slipstream.files.foreign_files import content_of, kind_of
from slipstream.files.stored_arrays import (
    NUMBER_SIGN,
    StoredArrays,
    errors_of_store,
    numbered_stores,
    reason_of,
)
from slipstream.files.time_series import SeriesTail, read_series

if TYPE_CHECKING:
    from slipstream.files.checkpoint import Checkpoint


RUN_RECORD_NAME = "run.json"
FORMAT = 1
# Bytes of a record, at most: thousands of segments have fewer.
_MOST_BYTES = 1 << 26

EndedBy = Literal["end", "finished", "interrupted", "wall", "max_steps", "stopped", "failed"]
# The checksum at the end of a record, of all that is before it.
_CHECKSUM = re.compile(rb',\n "checksum": "([0-9a-f]{8})"\n\}\s*\Z')
# Files and folders of a run.
CASE_NAME = "case.toml"
SERIES_NAME = "diagnostics.csv"
OUTPUTS_NAME = "outputs"
STEPS_NAME = "steps.csv"
FIELDS_NAME = "fields.zarr"
SPECTRA_NAME = "spectra.zarr"
# Bytes of a case, at most.
_MOST_CASE = 1 << 20
# Bytes of a store that is compared each time it is opened, at most.
_MOST_COMPARED = 1 << 28
# Folders in folders: a run has fewer than ten.
_DEEPEST = 32
# Tables whose keys change no step of a run, but for its size, which is recorded.
_AROUND = ("title", "time", "run", "output", "initial")
# Letters of a value in a list of differences, at most.
_MOST_LETTERS = 60


@dataclass
class Change:
    """A setting that was changed after a step of a run."""

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
    """One process, or one MPI job, that has worked on a run; docs/runs.md explains the entries."""

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
    # Whether it began by reading a state of the run; None in records of earlier versions.
    reads_state: bool | None = None
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
    """A run and its segments, the earliest first."""

    title: str = ""
    family: str = ""
    segments: list[Segment] = field(default_factory=list)
    format: int = FORMAT


_RECORDS: TypeAdapter[RunRecord] = TypeAdapter(RunRecord)


def read_run_record(folder: str | Path) -> RunRecord:
    """Return the record in a run's folder, ``run.json``; an empty one if there is none.

    The run may be under way, and the file somebody else's: an `InputError` tells if it is none.
    """
    path = path_of("folder", folder) / RUN_RECORD_NAME
    where = named(path)
    try:
        content = content_of(path, _MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return RunRecord()
    except OSError as error:
        raise InputError(f"{where}: cannot be read: {one_line(str(error))}") from error
    try:
        record = _RECORDS.validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(segment) for segment in first["loc"])
        reason = f"{key}: {first['msg']}" if key else first["msg"]
        raise InputError(f"{where}: not the record of a run: {one_line(reason)}") from error
    if record.format != FORMAT:
        raise InputError(f"{where}: format {record.format}; this version reads {FORMAT}")
    sealed = _CHECKSUM.search(content)
    if sealed and int(sealed[1], 16) != zlib.crc32(content[: sealed.start()]):
        raise InputError(f"{where}: not as it was written: its checksum differs")
    for number, segment in enumerate(record.segments):
        times = segment.from_time, segment.to_time
        if not (
            0 <= segment.from_step <= segment.to_step < 1 << 62 and all(map(math.isfinite, times))
        ):
            raise InputError(f"{where}: not the record of a run: steps of segments.{number}")
    return record


def write_run_record(folder: Path, record: RunRecord) -> None:
    """Write ``run.json``: others see it as it was or whole."""
    content = json.dumps(dataclasses.asdict(record), indent=1, ensure_ascii=False)
    # Names of files may hold bytes that are no text.
    text = content.removesuffix("\n}").encode("utf-8", "replace")
    checksum = f',\n "checksum": "{zlib.crc32(text):08x}"\n}}\n'
    replace_file(folder / RUN_RECORD_NAME, text + checksum.encode())
    flush_folder(folder)


class RunFolder:
    """A run's folder that has been walked; everything is read on demand.

    People know it by its `name`. By its `path` it is used: the path of an `OutputFolder` stays
    valid if the folder is renamed. `for_writing`, everything must belong to this user or to the
    owner of the folder.
    """

    def __init__(self, folder: str | Path, for_writing: bool = False) -> None:
        try:
            self.path, self.name = Path(folder), str(Path(folder))
            self._status = os.stat(folder)
            if not stat.S_ISDIR(self._status.st_mode):
                raise NotADirectoryError
        except (FileNotFoundError, NotADirectoryError) as error:
            reason = "no such folder" if isinstance(error, FileNotFoundError) else "is a file"
            raise InputError(f"{folder}: {reason}; expected the output folder of a run") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{folder}: cannot be opened: {reason_of(error)}") from error
        self._owners = None
        if for_writing:
            self._owners = {os.geteuid(), self._status.st_uid}
        self.check()

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
        """Whether its name still leads to it."""
        with contextlib.suppress(OSError):
            return os.path.samestat(os.stat(self.name), self._status)
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
            raise InputError(f"{self.name}: cannot be read: {reason_of(error)}") from error

    def outputs(self, ending: str) -> list[str]:
        """Return the relative paths of output with an ending, chosen output last."""
        names = [name for name in self.names() if name.endswith(ending) and name[0] != "."]
        with contextlib.suppress(OSError):
            chosen = sorted(os.listdir(self.path / OUTPUTS_NAME))
            names += [f"{OUTPUTS_NAME}/{name}" for name in chosen if name.endswith(ending)]
        return names

    def states(self) -> list[Path]:
        """Return the states, latest first, damaged ones included."""
        try:
            return generations(self.path / CHECKPOINTS_NAME)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise InputError(
                f"{self.name}/{CHECKPOINTS_NAME}: cannot be read: {reason_of(error)}"
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
                f"{self.name}: holds no output of a run; expected {CASE_NAME}, which runs write, or"
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
            raise InputError(
                f"{named(path)}: cannot be read as a case: {reason_of(error)}"
            ) from error

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
            reason = reason_of(error)
            raise InputError(
                f"{self.name}/{CASE_NAME}: cannot be read as a case: {reason}"
            ) from error

    def record(self) -> RunRecord:
        """Return ``run.json``; without segments if it is missing."""
        return read_run_record(self.path)

    def series(self, name: str = SERIES_NAME) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the columns of a time series and their labels; empty if it has not begun."""
        path = self.path / name
        try:
            return read_series(path)
        except FileNotFoundError:
            return {}, {}
        except OSError as error:
            raise InputError(f"{named(path)}: {reason_of(error)}") from error

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
        """Return a store, and the stores that continue it with other points, in order of time."""
        found = (self.store(one.name) for one in numbered_stores(self.path / name))
        return [one for one in found if one is not None]

    def last_store(self, name: str) -> StoredArrays | None:
        """Return the last of these that has a snapshot; None if there is none."""
        last = None
        for store in self.stores(name):
            with errors_of_store(store.path):
                if last is None or len(store.times):
                    last = store
        return last

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
        """Return damage to the run, or to some output, in words; large output is not compared."""
        if self.is_active:
            return []
        faults = []
        for path in self.states() if names is None else ():
            try:
                read_manifest(path)
            except Damage as damage:
                faults.append(f"{path} is damaged: {damage}")
        if self._has_foreign_case():
            faults.append(f"{self.path / CASE_NAME}: no part of the run had this case")
        knows_record = self._last is not None and self._last.began is not None
        with contextlib.suppress(InputError):  # readers of the record report this
            if knows_record and not self.record().segments:
                reason = "has no segments" if self.has(RUN_RECORD_NAME) else "is missing"
                faults.append(f"{self.path / RUN_RECORD_NAME}: it {reason}")
        for name, seal in self.last_seals.items():
            if names is not None and name not in names:
                continue
            is_large = seal.length is None and self._bytes(name) > _MOST_COMPARED
            if not is_large and (reason := self.fault_of(name, seal)):
                faults.append(f"{self.path / name}: {reason}")
        return faults

    def _has_foreign_case(self) -> bool:
        """Return whether the folder's case can be read, but differs from those of the run."""
        known = [self._last.case] if self._last is not None else []
        with contextlib.suppress(InputError):
            known += [segment.case for segment in self.record().segments]
        try:
            text = self.own_case()
            return any(known) and tomllib.loads(text) not in [
                tomllib.loads(case_text) for case_text in known
            ]
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
        """Return the output that continues from a state with these seals, if it is `recorded`."""
        aside = {}
        kinds = ("fields", "spectra", *STATISTICS)
        present = [
            name
            for name in self.names()
            if name.endswith(".zarr") and name[: -len(".zarr")].partition(NUMBER_SIGN)[0] in kinds
        ]
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


AnyCase = TypeVar("AnyCase", bound=Case)


def open_earlier_run(
    origin: str | Checkpoint, case: AnyCase, comm: Comm
) -> tuple[Checkpoint, AnyCase]:
    """Return the last state of the run in a folder, unless it is open, and its case. Collective.

    Another solver's is refused.
    """
    from slipstream.files.checkpoint import open_checkpoint  # not by who only compares cases

    checkpoint = open_checkpoint(origin, comm) if isinstance(origin, str) else origin

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
        The case of the segment before.
    is_whole : bool
        Whether that has written all that it was to write: it was not killed, and did not fail.
    state : pathlib.Path or None
        From which it continues.
    kept : KeptOutput
        The output that continues.
    warnings : tuple of str
        The output that does not continue, and why.
    """

    step: int
    time: float
    case: Case
    is_whole: bool = True
    state: Path | None = None
    kept: KeptOutput = field(default_factory=KeptOutput)
    warnings: tuple[str, ...] = ()

    def changes(self, case: Case) -> list[str]:
        """Return the changes that another case makes, for people, each ``key: before -> now``."""
        return [text_of(key, *values) for key, values in differences(self.case, case).items()]


def solve_the_same(before: Case, now: Case) -> bool:
    """Return whether two cases are of the same problem, numerically too."""
    return all(map(is_around, differences(before, now)))


def is_around(key: str) -> bool:
    """Return whether a key of a case changes no step of a run, but for its size."""
    return key.partition(".")[0] in _AROUND and key != "time.integrator"


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
    keys: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and not above:
            keys |= _flat(value, f"{key}.")
        else:
            keys[above + key] = value
    return keys


def _text(value: Any) -> str:
    if value is None or value == []:
        return "none"
    try:
        return shortened(toml_value(value), _MOST_LETTERS)
    except TypeError:
        return shortened(str(value), _MOST_LETTERS)
