"""Flows that begin from those through larger voxels."""

import pickle

import numpy as np
import pytest

import lattice_flows
from flows import save
from lattice_flows import advance, start
from lattice_oracle import subdomain_of, tight_pores
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import RunError
from slipstream.lattice import Fluid, PoreFlow, Storage, make_sample, permeability
from slipstream.lattice.coarse_start import _interpolated, coarse_pores
from slipstream.lattice.lattice_simulation import LatticeSimulation

DEVICE = HostDevice(threads=1)
PLAIN = {"storage": Storage(), "device": DEVICE}
pytestmark = [
    pytest.mark.filterwarnings("ignore:.* of the pore voxels are in pores"),
    pytest.mark.filterwarnings("ignore:pore faces solid"),
]


@pytest.fixture(scope="module")
def sandstone():
    return np.asarray(make_sample("sandstone", (24, 20, 16), porosity=0.5, radius=5))


def coarser(image):
    """Return the image with voxels twice as large."""
    sizes = [part for n in image.shape for part in (n // 2, 2)]
    return (image.reshape(sizes).sum(axis=(1, 3, 5)) >= 4).astype(np.uint8)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"pressure_drop": 1e-4, "buffer": 2}, {"axis": "all"}])
def test_the_flow_and_its_estimated_error_are_the_same(sandstone, options):
    settings = {"tolerance": 1e-7, **options, **PLAIN}
    actual = permeability(sandstone, coarse_start=True, **settings)
    plain = permeability(sandstone, **settings)
    assert actual.k == pytest.approx(plain.k, rel=1e-7)
    assert 0 < actual.resolution_error == pytest.approx(plain.resolution_error, rel=1e-5)


def test_half_precision_begins_from_the_same_flow(sandstone):
    steps = {
        precision: permeability(
            sandstone,
            coarse_start=True,
            tolerance=5e-2,
            relaxation_time=1.0,
            storage=Storage(precision=precision),
            device=DEVICE,
        ).steps
        for precision in ("float32", "float16")
    }
    settings = {"tolerance": 5e-2, "relaxation_time": 1.0}
    rest = permeability(sandstone, storage=Storage(), device=DEVICE, **settings).steps
    assert steps["float16"] == pytest.approx(steps["float32"], abs=6)
    assert max(steps.values()) < rest


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_coarse_start_saves_steps_in_any_unit(precision):
    sample = make_sample("sandstone", (24, 24, 24), porosity=0.3, radius=5)
    settings = {"tolerance": 3e-2, "storage": Storage(precision=precision), "device": DEVICE}
    found, plain = (permeability(sample, coarse_start=c, **settings) for c in (True, False))
    assert found.steps < plain.steps
    assert found.k == pytest.approx(plain.k, rel=2e-2)


def test_a_flow_begins_at_rest_where_larger_voxels_close_all_paths():
    image = np.zeros((16, 16, 16), np.uint8)
    image[:, 7:8, 7:8] = 1
    with pytest.warns(RuntimeWarning, match=r"begins at rest: .* \(the image has no pore voxel\)$"):
        found = permeability(image, coarse_start=True, **PLAIN)
    assert found.k == permeability(image, **PLAIN).k


def test_what_fails_in_the_flow_through_larger_voxels_is_reported(sandstone, monkeypatch):
    def fail(*_):
        raise RunError("the flow has blown up")

    take_pair = LatticeSimulation.take_pair

    def take_pair_or_fail(simulation, *arguments):
        return fail() if simulation.coarsening > 1 else take_pair(simulation, *arguments)

    monkeypatch.setattr(LatticeSimulation, "take_pair", take_pair_or_fail)
    with pytest.warns(RuntimeWarning, match=r"\(the flow has blown up\)"):
        permeability(sandstone, coarse_start=True, **PLAIN)


def test_the_coarse_image_is_pore_where_half_of_it_is():
    image = tight_pores((17, 16, 12), 0.5)
    simulation = type("", (), {"subdomain": subdomain_of(image, (True,) * 3), "comm": None})
    np.testing.assert_array_equal(coarse_pores(simulation, 2), coarser(image[:16]))


def test_densities_that_grow_along_an_axis_stay_so():
    pore = np.ones((16, 16, 16), np.uint8)
    flow = PoreFlow(subdomain_of(pore, (True,) * 3), Fluid(), Storage(), DEVICE)
    density = np.broadcast_to(np.arange(8.0)[:, None, None], (8, 8, 8))
    actual = _interpolated(flow, density, np.ones((8, 8, 8), np.uint8))
    # Twice that, at the middles of voxels; linear but across the periodic faces.
    profile = np.unique(actual[0, : flow.sites.count].reshape(16, -1)[1:-1], axis=1)[:, 0]
    np.testing.assert_allclose(profile, np.arange(1, 15) - 0.5)
    assert not actual[1:].any()


@pytest.mark.slow
def test_a_restart_goes_on_without_another_coarse_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = ("time.end=4000", "convergence.vectors=10", "convergence.coarse_start=true")
    first = advance(start(DEVICE, *settings, "image.shape=[16, 16, 16]"), 74)
    assert first.findings(1.0, 74)["resolution error"].value == first.resolution_error()
    copy = start(DEVICE, *settings, "image.shape=[16, 16, 16]")
    copy.restore(pickle.loads(pickle.dumps(first.kept())))
    save(first, "first")
    later = start(DEVICE, *settings, "image.shape=[16, 16, 16]", "initial.restart=first")
    assert lattice_flows.state_of(later)[1].tobytes() == lattice_flows.state_of(first)[1].tobytes()
