"""One array of the flow, as solvers hand it out and as files store it.

A `Field` is this rank's box of a global array together with what makes the array readable years
later: its name, the names of its dimensions, its coordinates and attributes. It knows no solver, no
file format and no MPI, so every layer may use it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Field:
    """A named global array, and the box of it that one rank holds.

    Attributes
    ----------
    name : str
        Name of the array in files, such as ``"velocity_x"``.
    dims : tuple of str
        Names of the dimensions, slowest first, such as ``("z", "y", "x")``.
    shape : tuple of int
        Shape of the global array.
    offset : tuple of int
        Global index of the first element of ``data``.
    data : numpy.ndarray
        This rank's box, of any real or complex dtype; it may be empty.
    coordinates : mapping of str to numpy.ndarray
        Global coordinate of each dimension, float64, one-dimensional. Dimensions may lack one.
    attributes : mapping of str to object
        Whatever describes the array; ``long_name`` and ``units`` are used by readers and plots.
    coordinate_unit : str
        Unit of all coordinates, such as ``"m"``; "1" where they are non-dimensional.

    Raises
    ------
    ValueError
        If dimensions, shape, offset and data do not agree.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    data: np.ndarray
    coordinates: Mapping[str, np.ndarray] = field(default_factory=dict)
    attributes: Mapping[str, object] = field(default_factory=dict)
    coordinate_unit: str = "1"

    def __post_init__(self) -> None:
        if not len(self.dims) == len(self.shape) == len(self.offset) == self.data.ndim:
            raise ValueError(
                f"field {self.name!r}: dims {self.dims}, shape {self.shape}, offset {self.offset}"
                f" and {self.data.ndim}-dimensional data differ in length"
            )
        ends = [start + size for start, size in zip(self.offset, self.data.shape, strict=True)]
        if self.data.size and any(e > n for e, n in zip(ends, self.shape, strict=True)):
            raise ValueError(
                f"field {self.name!r}: data of shape {self.data.shape} at offset {self.offset}"
                f" reaches beyond the global shape {self.shape}"
            )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is None:
            return np.asarray(self.data, dtype=dtype)
        return np.array(self.data, dtype=dtype, copy=copy)

    def region(self) -> tuple[slice, ...]:
        """Return the slices of the global array that ``data`` fills."""
        return tuple(
            slice(start, start + size)
            for start, size in zip(self.offset, self.data.shape, strict=True)
        )

    def to_xarray(self) -> Any:
        """Return this rank's part as an `xarray.DataArray`, with its coordinates and attributes.

        Needs xarray, which is not installed with this package.
        """
        try:
            import xarray
        except ImportError:
            raise ImportError("to_xarray needs xarray: pip install xarray") from None
        region = dict(zip(self.dims, self.region(), strict=True))
        coordinates = {name: one[region[name]] for name, one in self.coordinates.items()}
        return xarray.DataArray(
            self.data, coordinates, self.dims, self.name, attrs=dict(self.attributes)
        )


def grid_field(
    name: str,
    long_name: str,
    values: np.ndarray,
    offset: tuple[int, ...],
    shape: Sequence[int],
    lengths: Sequence[float],
) -> Field:
    """Return a field at the points of a periodic grid; all arguments are in the order z, y, x."""
    coordinates = {
        axis: length * np.arange(points) / points
        for axis, points, length in zip("zyx", shape, lengths, strict=True)
    }
    attributes = {"long_name": long_name, "units": "1"}
    return Field(name, ("z", "y", "x"), tuple(shape), offset, values, coordinates, attributes)
