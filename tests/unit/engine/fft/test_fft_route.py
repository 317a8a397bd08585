"""Routes of all ranks together, by geometry alone: as few exchanges as the layouts allow."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fft_cases import transforms
from slipstream.engine.decomposition import Box, check_boxes, grid_boxes
from slipstream.engine.exchange import ExchangePlan
from slipstream.engine.fft.fft_arguments import checked_arguments, find_route

N = 64
CUBE = (N, N, N)


def with_fields(boxes, fields):
    return tuple(Box((0, *b.start), (fields if b.size else 0, *b.stop)) for b in boxes)


def route_of(shape, ranks, dtype="float64", fields=1, workers=None, **options):
    """Return the stages of a transform, and its arguments."""
    options = {"dtype": dtype, "fields": fields, "workers": workers, **options}
    arguments = checked_arguments(ranks, shape=shape, **options)
    ends = (with_fields(boxes, fields) for boxes in (arguments.input_boxes, arguments.output_boxes))
    sizes = (fields, *arguments.shape)
    return find_route(sizes, arguments.modes, arguments.real, *ends, workers or ranks), arguments


def exchanges_of(shape, ranks, **options):
    return len(route_of(shape, ranks, **options)[0]) - 1


SLAB, PENCIL, ROOT = {"layout": "slab"}, {"layout": "pencil"}, {"layout": "root"}
NATURAL = {"order": "natural"}


@pytest.mark.parametrize(
    ("shape", "options", "expected"),
    [
        (CUBE, SLAB, 1),
        (CUBE, SLAB | NATURAL, 2),
        # Along x in the first layout, along y in the second, along z in the third.
        (CUBE, PENCIL, 2),
        # After x, slabs of kx have all of y and z: two, where pencils alone would take three.
        (CUBE, PENCIL | NATURAL, 2),
        (CUBE, ROOT, 0),
        (CUBE, ROOT | NATURAL, 0),
        ((N, N), SLAB, 1),
        ((N, N), SLAB | NATURAL, 2),
        ((N,), SLAB, 2),
        ((N,), SLAB | NATURAL, 2),
    ],
)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("ranks", [4, 6, 16])
def test_layouts_take_the_fewest_exchanges(shape, options, expected, dtype, ranks):
    assert exchanges_of(shape, ranks, dtype=dtype, **options) == expected


def test_pencils_of_more_ranks_than_points_on_any_axis_take_three_to_come_back():
    options = {"layout": "pencil", "process_grid": (4, 4)}
    assert exchanges_of((8, 8, 8), 16, **options) == 2
    assert exchanges_of((8, 8, 8), 16, order="natural", **options) == 3


@pytest.mark.parametrize("grid", [(2, 2, 2), (2, 3, 2)])
def test_bricks_take_three_with_slabs_inside(grid):
    # Nobody has a whole line at either end.
    ranks, modes = math.prod(grid), (N, N, N // 2 + 1)
    given, wanted = grid_boxes(CUBE, grid), grid_boxes(modes, grid)[::-1]
    assert exchanges_of(CUBE, ranks, input_boxes=given, output_boxes=wanted) == 3
    # With slabs at one end, these are not needed inside.
    assert exchanges_of(CUBE, ranks, input_boxes=given) == 2
    assert exchanges_of(CUBE, ranks, output_boxes=wanted) == 2
    # Where each rank has whole fields inside, or one has all, nothing is exchanged in between.
    bricks = {"input_boxes": given, "output_boxes": wanted}
    assert exchanges_of(CUBE, ranks, fields=ranks, **bricks) == 2
    assert exchanges_of(CUBE, ranks, workers=1, **bricks) == 2


def assert_transforms_all_once(route, arguments, fields, workers):
    """Assert what any route must be, whatever it costs."""
    remaining = list(range(1, len(arguments.shape) + 1))
    sizes = [fields, *arguments.shape]
    for number, stage in enumerate(route):
        check_boxes(stage.before, sizes, "before")
        for axis in stage.axes:
            assert all(box.shape[axis] == sizes[axis] for box in stage.before if box.size)
            if arguments.real:
                # A real transform comes before all others.
                assert (axis == len(arguments.shape)) == (len(remaining) == len(arguments.shape))
            remaining.remove(axis)
            sizes[axis] = arguments.modes[axis - 1].count
        check_boxes(stage.after, sizes, "after")
        if 0 < number < len(route) - 1:
            assert not any(box.size for box in stage.before[workers:])
    assert not remaining


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.integers(1, 12), st.data())
def test_any_route_transforms_every_axis_once_and_where_it_is_whole(ranks, data):
    case = data.draw(transforms(ranks))
    workers = data.draw(st.integers(1, ranks))
    route, arguments = route_of(**case, ranks=ranks, workers=workers)
    fields = case["fields"]
    assert_transforms_all_once(route, arguments, fields, workers)
    ends = route[0].before, route[-1].after
    for actual, wanted in zip(ends, (arguments.input_boxes, arguments.output_boxes), strict=True):
        for box, own in zip(actual, with_fields(wanted, fields), strict=True):
            assert box == own or box.size == own.size == 0
    # Bricks to slabs, slabs, bricks; where there are fewer planes than workers, pencils in between.
    planes = min(fields, *(modes.count for modes in arguments.modes))
    assert len(route) - 1 <= 3 + (workers < ranks or workers > planes)


def test_ranks_without_points_have_none_after_a_transform_either():
    # Two ranks share the single point of an axis: one has it, and its mode is not the other's.
    inputs = [Box((0, 0, 0), (1, 1, 8)), Box((0, 0, 8), (0, 1, 13)), Box((0, 0, 8), (1, 1, 13))]
    outputs = [Box((0, 0, 0), (1, 1, 11)), Box((0, 0, 11), (1, 1, 13)), Box((1, 0, 0), (1, 1, 11))]
    route, arguments = route_of(
        (1, 1, 13),
        3,
        "complex64",
        layout="pencil",
        truncation="nyquist",
        workers=2,
        input_boxes=inputs,
        output_boxes=outputs,
    )
    assert_transforms_all_once(route, arguments, 1, 2)


def sampled_plans(before, after):
    """Return the plans of some ranks, at the ends and in the middle of things."""
    ranks = len(before)
    some = {0, 1, 63, 64, ranks // 2, ranks - 65, ranks - 2, ranks - 1}
    return {rank: ExchangePlan.redistribution(before, after, rank) for rank in some}


def assert_both_ends_agree(plans):
    """Rank a sends to rank b exactly the points that b expects of a, in the same order."""
    for rank, plan in plans.items():
        for blocks, size in ((plan.sends, plan.send_size), (plan.receives, plan.receive_size)):
            assert [b.offset for b in blocks] == [
                *itertools.accumulate((b.count for b in blocks[:-1]), initial=0)
            ]
            assert blocks[-1].offset + blocks[-1].count == size
        for peer, other in plans.items():
            sent = [(b.box, b.count) for b in plan.sends if b.peer == peer]
            expected = [(b.box, b.count) for b in other.receives if b.peer == rank]
            assert sent == expected


HUGE, HUGE_RANKS = (16384,) * 3, 4096
KX = 16384 // 2 + 1


@pytest.mark.slow
def test_slabs_of_16384_cubed_on_4096_ranks_have_exact_counts():
    fields = 5
    route, _ = route_of(HUGE, HUGE_RANKS, fields=fields)
    assert [stage.axes for stage in route] == [(3, 2), (1,)]
    plans = sampled_plans(route[0].after, route[1].before)
    assert_both_ends_agree(plans)
    block = fields * 4 * 4 * KX
    for plan in plans.values():
        assert [b.count for b in plan.sends] == [block] * HUGE_RANKS
        assert [b.offset for b in plan.receives] == [block * r for r in range(HUGE_RANKS)]
        # Elements, not only bytes, are more than 32 bits count.
        assert plan.receives[-1].offset == block * 4095 > 2**31
        assert plan.off_rank_elements() == block * 4095


@pytest.mark.slow
def test_pencils_of_16384_cubed_on_64_by_64_ranks_have_exact_counts():
    route, _ = route_of(HUGE, HUGE_RANKS, layout="pencil", process_grid=(64, 64))
    assert [stage.axes for stage in route] == [(3,), (2,), (1,)]
    for first, second in itertools.pairwise(route):
        plans = sampled_plans(first.after, second.before)
        assert_both_ends_agree(plans)
        # In bytes of complex numbers, more than 32 bits count.
        assert all(16 * plan.sends[-1].offset > 2**32 for plan in plans.values())
        for rank, plan in plans.items():
            # Only the 64 ranks of a row or of a column of the process grid talk to each other.
            assert len(plan.sends) == len(plan.receives) == 64
            assert plan.send_size == math.prod(first.after[rank].shape)
            assert plan.receive_size == math.prod(second.before[rank].shape)
    # Of all lengths only the length of kx, 8193, cannot be divided by 64.
    widths = sorted({box.shape[3] for box in route[1].before})
    assert widths == [128, 129]
