"""Committed steps: every policy gives the bits of the serial one.

A step is in order with the stream that it runs on.
"""

import itertools
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_transfer import DEVICES, ON_ALL_DEVICES, WITH_EVERY_POLICY, FakeTransfer, compute
from flows import PATIENCE
from random_steps import OPERATIONS, TRANSFERS, build, in_order, initial
from slipstream.engine.device import HostDevice
from slipstream.engine.device.cpu_device import HostEvent, HostStream
from slipstream.engine.errors import RunError
from slipstream.engine.schedule import POLICIES, StepGraph, commit

DEVICE = DEVICES[1]


@pytest.mark.slow
@settings(max_examples=150)
@given(st.lists(st.one_of(OPERATIONS, TRANSFERS), max_size=14), st.booleans())
def test_overlap_is_bitwise_serial(recipes, profile):
    """Also the second run, which must not begin before the first has ended."""
    expected = in_order(recipes, 2, initial())
    for device, policy in itertools.product(DEVICES, POLICIES):
        memory, log = initial(), []
        step = commit(build(device, recipes, memory, log), policy)
        step.run(profile)
        step.run()
        assert memory.tobytes() == expected.tobytes()
        ordered = [n for n, recipe in enumerate(recipes) if recipe.get("ordered")]
        assert [n for kind, n in log if kind == "start" and n in ordered] == ordered * 2
        assert len(step.timeline.entries) == len(recipes) * profile


def test_transfers_complete_out_of_order_and_only_dependents_wait():
    a, b, c, d = (np.zeros(4) for _ in range(4))
    log, graph = [], StepGraph(DEVICE)
    slow = FakeTransfer([(a, b)], 9, False, log, "slow")
    quick = FakeTransfer([(c, d)], 0, False, log, "quick")
    graph.add_transfer(slow, reads=[a], writes=[b], label="slow")
    graph.add(lambda stream: log.append("after slow"), reads=[b], label="b", category="compute")
    graph.add_transfer(quick, reads=[c], writes=[d], label="quick")
    commit(graph, "overlap").run()
    assert log == [
        ("start", "slow"),
        ("start", "quick"),
        ("stop", "quick"),
        ("stop", "slow"),
        "after slow",
    ]
    log.clear()
    commit(graph, "serial").run()
    assert log == [
        ("start", "slow"),
        ("stop", "slow"),
        "after slow",
        ("start", "quick"),
        ("stop", "quick"),
    ]


def test_ordered_transfers_start_in_recorded_order_even_if_a_later_one_is_ready_first():
    a, b, c, d, e = (np.zeros(4) for _ in range(5))
    log, graph = [], StepGraph(DEVICE)
    graph.add_transfer(FakeTransfer([(a, b)], 5, False, log, "x"), reads=[a], writes=[b], label="x")
    for name, source, target in (("first", b, c), ("second", d, e)):
        transfer = FakeTransfer([(source, target)], 0, True, log, name)
        graph.add_transfer(transfer, reads=[source], writes=[target], label=name)
    commit(graph, "overlap").run()
    assert [name for kind, name in log if kind == "start"] == ["x", "first", "second"]


def test_messages_that_a_device_orders_are_issued_in_recorded_order():
    """As other ranks do it: NCCL matches messages by their order."""
    a, b, c, d, e = (np.zeros(4) for _ in range(5))
    log, graph = [], StepGraph(DEVICE)
    graph.add_transfer(FakeTransfer([(a, b)], 5), reads=[a], writes=[b], label="slow")
    for name, source, target in (("first", b, c), ("second", d, e)):
        graph.add(
            lambda stream, name=name: log.append(name),
            reads=[source],
            writes=[target],
            label=name,
            category="communication",
            lane="messages",
        )
    # What feeds a transfer comes first, but not before the messages that come before it.
    graph.add_transfer(FakeTransfer([(e, a)]), reads=[e], writes=[a], label="urgent")
    commit(graph, "overlap").run()
    assert log == ["first", "second"]


def test_independent_work_runs_while_a_transfer_is_in_flight():
    """The transfer completes only once the operation has run: no other schedule could end."""
    a, b, c = (np.zeros(4) for _ in range(3))
    ran, graph = [], StepGraph(DEVICE)
    transfer = FakeTransfer([(a, b)])
    transfer.test = lambda: bool(ran)
    graph.add_transfer(transfer, reads=[a], writes=[b], label="send")
    graph.add(lambda stream: ran.append(1), writes=[c], label="work", category="compute")
    commit(graph, "overlap").run()
    assert ran == [1]


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.one_of(OPERATIONS, TRANSFERS), max_size=6), st.booleans())
def test_a_step_comes_between_what_its_stream_does_before_and_after(recipes, profile):
    """Also if it begins with a transfer, which the host starts."""
    expected = initial() * 2
    expected = in_order(recipes, 2, expected) + 1
    for device, policy in itertools.product(DEVICES, POLICIES):
        memory, stream = initial(), device.stream()
        step = commit(build(device, recipes, memory, []), policy)
        stream.submit(lambda stream: time.sleep(1e-3))
        stream.submit(lambda stream, memory=memory: np.multiply(memory, 2, out=memory))
        step.run(profile, stream)
        step.run(stream=stream)
        stream.submit(lambda stream, memory=memory: np.add(memory, 1, out=memory))
        step.synchronize()
        stream.synchronize()
        assert memory.tobytes() == expected.tobytes()


@ON_ALL_DEVICES
@WITH_EVERY_POLICY
@pytest.mark.parametrize("transfer", [True, False])
def test_what_failed_in_the_stream_before_keeps_the_step_from_running(device, policy, transfer):
    a, b = np.zeros(4), np.ones(4)
    log, graph, stream = [], StepGraph(device), device.stream()
    if transfer:
        graph.add_transfer(FakeTransfer([(a, b)], log=log), reads=[a], writes=[b], label="send")
    else:
        graph.add(log.append, reads=[a], writes=[b], label="work", category="compute")
    stream.submit(lambda stream: np.array(["no luck"], float))
    with pytest.raises((RunError, ValueError), match="no luck"):
        commit(graph, policy).run(stream=stream)
    # The other ranks have started theirs, and must not wait for this one.
    assert log == ([("give up", None)] if transfer else [])


class CapturingStream(HostStream):
    """Captures as a CUDA stream does: nothing runs. A replay keeps the order of submission."""

    captured = None

    def submit(self, operation):
        if CapturingStream.captured is None:
            super().submit(operation)
        else:
            CapturingStream.captured.append(operation)

    def record(self):
        if CapturingStream.captured is None:
            return super().record()
        event = HostEvent()
        event.set()
        return event

    def wait(self, event):
        if CapturingStream.captured is None:
            super().wait(event)

    def capture(self, enqueue):
        operations = CapturingStream.captured = []
        try:
            enqueue()
        finally:
            CapturingStream.captured = None
        return lambda stream: [operation(stream) for operation in operations]


class CapturingDevice(HostDevice):
    """A CPU whose steps are committed as those of a GPU."""

    kind = "cuda"
    has_graphs = True

    def stream(self, urgent=False):
        return CapturingStream()


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(OPERATIONS, max_size=8), st.lists(st.booleans(), max_size=4))
def test_a_captured_step_is_in_order_with_every_stream_that_it_runs_on(recipes, profiled):
    device, memory = CapturingDevice(), initial()
    step = commit(build(device, recipes, memory, []), "overlap")
    for profile in profiled:
        stream = device.stream()
        stream.submit(lambda stream: time.sleep(1e-3))
        stream.submit(lambda stream: np.multiply(memory, 2, out=memory))
        step.run(profile, stream)
        stream.submit(lambda stream: np.add(memory, 1, out=memory))
        step.synchronize()
        stream.synchronize()
    step.run()
    expected = initial()
    for _ in profiled:
        expected = in_order(recipes, 1, expected * 2) + 1
    assert memory.tobytes() == in_order(recipes, 1, expected).tobytes()
    assert len(step.timeline.entries) == len(recipes) * sum(profiled)


def test_synchronize_gives_up_on_work_that_the_device_orders(monkeypatch):
    monkeypatch.setenv("SLIPSTREAM_TIMEOUT", "0.05")
    device, gate = CapturingDevice(), threading.Event()
    graph, stream = StepGraph(device), device.stream()
    graph.add(
        lambda stream: gate.wait(PATIENCE),
        writes=[np.zeros(4)],
        label="send",
        category="communication",
    )
    step = commit(graph, "overlap")
    step.synchronize()  # nothing has run: nothing is waited for
    step.run(stream=stream)
    with pytest.raises(RunError, match="the step has waited for 0.05 s: a rank has died"):
        step.synchronize()
    gate.set()
    stream.synchronize()
    step.synchronize()


def test_synchronize_raises_what_failed_on_the_device():
    device = CapturingDevice()
    graph, stream = StepGraph(device), device.stream()
    compute(graph, lambda stream: np.array(["no luck"], float), "work", writes=[np.zeros(4)])
    step = commit(graph, "overlap")
    step.run(stream=stream)
    with pytest.raises(RunError, match="node 'work' \\(compute\\) failed: .*no luck"):
        step.synchronize()
