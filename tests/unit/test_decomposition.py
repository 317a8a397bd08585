"""Boxes, slabs and process grids: every point exactly once, in exact integers."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.decomposition import Box, grid_boxes, process_grid, slabs, split, whole

SHAPES = st.lists(st.integers(0, 9), min_size=1, max_size=3)


@st.composite
def box_pairs(draw):
    """Return two boxes of one index space, empty ones included."""
    axes = draw(st.integers(1, 3))
    ranges = st.tuples(st.integers(0, 6), st.integers(0, 6)).map(sorted)
    corners = [draw(st.lists(ranges, min_size=axes, max_size=axes)) for _ in range(2)]
    return [Box(tuple(a for a, _ in c), tuple(b for _, b in c)) for c in corners]


def points(box):
    return set(itertools.product(*map(range, box.start, box.stop)))


@given(st.integers(0, 10**18), st.integers(1, 300))
def test_split_covers_once_with_sizes_that_differ_by_one(size, parts):
    ranges = split(size, parts)
    assert len(ranges) == parts
    assert (ranges[0][0], ranges[-1][1]) == (0, size)
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ranges))
    sizes = [stop - start for start, stop in ranges]
    assert sizes == sorted(sizes, reverse=True)
    assert 0 <= min(sizes) <= max(sizes) <= min(sizes) + 1


def test_parts_beyond_the_size_are_empty():
    assert split(2, 4) == [(0, 1), (1, 2), (2, 2), (2, 2)]
    assert split(0, 2) == [(0, 0), (0, 0)]


@pytest.mark.parametrize(("size", "parts"), [(-1, 2), (4, 0), (4, -1)])
def test_split_rejects_what_cannot_be_divided(size, parts):
    with pytest.raises(ValueError, match=f"{size} points into {parts} parts"):
        split(size, parts)


@given(SHAPES, st.data())
def test_grid_boxes_partition_the_index_space(shape, data):
    grid = [data.draw(st.integers(1, 4)) for _ in shape]
    boxes = grid_boxes(shape, grid)
    assert len(boxes) == math.prod(grid)
    count = np.zeros(shape, int)
    for box in boxes:
        count[box.slices()] += 1
    assert (count == 1).all()
    # Rank order is C order of the process grid.
    for place, box in zip(np.ndindex(*grid), boxes, strict=True):
        ranges = [split(n, p)[i] for n, p, i in zip(shape, grid, place, strict=True)]
        assert list(zip(box.start, box.stop, strict=True)) == ranges


@given(SHAPES, st.data())
def test_slabs_are_whole_along_all_other_axes(shape, data):
    axis = data.draw(st.integers(0, len(shape) - 1))
    ranks = data.draw(st.integers(1, 12))
    boxes = slabs(shape, axis, ranks)
    assert [(box.start[axis], box.stop[axis]) for box in boxes] == split(shape[axis], ranks)
    for box in boxes:
        others = [n for i, n in enumerate(box.shape) if i != axis]
        assert others == [n for i, n in enumerate(shape) if i != axis]


@given(box_pairs())
def test_intersection_holds_exactly_the_common_points(pair):
    a, b = pair
    common = a.intersect(b)
    assert points(common) == points(a) & points(b)
    assert common.size == len(points(common))
    assert points(b.intersect(a)) == points(common)


@given(box_pairs())
def test_slices_select_the_box_globally_and_within_another(pair):
    a, b = pair
    index = np.arange(7 ** len(a.start)).reshape((7,) * len(a.start))
    inner = a.intersect(b)
    selected = index[inner.slices()]
    assert selected.shape == inner.shape
    np.testing.assert_array_equal(index[a.slices()][inner.slices(a)], selected)


def test_sizes_do_not_overflow():
    assert whole((10**7, 10**7, 10**7)).size == 10**21
    assert slabs((10**7, 10**7, 10**7), 0, 3)[2].size == 3333333 * 10**14


@pytest.mark.parametrize(("start", "stop"), [((0, 0), (1,)), ((2,), (1,)), ((0, 3), (5, 2))])
def test_boxes_with_crossed_or_unequal_corners_are_errors(start, stop):
    with pytest.raises(ValueError, match="box"):
        Box(start, stop)


def exchanged_surface(grid, shape):
    """Return the points on those faces of the largest box that have a neighbour."""
    box = [len(range(0, n, p)) for n, p in zip(shape, grid, strict=True)]  # n / p rounded up
    faces = [math.prod(box[:i] + box[i + 1 :]) for i in range(len(box)) if grid[i] > 1]
    return sum(faces)


@given(st.integers(1, 36), st.lists(st.integers(1, 40), min_size=1, max_size=3))
def test_process_grid_has_the_least_surface(ranks, shape):
    grids = [grid for grid in itertools.product(range(1, ranks + 1), repeat=len(shape))
             if math.prod(grid) == ranks]  # fmt: skip
    full = [grid for grid in grids if all(map(int.__le__, grid, shape))]
    chosen = process_grid(ranks, shape)
    assert chosen in (full or grids)
    least = min(exchanged_surface(grid, shape) for grid in full or grids)
    assert exchanged_surface(chosen, shape) == least


def test_process_grid_of_known_cases():
    assert process_grid(64, (64, 64, 64)) == (4, 4, 4)
    assert process_grid(4, (1000, 10, 10)) == (4, 1, 1)
    assert process_grid(1, (5, 5)) == (1, 1)
    assert process_grid(7, (3, 100)) == (1, 7)
