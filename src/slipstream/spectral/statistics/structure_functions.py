"""Structure functions: means of powers of differences between points.

The difference u(x + r) - u(x) of a periodic field is the inverse transform of (exp(i k.r) - 1)
u_hat. A transform for each separation needs no other exchange between ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from slipstream.array_types import Comm
from slipstream.equations.fourier_forms import AXES
from slipstream.field import Field
from slipstream.io.time_series import whole_field
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import FieldParts
from slipstream.spectral.sums_over_points import multiplied, sum_over_points

ORDERS = 6


def structure(flow: SpectralStep, parts: Sequence[FieldParts], comm: Comm) -> Iterator[Field]:
    """Yield the structure functions of all fields along x, y and z. Collective.

    Means over the box of powers of differences at separations of 1, 2, 4 ... spacings, up to half
    of the box; of vectors along the separation, whose third power is also taken with its sign, and
    across it, the mean of both components there. Axes of one point are left out.
    """
    shape, lengths = flow.problem.geometry.shape, flow.problem.lengths
    components = sum(part.size for part in parts)
    for axis, name in enumerate(AXES):
        size, length = shape[2 - axis], lengths[2 - axis]
        steps = [1 << power for power in range(size.bit_length()) if 2 << power <= size]
        if not steps:
            continue
        distances = np.array(steps) * (length / size)
        means = [_powers_of_differences(flow, components, axis, r, comm) for r in distances]
        powers = np.moveaxis(np.array(means), 0, -1)  # [component, power, separation]
        yield from _structure_fields(parts, powers, axis, {f"separation_{name}": distances})


def _structure_fields(
    parts: Sequence[FieldParts], powers: np.ndarray, axis: int, separation: dict[str, np.ndarray]
) -> Iterator[Field]:
    name, orders = AXES[axis], {"order": np.arange(1.0, ORDERS + 1)}
    for part in parts:
        own = powers[part.first : part.first + part.size]
        text = f"structure functions of {part.name} along {name}, <|difference|^order>"
        if not part.is_vector:
            yield whole_field(
                f"{part.name}_structure_{name}", text, own[0, :ORDERS], orders | separation
            )
            continue
        others = [own[other, :ORDERS] for other in range(3) if other != axis]
        yield whole_field(
            f"{part.name}_longitudinal_{name}",
            f"longitudinal {text}",
            own[axis, :ORDERS],
            orders | separation,
        )
        yield whole_field(
            f"{part.name}_transverse_{name}",
            f"transverse {text}",
            (others[0] + others[1]) / 2,
            orders | separation,
        )
        yield whole_field(
            f"{part.name}_longitudinal_third_{name}",
            f"<difference^3> with its sign, of {part.name} along {name}",
            own[axis, ORDERS],
            separation,
        )


def _powers_of_differences(
    flow: SpectralStep, size: int, axis: int, distance: float, comm: Comm
) -> np.ndarray:
    """Return means of |difference|^1 ... |difference|^ORDERS, and of difference^3, by component."""

    def sums(points: Any, module: Any) -> Any:
        return module.stack([_power_sums(component, module) for component in points])

    differences = multiplied(flow, slice(size), lambda k: np.expm1(1j * k * distance), axis)
    values = sum_over_points(flow, differences, sums, (size, ORDERS + 1), comm)
    return values / math.prod(flow.problem.geometry.shape)


def _power_sums(values: Any, module: Any) -> Any:
    values = values.ravel()
    size, square = module.absolute(values), values * values
    cube, dot = size * square, module.vdot
    return module.stack(
        [
            size.sum(),
            square.sum(),
            cube.sum(),
            dot(square, square),
            dot(square, cube),
            dot(cube, cube),
            dot(values, square),
        ]
    )
