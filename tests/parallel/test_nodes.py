"""Which ranks share a node, and exchanges by ranks on several nodes.

All are on one node here, unless a variable says otherwise; `tests/test_ranks.py` runs this on
several host names, too.
"""

import os
import platform

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fft_cases import alike, bricks, together
from fft_oracle import Oracle
from slipstream.case import make_case
from slipstream.engine.collective import own
from slipstream.engine.decomposition import slabs
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import ExchangePlan, packed_exchange, transports_to_try
from slipstream.engine.exchange.transport_registry import (
    RANKS_PER_NODE,
    chosen_transport,
    local_rank,
    make_transport,
    node_numbers,
    one_node,
)
from slipstream.engine.schedule import StepGraph, commit
from slipstream.fft import DistributedFFT
from slipstream.runs import make_simulation
from slipstream.show.solver_texts import description
from slipstream.spectral import problem_of_case as decomposition_choice

NODE_SIZES = (1, 2, 3)


@pytest.fixture
def set_nodes(monkeypatch):
    """Function that sets the ranks per node and returns the nodes of all ranks."""

    def tell(comm, per_node):
        monkeypatch.setenv(RANKS_PER_NODE, str(per_node))
        names = comm.allgather(platform.node())
        places = [names[:rank].count(name) // per_node for rank, name in enumerate(names)]
        nodes = list(zip(names, places, strict=True))
        return [list(dict.fromkeys(nodes)).index(node) for node in nodes]

    return tell


def test_ranks_know_who_shares_their_node(comm, device, ranks):
    names = [platform.node()] if comm is None else comm.allgather(platform.node())
    assert len(set(names)) == int(os.environ.get("SLIPSTREAM_TEST_NODES", len(set(names))))
    private_comm = own(comm, "test")
    assert local_rank(private_comm) == names[: 0 if comm is None else comm.rank].count(
        platform.node()
    )
    if ranks == 1 or device.kind != "cpu":
        return
    alone = len(set(names)) == 1
    assert one_node(private_comm) == alone
    assert chosen_transport("auto", private_comm, device) == ("peer" if alone else "mpi-p2p")
    memory = make_transport("peer", private_comm, device).memory
    assert memory.near == [name == platform.node() for name in names]
    assert memory.everywhere == alone


@pytest.mark.several_ranks
@pytest.mark.parametrize("per_node", NODE_SIZES)
def test_ranks_believe_what_they_are_told_of_nodes(comm, device, set_nodes, per_node):
    nodes, private_comm = set_nodes(comm, per_node), own(comm, "test")
    assert list(node_numbers(private_comm)) == nodes
    several = len(set(nodes)) > 1
    assert one_node(private_comm) != several
    if device.kind != "cpu":
        return
    assert chosen_transport("auto", private_comm, device) == ("mpi-p2p" if several else "peer")
    memory = make_transport("peer", private_comm, device).memory
    assert memory.near == [node == nodes[comm.rank] for node in nodes]
    # What aggregates is tried where there is something to aggregate, and never for large messages.
    tried = "mpi-hierarchical" in transports_to_try(private_comm, device, 4096)
    assert tried == (several and len(set(nodes)) < len(nodes))
    assert "mpi-hierarchical" not in transports_to_try(private_comm, device, 1 << 20)
    # What keeps data on a GPU is the same as others without one.
    named = [name for name in transports_to_try(private_comm, device, 1 << 20) if "device" in name]
    assert device.kind == "cuda" or not named


@pytest.mark.several_ranks
def test_pencils_of_a_node_replace_slabs_and_keep_the_bits(comm, device, set_nodes, monkeypatch):
    if device.kind != "cpu" or comm.size % 2 or comm.size < 4:
        pytest.skip("for an even number of CPUs, on two nodes or more")

    def simulated(**run):
        case = make_case(
            "spectral",
            grid={"points": 16},
            equation={"viscosity": 1e-2},
            initial={"flow": "taylor-green"},
            time={"end": 1.0, "step": 1e-2},
            run=run,
        )
        simulation = make_simulation(case, own(comm, "test"), device)
        simulation.prepare()
        simulation.advance(1e-2)
        return simulation

    digests = {simulated(decomposition="slab").digest()}
    if max(set_nodes(comm, comm.size)):
        return  # on several nodes already
    for name in ("_RANKS", "_RANKS_OF_NODE"):
        monkeypatch.setitem(getattr(decomposition_choice, name), "cpu", 2)
    alone = simulated()
    assert description(alone)["decomposition"] == "slabs of z planes"
    set_nodes(comm, 2)
    chosen = simulated()
    assert chosen.facts()["decomposition"].value == "pencil"
    assert "ranks along y and z" in description(chosen)["decomposition"]
    assert len(digests | {alone.digest(), chosen.digest()}) == 1


@pytest.mark.several_ranks
def test_what_is_no_number_of_ranks_is_refused_on_all(comm, device, monkeypatch):
    monkeypatch.setenv(RANKS_PER_NODE, "two" if comm.rank == 0 else "1")
    with pytest.raises(InputError, match="RANKS_PER_NODE is 'two'; accepted: a positive number"):
        chosen_transport("auto", comm, device)


@pytest.mark.parametrize("per_node", (None, *NODE_SIZES))
@pytest.mark.parametrize("division", [{}, {"layout": "pencil", "order": "natural"}])
def test_transports_agree_on_any_nodes(comm, device, ranks, division, set_nodes, per_node):
    oracle, results = Oracle((6, 12, 10), "float64"), []
    if per_node and ranks > 1:
        set_nodes(comm, per_node)
    names = ("auto", "peer", "mpi-p2p", "mpi-hierarchical")
    for transport in names if ranks > 1 and device.kind == "cpu" else ():
        fft = DistributedFFT((6, 12, 10), comm=comm, device=device, transport=transport, **division)
        modes = fft.forward(oracle.input(fft))
        oracle.assert_modes(fft, modes)
        results.append((modes.tobytes(), fft.backward(oracle.output(fft)).tobytes()))
    assert len(set(results)) <= 1


@pytest.mark.several_ranks
@pytest.mark.parametrize("per_node", NODE_SIZES)
@pytest.mark.parametrize("name", ["peer", "mpi-p2p", "mpi-hierarchical"])
def test_any_blocks_arrive_on_any_nodes(comm, device, ranks, transports, set_nodes, name, per_node):
    """Boxes cut anywhere, some empty: two arrays there and back, again and again."""
    if name not in transports:
        pytest.skip("needs one GPU for every rank")
    set_nodes(comm, per_node)
    transport, shape = make_transport(name, comm, device), (5, 4, 3)

    def check(sources, targets):
        plan = ExchangePlan.redistribution(sources, targets, comm.rank)
        triples = [
            [transport.empty((n,), "float64") for n in (plan.send_size, plan.receive_size)]
            + [transport.empty((plan.send_size,), "float64")]
            for _ in range(2)
        ]
        graph = StepGraph(device)
        for part in plan.split(2):
            pairs = [(source, target) for source, target, _ in triples]
            packed_exchange(transport, part, pairs).record_close(graph, "there")
        pairs = [(target, back) for _, target, back in triples]
        packed_exchange(transport, plan.reversed(), pairs).record_close(graph, "back")
        step = commit(graph, "overlap")
        for turn in range(2):
            sent = [100.0 * turn + number + comm.rank for number in range(2)]
            for (source, _, back), value in zip(triples, sent, strict=True):
                device.run(device.fill(source, value))
                device.run(device.fill(back, -1.0))
            step.run()
            device.synchronize()
            for number, (source, target, back) in enumerate(triples):
                senders = [np.full(block.count, block.peer) for block in plan.receives]
                expected = np.concatenate([[], *senders]) + (sent[number] - comm.rank)
                np.testing.assert_array_equal(device.to_host(target), expected)
                np.testing.assert_array_equal(device.to_host(back), device.to_host(source))

    @alike(4)
    @given(st.tuples(bricks(shape, ranks), bricks(shape, ranks)))
    def examples(boxes):
        together(comm, check, *boxes)

    examples()


@pytest.mark.several_ranks
@pytest.mark.parametrize("per_node", NODE_SIZES)
def test_messages_are_counted_as_they_are_sent(comm, device, ranks, set_nodes, per_node):
    nodes = set_nodes(comm, per_node)
    plan = ExchangePlan.redistribution(
        slabs((ranks, ranks, 2), 0, ranks), slabs((ranks, ranks, 2), 1, ranks), comm.rank
    )
    elsewhere = [node != nodes[comm.rank] for node in nodes]
    sent = {}
    for name in ("mpi-p2p", "mpi-hierarchical"):
        transport = make_transport(name, comm, device)
        pair = [transport.empty((2 * ranks,), "float64") for _ in range(2)]
        sent[name] = transport.prepare(plan, [pair], whole=True).messages()
    assert sorted(sent["mpi-p2p"]) == [(peer, 16) for peer in range(ranks) if peer != comm.rank]
    # Every pair of ranks on two nodes is served by one message of their nodes.
    leaving = [[size for peer, size in one if elsewhere[peer]] for one in sent.values()]
    totals = [comm.allreduce(np.array([len(sizes), sum(sizes)])) for sizes in leaving]
    count, apart = len(set(nodes)), sum(node != other for node in nodes for other in nodes)
    assert totals[0].tolist() == [apart, 16 * apart]
    assert totals[1].tolist() == [count * (count - 1), 16 * apart]
