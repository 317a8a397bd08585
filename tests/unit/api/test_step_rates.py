"""Rates explain the seconds of steps, in cache and beyond."""

import dataclasses

import pytest

from slipstream.api.forecast import load_machine, step_rates, step_time
from slipstream.runs.step_price import StepCounts

CACHES = {"cache_mib": (1.0, 16.0, 64.0), "cache_gb_per_s": (80.0, 40.0, 20.0)}
KNOWN = {"launch_us": 3.0, "step_us": 20.0, "transform_us": 50.0, "issue_us": 9.0}
KNOWN |= {"share_of_bound": 0.25, "spectral_cached_gb_per_s": 8.0}
KNOWN |= {"transform_share": 0.3, "transform_cached_gb_per_s": 10.0}
KNOWN |= {"lattice_share": 0.5, "lattice_cached_gb_per_s": 30.0}
KNOWN |= {"advection_share": 0.4, "advection_cached_gb_per_s": 12.0}


@pytest.fixture
def machine():
    found = load_machine("h200-nvl8-ib")
    device = found.device.model_copy(update=CACHES | KNOWN | {"copy_gb_per_s": 18.0})
    return found.model_copy(update={"device": device})


def counts(family, size, launches, starts=1.0):
    return StepCounts(
        family=family,
        ranks=1,
        ranks_of_node=1,
        devices_of_rank=1,
        fields_bytes=size,
        is_overlapped=True,
        memory_bytes=4 * size * starts,
        launches=launches * starts,
        working_set=size,
        starts=starts,
    )


def test_rates_explain_the_seconds_that_they_made(machine):
    pairs = dict.fromkeys(("spectral", "transform", "lattice", "advection"), (1, 2))
    steps = {}
    for family in pairs:
        steps[family, 1] = counts(family, 3 << 20, 20)
        # A large pass of advection takes two steps.
        steps[family, 2] = counts(family, 200 << 20, 500, 0.5 if family == "advection" else 1.0)
    steps[step_rates._MANY] = counts("spectral", 1 << 14, 40)
    steps[step_rates._ONE] = counts("advection", 1 << 13, 1)
    steps[step_rates._CALL] = counts("transform", 1 << 13, 3)
    seconds = {key: step_time(one, machine).total for key, one in steps.items()}
    issued = dataclasses.replace(steps[step_rates._MANY], is_issued=True)
    seconds["issued"] = step_time(issued, machine).total
    assert step_rates._explained(machine.device, pairs, steps, seconds) == pytest.approx(
        KNOWN, rel=0.02
    )


def test_what_misses_caches_grows_with_the_arrays(machine):
    sizes = [1e3, 1 << 20, 8 << 20, 16 << 20, 50 << 20, 64 << 20, 1e12]
    missed = [machine.device.missed(size) for size in sizes]
    assert missed == sorted(missed) and missed[:2] == [0, 0] and missed[-2:] == [1, 1]
    # A copy of 16 MiB takes twice as long as the fastest: (1/40 - 1/80) / (1/18 - 1/80).
    assert missed[3] == pytest.approx(18 / 62)
    seconds = [machine.device.pass_seconds("lattice", 1e9, size, 1e9) for size in sizes]
    assert seconds[0] == pytest.approx(1 / 30) and seconds[-1] == pytest.approx(1 / 9)


def test_without_caches_a_pass_takes_its_share_of_a_copy():
    device = load_machine("summit").device
    assert device.pass_seconds("spectral", 1e9, 1.0, 2e9) == pytest.approx(1 / (800 * 0.7))
