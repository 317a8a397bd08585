"""The folder that a run writes: only this run writes there, and files of users are never removed.

A record (``.slipstream.json``) lists the names that Slipstream has written; only these are ever
replaced. When a new run has made its initial state, the output of the earlier run moves into
``.replaced``. It is removed with the first state of the new run. If the new run ends without a
state, the earlier output is put back, and its own output moves into ``failed``. If the new run is
killed in between, the next run does one or the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from slipstream.engine.accepted import STATISTICS
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_first_rank
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.text import one_line
from slipstream.files.checkpoint import CHECKPOINTS_NAME, remove_partial
from slipstream.files.durable_files import (
    DAMAGED,
    errors_name,
    flush_folder,
    free_name,
    make_folder,
    named,
    replace_file,
)
from slipstream.files.folder_lock import LOCK_NAME, FolderLock, check_lock
from slipstream.files.foreign_files import content_of
from slipstream.files.run_folder import CASE_NAME, OUTPUTS_NAME, RUN_RECORD_NAME, RunFolder
from slipstream.files.stored_arrays import NUMBER_SIGN

# The picture of the numbers that users choose.
SCALARS_PICTURE = "scalars.png"
RUN_LOG_NAME = "run.log"
OUTPUT_NAMES = (
    CASE_NAME,
    RUN_RECORD_NAME,
    RUN_LOG_NAME,
    "diagnostics.csv",
    "diagnostics.zarr",
    "steps.csv",
    "spectra.zarr",
    *(f"{kind}.{ending}" for kind in STATISTICS for ending in ("zarr", "png")),
    "fields.zarr",
    OUTPUTS_NAME,
    SCALARS_PICTURE,
    CHECKPOINTS_NAME,
    "energy.png",
    "spectrum.png",
    "vorticity.png",
    "tracer.png",
    "error.png",
    "permeability.png",
    "speed.png",
    "flow.vti",
    "summary.png",
    "current.png",
    "report.html",
    "timeline.png",
    "timeline.json",
    "failed",
)
# Stores that have gone on with other points.
_NUMBERED = re.compile(rf"(fields|spectra|{'|'.join(STATISTICS)}){NUMBER_SIGN}[0-9]{{1,6}}\.zarr")
RECORD_NAME = ".slipstream.json"
# The output of an earlier run until the new one has a state.
REPLACED_NAME = ".replaced"
# Output that is being removed.
DISCARDED_NAME = ".discarded"
FAILED_NAME = "failed"
_LONGEST_RECORD = 1 << 20


def is_output_name(name: str) -> bool:
    """Return whether Slipstream gives something in a folder of a run this name."""
    return name in OUTPUT_NAMES or _NUMBERED.fullmatch(name) is not None


def check_folder(
    folder: str | Path, overwrite: bool, inputs: Mapping[str, str | Path] | None = None
) -> Path:
    """Refuse a folder that a run may not write into, without changing anything.

    `inputs` are the files that the run reads, by key: none of these may be replaced.
    """
    path = Path(folder)
    try:
        os.lstat(path)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise InputError(f"output folder {path}: {one_line(str(error))}; choose another") from error
    if path.exists() and not path.is_dir():
        raise InputError(f"output folder {path} exists and is a file; choose another folder")
    check_lock(path)
    for key, read in (inputs or {}).items():
        _check_input(path, key, Path(read))
    _check_free(path, overwrite)
    existing = next(one for one in (path, *path.absolute().parents) if one.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(
            f"output folder {path} cannot be written: no permission in {existing}; choose another"
            " folder"
        )
    _check_names(path, _written(path) | _written(path / REPLACED_NAME))
    return path


def _check_input(folder: Path, key: str, read: Path) -> None:
    """Refuse a folder that a run reads from, or whose output would replace what it reads."""
    # A link is followed, but is itself a file that can be lost, too.
    # Not by `Path.resolve`, which raises an error of no kind where links lead round.
    output_path, absolute = Path(os.path.realpath(folder)), Path(os.path.abspath(read))
    for input_path in (
        Path(os.path.realpath(read)),
        Path(os.path.realpath(absolute.parent)) / absolute.name,
    ):
        if input_path == output_path or (
            key == "initial.restart" and input_path.is_relative_to(output_path)
        ):
            raise InputError(
                f"output folder {folder} holds the state to continue from ({key}); choose another"
                " folder"
                if key == "initial.restart"
                else f"output folder {folder} is an input ({key}); choose another folder"
            )
        inside = (
            input_path.relative_to(output_path).parts[0]
            if input_path.is_relative_to(output_path)
            else ""
        )
        own_names = (RECORD_NAME, LOCK_NAME, REPLACED_NAME, DISCARDED_NAME)
        if is_output_name(inside) or inside in own_names:
            raise InputError(
                f"output folder {folder} holds {read} ({key}), under a name that runs write to;"
                " choose another folder"
            )
        outside = (
            output_path.relative_to(input_path).parts[0]
            if output_path.is_relative_to(input_path)
            else ""
        )
        if outside and (key != "initial.restart" or is_output_name(outside)):
            raise InputError(
                f"output folder {folder} is inside {read} ({key}); choose another folder"
            )


def _check_names(path: Path, written: set[str]) -> None:
    """Refuse a folder in which something else has a name that this run may write."""
    present = os.listdir(path) if path.is_dir() else []
    foreign = [
        *(one for one in OUTPUT_NAMES if one in present and one not in written),
        *(one for one in present if _NUMBERED.fullmatch(one) and one not in written),
    ]
    if foreign:
        names = ", ".join(foreign[:3]) + (" ..." if len(foreign) > 3 else "")
        raise InputError(
            f"output folder {named(path)} holds {names}, and no record that a run has written it;"
            " move it elsewhere, or choose another folder"
        )


def _written(path: Path) -> set[str]:
    """Return the names that Slipstream has recorded in a folder; none without a record."""
    try:
        names = json.loads(content_of(path / RECORD_NAME, _LONGEST_RECORD))["written"]
        # The record may come from somebody else: only names that we write are believed.
        return {name for name in names if isinstance(name, str) and is_output_name(name)}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return set()


@contextlib.contextmanager
def claim_folder(
    folder: str | Path,
    comm: Comm = None,
    overwrite: bool = True,
    inputs: Mapping[str, str | Path] | None = None,
) -> Iterator[OutputFolder]:
    """Hold a folder for one run within this context, made if need be. Collective.

    Folders are refused as in `check_folder`. Nothing in it changes before the run begins, except
    that the output of an earlier run is put back where one that was killed had moved it aside.
    """
    path = Path(folder)

    def claim() -> OutputFolder:
        check_folder(path, True, inputs)
        claimed = OutputFolder(path)
        try:
            # Another run may have come and gone since the folder was checked.
            _check_free(path, overwrite)
        except BaseException:
            claimed.release()
            raise
        return claimed

    with _claimed(path, comm, claim) as claimed:
        yield claimed


@contextlib.contextmanager
def claim_run(
    folder: str | Path, comm: Comm = None, check: Callable[[RunFolder], None] = lambda run: None
) -> Iterator[OutputFolder]:
    """Hold the folder of a run that is to continue there within this context. Collective.

    Nothing is asked here about output that `claim_folder` would replace. `check` may
    refuse the folder, on the first rank, before anything is made there.
    """
    path = Path(folder)
    with _claimed(path, comm, lambda: OutputFolder(path, check=check)) as claimed:
        yield claimed


@contextlib.contextmanager
def _claimed(path: Path, comm: Comm, claim: Callable[[], OutputFolder]) -> Iterator[OutputFolder]:
    first: list[OutputFolder] = []
    on_first_rank(comm, lambda: first.append(claim()))
    folder = first[0] if first else OutputFolder(path, is_first=False)
    try:
        yield folder
    finally:
        folder.release()


def _check_free(path: Path, overwrite: bool) -> None:
    """Refuse a folder with anything in it, unless that may be replaced."""
    names = os.listdir(path) if path.is_dir() and not overwrite else []
    if any(name not in (LOCK_NAME, DISCARDED_NAME) for name in names):
        has_state = CHECKPOINTS_NAME in names
        resume = f"continue with slipstream resume {shlex.quote(str(path))}, "
        go_on = resume if has_state else ""
        raise InputError(
            f"output folder {path} exists and is not empty; {go_on}choose another folder, or"
            " replace it: --overwrite, in Python overwrite=True"
        )


class OutputFolder(RunFolder):
    """A folder that only this run writes into. Other ranks than the first have only its path."""

    def __init__(
        self, path: Path, is_first: bool = True, check: Callable[[RunFolder], None] | None = None
    ) -> None:
        self.is_locked = True
        self._is_first = is_first
        self._names: list[str] = []
        self._naming = threading.Lock()
        self._has_begun = False
        self._made: list[Path] = []
        self._close: Callable[[], object] = lambda: None
        if not is_first:
            self.path, self.name = path, str(path)
            with contextlib.suppress(OSError):  # only the first rank may have it
                self._hold()
            return
        if check is None:
            self._made = [one for one in (path, *path.parents) if not one.exists()]
            try:
                make_folder(path)
            except OSError as error:
                reason = error.strerror
                raise InputError(f"output folder {path} cannot be made: {reason}") from error
        super().__init__(path, for_writing=True)
        if check is not None:
            check(self)
        self._hold()
        self._lock = FolderLock(self.path)
        self.is_locked = self._lock.is_kept
        with _failures(self.path):
            self._put_back()
            remove_partial(self.path / CHECKPOINTS_NAME)

    def _hold(self) -> None:
        """Open the folder, and use it by a path that stays valid if it is renamed."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._close = weakref.finalize(self, os.close, descriptor)
        held = Path(f"/proc/self/fd/{descriptor}")
        with contextlib.suppress(OSError):  # not all systems list open files
            if os.path.samestat(os.stat(held), os.fstat(descriptor)):
                self.path = held

    def _let_go(self) -> None:
        self.path = Path(self.name)
        self._close()

    def begin(self) -> None:
        """Move the output of an earlier run aside."""
        if not self._is_first:
            return
        written = _written(self.path)
        _check_names(self.path, written)
        self._has_begun = True
        with _failures(self.path):
            if written:
                self._replaced.mkdir()
                flush_folder(self.path)
                for name in sorted(written):
                    if os.path.lexists(self.path / name):
                        (self.path / name).rename(self._replaced / name)
                # Last: a record that is still here says that not everything has been moved.
                (self.path / RECORD_NAME).rename(self._replaced / RECORD_NAME)
                flush_folder(self._replaced)
                flush_folder(self.path)

    def go_on(self, aside: Iterable[str] = ()) -> None:
        """Keep the output of the run that continues; rename the output in `aside`."""
        if self._is_first:
            for name in aside:
                self._set_damaged_aside(name)
            # A copy of the folder may lack the record.
            found = {name for name in os.listdir(self.path) if is_output_name(name)}
            self._names = sorted(_written(self.path) | found)
            self._write_record(self._names)

    def wrote(self, *names: str) -> None:
        """Record names as written by this run, before they are written if possible."""
        with self._naming:  # a thread may write output
            new = [name for name in names if name not in self._names]
            if self._is_first and new:
                self._names += new
                self._write_record(self._names)

    def discard_replaced(self) -> None:
        """Remove the output of the earlier run, since this one has a state."""
        if self._is_first and self._replaced.exists():
            with _failures(self.path):
                shutil.rmtree(self._discarded, ignore_errors=True)
                self._replaced.rename(self._discarded)
                flush_folder(self.path)
            shutil.rmtree(self._discarded, ignore_errors=True)

    def release(self) -> None:
        """Release the lock. If this run has no state, put back the output of the earlier one."""
        if not self._is_first:
            self._let_go()
            return
        try:
            if self._has_begun:
                with _failures(self.path):
                    self._put_back()
        finally:
            self._lock.release()
            self._let_go()
            # Folders that were made for a run that has written nothing.
            with contextlib.suppress(OSError):
                for folder in self._made:
                    folder.rmdir()

    def recorded(self) -> set[str]:
        """Return the names that runs have recorded. On the first rank."""
        return _written(self.path)

    def has_own_output(self) -> bool:
        """Return whether what is in it is this run's, and stays. On the first rank."""
        return self._is_first and bool(self._names) and not self._replaced.exists()

    def is_put_back(self) -> bool:
        """Return whether earlier output would be put back if the run ended now."""
        return self._is_first and self._replaced.exists()

    @property
    def _replaced(self) -> Path:
        return self.path / REPLACED_NAME

    @property
    def _discarded(self) -> Path:
        return self.path / DISCARDED_NAME

    def _put_back(self) -> None:
        """Put back earlier output if the run that replaced it has left no state."""
        shutil.rmtree(self._discarded, ignore_errors=True)
        if self._replaced.is_symlink() or not self._replaced.is_dir():
            return
        earlier = _written(self._replaced)
        if earlier and CHECKPOINTS_NAME in _written(self.path) and any(self.manifests()):
            self.discard_replaced()  # the run was killed between its first state and this
            return
        if earlier:
            self._set_failed_aside(sorted(_written(self.path)))
        for name in sorted(os.listdir(self._replaced), key=lambda one: one == RECORD_NAME):
            if name == FAILED_NAME and (self.path / FAILED_NAME).is_dir():
                shutil.rmtree(self._replaced / name)
            elif is_output_name(name) or name == RECORD_NAME:
                if os.path.lexists(self.path / name) and name != RECORD_NAME:
                    raise RunError(
                        f"{named(self._replaced / name)} cannot be put back: {name} is there; move"
                        " one"
                    )
                (self._replaced / name).rename(self.path / name)
        if earlier and (self.path / FAILED_NAME).is_dir():
            self._write_record([*earlier, FAILED_NAME])
        self._replaced.rmdir()
        flush_folder(self.path)

    def _set_damaged_aside(self, name: str) -> None:
        """Rename output that cannot continue, if it is there; nothing is removed."""
        path = self.path / name
        if not self.has(name):
            return
        free = free_name(path.with_name(path.name + DAMAGED))
        with errors_name(path):
            for end in ("", ".pvd"):
                if os.path.lexists(path.with_name(path.name + end)):
                    path.with_name(path.name + end).rename(free.with_name(free.name + end))
            flush_folder(path.parent)

    def _set_failed_aside(self, names: list[str]) -> None:
        """Move the output of a failed run into ``failed``, and remove its record."""
        failed = self.path / FAILED_NAME
        moved = [name for name in names if os.path.lexists(self.path / name)]
        if moved:
            # It is ours: another folder of this name was refused when the run began.
            shutil.rmtree(failed, ignore_errors=True)
            failed.mkdir()
        for name in moved:
            (self.path / name).rename(failed / name)
        (self.path / RECORD_NAME).unlink(missing_ok=True)

    def _write_record(self, names: list[str]) -> None:
        content = {"about": "what Slipstream has written here", "written": sorted(names)}
        with errors_name(self.path / RECORD_NAME):
            replace_file(self.path / RECORD_NAME, json.dumps(content, indent=1).encode())


@contextlib.contextmanager
def _failures(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = named(error.filename) if error.filename else "?"
        raise RunError(f"output folder {named(path)}: {error.strerror}: {where}") from error
