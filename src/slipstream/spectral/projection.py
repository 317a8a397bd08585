"""The pressure projection: without its gradient part a vector has no divergence."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from slipstream.array_types import Array
from slipstream.spectral.time_step import SpectralStep


def make_solenoidal(flow: SpectralStep, vector: Array) -> None:
    """Take away the gradient part of a vector, shape (3, kz, ky of this rank, row)."""
    kernel = flow.device.kernel("projection.hpp", "make_solenoidal", REAL=flow.real)
    flow.run_over_rows(kernel, vector, flow.tables.wavenumbers)


def projector(k: tuple[float, ...], size: int, vectors: Iterable[int]) -> np.ndarray:
    """Return the matrix that makes those vectors of a state solenoidal that begin at `vectors`."""
    result = np.eye(size)
    for first in vectors:
        part = slice(first, first + 3)
        result[part, part] -= np.outer(k, k) / np.dot(k, k)
    return result
