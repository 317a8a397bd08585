"""Shared memory of ranks on CPUs: it is freed, may be partial, and no exchanges mix."""

import gc
import os
import platform
import random
import time

import numpy as np
import pytest

from fft_oracle import Oracle
from slipstream.engine.collective import own
from slipstream.engine.decomposition import slabs
from slipstream.engine.device import HostDevice
from slipstream.engine.exchange import ExchangePlan, packed_exchange
from slipstream.engine.exchange.peer_memory import SharedArrays
from slipstream.engine.exchange.peer_transport import PeerTransport
from slipstream.engine.exchange.transport_registry import RANKS_PER_NODE, make_transport
from slipstream.engine.fft import fft_plan
from slipstream.engine.schedule import POLICIES, StepGraph, commit
from slipstream.fft import DistributedFFT

pytestmark = pytest.mark.usefixtures("quick_collector")

SHAPE = (6, 12, 10)


@pytest.fixture(autouse=True)
def _several_ranks_of_cpus(ranks, device):
    if ranks == 1 or device.kind != "cpu":
        pytest.skip("needs several ranks on CPUs")


def mapped():
    """Return how many shared buffers of anybody's memory this process has mapped."""
    with open("/proc/self/maps") as file:
        return sum("memfd:slipstream" in line for line in file)


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("division", [{}, {"layout": "pencil", "order": "natural"}])
def test_memory_of_plans_that_are_gone_is_freed(comm, device, division):
    def use_a_plan():
        fft = DistributedFFT(SHAPE, comm=comm, device=device, transport="peer", **division)
        fft.backward(fft.forward(fft.empty_input()))

    used = []
    for _ in range(20):
        use_a_plan()
        gc.collect()
        used.append((mapped(), open_files()))
    # What the last plan leaves is freed by the next one: the use is steady, not growing.
    assert used[5:] == [used[5]] * 15


def test_plans_keep_no_file_open(comm, device):
    """A process may have a thousand, and each rank would need some for every plan."""

    def make():
        return DistributedFFT(SHAPE, comm=comm, device=device, transport="peer", layout="pencil")

    plans = [make()]
    before = open_files()
    plans += [make() for _ in range(8)]
    assert open_files() == before
    plans[-1].forward(plans[-1].empty_input())
    assert open_files() == before


def test_arrays_live_as_long_as_anything_uses_them(comm, device):
    transport = make_transport("peer", comm, device)
    before = mapped()
    array = transport.empty((1000,), np.float64)
    part = array.reshape(10, 100)[3:5].view(np.complex128)
    array[...] = comm.rank
    del array
    gc.collect()
    for _ in range(3):
        transport.empty((1000,), np.float64)[...] = np.nan
    assert (part.view(np.float64) == comm.rank).all()
    del part
    gc.collect()
    transport.empty((1,), np.float64)
    assert mapped() <= before + comm.size


def test_plans_on_other_devices_record_the_same_kind_of_step(comm):
    """Whichever device came first, nodes of a plan are on one device, the plan's own."""
    same = HostDevice(threads=1)
    kinds = set()
    for device in ("cpu", HostDevice(threads=1), same, same, "cpu"):
        fft = DistributedFFT(SHAPE, comm=comm, device=device, transport="peer", schedule="overlap")
        u, u_hat = fft.empty_input(), fft.empty_output()
        u[...] = 1
        fft.forward(u, u_hat)
        step = fft._steps[True].find(u, u_hat)
        assert {node.device for node in step.nodes} == {fft.device}
        assert fft._plan.transport.device == fft.device
        if device != "cpu":
            kinds.add(type(step))
    assert len(kinds) == 1


def partial_peers(comm, device, reachable):
    """Return a peer transport that reaches some ranks only, and what takes the rest."""

    def make_far():
        return make_transport("mpi-p2p", mine, device)

    mine = own(comm, "transport")
    return PeerTransport(mine, device, SharedArrays(mine, device, reachable), make_far)


REACHABLE = {
    "nobody else": lambda one, other: one == other,
    "ranks of the same parity": lambda one, other: (one + other) % 2 == 0,
    "all but the first": lambda one, other: one == other or 0 not in (one, other),
}


@pytest.mark.parametrize("reachable", REACHABLE.values(), ids=REACHABLE)
@pytest.mark.parametrize("division", [{}, {"layout": "pencil", "order": "natural"}])
def test_ranks_out_of_reach_take_another_transport_with_the_same_bits(
    comm, device, monkeypatch, division, reachable
):
    oracle, results = Oracle(SHAPE, "float64"), []
    for partial in (False, True):
        if partial:
            transport = partial_peers(comm, device, lambda other: reachable(comm.rank, other))
            nodes = comm.allgather(platform.node())
            near = [reachable(comm.rank, r) and n == platform.node() for r, n in enumerate(nodes)]
            assert transport.memory.near == near
            monkeypatch.setattr(fft_plan, "make_transport", lambda *_, made=transport: made)
        fft = DistributedFFT(SHAPE, comm=comm, device=device, transport="peer", **division)
        for _ in range(3):
            modes, points = fft.forward(oracle.input(fft)), fft.backward(oracle.output(fft))
        results.append((modes, points))
    for whole, partial in zip(*results, strict=True):
        assert whole.tobytes() == partial.tobytes()
    oracle.assert_modes(fft, modes)


def test_only_the_transports_own_arrays_can_be_exchanged(comm, device):
    transport = make_transport("peer", comm, device)
    exchanged = ExchangePlan.redistribution(
        slabs((8, 8), 0, comm.size), slabs((8, 8), 1, comm.size), comm.rank
    )
    local = transport.empty((exchanged.send_size,), np.float64)
    foreign = device.empty((exchanged.receive_size,), np.float64)
    if all(box.size for box in slabs((8, 8), 1, comm.size)):
        with pytest.raises(ValueError, match="empty()"):
            transport.prepare(exchanged, [(local, foreign)])
        comm.Barrier()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("transport", ["peer", "mpi-p2p", "mpi", "mpi-hierarchical"])
def test_exchanges_of_ranks_that_dawdle_never_mix(comm, device, policy, transport, monkeypatch):
    """Each rank waits at different times; received data always belong to the same turn."""
    if transport == "mpi-hierarchical":
        monkeypatch.setenv(RANKS_PER_NODE, str(-(-comm.size // 2)))
    shape, rank = (8, 3, 9), comm.rank
    planes, columns = slabs(shape, 0, comm.size), slabs(shape, 1, comm.size)
    there = ExchangePlan.redistribution(planes, columns, rank)
    made = make_transport(transport, comm, device)
    first, middle, last = (
        made.empty((size,), np.int64)
        for size in (there.send_size, there.receive_size, there.send_size)
    )
    graph = StepGraph(device)
    for part in there.split(2):
        packed_exchange(made, part, [(first, middle)]).record_close(graph, "there")
    packed_exchange(made, there.reversed(), [(middle, last)]).record_close(graph, "back")
    step, generator = commit(graph, policy), random.Random(rank)
    senders = np.concatenate([np.full(b.count, b.peer) for b in there.receives] or [[]])
    for turn in range(200):
        if generator.random() < 0.2:
            time.sleep(generator.random() * 2e-3)
        first[:] = 1000 * turn + rank
        step.run()
        # No barrier: others may be in their next turn already.
        np.testing.assert_array_equal(middle, 1000 * turn + senders)
        np.testing.assert_array_equal(last, 1000 * turn + rank)
