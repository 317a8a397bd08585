"""A few of the kinds of damage of ``damaged_folders.py``, and of the ways out of a run's folder."""

import errno
import os
from pathlib import Path

import pytest
from rich.console import Console

from flows import output_of
from refusals import status_of
from slipstream.api.opened_run import open_run
from slipstream.case import parse_case
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError, RunError
from slipstream.files import folder_seals
from slipstream.files.output_folder import check_folder
from slipstream.files.run_folder import RunFolder
from slipstream.runs import make_simulation
from slipstream.runs.resuming import resume_run
from slipstream.runs.run_case import run_case
from slipstream.show.plot_command import plot
from slipstream.show.report_command import write_report
from slipstream.show.run_status import RunWatcher
from slipstream.show.stored_run import StoredRun

CASE = """
solver = "advection"
[grid]
points = 10
[time]
end = 0.6
max_steps = 4
[output]
pictures = false
diagnostics_interval = 0.1
fields_interval = 0.1
"""
QUIET = Console(quiet=True)


@pytest.fixture
def run(tmp_path):
    case = parse_case(CASE)
    run_case(make_simulation(case, None, HostDevice(threads=1)), tmp_path / "run", QUIET)
    return tmp_path / "run"


WAYS_IN = {
    "resume": lambda run: resume_run(run, ["time.max_steps=9"], None, HostDevice(), QUIET),
    "report": StoredRun,
    "watch": lambda run: RunWatcher(run).look(),
    "open": open_run,
}


@pytest.mark.parametrize("enter", WAYS_IN.values(), ids=WAYS_IN)
@pytest.mark.parametrize(
    "name", ["run.log", "case.toml.partial", "fields.zarr", "checkpoints", "fields.zarr/zarr.json"]
)
def test_nothing_leads_out_of_a_folder(run, tmp_path, enter, name):
    outside = tmp_path / "outside"
    outside.write_text("of somebody else")
    path = run / name
    if path.exists():
        path.rename(tmp_path / "moved")
    path.symlink_to(outside)
    with pytest.raises(InputError, match=f"{name} is a symbolic link; accepted"):
        enter(run)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match=f"{name} is a FIFO; accepted"):
        enter(run)
    assert outside.read_text() == "of somebody else"


def test_what_belongs_to_others_is_not_written_to(run, monkeypatch):
    owner = os.stat(run).st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    RunFolder(run, for_writing=True)  # a folder of somebody else's who lets us write
    if owner == 0:
        os.chown(run / "case.toml", 12345, 12345)
        with pytest.raises(InputError, match=r"case\.toml belongs to another user"):
            RunFolder(run, for_writing=True)
        RunFolder(run)


def replace_in(path, old, new):
    path.write_text(path.read_text().replace(old, new, 1))


@pytest.mark.parametrize(
    ("name", "damage", "fault"),
    [
        ("diagnostics.csv", lambda path: replace_in(path, "1", "2"), "it is not as it was written"),
        ("diagnostics.csv", Path.unlink, "it is missing"),
        ("run.json", Path.unlink, "it is missing"),
        ("run.json", lambda path: path.write_text("{}"), "it has no segments"),
        (
            "case.toml",
            lambda path: replace_in(path, "solver", "rolver"),
            "no part of the run had this case",
        ),
    ],
)
def test_damage_is_named_by_who_reads_the_folder(run, capsys, name, damage, fault):
    StoredRun(run)
    assert not capsys.readouterr().err
    damage(run / name)
    said = f"{run / name}: {fault}"
    StoredRun(run)
    assert said in capsys.readouterr().err
    with pytest.warns(UserWarning, match=fault):
        open_run(run)
    assert said in RunWatcher(run).look().warnings


def test_damage_that_cannot_be_drawn_is_said_in_a_line(run, tmp_path):
    place = run / "fields.zarr" / "y" / "c" / "0"
    place.write_bytes(bytes(place.stat().st_size))
    for draw in (
        lambda: plot(run, tmp_path / "plots", field="tracer"),
        lambda: write_report([run], tmp_path / "page.html"),
    ):
        with pytest.raises(InputError, match=r"fields\.zarr: y is not as it was written; it can"):
            draw()
    chunk = run / "fields.zarr" / "tracer" / "c" / "1" / "0" / "0" / "0"
    chunk.write_bytes(b"{}")
    with pytest.warns(UserWarning, match="is not as it was"):
        opened = open_run(run)
    with pytest.raises(InputError, match="'tracer' cannot be read"):
        opened.fields["tracer"].load()


@pytest.mark.parametrize("change", [lambda old: old + b"{}", lambda old: old[:-1], lambda _: b""])
def test_a_chunk_of_several_snapshots_is_whole_or_damaged(tmp_path, change):
    text = CASE + 'fields = [{of = "tracer", interval = 0.1, plane = {axis = "z", position = 0}}]'
    simulation = make_simulation(parse_case(text), None, HostDevice(threads=1))
    run_case(simulation, tmp_path / "run", QUIET)
    name = "outputs/tracer-plane.zarr"
    chunk = tmp_path / "run" / name / "tracer" / "c" / "0" / "0" / "0"
    chunk.write_bytes(change(chunk.read_bytes()))
    folder = RunFolder(tmp_path / "run")
    assert folder.fault_of(name, folder.last_seals[name])


def test_a_damaged_state_is_named_by_who_opens_its_run(run):
    next((run / "checkpoints").glob("*/manifest.json")).write_text("{}")
    with pytest.warns(UserWarning, match=r"\.zarr is damaged: manifest\.json"):
        open_run(run)


def test_a_series_with_bare_returns_is_watched(run):
    path = run / "diagnostics.csv"
    path.write_bytes(path.read_bytes() + b"1\r2,3\n")
    assert RunWatcher(run).look().step == 4


def test_a_name_that_is_too_long_is_no_folder(tmp_path):
    for use in (
        RunFolder,
        lambda path: check_folder(path, False),
        lambda path: RunWatcher(path).look(),
    ):
        with pytest.raises(InputError, match="too long"):
            use(tmp_path / ("x" * 300))


def test_a_device_that_cannot_read_ends_the_command(run, monkeypatch):
    def fail(path):
        raise OSError(errno.EIO, "Input/output error", str(path))

    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with monkeypatch.context() as patch:
        patch.setattr(folder_seals, "open_file", fail)
        with pytest.raises(RunError, match=f"{run}.* cannot be read: Input/output error"):
            WAYS_IN["resume"](run)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.thorough
def test_a_file_whose_name_is_too_long_is_refused(run, tmp_path, capsys):
    name = str(tmp_path / ("x" * 250))
    for command in (
        ["report", run, "--out", f"{name}.html"],
        ["plot", run, "--out", name + 9 * "x"],
    ):
        assert status_of(*command) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "File name too long" in said


def test_what_a_kill_left_of_a_state_goes_when_the_run_goes_on(run):
    left = run / "checkpoints" / "000000002.partial"
    left.mkdir()
    resume_run(run, ["time.max_steps=9"], None, HostDevice(), QUIET)
    assert not left.exists()


@pytest.mark.thorough
def test_some_kinds_of_damage_are_refused_or_said_or_harmless():
    options = ("--families", "advection", "--kinds", "5", "--commands", "resume", "open")
    output_of("tests/support/damaged_folders.py", *options)
