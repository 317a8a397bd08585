"""The host device keeps the contract: order, overlap, events, failures, copies, transforms.

Threads meet by events that they wait for, never by time: a test of overlap that ran serially would
wait for ever, and fails by the time limit of a wait.
"""

import ctypes
import itertools
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_transfer import meet
from flows import PATIENCE
from slipstream.engine.device import BlockLaunch, HostDevice, RowLaunch, address_of

DEVICE = HostDevice(threads=2)


def fail(stream):
    raise ValueError("broken")


@pytest.fixture(params=["new", "default"])
def stream(request):
    return DEVICE.stream() if request.param == "new" else DEVICE.default_stream


def test_operations_of_a_stream_run_in_order(stream):
    order = []
    for i in range(100):
        stream.submit(lambda stream, i=i: order.append(i))
    stream.synchronize()
    assert order == list(range(100))


def test_streams_overlap():
    first, second = DEVICE.stream(), DEVICE.stream()
    a, b = threading.Event(), threading.Event()
    first.submit(meet(a, b))
    second.submit(meet(b, a))
    first.synchronize()
    second.synchronize()


def test_submitting_does_not_wait():
    stream, gate = DEVICE.stream(), threading.Event()
    stream.submit(lambda stream: gate.wait(PATIENCE))
    event = stream.record()
    assert not event.done()
    gate.set()
    event.synchronize()
    assert event.done()


def test_wait_orders_streams():
    first, second, gate, order = DEVICE.stream(), DEVICE.stream(), threading.Event(), []
    first.submit(lambda stream: gate.wait(PATIENCE))
    first.submit(lambda stream: order.append("first"))
    second.wait(first.record())
    second.submit(lambda stream: order.append("second"))
    behind = second.record()
    assert not behind.done()
    gate.set()
    behind.synchronize()
    assert order == ["first", "second"]


def test_events_of_the_default_stream_are_done_at_once():
    assert DEVICE.default_stream.record().done()


def test_spans_enclose_and_order_operations(stream):
    spans = [stream.submit_timed(lambda stream: None) for _ in range(3)]
    stream.synchronize()
    intervals = [span.interval() for span in spans]
    assert all(0 < start <= stop for start, stop in intervals)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(intervals))


def test_failure_surfaces_once_and_skips_what_follows():
    stream, ran = DEVICE.stream(), []
    before = stream.record()
    stream.submit(fail)
    stream.submit(lambda stream: ran.append(1))
    behind = stream.record()
    before.synchronize()
    with pytest.raises(ValueError, match="broken"):
        behind.synchronize()
    with pytest.raises(ValueError, match="broken"):
        stream.synchronize()
    assert ran == []
    stream.submit(lambda stream: ran.append(2))  # the failure has been told; the stream continues
    stream.synchronize()
    assert ran == [2]


def test_failure_passes_to_streams_that_wait_for_it():
    first, second, ran = DEVICE.stream(), DEVICE.stream(), []
    first.submit(fail)
    second.wait(first.record())
    second.submit(lambda stream: ran.append(1))
    with pytest.raises(ValueError, match="broken"):
        second.synchronize()
    assert ran == []
    with pytest.raises(ValueError, match="broken"):
        DEVICE.run(fail)  # on the default stream: where it happens


def test_threads_end_with_their_streams():
    before = set(threading.enumerate())
    streams = [DEVICE.stream() for _ in range(8)]
    assert set(threading.enumerate()) <= before
    for stream in streams:
        stream.submit(lambda _: None)
    threads = set(threading.enumerate()) - before
    assert len(threads) == 8
    del stream
    del streams
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)


ARGUMENTS = """
#include "portability.hpp"
KERNEL take(double* out, Index i, double d, float f, int small, const float* array) {
  out[0] = double(i); out[1] = d; out[2] = f; out[3] = small; out[4] = array[1];
}
"""


def test_kernel_arguments_keep_their_types(tmp_path):
    header = tmp_path / "take.hpp"
    header.write_text(ARGUMENTS)
    kernel, out = DEVICE.kernel(str(header), "take"), np.zeros(5)
    for launch in (RowLaunch(1, 1), BlockLaunch(1, 32, 0)):
        out[:] = 0
        # The array exists only as an argument: the operation has to keep it.
        array = np.array([0, 0.25], np.float32)
        operation = kernel.bind(launch, out, 2**52 + 1, 0.1, np.float32(0.1), np.int32(-7), array)
        del array
        DEVICE.run(operation)
        assert out.tolist() == [2.0**52 + 1, 0.1, float(np.float32(0.1)), -7, 0.25]


def test_kernels_of_included_headers_are_not_compiled(tmp_path):
    header, out = tmp_path / "own.hpp", np.zeros(1, np.int64)
    header.write_text('#include "projection.hpp"\nKERNEL own(Index* out) { out[0] = 7; }\n')
    launch = RowLaunch(1, 1)
    DEVICE.run(DEVICE.kernel(str(header), "own").bind(launch, out))
    assert out[0] == 7
    with pytest.raises(AttributeError, match="make_solenoidal"):
        _ = DEVICE.kernel(str(header), "make_solenoidal").bind(launch).address
    _ = DEVICE.kernel("projection.hpp", "make_solenoidal").bind(launch).address  # there it is


def strided(shape, dtype, data):
    """Return a random view: any strides, reversed and transposed axes, an offset."""
    steps = [data.draw(st.sampled_from([1, 2, 3, -1])) for _ in shape]
    order = data.draw(st.permutations(range(len(shape))))
    sizes = [n * abs(step) + 1 for n, step in zip(shape, steps, strict=True)]
    memory = np.full([sizes[i] for i in order], 777, dtype)
    view = memory.transpose(np.argsort(order))
    parts = [
        slice(1, None, step) if step > 0 else slice(n, 0, -1)
        for n, step in zip(shape, steps, strict=True)
    ]
    return view[tuple(parts)][tuple(slice(n) for n in shape)]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.data())
def test_copies_of_strided_views(shape, data):
    source, target = (strided(shape, np.float64, data) for _ in range(2))
    source[...] = np.random.default_rng(0).random(shape)
    around = target.base.sum() - target.sum()
    DEVICE.run(DEVICE.copy(target, source))
    np.testing.assert_array_equal(target, source)
    assert target.base.sum() - target.sum() == pytest.approx(around)


@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=4),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["r2c", "c2r", "forward", "backward", "in place"]),
    st.data(),
)
def test_transforms_of_strided_views_equal_numpys(shape, real, kind, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    shape[axis] = n = max(1, shape[axis])  # batches may be empty, transforms not
    modes = list(shape)
    complex_type = np.result_type(real, np.complex64)
    if kind in ("r2c", "c2r"):
        modes[axis] = n // 2 + 1
    spectral = strided(modes, complex_type, data)
    generator = np.random.default_rng(0)
    spectral[...] = generator.standard_normal(modes) + 1j * generator.standard_normal(modes)
    other = strided(shape, real if kind in ("r2c", "c2r") else complex_type, data)
    other[...] = generator.standard_normal(shape)
    wide = spectral.astype(complex)
    if kind == "r2c":
        expected = np.fft.rfft(other.astype(float), axis=axis)
        source, target, forward = other, spectral, True
    elif kind == "c2r":
        expected = np.fft.irfft(wide, n, axis) * n
        source, target, forward = spectral, other, False
    else:
        forward = kind != "backward"
        expected = np.fft.fft(wide, axis=axis) if forward else np.fft.ifft(wide, axis=axis) * n
        source, target = spectral, spectral if kind == "in place" else other
    DEVICE.run(DEVICE.fft(source, target, axis, forward))
    # At most seven terms of order one are summed: some rounding errors.
    np.testing.assert_allclose(target, expected, rtol=0, atol=100 * np.finfo(real).eps)


def test_addresses_are_those_of_first_elements():
    whole = np.zeros((4, 6, 3), np.complex64)
    read_only = whole[1:]
    read_only.flags.writeable = False
    views = whole[::-1, 2:, ::2], whole.T, read_only
    for array in (whole, *views, np.zeros(0), np.zeros(2, ">f4"), np.zeros((), bool)):
        assert address_of(array) == array.ctypes.data


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_transform_in_place_of_reversed_axes(axis):
    # FFTW 3.3.10 ends the process where it plans these in place.
    memory = np.zeros((3, 5, 3), np.complex64).transpose(1, 0, 2)
    view = memory[::-1, ::-1][1:4]
    generator = np.random.default_rng(0)
    view[...] = generator.standard_normal((3, 3, 3)) + 1j * generator.standard_normal((3, 3, 3))
    expected = np.fft.fft(view.astype(complex), axis=axis)
    DEVICE.run(DEVICE.fft(view, view, axis, True))
    # Sums of three terms of order one.
    np.testing.assert_allclose(view, expected, rtol=0, atol=1e-6)
    assert not memory[0].any()
    assert not memory[4].any()


def test_allocations_are_aligned_and_arrays_are_copies():
    for dtype in ("float32", "complex128"):
        for array in (DEVICE.empty((3, 5), dtype), DEVICE.pinned((3, 5), dtype)):
            assert (array.shape, array.dtype) == ((3, 5), np.dtype(dtype))
            assert array.flags.c_contiguous
            assert array.ctypes.data % 64 == 0
    values = np.arange(6.0).reshape(2, 3).T
    copy = DEVICE.array(values, np.float32)
    values[0, 0] = 9
    np.testing.assert_array_equal(DEVICE.to_host(copy), [[0, 3], [1, 4], [2, 5]])
    assert not DEVICE.zeros((2, 2), int).any()


def test_the_address_of_a_view_is_that_of_its_first_element():
    values = np.arange(60.0).reshape(3, 4, 5)
    for view in (values, values[1:, 2], values[2, ::-1], values[..., 3].T):
        first = ctypes.c_double.from_address(address_of(view))
        assert first.value == view.flat[0]
