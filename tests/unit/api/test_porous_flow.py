"""A flow through pores: what it says about its image, refuses, and calls its permeability."""

import dataclasses
import inspect
import runpy
import sys
import warnings

import numpy as np
import pytest
import tifffile

import lattice_flows
from flows import REPOSITORY
from refusals import refused
from slipstream import PorousFlow
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError, RunError
from slipstream.lattice import Storage, make_sample, permeability
from slipstream.lattice.domain_decomposition import decompose
from slipstream.lattice.pore_flow import PoreFlow
from slipstream.show.solver_texts import description, result_texts

DEVICE = HostDevice()
PLAIN = {"storage": Storage(), "device": DEVICE}


@pytest.fixture(scope="module")
def rock():
    return np.asarray(make_sample("sandstone", (16, 16, 16), porosity=0.4, radius=4, seed=3))


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (3, {}, "value 3 (40.0 %)"),
        (3, {"pore": 0}, "value 0 (60.0 %)"),
        (3, {"pore": [0, 3]}, "values 0, 3 (100.0 %)"),
        (3, {"pore_above": 1, "pore_below": 4.5}, "values above 1 and below 4.5 (40.0 %)"),
        (True, {}, "value True (40.0 %)"),
    ],
)
def test_it_says_which_values_are_pore(rock, values, options, message):
    image = np.where(rock, np.array(values), np.zeros_like(values)).astype(np.asarray(values).dtype)
    walls = "xy" if options.get("pore") == [0, 3] else ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = permeability(image, max_steps=2, interval=2, walls=walls, **options, **PLAIN)
    assert result.pore_values == message
    assert f"pore                  {message}" in repr(result)
    flow = PorousFlow(image, walls=walls, **options, **PLAIN, comm=None)
    assert description(flow.solver)["pore"] == message


def test_runs_and_results_warn_of_narrow_pores_alike():
    image = np.zeros((6, 6, 6), np.uint8)
    image[:, 2:4, 1:5] = 1
    message = "100% of the pore voxels are in pores of at most 2 voxels"
    with pytest.warns(RuntimeWarning, match=message):
        result = permeability(image, **PLAIN)
    assert result.narrow_pores == 1
    assert "100.0% are one or two voxels wide" in repr(result)
    simulation = lattice_flows.make(DEVICE, "image.shape=[4, 3, 4]", case=lattice_flows.CHANNEL)
    simulation.prepare()
    assert any(message in one for one in simulation.warnings())
    assert result_texts(simulation, 1.0, 2)["narrow pores"][0] == "100.0%"
    assert description(simulation)["narrow pores"].startswith("100.0% of the pore voxels")


def narrow_by_rolls(pores):
    """Return the share of pores one or two voxels wide in a periodic image, voxel by voxel."""
    actual = np.zeros_like(pores)
    for axis in range(3):
        before, after, two = (np.roll(pores, n, axis) for n in (1, -1, -2))
        double = pores & ~before & after & ~two
        actual |= (pores & ~before & ~after) | double | np.roll(double, 1, axis)
    return actual.sum() / pores.sum()


def test_narrow_pores_are_counted_in_all_directions(rock):
    subdomain = decompose(
        make_sample("sandstone", (12, 14, 16), porosity=0.4, radius=3), [True] * 3, [0]
    )
    pores = subdomain.own[1:-1, 1:-1, 1:-1] != 0
    assert subdomain.narrow == pytest.approx(narrow_by_rolls(pores), rel=1e-14)


def test_both_interfaces_take_the_same_names():
    own = set(inspect.signature(permeability).parameters) - {"callback", "keep_fields"}
    # Callbacks are added by `every`, and fields are read from the flow itself.
    assert own <= set(inspect.signature(PorousFlow).parameters)


@pytest.mark.filterwarnings("ignore:23% of the pore voxels")
def test_both_interfaces_mean_the_same(rock):
    options = {
        "crop": [(0, 16), (2, 14), (1, 13)],
        "mirror": True,
        "walls": "xy",
        "tolerance": 1e-2,
    }
    result = permeability(rock, **options, **PLAIN)
    flow = PorousFlow(rock, **options, **PLAIN, comm=None)
    flow.run()
    assert flow.fields["density"].shape == (32, 12, 12)
    assert flow.permeability == pytest.approx(result.k, rel=1e-12)


def test_a_sample_need_not_be_an_array(rock):
    sample = make_sample("sandstone", (16, 16, 16), porosity=0.4, radius=4, seed=3)
    one, other = (PorousFlow(of, tolerance=1e-2, comm=None, **PLAIN) for of in (sample, rock))
    one.run(), other.run()
    assert one.permeability == other.permeability


@pytest.mark.slow
def test_the_permeability_of_all_axes_is_the_mean_of_the_diagonal(rock):
    flow = PorousFlow(rock, axis="all", voxel_size=2e-6, comm=None, **PLAIN)
    flow.step(2)
    assert np.isnan(flow.permeability)
    assert np.isnan(flow.tensor[:, 1:]).all()
    flow.run()
    result = permeability(rock, 2e-6, axis="all", **PLAIN)
    assert flow.permeability == pytest.approx(result.k, rel=1e-12)
    np.testing.assert_allclose(flow.tensor, result.tensor, rtol=1e-12, atol=1e-24)
    assert flow.residual == pytest.approx(result.residual, rel=1e-6)


def test_a_flow_that_is_not_finite_ends_at_the_next_look(rock, monkeypatch):
    flow = PorousFlow(rock, comm=None, interval=10, **PLAIN)
    flow.step(2)
    flow.solver.flow.set_populations(np.arange(3), 5, np.full(3, np.nan))
    with pytest.raises(RunError, match="not finite any more at step 6"):
        flow.run()
    sums, steps = PoreFlow.sums, []

    def spoilt(self):
        steps.append(self.steps)
        found, fastest = sums(self)
        return found * (np.nan if self.steps >= 30 else 1), fastest

    monkeypatch.setattr(PoreFlow, "sums", spoilt)
    with pytest.raises(RunError, match="not finite any more at step 30"):
        permeability(rock, interval=10, tolerance=1e-9, **PLAIN)
    assert steps[-1] == 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"force": 1e308}, "force: accepted: 1e-15 to 1e[+]15, .*, not 1e[+]308"),
        ({"pressure_drop": 1e-320}, "pressure_drop: accepted: .*, not 9.99989e-321"),
        ({"tolerance": 1e-13}, "below the floor of round-off; accepted .* at least 1e-12"),
        ({"tolerance": 1e-7, "precision": "float32"}, "'float32': at least 1e-06"),
        ({"tolerance": 1e-7, "precision": "mixed"}, "'mixed': at least 1e-06"),
    ],
)
def test_numbers_beyond_the_precision_are_refused_in_one_line(rock, options, message):
    for make in (permeability, PorousFlow):
        with refused():
            make(rock, device=DEVICE, **options)
    with pytest.raises(InputError, match=message):
        permeability(rock, device=DEVICE, **options)


@pytest.mark.parametrize("image", [{}, {"sample": "sandstone"}, {"image": 1}, {"path": 3}, [1], 7])
def test_images_of_foreign_kinds_are_refused_in_one_line(image):
    with refused():
        PorousFlow(image, comm=None, device=DEVICE)


def test_the_small_image_is_what_its_script_makes(tmp_path, monkeypatch):
    path = REPOSITORY / "examples" / "rock.tif"
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(sys, "argv", ["make_rock.py", str(tmp_path / "rock.tif")])
    runpy.run_path(str(REPOSITORY / "examples" / "make_rock.py"), run_name="__main__")
    np.testing.assert_array_equal(tifffile.imread(path), tifffile.imread(tmp_path / "rock.tif"))


def test_a_storage_is_given_to_both_interfaces_in_the_same_way(rock):
    storage = dataclasses.asdict(Storage(layout="collision", propagation="two-lattice"))
    flow = PorousFlow(rock, storage=storage, comm=None, device=DEVICE)
    flow.prepare()
    assert flow.solver.storage == Storage(**storage)
