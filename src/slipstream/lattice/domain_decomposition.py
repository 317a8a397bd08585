"""From a voxel image to each rank's subdomain: read, find what percolates, divide, redistribute.

Every rank reads a slab of planes, whatever box it will have. Only then is it known which pores the
flow reaches, how to divide them, and what a rank's neighbours have next to its box.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from slipstream.case.lattice_case import Image, LatticeRun
from slipstream.engine.array_types import Comm, Communicator
from slipstream.engine.collective import (
    check_agreement,
    collectively,
    on_every_rank,
    sum_over_ranks,
)
from slipstream.engine.decomposition import (
    Box,
    grid_boxes,
    process_grid,
    recursive_bisection,
    redistribute,
    slabs,
    whole,
)
from slipstream.engine.errors import InputError, name_among, three_counts
from slipstream.engine.exchange import HaloPlan
from slipstream.lattice.percolation import Connectivity, keep_percolating
from slipstream.lattice.velocity_set import AXES, D3Q19, VelocitySet

# Of voxels in which pores can be removed: an array that the source may keep is copied.
_WRITABLE: Sequence[Literal["C", "W", "O"]] = ("C", "W", "O")
# Faces match if they differ at most this many times as much as any other neighbouring planes do: of
# 1000 lattices of spheres 8 to 35 voxels wide, the two largest differences were 1.43 apart at most.
_AS_MUCH = 1.5
# Pores are measured, and neighbouring voxels compared, in this many planes of an image, or a few
# more.
_PLANES = 128


@dataclass(frozen=True)
class Subdomain:
    """One rank's part of an image.

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
        Where the box has a periodic image in the shell: source and target, relative to the box.
    neighbours : dict of int to numpy.ndarray
        For each rank with pores next to ours: our ends of the links between both, as plane, row and
        column within the box, and direction in which a population arrives. Both ranks list the
        links in the same order.
    connectivity : Connectivity
        Which pores of the whole image are connected.
    unmatched : tuple of int
        For each axis that is periodic, how many pore voxels at its two faces have solid across; 0
        if any other neighbouring planes of the image differ about as much, or the source knows that
        the faces match.
    narrow : float
        Fraction of the pore voxels that are in pores of one or two voxels from wall to wall.
    width : float
        Twice the volume of the pores over the surface of their walls, in voxels: the width of a
        slit. Infinite without walls.
    velocity_set : VelocitySet
        The directions in which sites are linked.
    """

    shape: tuple[int, ...]
    boxes: list[Box]
    rank: int
    box: Box
    own: np.ndarray
    images: list[tuple[Box, Box]]
    neighbours: dict[int, np.ndarray]
    connectivity: Connectivity
    unmatched: tuple[int, int, int] = (0, 0, 0)
    narrow: float = 0.0
    width: float = math.inf
    velocity_set: VelocitySet = D3Q19


@collectively
def decompose(
    source: Any,
    periodic: Sequence[bool],
    axes: Sequence[int],
    partition: str = LatticeRun.model_fields["partition"].default,
    comm: Comm = None,
    isolated: str = Image.model_fields["isolated"].default,
) -> Subdomain:
    """Read an image and give every rank its subdomain. Collective.

    Parameters
    ----------
    source : Image, Domain or sample
        Has a ``shape`` and ``read(box)``, and perhaps ``check_values()``, called after reading.
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

    Returns
    -------
    Subdomain
        This rank's.

    Raises
    ------
    InputError
        If there is no pore; on all ranks.

    Notes
    -----
    If no path leads along any of the axes, nothing is removed: all pores are there, at rest.
    """
    name_among("partition", partition, PARTITIONS)
    name_among("isolated", isolated, ("remove", "keep"))
    shape = three_counts(getattr(source, "shape", None))
    if shape is None or not callable(getattr(source, "read", None)):
        raise InputError(
            f"source is of type {type(source).__name__}; accepted: an Image of open_image, a "
            "sample, or an object with a shape of three axes and read(box)"
        )
    joins = tuple(periodic) if np.iterable(periodic) else ()
    if len(joins) != 3 or not all(isinstance(join, bool | np.bool_) for join in joins):
        raise InputError(f"periodic is {periodic!r}; accepted: three booleans, for z, y and x")
    periodic = tuple(map(bool, joins))
    numbers = tuple(axes) if np.iterable(axes) else ()
    if not numbers or not all(
        isinstance(number, int | np.integer) and number in (0, 1, 2) for number in numbers
    ):
        raise InputError(f"axes is {axes!r}; accepted: one or more of 0 (z), 1 (y) and 2 (x)")
    axes = tuple(map(int, numbers))
    rank, ranks, read = 0, 1, [whole(shape)]
    if comm is not None:
        kinds = {"partition": partition, "isolated": isolated}
        check_agreement(comm, {"shape": shape, "periodic": periodic, "axes": axes, **kinds})
        rank, ranks, read = comm.rank, comm.size, list(slabs(shape, 0, comm.size))
    voxels = source.read(read[rank])
    if hasattr(source, "check_values"):
        source.check_values()
    on_every_rank(comm, lambda: _check_mask(voxels, read[rank]))
    voxels = np.require(voxels, np.uint8, _WRITABLE)
    matching = getattr(source, "matching", (False, False, False))
    joined = [ends and not known for ends, known in zip(periodic, matching, strict=True)]
    unmatched = _unmatched(voxels, read[rank], shape, joined, comm)
    judged = voxels if isolated == "remove" else voxels.copy()
    connectivity = keep_percolating(judged, shape, periodic, axes, comm)
    on_every_rank(comm, lambda: _check_pores(connectivity))
    if isolated == "remove" and not any(connectivity.percolates[axis] for axis in axes):
        voxels = np.require(source.read(read[rank]), np.uint8, _WRITABLE)
    narrow, width = pore_widths(voxels, read[rank], shape, periodic, comm)
    boxes = [whole(shape)]
    if ranks > 1:
        boxes = PARTITIONS[partition](voxels, read[rank], shape, ranks, comm)
        voxels = redistribute(voxels, read, boxes, comm)
    box = boxes[rank]
    plan = HaloPlan.make(boxes, shape, [1, 1, 1], rank)
    shelled = np.zeros([size + 2 for size in box.shape], np.uint8)
    shelled[1:-1, 1:-1, 1:-1] = voxels
    inside = _reach(box, shape, periodic)
    images = []
    for block in plan.own:
        target = block.target.intersect(inside)
        if target.size:
            source_box = target.shifted(
                [a - b for a, b in zip(block.source.start, block.target.start, strict=True)]
            )
            back = [-start for start in box.start]
            images.append((source_box.shifted(back), target.shifted(back)))
            place = target.shifted(back).shifted((1, 1, 1)).slices()
            shelled[place] = voxels[source_box.slices(box)]
    neighbours: dict[int, np.ndarray] = {}
    if comm is not None:
        shells = _shell(voxels, box, plan, comm)
        neighbours = _crossing(voxels, box, shape, plan, shells, inside, rank, D3Q19)
    return Subdomain(
        shape, boxes, rank, box, shelled, images, neighbours, connectivity, unmatched, narrow, width
    )


def _check_mask(voxels: Any, box: Box) -> None:
    """Refuse what a source of the caller has read if it is no mask of the box."""
    if not isinstance(voxels, np.ndarray) or voxels.shape != box.shape:
        found = voxels.shape if isinstance(voxels, np.ndarray) else type(voxels).__name__
        raise InputError(
            f"image: its read(box) gives {found}; accepted: an array of the box's shape {box.shape}"
        )
    if voxels.dtype not in (np.uint8, np.bool_) or voxels.size and voxels.max() > 1:
        raise InputError(
            f"image: its read(box) gives {voxels.dtype} up to {voxels.max()}; accepted: uint8 or "
            "bool, 1 in pores and 0 in solid"
        )


def _check_pores(connectivity: Connectivity) -> None:
    if not connectivity.pores:
        raise InputError(
            "the image has no pore voxel; say which value is pore (pore = ...), "
            "or crop another part"
        )


def no_path_text(connectivity: Connectivity, axes: Sequence[int]) -> str:
    """Return along which axes nothing can flow, and what helps; "" if a path leads along all."""
    closed = [AXES[axis] for axis in axes if not connectivity.percolates[axis]]
    if not closed:
        return ""
    return (
        f"no path leads through the pores along {' and '.join(closed)}: nothing can flow, so that "
        "the permeability is 0; if it should not be, check which value is pore, mirror the image or"
        " add buffer layers if its faces do not match, or choose another axis"
    )


def _reach(box: Box, shape: Sequence[int], periodic: Sequence[bool]) -> Box:
    """Return a box grown by a voxel along each axis, except where there is a wall."""
    return Box(
        tuple(a - (joined or a > 0) for a, joined in zip(box.start, periodic, strict=True)),
        tuple(
            b + (joined or b < size)
            for b, size, joined in zip(box.stop, shape, periodic, strict=True)
        ),
    )


def _shell(
    voxels: np.ndarray, box: Box, plan: HaloPlan, comm: Communicator
) -> dict[int, list[np.ndarray]]:
    """Return the other ranks' voxels of the shell, by rank and block by block. Collective."""
    sent: list[list[np.ndarray]] = [[] for _ in range(comm.size)]
    for block in plan.sends:
        sent[block.peer].append(np.ascontiguousarray(voxels[block.source.slices(box)]))
    return dict(enumerate(comm.alltoall(sent)))


def _unmatched(
    voxels: np.ndarray, slab: Box, shape: tuple[int, ...], joined: Sequence[bool], comm: Comm
) -> tuple[int, int, int]:
    """Return the number of pore voxels with solid across the joined faces, by axis. Collective.

    In a periodic image the faces are planes like any others, and which ones they are is chance: it
    is 0 unless they differ more than all other neighbouring planes do.
    """
    above = _plane_of_slabs(voxels, shape, 0, comm)
    # Above the last plane comes the first one.
    ends = int(slab.stop[0] == shape[0])
    faces = [
        ends * int(np.count_nonzero(voxels[-1:] != above)),
        int(np.count_nonzero(voxels[:, :1] != voxels[:, -1:])),
        int(np.count_nonzero(voxels[:, :, :1] != voxels[:, :, -1:])),
    ]
    steps = sum_over_ranks(comm, np.concatenate([faces, *_steps(voxels, above, slab, shape)]))
    unmatched, start = [0, 0, 0], 3
    for axis, size in enumerate(shape):
        *inside, seam = steps[start : start + size].tolist()
        start += size
        if joined[axis] and seam > _AS_MUCH * max(inside, default=0):
            unmatched[axis] = int(steps[axis])
    return unmatched[0], unmatched[1], unmatched[2]


def _steps(
    voxels: np.ndarray, above: np.ndarray, slab: Box, shape: tuple[int, ...]
) -> list[np.ndarray]:
    """Return, for each plane of each axis, at how many voxels of a rank the next one differs.

    After the last plane comes the first. Of large images, y and x are judged by some planes of z.
    """
    z, y, x = (np.zeros(size, np.int64) for size in shape)
    stride = -(-shape[0] // _PLANES)
    for number, plane in enumerate(voxels, slab.start[0]):
        here = number - slab.start[0]
        following = voxels[here + 1] if here + 1 < len(voxels) else above[0]
        z[number] = np.count_nonzero(plane != following)
        if number % stride == 0:
            y += np.count_nonzero(plane != np.roll(plane, -1, 0), axis=1)
            x += np.count_nonzero(plane != np.roll(plane, -1, 1), axis=0)
    return [z, y, x]


def _plane_of_slabs(
    voxels: np.ndarray, shape: tuple[int, ...], offset: int, comm: Comm
) -> np.ndarray:
    """Return the plane at an offset from the end of a rank's slab, periodically. Collective.

    0 is the plane that follows the last one; those below the first one are counted from its slab's
    start, so that -1 is the plane before it.
    """
    if comm is None:
        first = offset % shape[0]
        return voxels[first : first + 1]
    read = slabs(shape, 0, comm.size)
    planes = []
    for slab in read:
        end = slab.start[0] if offset < 0 else slab.stop[0]
        start = (end + offset) % shape[0] if slab.size else 0
        planes.append(Box((start, 0, 0), (start + (slab.size > 0), *shape[1:])))
    return redistribute(voxels, read, planes, comm)


# -- the width of pores ----------------------------------------------------------------------------


def pore_widths(
    voxels: np.ndarray, slab: Box, shape: tuple[int, ...], periodic: Sequence[bool], comm: Comm
) -> tuple[float, float]:
    """Return `narrow` and `width` of a `Subdomain`, of the whole image. Collective.

    Of large images some planes are taken, the same on any number of ranks.
    """
    below = [_plane_of_slabs(voxels, shape, offset, comm) for offset in (-2, -1)]
    above = [_plane_of_slabs(voxels, shape, offset, comm) for offset in (0, 1)]
    counts = np.zeros(3)
    stride, depth = -(-shape[0] // _PLANES), len(voxels)
    beside = [*below, *above]
    for here in range(-slab.start[0] % stride, depth, stride):
        pores = voxels[here] != 0
        around = []
        for offset in (-2, -1, 1, 2):
            at, z = here + offset, slab.start[0] + here + offset
            if not periodic[0] and not 0 <= z < shape[0]:
                around.append(np.zeros_like(pores))
            elif 0 <= at < depth:
                around.append(voxels[at] != 0)
            else:
                around.append(beside[at + 2 if at < 0 else at - depth + 2][0] != 0)
        lines = [around] + [
            [_moved(pores, axis, n, periodic[1 + axis]) for n in (-2, -1, 1, 2)] for axis in (0, 1)
        ]
        narrow, faces = np.zeros_like(pores), 0
        for line in lines:
            two_before, before, after, two_after = line
            # Walls at most two voxels apart.
            narrow |= pores & ~before & ~(after & two_after)
            narrow |= pores & ~after & ~(before & two_before)
            faces += int(np.count_nonzero(pores & ~before))
        counts += [int(np.count_nonzero(narrow)), faces, int(np.count_nonzero(pores))]
    # As many faces have their wall before them as behind them.
    few, faces, many = sum_over_ranks(comm, counts).tolist()
    return few / many if many else 0.0, many / faces if faces else math.inf


def _moved(pores: np.ndarray, axis: int, by: int, is_periodic: bool) -> np.ndarray:
    """Return for each voxel of a plane its neighbour so far away along an axis; solid beyond."""
    moved = np.roll(pores, -by, axis)
    if not is_periodic:
        beyond = slice(None, -by) if by < 0 else slice(-by, None)
        np.moveaxis(moved, axis, 0)[beyond] = False
    return moved


# -- how ranks divide pores ------------------------------------------------------------------------


def _cartesian(
    voxels: np.ndarray, slab: Box, shape: tuple[int, ...], ranks: int, comm: Comm
) -> list[Box]:
    """Return boxes of about the same size."""
    return list(grid_boxes(shape, process_grid(ranks, shape)))


def _bisection(
    voxels: np.ndarray, slab: Box, shape: tuple[int, ...], ranks: int, comm: Comm
) -> list[Box]:
    """Return boxes with about as many pores each. Collective: each rank counts in its slab."""

    def weigh(boxes: list[Box], axes: list[int]) -> list[np.ndarray]:
        planes = []
        for box, axis in zip(boxes, axes, strict=True):
            counts, part = np.zeros(box.shape[axis]), box.intersect(slab)
            across = tuple(other for other in range(3) if other != axis)
            here = slice(part.start[axis] - box.start[axis], part.stop[axis] - box.start[axis])
            # Rows are added in whole, which is several times as fast as voxel by voxel.
            rows = np.add.reduce(voxels[part.slices(slab)], axis=across[0], dtype=np.uint32)
            counts[here] = rows.sum(axis=1 if axis < 2 else 0, dtype=np.int64)
            planes.append(counts)
        total = sum_over_ranks(comm, np.concatenate(planes))
        return np.split(total, np.cumsum([len(one) for one in planes])[:-1])

    return recursive_bisection(shape, ranks, weigh)


PARTITIONS: dict[str, Callable[[np.ndarray, Box, tuple[int, ...], int, Comm], list[Box]]] = {
    "bisection": _bisection,
    "cartesian": _cartesian,
}


def percolating_pores(
    source: Any, periodic: Sequence[bool], axes: Sequence[int], isolated: str
) -> np.ndarray:
    """Return the pores of a whole image that are to be divided, in one process, as `decompose`.

    Where nothing can flow along any of the axes an InputError says so.
    """
    shape = tuple(source.shape)
    voxels = source.read(whole(shape))
    if hasattr(source, "check_values"):
        source.check_values()
    voxels = np.require(voxels, np.uint8, _WRITABLE)
    judged = voxels if isolated == "remove" else voxels.copy()
    connectivity = keep_percolating(judged, shape, periodic, axes)
    _check_pores(connectivity)
    if not any(connectivity.percolates[axis] for axis in axes):
        raise InputError(no_path_text(connectivity, axes))
    return voxels


def divided_pores(voxels: np.ndarray, partition: str, ranks: int) -> list[Box]:
    """Return the boxes into which an image is divided among ranks, real or imagined."""
    box = whole(voxels.shape)
    return PARTITIONS[partition](voxels, box, voxels.shape, ranks, None) if ranks > 1 else [box]


# -- links between ranks ---------------------------------------------------------------------------


def crossing_links(
    read: Callable[[Box], np.ndarray],
    boxes: Sequence[Box],
    shape: tuple[int, ...],
    periodic: Sequence[bool],
    rank: int,
) -> dict[int, int]:
    """Return the number of links from a rank to each of its imagined neighbours.

    ``read(box)`` gives the voxels of any box of the image.
    """
    plan = HaloPlan.make(boxes, shape, [1, 1, 1], rank)
    shells: dict[int, list[np.ndarray]] = {}
    for block in plan.receives:
        shells.setdefault(block.peer, []).append(read(block.source))
    box = boxes[rank]
    inside = _reach(box, shape, periodic)
    ends = _crossing(_Faces(read, box), box, shape, plan, shells, inside, rank, D3Q19)
    return {peer: len(links) for peer, links in ends.items()}


class _Faces:
    """The outermost voxels of a box, read as far as they are asked for.

    Indexed like an array of the box, by ranges which lie in one of its faces.
    """

    def __init__(self, read: Callable[[Box], np.ndarray], box: Box) -> None:
        self._read, self._box = read, box
        self._known: dict[Box, np.ndarray] = {}

    def __getitem__(self, where: tuple[slice, ...]) -> np.ndarray:
        for axis, (part, size) in enumerate(zip(where, self._box.shape, strict=True)):
            for index in (0, size - 1):
                if part.start == index and part.stop == index + 1:
                    inner = tuple(slice(0, 1) if n == axis else one for n, one in enumerate(where))
                    return self._face(axis, index)[inner]
        raise IndexError(f"{where} is in no face")

    def _face(self, axis: int, index: int) -> np.ndarray:
        start, stop = list(self._box.start), list(self._box.stop)
        start[axis] += index
        stop[axis] = start[axis] + 1
        face = Box(tuple(start), tuple(stop))
        if face not in self._known:
            self._known[face] = self._read(face)
        return self._known[face]


def _crossing(
    voxels: np.ndarray | _Faces,
    box: Box,
    shape: tuple[int, ...],
    plan: HaloPlan,
    shells: dict[int, list[np.ndarray]],
    inside: Box,
    rank: int,
    lattice: VelocitySet,
) -> dict[int, np.ndarray]:
    """Return our ends of all links to other ranks, in the same order on both ranks of a link."""
    ends_of: dict[int, list[np.ndarray]] = {}
    names: dict[int, list[np.ndarray]] = {}
    used = dict.fromkeys(shells, 0)
    for block in plan.receives:
        theirs = shells[block.peer][used[block.peer]]
        used[block.peer] += 1
        seen = block.target.intersect(inside)
        for direction in range(1, lattice.directions):
            velocity = lattice.velocities[direction]
            sites = seen.shifted(velocity).intersect(box)
            if not sites.size:
                continue
            upstream = sites.shifted(-velocity)
            open_ = voxels[sites.slices(box)] & theirs[upstream.slices(block.target)]
            where = np.stack(np.nonzero(open_), axis=1) + np.array(sites.start)
            ends = np.column_stack([where - box.start, np.full(len(where), direction)])
            ends_of.setdefault(block.peer, []).append(ends)
            other, opposite = (where - velocity) % shape, lattice.opposite(direction)
            lower, way = (where, direction) if rank < block.peer else (other, opposite)
            name = np.ravel_multi_index(tuple(lower.T), shape) * lattice.directions + way
            names.setdefault(block.peer, []).append(name)
    result = {}
    for peer in sorted(ends_of):
        order = np.argsort(np.concatenate(names[peer]))
        if len(order):
            result[peer] = np.concatenate(ends_of[peer])[order]
    return result
