"""The pressure projection: without its gradient part a vector has no divergence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from slipstream.array_types import Array, Comm
from slipstream.spectral.formula_checks import judge_loss
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectrum import variances


def make_solenoidal(flow: SpectralStep, vector: Array) -> None:
    """Take away the gradient part of a vector, shape (3, kz, ky of this rank, row)."""
    kernel = flow.device.kernel("projection.hpp", "make_solenoidal", REAL=flow.real)
    flow.run_over_rows(kernel, vector, flow.tables.wavenumbers)


def project(flow: SpectralStep, vectors: Sequence[Array], what: str, comm: Comm) -> list[str]:
    """Make vectors solenoidal; return the warning of what they lose together. Collective.

    Gradients, which lose all, are refused.
    """
    before = after = 0.0
    for vector in vectors:
        before += variances(flow, flow.modes_of(vector), comm).sum()
        make_solenoidal(flow, vector)
        after += variances(flow, flow.modes_of(vector), comm).sum()
    return judge_loss(
        (before - after) / before if before > 0 else 0.0,
        f"{what} has a divergence, and its gradient part is taken away",
        "use a vector without divergence",
    )


def projector(k: tuple[float, ...], size: int, vectors: Iterable[int]) -> np.ndarray:
    """Return the matrix that makes those vectors of a state solenoidal that begin at `vectors`."""
    result = np.eye(size)
    for first in vectors:
        part = slice(first, first + 3)
        result[part, part] -= np.outer(k, k) / np.dot(k, k)
    return result
