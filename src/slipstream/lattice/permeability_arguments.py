"""Arguments of `permeability`: checked, and named in messages as its caller names them."""

from __future__ import annotations

import contextlib
import math
import numbers
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from slipstream.errors import InputError
from slipstream.lattice.d3q19 import AXES

# Keys of cases that messages about images and domains name, and that are arguments here.
_KEYS = re.compile(
    r"\b(?:image|domain)\.(pore|shape|dtype|byte_order|offset|dataset|crop|mirror|buffer)\b"
)


@contextlib.contextmanager
def in_argument_names() -> Iterator[None]:
    """Turn messages about images and domains into such as name arguments."""
    try:
        yield
    except InputError as error:
        raise InputError(_KEYS.sub(r"\1", str(error).replace("image.path", "image"))) from error


def flow_axes(axis: Any) -> list[int]:
    """Return the axes of the array along which the fluid flows; InputError if it is no axis."""
    if axis not in ("x", "y", "z", "all"):
        raise InputError(f"axis {axis!r} is unknown; accepted: x, y, z, all")
    return [2, 1, 0] if axis == "all" else [AXES.index(axis)]


def mirrored_axes(mirror: Any, axes: Sequence[int]) -> tuple[str, ...]:
    """Return the names of the axes to mirror, where flow is along `axes`.

    Raises
    ------
    InputError
        If it is neither true, nor false, nor made of names of axes.
    """
    if isinstance(mirror, bool | np.bool_):
        return tuple(AXES[one] for one in axes) if mirror else ()
    names = tuple(mirror) if isinstance(mirror, str | Sequence) else (mirror,)
    if not all(isinstance(name, str) and name in AXES for name in names):
        raise InputError(
            f"mirror is {mirror!r}; accepted: any of x, y and z, True for the axis of the flow, or "
            "False"
        )
    return names


def periodic_axes(walls: Any, axes: Sequence[int]) -> list[bool]:
    """Return whether z, y and x are periodic; InputError if walls close the axis of the flow."""
    if not isinstance(walls, str) or not set(walls) <= set(AXES):
        raise InputError(f"walls: {walls!r} is not accepted; accepted: letters of x, y and z")
    if any(AXES[one] in walls for one in axes):
        raise InputError(f"walls: {walls!r} closes the axis of the flow; accepted: the others")
    return [name not in walls for name in AXES]


def check_positive(**values: Any) -> None:
    """Make sure that numbers, by name, are above 0 and finite; InputError if one is not."""
    for name, value in values.items():
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not (is_number and math.isfinite(value) and value > 0):
            raise InputError(f"{name} is {value!r}; accepted: a number more than 0")


def check_steps(max_steps: Any, interval: Any) -> None:
    """Make sure that numbers of steps are whole, and even where need be; InputError if not."""
    check_positive(max_steps=max_steps, interval=interval)
    if not isinstance(max_steps, numbers.Integral):
        raise InputError(f"max_steps is {max_steps!r}; accepted: whole numbers")
    if not isinstance(interval, numbers.Integral) or interval % 2:
        raise InputError(f"interval is {interval}; accepted: even numbers, as steps come in pairs")
