"""Sums over the points of a box, for statistics and for the means that a model asks for.

Each chunk of planes is summed on the device when the backward transform has made it, so that no
field of points is ever in memory as a whole. What is transformed is made in memory of the stage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sympy

from slipstream.array_types import Comm
from slipstream.collective import sum_over_ranks
from slipstream.device import Operation
from slipstream.equations.fourier_forms import AXES, WAVENUMBERS, values_in
from slipstream.schedule import commit
from slipstream.spectral.runge_kutta_step import SpectralStep

# Statistics of a chunk look at this many points together, which bounds their temporary arrays.
_POINTS_AT_A_TIME = 1 << 22


def multiplied(
    flow: SpectralStep, part: slice, function: Callable[[np.ndarray], np.ndarray], axis: int
) -> Any:
    """Return components multiplied by a function of one wavenumber, in memory of the stage."""
    factor, shape = function(getattr(flow.wavenumbers, AXES[axis])), [1, 1, 1]
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
    comm: Comm,
) -> np.ndarray:
    """Return sums over the box that a function makes plane by plane. Collective.

    ``function(fields, module)`` gets some planes of each field, in double precision, and returns
    an array of sums of the given shape. Chunks are added up in their order, so that the sum is the
    same in every run.
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


def _transformed_sums(flow: SpectralStep, sums: Sequence[sympy.Expr]) -> Any:
    """Return the Fourier coefficients of sums of values, in memory of the stage."""
    waves, state = flow.wavenumbers, flow.modes_of(flow.state)
    array, names = flow.device.array, flow.problem.model.components
    x, y, z = array(waves.x), array(waves.y)[:, None], array(waves.z)[:, None, None]
    result, values = flow.working[: len(sums)], flow.problem.values
    result[...] = 0
    for target, expression in zip(flow.modes_of(result), sums, strict=True):
        for value in values_in(expression):
            factor = sympy.lambdify(
                WAVENUMBERS, expression.coeff(value).subs(values) * value.multiplier
            )
            source = state[names.index(value.undifferentiated)]
            for plane in range(len(z)):  # one at a time, so that little memory is needed
                target[plane] += factor(x, y, z[plane]) * source[plane]
    return result


def mean_over_box(flow: SpectralStep, name: str, comm: Comm) -> float:
    """Return the mean over the box of a function of the fields. Collective."""
    total = 0.0
    for part, function in flow.problem.means[name]:

        def sums(points: Any, module: Any, function: Callable[..., Any] = function) -> Any:
            values = list(points)
            # A constant is a number here, and counts at every point too.
            return module.stack([(function(*values) + 0 * values[0]).sum()])

        transformed = _transformed_sums(flow, part.inputs)
        total += float(sum_over_points(flow, transformed, sums, (1,), comm)[0])
    return total / math.prod(flow.problem.geometry.shape)
