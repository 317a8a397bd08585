"""Arguments of `Advection`: checked before anything is allocated or sent."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slipstream.advection.overlap_strategies import STRATEGIES, Strategy
from slipstream.decomposition import process_grid
from slipstream.device import Device, HostDevice, open_device
from slipstream.errors import InputError
from slipstream.exchange import local_rank

# What a point of a face costs, normal to z, y and x: the last ones lie in as many cache lines.
_FACE_COSTS = (1.0, 1.0, 8.0)


def checked_strategy(name: str, ranks: int) -> Strategy:
    """Return the strategy of a name.

    Raises
    ------
    InputError
        If there is none, or it is for one rank and there are several.
    """
    fitting = [key for key, one in STRATEGIES.items() if ranks == 1 or one.transport != "none"]
    if name not in fitting:
        what = "is for one rank" if name in STRATEGIES else "is unknown"
        raise InputError(f"strategy {name!r} {what}; accepted: {', '.join(fitting)}")
    return STRATEGIES[name]


def checked_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return the number of points along z, y and x.

    Raises
    ------
    InputError
        If they are not three positive whole numbers.
    """
    numbers = _three_counts(shape)
    if numbers is None:
        raise InputError(f"shape is {shape}; accepted: three positive numbers z, y, x")
    return numbers


def checked_dtype(dtype: Any) -> np.dtype:
    """Return the type of the values.

    Raises
    ------
    InputError
        If it is neither float32 nor float64.
    """
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = repr(dtype)
    if name not in ("float32", "float64"):
        raise InputError(f"dtype {name} is not supported; accepted: float64, float32")
    return np.dtype(name)


def checked_shell(shell: int) -> int:
    """Return the thickness of the CPU's shell.

    Raises
    ------
    InputError
        If it is negative, or no whole number.
    """
    try:
        number = operator.index(shell)
    except TypeError:
        number = -1
    if number < 0:
        raise InputError(f"shell is {shell}; accepted: a thickness of 0 points or more")
    return number


def checked_grid(
    grid: Sequence[int] | None, ranks: int, shape: Sequence[int]
) -> tuple[int, int, int]:
    """Return the number of ranks along z, y and x; if not given, what exchanges least.

    Raises
    ------
    InputError
        If it is another number of ranks.
    """
    if grid is None:
        return process_grid(ranks, shape, _FACE_COSTS)
    numbers = _three_counts(grid)
    if numbers is None or math.prod(numbers) != ranks:
        raise InputError(
            f"grid is {grid}; accepted: three positive numbers whose product is the number "
            f"of ranks, {ranks}"
        )
    return numbers


def open_devices(
    strategy: Strategy, given: Mapping[str, Device], threads: int | None, comm: Any
) -> dict[str, Device]:
    """Return the devices of a strategy; those that are not given are opened. Collective.

    Raises
    ------
    InputError
        If there is no GPU, and one is needed.
    """
    devices = dict(given)
    local = local_rank(comm)
    if "cpu" in strategy.devices and "cpu" not in devices:
        # A shell is done before several lanes would have begun.
        lanes = 1 if "gpu" in strategy.devices else None
        devices["cpu"] = HostDevice(threads=threads, lanes=lanes, spare_core=strategy.spare_core)
    if "gpu" in strategy.devices and "gpu" not in devices:
        devices["gpu"] = open_device("cuda", local)
    return {name: devices[name] for name in strategy.devices}


def _three_counts(values: Any) -> tuple[int, int, int] | None:
    """Return three positive whole numbers as a tuple; None if they are something else."""
    try:
        numbers = tuple(operator.index(value) for value in values)
    except TypeError:
        return None
    return numbers if len(numbers) == 3 and min(numbers) > 0 else None
