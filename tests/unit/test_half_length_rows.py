"""Real rows by complex transforms of half their length, beside NumPy's and FFTW's."""

import numpy as np
import pytest

from slipstream.device import HostDevice, fftw, half_length_rows

DEVICE = HostDevice(threads=1)
TOLERANCES = {"float64": 1e-15, "float32": 6e-7}


def arrays(shape, dtype):
    """Return random points, and room for their modes."""
    points = DEVICE.empty(shape, dtype)
    points[...] = np.random.default_rng(3).standard_normal(shape)
    complex_dtype = np.result_type(dtype, np.complex64)
    return points, DEVICE.empty((*shape[:-1], shape[-1] // 2 + 1), complex_dtype)


@pytest.mark.parametrize("n", [64, 96, 128])
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_rows_are_those_of_numpy(n, dtype):
    """The source of a forward one is kept."""
    points, modes = arrays((2, 3, 5, n), dtype)
    before = points.copy()
    assert half_length_rows.possible(points, modes, 3)
    DEVICE.run(DEVICE.fft(points, modes, 3, True))
    np.testing.assert_array_equal(points, before)
    expected = np.fft.rfft(points.astype(float))
    assert abs(modes - expected).max() < 4 * TOLERANCES[dtype] * abs(expected).max()
    assert not modes[..., 0].imag.any() and not modes[..., -1].imag.any()
    # What has no meaning in modes of real rows has no influence.
    modes[..., 0].imag, modes[..., -1].imag = 3, 5
    DEVICE.run(DEVICE.fft(modes, points, 3, False))
    np.testing.assert_allclose(points, n * before, atol=20 * n * TOLERANCES[dtype])


@pytest.mark.parametrize("threads", [1, 2])
def test_parts_of_rows_have_the_bits_of_the_whole(threads):
    """Rows are transformed in parts, by one thread, or by several: nobody sees in which."""
    device = HostDevice(threads=threads, lanes=1)
    points, modes = arrays((2, 1, 333, 64), "float64")
    device.run(device.fft(points, modes, 3, True))
    for rows in (np.s_[:, :, :8], np.s_[1:, :, 320:]):
        alone = DEVICE.empty(modes[rows].shape, modes.dtype)
        DEVICE.run(DEVICE.fft(points[rows], alone, 3, True))
        np.testing.assert_array_equal(alone, modes[rows])


def test_in_place_and_between_strided_rows():
    n = 64
    memory = DEVICE.empty((3, 5, n // 2 + 1), np.complex128)
    points = memory.view(float)[..., :n]
    points[...] = values = np.random.default_rng(5).standard_normal((3, 5, n))
    assert half_length_rows.possible(points, memory, 2)
    DEVICE.run(DEVICE.fft(points, memory, 2, True))
    np.testing.assert_allclose(memory, np.fft.rfft(values), atol=1e-13)
    points[...] = values
    backward = points[::-1], memory[::-1]
    assert not half_length_rows.possible(*backward, 2)
    DEVICE.run(DEVICE.fft(*backward, 2, True))
    np.testing.assert_allclose(memory, np.fft.rfft(values), atol=1e-13)
    wide, tall = DEVICE.empty((6, 5, n + 10), float), DEVICE.empty((3, 9, n), np.complex128)
    source, target = wide[::-2, :, :n], tall[:, 2:7, 3 : 4 + n // 2]
    source[...], tall[...] = values, 7
    DEVICE.run(DEVICE.fft(source, target, 2, True))
    np.testing.assert_allclose(target, np.fft.rfft(values), atol=1e-13)
    target[...] = 7
    assert (tall == 7).all()


@pytest.mark.parametrize(
    ("shape", "part"),
    [
        ((4, 65), np.s_[:, :]),
        ((4, 62), np.s_[:, :]),
        ((4, 129), np.s_[:, :64]),
        ((4, 128), np.s_[:, ::2]),
    ],
    ids=["odd", "short", "rows at odd places", "with gaps"],
)
def test_other_rows_are_left_to_fftw(shape, part):
    points = arrays(shape, "float64")[0][part]
    modes = DEVICE.empty((4, points.shape[-1] // 2 + 1), np.complex128)
    assert not half_length_rows.possible(points, modes, 1)
    DEVICE.run(DEVICE.fft(points, modes, 1, True))
    np.testing.assert_allclose(modes, np.fft.rfft(points), atol=1e-13)


def test_fftw_itself_is_an_oracle():
    points, modes = arrays((1, 2, 40, 128), "float64")
    DEVICE.run(DEVICE.fft(points, modes, 3, True))
    theirs = DEVICE.empty(modes.shape, modes.dtype)
    fftw.plan(points, theirs, (3,), True, 1)(None)
    np.testing.assert_allclose(modes, theirs, atol=2e-14)
