"""Programs of a CPU's lanes: what they call, in which order, and how they end."""

import ctypes
import functools
import gc
import threading
import time

import numpy as np
import pytest

from flows import PATIENCE
from slipstream.engine.device import HostCall, HostDevice, LaneNode, RowLaunch
from slipstream.engine.errors import RunError
from slipstream.engine.schedule import POLICIES, StepGraph, commit

DEVICE = HostDevice(threads=3, lanes=3)


def run(lanes, timed=False):
    """Run programs, each in its own stream; return them."""
    streams = [DEVICE.stream() for _ in lanes]
    programs = DEVICE.lane_programs(lanes)
    programs.run(streams, timed)
    failures = []
    for stream in streams:
        try:
            stream.synchronize()
        except Exception as failure:
            failures.append(failure)
    if failures:
        raise failures[0]
    return programs


def noting(*types):
    """Return a C function of such arguments, and the list of what it has been called with."""
    calls = []
    function = ctypes.CFUNCTYPE(None, *types)(lambda *values: calls.append(values))
    return function, calls


@pytest.mark.parametrize("integers", [0, 3, 6, 7, 16, 17, 31, 48])
@pytest.mark.parametrize("reals", [0, 1, 8])
def test_compiled_code_passes_the_arguments_that_the_interpreter_does(integers, reals):
    """However they are mixed, and of whichever size."""
    kinds = [ctypes.c_longlong, ctypes.c_int, ctypes.c_void_p]
    types = [kinds[i % 3] for i in range(integers)]
    values = [
        (-1) ** i * (i + 1) if kinds[i % 3] != ctypes.c_void_p else i + 1 for i in range(integers)
    ]
    for i in range(reals):
        place = (i * 5) % (len(types) + 1)
        types.insert(place, ctypes.c_double if i % 2 else ctypes.c_float)
        values.insert(place, -i - 0.5)
    function, calls = noting(*types)
    arguments = [kind(value) for kind, value in zip(types, values, strict=True)]
    call = HostCall(lambda: function, arguments, None)
    call(None)
    assert call.packed() is not None
    run([[LaneNode(0, call)]])
    assert calls == [tuple(values)] * 2


@pytest.mark.parametrize("types", [[ctypes.c_double] * 9, [ctypes.c_longlong] * 49])
def test_calls_of_more_arguments_are_left_to_the_interpreter(types):
    function, calls = noting(*types)
    call = HostCall(lambda: function, [kind(3) for kind in types], None)
    assert call.packed() is None
    run([[LaneNode(0, call)]])
    assert calls == [(3,) * len(types)]


def test_lanes_wait_for_what_they_await_in_every_run():
    """Compiled and interpreted operations in turn, some slow: lanes add to a number in order."""
    numbers = np.zeros(1)
    kernel = DEVICE.kernel("strided_copy.hpp", "fill_box", REAL="double")
    seen = []

    def fill(value):
        return kernel.bind(RowLaunch(1, 1), numbers, float(value), 1, 1, 1, 1, 0, 0, 0)

    def look(stream):
        time.sleep(1e-3)
        seen.append(numbers[0])

    lanes = [[], [], []]
    for number in range(24):
        operation = look if number % 4 == 3 else fill(number)
        awaited = [number - 1] if number else []
        lanes[number * number % 3].append(LaneNode(number, operation, awaited))
    # What precedes an operation in its own lane need not be awaited.
    own = {node.number: lane for lane, nodes in enumerate(lanes) for node in nodes}
    lanes = [
        [LaneNode(n.number, n.operation, [a for a in n.awaited if own[a] != lane]) for n in nodes]
        for lane, nodes in enumerate(lanes)
    ]
    streams = [DEVICE.stream() for _ in lanes]
    programs = DEVICE.lane_programs(lanes)
    for timed in (False, True, False):
        seen.clear()
        programs.run(streams, timed)
        for stream in streams:
            stream.synchronize()
        assert seen == [number - 1 for number in range(24) if number % 4 == 3]
        assert numbers[0] == 22
    intervals = programs.intervals()
    assert list(intervals) == list(range(24))
    for number in range(1, 24):
        assert intervals[number - 1][1] <= intervals[number][0] <= intervals[number][1]


def lanes_in_turn(calls, lanes=3, count=24):
    """Return lanes whose operations await each other: each notes its number and its thread."""

    def note(number):
        def one():
            calls.append((number, threading.get_ident()))

        return HostCall(functools.partial(ctypes.CFUNCTYPE(None), one), [], None)

    return [
        [LaneNode(n, note(n), [n - 1] if n else []) for n in range(count) if n % lanes == lane]
        for lane in range(lanes)
    ]


def test_lanes_of_compiled_code_have_threads_of_the_device():
    """No stream is used, the calling thread has the last lane, and threads end with the device."""
    before = set(threading.enumerate())
    device = HostDevice(threads=3, lanes=3)
    calls = []
    lanes = lanes_in_turn(calls)  # programs do not keep what they call
    programs = device.lane_programs(lanes)
    for timed in [True, False] * 10:
        calls.clear()
        programs.run([None] * 3, timed)
        assert [number for number, _ in calls] == list(range(24))
        assert {thread for number, thread in calls if number % 3 == 2} == {threading.get_ident()}
        assert len({thread for _, thread in calls}) == 3
    assert list(programs.intervals()) == list(range(24))
    crew = set(threading.enumerate()) - before
    assert len(crew) == 2
    del device, programs
    gc.collect()
    for thread in crew:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_streams_run_what_comes_while_the_threads_of_the_device_work():
    """Two threads may run steps of one device at a time."""
    began, may_end = threading.Event(), threading.Event()

    def one():
        began.set()
        may_end.wait(PATIENCE)

    slow = HostCall(functools.partial(ctypes.CFUNCTYPE(None), one), [], None)
    first = DEVICE.lane_programs([[], [LaneNode(0, slow)]])
    other = threading.Thread(target=first.run, args=([None] * 2,))
    other.start()
    assert began.wait(PATIENCE)
    calls = []
    lanes = lanes_in_turn(calls)
    run(lanes)
    assert [number for number, _ in calls] == list(range(24))
    may_end.set()
    other.join()


def test_a_failure_ends_the_lanes_that_wait_and_is_forgotten_by_the_next_run():
    late = threading.Event()
    fails = [True]

    def fail(stream):
        if fails[0]:
            late.wait(0.05)  # until the others sleep
            raise ValueError("no luck")

    def note(stream):
        late.set()

    lanes = [[LaneNode(0, fail)], [LaneNode(1, note, [0])], [LaneNode(2, note, [1])]]
    programs = DEVICE.lane_programs(lanes)
    streams = [DEVICE.stream() for _ in lanes]
    programs.run(streams)
    for stream in streams[1:]:
        stream.synchronize()
    with pytest.raises(ValueError, match="no luck"):
        streams[0].synchronize()
    assert not late.is_set()
    fails[0] = False
    programs.run(streams)
    for stream in streams:
        stream.synchronize()
    assert late.is_set()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_step_of_one_cpu_is_run_by_compiled_code(policy, lanes):
    """Kernels, transforms and fills of strided parts give what NumPy gives."""
    device = HostDevice(threads=lanes, lanes=lanes)
    graph = StepGraph(device)
    points = np.random.default_rng(7).standard_normal((4, 3, 6, 16))
    modes = device.empty((4, 3, 6, 9), np.complex128)
    back = device.empty(points.shape, points.dtype)
    for number in range(4):
        lane = graph.lane_of_batch(number)[1]
        source, middle, target = (array[number : number + 1] for array in (points, modes, back))
        for operation, reads, writes in (
            (device.fft(source, middle, 3, True), [source], [middle]),
            (device.fill(middle[..., 5:], 0), [], [middle[..., 5:]]),
            (device.fft(middle, target, 3, False), [middle], [middle, target]),
        ):
            assert isinstance(operation, HostCall)
            graph.add(operation, reads=reads, writes=writes, label="one", category="fft", lane=lane)
    commit(graph, policy).run()
    expected = np.fft.rfft(points)
    expected[..., 5:] = 0
    np.testing.assert_allclose(back, 16 * np.fft.irfft(expected, 16), atol=1e-12)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("slow", [False, True])
def test_steps_of_little_work_stay_in_the_calling_thread(policy, slow):
    """In the order of recording; what fails there is named, and forgotten by the next run."""
    threads, order, fails = [], [], []
    graph, memory = StepGraph(DEVICE), np.zeros(3)

    def operation(number):
        def run(stream):
            threads[number:] = [threading.current_thread()]
            order.append(number)
            if fails:
                raise ValueError("no luck")
            if slow:
                time.sleep(2e-3)

        return run

    for number in range(3):
        reads = [] if number == 0 else [memory[number - 1 : number]]
        graph.add(
            operation(number),
            reads=reads,
            writes=[memory[number : number + 1]],
            label=f"node {number}",
            category="compute",
            lane=graph.lane_of_batch(2 - number)[1],
        )
    step = commit(graph, policy)
    for _ in range(20):
        order.clear()
        step.run()
        assert order == [0, 1, 2]
    # Of several lanes, the calling thread runs the lane of the first node.
    mine = [thread is threading.current_thread() for thread in threads]
    assert mine == [True, not slow, not slow]
    fails.append(True)
    with pytest.raises(RunError, match="node 'node 0' \\(compute\\) failed: no luck"):
        step.run()
    fails.clear()
    order.clear()
    step.run(profile=True)
    assert order == [0, 1, 2]
    assert [entry.label for entry in step.timeline.entries] == ["node 0", "node 1", "node 2"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128, np.int64])
@pytest.mark.parametrize("value", [0, 1.5])
def test_fills_reach_what_they_name_and_nothing_else(dtype, value):
    for part in (
        np.s_[1:3, :, 2:, 1:4],
        np.s_[:, 1],
        np.s_[0, 0, 1, 2:],
        np.s_[..., ::2],
        np.s_[:0],
    ):
        array = np.full((4, 3, 5, 6), 7, dtype)
        expected = array.copy()
        expected[part] = value
        DEVICE.run(DEVICE.fill(array[part], value))
        np.testing.assert_array_equal(array, expected)
