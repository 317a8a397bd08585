"""Means over the box of functions of the fields, as a model's own diagnostics are.

They go chunk by chunk, on the device, so that no field of points is ever in memory as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sympy

from slipstream.collective import sum_over_ranks
from slipstream.device import Operation
from slipstream.equations.forms import WAVENUMBERS, values_in
from slipstream.schedule import commit
from slipstream.spectral.time_step import SpectralStep


def combined(flow: SpectralStep, sums: Sequence[sympy.Expr]) -> Any:
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


def mean_over_box(flow: SpectralStep, name: str, comm: Any) -> float:
    """Return the mean over the box of a function of the fields. Collective."""
    sums: list[float] = []
    for part, function in flow.problem.means[name]:

        def add(
            points: Any, plane: int, function: Callable[..., Any] = function
        ) -> tuple[Operation, list[Any]]:
            def run(stream: Any) -> None:
                # What is the same everywhere is a number: it is counted at every point too.
                sums.append(float((function(*points) + 0 * points[0]).sum()))

            return run, []

        commit(flow.record_backward(combined(flow, part.inputs), add), "serial").run()
        flow.device.synchronize()
    total = sum_over_ranks(comm, np.array([math.fsum(sums)]))
    return float(total[0]) / math.prod(flow.problem.geometry.shape)
