"""Fields set from formulas, or from values, at the points of the box.

Each chunk of planes is set on the device and transformed, so that no field of points is ever in
memory as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from slipstream.device import Operation
from slipstream.fft import PointOperation
from slipstream.schedule import commit
from slipstream.spectral.formula_parser import check_periodic, evaluator
from slipstream.spectral.projection import make_solenoidal
from slipstream.spectral.spectral_operators import keep_sphere
from slipstream.spectral.time_step import SpectralStep


def set_formulas(flow: SpectralStep, formulas: Mapping[str, Callable[..., Any]]) -> None:
    """Set the components of the state that have a formula; the rest is 0. Collective."""
    components = flow.problem.model.components
    set_points(flow, flow.state, [formulas.get(str(value)) for value in components])
    _make_state_solenoidal(flow)


def set_points(
    flow: SpectralStep, target: Any, functions: Sequence[Callable[..., Any] | None]
) -> None:
    """Set spectral fields to functions of x, y, z and a module; None is 0. Collective."""
    device, geometry, lengths = flow.device, flow.problem.geometry, flow.problem.lengths
    start = geometry.physical_box.start[0]
    axes = [length * np.arange(n) / n for n, length in zip(geometry.shape, lengths, strict=True)]

    def load(points: Any, plane: int) -> tuple[Operation, list[Any]]:
        first = start + plane
        z = device.array(axes[0][first : first + points.shape[1]][:, None, None])
        y = device.array(axes[1][None, :, None])
        x = device.array(axes[2][None, None, :])

        def fill(stream: Any) -> None:
            for place, function in enumerate(functions):
                points[place] = 0
                if function is not None:
                    points[place] += function(x, y, z, device.array_module)

        return fill, []

    _run_forward(flow, load, target)


def _run_forward(flow: SpectralStep, load: PointOperation, target: Any) -> None:
    commit(flow.record_forward(load, target), "serial").run()
    # The forward transform leaves out the division by the number of points.
    scale = target.dtype.type(1.0 / math.prod(flow.problem.geometry.shape))
    flow.device.run(lambda stream: flow.device.array_module.multiply(target, scale, out=target))


def _make_state_solenoidal(flow: SpectralStep) -> None:
    for first in flow.problem.model.vectors:
        make_solenoidal(flow, flow.state[first : first + 3])


def set_values(flow: SpectralStep, values: np.ndarray) -> None:
    """Set the state to values [component, z of this rank, y, x] on the host. Collective."""

    def load(points: Any, plane: int) -> tuple[Operation, list[Any]]:
        part = values[:, plane : plane + points.shape[1]]
        return flow.device.copy(points, part), [part]

    _run_forward(flow, load, flow.state)
    _make_state_solenoidal(flow)
    # The values are the caller's, who may free them.
    flow.device.synchronize()


def set_coefficients(flow: SpectralStep) -> None:
    """Set the components that do not change: functions of the points that multiply fields."""
    model, values = flow.problem.model, flow.problem.values
    if not model.coefficients:
        return
    functions = [expression.subs(values) for expression in model.coefficients]
    for expression in functions:
        check_periodic(expression, flow.problem.lengths, "equation.model")
    target = flow.state[len(model.unknowns) :]
    set_points(flow, target, [evaluator(expression) for expression in functions])
    keep_sphere(flow, target)
