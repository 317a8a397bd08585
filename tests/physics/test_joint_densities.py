"""Densities over chosen bins, joint ones, and conditional means: against NumPy and theory."""

import math

import numpy as np
import pytest
import xarray
from matplotlib.colors import LogNorm

import slipstream as ss
from slipstream.engine.errors import InputError
from slipstream.show.stored_run import StoredRun

RANGE = [[-2.0, 3.0], [-4.0, 4.0]]
NAMES = ["velocity_x", "2*velocity_y*velocity_z"]


@pytest.fixture(scope="module", params=["float64", "float32"])
def flow(request, tested_device):
    return ss.Turbulence(
        points=[12, 16, 10],
        viscosity=0.1,
        initial={"flow": "random", "peak_wavenumber": 2.0},
        precision=request.param,
        device=tested_device,
    )


def numbers(flow, expression):
    return flow.device.to_host(flow.evaluate(expression)[...]).astype(float).ravel()


def test_joint_densities_and_conditional_means_are_numpys(flow):
    first, second = (numbers(flow, name) for name in NAMES)
    other = numbers(flow, "vorticity_z**2")
    actual = flow.density(NAMES, range=RANGE, bins=[5, 7], means="vorticity_z**2")
    counts = np.histogram2d(first, second, (5, 7), RANGE)[0]
    area = 5 / 5 * 8 / 7
    density = actual["density"]
    assert density.dims == ("velocity_x", "2_velocity_y_velocity_z")
    np.testing.assert_allclose(density.coordinates["velocity_x"], [-1.5, -0.5, 0.5, 1.5, 2.5])
    # Values near an edge may be on either side of it.
    far = 1e-12 if flow.case.numerics.precision == "float64" else 1.1 / first.size / area
    np.testing.assert_allclose(density.data, counts / first.size / area, rtol=0, atol=far)
    if far > 1e-10:
        return
    sums = np.histogram2d(first, second, (5, 7), RANGE, weights=other)[0]
    with np.errstate(invalid="ignore"):
        expected = sums / counts
    mean = actual["vorticity_z_2_mean"].data
    assert np.isnan(mean).any()
    np.testing.assert_allclose(mean, expected, rtol=1e-9)


def test_ranges_are_those_of_the_state_by_default(flow):
    actual = flow.density("velocity_x", bins=20)["density"]
    values = numbers(flow, "velocity_x")
    middles = actual.coordinates["velocity_x"]
    width = middles[1] - middles[0]
    assert actual.data.sum() * width == pytest.approx(1, rel=1e-12)
    assert middles[0] - width / 2 == pytest.approx(values.min(), rel=1e-6)
    assert middles[-1] + width / 2 == pytest.approx(values.max(), rel=1e-6)
    # A constant is in the middle bin.
    constant = flow.density("3 + 0*velocity_x", bins=5)["density"]
    assert np.argmax(constant.data) == 2
    assert constant.data[2] == pytest.approx(5)


def test_a_gaussian_field_has_gaussian_densities_and_linear_conditional_means(tested_device):
    """Of two Gaussian variables of correlation c, <b | a> = c a (rms b / rms a)."""
    flow = ss.Turbulence(
        points=48,
        viscosity=0.1,
        initial={"flow": "random", "peak_wavenumber": 6.0, "seed": 5},
        device=tested_device,
    )
    both = "velocity_x + velocity_y"
    actual = flow.density(["velocity_x"], range=[-4, 4], bins=32, means=both)
    x = actual["density"].coordinates["velocity_x"]
    a, b = numbers(flow, "velocity_x"), numbers(flow, both)
    expected = np.exp(-(x**2) / (2 * a.var())) / math.sqrt(2 * math.pi * a.var())
    assert np.abs(actual["density"].data - expected).max() <= 0.05 * expected.max()
    near = np.abs(x) < 1.5 * a.std()
    slope = (a * b).mean() / a.var()
    np.testing.assert_allclose(
        actual["velocity_x_velocity_y_mean"].data[near], slope * x[near], atol=0.15 * b.std()
    )


@pytest.mark.slow
def test_runs_write_densities_and_go_on(tested_device, tmp_path):
    output = {
        "densities": [
            {"of": NAMES, "range": RANGE, "bins": 6, "means": "velocity_x**2", "interval": 0.05},
            {"of": "velocity_z", "range": [-1, 1], "file": "last.zarr"},
        ]
    }
    given = {"points": 8, "viscosity": 1.0, "initial": "taylor-green", "step": 0.025}
    flow = ss.Turbulence(**given, output=output, device=tested_device)
    flow.run(until=0.1, output=tmp_path / "run")
    expected = flow.density(NAMES, range=RANGE, bins=6)["density"].data
    ss.open(tmp_path / "run").resume({"time.end": 0.2})
    outputs = tmp_path / "run/outputs"
    stored = xarray.open_zarr(outputs / "velocity_x-2_velocity_y_velocity_z-density.zarr")
    np.testing.assert_allclose(stored["time"], [0, 0.05, 0.1, 0.15, 0.2], atol=1e-12)
    assert stored["density"].dims == ("time", "velocity_x", "2_velocity_y_velocity_z")
    np.testing.assert_array_equal(stored["density"][2], expected)
    mean = stored["velocity_x_2_mean"]
    assert (np.isnan(mean) == (stored["density"] == 0)).all()
    last = xarray.open_zarr(outputs / "last.zarr")
    assert last["density"].shape == (1, 100)
    check_pictures(tmp_path, stored)


def check_pictures(folder, stored):
    """Pictures are of the last densities: those of a run, and of its folder."""
    pictures = {one.name: one for one in StoredRun(folder / "run").pictures()}
    names = ["velocity_x-2_velocity_y_velocity_z-density", "last-density"]
    assert all(name in pictures and (folder / f"run/{name}.png").exists() for name in names)
    picture = pictures[names[0]]
    density, mean, *_ = picture.draw().axes  # and bars of colours
    (image,) = density.collections
    values = stored["density"][-1].values.T
    shown = image.get_array().reshape(values.shape)
    assert isinstance(image.norm, LogNorm)
    np.testing.assert_array_equal(shown.filled(0), values)
    assert (density.get_xlabel(), density.get_ylabel()) == ("velocity_x", "2*velocity_y*velocity_z")
    np.testing.assert_array_equal(np.isnan(stored["velocity_x_2_mean"][-1].values.T), shown.mask)
    assert (mean.collections[0].get_array().reshape(values.shape).mask == shown.mask).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"of": "velocity"}, "density.of: velocity is a vector; accepted: real scalars"),
        ({"of": ["velocity_x"] * 3}, "density"),
        ({"of": "velocity_x", "range": [1, 0]}, "density.range"),
        ({"of": "velocity_x", "bins": 0}, "density.bins"),
        ({"of": "velocity_x", "bins": [5, 6]}, "density"),
        ({"of": ["velocity_x", "velocity_x"]}, "twice"),
        ({"of": "velocity_x", "means": "vorticity"}, "density.means"),
    ],
)
def test_what_makes_no_sense_is_refused(flow, given, message):
    with pytest.raises(InputError, match=message):
        flow.density(**given)
