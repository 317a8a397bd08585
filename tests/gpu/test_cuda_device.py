"""A GPU as a device: copies, streams, graphs, memory. Run by `tools/gpu_check.py`."""

import gc
import subprocess
import sys
import time

import numpy as np
import pytest

from flows import (
    PATIENCE,
    advance,
    environment,
    random_values,
    start,
)
from slipstream.engine.device import cuda_device_count, open_device
from slipstream.engine.device.device_choice import home_of
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import open_matching_device

pytestmark = pytest.mark.gpu

PARTS = [
    np.s_[...],
    np.s_[1:4],
    np.s_[:, 2:5],
    np.s_[:, :, 3:7],
    np.s_[..., 2:8],
    np.s_[1:3, 2:6, 1:7, 3:8],
    np.s_[2],
    np.s_[:, 3, 2:5],
    np.s_[0:0],
    np.s_[..., 4:5],
]


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("part", PARTS)
def test_strided_copies_reach_exactly_their_elements(device, part, pinned):
    shape = (5, 6, 7, 8)
    values, before = random_values(shape, "complex128", 1), random_values(shape, "complex128", 2)
    expected = before.copy()
    expected[part] = values[part]
    on_host = device.pinned(shape, "complex128") if pinned else np.empty(shape, "complex128")

    on_host[...] = values
    target = device.array(before)
    device.run(device.copy(target[part], on_host[part]))
    np.testing.assert_array_equal(device.to_host(target), expected)

    on_host[...] = before
    source = device.array(values)
    device.run(device.copy(on_host[part], source[part]))
    np.testing.assert_array_equal(on_host, expected)

    target = device.array(before)
    device.run(device.copy(target[part], source[part]))
    np.testing.assert_array_equal(device.to_host(target), expected)


def test_large_memory_of_the_host_is_zero_and_pinned(device):
    count = (64 << 20) // 8 + 5
    for _ in range(3):
        on_host = home_of(device).zeros((count,), "float64")
        assert not on_host.any() and device.is_pinned(on_host) and device.is_pinned(on_host[5:])
        on_host[...] = np.arange(count)
        target = device.array(on_host)
        back = device.pinned((count,), "float64")
        device.run(device.copy(back, target))
        assert np.array_equal(back, on_host)


def test_streams_run_in_order_and_wait_for_events(device):
    first, second = device.stream(), device.stream()
    array, result = (device.zeros((1 << 22,), "float64") for _ in range(2))
    host_copy = device.pinned(array.shape, array.dtype)

    def add(stream):
        array[...] += 1

    for _ in range(50):
        first.submit(add)
    event = first.record()
    second.wait(event)
    second.submit(device.copy(result, array))
    second.submit(device.copy(host_copy, result))
    second.synchronize()
    # The second stream had to wait for all that the first had been given.
    np.testing.assert_array_equal(host_copy, 50.0)
    assert event.done()
    event.synchronize()


def test_spans_tell_when_operations_ran(device):
    array = device.zeros((1 << 22,), "float64")
    stream = device.stream()

    def work(_):
        for _ in range(20):
            array[...] += 1

    device.synchronize()
    before = time.perf_counter()
    spans = [stream.submit_timed(work) for _ in range(3)]
    stream.synchronize()
    after = time.perf_counter()
    intervals = [span.interval() for span in spans]
    for start_time, stop_time in intervals:
        assert start_time < stop_time
        # The clocks of host and GPU agree but for the drift since the device was opened.
        assert before - 0.05 <= start_time
        assert stop_time <= after + 0.05
    for (_, earlier), (later, _) in zip(intervals, intervals[1:], strict=False):
        # CUDA tells times since the device was opened in milliseconds, as a float32.
        assert earlier <= later + 1e-4


def test_captured_work_runs_only_when_replayed(device):
    array = device.zeros((1000,), "float64")
    stream = device.stream()

    def add(_):
        device.array_module.add(array, 1.0, out=array)

    stream.submit(add)
    stream.synchronize()
    replay = stream.capture(lambda: stream.submit(add))
    stream.synchronize()
    np.testing.assert_array_equal(device.to_host(array), 1.0)
    for _ in range(3):
        stream.submit(replay)
    stream.synchronize()
    np.testing.assert_array_equal(device.to_host(array), 4.0)


def test_thousand_steps_do_not_take_memory(device):
    cupy = device.array_module
    simulation = start(device, "grid.points=32", "equation.viscosity=0.05")
    # Everything that the loop below does has been done, and compiled, before.
    advance(simulation, 40, 0.001)
    simulation.step_size(), simulation.diagnostics(), simulation.spectra()

    def state():
        gc.collect()
        device.synchronize()
        free, _ = cupy.cuda.runtime.memGetInfo()
        return free, cupy.get_default_memory_pool().used_bytes()

    free_before, used_before = state()
    for step in range(1000):
        simulation.advance(0.001)
        if step % 100 == 0:
            simulation.step_size(), simulation.diagnostics(), simulation.spectra()
    free_after, used_after = state()
    # Arrays of diagnostics come from the pool and return to it.
    assert used_after <= used_before + 2**16
    # The driver hands out pages of 2 MB. A kilobyte lost in each node of each step would be more.
    assert free_before - free_after <= 16 * 2**20
    assert np.isfinite(simulation.diagnostics()["energy"])


def test_grid_that_does_not_fit_is_refused_before_allocating(device, monkeypatch):
    cupy = device.array_module
    before = cupy.get_default_memory_pool().used_bytes()
    for points in (20000, 100000):
        with pytest.raises(InputError, match=r"grid\.points.*GiB free"):
            start(device, f"grid.points={points}")
    monkeypatch.setattr(device, "memory_free", lambda: 1 << 20)
    with pytest.raises(InputError, match=r"grid\.points.*0\.000977 GiB free"):
        start(device, "grid.points=64")
    assert cupy.get_default_memory_pool().used_bytes() <= before


def test_free_memory_counts_what_the_pool_can_give_again(device):
    gc.collect()
    before = device.memory_free()
    array = device.empty((1 << 26,), "float64")
    taken = before - device.memory_free()
    # Pages of 2 MB, and memory that other programs on the GPU take at the same time.
    assert taken == pytest.approx(array.nbytes, abs=64 * 2**20)
    del array
    assert device.memory_free() == pytest.approx(before, abs=64 * 2**20)


# With a limit of 256 MiB.
LIMITED = """
import cupy
from slipstream.engine.device import open_device
from slipstream.engine.errors import InputError

def refused(call, size):
    try:
        call(size)
    except InputError:
        return True

def array(size):
    return device.empty((size,), "uint8")

device, MiB = open_device("cuda"), 1 << 20
assert device.memory_total() == device.memory_free() == 256 * MiB
for more in range(6):
    array((100 + more) * MiB)  # a block that no later array fits
cupy.zeros(200 * MiB, "uint8")
address = device.allocate(100 * MiB)
assert device.memory_total() == 256 * MiB
assert device.memory_free() == 156 * MiB
assert refused(array, 200 * MiB) and refused(device.allocate, 200 * MiB)
device.release(address)
array(200 * MiB)
"""


def test_a_process_keeps_to_the_limit_of_cupys_pool():
    limited = environment() | {"CUPY_GPU_MEMORY_LIMIT": str(256 << 20)}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED],
        env=limited,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("first", [0, 1])
def test_transforms_of_real_arrays_that_begin_between_two_pairs(device, dtype, axis, first):
    """As every other plane of odd sizes does, which cuFFT refuses."""
    whole = np.random.default_rng(0).random((2, 6, 5, 3)).astype(dtype)
    memory = device.array(whole)
    # Both fields of some planes; one of the fields begins at an odd number.
    values, points = whole[:, first : first + 3, 0], memory[:, first : first + 3, 0]
    expected = np.fft.rfft(values.astype(float), axis=axis)
    modes = device.empty(expected.shape, np.result_type(dtype, np.complex64))
    device.run(device.fft(points, modes, axis, True))
    np.testing.assert_allclose(device.to_host(modes), expected, rtol=1e-5, atol=1e-6)
    device.run(device.fft(modes, points, axis, False))
    whole[:, first : first + 3, 0] *= values.shape[axis]
    np.testing.assert_allclose(device.to_host(memory), whole, rtol=1e-5, atol=1e-6)


def test_a_gpu_is_waited_for_whatever_cupys_current_device_is(device):
    if cuda_device_count() < 2:
        pytest.skip("needs two GPUs")
    other = open_device("cuda", 1)
    device.make_current()
    lane, array = other.stream(), other.zeros((1 << 28,), "float64")
    for stream in (lane, other.default_stream):
        for _ in range(10):
            stream.submit(other.scale(array, 2.0))
        done = stream.record()
        other.default_stream.wait(done)
        other.default_stream.synchronize()
        assert done.done()


def test_one_process_takes_the_gpu_that_is_current(device):
    for ordinal in range(cuda_device_count()):
        open_device("cuda", ordinal)
        assert open_matching_device("cuda", None).ordinal == ordinal
    device.make_current()
