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

from fake_transfer import WITH_EVERY_POLICY, FakeTransfer
from flows import PATIENCE
from slipstream.engine.device import HostDevice, RowLaunch
from slipstream.engine.errors import RunError
from slipstream.engine.schedule import POLICIES, StepGraph, commit
from slipstream.engine.schedule.committed_steps import CapturedStep
from slipstream.engine.schedule.overlap_executor import Patience

SLOTS, LENGTH = 5, 8


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


def mix(number, reads, writes, pause):
    """Return an operation whose result depends on all it reads and on what it overwrites."""

    def operation(stream):
        time.sleep(pause)  # lets the other device run ahead, if it does not wait
        total = sum((np.sin(a.sum()) for a in reads), start=float(number))
        for i, target in enumerate(writes):
            target *= 0.5
            target += np.cos(total + i)

    return operation


SLICES = st.sampled_from([slice(None), slice(0, 4), slice(4, 8), slice(0, 8, 2), slice(1, 8, 2)])
VIEWS = st.tuples(st.integers(0, SLOTS - 1), SLICES)
OPERATIONS = st.fixed_dictionaries(
    {
        "device": st.integers(0, 1),
        "reads": st.lists(VIEWS, max_size=2),
        "writes": st.lists(VIEWS, min_size=1, max_size=2, unique_by=lambda view: view[0]),
        # The same names on both devices.
        "lane": st.sampled_from(["compute", "compute 1", "copy out"]),
        "pause": st.sampled_from([0, 1e-4, 1e-3]),
    }
)
TRANSFERS = st.fixed_dictionaries(
    {"slots": st.permutations(range(SLOTS)), "where": SLICES, "polls": st.integers(0, 6)}
)


def build(home, recipes, memory):
    """Record the recipes on memory[slot, element]."""
    graph = StepGraph(home)
    for number, recipe in enumerate(recipes):
        if "slots" in recipe:
            source, target = (memory[slot, recipe["where"]] for slot in recipe["slots"][:2])
            transfer = FakeTransfer([(source, target)], recipe["polls"])
            graph.add_transfer(transfer, reads=[source], writes=[target], label=str(number))
            continue
        reads, writes = ([memory[view] for view in recipe[key]] for key in ("reads", "writes"))
        operation = mix(number, reads, writes, recipe["pause"])
        device = DEVICES[recipe["device"]]
        graph.add(
            operation,
            reads=[*reads, *writes],
            writes=writes,
            label=str(number),
            category="compute",
            lane=recipe["lane"],
            device=device,
        )
    return graph


def initial():
    return np.random.default_rng(0).standard_normal((SLOTS, LENGTH))


def in_order(recipes, runs, memory):
    """Return the memory after plain loops over the recipes: no graph, no policy, no device."""
    for _ in range(runs):
        for number, recipe in enumerate(recipes):
            if "slots" in recipe:
                source, target = (memory[slot, recipe["where"]] for slot in recipe["slots"][:2])
                target[...] = source
            else:
                reads, writes = ([memory[v] for v in recipe[key]] for key in ("reads", "writes"))
                mix(number, reads, writes, 0)(None)
    return memory


@pytest.mark.slow
@settings(max_examples=100)
@given(st.lists(st.one_of(OPERATIONS, OPERATIONS, TRANSFERS), max_size=10), st.booleans())
def test_steps_on_two_devices_give_the_bits_of_a_plain_loop(recipes, profile):
    expected = in_order(recipes, 2, initial())
    for home, policy in itertools.product(DEVICES, POLICIES):
        memory = initial()
        step = commit(build(home, recipes, memory), policy)
        step.run(profile)
        step.run()
        assert memory.tobytes() == expected.tobytes()
        assert len(step.timeline.entries) == len(recipes) * profile


def meet(mine, other):
    """Return an operation that ends only after the other one has begun."""

    def operation(stream):
        mine.set()
        assert other.wait(PATIENCE)

    return operation


# A device with a single thread has no worker in addition to the thread that schedules.
WORKING = HostDevice(threads=2, lanes=1), SECOND


@WITH_EVERY_POLICY
@pytest.mark.parametrize("home", WORKING, ids=["one lane", "three lanes"])
def test_devices_run_side_by_side_even_in_lanes_of_one_name(policy, home):
    graph, events = StepGraph(home), [threading.Event(), threading.Event()]
    for device, mine, other in zip(WORKING, events, reversed(events), strict=True):
        graph.add(
            meet(mine, other), writes=[np.zeros(4)], label="work", category="compute", device=device
        )
    commit(graph, policy).run()


@WITH_EVERY_POLICY
@pytest.mark.parametrize("devices", [DEVICES, DEVICES[::-1]], ids=["there", "back"])
def test_a_device_waits_for_what_another_one_writes_and_reads(policy, devices):
    one, other = devices
    a, b, seen = np.zeros(4), np.zeros(4), []

    def slowly(stream):
        time.sleep(0.05)
        a[...] = 1

    def read_slowly(stream):
        time.sleep(0.05)
        seen.append(b.copy())

    graph = StepGraph(FIRST)
    graph.add(slowly, writes=[a], label="write", category="compute", device=one)
    graph.add(
        lambda stream: np.copyto(b, 2 * a),
        reads=[a],
        writes=[b],
        label="after a write",
        category="compute",
        device=other,
    )
    graph.add(read_slowly, reads=[b], label="read", category="compute", device=one)
    graph.add(
        lambda stream: b.fill(7), writes=[b], label="after a read", category="compute", device=other
    )
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

    graph.add(until_then, writes=[a], label="first", category="compute", device=WORKING[0])
    graph.add(lambda stream: None, reads=[a], label="dependent", category="compute", device=SECOND)
    graph.add(
        lambda stream: ran.set(),
        writes=[b],
        label="independent",
        category="compute",
        device=SECOND,
        lane="another",
    )
    commit(graph, "overlap").run()


@WITH_EVERY_POLICY
def test_devices_take_turns_around_a_transfer(policy):
    a, b, c, d = (np.zeros(4) for _ in range(4))
    graph = StepGraph(FIRST)

    def slowly(stream):
        time.sleep(0.02)
        a[...] += 1

    graph.add(slowly, reads=[a], writes=[a], label="make", category="compute", device=SECOND)
    graph.add_transfer(FakeTransfer([(a, b)], 3), reads=[a], writes=[b], label="send")
    graph.add(
        lambda stream: np.add(b, 1, out=c),
        reads=[b],
        writes=[c],
        label="use",
        category="compute",
        device=FIRST,
    )
    graph.add(
        lambda stream: np.add(c, 1, out=d),
        reads=[c],
        writes=[d],
        label="use again",
        category="compute",
        device=SECOND,
    )
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

    graph.add(slowly, writes=[c], label="slow", category="compute", device=healthy)
    graph.add(fail, writes=[a], label="bad", category="pack", device=failing)
    graph.add(
        lambda stream: b.fill(1),
        reads=[a] if depends else [],
        writes=[b],
        label="next",
        category="compute",
        device=healthy,
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
        graph.add(
            lambda stream, a=array: np.multiply(a, 3, out=a),
            reads=[array],
            writes=[array],
            label="work",
            category="compute",
            device=device,
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
            graph.add(
                lambda stream: None,
                writes=[a],
                label=str(number),
                category="compute",
                device=device,
            )
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
        graph.add(
            kernel.bind(RowLaunch(64, 1), out, 64),
            writes=[out],
            label="team",
            category="compute",
            lane=name,
        )
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

    graph.add(add_one, writes=[data], label="add", category="compute")
    graph.add(double, reads=[data], writes=[data], label="double", category="pack", device=second)
    step = commit(graph)
    assert type(step) is CapturedStep
    step.run()
    step.synchronize()
    assert data.tolist() == [2, 2]
