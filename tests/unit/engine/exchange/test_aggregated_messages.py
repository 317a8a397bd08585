"""Messages aggregated on nodes, carried out here in memory for any numbers of ranks and sizes."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.engine.decomposition import Box
from slipstream.engine.exchange import Block, ExchangePlan
from slipstream.engine.exchange.mpi_transport import STAGES, Carriers, Legs, counts_of


@st.composite
def exchanges(draw):
    """Return the node of every rank, and how many elements it sends to every other."""
    nodes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=8))
    nodes = [list(dict.fromkeys(nodes)).index(node) for node in nodes]
    row = st.lists(st.integers(0, 3), min_size=len(nodes), max_size=len(nodes))
    return nodes, np.array(draw(st.lists(row, min_size=len(nodes), max_size=len(nodes))))


def plan_of(rank, counts):
    def blocks(row):
        offsets = np.cumsum([0, *row])
        return tuple(
            Block(peer, Box((0,), (int(n),)), int(offsets[peer]), int(n))
            for peer, n in enumerate(row)
            if n
        )

    sends, receives = blocks(counts[rank]), blocks(counts[:, rank])
    return ExchangePlan(rank, sends, receives, counts[rank].sum(), counts[:, rank].sum())


def legs_of(nodes, counts):
    """Return the plans and the messages of all ranks."""
    plans = [plan_of(rank, counts) for rank in range(len(nodes))]
    others = [
        [[block for block in blocks if block.peer != plan.rank] for blocks in both]
        for plan in plans
        for both in [(plan.sends, plan.receives)]
    ]
    carriers = [Carriers(nodes, rank) for rank in range(len(nodes))]
    said = [counts_of(one, *both) for one, both in zip(carriers, others, strict=True)]
    legs = [
        Legs(one, *both, {rank: said[rank] for rank in one.members[one.here]})
        for one, both in zip(carriers, others, strict=True)
    ]
    return plans, legs


@given(exchanges())
def test_every_block_arrives_where_the_plan_wants_it(exchange):
    nodes, counts = exchange
    plans, legs = legs_of(nodes, counts)
    sources = [
        np.array([(rank, block.peer, i) for block in plan.sends for i in range(block.count)])
        for rank, plan in enumerate(plans)
    ]
    targets = [np.full((plan.receive_size, 3), -1) for plan in plans]
    relays = [np.full((one.relay_size, 3), -1) for one in legs]
    for stage in STAGES:
        flying = {}
        for rank, one in enumerate(legs):
            for leg in (leg for leg in one.sends if leg.stage == stage):
                array = relays[rank] if leg.is_relayed else sources[rank]
                assert (rank, leg.peer) not in flying
                parts = [array[start : start + length] for start, length in leg.ranges]
                flying[rank, leg.peer] = np.concatenate(parts)
        for rank, one in enumerate(legs):
            for leg in (leg for leg in one.receives if leg.stage == stage):
                array = relays[rank] if leg.is_relayed else targets[rank]
                values = flying.pop((leg.peer, rank))
                assert len(values) == leg.elements()
                for start, length in leg.ranges:
                    array[start : start + length], values = values[:length], values[length:]
        assert not flying
    for rank, (plan, target) in enumerate(zip(plans, targets, strict=True)):
        for block in plan.receives:
            if block.peer != rank:
                expected = [(block.peer, rank, i) for i in range(block.count)]
                assert target[block.offset : block.offset + block.count].tolist() == [
                    list(one) for one in expected
                ]


@given(exchanges())
def test_one_message_goes_from_a_node_to_another_and_no_other_leaves_it(exchange):
    nodes, counts = exchange
    _, legs = legs_of(nodes, counts)
    leaving, elements = Counter(), Counter()
    for rank, one in enumerate(legs):
        for leg in one.sends:
            assert (leg.stage == "between") == (nodes[leg.peer] != nodes[rank])
            if leg.stage == "between":
                leaving[nodes[rank], nodes[leg.peer]] += 1
                elements[nodes[rank], nodes[leg.peer]] += leg.elements()
    assert set(leaving.values()) <= {1}
    for pair in elements:
        ranks = [[r for r, node in enumerate(nodes) if node == one] for one in pair]
        assert elements[pair] == counts[np.ix_(*ranks)].sum()


@pytest.mark.parametrize(("per_node", "carried"), [(1, 3), (2, 2), (3, 1), (4, 1)])
def test_ranks_of_a_node_share_the_other_nodes(per_node, carried):
    """Of four nodes."""
    nodes = [node for node in range(4) for _ in range(per_node)]
    _, legs = legs_of(nodes, np.ones((len(nodes), len(nodes)), int))
    between = [sum(leg.stage == "between" for leg in one.sends) for one in legs]
    assert max(between) == carried
    assert sum(between) == 4 * 3
