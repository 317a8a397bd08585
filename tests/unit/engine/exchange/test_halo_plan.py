"""Halo plans of all ranks together, executed with NumPy as an MPI of one process would."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fft_cases import bricks
from slipstream.engine.decomposition import grid_boxes
from slipstream.engine.exchange import HaloPlan

POISON = -1


@st.composite
def halos(draw):
    """Return shape, boxes and widths: Cartesian grids and any other division, empty boxes too."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    widths = tuple(draw(st.integers(0, min(n, 2))) for n in shape)
    if draw(st.booleans()):
        boxes = grid_boxes(shape, [draw(st.integers(1, 4)) for _ in shape])
    else:
        boxes = draw(bricks(shape, draw(st.integers(1, 7))))
    return shape, boxes, widths


def plans_of(shape, boxes, widths):
    return [HaloPlan.make(boxes, shape, widths, rank) for rank in range(len(boxes))]


def flat(piece):
    """Return where a piece lies in its packed array."""
    return slice(piece.offset, piece.offset + piece.source.size)


class Rank:
    """A rank's box and halo; only the box has values at first.

    Values are indices into the global array, and each place counts how often it is written to.
    """

    def __init__(self, plan, box, index, widths):
        self.plan, self.box, self.outer = plan, box, box.grown(widths)
        self.values = np.full(self.outer.shape, POISON)
        self.values[box.slices(self.outer)] = index[box.slices()]
        self.writes = np.zeros(self.outer.shape, int)
        self.packed = np.full(plan.packed.send_size, POISON)
        self.received = np.full(plan.packed.receive_size, POISON)

    def write(self, box, values):
        self.values[box.slices(self.outer)] = np.reshape(values, box.shape)
        self.writes[box.slices(self.outer)] += 1

    def own_points(self, box):
        """Return values, which must be of this rank's own points."""
        assert box.intersect(self.box) == box
        return self.values[box.slices(self.outer)]


def exchanged(shape, boxes, widths):
    """Return all ranks after pack, exchange and unpack."""
    index = np.arange(math.prod(shape)).reshape(shape)
    plans = plans_of(shape, boxes, widths)
    ranks = [Rank(plan, box, index, widths) for plan, box in zip(plans, boxes, strict=True)]
    for rank in ranks:
        for piece in rank.plan.own:
            rank.write(piece.target, rank.own_points(piece.source))
        for piece in rank.plan.sends:
            assert (rank.packed[flat(piece)] == POISON).all()
            rank.packed[flat(piece)] = rank.own_points(piece.source).ravel()
        assert (rank.packed != POISON).all()
    for number, rank in enumerate(ranks):
        for block in rank.plan.packed.sends:
            (other,) = [b for b in plans[block.peer].packed.receives if b.peer == number]
            assert other.count == block.count > 0
            place = slice(other.offset, other.offset + other.count)
            assert (ranks[block.peer].received[place] == POISON).all()
            part = rank.packed[block.offset : block.offset + block.count]
            ranks[block.peer].received[place] = part
    for rank in ranks:
        assert (rank.received != POISON).all()
        for piece in rank.plan.receives:
            rank.write(piece.target, rank.received[flat(piece)])
    return ranks


def wrapped(shape, outer):
    """Return the values of a box of the endless periodic array."""
    indices = [np.arange(a, b) % n for a, b, n in zip(outer.start, outer.stop, shape, strict=True)]
    return np.arange(math.prod(shape)).reshape(shape)[np.ix_(*indices)]


@given(halos())
def test_halos_hold_the_points_of_the_periodic_array_each_written_once(case):
    shape, boxes, widths = case
    for rank in exchanged(shape, boxes, widths):
        if not rank.box.size:
            assert not rank.writes.any()
            continue
        np.testing.assert_array_equal(rank.values, wrapped(shape, rank.outer))
        expected = np.ones(rank.outer.shape, int)
        expected[rank.box.slices(rank.outer)] = 0
        np.testing.assert_array_equal(rank.writes, expected)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 2, 5), (2, 2, 2), (4, 3, 7)])
@pytest.mark.parametrize("widths", [(1, 1, 1), (1, 0, 1), (0, 0, 0)])
def test_halo_of_a_single_rank_is_numpys_wrapped_padding(shape, widths):
    boxes = grid_boxes(shape, (1, 1, 1))
    (rank,) = exchanged(shape, boxes, widths)
    index = np.arange(math.prod(shape)).reshape(shape)
    expected = np.pad(index, [(width, width) for width in widths], mode="wrap")
    np.testing.assert_array_equal(rank.values, expected)
    assert not rank.plan.sends
    assert not rank.plan.receives


@given(halos())
def test_both_ends_agree_on_what_travels_and_in_which_order(case):
    shape, boxes, widths = case
    plans = plans_of(shape, boxes, widths)
    for one, other in itertools.permutations(range(len(boxes)), 2):
        sent = [piece for piece in plans[one].sends if piece.peer == other]
        received = [piece for piece in plans[other].receives if piece.peer == one]
        assert [(p.source, p.target) for p in sent] == [(p.source, p.target) for p in received]
        begins = [[p.offset - pieces[0].offset for p in pieces] for pieces in (sent, received)]
        assert begins[0] == begins[1]
        for piece in sent:
            steps = [a - b for a, b in zip(piece.target.start, piece.source.start, strict=True)]
            assert all(step % n == 0 for step, n in zip(steps, shape, strict=True))
            assert piece.source.shape == piece.target.shape


@pytest.mark.slow
@given(halos())
def test_packed_blocks_hold_the_pieces_of_one_peer_without_gaps(case):
    shape, boxes, widths = case
    for rank, plan in enumerate(plans_of(shape, boxes, widths)):
        assert plan.packed.rank == rank
        for pieces, blocks, size in (
            (plan.sends, plan.packed.sends, plan.packed.send_size),
            (plan.receives, plan.packed.receives, plan.packed.receive_size),
        ):
            peers = [block.peer for block in blocks]
            assert peers == sorted(set(peers) - {rank})
            places = [
                element
                for block in blocks
                for element in range(block.offset, block.offset + block.count)
            ]
            assert places == list(range(size))
            for block in blocks:
                mine = [piece for piece in pieces if piece.peer == block.peer]
                assert mine[0].offset == block.offset
                assert sum(piece.source.size for piece in mine) == block.count
                assert (block.box.start, block.box.stop) == (
                    (block.offset,),
                    (block.offset + block.count,),
                )
            assert {piece.peer for piece in pieces} == set(peers)


@pytest.mark.slow
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_neighbours_in_a_cartesian_grid_of_equal_boxes_send_what_they_receive(axes):
    for widths in itertools.combinations_with_replacement((0, 1, 2), axes):
        _check_counts(widths)


def _check_counts(widths):
    shape = tuple(6 for _ in widths)
    boxes = grid_boxes(shape, [3 if width else 1 for width in widths])
    for plan in plans_of(shape, boxes, widths):
        counts = [
            {b.peer: b.count for b in blocks}
            for blocks in (plan.packed.sends, plan.packed.receives)
        ]
        assert counts[0] == counts[1]


def test_a_rank_in_the_middle_of_a_grid_has_26_neighbours():
    shape, grid = (6, 9, 12), (3, 3, 3)
    plan = HaloPlan.make(grid_boxes(shape, grid), shape, (1, 1, 1), 13)
    assert [block.peer for block in plan.packed.sends] == [r for r in range(27) if r != 13]
    sizes = sorted(piece.source.size for piece in plan.sends)
    assert sizes == sorted([1] * 8 + ([2] + [3] + [4]) * 4 + [6, 8, 12] * 2)
    assert plan.own == ()


def test_plans_do_not_overflow():
    shape = (10**7, 10**7, 10**7)
    plan = HaloPlan.make(grid_boxes(shape, (2, 1, 1)), shape, (1, 0, 0), 0)
    assert plan.packed.send_size == 2 * 10**14
