"""Ranks that die, or never come, while others wait for them: these say so, and the job fails."""

import subprocess
import sys
import time

import pytest

from flows import REPOSITORY, environment
from slipstream.mpi_launch import find_mpiexec

pytestmark = pytest.mark.mpi

# What rank 1 does instead of its second transform.
ENDS = {
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "ends early": "sys.exit(0)",
    "sleeps": "time.sleep(60)",
}

SCRIPT = """
import os, signal, sys, time
from mpi4py import MPI
from slipstream.errors import RunError
from slipstream.fft import DistributedFFT

comm, (transport, schedule, layout) = MPI.COMM_WORLD, sys.argv[1:]
fft = DistributedFFT(
    (6, 8, 10), comm=comm, device="cpu", transport=transport, schedule=schedule, layout=layout,
    order="natural",
)
u, u_hat = fft.empty_input(), fft.empty_output()
u[...] = 1
for _ in range(3):
    fft.forward(u, out=u_hat)
comm.Barrier()
if comm.rank == 1:
    {end}
try:
    for _ in range(3):
        fft.forward(u, out=u_hat)
except RunError as error:
    print("RunError:", error, file=sys.stderr, flush=True)
    comm.Abort(1)
print("nothing was noticed", file=sys.stderr, flush=True)
"""


def run_with(end, transport, schedule="overlap", layout="slab"):
    """Run the script on two ranks; return what came of it, and after how many seconds."""
    command = [find_mpiexec(), "-n", "2", sys.executable, "-c", SCRIPT.format(end=ENDS[end])]
    began = time.monotonic()
    result = subprocess.run(
        [*command, transport, schedule, layout],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        env={**environment(2), "OMP_NUM_THREADS": "1", "SLIPSTREAM_TIMEOUT": "1"},
        timeout=50,
    )
    return result, time.monotonic() - began


@pytest.mark.parametrize(
    ("transport", "schedule", "layout"),
    [("peer", "overlap", "slab"), ("peer", "serial", "pencil"), ("mpi-p2p", "overlap", "slab")],
)
def test_a_rank_that_never_comes_is_waited_for_no_longer_than_allowed(transport, schedule, layout):
    result, seconds = run_with("sleeps", transport, schedule, layout)
    assert result.returncode != 0
    assert "RunError: " in result.stderr
    assert " for 1 s" in result.stderr, result.stderr
    assert "SLIPSTREAM_TIMEOUT" in result.stderr
    assert "nothing was noticed" not in result.stderr
    # Rank 1 would have slept for longer.
    assert seconds < 40


@pytest.mark.parametrize(
    ("end", "transport"), [("is killed", "peer"), ("is killed", "mpi-p2p"), ("ends early", "peer")]
)
def test_a_rank_that_dies_ends_the_job_with_an_error(end, transport):
    result, _ = run_with(end, transport)
    assert result.returncode != 0
    assert "nothing was noticed" not in result.stderr
