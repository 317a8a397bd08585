"""Runs of the lattice family, from the command line to the files."""

import re

import numpy as np
import pytest
import xarray
from hypothesis import given
from hypothesis import strategies as st

from flows import diagnostics, save
from lattice_flows import CASE, CHANNEL, SANDSTONE, SHAPE, advance, start, state, state_of
from launched_runs import enter, run
from refusals import status_of
from slipstream.engine.decomposition import whole
from slipstream.engine.device import HostDevice
from slipstream.files.run_folder import read_run_record
from slipstream.lattice import make_sample
from slipstream.lattice.convergence import DARCY
from slipstream.lattice.lattice_checkpoint import padded_sizes
from slipstream.runs.run_case import write_timeline
from slipstream.show.solver_texts import description


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    return enter(tmp_path, monkeypatch, case=CASE, channel=CHANNEL)


def sandstone():
    return make_sample("sandstone", SHAPE, radius=4, porosity=0.4).read(whole(SHAPE))


@pytest.mark.slow
def test_run_writes_what_was_asked_for_and_says_what_it_does(
    folder, capsys, pictures_drawn_as_ever
):
    settings = ("run.timeline=true", "output.fields_interval=20", "output.vtk=true")
    assert run(*settings, "output.pictures=true") == 0
    assert {path.name for path in (folder / "out").iterdir()} == {
        "case.toml",
        "diagnostics.csv",
        "diagnostics.zarr",
        "steps.csv",
        "run.json",
        "run.log",
        "report.html",
        ".slipstream.json",
        "fields.zarr",
        "checkpoints",
        "flow.vti",
        "permeability.png",
        "speed.png",
        "timeline.png",
        "timeline.json",
    }
    text = " ".join(capsys.readouterr().out.split())
    for part in (
        "Stokes flow",
        "sandstone (synthetic): 24 x 20 x 16 voxels (x, y, z) of 2 µm",
        "open along z",
        "isolated and removed",
        "viscosity 0.1",
        "force 1e-05 along z",
        "mean over all voxels",
        "aa, stream, raster, compact (not measured)",
        "GiB",
        "at most 40 steps",
        "million/s",
        "mD",
        "100 %",
        "relative, estimated; not converged",
        "written: out/flow.vti",
    ):
        assert part in text, part
    told = r"not converged, [0-9.]+ from steady, about \d+ more steps at the present pace: continue"
    assert re.search(rf"{told} with slipstream resume out --set time.end=\d+", text)
    assert "stopped" not in text
    fields = xarray.open_zarr(folder / "out" / "fields.zarr")
    assert fields.density.dims == ("time", "z", "y", "x")
    assert fields.density.shape == (3, *SHAPE)
    np.testing.assert_allclose(fields.x, 2e-6 * (np.arange(24) + 0.5))
    assert fields.x.attrs["units"] == "m"


@pytest.mark.parametrize(("size", "unit"), [("2e-6", "mD"), ("1", "voxels²")])
def test_progress_tells_step_permeability_and_how_steady_it_is(folder, capsys, size, unit):
    settings = ("time.end=400", "convergence.tolerance=0", f"image.voxel_size={size}")
    assert run(*settings, "convergence.interval=40", case="channel.toml") == 0
    lines = re.findall(r"^ *(\d+) %  step (.*)$", capsys.readouterr().out, re.M)
    assert [int(percent) for percent, _ in lines] == list(range(10, 101, 10))
    series = diagnostics(folder / "out")
    column = series["permeability_millidarcy" if unit == "mD" else "permeability_lattice"]
    for number, (_, text) in enumerate(lines, start=1):
        step, value, *rest = text.split(", ")
        assert step == f"{40 * number}"
        assert value == f"permeability {column[number]:.5g} {unit}"
        residual = series["residual"][number]
        assert (f"{residual:.2g} from steady" in rest) == (residual < 1)


@pytest.mark.slow
@pytest.mark.parametrize("size", ["", "voxel_size = 1\n"], ids=["none", "1"])
def test_voxels_without_a_size_have_no_permeability_in_metres(folder, capsys, size):
    (folder / "sizeless.toml").write_text(CASE.replace("voxel_size = 2e-6\n", size))
    assert run(out="sized") == 0
    capsys.readouterr()
    assert run("output.pictures=true", case="sizeless.toml", out="sizeless") == 0
    text = capsys.readouterr().out
    sized, sizeless = (diagnostics(folder / name) for name in ("sized", "sizeless"))
    assert set(sized) - set(sizeless) == {"permeability", "permeability_millidarcy"}
    for name, values in sizeless.items():
        np.testing.assert_array_equal(values, sized[name], err_msg=name)
    with xarray.open_zarr(folder / "sizeless" / "diagnostics.zarr") as series:
        assert {*series.data_vars, "time"} == set(sizeless)
    # Neither the table nor the comments at the head of the series speak of metres.
    head = (folder / "sizeless" / "diagnostics.csv").read_text()
    assert f"{sizeless['permeability_lattice'][-1]:.5g} voxels²" in text
    for unit in ("mD", "m²", "m^2"):
        assert unit not in text + head
    assert (folder / "sizeless" / "permeability.png").exists()


@pytest.mark.slow
def test_output_of_an_earlier_run_is_replaced(folder):
    assert run("output.vtk=true", "time.end=2") == 0
    (folder / "out" / "mine.png").touch()
    assert status_of("run", "case.toml", "--out", "out", "--overwrite") == 0
    assert not (folder / "out" / "flow.vti").exists()
    assert (folder / "out" / "mine.png").exists()


def test_fields_agree_with_the_diagnostics_and_the_image(folder):
    assert run() == 0
    fields = xarray.open_zarr(folder / "out" / "fields.zarr").isel(time=-1)
    series = diagnostics(folder / "out")
    pore = fields.pore.values
    # What is isolated has become solid.
    assert np.all(pore <= sandstone())
    assert 0 < np.count_nonzero(pore) > 0.95 * np.count_nonzero(sandstone())
    for name in ("velocity_x", "velocity_y", "velocity_z"):
        values = fields[name].values
        assert not values[pore == 0].any()
        assert values.mean() == pytest.approx(series[name][-1], rel=1e-12, abs=1e-20)
    speed = np.sqrt(sum(fields[f"velocity_{axis}"].values ** 2 for axis in "xyz"))
    assert speed.max() * np.sqrt(3) == pytest.approx(series["mach"][-1], rel=1e-12)
    density = fields.density.values
    assert np.all(density[pore == 0] == 1)
    np.testing.assert_allclose(fields.pressure, density / 3, rtol=1e-15)
    drift = (density - 1).sum() / np.count_nonzero(pore)
    assert series["mass"][-1] == pytest.approx(drift, abs=1e-15)
    assert abs(drift) < 1e-15
    viscosity, force = 0.1, 1e-5
    lattice = viscosity * series["velocity_z"] / force
    np.testing.assert_allclose(series["permeability_lattice"], lattice, rtol=1e-12)
    np.testing.assert_allclose(series["permeability"], lattice * 4e-12, rtol=1e-12)
    millidarcy = series["permeability"] / DARCY * 1000
    np.testing.assert_allclose(series["permeability_millidarcy"], millidarcy, rtol=1e-12)
    assert series["step"].tolist() == [0, 10, 20, 30, 40]


def test_vtk_file_has_the_fields(folder):
    assert run("output.vtk=true") == 0
    fields = xarray.open_zarr(folder / "out" / "fields.zarr").isel(time=-1)
    content = (folder / "out" / "flow.vti").read_bytes()
    start, voxels = content.index(b'encoding="raw">\n   _') + 20, 24 * 20 * 16
    assert b'Spacing="2e-06 2e-06 2e-06"' in content[:start]
    assert b'WholeExtent="0 24 0 20 0 16"' in content[:start]
    velocity = np.frombuffer(content, "<f4", 3 * voxels, start + 8).reshape(*SHAPE, 3)
    for index, axis in enumerate("xyz"):
        np.testing.assert_array_equal(
            velocity[..., index], fields[f"velocity_{axis}"].values.astype(np.float32)
        )
    density = np.frombuffer(content, "<f4", voxels, start + 16 + 12 * voxels).reshape(SHAPE)
    np.testing.assert_array_equal(density, fields.density.values.astype(np.float32))
    pressure = np.frombuffer(content, "<f4", voxels, start + 24 + 16 * voxels).reshape(SHAPE)
    np.testing.assert_allclose(pressure, fields.pressure.values, rtol=1e-6)
    pore = np.frombuffer(content, "u1", voxels, start + 32 + 20 * voxels).reshape(SHAPE)
    np.testing.assert_array_equal(pore, fields.pore)


@pytest.mark.parametrize("drive", ["flow.force=1e-5", "flow.pressure_drop=4e-5"])
@pytest.mark.parametrize("axis", ["y", "z"])
def test_channel_has_the_permeability_of_poiseuille(folder, capsys, drive, axis):
    settings = (drive, f"flow.axis={axis}", "time.end=4000", "convergence.interval=100")
    assert run(*settings, "convergence.tolerance=1e-6", case="channel.toml") == 0
    series = diagnostics(folder / "out")
    # Eight layers of pore among ten: a parabola; voxels have its values at their middles.
    expected = 8 * (8**2 / 12 + 1 / 24) / 10
    assert series["permeability_lattice"][-1] == pytest.approx(expected, rel=3e-6)
    assert series["step"][-1] < 4000
    text = " ".join(capsys.readouterr().out.split())
    assert f"stopped after {series['step'][-1]:.0f} steps: converged" in text
    assert "not converged" not in text
    # The residual is the larger of two estimates.
    assert series["residual"][-1] <= 1e-6 < series["residual"][-2]
    assert not ((series["residual"][1:-2] <= 1e-6) & (series["residual"][2:-1] <= 1e-6)).any()
    assert (series["residual"][:3] == 1).all()


@pytest.mark.slow
def test_layers_of_pore_do_not_resist(folder):
    """A sample of solid but for a channel along z; in layers before and behind it nothing rubs."""
    mask = np.zeros((6, 10, 10), np.uint8)
    mask[:, 1:-1, :] = 1
    np.save(folder / "gap.npy", mask)
    text = CASE.replace(SANDSTONE, 'path = "gap.npy"\npore = 1\n')
    (folder / "gap.toml").write_text(text)
    settings = ("image.buffer=3", "time.end=3000", "convergence.interval=100")
    values = []
    for number, drive in enumerate(("flow.force=1e-6", "flow.pressure_drop=12e-6")):
        assert run(*settings, drive, out=str(number), case="gap.toml") == 0
        values.append(diagnostics(folder / str(number))["permeability_lattice"][-1])
    assert values[0] == pytest.approx(values[1], rel=2e-3)
    # Entrances resist too, so it is somewhat less than in an endless channel.
    assert 0.6 * 8**3 / 120 < values[0] < 8**3 / 120


def test_run_without_tolerance_goes_to_its_end():
    simulation = start(HostDevice(), "convergence.tolerance=0", case=CHANNEL)
    advance(simulation, 3000)
    # By then nothing changes any more.
    assert (simulation.step, simulation.finished) == (3000, "")
    assert simulation.diagnostics()["residual"] < 1e-12


def test_progress_is_of_the_permeability_whose_distance_it_shows(folder):
    """Extrapolations are checks, too, which come between rows of the series."""
    simulation = start(HostDevice(), "convergence.tolerance=1e-9", case=CHANNEL)
    while simulation.indicators()["residual"].value == 1:
        simulation.advance(2.0)
    shown = simulation.indicators()["permeability"].get("square_voxels")
    assert simulation.step < 100
    assert shown == simulation.diagnostics()["permeability_lattice"]


@pytest.mark.parametrize("suffix", ["npy", "raw"])
def test_image_files_are_read_in_the_order_x_y_z(folder, suffix):
    values = np.where(sandstone() == 1, 7, 3).astype(">i2")
    image = [SANDSTONE]
    if suffix == "npy":
        np.save(folder / "rock.npy", values)
        image.append('path = "rock.npy"\npore = 7\n')
    else:
        (folder / "rock.raw").write_bytes(b"head" + values.tobytes())
        image.append(
            'path = "rock.raw"\npore = [7, 9]\nshape = [24, 20, 16]\ndtype = "int16"\n'
            'byte_order = "big"\noffset = 4\n'
        )
    (folder / "file.toml").write_text(CASE.replace(*image))
    settings = ("image.crop=[[2, 20], [0, 20], [1, 16]]", "image.isolated=keep", "time.end=2")
    assert run(*settings, "image.mirror=['x']", case="file.toml") == 0
    pore = xarray.open_zarr(folder / "out" / "fields.zarr").pore.values[-1]
    cropped = sandstone()[1:16, :, 2:20]
    np.testing.assert_array_equal(pore, np.concatenate([cropped, cropped[..., ::-1]], axis=2))


@pytest.mark.slow
def test_run_says_from_where_it_goes_on_and_how_to(folder, capsys):
    assert run("time.max_steps=4", out="first") == 0
    printed = capsys.readouterr().out
    assert (
        "not converged: continue with slipstream resume first --set time.max_steps=8\n" in printed
    )
    assert re.search(r"distance from steady +unknown +not converged", printed)
    assert "continues" not in printed
    assert run("initial.restart=first", "output.checkpoint=false", out="second") == 0
    printed = capsys.readouterr().out
    assert "\nresuming first from t = 4\n" in printed
    assert re.search(
        r"not converged, .* from steady.*: run again with --set time.end=\d+\n", printed
    )
    assert run("convergence.tolerance=0", "time.end=2", out="third") == 0
    assert not re.search("not converged[:,]", capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float64", "mixed", "float16"])
def test_run_that_goes_on_has_the_bits_of_one_that_was_never_stopped(folder, precision):
    settings = [f"numerics.precision={precision}", "time.end=44", "convergence.interval=8"]
    # By time steps alone half precision is for flows that are followed in time.
    settings += ["convergence.tolerance=0"] if precision == "float16" else []
    assert run(*settings, out="whole") == 0
    assert run(*settings, "time.max_steps=26", out="first") == 0
    assert run(*settings, "initial.restart=first", out="second") == 0
    expected, found = state("whole"), state("second")
    np.testing.assert_array_equal(found[0], expected[0])
    assert found[1].tobytes() == expected[1].tobytes()
    assert expected[1].dtype == ("float64" if precision == "float64" else "float32")
    first, second, whole_ = (diagnostics(folder / name) for name in ("first", "second", "whole"))
    assert (first["step"][-1], second["step"][0], second["step"][-1]) == (26, 26, 44)
    for name, values in whole_.items():
        assert second[name][-1] == values[-1], name


@pytest.mark.slow
def test_run_that_goes_on_converges_when_the_whole_one_does(folder):
    device, settings = HostDevice(), ("convergence.interval=20",)
    whole_ = advance(start(device, *settings, case=CHANNEL), 4000)
    save(whole_, "whole")
    end, expected = whole_.step, state_of(whole_)[1]
    assert 60 < end < 4000
    for steps in (end - 10, end - 20, end - 30):
        save(advance(start(device, *settings, case=CHANNEL), steps), f"first_{steps}")
        later = start(device, *settings, f"initial.restart=first_{steps}", case=CHANNEL)
        assert (later.step, later.finished) == (steps, "")
        advance(later, 4000)
        assert later.step == end
        assert later.diagnostics() == whole_.diagnostics()
        # Whether it swings shows in all rows so far.
        assert later.steadiness.looks == whole_.steadiness.looks
        assert state_of(later)[1].tobytes() == expected.tobytes()
    # What has converged is where it should be; unless that is not enough.
    assert "converged" in start(device, *settings, "initial.restart=whole", case=CHANNEL).finished
    for other in ("convergence.tolerance=1e-6", "convergence.interval=10", "flow.force=1e-6"):
        options = (*settings, "initial.restart=whole", other)
        assert not start(device, *options, case=CHANNEL).finished


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ("numerics.propagation=two-lattice", "numerics.layout=bundle"),
        ("numerics.order=row-tiles", "numerics.layout=vector-collision"),
        ("numerics.encoding=strips",),
        ("numerics.encoding=auto", "numerics.order=auto", "numerics.propagation=auto"),
    ],
)
def test_run_goes_on_however_it_is_stored(folder, settings):
    device = HostDevice()
    voxels, expected = state_of(advance(start(device), 40))
    save(advance(start(device, *settings), 20), "first")
    later = advance(start(device, "initial.restart=first"), 20)
    assert later.step == 40
    others, found = state_of(later)
    np.testing.assert_array_equal(others, voxels)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15 * np.abs(expected).max())


def test_run_goes_on_in_another_precision(folder):
    device = HostDevice()
    _, expected = state_of(advance(start(device), 40))
    save(advance(start(device), 20), "first")
    settings = ("initial.restart=first", "numerics.precision=float32")
    _, found = state_of(advance(start(device, *settings), 20))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@given(st.lists(st.integers(0, 10**8), min_size=1, max_size=64).filter(any))
def test_parts_of_a_checkpoint_are_multiples_of_a_fair_chunk(counts):
    sizes = padded_sizes(counts)
    assert all(size >= count for size, count in zip(sizes, counts, strict=True))
    chunk = np.gcd.reduce(sizes)
    # A rank has few files, and little of them is padding.
    assert max(sizes) <= 128 * chunk
    assert max(sizes) - max(counts) <= max(counts) / 16 + (1 << 16)
    assert all(
        size - count < max(1 << 16, max(counts) / 16 + 1)
        for size, count in zip(sizes, counts, strict=True)
        if max(counts) > 1 << 16
    )


def test_memory_is_known_before_it_is_allocated():
    settings = ("image.shape=[64, 60, 70]", "numerics.precision=mixed", "numerics.encoding=wide")
    simulation = start(HostDevice(), *settings)
    sites = simulation.flow.sites
    allocated = (19 * 4 + 72) * sites.stored + sites.voxels.nbytes
    # Velocity, density and the forces on walls in the rank's box, and two copies of one of them.
    output = 10 * 8 * 64 * 60 * 70
    assert allocated + output <= simulation.memory()[0][1] <= 1.3 * allocated + output


@pytest.mark.slow
def test_new_writes_a_case_of_the_family(folder, capsys):
    assert status_of("new", "mine", "--solver", "lattice") == 0
    settings = ("image.shape=[16, 16, 16]", "image.radius=4", "time.end=2", "run.device=cpu")
    assert run(*settings, "output.pictures=false", case="mine.toml") == 0
    assert "aa, stream, raster, strips (not measured)" in " ".join(capsys.readouterr().out.split())


def test_timeline_is_that_of_a_pair_of_steps(folder, monkeypatch):
    simulation, titles = start(HostDevice(), "run.timeline=true"), []
    monkeypatch.setattr(
        "slipstream.engine.schedule.Timeline.write_picture",
        lambda _, path, title: titles.append(title),
    )
    assert write_timeline(simulation, folder) == []
    assert write_timeline(advance(simulation, 2), folder) == [folder / "timeline.png"]
    assert titles == ["a pair of time steps, rank 0, overlap"]


def test_timers_say_what_the_extrapolation_costs(folder):
    assert run("convergence.vectors=4", "output.pictures=false") == 0
    (segment,) = read_run_record(folder / "out").segments
    between = [segment.timers[name] for name in ("extrapolation", "permeability")]
    # Both are within the time of the steps, and measured, not extrapolated from some.
    assert min(between) > 0 and sum(between) < segment.parts["time steps"]
    assert segment.timers["compute"] > 0
    assert "extrapolation" in (folder / "out" / "report.html").read_text()


def test_memory_is_that_of_populations_and_vectors_together():
    shown = {}
    for vectors in (0, 10):
        settings = f"convergence.vectors={vectors}", "convergence.tolerance=1e-3"
        shown[vectors] = description(start("cpu", *settings))
    memory = {n: float(one["memory per device"].split()[0]) for n, one in shown.items()}
    of_vectors = re.search(r"([\d.e-]+) GiB of it for", shown[10]["memory per device"])
    assert memory[10] - memory[0] == pytest.approx(float(of_vectors[1]), rel=0.02)
    text = shown[10]["memory per pore"]
    found = re.search(r"152 bytes of pop.*, (\d+) of links and (\d+) of .*: (\d+);", text)
    links, vectors, total = map(int, found.groups())
    assert abs(152 + links + vectors - total) <= 1
    assert vectors > 368
    assert " 0 of vectors" in shown[0]["memory per pore"]
