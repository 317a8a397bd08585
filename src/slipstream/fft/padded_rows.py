"""Padded rows: real points and their modes in one memory, as in FFTW and cuFFT.

A row of n points becomes n // 2 + 1 modes, which take one or two more numbers than the points. A
transform in place stores rows of points at the stride of rows of modes; the padding between two
rows has no meaning, and may be copied with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from slipstream.array_types import Array
from slipstream.outofcore.tile_slots import Slot


def padded_row(count: int) -> int:
    """Return the length of a row of `count` points in real numbers, in the memory of its modes."""
    return 2 * (count // 2 + 1)


def has_padding(points: Array, modes: Array) -> bool:
    """Return whether rows of points are padded, within the memory of the modes."""
    if points.dtype.kind != "f" or not points.size or not modes.flags.c_contiguous:
        return False
    row = padded_row(points.shape[-1])
    if points.strides[-2:] != (row * points.itemsize, points.itemsize):
        return False
    own, around = (byte_bounds(np.asarray(one)) for one in (points, modes))
    end = own[1] + (row - points.shape[-1]) * points.itemsize
    return around[0] <= own[0] and end <= around[1]


def placed_points(slot: Slot[Any], shape: tuple[int, ...], dtype: np.dtype, padded: bool) -> Array:
    """Return the view of a slot for some points, perhaps in padded rows."""
    *outer, nx = shape
    return slot.place((*outer, padded_row(nx) if padded else nx), dtype)[..., :nx]


def crossing(target: Any, source: Any, padded: bool) -> tuple[Any, Any]:
    """Return the views to copy of points, whose rows may be `padded`."""
    return (whole_rows(target), whole_rows(source)) if padded else (target, source)


def whole_rows(points: Any) -> Any:
    """Return an array of real points with the padding of its rows, on whichever device it is."""
    stored = (*points.shape[:-1], padded_row(points.shape[-1]))
    if isinstance(points, np.ndarray):
        return np.lib.stride_tricks.as_strided(points, stored, points.strides)
    import cupy

    return cupy.lib.stride_tricks.as_strided(points, stored, points.strides)
