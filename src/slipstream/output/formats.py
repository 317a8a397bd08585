"""Snapshots of fields, one after the other, in the formats that users choose.

All ranks write, each its own part. A snapshot that was cut short is not seen: single files appear
when they are complete, and a zarr group lists complete snapshots only.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

from slipstream.array_types import Comm
from slipstream.collective import on_first_rank
from slipstream.errors import InputError
from slipstream.field import Field
from slipstream.io.array_files import (
    PlacedPart,
    check_replaceable,
    write_arrays,
    write_together,
)
from slipstream.io.durable_files import (
    PARTIAL,
    errors_name,
    flush_file,
    flush_folder,
    replace_file,
)
from slipstream.io.folder_seals import KeptOutput, Seal, file_seal
from slipstream.io.foreign_files import content_of
from slipstream.io.vtk_files import ImageDataFile
from slipstream.io.zarr_store import FieldStore
from slipstream.output.regions import SampledPoints

# Elements of an attribute in HDF5.
_LONGEST_ATTRIBUTE = 4096
_MOST_COLLECTION = 1 << 26
# Snapshots of small arrays in one chunk, at most.
_TIMES_TOGETHER = 256


@dataclass(frozen=True)
class SampledArray:
    """An array that is written at each time: its properties that are the same at all times.

    A vector is one array of several components.
    """

    name: str
    suffixes: tuple[str, ...]
    dtype: np.dtype
    long_name: str
    unit: str


# ``make(array, components)`` returns this rank's part, [component, ...] of the array's type.
Make = Callable[[SampledArray, slice], np.ndarray]


class SnapshotFiles(ABC):
    """Files of a format, into which snapshots go. All methods are collective.

    Existing files that these classes wrote are replaced. With `until`, a time, they are continued:
    `go_on` drops snapshots that are later, or not `kept`.

    Attributes
    ----------
    times : list of float
        Times of the snapshots that are continued.
    """

    @classmethod
    def names(cls, stem: str) -> tuple[str, ...]:
        """Return the names of the files for a stem; the first is the name of the path."""
        return (stem,)

    def __init__(
        self,
        path: Path,
        arrays: Sequence[SampledArray],
        points: SampledPoints,
        comm: Comm,
        attributes: Mapping[str, Any],
        until: float | None = None,
        kept: KeptOutput | None = None,
    ) -> None:
        self._kept = kept or KeptOutput()
        self.path, self._arrays, self._points = path, list(arrays), points
        self._comm, self._attributes = comm, dict(attributes)
        self._rank = 0 if comm is None else comm.rank
        self.times: list[float] = []
        on_first_rank(comm, self._check)
        if until is None or not os.path.lexists(path):
            self._begin()
        else:
            self._find(until)

    @abstractmethod
    def _check(self) -> None:
        """Refuse to replace files that are somebody else's."""

    @abstractmethod
    def _begin(self) -> None:
        """Remove the files that are replaced, and make the files that snapshots need."""

    @abstractmethod
    def _find(self, until: float) -> None:
        """Find the snapshots to continue; change nothing."""

    @abstractmethod
    def go_on(self) -> None:
        """Drop all snapshots after the ones that are continued."""

    @abstractmethod
    def replace_last(self) -> None:
        """Replace the last of the continued snapshots by the next one."""

    @abstractmethod
    def append(self, time: float, step: int, make: Make) -> None:
        """Write a snapshot."""

    @abstractmethod
    def seal(self) -> Seal:
        """Return the seal of the snapshots; only meaningful on rank 0."""


class ZarrSnapshots(SnapshotFiles):
    """A zarr group with an axis of time, an array for each component."""

    @classmethod
    def names(cls, stem: str) -> tuple[str, ...]:
        return (f"{stem}.zarr",)

    def _check(self) -> None:
        check_replaceable(self.path)

    def _begin(self) -> None:
        self._store = FieldStore(self.path, self._comm, self._attributes, _TIMES_TOGETHER)

    def _find(self, until: float) -> None:
        self._store = FieldStore(
            self.path, self._comm, self._attributes, _TIMES_TOGETHER, until, kept=self._kept
        )
        self.times = self._store.times

    def go_on(self) -> None:
        self._store.go_on()

    def replace_last(self) -> None:
        self._store.replace_last()

    def append(self, time: float, step: int, make: Make) -> None:
        self._store.append(time, self._fields(make))

    def seal(self) -> Seal:
        return self._store.seal()

    def _fields(self, make: Make) -> Iterator[Field]:
        points = self._points
        for array in self._arrays:
            for group in _groups(array):
                for suffix, part in zip(array.suffixes[group], make(array, group), strict=True):
                    yield Field(
                        array.name + suffix,
                        points.dims,
                        points.shape,
                        points.boxes[self._rank].start,
                        part,
                        points.coordinates,
                        {"long_name": array.long_name, "units": array.unit, **points.attributes},
                        points.coordinate_unit,
                    )


class _FileForEach(SnapshotFiles):
    """A folder with a file for each snapshot, which are numbered from 0."""

    ending: str

    def _check(self) -> None:
        if not os.path.lexists(self.path):
            return
        others = (
            [one.name for one in self.path.iterdir() if not self._is_ours(one)]
            if (self.path.is_dir() and not self.path.is_symlink())
            else [self.path.name]
        )
        if others:
            raise InputError(
                f"{self.path} is there, and {others[0]} in it is no snapshot; accepted: another"
                " name"
            )

    def _is_ours(self, path: Path) -> bool:
        number = path.name.removesuffix(PARTIAL).removesuffix(self.ending)
        number = number.removeprefix(f"{self.path.name}_")
        return path.is_file() and number.isdigit() and not path.is_symlink()

    _seal = Seal(length=0, snapshots=())

    def _begin(self) -> None:
        self._count = 0

        def make_folder() -> None:
            with errors_name(self.path):
                if self.path.exists():
                    shutil.rmtree(self.path)
                self.path.mkdir()
            flush_folder(self.path.parent)

        on_first_rank(self._comm, make_folder)

    def _find(self, until: float) -> None:
        def look() -> list[float]:
            with errors_name(self.path):
                times = itertools.takewhile(
                    lambda time: time is not None and time <= until * (1 + 1e-12), self._stored()
                )
                return [time for time in times if time is not None]

        self.times = on_first_rank(self._comm, look)
        seal = (self._kept.seals or {}).get(self.path.name)
        if seal is not None:
            del self.times[len(seal.snapshots or ()) :]
        self._count = len(self.times)

    @abstractmethod
    def _stored(self) -> Iterator[float | None]:
        """Yield the time of each snapshot that is there; None if it cannot be read."""

    def go_on(self) -> None:
        def remove() -> None:
            with errors_name(self.path):
                kept = {self._file(number).name for number in range(len(self.times))}
                for path in self.path.iterdir():
                    if self._is_ours(path) and path.name not in kept:
                        path.unlink()
            flush_folder(self.path)

        on_first_rank(self._comm, remove)

    def replace_last(self) -> None:
        self._count = max(0, len(self.times) - 1)
        self._seal = Seal(length=0, snapshots=())

    def seal(self) -> Seal:
        known = self._seal if self._count > len(self._seal.snapshots or ()) else None
        self._seal = on_first_rank(self._comm, lambda: file_seal(self.path, self._count, known))
        return self._seal

    def _file(self, number: int) -> Path:
        return self.path / f"{self.path.name}_{number:06d}{self.ending}"

    def _next(self) -> Path:
        self._count += 1
        return self._file(self._count - 1)


class Hdf5Snapshots(_FileForEach):
    """HDF5 files, with an array for each component and the places of points as attributes."""

    ending = ".h5"

    def _stored(self) -> Iterator[float | None]:
        import h5py

        for number in itertools.count():
            if not self._file(number).exists():
                return
            try:
                with h5py.File(self._file(number), "r") as file:
                    yield float(file.attrs["time"])
            except (OSError, KeyError, TypeError, ValueError):
                yield None

    def append(self, time: float, step: int, make: Make) -> None:
        points = self._points
        parts: dict[str, np.ndarray] = {}
        for array in self._arrays:
            for group in _groups(array):
                names = [array.name + suffix for suffix in array.suffixes[group]]
                parts.update(zip(names, make(array, group), strict=True))
        # Longer ones do not fit into attributes; points are at regular distances then.
        places = {
            name: values if values.size <= _LONGEST_ATTRIBUTE else values[[0, 1, -1]]
            for name, values in points.coordinates.items()
        }
        attributes = {**self._attributes, **places, **points.attributes, "time": time, "step": step}
        write_arrays(self._next(), parts, points.boxes, self._comm, attributes)
        on_first_rank(self._comm, lambda: flush_folder(self.path))


class VtkSnapshots(_FileForEach):
    """VTK's image data, and a collection (``.pvd``) of them next to the folder."""

    ending = ".vti"

    @classmethod
    def names(cls, stem: str) -> tuple[str, ...]:
        return (stem, f"{stem}.pvd")

    @property
    def _collection(self) -> Path:
        return self.path.with_name(f"{self.path.name}.pvd")

    def _begin(self) -> None:
        super()._begin()
        self._times: list[float] = []
        on_first_rank(self._comm, self._write_collection)

    def _find(self, until: float) -> None:
        super()._find(until)
        self._times = list(self.times)

    def _stored(self) -> Iterator[float | None]:
        path = self._collection
        text = content_of(path, _MOST_COLLECTION).decode() if path.exists() else ""
        for number, time in enumerate(re.findall(r'<DataSet timestep="([^"]*)"', text)):
            try:
                yield float(time) if self._file(number).exists() else None
            except ValueError:
                yield None

    def go_on(self) -> None:
        on_first_rank(self._comm, self._write_collection)
        super().go_on()

    def append(self, time: float, step: int, make: Make) -> None:
        write_together(self._next(), self._comm, self._make_file, self._placed(make))
        self._times[self._count - 1 :] = [time]
        on_first_rank(self._comm, self._write_collection)

    def _make_file(self, path: Path) -> dict[str, int]:
        points = self._points
        sizes = dict(zip(points.dims, points.shape, strict=True))
        shape = tuple(sizes.get(axis, 1) for axis in "zyx")
        kinds = {one.name: (one.dtype, len(one.suffixes)) for one in self._arrays}
        how = {"origin": points.origin, "on_points": not points.are_cells}
        with (
            errors_name(path),
            ImageDataFile(path, shape, points.spacing, kinds, **how) as file,  # type: ignore[arg-type]
        ):
            return dict(file.starts)

    def _placed(self, make: Make) -> Iterator[PlacedPart]:
        """Yield this rank's part of each array, components together."""
        box, shape = self._points.boxes[self._rank], self._points.shape
        for array in self._arrays:
            part = make(array, slice(0, len(array.suffixes)))
            values = np.ascontiguousarray(np.moveaxis(part, 0, -1))
            values = values.astype(values.dtype.newbyteorder("<"), copy=False)
            yield array.name, values, (*shape, len(part)), (*box.start, 0)

    def _write_collection(self) -> None:
        lines = "".join(
            f'    <DataSet timestep="{time!r}" part="0" file='
            f"{quoteattr(f'{self.path.name}/{self.path.name}_{number:06d}{self.ending}')}/>\n"
            for number, time in enumerate(self._times)
        )
        text = (
            '<?xml version="1.0"?>\n<VTKFile type="Collection" version="1.0"'
            ' byte_order="LittleEndian">\n  <Collection>\n'
            f"{lines}  </Collection>\n</VTKFile>\n"
        )
        replace_file(self._collection, text.encode())
        flush_file(self._collection)
        for folder in (self.path, self.path.parent):
            flush_folder(folder)


# By format, a name of `slipstream.accepted.OUTPUT_FORMATS`.
SNAPSHOTS: dict[str, type[SnapshotFiles]] = {
    "zarr": ZarrSnapshots,
    "hdf5": Hdf5Snapshots,
    "vtk": VtkSnapshots,
}


def _groups(array: SampledArray) -> list[slice]:
    """Return which components are made together: no more than those of a vector."""
    count = len(array.suffixes)
    return [slice(low, min(low + 3, count)) for low in range(0, count, 3)]
