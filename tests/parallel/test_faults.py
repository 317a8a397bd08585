"""Whatever fails on one rank, anywhere, fails on all of them, and nobody waits for ever."""

import contextlib
import functools
import os
import random
import sys
import warnings

import pytest
from rich.console import Console

import slipstream
from first_rank import wait_for_all
from flows import RANDOM
from slipstream.case import parse_case
from slipstream.engine.collective import own, together
from slipstream.engine.errors import SlipstreamError
from slipstream.engine.exchange.transport_registry import RANKS_PER_NODE
from slipstream.fft import DistributedFFT
from slipstream.lattice import make_sample, permeability
from slipstream.runs import make_simulation
from slipstream.runs.run_case import run_case

ROOT = os.path.dirname(slipstream.__file__)
ADVECTION = 'solver = "advection"\n[grid]\npoints = 12\n[time]\nend = 0.3\n'
LATTICE = """
solver = "lattice"
[image]
sample = "channel"
shape = [4, 8, 6]
axis = "x"
[time]
end = 20
[convergence]
interval = 10
[numerics]
propagation = "aa"
layout = "stream"
order = "raster"
encoding = "compact"
"""


# By what ranks learn of a failure, and what holds signals back.
MAY_NOT_FAIL = ("collective", "own_communicator", "stop_signals")


class Fault(Exception):
    """An error that nothing expects."""


@functools.cache
def may_fail_in(file):
    return file.startswith(ROOT) and not any(one in file for one in MAY_NOT_FAIL)


def may_fail(code):
    """Return whether a function of the package is one that a fault is put into."""
    # A name in brackets is not of a function.
    name, ending = code.co_name, ("close", "give_up", "__exit__", "__del__", "_free")
    return may_fail_in(code.co_filename) and not name.startswith("<") and name not in ending


class Failing:
    """Raises at one of the calls of the package's functions within a block, on this rank."""

    def __init__(self, when, error):
        self.calls, self._when, self._error = 0, when, error
        # The number of the first call of each function from each line.
        self.first = {}

    def __enter__(self):
        sys.settrace(self._count)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def _count(self, frame, event, _):
        if not may_fail(frame.f_code):
            return
        self.calls += 1
        caller = frame.f_back
        place = frame.f_code, caller.f_code, caller.f_lineno
        self.first.setdefault(place, self.calls)
        if self.calls == self._when:
            sys.settrace(None)
            raise self._error


def transform(comm, device, folder, **options):
    fft = DistributedFFT((6, 8, 10), comm=comm, device=device, **options)
    # Else a rank might be done before the other one fails, having got all that it needs.
    with together(own(comm, "test")):
        u, u_hat = fft.empty_input(), fft.empty_output()
        u[...] = 1
        fft.backward(fft.forward(u, u_hat), u)


def case_of(text, *settings):
    case = parse_case(text, settings)

    def work(comm, device, folder):
        simulation = make_simulation(case, comm, device)
        run_case(simulation, folder, Console(file=open(os.devnull, "w")))  # noqa: SIM115

    return work


def steps_of(text, *settings):
    """Steps alone: the same code writes the output of all."""
    case = parse_case(text, settings)

    def work(comm, device, folder):
        simulation = make_simulation(case, comm, device)
        with together(own(comm, "test")):
            simulation.prepare()
            for _ in range(2):
                simulation.advance(simulation.step_size())
            simulation.diagnostics()
            simulation.fields()

    return work


def pores(comm, device, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sample = make_sample("channel", (4, 6, 8), axis="x")
        permeability(sample, device=device, comm=comm, max_steps=20, interval=10)


def transform_by(**options):
    return lambda comm, device, folder: transform(comm, device, folder, **options)


WORK = {
    "slab": transform_by(),
    "pencil by messages": transform_by(layout="pencil", transport="mpi-p2p"),
    "bricks by collectives": transform_by(order="natural", transport="mpi"),
    "aggregated": transform_by(transport="mpi-hierarchical"),
    "narrow": transform_by(wire="float32", transport="mpi-p2p"),
    "from the host": transform_by(residency="host", memory="1 MiB", streaming={"tiles": 2}),
    "turbulence": case_of(RANDOM, "grid.points=8", "time.max_steps=3"),
    "turbulence from the host": steps_of(RANDOM, "grid.points=8", "run.residency=host"),
    "advection": steps_of(ADVECTION),
    "lattice": case_of(LATTICE, "output.pictures=false"),
    "permeability": pores,
}
# How many faults of a kind of work, at places that are the same every time.
FAULTS = 3
ERRORS = (
    Fault("out of luck"),
    MemoryError("no memory"),
    OSError(28, "disk full"),
    TypeError("odd"),
)


def outcome(comm, work, *arguments):
    """Return the exception that some work raised, or None."""
    try:
        work(comm, *arguments)
    except Exception as failure:
        return failure
    return None


@pytest.mark.parametrize("name", WORK)
def test_what_fails_on_one_rank_fails_on_all(comm, device, ranks, shared_folder, name, monkeypatch):
    if ranks == 1 or device.kind == "cuda":
        pytest.skip("for several ranks on CPUs: a GPU that waits is not told")
    if name == "aggregated":
        monkeypatch.setenv(RANKS_PER_NODE, "1")
    work, last = WORK[name], comm.rank == ranks - 1
    folders = (shared_folder / str(number) for number in range(1000))
    work(comm, device, next(folders))
    counted = Failing(0, None)
    with counted if last else contextlib.nullcontext():
        work(comm, device, next(folders))
    calls = comm.bcast(list(counted.first.values()), root=ranks - 1)
    monkeypatch.setenv("SLIPSTREAM_TIMEOUT", "1")
    draw = functools.partial(random.Random(name).sample, k=FAULTS)
    for error, when in zip(draw(ERRORS), draw(calls), strict=True):
        if last:
            with Failing(when, error):
                failure = outcome(comm, work, device, next(folders))
        else:
            failure = outcome(comm, work, device, next(folders))
        wait_for_all(comm)  # some have waited for the failed rank, for as long as they may
        failures = comm.allgather(repr(failure) if failure else "")
        assert all(failures) or not any(failures), (when, error, failures)
        if not last:
            assert failure is None or isinstance(failure, SlipstreamError), (when, failures)
        elif failure is not None and not isinstance(failure, SlipstreamError):
            assert failure is error, (when, failures)
        del failure
    monkeypatch.undo()
    work(comm, device, next(folders))  # later work is as ever
