"""Runs of the advection family, from the command line to the files."""

import numpy as np
import pytest
import xarray

from flows import diagnostics
from launched_runs import SPECTRAL, enter, run
from refusals import status_of
from slipstream import Advection
from slipstream.case import parse_case
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError
from slipstream.files import open_checkpoint

CASE = """
solver = "advection"
title = "test"
[grid]
points = [20, 16, 24]
[flow]
courant = [0.5, -0.4, 0.6]
[time]
end = 1
[run]
device = "cpu"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    return enter(tmp_path, monkeypatch, case=CASE, flow=SPECTRAL)


def state(folder):
    return open_checkpoint(folder).read("tracer")


@pytest.mark.slow
def test_run_writes_what_was_asked_for_and_says_what_it_does(folder, capsys):
    assert run("run.timeline=true", "output.fields_interval=0.5") == 0
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
        "error.png",
        "tracer.png",
        "timeline.png",
        "timeline.json",
    }
    text = capsys.readouterr().out
    for part in ("20 x 16 x 24", "0.5, -0.4, 0.6", "single", "float64", "GiB", "40 steps", "100 %"):
        assert part in text
    fields = xarray.open_zarr(folder / "out" / "fields.zarr")
    assert fields.tracer.dims == ("time", "z", "y", "x")
    assert fields.tracer.shape == (3, 24, 16, 20)
    np.testing.assert_allclose(fields.x, np.arange(20) / 20)


def test_diagnostics_show_what_is_conserved_and_what_is_not(folder):
    assert run("output.pictures=false") == 0
    series = diagnostics(folder / "out")
    np.testing.assert_allclose(series["mass"], series["mass"][0], rtol=1e-13)
    assert series["mass"][0] == pytest.approx((0.1 * np.sqrt(2 * np.pi)) ** 3, rel=1e-5)
    assert series["energy"][-1] < series["energy"][0]
    assert series["error_max"][0] == series["error_rms"][0] == 0
    assert 0 < series["error_rms"][-1] < series["error_max"][-1] < 1
    assert series["step"][-1] == 40


def test_courant_numbers_of_one_are_exact(folder):
    settings = ("grid.points=16", "flow.courant=[1, -1, 1]", "output.pictures=false")
    assert run(*settings) == 0
    series = diagnostics(folder / "out")
    assert series["step"][-1] == 16
    assert series["time"][-1] == 1
    assert series["error_max"].max() < 1e-15


def test_run_ends_with_the_first_step_that_reaches_its_end(folder):
    assert run("flow.courant=0.7", "grid.points=16", "output.pictures=false") == 0
    series = diagnostics(folder / "out")
    assert series["step"][-1] == 23
    assert series["time"][-1] == pytest.approx(23 * 0.7 / 16, rel=1e-15)
    np.testing.assert_allclose(series["step_size"], 0.7 / 16)


@pytest.mark.slow
def test_steps_that_share_a_pass_show_in_no_output(folder):
    """Rows every third step, snapshots every fifth; the first segment ends within a pass."""
    settings = (
        "output.pictures=false",
        "output.report=false",
        "output.diagnostics_interval=0.075",
        "output.fields_interval=0.125",
    )
    assert run(*settings, "run.steps_per_pass=1", out="one") == 0
    several = "run.steps_per_pass=2"
    assert run(*settings, several, out="several") == 0
    assert run(*settings, several, "time.max_steps=7", out="first") == 0
    assert run(*settings, several, "initial.restart=first", out="second") == 0
    assert state("several").tobytes() == state("second").tobytes() == state("one").tobytes()
    plain, other = (diagnostics(folder / name) for name in ("one", "several"))
    for name, values in plain.items():
        np.testing.assert_array_equal(other[name], values)
    plain, other = (xarray.open_zarr(folder / name / "fields.zarr") for name in ("one", "several"))
    np.testing.assert_array_equal(other.tracer, plain.tracer)


def test_function_between_steps_may_read_on_one_rank_alone():
    """Steps that wait for a pass to be filled are taken before: all ranks must take them."""
    tracer = Advection(points=16, run={"steps_per_pass": 2})
    readings = []

    @tracer.every(steps=3)
    def note(_):
        readings.append((tracer.solver.step, tracer.solver.solver.due))

    tracer.run(steps=7)
    assert (tracer.solver.step, tracer.solver.solver.due) == (7, 0)
    assert readings == [(step, 0) for step in (0, 3, 6)]


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_run_that_goes_on_has_the_bits_of_one_that_was_never_stopped(folder, precision):
    settings = (f"numerics.precision={precision}", "output.pictures=false")
    assert run(*settings, out="whole") == 0
    assert run(*settings, "time.max_steps=13", out="first") == 0
    assert run(*settings, "initial.restart=first", out="second") == 0
    assert state("second").tobytes() == state("whole").tobytes()
    first, second, whole = (diagnostics(folder / name) for name in ("first", "second", "whole"))
    assert (first["step"][-1], second["step"][0], second["step"][-1]) == (13, 13, 40)
    for name, values in whole.items():
        assert second[name][-1] == values[-1]


def test_run_goes_on_in_another_precision(folder):
    assert run("time.end=0.5", "output.pictures=false", out="first") == 0
    settings = ("initial.restart=first", "numerics.precision=float32", "output.pictures=false")
    assert run(*settings, out="second") == 0
    assert state("second").dtype == np.float32
    series = diagnostics(folder / "second")
    assert np.ptp(series["mass"]) < 1e-6 * series["mass"][0]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["initial.restart=nowhere"], "nowhere: holds no checkpoint"),
        (["run.strategy=gpu"], "run.strategy: 'gpu' needs a GPU, but run.device is 'cpu'"),
        (["run.device=auto", "run.strategy=hybrid"], "run.strategy: 'hybrid' needs a GPU, and"),
        (["run.device=cuda", "run.strategy=mpi"], "run.strategy: 'mpi' needs no GPU"),
        (["run.grid=[1, 2, 1]"], "run.grid: [1, 2, 1] is for 2 ranks; accepted"),
        (["initial.width=0.05"], "initial.width: 0.05 is less than the spacing of points, 1/16"),
        (["grid.points=100000"], "grid.points: this grid needs"),
    ],
)
def test_what_does_not_suit_is_one_line_with_status_2(capsys, monkeypatch, settings, expected):
    monkeypatch.setattr("slipstream.advection.overlap_strategies.cuda_device_count", lambda: 0)
    assert run(*settings) == 2
    error = capsys.readouterr().err
    assert error.startswith("slipstream: error: ")
    assert expected in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("grid.points=16", "grid.points = [20, 16, 24], this case [16, 16, 16]"),
        ("flow.courant=1", "flow.courant = [0.5, -0.4, 0.6], this case [1.0, 1.0, 1.0]"),
        ("initial.width=0.2", "initial.width = 0.1, this case 0.2"),
        ("time.end=0.1", "time.end: must be beyond"),
    ],
)
def test_run_goes_on_only_from_its_own_problem(capsys, setting, expected):
    assert run("time.max_steps=5", "output.pictures=false", out="first") == 0
    assert run("initial.restart=first", setting, out="second") == 2
    assert expected in capsys.readouterr().err


@pytest.mark.slow
def test_families_do_not_go_on_from_each_other(capsys):
    assert run(out="flow", case="flow.toml") == 0
    assert run("initial.restart=flow") == 2
    assert "is of solver 'spectral', this case of 'advection'" in capsys.readouterr().err
    assert run("time.max_steps=1", "output.pictures=false") == 0
    assert run("initial.restart=out", out="more", case="flow.toml") == 2
    assert "is of solver 'advection', this case of 'spectral'" in capsys.readouterr().err


@pytest.mark.parametrize("strategy", ["single", "hybrid", "hybrid-overlap"])
@pytest.mark.parametrize("shell", [0, 1, 3, 100])
def test_memory_is_known_before_it_is_allocated(strategy, shell):
    from slipstream.advection.advection_simulation import AdvectionSimulation

    devices = {"cpu": HostDevice(threads=1), "gpu": HostDevice(tiled=True, threads=1)}
    if strategy == "single":
        del devices["gpu"]
    settings = ["grid.points=[50, 40, 30]", f"run.shell={shell}", f"run.strategy={strategy}"]
    simulation = AdvectionSimulation(parse_case(CASE, settings), None, devices)
    simulation._allocate()
    needs = dict(zip(devices, (need for _, need in simulation.memory()), strict=True))
    for name in devices:
        part = simulation.solver._points.regions.get(name)
        allocated = sum(array.base.nbytes for array in part.arrays) if part else 0
        output = 8 * simulation.case.points if name == "cpu" else 0
        # Each array has 64 bytes more, so that it can be aligned.
        assert allocated - 128 <= needs[name] <= 1.1 * allocated + 2 * output


def test_memory_that_does_not_suffice_is_named(monkeypatch):
    from slipstream.advection.advection_simulation import AdvectionSimulation

    simulation = AdvectionSimulation(parse_case(CASE), device="cpu")
    monkeypatch.setattr(simulation.devices["cpu"], "memory_free", lambda: 1000)
    with pytest.raises(InputError, match=r"grid\.points.* 9\.31e-07 GiB free"):
        simulation._allocate()


@pytest.mark.slow
def test_new_writes_a_case_of_the_family(folder, capsys):
    assert status_of("new", "mine", "--solver", "advection") == 0
    assert run("grid.points=10", "time.max_steps=1", "run.device=cpu", case="mine.toml") == 0
    assert status_of("new", "other", "--solver", "advective") == 2
    assert "--solver: 'advective' is not accepted" in capsys.readouterr().err
