"""Pictures drawn from a run's folder: those of the run, at any moment of its life."""

import json

import numpy as np
import pytest
from fake_simulation import CASE, FakeSimulation
from PIL import Image
from rich.console import Console

from slipstream.case import parse_case
from slipstream.errors import InputError
from slipstream.field import Field
from slipstream.report.figure_style import STYLE
from slipstream.report.plot_command import PlaneWishes, plot
from slipstream.report.stored_run import StoredRun
from slipstream.simulation import run_case

SHAPE = (8, 6, 4)
COORDINATES = {name: np.arange(n) * 0.5 for name, n in zip("zyx", SHAPE, strict=True)}
SETTINGS = ("output.fields_interval=0.5", 'output.scalars=[{of="velocity", name="speed"}]')
# Which of the planes across z is the liveliest, and has values of both signs.
LIVELIEST = 5


class Fake(FakeSimulation):
    """With fields that change, a vector, and numbers that were asked for."""

    def __init__(self, *settings, **options):
        super().__init__(**options)
        self.case = parse_case(CASE, (*SETTINGS, *settings))

    def fields(self):
        z, y, x = np.meshgrid(*COORDINATES.values(), indexing="ij")
        wave = (
            np.exp(-self.time)
            * np.sin(x + y)
            / (1 + np.abs(np.arange(8) - LIVELIEST))[:, None, None]
        )
        values = {"velocity_x": wave, "velocity_y": 2 * wave, "velocity_z": 2 * wave}
        for name, data in (values | {"vorticity_magnitude": abs(wave)}).items():
            attributes = {"long_name": name.replace("_", " ")}
            yield Field(name, tuple("zyx"), SHAPE, (0, 0, 0), data, COORDINATES, attributes)

    def diagnostics(self):
        return super().diagnostics() | {"speed": 1.0}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run, which is not to be changed."""
    folder = tmp_path_factory.mktemp("run") / "out"
    fake = Fake("output.scalars=[]")
    run_case(fake, folder, Console(quiet=True))
    return folder


@pytest.fixture(autouse=True)
def drawn_as_runs_draw_in_tests(monkeypatch):
    """See `PicturesHere`: with few dots, and not laid out."""
    monkeypatch.setattr("matplotlib.layout_engine.ConstrainedLayoutEngine.execute", lambda *_: None)
    for key in ("figure.dpi", "savefig.dpi"):
        monkeypatch.setitem(STYLE, key, 50)


def contents(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def copied(folder, place):
    for name, content in contents(folder).items():
        path = place / name.removeprefix(f"{folder}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return place


def test_pictures_of_a_folder_are_those_of_its_run(finished, tmp_path):
    before = contents(finished)
    drawn = plot(finished, tmp_path / "plots")
    assert {path.name for path in drawn} == {path.name for path in finished.glob("*.png")}
    assert len(drawn) == 4
    for path in drawn:
        assert path.read_bytes() == (finished / path.name).read_bytes()
    assert contents(finished) == before


def test_what_is_half_written_is_not_drawn(finished, tmp_path):
    """A row that is cut short; a snapshot of which the group does not tell yet; no record."""
    folder = copied(finished, tmp_path / "run")
    with (folder / "diagnostics.csv").open("a") as file:
        file.write("11,1.1,0.1,0.3")
    for name in ("time", "vorticity_magnitude"):
        path = folder / "fields.zarr" / name / "zarr.json"
        said = json.loads(path.read_text())
        said["shape"][0] += 1
        path.write_text(json.dumps(said))
    # Which shows what all others do.
    (summary,) = (one for one in StoredRun(folder).pictures() if one.is_summary)
    assert summary.write(tmp_path).read_bytes() == (finished / "summary.png").read_bytes()


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        (("run.json",), {"series", "spectrum", "vorticity_magnitude", "summary"}),
        (("fields.zarr",), {"energy", "spectrum"}),
        (("fields.zarr", "spectra.zarr"), {"energy"}),
        (("diagnostics.csv", "fields.zarr"), {"spectrum"}),
    ],
)
def test_what_there_is_is_drawn(finished, tmp_path, missing, expected):
    folder = copied(finished, tmp_path / "run")
    for name in missing:
        (folder / name).rename(tmp_path / name)
    assert {one.name for one in StoredRun(folder).pictures()} == expected


def test_nothing_yet_is_said(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        plot(tmp_path / "none", tmp_path)
    with pytest.raises(InputError, match=r"expected case\.toml"):
        plot(tmp_path, tmp_path)
    (tmp_path / "case.toml").write_text(CASE)
    with pytest.raises(InputError, match="nothing to draw yet"):
        plot(tmp_path, tmp_path)
    with pytest.raises(InputError, match="no snapshots of fields yet"):
        plot(tmp_path, tmp_path, movie=True)


def test_planes_are_those_that_are_asked_for(finished):
    run = StoredRun(finished)
    x, y = COORDINATES["x"], COORDINATES["y"]
    liveliest = run.plane(run.choice_of("velocity_y"), run.snapshot())
    assert (liveliest.position, liveliest.time) == (LIVELIEST * 0.5, pytest.approx(1))
    expected = 2 * np.exp(-liveliest.time) * np.sin(x + y[:, None])
    np.testing.assert_allclose(liveliest.values, expected)
    # A vector's magnitude, and the nearest of times and points.
    vector = run.plane(run.choice_of("velocity"), run.snapshot(0.6), "z", 2.6)
    assert (vector.position, vector.time) == (2.5, pytest.approx(0.5))
    expected = 3 * np.exp(-vector.time) * np.abs(np.sin(x + y[:, None]))
    np.testing.assert_allclose(vector.values, expected)
    across = run.plane(run.choice_of("velocity_x"), run.snapshot(0), "y", 99)
    assert (across.normal_name, across.position, across.time) == ("y", 2.5, 0)
    assert across.values.shape == (8, 4)


def test_formats_and_movies(finished, tmp_path):
    wishes = PlaneWishes.of_options("y=1", 0.5, "-1,2", "viridis")
    (picture,) = plot(finished, tmp_path, field="velocity", wishes=wishes, format="svg")
    assert picture.name == "velocity.svg"
    assert "<svg" in picture.read_text()
    (pdf,) = plot(finished, tmp_path, wishes=wishes, format="pdf")
    assert pdf.read_bytes().startswith(b"%PDF")
    (movie,) = plot(finished, tmp_path, field="velocity_x", movie=True)
    with Image.open(movie) as frames:
        assert (movie.suffix, frames.n_frames) == (".gif", 3)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"field": "velocty"}, "--field: there is no 'velocty'; there are: velocity_x"),
        ({"format": "bmp"}, "--format: 'bmp'; accepted for pictures: png, pdf or svg"),
        ({"format": "png", "movie": True}, "accepted for movies: gif or mp4"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(finished, tmp_path, options, match):
    with pytest.raises(InputError, match=match):
        plot(finished, tmp_path / "plots", **options)
    assert not (tmp_path / "plots").exists()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (("w=1", None, None, None), "--plane: 'w=1'"),
        (("z=?", None, None, None), "--plane"),
        (("z=nan", None, None, None), "--plane"),
        ((None, float("inf"), None, None), "--time"),
        ((None, None, "1", None), "--range"),
        ((None, None, "2,1", None), "--range"),
        ((None, None, None, "jett"), "--colormap: there is no 'jett'"),
    ],
)
def test_wishes_are_judged(options, match):
    with pytest.raises(InputError, match=match):
        PlaneWishes.of_options(*options)
