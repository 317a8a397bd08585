"""Which points of a grid are written: all, or those of a plane, a line or a box, or every n-th."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slipstream.case.chosen_outputs import Line, Plane, Ranges
from slipstream.decomposition import Box
from slipstream.errors import InputError
from slipstream.simulation.point_values import AXES, Layout


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
                index = nearest_point(layout, axis, positions[axis], key)
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


def nearest_point(layout: Layout, axis: str, position: float, key: str) -> int:
    """Return the index of the point that is nearest to a coordinate, or refuse one outside."""
    low, high = _ends(layout, axis)
    if not low <= position <= high:
        raise InputError(
            f"{key}: position {position:g} along {axis} is outside; accepted: {low:g} to {high:g}"
        )
    return int(np.argmin(np.abs(layout.coordinates[axis] - position)))


def check_places(layout: Layout, places: np.ndarray, key: str) -> None:
    """Refuse places (x, y, z) that are outside."""
    for axis, values in zip("xyz", places.T, strict=True):
        low, high = _ends(layout, axis)
        wrong = values[(values < low) | (values > high)]
        if wrong.size:
            raise InputError(
                f"{key}: {axis} = {wrong[0]:g} is outside; accepted: {low:g} to {high:g}"
            )


def _ends(layout: Layout, axis: str) -> tuple[float, float]:
    line, spacing = layout.coordinates[axis], layout.spacing(axis)
    shift = spacing / 2 if layout.are_cells else 0.0
    return float(line[0]) - shift, float(line[-1]) + spacing - shift


def _within(layout: Layout, axis: str, ends: Sequence[float], key: str) -> range:
    line = layout.coordinates[axis]
    # Ends that are meant to be points may be rounded.
    slack = 1e-9 * layout.spacing(axis)
    first, last = np.searchsorted(line, [ends[0] - slack, ends[1] + slack])
    if first == last:
        low, high = _ends(layout, axis)
        raise InputError(
            f"{key}: there is no point from {ends[0]:g} to {ends[1]:g}; accepted: ranges within"
            f" {low:g} to {high:g}, with a point in them"
        )
    return range(int(first), int(last))
