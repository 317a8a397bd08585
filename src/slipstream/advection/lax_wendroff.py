"""The scheme, and the exact solution that it is tested by.

A profile is carried along by a constant velocity through a periodic box. The scheme is a tensor
product of one-dimensional ones of Lax and Wendroff (1960): second order in one stage, stable while
no Courant number exceeds one, and exact where all are one.

Reference: J. B. White III and J. J. Dongarra, "Overlapping computation and communication for
advection on hybrid parallel computers", IPDPS 2011.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from slipstream.decomposition import Box
from slipstream.errors import InputError

# Floating-point operations per point as the paper counts them: 27 products and 26 sums.
FLOPS = 53


def weights(courant: float) -> tuple[float, float, float]:
    """Return the weights of the points at -1, 0 and +1 along one axis.

    Parameters
    ----------
    courant : float
        Courant number along the axis, velocity times time step over grid spacing.
    """
    return courant * (1 + courant) / 2, 1 - courant**2, -courant * (1 - courant) / 2


def check_courant(courant: Sequence[float]) -> tuple[float, float, float]:
    """Return the Courant numbers along z, y and x.

    Raises
    ------
    InputError
        If they are not three numbers from -1 to 1: the scheme would be unstable.
    """
    try:
        numbers = tuple(float(number) for number in courant)
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) != 3 or not all(abs(number) <= 1 for number in numbers):
        raise InputError(f"courant is {courant}; accepted: three numbers from -1 to 1 (stability)")
    return numbers


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
    """
    factors = []
    for start, stop, points, distance in zip(box.start, box.stop, shape, travelled, strict=True):
        away = (np.arange(start, stop) / points - 0.5 - distance) % 1.0
        images = range(-_images(width), _images(width) + 1)
        factors.append(sum(np.exp(-0.5 * ((away + image) / width) ** 2) for image in images))
    z, y, x = factors
    return z[:, None, None] * y[None, :, None] * x[None, None, :]


def _images(width: float) -> int:
    """Return how many periodic images to either side are more than rounding."""
    return 1 + math.ceil(9 * width)
