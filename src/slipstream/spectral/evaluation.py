"""Functions of the points of a box: fields set from formulas, and means of functions of fields.

Both go chunk by chunk, on the device, so that no field of points is ever in memory as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from slipstream.device import Operation
from slipstream.equations.lowering import Mean
from slipstream.errors import InputError
from slipstream.family import sum_over_ranks
from slipstream.schedule import commit
from slipstream.spectral.problem import SpectralProblem
from slipstream.spectral.step import SpectralStep


def set_formulas(flow: SpectralStep, formulas: Mapping[str, Callable[..., Any]]) -> None:
    """Set the state to what has a formula; the rest is 0. Collective.

    Parameters
    ----------
    flow : SpectralStep
        Whose state is set; of vectors without divergence the gradient part is taken away.
    formulas : mapping of str to callable
        By component: functions of x, y, z and a module, see `formula`.
    """
    device, geometry, lengths = flow.device, flow.problem.geometry, flow.problem.lengths
    start = geometry.physical_box.start[0]
    axes = [length * np.arange(n) / n for n, length in zip(geometry.shape, lengths, strict=True)]

    def load(points: Any, plane: int) -> tuple[Operation, list[Any]]:
        first = start + plane
        z = device.array(axes[0][first : first + points.shape[1]][:, None, None])
        y = device.array(axes[1][None, :, None])
        x = device.array(axes[2][None, None, :])

        def fill(stream: Any) -> None:
            for place, value in enumerate(flow.problem.model.components):
                points[place] = 0
                if str(value) in formulas:
                    points[place] += formulas[str(value)](x, y, z, device.array_module)

        return fill, []

    commit(flow.record_forward(load), "serial").run()
    flow.normalise()
    flow.make_solenoidal()


def mean_over_box(flow: SpectralStep, mean: Mean, communicator: Any) -> float:
    """Return the mean over the box of a function of the fields. Collective.

    Parameters
    ----------
    flow : SpectralStep
        Whose state it is.
    mean : Mean
        The function.
    communicator : mpi4py.MPI.Comm or None
        The ranks.
    """
    function, sums = flow.problem.function(mean), []

    def add(points: Any, plane: int) -> tuple[Operation, list[Any]]:
        def run(stream: Any) -> None:
            # A function that is the same everywhere is a number: it is counted at every point too.
            sums.append(float((function(*points) + 0 * points[0]).sum()))

        return run, []

    commit(flow.record_backward(flow.combined(mean.inputs), add), "serial").run()
    flow.device.synchronize()
    total = sum_over_ranks(communicator, np.array([math.fsum(sums)]))
    return float(total[0]) / math.prod(flow.problem.geometry.shape)


def make_real(flow: SpectralStep, communicator: Any) -> None:
    """Make modes of kx = 0 that belong together conjugates of each other. Collective.

    Of the plane kx = 0 both halves are stored, and only what they have in common reaches physical
    space. Rounding makes them differ, and a linear part that makes modes grow lets the difference
    grow with no product to answer it.

    Parameters
    ----------
    flow : SpectralStep
        Whose state is mended.
    communicator : mpi4py.MPI.Comm or None
        The ranks, which share the wavenumbers along y.
    """
    state = flow.modes_of(flow.state)
    flow.device.synchronize()
    mine = flow.device.to_host(state[..., :1])[..., 0]
    parts = [mine] if communicator is None else communicator.allgather(mine)
    plane = np.concatenate(parts, axis=2)
    opposite = [(-np.arange(n)) % n for n in plane.shape[1:]]
    plane = (plane + plane[:, opposite[0][:, None], opposite[1]].conj()) / 2
    start = flow.problem.geometry.spectral_box.start[1]
    if mine.size:
        state[..., 0] = flow.device.array(plane[:, :, start : start + mine.shape[2]])


def check_resolution(problem: SpectralProblem, wavenumber: int, kind: str, table: str) -> None:
    """Refuse a pattern that the grid cannot hold: what it keeps of one would be another.

    Parameters
    ----------
    problem : SpectralProblem
        The grid.
    wavenumber : int
        Number of waves along each axis.
    kind : str
        Name of the pattern.
    table : str
        The case's table that asks for it.

    Raises
    ------
    InputError
        If there are too few points.
    """
    # The Taylor-Green vortex needs x and y; any other axis may have one point, without waves.
    needed = (1, 2) if kind == "taylor-green" else ()
    for axis, m in enumerate(problem.geometry.modes):
        if wavenumber >= m.low and (m.size > 1 or axis in needed):
            raise InputError(
                f"{table}.wavenumber: {wavenumber} is beyond the {m.low - 1} waves "
                f"that grid.points = {m.size} along {'zyx'[axis]} can resolve; use more points"
            )
