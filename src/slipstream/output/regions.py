"""Which points are written, and their values taken from those of all points.

A region has all points, the points of a plane, a line or a box, or every n-th; or places between
points; or the means of planes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slipstream.case.output_tables import Line, Plane, Ranges
from slipstream.collective import sum_over_ranks
from slipstream.decomposition import Box
from slipstream.errors import InputError
from slipstream.simulation.point_values import AXES, Layout, PointValues, interpolated, on_host
from slipstream.simulation.simulation_base import Simulation


@dataclass(frozen=True)
class SampledPoints:
    """The points at which arrays are written.

    Attributes
    ----------
    dims, shape : tuple
        Names of the axes, slowest first, and points along them.
    boxes : tuple of Box
        The parts of the ranks.
    coordinates : mapping
        Of the axes, and of other variables that locate the points.
    coordinate_unit : str
        Their unit.
    origin, spacing : tuple of 3 float
        Along x, y and z, for VTK: of the first point, or of the corner of its cell.
    are_cells : bool
        Whether values are those of cells.
    """

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
    """Points at regular distances along each axis, chosen by their coordinates.

    Attributes
    ----------
    ranges : tuple of range
        The indices along z, y and x.
    fixed : tuple of str
        Axes along which there is one point, because a plane or a line was asked for.
    """

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
        """Return which part of the region a box of points has, and where in the box this is."""
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
    """Takes the values at some points from all of this rank's."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.layout: Layout = simulation.layout()
        self._box = self.layout.boxes[simulation.rank]

    def chunk_box(self, values: Any, plane: int) -> Box:
        """Return which points a chunk of values is of."""
        low = self._box.start[0] + plane
        return self._box.with_range(0, low, low + values.shape[1])


class RegionSampling(_Sampling):
    """The points of a region, each rank its own."""

    def __init__(self, simulation: Simulation, region: Region) -> None:
        super().__init__(simulation)
        self.region = region
        sections = [region.section(box)[0] for box in self.layout.boxes]
        self._own = sections[simulation.rank]
        kept = [place for place, axis in enumerate(AXES) if axis not in region.fixed]
        self._kept = kept
        lines = region.coordinates

        def of_kept(values: Sequence[int]) -> tuple[int, ...]:
            return tuple(values[place] for place in kept)

        boxes = [
            Box(of_kept(one.start), of_kept(one.stop))
            if one.size
            else Box((0,) * len(kept), (0,) * len(kept))
            for one in sections
        ]
        self.points = SampledPoints(
            dims=tuple(AXES[place] for place in kept),
            shape=of_kept(region.shape),
            boxes=tuple(boxes),
            coordinates={AXES[place]: lines[AXES[place]] for place in kept},
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
        found: dict[int, np.ndarray] = {}

        def keep(chunk: Any, plane: int) -> None:
            box = self.chunk_box(chunk, plane)
            found[plane] = interpolated(chunk, self._places, self.layout, box)

        values.each_chunk(keep, components)
        own = np.zeros((len(self._places), len(values.suffixes[components])))
        for plane in sorted(found):
            own += found[plane]
        total = sum_over_ranks(self.simulation.comm, own).T
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
        found: dict[int, tuple[int, np.ndarray]] = {}
        others = tuple(1 + axis for axis in range(3) if axis != self._axis)

        def keep(chunk: Any, plane: int) -> None:
            wide = chunk.astype(np.float64, copy=False)
            sums = [on_host(part.sum(axis=others)) for part in (wide, wide * wide)]
            start = self.chunk_box(chunk, plane).start[self._axis]
            found[plane] = start, np.concatenate(sums)

        values.each_chunk(keep, components)
        count = len(values.suffixes[components])
        own = np.zeros((2 * count, *self.points.shape))
        for _, (start, sums) in sorted(found.items()):
            own[:, start : start + sums.shape[1]] += sums
        total = sum_over_ranks(self.simulation.comm, own)
        means = total * (self.points.shape[0] / float(np.prod(self.layout.shape)))
        return means if self.simulation.rank == 0 else means[:, :0]
