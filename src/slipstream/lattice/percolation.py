"""Percolation: which pores of an image a flow can enter and leave, and which are enclosed.

Connected pore voxels percolate along an axis if they join its two faces or, where the axis is
periodic, if a path through them leads from a voxel to its own periodic image. Each rank unites what
is connected in its planes. Where its lowest plane touches the plane below, there are edges between
sets, and every rank unites the sets along the edges of all ranks. An image has far fewer runs of
pores along x than voxels, so sets consist of runs (`PoreRuns`); ``connected_components.hpp``
explains sets, their flags, and shifts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from slipstream.engine.array_types import Comm, Communicator
from slipstream.engine.decomposition import Box, redistribute, split
from slipstream.engine.device import HostDevice, RowLaunch, open_device

# Integers of an edge: two roots, the flags of both, and a shift along z, y and x.
EDGE = 7
# Integers of a run's place in its set: the root, the root's flags, and the shift from it.
PLACE = 5


@dataclass(frozen=True)
class RunsOfPlane:
    """The runs of a plane, and to which sets they belong."""

    first: np.ndarray  # int64, number of each row's first run, then the number of all runs
    runs: np.ndarray  # int32 of shape (runs, 2): start and stop
    places: np.ndarray  # int64 of shape (runs, PLACE); roots have numbers of all ranks


@dataclass(frozen=True)
class United:
    """The result of uniting sets along edges."""

    useful: np.ndarray  # whether each edge is needed; the others follow from these
    roots: np.ndarray  # of all edges, sorted
    flags: np.ndarray  # of the sets to which these roots now belong
    unions: int  # by how much the number of sets has fallen


class PoreRuns:
    """The runs of some whole planes of an image, from plane `start` on, united into sets.

    The voxels are C-ordered uint8 of shape (planes, rows, columns). Faces normal to z are not
    joined here, even where that axis is periodic. A set's root is the number of its first run;
    `flags`, of uint16, describe the set of each root.
    """

    def __init__(
        self,
        device: HostDevice,
        voxels: np.ndarray,
        start: int,
        shape: tuple[int, ...],
        periodic: tuple[bool, ...],
    ) -> None:
        self._device, self._voxels = device, voxels
        self._shape, self._periodic = shape, periodic
        self._rows = voxels.shape[0] * shape[1]
        # All runs, each as its own set.
        counts = np.empty(self._rows, np.int64)
        self._run("count_runs", self._rows, self._voxels, counts, self._rows, self._shape[2])
        self._first = np.zeros(self._rows + 1, np.int64)
        np.cumsum(counts, out=self._first[1:])
        self.count = int(self._first[-1])
        self._runs = np.empty((self.count, 2), np.int32)
        parents, shifts = np.empty(self.count, np.int64), np.empty((self.count, 3), np.uint32)
        self.flags = np.empty(self.count, np.uint16)
        self._sets = parents, shifts, self.flags
        walled = sum(1 << axis for axis in range(3) if not periodic[axis])
        self._run(
            "write_runs",
            self._rows,
            self._voxels,
            self._first,
            self._runs,
            *self._sets,
            start * self._shape[1],
            self._rows,
            *self._shape,
            walled,
        )
        # The runs of blocks of planes are united, all blocks in parallel, and then the blocks.
        planes = self._voxels.shape[0]
        blocks = max(1, min(planes, self._device.threads))
        bounds = np.array([start for start, _ in split(planes, blocks)] + [planes], np.int64)
        for kernel in ("unite_blocks", "join_blocks"):
            self._run(
                kernel,
                blocks,
                self._first,
                self._runs,
                *self._sets,
                bounds,
                blocks,
                *self._shape[1:],
                *self._periodic[1:],
            )

    def plane(self, number: int, base: int) -> RunsOfPlane:
        """Return a plane, counted from either end as Python does; roots are counted from `base`."""
        rows = self._shape[1]
        begin = number % self._voxels.shape[0] * rows
        first = self._first[begin : begin + rows + 1]
        begin, count = int(first[0]), int(first[-1] - first[0])
        places = np.empty((count, PLACE), np.int64)
        self._run("write_places", count, *self._sets, places, begin, count, base)
        return RunsOfPlane(first - begin, self._runs[begin : begin + count], places)

    def edges(self, plane: RunsOfPlane, below: RunsOfPlane, seams: int) -> np.ndarray:
        """Return where the sets of two planes touch: an edge of EDGE int64 for each pair of runs.

        `seams` is how often the way from one plane to the other crosses the periodic seam of z.
        """
        rows = self._shape[1]
        # Each pair of runs in two rows is the last pair of one of the runs; the seam of x adds two.
        most = 3 * (len(plane.runs) + len(below.runs)) + 2 * rows
        edges, count = np.empty((most, EDGE), np.int64), np.zeros(1, np.int64)
        self._run(
            "write_edges",
            1,
            plane.first,
            plane.runs,
            plane.places,
            below.first,
            below.runs,
            below.places,
            edges,
            count,
            rows,
            self._shape[2],
            seams,
            *self._periodic[1:],
        )
        return edges[: int(count[0])]

    def unite(self, edges: np.ndarray) -> United:
        """Return the result of uniting sets of any ranks along edges; no set here changes."""
        roots, ends = np.unique(edges[:, :2], return_inverse=True)
        ends = np.ascontiguousarray(ends.reshape(-1, 2), np.int64)
        singles = np.arange(roots.size, dtype=np.int64)
        parents, shifts = singles.copy(), np.zeros((roots.size, 3), np.uint32)
        flags, useful = np.zeros(roots.size, np.uint16), np.empty(len(edges), bool)
        flags[ends] = edges[:, 2:4]
        sets = parents, shifts, flags
        self._run("unite_edges", 1, ends, edges, len(edges), useful, *sets, roots.size)
        return United(useful, roots, flags[parents], int(np.count_nonzero(parents != singles)))

    def clear(self, wanted: int) -> list[int]:
        """Clear the voxels of sets that percolate along no wanted axis; axes are bits, z first.

        Returns the numbers of pore voxels, of kept pore voxels, and of sets, and the axes along
        which any set percolates.
        """
        totals = np.empty((self._rows, 4), np.int64)
        self._run(
            "clear_runs",
            self._rows,
            self._voxels,
            self._first,
            self._runs,
            *self._sets,
            totals,
            self._rows,
            self._shape[2],
            wanted,
        )
        return [*totals[:, :3].sum(axis=0).tolist(), int(np.bitwise_or.reduce(totals[:, 3]))]

    def _run(self, name: str, rows: int, *arguments: Any) -> None:
        kernel = self._device.kernel("percolation.hpp", name)
        self._device.run(kernel.bind(RowLaunch(rows, 1), *arguments))


@dataclass(frozen=True)
class Connectivity:
    """Which pores of a whole image are connected; counts are numbers of voxels."""

    voxels: int
    pores: int
    kept: int  # pores of components that percolate along a wanted axis
    components: int
    percolates: tuple[bool, bool, bool]  # whether any component does, along z, y and x

    def without_layers(self, added: int) -> Connectivity:
        """Return the same of an image without voxels that were added as pore.

        All of them are kept, if anything is.
        """
        kept = max(0, self.kept - added)
        return replace(self, voxels=self.voxels - added, pores=self.pores - added, kept=kept)

    @property
    def porosity(self) -> float:
        """Pore voxels as a fraction of all."""
        return self.pores / self.voxels

    @property
    def open_porosity(self) -> float:
        """Kept voxels as a fraction of all."""
        return self.kept / self.voxels


def keep_percolating(
    voxels: np.ndarray,
    shape: Sequence[int],
    periodic: Sequence[bool],
    axes: Sequence[int],
    comm: Comm = None,
    device: HostDevice | None = None,
) -> Connectivity:
    """Turn pores into solid, in place, if no flow along any of the axes can pass them. Collective.

    The voxels, uint8 with 1 in pores, are this rank's planes of the image of a `shape`, those of
    ``split(shape[0], ranks)``. Two are neighbours if they share a face or an edge, as D3Q19 links
    them. If nothing percolates along any of `axes`, nothing is kept. The result is the same on all
    ranks.
    """
    rank, ranks = (0, 1) if comm is None else (comm.rank, comm.size)
    shape, periodic = tuple(shape), tuple(periodic)
    start, _ = split(shape[0], ranks)[rank]
    slab = PoreRuns(device or cast(HostDevice, open_device("cpu")), voxels, start, shape, periodic)
    unions = 0
    if ranks > 1 or periodic[0]:
        unions = _join_slabs(slab, shape, periodic[0], comm)
    totals = slab.clear(sum(1 << axis for axis in set(axes)))
    gathered = np.array([totals] if comm is None else comm.allgather(totals))
    pores, kept, roots = (int(total) for total in gathered[:, :3].sum(axis=0))
    percolated = int(np.bitwise_or.reduce(gathered[:, 3]))
    z, y, x = (bool(percolated >> axis & 1) for axis in range(3))
    size = shape[0] * shape[1] * shape[2]
    return Connectivity(size, pores, kept, roots - unions, (z, y, x))


def _join_slabs(slab: PoreRuns, shape: tuple[int, ...], z_periodic: bool, comm: Comm) -> int:
    """Give the sets of a slab the flags of the components to which they belong in the image.

    Only those few edges that do not follow from others are sent, to all ranks. Returns how many
    more sets than components all slabs have.
    """
    counts = [slab.count] if comm is None else comm.allgather(slab.count)
    rank = 0 if comm is None else comm.rank
    base = sum(counts[:rank])
    used = min(len(counts), shape[0])
    if rank < used:
        lowest, highest = slab.plane(0, base), slab.plane(-1, base)
    else:  # it has no planes
        runs, places = np.zeros((0, 2), np.int32), np.zeros((0, PLACE), np.int64)
        lowest = highest = RunsOfPlane(np.zeros(0, np.int64), runs, places)
    below = highest
    if comm is not None and used > 1:
        below = _pass_up(highest, used, z_periodic, comm)
    edges = np.empty((0, EDGE), np.int64)
    if 0 < rank < used or z_periodic and not rank:
        edges = slab.edges(lowest, below, 0 if rank else -1)
    edges = edges[slab.unite(edges).useful]
    united = slab.unite(edges if comm is None else _gather(edges, comm))
    own = (united.roots >= base) & (united.roots < base + slab.count)
    slab.flags[united.roots[own] - base] = united.flags[own]
    return united.unions


def _pass_up(plane: RunsOfPlane, used: int, ring: bool, comm: Communicator) -> RunsOfPlane:
    """Send a plane to the next of the `used` ranks; return the previous rank's plane. Collective.

    The first rank returns none unless they form a ring, the others that have no planes do so too.
    """

    def passed(table: np.ndarray) -> np.ndarray:
        stops = list(itertools.accumulate(comm.allgather(len(table))))
        parts = [
            Box((start, 0), (stop, table.shape[1]))
            for start, stop in itertools.pairwise([0, *stops])
        ]
        nothing = Box((0, 0), (0, table.shape[1]))
        below = [parts[used - 1] if ring else nothing, *parts[: used - 1]]
        return redistribute(table, parts, [*below, *[nothing] * (comm.size - used)], comm)

    return RunsOfPlane(
        passed(plane.first[:, None]).ravel(), passed(plane.runs), passed(plane.places)
    )


def _gather(table: np.ndarray, comm: Communicator) -> np.ndarray:
    """Return the rows of all ranks' tables, in the order of ranks."""
    from mpi4py import MPI

    counts = comm.allgather(len(table))
    offsets = [0, *itertools.accumulate(counts)]
    gathered = np.empty((offsets.pop(), table.shape[1]), table.dtype)
    # Numbers of rows stay below 2^31, those of elements may not.
    row = MPI.BYTE.Create_contiguous(table.shape[1] * table.itemsize).Commit()
    comm.Allgatherv([table, len(table), row], [gathered, counts, offsets, row])
    row.Free()
    return gathered
