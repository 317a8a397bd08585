"""What kernels are told of arrays: where they begin, and the C++ names of their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

# By the name of the dtype.
REAL_NAMES = {"float32": "float", "float64": "double"}


def address_of(array: Any) -> int:
    """Return where the first element of an array is in memory.

    Parameters
    ----------
    array : numpy.ndarray or cupy.ndarray
        An array or a view.
    """
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr


def merged_axes(first: Any, second: Any) -> tuple[list[int], list[list[int]]]:
    """Return what two arrays of one shape look like with as few axes as possible.

    Axes of one element are left out, and neighbours are one axis where both arrays allow it.

    Parameters
    ----------
    first, second : array
        Of the same shape.

    Returns
    -------
    list of int
        The shape; at least one axis.
    list of list of int
        The strides of either, in bytes.
    """
    shape: list[int] = []
    strides: list[list[int]] = [[], []]
    for axis, size in enumerate(first.shape):
        steps = first.strides[axis], second.strides[axis]
        if size == 1:
            continue
        if shape and all(o[-1] == size * s for o, s in zip(strides, steps, strict=True)):
            shape[-1] *= size
            for own, step in zip(strides, steps, strict=True):
                own[-1] = step
            continue
        shape.append(size)
        for own, step in zip(strides, steps, strict=True):
            own.append(step)
    if not shape:
        return [1], [[first.itemsize], [second.itemsize]]
    return shape, strides
