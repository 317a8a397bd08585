"""Numbers that lie anywhere change hands, and arrays change decomposition, as NumPy would do it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fft_cases import alike, bricks, together
from slipstream.engine.decomposition import redistribute
from slipstream.engine.exchange import SparseExchange, make_transport, swap_plan
from slipstream.engine.schedule import POLICIES, StepGraph, commit

SIZE = 5000


several = pytest.mark.usefixtures("_several_ranks")


@pytest.fixture(scope="session")
def _several_ranks(ranks):
    if ranks == 1:
        pytest.skip("needs several ranks")


# -- swaps ---------------------------------------------------------------------------------------


def drawn_places(seed, ranks, most):
    """Return which numbers of each rank's array each other rank gets, the same on all ranks.

    Some have nothing for each other: they send an empty message, or none.
    """
    random = np.random.default_rng(seed)
    places = [{} for _ in range(ranks)]
    free = [random.permutation(SIZE) for _ in range(ranks)]
    for one in range(ranks):
        for other in range(one + 1, ranks):
            count = int(random.choice([0, 1, random.integers(most + 1)]))
            if not count and random.random() < 0.5:
                continue
            for rank, peer in ((one, other), (other, one)):
                places[rank][peer], free[rank] = free[rank][:count], free[rank][count:]
    return [{peer: own[peer] for peer in sorted(own)} for own in places]


def values(dtype, round_, rank):
    return np.random.default_rng([round_, rank]).random(SIZE).astype(dtype)


def expected(places, rank, dtype, round_):
    """Return the array of a rank after a swap: what its peers had at their lists is at its own."""
    result = values(dtype, round_, rank)
    for peer, own in places[rank].items():
        result[own] = values(dtype, round_, peer)[places[peer][rank]]
    return result


def check_swaps(comm, device, name, policy, dtype, places):
    rank = comm.rank
    transport = make_transport(name, comm, device)
    arrays = [device.zeros((SIZE,), dtype) for _ in range(2)]
    lists = places[rank]
    addresses = np.concatenate([np.empty(0, np.int64), *lists.values()])
    plan = swap_plan({peer: len(own) for peer, own in lists.items()}, rank)
    swap = SparseExchange(device, plan, device.array(addresses), arrays, transport)
    steps = []
    for number, array in enumerate(arrays):
        graph = StepGraph(device)
        swap.record(graph, number, array, "numbers")
        steps.append(commit(graph, policy))
    results = []
    for round_ in range(6):
        array, step = arrays[round_ % 2], steps[round_ % 2]
        device.run(device.copy(array, device.array(values(dtype, round_, rank))))
        device.synchronize()
        # Nobody waits for the others but by the exchange.
        step.run()
        step.synchronize()
        results.append(device.to_host(array).copy())
    transport.check()
    for round_, one in enumerate(results):
        np.testing.assert_array_equal(one, expected(places, rank, dtype, round_))


@several
@alike(examples=15)
@given(
    seed=st.integers(0, 2**32 - 1),
    most=st.sampled_from([3, 40, 1200]),
    data=st.data(),
    policy=st.sampled_from(POLICIES),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_swaps_are_those_of_the_lists(
    comm, device, ranks, transports, seed, most, policy, dtype, data
):
    name = data.draw(st.sampled_from(transports))
    places = drawn_places(seed, ranks, most)
    together(comm, check_swaps, comm, device, name, policy, dtype, places)


@several
def test_every_transport_swaps(comm, device, ranks, transports):
    for name in transports:
        for seed in range(3):
            places = drawn_places(seed, ranks, 1000)
            together(comm, check_swaps, comm, device, name, "overlap", "float64", places)
        together(comm, check_swaps, comm, device, name, "serial", "float32", [{}] * ranks)


@several
def test_many_numbers_change_hands_with_one_neighbour(comm, device, ranks, transports):
    """More than a row of the packing kernel takes."""
    order = np.random.default_rng(0).permutation(SIZE)[:3000]
    places = [{rank ^ 1: np.roll(order, rank)} if rank ^ 1 < ranks else {} for rank in range(ranks)]
    for name in transports:
        together(comm, check_swaps, comm, device, name, "overlap", "float64", places)


def test_plan_has_a_block_for_each_neighbour_one_after_the_other():
    plan = swap_plan({1: 3, 4: 0, 6: 2}, 5)
    assert plan.rank == 5
    assert plan.sends == plan.receives
    blocks = [(block.peer, block.offset, block.count, block.box.shape) for block in plan.sends]
    assert [block for block in blocks if block[2]] == [(1, 0, 3, (3,)), (6, 3, 2, (2,))]
    assert plan.send_size == plan.receive_size == 5
    assert swap_plan({}, 0).sends == ()


# -- decompositions ------------------------------------------------------------------------------

DTYPES = ("uint8", "float64", "int16", "complex64", "bool")


@alike(examples=30)
@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple),
    data=st.data(),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 99),
)
def test_redistributed_arrays_are_slices_of_the_whole(comm, ranks, shape, dtype, seed, data):
    """Boxes lie anywhere, some are empty, and a rank may keep all of what it has, or nothing."""
    sources, targets = (data.draw(bricks(shape, ranks)) for _ in range(2))
    whole = np.random.default_rng(seed).integers(0, 100, shape).astype(dtype)
    rank = 0 if comm is None else comm.rank
    part = whole[sources[rank].slices()]
    before = part.copy()
    actual = redistribute(part, sources, targets, comm)

    def check():
        assert actual.dtype == whole.dtype
        assert actual.flags.c_contiguous
        np.testing.assert_array_equal(actual, whole[targets[rank].slices()])
        np.testing.assert_array_equal(part, before)

    together(comm, check)
