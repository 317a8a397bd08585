"""Connected components of pores: runs of voxels along x, and disjoint sets of runs that touch.

An image has far fewer runs than voxels. `PoreRuns` unites the runs of some planes into sets, finds
where its sets touch those of other planes, and clears the voxels of sets that do not percolate.
``connected_components.hpp`` explains sets, their flags, and shifts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.decomposition import split
from slipstream.device import HostDevice, RowLaunch

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
        self._find(start)
        self._unite()

    def _find(self, start: int) -> None:
        """Find all runs, each as its own set."""
        counts = np.empty(self._rows, np.int64)
        self._run("count_runs", self._rows, self._voxels, counts, self._rows, self._shape[2])
        self._first = np.zeros(self._rows + 1, np.int64)
        np.cumsum(counts, out=self._first[1:])
        self.count = int(self._first[-1])
        self._runs = np.empty((self.count, 2), np.int32)
        self._parents = np.empty(self.count, np.int64)
        self._shifts = np.empty((self.count, 3), np.uint32)
        self.flags = np.empty(self.count, np.uint16)
        walled = sum(1 << axis for axis in range(3) if not self._periodic[axis])
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

    def _unite(self) -> None:
        """Unite the runs of blocks of planes, all blocks in parallel, and then the blocks."""
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

    @property
    def _sets(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._parents, self._shifts, self.flags

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
        own = np.arange(roots.size, dtype=np.int64)
        parents, shifts = own.copy(), np.zeros((roots.size, 3), np.uint32)
        flags, useful = np.zeros(roots.size, np.uint16), np.empty(len(edges), bool)
        flags[ends] = edges[:, 2:4]
        sets = parents, shifts, flags
        self._run("unite_edges", 1, ends, edges, len(edges), useful, *sets, roots.size)
        return United(useful, roots, flags[parents], int(np.count_nonzero(parents != own)))

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
