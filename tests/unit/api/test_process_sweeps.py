"""Sweeps over parameters end, and are right: in forked and spawned processes, and in threads."""

import multiprocessing
import os
import threading

import numpy as np
import pytest

from flows import PATIENCE, output_of
from slipstream.engine.device.cpu_device import HostStream
from slipstream.engine.errors import RunError
from slipstream.fft import DistributedFFT


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["fork", "spawn", "threads"])
def test_a_sweep_ends_with_the_results_of_one_process(how):
    printed = output_of("tests/support/process_sweep.py", how, "2", OMP_NUM_THREADS="2")
    assert printed == "the same\n"


def in_child(function):
    """Return the result of a function in a forked process."""
    with multiprocessing.get_context("fork").Pool(1, _keep, [function]) as pool:
        return pool.apply_async(_call).get(PATIENCE)


def _keep(function):
    globals()["_kept"] = function


def _call():
    return globals()["_kept"]()


def test_a_stream_has_a_thread_in_a_forked_process():
    stream, seen = HostStream(), []

    def run():
        stream.submit(lambda _: seen.append(os.getpid()))
        stream.synchronize()
        return seen

    assert run() == [os.getpid()]
    mine, there = in_child(run)
    assert mine == os.getpid()
    assert there != mine


def test_a_transform_that_was_under_way_at_a_fork_is_refused_in_the_child():
    fft = DistributedFFT((8, 8, 8), device="cpu")
    begun, go_on = threading.Event(), threading.Event()
    run, u = fft._run, np.ones((8, 8, 8))

    def held(*arguments):
        begun.set()
        go_on.wait()
        return run(*arguments)

    object.__setattr__(fft, "_run", held)
    pending = fft.forward_async(u)
    begun.wait()
    object.__setattr__(fft, "_run", run)

    def look():
        with pytest.raises(RunError, match="begun before the process was forked"):
            pending.wait()
        return fft.forward_async(u).wait()

    there = in_child(look)
    go_on.set()
    np.testing.assert_array_equal(pending.wait(), there)
