"""Every mistake that a person can make gives one line, and an exit status, on the real solver."""

import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import xarray

from flows import PATIENCE, RANDOM, diagnostics, environment, make_case, slipstream, wait_until
from refusals import status_of
from slipstream.engine.device import HostDevice
from slipstream.files import open_checkpoint
from slipstream.show.solver_texts import description
from slipstream.spectral.spectral_simulation import SpectralSimulation

TAYLOR_GREEN = RANDOM.replace('"random"\nseed = 7\npeak_wavenumber = 3.0', '"taylor-green"')


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "case.toml").write_text(RANDOM)
    (tmp_path / "vortex.toml").write_text(TAYLOR_GREEN)
    return tmp_path


@pytest.fixture
def no_allocation(monkeypatch):
    """Make every allocation of the device a defect."""

    def refuse(self, shape, dtype):
        raise AssertionError(f"allocated {shape}")

    monkeypatch.setattr(HostDevice, "empty", refuse)
    monkeypatch.setattr(HostDevice, "pinned", refuse)


def fail(capsys, *settings, case="case.toml", arguments=()):
    """Run a case in this process; return its exit status and its line on standard error."""
    overrides = [argument for setting in settings for argument in ("--set", setting)]
    status = status_of("run", case, "--device", "cpu", "--out", "out", *overrides, *arguments)
    errors = capsys.readouterr().err
    assert errors.startswith("slipstream: error: ")
    assert errors.count("\n") == 1, errors
    return status, errors.removeprefix("slipstream: error: ").rstrip("\n")


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("grid.pionts=8", r"grid\.pionts.*did you mean 'points'"),
        ("gird.points=8", r"gird.*did you mean 'grid'"),
        ("equation.viscocity=1", r"equation\.viscocity.*did you mean 'viscosity'"),
        ("grid.points=0", r"grid\.points.*at least 1 point.*0"),
        ("grid.points=[8, 0, 8]", r"grid\.points.*at least 1 point.*0"),
        ("grid.length=0", r"grid\.length.*positive"),
        ("equation.viscosity=-0.1", r"equation\.viscosity.*at least 0.*-0\.1"),
        ("time.step=0", r"time\.step.*greater than 0"),
        ("initial.restart=nowhere", r"initial\.restart: nowhere: holds no checkpoint; expected"),
        ("solver=mhd", r"^--set: solver: 'mhd' is not accepted; accepted: spectral"),
        ("grid.points=2", r"grid\.points.*too coarse.*initial\.peak_wavenumber 3"),
        # On the way there numbers overflow, of which NumPy would warn in another line.
        ("initial.peak_wavenumber=1e-300", r"grid\.points.*too coarse.*1e-300"),
    ],
)
def test_wrong_settings_are_named_with_what_is_accepted(folder, capsys, setting, expected):
    status, message = fail(capsys, setting)
    assert status == 2
    assert re.search(expected, message), message
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["initial.wavenumber=6"], r"initial\.wavenumber: 6 is beyond the 5 waves .* 16 along z"),
        (["grid.points=[16, 1, 16]"], r"initial\.wavenumber: 1 is beyond the 0 waves .* along y"),
    ],
)
def test_flow_that_the_grid_cannot_hold_is_refused(folder, capsys, settings, expected):
    status, message = fail(capsys, *settings, case="vortex.toml")
    assert status == 2
    assert re.search(expected, message), message


def test_existing_output_folder_is_left_alone(folder, capsys):
    (folder / "out").mkdir()
    (folder / "out" / "diagnostics.csv").write_text("precious")
    status, message = fail(capsys)
    assert status == 2
    assert message.startswith("output folder out exists and is not empty")
    assert "--overwrite" in message
    assert (folder / "out" / "diagnostics.csv").read_text() == "precious"


@pytest.mark.parametrize("points", [100000, 2000000000])
def test_too_much_memory_is_refused_before_allocating(folder, capsys, no_allocation, points):
    status, message = fail(capsys, f"grid.points={points}")
    assert status == 2
    assert re.match(r"grid\.points: this grid needs \S+ GiB on .*, which has \S+ GiB free", message)
    # Two copies and a running total of 3 velocities alone, of (2/3)^3 / 2 modes per point.
    least = 9 * 16 * points**3 * (8 / 27) / 2 / 2**30
    assert float(re.search(r"needs (\S+) GiB", message)[1]) > 0.99 * least
    assert not (folder / "out").exists()
    # What helps no more is not advised.
    assert 'or numerics.precision = "float32"' in message
    status, message = fail(capsys, f"grid.points={points}", "numerics.precision=float32")
    assert status == 2 and "needs" in message and "float32" not in message


@pytest.mark.slow
def test_memory_is_told_as_it_is_allocated(monkeypatch):
    """A run takes the memory it announces, within a tenth: all large arrays, and the output's."""
    allocated = []
    original = HostDevice.empty

    def count(self, shape, dtype):
        array = original(self, shape, dtype)
        allocated.append(array.nbytes)
        return array

    monkeypatch.setattr(HostDevice, "empty", count)
    simulation = SpectralSimulation(make_case("grid.points=64"), None, HostDevice())
    simulation._allocate()
    announced = float(description(simulation)["memory per device"].split()[0]) * 2**30
    output = 3 * 8 * 64**3
    assert sum(allocated) + output == pytest.approx(announced, rel=0.1)


@pytest.mark.parametrize("case", ["case.toml", "vortex.toml"])
def test_blow_up_names_step_and_time_and_keeps_what_was_written(folder, capsys, case):
    settings = (
        "equation.viscosity=0",
        "time.step=10.0",
        "time.end=10000",
        "output.diagnostics_interval=10",
        "output.spectra_interval=10",
    )
    status, message = fail(capsys, *settings, case=case)
    assert status == 1
    actual = re.search(r"became (nan|inf) at step (\d+), t = (\S+): the flow has blown up", message)
    assert actual, message
    assert float(actual[3]) == pytest.approx(10 * int(actual[2]))
    rows = diagnostics("out")
    assert rows["step"].tolist() == list(range(len(rows["step"])))
    assert 1 <= len(rows["step"]) <= int(actual[2])
    assert np.isfinite(rows["energy"]).all()
    assert xarray.open_zarr("out/diagnostics.zarr")["energy"].size == len(rows["step"])
    assert xarray.open_zarr("out/spectra.zarr").sizes["time"] >= 1
    assert not (folder / "out" / "checkpoints").exists()


@pytest.mark.slow
def test_restart_in_another_box_is_refused(folder, capsys):
    short = ("--set", "time.end=0.02")
    assert not status_of("run", "case.toml", "--device", "cpu", "--out", "first", *short)
    capsys.readouterr()
    status, message = fail(capsys, "initial.restart=first", "grid.length=3.0")
    assert status == 2
    assert re.match(r"initial\.restart: first is of a box .*grid\.length", message), message
    status, message = fail(capsys, "initial.restart=first", "time.end=0.01")
    assert status == 2
    assert message.startswith("time.end: must be beyond t = 0.02")
    status, message = fail(capsys, "initial.restart=first", arguments=["--out", "first"])
    assert status == 2
    assert "initial.restart" in message


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_run_in_order(folder, number):
    command = [
        sys.executable,
        "-m",
        "slipstream",
        "run",
        "case.toml",
        "--device",
        "cpu",
        "--out",
        "out",
        "--set",
        "time.end=10000",
        "--set",
        "time.step=0.001",
        "--set",
        "output.diagnostics_interval=0.001",
    ]
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        series = folder / "out" / "diagnostics.csv"

        def has_rows():
            assert process.poll() is None, process.communicate()
            return series.exists() and series.read_text().count("\n") > 20

        wait_until(has_rows)
        process.send_signal(number)
        output, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 75, output + errors
    actual = re.fullmatch(r"slipstream: interrupted at step (\d+), t = (\S+);.*\n", errors)
    assert actual, errors
    assert "slipstream resume out\n" in errors
    checkpoint = open_checkpoint("out")
    assert checkpoint.step == int(actual[1])
    assert diagnostics("out")["step"][-1] == checkpoint.step
    assert "velocity_x" in xarray.open_zarr("out/fields.zarr")


@pytest.mark.slow
def test_status_reaches_the_shell(folder):
    result = slipstream("run", "case.toml", "--set", "grid.pionts=3", cwd=folder)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("value", ["[1]", "[[1, 2]]", "{ a = 1 }"])
def test_name_that_is_no_text_is_refused(folder, capsys, value):
    status, message = fail(capsys, f"initial.flow={value}")
    assert status == 2
    assert "initial.flow" in message
