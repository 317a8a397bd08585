import io
import math
import re
import time
from dataclasses import replace

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from flows import PATIENCE
from slipstream.engine.device.host_compiler import COUNT
from slipstream.engine.fields import Field, PictureChoice, PlaneChoice
from slipstream.engine.text import REST, duration, inner_times, pi_text, quantity, scaled_unit
from slipstream.show.console import CompilingLine, Progress, Summary, make_console, summarise
from slipstream.show.field_planes import FieldPlane, colour_scale, compose_plane, gather_plane
from slipstream.show.figure_style import draw_plane, in_our_style, laid_out
from slipstream.show.run_pictures import (
    SpectrumWishes,
    draw_curves,
    draw_spectrum,
    run_pictures,
    spectrum_figure,
    thinned,
)

TIME = np.linspace(0, 10, 101)
SERIES = {
    "time": TIME,
    "energy": 0.125 / (1 + np.exp(TIME - 9)),
    "dissipation": 0.012 * np.exp(-((TIME - 8) ** 2) / 8),
}
CHOICE = PictureChoice(
    curves=(("energy",), ("dissipation",)),
    curves_file="energy.png",
    planes=(PlaneChoice("vorticity_magnitude", "vorticity.png", "plane of largest enstrophy"),),
    may_have_inertial_range=True,
    peak="dissipation",
    short_labels={"dissipation": r"$\varepsilon$"},
)
WAVENUMBER = np.arange(0.0, 40.0)


def spectra(count=20):
    values = np.where(WAVENUMBER > 0, np.maximum(WAVENUMBER, 1) ** (-5 / 3), 0)
    return [(float(t), {"energy_spectrum": (WAVENUMBER, values)}) for t in range(count)]


def vorticity(size=16):
    x = np.arange(size) * 2 * math.pi / size
    z, y, x_ = np.meshgrid(x, x, x, indexing="ij")
    values = np.abs(np.sin(x_) * np.sin(y)) * (1 + np.cos(z))
    coordinates = {"x": x, "y": x, "z": x}
    return Field(
        "vorticity_magnitude",
        ("z", "y", "x"),
        values.shape,
        (0, 0, 0),
        values,
        coordinates,
        {"long_name": "magnitude of vorticity"},
    )


def draw(folder, **changes):
    data = {
        "choice": CHOICE,
        "title": "Taylor-Green vortex",
        "series": SERIES,
        "labels": {},
        "spectra": spectra(),
        "planes": [gather_plane(vorticity(), None, 10.0)],
    }
    return [one.write(folder).name for one in run_pictures(**{**data, **changes})]


@pytest.mark.slow
def test_all_pictures_are_drawn_and_not_blank(tmp_path):
    assert draw(tmp_path) == ["energy.png", "spectrum.png", "vorticity.png", "summary.png"]
    for path in tmp_path.iterdir():
        pixels = matplotlib.image.imread(path)
        assert min(pixels.shape[:2]) >= 900
        assert pixels[..., :3].std() > 0.05


@pytest.mark.slow
def test_pictures_without_data_are_left_out(tmp_path):
    assert draw(tmp_path, planes=[]) == ["energy.png", "spectrum.png"]
    assert draw(tmp_path, planes=[], spectra=[]) == ["energy.png"]
    assert draw(tmp_path, planes=[], series={"time": TIME[:1], "energy": TIME[:1]}) == [
        "spectrum.png"
    ]


@pytest.mark.slow
def test_degenerate_data_do_not_stop_a_picture(tmp_path):
    still = {name: np.zeros(3) if name != "time" else TIME[:3] for name in SERIES}
    zeros = [(0.0, {"energy_spectrum": (WAVENUMBER, 0 * WAVENUMBER)})]
    point = Field("w", ("z", "y", "x"), (1, 1, 1), (0, 0, 0), np.zeros((1, 1, 1)))
    plane = gather_plane(point, None, 0.0)
    assert len(draw(tmp_path, series=still, spectra=zeros, planes=[plane])) == 4
    assert len(draw(tmp_path, spectra=spectra(1))) == 4


def spectrum_axes(spectra):
    axes = Figure().subplots()
    draw_spectrum(axes, spectra, {}, CHOICE)
    return axes


def test_spectrum_of_one_wave_is_a_point_and_has_no_guide():
    wave = (WAVENUMBER, np.where(WAVENUMBER == 1, 0.5, 0))
    axes = spectrum_axes([(1.0, {"energy_spectrum": wave})])
    (line,) = axes.lines
    assert line.get_marker() == "o"
    assert not axes.texts


def test_guide_needs_a_range_of_shells():
    assert spectrum_axes(spectra(2)).texts
    few = [
        (t, {"energy_spectrum": tuple(a[:12] for a in one["energy_spectrum"])})
        for t, one in spectra(2)
    ]
    axes = spectrum_axes(few)
    assert not axes.texts
    assert all(line.get_marker() == "" for line in axes.lines)


@pytest.mark.parametrize(
    ("slope", "may_have", "is_drawn"), [(-1.8, 1, 1), (-4, 1, 0), (-1.8, 0, 0)]
)
def test_guide_is_for_spectra_that_have_such_a_range(slope, may_have, is_drawn):
    """Not for laminar and plane flows, which are steeper, and never for wave functions."""
    values = np.where(WAVENUMBER > 0, np.maximum(WAVENUMBER, 1) ** slope, 0)
    axes = Figure().subplots()
    choice = replace(CHOICE, may_have_inertial_range=bool(may_have))
    draw_spectrum(axes, [(0.0, {"energy_spectrum": (WAVENUMBER, values)})], {}, choice)
    assert bool(axes.texts) == bool(is_drawn)


def test_negative_values_are_drawn():
    values = np.r_[0, WAVENUMBER[1:] ** -2.0]
    signed = np.where(WAVENUMBER % 2 == 0, -values, values)
    axes = Figure().subplots()
    choice = replace(CHOICE, spectra=("energy_spectrum", "cross"))
    one = {"energy_spectrum": (WAVENUMBER, values), "cross": (WAVENUMBER, signed)}
    draw_spectrum(axes, [(0.0, one)], {}, choice)
    hollow = next(line for line in axes.lines if line.get_markerfacecolor() == "white")
    np.testing.assert_array_equal(hollow.get_xdata(), WAVENUMBER[2::2])
    np.testing.assert_array_equal(hollow.get_ydata(), values[2::2])
    figure = Figure()
    series = {"time": TIME, "energy": -SERIES["energy"], "dissipation": np.cos(TIME)}
    draw_curves(figure, series, {"energy": "E", "dissipation": "D"}, CHOICE)
    for axes, name in zip(figure.axes, ("energy", "dissipation"), strict=True):
        low, high = axes.get_ylim()
        assert low < series[name].min() and series[name].max() <= high
        assert low < 0 <= high


def test_long_series_keep_their_peaks():
    time = np.linspace(0, 1, 1_000_003)
    values = np.sin(9 * time)
    values[[123_456, 700_000]] = 7, -5
    values[500_000:500_050] = np.nan
    few, seen = thinned(time, values)
    assert len(few) < 10_000
    assert (few[0], few[-1]) == (0, 1)
    assert (np.nanmax(seen), np.nanmin(seen)) == (7, -5)
    assert np.isnan(seen).any()
    assert np.all(np.diff(few) > 0)
    np.testing.assert_array_equal(seen, values[np.searchsorted(time, few)])
    assert len(thinned(time[:100], values[:100])[0]) == 100


@pytest.mark.parametrize(
    ("values", "brightest", "expected"),
    [
        ([-1.0, 0.5], 1, (-1, 1, "RdBu_r", "neither")),
        ([*np.linspace(-1, 1, 201), 50], 0.99, (-1, 1, "RdBu_r", "both")),
        ([0.2, 1.0], 1, (0, 1, "inferno", "neither")),
        ([0.9, 1.0], 1, (0.9, 1, "inferno", "neither")),
        ([-0.001, 1.0, math.nan], 1, (-0.001, 1, "inferno", "neither")),  # rounding, an overshoot
        ([-3.0, -2.0], 1, (-3, -2, "inferno", "neither")),
        ([0.0, 0.0], 1, (0, 1, "inferno", "neither")),
        ([-2.0, -2.0], 1, (-2, 0, "inferno", "neither")),
        ([], 1, (0, 1, "inferno", "neither")),
    ],
)
def test_colours_of_both_signs_are_centred_at_zero(values, brightest, expected):
    scale = colour_scale(np.array(values), brightest)
    assert (scale.low, scale.high) == pytest.approx(expected[:2], rel=0.02)
    assert (scale.map_name, scale.extend) == expected[2:]


def test_a_phase_field_is_drawn_about_zero():
    field = vorticity()
    plane = replace(gather_plane(field, None, 0.0), values=np.tanh(field.data[0] - 1))
    axes = Figure().subplots()
    draw_plane(axes, plane)
    low, high = axes.images[0].get_clim()
    assert low == -high < 0
    assert axes.images[0].get_cmap().name == "RdBu_r"


@pytest.mark.parametrize("shape", [(1, 4, 5), (4, 1, 5), (4, 5, 1)])
def test_a_plane_flow_s_plane_is_all_of_it(shape):
    values = np.arange(20.0).reshape(shape)
    plane = gather_plane(Field("w", tuple("zyx"), shape, (0, 0, 0), values), None, 2.0)
    np.testing.assert_array_equal(plane.values, values.reshape(4, 5))
    assert plane.normal_name == ""
    axes = Figure().subplots()
    draw_plane(axes, plane)
    assert axes.get_title(loc="left") + axes.get_title() == "$t$ = 2"


@pytest.mark.parametrize("shape", [(1, 1, 7), (1, 7, 1), (7, 1, 1)])
def test_what_is_only_a_line_is_drawn_as_a_curve(shape):
    values = np.linspace(-1, 2, 7)
    field = Field("w", tuple("zyx"), shape, (0, 0, 0), values.reshape(shape))
    axes = Figure().subplots()
    draw_plane(axes, gather_plane(field, None, 2.0))
    assert not axes.images
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), values)
    assert axes.get_xlabel().startswith(f"${'zyx'[shape.index(7)]}$")


def test_plane_is_the_one_in_which_most_happens():
    field = vorticity()
    plane = gather_plane(field, None, 3.0)
    np.testing.assert_array_equal(plane.values, field.data[0])
    assert (plane.normal_name, plane.row_name, plane.column_name) == ("z", "y", "x")
    assert (plane.position, plane.time) == (0.0, 3.0)


@pytest.mark.parametrize(("normal", "axis"), [("z", 0), ("y", 1), ("x", 2)])
def test_plane_may_be_any_one_through_the_middle(normal, axis):
    shape = (4, 5, 6)
    values = np.random.default_rng(0).random(shape)
    coordinates = {name: 2.0 * np.arange(n) for name, n in zip("zyx", shape, strict=True)}
    field = Field("w", tuple("zyx"), shape, (0, 0, 0), values, coordinates, {}, "m")
    plane = gather_plane(field, None, 0.0, normal, is_central=True)
    middle = shape[axis] // 2
    np.testing.assert_array_equal(plane.values, values.take(middle, axis))
    assert plane.row_name + plane.column_name == "zyx".replace(normal, "")
    assert (len(plane.rows), len(plane.columns)) == plane.values.shape
    assert (plane.normal_name, plane.position, plane.unit) == (normal, 2.0 * middle, "m")


def test_plane_is_composed_of_components_where_there_is_something():
    choice = PlaneChoice("speed", "speed.png", "the middle", components=("u", "v"), mask="pore")
    assert choice.needed == ("u", "v", "pore")
    fields = {
        "u": 3.0 * np.ones((1, 2, 2)),
        "v": 4.0 * np.ones((1, 2, 2)),
        "pore": np.array([[[1, 0], [1, 1]]], np.uint8),
    }
    planes = {
        name: gather_plane(Field(name, tuple("zyx"), (1, 2, 2), (0, 0, 0), data), None, 1.0)
        for name, data in fields.items()
    }
    plane = compose_plane(planes, choice)
    assert plane.name == "speed"
    assert plane.values.mask.tolist() == [[False, True], [False, False]]
    assert plane.values.compressed().tolist() == [5, 5, 5]
    assert compose_plane({**planes, "v": None}, choice) is None
    assert compose_plane({}, choice) is None


@pytest.mark.slow
@pytest.mark.parametrize("solid", ["some", "all", "none"])
def test_picture_of_what_is_masked_has_its_units(tmp_path, solid):
    choice = PictureChoice(
        (("k",),),
        "k.png",
        (PlaneChoice("speed", "speed.png", "the middle"),),
        short_labels={"k": "k", "speed": "u"},
        units={"k": "mD"},
        time_label="time step",
    )
    x = 2e-6 * (np.arange(8) + 0.5)
    mask = {"some": np.eye(8), "all": np.ones((8, 8)), "none": np.zeros((8, 8))}[solid]
    values = np.ma.masked_where(mask == 1, 1e-5 * np.ones((8, 8)))
    plane = FieldPlane("speed", values, "z", "x", x, x, "y", 9e-6, "speed", 1600.0, "m")
    axes = Figure().subplots()
    draw_plane(axes, plane, {"speed": "u"}, choice.planes[0])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("$x$ (µm)", "$z$ (µm)")
    assert axes.get_title(loc="left") + axes.get_title() == "$y$ = 9 µm (the middle),  $t$ = 1600"
    assert axes.get_xlim() == pytest.approx((0, 16))
    series = {"time": TIME, "k": 0 * TIME}
    files = draw(tmp_path, choice=choice, series=series, spectra=[], planes=[plane])
    assert files == ["k.png", "speed.png"]


@pytest.mark.parametrize(
    ("unit", "largest", "expected"),
    [
        ("m", 2e-4, (1e-6, "µm")),
        ("m", 3e-3, (1e-3, "mm")),
        ("m", 2, (1, "m")),
        ("m", 5e-8, (1e-9, "nm")),
        ("voxels", 1e-8, (1, "voxels")),
    ],
)
def test_lengths_are_told_in_a_handy_unit(unit, largest, expected):
    assert scaled_unit(unit, largest) == expected


@pytest.mark.parametrize(
    ("multiple", "text"),
    [(0, "0"), (1, "π"), (-1, "−π"), (2, "2π"), (0.5, "π/2"), (1.5, "3π/2"), (0.4375, "0.438π")],
)
def test_multiples_of_pi_are_written_as_such(multiple, text):
    assert pi_text(multiple) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0032, "3.2 ms"), (12.0, "12 s"), (4e-6, "4 µs"), (0, "0 s"), (math.inf, "inf s")],
)
def test_quantities_have_metric_prefixes(value, text):
    assert quantity(value, "s") == text


def test_durations_read_as_people_write_them():
    assert [duration(s) for s in (12.34, 250, 11100)] == ["12.3 s", "4 min 10 s", "3 h 5 min"]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_kernels_that_are_compiled_are_announced_and_counted(is_terminal):
    console = Console(file=io.StringIO(), width=100, force_terminal=is_terminal, no_color=True)
    end = time.monotonic() + PATIENCE
    with CompilingLine(console):
        for _ in range(3):
            with COUNT.one_running():
                while "kernels (once) ..." not in console.file.getvalue():
                    assert time.monotonic() < end
                    time.sleep(0.01)
    last = console.file.getvalue().splitlines()[-1]
    assert "compiled 3 kernels in " in last


@pytest.mark.parametrize("is_quiet", [False, True])
def test_nothing_is_said_where_nothing_is_compiled_nor_where_nothing_is_wanted(is_quiet):
    console = Console(file=io.StringIO(), quiet=is_quiet)
    with CompilingLine(console):
        if is_quiet:
            with COUNT.one_running():
                pass
    assert console.file.getvalue() == ""


def test_progress_is_a_few_lines_where_there_is_no_terminal():
    console = Console(file=io.StringIO(), width=100)
    with Progress(console, 0.0, 1.0) as progress:
        for step in range(1, 1001):
            progress.update(step / 1000, f"step {step}")
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[-1].startswith("100 %  step 1000, ")


def test_ranks_believe_the_process_that_started_them(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    assert not make_console().is_terminal
    monkeypatch.setenv("SLIPSTREAM_TERMINAL", "1")
    assert make_console().is_terminal


def test_progress_bar_appears_on_a_terminal():
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with Progress(console, 0.0, 1.0) as progress:
        progress.update(0.5, "permeability 12 mD")
    assert "50 %  permeability 12 mD" in console.file.getvalue()


def test_summary_names_costs_and_places(tmp_path):
    console = Console(file=io.StringIO(), width=100)
    summary = Summary(
        wall=10.0,
        steps=100,
        time=1.0,
        points=64**3,
        parts={"start": 1.0, "time steps": 8.0, "diagnostics and output": 0.5, "pictures": 0.3},
        timers={"fft": 4.0, "communication": 7.0},
        folder=tmp_path,
        pictures=[tmp_path / "energy.png"],
    )
    summarise(console, summary)
    text = console.file.getvalue()
    for part in ("80 ms", "3.28 Mpoints/s", "80 %", "7 s", str(tmp_path), "energy.png"):
        assert part in text
    assert "stopped" not in text
    # The parts share the wall time, however much of their work overlaps.
    assert sum(map(int, re.findall(r"(\d+) %", text))) == pytest.approx(100, abs=3)


@pytest.mark.parametrize(("seconds", "rest"), [(8.0, 3.0), (4.0, None)])
def test_what_categories_of_steps_leave_is_shown_unless_they_overlap(seconds, rest):
    inner = inner_times(seconds, {"compute": 1.0, "extrapolation": 4.0})
    names = ["extrapolation", "compute"] + ([REST] if rest else [])
    assert [name for name, _ in inner] == names
    assert rest is None or inner[-1][1] == rest
    assert inner_times(seconds, {}) == []


def test_summary_tells_results_instead_of_points(tmp_path):
    console = Console(file=io.StringIO(), width=100)
    results = {"permeability": ("207.6 mD", "2e-13 m²")}
    summary = Summary(
        1.0, 3, 0.3, None, {"time steps": 1.0}, results=results, extras=[tmp_path / "flow.vti"]
    )
    summarise(console, summary)
    text = console.file.getvalue()
    assert re.search(r"permeability +207.6 mD +2e-13 m²", text)
    assert "points/s" not in text
    assert f"written: {tmp_path / 'flow.vti'}" in text.replace("\n", "")


def test_warnings_are_lines_of_their_own():
    console = Console(file=io.StringIO(), width=100)
    with Progress(console, 0.0, 1.0) as progress:
        progress.warn(["too [fast]"])
        progress.warn([])
    assert console.file.getvalue() == "warning: too [fast]\n"


def test_summary_says_what_stopped_a_run():
    console = Console(file=io.StringIO(), width=100)
    summarise(console, Summary(1.0, 3, 0.3, 8, stopped_by="time.max_steps"))
    assert "stopped after 3 steps: time.max_steps\n" in console.file.getvalue()


@pytest.mark.slow
def test_a_cutoff_far_outside_leaves_room_for_the_axes():
    """One wave, on a grid that keeps many: Matplotlib would give up its layout."""
    shells = np.arange(18.0)
    spectra = [(0.0, {"e": (shells, 1.0 * (shells == 1))})]
    choice = PictureChoice(spectra=("e",), cutoff=15.0)
    with in_our_style():
        figure = spectrum_figure("", spectra, {"e": "energy"}, choice, SpectrumWishes("e"))
        laid_out(figure)
    (axes,) = figure.axes
    assert axes.get_xlim()[1] < choice.cutoff
    # The default position is beside the middle.
    assert axes.get_position().x1 > 0.95
