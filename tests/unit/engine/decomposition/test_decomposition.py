"""Boxes, slabs and process grids: every point exactly once, in exact integers."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.engine.decomposition import (
    Box,
    PaddedBox,
    check_boxes,
    common_parts,
    factorisations,
    grid_boxes,
    process_grid,
    slabs,
    split,
    whole,
)
from slipstream.engine.errors import InputError

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


@given(box_pairs(), st.data())
def test_grown_boxes_hold_the_points_within_the_widths(pair, data):
    box, _ = pair
    widths = [data.draw(st.integers(-4, 4)) for _ in box.start]
    grown = box.grown(widths)
    ranges = [range(a - w, b + w) for a, b, w in zip(box.start, box.stop, widths, strict=True)]
    assert points(grown) == set(itertools.product(*ranges))
    for axis in (axis for axis, width in enumerate(widths) if width < 0):
        corners = (box.start, grown.start, grown.stop, box.stop)
        places = [corner[axis] for corner in corners]
        assert places == sorted(places)  # also where nothing is left
    if all(width >= 0 for width in widths):
        assert grown.grown([-width for width in widths]) == box


def test_boxes_that_shrink_to_nothing_stay_in_the_middle():
    assert Box((0, 2), (9, 4)).grown((-1, -5)) == Box((1, 3), (8, 3))
    assert Box((2, 2), (3, 3)).grown((-7, 0)) == Box((2, 2), (2, 3))


@given(box_pairs(), st.data())
def test_shifted_boxes_hold_the_same_points_elsewhere(pair, data):
    box, _ = pair
    distances = [data.draw(st.integers(-9, 9)) for _ in box.start]
    moved = {tuple(map(sum, zip(point, distances, strict=True))) for point in points(box)}
    assert points(box.shifted(distances)) == moved
    assert box.shifted(distances).shape == box.shape


@given(box_pairs())
def test_what_is_left_without_a_box_is_covered_once(pair):
    box, hole = pair
    parts = box.without(hole)
    covered = [point for part in parts for point in points(part)]
    assert len(covered) == len(set(covered))
    assert set(covered) == points(box) - points(hole)
    assert all(part.size for part in parts)


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
    grids = [
        grid
        for grid in itertools.product(range(1, ranks + 1), repeat=len(shape))
        if math.prod(grid) == ranks
    ]
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


@given(st.integers(1, 24), st.lists(st.integers(1, 40), min_size=1, max_size=3), st.data())
def test_process_grid_has_the_cheapest_faces(ranks, shape, data):
    costs = [data.draw(st.sampled_from([0.5, 1.0, 2.0, 8.0])) for _ in shape]

    def cost(grid):
        box = [len(range(0, n, p)) for n, p in zip(shape, grid, strict=True)]
        faces = [costs[i] * math.prod(box[:i] + box[i + 1 :]) for i in range(len(box))]
        return sum(face for face, parts in zip(faces, grid, strict=True) if parts > 1)

    grids = factorisations(ranks, len(shape))
    allowed = [grid for grid in grids if all(map(int.__le__, grid, shape))] or grids
    chosen = process_grid(ranks, shape, costs)
    assert chosen in allowed
    assert cost(chosen) == min(map(cost, allowed))
    assert process_grid(ranks, shape) == process_grid(ranks, shape, [3.0] * len(shape))


def test_process_grid_avoids_what_is_expensive():
    assert process_grid(8, (64, 64, 64), (1, 1, 8)) == (2, 4, 1)
    assert process_grid(8, (64, 64, 64), (8, 1, 1)) == (1, 2, 4)
    # Better an expensive face than an empty box.
    assert process_grid(8, (2, 2, 64), (1, 1, 1000)) == (2, 2, 2)


@given(st.integers(1, 60), st.integers(1, 3))
def test_factorisations_are_all_products_in_order(number, count):
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    expected = [f for f in itertools.product(divisors, repeat=count) if math.prod(f) == number]
    assert factorisations(number, count) == expected


@st.composite
def padded_boxes(draw):
    start = tuple(draw(st.integers(-3, 9)) for _ in range(3))
    shape = [draw(st.integers(0, 9)) for _ in range(3)]
    stop = tuple(map(int.__add__, start, shape))
    halo = tuple(draw(st.integers(0, 2)) for _ in range(3))
    return PaddedBox(Box(start, stop), halo, draw(st.sampled_from([1, 2, 8, 16])))


@given(padded_boxes())
def test_points_of_padded_boxes_share_no_memory_and_lie_within_it(layout):
    outer = layout.box.grown(layout.halo)
    places = np.arange(math.prod(layout.shape)).reshape(layout.shape)
    every = places[layout.slices(outer)]
    assert every.shape == outer.shape
    assert all(
        0 <= part.start <= part.stop <= n
        for part, n in zip(layout.slices(outer), layout.shape, strict=True)
    )
    for point in points(outer):
        (place,) = places[layout.slices(Box(point, tuple(p + 1 for p in point)))].flat
        assert place == every[tuple(map(int.__sub__, point, outer.start))]


@given(padded_boxes())
def test_rows_of_padded_boxes_are_aligned_and_odd_numbers_of_units(layout):
    places = np.arange(math.prod(layout.shape)).reshape(layout.shape)
    rows = places[layout.slices(layout.box)]
    if layout.box.size:
        assert not (rows[:, :, 0] % layout.alignment).any()
    units, rest = divmod(layout.shape[2], layout.alignment)
    assert (rest, units % 2) == (0, 1)
    # No more than needed: the lead, the points and the halo behind them, two units more at most.
    needed = layout.box.shape[2] + 2 * layout.halo[2]
    assert layout.shape[2] < needed + 3 * layout.alignment
    assert layout.shape[:2] == layout.box.grown(layout.halo).shape[:2]


@pytest.mark.parametrize(
    ("shape", "grid", "ranks"),
    [((7, 5, 3), (2, 3, 1), 6), ((3, 2, 4), (5, 1, 2), 13), ((1, 6, 0), (2, 2, 1), 4)],
)
def test_parts_in_common_with_a_box_are_found_by_formula(shape, grid, ranks):
    boxes = grid_boxes(shape, grid, ranks)
    assert len(boxes) == ranks == len(list(boxes))
    check_boxes(boxes, shape, "boxes")
    assert boxes == tuple(boxes) and boxes[1:3] == list(boxes)[1:3]
    assert boxes.workers == 1 + max([rank for rank, one in enumerate(boxes) if one.size] or [-1])
    for box in [*boxes, whole(shape), Box((1, 1, 0), (2, 2, 3)), Box((0, 2, 1), (9, 4, 2))]:
        common = [(rank, one.intersect(box)) for rank, one in enumerate(boxes)]
        expected = [(rank, one) for rank, one in common if one.size]
        assert list(common_parts(boxes, box)) == list(common_parts(tuple(boxes), box)) == expected


@pytest.mark.parametrize(
    ("corners", "message"),
    [
        ([((0, 0), (2, 3)), ((2, 0), (4, 2))], "do not cover all points"),
        ([((0, 0), (2, 3)), ((1, 0), (4, 2))], "overlap"),
        ([((0, 0), (2, 3)), ((2, 0), (4, 4))], "is not inside of shape"),
    ],
)
def test_boxes_that_are_not_the_array_once_are_refused(corners, message):
    boxes = [Box(*pair) for pair in corners]
    with pytest.raises(InputError, match=message):
        check_boxes(boxes, (4, 3), "boxes")
