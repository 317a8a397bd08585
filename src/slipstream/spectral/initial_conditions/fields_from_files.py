"""Fields at the points from files: zarr folders of earlier runs, HDF5 files, or NumPy archives.

Arrays have the names of the state's components, such as ``velocity_x``, and are indexed [z, y, x],
or [snapshot, z, y, x]. Every rank reads the planes that it needs. Files are not trusted: links to
other files are not followed, and no code in them is run.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.array_types import Comm
from slipstream.collective import on_every_rank
from slipstream.errors import InputError
from slipstream.io.foreign_files import foreign_arrays, own_dataset
from slipstream.io.image_formats import readable
from slipstream.printable_text import shortened
from slipstream.spectral.resampling import is_other_resolution, resampled, text_of
from slipstream.spectral.spectral_problem import SpectralProblem

_FIELDS = "fields.zarr"


def read_points(
    path: str, time: int | None, problem: SpectralProblem, comm: Comm
) -> tuple[np.ndarray, list[str]]:
    """Read this rank's points of the state, and warnings. Collective.

    Components that the file lacks are 0. `time` is the number of a snapshot, from 0; None is the
    last, or an array without snapshots. An error on one rank raises on all.
    """
    return on_every_rank(comm, lambda: _read(Path(path), time, problem))


def _read(path: Path, time: int | None, problem: SpectralProblem) -> tuple[np.ndarray, list[str]]:
    warnings: list[str] = []
    if not os.path.exists(path):  # which accepts names of any length
        raise InputError(f"initial.path: {path}: no such file or folder")
    result = np.zeros((problem.size, *problem.geometry.physical_box.shape), problem.real_dtype)
    with readable(f"initial.path: {path}"), _arrays(path) as arrays:
        names = [str(value) for value in problem.model.unknowns]
        if not set(names) & set(arrays):
            raise InputError(
                f"initial.path: {path} holds no array of the model ({', '.join(names)}); it holds: "
                f"{shortened(', '.join(sorted(arrays)), 400) or 'none'}"
            )
        for name, target in zip(names, result, strict=False):
            if name in arrays:
                what = f"{name} in {path}"
                warnings += _read_component(what, arrays[name], time, problem, target)
    return result, warnings


def _read_component(
    name: str, array: Any, time: int | None, problem: SpectralProblem, target: np.ndarray
) -> list[str]:
    """Read this rank's points of an array into `target`; return warnings."""
    expected, shape = problem.geometry.shape, tuple(array.shape)
    is_other = problem.mirror is None and is_other_resolution(shape[-3:], expected)
    if len(shape) not in (3, 4) or not (is_other or shape[-3:] == expected):
        raise InputError(
            f"initial.path: {name} has shape {shape}; accepted: {expected}, the points of the grid "
            "along z, y and x, another resolution in the same proportions, or with a time axis "
            "before these"
        )
    if np.dtype(array.dtype).kind not in "iuf":
        raise InputError(f"initial.path: {name} is of type {array.dtype}; accepted: real numbers")
    place = _snapshot(name, shape, time)
    planes, rows, _ = problem.geometry.physical_box.slices()
    if is_other and target.size:
        with np.errstate(over="ignore"):
            target[...] = resampled(
                lambda low, high: array[(*place, slice(low, high))],
                shape[-3:],
                expected,
                problem.geometry.physical_box,
            )
    elif target.size:
        with np.errstate(over="ignore"):  # values beyond float32 are refused below
            target[...] = array[(*place, planes)][:, rows]
    if not np.isfinite(target).all():
        raise InputError(
            f"initial.path: {name} has values that are infinite or not a number (NaN); accepted: "
            f"numbers within the range of {target.dtype}"
        )
    return [f"initial.path: {text_of(name, shape[-3:], expected)}"] if is_other else []


def _snapshot(name: str, shape: tuple[int, ...], time: int | None) -> tuple[int, ...]:
    """Return the index along the time axis; empty for an array without one."""
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
    """Open a file: its arrays by name, read when they are indexed."""
    import h5py  # imported here, since it takes a while and other flows do not need it

    if path.is_dir():
        inner = path / _FIELDS
        arrays = foreign_arrays(inner if inner.is_dir() else path)
        yield _Arrays({name: one.open for name, one in arrays.items()})
    elif not path.is_file():
        raise InputError(f"initial.path: {path} is not a regular file")
    elif path.suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
            members = {name: functools.partial(_Member, archive, name) for name in names}
            yield _Arrays({name.removesuffix(".npy"): one for name, one in members.items()})
    elif h5py.is_hdf5(path):
        with h5py.File(path, "r") as file:
            yield _Arrays({name: functools.partial(_dataset, file, name) for name in file})
    else:
        raise InputError(
            f"initial.path: {path} is of no known format; accepted: the output folder of a run, a "
            "zarr folder, an HDF5 file, or NumPy's .npz"
        )


class _Arrays(Mapping[str, Any]):
    """Arrays by name, opened on access: others are not inspected."""

    def __init__(self, openers: Mapping[str, Callable[[], Any]]) -> None:
        self._openers = openers

    def __getitem__(self, name: str) -> Any:
        return self._openers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._openers)

    def __len__(self) -> int:
        return len(self._openers)


def _dataset(file: Any, name: str) -> Any:
    found = own_dataset(file, name)
    if found is None:
        raise ValueError(f"{name} is not a data set")
    return found


class _Member:
    """An array of a NumPy archive; its shape is known before it is unpacked."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self._archive, self._name = archive, name
        with archive.open(name) as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                read = np.lib.format.read_array_header_2_0
            self.shape, self._is_transposed, self.dtype = read(file)
            self._start = file.tell()

    def __getitem__(self, place: tuple[Any, ...]) -> np.ndarray:
        """Return some planes, (plane) or (snapshot, plane)."""
        *snapshot, planes = place
        rest = math.prod(self.shape[-2:]) * self.dtype.itemsize
        first = snapshot[0] * self.shape[1] if snapshot else 0
        low, high, _ = planes.indices(self.shape[-3])
        with self._archive.open(self._name) as file:
            if self._is_transposed:
                if snapshot:
                    raise ValueError(f"{self._name} is in Fortran order; accepted: C order")
                whole: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
                wanted: np.ndarray = whole[planes]
                return wanted
            file.seek(self._start + (first + low) * rest)
            content = file.read((high - low) * rest)
        return np.frombuffer(content, self.dtype).reshape(high - low, *self.shape[-2:])
