"""Ranks that die, or never come, while others wait for them: these say so, and the job fails."""

import subprocess
import sys

import pytest

from flows import (
    PATIENCE,
    RANDOM,
    REPOSITORY,
    diagnostics,
    environment,
    slipstream,
    wait_until,
)
from slipstream.engine.errors import InputError
from slipstream.engine.exchange.transport_registry import RANKS_PER_NODE
from slipstream.engine.processes import find_mpiexec
from slipstream.files import open_checkpoint
from slipstream.files.output_folder import check_folder

pytestmark = pytest.mark.mpi

# What rank 1 does instead of its second transform.
ENDS = {
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "ends early": "sys.exit(0)",
    "sleeps": "time.sleep(3000)",
}

SCRIPT = """
import os, signal, sys, time
from mpi4py import MPI
from slipstream.engine.errors import RunError
from slipstream.fft import DistributedFFT

comm, (said, transport, schedule, layout) = MPI.COMM_WORLD, sys.argv[1:]


def say(*words):
    # In a file: what launchers say of an end may come amid a line on standard error.
    with open(said, "a") as file:
        print(*words, file=file)


fft = DistributedFFT(
    (6, 8, 10), comm=comm, device="cpu", transport=transport, schedule=schedule, layout=layout,
    order="natural",
)
u, u_hat = fft.empty_input(), fft.empty_output()
u[...] = 1
for _ in range(3):
    fft.forward(u, out=u_hat)
comm.Barrier()
# Not before: a rank that is late as others have the cores has not died.
os.environ["SLIPSTREAM_TIMEOUT"] = "1"
if comm.rank == 1:
    {end}
try:
    for _ in range(3):
        fft.forward(u, out=u_hat)
except RunError as error:
    say("RunError:", error)
    comm.Abort(1)
say("nothing was noticed")
"""


def run_with(folder, end, transport, schedule="overlap", layout="slab"):
    """Run the script on two ranks; return its status, and what they said."""
    said = folder / "said.txt"
    said.touch()
    command = [find_mpiexec(), "-n", "2", sys.executable, "-c", SCRIPT.format(end=ENDS[end])]
    # One rank per node, if that makes a difference to the transport.
    nodes = {RANKS_PER_NODE: "1"} if transport == "mpi-hierarchical" else {}
    result = subprocess.run(
        [*command, said, transport, schedule, layout],
        cwd=REPOSITORY,
        capture_output=True,
        env={**environment(2), "OMP_NUM_THREADS": "1", **nodes},
        timeout=PATIENCE,  # which is less than a rank sleeps
    )
    return result.returncode, said.read_text()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("transport", "schedule", "layout"),
    [
        ("peer", "overlap", "slab"),
        ("peer", "serial", "pencil"),
        ("mpi-p2p", "overlap", "slab"),
        ("mpi-hierarchical", "overlap", "slab"),
    ],
)
def test_a_rank_that_never_comes_is_waited_for_no_longer_than_allowed(
    transport, schedule, layout, tmp_path
):
    status, said = run_with(tmp_path, "sleeps", transport, schedule, layout)
    assert status != 0
    assert "RunError: " in said
    assert " for 1 s" in said
    assert "SLIPSTREAM_TIMEOUT" in said
    assert "nothing was noticed" not in said


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("end", "transport"), [("is killed", "peer"), ("is killed", "mpi-p2p"), ("ends early", "peer")]
)
def test_a_rank_that_dies_ends_the_job_with_an_error(end, transport, tmp_path):
    status, said = run_with(tmp_path, end, transport)
    assert status != 0
    assert "nothing was noticed" not in said


def has_rows(folder):
    return (folder / "diagnostics.csv").exists() and len(diagnostics(folder)["step"]) > 3


def is_free(folder):
    try:
        check_folder(folder, overwrite=True)
    except InputError:
        return False
    return True


@pytest.mark.thorough
@pytest.mark.parametrize("killed", ["starter", "launcher"])
def test_ranks_end_and_leave_a_state_when_who_started_them_is_killed(tmp_path, killed):
    """Another run into their folder is refused, but not modules in the folder of the case."""
    (tmp_path / "case.toml").write_text(RANDOM)
    for name in ("queue", "numpy", "typer"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'seen')!r}, 'w')")
    arguments = ["run", "case.toml", "--out", "out", "--device", "cpu"]
    arguments += ["--set", "time.end=1000", "--set", "output.diagnostics_interval=0.01"]
    arguments += ["--set", "output.checkpoint_interval=0.02"]
    if killed == "starter":
        command = [sys.executable, "-m", "slipstream", *arguments, "--ranks", "2"]
    else:
        command = [find_mpiexec(), "-n", "2", sys.executable, "-m", "slipstream", *arguments]
    with (
        (tmp_path / "error").open("w") as error,
        subprocess.Popen(
            command, cwd=tmp_path, env=environment(2), stdout=subprocess.PIPE, stderr=error
        ) as process,
    ):
        try:
            wait_until(lambda: has_rows(tmp_path / "out"))
            if killed == "starter":
                second = slipstream(*arguments, "--overwrite", cwd=tmp_path)
                assert second.returncode == 2
                assert second.stderr.count("\n") == 1
                assert "out is in use by a run on " in second.stderr
            assert not is_free(tmp_path / "out")
        finally:
            process.kill()
    wait_until(lambda: is_free(tmp_path / "out"))
    assert open_checkpoint(tmp_path / "out").step > 0
    # Without its launcher, Open MPI may end a rank at any time.
    if killed == "starter":
        assert not (tmp_path / "out" / "run.lock").exists()
    assert not (tmp_path / "seen").exists()
