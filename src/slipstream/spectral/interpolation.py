"""Fields of a flow at any places, from the points around them.

Polynomials of Lagrange take values at the points. For cubic splines the modes of a field are
divided by a function of each wavenumber, which makes them, exactly, those of the coefficients of
B-splines; these are transformed to the points. Ranks exchange a halo.

Cubic splines at the kept modes: Yeung and Pope, J. Comput. Phys. 79, 373 (1988).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.decomposition import Box, PaddedBox
from slipstream.engine.device import BlockLaunch, Device, Operation, RowLaunch
from slipstream.engine.exchange import Transport
from slipstream.engine.fft.line_transforms import RealRows
from slipstream.engine.fft.slab_engine import (
    ColumnTile,
    ColumnUpdate,
    SlabEngine,
    TileUpdate,
    record_columns,
    record_to_points,
)
from slipstream.engine.fft.slab_layout import PlaneGeometry
from slipstream.engine.schedule import CommittedStep, StepGraph, commit
from slipstream.spectral.runge_kutta_step import SpectralStep

# Points of the halo: places may be two less outside of a rank's points.
HALO = 4
# Particles of a block, as in particles.hpp.
TOGETHER = 128
# Threads of a GPU that share a block of particles.
_THREADS = 256
# Bytes of a sector of a GPU's cache, which is written as a whole.
_SECTOR = 32


def halo_widths(geometry: PlaneGeometry) -> tuple[int, int]:
    """Return the width of the halo along z and along y: there is none where one rank has all."""
    along, across = geometry.grid or (geometry.ranks, 1)
    return HALO if along > 1 else 0, HALO if across > 1 else 0


def _points_of_chunk(flow: SpectralStep) -> int:
    """Return the number of a field's points that lie side by side; 0 stands for a whole row."""
    device, real = flow.device, flow.problem.real_dtype
    nx, chunk = flow.problem.geometry.shape[2], _SECTOR // real.itemsize
    # Tiles that stream come to the host, whose CPU interpolates.
    in_place = isinstance(flow.passes, SlabEngine) and device.tiled_transforms()
    return chunk if in_place and nx % chunk == 0 and RealRows.supports(device, nx, real) else 0


def spline_factors(points: int, length: float, wavenumbers: np.ndarray) -> np.ndarray:
    """Return the factors that turn modes along an axis into cubic B-spline coefficients."""
    return np.asarray(3 / (2 + np.cos(wavenumbers * length / points)))


class Interpolant:
    """The values from which three fields are interpolated: this rank's points and its halo."""

    def __init__(self, kind: str, flow: SpectralStep, transport: Transport | None) -> None:
        problem, device = flow.problem, flow.device
        geometry = problem.geometry
        self._flow = flow
        self._factors: dict[Device, Array] = {}
        if kind == "spline":
            waves, sizes = flow.wavenumbers, zip(geometry.shape, problem.lengths, strict=True)
            z, y, x = (
                spline_factors(n, length, own)
                for (n, length), own in zip(sizes, (waves.z, waves.y, waves.x), strict=True)
            )
            factors = np.concatenate([x, y, z])
            for one in flow.passes.devices:
                self._factors[one] = one.array(factors, problem.real_dtype)
        # Whether the step's own product stores the velocity, so that nothing is transformed for it.
        self.is_stored = kind == "lagrange" and bool(problem.stored)
        nz, ny, nx = geometry.shape
        chunk = _points_of_chunk(flow)
        fields, row = (1, 3 * nx) if chunk else (3, nx)
        # The points of a plane as one axis.
        boxes = [
            Box((0, box.start[0], row * box.start[1]), (fields, box.stop[0], row * box.stop[1]))
            if box.size
            else Box((0, box.start[0], 0), (fields, box.start[0], 0))
            for box in geometry.physical_boxes
        ]
        along_z, along_y = halo_widths(geometry)
        widths, rank = (0, along_z, row * along_y), geometry.rank
        layouts = [PaddedBox(box, widths, is_dense=True) for box in boxes]
        empty = device.empty if transport is None else transport.empty
        self.array = empty(layouts[rank].shape, problem.real_dtype)
        device.run(device.fill(self.array, 0))
        box = geometry.physical_box
        (first_z, first_y, _), (planes, rows, _) = box.start, box.shape
        self._rank_points = self.array[layouts[rank].slices(boxes[rank])]
        # Passes over planes leave planes without gaps.
        self._left = (
            device.empty(self._rank_points.shape, self._rank_points.dtype)
            if along_y
            else self._rank_points
        )
        # The points that passes leave: [field][plane][y][x], or [chunk][x] instead of [x].
        self.points: Array
        if chunk:
            chunks = self._left.reshape(planes, rows, nx // chunk, 3, chunk)
            self.points = chunks.transpose(3, 0, 1, 2, 4)
        else:
            self.points = self._left.reshape(3, planes, rows, nx)
        self._halo = None
        if transport is not None:
            from slipstream.engine.exchange import HaloExchange, HaloPlan  # one rank has none

            plan = HaloPlan.make(boxes, (fields, nz, ny * row), widths, rank)
            self._halo = HaloExchange(
                device, plan, layouts, [self.array], transport, alternating=False
            )
        per_length = [n / length for n, length in zip(geometry.shape, problem.lengths, strict=True)]
        # What kernels take, after the memory for their arguments.
        self.arguments: tuple[Any, ...] = (
            self.array,
            chunk or math.prod(self.array.shape[1:]),
            *geometry.shape,
            first_z,
            planes,
            first_y,
            rows,
            *per_length,
        )
        self.constants = {
            "REAL": flow.real,
            "LAGRANGE": int(kind == "lagrange"),
            "HALO_Z": along_z,
            "HALO_Y": along_y,
            "CHUNK": chunk,
            "THREADS": _THREADS,
            "BLOCKS_PER_SM": 4,
        }
        self._between: CommittedStep | None = None

    def record_transform(self, graph: StepGraph, source: Array) -> None:
        """Record the transform of three spectral fields to this rank's points. Collective."""
        flow = self._flow
        updates: list[ColumnUpdate] = []
        if self._factors:
            source, updates = flow.stage[:3], [self._filter(source, flow.stage[:3])]
        record_columns(graph, flow.passes, source, updates)
        # Streamed tiles have room for the points of a batch only.
        points = self.points if isinstance(flow.passes, SlabEngine) else self._store
        record_to_points(graph, flow.passes, points, 3)
        self.record_halo(graph)

    def _store(self, points: Array, plane: int) -> tuple[Operation, list[Array]]:
        """Return the operation that takes over points of some planes at home."""
        target = self.points[:, plane : plane + points.shape[1]]
        return self._flow.device.copy(target, points), [target]

    def record_halo(self, graph: StepGraph) -> None:
        """Record the exchange of the halo around this rank's points. Collective."""
        at_home = graph.on(self._flow.device)
        if self._left is not self._rank_points:
            at_home.add_copy(self._rank_points, self._left, label="particles: points")
        if self._halo is not None:
            self._halo.record(at_home, 0, "particles: halo")

    def set(self, fields: Array) -> None:
        """Take up to three spectral fields, between steps. Collective."""
        flow, device = self._flow, self._flow.device
        copies = flow.working[:3]
        device.synchronize()
        for place in range(3):
            device.run(device.copy(copies[place], fields[min(place, len(fields) - 1)]))
        device.synchronize()
        if self._between is None:
            graph = StepGraph(flow.passes.devices[0])
            self.record_transform(graph, copies)
            self._between = commit(graph, "serial")
        flow.is_ahead = False
        self._between.run()
        self._between.synchronize()
        device.synchronize()

    def _filter(self, source: Array, target: Array) -> ColumnUpdate:
        flow = self._flow
        nz, all_y, all_x = flow.problem.geometry.spectral_box.shape

        def update(tile: ColumnTile) -> TileUpdate:
            before, after = tile.part(source), tile.part(target)
            (first_x, nx), height = tile.kx_among(all_x), tile.high - tile.low
            item = before.itemsize
            kernel = tile.device.kernel(
                "particles.hpp", "filter_modes", REAL=flow.real, PREFILTER=1
            )
            operation = kernel.bind(
                RowLaunch(3 * nz * height, nx),
                before,
                after,
                self._factors[tile.device],
                3,
                nz,
                height,
                nx,
                before.strides[2] // item,
                before.strides[0] // item,
                after.strides[0] // item,
                before.strides[1] // item,
                first_x,
                all_x,
                tile.low,
                all_y,
            )
            return TileUpdate(operation, [before], [after], [])

        return update

    def launch(self, particles: int) -> BlockLaunch:
        """Return the launch of a kernel for a number of particles."""
        block = TOGETHER * (15 * self.array.itemsize + 3 * np.dtype(np.int32).itemsize)
        return BlockLaunch(-(-particles // TOGETHER), _THREADS, block)

    def values_at(self, places: Array, count: int) -> Array:
        """Return three fields in double precision at the first of places [x, y, z, ...]."""
        device, launch = self._flow.device, self.launch(count)
        values = device.zeros((3, places.shape[1]), np.float64)
        if count:
            kernel = device.kernel("particles.hpp", "values_at_particles", **self.constants)
            operation: Operation = kernel.bind(
                launch, places, places.shape[1], values, launch.blocks, count, *self.arguments
            )
            device.run(operation)
            device.synchronize()
        return values[:, :count]
