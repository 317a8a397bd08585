"""From a voxel image to each rank's portion: read, find what percolates, divide, hand out.

Every rank reads a slab of planes, whatever box it will have. Only then is known which pores take
part, how to divide them, and what a rank's neighbours have next to its box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.collective import on_every_rank, sum_over_ranks
from slipstream.decomposition import Box, grid_boxes, process_grid, recursive_bisection, slabs
from slipstream.errors import InputError
from slipstream.exchange import HaloPlan, redistribute
from slipstream.lattice.d3q19 import AXES, DIRECTIONS, VELOCITIES, opposite
from slipstream.lattice.percolation import Connectivity, keep_percolating

PARTITIONS = ("bisection", "cartesian")


@dataclass(frozen=True)
class Portion:
    """What one rank has of an image.

    Attributes
    ----------
    shape : tuple of int
        Shape of the whole domain, in voxels.
    boxes : list of Box
        One per rank.
    rank : int
        This rank.
    box : Box
        Its box.
    own : numpy.ndarray of uint8
        The voxels of the box with a shell of one voxel, 1 is pore. The shell is solid, except where
        it is the image of the box's own other end.
    images : list of (Box, Box)
        What of the box has an image in the shell, and where; indices count from the box.
    neighbours : dict of int to numpy.ndarray
        For each rank with pores next to ours: our ends of the links that cross, as rows of plane,
        row and column within the box, and direction from which a population comes. Both ends list
        them in the same order.
    connectivity : Connectivity
        What was found out about the pores of the whole image.
    """

    shape: tuple[int, ...]
    boxes: list[Box]
    rank: int
    box: Box
    own: np.ndarray
    images: list[tuple[Box, Box]]
    neighbours: dict[int, np.ndarray]
    connectivity: Connectivity


def hand_out(
    source: Any,
    periodic: Sequence[bool],
    axes: Sequence[int],
    partition: str = "bisection",
    comm: Any = None,
    isolated: str = "remove",
) -> Portion:
    """Read an image and give every rank its portion. Collective.

    Parameters
    ----------
    source : Image, Domain or sample
        Has a ``shape`` and ``read(box)``.
    periodic : sequence of bool
        Whether faces normal to z, y and x are joined; the others are walls.
    axes : sequence of int
        Along which axes of the array fluid shall flow.
    partition : {"bisection", "cartesian"}
        Boxes with about as many pores each, or of about the same size.
    comm : mpi4py.MPI.Comm or None
        The ranks.
    isolated : {"remove", "keep"}
        What becomes of pores that do not percolate.

    Raises
    ------
    InputError
        If there is no pore, or no path through the pores along one of the axes; on all ranks.
    """
    if partition not in PARTITIONS:
        raise InputError(f"partition {partition!r} is unknown; accepted: {', '.join(PARTITIONS)}")
    rank, ranks = (comm.rank, comm.size) if comm else (0, 1)
    shape = tuple(source.shape)
    read = slabs(shape, 0, ranks)
    # What is removed is removed from a copy, should the source hand out what it keeps.
    voxels = np.require(source.read(read[rank]), np.uint8, ["C", "W", "O"])
    judged = voxels if isolated == "remove" else voxels.copy()
    connectivity = keep_percolating(judged, shape, tuple(periodic), tuple(axes), comm)
    on_every_rank(comm, lambda: _check_paths(connectivity, axes))
    boxes = _divide(voxels, read[rank], shape, ranks, partition, comm)
    box = boxes[rank]
    voxels = redistribute(voxels, read, boxes, comm)
    plan = HaloPlan.make(boxes, shape, [1, 1, 1], rank)
    own = np.zeros([size + 2 for size in box.shape], np.uint8)
    own[1:-1, 1:-1, 1:-1] = voxels
    inside = Box(*zip(*_reach(box, shape, periodic), strict=True))
    images = []
    for piece in plan.own:
        target = piece.target.intersect(inside)
        if target.size:
            part = target.shifted(
                [a - b for a, b in zip(piece.source.start, piece.target.start, strict=True)]
            )
            back = [-start for start in box.start]
            images.append((part.shifted(back), target.shifted(back)))
            own[target.shifted(back).shifted((1, 1, 1)).slices()] = voxels[part.slices(box)]
    shells = _shell(voxels, box, plan, comm)
    neighbours = _crossing(voxels, box, shape, plan, shells, inside, rank)
    return Portion(shape, boxes, rank, box, own, images, neighbours, connectivity)


def _check_paths(connectivity: Connectivity, axes: Sequence[int]) -> None:
    if not connectivity.pores:
        raise InputError(
            "the image has no pore voxel; say which value is pore (pore = ...), "
            "or crop another part"
        )
    closed = [AXES[axis] for axis in axes if not connectivity.percolates[axis]]
    if closed:
        raise InputError(
            f"no path leads through the pores along {' and '.join(closed)}: nothing can flow; "
            "check which value is pore, mirror the image or add buffer layers if its faces do not "
            "match, or choose another axis"
        )


def _divide(voxels, slab: Box, shape, ranks: int, partition: str, comm) -> list[Box]:
    if partition == "cartesian" or ranks == 1:
        return grid_boxes(shape, process_grid(ranks, shape))

    def weigh(boxes: list[Box], axes: list[int]) -> list[np.ndarray]:
        planes = []
        for box, axis in zip(boxes, axes, strict=True):
            counts, part = np.zeros(box.shape[axis]), box.intersect(slab)
            others = tuple(other for other in range(3) if other != axis)
            here = slice(part.start[axis] - box.start[axis], part.stop[axis] - box.start[axis])
            counts[here] = voxels[part.slices(slab)].sum(axis=others, dtype=np.int64)
            planes.append(counts)
        total = sum_over_ranks(comm, np.concatenate(planes))
        return np.split(total, np.cumsum([len(one) for one in planes])[:-1])

    return recursive_bisection(shape, ranks, weigh)


def _reach(box: Box, shape: Sequence[int], periodic: Sequence[bool]) -> list[tuple[int, int]]:
    """Return what can be seen from a box along each axis: a voxel more, unless there is a wall."""
    return [
        (a - 1, b + 1) if joined else (max(a - 1, 0), min(b + 1, size))
        for a, b, size, joined in zip(box.start, box.stop, shape, periodic, strict=True)
    ]


def _shell(voxels, box: Box, plan: HaloPlan, comm) -> dict[int, list[np.ndarray]]:
    """Return what other ranks have of the shell, piece by piece, by rank. Collective."""
    if comm is None:
        return {}
    told: list[list[np.ndarray]] = [[] for _ in range(comm.size)]
    for piece in plan.sends:
        told[piece.peer].append(np.ascontiguousarray(voxels[piece.source.slices(box)]))
    return dict(enumerate(comm.alltoall(told)))


def _crossing(
    voxels, box: Box, shape, plan: HaloPlan, shells, inside: Box, rank: int
) -> dict[int, np.ndarray]:
    """Return our ends of all links to other ranks, in an order on which both ends agree."""
    found: dict[int, list[np.ndarray]] = {}
    names: dict[int, list[np.ndarray]] = {}
    taken = dict.fromkeys(shells, 0)
    for piece in plan.receives:
        theirs = shells[piece.peer][taken[piece.peer]]
        taken[piece.peer] += 1
        seen = piece.target.intersect(inside)
        for direction in range(1, DIRECTIONS):
            velocity = VELOCITIES[direction]
            sites = seen.shifted(velocity).intersect(box)
            if not sites.size:
                continue
            upstream = sites.shifted(-velocity)
            open_ = voxels[sites.slices(box)] & theirs[upstream.slices(piece.target)]
            where = np.stack(np.nonzero(open_), axis=1) + np.array(sites.start)
            ends = np.column_stack([where - box.start, np.full(len(where), direction)])
            found.setdefault(piece.peer, []).append(ends)
            other = (where - velocity) % shape
            lower, way = (where, direction) if rank < piece.peer else (other, opposite(direction))
            name = np.ravel_multi_index(tuple(lower.T), shape) * DIRECTIONS + way
            names.setdefault(piece.peer, []).append(name)
    result = {}
    for peer in sorted(found):
        order = np.argsort(np.concatenate(names[peer]))
        if len(order):
            result[peer] = np.concatenate(found[peer])[order]
    return result
