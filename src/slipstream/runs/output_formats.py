"""Parts of fields that a case asks for: planes and boxes, and the formats of their files."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

from slipstream.case.output_tables import Line, Plane, Ranges
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_first_rank, sum_over_ranks
from slipstream.engine.decomposition import Box
from slipstream.engine.errors import InputError
from slipstream.engine.fields import AXES, Field, Layout, PointValues, interpolated, on_host
from slipstream.files.array_files import (
    ImageDataFile,
    PlacedPart,
    check_replaceable,
    write_arrays,
    write_together,
)
from slipstream.files.durable_files import (
    PARTIAL,
    errors_name,
    flush_file,
    flush_folder,
    named,
    replace_file,
)
from slipstream.files.folder_seals import KeptOutput, Seal, file_seal
from slipstream.files.foreign_files import content_of
from slipstream.files.zarr_store import FieldStore
from slipstream.runs.simulation_base import Simulation

# Elements of an attribute in HDF5.
_LONGEST_ATTRIBUTE = 4096
# Bytes of the list of VTK files, at most.
_MOST_COLLECTION = 1 << 26
# Snapshots of small arrays in one chunk, at most.
_TIMES_TOGETHER = 256


@dataclass(frozen=True)
class SampledPoints:
    """The points at which arrays are written; origin and spacing are in the order x, y, z."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    boxes: tuple[Box, ...]
    coordinates: Mapping[str, np.ndarray]
    coordinate_unit: str
    origin: tuple[float, ...] = (0.0, 0.0, 0.0)
    spacing: tuple[float, ...] = (1.0, 1.0, 1.0)
    are_cells: bool = False
    attributes: Mapping[str, Any] = field(default_factory=dict)


def boxes_on_first_rank(shape: tuple[int, ...], ranks: int) -> tuple[Box, ...]:
    """Return the boxes of all ranks of points that the first rank has alone."""
    start = (0,) * len(shape)
    return Box(start, shape), *[Box(start, start)] * (ranks - 1)


class Region:
    """Points at regular distances along each axis; `fixed` are axes with one point by request."""

    def __init__(
        self,
        layout: Layout,
        where: str,
        plane: Plane | None = None,
        line: Line | None = None,
        box: Ranges | None = None,
        stride_xyz: Sequence[int] = (1, 1, 1),
    ) -> None:
        self._layout = layout
        positions: dict[str, float] = {}
        if plane is not None:
            positions[plane.axis] = plane.position
        if line is not None:
            across = [axis for axis in "xyz" if axis != line.axis]
            positions = dict(zip(across, line.position, strict=True))
        self.fixed = tuple(axis for axis in AXES if axis in positions)
        key = f"{where}.{'plane' if plane is not None else 'line'}"
        ranges = []
        for axis, stride in zip(AXES, reversed(tuple(stride_xyz)), strict=True):
            points = range(len(layout.coordinates[axis]))
            if axis in positions:
                index = layout.nearest(axis, positions[axis], key)
                ranges.append(range(index, index + 1))
                continue
            ends = None if box is None else getattr(box, axis)
            if ends is not None:
                points = _within(layout, axis, ends, f"{where}.box.{axis}")
            ranges.append(points[::stride])
        self.ranges = tuple(ranges)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points along z, y and x."""
        return tuple(map(len, self.ranges))

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """Coordinates along each axis."""
        lines = self._layout.coordinates
        return {
            axis: lines[axis][points.start : points.stop : points.step]
            for axis, points in zip(AXES, self.ranges, strict=True)
        }

    @property
    def spacing(self) -> tuple[float, ...]:
        """Distances of points along x, y and z."""
        pairs = zip(AXES, self.ranges, strict=True)
        return tuple(reversed([self._layout.spacing(axis) * own.step for axis, own in pairs]))

    @property
    def origin(self) -> tuple[float, ...]:
        """Coordinates x, y and z of the first point, or of the corner of its cell."""
        half = 0.5 if self._layout.are_cells else 0.0
        lines = self.coordinates
        return tuple(
            float(lines[axis][0]) - half * step
            for axis, step in zip("xyz", self.spacing, strict=True)
        )

    def section(self, box: Box) -> tuple[Box, tuple[slice, ...]]:
        """Return the part of the region that a box of points has, and its indices in the box."""
        start, stop, slices = [], [], []
        for points, low, high in zip(self.ranges, box.start, box.stop, strict=True):
            first = min(max(0, -((points.start - low) // points.step)), len(points))
            last = min(max(first, -((points.start - high) // points.step)), len(points))
            start.append(first)
            stop.append(last)
            begin = points.start + first * points.step - low
            slices.append(slice(begin, begin + (last - first) * points.step, points.step))
        return Box(tuple(start), tuple(stop)), tuple(slices)


def check_places(layout: Layout, places: np.ndarray, key: str) -> None:
    """Refuse places (x, y, z) that are outside."""
    for axis, values in zip("xyz", places.T, strict=True):
        low, high = layout.ends(axis)
        wrong = values[(values < low) | (values > high)]
        if wrong.size:
            raise InputError(
                f"{key}: {axis} = {wrong[0]:g} is outside; accepted: {low:g} to {high:g}"
            )


def _within(layout: Layout, axis: str, ends: Sequence[float], key: str) -> range:
    line = layout.coordinates[axis]
    # Ends that are meant to be points may be rounded.
    slack = 1e-9 * layout.spacing(axis)
    first, last = np.searchsorted(line, [ends[0] - slack, ends[1] + slack])
    if first == last:
        low, high = layout.ends(axis)
        raise InputError(
            f"{key}: there is no point from {ends[0]:g} to {ends[1]:g}; accepted: ranges within"
            f" {low:g} to {high:g}, with a point in them"
        )
    return range(int(first), int(last))


class _Sampling:
    """The values at some points, from all values of this rank."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.layout: Layout = simulation.layout()
        self._box = self.layout.boxes[simulation.rank]

    def chunk_box(self, values: Any, plane: int) -> Box:
        """Return the box of a chunk of values."""
        low = self._box.start[0] + plane
        return self._box.with_range(0, low, low + values.shape[1])


class RegionSampling(_Sampling):
    """The points of a region, each rank its own."""

    def __init__(self, simulation: Simulation, region: Region) -> None:
        super().__init__(simulation)
        self.region = region
        sections = [region.section(box)[0] for box in self.layout.boxes]
        self._own = sections[simulation.rank]
        kept = [axis_index for axis_index, axis in enumerate(AXES) if axis not in region.fixed]
        self._kept = kept
        lines = region.coordinates

        def of_kept(values: Sequence[int]) -> tuple[int, ...]:
            return tuple(values[axis_index] for axis_index in kept)

        boxes = [
            Box(of_kept(section.start), of_kept(section.stop))
            if section.size
            else Box((0,) * len(kept), (0,) * len(kept))
            for section in sections
        ]
        self.points = SampledPoints(
            dims=tuple(AXES[axis_index] for axis_index in kept),
            shape=of_kept(region.shape),
            boxes=tuple(boxes),
            coordinates={AXES[axis_index]: lines[AXES[axis_index]] for axis_index in kept},
            coordinate_unit=self.layout.unit,
            origin=region.origin,
            spacing=region.spacing,
            are_cells=self.layout.are_cells,
            attributes={axis: float(lines[axis][0]) for axis in region.fixed},
        )

    def take(self, values: PointValues, components: slice, dtype: np.dtype) -> np.ndarray:
        """Return this rank's part of some components. Collective."""
        count = len(values.suffixes[components])
        part = np.empty((count, *self._own.shape), dtype)

        def keep(chunk: Any, plane: int) -> None:
            inner, slices = self.region.section(self.chunk_box(chunk, plane))
            if inner.size:
                part[(slice(None), *inner.slices(self._own))] = on_host(
                    chunk[(slice(None), *slices)]
                )

        with np.errstate(over="ignore"):
            values.each_chunk(keep, components)
        shape = [self._own.shape[place] for place in self._kept]
        return (
            part.reshape(count, *shape)
            if self._own.size
            else part[..., :0].reshape(count, *([0] * len(shape)))
        )


class PlaceSampling(_Sampling):
    """Places between the points, by cubic interpolation: the first rank has them all."""

    def __init__(self, simulation: Simulation, places: np.ndarray) -> None:
        super().__init__(simulation)
        self._places = places
        self.points = SampledPoints(
            dims=("point",),
            shape=(len(places),),
            boxes=boxes_on_first_rank((len(places),), len(self.layout.boxes)),
            coordinates={
                "point": np.arange(len(places), dtype=float),
                **{axis: places[:, number] for number, axis in enumerate("xyz")},
            },
            coordinate_unit=self.layout.unit,
            attributes={"coordinates": "x y z"},
        )

    def take(self, values: PointValues, components: slice, dtype: np.dtype) -> np.ndarray:
        """Return this rank's part of some components. Collective."""
        parts: dict[int, np.ndarray] = {}

        def keep(chunk: Any, plane: int) -> None:
            box = self.chunk_box(chunk, plane)
            parts[plane] = interpolated(chunk, self._places, self.layout, box)

        values.each_chunk(keep, components)
        own_values = np.zeros((len(self._places), len(values.suffixes[components])))
        for plane in sorted(parts):
            own_values += parts[plane]
        total = sum_over_ranks(self.simulation.comm, own_values).T
        part = total if self.simulation.rank == 0 else total[:, :0]
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(part, dtype)


class ProfileSampling(_Sampling):
    """Means over planes, along one axis: the first rank has them all."""

    def __init__(self, simulation: Simulation, axis: str) -> None:
        super().__init__(simulation)
        self._axis = AXES.index(axis)
        count = self.layout.shape[self._axis]
        self.points = SampledPoints(
            dims=(axis,),
            shape=(count,),
            boxes=boxes_on_first_rank((count,), len(self.layout.boxes)),
            coordinates={axis: self.layout.coordinates[axis]},
            coordinate_unit=self.layout.unit,
            origin=tuple(float(self.layout.coordinates[one][0]) for one in "xyz"),
            spacing=tuple(self.layout.spacing(one) for one in "xyz"),
            are_cells=self.layout.are_cells,
        )

    def take(self, values: PointValues, components: slice, dtype: np.dtype) -> np.ndarray:
        """Return, on the first rank, the means over planes and then their squares. Collective."""
        parts: dict[int, tuple[int, np.ndarray]] = {}
        other_axes = tuple(1 + axis for axis in range(3) if axis != self._axis)

        def keep(chunk: Any, plane: int) -> None:
            wide = chunk.astype(np.float64, copy=False)
            sums = [on_host(part.sum(axis=other_axes)) for part in (wide, wide * wide)]
            start = self.chunk_box(chunk, plane).start[self._axis]
            parts[plane] = start, np.concatenate(sums)

        values.each_chunk(keep, components)
        count = len(values.suffixes[components])
        own_sums = np.zeros((2 * count, *self.points.shape))
        for _, (start, sums) in sorted(parts.items()):
            own_sums[:, start : start + sums.shape[1]] += sums
        total = sum_over_ranks(self.simulation.comm, own_sums)
        means = total * (self.points.shape[0] / float(np.prod(self.layout.shape)))
        return means if self.simulation.rank == 0 else means[:, :0]


@dataclass(frozen=True)
class SampledArray:
    """An array that is written at each time, a vector as one of several components."""

    name: str
    suffixes: tuple[str, ...]
    dtype: np.dtype
    long_name: str
    unit: str


# ``make(array, components)`` returns this rank's part, [component, ...] of the array's type.
Make = Callable[[SampledArray, slice], np.ndarray]


class SnapshotFiles(ABC):
    """Files of a format, into which snapshots go. All methods are collective.

    With `until`, existing files continue: `go_on` drops snapshots that are later, or not `kept`.
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
        other_names = (
            [one.name for one in self.path.iterdir() if not self._is_ours(one)]
            if (self.path.is_dir() and not self.path.is_symlink())
            else [self.path.name]
        )
        if other_names:
            raise InputError(
                f"{named(self.path)} is there, and {other_names[0]} in it is no snapshot; accepted:"
                " another name"
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
        """Yield the time of each stored snapshot; None if it cannot be read."""

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


# By format, a name of `slipstream.engine.accepted.OUTPUT_FORMATS`.
SNAPSHOTS: dict[str, type[SnapshotFiles]] = {
    "zarr": ZarrSnapshots,
    "hdf5": Hdf5Snapshots,
    "vtk": VtkSnapshots,
}


def _groups(array: SampledArray) -> list[slice]:
    """Return the components that are made together: at most a vector's."""
    count = len(array.suffixes)
    return [slice(low, min(low + 3, count)) for low in range(0, count, 3)]
