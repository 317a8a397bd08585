"""Boxes, slabs, process grids: the integer geometry of distributed arrays.

A `Box` is a part of a global index space. A decomposition is a list with one box per rank, in
rank order. Nothing here knows of transforms, devices or MPI, and all sizes are Python integers,
which do not overflow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


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
        if len(self.start) != len(self.stop):
            raise ValueError(f"box corners {self.start} and {self.stop} differ in length")
        if any(a > b for a, b in zip(self.start, self.stop, strict=True)):
            raise ValueError(f"box starts at {self.start}, behind its stop {self.stop}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points along each axis."""
        return tuple(b - a for a, b in zip(self.start, self.stop, strict=True))

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(self.shape)

    def intersect(self, other: Box) -> Box:
        """Return the common part; an empty box if there is none."""
        start = tuple(max(a, b) for a, b in zip(self.start, other.start, strict=True))
        stop = tuple(min(a, b) for a, b in zip(self.stop, other.stop, strict=True))
        return Box(start, tuple(max(a, b) for a, b in zip(start, stop, strict=True)))

    def slices(self, origin: Box | None = None) -> tuple[slice, ...]:
        """Return the slices of this box in a global array, or in the array of box `origin`."""
        base = origin.start if origin else (0,) * len(self.start)
        return tuple(
            slice(a - o, b - o) for a, b, o in zip(self.start, self.stop, base, strict=True)
        )


def whole(shape: Sequence[int]) -> Box:
    """Return the box of a whole array."""
    return Box((0,) * len(shape), tuple(shape))


def split(size: int, parts: int) -> list[tuple[int, int]]:
    """Divide ``range(size)`` into `parts` ranges that differ by at most one, larger ones first.

    Returns
    -------
    list of (int, int)
        Start and stop of each part; parts beyond `size` are empty.

    Raises
    ------
    ValueError
        If `size` is negative or `parts` is not positive.
    """
    if size < 0 or parts < 1:
        raise ValueError(f"cannot divide {size} points into {parts} parts")
    bounds = [part * (size // parts) + min(part, size % parts) for part in range(parts + 1)]
    return list(zip(bounds[:-1], bounds[1:], strict=True))


def grid_boxes(shape: Sequence[int], grid: Sequence[int]) -> list[Box]:
    """Divide a global array over a process grid.

    Parameters
    ----------
    shape : sequence of int
        Global shape.
    grid : sequence of int
        Number of parts along each axis; rank order is C order (last axis fastest).

    Returns
    -------
    list of Box
        One box per rank, ``prod(grid)`` in all.
    """
    boxes = [Box((), ())]
    for size, parts in zip(shape, grid, strict=True):
        ranges = split(size, parts)
        boxes = [Box((*b.start, low), (*b.stop, high)) for b in boxes for low, high in ranges]
    return boxes


def slabs(shape: Sequence[int], axis: int, ranks: int) -> list[Box]:
    """Divide a global array along one axis."""
    return grid_boxes(shape, [ranks if i == axis else 1 for i in range(len(shape))])


def process_grid(ranks: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the process grid for `ranks` whose boxes have the least surface.

    Parameters
    ----------
    ranks : int
        Number of boxes.
    shape : sequence of int
        Global shape of the axes to divide.

    Returns
    -------
    tuple of int
        One entry per axis, their product is `ranks`. Grids that leave no box empty come first;
        of equal ones the most even is taken.
    """

    def cost(grid: tuple[int, ...]) -> tuple[bool, float, int, tuple[int, ...]]:
        box = [-(-n // p) for n, p in zip(shape, grid, strict=True)]
        volume = math.prod(box)
        divided = [volume / b for b, p in zip(box, grid, strict=True) if p > 1]
        empty = any(p > n for n, p in zip(shape, grid, strict=True))
        return empty, sum(divided), max(grid), grid

    return min(factorisations(ranks, len(shape)), key=cost)


def factorisations(number: int, count: int) -> list[tuple[int, ...]]:
    """Return all ways to write a number as the product of so many, in order."""
    if count == 1:
        return [(number,)]
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    return [(d, *rest) for d in divisors for rest in factorisations(number // d, count - 1)]
