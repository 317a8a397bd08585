"""Output that users choose, against whole fields, on any number of ranks."""

import json
import math

import h5py
import numpy as np
import pytest
import zarr
from rich.console import Console

from first_rank import on_first_rank
from image_data import read_image_data
from refusals import refused
from slipstream import Advection, Flow, PorousFlow, Turbulence
from slipstream.case import parse_case
from slipstream.engine.errors import InputError
from slipstream.runs import make_simulation
from slipstream.runs.run_case import run_case

pytestmark = pytest.mark.filterwarnings("ignore:kmax_eta")

SHAPE = (12, 20, 16)
CASE = """
solver = "spectral"
[grid]
points = [16, 20, 12]
[equation]
viscosity = 0.02
[initial]
flow = "random"
seed = 3
peak_wavenumber = 2
[time]
end = 0.2
cfl = 0.5
[output]
pictures = false
checkpoint = false
"""


@pytest.fixture
def sim(comm, device):
    return Turbulence(
        points=(16, 20, 12),
        viscosity=0.02,
        initial={"flow": "random", "seed": 3, "peak_wavenumber": 2},
        cfl=0.5,
        comm=comm,
        device=device,
    )


def whole(sim, name):
    return sim.fields[name].gather()


def table(path):
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return np.genfromtxt(lines, delimiter=",", names=True)


REGIONS = {
    "whole": ({}, (slice(None),) * 3),
    "plane x": ({"plane": ("x", 1.0)}, (slice(None), slice(None), 3)),
    "plane z": ({"plane": ("z", 3.0)}, (6, slice(None), slice(None))),
    "line": ({"line": ("y", (0.0, 1.6))}, (3, slice(None), 0)),
    "box": ({"box": {"x": (0.3, 2.0), "z": (1.0, 5.0)}}, (slice(2, 10), slice(None), slice(1, 6))),
    "stride": ({"stride": (3, 1, 2)}, (slice(None, None, 2), slice(None), slice(None, None, 3))),
}


@pytest.mark.parametrize("region", REGIONS)
def test_files_of_each_format_have_the_points_of_a_region(sim, shared_folder, region):
    options, index = REGIONS[region]
    expected = whole(sim, "velocity")[(slice(None), *index)]
    sim.output("velocity", file=shared_folder / "a.zarr", **options)
    sim.output("velocity", file=shared_folder / "b.h5", **options)
    sim.output("velocity", file=shared_folder / "c.vti", precision="float32", **options)

    def check():
        group = zarr.open_group(shared_folder / "a.zarr", mode="r")
        with h5py.File(shared_folder / "b" / "b_000000.h5") as file:
            for number, axis in enumerate("xyz"):
                np.testing.assert_allclose(
                    group[f"velocity_{axis}"][0], expected[number], atol=1e-14
                )
                np.testing.assert_allclose(
                    file[f"velocity_{axis}"][...], expected[number], atol=1e-14
                )
            assert file.attrs["time"] == 0
        head, arrays = read_image_data(shared_folder / "c" / "c_000000.vti")
        found = np.moveaxis(arrays["velocity"], -1, 0).reshape(expected.shape)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        line = np.arange(16) * 2 * math.pi / 16
        along_x = line[index[2]]
        first = np.ravel(along_x)[0]
        assert float(head["Origin"].split()[0]) == pytest.approx(first)
        if np.ndim(along_x):
            np.testing.assert_allclose(group["x"][...], along_x)
            assert float(head["Spacing"].split()[0]) == pytest.approx(along_x[1] - along_x[0])

    on_first_rank(sim.comm, check)


def test_places_are_interpolated_as_fields_are(sim, shared_folder):
    places = [(0.1, 2.0, 3.0), (6.2, 0.0, 6.0), (3.0, 3.0, 1.0)]
    expected = sim.fields["velocity"].at(places)
    sim.output("velocity", file=shared_folder / "probes", points=places, every=0.1)
    sim.run(until=0.2, progress=False)

    def check():
        group = zarr.open_group(shared_folder / "probes.zarr", mode="r")
        np.testing.assert_allclose(group["time"][...], [0, 0.1, 0.2], rtol=1e-14)
        for number, axis in enumerate("xyz"):
            found = group[f"velocity_{axis}"]
            np.testing.assert_allclose(found[0], expected[:, number], atol=1e-13)
            # Many times in a file.
            assert found.chunks[0] > 3
        np.testing.assert_allclose(group["y"][...], [2, 0, 3])

    on_first_rank(sim.comm, check)


@pytest.mark.slow
def test_a_case_writes_what_it_asks_for_at_its_times(comm, device, shared_folder, sim):
    tables = """
    [[output.fields]]
    of = { h = "dot(velocity, curl(velocity))" }
    times = [0.03, 0.11]
    format = "vtk"
    [[output.fields]]
    of = ["vorticity", "pressure"]
    interval = 0.07
    plane = { axis = "y", position = 2.0 }
    precision = "float32"
    [[output.scalars]]
    of = "vorticity"
    reduce = "rms"
    [[output.scalars]]
    of = "helicity"
    name = "h_mean"
    interval = 0.1
    [[output.movies]]
    of = "vorticity_magnitude"
    interval = 0.05
    plane = { axis = "z", position = 1.0 }
    """
    case = parse_case(CASE + tables, ["output.cospectra=[['velocity', 'vorticity']]"])
    assert parse_case(case.to_toml()) == case
    folder = shared_folder / "run"
    for _ in range(2):  # the second run replaces what the first has written
        simulation = make_simulation(case, comm, device)
        run_case(simulation, folder, Console(quiet=True))
    sim.run(until=0.2, progress=False)
    vorticity = sim.evaluate("vorticity").gather()
    helicity = sim.evaluate("helicity").gather()
    if comm is not None:
        comm.Barrier()

    def check():
        out = folder / "outputs"
        text = (out / "h.pvd").read_text()
        assert [text.count(f'timestep="{t}"') for t in ("0.03", "0.11")] == [1, 1]
        assert len(list((out / "h").iterdir())) == 2
        group = zarr.open_group(out / "vorticity-pressure-plane.zarr", mode="r")
        np.testing.assert_allclose(group["time"][...], [0, 0.07, 0.14, 0.2], rtol=1e-12)
        assert group["pressure"].dtype == np.float32
        # Other steps lead there: the error of the method.
        np.testing.assert_allclose(group["vorticity_y"][-1], vorticity[1][:, 6], atol=1e-3)
        rows = table(folder / "diagnostics.csv")
        rms = np.sqrt((vorticity**2).mean(axis=(1, 2, 3)))
        for number, axis in enumerate("xyz"):
            assert rows[f"vorticity_rms_{axis}"][-1] == pytest.approx(rms[number], rel=1e-3)
        own = table(out / "h_mean.csv")
        np.testing.assert_allclose(own["time"], [0, 0.1, 0.2], rtol=1e-12)
        assert own["h_mean"][-1] == pytest.approx(helicity.mean(), rel=2e-2)
        spectra = zarr.open_group(folder / "spectra.zarr", mode="r")
        assert spectra["velocity_vorticity_cospectrum"][-1].sum() == pytest.approx(
            rows["helicity"][-1], rel=1e-10
        )
        from PIL import Image

        with Image.open(out / "vorticity_magnitude.gif") as movie:
            assert movie.n_frames == 5
            for frame in range(movie.n_frames):
                movie.seek(frame)
                movie.load()

    on_first_rank(comm, check)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:average")
def test_averages_are_those_of_whole_fields(sim, shared_folder):
    index = REGIONS["box"][1]
    inside = sim.average("velocity", every=0.05, batch=0.1, **REGIONS["box"][0])
    profiles = {axis: sim.average("velocity", every=0.05, profile=axis) for axis in "xyz"}
    values = []
    sim.every(0.05, lambda one: values.append(whole(one, "velocity")))
    sim.run(until=0.2)
    weights = [0.5, *np.ones(len(values) - 2), 0.5]  # the trapezoidal rule
    mean, square = (np.average([one**n for one in values], axis=0, weights=weights) for n in (1, 2))
    inside.write(shared_folder / "inside.zarr")
    for axis, one in profiles.items():
        one.write(shared_folder / f"{axis}.zarr")

    def check():
        group = zarr.open_group(shared_folder / "inside.zarr", mode="r")
        for component, axis in enumerate("xyz"):
            found = group[f"velocity_mean_{axis}"][0]
            np.testing.assert_allclose(found, mean[component][index], atol=1e-14)
        for number, axis in enumerate("zyx"):
            remaining_axes = tuple(one for one in range(3) if one != number)
            group = zarr.open_group(shared_folder / f"{axis}.zarr", mode="r")
            line = mean[0].mean(axis=remaining_axes)
            np.testing.assert_allclose(group["velocity_mean_x"][0], line, atol=1e-14)
            scatter = np.sqrt(square[0].mean(axis=remaining_axes) - line**2)
            np.testing.assert_allclose(group["velocity_fluctuation_x"][0], scatter, atol=1e-12)

    on_first_rank(sim.comm, check)


def test_other_families_write_their_fields(comm, device, shared_folder):
    tracer = Advection(points=(10, 12, 14), courant=0.5, comm=comm, device=device)
    porous = PorousFlow(
        {"sample": "spheres", "shape": [10, 10, 10], "solid_fraction": 0.3},
        force=1e-4,
        comm=comm,
        device=device,
    )
    porous.step(20)
    tracer.output("tracer", file=shared_folder / "tracer", stride=2, precision="float16")
    porous.output(["velocity", "pore"], file=shared_folder / "flow.vti")
    expected = tracer.fields["tracer"].gather()[::2, ::2, ::2]
    velocity, pore = (porous.fields[name].gather() for name in ("velocity", "pore"))

    def check():
        stored = zarr.open_group(shared_folder / "tracer.zarr", mode="r")["tracer"]
        assert stored.dtype == np.float16
        np.testing.assert_array_equal(stored[0], expected.astype(np.float16))
        head, arrays = read_image_data(shared_folder / "flow" / "flow_000000.vti")
        assert head["cells"]
        np.testing.assert_array_equal(np.moveaxis(arrays["velocity"], -1, 0), velocity)
        np.testing.assert_array_equal(arrays["pore"][..., 0], pore)

    on_first_rank(comm, check)
    assert np.abs(velocity).max() > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"of": "vortcity"}, "has the unknown name 'vortcity'; did you mean 'vorticity'"),
        ({"of": "velocity", "plane": ("z", 9)}, "output.plane: position 9 along z is outside"),
        ({"of": "velocity", "plane": ("w", 1)}, "output.plane.axis: 'w' is not accepted"),
        ({"of": "velocity", "points": [(1, 2)]}, "output.points: accepted: a list of places"),
        ({"of": "velocity", "file": "nowhere/a.zarr"}, "there is no folder 'nowhere'"),
        ({"of": "velocity", "box": {"x": (0.1, 0.2)}}, "output.box.x: there is no point"),
    ],
)
def test_what_is_not_accepted_is_refused_in_a_line(sim, tmp_path, options, message):
    with refused() as caught:
        sim.output(**{"file": tmp_path / "a.zarr", **options})
    assert message in str(caught.value)
    sim.step()


def test_what_somebody_else_has_written_is_not_replaced(sim, shared_folder):
    def keep():
        (shared_folder / "mine").mkdir()
        (shared_folder / "mine" / "notes.txt").write_text("mine")
        (shared_folder / "mine.zarr").mkdir()
        (shared_folder / "mine.zarr" / "notes.txt").write_text("mine")

    on_first_rank(sim.comm, keep)
    for name in ("mine.h5", "mine.zarr"):
        with pytest.raises(InputError, match="is there"):
            sim.output("velocity", file=shared_folder / name)
    sim.output("velocity", file=shared_folder / "own.h5")
    sim.output("velocity", file=shared_folder / "own.h5")


def test_names_of_magnetic_flow_agree_with_diagnostics(comm, device):
    options = {"points": 16, "viscosity": 0.1, "resistivity": 0.1, "initial": "orszag-tang-3d"}
    case = {"output": {"cospectra": [["velocity", "magnetic"]]}}
    flow = Flow("mhd", step=0.01, comm=comm, device=device, **options, **case)
    assert flow.time == 0

    def reduced(name, how):
        return flow.solver.point_values(name, "test").reduce(how)

    cross = reduced("cross_helicity", "mean")[0]
    assert abs(cross) > 0.1
    assert flow.spectra["velocity_magnetic_cospectrum"][1].sum() == pytest.approx(cross)
    current = reduced("current_density", "rms")
    assert (current**2).sum() / 2 == pytest.approx(flow.diagnostics["magnetic_enstrophy"])


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:average")
def test_files_without_a_directory_are_in_the_outputs_of_each_run(sim, shared_folder, monkeypatch):
    monkeypatch.chdir(shared_folder)
    sim.output("velocity_x", every=0.05, plane=("z", 0.0), file="a.zarr")
    sim.output("velocity_x", every=0.05, plane=("z", 0.0), file=shared_folder / "away.zarr")
    sim.movie("velocity_x", every=0.05, plane=("z", 0.0), file="b.gif")
    sim.show("velocity_x", 0.05, file="c.png")
    average = sim.average("velocity_x", every=0.05, profile="z")
    sim.run(until=0.05)
    sim.run(until=0.15, output="first", overwrite=True)
    average.write("mean.zarr")
    sim.output("velocity_y", plane=("z", 0.0), file="now.zarr")
    sim.run(until=0.2, output="first")
    sim.run(until=0.25, output="second")
    sim.run(until=0.3, output="second", overwrite=True)

    def check():
        names = {"a.zarr", "b.gif", "c.png"}
        assert names | {"away.zarr"} <= {one.name for one in shared_folder.iterdir()}
        assert not (shared_folder / "now.zarr").exists()
        first, second = (shared_folder / one / "outputs" for one in ("first", "second"))
        # No time is written twice.
        assert {one.name for one in first.iterdir()} == names | {"mean.zarr", "now.zarr"}
        assert {one.name for one in second.iterdir()} == names
        for folder, begin, end in (
            (shared_folder, 0, 0.05),
            (first, 0.1, 0.2),
            (second, 0.3, 0.3),
        ):
            times = zarr.open_group(folder / "a.zarr", mode="r")["time"][:]
            np.testing.assert_allclose(times, np.arange(begin, end + 0.01, 0.05), atol=1e-9)
        times = zarr.open_group(shared_folder / "away.zarr", mode="r")["time"][:]
        np.testing.assert_allclose(times, 0.05 * np.arange(7), atol=1e-9)
        written = json.loads((shared_folder / "first" / ".slipstream.json").read_text())["written"]
        assert "outputs" in written

    on_first_rank(sim.comm, check)
    # The folder is a run's, as any other.
    with pytest.raises(InputError, match="exists and is not empty"):
        sim.run(until=0.35, output="first")


@pytest.mark.slow
def test_files_of_the_case_are_not_replaced(comm, device, shared_folder, monkeypatch):
    monkeypatch.chdir(shared_folder)
    fields = [{"of": "velocity_x", "plane": {"axis": "z", "position": 0.0}, "file": "mine.zarr"}]
    options = {"output": {"fields": [one | {"interval": 0.1} for one in fields]}}
    sim = Turbulence(points=8, viscosity=0.1, max_step=0.05, comm=comm, device=device, **options)
    sim.run(until=0.1, output="run")
    with pytest.raises(InputError, match=r"file 'mine.h5': the case writes a file of this name"):
        sim.output("velocity", file="mine.h5")
