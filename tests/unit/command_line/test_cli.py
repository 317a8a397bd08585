"""The command line: exit statuses, one line for what a person can cure, and files that stay."""

import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest
import xarray

from fake_simulation import CASE, FakeSimulation
from launched_runs import leave_launcher
from refusals import status_of
from slipstream import __main__, cli
from slipstream.case import parse_case
from slipstream.engine import stop_signals
from slipstream.engine.errors import InputError


@pytest.fixture(autouse=True)
def outside_any_launcher(monkeypatch):
    leave_launcher(monkeypatch)


@pytest.fixture
def simulation(monkeypatch):
    """Make the command line run a fake simulation; return it once it has been made."""
    made = {}

    def make(case, comm, device):
        made.update(case=case, comm=comm)
        fake = made.setdefault("simulation", FakeSimulation())
        fake.case = case
        return fake

    module = types.ModuleType("slipstream.spectral.spectral_simulation")
    module.SpectralSimulation = make
    monkeypatch.setitem(sys.modules, "slipstream.spectral.spectral_simulation", module)
    return made


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "case.toml").write_text(CASE)
    return tmp_path


def command(*arguments):
    return status_of(*arguments)


@pytest.mark.slow
def test_run_writes_everything_that_was_asked_for(folder, simulation, capsys):
    assert (
        command("run", "case.toml", "--device", "cpu", "--set", "output.fields_interval=0.5") == 0
    )
    out = folder / "runs" / "case"
    names = {path.name for path in out.iterdir()}
    assert names == {
        ".slipstream.json",
        "case.toml",
        "diagnostics.csv",
        "diagnostics.zarr",
        "steps.csv",
        "run.json",
        "run.log",
        "report.html",
        "spectra.zarr",
        "fields.zarr",
        "checkpoints",
        "energy.png",
        "spectrum.png",
        "vorticity.png",
        "summary.png",
    }
    assert simulation["case"].run.device == "cpu"
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
    (out / ".slipstream.json").write_text('{"written": ["diagnostics.csv"]}')
    assert command("run", "case.toml") == 2
    error = capsys.readouterr().err
    assert error.startswith("slipstream: error: output folder runs/case exists")
    assert "--overwrite" in error
    assert error.count("\n") == 1
    assert command("run", "case.toml", "--overwrite", "--set", "output.pictures=false") == 0
    assert (out / "notes.txt").read_text() == "mine"
    assert "old" not in (out / "diagnostics.csv").read_text()


def test_run_that_cannot_begin_keeps_the_earlier_output(folder, simulation, monkeypatch):
    (folder / "out").mkdir()
    (folder / "out" / "diagnostics.csv").write_text("old")
    (folder / "out" / ".slipstream.json").write_text('{"written": ["diagnostics.csv"]}')

    def allocate(self):
        raise InputError("not enough memory")

    monkeypatch.setattr(FakeSimulation, "_allocate", allocate)
    assert command("run", "case.toml", "--out", "out", "--overwrite") == 2
    assert (folder / "out" / "diagnostics.csv").read_text() == "old"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "absent.toml"], "no such file"),
        (["run", "case.toml", "--set", "grid.points=0"], "at least 1 point"),
        (["run", "case.toml", "--device", "gpu"], "--device: 'gpu' is not accepted"),
        (["run", "case.toml", "--out", "case.toml"], "is a file"),
        (["run", "case.toml", "--ranks", "0"], "--ranks must be at least 1"),
        (["run", "case.toml", "--ranks", "2", "--set", "grid.pionts=8"], "'points'"),
        (
            ["run", "case.toml", "--ranks", "100", "--set", "grid.points=16"],
            "--ranks 100: the grid has too few points; use at most 16",
        ),
        (
            ["run", "case.toml", "--set", "run.streaming={ tiles = 0 }"],
            "--set: run.streaming.tiles: must be at least 1",
        ),
        (
            ["run", "case.toml", "--set", "run.streaming.tiles=0"],
            "--set: run.streaming.tiles: must be at least 1",
        ),
        (["run", "case.toml", "--set", "grid.points.x=8"], "--set grid.points.x: 'points' is"),
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


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 1), (signal.SIGHUP, 1), (signal.SIGUSR1, 1)],
)
@pytest.mark.parametrize("moment", ["load_case", "allocate", "findings"])
def test_a_signal_ends_a_command_where_there_is_nothing_to_finish(
    folder, simulation, capsys, monkeypatch, number, status, moment
):
    def stop(*_arguments, **_options):
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # one request, from a terminal and from a launcher
        time.sleep(10)

    monkeypatch.setattr(stop_signals, "_last_at", -10.0)
    if moment == "load_case":
        monkeypatch.setattr(cli, "load_case", stop)
    elif moment == "allocate":
        monkeypatch.setattr(FakeSimulation, "_allocate", stop)
    else:
        monkeypatch.setattr(FakeSimulation, "findings", stop)
    before = [signal.getsignal(one) for one in stop_signals.SIGNALS]
    assert command("run", "case.toml", "--out", "runs/out") == status
    assert capsys.readouterr().err == "slipstream: interrupted\n"
    assert [signal.getsignal(one) for one in stop_signals.SIGNALS] == before
    assert (folder / "runs").exists() == (moment == "findings")


def test_ctrl_c_while_the_command_is_loaded_is_one_line(capsys, monkeypatch):
    def interrupt(_name):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)

    handlers = {one: signal.getsignal(one) for one in stop_signals.SIGNALS}
    module = types.ModuleType("slipstream.cli")
    module.__getattr__ = interrupt
    monkeypatch.setitem(sys.modules, "slipstream.cli", module)
    monkeypatch.setattr(stop_signals, "_last_at", -10.0)
    try:
        with pytest.raises(SystemExit) as caught:
            __main__.main()
    finally:
        for one, handler in handlers.items():
            signal.signal(one, handler)
    assert caught.value.code == 130
    assert capsys.readouterr().err == "slipstream: interrupted\n"


def test_modules_in_the_current_folder_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for found in ([str(tmp_path), "/lib"], ["/lib", str(tmp_path)]):
        monkeypatch.setattr(sys, "path", list(found))
        __main__._forget_current_folder()
        assert sys.path == ["/lib", str(tmp_path)][: len(found) - (found[0] != "/lib")]
    # Slipstream may itself be there.
    monkeypatch.chdir(Path(__main__.__file__).parents[1])
    monkeypatch.setattr(sys, "path", [str(Path.cwd())])
    __main__._forget_current_folder()
    assert sys.path


def test_new_writes_a_case_that_runs(folder, simulation, capsys):
    assert command("new", "fresh") == 0
    assert "slipstream run fresh.toml" in capsys.readouterr().out
    assert command("new", "fresh") == 2
    settings = ("--set", "time.end=0.5", "--set", "output.pictures=false")
    assert command("run", "fresh.toml", *settings) == 0


def test_info_shows_every_fact(capsys, monkeypatch):
    monkeypatch.setattr(
        "slipstream.runs.run_recorder.mpi_library", lambda: 'none: "slipstream[mpi]"'
    )
    assert command("info") == 0
    text = capsys.readouterr().out
    for part in (
        "Slipstream",
        "CPU",
        "GPU",
        "MPI",
        "C++ compiler",
        "cache folder",
        "[mpi]",
    ):
        assert part in text


@pytest.mark.slow
def test_module_can_be_run():
    answer = subprocess.run(
        [sys.executable, "-m", "slipstream", "--help"], capture_output=True, text=True, check=True
    )
    assert "run" in answer.stdout


def test_explain_tells_what_a_case_costs(folder, capsys):
    settings = ("--set", "scalars=[{}]", "--set", "time.integrator=rk3")
    assert command("explain", "case.toml", *settings) == 0
    text = " ".join(capsys.readouterr().out.split())  # lines break where the console is narrow
    # Three velocities and a scalar there, five products of velocities and three of both back.
    assert "hd: 12 real transforms per substage" in text
    assert "rk3: 3 substages of 12 real transforms" in text
    for name in ("velocity_x", "scalar", "T7", "exp(-(k^2*viscosity) t)", "bytes per point"):
        assert name in text


def test_explain_tells_of_a_model_without_a_case(folder, capsys):
    assert command("explain", "--model", "mhd") == 0
    text = capsys.readouterr().out
    assert "mhd: 14 real transforms per substage" in text
    for name in ("viscosity (number)", "mean_field (number, 0.0)", "T7"):
        assert name in " ".join(text.split())
    (folder / "own.py").write_text(
        "from slipstream.equations import *\ndef reaction(rate):\n    a = Scalar('a')\n"
        "    return Model({a: laplacian(a) - rate * a**2})\n"
    )
    assert command("explain", "--model", "own.py:reaction") == 0
    text = capsys.readouterr().out
    assert "own.py:reaction: 2 real transforms per substage" in text
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
