"""The nonlinear term: what products alone add to the rates of modes.

The energy that products transfer between scales follows from it. In a time step the same products
go straight into the substage (`runge_kutta_step`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from slipstream.array_types import Array
from slipstream.device import RowLaunch, Stream
from slipstream.fft.slab_engine import (
    ColumnTile,
    ColumnUpdate,
    TileUpdate,
    record_columns,
    record_through,
)
from slipstream.schedule import StepGraph, commit
from slipstream.spectral.runge_kutta_step import SpectralStep


def nonlinear_term(flow: SpectralStep) -> Array:
    """Return what products add to the rate of every mode, in memory of the stage. Collective.

    What an equation adds equally at all points is left out. Where substages shift the grid, it is
    the mean of both grids: without aliases, as in a step.
    """
    grids = (False, True) if flow.problem.dealiasing.is_shifted else (False,)
    for is_shifted in grids:
        commit(record_nonlinear_term(flow, is_shifted, 1 / len(grids)), "serial").run()
    flow.device.synchronize()
    return flow.stage


def record_nonlinear_term(
    flow: SpectralStep, is_shifted: bool = False, weight: float = 1.0
) -> StepGraph:
    """Return the graph that sets the stage to the term, times a weight.

    On the grid that is shifted by half a spacing it is added to what the stage has.
    """
    graph, model = StepGraph(flow.device), flow.problem.model
    flow.is_ahead = False
    transforms, outputs = flow.transforms, len(model.products)
    if is_shifted:

        def take_shifted(tile: ColumnTile) -> TileUpdate:
            return _shifted(flow, flow.take_inputs(tile), tile)

        record_columns(graph, transforms, flow.inputs, [take_shifted])
    else:
        flow.record_inputs(graph, transforms)
    record_through(graph, transforms, flow.product_on(False), len(model.inputs), outputs)
    record_columns(graph, transforms, None, [_update(flow, is_shifted, weight)], outputs)
    return graph


def _shifted(flow: SpectralStep, taken: TileUpdate, tile: ColumnTile) -> TileUpdate:
    """Return the update that takes the inputs, and then shifts them by half a spacing."""
    nz, ny, nx = flow.problem.geometry.spectral_box.shape
    inputs, phases = flow.modes_of(taken.writes[0]), flow.tables.phases
    x, y, z = phases[:nx], phases[nx : nx + ny][tile.low : tile.high], phases[nx + ny :]
    factors = x, y[:, None], z[:, None, None]
    multiply = flow.device.array_module.multiply

    def shift(stream: Stream) -> None:
        taken.operation(stream)
        for factor in factors:
            multiply(inputs, factor, out=inputs)

    return replace(taken, operation=shift)


def _update(flow: SpectralStep, is_shifted: bool, weight: float) -> ColumnUpdate:
    problem, tables = flow.problem, flow.tables
    kernel = flow.model_kernel(
        "nonlinear_rates.hpp",
        "nonlinear_term",
        SPHERE=len(problem.numbers) if problem.dealiasing.is_spherical else -1,
        SHIFTED=is_shifted,
        ADDS=is_shifted,
    )
    nz, _, nx = problem.geometry.spectral_box.shape
    scale = weight / math.prod(problem.geometry.shape)

    def update(tile: ColumnTile) -> TileUpdate:
        products, stage = tile.columns, tile.part(flow.stage)
        operation = kernel.bind(
            RowLaunch(nz * (tile.high - tile.low), nx),
            products,
            stage,
            tables.wavenumbers,
            tables.phases,
            tables.parameters,
            *flow.mode_layout(tile, stage),
            scale,
        )
        return TileUpdate(operation, [products], [stage], [stage])

    return update
