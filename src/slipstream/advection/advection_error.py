"""How far an advected Gaussian is from the exact solution, and what is drawn of that."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from slipstream.advection.advection_solver import Advection
from slipstream.collective import sum_over_ranks
from slipstream.decomposition import Box
from slipstream.report.picture_choice import PictureChoice

LABELS = {
    "mass": "mean of the tracer, which is conserved",
    "energy": "mean of the square of the tracer over two",
    "error_max": "largest error, of a peak of 1",
    "error_rms": "root mean square of the error, of a peak of 1",
}
PICTURES = PictureChoice(
    curves=("error_max", "error_rms"),
    curves_file="error.png",
    field="tracer",
    field_file="tracer.png",
    plane="plane through the peak",
    short_labels={"error_max": "largest error", "error_rms": "error, root mean square"},
)
# Planes are compared with the exact solution so many points at a time, while they are in cache.
_POINTS_AT_A_TIME = 1 << 17


def compare(solver: Advection, width: float) -> dict[str, float]:
    """Return means over the box, and the errors, the same on all ranks. Collective.

    Parameters
    ----------
    solver : Advection
        What carries the Gaussian.
    width : float
        Standard deviation of the Gaussian, in edges of the box.

    Returns
    -------
    dict of str to float
        The keys of `LABELS`.
    """
    values, sums, largest = solver.values(), np.zeros(3), 0.0
    for box in _layers(solver.box):
        part = values[box.slices(solver.box)].astype(np.float64, copy=False)
        error = part - solver.exact(width, box)
        sums += part.sum(), np.vdot(part, part) / 2, np.vdot(error, error)
        # Unlike Python's, NumPy's maximum does not lose what is not a number.
        largest = np.maximum(largest, np.abs(error).max())
    if solver.comm is not None:
        largest = np.max(solver.comm.allgather(largest))
    mass, energy, squares = sum_over_ranks(solver.comm, sums) / math.prod(solver.shape)
    return {
        "mass": float(mass),
        "energy": float(energy),
        "error_max": float(largest),
        "error_rms": math.sqrt(squares),
    }


def _layers(box: Box) -> Iterator[Box]:
    """Yield a box a few planes at a time."""
    depth = max(1, _POINTS_AT_A_TIME // max(1, math.prod(box.shape[1:])))
    for low in range(box.start[0], box.stop[0] if box.size else box.start[0], depth):
        high = min(low + depth, box.stop[0])
        yield Box((low, *box.start[1:]), (high, *box.stop[1:]))
