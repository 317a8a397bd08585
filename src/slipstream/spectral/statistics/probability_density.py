"""Probability densities, and moments, of fields and their derivatives."""

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
from slipstream.spectral.spectral_operators import vorticity
from slipstream.spectral.spectral_problem import FieldParts
from slipstream.spectral.spectrum import box_means, variances
from slipstream.spectral.sums_over_points import multiplied, sum_over_points

# Bins of a tenth of the root mean square, up to ten of these on either side.
_BINS_TO_ONE, _FARTHEST = 10, 10
_BINS = 2 * _BINS_TO_ONE * _FARTHEST


def pdf(flow: SpectralStep, parts: Sequence[FieldParts], comm: Comm) -> Iterator[Field]:
    """Yield probability densities, and moments, of fields and their derivatives. Collective.

    Of every component of every field, of vectors also of the components of the curl, and of each
    component's derivative along its own axis. The variable is the distance from the mean in root
    mean squares, bins of a tenth of which go from -10 to 10; what lies beyond is counted in the
    outermost. The skewness and flatness of a constant field are not-a-number.
    """
    size = sum(part.size for part in parts)
    names = [str(value) for value in flow.problem.model.components[:size]]
    yield from _densities(flow, flow.state[:size], names, names, "component", comm)
    for part in parts:
        if part.is_vector:
            curl = [f"{part.name}_curl_{axis}" for axis in AXES]
            texts = [f"the {axis} component of curl {part.name}" for axis in AXES]
            yield from _densities(flow, vorticity(flow, part.first), curl, texts, "curl", comm)
            slopes = [f"{part.name}_derivative_{axis}" for axis in AXES]
            texts = [f"d {part.name}_{axis} / d {axis}" for axis in AXES]
            yield from _densities(
                flow, _own_derivatives(flow, part.first), slopes, texts, "derivative", comm
            )


def _own_derivatives(flow: SpectralStep, first: int) -> Any:
    """Return the derivatives of a vector's components along their axes, in memory of the stage."""
    for axis in range(3):
        part = slice(first + axis, first + axis + 1)
        multiplied(flow, part, lambda k: 1j * k, axis)
    return flow.stage[first : first + 3]


def _densities(
    flow: SpectralStep,
    spectral: Any,
    names: Sequence[str],
    texts: Sequence[str],
    kind: str,
    comm: Comm,
) -> Iterator[Field]:
    modes = flow.modes_of(spectral)
    mean, sigma = box_means(flow, modes, comm), np.sqrt(variances(flow, modes, comm))
    # A constant field is at its mean whatever the scale.
    over = np.divide(1.0, sigma, out=np.zeros_like(sigma), where=sigma > 0)

    def sums(points: Any, module: Any) -> Any:
        each = zip(points, mean, over, strict=True)
        return module.stack([_counts_and_powers((p - m) * o, module) for p, m, o in each])

    values = sum_over_points(flow, spectral, sums, (len(names), _BINS + 3), comm)
    values /= math.prod(flow.problem.geometry.shape)
    axis = {"value": (np.arange(_BINS) + 0.5) / _BINS_TO_ONE - _FARTHEST}
    for place, (name, text) in enumerate(zip(names, texts, strict=True)):
        density, (square, cube, fourth) = values[place, :_BINS], values[place, _BINS:]
        yield whole_field(
            f"{name}_pdf",
            f"probability density of {text}, in root mean squares from its mean",
            density * _BINS_TO_ONE,
            axis,
            kind=kind,
        )
        moments = {
            "mean": mean[place],
            "rms": sigma[place],
            "skewness": cube / square**1.5 if square > 0 else np.nan,
            "flatness": fourth / square**2 if square > 0 else np.nan,
        }
        for word, number in moments.items():
            long = "root mean square distance from the mean" if word == "rms" else word
            yield whole_field(f"{name}_{word}", f"{long} of {text}", number, {})


def _counts_and_powers(values: Any, module: Any) -> Any:
    """Return how many values are in each bin, and sums of their second, third and fourth powers."""
    values = values.ravel()
    # Not-a-number, of a flow that has blown up, counts in the first bin.
    with np.errstate(invalid="ignore"):
        bins = module.floor(values * _BINS_TO_ONE).astype(np.int64) + _FARTHEST * _BINS_TO_ONE
    counts = module.bincount(module.clip(bins, 0, _BINS - 1), minlength=_BINS)
    square, dot = values * values, module.vdot
    powers = module.stack([square.sum(), dot(values, square), dot(square, square)])
    return module.concatenate([counts.astype(np.float64), powers])
