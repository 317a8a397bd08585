"""States of a run are on the device before anything relies on them, whatever goes wrong."""

import io
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray
from rich.console import Console

import moments
from fake_simulation import CASE, FakeSimulation
from slipstream.case import parse_case
from slipstream.engine.errors import RunError
from slipstream.engine.fields import Field
from slipstream.files import FieldStore, Series, open_checkpoint, write_checkpoint
from slipstream.files.checkpoint import reseal
from slipstream.files.durable_files import named
from slipstream.files.folder_seals import Seal
from slipstream.runs.run_case import run_case
from wrapped_file import WrappedFile

QUIET = Console(quiet=True)


def state(value=1.0):
    return Field("state", ("k",), (5,), (0,), np.full(5, value))


def write(folder, step, value=1.0, **options):
    fields = [state(value)]
    return write_checkpoint(folder, fields, step=step, time=0.1 * step, case="", **options)


def run(simulation, folder, *settings, console=QUIET):
    simulation.case = parse_case(CASE, ("output.pictures=false", *settings))
    run_case(simulation, folder, console)


@pytest.fixture
def calls(monkeypatch):
    """Requests to the system, in order: a name and the path that it concerns."""
    results = []

    def watch(name, path_of):
        call = getattr(os, name)

        def watched(*arguments, **options):
            results.append((name, *path_of(*arguments, **options)))
            return call(*arguments, **options)

        monkeypatch.setattr(os, name, watched)

    def descriptor(number):
        return (os.readlink(f"/proc/self/fd/{number}"),)

    def within(path, *, dir_fd=None):
        return (named(path) if dir_fd is None else f"{descriptor(dir_fd)[0]}/{path}",)

    watch("fsync", descriptor)
    for name in ("rename", "replace"):
        watch(name, lambda old, new: (named(old), named(new)))
    for name in ("unlink", "rmdir"):
        watch(name, within)
    watch("mkdir", lambda path, *_: (named(path),))
    return results


def test_all_is_on_the_device_before_it_bears_its_name(calls, tmp_path):
    folder = tmp_path / "new" / "out"
    write(folder, step=1)
    calls.clear()
    final = write(folder, step=2, keep=1)
    partial = final.with_suffix(".partial")
    renamed = calls.index(("rename", str(partial), str(final)))
    there = list(final.rglob("*"))
    assert len(there) > 4
    for path in (final, *there):
        was = str(partial / path.relative_to(final))
        last_change = max(
            (
                number
                for number, call in enumerate(calls)
                if call[0] == "replace" and call[2] == was
            ),
            default=-1,
        )
        assert any(call == ("fsync", was) for call in calls[last_change + 1 : renamed]), was
        if path.is_dir():
            # What a folder lists is complete before it is flushed.
            inside = [str(partial / one.relative_to(final)) for one in path.iterdir()]
            listed = [
                n for n, call in enumerate(calls) if call[-1] in inside and call[0] != "fsync"
            ]
            assert ("fsync", was) in calls[max(listed, default=-1) + 1 : renamed], was
    flushed = calls.index(("fsync", str(folder / "checkpoints")), renamed)
    removed = [n for n, call in enumerate(calls) if "000000001" in call[1]]
    assert removed
    assert min(removed) > flushed


def test_new_folders_are_on_the_device_with_what_is_in_them(calls, tmp_path):
    folder = tmp_path / "a" / "b"
    write(folder, step=1)
    for path in (folder / "checkpoints", folder, folder.parent):
        made = calls.index(("mkdir", str(path)))
        assert ("fsync", str(path.parent)) in calls[made:]


def test_all_that_a_run_needs_to_go_on_is_on_the_device_before_its_first_state(calls, tmp_path):
    run(FakeSimulation(), tmp_path / "out")
    first = next(
        number
        for number, call in enumerate(calls)
        if call[0] == "rename" and call[-1].endswith(".zarr")
    )
    for name in ("case.toml", "run.json", ".slipstream.json"):
        path = str(tmp_path / "out" / name)
        placed = calls.index(("replace", f"{path}.partial", path))
        # Its content, and then its name.
        assert ("fsync", f"{path}.partial") in calls[:placed], name
        assert ("fsync", str(tmp_path / "out")) in calls[placed:first], name


def test_a_state_is_whole_whenever_a_kill_comes_while_it_is_sealed_again(tmp_path, monkeypatch):
    state, copies = write(tmp_path / "run", 1, seals={}), []

    def look():
        copies.append(tmp_path / str(len(copies)))
        shutil.copytree(tmp_path / "run", copies[-1])

    seals = {"diagnostics.csv": Seal(length=3, checksum=4)}
    with monkeypatch.context() as patch:
        moments.Moments(moments.ALL, look).watch(patch.setattr)
        reseal(state, seals)
    assert len(copies) > 3
    for copy in copies:
        assert open_checkpoint(copy).seals in ({}, seals)
        write(copy, 2)
        names = [one.name for one in (copy / "checkpoints").iterdir()]
        assert sorted(names) == ["000000001.zarr", "000000002.zarr"]


def test_as_many_states_stay_as_are_asked_for(tmp_path):
    for step in range(5):
        write(tmp_path, step, keep=3)
        assert open_checkpoint(tmp_path).step == step
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["000000002.zarr", "000000003.zarr", "000000004.zarr"]


def test_another_state_of_the_same_step_is_the_later_one(tmp_path):
    for value in (1.0, 2.0, 3.0):
        write(tmp_path, 7, value)
        assert open_checkpoint(tmp_path).read("state")[1] == value


def test_what_a_killed_run_left_is_removed_by_the_next_state(tmp_path):
    shutil.copytree(write(tmp_path, 1), tmp_path / "checkpoints" / "000000002.partial")
    assert open_checkpoint(tmp_path).step == 1
    write(tmp_path, 3)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["000000001.zarr", "000000003.zarr"]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_state_that_is_no_number_does_not_replace_a_good_one(tmp_path, value):
    write(tmp_path, 1)
    with pytest.raises(
        RunError, match=r"^state has values that are no number at step 2, t = 0\.2: "
    ):
        write(tmp_path, 2, value)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["000000001.zarr"]


def test_numbers_whose_sum_is_too_large_are_numbers(tmp_path):
    write(tmp_path, 1, 1e308)
    assert open_checkpoint(tmp_path).read("state")[4] == 1e308


class FullDisk:
    """Stops the growth of files after a number of bytes, with the error of the system."""

    def __init__(self, monkeypatch, room):
        self.room = room
        opened = Path.open

        def open_file(path, mode="r", *arguments, **options):
            file = opened(path, mode, *arguments, **options)
            return _Limited(file, self) if mode == "xb" else file

        monkeypatch.setattr(Path, "open", open_file)


class _Limited(WrappedFile):
    def __init__(self, file, disk):
        super().__init__(file)
        self._disk = disk

    def write(self, content):
        self._disk.room -= memoryview(content).nbytes
        if self._disk.room < 0:
            raise OSError(28, "No space left on device")
        return self.file.write(content)


@pytest.mark.parametrize("part", [0, 0.3, 0.6, 0.999])
def test_a_full_disk_is_named_and_costs_no_state(tmp_path, monkeypatch, part):
    files = [path for path in write(tmp_path, 1).rglob("*") if path.is_file()]
    with monkeypatch.context() as patch:
        FullDisk(patch, int(part * sum(path.stat().st_size for path in files)))
        with pytest.raises(RunError, match=r"000000002\.partial/\S+ cannot be written: No space"):
            write(tmp_path, 2)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["000000001.zarr"]
    assert open_checkpoint(tmp_path).step == 1
    write(tmp_path, 3)
    assert open_checkpoint(tmp_path).step == 3


def test_a_device_that_fails_to_flush_is_named(tmp_path, monkeypatch):
    write(tmp_path, 1)

    def fail(_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(RunError, match="cannot be written: Input/output error"):
            write(tmp_path, 2)
    assert open_checkpoint(tmp_path).step == 1


def test_a_run_ends_by_a_full_disk_with_what_it_has_written(tmp_path, monkeypatch):
    def fill(simulation):
        if simulation.step == 5:
            FullDisk(monkeypatch, 0)

    settings = "output.checkpoint_interval=0.2", "output.fields_interval=0.2"
    console = Console(file=io.StringIO(), width=20)
    with pytest.raises(RunError, match=r"cannot be written: No space left on device$"):
        run(FakeSimulation(on_step=fill), tmp_path, *settings, console=console)
    monkeypatch.undo()
    text = console.file.getvalue()
    assert (
        f"of step 4 the state is in {tmp_path}: continue with slipstream resume {tmp_path}\n"
        in text
    )
    assert open_checkpoint(tmp_path).step == 4
    assert xarray.open_zarr(tmp_path / "fields.zarr").sizes["time"] == 3


@pytest.mark.slow
def test_a_state_is_written_by_the_clock(tmp_path):
    """Without any interval, and no later than the time that the case gives."""
    seen = []

    def look(simulation):
        states = tmp_path / "checkpoints"
        seen.append(len(list(states.iterdir())) if states.exists() else 0)

    run(FakeSimulation(on_step=look), tmp_path, "output.checkpoint_minutes=1e-9")
    assert seen == [1, 2, 2, 2, 2, 2, 2, 2, 2, 2]
    seen.clear()
    shutil.rmtree(tmp_path)
    run(FakeSimulation(on_step=look), tmp_path)
    assert not any(seen)
    assert parse_case(CASE).output.checkpoint_minutes == 15


def test_no_state_is_later_than_its_series(calls, tmp_path):
    run(FakeSimulation(), tmp_path, "output.checkpoint_interval=0.5", "output.fields_interval=0.5")
    names = [(call[0], call[-1].rsplit("/out/", 1)[-1]) for call in calls]
    renames = [
        n for n, call in enumerate(calls) if call[0] == "rename" and call[2].endswith(".zarr")
    ]
    flushes = [
        n for n, call in enumerate(calls) if call == ("fsync", f"{tmp_path}/diagnostics.csv")
    ]
    assert len(renames) == 3, names
    before = 0
    for renamed in renames:
        assert any(before <= flushed < renamed for flushed in flushes)
        before = renamed
    # The snapshot of t = 0.5 is followed by the state of the end.
    assert ("fsync", f"{tmp_path}/fields.zarr/velocity_x/c/1/0/0/0") in calls[: renames[-1]]


def test_what_is_replaced_is_on_the_device_before_it_takes_the_name(calls, tmp_path):
    store = FieldStore(tmp_path / "fields.zarr")
    store.append(0.0, [state()])
    path = str(tmp_path / "fields.zarr" / "zarr.json")
    calls.clear()
    store.append(0.5, [state()])
    replaced = calls.index(("replace", f"{path}.partial", path))
    assert ("fsync", f"{path}.partial") in calls[:replaced]
    # And what it lists is there by then.
    assert ("fsync", f"{tmp_path}/fields.zarr/state/c/1/0") in calls[:replaced]
    assert ("fsync", f"{tmp_path}/fields.zarr/state/c/1") in calls[:replaced]
    assert ("fsync", f"{tmp_path}/fields.zarr/state/c") in calls[:replaced]


def test_a_snapshot_that_was_cut_short_is_not_seen(tmp_path):
    def fields(fails):
        yield state()
        if fails:
            raise KeyboardInterrupt
        yield Field("other", ("k",), (5,), (0,), np.arange(5.0))

    store = FieldStore(tmp_path / "fields.zarr")
    store.append(0.0, fields(False))
    store.append(0.5, fields(False))
    with pytest.raises(KeyboardInterrupt):
        store.append(1.0, fields(True))
    data = xarray.open_zarr(tmp_path / "fields.zarr")
    assert data["time"].values.tolist() == [0.0, 0.5]
    assert np.isfinite(data["other"]).all()


def test_no_file_is_seen_half_written(tmp_path, monkeypatch):
    """As a kill in the middle of any write leaves it: the file is as it was."""
    store = FieldStore(tmp_path / "fields.zarr")
    store.append(0.0, [state()])
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    FullDisk(monkeypatch, 700)
    with pytest.raises(RunError, match="No space"):
        store.append(0.5, [state()])
    xarray.open_zarr(tmp_path / "fields.zarr").load()
    assert all(len(path.read_bytes()) >= len(content) for path, content in before.items())


def test_a_row_is_written_at_once(tmp_path):
    """A row is one call to the system: a kill leaves all of it, or nothing."""
    series = Series(tmp_path, {})
    for step in range(3):
        series.append(step, 0.1 * step, 0.1, {"energy": 1 / 3})
        text = (tmp_path / "diagnostics.csv").read_text()
        assert text.endswith("\n")
        assert text.count("0.3333333333333333") == step + 1
    series.close()
