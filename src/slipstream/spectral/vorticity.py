"""The curl of a vector, mode by mode: i k x u."""

from __future__ import annotations

from slipstream.array_types import Array
from slipstream.spectral.time_step import SpectralStep


def vorticity(flow: SpectralStep, first: int = 0) -> Array:
    """Return the Fourier coefficients of the curl of the vector that begins at a component.

    They are in memory of the stage.
    """
    part = slice(first, first + 3)
    kernel = flow.device.kernel("vorticity.hpp", "curl", REAL=flow.real)
    flow.run_over_rows(kernel, flow.read_state()[part], flow.stage[part], flow.tables.wavenumbers)
    return flow.stage[part]
