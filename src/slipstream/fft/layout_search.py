"""The route of an array through a distributed transform: the axes transformed in each layout.

An axis can be transformed in a layout that does not divide it. A route is a sequence of stages,
each a layout (one box per rank) with the axes that are transformed in it; from stage to stage the
array is redistributed. The search tries all routes for the one with the fewest exchanges: slabs and
pencils are its results, not special cases. Among routes of equal length the one that moves least
data wins.

All of this is integer geometry. Indices are those of an array [field, ...axes]; fields are never
transformed, but may be divided.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slipstream.decomposition import Box, GridBoxes, factorisations, grid_boxes
from slipstream.exchange import ExchangePlan
from slipstream.fft.truncation import Modes

# The boxes of a process grid follow from a formula, for any number of ranks.
Boxes = tuple[Box, ...] | GridBoxes

# Fields and three axes: arrays with more axes have too many grids to try them all.
_SEARCHED_AXES = 4

# The cost of a message in elements: a microsecond of a network.
_MESSAGE = 1024

# Bricks to a pencil, two more pencils, and bricks again.
_MOST_EXCHANGES = 4


@dataclass(frozen=True)
class Stage:
    """A layout, and the axes that are transformed in it."""

    # One box per rank, before and after the transforms: along transformed axes in kept modes.
    before: Boxes
    after: Boxes
    # In the order in which they are transformed; 1 is the first after the fields.
    axes: tuple[int, ...]


def find_route(
    sizes: Sequence[int],
    modes: Sequence[Modes],
    real: bool,
    source: Boxes,
    target: Boxes,
    active: int,
    axes: Sequence[int] | None = None,
    half_axis: int | None = None,
    early: Sequence[int] = (),
) -> list[Stage]:
    """Return the stages with the fewest exchanges.

    `sizes` is the number of fields, then the physical shape. All axes are transformed, or those of
    `axes`. If arrays are `real`, the axis that makes them complex, the last one or `half_axis`, is
    transformed first; only those of `early` may come before it. Only the first `active` ranks
    transform. The first stage's `before` is `source`, the last one's `after` is `target`.
    """
    if real and half_axis is None:
        half_axis = len(sizes) - 1
    space = _Space(tuple(sizes), tuple(modes), half_axis if real else None, early, active)
    remaining = frozenset(range(1, len(sizes)) if axes is None else axes)
    # Idle ranks save exchanges, but that does not pay if all can work.
    for idle in (False, True):
        for exchanges in range(_MOST_EXCHANGES + 1):
            routes = _routes(space, source, target, remaining, exchanges, idle)
            if routes:
                return min(routes, key=_moved)
    raise RuntimeError("no route was found, though one rank could transform everything")


@dataclass(frozen=True)
class _Space:
    """The index spaces of an array as axes are transformed one after the other."""

    sizes: tuple[int, ...]
    modes: tuple[Modes, ...]
    # The axis whose transform makes real arrays complex, and the axes that may precede it.
    half_axis: int | None
    early: Sequence[int]
    active: int

    def shape(self, remaining: frozenset[int]) -> tuple[int, ...]:
        """Return the global shape while some axes remain to be transformed."""
        return tuple(
            size if axis == 0 or axis in remaining else self.modes[axis - 1].count
            for axis, size in enumerate(self.sizes)
        )

    def possible(self, boxes: Boxes, remaining: frozenset[int]) -> tuple[int, ...]:
        """Return the axes that can be transformed in a layout, in order."""
        shape = self.shape(remaining)
        if isinstance(boxes, GridBoxes):
            if boxes.workers > self.active:
                return ()
            axes = [axis for axis in sorted(remaining, reverse=True) if boxes.is_whole(axis)]
        else:
            filled = [box for box in boxes if box.size]
            if any(box.size for box in boxes[self.active :]):
                return ()
            axes = [
                axis
                for axis in sorted(remaining, reverse=True)
                if all(box.shape[axis] == shape[axis] for box in filled)
            ]
        if self.half_axis in remaining:
            if self.half_axis not in axes:
                return tuple(axis for axis in axes if axis in self.early)
            axes.sort(key=lambda axis: axis != self.half_axis)
        return tuple(axes)

    def transformed(self, boxes: Boxes, axes: tuple[int, ...]) -> Boxes:
        """Return a layout after some axes have been transformed in it."""
        for axis in axes:
            kept = self.modes[axis - 1].count
            if isinstance(boxes, GridBoxes):
                boxes = boxes.with_extent(axis, kept)
                continue
            boxes = tuple(box.with_range(axis, 0, kept) if box.size else box for box in boxes)
        return boxes


def _routes(
    space: _Space,
    boxes: Boxes,
    target: Boxes,
    remaining: frozenset[int],
    exchanges: int,
    idle: bool,
) -> list[list[Stage]]:
    """Return all routes from a layout to the target with exactly `exchanges` exchanges."""
    axes = space.possible(boxes, remaining)
    stage = Stage(boxes, space.transformed(boxes, axes), axes)
    rest = remaining - set(axes)
    if exchanges == 0:
        return [[stage]] if not rest and _same(stage.after, target) else []
    if exchanges == 1 and _divides_any(target, rest):
        return []  # axes that are divided at the end cannot be transformed there
    layouts = (
        [_untransformed(space, target, rest)]
        if exchanges == 1
        else _grids(space, rest, len(boxes), idle)
    )
    return [
        [stage, *way]
        for layout in layouts
        for way in _routes(space, layout, target, rest, exchanges - 1, idle)
    ]


def _same(boxes: Boxes, others: Boxes) -> bool:
    """Return whether boxes are equal; all empty boxes count as equal."""
    if isinstance(boxes, GridBoxes) and boxes.is_alike(others):
        return True
    return all(
        ours == theirs or not (ours.size or theirs.size)
        for ours, theirs in zip(boxes, others, strict=True)
    )


def _divides_any(boxes: Boxes, axes: Iterable[int]) -> bool:
    """Return whether the boxes of a grid divide one of the axes."""
    return isinstance(boxes, GridBoxes) and not all(map(boxes.is_whole, axes))


def _untransformed(space: _Space, target: Boxes, remaining: frozenset[int]) -> Boxes:
    """Return the target before its last transforms, along axes that it does not divide."""
    for axis in remaining:
        if isinstance(target, GridBoxes) and target.is_whole(axis):
            target = target.with_extent(axis, space.sizes[axis])
            continue
        target = tuple(
            box.with_range(axis, box.start[axis], max(box.start[axis], space.sizes[axis]))
            if box.size
            else box
            for box in target
        )
    return target


def _grids(space: _Space, remaining: frozenset[int], ranks: int, idle: bool) -> list[Boxes]:
    """Return the layouts over process grids in which some axis can be transformed.

    With `idle`, they include layouts that leave ranks without points.
    """
    shape, needed = space.shape(remaining), remaining
    if space.half_axis in remaining:
        needed = remaining.intersection({space.half_axis, *space.early})
    result: list[Boxes] = []
    for grid in _process_grids(space.active, len(shape)):
        if not any(grid[axis] == 1 for axis in needed):
            continue
        if not idle and any(parts > size for parts, size in zip(grid, shape, strict=True)):
            continue
        result.append(grid_boxes(shape, grid, ranks))
    return result


def _process_grids(ranks: int, axes: int) -> list[tuple[int, ...]]:
    """Return the process grids to try; for arrays of many axes, slabs and pencils only."""
    if axes <= _SEARCHED_AXES:
        return factorisations(ranks, axes)
    grids = {
        tuple(parts.get(axis, 1) for axis in range(axes))
        for pair in itertools.combinations(range(axes), 2)
        for two in factorisations(ranks, 2)
        for parts in [dict(zip(pair, two, strict=True))]
    }
    return sorted(grids)


def _moved(route: list[Stage]) -> int:
    """Return the elements that rank 0 sends, plus the cost of its messages in elements."""
    total = 0
    for first, second in itertools.pairwise(route):
        plan = ExchangePlan.redistribution(first.after, second.before, 0)
        total += plan.off_rank_elements() + _MESSAGE * len(plan.sends)
    return total


def with_fields(boxes: Sequence[Box], fields: int) -> Boxes:
    """Return boxes of an array with a leading axis of fields."""
    if isinstance(boxes, GridBoxes):
        return boxes.with_axis(fields)
    return tuple(Box((0, *box.start), (fields if box.size else 0, *box.stop)) for box in boxes)
