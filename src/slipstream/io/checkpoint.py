"""The state of a run, from which another run restarts, on any number of ranks.

A checkpoint is complete or absent: it is written under another name and renamed when all ranks are
done. The one that it replaces is removed only after that.
"""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from slipstream.array_types import Comm
from slipstream.errors import InputError
from slipstream.field import Field
from slipstream.io.zarr_store import FieldStore, read_field

CHECKPOINT_NAME = "checkpoint.zarr"
PARTIAL_NAME = "checkpoint.partial"
PREVIOUS_NAME = "checkpoint.previous"
_EXPECTED = "the output folder of a finished run, or its checkpoint.zarr"


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint that can be read.

    Attributes
    ----------
    path : pathlib.Path
        The zarr group.
    step : int
        Number of time steps that were done.
    time : float
        Time of the state (non-dimensional).
    case : str
        The effective case of the run that wrote it, as TOML.
    shapes : dict of str to tuple of int
        Global shape of each stored array.
    """

    path: Path
    step: int
    time: float
    case: str
    shapes: dict[str, tuple[int, ...]]

    def read(
        self, name: str, offset: Sequence[int] | None = None, shape: Sequence[int] | None = None
    ) -> np.ndarray:
        """Read a box of one array, as `read_field` does."""
        return read_field(self.path, name, offset, shape)


def write_checkpoint(
    folder: str | Path,
    fields: Iterable[Field],
    comm: Comm = None,
    *,
    step: int,
    time: float,
    case: str,
) -> Path:
    """Write the state, the same fields on all ranks, into a run's output folder. Collective.

    `case` is the effective case as TOML.
    """
    path = Path(folder) / CHECKPOINT_NAME
    partial, previous = path.with_name(PARTIAL_NAME), path.with_name(PREVIOUS_NAME)
    attributes = {"step": step, "time": time, "case": case}
    FieldStore(partial, comm, attributes).write(fields)
    if comm is None or comm.rank == 0:
        if path.exists():
            shutil.rmtree(previous, ignore_errors=True)
            path.rename(previous)
        partial.rename(path)
        shutil.rmtree(previous, ignore_errors=True)
    if comm is not None:
        comm.Barrier()
    return path


def open_checkpoint(folder: str | Path) -> Checkpoint:
    """Return the last complete checkpoint of a run.

    Parameters
    ----------
    folder : str or pathlib.Path
        Output folder of the run, or the checkpoint itself.

    Raises
    ------
    InputError
        If there is none, or what is there was not written as one.
    """
    folder = Path(folder)
    own = folder if folder.name == CHECKPOINT_NAME else folder / CHECKPOINT_NAME
    # A run killed between the two renames leaves only the one it was replacing.
    for path in (own, own.with_name(PREVIOUS_NAME)):
        if path.is_dir():
            return _read_description(path)
    raise InputError(f"initial.restart: {folder}: holds no checkpoint; expected {_EXPECTED}")


def _read_description(path: Path) -> Checkpoint:
    """Return the checkpoint at `path`; an InputError if it was not written as one."""
    try:
        group = zarr.open_group(path, mode="r")
        shapes = {name: array.shape for name, array in group.arrays()}
        attributes: dict[str, Any] = dict(group.attrs)
    except (FileNotFoundError, KeyError, ValueError) as error:
        raise InputError(
            f"initial.restart: {path} is no zarr group that can be read; expected {_EXPECTED}"
        ) from error
    kinds = {"step": int, "time": int | float, "case": str}
    missing = [name for name, kind in kinds.items() if not isinstance(attributes.get(name), kind)]
    if missing:
        raise InputError(
            f"initial.restart: {path} is no checkpoint: it lacks {', '.join(missing)};"
            f" expected {_EXPECTED}"
        )
    step, time, case = (attributes[name] for name in kinds)
    return Checkpoint(path, step, float(time), case, shapes)
