"""Parameters that follow the state: functions of means over the box, such as eddy viscosities.

The means are of products of two quantities, which may contain products themselves. These quantities
are transformed to physical space and back as in substages, and a kernel sums products of their
modes.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import sympy

from slipstream.engine.array_types import Comm
from slipstream.engine.collective import sum_over_ranks
from slipstream.engine.device import RowLaunch
from slipstream.engine.device.array_kernels import sum_of_rows
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import GridTransports, Transport
from slipstream.engine.fft.slab_engine import ColumnTile, TileUpdate, record_columns, record_through
from slipstream.engine.schedule import StepGraph, commit
from slipstream.equations.code_generation import array_function
from slipstream.equations.fourier_forms import parameters_in
from slipstream.spectral.kept_modes import Wavenumbers
from slipstream.spectral.memory_placement import Placement
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.runge_kutta_tableaux import METHODS
from slipstream.spectral.spectral_problem import SpectralProblem


def problem_of_averages(problem: SpectralProblem) -> SpectralProblem | None:
    """Return the problem whose step computes the quantities that are averaged, if there are any."""
    averages = problem.model.averages
    if averages is None:
        return None
    return dataclasses.replace(
        problem,
        model=averages.model,
        parameters=dict(problem.parameters),
        method=METHODS["rk2"],
        integrating_factor=False,
        propagates=False,
        forced=(),
        written=None,
        is_staged=False,
        held=(),
        stored=(),
    )


def bytes_of_averages(problem: SpectralProblem, placement: Placement) -> int:
    """Return the bytes that fields and sums add to those of the step."""
    averaged, averages = problem_of_averages(problem), problem.model.averages
    if averaged is None or averages is None:
        return 0
    shared = averaged.complex_dtype.itemsize * math.prod(averaged.geometry.stored_shape)
    shared *= averaged.size + averaged.stage_size + averaged.size * averaged.method.has_total
    added = dataclasses.replace(placement, problem=averaged).in_core_bytes - shared
    rows = len(averaged.geometry.ranges) * math.prod(averaged.geometry.spectral_box.shape[:2])
    return added + 8 * rows * len(averages.pairs)


class FollowedParameters:
    """Evaluates the parameters that follow the state, once per step. Methods are collective."""

    def __init__(
        self,
        flow: SpectralStep,
        transport: Transport | GridTransports | None,
        schedule: str,
        comm: Comm,
    ) -> None:
        self._flow, self._comm = flow, comm
        problem, averages = flow.problem, flow.problem.model.averages
        self._follows = problem.model.follows
        self._names = list(averages.pairs) if averages else []
        symbols = [sympy.Symbol(name, real=True) for name in self._names]
        values = list(self._follows.values())
        self._numbers = [one for one in parameters_in(values) if str(one) not in self._names]
        self._function = array_function((*symbols, *self._numbers), values)
        self.transforms = averages.transforms if averages else 0
        averaged = problem_of_averages(problem)
        if averaged is None or averages is None:
            return
        self._averages = averages
        self._step = SpectralStep(averaged, flow.device, transport, shares=flow)
        nz, ny, _ = averaged.geometry.spectral_box.shape
        shape = len(averaged.geometry.ranges), nz, ny, len(self._names)
        self._sums = flow.device.zeros(shape, np.float64)
        self._graph = commit(self._recorded(), schedule)

    def _recorded(self) -> StepGraph:
        """Return the graph that sets the sums over rows of modes."""
        step, averages, model = self._step, self._averages, self._averages.model
        graph, passes = step.new_graph(), step.passes
        products = len(model.products) if averages.has_products else 0
        if products:
            step.record_inputs(graph, passes)
            record_through(graph, passes, step.product_on(False), len(model.inputs), products)
        record_columns(graph, passes, updates=[self._update], forward=products)
        return graph

    def _update(self, tile: ColumnTile) -> TileUpdate:
        step, averages = self._step, self._averages
        problem, tables = step.problem, step.tables_on[tile.device]
        state = tile.part(step.read_state())
        nz, _, all_x = problem.geometry.spectral_box.shape
        first_x, nx = tile.kx_among(all_x)
        starts = [one.among_kept.indices(all_x)[0] for one in problem.geometry.ranges]
        sums = self._sums[starts.index(first_x)]
        pairs = [
            (*pair, number)
            for number, several in enumerate(averages.pairs.values())
            for pair in several
        ]
        columns = zip(*(pairs or [(0, 0, 0, 0)]), strict=True)
        lists = ("{" + ", ".join(map(str, each)) + "}" for each in columns)
        kernel = step.model_kernel(
            "averages.hpp",
            "sums_of_products",
            tile.device,
            **dict(zip(("FIRST", "SECOND", "TIMES", "OF"), lists, strict=True)),
            ROWS=len(averages.model.multipliers),
            PAIRS=len(pairs),
            AVERAGES=len(averages.pairs),
            HAS_PRODUCTS=averages.has_products,
            SPHERE=len(problem.numbers) if problem.dealiasing.is_spherical else -1,
        )
        operation = kernel.bind(
            RowLaunch(nz * (tile.high - tile.low), nx, reduces=True),
            tile.columns,
            state,
            tables.wavenumbers,
            tables.parameters,
            sums,
            *step.mode_layout(tile, state),
            1.0 / math.prod(problem.geometry.shape),
        )
        reads: list[Any] = [state] + [tile.columns] * averages.has_products
        return TileUpdate(operation, reads, [sums[:, tile.low : tile.high]], [])

    def find(self) -> dict[str, float]:
        """Return the numbers of the parameters, by name, for the state as it is."""
        flow, averages = self._flow, np.zeros(0)
        if self._names:
            flow.device.synchronize()
            self._graph.run()
            flow.device.synchronize()
            rows = self._sums.reshape(-1, len(self._names))
            averages = sum_over_ranks(self._comm, sum_of_rows(flow.device, rows))
        numbers = [flow.problem.parameters[str(one)] for one in self._numbers]
        with np.errstate(all="ignore"):
            values = self._function(*averages, *map(np.float64, numbers))
        known = bool(np.isfinite(averages).all())
        return {
            name: float(value) if np.isfinite(value) or not known else 0.0
            for name, value in zip(self._follows, values, strict=True)
        }


def cutoff_warnings(problem: SpectralProblem) -> list[str]:
    """Return the warning of a cutoff, of eddy viscosities that follow, that the grid lacks."""
    cutoff = problem.parameters.get("cutoff")
    if not problem.model.follows or cutoff is None:
        return []
    largest = Wavenumbers(problem.geometry, problem.lengths).largest
    if cutoff <= largest * (1 + 1e-9):
        return []
    return [
        f"equation.cutoff: {cutoff:g}, but the grid keeps wavenumbers up to {largest:.6g}:"
        " the eddy viscosity belongs to another grid; use this number"
    ]


def check_followed(problem: SpectralProblem, placement: Placement) -> None:
    """Refuse fields on the host."""
    if problem.model.follows and placement.tiles is not None:
        raise InputError(
            "run.residency: the fields are on the host, but parameters of this model follow the"
            " state; accepted with it: fields on the device"
        )
