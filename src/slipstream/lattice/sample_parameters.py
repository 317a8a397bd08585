"""Parameters of synthetic samples: checked when a sample is described, before it is made."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.decomposition import Box, whole
from slipstream.errors import InputError
from slipstream.lattice.d3q19 import AXES


class Voxels:
    """What can be read box by box, and so is an array too: ``numpy.asarray(sample)``."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the mask of all voxels, uint8 of shape [z, y, x], which is made anew each time."""
        if copy is False:
            raise ValueError("the voxels are made when they are asked for; accepted: copy=None")
        values = self.read(whole(self.shape))
        return values if dtype is None else values.astype(dtype, copy=False)


def check_box(box: Box, shape: Sequence[int]) -> None:
    """Make sure that a box is part of a sample.

    Raises
    ------
    ValueError
        If it is not.
    """
    if box.size and whole(shape).intersect(box) != box:
        raise ValueError(f"there is no box {box.start} to {box.stop} in {tuple(shape)} voxels")


def set_shape(sample: Any) -> None:
    """Make the shape of a sample a tuple.

    Raises
    ------
    InputError
        If it is not three positive whole numbers.
    """
    try:
        shape = tuple(operator.index(n) for n in sample.shape)
    except TypeError:
        shape = ()
    if len(shape) != 3 or min(shape) < 1:
        raise InputError(f"sample.shape is {sample.shape}; accepted: three positive whole numbers")
    object.__setattr__(sample, "shape", shape)


def axis_index(name: str) -> int:
    """Return where the axis of a name is in shapes; InputError if there is none."""
    if name not in AXES:
        raise InputError(f"sample.axis is {name!r}; accepted: x, y, z")
    return AXES.index(name)


def check_number(name: str, value: Any, most: float, least: float = 0.0) -> None:
    """Make sure that a parameter is a number above 0, from `least` up to `most`.

    Raises
    ------
    InputError
        If it is not.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not (least <= number <= most and number > 0):
        lowest = f"a number from {least:.4g}" if least else "a number above 0"
        raise InputError(f"sample.{name} is {value!r}; accepted: {lowest} up to {most:.4g}")


def check_seed(seed: Any) -> None:
    """Make sure that a seed is a whole number, 0 or more; InputError if not."""
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"sample.seed is {seed!r}; accepted: a whole number, 0 or more")
