"""Plans and simulations of a rank, in a process that was forked from it."""

import os

import numpy as np
import pytest

import slipstream as ss
from slipstream.engine.errors import InputError, RunError
from slipstream.fft import DistributedFFT


def in_fork(function):
    """Run a function in a forked process; return its status, 0 if it has raised nothing."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            function()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_process_leaves_the_ranks_of_its_parent_alone(comm, device, ranks):
    if device.kind == "cuda":
        pytest.skip("GPUs cannot be used by a forked process at all")
    fft = DistributedFFT((8, 6, 4), comm=comm, device=device)
    sim = ss.Turbulence(
        points=8, viscosity=0.01, initial="taylor-green", step=0.01, comm=comm, device=device
    )
    u, u_hat = fft.empty_input(), fft.empty_output()
    u[...] = 1
    fft.forward(u, out=u_hat)
    sim.step()

    def go_on():
        if ranks == 1:
            np.testing.assert_array_equal(fft.forward(u), u_hat)
            sim.step()
            return
        with pytest.raises(InputError, match="forked from a rank of MPI"):
            fft.forward(u)
        with pytest.raises(RunError, match="forked from a rank of MPI"):
            sim.step()
        with pytest.raises(ZeroDivisionError), fft, sim:
            raise ZeroDivisionError
        alone = DistributedFFT((8, 6, 4), device=device)
        points = np.random.default_rng(1).random((8, 6, 4))
        np.testing.assert_allclose(alone.forward(points), np.fft.rfftn(points), atol=1e-12)

    assert in_fork(go_on) == 0
    again = fft.forward(u)
    np.testing.assert_array_equal(again, u_hat)
    sim.step()
    assert sim.steps == 2
