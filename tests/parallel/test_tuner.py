"""The tuner: all ranks agree, slow candidates cost little, nothing is kept that is not needed."""

import gc
import itertools
import weakref
from dataclasses import dataclass

import pytest

from slipstream.engine import tuner
from slipstream.engine.errors import InputError


@dataclass(frozen=True)
class Way:
    width: int = 1
    depth: int = 1
    fast: bool = True


@pytest.fixture
def clock(monkeypatch):
    """A clock that only candidates advance; returns their `prepare`, and a list of calls."""

    class Clock:
        now = 0.0

        def perf_counter(self):
            return self.now

    rank_clock, runs = Clock(), []
    monkeypatch.setattr(tuner, "time", rank_clock)

    def of(seconds):
        def prepare(candidate):
            def action():
                runs.append(candidate)
                rank_clock.now += seconds[candidate]

            return action

        return prepare

    return of, runs


def test_slow_candidates_are_dropped_early_and_the_slowest_rank_counts(comm, clock):
    rank = 0 if comm is None else comm.rank
    seconds = {"usual": 0.01, "slow": 0.03, "hopeless": 0.2}
    seconds["bad on one rank"] = 0.2 if rank == 0 else 0.0
    of, runs = clock
    times = tuner.measure(lambda _: list(seconds), of(seconds), comm, "full")
    assert times.best() == "usual"
    assert times["bad on one rank"] == pytest.approx(0.2)
    assert (runs.count("usual"), runs.count("slow")) == (12, 4)
    assert runs.count("hopeless") == runs.count("bad on one rank") == 2
    if comm is not None:
        assert len({str(one) for one in comm.allgather(times)}) == 1


def test_nothing_is_begun_after_the_time_is_up(comm, clock, monkeypatch):
    monkeypatch.setattr(tuner, "SECONDS", {"quick": 0.1})
    monkeypatch.setattr(tuner, "BEST_TIMES", 1)
    times = tuner.measure(lambda _: range(100), clock[0]([0.02] * 100), comm)
    assert list(times) == [0, 1]


def test_what_one_rank_has_no_memory_for_is_left_out_on_all(comm):
    last = comm is None or comm.rank == comm.size - 1

    def prepare(candidate):
        if candidate == "large" and last:
            raise MemoryError("too large")
        return lambda: None

    times = tuner.measure(lambda _: ("large", "small"), prepare, comm)
    assert list(times) == ["small"]
    with pytest.raises(MemoryError if last else InputError):
        tuner.measure(lambda _: ("large",), prepare, comm)


def test_a_candidate_is_freed_before_the_next(comm):
    class Plan:
        def run(self):
            """Do nothing."""

    plans = []

    def prepare(_):
        assert not any(reference() for reference in plans)
        plan = Plan()
        plans.append(weakref.ref(plan))
        return plan.run

    gc.disable()
    try:
        tuner.measure(lambda _: range(3), prepare, comm)
    finally:
        gc.enable()
    assert len(plans) == 3


@pytest.mark.parametrize("tune", ["quick", "full"])
def test_options_are_varied_one_by_one_and_what_is_close_is_combined(tune):
    """Width and depth are both as good alone, but only together better; slow is bad always."""
    options = {"width": (1, 2), "depth": (1, 2), "fast": (True, False)}

    def seconds(way):
        return (
            0.5 if (way.width, way.depth) == (2, 2) else 1.0 + 0.1 * (way.width + way.depth)
        ) * (1 if way.fast else 9)

    times = tuner.Times()
    for way in tuner.variations(Way(), options, tune)(times):
        times[way] = seconds(way)
    singly = {Way(), Way(width=2), Way(depth=2), Way(fast=False)}
    combined = {Way(*one) for one in itertools.product((1, 2), (1, 2))}
    assert set(times) == (singly | combined if tune == "full" else singly)
    assert times.best() == (Way(2, 2) if tune == "full" else Way())
