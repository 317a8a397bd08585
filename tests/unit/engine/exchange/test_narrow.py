"""A narrow wire: others' data are rounded once, as NumPy would; own data not at all."""

import gc
import time

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fake_transfer import DEVICES
from slipstream.engine.decomposition import slabs
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import ExchangePlan, Transport, part_of
from slipstream.engine.exchange.reduced_precision_wire import WIRES, NarrowWire
from slipstream.engine.exchange.transport_base import Exchange
from slipstream.engine.schedule import POLICIES, StepGraph, commit

POISON = 777 + 777j
TYPES = {"float32": np.complex64, "bfloat16": np.uint32}
WITH_BOTH_WIRES = pytest.mark.parametrize("wire", WIRES)


class Ranks:
    """The communicator of one process that plays the part of several; `others` adds to sums."""

    def __init__(self, others=0):
        self.others = others

    def allreduce(self, values):
        return values + self.others


class Loopback(Transport):
    """Notes sent data, and receives data from the test, both in packed arrays."""

    name = "loopback"

    def __init__(self, device, arriving=()):
        super().__init__(device)
        self.arriving, self.sent, self.made, self.checked = arriving, {}, [], 0

    def empty(self, shape, dtype):
        array = super().empty(shape, dtype)
        array.view(np.uint8)[...] = 0xAA
        self.made.append((shape, np.dtype(dtype)))
        return array

    def allocated_bytes(self, size):
        return 1000 + size

    def prepare(self, plan, pairs, whole=False):
        assert not whole, "own data are not in the narrow arrays"
        return Messages(self, plan, pairs)

    def check(self):
        self.checked += 1


class Messages(Exchange):
    """Moves narrow blocks when it is started, so that it must come at the right time."""

    ordered = False

    def __init__(self, transport, plan, pairs):
        super().__init__(transport.device, plan, pairs)
        self.transport = transport

    def _record_messages(self, graph, label):
        reads = [part_of(source, block) for source, _ in self.pairs for block in self.sends]
        writes = [part_of(target, block) for _, target in self.pairs for block in self.receives]
        graph.add_transfer(self, reads=reads, writes=writes, label=label)

    def start(self):
        for number, (source, target) in enumerate(self.pairs):
            for block in self.sends:
                self.transport.sent[number, block.offset] = part_of(source, block).copy()
            for block in self.receives:
                part_of(target, block)[...] = part_of(self.transport.arriving[number], block)

    def test(self):
        return True


def bits_of_bfloat16(values):
    """Return the nearer one of the two neighbours, the even one if neither is, of finite floats."""
    bits = values.astype(np.float32).view(np.uint32)
    lower = bits >> 16
    ends = [
        (half.astype(np.uint32) << 16).view(np.float32).astype(float) for half in (lower, lower + 1)
    ]
    # Beyond the largest number the grid continues, to where infinity stands.
    ends[1] = np.where(np.isinf(ends[1]), np.copysign(2.0**128, ends[1]), ends[1])
    below, above = (abs(end - values.astype(np.float32).astype(float)) for end in ends)
    up = (above < below) | ((above == below) & (lower % 2 == 1))
    return lower + up


def narrowed(values, wire):
    """Return complex numbers in the type of the wire."""
    if wire == "float32":
        return values.astype(np.complex64)
    halves = [bits_of_bfloat16(part).astype(np.uint32) for part in (values.real, values.imag)]
    return halves[0] | halves[1] << 16


def widened(narrow, wire):
    if wire == "float32":
        return narrow.astype(complex)
    parts = [
        (half.astype(np.uint32) << 16).view(np.float32).astype(float)
        for half in (narrow & 0xFFFF, narrow >> 16)
    ]
    return np.stack(parts, axis=-1).view(complex)[..., 0]


def numbers(shape, seed):
    """Return complex numbers of many magnitudes, within the range of the wires."""
    generator = np.random.default_rng(seed)
    values = generator.standard_normal((*shape, 2)) * 10.0 ** generator.integers(
        -30, 30, (*shape, 2)
    )
    return values.view(complex)[..., 0]


def exchanged(wire, device, plans, pairs, arriving, policy="serial", own=True, runs=1):
    """Exchange over a loopback, all plans in one graph; return the wire and what it was made of.

    Separate lanes make the sources before, and overwrite sources and targets afterwards: who
    does not wait for the other shows in the targets of the pairs.
    """
    inner = Loopback(device, arriving)
    transport = NarrowWire(inner, device, Ranks(), wire)
    graph = StepGraph(device)
    work = [(np.empty_like(source), np.empty_like(target)) for source, target in pairs]

    def add(lane, target, source):
        def copy(stream):
            time.sleep(2e-4)
            target[...] = source

        reads = [] if source is POISON else [source]
        graph.add(copy, reads=reads, writes=[target], label=lane, category="copy", lane=lane)

    for (source, target), (packed, received) in zip(pairs, work, strict=True):
        add("make", packed, source)
        add("make", received, target)
    for plan in plans:
        transport.prepare(plan, work, whole=own).record_close(graph, "send")
    for (_, target), (packed, received) in zip(pairs, work, strict=True):
        add("overwrite", packed, POISON)
        add("take", target, received)
        add("overwrite", received, POISON)
    step = commit(graph, policy)
    for _ in range(runs):
        step.run()
    return transport, inner, step


SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 40), st.integers(1, 60))
# Blocks of several rows of the kernels, which lanes divide.
LARGE = {"shape": (6, 60, 60), "ranks": 3, "rank": 1, "fields": 2, "own": True, "seed": 0}


@pytest.mark.slow
@settings(max_examples=60)
@given(
    wire=st.sampled_from(sorted(WIRES)),
    device=st.sampled_from(DEVICES),
    policy=st.sampled_from(POLICIES),
    shape=SHAPES,
    ranks=st.integers(1, 4),
    rank=st.integers(0, 3),
    parts=st.integers(1, 3),
    kept=st.integers(1, 3),
    fields=st.integers(1, 2),
    own=st.booleans(),
    seed=st.integers(0, 99),
)
@example(wire="float32", device=DEVICES[1], policy="overlap", parts=1, kept=1, **LARGE)
@example(wire="bfloat16", device=DEVICES[1], policy="serial", parts=2, kept=2, **LARGE)
@example(wire="bfloat16", device=DEVICES[0], policy="overlap", parts=3, kept=2, **LARGE)
def test_others_get_rounded_data_and_this_rank_its_own_bits(
    wire, device, policy, shape, ranks, rank, parts, kept, fields, own, seed
):
    """For every piece of a plan, and only the elements that the present pieces name."""
    plan = ExchangePlan.redistribution(
        slabs(shape, 0, ranks), slabs(shape, 1, ranks), min(rank, ranks - 1)
    )
    pieces = plan.split(parts)[:kept]
    sources = [numbers((plan.send_size,), seed + f) for f in range(fields)]
    theirs = [numbers((plan.receive_size,), seed + 50 + f) for f in range(fields)]
    targets = [np.full(plan.receive_size, POISON) for _ in range(fields)]
    expected = [target.copy() for target in targets]
    sent, lost, size = {}, 0.0, 0.0
    for number, (source, wanted) in enumerate(zip(sources, expected, strict=True)):
        for piece in pieces:
            for block in piece.sends:
                if block.peer != plan.rank:
                    values = part_of(source, block)
                    narrow = sent[number, block.offset] = narrowed(values, wire)
                    lost += (abs(values - widened(narrow, wire)) ** 2).sum()
                    size += (abs(values) ** 2).sum()
            for block in piece.receives:
                if block.peer != plan.rank:
                    there = narrowed(part_of(theirs[number], block), wire)
                    part_of(wanted, block)[...] = widened(there, wire)
                elif own:
                    (mine,) = [b for b in piece.sends if b.peer == plan.rank]
                    part_of(wanted, block)[...] = part_of(source, mine)
    arriving = [narrowed(values, wire) for values in theirs]
    before = [source.tobytes() for source in sources]
    pairs = list(zip(sources, targets, strict=True))
    transport, inner, _step = exchanged(wire, device, pieces, pairs, arriving, policy, own, runs=2)
    assert [target.tobytes() for target in targets] == [e.tobytes() for e in expected]
    assert [source.tobytes() for source in sources] == before
    assert inner.sent.keys() == sent.keys()
    assert all(inner.sent[key].tobytes() == values.tobytes() for key, values in sent.items())
    sums = transport.error_sums()
    np.testing.assert_allclose(sums.sum(axis=0), (lost, size), rtol=1e-12)
    ratios = [error / sent for error, sent in sums if sent]
    relative = transport.relative_error()
    assert relative == pytest.approx(max(ratios, default=0.0) ** 0.5, rel=1e-12)
    assert relative <= {"float32": 2.0**-24, "bfloat16": 2.0**-8}[wire]


def through(values, wire):
    """Return the elements that rank 0 of 2 would send of these numbers, and their error sums."""
    # All of the data go to the other rank, from which nothing comes.
    boxes = slabs((2, len(values)), 0, 2)
    plan = ExchangePlan.redistribution([boxes[0], boxes[1]], [boxes[1], boxes[0]], 0)
    target = np.full(plan.receive_size, POISON)
    arriving = [np.zeros(plan.receive_size, TYPES[wire])]
    transport, inner, _step = exchanged(wire, DEVICES[0], [plan], [(values, target)], arriving)
    return inner.sent[0, 0], tuple(transport.error_sums().sum(axis=0))


# Any bits are a number of double precision, or not a number.
DOUBLES = st.integers(0, 2**64 - 1).map(lambda bits: np.uint64(bits).view(np.float64).item())
# Close to the ties of bfloat16, and on them.
TIES = st.tuples(st.integers(0, 2**16 - 1), st.integers(-2, 2)).map(
    lambda t: float(np.array((t[0] << 16) + 0x8000 + t[1], np.uint32).view(np.float32))
)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(st.one_of(DOUBLES, TIES, st.floats(width=32)), min_size=2, max_size=40))
def test_every_number_is_rounded_to_the_nearest(values):
    """To zero and infinity too; not-a-number stays so, with its sign."""
    values = np.array(values[: len(values) // 2 * 2]).view(complex)
    parts = values.view(float)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        singles = parts.astype(np.float32)
    arrived, _ = through(values, "float32")
    np.testing.assert_array_equal(arrived.view(np.float32), singles)
    assert (np.signbit(arrived.view(np.float32)) == np.signbit(parts)).all()

    arrived, _ = through(values, "bfloat16")
    wide = widened(arrived, "bfloat16").view(float)
    finite = np.isfinite(singles)
    assert (
        bits_of_bfloat16(singles[finite]) == (wide[finite].astype(np.float32).view(np.uint32) >> 16)
    ).all()
    np.testing.assert_array_equal(wide[~finite], singles[~finite])
    assert (np.signbit(wide) == np.signbit(parts)).all()


@WITH_BOTH_WIRES
def test_what_is_not_a_number_shows_in_the_error(wire):
    for value in (np.nan, np.inf, -np.inf, 1e300):
        values = np.ones(3000, complex)
        values[1500] = 1j * value
        error, _ = through(values, wire)[1]
        assert not np.isfinite(error)


@WITH_BOTH_WIRES
@pytest.mark.parametrize("value", [1e-60, 1e-155, 1e-170, 1e-250, 5e-324])
def test_what_is_too_small_for_the_wire_is_lost_and_said_to_be(wire, value):
    """Also where the squares of all numbers are zero; a few larger ones make it negligible."""
    values = np.zeros(3000, complex)
    values[100::7] = value * (1 - 1j)
    for larger, expected in ((0.0, 1.0), (1.0, 0.0)):
        values[-1] = larger
        sent, (lost, size) = through(values, wire)
        assert not widened(sent, wire)[:-1].any()
        assert size > 0
        assert (lost / size) ** 0.5 == pytest.approx(expected, abs=1e-40)


@WITH_BOTH_WIRES
def test_what_the_wire_can_hold_is_exact(wire):
    values = np.array([0, -0.0, 1, -1.5j, 2.0**-126, 2.0**127, 3 + 5j], complex)
    sent, sums = through(values, wire)
    assert widened(sent, wire).tobytes() == values.tobytes()
    assert sums == (0, np.sum(abs(values) ** 2))


def plan_and_pair():
    """Return rank 0's plan of two, and arrays for it."""
    boxes = slabs((4, 6, 5), 0, 2), slabs((4, 6, 5), 1, 2)
    plan = ExchangePlan.redistribution(*boxes, 0)
    source, target = numbers((plan.send_size,), 0), np.full(plan.receive_size, POISON)
    return plan, source, target


@WITH_BOTH_WIRES
def test_every_array_has_one_narrow_array_which_the_inner_transport_makes(wire):
    plan, source, target = plan_and_pair()
    inner = Loopback(DEVICES[0], [np.zeros(plan.receive_size, TYPES[wire])])
    transport = NarrowWire(inner, DEVICES[0], Ranks(), wire)
    kept = [transport.prepare(piece, [(source, target)]) for piece in plan.split(2)]
    kept.append(transport.prepare(plan.reversed(), [(target, source)]))
    assert inner.made == [((source.size,), TYPES[wire]), ((target.size,), TYPES[wire])]
    assert transport.empty((2, 3), complex).shape == (2, 3)
    assert inner.made[2:] == [((2, 3), complex)]
    assert transport.allocated_bytes(96) == transport.pack_buffer_bytes(96) == 1096
    # Whoever can run an exchange keeps it; nobody else does.
    kept.clear()
    gc.collect()
    transport.prepare(plan, [(source, target)])
    assert len(inner.made) == 5


@WITH_BOTH_WIRES
def test_a_rank_whose_arrays_are_empty_makes_narrow_ones_together_with_the_others(wire):
    """The first time another rank needs one, the second time none does."""
    nothing = ExchangePlan(0, (), (), 0, 0)
    for others, made in ((1, 2), (0, 0)):
        inner = Loopback(DEVICES[0], [np.zeros(0, TYPES[wire])])
        transport = NarrowWire(inner, DEVICES[0], Ranks(others), wire)
        exchange = transport.prepare(nothing, [(np.zeros(0, complex), np.zeros(0, complex))])
        assert len(inner.made) == made
        graph = StepGraph(DEVICES[0])
        exchange.record_close(graph, "send")
        commit(graph).run()
        assert not transport.error_sums().any()


@WITH_BOTH_WIRES
def test_the_error_is_that_of_the_latest_run_of_all_ranks(wire):
    plan, source, target = plan_and_pair()
    arriving = [np.zeros(plan.receive_size, TYPES[wire])]
    transport, _, step = exchanged(wire, DEVICES[0], [plan], [(source, target)], arriving, runs=0)
    assert not transport.error_sums().any()
    assert transport.relative_error() == 0.0
    for seed in (1, 2):
        source[...] = numbers(source.shape, seed)
        step.run()
        (block,) = [block for block in plan.sends if block.peer == 1]
        sent = part_of(source, block)
        error = abs(widened(narrowed(sent, wire), wire) - sent)
        sums = (error**2).sum(), (abs(sent) ** 2).sum()
        np.testing.assert_allclose(transport.error_sums(), [sums], rtol=1e-12)
    ranks = Ranks(np.array([3 * sums[0], 0]))
    assert transport.relative_error(ranks) == pytest.approx(2 * transport.relative_error())
    del step
    gc.collect()
    assert not transport.error_sums().any()


def test_what_cannot_be_narrowed_is_refused():
    device = DEVICES[0]
    with pytest.raises(InputError, match="wire 'float16' is unknown; accepted: float32, bfloat16"):
        NarrowWire(Loopback(device), device, Ranks(), "float16")
    plan, source, target = plan_and_pair()
    transport = NarrowWire(Loopback(device), device, Ranks(), "bfloat16")
    assert transport.name == "loopback, bfloat16 on the wire"
    for pair in ((source.astype(np.complex64), target), (source, target.real.copy())):
        with pytest.raises(InputError, match="'bfloat16' narrows .* complex128, not"):
            transport.prepare(plan, [pair])
    transport.check()
    assert transport.inner.checked == 1
