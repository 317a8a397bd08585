"""Exchange plans of all ranks together, executed with NumPy as an MPI of one process would."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fft_cases import bricks
from slipstream.engine.decomposition import slabs
from slipstream.engine.exchange import ExchangePlan
from slipstream.engine.fft import SlabGeometry, truncate
from slipstream.engine.fft.slab_layout import NOT_KEPT

POISON = -1


@st.composite
def exchanges(draw):
    """Return shape, boxes before and boxes after."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    ranks = draw(st.integers(1, 7))
    return shape, *(draw(bricks(shape, ranks)) for _ in range(2))


def plans_of(sources, targets):
    return [ExchangePlan.redistribution(sources, targets, rank) for rank in range(len(sources))]


def pack(plan, values):
    """Return the packed source: every element of the rank once, or POISON would be left."""
    packed = np.full(plan.send_size, POISON)
    for block in plan.sends:
        packed[block.offset : block.offset + block.count] = values[block.box.slices()].ravel()
    return packed


def execute(plans, packed, received, writes):
    """Move every block; messages are known by their two ends only."""
    for plan, source in zip(plans, packed, strict=True):
        assert [b.peer for b in plan.sends] == sorted({b.peer for b in plan.sends})
        for block in plan.sends:
            (place,) = [b for b in plans[block.peer].receives if b.peer == plan.rank]
            assert (place.count, place.box) == (block.count, block.box)
            part = slice(place.offset, place.offset + place.count)
            received[block.peer][part] = source[block.offset : block.offset + block.count]
            writes[block.peer][part] += 1
    assert sum(len(p.sends) for p in plans) == sum(len(p.receives) for p in plans)


def assert_moved(rounds, sources, targets, shape):
    """Execute lists of plans and assert that each rank has exactly its box of the index space."""
    index = np.arange(math.prod(shape)).reshape(shape)
    whole_plans = plans_of(sources, targets)
    packed = [pack(plan, index) for plan in whole_plans]
    for array, box in zip(packed, sources, strict=True):
        assert sorted(array) == sorted(index[box.slices()].ravel())
    received = [np.full(box.size, POISON) for box in targets]
    writes = [np.zeros(box.size, int) for box in targets]
    for plans in rounds:
        assert [plan.receive_size for plan in plans] == [box.size for box in targets]
        execute(plans, packed, received, writes)
    for plan, box, array, count in zip(whole_plans, targets, received, writes, strict=True):
        assert (count == 1).all()
        local = np.full(box.shape, POISON)
        for block in plan.receives:
            values = array[block.offset : block.offset + block.count]
            local[block.box.slices(box)] = values.reshape(block.box.shape)
        np.testing.assert_array_equal(local, index[box.slices()])


@given(exchanges())
def test_redistribution_gives_every_rank_its_box(exchange):
    shape, sources, targets = exchange
    assert_moved([plans_of(sources, targets)], sources, targets, shape)


@given(exchanges())
def test_reversed_is_the_way_back(exchange):
    shape, sources, targets = exchange
    back = [plan.reversed() for plan in plans_of(sources, targets)]
    assert_moved([back], targets, sources, shape)


@given(exchanges(), st.integers(1, 5))
def test_split_pieces_together_move_everything_once(exchange, parts):
    shape, sources, targets = exchange
    pieces = [plan.split(parts) for plan in plans_of(sources, targets)]
    assert_moved(list(zip(*pieces, strict=True)), sources, targets, shape)


@given(exchanges(), st.integers(1, 4))
def test_split_of_reversed_moves_everything_back(exchange, parts):
    shape, sources, targets = exchange
    pieces = [plan.reversed().split(parts) for plan in plans_of(sources, targets)]
    assert_moved(list(zip(*pieces, strict=True)), targets, sources, shape)


@given(exchanges())
def test_off_rank_elements_are_those_whose_owner_changes(exchange):
    shape, sources, targets = exchange
    owners = [np.empty(shape, int), np.empty(shape, int)]
    for owner, boxes in zip(owners, (sources, targets), strict=True):
        for rank, box in enumerate(boxes):
            owner[box.slices()] = rank
    leaving = [plan.off_rank_elements() for plan in plans_of(sources, targets)]
    moved = owners[0] != owners[1]
    assert leaving == [int((moved & (owners[0] == r)).sum()) for r in range(len(sources))]


@given(
    st.tuples(st.integers(1, 7), st.integers(1, 9), st.integers(1, 8)),
    st.integers(1, 9),
    st.sampled_from([None, "2/3"]),
    st.sampled_from([1, 4]),
)
def test_slab_tables_find_every_row_in_the_packed_arrays(shape, ranks, truncation, alignment):
    """Tables and plan agree: following either one reaches the same element."""
    modes = truncate(shape, truncation, True)
    row_size = math.ceil(modes[2].count / alignment) * alignment
    mixed = (shape[0], modes[1].count, row_size)
    index = np.arange(math.prod(mixed)).reshape(mixed)
    for rank in range(ranks):
        geometry = SlabGeometry(shape, modes, rank, ranks, alignment)
        packed = pack(geometry.plan, index)
        offset, pitch = geometry.plane_rows()
        kept = np.flatnonzero(modes[1].positions() >= 0)
        assert (offset[np.setdiff1d(np.arange(shape[1]), kept)] == NOT_KEPT).all()
        first = geometry.physical_box.start[0]
        for z in range(geometry.planes):
            for y in kept:
                row = packed[offset[y] + z * pitch[y] :][:row_size]
                np.testing.assert_array_equal(row, index[first + z, modes[1].positions()[y]])


@pytest.mark.slow
@pytest.mark.parametrize("truncation", [None, "2/3"])
@pytest.mark.parametrize("ranks", [3, 4096])
def test_counts_of_16384_cubed_are_exact(ranks, truncation):
    n = 16384
    modes = truncate((n, n, n), truncation, True)
    ky, kx = (2 * (n // 3) + 1, n // 3 + 1) if truncation else (n, n // 2 + 1)
    assert (modes[1].count, modes[2].count) == (ky, kx)
    mixed = (n, ky, kx)
    planes, columns = slabs(mixed, 0, ranks), slabs(mixed, 1, ranks)
    for rank in {0, 1, ranks // 2, ranks - 1}:
        geometry = SlabGeometry((n, n, n), modes, rank, ranks)
        plan, local_planes = geometry.plan, planes[rank].shape[0]
        assert plan.send_size == geometry.planes_size == local_planes * ky * kx
        assert plan.receive_size == n * columns[rank].shape[1] * kx
        counts = [local_planes * box.shape[1] * kx for box in columns]
        assert [block.count for block in plan.sends] == counts
        assert [b.offset for b in plan.sends] == [sum(counts[:r]) for r in range(ranks)]
        assert (
            plan.off_rank_elements() == plan.send_size - local_planes * columns[rank].shape[1] * kx
        )
        last = plan.receives[-1]
        assert last.offset + last.count == plan.receive_size
        # The last row of the last plane ends where the packed array ends.
        offset, pitch = (int(table[-1]) for table in geometry.plane_rows())
        assert offset + (local_planes - 1) * pitch + kx == plan.send_size
        offset, pitch = (
            int(table[-1])
            for table in geometry.mode_rows(geometry.columns_shape[1] * geometry.row, geometry.row)
        )
        rows = columns[rank].shape[1]
        spectral = math.prod(geometry.spectral_box.shape)
        assert offset + (rows - 1) * pitch + kx == spectral
    assert sum(box.size for box in planes) == n * ky * kx
