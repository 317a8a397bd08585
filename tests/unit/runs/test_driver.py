"""The driver of runs: when they end, what they say, and what stays written whatever ends them."""

import importlib
import io
import math
import os
import re
import signal

import numpy as np
import pytest
import xarray
from rich.console import Console

from fake_simulation import CASE, FakeSimulation
from slipstream.case import parse_case
from slipstream.engine import processes as stop_requests
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.fields import Fact
from slipstream.engine.stop_signals import SIGNALS
from slipstream.files import open_checkpoint, write_checkpoint
from slipstream.runs.run_case import RunOptions, run_case


@pytest.fixture(autouse=True, params=[False, True], ids=["at once", "by a thread"])
def writing(request, monkeypatch):
    """Runs write immediately, or, as on GPUs, while they continue."""
    monkeypatch.setattr(FakeSimulation, "output_is_copied", request.param)


def run(simulation, folder, *overrides, console=None, pictures="false"):
    simulation.case = parse_case(CASE, (f"output.pictures={pictures}", *overrides))
    run_case(simulation, folder, console or Console(quiet=True))


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
    fake, console = FakeSimulation(start=(100, 0.0)), Console(file=io.StringIO())
    run(fake, tmp_path, "time.max_steps=3", console=console)
    assert open_checkpoint(tmp_path).step == 103
    assert "stopped after 3 steps: time.max_steps" in console.file.getvalue()


def test_run_ends_when_the_simulation_is_finished(tmp_path):
    def settle(simulation):
        simulation.finished = "converged" if simulation.step == 4 else ""

    simulation, console = FakeSimulation(on_step=settle), Console(file=io.StringIO(), width=100)
    run(simulation, tmp_path / "out", console=console)
    assert simulation.step == 4
    assert "stopped after 4 steps: converged\n" in console.file.getvalue()
    assert open_checkpoint(tmp_path / "out").step == 4


def test_what_a_family_has_to_say_is_told(tmp_path):
    class Talkative(FakeSimulation):
        def facts(self):
            return {**super().facts(), "step": Fact("in two halves")}

        def warnings(self):
            return ["half way"] if self.step == 5 else []

        def findings(self, seconds, steps):
            assert seconds >= 0
            return {"answer": Fact(f"after {steps} steps", remark="exact")}

        def write_at_end(self, folder):
            (folder / "extra.txt").write_text(f"{self.step}")
            return [folder / "extra.txt"]

    console = Console(file=io.StringIO(), width=100)
    run(Talkative(), tmp_path / "out", console=console)
    text = console.file.getvalue()
    assert text.count("in two halves\n") == 1
    assert text.count("warning: half way\n") == 1
    assert re.search(r"answer +after 10 steps +exact", text)
    assert "extra.txt" in text
    assert (tmp_path / "out" / "extra.txt").read_text() == "10"


def test_run_that_reaches_its_end_was_not_stopped(tmp_path):
    console = Console(file=io.StringIO())
    run(FakeSimulation(), tmp_path, "time.max_steps=10", console=console)
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


@pytest.mark.slow
def test_checkpoint_and_pictures_can_be_switched_off(tmp_path):
    run(FakeSimulation(), tmp_path / "with", pictures="true")
    assert (tmp_path / "with" / "checkpoints").exists()
    assert list((tmp_path / "with").glob("*.png"))
    run(FakeSimulation(), tmp_path / "without", "output.checkpoint=false", pictures="false")
    assert not (tmp_path / "without" / "checkpoints").exists()
    assert not list((tmp_path / "without").glob("*.png"))


def test_blow_up_names_step_and_time_and_keeps_what_was_written(tmp_path):
    with pytest.raises(RunError, match=r"step 5, t = 0\.5"):
        run(FakeSimulation(blow_up_at=0.45), tmp_path)
    assert xarray.open_zarr(tmp_path / "diagnostics.zarr").sizes["time"] == 5
    assert "nan" not in (tmp_path / "diagnostics.csv").read_text()
    assert xarray.open_zarr(tmp_path / "spectra.zarr").sizes["time"] == 5


@pytest.mark.parametrize("number", SIGNALS)
def test_signals_finish_the_step_and_write(tmp_path, monkeypatch, number):
    # However late the second one comes.
    monkeypatch.setattr(stop_requests, "SECONDS_OF_ONE_REQUEST", math.inf)

    def interrupt(simulation):
        if simulation.step == 3:
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    with pytest.raises(RunError, match="interrupted at step 3") as caught:
        run(FakeSimulation(on_step=interrupt), tmp_path)
    assert str(caught.value).endswith(f"continue with slipstream resume {tmp_path}")
    assert caught.value.exit_status == 75
    assert open_checkpoint(tmp_path).step == 3
    assert xarray.open_zarr(tmp_path / "fields.zarr")["time"].values[-1] == pytest.approx(0.3)
    assert signal.getsignal(number) == before


def test_a_hang_up_that_is_to_be_ignored_is(tmp_path):
    def hang_up(simulation):
        if simulation.step == 3:
            os.kill(os.getpid(), signal.SIGHUP)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        run(FakeSimulation(on_step=hang_up), tmp_path)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert open_checkpoint(tmp_path).step == 10


def test_run_beyond_its_end_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"time\.end"):
        run(FakeSimulation(start=(20, 2.0)), tmp_path)


@pytest.mark.slow
def test_what_draws_is_started_for_runs_that_are_prepared_only(tmp_path, monkeypatch):
    module, prepared = importlib.import_module("slipstream.runs.run_case"), []

    class Started(module.PictureProcess):
        def __init__(self):
            super().__init__()
            prepared.append(fake.is_prepared)

    monkeypatch.setattr(module, "PictureProcess", Started)
    fake = FakeSimulation(start=(20, 2.0))
    with pytest.raises(InputError, match=r"time\.end"):
        run(fake, tmp_path, pictures="true")
    assert prepared == []
    fake = FakeSimulation()
    run(fake, tmp_path, pictures="true")
    assert prepared == [True]


@pytest.mark.slow
def test_a_thread_writes_what_is_else_written_at_once(tmp_path, monkeypatch):
    settings = ("output.fields_interval=0.2", "output.checkpoint_interval=0.3")
    contents = []
    for by_thread in (False, True):
        monkeypatch.setattr(FakeSimulation, "output_is_copied", by_thread)
        run(FakeSimulation(), folder := tmp_path / str(by_thread), *settings)
        contents.append(
            {
                str(path.relative_to(folder)): path.read_bytes()
                for path in folder.rglob("*")
                if path.is_file() and not path.name.startswith(("run.", "report.", "."))
            }
        )
    assert len(contents[0]) > 30
    assert contents[0] == contents[1]


def test_what_cannot_be_written_ends_the_run_and_the_states_before_it_stay(tmp_path, monkeypatch):
    written = []

    def fail_later(*arguments, **options):
        if len(written) == 2:
            raise RunError("the disk is full")
        written.append(options["step"])
        return write_checkpoint(*arguments, **options)

    monkeypatch.setattr("slipstream.runs.output_writer.write_checkpoint", fail_later)
    with pytest.raises(RunError, match="the disk is full"):
        run(FakeSimulation(), tmp_path, "output.checkpoint_interval=0.3")
    assert open_checkpoint(tmp_path).step == written[-1]
    assert "the disk is full" in (tmp_path / "run.log").read_text()


@pytest.mark.parametrize("level, has_details", [("debug", True), ("info", False)])
def test_the_log_has_what_each_output_took_where_details_are_asked_for(
    tmp_path, level, has_details
):
    simulation = FakeSimulation()
    simulation.case = parse_case(CASE, ("output.pictures=false", "time.max_steps=2"))
    run_case(simulation, tmp_path, Console(quiet=True), options=RunOptions(log_level=level))
    log = (tmp_path / "run.log").read_text()
    assert bool(re.search(r"debug +checkpoint of step 2 took ", log)) == has_details
