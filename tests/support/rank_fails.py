"""One rank of several fails outside of what they do together; the others say when they hear of it.

mpiexec -n 2 python tests/support/rank_fails.py plan|simulation HOW [TRANSPORT]
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np
from mpi4py import MPI

import slipstream as ss
from slipstream.fft import DistributedFFT

COMM, FAILS = MPI.COMM_WORLD, MPI.COMM_WORLD.rank == 0


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1)


def leave_block(one: Any, work: Any) -> None:
    with one:
        if FAILS:
            raise ValueError("a mistake of the user")
        work()


def leave_by_key(one: Any, work: Any) -> None:
    with one:
        if FAILS:
            interrupt()
        work()


def end(one: Any, work: Any) -> None:
    if FAILS:
        raise LookupError("nobody catches this")
    work()


def give_another_shape(fft: Any, work: Any) -> None:
    fft.forward(np.ones(3) if FAILS else np.ones(fft.input_box.shape))


def begin_with_another_shape(fft: Any, work: Any) -> None:
    fft.forward_async(np.ones(3) if FAILS else np.ones(fft.input_box.shape)).wait()


def close_before(fft: Any, work: Any) -> None:
    if FAILS:
        fft.close()
    work()


def multiply_nothing(fft: Any, work: Any) -> None:
    fft.product(*([] if FAILS else [fft.empty_output()]))


def ask_for_the_error_of_a_closed_plan(fft: Any, work: Any) -> None:
    if FAILS:
        fft.close()
    fft.wire_error()


def step_back(sim: Any, work: Any) -> None:
    sim.step(-1 if FAILS else 3)


PLAN = {
    one.__name__: one
    for one in (
        give_another_shape,
        begin_with_another_shape,
        close_before,
        multiply_nothing,
        ask_for_the_error_of_a_closed_plan,
        leave_block,
        leave_by_key,
        end,
    )
}
SIMULATION = {one.__name__: one for one in (step_back, leave_block, leave_by_key, end)}


def run(what: str, how: str, transport: str) -> None:
    if what == "plan":
        subject: Any = DistributedFFT(
            (8, 8, 8), comm=COMM, device="cpu", transport=transport, wire="float32"
        )
        u = np.ones(subject.input_box.shape)

        def work() -> None:
            subject.forward(u)

    else:
        subject = ss.Turbulence(
            points=16, viscosity=0.01, initial="taylor-green", comm=COMM, device="cpu"
        )

        def work() -> None:
            subject.step()

    work()
    (PLAN if what == "plan" else SIMULATION)[how](subject, work)


if __name__ == "__main__":
    for named in sys.argv[1:]:
        what, how, transport = named.split(":")
        try:
            run(what, how, transport)
        except LookupError:
            raise
        except BaseException as failure:
            print(f"{named} on rank {COMM.rank}: {type(failure).__name__}: {failure}", flush=True)
