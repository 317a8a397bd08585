"""One plane of a distributed field, gathered on rank 0 for a picture.

The plane is the one with the largest mean square. The middle of the box would be the obvious
choice, but it is a plane of symmetry of the Taylor-Green vortex, and the emptiest of all. A family
without such symmetries may choose it nevertheless.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.array_types import Comm
from slipstream.field import Field
from slipstream.simulation.point_values import ends_of, nearest_point, spacing_of
from slipstream.simulation.solver_values import PlaneChoice


@dataclass(frozen=True)
class FieldPlane:
    """A plane of a field at a fixed position along one of its dimensions, `normal_name`.

    That is empty if the plane is all there is of the field.
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
    # What is shown, with its unit.
    label: str
    time: float
    # Of coordinates; "1" if they are non-dimensional.
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
    axis = normal_axis(field.shape, field.dims, normal)
    across = [other for other in range(3) if other != axis]
    coordinates = [
        np.asarray(field.coordinates.get(name, np.arange(size)))
        for name, size in zip(field.dims, field.shape, strict=True)
    ]
    if position is not None:
        index = index_at(position, coordinates[axis], field.dims[axis])
    else:
        index = field.shape[axis] // 2 if is_central else _liveliest_plane(field, axis, comm)
    local = index - field.offset[axis]
    holds = 0 <= local < field.data.shape[axis] and field.data.size > 0
    part = None
    if holds:
        where = field.region()
        part = tuple(where[other] for other in across), np.array(field.data.take(local, axis))
    parts = [part] if comm is None else comm.gather(part, root=0)
    if parts is None:
        return None
    values = np.zeros([field.shape[other] for other in across], dtype=field.data.dtype)
    for region, data in filter(None, parts):
        values[region] = data
    label = str(field.attributes.get("long_name", field.name))
    unit = field.coordinate_unit
    return plane_at(field.name, values, field.dims, coordinates, axis, index, label, time, unit)


def index_at(position: float, places: np.ndarray, axis: str) -> int:
    """Return the number of the plane nearest to a position; refuse one outside of the box."""
    # Coordinates that begin in the middle of a cell are those of voxels, or between walls.
    are_middles = bool(places[0] > spacing_of(places) / 4)
    return nearest_point(places, ends_of(places, are_middles), position, axis, "--plane")


def normal_axis(shape: Sequence[int], dims: Sequence[str], normal: str = "") -> int:
    """Return the number of the axis that a plane is normal to: that named, a flat one, or 0."""
    flat = [number for number, points in enumerate(shape) if points == 1]
    return dims.index(normal) if normal else (flat or [0])[0]


def plane_at(
    name: str,
    values: np.ndarray,
    dims: Sequence[str],
    coordinates: Sequence[np.ndarray],
    axis: int,
    index: int,
    label: str,
    time: float,
    unit: str,
) -> FieldPlane:
    """Return the plane of a field at an index along one of its three axes."""
    row, column = (other for other in range(3) if other != axis)
    return FieldPlane(
        name=name,
        values=values,
        row_name=dims[row],
        column_name=dims[column],
        rows=coordinates[row],
        columns=coordinates[column],
        normal_name=dims[axis] if len(coordinates[axis]) > 1 else "",
        position=float(coordinates[axis][index]),
        label=label,
        time=time,
        unit=unit,
    )


def compose_plane(
    planes: Mapping[str, FieldPlane | None], choice: PlaneChoice
) -> FieldPlane | None:
    """Return the plane that a choice wants; None if one that it needs is missing."""
    found = {name: plane for name in choice.needed if (plane := planes.get(name)) is not None}
    if len(found) < len(choice.needed):
        return None
    first = found[choice.needed[0]]
    values = first.values
    if choice.components:
        squares = sum(np.square(found[name].values) for name in choice.components)
        first = dataclasses.replace(first, name=choice.field, label=choice.field)
        values = np.sqrt(squares)
    if choice.mask:
        values = np.ma.masked_where(found[choice.mask].values == 0, values)
    return dataclasses.replace(first, values=values)


def _liveliest_plane(field: Field, axis: int, comm: Comm) -> int:
    """Return the index along a dimension where the mean square is largest."""
    squares = np.zeros(field.shape[axis])
    if field.data.size:
        planes = np.moveaxis(field.data, axis, 0)
        squares[field.region()[axis]] = [np.vdot(plane, plane) for plane in planes]
    if comm is not None:
        from mpi4py import MPI

        comm.Allreduce(MPI.IN_PLACE, squares, op=MPI.SUM)
    return liveliest(squares)


def liveliest(squares: np.ndarray) -> int:
    """Return the first index of the planes with the largest sum of squares."""
    # Symmetric flows have several such planes; rounding must not choose between them.
    return int(np.argmax(squares >= (1 - 1e-6) * squares.max()))
