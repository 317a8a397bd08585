"""Common parts of tests of committed steps: a transfer without ranks, devices and policies."""

import numpy as np
import pytest

from flows import PATIENCE
from slipstream.engine.device import HostDevice
from slipstream.engine.schedule import POLICIES


def device_of(threads):
    """Return a device with this number of threads, and lanes for chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", str(threads))
        return HostDevice()


# With one lane and with several, `serial` is done by different classes.
DEVICES = [device_of(1), device_of(3)]
ON_ALL_DEVICES = pytest.mark.parametrize("device", DEVICES, ids=["one lane", "three lanes"])
WITH_EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES)


def compute(graph, operation, label, device=None, **options):
    """Add an operation of the category "compute" to a graph."""
    graph.add(operation, label=label, category="compute", device=device, **options)


def meet(own_event, other):
    """Return an operation that ends only after the other one has begun."""

    def operation(stream):
        own_event.set()
        assert other.wait(PATIENCE)

    return operation


class FakeTransfer:
    """Copies when it completes: whoever touches its arrays before shows in the result."""

    def __init__(self, pairs, polls=0, ordered=False, log=None, name=None):
        self.pairs, self.polls, self.ordered = pairs, polls, ordered
        self.log, self.name, self.left = [] if log is None else log, name, None

    def give_up(self, failure):
        self.log.append(("give up", self.name))

    def start(self):
        self.log.append(("start", self.name))
        self.left = self.polls
        for _, target in self.pairs:
            target[...] = np.nan

    def test(self):
        assert self.left is not None, "tested before it was started, or once more when it was done"
        if self.left:
            self.left -= 1
            return False
        self.left = None
        self.log.append(("stop", self.name))
        for source, target in self.pairs:
            target[...] = source
        return True
