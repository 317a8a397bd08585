"""The output folder of a run as an object: whole, cut short, under way, and somebody else's."""

import csv
import json
import os
import shutil

import numpy as np
import pytest

import slipstream
from slipstream import Advection, Flow, PorousFlow, Turbulence
from slipstream.engine.errors import InputError
from slipstream.equations.models import hd
from slipstream.files import FieldStore
from slipstream.files.folder_lock import FolderLock
from slipstream.files.time_series import whole_field

pytestmark = pytest.mark.filterwarnings("ignore:kmax_eta")
ONE = {"comm": None, "device": "cpu"}
OUTPUT = {"pictures": False, "fields_interval": 0.05}


def turbulence(**options):
    given = {"points": 8, "viscosity": 0.1, "initial": "taylor-green", "step": 0.025}
    return Turbulence(**{**given, **ONE, "output": OUTPUT, **options})


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A run's folder, and the simulation that has written it."""
    folder = tmp_path_factory.mktemp("runs") / "vortex"
    sim = turbulence(title="a <b>title</b>")
    sim.run(until=0.1, output=folder)
    return folder, sim


@pytest.fixture
def folder(written, tmp_path):
    return shutil.copytree(written[0], tmp_path / "vortex")


def test_series_are_those_of_the_file(written):
    run = slipstream.open(written[0])
    lines = (written[0] / "diagnostics.csv").read_text().splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    assert list(run.series) == list(rows[0]) and len(rows) == run.series.rows == 5
    for name, column in run.series.items():
        np.testing.assert_array_equal(column, [float(row[name]) for row in rows])
    assert run.series.labels["time"] == "time (non-dimensional)"
    with pytest.raises(InputError, match=r"there is no 'enstropy'; there are: step, time"):
        run.series["enstropy"]


def test_series_as_tables(written):
    pytest.importorskip("pandas")
    pytest.importorskip("xarray")
    series = slipstream.open(written[0]).series
    assert series.to_pandas().index.name == "time"
    np.testing.assert_array_equal(series.to_pandas()["energy"], series["energy"])
    np.testing.assert_array_equal(series.to_xarray().energy, series["energy"])


def test_fields_and_spectra_are_labelled_and_read_when_asked_for(written):
    pytest.importorskip("xarray")
    run, sim = slipstream.open(written[0]), written[1]
    np.testing.assert_allclose(run.times, [0.0, 0.05, 0.1])
    fields = run.fields
    assert not fields.velocity_x.variable._in_memory
    last = fields.velocity_x.sel(time=0.1, method="nearest")
    np.testing.assert_array_equal(last, sim.fields["velocity_x"][...])
    plane = fields.velocity_x.isel(time=-1, z=3, x=slice(None, None, -2))
    np.testing.assert_array_equal(plane, sim.fields["velocity_x"][3, :, ::-2])
    energy = run.spectra.energy_spectrum.sum("wavenumber")
    np.testing.assert_allclose(energy.sel(time=0.1, method="nearest"), sim.diagnostics["energy"])
    assert set(run.stores) == {"diagnostics", "fields", "spectra"}
    with pytest.raises(InputError, match="there is no store 'transfer'; there are: diagnostics"):
        run.stores["transfer"]


def test_a_restart_goes_on_from_the_last_state(written):
    run, sim = slipstream.open(written[0]), written[1]
    again = run.restart({"equation.viscosity": 0.2}, **ONE)
    assert (again.time, again.steps) == (sim.time, sim.steps)
    np.testing.assert_allclose(again.fields["velocity"][...], sim.fields["velocity"][...])
    assert again.case.equation.viscosity == 0.2
    again.step()
    assert run.case.equation.viscosity == 0.1
    early = run.restart(state=run.states[0], **ONE)
    assert early.time == run.states[0].time
    with pytest.raises(InputError, match="viscocity"):
        run.restart({"equation.viscocity": 0.2}, **ONE)


@pytest.mark.slow
def test_a_simulation_goes_on_in_its_folder_and_in_no_other(tmp_path):
    def made():
        return Flow(
            "hd", points=8, viscosity=0.1, step=0.05, initial="taylor-green", output=OUTPUT, **ONE
        )

    made().run(until=0.4, output=tmp_path / "whole")
    sim = made()
    for until in (0.15, 0.4):
        sim.run(until=until, output=tmp_path / "run")
    run, whole = (slipstream.open(tmp_path / name) for name in ("run", "whole"))
    last = run.series["time"][-1]
    assert last == whole.series["time"][-1] == pytest.approx(0.4)
    assert run.series["time"][0] == 0
    assert run.series["energy"][-1] == whole.series["energy"][-1]
    assert run.states[-1].step == 8
    for other in (made(), sim):
        with pytest.raises(InputError, match="is not empty; .* in Python overwrite=True"):
            other.run(until=0.6, output=tmp_path / "whole")
    made().run(until=0.1, output=tmp_path / "run", overwrite=True)
    # It is another run's now.
    with pytest.raises(InputError, match="in Python overwrite=True"):
        sim.run(until=0.6, output=tmp_path / "run")
    assert slipstream.open(tmp_path / "run").series["time"][-1] == pytest.approx(0.1)


@pytest.mark.slow
def test_output_that_is_asked_for_is_not_left_out_in_silence(tmp_path):
    asked = Advection(points=8, width=0.25, output={"fields_interval": 0.125}, **ONE)
    with pytest.raises(InputError, match=r"give run\(output=FOLDER\)"):
        asked.run(until=0.25)
    asked.run(until=0.25, output=tmp_path / "run")
    Advection(points=8, width=0.25, output={"pictures": False}, **ONE).run(until=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["advection", "lattice"])
def test_every_family(family, tmp_path):
    if family == "advection":
        sim = Advection(points=8, width=0.25, output={"pictures": False}, **ONE)
        sim.run(until=0.5, output=tmp_path / "run")
    else:
        image = {"sample": "sandstone", "shape": (12, 12, 12), "porosity": 0.6, "radius": 3}
        sim = PorousFlow(image, max_steps=20, interval=10, output={"pictures": False}, **ONE)
        sim.run(output=tmp_path / "run")
    run = slipstream.open(tmp_path / "run")
    assert run.case.solver == family and f"{family}" in repr(run)
    assert run.series["time"][-1] == sim.time == run.restart(**ONE).time
    assert run.states[-1].step == sim.steps


def test_a_state_alone_is_a_run(tmp_path):
    sim = turbulence()
    sim.step(2)
    sim.checkpoint(tmp_path / "kept")
    run = slipstream.open(tmp_path / "kept")
    assert run.restart(**ONE).steps == 2 and run.series.rows == 0 and len(run.times) == 0
    assert run.case.equation.viscosity == 0.1


def test_a_run_under_way_shows_what_is_complete(folder):
    run = slipstream.open(folder)
    rows = run.series.rows
    assert not run.is_running and ", running" not in repr(run)
    lock = FolderLock(folder)
    with open(folder / "diagnostics.csv", "a") as file:
        file.write("5,0.125,0.0")
        file.flush()
        assert run.series.rows == rows
    assert run.is_running and ", running" in repr(run)
    lock.release()
    # Arrays are lengthened before a snapshot is complete; the group lists it after that.
    for name in ("time", "velocity_x"):
        place = folder / "fields.zarr" / name / "zarr.json"
        said = json.loads(place.read_text())
        said["shape"][0] += 1
        place.write_text(json.dumps(said))
    assert len(run.times) == 3
    assert run.fields.velocity_x.shape == (3, 8, 8, 8)


def test_a_store_that_was_replaced_is_not_read_any_more(tmp_path):
    pytest.importorskip("xarray")
    (tmp_path / "case.toml").write_text("")
    for value in (1.0, 2.0):
        values = np.full((2, 2), value)
        FieldStore(tmp_path / "spectra.zarr").write(
            [whole_field("a", "a", values, {"x": np.arange(2.0), "y": np.arange(2.0)})]
        )
        if value == 1:
            first = slipstream.open(tmp_path).spectra
            assert first.a.values.max() == 1
            (tmp_path / "spectra.zarr").rename(tmp_path / "gone")
    with pytest.raises(InputError, match="has been replaced since it was opened"):
        _ = first.a.values
    assert slipstream.open(tmp_path).spectra.a.values.max() == 2


def test_code_that_a_folder_names_is_not_run(folder, tmp_path):
    code = tmp_path / "model.py"
    code.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    case = (folder / "case.toml").read_text()
    (folder / "case.toml").write_text(case.replace('model = "hd"', f'model = "{code}:f"'))
    with pytest.warns(UserWarning, match="no part of the run had this case"):
        run = slipstream.open(folder)
    assert run.settings["equation"]["model"] == f"{code}:f"
    repr(run), run._repr_html_()
    for asked in (lambda: run.case, lambda: run.restart(**ONE)):
        with pytest.raises(InputError, match="Python code that is not imported from there"):
            asked()
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_model_of_ones_own_is_given(tmp_path):
    sim = Flow(hd, points=8, viscosity=0.1, step=0.1, initial="taylor-green", output=OUTPUT, **ONE)
    sim.run(until=0.1, output=tmp_path / "run")
    run = slipstream.open(tmp_path / "run", model=hd)
    again = run.restart(**ONE)
    np.testing.assert_allclose(again.fields["velocity"][...], sim.fields["velocity"][...])


def test_what_is_no_file_of_a_run_is_refused_in_one_line(folder, tmp_path):
    with pytest.raises(InputError, match="no such folder; expected the output folder of a run"):
        slipstream.open(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"holds no output of a run; expected case.toml"):
        slipstream.open(tmp_path)
    run = slipstream.open(folder)
    (folder / "diagnostics.csv").unlink()
    os.mkfifo(folder / "diagnostics.csv")
    with pytest.raises(InputError, match="not a regular file"):
        _ = run.series
    (folder / "diagnostics.csv").unlink()
    (folder / "diagnostics.csv").write_text("step,time\n1,x\n")
    with pytest.raises(InputError, match="not a series: could not convert"):
        _ = run.series
    pytest.importorskip("xarray")
    place = folder / "fields.zarr" / "velocity_x" / "zarr.json"
    place.write_text(place.read_text().replace('"bytes"', '"pickle"'))
    with pytest.raises(InputError, match="its codec is 'pickle'"):
        _ = run.fields
    (folder / "fields.zarr" / "link").symlink_to(tmp_path)
    with pytest.raises(InputError, match="'link' is a link or a device"):
        _ = run.times


def test_what_people_see(written):
    run = slipstream.open(written[0])
    page = run._repr_html_()
    assert "&lt;b&gt;title" in page and "<b>title" not in page
    assert "t = 0.1 of 0.1, step 4" in repr(run) and "\n" not in repr(run)
