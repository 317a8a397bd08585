"""The order of messages between ranks, on any numbers of ranks on any numbers of nodes."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from slipstream.engine.decomposition import Box
from slipstream.engine.exchange import Block
from slipstream.engine.exchange.exchange_plan import ExchangeOrder, exchange_steps

# The node of each rank, in any order, with as many ranks on each as there may be.
NODES = (
    st.lists(st.integers(0, 4), min_size=1, max_size=12)
    .map(lambda nodes: [sorted(set(nodes)).index(node) for node in nodes])
    .filter(lambda nodes: nodes[0] == 0)
)


def steps_of(nodes):
    return [exchange_steps(nodes, rank) for rank in range(len(nodes))]


@given(NODES)
def test_every_rank_sends_to_every_other_once_and_hears_from_it_once(nodes):
    for rank, steps in enumerate(steps_of(nodes)):
        others = [other for other in range(len(nodes)) if other != rank]
        for end in (0, 1):
            assert sorted(step[end] for step in steps if step[end] is not None) == others


@given(NODES)
def test_other_nodes_come_first(nodes):
    for rank, steps in enumerate(steps_of(nodes)):
        for end in (0, 1):
            is_near = [nodes[step[end]] == nodes[rank] for step in steps if step[end] is not None]
            assert is_near == sorted(is_near)


@given(NODES)
def test_who_sends_is_heard_in_the_same_step(nodes):
    steps = steps_of(nodes)
    assert len({len(one) for one in steps}) == 1
    for rank, own in enumerate(steps):
        for number, (to, sender) in enumerate(own):
            assert to is None or steps[to][number][1] == rank
            assert sender is None or steps[sender][number][0] == rank


@given(NODES)
def test_ranks_of_a_node_send_to_different_nodes_as_far_as_there_are(nodes):
    steps, other_nodes, largest = steps_of(nodes), max(nodes), max(map(nodes.count, nodes))
    for step in zip(*steps, strict=True):
        for end, ranks in ((0, nodes.count), (1, lambda node: largest)):
            pairs = Counter(
                (nodes[rank], nodes[ends[end]])
                for rank, ends in enumerate(step)
                if ends[end] is not None and nodes[ends[end]] != nodes[rank]
            )
            for (node, _), together in pairs.items():
                assert together <= -(-ranks(node) // other_nodes)


def test_order_by_hand():
    """Three nodes of two: the first two ranks begin with different nodes."""
    nodes = (0, 0, 1, 1, 2, 2)
    blocks = [Block(peer, Box((0,), (1,)), peer, 1) for peer in (1, 2, 3, 4, 5)]
    order = ExchangeOrder(nodes, 0)
    assert [block.peer for block in order.sends(blocks)] == [2, 4, 3, 5, 1]
    assert [block.peer for block in order.receives(blocks)] == [4, 2, 3, 5, 1]
    second = [step[0] for step in exchange_steps(nodes, 1)]
    assert second == [5, 3, 4, 2, 0]
