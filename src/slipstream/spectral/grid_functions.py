"""Functions of the points of a box: fields set from formulas, and means of functions of fields.

Both go chunk by chunk, on the device, so that no field of points is ever in memory as a whole.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import sympy

from slipstream.device import Operation
from slipstream.equations.forms import WAVENUMBERS, values_in
from slipstream.errors import InputError
from slipstream.family import sum_over_ranks
from slipstream.fft import PointOperation
from slipstream.schedule import commit
from slipstream.spectral.dealiasing import keep_sphere
from slipstream.spectral.formula_parser import evaluator
from slipstream.spectral.projection import make_solenoidal
from slipstream.spectral.spectral_problem import SpectralProblem
from slipstream.spectral.time_step import SpectralStep


def set_formulas(flow: SpectralStep, formulas: Mapping[str, Callable[..., Any]]) -> None:
    """Set the state to what has a formula; the rest is 0. Collective.

    Parameters
    ----------
    flow : SpectralStep
        Whose state is set; of vectors without divergence the gradient part is taken away.
    formulas : mapping of str to callable
        By component: functions of x, y, z and a module, see `formula`.
    """
    components = flow.problem.model.components
    set_points(flow, flow.state, [formulas.get(str(value)) for value in components])
    _make_state_solenoidal(flow)


def set_points(
    flow: SpectralStep, target: Any, functions: Sequence[Callable[..., Any] | None]
) -> None:
    """Set spectral fields to functions of the points; None is 0. Collective.

    Parameters
    ----------
    flow : SpectralStep
        Whose box it is.
    target : array, shape (count, kz, ky of this rank, row)
        The fields, no more than are transformed together.
    functions : sequence of callable or None
        For each a function of x, y, z and a module, see `formula`.
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
    """Set the state to values at this rank's points. Collective.

    Parameters
    ----------
    flow : SpectralStep
        Whose state is set; of vectors without divergence the gradient part is taken away.
    values : numpy.ndarray, shape (components, z of this rank, y, x)
        On the host, of the problem's precision.
    """

    def load(points: Any, plane: int) -> tuple[Operation, list[Any]]:
        part = values[:, plane : plane + points.shape[1]]
        return flow.device.copy(points, part), [part]

    _run_forward(flow, load, flow.state)
    _make_state_solenoidal(flow)
    # The values are the caller's, who may let go of them.
    flow.device.synchronize()


def set_coefficients(flow: SpectralStep) -> None:
    """Set what of the state does not change: functions of the points that multiply fields.

    Raises
    ------
    InputError
        If one is not periodic in this box.
    """
    model, values = flow.problem.model, flow.problem.values
    if not model.coefficients:
        return
    functions = [expression.subs(values) for expression in model.coefficients]
    for expression in functions:
        check_periodic(expression, flow.problem.lengths, "equation.model")
    target = flow.state[len(model.unknowns) :]
    set_points(flow, target, [evaluator(expression) for expression in functions])
    keep_sphere(flow, target)


def check_periodic(expression: sympy.Expr, lengths: tuple[float, float, float], key: str) -> None:
    """Refuse a function that jumps where the box repeats, or is no number somewhere.

    Parameters
    ----------
    expression : Expr
        Of the coordinates, and perhaps of time.
    lengths : tuple of float
        Box lengths (Lz, Ly, Lx).
    key : str
        Who has it, for messages.

    Raises
    ------
    InputError
        If it does.
    """
    for term in sympy.Add.make_args(sympy.expand(expression)):
        function = functools.partial(evaluator(term), time=0.37)
        # Some positions that no symmetry distinguishes, and the corner.
        x, y, z = (length * np.array([0.0, 0.137, 0.41, 0.733]) for length in reversed(lengths))
        with np.errstate(all="ignore"):
            inside = function(x, y, z, np)
            for axis, (name, length) in enumerate(zip("xyz", reversed(lengths), strict=True)):
                here = [x[1:], y[1:], z[1:]]
                ends = [np.zeros(3), np.full(3, length)]
                low, high = (function(*here[:axis], end, *here[axis + 1 :], np) for end in ends)
                values = [np.abs(value).max() for value in (low, high, inside)]
                if not np.all(np.isfinite(values)):
                    raise InputError(f"{key}: {term} is not a finite number everywhere in the box")
                if np.abs(np.subtract(high, low)).max() > 1e-2 * max(values):
                    raise InputError(
                        f"{key}: {term} is not periodic along {name} in a box of length "
                        f"{length:.6g}; expected a function that is the same at both ends"
                    )


def combined(flow: SpectralStep, sums: Sequence[sympy.Expr]) -> Any:
    """Return the Fourier coefficients of sums of values, in memory of the stage."""
    waves, state = flow.wavenumbers, flow.modes_of(flow.state)
    array, names = flow.device.array, flow.problem.model.components
    x, y, z = array(waves.x), array(waves.y)[:, None], array(waves.z)[:, None, None]
    result, values = flow.working[: len(sums)], flow.problem.values
    result[...] = 0
    for target, expression in zip(flow.modes_of(result), sums, strict=True):
        for value in values_in(expression):
            factor = sympy.lambdify(
                WAVENUMBERS, expression.coeff(value).subs(values) * value.multiplier
            )
            source = state[names.index(value.undifferentiated)]
            for plane in range(len(z)):  # one at a time, so that little memory is needed
                target[plane] += factor(x, y, z[plane]) * source[plane]
    return result


def mean_over_box(flow: SpectralStep, name: str, comm: Any) -> float:
    """Return the mean over the box of a function of the fields. Collective.

    Parameters
    ----------
    flow : SpectralStep
        Whose state it is.
    name : str
        Which of the model's means.
    comm : mpi4py.MPI.Comm or None
        The ranks.
    """
    sums: list[float] = []
    for part, function in flow.problem.means[name]:

        def add(points: Any, plane: int, function=function) -> tuple[Operation, list[Any]]:
            def run(stream: Any) -> None:
                # What is the same everywhere is a number: it is counted at every point too.
                sums.append(float((function(*points) + 0 * points[0]).sum()))

            return run, []

        commit(flow.record_backward(combined(flow, part.inputs), add), "serial").run()
        flow.device.synchronize()
    total = sum_over_ranks(comm, np.array([math.fsum(sums)]))
    return float(total[0]) / math.prod(flow.problem.geometry.shape)


def make_real(flow: SpectralStep, comm: Any) -> None:
    """Make modes of kx = 0 that belong together conjugates of each other. Collective.

    Of the plane kx = 0 both halves are stored, and only what they have in common reaches physical
    space. Rounding makes them differ, and a linear part that makes modes grow lets the difference
    grow with no product to answer it.

    Parameters
    ----------
    flow : SpectralStep
        Whose state is mended.
    comm : mpi4py.MPI.Comm or None
        The ranks, which share the wavenumbers along y.
    """
    state = flow.modes_of(flow.state)
    flow.device.synchronize()
    mine = flow.device.to_host(state[..., :1])[..., 0]
    parts = [mine] if comm is None else comm.allgather(mine)
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


def check_waves(problem: SpectralProblem, wavevector: tuple[int, int, int], key: str) -> None:
    """Refuse waves that the grid cannot hold.

    Parameters
    ----------
    problem : SpectralProblem
        The grid.
    wavevector : tuple of int
        Number of waves along x, y and z.
    key : str
        The key of the case that asks for them.

    Raises
    ------
    InputError
        If there are too few points.
    """
    modes = reversed(problem.geometry.modes)
    for axis, waves, m in zip("xyz", wavevector, modes, strict=True):
        if abs(waves) >= m.low:
            raise InputError(
                f"{key}: needs {abs(waves)} waves along {axis}, and grid.points = {m.size} can "
                f"resolve {m.low - 1}; use more points"
            )
    squares = [
        (2 * math.pi * n / L) ** 2
        for n, L in zip(wavevector, reversed(problem.lengths), strict=True)
    ]
    reach = np.dot(squares, problem.over_radii)
    if problem.dealiasing.is_spherical and reach >= 1:
        raise InputError(
            f"{key}: needs the wavevector {list(wavevector)}, which is beyond the sphere that "
            "numerics.dealiasing keeps; use more points"
        )
