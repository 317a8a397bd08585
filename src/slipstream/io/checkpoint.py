"""The states of a run, from which another run restarts, on any number of ranks.

Each is a *generation* in a folder of the run: complete and on the disk, or absent. It is written
under another name and flushed before it is renamed; older ones are removed only after that. Its
manifest lists its contents (`checkpoint_manifest.py`). A run continues from its latest intact
generation; damaged ones are named.
"""

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from slipstream import __version__
from slipstream.array_types import Comm
from slipstream.collective import on_every_rank, on_first_rank
from slipstream.errors import InputError, RunError
from slipstream.field import Field
from slipstream.io.checkpoint_manifest import (
    MANIFEST,
    Damage,
    Manifest,
    arrays_of,
    check_chunks,
    format_of,
    read_manifest,
)
from slipstream.io.durable_files import (
    DAMAGED,
    PARTIAL,
    errors_name,
    flush_file,
    flush_folder,
    free_name,
    make_folder,
    replace_file,
)
from slipstream.io.folder_seals import Seal
from slipstream.io.held_paths import as_path
from slipstream.io.zarr_store import FieldStore, all_finite, read_field

CHECKPOINTS_NAME = "checkpoints"
KEPT = 2
# What the names of arrays begin with that are no part of the flow: of output sums of averages, and
# the colours of movies; states of random forces; and particles.
AVERAGE, MOVIE, FORCE, PARTICLES = "average.", "movie.", "force.", "particles."
# The array of the tilt of a sheared frame.
TILT = "frame.tilt"
# The step, and a number if a run has more than one state of it.
_GENERATION = re.compile(r"(\d{1,19})(?:-(\d{1,9}))?\.zarr")
Result = TypeVar("Result")
_EXPECTED = (
    f"the output folder of a run, or one of its states, as in {CHECKPOINTS_NAME}/000000100.zarr"
)


class Checkpoint(Manifest):
    """A state that is as it was written.

    Attributes
    ----------
    path : pathlib.Path
        The zarr group.
    warnings : tuple of str
        The fault of each later state of the run.
    """

    path: Path
    warnings: tuple[str, ...] = ()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Global shape of each stored array."""
        return {name: array.shape for name, array in self.arrays.items()}

    def read(
        self, name: str, offset: Sequence[int] | None = None, shape: Sequence[int] | None = None
    ) -> np.ndarray:
        """Read a box of one array, as `read_field` does."""
        values = read_field(self.path, name, offset, shape)
        # A run that is under way removes its older states; then readers get not-a-number.
        if not all_finite(values):
            raise InputError(f"initial.restart: {self.path} has changed while it was read")
        return values

    def check_array(self, name: str, kind: str, dimensions: int) -> tuple[int, ...]:
        """Return the shape of an array; refuse one of another kind ("f", "c", "i"), or none."""
        array = self.arrays.get(name)
        if array is None:
            raise InputError(f"initial.restart: {self.path} holds no {name}")
        if np.dtype(array.dtype).kind != kind or len(array.shape) != dimensions:
            raise InputError(
                f"initial.restart: {self.path}: {name} is {array.dtype} in {len(array.shape)} "
                "dimensions, which is not what such a run writes"
            )
        return array.shape


def write_checkpoint(
    folder: str | Path,
    fields: Iterable[Field],
    comm: Comm = None,
    *,
    step: int,
    time: float,
    case: str,
    keep: int = KEPT,
    seals: dict[str, Seal] | None = None,
    began: tuple[int, float] | None = None,
) -> Path:
    """Write a state, the same fields on all ranks, into a run's output folder. Collective.

    Parameters
    ----------
    folder : str or pathlib.Path
        The output folder.
    fields : iterable of Field
        The state.
    comm : mpi4py.MPI.Comm, optional
        The ranks that have a part of it.
    step, time
        Number of time steps done, and the time that they have led to.
    case : str
        The effective case as TOML.
    keep : int
        How many states of the run are kept, this one included.
    seals, began
        See `Manifest`.

    Returns
    -------
    pathlib.Path
        The state, which is on the disk.

    Raises
    ------
    RunError
        If it cannot be written, or has values that are no number; states from before stay.
    """
    checkpoints = as_path(folder) / CHECKPOINTS_NAME
    path = _on_first_rank(comm, checkpoints, lambda: _new_generation(checkpoints, step))
    partial = path.with_suffix(PARTIAL)
    try:
        said: dict[str, Any] = {"step": step, "time": time, "case": case}
        store = FieldStore(partial, comm, said)
        when = f"step {step}, t = {time:.6g}"
        store.write(_finite(fields, comm, when), is_flushed_later=True)
        files = on_every_rank(comm, store.flush)
        parts = [files] if comm is None else comm.gather(files, root=0) or []

        def complete() -> None:
            arrays = arrays_of(partial)
            manifest = Manifest(
                format=format_of(arrays, seals),
                seals=seals,
                began=began,
                library=__version__,
                arrays=arrays,
                files={name: file for part in parts for name, file in part.items()},
                **said,
            )
            replace_file(partial / MANIFEST, manifest.sealed().text().encode())
            flush_file(partial / MANIFEST)
            flush_folder(partial)
            flush_folder(checkpoints)
            partial.rename(path)
            flush_folder(checkpoints)

        _on_first_rank(comm, partial, complete)
    except BaseException:
        if comm is None or comm.rank == 0:
            shutil.rmtree(partial, ignore_errors=True)
        raise
    _on_first_rank(comm, checkpoints, lambda: _remove_oldest(checkpoints, keep))
    return path


def reseal(state: Path, seals: dict[str, Seal]) -> None:
    """Add the seals of later output to a state that has been written."""
    with errors_name(state):
        try:
            said = read_manifest(state)
        except Damage as damage:
            raise RunError(
                f"{state} has been changed while the run continues: {damage}"
            ) from damage
        changed = said.model_copy(update={"seals": seals, "format": format_of(said.arrays, seals)})
        # A kill must not leave a foreign file in the state.
        partial = state.with_name(state.name + PARTIAL)
        replace_file(state / MANIFEST, changed.sealed().text().encode(), partial=partial)


def _finite(fields: Iterable[Field], comm: Comm, when: str) -> Iterator[Field]:
    """Pass fields on, but refuse, on all ranks, one with values that are no number."""
    for field in fields:

        def check(field: Field = field) -> None:
            if not all_finite(field.data):
                raise RunError(
                    f"{field.name} has values that are no number at {when}: the flow has blown up,"
                    " and this state is not written"
                )

        on_every_rank(comm, check)
        yield field


def open_checkpoint(folder: str | Path, comm: Comm = None) -> Checkpoint:
    """Return the latest state of a run that is as it was written. Collective.

    Parameters
    ----------
    folder : str or pathlib.Path
        Output folder of the run, or one of its states.
    comm : mpi4py.MPI.Comm, optional
        Ranks that share the work of reading it all, to compare its checksums.

    Raises
    ------
    InputError
        If there is none, or all are damaged.
    """
    damaged: list[str] = []
    for path in on_first_rank(comm, lambda: _generations_at(as_path(folder))):
        found = _read(path, comm)
        if isinstance(found, Manifest):
            warnings = (f"{one}; continuing from {path.name}" for one in damaged)
            return Checkpoint(**dict(found), path=path, warnings=tuple(warnings))
        damaged.append(f"initial.restart: {path} is damaged: {found}")
    raise InputError(f"{'; '.join(damaged)}; there is no other state to continue from")


def _read(path: Path, comm: Comm) -> Manifest | str:
    """Return the manifest of a generation, or its fault. Collective."""

    def described() -> Manifest | str:
        try:
            manifest = read_manifest(path)
        except Damage as damage:
            return str(damage)
        named = _GENERATION.fullmatch(path.name)
        if named and int(named[1]) != manifest.step:
            return f"its name is not that of step {manifest.step}"
        return manifest

    found = on_first_rank(comm, described)
    if isinstance(found, str):
        return found
    rank, ranks = (0, 1) if comm is None else (comm.rank, comm.size)
    fault = on_every_rank(comm, lambda: check_chunks(path, found, rank, ranks))
    faults = [fault] if comm is None else comm.allgather(fault)
    return next(filter(None, faults), found)


def generations(checkpoints: Path) -> list[Path]:
    """Return the states in a folder of a run, complete ones only, the latest first."""
    named = ((_GENERATION.fullmatch(path.name), path) for path in checkpoints.iterdir())
    found = [((int(name[1]), int(name[2] or 0)), path) for name, path in named if name]
    return [path for _, path in sorted(found, reverse=True)]


def _generations_at(folder: Path) -> list[Path]:
    """Return the states to read for a folder that a user names; `InputError` if there is none."""
    try:
        if _GENERATION.fullmatch(folder.name) or (folder / MANIFEST).exists():
            folder.lstat()
            return [folder]
        inside = folder if folder.name == CHECKPOINTS_NAME else folder / CHECKPOINTS_NAME
        if found := generations(inside):
            return found
    except (FileNotFoundError, NotADirectoryError, ValueError):
        pass
    except OSError as error:
        raise InputError(
            f"initial.restart: {folder} cannot be read: {error.strerror}; expected {_EXPECTED}"
        ) from error
    raise InputError(f"initial.restart: {folder}: holds no checkpoint; expected {_EXPECTED}")


def _new_generation(checkpoints: Path, step: int) -> Path:
    """Return the path of a new generation; remove what writes that failed have left."""
    make_folder(checkpoints)
    remove_partial(checkpoints)
    path = checkpoints / f"{step:09d}.zarr"
    number = 1
    while path.exists():
        number += 1
        path = checkpoints / f"{step:09d}-{number}.zarr"
    return path


def remove_partial(checkpoints: Path) -> None:
    """Remove what writes that were cut short have left of states, and of old ones that went."""
    for partial in checkpoints.glob(f"*{PARTIAL}"):
        if partial.is_dir():
            shutil.rmtree(partial)
        else:
            partial.unlink()


def set_aside_later(folder: Path, step: int) -> None:
    """Take from the states of a run those later than a step, which are damaged if there are any."""
    checkpoints = folder / CHECKPOINTS_NAME
    for path in generations(checkpoints) if checkpoints.is_dir() else []:
        if int(path.stem.partition("-")[0]) > step:
            with errors_name(path):
                path.rename(free_name(path.with_suffix(DAMAGED)))
                flush_folder(checkpoints)


def _remove_oldest(checkpoints: Path, keep: int) -> None:
    for path in generations(checkpoints)[keep:]:
        # Never incomplete under its name.
        partial = path.with_suffix(PARTIAL)
        path.rename(partial)
        shutil.rmtree(partial)


def _on_first_rank(comm: Comm, path: Path, function: Callable[[], Result]) -> Result:
    """Return on all ranks what a function that writes returns on rank 0. Collective."""

    def write() -> Result:
        with errors_name(path):
            return function()

    return on_first_rank(comm, write)
