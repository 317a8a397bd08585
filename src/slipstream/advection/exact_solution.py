"""The exact solution, a Gaussian that is carried along, and how far an advected one is from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from slipstream.argument_checks import is_finite, three_counts, three_numbers
from slipstream.collective import sum_over_ranks
from slipstream.decomposition import Box
from slipstream.errors import InputError

if TYPE_CHECKING:
    from slipstream.advection.advection_solver import Advection

# Points that are compared with the exact solution at once, while they are in cache.
_POINTS_AT_A_TIME = 1 << 17


def gaussian(
    box: Box, shape: Sequence[int], travelled: Sequence[float], width: float
) -> np.ndarray:
    """Return a periodic Gaussian, which began in the middle of the box of all points.

    Parameters
    ----------
    box : Box
        The points wanted, by global index z, y, x.
    shape : sequence of int
        Number of points along each axis; the edges of the whole box have length 1.
    travelled : sequence of float
        How far it has moved along each axis, in edges.
    width : float
        Standard deviation, in edges.

    Returns
    -------
    numpy.ndarray
        Values of shape ``box.shape``, float64; about 1 at the peak.

    Raises
    ------
    InputError
        If an argument is not accepted.
    """
    if not isinstance(box, Box) or len(box.shape) != 3:
        raise InputError(f"box is {box!r}; accepted: a Box of three axes")
    if not (is_finite(width) and width > 0):
        raise InputError(f"width is {width!r}; accepted: a number more than 0")
    counts, distances = three_counts(shape), three_numbers("travelled", travelled)
    if counts is None:
        raise InputError(f"shape is {shape!r}; accepted: three positive numbers z, y, x")
    factors: list[Any] = []
    # Periodic images further away than this are below rounding.
    most = 1 + math.ceil(9 * width)
    for start, stop, points, distance in zip(box.start, box.stop, counts, distances, strict=True):
        away = (np.arange(start, stop) / points - 0.5 - distance) % 1.0
        images = range(-most, most + 1)
        factors.append(sum(np.exp(-0.5 * ((away + image) / width) ** 2) for image in images))
    z, y, x = factors
    return z[:, None, None] * y[None, :, None] * x[None, None, :]


def compare(solver: Advection, width: float) -> dict[str, float]:
    """Return means over the box, and errors beside a Gaussian of this width. Collective."""
    values, sums, largest = solver.values(), np.zeros(3), 0.0
    start, stop = solver.box.start, solver.box.stop
    depth = max(1, _POINTS_AT_A_TIME // max(1, math.prod(solver.box.shape[1:])))
    for low in range(start[0], stop[0] if solver.box.size else start[0], depth):
        box = Box((low, *start[1:]), (min(low + depth, stop[0]), *stop[1:]))
        layer = values[box.slices(solver.box)].astype(np.float64, copy=False)
        error = layer - solver.exact(width, box)
        sums += layer.sum(), np.vdot(layer, layer) / 2, np.vdot(error, error)
        # Unlike Python's, NumPy's maximum propagates NaN.
        largest = np.maximum(largest, np.abs(error).max())
    if solver.comm is not None:
        largest = np.max(solver.comm.allgather(largest))
    mass, energy, squares = sum_over_ranks(solver.comm, sums) / math.prod(solver.shape)
    return {
        "mass": float(mass),
        "energy": float(energy),
        "error_max": float(largest),
        "error_rms": math.sqrt(squares),
    }
