"""Long lines on CPUs, which are matrices, compared with NumPy's in wide precision."""

import itertools

import numpy as np
import pytest

from drawn_arrays import draw
from slipstream.engine.device import HostDevice, fft_lengths, long_lines, vector_fft
from slipstream.fft import DistributedFFT

DEVICE = HostDevice(threads=1)
ROUNDING = {"float64": 3e-16, "float32": 2e-7}
# Products of small primes, one odd and one of radices that have no code of their own, and lengths
# whose transforms are convolutions, one even.
LENGTHS = (4096, 2 * 47 * 53, 45 * 75, 2053, 4106)


def transformed(source, target, forward, device=DEVICE, **options):
    device.run(device.fft(source, target, source.ndim - 1, forward, **options))
    return target


def assert_near(actual, expected, real):
    error = np.linalg.norm(actual - expected) / np.linalg.norm(expected)
    assert error < 4 * ROUNDING[real]


@pytest.mark.slow
@pytest.mark.samples(4)
@pytest.mark.parametrize(("n", "real"), list(itertools.product(LENGTHS, ROUNDING)))
def test_transforms_are_those_of_numpy(n, real):
    dtype = np.result_type(real, np.complex64)
    x, points, modes = draw((2, n), dtype), draw((2, n), real), draw((2, n // 2 + 1), dtype)
    kept = x.copy(), points.copy(), modes.copy()
    wide = x.astype(np.clongdouble)
    both = transformed(x, np.empty_like(x), True)
    assert_near(both, np.fft.fft(wide), real)
    assert_near(transformed(x, np.empty_like(x), False), n * np.fft.ifft(wide), real)
    half = transformed(points, np.empty_like(modes), True)
    assert_near(half, np.fft.rfft(points.astype(np.longdouble)), real)
    # NumPy too leaves out the imaginary parts of modes that no real numbers have.
    expected = n * np.fft.irfft(modes.astype(np.clongdouble), n)
    assert_near(transformed(modes, np.empty_like(points), False), expected, real)
    for array, before in zip((x, points, modes), kept, strict=True):
        np.testing.assert_array_equal(array, before)
    # In place, and from rows with gaps, the bits are the same.
    np.testing.assert_array_equal(transformed(x, x, True), both)
    rows = np.zeros((2, n // 2 + 4), dtype)
    rows.view(real)[:, :n] = points
    inside = rows[:, : n // 2 + 1]
    np.testing.assert_array_equal(transformed(rows.view(real)[:, :n], inside, True), half)
    assert not rows[:, n // 2 + 1 :].any()


@pytest.mark.parametrize("n", [4096, 3375])
def test_bits_do_not_depend_on_lines_beside_nor_on_threads(n):
    points = draw((3, 5, n), float)
    modes = transformed(points, np.empty((3, 5, n // 2 + 1), complex), True)
    whole = transformed(modes, np.empty_like(points), False)
    for device in (DEVICE, HostDevice(threads=3, lanes=1)):
        for part in (np.s_[1:2, 2:3], np.s_[:, 3:], np.s_[::2, ::-1]):
            alone = np.empty_like(modes[part])
            transformed(points[part].copy(), alone, True, device)
            np.testing.assert_array_equal(alone, modes[part])
            alone = np.empty_like(whole[part])
            transformed(modes[part], alone, False, device)
            np.testing.assert_array_equal(alone, whole[part])


def test_lanes_give_their_threads_to_a_single_line():
    points = draw((2**16,), float)
    alone, shared = (
        DistributedFFT(points.shape, float, device=HostDevice(threads=threads))
        for threads in (1, 2)
    )
    modes = alone.forward(points)
    np.testing.assert_array_equal(shared.forward(points), modes)
    np.testing.assert_array_equal(shared.backward(modes), alone.backward(modes))
    assert_near(modes, np.fft.rfft(points.astype(np.longdouble)), "float64")


def test_a_line_of_a_million_points_has_exact_modes():
    """A point alone has modes on the circle; those of a wave are zero but one."""
    n, place = 2**20, 12345
    points = np.zeros((1, n))
    points[0, place] = 1
    k = np.arange(n // 2 + 1)
    angle = -2 * np.pi * (k * place % n) / n
    modes = transformed(points, np.empty((1, len(k)), complex), True)[0]
    assert abs(modes - np.exp(1j * angle)).max() < 2e-15
    single = np.zeros((1, len(k)), complex)
    single[0, place] = 0.5
    wave = transformed(single, np.empty((1, n)), False)[0]
    assert abs(wave - np.cos(2 * np.pi * (np.arange(n) * place % n) / n)).max() < 2e-15


@pytest.mark.parametrize("n", [4096, 3375])
def test_factors_are_applied_before_numbers_overflow(n):
    points = np.full((1, n), 1e36, np.float32)
    modes = transformed(points, np.empty((1, n // 2 + 1), np.complex64), True, scale=1 / n)
    assert modes[0, 0] == pytest.approx(1e36, rel=1e-6)
    assert abs(modes[0, 1:]).max() < 1e30
    back = transformed(modes, np.empty_like(points), False)
    np.testing.assert_allclose(back, points, rtol=1e-5)


def test_rows_among_many_have_the_bits_of_lanes(monkeypatch):
    points = draw((2, 4096), float)
    among = transformed(points, np.empty((2, 2049), complex), True, among_many=True)
    monkeypatch.setattr(vector_fft, "find_line_kernel", lambda *arguments: None)
    np.testing.assert_array_equal(transformed(points, np.empty((2, 2049), complex), True), among)


@pytest.mark.parametrize("columns", [16, 17, 31, 45, 1024])
def test_groups_have_all_columns(columns):
    for in_pairs in (False, True):
        groups = long_lines._group_columns(columns, 8, in_pairs)
        places = groups[:, :1] + np.where(groups[:, 1:], -1, 1) * np.arange(8)
        # Of a mirrored group, column 0 is the one behind the last, and not used.
        assert set(range(columns)) <= set(places.ravel()) <= set(range(columns + 1))


def test_numbers_without_large_primes():
    smooth = [n for n in range(1, 3000) if max(fft_lengths.find_primes(n)) <= 7]
    for least in (1, 2, 11, 1025, 2049, 2402):
        assert fft_lengths.find_next_smooth(least) == min(n for n in smooth if n >= least)
    assert fft_lengths.find_divisors(360) == [n for n in range(1, 361) if 360 % n == 0]
