"""Committed steps: every policy gives the bits of the serial one, and failures are named."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.device import HostDevice
from slipstream.errors import InputError, RunError
from slipstream.schedule import POLICIES, StepGraph, commit

SLOTS, LENGTH = 6, 8


def device_of(threads):
    """Return a device of so many threads, and lanes for chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", str(threads))
        return HostDevice()


# With one lane and with several, `serial` is done by different classes.
DEVICES = [device_of(1), device_of(3)]
DEVICE = DEVICES[1]


class FakeTransfer:
    """Copies when it completes: whoever touches its arrays before shows in the result."""

    def __init__(self, pairs, polls=0, ordered=False, log=None, name=None):
        self.pairs, self.polls, self.ordered = pairs, polls, ordered
        self.log, self.name, self.left = [] if log is None else log, name, None

    def start(self):
        self.log.append(("start", self.name))
        self.left = self.polls
        for _, target in self.pairs:
            target[...] = np.nan

    def test(self):
        if self.left == 0:
            self.wait()
            return True
        self.left -= 1
        return False

    def wait(self):
        assert self.left is not None, "waited for before it was started"
        self.left = None
        self.log.append(("stop", self.name))
        for source, target in self.pairs:
            target[...] = source


def mix(number, reads, writes, pause):
    """Return an operation whose result depends on all it reads and on what it overwrites."""

    def operation(stream):
        time.sleep(pause)  # lets the other lanes run ahead, if they do not wait
        total = sum((np.sin(a.sum()) for a in reads), start=float(number))
        for i, target in enumerate(writes):
            target *= 0.5
            target += np.cos(total + i)

    return operation


SLICES = st.sampled_from([slice(None), slice(0, 4), slice(4, 8), slice(0, 8, 2), slice(1, 8, 2)])
VIEWS = st.tuples(st.integers(0, SLOTS - 1), SLICES)
OPERATIONS = st.fixed_dictionaries(
    {
        "reads": st.lists(VIEWS, max_size=3),
        "writes": st.lists(VIEWS, min_size=1, max_size=2, unique_by=lambda view: view[0]),
        "lane": st.sampled_from(["compute", "compute 1", "compute 2", "copy out"]),
        "pause": st.sampled_from([0, 0, 1e-4]),
    }
)
TRANSFERS = st.fixed_dictionaries(
    {
        "slots": st.permutations(range(SLOTS)),
        "where": SLICES,
        "polls": st.integers(0, 6),
        "ordered": st.booleans(),
    }
)


def build(device, recipes, memory, log):
    """Record the recipes on memory[slot, element]."""
    graph = StepGraph(device)
    for number, recipe in enumerate(recipes):
        if "slots" in recipe:
            source, target = (memory[slot, recipe["where"]] for slot in recipe["slots"][:2])
            pairs = [(source, target)]
            transfer = FakeTransfer(pairs, recipe["polls"], recipe["ordered"], log, number)
            graph.add_transfer(transfer, reads=[source], writes=[target], label=str(number))
            continue
        reads, writes = ([memory[view] for view in recipe[key]] for key in ("reads", "writes"))
        operation = mix(number, reads, writes, recipe["pause"])
        graph.add(operation, reads=[*reads, *writes], writes=writes, label=str(number),
                  category="compute", lane=recipe["lane"])  # fmt: skip
    return graph


def initial():
    return np.random.default_rng(0).standard_normal((SLOTS, LENGTH))


def in_order(recipes, runs):
    """Return the memory after plain loops over the recipes: no graph, no policy."""
    memory = initial()
    for _ in range(runs):
        for number, recipe in enumerate(recipes):
            if "slots" in recipe:
                source, target = (memory[slot, recipe["where"]] for slot in recipe["slots"][:2])
                target[...] = source
            else:
                reads, writes = ([memory[v] for v in recipe[key]] for key in ("reads", "writes"))
                mix(number, reads, writes, 0)(None)
    return memory


@settings(max_examples=150)
@given(st.lists(st.one_of(OPERATIONS, TRANSFERS), max_size=14), st.booleans())
def test_overlap_is_bitwise_serial(recipes, profile):
    """Also the second run, which must not begin before the first has ended."""
    expected = in_order(recipes, 2)
    for device, policy in itertools.product(DEVICES, POLICIES):
        memory, log = initial(), []
        step = commit(build(device, recipes, memory, log), policy)
        step.run(profile)
        step.run()
        assert memory.tobytes() == expected.tobytes()
        ordered = [n for n, recipe in enumerate(recipes) if recipe.get("ordered")]
        assert [n for kind, n in log if kind == "start" and n in ordered] == ordered * 2
        assert len(step.timeline.entries) == len(recipes) * profile


def test_transfers_complete_out_of_order_and_only_dependents_wait():
    a, b, c, d = (np.zeros(4) for _ in range(4))
    log, graph = [], StepGraph(DEVICE)
    slow = FakeTransfer([(a, b)], 9, False, log, "slow")
    quick = FakeTransfer([(c, d)], 0, False, log, "quick")
    graph.add_transfer(slow, reads=[a], writes=[b], label="slow")
    graph.add(lambda stream: log.append("after slow"), reads=[b], label="b", category="compute")
    graph.add_transfer(quick, reads=[c], writes=[d], label="quick")
    commit(graph, "overlap").run()
    assert log == [("start", "slow"), ("start", "quick"), ("stop", "quick"), ("stop", "slow"),
                   "after slow"]  # fmt: skip
    log.clear()
    commit(graph, "serial").run()
    assert log == [("start", "slow"), ("stop", "slow"), "after slow", ("start", "quick"),
                   ("stop", "quick")]  # fmt: skip


def test_ordered_transfers_start_in_recorded_order_even_if_a_later_one_is_ready_first():
    a, b, c, d, e = (np.zeros(4) for _ in range(5))
    log, graph = [], StepGraph(DEVICE)
    graph.add_transfer(FakeTransfer([(a, b)], 5, False, log, "x"), reads=[a], writes=[b], label="x")
    for name, source, target in (("first", b, c), ("second", d, e)):
        transfer = FakeTransfer([(source, target)], 0, True, log, name)
        graph.add_transfer(transfer, reads=[source], writes=[target], label=name)
    commit(graph, "overlap").run()
    assert [name for kind, name in log if kind == "start"] == ["x", "first", "second"]


def test_independent_work_runs_while_a_transfer_is_in_flight():
    """The transfer completes only once the operation has run: no other schedule could end."""
    a, b, c = (np.zeros(4) for _ in range(3))
    ran, graph = [], StepGraph(DEVICE)
    transfer = FakeTransfer([(a, b)])
    transfer.test = lambda: bool(ran)
    graph.add_transfer(transfer, reads=[a], writes=[b], label="send")
    graph.add(lambda stream: ran.append(1), writes=[c], label="work", category="compute")
    commit(graph, "overlap").run()
    assert ran == [1]


class Broken(FakeTransfer):
    """Fails when one of its methods is called."""

    def __init__(self, pairs, method):
        super().__init__(pairs)
        setattr(self, method, self.fail)

    def fail(self):
        raise ConnectionError("cable cut")


@pytest.mark.parametrize("device", DEVICES, ids=["one lane", "three lanes"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("lane", ["compute", "copy out"])
@pytest.mark.parametrize("failure", [ValueError("no luck"), InputError("no luck")])
@pytest.mark.parametrize("before_transfer", [True, False])
def test_failing_operation_is_named(device, policy, lane, failure, before_transfer):
    a, b, c = (np.zeros(4) for _ in range(3))
    graph, broken = StepGraph(device), [True]

    def operation(stream):
        if broken:
            raise failure

    if before_transfer:
        graph.add(operation, writes=[a], label="pack", category="pack", lane=lane)
    graph.add_transfer(FakeTransfer([(a, b)]), reads=[a], writes=[b], label="send")
    if not before_transfer:
        graph.add(operation, reads=[b], writes=[c], label="pack", category="pack", lane=lane)
    step = commit(graph, policy)
    with pytest.raises(RunError, match="node 'pack' \\(pack\\) failed: no luck"):
        step.run()
    broken.clear()
    step.run()  # what has been told is forgotten


@pytest.mark.parametrize("device", DEVICES, ids=["one lane", "three lanes"])
@pytest.mark.parametrize(
    ("policy", "method"),
    [("serial", "start"), ("serial", "wait"), ("overlap", "start"), ("overlap", "test")],
)
def test_failing_transfer_is_named(device, policy, method):
    a, b = np.zeros(4), np.zeros(4)
    graph = StepGraph(device)
    graph.add_transfer(Broken([(a, b)], method), reads=[a], writes=[b], label="send")
    with pytest.raises(RunError, match="node 'send' \\(communication\\) failed: cable cut"):
        commit(graph, policy).run()


def test_nothing_runs_any_more_when_a_failure_is_raised():
    """Who catches it may save what the arrays hold."""
    a, b, c = np.zeros(4), np.zeros(4), np.zeros(4)
    graph = StepGraph(DEVICE)

    def slowly(stream):
        time.sleep(0.05)
        a[...] = 1

    graph.add(slowly, writes=[a], label="work", category="compute")
    graph.add_transfer(Broken([(b, c)], "test"), reads=[b], writes=[c], label="send")
    with pytest.raises(RunError, match="'send'"):
        commit(graph, "overlap").run()
    assert (a == 1).all()


def test_unknown_policy_is_an_error_that_names_those_accepted():
    with pytest.raises(InputError, match="'eager' is unknown; accepted: serial, overlap"):
        commit(StepGraph(DEVICE), "eager")
