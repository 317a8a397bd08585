"""Tiers of the suite: what `make quick`, `make test` and `make test-all` run, by measured cost.

A test without a mark costs less than `QUICK_SECONDS` of CPU time once its kernels are compiled, and
is in every tier. Marks say the rest:

- `slow` tests cost more; `make quick` leaves them out;
- `samples(n)` tests show one thing with many parameters; `make test` runs n of them, spread evenly;
- `thorough` tests are for `make test-all` only;
- `mpi` tests start ranks; `make quick` leaves them out.

With ``--costs FILE``, the CPU seconds of each test are written to a file, and tests whose marks do
not fit their cost are listed. The first run after a change of kernels compiles: take the second.
"""

import json
import os
from collections import defaultdict

import pytest

QUICK_SECONDS = 0.3
# Costs vary between runs: only those far beyond the limit are listed.
_MARGIN = 1.5
_COST = "cpu seconds"
TIERS = ("quick", "test", "beyond-quick", "beyond-test", "all")


def add_options(parser):
    parser.addoption(
        "--tier",
        choices=TIERS,
        default="all",
        help="which tests run: those of `make quick`, of `make test`, the others, or all (default)",
    )
    parser.addoption("--costs", metavar="FILE", help="write the CPU seconds of each test")


def is_in_tier(item, tier, sampled):
    """Return whether a tier runs a test; `sampled` are those whose parameters `make test` takes."""
    marked = {mark.name for mark in item.iter_markers()}
    in_test = "thorough" not in marked and item in sampled
    in_quick = in_test and not marked & {"slow", "mpi"}
    # Beyond a tier, Hypothesis draws new examples also for tests that belong to it.
    again = _draws_examples(item)
    return {
        "quick": in_quick,
        "test": in_test,
        "beyond-quick": again or not in_quick,
        "beyond-test": again or not in_test,
        "all": True,
    }[tier]


def _draws_examples(item):
    return hasattr(getattr(item, "obj", None), "hypothesis")


def take_samples(items):
    """Return the set of those tests that `samples` leaves in `make test`."""
    chosen, sets = set(), defaultdict(list)
    for item in items:
        if mark := item.get_closest_marker("samples"):
            sets[item.nodeid.partition("[")[0], mark.args[0]].append(item)
        else:
            chosen.add(item)
    for (_, count), variants in sets.items():
        last = len(variants) - 1
        steps = max(1, min(count, len(variants)) - 1)
        chosen.update(variants[round(i * last / steps)] for i in range(min(count, last + 1)))
    return chosen


def cpu_seconds():
    """Return the CPU seconds of this process and of all that it has started and awaited."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class CostRecorder:
    """A plugin that measures each test with its fixtures, and lists marks that do not fit."""

    def __init__(self, config):
        self._file = config.getoption("--costs")
        self._is_worker = hasattr(config, "workerinput")
        self._began, self._costs, self._marks = 0.0, {}, {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item):
        self._began = cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item):
        result = yield
        marks = [mark.name for mark in item.iter_markers()]
        item.user_properties.append((_COST, (cpu_seconds() - self._began, marks)))
        return result

    def pytest_runtest_logreport(self, report):
        for name, value in report.user_properties if report.when == "teardown" else ():
            if name == _COST:
                self._costs[report.nodeid], self._marks[report.nodeid] = value

    def pytest_terminal_summary(self, terminalreporter):
        if self._is_worker:
            return
        with open(self._file, "w") as file:
            json.dump(self._costs, file, indent=0)
        lines = list(self._misfits())
        if lines:
            terminalreporter.section("tests whose marks do not fit their cost")
            for line in lines:
                terminalreporter.write_line(line)

    def _misfits(self):
        functions = defaultdict(list)
        for name in self._costs:
            functions[name.partition("[")[0]].append(name)
        for function, names in sorted(functions.items()):
            marks = {mark for name in names for mark in self._marks[name]}
            most = max(self._costs[name] for name in names)
            if not marks & {"slow", "thorough", "mpi"} and most > _MARGIN * QUICK_SECONDS:
                yield f"{function} takes {most:.1f} s: mark it slow"
            if "slow" in marks and most < QUICK_SECONDS / _MARGIN:
                yield f"{function} takes {most:.2f} s: it need not be marked slow"
