"""Promises of the advection scheme: exact shifts, second order, conservation, stability."""

import math

import numpy as np
import pytest

from slipstream.advection import FLOPS, Advection, gaussian
from slipstream.engine.decomposition import Box, whole
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError

WIDTH = 0.12


@pytest.fixture(scope="module")
def started(device):
    """A function that sets values on the device of the tests."""
    if device.kind == "cpu":
        strategy, devices = "single", {"cpu": device}
    else:
        strategy, devices = "gpu", {"gpu": device}

    def start(values, courant):
        run = Advection(values.shape, courant, strategy, values.dtype, devices=devices)
        run.set(values)
        return run

    return start


def start_gaussian(started, points, courant, dtype="float64"):
    shape = (points, points, points)
    return started(gaussian(whole(shape), shape, (0, 0, 0), WIDTH).astype(dtype), courant)


def noise(shape, dtype="float64"):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("courant", [(1, 1, 1), (-1, 1, 0), (0, 0, 0), (0, -1, -1)])
@pytest.mark.parametrize("shape", [(8, 9, 35), (3, 2, 1)])
def test_courant_numbers_of_one_shift_the_field_bit_for_bit(started, dtype, courant, shape):
    values = noise(shape, dtype)
    run = started(values, courant)
    for steps in (1, 4):
        run.advance(steps)
        distances = [round(c) * run.steps for c in courant]
        shifted = np.roll(values, distances, (0, 1, 2))
        assert run.values().tobytes() == np.ascontiguousarray(shifted).tobytes()


def test_a_period_of_exact_shifts_brings_every_bit_back(started):
    values = noise((6, 8, 12))
    run = started(values, (1, -1, 1))
    run.advance(24)
    assert run.values().tobytes() == values.tobytes()


@pytest.mark.parametrize("courant", [(0.5, 0.5, 0.5), (0.8, -0.6, 0.4), (0.3, 1.0, 0.0)])
def test_the_scheme_is_of_second_order(started, courant):
    """The time is the same for all grids; a half as large a spacing is a quarter of the error."""
    errors = []
    for points in (40, 80):
        run = start_gaussian(started, points, courant)
        run.advance(points // 4)
        errors.append(np.abs(run.values() - run.exact(WIDTH)).max())
    # The next order in the spacing changes the observed order by a few hundredths.
    assert math.log2(errors[0] / errors[1]) == pytest.approx(2, abs=0.15)
    assert errors[1] > 1e-10  # far above rounding


def test_a_gaussian_returns_through_the_corner_to_where_it_began(started):
    errors = []
    for points in (32, 64):
        run = start_gaussian(started, points, (0.5, 0.5, 0.5))
        first = run.values()
        run.advance(2 * points)
        np.testing.assert_allclose(run.exact(WIDTH), first, rtol=0, atol=1e-13)
        errors.append(np.sqrt(np.mean((run.values() - first) ** 2) / np.mean(first**2)))
    # Third-order dispersion of waves of 2 pi widths, over one edge: some percent on the finer grid.
    assert errors[1] < 0.1
    assert math.log2(errors[0] / errors[1]) > 1.7


@pytest.mark.parametrize("courant", [(1, 1, 1), (0.7, -0.4, 0.9)])
def test_the_exact_solution_is_where_it_was_carried(started, courant):
    """It is compared with the shift of a sampled Gaussian, and by its centre of mass."""
    shape = (12, 16, 20)
    run = started(gaussian(whole(shape), shape, (0, 0, 0), WIDTH), courant)
    run.advance(3)
    exact = run.exact(WIDTH)
    for axis, (points, number) in enumerate(zip(shape, courant, strict=True)):
        angle = 2 * np.pi * np.arange(points) / points
        others = tuple(other for other in range(3) if other != axis)
        phase = np.angle((exact.sum(axis=others) * np.exp(1j * angle)).sum())
        moved = 2 * np.pi * 3 * number / points
        assert np.cos(phase - np.pi - moved) == pytest.approx(1, abs=1e-12)
    if courant == (1, 1, 1):
        np.testing.assert_allclose(exact, run.values(), rtol=0, atol=1e-13)


def test_parts_of_a_gaussian_are_those_of_the_whole():
    shape, travelled = (9, 10, 11), (0.3, -2.7, 0.0)
    everything = gaussian(whole(shape), shape, travelled, WIDTH)
    part = Box((2, 0, 5), (7, 10, 6))
    assert gaussian(part, shape, travelled, WIDTH).tobytes() == everything[part.slices()].tobytes()
    assert gaussian(Box((4, 4, 4), (4, 5, 5)), shape, travelled, WIDTH).shape == (0, 1, 1)


@pytest.mark.parametrize("width", [0.05, 0.3, 1.0])
def test_a_gaussian_is_periodic_however_wide(width):
    """A sum over many more images, one by one."""
    shape = (5, 6, 7)
    away = [np.arange(n) / n - 0.5 - d for n, d in zip(shape, (0.1, 1.4, -7.0), strict=True)]
    z, y, x = (sum(np.exp(-0.5 * ((a + i) / width) ** 2) for i in range(-40, 41)) for a in away)
    expected = z[:, None, None] * y[:, None] * x
    found = gaussian(whole(shape), shape, (0.1, 1.4, -7.0), width)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("courant", [(0.5, 0.5, 0.5), (0.7, -0.4, 0.9), (1, 1, 1)])
def test_mass_is_conserved_to_round_off(started, courant, dtype):
    values = noise((12, 13, 37), dtype) + np.dtype(dtype).type(
        8
    )  # a mean much larger than the noise
    run = started(values, courant)
    steps = 50
    run.advance(steps)
    mass, before = (field.astype(np.longdouble).sum() for field in (run.values(), values))
    # Weights along an axis sum to one but for a rounding, and all points have the same: that adds
    # up. Roundings of the points themselves do not, as they are of either sign.
    assert abs(mass / before - 1) <= 3 * steps * np.finfo(dtype).eps


def test_noise_does_not_grow_within_the_stability_limit(started):
    for courant in ((0.999, -0.999, 0.999), (0.5, 0.5, 0.5), (1, -1, 0.1)):
        values = noise((8, 9, 10))
        run = started(values, courant)
        energy = np.sum(values**2)
        for _ in range(10):
            run.advance(10)
            later = np.sum(run.values() ** 2)
            # No Fourier mode grows; rounding is far less than the damping of most of them.
            assert later <= energy * (1 + 1e-12)
            energy = later


@pytest.mark.parametrize("courant", [(1.0000001, 0, 0), (0, 0, -2)])
def test_courant_numbers_beyond_the_limit_are_refused(courant):
    with pytest.raises(InputError, match="from -1 to 1 \\(stability\\)"):
        Advection((8, 8, 8), courant)


def test_operations_are_counted_as_in_the_paper():
    assert FLOPS == 27 + 26


@pytest.mark.slow
def test_all_devices_agree_on_the_bits_of_a_long_run(device):
    """On a GPU too: its kernels, those of CPUs, and both together."""
    values, results = noise((20, 22, 70)), []
    gpu = HostDevice(tiled=True) if device.kind == "cpu" else device
    devices = {"cpu": HostDevice(threads=3), "gpu": gpu}
    for strategy in ("single", "gpu", "hybrid", "hybrid-overlap"):
        run = Advection(values.shape, (0.7, -0.4, 0.9), strategy, shell=3, devices=devices)
        run.set(values)
        run.advance(100)
        results.append(run.values().tobytes())
    assert all(result == results[0] for result in results)
