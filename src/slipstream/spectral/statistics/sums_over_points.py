"""Sums over the points of a box, of what transforms bring there from modes.

They go chunk by chunk, on the device, as the transforms bring the points. What goes there is made
in memory of the stage, and of a chunk some planes of one field are looked at together, so that a
few arrays of four million numbers are all the memory that is needed besides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from slipstream.collective import sum_over_ranks
from slipstream.device import Operation
from slipstream.equations.forms import AXES
from slipstream.schedule import commit
from slipstream.spectral.time_step import SpectralStep

_POINTS_AT_A_TIME = 1 << 22


def wavenumbers_along(flow: SpectralStep, axis: int) -> np.ndarray:
    """Return this rank's wavenumbers along x, y or z."""
    return getattr(flow.wavenumbers, AXES[axis])


def multiplied(flow: SpectralStep, first: int, count: int, factor: np.ndarray, axis: int) -> Any:
    """Return components multiplied by a function of one wavenumber, in memory of the stage."""
    part = slice(first, first + count)
    shape = [1, 1, 1]
    shape[2 - axis] = len(factor)
    own = flow.device.array(factor, flow.problem.complex_dtype).reshape(shape)
    source, target = flow.modes_of(flow.state[part]), flow.modes_of(flow.stage[part])
    flow.device.array_module.multiply(source, own, out=target)
    flow.device.synchronize()
    return flow.stage[part]


def sum_over_points(
    flow: SpectralStep,
    spectral: Any,
    function: Callable[[Any, Any], Any],
    shape: tuple[int, ...],
    comm: Any,
) -> np.ndarray:
    """Return the sum over the box of what a function makes of some planes of points. Collective.

    ``function(fields, module)`` returns sums of that shape over the points of each of the fields,
    which it gets one by one, in double precision. Chunks are added up in their order, so that the
    sum is the same in every run.
    """
    device, module = flow.device, flow.device.array_module
    chunks: dict[int, list[Any]] = {}

    def add(points: Any, plane: int) -> tuple[Operation, list[Any]]:
        count = max(1, _POINTS_AT_A_TIME // (points.shape[2] * points.shape[3]))

        def run(stream: Any) -> None:
            chunks[plane] = [
                function((one[low : low + count].astype(np.float64) for one in points), module)
                for low in range(0, points.shape[1], count)
            ]

        return run, []

    commit(flow.record_backward(spectral, add), "serial").run()
    device.synchronize()
    total = np.zeros(shape)
    for _, parts in sorted(chunks.items()):
        for part in parts:
            total += device.to_host(part)
    return sum_over_ranks(comm, total)
