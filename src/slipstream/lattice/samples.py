"""Synthetic samples by name: channels, ducts, sphere lattices, random packs and a sandstone.

Each has parameters, a shape, and a `read` that returns the mask of any box, 1 in pores and 0 in
solid: the same voxels on any number of ranks, since every rank makes its own. NumPy takes a sample
as an array of all its voxels. The centre of voxel i is at i + 1/2, and all lengths are in voxels.
Samples of spheres are periodic, and a voxel is solid if its centre is in a sphere; centres of
spheres depend on the sample's arguments only, so each rank draws the ones that its box needs.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from slipstream.case.lattice_case import SAMPLE_KEYS
from slipstream.engine.decomposition import Box, whole
from slipstream.engine.device import HostDevice, RowLaunch
from slipstream.engine.error_terms import KeyedError, KeyName, PerAxis
from slipstream.engine.errors import is_finite
from slipstream.lattice.velocity_set import AXES

# Voxels, in rows spread over the whole box, from which the porosity is estimated.
_PROBED_VOXELS = 2**22
_PRECISION = 1e-5
_CANDIDATES = 2**16
# Candidates per sphere after which a pack is considered full.
_PATIENCE = 2000
# The solid fraction at which random sequential addition saturates, in an infinite box.
_FULL = 0.384


def draw_spheres(centres: np.ndarray, radius: float, shape: Sequence[int], box: Box) -> np.ndarray:
    """Return the mask of a box: 0 in spheres and their periodic images, 1 elsewhere."""
    planes, rows = (np.arange(box.start[axis], box.stop[axis]) for axis in (0, 1))
    return _draw(centres, radius, shape, planes, rows, (box.start[2], box.stop[2]))


def grown_radius(
    centres: np.ndarray, radius: float, shape: Sequence[int], porosity: float
) -> float:
    """Return the radius at which spheres that may overlap leave a porosity; try `radius` first."""
    step = max(1, math.isqrt(math.prod(shape) // _PROBED_VOXELS))
    planes, rows = (np.arange(0, n, step) for n in shape[:2])

    def left(radius: float) -> float:
        return float(_draw(centres, radius, shape, planes, rows, (0, shape[2])).mean())

    low, high = 0.0, radius
    while left(high) > porosity:
        low, high = high, 1.25 * high
    while high - low > _PRECISION * high:
        middle = (low + high) / 2
        low, high = (middle, high) if left(middle) > porosity else (low, middle)
    return (low + high) / 2


def random_centres(shape: Sequence[int], count: int, seed: int) -> np.ndarray:
    """Return uniformly distributed centres, shape (count, 3)."""
    return np.random.default_rng(seed).random((count, 3)) * shape


def random_pack(shape: Sequence[int], radius: float, wanted: int, seed: int) -> np.ndarray:
    """Return the centres of spheres placed at random, one by one, without overlap.

    There are fewer than `wanted` if no room is found for more. The box is at least a diameter wide.
    """
    device, random = _device(), np.random.default_rng(seed)
    # A cell's diagonal is at most a diameter, so that a cell has one centre.
    cells = [math.ceil(n * math.sqrt(3) / (2 * radius)) for n in shape]
    reach = [
        min(math.ceil(2 * radius * count / n), count // 2)
        for n, count in zip(shape, cells, strict=True)
    ]
    centres, placed = np.empty((wanted, 3)), np.zeros(1, np.int64)
    owner = np.full(cells, -1, np.int32)
    kernel = device.kernel("spheres.hpp", "add_spheres")
    periods = [float(n) for n in shape]
    for _ in range(0, _PATIENCE * wanted, _CANDIDATES):
        candidates = random.random((_CANDIDATES, 3)) * shape
        device.run(
            kernel.bind(
                RowLaunch(1, 1),
                centres,
                owner,
                placed,
                candidates,
                _CANDIDATES,
                wanted,
                2.0 * float(radius),
                *periods,
                *cells,
                *reach,
            )
        )
        if placed[0] == wanted:
            break
    return centres[: placed[0]]


@functools.cache
def _device() -> HostDevice:
    return HostDevice()


def _draw(
    centres: np.ndarray,
    radius: float,
    shape: Sequence[int],
    planes: np.ndarray,
    rows: np.ndarray,
    columns: tuple[int, int],
) -> np.ndarray:
    """Return the mask of some rows of some planes, from a first column to a last."""
    start, stop = (int(column) for column in columns)
    mask = np.ones((len(planes), len(rows), stop - start), np.uint8)
    if not mask.size:
        return mask
    z, y = planes + 0.5, rows + 0.5
    ranges = ((z[0], z[-1]), (y[0], y[-1]), (start + 0.5, stop - 0.5))
    spheres = _images(centres, radius, shape, ranges)
    first = np.searchsorted(spheres[:, 0], z - radius, "left")
    last = np.searchsorted(spheres[:, 0], z + radius, "right")
    device = _device()
    device.run(
        device.kernel("spheres.hpp", "clear_spheres").bind(
            RowLaunch(z.size * y.size, stop - start),
            mask,
            spheres,
            first,
            last,
            z,
            y,
            z.size,
            y.size,
            stop - start,
            start,
            float(radius),
        )
    )
    return mask


def _images(
    centres: np.ndarray,
    radius: float,
    shape: Sequence[int],
    ranges: Sequence[tuple[float, float]],
) -> np.ndarray:
    """Return the periodic images of spheres that may reach a range along each axis, sorted by z."""
    for axis, (low, high) in enumerate(ranges):
        most, images = math.ceil(radius / shape[axis]), []
        for image in range(-most, most + 1):
            moved = centres.copy()
            moved[:, axis] += image * shape[axis]
            near = (moved[:, axis] >= low - radius) & (moved[:, axis] <= high + radius)
            images.append(moved[near])
        centres = np.concatenate(images)
    return centres[np.argsort(centres[:, 0], kind="stable")]


class Sample:
    """A sample that can be read box by box, or as a whole by ``numpy.asarray(sample)``."""

    shape: tuple[int, int, int]

    def read(self, box: Box) -> np.ndarray:
        """Return the mask of a box, of uint8."""
        check_box(box, self.shape)
        return self._mask(box)

    def _mask(self, box: Box) -> np.ndarray:
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the mask of all voxels, uint8 of shape [z, y, x], which is computed each time."""
        if copy is False:
            raise ValueError("the voxels are made when they are asked for; accepted: copy=None")
        values = self.read(whole(self.shape))
        return values if dtype is None else values.astype(dtype, copy=False)


def check_box(box: Box, shape: Sequence[int]) -> None:
    """Raise a ValueError if a box is not within a sample."""
    if box.size and whole(shape).intersect(box) != box:
        raise ValueError(f"there is no box {box.start} to {box.stop} in {tuple(shape)} voxels")


def _key(name: str) -> KeyName:
    return KeyName("sample", name)


def _set_shape(sample: Sample) -> None:
    """Make the shape of a sample a tuple of three positive whole numbers, or refuse it."""
    try:
        shape = tuple(operator.index(n) for n in sample.shape)
    except TypeError:
        shape = ()
    if len(shape) != 3 or min(shape) < 1:
        given = PerAxis(sample.shape)
        raise KeyedError(_key("shape"), " is ", given, "; accepted: three positive whole numbers")
    object.__setattr__(sample, "shape", shape)


def _set_number(sample: Sample, name: str, most: float, least: float = 0.0) -> None:
    """Make a parameter a float above 0, from `least` up to `most`, or refuse it."""
    value = getattr(sample, name)
    if not (is_finite(value) and least <= value <= most and value > 0):
        lowest = f"a number from {least:.4g}" if least else "a number above 0"
        raise KeyedError(_key(name), f" is {value!r}; accepted: {lowest} up to {most:.4g}")
    object.__setattr__(sample, name, float(value))


def _check_seed(seed: Any) -> None:
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise KeyedError(_key("seed"), f" is {seed!r}; accepted: a whole number, 0 or more")


def _volume(radius: float) -> float:
    return 4 / 3 * math.pi * radius**3


class _Walled(Sample):
    """A box whose outer layers of voxels are walls along some axes."""

    axis: str

    def __post_init__(self) -> None:
        _set_shape(self)
        if self.axis not in AXES:
            raise KeyedError(_key("axis"), f" is {self.axis!r}; accepted: x, y, z")
        for axis in self._closed():
            if self.shape[axis] < 3:
                raise KeyedError(
                    _key("shape"),
                    " is ",
                    PerAxis(self.shape),
                    f"; accepted: 3 voxels or more along {AXES[axis]}, including two walls",
                )

    def _closed(self) -> list[int]:
        """Return the axes along which there are walls."""
        raise NotImplementedError

    def _mask(self, box: Box) -> np.ndarray:
        mask = np.ones(box.shape, np.uint8)
        for axis in self._closed():
            layers = np.arange(box.start[axis], box.stop[axis])
            np.moveaxis(mask, axis, 0)[(layers == 0) | (layers == self.shape[axis] - 1)] = 0
        return mask


@dataclass(frozen=True)
class Channel(_Walled):
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

    def _closed(self) -> list[int]:
        return [AXES.index(self.axis)]


@dataclass(frozen=True)
class Duct(_Walled):
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

    def _closed(self) -> list[int]:
        return [axis for axis in range(3) if AXES[axis] != self.axis]


@dataclass(frozen=True)
class SphereLattice:
    """A cubic cell of edge 1 with spheres in it."""

    centres: np.ndarray
    # Pairs of neighbours per cell, and their distance: the nearest, and the next nearest if their
    # spheres meet before the pores close.
    neighbours: tuple[tuple[int, float], ...]
    # Radius at which three spheres meet and shut the last windows between pores.
    closing_radius: float

    def solid_fraction(self, radius: float) -> float:
        """Return the fraction of the cell in spheres, up to the radius that closes its pores."""
        fraction = len(self.centres) * _volume(radius)
        for count, distance in self.neighbours:
            # Two spheres share a lens.
            height = max(0.0, 2 * radius - distance)
            fraction -= count * math.pi * (4 * radius + distance) * height**2 / 12
        return fraction


SPHERE_LATTICES = {
    "simple": SphereLattice(np.array([[1, 1, 1]]) / 2, ((3, 1.0),), math.sqrt(1 / 2)),
    "body-centred": SphereLattice(
        np.array([[0, 0, 0], [1, 1, 1]]) / 2, ((8, math.sqrt(3) / 2), (6, 1.0)), math.sqrt(9 / 32)
    ),
    "face-centred": SphereLattice(
        np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]]) / 2,
        ((24, math.sqrt(1 / 2)),),
        math.sqrt(1 / 6),
    ),
}


@dataclass(frozen=True)
class Spheres(Sample):
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
    lattice: str = SAMPLE_KEYS["spheres"]["lattice"]
    solid_fraction: float | None = None
    radius: float | None = None

    def __post_init__(self) -> None:
        _set_shape(self)
        if len(set(self.shape)) > 1:
            given = PerAxis(self.shape)
            raise KeyedError(_key("shape"), " is ", given, "; accepted for spheres: a cube")
        if not isinstance(self.lattice, str) or self.lattice not in SPHERE_LATTICES:
            accepted = ", ".join(SPHERE_LATTICES)
            raise KeyedError(_key("lattice"), f" is {self.lattice!r}; accepted: {accepted}")
        if (self.solid_fraction is None) == (self.radius is None):
            raise KeyedError(_key("radius"), ", ", _key("solid_fraction"), ": give one of them")
        cell = SPHERE_LATTICES[self.lattice]
        if self.radius is not None:
            _set_number(self, "radius", cell.closing_radius * self.shape[0])
        else:
            most = cell.solid_fraction(cell.closing_radius)
            _set_number(self, "solid_fraction", most)

    @cached_property
    def sphere_radius(self) -> float:
        """The radius of the spheres."""
        if self.radius is not None:
            return float(self.radius)
        wanted: Any = self.solid_fraction
        cell = SPHERE_LATTICES[self.lattice]
        low, high = 0.0, cell.closing_radius
        while high - low > 1e-15:
            middle = (low + high) / 2
            less = cell.solid_fraction(middle) < wanted
            low, high = (middle, high) if less else (low, middle)
        return (low + high) / 2 * self.shape[0]

    def _mask(self, box: Box) -> np.ndarray:
        centres = SPHERE_LATTICES[self.lattice].centres * self.shape[0]
        return draw_spheres(centres, self.sphere_radius, self.shape, box)


@dataclass(frozen=True)
class RandomPack(Sample):
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
    seed: int = SAMPLE_KEYS["random-pack"]["seed"]

    def __post_init__(self) -> None:
        _set_shape(self)
        _set_number(self, "radius", min(self.shape) / 2, 1.0)
        least = 0.5 * _volume(self.radius) / math.prod(self.shape)
        _set_number(self, "solid_fraction", _FULL, least)
        _check_seed(self.seed)

    @cached_property
    def centres(self) -> np.ndarray:
        """Centres of the spheres, shape (spheres, 3)."""
        wanted = round(self.solid_fraction * math.prod(self.shape) / _volume(self.radius))
        centres = random_pack(self.shape, self.radius, wanted, self.seed)
        if len(centres) < wanted:
            reached = len(centres) * _volume(self.radius) / math.prod(self.shape)
            raise KeyedError(
                _key("solid_fraction"),
                f" is {self.solid_fraction}; accepted with this shape, radius "
                f"and seed: up to {reached:.3f}, where no room is left for another sphere",
            )
        return centres

    def _mask(self, box: Box) -> np.ndarray:
        return draw_spheres(self.centres, self.radius, self.shape, box)


@dataclass(frozen=True)
class Sandstone(Sample):
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
    porosity: float = SAMPLE_KEYS["sandstone"]["porosity"]
    seed: int = SAMPLE_KEYS["sandstone"]["seed"]

    def __post_init__(self) -> None:
        _set_shape(self)
        _set_number(self, "radius", float(max(self.shape)), 1.0)
        _set_number(self, "porosity", 0.99)
        _check_seed(self.seed)

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

    def _mask(self, box: Box) -> np.ndarray:
        return draw_spheres(self.centres, self.grain_radius, self.shape, box)


SAMPLES: dict[str, type[Sample]] = {
    "channel": Channel,
    "duct": Duct,
    "spheres": Spheres,
    "random-pack": RandomPack,
    "sandstone": Sandstone,
}


def make_sample(name: str, shape: Sequence[int], **parameters: Any) -> Sample:
    """Return a sample by its name in `SAMPLES`.

    Parameters
    ----------
    name : str
        Which sample.
    shape : sequence of int
        Number of voxels along z, y and x.
    **parameters
        Those of its class.

    Returns
    -------
    Sample
        Its ``read(box)`` gives the mask of a box; ``numpy.asarray`` gives all of it.

    Raises
    ------
    InputError
        If the name or a parameter is unknown, missing or out of range.
    """
    if not isinstance(name, str) or name not in SAMPLES:
        raise KeyedError(f"sample {name!r} is unknown; accepted: {', '.join(SAMPLES)}")
    sample: Any = SAMPLES[name]
    fields = {field.name: field for field in dataclasses.fields(sample)}
    del fields["shape"]
    for key in parameters:
        if key not in fields:
            raise KeyedError(
                _key(key), f" is no parameter of {name!r}; accepted: {', '.join(fields)}"
            )
    for key, field in fields.items():
        if field.default is dataclasses.MISSING and key not in parameters:
            raise KeyedError(_key(key), f" is missing: {name!r} needs it")
    made: Sample = sample(shape, **parameters)
    return made
