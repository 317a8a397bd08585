"""Addresses of arrays, and the C++ names of their types, for kernels."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from slipstream.array_types import Array

# By the name of the dtype.
REAL_NAMES = {"float32": "float", "float64": "double"}


def address_of(array: Array) -> int:
    """Return where the first element of an array, or of a view, is in memory."""
    # In a quarter of the time of `array.ctypes.data`: recording a step asks for thousands.
    if isinstance(array, np.ndarray):
        address: int = array.__array_interface__["data"][0]
    else:
        address = array.data.ptr
    return address


def host_values(array: Array) -> np.ndarray:
    """Return an array of either module as one of NumPy, copied if it is on a GPU."""
    if isinstance(array, np.ndarray):
        return array
    copied: np.ndarray = cast(Any, array).get()
    return copied


def merged_axes(first: Array, second: Array) -> tuple[list[int], list[list[int]]]:
    """Return the shape and the strides, in bytes, of two arrays of one shape with few axes.

    Axes of one element are left out, and neighbours are one axis where both arrays allow it; at
    least one axis remains.
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
