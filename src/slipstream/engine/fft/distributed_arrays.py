"""Redistribution, halos and sections of users' arrays that are divided among ranks.

Exchanges go through the host and need no plan. For repeated exchanges on the device, record a
`HaloExchange` or a transform.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.engine.array_types import Array, Comm
from slipstream.engine.collective import check_agreement, collectively, on_every_rank
from slipstream.engine.decomposition import Box, checked_boxes, shape_covered
from slipstream.engine.decomposition import redistribute as move
from slipstream.engine.device import host_values
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import HaloPlan

Boxes = Sequence[Box | tuple[Sequence[int], Sequence[int]]]


@collectively
def redistribute(array: Array, source: Boxes, target: Boxes, comm: Comm = None) -> Array:
    """Return this rank's part of a distributed array in another decomposition. Collective.

    Parameters
    ----------
    array : array
        This rank's part, NumPy's or CuPy's, of any type. It may have leading axes that are not
        divided, such as one of fields.
    source, target : sequence of Box or of pairs (start, stop)
        The boxes of all ranks before and after, such as `DistributedFFT.input_boxes`; each covers
        the array once. Boxes may be empty.
    comm : mpi4py.MPI.Comm, optional
        The ranks that share the array; None for a single one.

    Returns
    -------
    array
        This rank's part in `target`, on the host or the device of `array`.

    Raises
    ------
    InputError
        On all ranks, if boxes do not fit together, or an array does not have its box's shape.

    Examples
    --------
    >>> import numpy as np
    >>> from slipstream.engine.fft import redistribute
    >>> u = np.arange(6.0).reshape(2, 3)
    >>> redistribute(u, [((0, 0), (2, 3))], [((0, 0), (2, 3))]).shape
    (2, 3)
    """
    rank, ranks = (0, 1) if comm is None else (comm.rank, comm.size)

    def check() -> tuple[np.ndarray, tuple[Box, ...], tuple[Box, ...]]:
        before = checked_boxes(source, None, ranks, "source")
        after = checked_boxes(target, shape_covered(before), ranks, "target")
        return part_of_rank(array, before[rank]), before, after

    part, before, after = on_every_rank(comm, check)
    leading = part.shape[: part.ndim - len(before[rank].start)]
    check_agreement(
        comm, {"source": before, "target": after, "leading axes": leading, "dtype": part.dtype}
    )
    sources, targets = ([_with_leading(box, leading) for box in boxes] for boxes in (before, after))
    result = move(part, sources, targets, comm)
    return _back(result.reshape(*leading, *after[rank].shape), array)


def _with_leading(box: Box, leading: tuple[int, ...]) -> Box:
    count = leading if box.size else (0,) * len(leading)
    return Box((*(0,) * len(leading), *box.start), (*count, *box.stop))


@collectively
def with_halo(
    array: Array,
    boxes: Boxes,
    widths: int | Sequence[int],
    comm: Comm = None,
    periodic: bool | Sequence[bool] = True,
    fill: complex = 0,
) -> Array:
    """Return this rank's part of a distributed array with a halo of points around it. Collective.

    Parameters
    ----------
    array : array
        This rank's part, NumPy's or CuPy's, of any type. It may have leading axes that are not
        divided, such as one of fields.
    boxes : sequence of Box or of pairs (start, stop)
        The boxes of all ranks, such as `DistributedFFT.input_boxes`.
    widths : int or sequence of int
        Number of points added at both ends of each axis, at most the length of the array along it.
    comm : mpi4py.MPI.Comm, optional
        The ranks that share the array; None for a single one.
    periodic : bool or sequence of bool
        Whether the array wraps around, along each axis.
    fill : number
        The value beyond the ends of axes that are not periodic.

    Returns
    -------
    array
        A new array, larger by twice the widths; empty for an empty box.

    Raises
    ------
    InputError
        On all ranks, if boxes, widths or arrays do not fit together.
    """
    rank, ranks = (0, 1) if comm is None else (comm.rank, comm.size)

    def check() -> tuple[np.ndarray, tuple[Box, ...], tuple[int, ...], tuple[bool, ...]]:
        all_boxes = checked_boxes(boxes, None, ranks, "boxes")
        shape = shape_covered(all_boxes)
        reach = _for_each_axis("widths", widths, shape)
        if not all(isinstance(width, int | np.integer) and width >= 0 for width in reach) or any(
            width > n for width, n in zip(reach, shape, strict=True)
        ):
            raise InputError(
                f"widths {widths!r}; accepted: whole numbers from 0 to the points of each axis, "
                f"{shape}"
            )
        ends = tuple(bool(wraps) for wraps in _for_each_axis("periodic", periodic, shape))
        local = part_of_rank(array, all_boxes[rank])
        try:
            np.full((), fill, local.dtype)
        except (TypeError, ValueError) as error:
            raise InputError(f"fill is {fill!r}; accepted: a number of {local.dtype}") from error
        return local, all_boxes, tuple(map(int, reach)), ends

    checked = on_every_rank(comm, check)
    part: Any = checked[0]
    _, all_boxes, reach, ends = checked
    box, axes = all_boxes[rank], len(all_boxes[rank].start)
    leading = part.shape[: part.ndim - axes]
    check_agreement(
        comm,
        {
            "boxes": all_boxes,
            "widths": reach,
            "periodic": ends,
            "leading axes": leading,
            "dtype": part.dtype,
        },
    )
    grown = box.grown(reach) if box.size else box
    result: Any = np.full((*leading, *grown.shape), fill, part.dtype)
    if box.size:
        result[(..., *box.slices(grown))] = part
    plan = HaloPlan.make(all_boxes, shape_covered(all_boxes), reach, rank)

    def inside(piece: Any) -> bool:
        moved = zip(piece.source.start, piece.target.start, ends, strict=True)
        return all(wraps or first == last for first, last, wraps in moved)

    for piece in filter(inside, plan.own):
        result[(..., *piece.target.slices(grown))] = part[(..., *piece.source.slices(box))]
    if comm is not None:
        outgoing: list[list[np.ndarray]] = [[] for _ in range(ranks)]
        for piece in filter(inside, plan.sends):
            values = part[(..., *piece.source.slices(box))]
            outgoing[piece.peer].append(np.ascontiguousarray(values))
        incoming = comm.alltoall(outgoing)
        for peer, pieces in itertools.groupby(
            filter(inside, plan.receives), key=lambda piece: piece.peer
        ):
            for piece, values in zip(pieces, incoming[peer], strict=True):
                result[(..., *piece.target.slices(grown))] = values
    return _back(result, array)


def _for_each_axis(name: str, value: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    values = tuple(value) if np.iterable(value) else (value,) * len(shape)
    if len(values) != len(shape):
        raise InputError(f"{name} {value!r}; accepted: one, or one for each of {len(shape)} axes")
    return values


def section(
    array: Array, boxes: Boxes, index: Sequence[int | slice], comm: Comm = None
) -> tuple[Array, tuple[Box, ...]]:
    """Return this rank's part of a section of a distributed array, such as a plane.

    Ranks do not communicate. The result can be redistributed, for example to the first rank, or
    written.

    Parameters
    ----------
    array : array
        This rank's part, NumPy's or CuPy's. It may have leading axes that are not divided.
    boxes : sequence of Box or of pairs (start, stop)
        The boxes of all ranks, such as `DistributedFFT.input_boxes`.
    index : sequence of int or slice
        Index into the whole array, for each of its divided axes: a number, which drops the axis, or
        a slice with a positive step.
    comm : mpi4py.MPI.Comm, optional
        The ranks that share the array; None for a single one.

    Returns
    -------
    array
        A view of this rank's part of the section.
    tuple of Box
        The parts of the section of all ranks.

    Raises
    ------
    InputError
        On this rank, if the index is not within the array.
    """
    rank, ranks = (0, 1) if comm is None else (comm.rank, comm.size)
    all_boxes = checked_boxes(boxes, None, ranks, "boxes")
    shape = shape_covered(all_boxes)
    indices = index if isinstance(index, tuple | list) else (index,)
    ranges: list[range] = []
    for entry, n in zip(indices, shape, strict=False):
        if isinstance(entry, slice) and (entry.step is None or entry.step > 0):
            ranges.append(range(*entry.indices(n)))
        elif isinstance(entry, int | np.integer) and -n <= entry < n:
            ranges.append(range(int(entry) % n, int(entry) % n + 1))
    if not len(indices) == len(shape) == len(ranges) or not all(map(len, ranges)):
        raise InputError(
            f"index {index!r}; accepted: for each axis of shape {shape} a number, or a nonempty "
            "slice with a positive step"
        )
    if len(array.shape) < len(shape) or array.shape[-len(shape) :] != all_boxes[rank].shape:
        raise InputError(
            f"array has shape {array.shape}; this rank's box is {all_boxes[rank].shape}"
        )
    kept = [axis for axis, entry in enumerate(indices) if isinstance(entry, slice)]
    if not kept:
        raise InputError(f"index {index!r} is a single point; accepted: at least one slice")
    parts = [_intersect_section(box, ranges) for box in all_boxes]
    slices = [
        slice(points.start - low, points.stop - low, points.step) if points else slice(0)
        for points, low in zip(parts[rank][1], all_boxes[rank].start, strict=True)
    ]
    view = array[(..., *slices)]
    leading = view.shape[: view.ndim - len(shape)]
    sections = tuple(
        Box(tuple(box.start[axis] for axis in kept), tuple(box.stop[axis] for axis in kept))
        if box.size
        else Box((0,) * len(kept), (0,) * len(kept))
        for box, _ in parts
    )
    return view.reshape(*leading, *sections[rank].shape), sections


def _intersect_section(box: Box, ranges: Sequence[range]) -> tuple[Box, list[range]]:
    """Return a box's part of a section, in indices of the section and of the whole array."""
    start, stop = [], []
    for points, low, high in zip(ranges, box.start, box.stop, strict=True):
        first, last = (
            min(len(points), max(0, -(-(end - points.start) // points.step))) for end in (low, high)
        )
        start.append(first)
        stop.append(max(first, last))
    made = Box(tuple(start), tuple(stop))
    return made, [one[a:b] for one, a, b in zip(ranges, start, stop, strict=True)]


def part_of_rank(array: Array, box: Box) -> np.ndarray:
    """Return a rank's part of a distributed array on the host, or raise `InputError`."""
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise InputError(f"array is of type {type(array).__name__}; accepted: NumPy's or CuPy's")
    axes = len(box.start)
    if len(array.shape) < axes or tuple(array.shape[len(array.shape) - axes :]) != box.shape:
        raise InputError(
            f"array has shape {tuple(array.shape)}; accepted: the shape of this rank's box, "
            f"{box.shape}, perhaps after other axes"
        )
    host = host_values(array)
    if host.dtype.hasobject:
        raise InputError(f"array is of type {host.dtype}; accepted: numbers")
    return np.asarray(host)


def _back(result: np.ndarray, like: Array) -> Array:
    """Return a host array as one on the device of another array."""
    if isinstance(like, np.ndarray):
        return result
    import cupy

    with cupy.cuda.Device(like.device.id):
        there: Array = cupy.asarray(result)
        return there
