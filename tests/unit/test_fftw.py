"""FFTW's plans: the same bits in every run, unless measuring is asked for."""

import functools

import numpy as np
import pyfftw
import pytest

from flows import random_values
from slipstream.device import HostDevice, fftw
from slipstream.errors import InputError
from slipstream.fft import DistributedFFT

# Columns and rows of lengths that FFTW divides in several ways: (kind, shape of points, axis).
PROBLEMS = [
    ("complex", (240, 16), 0),
    ("forward", (8, 128), 1),
    ("backward", (8, 120), 1),
    ("backward", (8, 128), 1),
]


def arrays(kind, shape, axis):
    modes = tuple(n // 2 + 1 if a == axis else n for a, n in enumerate(shape))
    points = fftw.empty(shape, "float64")
    spectral = fftw.empty(shape if kind == "complex" else modes, "complex128")
    pairs = {
        "complex": (spectral, spectral),
        "forward": (points, spectral),
        "backward": (spectral, points),
    }
    return pairs[kind]


def transform(kind, shape, axis):
    """Return the bits of a transform of the same numbers as ever."""
    source, target = arrays(kind, shape, axis)
    operation = HostDevice(threads=1).fft(source, target, axis, kind != "backward")
    generator = np.random.default_rng(0)
    source[...] = generator.standard_normal(source.shape)
    if source.dtype.kind == "c":
        source += 1j * generator.standard_normal(source.shape)
    operation(None)
    return target.tobytes()


def entries(wisdom=None):
    """Return what FFTW has measured, in this process or as it was saved, as a set of lines."""
    return set((wisdom or pyfftw.export_wisdom()[0]).decode().splitlines())


@pytest.fixture(autouse=True)
def first_run(monkeypatch, tmp_path):
    """Forget what has been planned, here and in the cache, and put it back afterwards."""
    monkeypatch.delenv(fftw.MEASURING, raising=False)
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path))
    monkeypatch.setattr(fftw, "_plans", {})
    kept = pyfftw.export_wisdom()

    def forget():
        fftw._plans.clear()
        pyfftw.forget_wisdom()
        fftw._load_wisdom.cache_clear()

    forget()
    yield forget
    forget()
    pyfftw.import_wisdom(kept)


@pytest.mark.parametrize(("kind", "shape", "axis"), PROBLEMS)
def test_six_first_runs_have_the_same_bits(first_run, kind, shape, axis):
    bits = set()
    for _ in range(6):
        first_run()
        bits.add(transform(kind, shape, axis))
    assert len(bits) == 1


@pytest.mark.parametrize(("kind", "shape", "axis"), PROBLEMS)
def test_what_others_have_measured_changes_no_bit(first_run, kind, shape, axis):
    expected = transform(kind, shape, axis)
    first_run()
    direction = "FFTW_BACKWARD" if kind == "backward" else "FFTW_FORWARD"
    pyfftw.FFTW(*arrays(kind, shape, axis), axes=(axis,), direction=direction)  # measures
    measured = entries()
    assert transform(kind, shape, axis) == expected
    # Nor is what they have measured lost.
    assert entries() == measured


@pytest.mark.parametrize("others", [0, 1])
def test_an_estimate_knows_no_other_plans_and_leaves_none(others):
    nothing = entries()
    for kind, shape, axis in PROBLEMS[:others]:
        pyfftw.FFTW(*arrays(kind, shape, axis), axes=(axis,))
    before = entries()
    with fftw.without_wisdom("fftw"):
        assert entries() == nothing
        pyfftw.FFTW(*arrays(*PROBLEMS[1]), axes=(1,))
        assert entries() not in (nothing, before)
    assert entries() == before


def test_measured_plans_are_added_to_those_of_others_at_once(first_run, monkeypatch, tmp_path):
    monkeypatch.setenv(fftw.MEASURING, "measure")
    transform(*PROBLEMS[0])
    mine = entries((tmp_path / "fftw-double.wisdom").read_bytes())
    # Another process, which has loaded an empty cache before.
    first_run()
    monkeypatch.setattr(fftw, "_load_wisdom", functools.cache(lambda: None))
    transform(*PROBLEMS[1])
    assert mine < entries((tmp_path / "fftw-double.wisdom").read_bytes())


def test_measured_plans_are_remembered(first_run, monkeypatch):
    monkeypatch.setenv(fftw.MEASURING, "measure")
    bits = transform(*PROBLEMS[0])
    saved = []
    monkeypatch.setattr(fftw, "_save_wisdom", lambda: saved.append(True))
    for _ in range(3):
        first_run()
        assert transform(*PROBLEMS[0]) == bits
    assert not saved


def test_unknown_ways_to_plan_are_refused(monkeypatch):
    monkeypatch.setenv(fftw.MEASURING, "guess")
    with pytest.raises(InputError, match="SLIPSTREAM_FFTW is 'guess'; accepted: estimate, measure"):
        transform(*PROBLEMS[0])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_bits_do_not_depend_on_how_many_lanes_share_the_work(dtype):
    """Their batches differ in size, by which FFTW would plan."""
    points = np.random.default_rng(2).standard_normal((48, 32, 64)).astype(dtype)
    results = set()
    for lanes in (1, 3, 5, 16):
        device = HostDevice(threads=lanes, lanes=lanes)
        fft = DistributedFFT(points.shape, dtype, device=device)
        modes = fft.forward(points)
        results.add((np.asarray(modes).tobytes(), np.asarray(fft.backward(modes)).tobytes()))
    assert len(results) == 1


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_planes_are_found_in_arrays_with_gaps_and_in_reversed_ones(axis):
    device = HostDevice(threads=1)
    whole = random_values((9, 10, 24), np.complex128)
    expected = np.fft.fft(whole[:, :, ::2], axis=axis)
    target = np.empty(expected.shape, np.complex128)
    device.fft(whole[:, :, ::2], target, axis, True)(device.default_stream)
    np.testing.assert_allclose(target, expected, atol=1e-12)
    reverse = whole[:, ::-1, ::-1]
    expected = np.fft.fft(reverse, axis=axis)
    device.fft(reverse, reverse, axis, True)(device.default_stream)
    np.testing.assert_allclose(reverse, expected, atol=1e-12)
