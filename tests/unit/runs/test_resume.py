"""A run that stops and continues in its folder: to the files of one that was never stopped."""

import contextlib
import csv
import io
import shutil
import weakref
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray
from rich.console import Console

import moments
from flows import diagnostics
from refusals import status_of
from slipstream.api.opened_run import open_run
from slipstream.case import load_case, parse_case
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError
from slipstream.files import open_checkpoint
from slipstream.files.output_folder import claim_folder
from slipstream.files.run_folder import read_run_record
from slipstream.runs import Interrupted, Simulation, make_simulation
from slipstream.runs.recomputing import verify_run
from slipstream.runs.resuming import resume_run
from slipstream.runs.run_case import AtItsEnd, run_case
from slipstream.show.stored_run import StoredRun
from slipstream.spectral import memory_placement
from slipstream.spectral.spectral_simulation import SpectralSimulation

FAMILIES = list(moments.CASES)
# Of 12 steps; a lattice does two at a time.
UNIT = {"spectral": 1, "advection": 1, "lattice": 2}
PLANE = 'plane = { axis = "z", position = 0 }'
CHOSEN = {
    "spectral": f"""
pdf_interval = 0.15
fields = [
  {{ of = "velocity_x", {PLANE}, interval = 0.1 }},
  {{ of = "velocity_y", {PLANE}, interval = 0.1, file = "each.h5" }},
  {{ of = "velocity_z", {PLANE}, times = [0.1, 0.25, 0.5], file = "some.vtk" }},
  {{ of = "velocity_z", line = {{ axis = "x", position = [0, 0] }}, file = "last" }},
]
scalars = [
  {{ of = "velocity_x", reduce = "rms", interval = 0.1 }},
  {{ of = "velocity_y", reduce = "max" }},
]
averages = [
  {{ of = ["velocity", "velocity_x * velocity_y"], interval = 0.05, since = 0.1, batch = 0.1 }},
  {{ of = "velocity", profile = "y", interval = 0.1, file = "profile.h5" }},
]
""",
    "advection": f"""
fields = [{{ of = "tracer", {PLANE}, interval = 0.1 }}]
averages = [{{ of = "tracer", interval = 0.05, batch = 0.1 }}]
""",
    "lattice": """
fields = [{ of = "velocity", interval = 4, stride = 2 }]
averages = [{ of = "velocity", interval = 2, batch = 6, plane = { axis = "x", position = 0 } }]
""",
}


PLAIN = ("output.fields=[]", "output.scalars=[]", "output.averages=[]")


def text(family):
    head, output = moments.CASES[family].split("[output]")
    return f"{head}[output]{output.rstrip()}\n{CHOSEN[family].strip()}\n"


def run(family, folder, *settings):
    case = parse_case(text(family), settings)
    run_case(make_simulation(case, None, HostDevice(threads=1)), folder, Console(quiet=True))


def resume(folder, *settings, console=None):
    resume_run(folder, settings, None, HostDevice(threads=1), console or Console(quiet=True))


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The folders of runs that were never stopped, by family."""
    folders = {}

    def of(family):
        if family not in folders:
            folders[family] = tmp_path_factory.mktemp("whole") / family
            run(family, folders[family])
        return folders[family]

    return of


def contents(folder):
    """Return the contents of a run's folder: rows as text, stores as data."""
    results = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".csv":
            results[name] = path.read_text()
        elif path.suffix == ".zarr" and "checkpoints" not in name:
            results[name] = xarray.open_zarr(path).load()
        elif path.suffix == ".h5":
            with h5py.File(path) as file:
                arrays = {array: values[...].tobytes() for array, values in file.items()}
                results[name] = arrays, {key: str(value) for key, value in file.attrs.items()}
        elif path.suffix in (".vti", ".pvd"):
            results[name] = path.read_bytes()
    state = open_checkpoint(folder)
    results["state"] = {name: state.read(name) for name in state.arrays}
    return results


def assert_same(folder, other, names=None):
    actual, theirs = (one if isinstance(one, dict) else contents(one) for one in (folder, other))
    assert actual.keys() == theirs.keys()
    for name in actual if names is None else names:
        if isinstance(actual[name], xarray.Dataset):
            assert actual[name].equals(theirs[name]), name
        elif name == "state":
            for array, values in actual[name].items():
                np.testing.assert_array_equal(values, theirs[name][array])
        elif name == "steps.csv":
            # Where a segment ends, there is a row more.
            ours, other = (
                {row["step"]: row for row in csv.DictReader(io.StringIO(rows_of(one[name])))}
                for one in (actual, theirs)
            )
            shared = ours.keys() & other.keys()
            assert {min(ours, key=int), max(ours, key=int)} <= shared
            assert {step: ours[step] for step in shared} == {step: other[step] for step in shared}
        else:
            assert actual[name] == theirs[name], name


def rows_of(text):
    return "".join(line for line in text.splitlines(keepends=True) if line[0] != "#")


def lose_last_state(folder):
    """Leave of a run what a kill would leave before its last state, and after the rows until it."""
    states = sorted((folder / "checkpoints").glob("*.zarr"))
    shutil.rmtree(states[-1])


@pytest.mark.samples(1)
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_in_segments_has_the_files_of_one(tmp_path, whole, family):
    unit, folder = UNIT[family], tmp_path / "run"
    run(family, folder, f"time.max_steps={3 * unit}")
    # Once without a step that anything is due at, and once killed after its last state.
    for steps in (5, 9):
        resume(folder, f"time.max_steps={steps * unit}")
    shutil.copytree(folder, tmp_path / "kept")
    resume(folder, "time.max_steps=1000")
    assert_same(folder, whole(family))
    segments = read_run_record(folder).segments
    ends = [(one.ended_by, one.from_step // unit, one.to_step // unit) for one in segments]
    assert ends == [
        ("max_steps", 0, 3),
        ("max_steps", 3, 5),
        ("max_steps", 5, 9),
        ("end", 9, 12),
    ]
    with pytest.raises(AtItsEnd, match="has ended .* --set time.end="):
        resume(folder)
    # An end that has passed is no end to advise twice of.
    if family != "lattice":
        with pytest.raises(AtItsEnd, match="nothing is changed; continue .* --set time.end=1.2$"):
            resume(folder, "time.end=0.1")
    lose_last_state(tmp_path / "kept")
    resume(tmp_path / "kept", "time.max_steps=1000")
    assert_same(tmp_path / "kept", whole(family))


@pytest.mark.slow
def test_a_change_of_a_run_at_its_end_says_how_it_comes_into_force(tmp_path, monkeypatch, capsys):
    """Of a steady flow at its last step: nothing would be done, and status 0 would hide that."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "case.toml").write_text(moments.CASES["lattice"])
    given = ("--set", "time.end=4000", "--set", "convergence.tolerance=0.1")
    assert status_of("run", "case.toml", "--device", "cpu", *given) == 0
    last = read_run_record("runs/case").segments[-1]
    assert last.ended_by == "finished" and last.to_step < 4000
    before = (tmp_path / "runs/case/case.toml").read_bytes()
    most = f"time.max_steps={last.to_step}"
    force = ("--device", "cpu", "--set", "flow.force=2e-6", "--set", most)
    capsys.readouterr()
    assert status_of("resume", "runs/case", *force) == 2
    said = capsys.readouterr().err
    assert said.startswith("slipstream: error: time.max_steps: runs/case has ended (time.max_st")
    assert "so flow.force would change nothing; use a larger one too: --set time.max_steps=" in said
    assert said.count("\n") == 1
    assert (tmp_path / "runs/case/case.toml").read_bytes() == before
    longer = said.rpartition("--set ")[2].strip()
    assert status_of("resume", "runs/case", *force, "--set", longer) == 0
    assert read_run_record("runs/case").segments[-1].to_step > last.to_step


@pytest.mark.slow
def test_what_comes_after_the_last_intact_state_is_done_again(tmp_path, whole):
    folder = tmp_path / "run"
    shutil.copytree(whole("spectral"), folder)
    (chunk,) = (folder / "checkpoints" / "000000012.zarr" / "velocity_x_hat" / "c").rglob("0/0/0")
    chunk.write_bytes(b"\1" + chunk.read_bytes()[1:])
    # It says that it is at the end, but cannot be read.
    with pytest.raises(AtItsEnd):
        resume(folder)
    (folder / "checkpoints" / "000000012.zarr" / "manifest.json").write_text("")
    (folder / "run.json").unlink()
    (folder / ".slipstream.json").unlink()
    resume(folder)
    assert_same(folder, whole("spectral"))
    assert (folder / "checkpoints" / "000000012.damaged").is_dir()
    (segment,) = read_run_record(folder).segments
    assert any("is damaged" in warning for warning in segment.warnings)
    assert segment.from_step == 8


def test_chosen_output_does_not_wait_for_diagnostics(tmp_path):
    """It has once been written only where something else was due, too."""
    seldom = [f"output.{kind}_interval=0.6" for kind in ("diagnostics", "checkpoint", "fields")]
    run("advection", tmp_path, *seldom)
    times = xarray.open_zarr(tmp_path / "outputs" / "tracer-plane.zarr").time.values
    np.testing.assert_allclose(times, [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])


@pytest.mark.slow
def test_times_of_output_are_those_of_the_whole_run(tmp_path):
    run("spectral", tmp_path, "time.max_steps=5", *PLAIN)
    settings = ("output.diagnostics_interval=0.2", "output.fields_interval=0.15")
    resume(tmp_path, *settings, "time.max_steps=100")
    assert diagnostics(tmp_path)["step"].tolist() == [0, 1, 2, 3, 4, 5, 8, 12]
    times = xarray.open_zarr(tmp_path / "fields.zarr").time.values
    np.testing.assert_allclose(times, [0, 0.1, 0.2, 0.3, 0.45, 0.6])


@pytest.mark.slow
def test_a_finer_grid_goes_on_beside_the_coarser_one(tmp_path):
    run("spectral", tmp_path, "time.max_steps=6", *PLAIN)
    console = recording()
    resume(
        tmp_path, "grid.points=16", "equation.viscosity=0.1", "time.max_steps=8", console=console
    )
    said = console.export_text()
    (changes,) = (line for line in said.splitlines() if line.startswith("changed: "))
    assert "grid.points: 12 -> 16, equation.viscosity: 0.05 -> 0.1" in changes
    resume(tmp_path, "time.max_steps=100")
    coarse = xarray.open_zarr(tmp_path / "fields.zarr")
    fine = xarray.open_zarr(tmp_path / "fields~2.zarr")
    assert (coarse.sizes["x"], fine.sizes["x"]) == (12, 16)
    np.testing.assert_allclose(coarse.time, [0, 0.1, 0.2, 0.3])
    np.testing.assert_allclose(fine.time, [0.4, 0.5, 0.6])
    # Readers show the last points, and find earlier snapshots by their times.
    opened, stored = open_run(tmp_path), StoredRun(tmp_path)
    np.testing.assert_allclose(opened.times, fine.time)
    assert opened.fields.sizes["x"] == 16 and opened.spectra.sizes["time"] == 6
    choice = stored.choice.planes[0]
    widths = [stored.plane(choice, stored.snapshot(at)).values.shape[1] for at in (0.3, 0.4, None)]
    assert widths == [12, 16, 16] and list(stored.last_snapshots) == [4, 5, 6]
    # The digest at which the points change is of the coarser grid.
    assert [one.deviates for one in verify_run(tmp_path, device="cpu")] == [None] * 2
    assert diagnostics(tmp_path)["step"].tolist() == list(range(13))
    # Another run in the folder replaces it all.
    run("advection", tmp_path, "time.max_steps=1")
    assert not (tmp_path / "fields~2.zarr").exists()


@pytest.mark.slow
def test_a_python_file_is_imported_only_if_it_is_named(tmp_path):
    code = """
from pathlib import Path
from slipstream.equations import Model, Scalar, laplacian
def decay():
    s = Scalar("s")
    return Model({s: 0.1 * laplacian(s)})
"""
    file, imported = tmp_path / "own.py", tmp_path / "imported"
    file.write_text(code)
    model = f"equation.model={file}:decay"
    folder = tmp_path / "out"
    initial = "initial={ flow = 'formula', fields = { s = 'cos(x)' } }"
    start = ["equation={ }", model, initial, "time.max_steps=2", *PLAIN]
    run("spectral", folder, *start)
    file.write_text(f"{code}\nPath({str(imported)!r}).touch()\n")
    with pytest.raises(InputError, match=r"Python code, '.*own.py:decay'.*--set equation.model="):
        resume(folder, "time.max_steps=4")
    assert not imported.exists() and open_checkpoint(folder).step == 2
    resume(folder, "time.max_steps=4", model)
    assert imported.exists() and open_checkpoint(folder).step == 4


@pytest.mark.slow
def test_a_field_is_added_and_dropped(tmp_path):
    run("spectral", tmp_path, "time.max_steps=4", *PLAIN)
    state = open_checkpoint(tmp_path)
    velocity = state.read("velocity_x_hat")
    settings = ["equation.model=boussinesq", "equation.diffusivity=0.1"]
    settings += ["equation.buoyancy_frequency=1", "time.max_steps=5"]
    console = recording()
    resume(tmp_path, *settings, console=console)
    assert "has no buoyancy: it begins with initial.flow = 'random'" in (console.export_text())
    with_field = open_checkpoint(tmp_path)
    assert "buoyancy_hat" in with_field.arrays
    assert with_field.step == 5
    np.testing.assert_allclose(with_field.read("velocity_x_hat"), velocity, atol=0.1)
    resume(
        tmp_path, "equation={ model = 'hd', viscosity = 0.05 }", "time.max_steps=7", console=console
    )
    assert "has buoyancy, which is dropped" in console.export_text()
    assert "buoyancy_hat" not in open_checkpoint(tmp_path).arrays
    fields = xarray.open_zarr(tmp_path / "fields.zarr")
    assert np.isnan(fields.buoyancy.values[0]).all()
    assert np.isfinite(fields.velocity_x.values).all()
    rows = diagnostics(tmp_path)
    assert rows["step"].tolist() == list(range(8))
    assert np.isnan(rows["buoyancy_energy"]).tolist() == [True] * 5 + [False] + [True] * 2


def recording():
    return Console(record=True, width=300, file=io.StringIO())


@pytest.mark.thorough
def test_a_job_that_resubmits_itself_gives_the_bits_of_one_run(tmp_path, whole, monkeypatch):
    """By a clock on which a step takes 19 of the 20 seconds that each job has."""
    now, folder, jobs = [0.0], tmp_path / "run", 0
    monkeypatch.setattr("slipstream.engine.processes.time.monotonic", lambda: now[0])
    advance = Simulation.advance

    def slowly(simulation, step_size):
        advance(simulation, step_size)
        now[0] += 19

    monkeypatch.setattr(Simulation, "advance", slowly)
    script = [lambda: run("advection", folder, "time.wall='20s'"), lambda: resume(folder)]
    while True:
        jobs += 1
        try:
            script[jobs > 1]()
            break
        except Interrupted as stop:
            assert stop.exit_status == 75
    assert jobs == 12
    assert_same(folder, whole("advection"))
    ends = [segment.ended_by for segment in read_run_record(folder).segments]
    assert ends == ["wall"] * (jobs - 1) + ["end"]


@pytest.mark.thorough
@pytest.mark.slow
def test_a_kill_while_a_run_goes_on_loses_nothing(tmp_path, whole, monkeypatch):
    """Copies of the files at any moment are the files that a kill leaves, and resume."""
    folder, copies = tmp_path / "run", []
    run("advection", folder, "time.max_steps=7")
    lose_last_state(folder)

    def look():
        # Closer in the beginning, where everything later than the state is omitted.
        if passed.count % (9 if passed.count < 40 else 80) == 0:
            copies.append(tmp_path / str(passed.count))
            shutil.copytree(folder, copies[-1])

    with monkeypatch.context() as patch:
        passed = moments.Moments(moments.ALL, look)
        passed.watch(patch.setattr)
        resume(folder, "time.max_steps=100")
    assert_same(folder, whole("advection"))
    assert len(copies) > 8
    for copy in copies:
        with contextlib.suppress(AtItsEnd):
            resume(copy, "time.max_steps=100")
        assert_same(copy, whole("advection"))


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_run_that_cannot_go_on_is_left_as_it_is(tmp_path, whole):
    folder = tmp_path / "run"
    shutil.copytree(whole("spectral"), folder)
    before = files(folder)
    wrong = {
        "equation.viscocity": ("equation.viscocity=1", "time.end=2"),
        "is outside": (
            "output.fields=[{ of = 'velocity_x', plane = { axis = 'z', position = 99 } }]",
            "time.end=2",
        ),
        "box of": ("grid.length=3.0", "time.end=2"),
        "do not hit": ("output.fields=[{ of = 'velocity_x', interval = 0.07 }]", "time.end=2"),
        "unknown key": ("solver=lattice",),
    }
    for said, settings in wrong.items():
        with pytest.raises(InputError, match=said) as caught:
            resume(folder, *settings)
        assert "initial.restart" not in str(caught.value)
        assert files(folder) == before
    with claim_folder(folder), pytest.raises(InputError, match="wait for it, or stop it$"):
        resume(folder, "time.end=2")
    for place, said in (("nowhere", "no such folder"), (".", "no state of a run")):
        with pytest.raises(InputError, match=said):
            resume(tmp_path / place)


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize("damaged", [None, b"", b"\0" * 300, b"solver = ", b"[" * 100_000])
def test_a_damaged_case_is_taken_from_the_state(tmp_path, whole, damaged):
    run("advection", tmp_path, "time.max_steps=3")
    (tmp_path / "case.toml").unlink()
    if damaged is not None:
        (tmp_path / "case.toml").write_bytes(damaged)
    resume(tmp_path, "time.max_steps=100")
    assert_same(tmp_path, whole("advection"))


def said_by(folder, *settings):
    """Return the output of a resumed run, without line breaks."""
    printed = io.StringIO()
    resume(folder, *settings, console=Console(file=printed, width=400))
    return " ".join(printed.getvalue().split())


def _half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flipped(path):
    content = bytearray(path.read_bytes())
    content[min(500, len(content) // 2)] ^= 1  # a chunk has room for later snapshots
    path.write_bytes(content)


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "place", "damage"),
    [
        ("fields.zarr", "zarr.json", lambda path: path.write_text("{}")),
        ("fields.zarr", "zarr.json", _half),
        ("fields.zarr", "time/c/0", lambda path: path.unlink()),
        ("fields.zarr", "tracer/c/1/0/0/0", _flipped),
        ("fields.zarr", "x/c/0", _flipped),
        ("diagnostics.csv", "", _half),
        ("diagnostics.csv", "", _flipped),
        ("outputs/tracer-plane.zarr", "tracer/c/0/0/0", _flipped),
        ("run.json", "", _flipped),
    ],
)
def test_output_that_is_not_as_it_was_written_is_set_aside(tmp_path, whole, name, place, damage):
    run("advection", tmp_path, "time.max_steps=7")
    damage(tmp_path / name / place)
    damaged = files(tmp_path / name) or {tmp_path / name: (tmp_path / name).read_bytes()}
    said = said_by(tmp_path, "time.max_steps=100")
    assert f"{tmp_path / name}: " in said
    assert f"it is kept as {name}.damaged, and begins again" in said
    # It is all there, under another name, and everything else is as it would have been.
    for path, content in damaged.items():
        kept = str(path).replace(str(tmp_path / name), f"{tmp_path / name}.damaged")
        assert Path(kept).read_bytes() == content
    actual, theirs = contents(tmp_path), contents(whole("advection"))
    for one in [one for one in actual if ".damaged" in one]:
        del actual[one]
    assert_same(actual, theirs, theirs.keys() - {name, name.replace(".csv", ".zarr")})
    if name.endswith(".zarr"):
        # A new one begins with the state, which here is not when anything would be due.
        times = [one for one in actual[name].time.values if one in theirs[name].time.values]
        assert 0 < len(times) < theirs[name].time.size
        both = [one[name].sel(time=times).drop_attrs() for one in (actual, theirs)]
        assert both[0].equals(both[1])
    # And it continues as ever.
    assert "damaged" not in said_by(tmp_path, "time.max_steps=100", "time.end=0.8")


@pytest.mark.slow
def test_a_state_of_another_run_is_not_gone_on_from_unasked(tmp_path, whole):
    run("spectral", tmp_path / "run", "time.max_steps=3", *PLAIN)
    run("spectral", tmp_path / "other", "time.max_steps=4", "equation.viscosity=0.02", *PLAIN)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    shutil.copytree(tmp_path / "other" / "checkpoints", tmp_path / "run" / "checkpoints")
    before = files(tmp_path / "run")
    for settings in ((), ("equation.viscosity=0.02",)):
        with pytest.raises(InputError, match=r"equation\.viscosity: 0\.02 -> 0\.05.*--from-state"):
            resume(tmp_path / "run", *settings)
    assert files(tmp_path / "run") == before
    quiet, device = Console(quiet=True), HostDevice(threads=1)
    settings = ["time.max_steps=100"]
    resume_run(tmp_path / "run", settings, None, device, quiet, from_state=True)
    assert "viscosity = 0.02" in (tmp_path / "run" / "case.toml").read_text()
    assert (tmp_path / "run" / "diagnostics.csv.damaged").exists()


@pytest.mark.slow
def test_a_case_that_was_changed_by_hand_is_gone_on_with_only_if_that_is_said(tmp_path):
    run("advection", tmp_path, "time.max_steps=3")
    path = tmp_path / "case.toml"
    path.write_text(path.read_text().replace("end = 0.6", "end = 0.3"))
    with pytest.raises(InputError, match=r"time\.end: 0\.6 -> 0\.3\).* --set time\.end=\.\.\. for"):
        resume(tmp_path)
    resume(tmp_path, "time.end=0.3", "time.max_steps=100")
    assert open_checkpoint(tmp_path).time == pytest.approx(0.3)


@pytest.mark.slow
def test_a_run_writes_where_its_folder_has_been_moved(tmp_path, whole, monkeypatch):
    moved = []

    def look():
        if passed.count == 100:
            (tmp_path / "run").rename(tmp_path / "moved")
            moved.append(passed.count)

    with monkeypatch.context() as patch:
        passed = moments.Moments(moments.ALL, look)
        passed.watch(patch.setattr)
        run("advection", tmp_path / "run")
    assert moved
    assert not (tmp_path / "run").exists()
    assert_same(tmp_path / "moved", whole("advection"))


@pytest.mark.slow
def test_a_run_goes_on_from_python(tmp_path, whole):
    run("advection", tmp_path, "time.max_steps=3")
    opened = open_run(tmp_path)
    with pytest.raises(InputError, match="equation"):
        opened.resume({"equation.viscosity": 1}, device="cpu")
    opened.resume({"time.max_steps": 100}, device="cpu", progress=False)
    assert_same(tmp_path, whole("advection"))
    with pytest.raises(AtItsEnd):
        opened.resume(device="cpu")


@pytest.mark.slow
def test_the_command_goes_on_or_begins(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "case.toml").write_text(moments.CASES["advection"])

    def command(*arguments):
        return status_of(*arguments), capsys.readouterr()

    again = ("run", "case.toml", "--resume", "--device", "cpu", "--set", "time.max_steps=3")
    assert command(*again)[0] == 0
    (tmp_path / "case.toml").write_text("changed")
    assert command("resume", "runs/case", "--set", "time.max_steps=5")[0] == 0
    (tmp_path / "case.toml").write_text(moments.CASES["advection"])
    assert command(*again[:-1], "time.end=0.3")[0] == 0
    status, said = command("resume", "runs/case")
    assert status == 0
    over = "runs/case has ended (t = 0.3, step 6), and nothing is changed"
    assert said.err.startswith(f"slipstream: {over}; continue with")
    assert command("resume", "nowhere")[0] == 2
    assert command(*again, "--overwrite")[0] == 2
    steps = [(one.from_step, one.to_step) for one in read_run_record("runs/case").segments]
    assert steps == [(0, 3), (3, 5), (5, 6)]
    assert command("run", "case.toml", "--overwrite", "--set", "time.max_steps=1")[0] == 0
    assert len(read_run_record("runs/case").segments) == 1


@pytest.mark.thorough
@pytest.mark.slow
def test_fields_that_are_written_are_let_go_before_the_next_are_made(tmp_path, monkeypatch):
    """Large fields are made one by one, or they would all take memory at the same time."""
    made, make = [], SpectralSimulation._points_of

    def watched(simulation, *arguments):
        assert not [one for one in made if one() is not None]
        points = make(simulation, *arguments)
        made.append(weakref.ref(points))
        return points

    monkeypatch.setattr(SpectralSimulation, "_points_of", watched)
    monkeypatch.setattr(memory_placement, "_TOGETHER", 1)
    settings = ["grid.points=8", "time.end=0.2", "time.step=0.1", "output.fields_interval=0.1"]
    case = load_case("orszag-tang", settings)
    device, quiet = HostDevice(threads=1), Console(quiet=True)
    run_case(make_simulation(case, None, device), tmp_path / "run", quiet)
    resume_run(tmp_path / "run", ["time.end=0.4"], None, device, quiet)
    # Components of velocity and magnetic field: at times 0 to 0.2, and to 0.4 after that.
    assert len(made) >= 5 * 5
