"""Which ranks share a node, and transforms by ranks of which only some do.

All are on one node here; `tests/test_ranks.py` runs this on several host names, too.
"""

import os
import platform

import pytest

from fft_oracle import Oracle
from slipstream.collective import own
from slipstream.exchange.communicators import local_rank, one_node
from slipstream.exchange.transport_registry import chosen_transport, make_transport
from slipstream.fft import DistributedFFT


def test_ranks_know_who_shares_their_node(comm, device, ranks):
    names = [platform.node()] if comm is None else comm.allgather(platform.node())
    assert len(set(names)) == int(os.environ.get("SLIPSTREAM_TEST_NODES", len(set(names))))
    mine = own(comm, "test")
    assert local_rank(mine) == names[: 0 if comm is None else comm.rank].count(platform.node())
    if ranks == 1 or device.kind != "cpu":
        return
    alone = len(set(names)) == 1
    assert one_node(mine) == alone
    assert chosen_transport("auto", mine, device) == ("peer" if alone else "mpi-p2p")
    memory = make_transport("peer", mine, device).memory
    assert memory.near == [name == platform.node() for name in names]
    assert memory.everywhere == alone


@pytest.mark.parametrize("division", [{}, {"layout": "pencil", "order": "natural"}])
def test_transports_give_the_same_bits_whoever_shares_a_node(comm, device, ranks, division):
    oracle, results = Oracle((6, 12, 10), "float64"), []
    for transport in ("auto", "peer", "mpi-p2p") if ranks > 1 and device.kind == "cpu" else ():
        fft = DistributedFFT((6, 12, 10), comm=comm, device=device, transport=transport, **division)
        modes = fft.forward(oracle.input(fft))
        oracle.assert_modes(fft, modes)
        results.append((modes.tobytes(), fft.backward(oracle.output(fft)).tobytes()))
    assert len(set(results)) <= 1
