"""Spectra of wavenumbers across z and along it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from slipstream.array_types import Comm
from slipstream.field import Field
from slipstream.io.time_series import whole_field
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import FieldParts
from slipstream.spectral.spectrum import Bins, by_field, sums_in_bins
from slipstream.spectral.wavenumbers import shells_of, smallest_wavenumber


def anisotropic(flow: SpectralStep, parts: Sequence[FieldParts], comm: Comm) -> Iterator[Field]:
    """Yield spectra of wavenumbers across z and along it, which sum to the energy. Collective."""
    waves, (length_z, *lengths), state = flow.wavenumbers, flow.problem.lengths, flow.read_state()
    modes_z, *modes = flow.problem.geometry.modes
    across = smallest_wavenumber(lengths, modes)
    along, levels = 2 * math.pi / length_z, modes_z.low
    shells = shells_of(waves.all_axes[1:], across)

    number = "rint(sqrt(y * y + x * x) / a) * c + rint(fabs(z) / b)"
    bins = Bins(number, shells * levels, across, along, float(levels))

    def sums(first: int, size: int) -> np.ndarray:
        part = flow.modes_of(state[first : first + size])
        return sums_in_bins(flow, part, part, bins, comm).reshape(shells, levels) / 2

    perpendicular = {"wavenumber_perpendicular": across * np.arange(shells)}
    parallel = {"wavenumber_parallel": along * np.arange(levels)}
    for name, values in by_field(parts, sums):
        text = f"spectrum of {name} over wavenumbers"
        yield whole_field(
            f"{name}_spectrum",
            f"{text} across and along z, sums to its energy (non-dimensional)",
            values,
            perpendicular | parallel,
        )
        yield whole_field(
            f"{name}_spectrum_perpendicular",
            f"{text} across z, sums to its energy (non-dimensional)",
            values.sum(axis=1),
            perpendicular,
        )
        yield whole_field(
            f"{name}_spectrum_parallel",
            f"{text} along z, sums to its energy (non-dimensional)",
            values.sum(axis=0),
            parallel,
        )
