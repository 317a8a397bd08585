"""Fields at the points from files: zarr folders of earlier runs, HDF5 files, or NumPy archives.

Arrays are found by the names of the state's components, such as ``velocity_x``, and are indexed
[z, y, x], with the number of the snapshot before that where there are several. Every rank reads the
planes that it needs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.array_types import Comm
from slipstream.collective import on_every_rank
from slipstream.errors import InputError
from slipstream.io.image_formats import readable
from slipstream.spectral.spectral_problem import SpectralProblem

_FIELDS = "fields.zarr"


def read_points(path: str, time: int | None, problem: SpectralProblem, comm: Comm) -> np.ndarray:
    """Read this rank's points of the state; components that the file lacks are 0. Collective.

    `time` is the number of a snapshot, from 0; None is the last, or an array without any. What is
    wrong on one rank raises on all.
    """
    return on_every_rank(comm, lambda: _read(Path(path), time, problem))


def _read(path: Path, time: int | None, problem: SpectralProblem) -> np.ndarray:
    if not path.exists():
        raise InputError(f"initial.path: {path}: no such file or folder")
    result = np.zeros((problem.size, *problem.geometry.physical_box.shape), problem.real_dtype)
    with readable(f"initial.path: {path}"), _arrays(path) as arrays:
        names = [str(value) for value in problem.model.unknowns]
        if not set(names) & set(arrays):
            raise InputError(
                f"initial.path: {path} holds no array of the model ({', '.join(names)}); it holds: "
                f"{', '.join(sorted(arrays)) or 'none'}"
            )
        for name, target in zip(names, result, strict=False):
            if name in arrays:
                _read_component(f"{name} in {path}", arrays[name], time, problem, target)
    return result


def _read_component(
    name: str, array: Any, time: int | None, problem: SpectralProblem, target: np.ndarray
) -> None:
    """Read this rank's planes of an array into `target`."""
    expected, shape = problem.geometry.shape, tuple(array.shape)
    if len(shape) not in (3, 4) or shape[-3:] != expected:
        raise InputError(
            f"initial.path: {name} has shape {shape}; accepted: {expected}, the points of the grid "
            "along z, y and x, or with a time axis before these"
        )
    if np.dtype(array.dtype).kind not in "iuf":
        raise InputError(f"initial.path: {name} is of type {array.dtype}; accepted: real numbers")
    place = _snapshot(name, shape, time)
    planes = problem.geometry.physical_box.slices()[0]
    if target.size:
        with np.errstate(over="ignore"):  # what float32 cannot hold is refused below
            target[...] = array[(*place, planes)]
    if not np.isfinite(target).all():
        raise InputError(
            f"initial.path: {name} has values that are infinite or not a number (NaN); accepted: "
            f"numbers within the range of {target.dtype}"
        )


def _snapshot(name: str, shape: tuple[int, ...], time: int | None) -> tuple[int, ...]:
    """Return the index along the time axis, nothing where there is none."""
    if len(shape) == 3:
        if time is not None:
            raise InputError(f"initial.time: {name} has no time axis; leave the key out")
        return ()
    if shape[0] == 0:
        raise InputError(f"initial.path: {name} has no snapshot yet")
    if time is not None and time >= shape[0]:
        raise InputError(
            f"initial.time: {time} is beyond the snapshots of {name}; accepted: 0 to {shape[0] - 1}"
        )
    return (shape[0] - 1 if time is None else time,)


@contextlib.contextmanager
def _arrays(path: Path) -> Iterator[Mapping[str, Any]]:
    """Open a file: its arrays by their names, each of which is read where it is indexed."""
    # These libraries take a while to import, which other flows need not wait for.
    import h5py
    import zarr

    if path.is_dir():
        inner = path / _FIELDS
        group = zarr.open_group(inner if inner.is_dir() else path, mode="r")
        yield dict(group.arrays())
    elif path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            yield archive
    elif h5py.is_hdf5(path):
        with h5py.File(path, "r") as file:
            yield {name: one for name, one in file.items() if isinstance(one, h5py.Dataset)}
    else:
        raise InputError(
            f"initial.path: {path} is of no known format; accepted: the output folder of a run, a "
            "zarr folder, an HDF5 file, or NumPy's .npz"
        )
