"""Pictures drawn from a run's folder: those of the run, at any moment of its life."""

import json
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

import slipstream as ss
from fake_simulation import CASE, FakeSimulation
from quick_pictures import quick_pictures
from slipstream.case import parse_case
from slipstream.engine.errors import InputError
from slipstream.engine.fields import Field, PictureChoice
from slipstream.runs.run_case import run_case
from slipstream.show.plot_command import PlaneWishes, plot, plot_together, spectrum_wishes
from slipstream.show.report_command import comparison_picture, labels_by_difference, runs_by_name
from slipstream.show.run_pictures import SpectrumWishes, spectrum_figure
from slipstream.show.series_statistics import time_average
from slipstream.show.stored_run import StoredRun

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
def drawn_as_runs_draw_in_tests():
    with quick_pictures():
        yield


def contents(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def copied(folder, target):
    for name, content in contents(folder).items():
        path = target / name.removeprefix(f"{folder}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return target


@pytest.mark.slow
def test_pictures_of_a_folder_are_those_of_its_run(finished, tmp_path):
    before = contents(finished)
    drawn = plot(finished, tmp_path / "plots")
    assert {path.name for path in drawn} == {path.name for path in finished.glob("*.png")}
    assert len(drawn) == 4
    for path in drawn:
        assert path.read_bytes() == (finished / path.name).read_bytes()
    assert contents(finished) == before


@pytest.mark.slow
def test_what_is_half_written_is_not_drawn(finished, tmp_path):
    """A row that is cut short; a snapshot that the group does not list yet; no record."""
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
    across = run.plane(run.choice_of("velocity_x"), run.snapshot(0), "y", 2.9)
    assert (across.normal_name, across.position, across.time) == ("y", 2.5, 0)
    assert across.values.shape == (8, 4)


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_snapshot_that_is_drawn_is_said(finished, tmp_path, capsys):
    said = []
    plot(finished, tmp_path, wishes=PlaneWishes(time=0.7), tell=said.append)
    assert said == [
        "--time 0.7: no snapshot of that time; drawn is the nearest, of t = 0.5"
        " (next to it: t = 0 and t = 1)"
    ]
    said.clear()
    plot(finished, tmp_path, wishes=PlaneWishes(time=0.5), tell=said.append)
    assert not said
    plot(finished, tmp_path, wishes=PlaneWishes(time=7), tell=said.append)
    assert "of t = 1 (next to it: t = 0.5)" in said[0]
    with pytest.raises(
        InputError, match="--plane: position 50 along z is outside; accepted: 0 to "
    ):
        plot(finished, tmp_path, wishes=PlaneWishes(axis="z", position=50))
    with pytest.raises(InputError, match="--time and --movie exclude each other"):
        plot(finished, tmp_path, wishes=PlaneWishes(time=1), movie=True)


# -- spectra ------------------------------------------------------------------------------------


def drawn_spectrum(choice, **wishes):
    """Return the axes of a spectrum k^-2 of shells up to 17, at two times."""
    shells = np.arange(18.0)
    values = np.append(0, shells[1:] ** -2)
    spectra = [(time, {"e": (shells, (1 + time) * values)}) for time in (0.0, 1.0)]
    given = SpectrumWishes("e", **wishes)
    return spectrum_figure("", spectra, {"e": "energy $E$"}, choice, given).axes[0]


@pytest.mark.slow
def test_spectra_end_at_the_cutoff_which_is_marked():
    axes = drawn_spectrum(PictureChoice(spectra=("e",), cutoff=10.0))
    curves = [one for one in axes.lines if len(one.get_xdata()) > 2]
    assert [one.get_xdata().max() for one in curves] == [10, 10]
    (mark,) = (one for one in axes.lines if list(one.get_xdata()) == [10, 10])
    assert [one.get_text() for one in axes.texts if one.get_text()][-1] == "cutoff"
    # Of runs that have not recorded one all shells are drawn.
    axes = drawn_spectrum(PictureChoice(spectra=("e",)))
    assert axes.lines[0].get_xdata().max() == 17
    assert "cutoff" not in [one.get_text() for one in axes.texts]


@pytest.mark.parametrize(
    ("options", "cutoff"),
    [
        ({"points": 32}, 10),
        ({"points": (32, 16, 1)}, 5),
        ({"points": (32, 16, 16), "length": (4 * np.pi, np.pi, 2 * np.pi)}, 5),
        ({"points": 32, "dealiasing": "phase-shift", "integrator": "heun"}, 15),
    ],
)
def test_the_cutoff_of_a_grid(options, cutoff):
    """Up to which all modes of a shell are kept: along the axis with the smallest reach."""
    with ss.Turbulence(viscosity=0.1, initial="taylor-green", **options) as flow:
        assert flow.solver.pictures().cutoff == pytest.approx(cutoff)


def test_compensated_spectra():
    axes = drawn_spectrum(PictureChoice(spectra=("e",), cutoff=10.0), power=Fraction(2))
    np.testing.assert_allclose(axes.lines[1].get_ydata(), 2)
    assert axes.get_ylabel() == "$k^{2}$ energy $E$"


def test_an_averaged_spectrum_has_a_band_of_its_error(finished, tmp_path):
    said = []
    (path,) = plot(finished, tmp_path, spectrum=SpectrumWishes(is_average=True), tell=said.append)
    assert path.name == "energy_spectrum_average.png"
    assert any("samples only" in one or "correlation times" in one for one in said)
    average = time_average(
        np.arange(200), 1 + np.random.default_rng(1).standard_normal((200, 18)) / 10, since=0
    )
    average = replace(average, name="e", coordinates={"wavenumber": np.arange(18.0)})
    choice = PictureChoice(spectra=("e",), cutoff=10.0)
    wishes = SpectrumWishes("e", Fraction(1), True)
    axes = spectrum_figure("", [], {}, choice, wishes, average).axes[0]
    (band,) = axes.collections
    edges = band.get_paths()[0].vertices
    k = np.arange(1, 11)
    at = edges[np.isclose(edges[:, 0], 3)][:, 1]
    assert at.max() - at.min() == pytest.approx(2 * 3 * average.error[3])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), k * average.mean[1:11])


def test_wishes_for_spectra_are_judged(finished, tmp_path):
    assert spectrum_wishes(None, None, False, None) is None
    assert spectrum_wishes("e", "5/3", True, 2.0) == SpectrumWishes("e", Fraction(5, 3), True, 2.0)
    for power in ("x", "1/0", "nan", "1e9"):
        with pytest.raises(InputError, match="--compensate: .*; accepted: a power"):
            spectrum_wishes(None, power, False, None)
    with pytest.raises(InputError, match="--since: goes with --average"):
        spectrum_wishes(None, "1", False, 3.0)
    with pytest.raises(InputError, match="there is no 'x'; there are: energy_spectrum"):
        plot(finished, tmp_path, spectrum=SpectrumWishes("x"))
    with pytest.raises(InputError, match="are of spectra: without --field"):
        plot(finished, tmp_path, field="velocity", spectrum=SpectrumWishes())


# -- several runs -------------------------------------------------------------------------------


@pytest.mark.slow
def test_several_runs_are_one_figure_as_wide_as_a_column(finished, tmp_path):
    other = copied(finished, tmp_path / "other")
    case = (other / "case.toml").read_text()
    (other / "case.toml").write_text(case.replace("viscosity = ", "viscosity = 1"))
    assert (other / "case.toml").read_text() != case
    (path,) = plot_together([finished, other], tmp_path)
    assert path.name == "comparison.pdf"
    width = float(re.search(rb"/MediaBox \[ 0 0 ([\d.]+)", path.read_bytes())[1])
    assert width / 72 * 25.4 == pytest.approx(86, abs=0.5)
    runs = runs_by_name([finished, other])
    labels = list(labels_by_difference(runs).values())
    assert labels[0] != labels[1]
    assert all(one.startswith("viscosity = ") for one in labels)
    figure = comparison_picture(runs, SpectrumWishes(), lambda _: None).draw()
    assert [one.get_text() for one in figure.legends[0].get_texts()] == labels
    # All curves are there, each in the colour of its label.
    lines = figure.axes[0].lines
    assert [one.get_color() for one in lines] == [
        one.get_color() for one in figure.legends[0].get_lines()
    ]
    averaged = SpectrumWishes(is_average=True)
    assert comparison_picture(runs, averaged, lambda _: None).draw().axes
    with pytest.raises(InputError, match="accepted here: png, pdf or svg"):
        plot_together([finished, other], tmp_path, format="gif")


def test_equal_runs_are_told_apart_by_their_folders(finished, tmp_path):
    runs = runs_by_name([finished, copied(finished, tmp_path / "other")])
    assert set(labels_by_difference(runs).values()) == set(runs)
