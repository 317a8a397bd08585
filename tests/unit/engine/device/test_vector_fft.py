"""Transforms on CPUs by our kernels, compared with NumPy's in double precision."""

import itertools
import platform
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from drawn_arrays import draw
from slipstream.engine import kernels
from slipstream.engine.device import HostDevice, host_compiler, vector_fft

DEVICE = HostDevice(threads=1)
# Products of small primes, with separate programs and without; primes that are radices; and
# lengths that are convolutions.
LENGTHS = (*range(1, 18), 31, 32, 48, 61, 64, 100, 192, 240, 67, 134, 211)
# Those with separate programs in one precision, but one in both: precision changes their lanes,
# not their radices.
CASES = [
    (n, real)
    for n in LENGTHS
    for real in ("float64", "float32")
    if n not in vector_fft._FIXED or n == 64 or real == ("float64", "float32")[n // 16 % 4 == 0]
]
# Rows, columns, and axes before and between others.
PLACES = (((2, 9), 2), ((11,), 0), ((2, 3, 8), 1), ((3, 2, 2, 5), 3), ((2, 1, 3, 2, 2), 5))
ROUNDING = {"float64": 3e-16, "float32": 2e-7}
RANDOM = np.random.default_rng(0)


def transformed(source, target, axis, forward, device=DEVICE):
    device.run(device.fft(source, target, axis, forward))
    return target


def assert_near(actual, expected, real):
    error = np.linalg.norm(actual - expected) / np.linalg.norm(expected)
    assert error < 8 * ROUNDING[real]


@pytest.mark.slow
@pytest.mark.samples(26)
@pytest.mark.parametrize(("n", "real"), CASES)
def test_transforms_are_those_of_numpy(n, real):
    complex_dtype = np.result_type(real, np.complex64)
    for others, axis in PLACES:
        shape = (*others[:axis], n, *others[axis:])
        half = (*others[:axis], n // 2 + 1, *others[axis:])
        x, points, modes = draw(shape, complex_dtype), draw(shape, real), draw(half, complex_dtype)
        kept = x.copy(), points.copy()
        wide, both = x.astype(complex), DEVICE.empty(shape, complex_dtype)
        assert_near(transformed(x, both, axis, True), np.fft.fft(wide, axis=axis), real)
        in_place = x.copy()
        np.testing.assert_array_equal(transformed(in_place, in_place, axis, True), both)
        assert_near(transformed(x, both, axis, False), n * np.fft.ifft(wide, axis=axis), real)
        expected = np.fft.rfft(points.astype(float), axis=axis)
        assert_near(transformed(points, np.empty_like(modes), axis, True), expected, real)
        # NumPy too leaves out what makes no real numbers.
        expected = n * np.fft.irfft(modes.astype(complex), n, axis=axis)
        assert_near(transformed(modes, np.empty_like(points), axis, False), expected, real)
        np.testing.assert_array_equal(x, kept[0])
        np.testing.assert_array_equal(points, kept[1])


def exact_sums(kind, n):
    """Return the matrix of a cosine or sine transform, rounded to long double once."""
    k, j = np.ogrid[:n, :n]
    is_cosine, of_type = kind.startswith("dct"), int(kind[3])
    if of_type == 1:
        turns, half = (k * j, n - 1) if is_cosine else ((k + 1) * (j + 1), n + 1)
    elif of_type == 4:
        turns, half = (2 * k + 1) * (2 * j + 1), 4 * n
    else:
        modes, points = (k, j) if of_type == 2 else (j, k)
        turns, half = (modes + (not is_cosine)) * (2 * points + 1), 2 * n
    angles = np.arccos(np.longdouble(-1)) * (turns % (2 * half)) / half
    matrix = 2 * (np.cos(angles) if is_cosine else np.sin(angles))
    ends = {"dct1": [0, n - 1], "dct3": [0], "dst3": [n - 1]}.get(kind, [])
    matrix[:, ends] /= 2
    return matrix


def transformed_to_waves(source, axis, kind, device=DEVICE, **options):
    target = np.empty_like(source)
    device.run(device.cosine_transform(source, target, axis, kind, **options))
    return target


# Halves with and without their own program, odd lengths, and convolutions.
@pytest.mark.parametrize("real", ROUNDING)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 9, 30, 63, 64, 67, 134])
def test_cosines_and_sines_are_their_sums(n, real):
    for kind in ("dct1", "dct2", "dct3", "dct4", "dst1", "dst2", "dst3", "dst4"):
        if (kind, n) == ("dct1", 1):
            continue
        matrix = exact_sums(kind, n)
        columns = draw((3, n, 11), real)
        before = columns.copy()
        waves = transformed_to_waves(columns, 1, kind)
        assert_near(waves, np.einsum("kj,ajc->akc", matrix, columns.astype(np.longdouble)), real)
        np.testing.assert_array_equal(columns, before)
        # Rows have the same bits, and calls in place, and powers of two are exact.
        rows = np.moveaxis(columns, 1, 2).copy()
        of_rows = transformed_to_waves(rows, 2, kind, scale=0.25)
        np.testing.assert_array_equal(np.moveaxis(of_rows, 2, 1), 0.25 * waves)
        for array, axis in ((columns, 1), (rows, 2)):
            DEVICE.run(DEVICE.cosine_transform(array, array, axis, kind))
        np.testing.assert_array_equal(columns, waves)
        np.testing.assert_array_equal(np.moveaxis(rows, 2, 1), waves)


@pytest.mark.parametrize("n", [20, 21, 64])
def test_bits_of_real_columns_do_not_depend_on_what_is_beside(n):
    """Not on strides of pages, and not on the places of columns in tiles either."""
    columns, several = draw((2, n, 37), float), HostDevice(threads=3, lanes=1)
    wide = np.zeros((2, n, 512))
    wide[..., 5:42] = columns
    modes = transformed(columns, np.empty((2, n // 2 + 1, 37), complex), 1, True)
    assert_near(modes, np.fft.rfft(columns, axis=1), "float64")
    points = transformed(modes, np.empty_like(columns), 1, False)
    waves = {kind: transformed_to_waves(columns, 1, kind) for kind in ("dct1", "dct2", "dst4")}
    for device in (DEVICE, several):
        for part in (np.s_[:1], np.s_[3:19], np.s_[36:]):
            alone = np.empty_like(modes[..., part])
            transformed(columns[..., part], alone, 1, True, device)
            np.testing.assert_array_equal(alone, modes[..., part])
            alone = np.empty_like(points[..., part])
            transformed(modes[..., part], alone, 1, False, device)
            np.testing.assert_array_equal(alone, points[..., part])
            for kind, whole in waves.items():
                alone = transformed_to_waves(columns[..., part], 1, kind, device)
                np.testing.assert_array_equal(alone, whole[..., part])
        for kind, whole in waves.items():
            paged = transformed_to_waves(wide, 1, kind, device)
            np.testing.assert_array_equal(paged[..., 5:42], whole)


@pytest.mark.parametrize("n", [20, 64, 67])
def test_bits_do_not_depend_on_what_is_beside_nor_on_threads(n):
    rows, columns = draw((37, n), float), draw((2, n, 37), complex)
    modes = transformed(rows, np.empty((37, n // 2 + 1), complex), 1, True)
    whole = transformed(columns, np.empty_like(columns), 1, True)
    several = HostDevice(threads=3, lanes=1)
    for device in (DEVICE, several):
        for part in (np.s_[:1], np.s_[3:19], np.s_[36:]):
            alone = np.empty_like(modes[part])
            transformed(rows[part], alone, 1, True, device)
            np.testing.assert_array_equal(alone, modes[part])
            alone = np.empty_like(whole[..., part])
            transformed(columns[..., part], alone, 1, True, device)
            np.testing.assert_array_equal(alone, whole[..., part])


@pytest.mark.parametrize("real", ROUNDING)
@pytest.mark.parametrize("n", [20, 48])
def test_lanes_of_one_tile_have_columns_of_several_planes(n, real):
    """They write only their columns, and in place each plane gets the same result as alone."""
    dtype = np.result_type(real, np.complex64)
    for columns in (1, 2, 3, 7, 11, 17):
        rows = draw((5, n, columns + 2), dtype)
        points, before = rows[..., :columns], rows.copy()
        alone = [
            transformed(points[k : k + 1].copy(), np.empty((1, n, columns), dtype), 1, True)
            for k in range(5)
        ]
        assert_near(np.concatenate(alone), np.fft.fft(points.astype(complex), axis=1), real)
        transformed(points, points, 1, True)
        np.testing.assert_array_equal(points, np.concatenate(alone))
        np.testing.assert_array_equal(rows[..., columns:], before[..., columns:])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("n", [6, 16, 64, 67])
def test_rows_of_large_arrays_get_the_same_bits_past_the_caches(n, dtype, monkeypatch):
    """They may begin anywhere, and have gaps between them; what is beside them is left."""
    real = np.zeros(0, dtype).real.dtype
    complex_dtype = np.result_type(dtype, np.complex64)
    points, modes = draw((37, n), dtype), draw((37, n), complex_dtype)
    if np.dtype(dtype).kind == "f":
        modes = np.fft.rfft(points).astype(complex_dtype)
    for source, like, forward in ((points, modes, True), (modes, points, False)):
        monkeypatch.undo()
        expected = transformed(source, np.empty_like(like), 1, forward)
        monkeypatch.setattr(vector_fft, "cache_bytes", lambda: 0)
        for begin, gap in itertools.product((0, 1, 5), (0, 3)):
            memory = draw((40 * (like.shape[1] + gap) * like.itemsize // real.itemsize,), real)
            before = memory.copy()
            part = memory[2 * begin :].view(like.dtype)[: 37 * (like.shape[1] + gap)]
            target = part.reshape(37, -1)[:, : like.shape[1]]
            transformed(source, target, 1, forward)
            np.testing.assert_array_equal(target, expected)
            target[...] = (
                before[2 * begin :]
                .view(like.dtype)[: part.size]
                .reshape(37, -1)[:, : like.shape[1]]
            )
            np.testing.assert_array_equal(memory, before)


def test_arrays_with_gaps_and_reversed_ones():
    whole = draw((6, 10, 8), complex)
    for view in (whole[:, ::2], whole[..., ::2], whole[::-1, :, ::-1], whole[:, 3:4]):
        for axis in range(3):
            target = np.empty(view.shape, complex)
            transformed(view, target, axis, True)
            assert_near(target, np.fft.fft(view, axis=axis), "float64")
    rows = np.zeros((3, 5, 33), complex)
    points = rows.view(float)[..., :64]
    points[...] = values = RANDOM.standard_normal(points.shape)
    assert_near(transformed(points, rows, 2, True), np.fft.rfft(values), "float64")


def test_threads_that_end_leave_no_memory():
    """The tiles of one take 264 kB with vectors of 64 bytes: plans begin and end many threads."""
    source = draw((8, 1024), complex)
    operation = DEVICE.fft(source, np.empty_like(source), 1, True)

    def grown(threads):
        before = resident()
        for _ in range(threads):
            thread = threading.Thread(target=operation, args=(None,))
            thread.start()
            thread.join()
        return resident() - before

    grown(20)
    assert grown(200) < 10 << 20


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


PRODUCT = """#pragma once
#include "portability.hpp"
INLINE double pointwise(const Real (&in)[INPUTS], Real (&out)[OUTPUTS], const double* parameters) {
  out[0] = in[0] * in[0];
  out[1] = parameters[0] * in[0] * in[1];
  out[2] = in[1];
  return fabs(in[0]);
}
"""


# Halves of a row with and without their own program, odd rows, and convolutions.
@pytest.mark.parametrize("n", [64, 30, 27, 67, 134])
@pytest.mark.parametrize("real", ROUNDING)
def test_products_of_rows_are_those_of_numpy(n, real):
    kept, planes, rows = n // 3, 2, 7
    complex_dtype = np.result_type(real, np.complex64)
    memory = draw((3, planes, rows, kept + 3), complex_dtype)
    modes, beside = memory[..., :kept], memory[..., kept:].copy()
    modes[..., 0].imag = 0
    points = n * np.fft.irfft(modes[:2].astype(complex), n, axis=-1)
    products = np.stack([points[0] ** 2, 3 * points[0] * points[1], points[1]])
    maxima = np.zeros(planes * rows, np.int64)
    header = f'"{kernels.write(PRODUCT)}"'
    constants = {"INPUTS": 2, "OUTPUTS": 3, "PRODUCT_HEADER": header}
    parameters = np.array([3.0])
    # From two shares of each row, fields side by side, to three, fields apart; then in place.
    shares = [modes[:2, ..., : kept // 2], modes[:2, ..., kept // 2 :]]
    source = np.concatenate([np.moveaxis(one, 0, 2).ravel() for one in shares])
    target, size = np.zeros((3, planes * rows * kept), complex_dtype), planes * rows
    bounds = [0, 1, kept // 3, kept]
    to = [
        [low, high - low, size * low, high - low, size * kept]
        for low, high in itertools.pairwise(bounds)
    ]
    start, half, rest = 2 * size * (kept // 2), kept // 2, kept - kept // 2
    sides = (
        (source, np.array([[0, half, 0, 2 * half, half], [half, rest, start, 2 * rest, rest]])),
        (target, np.array(to)),
    )
    common = size, n, constants, maxima, parameters
    DEVICE.run(vector_fft.bind_products(DEVICE, *sides, *common))
    in_place = vector_fft.whole_rows(modes)
    DEVICE.run(vector_fft.bind_products(DEVICE, in_place, in_place, *common))
    assert_near(modes, np.fft.rfft(products, axis=-1)[..., :kept], real)
    np.testing.assert_array_equal(memory[..., kept:], beside)
    for low, high in itertools.pairwise(bounds):
        share = target[:, size * low : size * high].reshape(3, planes, rows, -1)
        assert share.tobytes() == np.ascontiguousarray(modes[..., low:high]).tobytes()
    largest = maxima.view(np.float64)
    assert largest.max() == pytest.approx(np.abs(points[0]).max(), rel=10 * ROUNDING[real])
    assert (largest >= np.abs(points[0]).max(axis=-1).ravel() * (1 - 10 * ROUNDING[real])).all()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="registers of x86-64")
def test_kernels_for_old_processors_leave_long_doubles_alone(monkeypatch):
    # Registers of MMX in use would make NumPy's transforms not-a-number.
    monkeypatch.setenv("CXX", f"{' '.join(host_compiler.find_compiler())} -mno-avx -mno-fma")
    monkeypatch.setattr(sys.modules[__name__], "DEVICE", HostDevice(threads=1))
    test_products_of_rows_are_those_of_numpy(64, "float64")
