"""Values of a simulation at its points: of a field, or of what follows from fields.

A family says how values are made (`PointValues.each_chunk`); output and results of them are the
same for all families.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from slipstream.accepted import REDUCTIONS
from slipstream.array_types import Array, Comm
from slipstream.collective import sum_over_ranks
from slipstream.decomposition import Box
from slipstream.device import host_values
from slipstream.errors import InputError
from slipstream.field import Field

AXES = ("z", "y", "x")
# How many places are interpolated together: each takes 64 points of every component.
_PLACES_AT_ONCE = 4096

# ``take(values, plane)`` gets an array of the device, [component, z, y, x], of some planes of this
# rank, of which the first is its plane number `plane`.
Take = Callable[[Array, int], None]


@dataclass(frozen=True)
class Layout:
    """Where the points are: the box of each rank, and the coordinates along each axis.

    Points are those of a periodic grid, or the middles of cells. Along the axis `walls`, if there
    is one, the box ends at walls, half a spacing beyond the outermost points.
    """

    shape: tuple[int, int, int]
    boxes: tuple[Box, ...]
    coordinates: dict[str, np.ndarray]
    unit: str = "1"
    are_cells: bool = False
    walls: str | None = None
    # How far along x the values are shifted, at present, that are repeated beyond the end along y.
    slide: Callable[[], float] = field(default=float, compare=False)

    def spacing(self, axis: str) -> float:
        """Return the distance of points along an axis; 1 if there is one point only."""
        return spacing_of(self.coordinates[axis])

    def ends(self, axis: str) -> tuple[float, float]:
        """Return where the box begins and ends along an axis."""
        return ends_of(self.coordinates[axis], self.are_cells or axis == self.walls)

    def nearest(self, axis: str, position: float, key: str) -> int:
        """Return the index of the point nearest to a coordinate, or refuse one outside."""
        return nearest_point(self.coordinates[axis], self.ends(axis), position, axis, key)


def spacing_of(line: np.ndarray) -> float:
    """Return the distance of points along an axis; 1 if there is one point only."""
    return float(line[1] - line[0]) if len(line) > 1 else 1.0


def ends_of(line: np.ndarray, are_middles: bool) -> tuple[float, float]:
    """Return where an axis begins and ends, half a spacing beyond points in middles of cells."""
    spacing = spacing_of(line)
    shift = spacing / 2 if are_middles else 0.0
    return float(line[0]) - shift, float(line[-1]) + spacing - shift


def nearest_point(
    line: np.ndarray, ends: tuple[float, float], position: float, axis: str, key: str
) -> int:
    """Return the index of the point of an axis nearest to a coordinate, or refuse one outside."""
    low, high = ends
    if len(line) > 1 and not low <= position <= high:
        raise InputError(
            f"{key}: position {position:g} along {axis} is outside; accepted: {low:g} to {high:g}"
        )
    return int(np.argmin(np.abs(line - position)))


class PointValues(ABC):
    """Values at the points, made again from the state whenever they are asked for.

    Attributes
    ----------
    suffixes : tuple of str
        What each component adds to a name: ("",) of a scalar, ("_x", "_y", "_z") of a vector; the
        real parts of a complex quantity come first.
    dtype : numpy.dtype
        Of values.
    long_name, unit : str
        For people; "1" where it is non-dimensional.
    """

    suffixes: tuple[str, ...]
    dtype: np.dtype
    long_name: str
    unit: str = "1"

    @abstractmethod
    def each_chunk(self, take: Take, components: slice) -> None:
        """Give the values of some components, some planes at a time. Collective.

        Chunks come in any order, perhaps from several threads.
        """

    @abstractmethod
    def reduce(self, how: str) -> np.ndarray:
        """Return one of `REDUCTIONS` by component, the same on all ranks. Collective."""


class PointDensity(Protocol):
    """The density of points over the values of expressions, and means of others."""

    def coordinates(self, ranges: Sequence[Sequence[float]]) -> dict[str, np.ndarray]:
        """Return the middles of bins within these ends, by variable."""

    def long_names(self) -> dict[str, str]:
        """Return the descriptions of the results, by name."""

    def fields(self, ranges: Sequence[Sequence[float]] | None) -> dict[str, Field]:
        """Return the results of the present state as fields, by name. Collective."""


class ArrayValues(PointValues):
    """Values whose parts ranks make as a whole.

    Parameters
    ----------
    read : callable
        ``read(component)`` returns this rank's part on the host; collective.
    """

    def __init__(
        self,
        read: Callable[[int], np.ndarray],
        suffixes: tuple[str, ...],
        dtype: Any,
        long_name: str,
        unit: str,
        layout: Layout,
        comm: Comm,
    ) -> None:
        self._read, self._layout, self._comm = read, layout, comm
        self.suffixes, self.dtype = suffixes, np.dtype(dtype)
        self.long_name, self.unit = long_name, unit

    def each_chunk(self, take: Take, components: slice) -> None:
        parts = [self._read(one) for one in range(len(self.suffixes))[components]]
        if parts[0].size:
            take(np.stack(parts), 0)

    def reduce(self, how: str) -> np.ndarray:
        return np.array([self._reduced(self._read(n), how) for n in range(len(self.suffixes))])

    def _reduced(self, part: np.ndarray, how: str) -> float:
        check_reduction(how, tuple(REDUCTIONS), "reduce", self.long_name)
        layout, rank = self._layout, 0 if self._comm is None else self._comm.rank
        rows = part.reshape(part.shape[0], -1).astype(np.float64, copy=False)
        # Plane by plane, so that the sum depends little on how planes are divided.
        value: Callable[[], np.ndarray] = {
            "mean": lambda: rows.sum(axis=1),
            "rms": lambda: np.square(rows).sum(axis=1),
            "max": lambda: rows.max(axis=1),
            "min": lambda: rows.min(axis=1),
        }[how]
        box = layout.boxes[rank]
        planes = np.zeros(layout.shape[0])
        if how in ("max", "min"):
            # Several ranks may have parts of one plane.
            own = value() if part.size else np.zeros(0)
            extreme = np.max if how == "max" else np.min
            worst = -np.inf if how == "max" else np.inf
            mine = float(extreme(own)) if own.size else worst
            op = np.maximum if how == "max" else np.minimum  # which keep not-a-number
            return mine if self._comm is None else float(self._comm.allreduce(mine, op=op))
        if part.size:
            planes[box.start[0] : box.stop[0]] = value()
        mean = float(sum_over_ranks(self._comm, planes).sum()) / float(np.prod(layout.shape))
        return float(np.sqrt(mean)) if how == "rms" else mean


def check_reduction(how: str, accepted: tuple[str, ...], where: str, what: str) -> None:
    """Refuse an unknown reduction, or one that does not suit the values."""
    if how not in accepted:
        raise InputError(f"{where}: {how!r} of {what}; accepted: {', '.join(accepted)}")


def on_host(values: Array) -> np.ndarray:
    """Return an array as NumPy's, in the order of the device's work, which this may be part of."""
    return host_values(values)


def interpolated(parts: Array, places: np.ndarray, layout: Layout, box: Box) -> np.ndarray:
    """Return what a box adds to cubic interpolation at places (x, y, z), shape (n, fields).

    The parts may be on the device: only the points around the places are copied from there.
    """
    result = np.zeros((len(places), len(parts)), np.result_type(parts.dtype, np.float64))
    if not box.size:
        return result
    indices, weights = [], []
    along_x = places[:, :1]
    for axis, name in enumerate(AXES):
        line, size = layout.coordinates[name], layout.shape[axis]
        along = places[:, 2 - axis] if axis < 2 else along_x
        near, factors = _nearest_four(line, size, along, name == layout.walls)
        if axis == 1 and (slide := layout.slide()):
            along_x = along_x - slide * (near // size)
        own = near % size - box.start[axis]
        is_mine = (own >= 0) & (own < box.shape[axis])
        indices.append(np.where(is_mine, own, 0))
        weights.append(np.where(is_mine, factors, 0.0))
    among = [one.reshape(len(places), -1).any(axis=1) for one in weights]
    mine = np.flatnonzero(np.logical_and.reduce(among))
    for first in range(0, len(mine), _PLACES_AT_ONCE):
        chosen = mine[first : first + _PLACES_AT_ONCE]
        k, j, i = (one[chosen] for one in indices)
        around = parts[:, k[:, :, None, None], j[:, None, :, None], i[:, None]]
        found = on_host(around)
        found = np.einsum("fn...i,n...i->fn...", found, weights[2][chosen][:, None])
        for one in (weights[1], weights[0]):
            found = np.einsum("fn...i,ni->fn...", found, one[chosen])
        result[chosen] = found.T
    return result


def _nearest_four(
    line: np.ndarray, size: int, places: np.ndarray, has_walls: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the points around each place on an axis, and their weights.

    Indices from `size` on are those of points that are repeated beyond the end. Next to a wall all
    four are on the same side of it.
    """
    if size == 1:
        return np.zeros((*places.shape, 1), int), np.ones((*places.shape, 1))
    position = (places - line[0]) / (line[1] - line[0])
    first = np.floor(position).astype(int)
    if has_walls:
        first = np.clip(first, 1, max(1, size - 3))
    s = (position - first)[..., None]
    # Lagrange's polynomials through the points at -1, 0, 1 and 2.
    factors = (
        -s * (s - 1) * (s - 2) / 6,
        (s + 1) * (s - 1) * (s - 2) / 2,
        -(s + 1) * s * (s - 2) / 2,
        (s + 1) * s * (s - 1) / 6,
    )
    return first[..., None] + np.arange(-1, 3), np.concatenate(factors, axis=-1)
