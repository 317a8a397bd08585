"""Steps on several devices: they run side by side, and wait for each other where they must.

Threads meet by events that they wait for, never by time: a test of overlap that ran serially would
wait for ever, and fails by the time limit of a wait.
"""

import itertools
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_transfer import WITH_EVERY_POLICY, FakeTransfer, compute, meet
from flows import PATIENCE
from random_steps import OPERATIONS, TRANSFERS, build, in_order, initial
from slipstream.engine.device import HostDevice, RowLaunch
from slipstream.engine.errors import RunError
from slipstream.engine.schedule import POLICIES, StepGraph, commit
from slipstream.engine.schedule.committed_steps import CapturedStep
from slipstream.engine.schedule.overlap_executor import Patience


class AsGpu(HostDevice):
    """A CPU that calls itself a GPU, to distinguish devices of one rank."""

    kind = "cuda"


class SameGpu(AsGpu):
    """Objects that all mean one GPU, as those of CUDA with the same ordinal."""

    has_graphs = True

    def __eq__(self, other):
        return isinstance(other, SameGpu)

    def __hash__(self):
        return 0

    def stream(self, urgent=False):
        stream = super().stream(urgent)
        stream.capture = lambda enqueue: lambda stream: enqueue()
        return stream


FIRST, SECOND = HostDevice(threads=1), HostDevice(threads=3)
DEVICES = [FIRST, SECOND]


ON_DEVICES = OPERATIONS.flatmap(
    lambda recipe: st.sampled_from(DEVICES).map(lambda device: {**recipe, "device": device})
)


@pytest.mark.slow
@settings(max_examples=100)
@given(st.lists(st.one_of(ON_DEVICES, ON_DEVICES, TRANSFERS), max_size=10), st.booleans())
def test_steps_on_two_devices_give_the_bits_of_a_plain_loop(recipes, profile):
    expected = in_order(recipes, 2, initial())
    for home, policy in itertools.product(DEVICES, POLICIES):
        memory = initial()
        step = commit(build(home, recipes, memory), policy)
        step.run(profile)
        step.run()
        assert memory.tobytes() == expected.tobytes()
        assert len(step.timeline.entries) == len(recipes) * profile


# A device with a single thread has no worker in addition to the thread that schedules.
WORKING = HostDevice(threads=2, lanes=1), SECOND


@WITH_EVERY_POLICY
@pytest.mark.parametrize("home", WORKING, ids=["one lane", "three lanes"])
def test_devices_run_side_by_side_even_in_lanes_of_one_name(policy, home):
    graph, events = StepGraph(home), [threading.Event(), threading.Event()]
    for device, mine, other in zip(WORKING, events, reversed(events), strict=True):
        compute(graph, meet(mine, other), "work", device, writes=[np.zeros(4)])
    commit(graph, policy).run()


@WITH_EVERY_POLICY
@pytest.mark.parametrize("devices", [DEVICES, DEVICES[::-1]], ids=["there", "back"])
def test_a_device_waits_for_what_another_one_writes_and_reads(policy, devices):
    first, other = devices
    a, b, seen = np.zeros(4), np.zeros(4), []

    def slowly(stream):
        time.sleep(0.05)
        a[...] = 1

    def read_slowly(stream):
        time.sleep(0.05)
        seen.append(b.copy())

    graph = StepGraph(FIRST)
    compute(graph, slowly, "write", first, writes=[a])
    compute(
        graph, lambda stream: np.copyto(b, 2 * a), "after a write", other, reads=[a], writes=[b]
    )
    compute(graph, read_slowly, "read", first, reads=[b])
    compute(graph, lambda stream: b.fill(7), "after a read", other, writes=[b])
    step = commit(graph, policy)
    for _ in range(2):
        a[...] = b[...] = 0
        step.run()
        assert (seen.pop() == 2).all()
        assert (b == 7).all()


def profiled(device_and_category_and_lane):
    """Return the times of operations in a serial step of operations without dependencies."""
    graph = StepGraph(WORKING[0])
    for number, (device, category, lane) in enumerate(device_and_category_and_lane):
        graph.add(
            lambda stream: time.sleep(0.02),
            writes=[np.zeros(4)],
            label=str(number),
            category=category,
            lane=lane,
            device=device,
        )
    step = commit(graph, "serial")
    step.run(profile=True)
    return sorted(step.timeline.entries, key=lambda entry: int(entry.label))


def test_the_serial_schedule_overlaps_no_lanes_of_a_device_beside_others():
    lanes = [(device, "copy", lane) for lane in ("copy in", "copy out") for device in WORKING]
    entries = profiled(lanes)
    for before, after in zip(entries[:2], entries[2:], strict=True):
        assert before.stop <= after.start


def test_what_devices_order_between_ranks_has_the_serial_schedule_to_itself():
    work = [(device, "compute", "compute") for device in WORKING]
    entries = profiled([*work, (WORKING[0], "communication", "communication"), *work])
    exchange = entries[2]
    assert all(entry.stop <= exchange.start for entry in entries[:2])
    assert all(exchange.stop <= entry.start for entry in entries[3:])


def test_who_waits_for_another_device_keeps_nobody_else_waiting():
    """The first operation ends only when the last one, on the waiting device, has run."""
    a, b, ran = np.zeros(4), np.zeros(4), threading.Event()
    graph = StepGraph(WORKING[0])

    def until_then(stream):
        assert ran.wait(PATIENCE)

    compute(graph, until_then, "first", WORKING[0], writes=[a])
    compute(graph, lambda stream: None, "dependent", SECOND, reads=[a])
    compute(graph, lambda stream: ran.set(), "independent", SECOND, writes=[b], lane="another")
    commit(graph, "overlap").run()


@WITH_EVERY_POLICY
def test_devices_take_turns_around_a_transfer(policy):
    a, b, c, d = (np.zeros(4) for _ in range(4))
    graph = StepGraph(FIRST)

    def slowly(stream):
        time.sleep(0.02)
        a[...] += 1

    compute(graph, slowly, "make", SECOND, reads=[a], writes=[a])
    graph.add_transfer(FakeTransfer([(a, b)], 3), reads=[a], writes=[b], label="send")
    compute(graph, lambda stream: np.add(b, 1, out=c), "use", FIRST, reads=[b], writes=[c])
    compute(graph, lambda stream: np.add(c, 1, out=d), "use again", SECOND, reads=[c], writes=[d])
    step = commit(graph, policy)
    for number in (1, 2, 3):
        step.run()
        assert [array[0] for array in (a, b, c, d)] == [number, number, number + 1, number + 2]


@WITH_EVERY_POLICY
@pytest.mark.parametrize("home", DEVICES, ids=["one lane", "three lanes"])
@pytest.mark.parametrize("failing", DEVICES, ids=["first", "second"])
@pytest.mark.parametrize("depends", [True, False])
def test_a_failure_on_any_device_is_named_when_all_have_ended(policy, home, failing, depends):
    a, b, c = (np.zeros(4) for _ in range(3))
    (healthy,) = [device for device in DEVICES if device is not failing]
    graph, broken = StepGraph(home), [True]

    def fail(stream):
        if broken:
            raise ValueError("no luck")

    def slowly(stream):
        time.sleep(0.05)
        c[...] += 1

    compute(graph, slowly, "slow", healthy, writes=[c])
    graph.add(fail, writes=[a], label="bad", category="pack", device=failing)
    compute(
        graph, lambda stream: b.fill(1), "next", healthy, reads=[a] if depends else [], writes=[b]
    )
    step = commit(graph, policy)
    with pytest.raises(RunError, match="node 'bad' \\(pack\\) failed: no luck"):
        step.run()
    assert (c == 1).all()  # nothing runs any more: who catches the failure may save the arrays
    assert not (depends and b.any())
    broken.clear()
    step.run()  # reported errors are cleared, on both devices
    assert (b == 1).all()
    assert (c == 2).all()


@WITH_EVERY_POLICY
@pytest.mark.parametrize("home", DEVICES, ids=["one lane", "three lanes"])
@pytest.mark.parametrize("transfer", [True, False])
def test_a_step_comes_after_what_its_stream_was_given_on_every_device(policy, home, transfer):
    memory, stream = np.zeros((2, 4)), home.stream()
    graph = StepGraph(home)
    for device, array in zip(DEVICES, memory, strict=True):
        compute(
            graph,
            lambda stream, a=array: np.multiply(a, 3, out=a),
            "work",
            device,
            reads=[array],
            writes=[array],
        )
    if transfer:
        graph.add_transfer(
            FakeTransfer([(np.zeros(4), np.zeros(4))], 2), reads=[], writes=[], label="send"
        )
    step = commit(graph, policy)
    stream.submit(lambda stream: time.sleep(0.05))
    stream.submit(lambda stream: memory.fill(1))
    step.run(stream=stream)
    stream.submit(lambda stream: np.add(memory, 1, out=memory))
    stream.synchronize()
    assert memory.tolist() == [[4.0] * 4] * 2


@WITH_EVERY_POLICY
def test_timelines_tell_devices_apart_and_lanes_of_one_device_not(policy):
    cpu, gpu, a, b = FIRST, AsGpu(), np.zeros(4), np.zeros(4)

    def lanes(*devices):
        graph = StepGraph(cpu)
        for number, device in enumerate(devices):
            compute(graph, lambda stream: None, str(number), device, writes=[a])
        graph.add_transfer(FakeTransfer([(a, b)], 1), reads=[a], writes=[b], label="send")
        step = commit(graph, policy)
        step.run(profile=True)
        entries = sorted(step.timeline.entries, key=lambda entry: entry.label)
        assert all(entry.start <= entry.stop for entry in entries)
        for before, after in itertools.pairwise(entries):
            assert before.stop <= after.start  # each depends on the previous one
        return [entry.lane for entry in entries]

    assert lanes(cpu, gpu, None) == [
        "cpu: compute",
        "cuda: compute",
        "cpu: compute",
        "communication",
    ]
    assert lanes(cpu, None) == ["compute", "compute", "communication"]


def test_chunks_are_dealt_out_to_the_lanes_of_each_device():
    graph = StepGraph(FIRST)
    assert [graph.lane_of_batch(n) for n in range(3)] == [(0, "compute")] * 3
    assert [graph.lane_of_batch(n, SECOND) for n in range(4)] == [
        (0, "compute"),
        (1, "compute 1"),
        (2, "compute 2"),
        (0, "compute"),
    ]


# -- threads of a CPU ---------------------------------------------------------------------------


def test_a_cpu_has_the_threads_of_the_environment_or_those_given(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert HostDevice().threads == 3
    assert HostDevice(threads=5).threads == 5
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert HostDevice(threads=2).threads == 2


@pytest.mark.parametrize(("threads", "left"), [(1, 1), (2, 1), (3, 2), (12, 11)])
def test_a_spare_core_is_one_that_does_not_compute_and_polls_without_a_pause(threads, left):
    usual, spared = HostDevice(threads=threads), HostDevice(threads=threads, spare_core=True)
    assert (usual.threads, spared.threads) == (threads, left)
    assert usual.pause > 0
    # A single core is everybody's: who polls there must pause.
    assert (spared.pause == 0) == (threads > 1)
    assert spared.lanes <= spared.threads


TEAM = """
#include "portability.hpp"
#include <omp.h>
KERNEL team(Index* out, Index rows) { FOR_ROWS(row, rows) out[row] = omp_get_num_threads(); }
"""


@WITH_EVERY_POLICY
@pytest.mark.parametrize(
    ("threads", "spare_core"), [(1, False), (2, True), (4, False), (5, True), (18, False)]
)
def test_lanes_of_a_step_share_the_threads_of_their_cpu(
    tmp_path, monkeypatch, policy, threads, spare_core
):
    """Where kernels of others have three threads, by OMP_NUM_THREADS."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    header = tmp_path / "team.hpp"
    header.write_text(TEAM)
    device = HostDevice(threads=threads, spare_core=spare_core)
    team, sizes = device.threads // device.lanes, np.zeros((device.lanes, 64), int)
    kernel, graph = device.kernel(str(header), "team"), StepGraph(device)
    for number, out in enumerate(sizes):
        lane, name = graph.lane_of_batch(number)
        assert lane == number
        compute(graph, kernel.bind(RowLaunch(64, 1), out, 64), "team", writes=[out], lane=name)
    assert graph.lane_of_batch(device.lanes)[0] == 0

    def run():  # OpenMP reads the variable when a process begins: this is what it does then
        device.kernel("openmp_threads.hpp", "set_threads").bind(RowLaunch(1, 1), 3)(None)
        commit(graph, policy).run()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert (sizes == team).all(), sizes[:, 0]


@pytest.mark.parametrize("pauses", [(0.0, 2e-5), (2e-5, 0.0)])
def test_polls_pause_where_a_processor_needs_the_interpreter(monkeypatch, pauses):
    """A GPU needs no pause, but the threads of a CPU do: otherwise they would wait for ages."""
    devices = [HostDevice(threads=1), HostDevice(threads=1)]
    for device, pause in zip(devices, pauses, strict=True):
        device.pause, device.inline = pause, False
    slept = []
    clock = SimpleNamespace(sleep=slept.append, perf_counter=lambda: 0.0)
    monkeypatch.setattr("slipstream.engine.schedule.overlap_executor.time", clock)
    Patience(*devices).rest()
    assert slept == [2e-5]


def test_objects_of_one_gpu_are_one_device():
    """Resources that plans share may have been made with another object for the same GPU."""
    first, second = SameGpu(threads=1), SameGpu(threads=1)
    graph, data = StepGraph(first), np.zeros(2)

    def add_one(stream):
        data[:] += 1

    def double(stream):
        data[:] *= 2

    compute(graph, add_one, "add", writes=[data])
    graph.add(double, reads=[data], writes=[data], label="double", category="pack", device=second)
    step = commit(graph)
    assert type(step) is CapturedStep
    step.run()
    step.synchronize()
    assert data.tolist() == [2, 2]
