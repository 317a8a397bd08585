import io
import os
import re
import signal
import subprocess
import sys
import types

import numpy as np
import pytest
import xarray
from fake_simulation import FakeSimulation
from rich.console import Console

from slipstream import cli, launch
from slipstream.case import parse_case
from slipstream.errors import InputError, RunError
from slipstream.io import open_checkpoint, write_checkpoint
from slipstream.run import check_folder, prepare_folder, run_case

CASE = """
solver = "spectral"
title = "test"
[grid]
points = 8
[equation]
viscosity = 0.1
[initial]
flow = "taylor-green"
[time]
end = 1
step = 0.1
"""
LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_PROCID", "SLURM_STEP_ID")


@pytest.fixture(autouse=True)
def outside_any_launcher(monkeypatch):
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def simulation(monkeypatch):
    """Let the command line run a fake simulation; return it once it has been made."""
    made = {}

    def make_simulation(case, communicator, device_name):
        made.update(case=case, communicator=communicator, device=device_name)
        return made.setdefault("simulation", FakeSimulation())

    module = types.ModuleType("slipstream.spectral.simulation")
    module.make_simulation = make_simulation
    monkeypatch.setitem(sys.modules, "slipstream.spectral.simulation", module)
    return made


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "case.toml").write_text(CASE)
    return tmp_path


def command(*arguments):
    with pytest.raises(SystemExit) as caught:
        cli.main(list(arguments))
    return caught.value.code


def run(simulation, folder, *overrides):
    case = parse_case(CASE, overrides)
    run_case(case, simulation, folder, Console(quiet=True))


def test_run_writes_everything_that_was_asked_for(folder, simulation, capsys):
    assert (
        command("run", "case.toml", "--device", "cpu", "--set", "output.fields_interval=0.5") == 0
    )
    out = folder / "runs" / "case"
    names = {path.name for path in out.iterdir()}
    assert names == {
        "case.toml",
        "diagnostics.csv",
        "diagnostics.zarr",
        "spectra.zarr",
        "fields.zarr",
        "checkpoint.zarr",
        "energy.png",
        "spectrum.png",
        "vorticity.png",
        "summary.png",
    }
    assert simulation["device"] == "cpu"
    assert parse_case((out / "case.toml").read_text()) == simulation["case"]
    fields = xarray.open_zarr(out / "fields.zarr")
    np.testing.assert_allclose(fields["time"], [0.0, 0.5, 1.0])
    text = capsys.readouterr().out
    for part in ("4 x 6 x 8", "fixed step 0.1", "10 steps", "100 %", "fft", "summary.png"):
        assert part in text


def test_existing_output_is_kept_unless_told(folder, simulation, capsys):
    out = folder / "runs" / "case"
    out.mkdir(parents=True)
    (out / "notes.txt").write_text("mine")
    (out / "diagnostics.csv").write_text("old")
    assert command("run", "case.toml") == 2
    error = capsys.readouterr().err
    assert error.startswith("slipstream: error: output folder runs/case exists")
    assert "--overwrite" in error
    assert error.count("\n") == 1
    assert command("run", "case.toml", "--overwrite") == 0
    assert (out / "notes.txt").read_text() == "mine"
    assert "old" not in (out / "diagnostics.csv").read_text()


def test_run_that_cannot_begin_keeps_the_earlier_output(folder, simulation, monkeypatch):
    (folder / "out").mkdir()
    (folder / "out" / "diagnostics.csv").write_text("old")

    def allocate(self):
        raise InputError("not enough memory")

    monkeypatch.setattr(FakeSimulation, "allocate", allocate)
    assert command("run", "case.toml", "--out", "out", "--overwrite") == 2
    assert (folder / "out" / "diagnostics.csv").read_text() == "old"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "absent.toml"], "no such file"),
        (["run", "case.toml", "--set", "grid.points=0"], "at least 1 point"),
        (["run", "case.toml", "--device", "gpu"], "run.device: 'gpu' is not accepted"),
        (["run", "case.toml", "--out", "case.toml"], "is a file"),
        (["run", "case.toml", "--ranks", "0"], "--ranks must be at least 1"),
        (["run", "case.toml", "--ranks", "2", "--set", "grid.pionts=8"], "'points'"),
        (
            ["run", "case.toml", "--set", "run.streaming={ pencils = 0 }"],
            "--set: run.streaming.pencils: must be at least 1",
        ),
        (
            ["run", "case.toml", "--set", "run.streaming.pencils=0"],
            "--set: run.streaming.pencils: must be at least 1",
        ),
        (["run", "case.toml", "--set", "grid.points.x=8"], "--set grid.points.x: 'points' is"),
        (["bench", "fft", "--pencils", "0"], "--pencils"),
        (["bench", "dns", "--ni", "8"], "--ni"),
        (["rum"], "'rum'"),
    ],
)
def test_wrong_input_is_one_line_with_status_2(folder, simulation, capsys, arguments, expected):
    assert command(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("slipstream: error: ")
    assert expected in captured.err
    assert captured.err.count("\n") == 1


def test_failed_run_has_status_1_and_a_traceback_only_on_request(
    folder, simulation, capsys, monkeypatch
):
    simulation["simulation"] = FakeSimulation(blow_up_at=0.45)
    assert command("run", "case.toml") == 1
    error = capsys.readouterr().err
    assert "at step 5, t = 0.5" in error
    assert "Traceback" not in error
    monkeypatch.setenv("SLIPSTREAM_TRACEBACK", "1")
    simulation["simulation"] = FakeSimulation(blow_up_at=0.45)
    assert command("run", "case.toml", "--overwrite") == 1
    assert "Traceback" in capsys.readouterr().err


def test_defects_keep_their_traceback(folder, simulation, capsys, monkeypatch):
    monkeypatch.setattr(FakeSimulation, "advance", lambda self, step_size: 1 / 0)
    assert command("run", "case.toml") == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_full_disk_is_one_line(folder, simulation, capsys, monkeypatch):
    def fields(self):
        raise OSError(28, "No space left on device", "fields.zarr")

    monkeypatch.setattr(FakeSimulation, "fields", fields)
    assert command("run", "case.toml") == 1
    assert capsys.readouterr().err == "slipstream: error: No space left on device: fields.zarr\n"


def test_new_writes_a_case_that_runs(folder, simulation, capsys):
    assert command("new", "fresh") == 0
    assert "slipstream run fresh.toml" in capsys.readouterr().out
    assert command("new", "fresh") == 2
    assert command("run", "fresh.toml", "--set", "time.end=0.5") == 0


def test_info_shows_every_fact(capsys, monkeypatch):
    monkeypatch.setattr("slipstream.info._mpi_library", lambda: 'none: "slipstream[mpi]"')
    assert command("info") == 0
    text = capsys.readouterr().out
    for part in (
        "Slipstream",
        "CPU",
        "GPU",
        "MPI",
        "C++ compiler",
        "FFTW",
        "cache folder",
        "[mpi]",
    ):
        assert part in text


def test_module_can_be_run():
    answer = subprocess.run(
        [sys.executable, "-m", "slipstream", "--help"], capture_output=True, text=True, check=True
    )
    assert "run" in answer.stdout


def test_last_step_hits_the_end_exactly_and_others_are_not_altered(tmp_path):
    fake = FakeSimulation(step_size=0.3)
    run(fake, tmp_path)
    assert fake.time == 1.0
    assert fake.sizes[:3] == [0.3] * 3
    assert len(fake.sizes) == 4


def test_rounding_does_not_add_a_step(tmp_path):
    fake = FakeSimulation(step_size=0.01)
    run(fake, tmp_path)
    assert fake.step == 100
    assert fake.time == pytest.approx(1.0, abs=1e-15)


def test_infinite_step_of_a_fluid_at_rest_is_legitimate(tmp_path):
    fake = FakeSimulation(step_size=float("inf"))
    run(fake, tmp_path, "time.cfl=1")
    assert fake.sizes == [1.0]


def test_maximum_number_of_steps_ends_the_run_in_order(tmp_path):
    fake = FakeSimulation()
    run(fake, tmp_path, "time.max_steps=3")
    assert open_checkpoint(tmp_path).step == 3


def test_maximum_number_of_steps_counts_those_of_this_run(tmp_path):
    fake, console = FakeSimulation(), Console(file=io.StringIO())
    fake.step = 100
    run_case(parse_case(CASE, ["time.max_steps=3"]), fake, tmp_path, console)
    assert open_checkpoint(tmp_path).step == 103
    assert "stopped after 3 steps: time.max_steps" in console.file.getvalue()


def test_run_ends_when_the_simulation_is_finished(tmp_path):
    def settle(simulation):
        simulation.finished = "converged" if simulation.step == 4 else ""

    simulation, console = FakeSimulation(on_step=settle), Console(file=io.StringIO(), width=100)
    run_case(parse_case(CASE), simulation, tmp_path / "out", console)
    assert simulation.step == 4
    assert "stopped after 4 steps: converged\n" in console.file.getvalue()
    assert open_checkpoint(tmp_path / "out").step == 4


def test_what_a_family_has_to_say_is_told(tmp_path):
    class Talkative(FakeSimulation):
        def warnings(self):
            return ["half way"] if self.step == 5 else []

        def results(self, seconds, steps):
            assert seconds >= 0
            return {"answer": (f"after {steps} steps", "exact")}

        def write_at_end(self, folder):
            (folder / "extra.txt").write_text(f"{self.step}")
            return [folder / "extra.txt"]

    console = Console(file=io.StringIO(), width=100)
    run_case(parse_case(CASE), Talkative(), tmp_path / "out", console)
    text = console.file.getvalue()
    assert text.count("warning: half way\n") == 1
    assert re.search(r"answer +after 10 steps +exact", text)
    assert "extra.txt" in text
    assert (tmp_path / "out" / "extra.txt").read_text() == "10"


def test_run_that_reaches_its_end_was_not_stopped(tmp_path):
    console = Console(file=io.StringIO())
    run_case(parse_case(CASE, ["time.max_steps=10"]), FakeSimulation(), tmp_path, console)
    assert "stopped" not in console.file.getvalue()


def test_state_is_kept_where_the_fields_cannot_be_written(tmp_path, monkeypatch):
    def fields(self):
        raise OSError("disk full")

    monkeypatch.setattr(FakeSimulation, "fields", fields)
    with pytest.raises(OSError, match="disk full"):
        run(FakeSimulation(), tmp_path)
    assert open_checkpoint(tmp_path).step == 10


def test_series_has_rows_at_the_interval_and_at_both_ends(tmp_path):
    run(FakeSimulation(step_size=0.04), tmp_path, "output.diagnostics_interval=0.25")
    times = xarray.open_zarr(tmp_path / "diagnostics.zarr")["time"].values
    np.testing.assert_allclose(times, [0, 0.28, 0.52, 0.76, 1.0])


def test_checkpoint_and_pictures_can_be_switched_off(tmp_path):
    run(FakeSimulation(), tmp_path, "output.checkpoint=false", "output.pictures=false")
    assert not (tmp_path / "checkpoint.zarr").exists()
    assert not list(tmp_path.glob("*.png"))


def test_blow_up_names_step_and_time_and_keeps_what_was_written(tmp_path):
    with pytest.raises(RunError, match=r"step 5, t = 0\.5"):
        run(FakeSimulation(blow_up_at=0.45), tmp_path)
    assert xarray.open_zarr(tmp_path / "diagnostics.zarr").sizes["time"] == 5
    assert "nan" not in (tmp_path / "diagnostics.csv").read_text()
    assert xarray.open_zarr(tmp_path / "spectra.zarr").sizes["time"] == 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, launch.STOP_SIGNAL])
def test_signals_finish_the_step_and_write(tmp_path, number):
    def interrupt(simulation):
        if simulation.step == 3:
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    with pytest.raises(RunError, match="interrupted at step 3") as caught:
        run(FakeSimulation(on_step=interrupt), tmp_path)
    assert f"initial.restart={tmp_path}" in str(caught.value)
    assert open_checkpoint(tmp_path).step == 3
    assert xarray.open_zarr(tmp_path / "fields.zarr")["time"].values[-1] == pytest.approx(0.3)
    assert signal.getsignal(number) == before


def test_run_beyond_its_end_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"time\.end"):
        run(FakeSimulation(start=2.0), tmp_path)


def test_folder_that_a_restart_needs_is_not_overwritten(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match="initial.restart"):
        check_folder(tmp_path, overwrite=True, restart=str(tmp_path))
    with pytest.raises(InputError, match="initial.restart"):
        check_folder(tmp_path, overwrite=True, restart=str(tmp_path / "checkpoint.zarr"))
    assert check_folder(tmp_path / "new", overwrite=False) == tmp_path / "new"
    assert not (tmp_path / "new").exists()
    assert prepare_folder(tmp_path / "new" / "deep").is_dir()


@pytest.mark.parametrize("name", ["checkpoint.previous", "checkpoint.partial"])
def test_no_state_of_an_earlier_run_is_left(tmp_path, name):
    write_checkpoint(tmp_path, [], step=1, time=0.1, case="")
    (tmp_path / "checkpoint.zarr").rename(tmp_path / name)
    prepare_folder(tmp_path)
    with pytest.raises(InputError, match="no checkpoint"):
        open_checkpoint(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--n", "--ranks", "--repetitions"])
def test_counts_of_a_benchmark_are_positive(option, capsys):
    assert command("bench", "dns", option, "0") == 2
    assert f"Invalid value for '{option}'" in capsys.readouterr().err


def test_explain_tells_what_a_case_costs(folder, capsys):
    settings = ("--set", "equation.scalars=1", "--set", "time.integrator=rk3")
    assert command("explain", "case.toml", *settings) == 0
    text = capsys.readouterr().out
    # Three velocities and a scalar there, five products of velocities and three of both back.
    assert "hd: 12 real transforms a substage" in text
    assert "rk3: 3 substages of 12 real transforms" in text
    for name in ("velocity_x", "scalar", "T7", "exp(-(k^2*viscosity) t)", "bytes a point"):
        assert name in text


def test_explain_tells_of_a_model_without_a_case(folder, capsys):
    assert command("explain", "--model", "mhd") == 0
    text = capsys.readouterr().out
    assert "mhd: 14 real transforms a substage" in text
    for name in ("viscosity (number)", "mean_field (number, 0.0)", "T7"):
        assert name in " ".join(text.split())
    (folder / "own.py").write_text(
        "from slipstream.equations import *\n"
        "def reaction(rate):\n"
        "    a = Scalar('a')\n"
        "    return Model({a: laplacian(a) - rate * a**2})\n"
    )
    assert command("explain", "--model", "own.py:reaction") == 0
    text = capsys.readouterr().out
    assert "own.py:reaction: 2 real transforms a substage" in text
    assert "rate (number)" in text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "explain takes either a case or --model NAME"),
        (["case.toml", "--model", "hd"], "explain takes either a case or --model NAME"),
        (["--model", "euler"], "equation.model: 'euler' is unknown; accepted: hd,"),
        (["--model", "absent.py:flow"], "absent.py: no such file"),
        (["absent.toml"], "no such file"),
        (["wind.toml"], "wind.toml: explain is for cases of solver 'spectral'"),
        (["case.toml", "--set", "equation.viscosty=1"], "equation.viscosty: unknown key"),
    ],
)
def test_explain_refuses_what_it_cannot_explain(folder, capsys, arguments, expected):
    assert command("new", "wind", "--solver", "advection") == 0
    capsys.readouterr()
    assert command("explain", *arguments) == 2
    captured = capsys.readouterr()
    assert expected in captured.err
    assert captured.err.count("\n") == 1
