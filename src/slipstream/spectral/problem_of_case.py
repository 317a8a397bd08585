"""The problem of a case, for which a step is recorded; allocates no field."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from slipstream.case import SpectralCase
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import RankPlace
from slipstream.engine.fft import Modes, PencilGeometry, SlabGeometry
from slipstream.engine.fft.slab_layout import most_over_y, pencil_grid
from slipstream.equations import Lowered, models
from slipstream.equations.derived_models import CarriedScalar
from slipstream.equations.fewest_transforms import FlatAxes
from slipstream.equations.walls import mirror_of
from slipstream.spectral.force_patterns import ForcePattern, amplified, rate_name, sources_of
from slipstream.spectral.forcing import forced_fields, forces_of, is_staged
from slipstream.spectral.kept_modes import DEALIASING, kept_modes, periods, smallest_wavenumber
from slipstream.spectral.runge_kutta_tableaux import METHODS
from slipstream.spectral.spectral_problem import (
    FieldParts,
    SpectralProblem,
    field_parts,
    inputs_of_velocity,
)
from slipstream.spectral.staged_forces import held_shells

# Blocks of slabs, of one field, that a network takes well, by kind of device.
_LARGE = {"gpu": 1 << 20, "cpu": 1 << 15}
# The fewest ranks, and ranks per node, with which pencils are faster.
_RANKS = {"gpu": 32, "cpu": 64}
_RANKS_OF_NODE = {"gpu": 4, "cpu": 32}


def with_decomposition(case: SpectralCase, rank: RankPlace, processor: str) -> SpectralCase:
    """Return a case that states pencils if they are likely to be faster than slabs.

    On GPUs the ranks of a node share planes, so that one of the exchanges stays within the node. On
    CPUs memory is hardly faster than a network, so the pencils are the most even ones.
    """
    (nx, ny, nz), ranks, of_node = case.grid.points_xyz, rank.ranks, rank.ranks_of_node
    if case.run.decomposition != "auto" or rank.is_one_node or ranks > nz:
        return case
    if ranks < _RANKS[processor] or of_node < _RANKS_OF_NODE[processor]:
        return case
    modes = kept_modes(case.grid.points_xyz, case.numerics.dealiasing, case.grid.walls)
    rows = -(-nz // ranks) * -(-modes[1].count // ranks)
    item = 2 * np.dtype(case.numerics.precision).itemsize
    if rows * modes[2].count * item >= _LARGE[processor]:
        return case
    shape = nz, ny, nx
    along, over = ranks // of_node, of_node
    fits = ranks % of_node == 0 and over <= most_over_y(shape, modes)
    if processor == "cpu" or not fits or along > modes[1].count:
        along, over = pencil_grid(shape, modes, ranks) or (ranks, 1)
    if over == 1:
        return case
    stated = {"decomposition": "pencil", "grid": (over, along)}
    return case.model_copy(update={"run": case.run.model_copy(update=stated)})


@dataclass(frozen=True)
class StatedProblem:
    """The problem as one rank sees it, its fields, and the forces: the case's and the model's."""

    problem: SpectralProblem
    fields: list[FieldParts]
    forces: list[ForcePattern]
    sources: list[ForcePattern]


def problem_of_case(
    case: SpectralCase, rank: int = 0, ranks: int = 1, row_bytes: int = 1
) -> StatedProblem:
    """Return the problem of a rank of a case, with rows of modes aligned to `row_bytes`."""
    (nx, ny, nz), (length_x, length_y, length_z) = case.grid.points_xyz, case.grid.lengths_xyz
    shape, lengths = (nz, ny, nx), (length_z, length_y, length_x)
    dealiasing = DEALIASING[case.numerics.dealiasing]
    method = METHODS[case.time.integrator]
    dealiasing.check(case.numerics.dealiasing, method)
    grid = case.grid
    z_modes, y_modes, x_modes = kept_modes(grid.points_xyz, case.numerics.dealiasing, grid.walls)
    alignment = max(1, row_bytes // (2 * np.dtype(case.numerics.precision).itemsize))
    parameters = case.equation.parameters
    scalars = [
        CarriedScalar(
            scalar.name, scalar.diffusivity, scalar.diffusivity_power, scalar.mean_gradient
        )
        for scalar in case.scalars
    ]
    model = models.lowered(case.equation.model, parameters, _flat_axes(case), scalars)
    parameters = models.numbers_of(parameters) | {
        key: n for scalar in scalars for key, n in scalar.numbers.items()
    }
    for name in model.follows:
        if name in parameters:
            raise InputError(
                f"equation.model: {case.equation.model} has an argument {name!r}, and a parameter"
                " of that name that follows the state; accepted: two names"
            )
    parameters |= dict.fromkeys(model.follows, 0.0)
    if model.follows and grid.walls:
        raise InputError(
            f"grid.walls: parameters of the model {case.equation.model} follow the state; accepted"
            " with it: no walls"
        )
    if model.plane_vectors and nz != 1:
        raise InputError(
            f"grid.points: {list(case.grid.points_xyz)}; the model {case.equation.model} is"
            f" two-dimensional; accepted with it: one point along z, as in [{nx}, {ny}, 1]"
        )
    fields = field_parts(model)
    values = {name: parameters[str(name)] for name in model.parameters}
    written, tables = model, case.forcing
    driven = forced_fields(tables, fields, model)
    modes = z_modes, y_modes, x_modes
    z_period, y_period, x_period = periods(lengths, modes)
    repeats = z_period, y_period, x_period
    forces = forces_of(tables, fields, model, repeats, method)
    sources = sources_of(model, values, fields, repeats, method)
    patterns = *forces, *sources
    rates = {rate_name(n): table.rate for n, table in enumerate(tables) if table.rate is not None}
    if rates:
        linear = (
            (n, field, table.shells)
            for n, (table, field) in enumerate(zip(tables, driven, strict=True))
            if table.rate is not None
        )
        model = amplified(model, tuple(linear), smallest_wavenumber(lengths, modes))
    ranks_along = process_grid_of(case, shape, modes, ranks)
    divided = shape, modes, rank
    _check_dropped(model, patterns)
    problem = SpectralProblem(
        geometry=SlabGeometry(*divided, ranks, alignment)
        if ranks_along is None
        else PencilGeometry(*divided, ranks_along, alignment),
        lengths=lengths,
        model=model,
        parameters={**parameters, **rates},
        method=method,
        integrating_factor=case.numerics.integrating_factor,
        propagates=case.numerics.linear == "all" or bool(method.functions),
        real_dtype=np.dtype(case.numerics.precision),
        forced=tuple(itertools.chain(*(pattern.components for pattern in patterns))),
        dealiasing=dealiasing,
        wire=None if case.numerics.wire == "none" else case.numerics.wire,
        written=written if rates else None,
        is_staged=any(map(is_staged, tables)),
        held=held_shells(tables, driven),
        # The first product of a step may be on a shifted grid.
        stored=inputs_of_velocity(model)
        if any(particles.interpolation == "lagrange" for particles in case.particles)
        and not dealiasing.is_shifted
        else (),
        mirror=mirror_of(model, 2, grid.zero_at_walls) if grid.walls else None,
    )
    problem.check_signs()
    return StatedProblem(problem, fields, forces, sources)


def process_grid_of(
    case: SpectralCase,
    shape: tuple[int, int, int],
    modes: tuple[Modes, Modes, Modes],
    ranks: int,
) -> tuple[int, int] | None:
    """Return the number of ranks along z and along y, None for slabs; refuse empty parts."""
    run, along = case.run, min(shape[0], modes[1].count)
    if run.decomposition == "slab" or ranks == 1:
        return None
    if run.decomposition == "auto":
        # Slabs take one exchange each way; pencils are for ranks that would have no work with
        # slabs.
        return None if ranks <= shape[0] else pencil_grid(shape, modes, ranks)
    over = most_over_y(shape, modes)
    if run.grid is not None:
        grid = run.grid[1], run.grid[0]
        if grid[0] * grid[1] != ranks:
            raise InputError(
                f"run.grid: {list(run.grid)} is for {grid[0] * grid[1]} ranks, not {ranks}; "
                "accepted: two numbers, for y and z, whose product is the number of ranks"
            )
        if grid[0] > along or grid[1] > over:
            raise InputError(f"run.grid: {list(run.grid)}; accepted: at most [{over}, {along}]")
        return None if grid[1] == 1 else grid
    pencils = pencil_grid(shape, modes, ranks)
    if pencils is None:
        raise InputError(
            f"run.decomposition: {ranks} ranks cannot all have work along y and z; "
            f"accepted: products of at most {over} and {along}"
        )
    return None if pencils[1] == 1 else pencils


def _flat_axes(case: SpectralCase) -> FlatAxes:
    points, has_two = case.grid.points_xyz, case.numerics.plane == "2D2C"
    flat = FlatAxes(tuple(axis for axis, n in enumerate(points) if n == 1), has_two)
    if has_two and len(flat.axes) != 1:
        raise InputError(
            f"numerics.plane: '2D2C' with grid.points = {list(points)}; accepted with it: one point"
            " along one axis, as in [256, 256, 1]"
        )
    return flat


def _check_dropped(model: Lowered, patterns: Iterable[ForcePattern]) -> None:
    """Refuse forces along the normal of a plane whose flow has no such component."""
    for pattern in patterns:
        for component, shape in zip(pattern.components, pattern.shapes or (), strict=False):
            if component in model.dropped and shape != 0:
                raise InputError(
                    f"numerics.plane: '2D2C', but a force along {model.components[component]} is"
                    " not 0; accepted: a force in the plane, or '2D3C'"
                )
