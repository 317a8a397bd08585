"""Many spheres of one radius in a periodic box of voxels: their centres, and masks of them.

Centres are in voxels, [z, y, x], and the centre of voxel i is at i + 1/2. All results depend on
their arguments only, so each rank finds the same spheres and draws what its box needs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from slipstream.decomposition import Box
from slipstream.device import HostDevice, RowLaunch

# Voxels, in rows spread over the whole box, from which the porosity is estimated.
_PROBED_VOXELS = 2**22
_PRECISION = 1e-5
_CANDIDATES = 2**16
# Candidates per sphere after which a pack is considered full.
_PATIENCE = 2000


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
    centres, taken = np.empty((wanted, 3)), np.zeros(1, np.int64)
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
                taken,
                candidates,
                _CANDIDATES,
                wanted,
                2.0 * float(radius),
                *periods,
                *cells,
                *reach,
            )
        )
        if taken[0] == wanted:
            break
    return centres[: taken[0]]


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
        most, found = math.ceil(radius / shape[axis]), []
        for image in range(-most, most + 1):
            moved = centres.copy()
            moved[:, axis] += image * shape[axis]
            near = (moved[:, axis] >= low - radius) & (moved[:, axis] <= high + radius)
            found.append(moved[near])
        centres = np.concatenate(found)
    return centres[np.argsort(centres[:, 0], kind="stable")]
