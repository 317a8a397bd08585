"""Boxes of ranks, and moves of arrays on the host from one decomposition to another."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from slipstream.engine.errors import InputError, whole_number, whole_numbers
from slipstream.engine.text import shown


@dataclass(frozen=True)
class Box:
    """A box of the global index space, from `start` up to, not including, `stop`.

    Attributes
    ----------
    start, stop : tuple of int
        One entry per axis, ``start <= stop``.
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]

    def __post_init__(self) -> None:
        try:
            is_pair = len(self.start) == len(self.stop)
            # Planning for thousands of ranks makes many boxes: `map` is several times as fast as
            # `zip`.
            is_behind = any(map(operator.gt, self.start, self.stop))
        except (TypeError, ValueError):
            raise ValueError(
                f"box from {shown(self.start)} to {shown(self.stop)}; accepted: two tuples of whole"
                " numbers"
            ) from None
        if not is_pair:
            raise ValueError(f"box corners {self.start} and {self.stop} differ in length")
        if is_behind:
            raise ValueError(f"box starts at {self.start}, behind its stop {self.stop}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points along each axis."""
        return tuple(map(operator.sub, self.stop, self.start))

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(map(operator.sub, self.stop, self.start))

    def intersect(self, other: Box) -> Box:
        """Return the common part; an empty box if there is none."""
        if len(self.start) != len(other.start):
            raise ValueError(f"boxes {self} and {other} differ in their number of axes")
        start = tuple(map(max, self.start, other.start))
        return Box(start, tuple(map(max, start, map(min, self.stop, other.stop))))

    def grown(self, widths: Sequence[int]) -> Box:
        """Return the box with `widths` more points at both ends of each axis; fewer if negative.

        An axis that would have less than no points is empty, in the middle of this box.
        """
        pairs = [(a - w, b + w) for a, b, w in zip(self.start, self.stop, widths, strict=True)]
        pairs = [(a, b) if a <= b else ((a + b) // 2,) * 2 for a, b in pairs]
        return Box(*zip(*pairs, strict=True)) if pairs else self

    def shifted(self, distances: Sequence[int]) -> Box:
        """Return the box moved by numbers of points along its axes."""
        start = tuple(a + d for a, d in zip(self.start, distances, strict=True))
        stop = tuple(b + d for b, d in zip(self.stop, distances, strict=True))
        return Box(start, stop)

    def without(self, other: Box) -> list[Box]:
        """Return boxes that cover all points of this one that are not in `other`, each once."""
        rest, hole, parts = self, self.intersect(other), []
        if not hole.size:
            return [self] if self.size else []
        for axis in range(len(self.start)):
            for low, high in (
                (rest.start[axis], hole.start[axis]),
                (hole.stop[axis], rest.stop[axis]),
            ):
                if low < high:
                    parts.append(rest.with_range(axis, low, high))
            rest = rest.with_range(axis, hole.start[axis], hole.stop[axis])
        return parts

    def with_range(self, axis: int, low: int, high: int) -> Box:
        """Return the box with another range along one axis."""
        start, stop = list(self.start), list(self.stop)
        start[axis], stop[axis] = low, high
        return Box(tuple(start), tuple(stop))

    def slices(self, origin: Box | None = None) -> tuple[slice, ...]:
        """Return the slices of this box in a global array, or in the array of box `origin`."""
        base = origin.start if origin else (0,) * len(self.start)
        return tuple(
            slice(a - o, b - o) for a, b, o in zip(self.start, self.stop, base, strict=True)
        )


def whole(shape: Sequence[int]) -> Box:
    """Return the box of a whole array."""
    return Box((0,) * len(shape), tuple(shape))


def checked_boxes(
    boxes: Any, shape: Sequence[int] | None, ranks: int, what: str
) -> tuple[Box, ...]:
    """Return the boxes of all ranks, given as such or as pairs (start, stop).

    `InputError`, about the argument `what`, if they do not cover the array of this shape, or of
    any, once.
    """
    is_sequence = isinstance(boxes, Sequence) and not isinstance(boxes, str | bytes)
    if not is_sequence and not (hasattr(boxes, "__len__") and getattr(boxes, "ndim", 0) != 0):
        raise InputError(f"{what} {boxes!r}; accepted: a sequence of one box for each rank")
    if len(boxes) != ranks:
        raise InputError(f"{what} has {len(boxes)} boxes; accepted: one for each of {ranks} ranks")
    corners = [(box.start, box.stop) if isinstance(box, Box) else box for box in boxes]
    try:
        made = tuple(Box(*(tuple(map(operator.index, end)) for end in pair)) for pair in corners)
    except (TypeError, ValueError) as error:
        message = f"{what}: {error}; accepted: Box, or pairs (start, stop), of whole numbers"
        raise InputError(message) from error
    if shape is None:
        if len({len(box.start) for box in made}) > 1:
            raise InputError(f"{what}: boxes have different numbers of axes")
        shape = shape_covered(made)
    if any(len(box.start) != len(shape) for box in made):
        raise InputError(f"{what}: a box has not {len(shape)} axes, as shape {tuple(shape)} has")
    check_boxes(made, shape, what)
    return made


def shape_covered(boxes: Sequence[Box]) -> tuple[int, ...]:
    """Return the shape of the array that boxes cover; if all are empty, of their corners."""
    filled = [box for box in boxes if box.size] or boxes
    return tuple(map(max, *(box.stop for box in filled))) if len(filled) > 1 else filled[0].stop


def check_boxes(boxes: Sequence[Box], shape: Sequence[int], what: str) -> None:
    """Make sure that the boxes of all ranks together are the array, every point once."""
    space = whole(shape)
    filled = [box for box in boxes if box.size]
    for box in filled:
        if box.intersect(space) != box:
            raise InputError(f"{what}: {box} is not inside of shape {tuple(shape)}")
    if _count_signed_corners(filled, shape) == _count_signed_corners(
        [space] if space.size else [], shape
    ):
        return
    for first, second in itertools.combinations(filled, 2):
        if first.intersect(second).size:
            raise InputError(f"{what}: {first} and {second} overlap")
    raise InputError(f"{what} do not cover all points of shape {tuple(shape)}")


def _count_signed_corners(boxes: Sequence[Box], shape: Sequence[int]) -> dict[bytes, int]:
    """Return the number of boxes with a corner at a point, with alternating signs, if not zero.

    These are the mixed differences of the number of boxes at each point: they are equal if and only
    if these numbers are.
    """
    ends = np.array([(box.start, box.stop) for box in boxes], np.int64)
    ends = ends.reshape(len(boxes), 2, len(shape))
    totals: dict[bytes, int] = {}
    for choice in itertools.product((0, 1), repeat=len(shape)):
        sign = (-1) ** sum(choice)
        for corner in np.stack([ends[:, end, axis] for axis, end in enumerate(choice)], axis=1):
            place = corner.tobytes()
            totals[place] = totals.get(place, 0) + sign
    return {place: total for place, total in totals.items() if total}


def split(size: int, parts: int, unit: int = 1) -> list[tuple[int, int]]:
    """Divide ``range(size)`` into (start, stop) ranges that differ by at most one unit.

    Larger ones come first; parts beyond `size` are empty. Parts begin at multiples of the unit.
    """
    if size < 0 or parts < 1:
        raise ValueError(f"cannot divide {size} points into {parts} parts")
    each, more = divmod(-(-size // unit), parts)
    bounds = [min(size, unit * (part * each + min(part, more))) for part in range(parts + 1)]
    return list(itertools.pairwise(bounds))


def _start_of_part(size: int, parts: int, part: int, unit: int = 1) -> int:
    """Return the first index of a part."""
    units = -(-size // unit)
    return min(size, unit * (part * (units // parts) + min(part, units % parts)))


def _find_part(size: int, parts: int, point: int, unit: int = 1) -> int:
    """Return the number of the part with a given point."""
    size, point = -(-size // unit), point // unit
    short, longer = divmod(size, parts)
    if point < longer * (short + 1):
        return point // (short + 1)
    return longer + (point - longer * (short + 1)) // short


class GridBoxes(Sequence[Box]):
    """The boxes of a global array that is divided over a process grid, by formula, one per rank.

    `grid` has the number of parts along each axis; rank order is C order (last axis fastest). Those
    after the ranks of the grid, of `ranks` in all, have nothing. The first box is the largest,
    along every axis. Along each axis boxes begin at multiples of its unit, by default 1.
    """

    def __init__(
        self,
        shape: Sequence[int],
        grid: Sequence[int],
        ranks: int | None = None,
        units: Sequence[int] | None = None,
    ) -> None:
        self.shape, self.grid = tuple(shape), tuple(grid)
        self._units = (1,) * len(self.shape) if units is None else tuple(units)
        for size, parts in zip(self.shape, self.grid, strict=True):
            if size < 0 or parts < 1:
                raise ValueError(f"cannot divide {size} points into {parts} parts")
        self._filled = math.prod(self.grid)
        self._ranks = self._filled if ranks is None else ranks

    def __len__(self) -> int:
        return self._ranks

    @overload
    def __getitem__(self, rank: int) -> Box: ...
    @overload
    def __getitem__(self, rank: slice) -> list[Box]: ...
    def __getitem__(self, rank: int | slice) -> Box | list[Box]:
        if isinstance(rank, slice):
            return [self[one] for one in range(*rank.indices(self._ranks))]
        if not -self._ranks <= rank < self._ranks:
            raise IndexError(f"rank {rank} of {self._ranks}")
        rest = rank % self._ranks
        if rest >= self._filled:
            return Box((0,) * len(self.shape), (0,) * len(self.shape))
        start, stop = [], []
        axes = list(zip(self.shape, self.grid, self._units, strict=True))
        for size, parts, unit in reversed(axes):
            rest, part = divmod(rest, parts)
            start.append(_start_of_part(size, parts, part, unit))
            stop.append(_start_of_part(size, parts, part + 1, unit))
        return Box(tuple(reversed(start)), tuple(reversed(stop)))

    def __iter__(self) -> Iterator[Box]:
        axes = zip(self.shape, self.grid, self._units, strict=True)
        ranges = [split(size, parts, unit) for size, parts, unit in axes]
        for pairs in itertools.product(*ranges):
            yield Box(tuple(start for start, _ in pairs), tuple(stop for _, stop in pairs))
        for rank in range(self._filled, self._ranks):
            yield self[rank]

    def __eq__(self, other: object) -> bool:
        if self.is_alike(other):
            return True
        if not isinstance(other, Sequence) or len(other) != self._ranks:
            return False
        return all(map(operator.eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"grid_boxes({self.shape}, {self.grid}, {self._ranks})"

    def is_alike(self, other: object) -> bool:
        """Return whether these are the boxes of the same grid, without comparing them."""
        if not isinstance(other, GridBoxes):
            return False
        own, others = ((one.shape, one.grid, one._ranks, one._units) for one in (self, other))
        return own == others

    @property
    def workers(self) -> int:
        """How many of the first ranks have all points between them."""
        if 0 in self.shape:
            return 0
        last = 0
        for size, parts, unit in zip(self.shape, self.grid, self._units, strict=True):
            last = last * parts + min(-(-size // unit), parts) - 1
        return last + 1

    def is_whole(self, axis: int) -> bool:
        """Return whether all boxes that have points have all points along an axis."""
        return self.grid[axis] == 1 or self.shape[axis] <= 1

    def with_extent(self, axis: int, size: int) -> GridBoxes:
        """Return the boxes of an array of another size along an axis."""
        shape = (*self.shape[:axis], size, *self.shape[axis + 1 :])
        return GridBoxes(shape, self.grid, self._ranks, self._units)

    def with_axis(self, size: int) -> GridBoxes:
        """Return the boxes with another axis before all others, which is not divided."""
        return GridBoxes((size, *self.shape), (1, *self.grid), self._ranks, (1, *self._units))

    def common_parts(self, box: Box) -> list[tuple[int, Box]]:
        """Return the intersections of ranks' boxes with a box, in order of ranks."""
        ranges_of_ranks: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = [(0, (), ())]
        axes = zip(self.shape, self.grid, self._units, box.start, box.stop, strict=True)
        for size, parts, unit, low, high in axes:
            low, high = max(low, 0), min(high, size)
            if low >= high:
                return []
            first, last = (_find_part(size, parts, one, unit) for one in (low, high - 1))
            bounds = [
                _start_of_part(size, parts, part, unit) for part in range(first + 1, last + 1)
            ]
            ranges = list(zip(range(first, last + 1), [low, *bounds], [*bounds, high], strict=True))
            ranges_of_ranks = [
                (rank * parts + part, (*start, begin), (*stop, end))
                for rank, start, stop in ranges_of_ranks
                for part, begin, end in ranges
            ]
        return [(rank, Box(start, stop)) for rank, start, stop in ranges_of_ranks]


def common_parts(boxes: Sequence[Box], box: Box) -> Iterable[tuple[int, Box]]:
    """Return the ranks whose boxes have points in common with a box, in order, and these."""
    if isinstance(boxes, GridBoxes):
        return boxes.common_parts(box)
    # Of thousands of ranks most have nothing in common, and to see that is quick.
    return (
        (rank, box.intersect(other))
        for rank, other in enumerate(boxes)
        if all(map(operator.lt, box.start, other.stop))
        and all(map(operator.lt, other.start, box.stop))
    )


def grid_boxes(
    shape: Sequence[int],
    grid: Sequence[int],
    ranks: int | None = None,
    units: Sequence[int] | None = None,
) -> GridBoxes:
    """Divide a global array over a process grid; for parameters see `GridBoxes`."""
    sizes, parts = whole_numbers("shape", shape, 0), whole_numbers("grid", grid, 1)
    each = (1,) * len(sizes) if units is None else whole_numbers("units", units, 1)
    if not len(sizes) == len(parts) == len(each):
        raise InputError(
            f"grid {parts} with units {each} is for other axes; accepted: those of shape {sizes}"
        )
    if ranks is not None:
        ranks = whole_number("ranks", ranks, math.prod(parts))
    return GridBoxes(sizes, parts, ranks, each)


def slabs(shape: Sequence[int], axis: int, parts: int, ranks: int | None = None) -> GridBoxes:
    """Divide a global array along one axis; `ranks` as in `grid_boxes`."""
    return GridBoxes(shape, [parts if i == axis else 1 for i in range(len(shape))], ranks)


def process_grid(
    ranks: int, shape: Sequence[int], costs: Sequence[float] | None = None
) -> tuple[int, ...]:
    """Return the process grid, in parts along each axis, whose boxes have the least surface.

    Grids that leave no box empty come first; of equal ones the most even is taken. The `costs`, all
    equal by default, weigh the points of faces by the axis that is normal to them.
    """
    weights = [1.0] * len(shape) if costs is None else costs

    def cost(grid: tuple[int, ...]) -> tuple[bool, float, int, tuple[int, ...]]:
        box = [-(-n // p) for n, p in zip(shape, grid, strict=True)]
        volume = math.prod(box)
        faces = [volume / b * c for b, p, c in zip(box, grid, weights, strict=True) if p > 1]
        empty = any(p > n for n, p in zip(shape, grid, strict=True))
        return empty, sum(faces), max(grid), grid

    return min(factorisations(ranks, len(shape)), key=cost)


def recursive_bisection(
    shape: Sequence[int], parts: int, weigh: Callable[[list[Box], list[int]], Sequence[Any]]
) -> list[Box]:
    """Divide a global array into boxes of about the same weight, each near a cube.

    A box is cut in two along its longest axis, where the weights of the two sides are as the
    numbers of parts that they will have; then each side is cut in the same way. Boxes are empty
    where points are too few, or few have all weight. After Berger and Bokhari (1987).

    ``weigh(boxes, axes)`` returns for each box the weights of its planes normal to its axis.
    """
    pending, boxes = [(whole(shape), 0, parts)], [whole(shape)] * parts
    while pending:
        pending = [entry for entry in pending if entry[2] > 1]
        axes = [max(range(len(shape)), key=lambda axis: box.shape[axis]) for box, _, _ in pending]
        weights = weigh([box for box, _, _ in pending], axes) if pending else []
        halves = []
        for (box, first, count), axis, planes in zip(pending, axes, weights, strict=True):
            left = count // 2
            cut = box.start[axis] + _find_balanced_cut(planes, left, count)
            for side, start, share in (
                (box.with_range(axis, box.start[axis], cut), first, left),
                (box.with_range(axis, cut, box.stop[axis]), first + left, count - left),
            ):
                halves.append((side, start, share))
                boxes[start : start + share] = [side] * share
        pending = halves
    return boxes


def _find_balanced_cut(weights: Sequence[float], left: int, parts: int) -> int:
    """Return after how many planes to cut, for `left` of `parts` shares to be before the cut."""
    before = [0, *itertools.accumulate(weights)]
    if not before[-1]:
        before = list(range(len(before)))
    wanted = before[-1] * left / parts
    # As long as there are planes enough, both sides have some.
    inner = range(1, len(before) - 1) or range(len(before))
    return min(inner, key=lambda cut: abs(before[cut] - wanted))


def factorisations(number: int, count: int) -> list[tuple[int, ...]]:
    """Return all ways to write a number as an ordered product of the given number of factors."""
    if count == 1:
        return [(number,)]
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    return [(d, *rest) for d in divisors for rest in factorisations(number // d, count - 1)]


@dataclass(frozen=True)
class PaddedBox:
    """Where the points of a box, and of a halo around it, lie in an array.

    Arrays are C-ordered, of shape `shape`; they may be larger than the points need, so that rows
    start where the device likes it.
    """

    # Points by global index, of three axes.
    box: Box
    # Width along each axis.
    halo: tuple[int, int, int]
    # The first point of every row, without its halo, lies at a multiple of this.
    alignment: int = 1
    # Whether rows follow each other without a gap, whatever their length.
    is_dense: bool = False

    @property
    def lead(self) -> int:
        """Elements of a row before its first point."""
        return -(-self.halo[2] // self.alignment) * self.alignment

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the array."""
        planes, rows, columns = self.box.grown(self.halo).shape
        columns = self.lead + self.box.shape[2] + self.halo[2]
        if self.is_dense:
            return planes, rows, columns
        # An odd number of units: rows at distances of powers of two would fight for cache lines.
        units = -(-columns // self.alignment) | 1
        return planes, rows, units * self.alignment

    def slices(self, box: Box) -> tuple[slice, ...]:
        """Return the slices of a box of points, by global index; halo points are outside."""
        widths = (*self.halo[:2], self.lead)
        origin = tuple(a - w for a, w in zip(self.box.start, widths, strict=True))
        return box.slices(Box(origin, origin))


def redistribute(
    values: np.ndarray, sources: Sequence[Box], targets: Sequence[Box], comm: Any
) -> np.ndarray:
    """Return this rank's part of a distributed array in another decomposition. Collective.

    `values` is this rank's part, of any dtype; each decomposition has one box per rank.
    """
    rank = 0 if comm is None else comm.rank
    source, target = sources[rank], targets[rank]
    values = np.ascontiguousarray(values)
    result = np.empty(target.shape, values.dtype)
    own = source.intersect(target)
    result[own.slices(target)] = values[own.slices(source)]
    if comm is None:
        return result
    from mpi4py import MPI

    def messages(array: np.ndarray, box: Box, peers: Sequence[Box]) -> list[Any]:
        """Return the parts of an array that peers have, or get, as MPI describes them in place."""
        types, size = [MPI.BYTE] * len(peers), array.itemsize
        for peer, other in enumerate(peers):
            part = box.intersect(other)
            if peer != rank and part.size:
                starts = [where.start for where in part.slices(box)]
                kind = MPI.BYTE.Create_subarray(
                    [*box.shape[:-1], box.shape[-1] * size],
                    [*part.shape[:-1], part.shape[-1] * size],
                    [*starts[:-1], starts[-1] * size],
                )
                types[peer] = kind.Commit()
        counts = [int(kind is not MPI.BYTE) for kind in types]
        return [array.view(np.uint8), (counts, [0] * len(peers)), types]

    outgoing, incoming = messages(values, source, targets), messages(result, target, sources)
    comm.Alltoallw(outgoing, incoming)
    for kind in (*outgoing[2], *incoming[2]):
        if kind is not MPI.BYTE:
            kind.Free()
    return result
