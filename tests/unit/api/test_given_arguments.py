"""Arguments of the Python interface: none is ignored, and wrong ones are refused by their names."""

import copy
import pickle

import numpy as np
import pytest

import slipstream as ss
from slipstream import InputError
from slipstream.fft import Box, grid_boxes, truncate
from slipstream.files import read_array, write_arrays
from slipstream.files.run_folder import read_run_record
from slipstream.show.series_statistics import time_average

pytestmark = pytest.mark.filterwarnings("ignore")
PORES = np.ones((4, 4, 6), bool)
PORES[0] = False


def flow(**given):
    return ss.Turbulence(**{"points": 8, "viscosity": 0.1, "device": "cpu", **given})


def pores(**given):
    return ss.PorousFlow(PORES, axis="x", device="cpu", **given)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: flow(step=0.01, time={"step": 0.02}), ("step is 0.01", "time['step'] is 0.02")),
        (lambda: flow(cfl=0.5, time={"cfl": 0.7}), ("cfl", "time['cfl']")),
        (
            lambda: pores(precision="float32", numerics={"precision": "float64"}),
            ("precision", "numerics['precision']"),
        ),
        (
            lambda: pores(precision="float32", storage={"precision": "float64"}),
            ("precision", "storage.precision"),
        ),
        (
            lambda: pores(storage={"layout": "stream"}, numerics={"layout": "bundle"}),
            ("storage", "numerics['layout']"),
        ),
        (
            lambda: pores(schedule="serial", run={"schedule": "overlap"}),
            ("schedule", "run['schedule']"),
        ),
    ],
)
def test_settings_given_twice_are_refused_unless_they_agree(make, names):
    with pytest.raises(InputError, match="use one of them") as refusal:
        make()
    assert all(name in str(refusal.value) for name in names)
    assert flow(step=0.01, time={"step": 0.01, "end": 1}).case.time.step == 0.01
    assert pores(schedule="serial", run={"schedule": "serial"}).case.run.schedule == "serial"


def test_settings_of_a_loaded_case_are_taken():
    case = flow().case
    assert ss.load(case, {"grid.points": 12}, device="cpu").case.grid.points == 12
    assert ss.load(case, device="cpu").case == case
    with pytest.raises(InputError, match="was an array"):
        ss.load(pores().case)


def test_views_give_the_default_of_get_where_there_is_no_such_name():
    sim = flow(scalars=1)
    for view in (sim.fields, sim.modes, sim.parameters, sim.scalars, sim.particles):
        assert view.get("nothing", "default") == "default"
        assert view.get(3, "default") == "default"
        with pytest.raises(InputError, match="there"):
            view["nothing"]
    fields = ss.permeability(PORES, axis="x", max_steps=20, device="cpu").fields
    assert fields.get("nothing") is None
    assert fields.get("speed") is not None


@pytest.mark.parametrize("name", ["cfl", "time_step"])
def test_none_does_not_stand_for_another_step(name):
    sim = flow(step=0.01)
    with pytest.raises(InputError, match="is None; accepted: a number"):
        setattr(sim, name, None)
    assert sim.time_step == 0.01


FILES = (3, None, np.float64("nan"), b"x.zarr", ["x.zarr"], "a\0.zarr")


@pytest.mark.parametrize("file", FILES, ids=repr)
def test_names_of_files_of_wrong_kinds_are_refused(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sim = flow(step=0.01, initial="taylor-green")
    average = sim.average("velocity_x", every=0.01, batch=0.02)
    sim.run(steps=1)
    fields = ss.permeability(PORES, axis="x", max_steps=20, device="cpu").fields
    box = [((0, 0, 0), (2, 2, 2))]
    for call, key in (
        (lambda: sim.output("velocity_x", file=file), "file"),
        (lambda: sim.movie("velocity_x", every=0.1, plane=("z", 0), file=file), "file"),
        (lambda: average.write(file), "file"),
        (lambda: fields.write_arrays(file), "path"),
        (lambda: fields.write_vtk(file), "path"),
        (lambda: write_arrays(file, {"u": np.zeros((2, 2, 2))}, box), "path"),
        (lambda: read_array(file, "u", box), "path"),
        (lambda: read_run_record(file), "folder"),
    ):
        with pytest.raises(InputError, match=f"^{key} is .*; accepted: the name of a file"):
            call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: flow().fields["velocity_x"][9], r"fields\['velocity_x'\]: index 9"),
        (lambda: flow().fields["velocity"]["a"], r"fields\['velocity'\]: only integers"),
        (lambda: flow().modes["velocity"][99], r"modes\['velocity'\]: index 99"),
        (lambda: flow().modes["velocity"].__setitem__("a", 1), r"modes\['velocity'\]: only"),
        (lambda: flow().modes["velocity"].__setitem__(..., [[1], [1, 2]]), "is no array"),
        (lambda: flow().fields["velocity"].plane("z", "a"), "position is 'a'"),
        (lambda: flow().fields["velocity"].plane(np.zeros(3), 0), "axis is array"),
        (lambda: flow(rotation="x"), "rotation: must be a number, or three, not 'x'$"),
        (lambda: flow().output("pressure", box=(1, 2), file="a.h5"), "box is"),
        (lambda: flow().output("pressure", plane=3, file="a.h5"), "plane is 3; accepted: an axis"),
        (lambda: flow().run(until=1, output="x", overwrite="no"), "overwrite is of type str"),
        (
            lambda: ss.Advection(points=8, width=0.2).output(np.zeros(0), file="a.h5"),
            "there is no array",
        ),
        (lambda: flow().evaluate(np.inf), "expression: inf is not accepted"),
        (lambda: pores(viscosity=1, title=max), "viscosity: not enough|title"),
        (lambda: ss.load("case.toml", np.array(None)), "settings are"),
        (lambda: truncate(3, None, real=True), "shape is 3"),
        (lambda: truncate((8, "a"), None, real=True), "shape is 'a'"),
        (lambda: grid_boxes((8, 8), (2,)), "grid"),
        (lambda: grid_boxes("ab", (1, 1)), "shape is 'ab'"),
        (lambda: grid_boxes((8, 8), (2, 1), ranks=1), "ranks is 1"),
        (lambda: time_average("x", [1.0]), "no arrays of real numbers"),
        (lambda: time_average(3, [1.0]), "times have shape"),
        (lambda: time_average([0, 1], [1, 2], since="x"), "since is 'x'"),
        (lambda: write_arrays("a.h5", 3, [((0,), (1,))]), "arrays is 3"),
        (lambda: write_arrays("a.h5", {}, [((0,), (1,))], attributes=3), "attributes is 3"),
    ],
)
def test_arguments_of_wrong_kinds_are_refused_by_their_names(call, message):
    with pytest.raises(InputError, match=message) as refusal:
        call()
    assert "\n" not in str(refusal.value)


def test_no_places_have_no_values():
    velocity = flow().fields["velocity"]
    assert velocity.at(np.zeros((0, 3))).shape == (0, 3)
    assert velocity.at(np.zeros((2, 3))).shape == (2, 3)


@pytest.mark.parametrize("name", ["velocity", "vorticity", "dot(velocity, velocity)"])
def test_views_are_copied_with_their_simulation(name):
    sim = flow(step=0.01, initial="taylor-green")
    view = sim.fields[name] if name in sim.fields else sim.evaluate(name)
    for again in (copy.copy(view), copy.deepcopy(view), pickle.loads(pickle.dumps(view))):
        np.testing.assert_array_equal(again, view)
        assert repr(again) == repr(view)
    kept, values = copy.deepcopy(view), np.array(view)
    sim.step()
    np.testing.assert_array_equal(kept, values)
    averaging = sim.average(name, every=0.01, batch=0.02)
    for call in (copy.deepcopy, pickle.dumps):
        with pytest.raises(InputError, match="cannot be copied"):
            call(averaging)


def test_a_flow_without_decay_is_sheared():
    sim = flow(viscosity=0.0, shear=1.0, step=0.01, initial="taylor-green")
    sim.step()
    assert np.isfinite(sim.diagnostics["energy"])


def test_boxes_of_wrong_kinds_are_refused():
    for corners in ((3, 4), (None, (1,)), (("a",), (1,)), (np.zeros((2, 2)), np.ones((2, 2)))):
        with pytest.raises(ValueError, match="box"):
            Box(*corners)


def test_waits_for_a_transform_take_seconds():
    plan = ss.DistributedFFT((4, 4, 4), device="cpu")
    points = np.ones((4, 4, 4))
    for timeout in (np.zeros(3), "x", np.nan, np.inf):
        with pytest.raises(InputError, match="timeout is"):
            plan.forward_async(points).wait(timeout)
    assert plan.forward_async(points).wait(1e300)[0, 0, 0] == 64


def test_a_model_is_for_runs_that_have_one(tmp_path):
    ss.Advection(points=8, width=0.2, device="cpu").run(until=0.125, output=tmp_path)
    with pytest.raises(InputError, match="model is"):
        ss.open(tmp_path, model=np.zeros(3))
    with pytest.raises(InputError, match="has no model; leave out"):
        ss.open(tmp_path, model="hd").restart()
