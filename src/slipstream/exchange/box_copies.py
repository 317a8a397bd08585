"""Packing and unpacking: many boxes from array to array by one kernel, whatever their strides.

What the halos of a box need is a few faces, edges and corners, in as many places. A table of their
rows makes one pass of it, to and from any memory that the device reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.array_types import Array
from slipstream.device import REAL_NAMES, Device, Operation, RowLaunch, Stream, address_of

# Shorter rows than this are worth exchanging for longer ones of elements that are far apart.
_SHORT = 8


def copy_boxes(device: Device, pairs: Sequence[tuple[Array, Array]]) -> Operation:
    """Return the operation ``target[...] = source`` for pairs (source, target) of views.

    All have one dtype, float32 or float64, and three axes; those of a pair have one shape, or
    `ValueError` is raised. Targets do not overlap each other or the sources, and the device's
    kernels must reach all of the memory.
    """
    tables = [_rows(source, target) for source, target in pairs]
    tables = [table for table in tables if len(table)]
    if not tables:
        return lambda stream: None
    table = np.concatenate(tables)
    dtype = np.dtype(pairs[0][0].dtype).name
    kernel = device.kernel("listed_rows.hpp", "copy_listed_rows", REAL=REAL_NAMES[dtype])
    launch = RowLaunch(len(table), int(table[:, 2].max()))
    bound = kernel.bind(launch, device.array(table), len(table))

    def operation(stream: Stream, keep_alive: Any = pairs) -> None:
        bound(stream)

    return operation


def _rows(source: Array, target: Array) -> np.ndarray:
    """Return the table's entries of one pair."""
    if source.shape != target.shape:
        raise ValueError(f"cannot move {source.shape} to {target.shape}")
    if not source.size:
        return np.empty((0, 5), np.int64)
    inner = 2 if source.shape[2] >= _SHORT else int(np.argmax(source.shape))
    outer = [axis for axis in range(3) if axis != inner]
    first, second = np.indices([source.shape[axis] for axis in outer]).reshape(2, -1)
    table = np.empty((first.size, 5), np.int64)
    for column, array in enumerate((source, target)):
        steps = [array.strides[axis] for axis in outer]
        table[:, column] = address_of(array) + first * steps[0] + second * steps[1]
        table[:, 3 + column] = array.strides[inner] // array.itemsize
    table[:, 2] = source.shape[inner]
    return table
