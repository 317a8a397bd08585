"""One plane of a field for a picture, gathered on rank 0, and the colours of its values.

The plane has the largest mean square. The middle of the box would be the obvious
choice, but it is a plane of symmetry of the Taylor-Green vortex, and the emptiest of all. A family
without such symmetries may choose it nevertheless.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from slipstream.engine.array_types import Comm
from slipstream.engine.fields import Field, PlaneChoice, ends_of, nearest_point, spacing_of

# From dark to bright; perceptually uniform.
INTENSITY = "inferno"
# To both sides of zero; perceptually uniform.
DIVERGING = "RdBu_r"
# The smaller of the two signs counts from this part of the larger one on: not what rounding, or an
# overshoot, makes of a positive field.
_BOTH_SIGNS = 0.05


@dataclass(frozen=True)
class FieldPlane:
    """A plane of a field at a fixed position along one of its dimensions, `normal_name`.

    `normal_name` is empty if the field is only this plane.
    """

    name: str
    # Of shape (rows, columns), float; masked where there is nothing to draw.
    values: np.ndarray
    row_name: str
    column_name: str
    rows: np.ndarray
    columns: np.ndarray
    normal_name: str
    position: float
    # The quantity that is shown, with its unit.
    label: str
    time: float
    # The unit of coordinates; "1" if they are non-dimensional.
    unit: str = "1"


def gather_plane(
    field: Field,
    comm: Comm,
    time: float,
    normal: str = "",
    is_central: bool = False,
    position: float | None = None,
) -> FieldPlane | None:
    """Return a plane of a field on rank 0, None elsewhere. Collective.

    It is normal to the dimension that is named, else to one of a single point, else to the first;
    and nearest to a position, or in the middle, or where the mean square is largest.
    """

    def squares(axis: int) -> np.ndarray:
        sums = np.zeros(field.shape[axis])
        if field.data.size:
            sums[field.region()[axis]] = squares_along(field.data, axis)
        if comm is not None:
            from mpi4py import MPI

            comm.Allreduce(MPI.IN_PLACE, sums, op=MPI.SUM)
        return sums

    def read(axis: int, index: int) -> np.ndarray | None:
        local, part = index - field.offset[axis], None
        across = [other for other in range(3) if other != axis]
        if 0 <= local < field.data.shape[axis] and field.data.size:
            where = field.region()
            part = tuple(where[other] for other in across), np.array(field.data.take(local, axis))
        parts = [part] if comm is None else comm.gather(part, root=0)
        if parts is None:
            return None
        values = np.zeros([field.shape[other] for other in across], dtype=field.data.dtype)
        for region, data in filter(None, parts):
            values[region] = data
        return values

    coordinates = {
        name: np.asarray(field.coordinates.get(name, np.arange(size)))
        for name, size in zip(field.dims, field.shape, strict=True)
    }
    label = str(field.attributes.get("long_name", field.name))
    about = field.name, label, time, field.coordinate_unit
    return cut_plane(about, coordinates, (normal, is_central, position), squares, read)


def cut_plane(
    about: tuple[str, str, float, str],
    coordinates: Mapping[str, np.ndarray],
    choice: tuple[str, bool, float | None],
    squares: Callable[[int], np.ndarray],
    read: Callable[[int, int], np.ndarray | None],
) -> FieldPlane | None:
    """Return a plane of a field, given its name, label, time and unit; None if none is read.

    It is chosen by an axis, whether it is central, and a position; see `gather_plane`. `squares`
    sums the squares of each plane along an axis, and `read` reads the plane at an index of it.
    """
    (name, label, time, unit), (normal, is_central, position) = about, choice
    dims, lines = list(coordinates), list(coordinates.values())
    flat = [number for number, line in enumerate(lines) if len(line) == 1]
    axis = dims.index(normal) if normal else (flat or [0])[0]
    line = lines[axis]
    if position is not None:
        # Coordinates that begin in the middle of a cell are those of voxels, or between walls.
        ends = ends_of(line, are_middles=bool(line[0] > spacing_of(line) / 4))
        index = nearest_point(line, ends, position, dims[axis], "--plane")
    elif is_central:
        index = len(line) // 2
    else:
        sums = squares(axis)
        # Symmetric flows have several such planes; rounding must not choose between them.
        index = int(np.argmax(sums >= (1 - 1e-6) * sums.max()))
    values = read(axis, index)
    if values is None:
        return None
    row, column = (other for other in range(3) if other != axis)
    return FieldPlane(
        name=name,
        values=values,
        row_name=dims[row],
        column_name=dims[column],
        rows=lines[row],
        columns=lines[column],
        normal_name=dims[axis] if len(line) > 1 else "",
        position=float(line[index]),
        label=label,
        time=time,
        unit=unit,
    )


def squares_along(values: np.ndarray, axis: int) -> list[float]:
    """Return the sum of squares of each plane of an array along an axis."""
    return [np.vdot(plane, plane) for plane in np.moveaxis(values, axis, 0)]


def composed_plane(
    choice: PlaneChoice,
    plane_of: Callable[[str, float | None], FieldPlane],
    position: float | None,
) -> FieldPlane:
    """Return the plane that a choice wants, of fields whose planes are found by their names.

    It is nearest to a position, or where the first of the fields has it.
    """
    planes: dict[str, FieldPlane | None] = {}
    for name in choice.needed:
        planes[name] = plane = plane_of(name, position)
        position = plane.position
    composed = compose_plane(planes, choice)
    assert composed is not None  # no plane is missing
    return composed


def compose_plane(
    planes: Mapping[str, FieldPlane | None], choice: PlaneChoice
) -> FieldPlane | None:
    """Return the plane that a choice wants; None if one that it needs is missing."""
    needed = {name: plane for name in choice.needed if (plane := planes.get(name)) is not None}
    if len(needed) < len(choice.needed):
        return None
    first = needed[choice.needed[0]]
    values = first.values
    if choice.components:
        squares = sum(np.square(needed[name].values) for name in choice.components)
        first = dataclasses.replace(first, name=choice.field, label=choice.field)
        values = np.sqrt(squares)
    if choice.mask:
        values = np.ma.masked_where(needed[choice.mask].values == 0, values)
    return dataclasses.replace(first, values=values)


@dataclass(frozen=True)
class ColourScale:
    """The values of the first and the last colour, a map, and whether values lie beyond them."""

    low: float
    high: float
    map_name: str
    # Matplotlib's word for the ends of a colour bar that are arrows.
    extend: str = "neither"

    @classmethod
    def between(cls, low: float, high: float, map_name: str = "") -> ColourScale:
        """Return a scale between two values: of both signs if zero is well between them."""
        return cls(low, high, map_name or (DIVERGING if low < 0 < high else INTENSITY))


def colour_scale(values: np.ndarray, brightest: float = 1.0, map_name: str = "") -> ColourScale:
    """Return the scale of values, which may be masked or not-a-number in parts.

    Values of both signs get a map that is centred at zero; others begin at zero unless they are far
    from it. That quantile of them which is `brightest` gets the last colour.
    """
    seen = np.ma.compressed(np.ma.masked_invalid(values))
    ends = np.quantile(seen, [1 - brightest, brightest]) if seen.size else (0.0, 1.0)
    low, high = map(float, ends)
    if low < 0 < high and min(-low, high) > _BOTH_SIGNS * max(-low, high):
        largest = float(np.quantile(np.abs(seen), brightest))
        return ColourScale(
            -largest, largest, map_name or DIVERGING, "both" if brightest < 1 else "neither"
        )
    if 0 <= low < 0.5 * high:
        low = 0.0
    if not high > low:
        high = float(seen.max())
    if not high > low:
        high = low + (abs(low) or 1.0)
    return ColourScale(low, high, map_name or INTENSITY, "max" if brightest < 1 else "neither")
