"""Synthetic samples by name: channels, ducts, sphere lattices, random packs and a sandstone.

Each is its parameters, a shape, and a `read` that gives the mask of any box, 1 where there is pore
and 0 where solid: the same voxels on any number of ranks, since every rank makes its own. To NumPy
a sample is an array of all its voxels. The centre of voxel i is at i + 1/2, and all lengths are in
voxels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.decomposition import Box
from slipstream.errors import InputError
from slipstream.lattice.d3q19 import AXES
from slipstream.lattice.sample_parameters import Voxels, axis_index, check_box, set_shape
from slipstream.lattice.sphere_samples import RandomPack, Sandstone, Spheres


@dataclass(frozen=True)
class Channel(Voxels):
    """The gap between two walls, each one layer of voxels at an end of an axis.

    Attributes
    ----------
    shape : tuple of int
        Number of voxels along z, y and x.
    axis : {"x", "y", "z"}
        What the walls are normal to.

    Raises
    ------
    InputError
        If there is no such axis, or no voxel between the walls.
    """

    shape: tuple[int, int, int]
    axis: str

    def __post_init__(self) -> None:
        set_shape(self)
        _check_walls(self.shape, (axis_index(self.axis),))

    def read(self, box: Box) -> np.ndarray:
        """Return the mask of a box, of uint8."""
        return _between_walls(self.shape, (axis_index(self.axis),), box)


@dataclass(frozen=True)
class Duct(Voxels):
    """A straight duct of rectangular section, whose four walls are one layer of voxels each.

    Attributes
    ----------
    shape : tuple of int
        Number of voxels along z, y and x.
    axis : {"x", "y", "z"}
        The direction of the duct.

    Raises
    ------
    InputError
        If there is no such axis, or no voxel between the walls.
    """

    shape: tuple[int, int, int]
    axis: str

    def __post_init__(self) -> None:
        set_shape(self)
        _check_walls(self.shape, self._across())

    def read(self, box: Box) -> np.ndarray:
        """Return the mask of a box, of uint8."""
        return _between_walls(self.shape, self._across(), box)

    def _across(self) -> tuple[int, ...]:
        return tuple(axis for axis in range(3) if axis != axis_index(self.axis))


SAMPLES: dict[str, type] = {
    "channel": Channel,
    "duct": Duct,
    "spheres": Spheres,
    "random-pack": RandomPack,
    "sandstone": Sandstone,
}


def make_sample(name: str, shape: Sequence[int], **parameters: Any) -> Any:
    """Return a sample by its name in `SAMPLES`.

    Parameters
    ----------
    name : str
        Which sample.
    shape : sequence of int
        Number of voxels along z, y and x.
    **parameters
        Those of its class.

    Raises
    ------
    InputError
        If the name or a parameter is unknown, missing or out of range.
    """
    if name not in SAMPLES:
        raise InputError(f"sample {name!r} is unknown; accepted: {', '.join(SAMPLES)}")
    fields = {field.name: field for field in dataclasses.fields(SAMPLES[name])}
    del fields["shape"]
    for key in parameters:
        if key not in fields:
            raise InputError(
                f"sample.{key} is no parameter of {name!r}; accepted: {', '.join(fields)}"
            )
    for key, field in fields.items():
        if field.default is dataclasses.MISSING and key not in parameters:
            raise InputError(f"sample.{key} is missing: {name!r} needs it")
    return SAMPLES[name](shape, **parameters)


def _between_walls(shape: Sequence[int], axes: Sequence[int], box: Box) -> np.ndarray:
    check_box(box, shape)
    mask = np.ones(box.shape, np.uint8)
    for axis in axes:
        layers = np.arange(box.start[axis], box.stop[axis])
        np.moveaxis(mask, axis, 0)[(layers == 0) | (layers == shape[axis] - 1)] = 0
    return mask


def _check_walls(shape: Sequence[int], axes: Sequence[int]) -> None:
    for axis in axes:
        if shape[axis] < 3:
            raise InputError(
                f"sample.shape is {shape}; accepted: 3 voxels or more along {AXES[axis]}, two of "
                "which are walls"
            )
