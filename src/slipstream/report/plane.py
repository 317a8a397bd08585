"""One plane of a distributed field, brought together on rank 0 for a picture.

The plane is the one in which most happens. The middle of the box would be the obvious choice,
but it is a plane of symmetry of the Taylor-Green vortex, and the emptiest of all.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.field import Field


@dataclass(frozen=True)
class Plane:
    """A plane of a field at a fixed position along its first dimension.

    Attributes
    ----------
    name : str
        Name of the field.
    values : numpy.ndarray
        Shape (rows, columns), float.
    row_name, column_name : str
        Names of the two dimensions.
    rows, columns : numpy.ndarray
        Coordinates along them (non-dimensional).
    normal_name : str
        Name of the dimension that is fixed.
    position : float
        Coordinate at which it is fixed (non-dimensional).
    label : str
        What is shown, with its unit.
    time : float
        Time of the field (non-dimensional).
    """

    name: str
    values: np.ndarray
    row_name: str
    column_name: str
    rows: np.ndarray
    columns: np.ndarray
    normal_name: str
    position: float
    label: str
    time: float


def gather_plane(field: Field, communicator: Any, time: float) -> Plane | None:
    """Bring the plane with the largest mean square of a field to rank 0. Collective.

    Parameters
    ----------
    field : Field
        Each rank's part of a three-dimensional real field; planes across the first dimension
        are compared.
    communicator : mpi4py.MPI.Comm or None
        The ranks that hold parts.
    time : float
        Time of the field (non-dimensional).

    Returns
    -------
    Plane or None
        None on all ranks but the first.
    """
    index = _liveliest_plane(field, communicator)
    local = index - field.offset[0]
    holds = 0 <= local < field.data.shape[0] and field.data.size > 0
    part = (field.region()[1:], np.array(field.data[local])) if holds else None
    parts = [part] if communicator is None else communicator.gather(part, root=0)
    if parts is None:
        return None
    values = np.zeros(field.shape[1:], dtype=field.data.dtype)
    for region, data in filter(None, parts):
        values[region] = data
    normal, row, column = (
        np.asarray(field.coordinates.get(name, np.arange(size)))
        for name, size in zip(field.dims, field.shape, strict=True)
    )
    return Plane(
        name=field.name,
        values=values,
        row_name=field.dims[1],
        column_name=field.dims[2],
        rows=row,
        columns=column,
        normal_name=field.dims[0],
        position=float(normal[index]),
        label=str(field.attributes.get("long_name", field.name)),
        time=time,
    )


def _liveliest_plane(field: Field, communicator: Any) -> int:
    """Return the index along the first dimension where the mean square is largest."""
    squares = np.zeros(field.shape[0])
    if field.data.size:
        squares[field.region()[0]] = [np.vdot(plane, plane) for plane in field.data]
    if communicator is not None:
        from mpi4py import MPI

        communicator.Allreduce(MPI.IN_PLACE, squares, op=MPI.SUM)
    # Symmetric flows have several such planes; rounding must not choose between them.
    return int(np.argmax(squares >= (1 - 1e-6) * squares.max()))
