"""Choices of output in cases and programs, and what happens where output cannot be had."""

import io
import os
import shutil
import stat

import numpy as np
import pytest
import zarr
from PIL import Image
from rich.console import Console

from fake_simulation import CASE
from image_data import read_image_data
from refusals import refused
from slipstream import Turbulence
from slipstream.case import parse_case
from slipstream.engine.errors import RunError
from slipstream.runs import make_simulation
from slipstream.runs.chosen_outputs import ChosenOutputs
from slipstream.runs.resuming import resume_run
from slipstream.runs.run_case import run_case
from slipstream.show.movies import Movie

pytestmark = pytest.mark.filterwarnings("ignore:kmax_eta")

FIELDS = '[[output.fields]]\nof = "velocity"\n'
PLANE = 'plane = { axis = "z", position = 0.8 }\n'


def run(folder, tables, *overrides):
    case = parse_case(CASE + tables, ("output.pictures=false", *overrides))
    run_case(make_simulation(case, None, "cpu"), folder, Console(quiet=True))


@pytest.mark.parametrize(
    ("tables", "key"),
    [
        (FIELDS + 'plane = { axis = "q", position = 1 }', r"output.fields\[1\].plane.axis: 'q'"),
        (FIELDS + "interval = 1\ntimes = [1]", r"output.fields\[1\]: interval and times exclude"),
        (FIELDS + 'file = "../a"', r"output.fields\[1\].file: is '../a'; accepted: letters"),
        (FIELDS + 'format = "vtk"\nprecision = "float16"', r"precision 'float16' is none of vtk"),
        (FIELDS + 'format = "vtk"\nfile = "a.zarr"', r"does not suit format 'vtk'"),
        (FIELDS + "stride = 0", r"output.fields\[1\].stride: accepted: a whole number"),
        ("[[output.fields]]\nof = []", r"output.fields\[1\].of: accepted: a name or expression"),
        ('[[output.scalars]]\nof = "x"\nreduce = "mode"', r"output.scalars\[1\].reduce: 'mode'"),
        (f'[[output.movies]]\nof = "x"\n{PLANE}', r"output.movies\[1\].interval: is required"),
        ("[output]\nfields = 3", r"output.fields: must be a list, not 3"),
        ("[output]\ncospectra = [['a']]", r"output.cospectra: accepted: a list of pairs"),
    ],
)
def test_a_case_that_makes_no_sense_is_refused(tables, key):
    with refused(key):
        parse_case(CASE + tables)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            '[[output.fields]]\nof = "velocty"',
            r"output.fields\[1\].of: 'velocty' has the unknown name",
        ),
        (FIELDS + 'plane = { axis = "z", position = 7.0 }', "plane: position 7 along z is outside"),
        (
            FIELDS + "interval = 0.25",
            "interval: steps of 0.1 do not hit interval 0.25; nearest: 0.2",
        ),
        (FIELDS + "times = [0.3, 0.55]", "times: steps of 0.1 do not hit time 0.55; nearest: 0.5"),
        (f'[[output.movies]]\nof = "velocity"\ninterval = 0.1\n{PLANE}', "has 3 components"),
        (
            f'[[output.movies]]\nof = "helicity"\ninterval = 0.1\nformat = "mp4"\n{PLANE}',
            "'mp4' needs ffmpeg",
        ),
        ('[[output.scalars]]\nof = "helicity"\nname = "energy"', "'energy' is a diagnostic"),
        (FIELDS + FIELDS, r"output.fields\[2\].file: 'velocity' is also output.fields\[1\]"),
        ("[output]\ncospectra = [['velocity', 'helicity']]", r"output.cospectra\[1\]: 'velocity'"),
    ],
)
def test_what_cannot_be_had_is_refused_before_the_folder_is_touched(
    tmp_path, monkeypatch, tables, message
):
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "ffmpeg" else found(name))
    (tmp_path / "run").mkdir()
    with refused(message):
        run(tmp_path / "run", tables)
    assert not [one for one in (tmp_path / "run").iterdir() if one.name != "run.lock"]


@pytest.mark.slow
def test_fixed_steps_write_at_the_times_that_they_hit_and_a_restart_goes_on(tmp_path):
    tables = FIELDS + "times = [0.2, 0.5, 0.8]\n" + PLANE
    run(tmp_path / "one", tables, "time.max_steps=6")
    name = "velocity-plane.zarr"
    first = zarr.open_group(tmp_path / "one" / "outputs" / name, mode="r")
    np.testing.assert_allclose(first["time"][...], [0.2, 0.5])
    run(tmp_path / "two", tables, f"initial.restart={tmp_path / 'one'}")
    second = zarr.open_group(tmp_path / "two" / "outputs" / name, mode="r")
    np.testing.assert_allclose(second["time"][...], [0.8])
    # The next run has other output: nothing of this one stays.
    run(tmp_path / "two", "")
    assert not (tmp_path / "two" / "outputs").exists()


@pytest.mark.parametrize("kind", ["zarr", "hdf5", "vtk"])
def test_a_full_disk_is_named_and_what_was_written_stays(tmp_path, monkeypatch, kind):
    sim = Turbulence(points=8, viscosity=0.1, initial="taylor-green", step=0.1, device="cpu")
    sim.output("velocity", every=0.1, file=tmp_path / "v", format=kind)
    sim.run(until=0.2, progress=False)
    before = sim.fields["velocity"].gather()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RunError, match=r"v\S* cannot be written: No space left on device"):
            sim.run(until=0.3, progress=False)
    if kind == "zarr":
        found = zarr.open_group(tmp_path / "v.zarr", mode="r", use_consolidated=True)
        assert found["velocity_x"].shape[0] >= 3
        np.testing.assert_array_equal(found["velocity_x"][2], before[0])
    else:
        files = sorted((tmp_path / "v").iterdir())
        assert [path.stem for path in files] == [f"v_{number:06d}" for number in range(3)]
    if kind == "vtk":
        _, arrays = read_image_data(files[2])
        np.testing.assert_array_equal(np.moveaxis(arrays["velocity"], -1, 0), before)
        assert (tmp_path / "v.pvd").read_text().count("<DataSet") == 3
    # The state is as it was, and can continue.
    sim.run(until=0.4, progress=False)


def test_large_values_in_half_precision_are_told(tmp_path):
    sim = Turbulence(points=8, viscosity=0.1, initial="taylor-green", step=0.1, device="cpu")
    with pytest.warns(RuntimeWarning, match="output.precision: large has values beyond 65504"):
        sim.output({"large": "1e6*abs2(velocity)"}, file=tmp_path / "v", precision="float16")


def frames_of(path):
    with Image.open(path) as movie:
        for number in range(movie.n_frames):
            movie.seek(number)
            yield np.asarray(movie.convert("RGB")).astype(int)


def plane_of(frame):
    """Return the part of a frame that is the plane."""
    return frame[34:-54, 70:-112]


@pytest.mark.slow
def test_a_movie_is_whole_after_each_frame_and_signs_have_colours(tmp_path):
    movie = Movie(tmp_path / "a.gif", kind="gif")
    values = np.linspace(-1, 1, 12).reshape(3, 4)
    for number in range(10):
        movie.add(values * (1 + 0.1 * number), 0.1 * number)
        frames = list(frames_of(tmp_path / "a.gif"))
        assert len(frames) == number + 1
    low, high = plane_of(frames[7])[-2, 1], plane_of(frames[7])[2, -2]  # from the bottom up
    assert low[2] > low[0] + 50  # blue
    assert high[0] > high[2] + 50  # red
    assert not np.array_equal(frames[0], frames[7])
    fixed = Movie(tmp_path / "b.gif", kind="gif", limits=(0, 1))
    fixed.add(np.array([[0.0, np.nan], [0.5, 2.0]]), 0.0)
    (frame,) = frames_of(tmp_path / "b.gif")
    nothing = plane_of(frame)[-2, -2]
    assert 100 < nothing.min() == nothing.max() < 250  # grey: nothing is known
    # The bar has all colours; axes and the time are next to it.
    bar = frame[34:-54, -112 + 12 + 8]
    np.testing.assert_allclose(bar[0], plane_of(frame)[2, -2], atol=8)
    np.testing.assert_allclose(bar[-1], plane_of(frame)[-2, 1], atol=8)
    assert frame[-54:].min() < 100
    assert frame[:30, 70:200].min() < 100


def test_a_movie_has_the_size_that_is_asked_for(tmp_path):
    for shape, size in (((4, 8), 700), ((16, 4), 501), ((300, 200), None)):
        movie = Movie(tmp_path / "a.gif", kind="gif", size=size)
        movie.add(np.random.default_rng(1).random(shape), 0.0)
        (frame,) = frames_of(tmp_path / "a.gif")
        longer = max(frame.shape)
        assert 0 <= (size or 640) - longer < 2
        assert frame.shape[0] % 2 == frame.shape[1] % 2 == 0
        height, width, _ = plane_of(frame).shape
        assert height / width == pytest.approx(shape[0] / shape[1], rel=0.05)


@pytest.mark.slow
def test_all_segments_of_a_movie_have_the_same_colours(tmp_path):
    """Of a flow that decays, the second would begin with fainter ones."""
    movie = '[[output.movies]]\nof = "velocity_x"\ninterval = 0.1\n' + PLANE
    run(tmp_path / "run", movie, "time.end=0.3")
    resume_run(tmp_path / "run", ["time.end=0.6"], console=Console(quiet=True))
    names = sorted(one.name for one in (tmp_path / "run" / "outputs").iterdir())
    assert names == ["velocity_x.gif", "velocity_x~2.gif"]
    first, second = (list(frames_of(tmp_path / "run" / "outputs" / name)) for name in names)
    assert [len(first), len(second)] == [4, 3]
    # The bars, with their numbers.
    np.testing.assert_array_equal(first[0][:, -112:], second[0][:, -112:])


def test_ffmpeg_gets_the_pictures(tmp_path, monkeypatch):
    """A program of this name that keeps what it gets."""
    program = tmp_path / "ffmpeg"
    program.write_text('#!/bin/sh\nfor last; do :; done\necho "$@" > "$last.txt"\ncat > "$last"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    sim = Turbulence(points=8, viscosity=0.1, initial="taylor-green", step=0.1, device="cpu")
    movie = sim.movie("velocity_x", every=0.1, plane=("z", 0.0), file=tmp_path / "m.mp4")
    sim.run(until=0.3, progress=False)
    movie.cancel()
    arguments = (tmp_path / "m.mp4.txt").read_text()
    width, height = map(int, arguments.split("-s ")[1].split()[0].split("x"))
    pictures = np.frombuffer((tmp_path / "m.mp4").read_bytes(), np.uint8)
    assert pictures.size == 4 * 3 * width * height
    assert width % 2 == height % 2 == 0
    program.write_text("#!/bin/sh\nexit 3\n")
    failing = sim.movie("velocity_x", every=0.1, plane=("z", 0.0), file=tmp_path / "n.mp4")
    with pytest.raises(RunError, match="ffmpeg ended with status 3"):
        sim.run(until=0.6, progress=False)
        failing.cancel()


def test_times_after_the_end_are_not_written_without_a_word():
    simulation = make_simulation(parse_case(CASE + FIELDS + "times = [0, 99, 98]"), None, "cpu")
    ChosenOutputs(simulation)
    (warning,) = simulation.warnings()
    assert warning.startswith("output.fields[1].times: not written, as time.end is ")
    assert warning.endswith(": 99, 98")


@pytest.mark.slow
def test_numbers_are_drawn(tmp_path):
    scalars = '[[output.scalars]]\nof = "helicity"\nreduce = "max"\n'
    case = parse_case(CASE + scalars)
    console = Console(file=io.StringIO(), width=200)
    run_case(make_simulation(case, None, "cpu"), tmp_path, console)
    assert "scalars.png" in console.file.getvalue()
    assert (tmp_path / "scalars.png").stat().st_size > 5000


def test_pyvista_reads_image_data(tmp_path):
    pyvista = pytest.importorskip("pyvista")
    sim = Turbulence(points=8, viscosity=0.1, initial="taylor-green", step=0.1, device="cpu")
    sim.output("velocity", every=0.1, file=tmp_path / "v.vti")
    sim.step()
    reader = pyvista.get_reader(tmp_path / "v.pvd")
    assert reader.time_values == [0.0, 0.1]
    reader.set_active_time_value(0.1)
    mesh = reader.read()[0]
    assert mesh.dimensions == (8, 8, 8)
    # VTK counts along x first.
    expected = np.moveaxis(sim.fields["velocity"].gather(), 0, -1).reshape(-1, 3)
    np.testing.assert_array_equal(mesh.point_data["velocity"], expected)
