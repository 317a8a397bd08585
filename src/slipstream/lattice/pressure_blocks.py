"""The pressure that balances what a flow still gathers, found on a grid of blocks of sites.

Density that time steps gather in some places and lose in others has to spread through the whole
medium, which takes them the square of its length. Pressure obeys a Poisson equation on the pores:
it is solved here on blocks of 2^3 voxels or more; the links between two blocks are their
conductance. How narrow a pore is does not matter much, as the extrapolation of
`Acceleration` corrects the approximation. A site then gets the mean of the pressures of the
blocks that its links lead to.

All ranks sum their sites over blocks, in whole numbers. Rank 0 solves the equation, by conjugate
gradients that a V-cycle over grids of ever larger blocks preconditions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from slipstream.engine.array_types import Array, Comm
from slipstream.engine.collective import largest, sum_over_ranks
from slipstream.engine.decomposition import split
from slipstream.engine.device import Device, Kernel, RowLaunch
from slipstream.engine.device.array_kernels import group_sums, scale_to_bits
from slipstream.engine.schedule import StepGraph, commit
from slipstream.lattice.fluid import Fluid
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.lattice.velocity_set import D3Q19, PLAIN_CONSTANTS, VelocitySet

# Blocks at most; their edge is a power of two.
_MOST_BLOCKS = 1 << 22
# Cells of the coarsest grid at most, whose equation is solved by a matrix.
_FEW_CELLS = 64
# By how much two sweeps relax: Chebyshev's choice for what one grid leaves to another.
_RELAXATIONS = 0.56, 1.39
# The share of the residual that is left when the equation counts as solved.
_LEFT = 0.1
# Iterations at most.
_MOST_CYCLES = 6
# The scalars of conjugate gradients (`Scalar` in kernels; 1 is the size before), and their number.
_SIZE = 0
_COST = 2
_REST = 3
_SCALARS = 4
# Rows whose sums are added together.
_GROUP = 256
# Kernels that sum over rows; blocks from which on lanes share them.
_REDUCING = ("multiply_rows", "step_along")
_CELLS_TO_SHARE = 1 << 14
# Mobility of the fluid in pores, times the viscosity, in squares of voxels: of narrow ones.
_MOBILITY = 0.45
# Sites of a row, whose sums are exact.
_COLUMNS = {"cpu": 4096, "gpu": 512}
# The bits of a summand.
_BITS = 34


def block_edge(shape: Sequence[int]) -> int:
    """Return the edge of the blocks of an image, in voxels."""
    edge = 2
    while math.prod(-(-n // edge) for n in shape) > _MOST_BLOCKS:
        edge *= 2
    return edge


def blocks_memory(shape: Sequence[int], sites: int) -> int:
    """Return the bytes that a rank needs on its device, rank 0 that is; others need fewer."""
    edge, pairs = block_edge(shape), D3Q19.links // 2
    planes, rows, columns = (-(-n // edge) for n in shape)
    # Couplings of all grids and four numbers of a block; three more, sums, and counts of links,
    # the first; of a site its place and pressure.
    every, first = 4 * (pairs + 4) * 8 / 7, 4 * (3 + pairs) + 8
    return int(planes * rows * (columns + 2) * (every + first) + 10 * sites)


def begin_kernels(device: Device) -> None:
    """Start compiling kernels, which takes long, while an image is read and divided."""
    _kernels(device, D3Q19)("count_links").begin()


class PressureBlocks:
    """The blocks of a flow's sites. Making it, and its methods, are collective."""

    def __init__(self, flow: PoreFlow, comm: Comm) -> None:
        self._flow, self._comm, device = flow, comm, flow.device
        self._kernel = _kernels(device, flow.subdomain.velocity_set)
        shape = flow.subdomain.shape
        edge = block_edge(shape)
        self._image, self._blocks = shape, tuple(-(-n // edge) for n in shape)
        self._tables = device.array(np.concatenate([_table(n, edge) for n in shape]), np.int32)
        self._places = places_of_sites(flow)
        self.pressure = device.zeros((flow.sites.stored,), np.float32)
        self._columns = _COLUMNS[device.processor]
        self._parts = device.zeros((-(-flow.sites.count // self._columns), 1), np.float64)
        counts = device.zeros((flow.subdomain.velocity_set.links // 2, *self._blocks), np.uint32)
        sizes = (edge, *shape, *self._blocks)
        self._run("count_links", flow.walls, self._places, self._tables, counts, *sizes)
        if comm is not None:
            counts = device.array(sum_over_ranks(comm, device.to_host(counts)))
        self._sums = device.zeros(self._blocks, np.int64)
        self._clear = device.fill(self._sums, 0)
        self._rows = math.prod(self._blocks[:2])
        self._largest = device.zeros((self._rows, 1), np.float64)
        self._block_pressures = device.zeros(self._blocks, np.float32)
        self._grids = None
        if comm is None or comm.rank == 0:
            velocity_set = flow.subdomain.velocity_set
            self._grids = PressureGrids(device, counts, 1 / edge, velocity_set, flow.policy)

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
        scale, sums = scale_to_bits(most, _BITS), self._sums
        device.run(self._clear)
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
        if comm is not None:
            sums = device.array(sum_over_ranks(comm, device.to_host(sums)))
        pressures, most_found = self._block_pressures, 0.0
        if self._grids is not None:
            by_block = self._rows, self._blocks[2]
            self._run_rows("largest_sums", sums, self._largest, *by_block)
            most_sum = self._most()
            if most_sum:
                self._grids.solve(sums, most_sum)
            factor = most_sum / (scale or 1.0)
            self._run_rows(
                "take_found", self._grids.solution, factor, pressures, self._largest, *by_block
            )
            most_found = self._most()
        if comm is not None:
            # The others have zeros, so that a sum hands it on.
            pressures = device.array(sum_over_ranks(comm, device.to_host(pressures)))
            most_found = largest(comm, most_found)
        # Of how a pressure relaxes in one step.
        weight = 2 * flow.subdomain.velocity_set.weights[-1]
        factor = fluid.viscosity / (_MOBILITY * weight * steps)
        bound = factor * (most_found + most)
        scale, parts = scale_to_bits(bound, _BITS), self._parts
        arguments = (
            pressures,
            flow.walls,
            self._places,
            self._tables,
            factor,
            scale,
            self.pressure,
            parts,
        )
        self._run("spread_pressure", *arguments, *self._image[:2], *self._blocks)
        if len(parts):
            parts = group_sums(device, parts)
        whole = np.array([sum(map(int, device.to_host(parts)[:, 0]))])
        return float(sum_over_ranks(comm, whole)[0]) / (scale or 1.0), bound

    def _most(self) -> float:
        """Return the largest number of all rows of blocks."""
        device = self._flow.device
        found = group_sums(device, self._largest, name="maxima_of_rows")
        return float(device.to_host(found).max())

    def _run_rows(self, name: str, *arguments: Any) -> None:
        launch = RowLaunch(self._rows, self._blocks[2], reduces=True)
        self._flow.device.run(self._kernel(name).bind(launch, *arguments))

    def _run(self, name: str, *arguments: Any) -> None:
        """Run a kernel on rows of sites."""
        sites, rows = self._flow.sites, len(self._parts)
        if rows:
            launch = RowLaunch(rows, self._columns, reduces=True)
            size = rows, self._columns, sites.count, sites.stored
            self._flow.device.run(self._kernel(name).bind(launch, *arguments, *size))


def _table(size: int, edge: int) -> np.ndarray:
    """Return in which block each place along an axis is, and those before and behind it."""
    places = np.arange(size) // edge
    return np.concatenate([places[-1:], places, places[:1]])


@dataclass(frozen=True)
class _Grid:
    """A grid of blocks: their conductances, the sources, and the resulting pressure."""

    couplings: Array
    # How many blocks there are along each axis; rows have a place more at both ends.
    shape: tuple[int, int, int]
    inverse: Array  # conductances of blocks, inverted
    b: Array
    pressure: Array
    other: Array


class PressureGrids:
    """Grids of ever larger blocks, which solve for the pressure on the first. Of one rank.

    An iteration is a recorded step, which a device runs without the host: that reads how much is
    left, once an iteration.
    """

    def __init__(
        self,
        device: Device,
        links: Array,
        conductance: float,
        velocity_set: VelocitySet,
        policy: str = "overlap",
    ) -> None:
        """Make grids for blocks, from the numbers of links that join them and their conductance."""
        self._device, self._kernel = device, _kernels(device, velocity_set)
        pairs, planes, rows, columns = links.shape
        couplings = device.zeros((pairs, planes, rows, columns + 2), np.float32)
        count = pairs * planes * rows
        kernel, launch = self._kernel("with_ends"), RowLaunch(count, columns + 2)
        device.run(kernel.bind(launch, links, conductance, couplings, count, columns))
        self.grids = [self._grid(couplings)]
        while math.prod(self.grids[-1].shape) > _FEW_CELLS:
            fine = self.grids[-1]
            planes, rows, columns = (-(-n // 2) for n in fine.shape)
            coarse = device.zeros((len(couplings), planes, rows, columns + 2), np.float32)
            kernel, launch = self._kernel("couple_larger_blocks"), RowLaunch(planes * rows, columns)
            sizes = *fine.shape, planes, rows, columns
            device.run(kernel.bind(launch, fine.couplings, coarse, *sizes))
            self.grids.append(self._grid(coarse))
        last = device.to_host(self.grids[-1].couplings)[..., 1:-1]
        self._few = device.array(_inverse(last, velocity_set), np.float32)
        shape = self.grids[0].b.shape
        # The pressure of each block; rows have one more place at either end.
        self.solution, self._along = (device.zeros(shape, np.float32) for _ in range(2))
        self._sums = device.zeros((shape[0] * shape[1],), np.float64)
        self._parts = device.zeros((-(-len(self._sums) // _GROUP),), np.float64)
        self._scalars = device.zeros((_SCALARS,), np.float64)
        self._clear = device.fill(self._scalars, 0)
        squares, iteration = StepGraph(device), StepGraph(device)
        first = self.grids[0]
        given = (first.b, first.b), (self._sums,)
        self._add(squares, "multiply_rows", *given, sizes=first.shape[2:])
        self._record_total(squares, _REST)
        self._record_iteration(iteration)
        self._squares, self._iteration = commit(squares, policy), commit(iteration, policy)

    def solve(self, sources: Array, largest: float) -> None:
        """Make `found` the pressure that drives as much out of each block as is given.

        In units of the largest of the whole numbers that are given.
        """
        device, b = self._device, self.grids[0].b
        rows, columns = math.prod(sources.shape[:2]), sources.shape[2]
        kernel, launch = self._kernel("give_parts"), RowLaunch(rows, columns + 2)
        device.run(
            kernel.bind(launch, sources, largest, b, self.solution, self._along, rows, columns)
        )
        device.run(self._clear)
        self._squares.run()
        self._squares.synchronize()
        goal = _LEFT**2 * float(device.to_host(self._scalars)[_REST])
        for _ in range(_MOST_CYCLES):
            self._iteration.run()
            self._iteration.synchronize()
            if float(device.to_host(self._scalars)[_REST]) <= goal:
                break

    def _grid(self, couplings: Array) -> _Grid:
        device, places = self._device, couplings.shape[1:]
        shape = (places[0], places[1], places[2] - 2)
        grid = _Grid(couplings, shape, *(device.zeros(places, np.float32) for _ in range(4)))
        rows = places[0] * places[1]
        kernel, launch = self._kernel("invert_conductances"), RowLaunch(rows, places[2])
        device.run(kernel.bind(launch, couplings, grid.inverse, 0, *grid.shape, rows))
        return grid

    def _record_iteration(self, graph: StepGraph) -> None:
        """Record an iteration of conjugate gradients."""
        first, along, scalars = self.grids[0], self._along, self._scalars
        left, relaxed, driven, shape = first.b, first.pressure, first.other, first.shape
        columns = shape[2:]
        self._record_cycle(graph, 0)
        self._add(graph, "multiply_rows", (left, relaxed), (self._sums,), sizes=columns)
        self._record_total(graph, _SIZE)
        self._add(graph, "turn_along", (relaxed, scalars), (along,), sizes=columns)
        self._add(graph, "drive_along", (first.couplings, along), (driven,), sizes=shape)
        self._add(graph, "multiply_rows", (along, driven), (self._sums,), sizes=columns)
        self._record_total(graph, _COST)
        written = self.solution, left, self._sums
        self._add(graph, "step_along", (along, driven, scalars), written, sizes=columns)
        self._record_total(graph, _REST)

    def _record_cycle(self, graph: StepGraph, number: int) -> None:
        """Record a V-cycle from a grid on, which finds its `pressure` for its `b`."""
        grid = self.grids[number]
        b, pressure, other, shape = grid.b, grid.pressure, grid.other, grid.shape
        if number + 1 == len(self.grids):
            cells = math.prod(shape)
            solve = self._kernel("solve_few").bind(
                RowLaunch(cells, cells, reduces=True), self._few, b, pressure, shape[2], cells
            )
            graph.add(solve, reads=[b], writes=[pressure], label="pressure", category="compute")
            return
        below, conducts = self.grids[number + 1], (grid.couplings, grid.inverse)
        self._add(graph, "relax_twice", (*conducts, b), (pressure,), *_RELAXATIONS, sizes=shape)
        self._add(graph, "leave_of", (grid.couplings, pressure, b), (other,), sizes=shape)
        self._add(graph, "sum_of_children", (other,), (below.b,), *shape, sizes=below.shape[1:])
        self._record_cycle(graph, number + 1)
        given, sizes = (below.pressure,), below.shape[1:]
        self._add(graph, "add_to_children", given, (pressure,), *sizes, sizes=shape[1:])
        first, second = _RELAXATIONS
        for source, target, share in ((pressure, other, second), (other, pressure, first)):
            self._add(
                graph, "relax_pressure", (*conducts, source, b), (target,), share, sizes=shape
            )

    def _record_total(self, graph: StepGraph, scalar: int) -> None:
        """Record that a scalar becomes the sum over all rows."""
        for parts, sums, number in (
            (self._sums, self._parts, -1),
            (self._parts, self._parts, scalar),
        ):
            groups = -(-len(parts) // _GROUP) if number < 0 else 1
            columns = _GROUP if number < 0 else len(parts)
            launch = RowLaunch(groups, columns, reduces=True)
            given = parts, sums, self._scalars, number, len(parts), columns, groups
            graph.add(
                self._kernel("add_up").bind(launch, *given),
                reads=[parts],
                writes=[sums if number < 0 else self._scalars],
                label="pressure",
                category="compute",
            )

    def _add(
        self,
        graph: StepGraph,
        name: str,
        reads: Sequence[Array],
        writes: Sequence[Array],
        *numbers: float,
        sizes: Sequence[int],
    ) -> None:
        """Record a kernel on the rows that it writes, which lanes share if there are many."""
        columns, reduces = sizes[-1], name in _REDUCING
        by_row = [
            array if array.ndim == 1 else array.reshape(-1, array.shape[-1]) for array in writes
        ]
        rows = len(by_row[0])
        lanes = graph.device.lanes if rows * columns >= _CELLS_TO_SHARE else 1
        for lane in range(lanes):
            low, high = split(rows, lanes)[lane]
            launch = RowLaunch(high - low, columns, reduces=reduces)
            arguments = *reads, *writes, *numbers, low, *sizes, high - low
            graph.add(
                self._kernel(name).bind(launch, *arguments),
                reads=reads,
                writes=[array[low:high] for array in by_row],
                label="pressure",
                category="compute",
                lane=graph.lane_of_batch(lane)[1],
            )


def _inverse(couplings: np.ndarray, velocity_set: VelocitySet) -> np.ndarray:
    """Return the matrix that gives the pressures in few cells from their sources."""
    shape, cells = couplings.shape[1:], math.prod(couplings.shape[1:])
    places, matrix = np.indices(shape), np.zeros((cells, cells))
    here = np.arange(cells)
    for coupling, velocity in zip(couplings, velocity_set.velocities[1::2], strict=True):
        to = [(p + by) % n for p, by, n in zip(places, velocity, shape, strict=True)]
        number, conducts = np.ravel_multi_index(to, shape).reshape(-1), coupling.reshape(-1)
        for one, other in ((here, number), (number, here)):
            np.add.at(matrix, (one, one), conducts)
            np.subtract.at(matrix, (one, other), conducts)
    return np.linalg.pinv(matrix, rcond=1e-6, hermitian=True)


def _kernels(device: Device, velocity_set: VelocitySet) -> Callable[[str], Kernel]:
    """Return what gives kernels by name, for all storages, since none reads populations."""
    constants: dict[str, Any] = {**PLAIN_CONSTANTS, **velocity_set.constants}
    return partial(device.kernel, "pressure_blocks.hpp", **constants)


def places_of_sites(flow: PoreFlow) -> Array:
    """Return the places of all sites in the image, along z, y and x, on the device."""
    device, sites = flow.device, flow.sites
    places, (_, height, width) = device.zeros((3, sites.stored), np.uint16), sites.box_shape
    rows = len(sites.rows)
    if rows:
        kernel = _kernels(device, flow.subdomain.velocity_set)("place_sites")
        launch = RowLaunch(rows, width, reduces=True)
        given = sites.voxels, sites.first, sites.rows, places, rows, width, height
        device.run(kernel.bind(launch, *given, *flow.subdomain.box.start, sites.stored))
    return places
