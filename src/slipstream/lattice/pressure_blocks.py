"""The pressure that balances what a flow still gathers, found on a grid of blocks of sites.

Density that time steps gather in some places and lose in others has to spread through the whole
medium, which takes them the square of its length. Pressure obeys a Poisson equation on the pores:
it is solved here on blocks of 2^3 voxels or more, each of which conducts to those next to it as
many links as lead there. How narrow a pore is does not matter much, as the extrapolation of
`Acceleration` corrects what is approximate. A site then gets the mean of the pressures of the
blocks that its links lead to.

All ranks sum their sites over blocks, in whole numbers. Rank 0 solves the equation, by conjugate
gradients that a V-cycle over grids of ever larger blocks preconditions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.array_types import Array, Comm
from slipstream.collective import sum_over_ranks
from slipstream.device import Device, Kernel, Operation, RowLaunch
from slipstream.device.row_sums import scale_to_bits
from slipstream.lattice.d3q19 import D3Q19
from slipstream.lattice.fluid import Fluid
from slipstream.lattice.population_layout import SEGMENT, Storage
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.velocity_set import VelocitySet

# Blocks at most; their edge is a power of two.
_MOST_BLOCKS = 1 << 22
# Cells of the coarsest grid at most, whose equation is solved by a matrix.
_FEW_CELLS = 64
# By how much a sweep relaxes; what is left of the residual when the equation is taken as solved.
_RELAXATION, _LEFT, _MOST_CYCLES = 0.7, 0.1, 8
# Mobility of the fluid in pores, times the viscosity, in squares of voxels: of narrow ones.
_MOBILITY = 0.45
# Rows of sites, whose sums are exact, and the size of what is summed.
_COLUMNS, _BITS = 4096, 34
_PLANES_AT_ONCE = 1 << 24  # voxels


def block_edge(shape: Sequence[int]) -> int:
    """Return the edge of the blocks of an image, in voxels."""
    edge = 2
    while math.prod(-(-n // edge) for n in shape) > _MOST_BLOCKS:
        edge *= 2
    return edge


def blocks_memory(shape: Sequence[int], sites: int) -> int:
    """Return the bytes that a rank needs on its device, rank 0 that is; others need fewer."""
    blocks = math.prod(-(-n // block_edge(shape)) for n in shape)
    # Couplings of all grids, five numbers of a cell, and sums; of a site its place and pressure.
    return int(blocks * (4 * (D3Q19.links + 5) * 8 / 7 + 4 * D3Q19.links + 12) + 10 * sites)


class PressureBlocks:
    """The blocks of a flow's sites. Making it, and its methods, are collective."""

    def __init__(self, flow: PoreFlow, comm: Comm) -> None:
        self._flow, self._comm, device = flow, comm, flow.device
        shape = flow.subdomain.shape
        edge = block_edge(shape)
        self._image, self._blocks = shape, tuple(-(-n // edge) for n in shape)
        self._tables = device.array(np.concatenate([_table(n, edge) for n in shape]), np.int32)
        self._places = _places_of_sites(flow)
        self.pressure = device.zeros((flow.sites.stored,), np.float32)
        counts = device.zeros((flow.subdomain.velocity_set.links, *self._blocks), np.uint32)
        sizes = (edge, *shape, *self._blocks)
        self._run("count_links", flow.walls, self._places, self._tables, counts, *sizes)
        total = sum_over_ranks(comm, device.to_host(counts))
        del counts
        self._grids = None
        if comm is None or comm.rank == 0:
            couplings = total.astype(np.float32) / np.float32(edge)
            self._grids = PressureGrids(device, couplings, flow.subdomain.velocity_set)

    def solve(
        self,
        residual: Array,
        residual_changes: Array,
        weights: np.ndarray,
        most: float,
        fluid: Fluid,
        steps: int,
    ) -> tuple[float, float]:
        """Find the `pressure` for what weights leave of a residual, which is `most` at most.

        Returns its mean over the sites times their number, and its largest possible size.
        """
        flow, device, comm = self._flow, self._flow.device, self._comm
        scale = scale_to_bits(most, _BITS)
        sums = device.zeros(self._blocks, np.int64)
        self._run(
            "sum_over_blocks",
            residual,
            residual_changes,
            device.array(weights),
            len(weights),
            scale,
            self._places,
            self._tables,
            self.pressure,
            sums,
            *self._image[:2],
            *self._blocks,
            residual.size,
        )
        total = sum_over_ranks(comm, device.to_host(sums))
        found = np.zeros(self._blocks, np.float32)
        largest = float(np.abs(total).max(initial=0))
        if self._grids is not None and largest:
            normed = (total / largest).astype(np.float32)
            found = device.to_host(self._grids.solve(normed)) * np.float32(largest / scale)
        # The others have zeros, so that a sum hands it on.
        found = sum_over_ranks(comm, found)
        # Of how a pressure relaxes in one step; see `flow_out_of_blocks`.
        weight = 2 * flow.subdomain.velocity_set.weights[-1]
        factor = fluid.viscosity / (_MOBILITY * weight * steps)
        bound = factor * (float(np.abs(found).max(initial=0)) + most)
        rows, scale = -(-flow.sites.count // _COLUMNS), scale_to_bits(bound, _BITS)
        by_row = device.zeros((rows, 1), np.float64)
        if rows:
            kernel = self._kernel("spread_pressure")
            launch = RowLaunch(rows, _COLUMNS, reduces=True)
            device.run(
                kernel.bind(
                    launch,
                    device.array(found),
                    flow.walls,
                    self._places,
                    self._tables,
                    factor,
                    scale,
                    self.pressure,
                    by_row,
                    *self._image[:2],
                    *self._blocks,
                    rows,
                    _COLUMNS,
                    flow.sites.count,
                    flow.sites.stored,
                )
            )
        whole = np.array([sum(map(int, device.to_host(by_row)[:, 0]))])
        return float(sum_over_ranks(comm, whole)[0]) / (scale or 1.0), bound

    def _kernel(self, name: str) -> Kernel:
        return _kernel(self._flow.device, name, self._flow.subdomain.velocity_set)

    def _run(self, name: str, *arguments: Any) -> None:
        sites = self._flow.sites
        segments = -(-sites.count // SEGMENT)
        if segments:
            launch = RowLaunch(segments, SEGMENT)
            operation = self._kernel(name).bind(
                launch, *arguments, segments, sites.count, sites.stored
            )
            self._flow.device.run(operation)


class PressureGrids:
    """Grids of ever larger blocks, which solve for the pressure on the first. Of one rank."""

    def __init__(self, device: Device, couplings: np.ndarray, velocity_set: VelocitySet) -> None:
        self._device, self._velocity_set = device, velocity_set
        self._couplings = [device.array(couplings)]
        while math.prod(self._couplings[-1].shape[1:]) > _FEW_CELLS:
            fine = self._couplings[-1]
            planes, rows, columns = (-(-n // 2) for n in fine.shape[1:])
            coarse = device.zeros((len(fine), planes, rows, columns), np.float32)
            sizes = (*fine.shape[1:], planes, rows, columns)
            device.run(self._bound("couple_larger_blocks", coarse, fine, coarse, *sizes))
            self._couplings.append(coarse)
        last = device.to_host(self._couplings[-1])
        self._inverse = device.array(_inverse(last, velocity_set), np.float32)
        self._found, self._along, self._driven, self._left, self._relaxed = (
            device.zeros(couplings.shape[1:], np.float32) for _ in range(5)
        )
        # What is driven out, with a minus.
        self._drive = self._flow_out(0, self._along, self._along, self._driven, 0.0, 0.0)
        self._cycle = self._recorded(0, self._left, self._relaxed)

    def solve(self, sums: np.ndarray) -> Array:
        """Return the pressure that drives as much out of each block as given."""
        device, left, along = self._device, self._left, self._along
        device.run(device.copy(left, sums))
        found, driven, relaxed = self._found, self._driven, self._relaxed
        found[...], along[...], size = 0, 0, math.inf
        goal = _LEFT**2 * _product(left, left)
        for _ in range(_MOST_CYCLES):
            for operation in self._cycle:
                device.run(operation)
            before, size = size, _product(left, relaxed)
            along *= np.float32(size / before)
            along += relaxed
            device.run(self._drive)
            resisted = -_product(along, driven)
            if not resisted > 0 < size:
                break
            step = np.float32(size / resisted)
            found += step * along
            left += step * driven
            if _product(left, left) <= goal:
                break
        return found

    def _recorded(self, number: int, b: Array, out: Array) -> list[Operation]:
        """Return a V-cycle from a grid on, as operations: it relaxes `out` for `b`."""
        device, shape = self._device, b.shape
        if number + 1 == len(self._couplings):
            inverse = self._inverse

            def solve(stream: Any) -> None:
                out.reshape(-1)[...] = (inverse * b.reshape(-1)).sum(axis=1)

            return [solve]
        coarse = self._couplings[number + 1].shape[1:]
        zero, first, left = (device.zeros(shape, np.float32) for _ in range(3))
        below, correction = (device.zeros(coarse, np.float32) for _ in range(2))
        return [
            self._flow_out(number, zero, b, first, 1.0, _RELAXATION),
            self._flow_out(number, first, b, left, 1.0, 0.0),
            self._bound("sum_of_children", below, left, below, *shape, *coarse),
            *self._recorded(number + 1, below, correction),
            self._bound("add_to_children", first, correction, first, *shape, *coarse[1:]),
            self._flow_out(number, first, b, out, 1.0, _RELAXATION),
        ]

    def _flow_out(
        self, number: int, pressure: Array, b: Array, out: Array, share: float, relaxation: float
    ) -> Operation:
        arrays = self._couplings[number], pressure, b, out
        return self._bound("flow_out_of_blocks", out, *arrays, share, relaxation, *out.shape)

    def _bound(self, name: str, of: Array, *arguments: Any) -> Operation:
        """Return the operation of a kernel on the cells of an array."""
        planes, rows, columns = of.shape[-3:]
        kernel = _kernel(self._device, name, self._velocity_set)
        return kernel.bind(RowLaunch(planes * rows, columns), *arguments)


def _inverse(couplings: np.ndarray, velocity_set: VelocitySet) -> np.ndarray:
    """Return the matrix of pressures for what is driven out of few cells."""
    shape, cells = couplings.shape[1:], math.prod(couplings.shape[1:])
    places, matrix = np.indices(shape), np.diag(couplings.sum(axis=0).reshape(-1).astype(float))
    for coupling, velocity in zip(couplings, velocity_set.velocities[1:], strict=True):
        to = [(p + by) % n for p, by, n in zip(places, velocity, shape, strict=True)]
        number = np.ravel_multi_index(to, shape).reshape(-1)
        np.subtract.at(matrix, (np.arange(cells), number), coupling.reshape(-1))
    return np.linalg.pinv(matrix, rcond=1e-6, hermitian=True)


def _kernel(device: Device, name: str, velocity_set: VelocitySet) -> Kernel:
    """Return a kernel, which is the same for all storages, since none reads populations."""
    constants = {**Storage().constants, **velocity_set.constants}
    return device.kernel("pressure_blocks.hpp", name, **constants)


def _product(a: Array, b: Array) -> float:
    return float((a * b).sum(dtype=np.float64))


def _table(size: int, edge: int) -> np.ndarray:
    """Return in which block each place along an axis is, and those before and behind it."""
    places = np.arange(size) // edge
    return np.concatenate([places[-1:], places, places[:1]])


def _places_of_sites(flow: PoreFlow) -> Array:
    """Return the places of all sites in the image, along z, y and x, on the device."""
    device, sites, box = flow.device, flow.sites, flow.subdomain.box
    xp, (depth, height, width) = device.array_module, sites.box_shape
    places = device.zeros((3, sites.stored), np.uint16)
    step = max(1, _PLANES_AT_ONCE // max(1, height * width))
    for low, high in itertools.pairwise([*range(0, depth, step), depth]):
        z, y, x = xp.nonzero(sites.voxels[1 + low : 1 + high, 1:-1, 1:-1])
        row = z * height + y
        counts = xp.bincount(row, minlength=(high - low) * height)
        before = xp.cumsum(counts) - counts
        first = sites.first[(z + low + 1) * (height + 2) + y + 1]
        numbers = first + xp.arange(len(row)) - before[row]
        for along, place, start in zip(places, (z + low, y, x), box.start, strict=True):
            along[numbers] = place + start
    return places
