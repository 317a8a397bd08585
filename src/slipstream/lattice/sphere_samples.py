"""Samples of solid spheres: regular lattices, random packs, and a sandstone of overlapping grains.

All are periodic. Spheres become voxels by whether they hold a voxel's centre.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slipstream.decomposition import Box
from slipstream.errors import InputError
from slipstream.lattice.sample_parameters import (
    Voxels,
    check_box,
    check_number,
    check_seed,
    set_shape,
)
from slipstream.lattice.sphere_packing import (
    draw_spheres,
    grown_radius,
    random_centres,
    random_pack,
)

# Centres in a cubic cell of edge 1, number of neighbours that a cell counts, and their distance:
# the nearest, and the next where their spheres meet before the pores close.
_CELLS: dict[str, tuple[np.ndarray, tuple[tuple[int, float], ...]]] = {
    "simple": (np.array([[1, 1, 1]]) / 2, ((3, 1.0),)),
    "body-centred": (np.array([[0, 0, 0], [1, 1, 1]]) / 2, ((8, math.sqrt(3) / 2), (6, 1.0))),
    "face-centred": (
        np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]]) / 2,
        ((24, math.sqrt(1 / 2)),),
    ),
}
# Radii, for cells of edge 1, at which three spheres meet and shut the last windows between pores.
_CLOSING = {
    "simple": math.sqrt(1 / 2),
    "body-centred": math.sqrt(9 / 32),
    "face-centred": math.sqrt(1 / 6),
}
# Random sequential addition comes to rest at 0.384, in boxes without end and after infinite time.
_FULL = 0.384


@dataclass(frozen=True)
class Spheres(Voxels):
    """One cubic cell of a lattice of solid spheres, which may overlap; periodic.

    Attributes
    ----------
    shape : tuple of int
        Number of voxels along z, y and x, all the same.
    lattice : {"simple", "body-centred", "face-centred"}
        Where the spheres are; a simple lattice has its only one in the middle.
    solid_fraction, radius : float
        Exactly one of them: the fraction of the volume, before it is made of voxels, or the radius.

    Raises
    ------
    InputError
        If the cell is no cube, the lattice is unknown, or spheres so large leave no open pores.
    """

    shape: tuple[int, int, int]
    lattice: str = "simple"
    solid_fraction: float | None = None
    radius: float | None = None

    def __post_init__(self) -> None:
        set_shape(self)
        if len(set(self.shape)) > 1:
            raise InputError(f"sample.shape is {self.shape}; accepted for spheres: a cube")
        if self.lattice not in _CELLS:
            raise InputError(f"sample.lattice is {self.lattice!r}; accepted: {', '.join(_CELLS)}")
        if (self.solid_fraction is None) == (self.radius is None):
            raise InputError("sample.radius, sample.solid_fraction: give one of them")
        largest = _CLOSING[self.lattice]
        if self.radius is not None:
            check_number("radius", self.radius, largest * self.shape[0])
        else:
            most = _lattice_fraction(self.lattice, largest)
            check_number("solid_fraction", self.solid_fraction, most)

    @cached_property
    def sphere_radius(self) -> float:
        """The radius of the spheres."""
        if self.radius is not None:
            return float(self.radius)
        low, high = 0.0, _CLOSING[self.lattice]
        while high - low > 1e-15:
            middle = (low + high) / 2
            less = _lattice_fraction(self.lattice, middle) < self.solid_fraction
            low, high = (middle, high) if less else (low, middle)
        return (low + high) / 2 * self.shape[0]

    def read(self, box: Box) -> np.ndarray:
        """Return the mask of a box, of uint8."""
        check_box(box, self.shape)
        centres = _CELLS[self.lattice][0] * self.shape[0]
        return draw_spheres(centres, self.sphere_radius, self.shape, box)


@dataclass(frozen=True)
class RandomPack(Voxels):
    """Equal solid spheres at random places where they do not overlap; periodic.

    Attributes
    ----------
    shape : tuple of int
        Number of voxels along z, y and x, each a diameter at least.
    radius : float
        Radius of the spheres, a voxel at least.
    solid_fraction : float
        Fraction of the volume, as nearly as whole spheres make it; up to about 0.35 is reached.
    seed : int
        Another seed gives another pack.

    Raises
    ------
    InputError
        If a parameter is out of range; by `read`, if no room is found for all spheres.
    """

    shape: tuple[int, int, int]
    radius: float
    solid_fraction: float
    seed: int = 0

    def __post_init__(self) -> None:
        set_shape(self)
        check_number("radius", self.radius, min(self.shape) / 2, 1.0)
        least = 0.5 * _volume(self.radius) / math.prod(self.shape)
        check_number("solid_fraction", self.solid_fraction, _FULL, least)
        check_seed(self.seed)

    @cached_property
    def centres(self) -> np.ndarray:
        """Centres of the spheres, shape (spheres, 3)."""
        wanted = round(self.solid_fraction * math.prod(self.shape) / _volume(self.radius))
        found = random_pack(self.shape, self.radius, wanted, self.seed)
        if len(found) < wanted:
            reached = len(found) * _volume(self.radius) / math.prod(self.shape)
            raise InputError(
                f"sample.solid_fraction is {self.solid_fraction}; accepted with this shape, radius "
                f"and seed: up to {reached:.3f}, where no room is left for another sphere"
            )
        return found

    def read(self, box: Box) -> np.ndarray:
        """Return the mask of a box, of uint8."""
        check_box(box, self.shape)
        return draw_spheres(self.centres, self.radius, self.shape, box)


@dataclass(frozen=True)
class Sandstone(Voxels):
    """Grains at random places, all grown until they leave the porosity that is asked for; periodic.

    They are solid spheres that may overlap: their number is what it would be, on average, if
    `radius` were enough.

    Attributes
    ----------
    shape : tuple of int
        Number of voxels along z, y and x.
    radius : float
        Radius of the grains, a voxel at least; what it becomes is `grain_radius`.
    porosity : float
        Fraction of the voxels that are pore.
    seed : int
        Another seed gives another sandstone.

    Raises
    ------
    InputError
        If a parameter is out of range.
    """

    shape: tuple[int, int, int]
    radius: float
    porosity: float = 0.13
    seed: int = 0

    def __post_init__(self) -> None:
        set_shape(self)
        check_number("radius", self.radius, float(max(self.shape)), 1.0)
        check_number("porosity", self.porosity, 0.99)
        check_seed(self.seed)

    @cached_property
    def centres(self) -> np.ndarray:
        """Centres of the grains, shape (grains, 3)."""
        density = -math.log(self.porosity) / _volume(self.radius)
        count = max(1, round(density * math.prod(self.shape)))
        return random_centres(self.shape, count, self.seed)

    @cached_property
    def grain_radius(self) -> float:
        """The radius with which the grains leave the porosity."""
        return grown_radius(self.centres, self.radius, self.shape, self.porosity)

    def read(self, box: Box) -> np.ndarray:
        """Return the mask of a box, of uint8."""
        check_box(box, self.shape)
        return draw_spheres(self.centres, self.grain_radius, self.shape, box)


def _lattice_fraction(lattice: str, radius: float) -> float:
    """Return the solid fraction of a lattice of edge 1, up to the radius that closes its pores."""
    centres, neighbours = _CELLS[lattice]
    fraction = len(centres) * _volume(radius)
    for count, distance in neighbours:
        # Two spheres share a lens.
        height = max(0.0, 2 * radius - distance)
        fraction -= count * math.pi * (4 * radius + distance) * height**2 / 12
    return fraction


def _volume(radius: float) -> float:
    return 4 / 3 * math.pi * radius**3
