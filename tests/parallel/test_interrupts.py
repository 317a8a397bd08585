"""Ctrl-C costs no lock and leaves no half-done call, at whatever moment it comes.

Each call is done again and again, with a signal at one point of it after the other, on one rank:
it raises there, or when it is done. Then the same objects give the bits of an undisturbed call.
"""

import contextlib
import functools
import os
import random
import signal
import threading
import time

import numpy as np
import pytest

import slipstream as ss
from interrupts import Points, ends, interrupt_after, plain_handler, spread
from slipstream.engine import stop_signals
from slipstream.engine.device import host_compiler, open_device
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.fields import Field
from slipstream.engine.processes import map_in_threads
from slipstream.engine.stop_signals import SignalHold, signals_held
from slipstream.fft import DistributedFFT
from slipstream.lattice import Storage, make_sample, permeability
from slipstream.runs.output_writer import WriteQueue

N = 8
IMAGE = np.asarray(make_sample("random-pack", (9, 8, 10), radius=3, solid_fraction=0.3))
pytestmark = [
    pytest.mark.filterwarnings("ignore:kmax_eta", "ignore:.* has a divergence"),
    pytest.mark.filterwarnings("ignore:pore faces solid", "ignore:not converged"),
]


def points_of(plan, seed):
    values = np.random.default_rng(seed).standard_normal((N, N, N))
    return np.ascontiguousarray(values[tuple(plan.input_box.slices())])


class Transforms:
    """A plan, of which users pass other arrays each time."""

    def __init__(self, way, comm, folder):
        self._way, self._comm = way, comm
        self._plan, fresh = (DistributedFFT((N,) * 3, comm=comm, device="cpu") for _ in range(2))
        self._u = points_of(fresh, 1)
        self._u_hat = fresh.forward(self._u)
        self._back = fresh.backward(self._u_hat)

    def call(self):
        if self._way == "forward":
            self._plan.forward(self._u.copy())
        elif self._way == "backward":
            self._plan.backward(self._u_hat.copy())
        elif self._way == "async":
            self._plan.forward_async(self._u.copy()).wait()
        elif self._way == "refused":
            with pytest.raises(InputError):
                self._plan.forward(self._u[:1, :1, :1])
        elif self._way == "like":
            self._plan.like(fields=2)
        else:
            DistributedFFT((N,) * 3, comm=self._comm, device="cpu", order="natural")

    def check(self):
        def both():
            np.testing.assert_array_equal(self._plan.forward(self._u), self._u_hat)
            np.testing.assert_array_equal(self._plan.backward(self._u_hat), self._back)

        if self._comm is None:
            ends(both)
        both()


class Flow:
    """A simulation that is stepped, read, set and written."""

    def __init__(self, way, comm, folder):
        self._way, self._folder, self._comm, self._turn = way, folder, comm, 0
        given = {"points": N, "viscosity": 0.02, "initial": "taylor-green", "step": 0.01}
        given |= {"comm": comm, "device": "cpu", "output": {"pictures": False, "fields": []}}
        self._make = functools.partial(ss.Turbulence, **given)
        self._sim, self._other = self._make(), self._make()
        if way not in ("run", "prepare"):
            self._sim.step()
            self._velocity = self._sim.fields["velocity"]
        # What is set in turn, and what is read then.
        self._given = [factor * self._value(self._other) for factor in (1.0, 2.0)]
        self._states = []
        for values in self._given:
            if way == "set":
                self._other.fields["velocity"][...] = values
                self._states.append(self._value(self._other))

    @staticmethod
    def _value(sim):
        return np.array(sim.fields["velocity"][...])

    def call(self):
        if self._way == "step":
            self._sim.step(2)
        elif self._way == "read":
            self._turn += 1  # one of these, since other ranks may be in the next
            if self._turn % 3 == 0:
                self._velocity.rms()
            elif self._turn % 3 == 1:
                self._sim.diagnostics  # noqa: B018
            else:
                self._velocity[...]
        elif self._way == "set":
            self._turn = 1 - self._turn
            self._velocity[...] = self._given[self._turn]
        elif self._way == "checkpoint":
            self._sim.checkpoint(self._folder / "state")
        elif self._way == "prepare":
            self._sim.prepare()
        else:
            self._turn += 1
            self._sim.run(until=0.02 * self._turn, output=self._folder / "run")

    def check(self):
        value = self._value(self._sim)
        if self._way == "set":
            assert any(np.array_equal(value, one) for one in self._states)
            return
        while self._other.steps < self._sim.steps:
            self._other.step()
        other = self._other
        if other.steps > self._sim.steps:
            other = self._make()
            other.step(self._sim.steps) if self._sim.steps else other.prepare()
        np.testing.assert_array_equal(value, self._value(other))
        if self._way == "prepare":
            self._sim = self._make()
        if self._way == "checkpoint" and (self._folder / "state" / "checkpoints").exists():
            again = self._make(initial={"restart": str(self._folder / "state")})
            np.testing.assert_array_equal(self._value(again), value)


class Permeability:
    """A call that has no object to call again."""

    def __init__(self, way, comm, folder):
        given = {"device": "cpu", "tolerance": 1e-3, "interval": 10, "storage": Storage()}
        self._call = functools.partial(permeability, IMAGE, comm=comm, **given)
        self._k = self._call().k

    def call(self):
        self._call()

    def check(self):
        assert self._call().k == self._k


class Threads:
    """What hands work to other threads."""

    def __init__(self, way, comm, folder):
        self._way, self._stream = way, open_device("cpu").stream()
        self._count = 0

    def call(self):
        if self._way == "pool":
            assert map_in_threads(2, abs, range(4)) == list(range(4))
        elif self._way == "compiler":
            text = f'extern "C" int f{self._count}() {{ return 0; }} // {os.getpid()}'
            self._count += 1
            host_compiler.COMPILATIONS.begin(text, False)
            host_compiler.COMPILATIONS.finish()
        else:
            self._write(WriteQueue(True, most_bytes=100))

    def _write(self, queue):
        written = []
        try:
            for _ in range(2):
                fields = (field_of(np.full(10, float(i))) for i in range(3))
                queue.write(lambda some: written.extend(one.data[0] for one in some), fields)
            queue.finish()
        finally:
            queue.close()
        assert written == 2 * [0.0, 1.0, 2.0]

    def check(self):
        self._count += 1
        ends(self.call)


def field_of(values):
    return Field("values", ("x",), values.shape, (0,), values)


TRANSFORMS = ["forward", "backward", "async", "refused", "like", "plan"]
FLOWS = ["step", "read", "set", "checkpoint", "prepare", "run"]
THREADS = ["pool", "compiler", "queue"]
KINDS = {
    **dict.fromkeys(TRANSFORMS, Transforms),
    **dict.fromkeys(FLOWS, Flow),
    "permeability": Permeability,
    **dict.fromkeys(THREADS, Threads),
}
# Of few ranks, those that communicate.
COLLECTIVE = [name for name in KINDS if name not in THREADS]
# The numbers of points of a call that the quick tests try.
MOST = {"run": 4, "permeability": 6, "prepare": 6, "compiler": 6, "checkpoint": 8}


def interrupted_at(numbers, points, one, comm):
    """Call with a signal at some points, on the last rank; return how many were lost."""
    lost = 0
    is_mine = comm is None or comm.rank == comm.size - 1
    for number in numbers:
        if comm is not None:
            comm.Barrier()
        if is_mine:
            lost += not points.run(one.call, number) and points.count > number
        else:
            with contextlib.suppress(KeyboardInterrupt):  # where all ranks end
                one.call()
        one.check()
    return lost


def try_points(name, comm, folder, most, every=False):
    one, points = KINDS[name](name, comm, folder), Points(every, begun=comm is not None)
    with plain_handler():
        one.call()
        points.run(one.call)
        count = points.count if comm is None else comm.bcast(points.count, comm.size - 1)
        numbers = spread(count, most)
        lost = interrupted_at(numbers, points, one, comm)
    # Python ignores what is raised where an object is deleted.
    assert lost <= 0.1 * len(numbers)


@pytest.mark.slow
@pytest.mark.parametrize("name", COLLECTIVE)
def test_a_signal_at_any_point_leaves_all_usable(name, comm, shared_folder, monkeypatch):
    monkeypatch.setenv("SLIPSTREAM_TIMEOUT", "60")
    try_points(name, comm, shared_folder, MOST.get(name, 25))


@pytest.mark.one_rank
@pytest.mark.slow
@pytest.mark.parametrize("name", THREADS)
def test_a_signal_costs_no_thread_a_lock(name, tmp_path):
    try_points(name, None, tmp_path, MOST.get(name, 25))


@pytest.mark.one_rank
@pytest.mark.thorough
@pytest.mark.parametrize("name", ["forward", "async", "pool", "queue"])
def test_a_signal_at_each_operation_leaves_all_usable(name, tmp_path):
    try_points(name, None, tmp_path, 10**6, every=True)


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*KINDS])
def test_signals_at_random_moments_leave_all_usable(name, comm, shared_folder, monkeypatch):
    if comm is not None and name in THREADS:
        return
    monkeypatch.setenv("SLIPSTREAM_TIMEOUT", "60")
    one, draw = KINDS[name](name, comm, shared_folder), random.Random(5)
    is_mine = comm is None or comm.rank == comm.size - 1
    enter, timers, delays = SignalHold.__enter__, [], []

    def enter_and_start(hold):
        enter(hold)
        if delays and hold.depth:
            timers.append(interrupt_after(delays.pop()))

    monkeypatch.setattr(SignalHold, "__enter__", enter_and_start)
    with plain_handler():
        one.call()
        began = time.perf_counter()
        one.call()
        seconds = time.perf_counter() - began
        several, raised = 15 if seconds > 0.2 else 80, 0
        for _ in range(several if comm is None else comm.bcast(several)):
            if comm is not None:
                comm.Barrier()
            try:
                if comm is None:
                    timers.append(interrupt_after(draw.uniform(0, 1.2 * seconds)))
                elif is_mine:  # other ranks would be in a call that this one has not begun
                    delays.append(draw.uniform(0, 1.2 * seconds))
                one.call()
                if timers:
                    timers[-1].join()
                    time.sleep(0.001)  # where the signal is handled at last
            except KeyboardInterrupt:
                raised += 1
                assert is_mine or name in ("run", "step", "permeability")  # where all ranks end
            one.check()
    assert raised > 0.9 * several or not is_mine


@pytest.mark.one_rank
def test_a_second_interrupt_ends_a_step_where_it_waits_and_the_fields_are_refused(monkeypatch):
    sim = ss.Turbulence(points=N, viscosity=0.02, initial="taylor-green", step=0.01, device="cpu")
    sim.step()
    monkeypatch.setattr(stop_signals, "SECONDS_OF_ONE_REQUEST", 0.0)
    seen = []

    def advance(*_):
        signal.raise_signal(signal.SIGINT)
        seen.append("the first waits")
        signal.raise_signal(signal.SIGINT)
        seen.append("so does the second")
        signals_held.wait(lambda seconds: False)

    with plain_handler(), monkeypatch.context() as patched:
        patched.setattr(sim.solver, "_advance", advance)
        with pytest.raises(KeyboardInterrupt):
            sim.step()
    assert seen == ["the first waits", "so does the second"]
    for use in (sim.step, lambda: sim.fields["velocity"][...], lambda: sim.diagnostics):
        with pytest.raises(RunError, match="make the simulation again, or restart it"):
            use()


@pytest.mark.one_rank
def test_a_wait_for_an_asynchronous_transform_can_be_interrupted(monkeypatch):
    plan, begun, go_on = (
        DistributedFFT((N,) * 3, device="cpu"),
        threading.Event(),
        threading.Event(),
    )
    u = points_of(plan, 2)
    expected, run = plan.forward(u), plan._run

    def late(*arguments):
        begun.set()
        go_on.wait(60)
        return run(*arguments)

    with plain_handler(), monkeypatch.context() as patched:
        patched.setattr(plan, "_run", late)
        pending = plan.forward_async(u)
        begun.wait(60)
        timer = interrupt_after(0.05)
        with pytest.raises(KeyboardInterrupt):
            pending.wait()
        timer.join()
        go_on.set()
        np.testing.assert_array_equal(pending.wait(), expected)


@pytest.mark.one_rank
def test_the_alarm_of_a_program_waits_for_the_end_of_a_transform():
    plan = DistributedFFT((N,) * 3, device="cpu")
    u = points_of(plan, 3)
    expected = plan.forward(u)

    def ring(number, frame):
        raise TimeoutError("the program's own limit")

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(TimeoutError, match="own limit"), signals_held:
            signal.raise_signal(signal.SIGALRM)
            np.testing.assert_array_equal(plan.forward(u), expected)
        assert signal.getsignal(signal.SIGALRM) is ring
    finally:
        signal.signal(signal.SIGALRM, before)
    np.testing.assert_array_equal(plan.forward(u), expected)


@pytest.mark.one_rank
def test_a_handler_that_a_callback_sets_stays():
    before = signal.getsignal(signal.SIGINT)
    try:
        with signals_held:
            mine = lambda number, frame: None  # noqa: E731
            signal.signal(signal.SIGINT, mine)
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, before)
