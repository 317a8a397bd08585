"""The energy that products move to each shell of wavenumbers, and the flux through it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from slipstream.array_types import Comm
from slipstream.field import Field
from slipstream.io.time_series import whole_field
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import FieldParts
from slipstream.spectral.spectrum import by_field, sums_in_shells
from slipstream.spectral.statistics.nonlinear_rates import nonlinear_term


def transfer(flow: SpectralStep, parts: Sequence[FieldParts], comm: Comm) -> Iterator[Field]:
    """Yield how much energy products bring to each shell, and carry beyond it. Collective.

    The transfer is the sum over a shell of Re(conj(u_hat) . N_hat), where N is what products add
    to the rate of the field u; the flux through a wavenumber is minus the sum of the transfer up to
    it. What an equation adds equally at all points belongs to neither.
    """
    waves = flow.wavenumbers
    rates = flow.modes_of(nonlinear_term(flow))
    state = flow.modes_of(flow.read_state())

    def sums(first: int, size: int) -> np.ndarray:
        part = slice(first, first + size)
        return sums_in_shells(flow, state[part], rates[part], comm)

    axis = {"wavenumber": waves.unit * np.arange(waves.shell_count)}
    for name, values in by_field(parts, sums):
        of = "energy" if name == "energy" else f"energy of {name}"
        yield whole_field(
            f"{name}_transfer",
            f"transfer of {of} to a shell by products (non-dimensional)",
            values,
            axis,
        )
        yield whole_field(
            f"{name}_flux",
            f"flux of {of} through a wavenumber to larger ones (non-dimensional)",
            -np.cumsum(values),
            axis,
        )
