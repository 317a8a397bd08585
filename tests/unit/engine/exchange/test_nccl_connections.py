"""NCCL connects the ranks that an exchange needs, each pair once; NCCL itself is a stub."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from slipstream.engine.exchange.nccl_transport import ConnectedRanks


class StubDevice:
    def zeros(self, shape, dtype):
        return np.zeros(shape, dtype)

    def run(self, operation):
        operation(SimpleNamespace(handle=SimpleNamespace(ptr=0)))


class StubComm:
    """Notes messages: sender, receiver, and bytes."""

    def __init__(self):
        self.sent, self.received = [], []

    def send(self, pointer, size, kind, peer, stream):
        self.sent.append((peer, size, pointer))

    def recv(self, pointer, size, kind, peer, stream):
        self.received.append((peer, size, pointer))


@pytest.fixture
def groups(monkeypatch):
    """Stand for NCCL, and return which group calls were made."""
    calls = []
    nccl = ModuleType("cupy.cuda.nccl")
    nccl.NCCL_UINT8 = 1
    nccl.groupStart, nccl.groupEnd = lambda: calls.append("start"), lambda: calls.append("end")
    cuda = ModuleType("cupy.cuda")
    cuda.nccl = nccl
    for name, module in (("cupy", ModuleType("cupy")), ("cupy.cuda", cuda), (nccl.__name__, nccl)):
        monkeypatch.setitem(sys.modules, name, module)
    return calls


def test_only_peers_of_exchanges_are_connected_and_each_once(groups):
    comm = StubComm()
    ranks = ConnectedRanks(comm, 1000, StubDevice())
    assert not groups
    ranks.connect({999, 3})
    ranks.connect({3, 4})
    ranks.connect({4, 999})
    ranks.connect(set())
    assert [peer for peer, _, _ in comm.sent] == [3, 999, 4]
    assert [peer for peer, _, _ in comm.received] == [3, 999, 4]
    assert groups == ["start", "end"] * 2
    # No two messages share a byte.
    places = [place for _, _, place in comm.sent + comm.received]
    assert len(set(places)) == len(places)
    assert {size for _, size, _ in comm.sent + comm.received} == {1}
