"""Values at the points of another grid of the same box, by the modes that both grids have.

A finer grid gets the trigonometric interpolant, a coarser one the part of it that it resolves. The
Nyquist modes of an even number of points, which have no direction, are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from slipstream.decomposition import Box

# The bytes of planes in memory besides the result: with fewer, planes are read more often.
_MOST_BYTES = 1 << 30


def is_other_resolution(shape: Sequence[int], grid: Sequence[int]) -> bool:
    """Return whether a shape is another resolution of a grid, finer or coarser along every axis.

    It must have the same proportions, except along axes of a single point, so that a part of a
    field is not taken for a whole one.
    """
    if tuple(shape) == tuple(grid) or len(shape) != len(grid) or min(shape) < 1:
        return False
    pairs = [(n, m) for n, m in zip(shape, grid, strict=True) if (n, m) != (1, 1)]
    first, other = pairs[0]
    return all(n * other == m * first for n, m in pairs)


def text_of(name: str, shape: Sequence[int], grid: Sequence[int]) -> str:
    """Return the message about a field with the points of another grid."""
    theirs, mine = (" x ".join(map(str, reversed(one))) for one in (shape, grid))
    text = f"{name} has {theirs} points, and is interpolated to the {mine} of the grid by its modes"
    return text if max(shape) < max(grid) else f"{text}; those beyond the grid's are dropped"


def resampled(
    read: Callable[[int, int], np.ndarray],
    shape: Sequence[int],
    grid: Sequence[int],
    box: Box,
) -> np.ndarray:
    """Return values resampled at a box of the points of a grid; does not communicate.

    Parameters
    ----------
    read : callable
        ``read(first, last)`` returns all values of planes first to last - 1, [z, y, x].
    shape : sequence of int
        Number of stored points along z, y and x.
    grid : sequence of int
        Number of points of the grid along z, y and x.
    box : Box
        The points to return.

    Returns
    -------
    numpy.ndarray
        float64, with the shape of the box; values do not depend on the box.
    """
    result = np.zeros(box.shape)
    planes, rows, columns = box.slices()
    height = box.shape[1]
    at_once = max(1, min(height, _MOST_BYTES // (8 * shape[0] * grid[2])))
    depth = max(1, _MOST_BYTES // (32 * math.prod(shape[1:])))
    for first in range(rows.start, rows.start + height if box.size else rows.start, at_once):
        some = slice(first, min(first + at_once, rows.stop))
        lines = np.empty((shape[0], some.stop - some.start, grid[2]))
        for low in range(0, shape[0], depth):
            high = min(low + depth, shape[0])
            part = np.asarray(read(low, high), np.float64)
            part = _along(_along(part, 2, grid[2]), 1, grid[1])
            lines[low:high] = part[:, some]
        place = slice(some.start - rows.start, some.stop - rows.start)
        result[:, place] = _along(lines, 0, grid[0])[planes, :, columns]
    return result


def _along(values: np.ndarray, axis: int, points: int) -> np.ndarray:
    """Return values at another number of points along an axis."""
    own = values.shape[axis]
    if own == points:
        return values
    most = (min(own, points) - 1) // 2
    modes = np.fft.rfft(values, axis=axis).take(range(most + 1), axis=axis)
    found: np.ndarray = np.fft.irfft(modes, points, axis=axis) * (points / own)
    return found
