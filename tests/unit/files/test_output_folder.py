"""The output folder: one run at a time, and nothing lost that is not replaced."""

import errno
import fcntl
import io
import json
import multiprocessing
import os
import threading
from types import SimpleNamespace

import pytest
from rich.console import Console

from fake_simulation import fake_simulation
from flows import PATIENCE
from refusals import refused
from slipstream.case import Case
from slipstream.engine.errors import InputError, RunError
from slipstream.files import open_checkpoint, output_folder
from slipstream.files.output_folder import check_folder, claim_folder, claim_run
from slipstream.runs.run_case import run_case

QUIET = Console(quiet=True)


def contents(folder):
    """Return all files below a folder, with their contents."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def hold(folder, held, done):
    """Write into a folder, in another process, until told that it is done."""
    with claim_folder(folder):
        held.set()
        done.wait(PATIENCE)


@pytest.fixture
def holder(tmp_path):
    """Yield a process that holds a folder; kill it afterwards."""
    spawn = multiprocessing.get_context("fork")
    held, done = spawn.Event(), spawn.Event()
    process = spawn.Process(target=hold, args=(tmp_path / "out", held, done))
    process.start()
    assert held.wait(PATIENCE)
    yield process
    process.kill()
    process.join()


def test_a_second_process_is_refused_until_the_first_is_dead(tmp_path, holder):
    folder = tmp_path / "out"
    expected = rf"in use by a run on [\w.-]+, process {holder.pid}, since 2"
    for call in (
        lambda: check_folder(folder, overwrite=True),
        lambda: run_case(fake_simulation(), folder, QUIET),
    ):
        with refused(expected):
            call()
    assert os.listdir(folder) == ["run.lock"]
    holder.kill()
    holder.join()
    # Its lock file is still there.
    assert os.listdir(folder) == ["run.lock"]
    run_case(fake_simulation(), check_folder(folder, overwrite=False), QUIET)
    assert open_checkpoint(folder).step == 10
    assert not (folder / "run.lock").exists()


def test_a_second_run_in_the_same_process_is_refused(tmp_path):
    errors = []

    def start_another(fake):
        if fake.step == 3:
            # Closing a file of a locked one would end other kinds of locks.
            (tmp_path / "run.lock").read_bytes()
            for attempt in (run_again, run_again):
                thread = threading.Thread(target=attempt)
                thread.start()
                thread.join()

    def run_again():
        try:
            run_case(fake_simulation(), tmp_path, QUIET)
        except InputError as error:
            errors.append(str(error))

    run_case(fake_simulation(on_step=start_another), tmp_path, QUIET)
    assert len(errors) == 2
    assert all(f"process {os.getpid()}" in error for error in errors)
    assert open_checkpoint(tmp_path).step == 10
    run_case(fake_simulation(), tmp_path, QUIET)


def test_a_lock_file_is_neither_followed_nor_waited_for(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "run.lock").symlink_to(tmp_path / "mine")
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b" / "run.lock")
    for name in "ab":
        with pytest.raises(InputError, match="run.lock"):
            run_case(fake_simulation(), tmp_path / name, QUIET)
    assert (tmp_path / "mine").read_text() == "mine"


def test_what_comes_between_looking_and_locking_is_refused(tmp_path):
    folder = check_folder(tmp_path / "out", overwrite=False)
    run_case(fake_simulation(), folder, QUIET)
    # It has states to continue from.
    told = "not empty; continue with slipstream resume .*out, choose"
    with pytest.raises(InputError, match=told), claim_folder(folder, overwrite=False):
        pass
    assert open_checkpoint(folder).step == 10


def test_a_run_that_cannot_begin_leaves_no_folder(tmp_path):
    with pytest.raises(InputError, match=r"time\.end"):
        run_case(fake_simulation(start=(20, 2.0)), tmp_path / "runs" / "out", QUIET)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def earlier(tmp_path):
    """Return the files of an earlier run, with one that is not its own."""
    run_case(fake_simulation("time.max_steps=2"), tmp_path, QUIET)
    (tmp_path / "energy.txt").write_text("the user's")
    return contents(tmp_path)


def test_a_run_replaces_what_the_earlier_one_wrote_and_nothing_else(tmp_path, earlier):
    run_case(fake_simulation(), tmp_path, QUIET)
    after = contents(tmp_path)
    assert open_checkpoint(tmp_path).step == 10
    assert after["energy.txt"] == b"the user's"
    assert not any(name.startswith((".replaced", ".discarded", "failed")) for name in after)


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["output.checkpoint=true", "output.checkpoint=false"])
def test_output_of_an_earlier_run_goes_with_the_first_state(tmp_path, earlier, setting):
    """Without states, the first rows are what a run has."""
    there = []

    def look(fake):
        there.append((tmp_path / ".replaced").exists())

    if "true" in setting:
        # Where an interval is asked for, a state is written with the first output.
        often = fake_simulation("output.checkpoint_interval=0.45", on_step=look)
        run_case(often, tmp_path, QUIET)
        assert there == [False] * 10
        there.clear()
    run_case(fake_simulation(setting, on_step=look), tmp_path, QUIET)
    assert there == ["true" in setting] * 10


@pytest.mark.slow
def test_a_run_that_fails_before_its_first_state_puts_the_earlier_output_back(tmp_path, earlier):
    for _ in range(2):
        with pytest.raises(RunError, match="blown up"):
            run_case(fake_simulation(blow_up_at=0.45), tmp_path, QUIET)
        after = contents(tmp_path)
        assert {name: after.get(name) for name in earlier if name[0] != "."} == {
            name: content for name, content in earlier.items() if name[0] != "."
        }
        # Its findings are printed, too.
        assert after["failed/diagnostics.csv"].splitlines()[-1].startswith(b"4,")
        assert not (tmp_path / ".replaced").exists()
    run_case(fake_simulation(), tmp_path, QUIET)
    assert not (tmp_path / "failed").exists()


def test_a_run_that_was_killed_at_its_first_state_is_not_replaced_by_the_earlier(
    tmp_path, earlier, monkeypatch
):
    class Killed(BaseException):
        pass

    def kill(self):
        raise Killed

    with monkeypatch.context() as patches:
        patches.setattr(output_folder.OutputFolder, "discard_replaced", kill)
        # The dead do not tidy up.
        patches.setattr(output_folder.OutputFolder, "release", lambda self: self._lock.release())
        with pytest.raises(Killed):
            run_case(fake_simulation("output.checkpoint_interval=0.45"), tmp_path, QUIET)
    assert (tmp_path / ".replaced" / "case.toml").exists()
    state = open_checkpoint(tmp_path)
    assert state.step == 0
    with claim_run(tmp_path):
        pass
    assert not (tmp_path / ".replaced").exists()
    assert not (tmp_path / "failed").exists()
    assert open_checkpoint(tmp_path).path == state.path


@pytest.mark.parametrize("moved", [1, 2, 3, None])
def test_a_run_that_was_killed_before_its_first_state_is_put_right_by_the_next(
    tmp_path, earlier, monkeypatch, moved
):
    """Killed while the earlier output was moved aside, or later."""

    class Killed(BaseException):
        pass

    def kill(fake):
        raise Killed

    steps = []

    def rename_some(self, target, rename=output_folder.Path.rename):
        steps.append(target)
        if moved is not None and len(steps) > moved:
            raise Killed
        return rename(self, target)

    with monkeypatch.context() as patches:
        patches.setattr(output_folder.Path, "rename", rename_some)
        # The dead do not tidy up.
        patches.setattr(output_folder.OutputFolder, "release", lambda self: self._lock.release())
        with pytest.raises(Killed):
            run_case(fake_simulation(on_step=kill), tmp_path, QUIET)
    assert (tmp_path / ".replaced").exists()
    with pytest.raises(InputError, match="not empty"):
        check_folder(tmp_path, overwrite=False)
    check_folder(tmp_path, overwrite=True)
    with claim_folder(tmp_path):
        pass
    after = contents(tmp_path)
    assert {name: after.get(name) for name in earlier if name[0] != "."} == {
        name: content for name, content in earlier.items() if name[0] != "."
    }
    run_case(fake_simulation(), tmp_path, QUIET)
    assert open_checkpoint(tmp_path).step == 10


@pytest.mark.parametrize("name", ["case.toml", "summary.png", "fields.zarr/zarr.json"])
def test_files_that_no_run_has_written_are_not_replaced(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("the user's")
    before = contents(tmp_path)
    for call in (
        lambda: check_folder(tmp_path, overwrite=True),
        lambda: run_case(fake_simulation(), tmp_path, QUIET),
    ):
        with pytest.raises(InputError, match=f"holds {name.split('/')[0]}, and no record"):
            call()
    assert contents(tmp_path) == before


def test_a_picture_put_beside_the_output_of_an_earlier_run_stays(tmp_path, earlier):
    (tmp_path / "summary.png").write_text("the user's")
    with pytest.raises(InputError, match="summary.png"):
        run_case(fake_simulation(), tmp_path, QUIET)
    assert (tmp_path / "summary.png").read_text() == "the user's"
    assert open_checkpoint(tmp_path).step == 2


@pytest.mark.parametrize("written", [["../mine"], ["/etc"], 3, {"a": 1}, [["case.toml"]], None])
def test_a_record_names_nothing_but_output(tmp_path, written):
    folder = tmp_path / "out"
    folder.mkdir()
    (tmp_path / "mine").write_text("mine")
    (folder / ".slipstream.json").write_text(json.dumps({"written": written}))
    run_case(fake_simulation(), folder, QUIET)
    assert (tmp_path / "mine").read_text() == "mine"


# Where the input is, seen from the output folder, and whether a run may write there.
INPUTS = [
    ("initial.restart", ".", False),
    ("initial.restart", "checkpoints", False),
    ("initial.restart", "other", False),
    ("initial.path", "fields.zarr", False),
    ("initial.path", "checkpoints/000000001.zarr", False),
    ("image.path", "fields.zarr", False),
    ("image.path", "flow.vti", False),
    ("image.path", "mine.raw", True),
    ("the case", "case.toml", False),
    ("the case", "mine.toml", True),
    ("equation.model", "model.py", True),
    ("initial.path", "..", False),
    ("initial.restart", "..", True),
]


@pytest.mark.samples(6)
@pytest.mark.parametrize(("key", "where", "may"), INPUTS)
@pytest.mark.parametrize("through", ["absolute", "relative", "link"])
def test_input_in_the_output_folder_is_not_lost(
    tmp_path, monkeypatch, earlier, key, where, may, through
):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / where
    if through == "relative":
        path = output_folder.Path(where)
    elif through == "link":
        link = tmp_path.parent / f"{tmp_path.name}-link"
        link.symlink_to(tmp_path / where)
        path = link
    before = contents(tmp_path)
    if may:
        assert check_folder(".", True, {key: path}) == output_folder.Path(".")
    else:
        with pytest.raises(InputError, match=key):
            check_folder(".", True, {key: path})
    assert contents(tmp_path) == before


def test_all_inputs_of_a_case_are_known():
    tables = {
        "equation": {"model": "model.py:mine"},
        "initial": {"path": "a.zarr", "restart": "earlier"},
        "image": {"path": "rock.raw"},
    }
    case = SimpleNamespace(**{name: SimpleNamespace(**keys) for name, keys in tables.items()})
    found = Case.inputs(case, output_folder.Path("b.toml"))
    assert {key: str(path) for key, path in found.items()} == {
        "the case": "b.toml",
        "initial.restart": "earlier",
        "initial.path": "a.zarr",
        "image.path": "rock.raw",
        "equation.model": "model.py",
    }


def test_a_run_goes_on_where_there_are_no_locks(tmp_path, monkeypatch):
    def refuse(*_arguments):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    console = Console(file=io.StringIO(), width=300)
    run_case(fake_simulation(), tmp_path, console)
    assert "file system without locks" in console.file.getvalue()
