"""Results of `permeability` besides its number: fields, tortuosity, forces, units, its end."""

import gc
import itertools
import math
import os
import pickle
import signal
import sys
import threading

import h5py
import numpy as np
import pytest
import xarray

from lattice_oracle import random_pores
from refusals import refused
from slipstream.engine.errors import InputError
from slipstream.lattice import (
    Permeability,
    PermeabilityInterrupted,
    PoreFlow,
    Storage,
    make_sample,
    permeability,
)

# How populations are stored is chosen here: measuring it takes longer than these flows.
PLAIN = {"storage": Storage(), "device": "cpu"}


def channel(width=5, length=4):
    """Return layers of pore between two of solid, normal to y."""
    return np.asarray(make_sample("channel", (length, width + 2, 2), axis="y"))


def inclined(width=5, length=8):
    """Return a slit along the diagonal of z and y, whose walls are stairs of one voxel."""
    z, y, x = np.ogrid[:length, :length, :3]
    return ((z + y + 0 * x) % length < width).astype(np.uint8)


def sphere(size=8):
    return np.asarray(make_sample("spheres", (size,) * 3, lattice="simple", solid_fraction=0.2))


def message(**arguments):
    with refused() as caught:
        permeability(**{"image": channel(), **PLAIN, **arguments})
    return str(caught.value)


# -- facts of the flow ---------------------------------------------------------------------------


@pytest.mark.parametrize("axis", ["x", "y", "z"])
def test_straight_ducts_have_a_tortuosity_of_one(axis):
    image = make_sample("duct", tuple(2 if name == axis else 6 for name in "zyx"), axis=axis)
    result = permeability(image, axis=axis, tolerance=1e-9, **PLAIN)
    assert result.tortuosity == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("axis", ["x", "z"])
def test_layers_of_pore_do_not_count_in_the_tortuosity(axis):
    image = make_sample("random-pack", (12, 14, 16), radius=3.0, solid_fraction=0.3)
    result = permeability(image, axis=axis, buffer=5, tolerance=1e-3, **PLAIN)
    velocity = np.moveaxis(result.fields["velocity"].data, 1 + "zyx".index(axis), 1)[:, 5:-5]
    along = velocity["xyz".index(axis)]
    speed = np.sqrt((velocity**2).sum(axis=0))
    assert result.tortuosity == pytest.approx(speed.sum() / along.sum(), rel=1e-12)


@pytest.mark.filterwarnings("ignore:pore faces solid")
def test_a_tensor_of_a_mirrored_sample_is_warned_of():
    with pytest.warns(RuntimeWarning, match="mirror along z makes .* tensor .* are 0"):
        result = permeability(sphere(), axis="all", mirror="z", tolerance=1e-3, **PLAIN)
    assert abs(result.tensor[1, 2]) < 1e-6 * result.tensor[2, 2]


@pytest.mark.filterwarnings("ignore:pore faces solid")
def test_inclined_ducts_have_that_of_their_angle():
    """One voxel per voxel: 45 degrees, at which the walls are the same all along."""
    result = permeability(inclined(), axis="z", tolerance=1e-9, max_steps=20_000, **PLAIN)
    assert result.tortuosity == pytest.approx(math.sqrt(2), rel=1e-9)
    # All of the flow is along the duct, against y as much as along z.
    x, y, z = result.flow.velocity
    assert y == pytest.approx(-z, rel=1e-9)
    assert abs(x) < 1e-12 * z


@pytest.mark.parametrize("drive", [{"force": 2e-5}, {"pressure_drop": 1e-4}])
@pytest.mark.parametrize("image", [channel(), sphere()])
def test_walls_resist_what_drives_a_steady_flow(image, drive):
    result = permeability(image, tolerance=1e-8, **drive, **PLAIN)
    volume = np.count_nonzero(image)
    sample = image.shape[0]
    force = drive.get("force", drive.get("pressure_drop", 0) / sample)
    # The difference of pressure pushes on the pores of a face, the force on all.
    pushed = volume if "force" in drive else np.count_nonzero(image[0]) * sample
    np.testing.assert_allclose(result.driving_force, [0, 0, force * pushed], rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(
        result.wall_force, result.driving_force, rtol=1e-5, atol=1e-6 * force * volume
    )
    assert result.flow.balance == pytest.approx(1, rel=1e-5)


def test_walls_resist_less_while_the_flow_begins():
    with pytest.warns(RuntimeWarning, match="not converged"):
        result = permeability(channel(9), max_steps=2, **PLAIN)
    assert 0 <= result.flow.balance < 0.9


def test_speeds_of_a_channel_are_those_of_the_parabola():
    width, force = 7, 1e-5
    settings = {"tolerance": 1e-10, "force": force, "relaxation_time": 1.0}
    result = permeability(channel(width), **settings, **PLAIN)
    place = np.arange(width) + 0.5
    parabola = 6 * force * place * (width - place) / 2
    found = result.fields["speed"].data[0, 1:-1, 0]
    np.testing.assert_allclose(found, parabola, rtol=1e-8)
    density, edges = result.speed_histogram(50)
    expected, _ = np.histogram(parabola, edges, density=True)
    np.testing.assert_allclose(density, expected, rtol=1e-9)
    assert np.sum(density * np.diff(edges)) == pytest.approx(1)
    assert edges[-1] == pytest.approx(parabola.max(), rel=1e-5)
    assert result.porosity_profile.tolist() == [width / (width + 2)] * 4


def test_porosity_profile_is_of_the_sample_and_of_pores_with_flow():
    image = sphere()
    image[3, 4, 4] = 1  # in the middle of the sphere: no flow reaches it
    for axis, isolated in itertools.product("xyz", ("remove", "keep")):
        result = permeability(image, axis=axis, isolated=isolated, buffer=2, **PLAIN)
        along = tuple(other for other in range(3) if other != "zyx".index(axis))
        image[3, 4, 4] = isolated == "keep"
        np.testing.assert_array_equal(result.porosity_profile, image.mean(axis=along))
        image[3, 4, 4] = 1
    assert result.open_porosity < result.porosity


def test_fields_are_those_of_the_flow_with_units_and_places(tmp_path):
    result = permeability(sphere(), 2e-6, **PLAIN)
    fields, image = result.fields, sphere()
    assert list(fields) == [
        *("velocity", "velocity_x", "velocity_y", "velocity_z"),
        *("speed", "density", "pressure", "pore"),
    ]
    parts = [fields[f"velocity_{name}"].data for name in "xyz"]
    velocity = fields["velocity"]
    np.testing.assert_array_equal(velocity.data, parts)
    np.testing.assert_array_equal(velocity, parts)
    assert all(np.asarray(field).dtype.kind in "fu" for field in fields.values())
    assert np.asarray(velocity, dtype="float32").dtype == np.float32
    assert (velocity.dims, velocity.shape) == (("component", "z", "y", "x"), (3, 8, 8, 8))
    np.testing.assert_allclose(fields["speed"].data, np.linalg.norm(parts, axis=0), rtol=1e-14)
    np.testing.assert_array_equal(fields["pore"].data, image)
    assert parts[2].mean() == pytest.approx(result.velocity, rel=1e-12)
    assert not parts[2][image == 0].any()
    labelled = velocity.to_xarray()
    assert isinstance(labelled, xarray.DataArray)
    np.testing.assert_allclose(labelled.z, 2e-6 * (np.arange(8) + 0.5))
    assert float(labelled.sel(component="z").mean()) == pytest.approx(result.velocity)
    dataset = fields.to_xarray()
    assert sorted(dataset) == sorted(fields)
    assert dataset.speed.dims == ("z", "y", "x")
    np.testing.assert_array_equal(dataset.velocity.sel(component="x"), dataset.velocity_x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "xarray", None)
        with pytest.raises(ImportError, match="pip install xarray"):
            fields.to_xarray()
    np.testing.assert_array_equal(fields.gather("speed").data, fields["speed"].data)
    assert result.write_vtk(tmp_path / "flow.vti").stat().st_size > 21 * image.size
    with h5py.File(result.write_arrays(tmp_path / "flow.h5")) as file:
        assert sorted(file) == sorted(set(fields) - {"velocity", "speed"})
        np.testing.assert_allclose(file["velocity_z"], parts[2], rtol=1e-6)
        np.testing.assert_array_equal(file["pore"], image)
        assert file.attrs["pressure unit"] == "lattice units"


@pytest.mark.filterwarnings("ignore:pore faces solid")
def test_fields_stay_after_other_flows_and_are_not_kept_where_not_wanted():
    first = permeability(sphere(), **PLAIN)
    before = first.fields["velocity"].data.tobytes()
    other = permeability(inclined(), keep_fields=False, **PLAIN)
    with pytest.raises(InputError, match=r"fields: none were kept; accepted with permeability\("):
        other.fields["speed"]
    with pytest.raises(InputError, match="none were kept"):
        other.speed_histogram()
    assert other.tortuosity > 1
    assert first.fields["velocity"].data.tobytes() == before
    again = pickle.loads(pickle.dumps(first))
    assert again.fields["velocity"].data.tobytes() == before


def test_results_keep_no_flow():
    def flows():
        gc.collect()
        return sum(isinstance(one, PoreFlow) for one in gc.get_objects())

    before = flows()
    results = [permeability(channel(), **PLAIN) for _ in range(3)]
    assert flows() == before
    assert all(one.fields["speed"].data.any() for one in results)


@pytest.mark.slow
@pytest.mark.parametrize("axis", ["x", "all"])
def test_a_result_is_shown_as_one_table(axis):
    result = permeability(sphere(), 2e-6, axis, **PLAIN)
    text, table = repr(result), result._repr_html_()
    assert isinstance(result, Permeability)
    for told in ("permeability", "mD", "m²", "porosity", "tortuosity", "Reynolds", "converged"):
        assert told in text
        assert told in table
    assert text.count("flow along") == len(result.flows) == {"x": 1, "all": 3}[axis]
    assert table.startswith("<table>") and table.count("<tr>") == text.count("\n") + 1
    if axis == "all":
        with pytest.raises(InputError, match="flow: there are those along x, y, z; accepted"):
            result.fields  # noqa: B018
        for name, flow in result.flows.items():
            np.testing.assert_array_equal(result.tensor[:, "xyz".index(name)], flow.k)


# -- what drives it ------------------------------------------------------------------------------


@pytest.mark.slow
def test_pressure_drop_does_what_a_force_does():
    force = permeability(sphere(), tolerance=1e-7, **PLAIN)
    for axis in ("y", "all"):
        drop = permeability(sphere(), axis=axis, pressure_drop=1e-4, tolerance=1e-7, **PLAIN)
        assert drop.k == pytest.approx(force.k, rel=1e-5)


@pytest.mark.slow
def test_inertia_lowers_the_permeability_as_forchheimer_says():
    """Symmetry leaves the square of the velocity, so a square of the force, of the loss."""
    settings = {"tolerance": 1e-9, "relaxation_time": 0.6, **PLAIN}
    stokes = permeability(sphere(), **settings)
    lost, reynolds = [], []
    for force in (1e-5, 2e-5):
        result = permeability(sphere(), inertia=True, force=force, **settings)
        lost.append(1 - result.k / stokes.k)
        reynolds.append(result.reynolds)
    assert 0 < lost[0] < lost[1]
    assert lost[1] / lost[0] == pytest.approx((reynolds[1] / reynolds[0]) ** 2, rel=0.02)
    k, velocity = result.k, result.velocity
    assert reynolds[1] == pytest.approx(velocity * math.sqrt(k) / (0.1 / 3), rel=1e-12)
    assert result.flow.reynolds_number(2 * math.sqrt(k)) == pytest.approx(2 * reynolds[1])


SI = {"voxel_size": 1e-5, "viscosity": 2e-3, "pressure_gradient": 50.0}


def test_physical_units_of_a_channel_are_those_of_its_parabola():
    width = 8
    result = permeability(channel(width), density=800, tolerance=1e-10, **SI, **PLAIN)
    height, gradient, viscosity = width * 1e-5, 50.0, 2e-3
    mean = gradient * height**2 / (12 * viscosity) * (1 + 0.5 / width**2)  # magic 3/16: no slip
    x, y, z = result.flow.velocity
    assert z == pytest.approx(mean * width / (width + 2), rel=1e-8)
    assert z == pytest.approx(result.k * gradient / viscosity, rel=1e-12)
    assert (abs(x), abs(y)) < (1e-12 * z, 1e-12 * z)
    volume = np.count_nonzero(channel(width)) * 1e-15
    np.testing.assert_allclose(result.driving_force, [0, 0, gradient * volume], atol=1e-22)
    assert result.wall_force[2] == pytest.approx(gradient * volume, rel=1e-6)
    assert result.reynolds == pytest.approx(800 * z * math.sqrt(result.k) / viscosity, rel=1e-12)
    speed, pressure = result.fields["speed"], result.fields["pressure"]
    assert (speed.attributes["units"], pressure.attributes["units"]) == ("m/s", "Pa")
    assert speed.data.sum() / speed.data.size == pytest.approx(z, rel=1e-8)
    np.testing.assert_allclose(pressure.data, 0, atol=1e-9)
    assert result.speed_histogram()[1][-1] == pytest.approx(speed.data.max(), rel=1e-5)


@pytest.mark.slow
def test_stokes_flow_is_scaled_whatever_drives_it_on_the_lattice():
    drives = ({}, {"force": 1e-7}, {"pressure_drop": 1e-3}, {"relaxation_time": 0.7})
    actual = [permeability(sphere(), tolerance=1e-8, **one, **SI, **PLAIN) for one in drives]
    for result in actual:
        assert result.flow.velocity[2] == pytest.approx(actual[0].flow.velocity[2], rel=1e-5)
        assert math.isnan(result.reynolds)  # without a density
    pressures = [one.fields["pressure"].data[sphere() != 0] for one in actual[:2]]
    np.testing.assert_allclose(*pressures, atol=1e-6 * np.abs(pressures[0]).max())
    assert np.abs(pressures[0]).max() > 1e-5


@pytest.mark.slow
def test_inertia_in_physical_units_is_that_of_the_same_reynolds_number():
    fluid = {**SI, "viscosity": 1e-3, "pressure_gradient": 2e5, "density": 1000.0}
    results = []
    for time in (0.6, 0.65):
        settings = {"relaxation_time": time, "tolerance": 1e-8, **PLAIN}
        result = permeability(sphere(), inertia=True, **fluid, **settings)
        results.append(result)
        # The velocity of the lattice, by lengths and times that make both viscosities agree.
        scale = 1e-6 / ((time - 0.5) / 3 * 1e-5)
        assert result.flow.velocity[2] == pytest.approx(scale * result.velocity, rel=1e-10)
    stokes = permeability(sphere(), 1e-5, tolerance=1e-8, **PLAIN)
    assert results[0].k < 0.999 * stokes.k
    # What differs is by compressibility.
    assert results[0].k == pytest.approx(results[1].k, rel=2e-3)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"force": 1e-5, "pressure_drop": 1e-3}, "force, pressure_drop: both are given; use one"),
        ({"pressure_drop": -1}, "pressure_drop: must be greater than 0, not -1"),
        ({"viscosity": 1e-3, "voxel_size": 1e-6}, "viscosity: not enough for SI units; use visc"),
        ({"density": 1e3, "voxel_size": 1e-6}, "density: not enough for SI units; use viscosity"),
        ({**SI, "voxel_size": 1}, "viscosity: SI units need the edge of a voxel; use voxel_size"),
        ({**SI, "viscosity": "water"}, "viscosity: must be a number, not 'water'"),
        ({**SI, "inertia": True}, "density: flow with inertia depends on it; use kg/m³"),
        (
            {**SI, "inertia": True, "density": 1e3, "force": 1e-5},
            "force: with inertia the fluid's viscosity, density and pressure_gradient"
            " determine the drive",
        ),
        ({"inertia": 1}, "inertia: must be true or false, not 1"),
        ({"isolated": "drop"}, "isolated: 'drop' is not accepted; accepted: remove, keep"),
        (
            {"partition": "slabs"},
            "partition: 'slabs' is not accepted; accepted: bisection",
        ),
        ({"schedule": "fast"}, "schedule: 'fast' is not accepted; accepted: serial, overlap"),
        ({"storage": "aa"}, "storage is 'aa'; accepted: a Storage, or a dict of propagation, lay"),
        ({"storage": 0}, "storage is 0; accepted: a Storage, or a dict of propagation"),
        ({"storage": {"order": "x"}}, "order 'x' is unknown; accepted: raster, row-tiles"),
        ({"storage": {"size": "x"}}, "storage is {'size': 'x'}; accepted"),
        ({"callback": 3}, "callback is of type int; accepted: a function"),
        ({"callback": lambda told: "stop"}, "callback: returned 'stop'; accepted: True to stop"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(arguments, told):
    assert message(**arguments).startswith(told)


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda one: one.fields["vorticity"], "field 'vorticity' is unknown; accepted: velocity"),
        (lambda one: one.fields.gather("u"), "field 'u' is unknown; accepted"),
        (lambda one: one.fields.gather("speed", 1), "root is 1; accepted: 0 to 0"),
        (lambda one: one.speed_histogram(0), "bins is 0; accepted: 1 to 1000000"),
        (lambda one: one.flow.reynolds_number(-1), "length is -1; accepted: a number more than 0"),
        (lambda one: one.write_vtk("flow.vtk"), "path is 'flow.vtk'; accepted: a name that ends"),
        (
            lambda one: one.write_arrays(3),
            "path is 3; accepted: the name of a file or folder",
        ),
        (lambda one: one.write_vtk("/nowhere/a.vti"), "path is '/nowhere/a.vti'; accepted: a na"),
    ],
)
def test_what_a_result_does_not_have_is_refused_by_name(ask, told):
    with refused() as caught:
        ask(permeability(channel(), **PLAIN))
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize("storage", [Storage("two-lattice", encoding="wide"), {"order": "raster"}])
def test_storage_is_what_was_asked_for_and_makes_no_difference(storage):
    found = permeability(sphere(), storage=storage, device="cpu", schedule="serial")
    wanted = storage if isinstance(storage, dict) else storage.choices
    assert {name: getattr(found.storage, name) for name in wanted} == wanted
    assert found.k == pytest.approx(permeability(sphere(), **PLAIN).k, rel=1e-12)


# -- how it ends ---------------------------------------------------------------------------------


def test_a_callback_is_told_of_the_flow_and_stops_it():
    seen = []

    def enough(progress):
        seen.append(progress)
        return np.bool_(progress.step >= 30)

    result = permeability(sphere(), 2e-6, callback=enough, interval=10, tolerance=1e-12, **PLAIN)
    assert [progress.step for progress in seen] == [10, 20, 30]
    assert (result.steps, result.converged, result.flow.ended) == (30, False, "callback")
    assert seen[-1].permeability == pytest.approx(result.k, rel=1e-14)
    assert (seen[-1].axis, seen[-1].residual) == ("z", result.residual)
    assert seen[-1].mach == result.mach
    # It sees the last look, too, of what converges by itself.
    seen.clear()
    result = permeability(channel(), callback=lambda progress: seen.append(progress), **PLAIN)
    assert (result.steps, result.flow.ended) == (seen[-1].step, "converged")


@pytest.mark.slow
def test_what_a_callback_raises_ends_the_call_and_the_next_one_is_as_if_nothing_had_been():
    expected = permeability(sphere(), **PLAIN).k

    def fails(told):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        permeability(sphere(), callback=fails, **PLAIN)
    assert permeability(sphere(), **PLAIN).k == expected


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals need it"
)
@pytest.mark.parametrize("axis", ["z", "all"])
def test_ctrl_c_keeps_what_there_is(axis):
    before = signal.getsignal(signal.SIGINT)

    def interrupt(told):
        if told.step == 40 and told.axis != "x":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="interrupted after .* this exception's") as caught:
        permeability(sphere(), axis=axis, callback=interrupt, interval=20, tolerance=1e-9, **PLAIN)
    assert isinstance(caught.value, PermeabilityInterrupted)
    result = caught.value.result
    assert signal.getsignal(signal.SIGINT) is before
    flow = list(result.flows.values())[-1]
    assert (flow.ended, result.converged, flow.steps) == ("interrupted", False, 42)
    assert flow.fields["speed"].data.max() > 0
    if axis == "all":
        assert list(result.flows) == ["x", "y"]
        assert np.isfinite(result.tensor).all(axis=0).tolist() == [True, True, False]
        assert math.isnan(result.k)
        assert "nan" in repr(result)
    else:
        assert result.k > 0


def test_isolated_pores_make_no_difference_to_the_flow():
    image = sphere()
    image[4, 4, 4] = 1
    removed, kept = (
        permeability(image, isolated=fate, tolerance=1e-8, **PLAIN) for fate in ("remove", "keep")
    )
    assert kept.k == pytest.approx(removed.k, rel=1e-7)
    assert kept.fields["pore"].data.sum() == removed.fields["pore"].data.sum() + 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:pore faces solid")
def test_random_pores_have_drags_that_balance_along_all_axes():
    image = random_pores((8, 8, 8), 0.8)
    result = permeability(image, axis="all", tolerance=1e-7, max_steps=20_000, **PLAIN)
    np.testing.assert_allclose(result.tensor, result.tensor.T, atol=1e-6 * result.k)
    for flow in result.flows.values():
        drive = np.abs(flow.driving_force).max()
        np.testing.assert_allclose(flow.wall_force, flow.driving_force, atol=1e-5 * drive)
        assert flow.tortuosity > 1


def test_a_reynolds_number_that_needs_a_density_is_not_told_as_a_number():
    drive = {"voxel_size": 1e-6, "viscosity": 1e-3, "pressure_gradient": 10.0}
    told = str(permeability(channel(), axis="z", **drive, **PLAIN))
    assert "nan" not in told and "Reynolds number       not known without a density" in told
    known = permeability(channel(), axis="z", density=1000.0, **drive, **PLAIN)
    flow = known.flows["z"]
    expected = 1000 * flow.velocity[2] * math.sqrt(known.k) / 1e-3
    assert flow.reynolds == pytest.approx(expected) and f"{expected:.2g}, by √k" in str(known)
