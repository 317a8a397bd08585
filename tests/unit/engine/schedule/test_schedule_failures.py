"""Committed steps that fail, or wait for nothing: the node is named, and nothing more runs."""

import itertools
import time

import numpy as np
import pytest

from fake_transfer import DEVICES, ON_ALL_DEVICES, WITH_EVERY_POLICY, FakeTransfer
from slipstream.engine.collective import timeout
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.schedule import StepGraph, commit

DEVICE = DEVICES[1]


class Never(FakeTransfer):
    """Does not complete, and is all that takes time, by a private clock."""

    def __init__(self, pairs, clock):
        super().__init__(pairs)
        self.clock = clock

    def test(self):
        self.clock[0] += 0.01
        return False


@pytest.fixture
def clock(monkeypatch):
    """The seconds that are over, which are what tests say: load makes nobody late."""
    seconds = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: seconds[0])
    return seconds


class Broken(FakeTransfer):
    """Fails when one of its methods is called."""

    def __init__(self, pairs, method):
        super().__init__(pairs)
        setattr(self, method, self.fail)

    def fail(self):
        raise ConnectionError("cable cut")


@ON_ALL_DEVICES
@WITH_EVERY_POLICY
@pytest.mark.parametrize("lane", ["compute", "copy out"])
@pytest.mark.parametrize("failure", [ValueError("no luck"), InputError("no luck")])
@pytest.mark.parametrize("before_transfer", [True, False])
def test_failing_operation_is_named(device, policy, lane, failure, before_transfer):
    a, b, c = (np.zeros(4) for _ in range(3))
    graph, broken = StepGraph(device), [True]

    def operation(stream):
        if broken:
            raise failure

    if before_transfer:
        graph.add(operation, writes=[a], label="pack", category="pack", lane=lane)
    graph.add_transfer(FakeTransfer([(a, b)]), reads=[a], writes=[b], label="send")
    if not before_transfer:
        graph.add(operation, reads=[b], writes=[c], label="pack", category="pack", lane=lane)
    step = commit(graph, policy)
    with pytest.raises(RunError, match="node 'pack' \\(pack\\) failed: no luck"):
        step.run()
    broken.clear()
    step.run()  # reported errors are cleared


@ON_ALL_DEVICES
@WITH_EVERY_POLICY
@pytest.mark.parametrize("method", ["start", "test"])
def test_failing_transfer_is_named(device, policy, method):
    a, b = np.zeros(4), np.zeros(4)
    graph = StepGraph(device)
    graph.add_transfer(Broken([(a, b)], method), reads=[a], writes=[b], label="send")
    with pytest.raises(RunError, match="node 'send' \\(communication\\) failed: cable cut"):
        commit(graph, policy).run()


def test_nothing_runs_any_more_when_a_failure_is_raised():
    """Who catches it may save what the arrays hold."""
    a, b, c = np.zeros(4), np.zeros(4), np.zeros(4)
    graph = StepGraph(DEVICE)

    def slowly(stream):
        time.sleep(0.05)
        a[...] = 1

    graph.add(slowly, writes=[a], label="work", category="compute")
    graph.add_transfer(Broken([(b, c)], "test"), reads=[b], writes=[c], label="send")
    with pytest.raises(RunError, match="'send'"):
        commit(graph, "overlap").run()
    assert (a == 1).all()


def test_unknown_policy_is_an_error_that_names_those_accepted():
    with pytest.raises(InputError, match="'eager' is unknown; accepted: serial, overlap"):
        commit(StepGraph(DEVICE), "eager")


@ON_ALL_DEVICES
@WITH_EVERY_POLICY
def test_a_transfer_that_does_not_complete_is_given_up_in_one_line(
    device, policy, monkeypatch, clock
):
    monkeypatch.setenv("SLIPSTREAM_TIMEOUT", "0.05")
    a, b, c, d = (np.zeros(4) for _ in range(4))
    graph = StepGraph(device)
    graph.add_transfer(FakeTransfer([(a, b)]), reads=[a], writes=[b], label="quick")
    graph.add_transfer(Never([(b, c)], clock), reads=[b], writes=[c], label="transpose")
    graph.add(lambda stream: d.fill(1), reads=[c], writes=[d], label="last", category="compute")
    with pytest.raises(RunError) as caught:
        commit(graph, policy).run()
    assert 0.05 < clock[0] < 0.08
    assert str(caught.value) == (
        "exchange 'transpose' has waited for 0.05 s: a rank has died or takes another path; "
        "set SLIPSTREAM_TIMEOUT to wait longer"
    )
    assert not d.any()


@ON_ALL_DEVICES
@WITH_EVERY_POLICY
def test_only_the_time_from_a_transfers_start_counts(device, policy, monkeypatch, clock):
    monkeypatch.setenv("SLIPSTREAM_TIMEOUT", "0.5")
    arrays = [np.zeros(4) for _ in range(4)]
    graph = StepGraph(device)

    def work(stream):
        clock[0] += 0.3

    for a, b in itertools.pairwise(arrays):
        graph.add(work, writes=[a], label="work", category="compute")
        graph.add_transfer(FakeTransfer([(a, b)], 3), reads=[a], writes=[b], label="send")
    commit(graph, policy).run()


@WITH_EVERY_POLICY
@pytest.mark.parametrize("text", ["", "soon", "0", "-1", "nan", "inf"])
def test_a_timeout_that_is_none_is_refused_before_anything_runs(policy, text, monkeypatch):
    a, b = np.zeros(4), np.zeros(4)
    log, graph = [], StepGraph(DEVICE)
    graph.add(lambda stream: log.append(1), writes=[a], label="work", category="compute")
    graph.add_transfer(FakeTransfer([(a, b)], 0, False, log), reads=[a], writes=[b], label="send")
    step = commit(graph, policy)
    monkeypatch.setenv("SLIPSTREAM_TIMEOUT", text)
    with pytest.raises(InputError, match=f"SLIPSTREAM_TIMEOUT is '{text}'; accepted: a positive"):
        step.run()
    assert log == []
    monkeypatch.delenv("SLIPSTREAM_TIMEOUT")
    assert timeout() == 600
