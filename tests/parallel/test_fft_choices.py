"""Free choices do not change a transform: transports, schedules, divisions."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fft_cases import alike, bricks, together
from fft_oracle import Oracle, check
from slipstream.engine.fft.fft_plan import Choices, Plan, SlabOptions
from slipstream.engine.schedule import POLICIES, StepGraph, commit
from slipstream.fft import DistributedFFT

SHAPE = (13, 12, 10)
DIVISIONS = [
    {},
    {"layout": "pencil", "order": "natural"},
    {"layout": "root"},
    {"layout": "slab", "order": "natural", "truncation": "2/3"},
    {"truncation": "2/3"},
]


# How blocks travel does not depend on the type of what they hold.
@pytest.mark.parametrize(
    ("division", "dtype"),
    list(zip(DIVISIONS, itertools.cycle(["float64", "complex64"]))),
    ids=lambda one: one if isinstance(one, str) else " ".join(one.values()),
)
def test_transports_and_schedules_give_the_same_bits(comm, device, transports, dtype, division):
    results = [
        check(comm, device, SHAPE, dtype, 2, transport=transport, schedule=schedule, **division)
        for transport in ("auto", *transports)
        for schedule in POLICIES
    ]
    for forward, backward in results[1:]:
        assert forward.tobytes() == results[0][0].tobytes()
        assert backward.tobytes() == results[0][1].tobytes()


@alike(examples=4)
@given(data=st.data())
def test_transports_give_the_same_bits_for_bricks(comm, device, ranks, transports, data):
    boxes = {
        "input_boxes": data.draw(bricks(SHAPE, ranks)),
        "output_boxes": data.draw(bricks((13, 12, 6), ranks)),
    }
    results = [
        together(comm, check, comm, device, SHAPE, "float64", transport=name, **boxes)
        for name in ("auto", *transports)
    ]
    for result in results[1:]:
        assert [part.tobytes() for part in result] == [part.tobytes() for part in results[0]]


def run_plan(comm, fft, choices, oracle, schedule):
    """Transform by explicit choices; return this rank's results of both directions."""
    device = fft.device
    plan = Plan(fft.arguments, device, comm, choices)
    points, modes = device.array(oracle.input(fft)), device.array(oracle.output(fft))
    results = fft.empty_output(), fft.empty_input()
    record = plan.record_forward, plan.record_backward
    for way, source, target in zip(record, (points, modes), results, strict=True):
        graph = StepGraph(device)
        batch = (lambda a: a) if oracle.fields > 1 else (lambda a: a[None])
        way(graph, batch(source), batch(target))
        step = commit(graph, schedule)
        for _ in range(3):
            target[...] = np.nan
            step.run()
            device.synchronize()
    return results


OPTIONS = st.builds(
    SlabOptions,
    # More chunks than there are modes along x, and than planes.
    kx_chunks=st.sampled_from([1, 2, 3, 5, 100]),
    plane_chunks=st.sampled_from([1, 2, 4, 50]),
    store=st.booleans(),
    tiled=st.booleans(),
)


@pytest.mark.slow
@alike(examples=18)
@given(data=st.data())
def test_slab_options_do_not_change_the_result(comm, device, ranks, transports, data):
    shape = data.draw(st.sampled_from([(12, 17, 10), (5, 12, 9), (1, 5, 12), (17, 1, 3)]))
    dtype = data.draw(st.sampled_from(["float64", "complex64"]))
    truncation, fields = data.draw(st.sampled_from([None, "2/3"])), data.draw(st.integers(1, 2))
    name = data.draw(st.sampled_from(transports)) if transports else "none"
    options = data.draw(OPTIONS)
    choices = Choices(name, ranks, options)
    schedule = data.draw(st.sampled_from(POLICIES))
    fft = DistributedFFT(
        shape, dtype, comm=comm, device=device, fields=fields, truncation=truncation
    )
    oracle = Oracle(shape, dtype, fields, truncation)

    def test():
        modes, points = run_plan(comm, fft, choices, oracle, schedule)
        oracle.assert_modes(fft, modes)
        oracle.assert_points(fft, points)

    together(comm, test)


def test_parts_of_a_communicator_transform_on_their_own(comm, device, ranks, transports):
    if ranks < 2:
        pytest.skip("needs several ranks")
    # Two groups, of even and of odd ranks, each in reversed order.
    odd = comm.rank % 2
    part = comm.Split(odd, -comm.rank)
    shape = (12, 5, 9) if odd else (5, 12, 7)
    for transport in ("auto", *transports):
        check(part, device, shape, "float64", transport=transport)
        check(part, device, shape, "complex64", layout="pencil", transport=transport)
    # The whole continues as before.
    check(comm, device, SHAPE, "float64")
    part.Free()


def test_plans_that_live_together_do_not_disturb_each_other(comm, device, transports):
    names = ("auto", *transports)
    cases = [((5, 12, 9), "float64"), ((12, 5, 9), "complex64"), ((5, 12, 9), "float64")]
    cases = [(*case, names[number % len(names)]) for number, case in enumerate(cases * 2)]
    plans = [
        (
            DistributedFFT(shape, dtype, comm=comm, device=device, transport=name),
            Oracle(shape, dtype, seed=number),
        )
        for number, (shape, dtype, name) in enumerate(cases)
    ]
    for _ in range(3):
        modes = [fft.forward(oracle.input(fft)) for fft, oracle in plans]
        points = [fft.backward(one) for (fft, _), one in zip(plans, modes, strict=True)][::-1]
        for (fft, oracle), one, other in zip(plans, modes, points[::-1], strict=True):
            oracle.assert_modes(fft, one)
            oracle.assert_points(fft, other)


def test_plans_end_while_others_go_on(comm, device):
    survivor, oracle = DistributedFFT(SHAPE, comm=comm, device=device), Oracle(SHAPE, "float64")
    expected = device.to_host(survivor.forward(oracle.input(survivor)))
    for number in range(4):
        check(comm, device, (5 + number, 12, 9), "complex128")
        result = device.to_host(survivor.forward(oracle.input(survivor)))
        assert result.tobytes() == expected.tobytes()
