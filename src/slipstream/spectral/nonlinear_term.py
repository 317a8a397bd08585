"""What products alone do to the modes of a state: the rates without linear terms and forcing.

A part of `SpectralStep`, in a module of its own. Energy that products move from scale to scale is
made of these rates.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from slipstream.device import RowLaunch
from slipstream.schedule import StepGraph, commit
from slipstream.spectral.transform_passes import ChunkUpdate, ColumnChunk, ColumnUpdate


class ProductRates:
    """What `SpectralStep` knows of the products of its state."""

    def product_rates(self) -> Any:
        """Return what products add to the rate of every mode, in memory of the stage. Collective.

        Without linear terms, decay and forcing, and without what an equation adds at all points
        alike. Where substages shift the grid, the mean of both grids: without aliases, as a step.
        """
        grids = (False, True) if self.problem.dealiasing.is_shifted else (False,)
        for is_shifted in grids:
            commit(self.record_product_rates(is_shifted, 1 / len(grids)), "serial").run()
        self.device.synchronize()
        return self.stage

    def record_product_rates(self, is_shifted: bool = False, weight: float = 1.0) -> StepGraph:
        """Return the graph that sets `stage` to what products add to the rates.

        Parameters
        ----------
        is_shifted : bool
            Compute the products on the grid that is shifted by half a spacing, and add to the stage
            what comes of them.
        weight : float
            What the result is multiplied by.
        """
        graph, model = StepGraph(self.device), self.problem.model
        self.is_ahead = False
        transforms, outputs = self._transforms, len(model.products)
        if is_shifted:
            transforms.record_columns(graph, self._inputs, [self._take_shifted_inputs])
        else:
            self._record_inputs(graph, transforms)
        transforms.record_through(graph, self._product(False), len(model.inputs), outputs)
        update = self._product_update(is_shifted, weight)
        transforms.record_columns(graph, None, [update], outputs)
        return graph

    def _take_shifted_inputs(self, chunk: ColumnChunk) -> ChunkUpdate:
        taken = self._take_inputs(chunk)
        nz, ny, nx = self.problem.geometry.spectral_box.shape
        inputs, phases = self.modes_of(taken.writes[0]), self._here.phases
        x, y, z = phases[:nx], phases[nx : nx + ny][chunk.low : chunk.high], phases[nx + ny :]
        factors = x, y[:, None], z[:, None, None]
        multiply = self.device.array_module.multiply

        def shift(stream: Any) -> None:
            taken.operation(stream)
            for factor in factors:
                multiply(inputs, factor, out=inputs)

        return replace(taken, operation=shift)

    def _product_update(self, is_shifted: bool, weight: float) -> ColumnUpdate:
        problem = self.problem
        kernel = self._kernel(
            "product_rates",
            "mode_sums.hpp",
            SPHERE=len(problem.numbers) if problem.dealiasing.is_spherical else -1,
            SHIFTED=is_shifted,
            ADDS=is_shifted,
        )
        z_modes, row = problem.geometry.modes[0], problem.geometry.row
        nz, all_y, nx = problem.geometry.spectral_box.shape
        scale = weight / math.prod(problem.geometry.shape)

        def update(chunk: ColumnChunk) -> ChunkUpdate:
            products, stage = chunk.products, chunk.part(self.stage)
            constants, height = self._here, chunk.high - chunk.low
            operation = kernel.bind(
                RowLaunch(nz * height, nx),
                products,
                stage,
                constants.table,
                constants.phases,
                constants.numbers,
                nz,
                height,
                nx,
                row,
                z_modes.low,
                z_modes.gap,
                products.strides[0] // products.itemsize,
                stage.strides[0] // stage.itemsize,
                all_y * row,
                chunk.low,
                all_y,
                scale,
            )
            return ChunkUpdate(operation, [products], [stage], [stage])

        return update
