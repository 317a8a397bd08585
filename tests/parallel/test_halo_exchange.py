"""Halos filled by every transport, against the periodic array by global index."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fft_cases import alike, together
from slipstream.engine.collective import own
from slipstream.engine.decomposition import PaddedBox, factorisations, grid_boxes
from slipstream.engine.exchange import HaloExchange, HaloPlan, make_transport
from slipstream.engine.exchange.peer_memory import SharedArrays
from slipstream.engine.exchange.peer_transport import PeerTransport
from slipstream.engine.schedule import StepGraph, commit

POISON = -1.0


class Halos:
    """Two arrays of a rank, whose halos can be filled."""

    def __init__(self, comm, device, transport, shape, grid, widths, dtype):
        self.comm, self.device, self.shape = comm, device, shape
        rank = 0 if comm is None else comm.rank
        boxes = grid_boxes(shape, grid)
        self.layouts = [PaddedBox(box, widths, 64 // np.dtype(dtype).itemsize) for box in boxes]
        self.layout = self.layouts[rank]
        empty = device.empty if transport is None else transport.empty
        self.arrays = [empty(self.layout.shape, dtype) for _ in range(2)]
        plan = HaloPlan.make(boxes, shape, widths, rank)
        self.exchange = HaloExchange(device, plan, self.layouts, self.arrays, transport)

    def prepare(self, number, seed):
        """Give an array new values, and no halo; return what it will be."""
        box, outer = self.layout.box, self.layout.box.grown(self.layout.halo)
        array, everything = self.arrays[number], np.random.default_rng(seed).random(self.shape)
        everything = everything.astype(array.dtype)
        expected = np.full(self.layout.shape, POISON, array.dtype)
        expected[self.layout.slices(box)] = everything[box.slices()]
        self.device.run(self.device.copy(array, expected))
        self.device.synchronize()
        if box.size:
            ranges = zip(outer.start, outer.stop, self.shape, strict=True)
            indices = [np.arange(start, stop) % n for start, stop, n in ranges]
            expected[self.layout.slices(outer)] = everything[np.ix_(*indices)]
        return array, expected


def fill(comm, device, several, number, policy, seed):
    """Fill one halo of each, all in one graph; return the arrays and the expected ones."""
    pairs = [halos.prepare(number, seed) for halos in several]
    if comm is not None:
        comm.Barrier()  # others store only after all values are set
    graph = StepGraph(device)
    for halos in several:
        halos.exchange.record(graph, number)
    step = commit(graph, policy)
    step.run()
    step.synchronize()
    return [(device.to_host(array).copy(), expected) for array, expected in pairs]


def check(comm, device, several):
    """Fill halos of both arrays a few times, by both policies."""
    rounds = [(0, "serial"), (1, "overlap"), (1, "serial"), (0, "overlap")]
    results = [fill(comm, device, several, *one, seed) for seed, one in enumerate(rounds)]
    # Who found a mistake earlier would leave the others waiting.
    for filled, expected in itertools.chain(*results):
        np.testing.assert_array_equal(filled, expected)


@st.composite
def cases(draw, ranks):
    shape = tuple(draw(st.tuples(*[st.integers(1, most) for most in (7, 7, 20)])))
    return {
        "shape": shape,
        "grid": draw(st.sampled_from(factorisations(ranks, 3))),
        "widths": tuple(draw(st.integers(0, min(n, 2))) for n in shape),
        "dtype": draw(st.sampled_from(["float32", "float64"])),
    }


def make_and_check(comm, device, name, **case):
    transport = make_transport(name, comm, device)
    check(comm, device, [Halos(comm, device, transport, **case)])


@alike(examples=20)
@given(data=st.data())
def test_halos_hold_the_points_of_the_periodic_array(comm, device, ranks, transports, data):
    """Faces, edges and corners, also of neighbours that are no neighbours but by the period."""
    case = data.draw(cases(ranks))
    name = data.draw(st.sampled_from(transports))
    together(comm, make_and_check, comm, device, name, **case)


REACHABLE = {
    "nobody else": lambda one, other: one == other,
    "ranks of the same parity": lambda one, other: (one + other) % 2 == 0,
    "everybody": lambda one, other: True,
}


@pytest.mark.parametrize("reachable", REACHABLE.values(), ids=REACHABLE)
def test_ranks_out_of_reach_take_another_transport(comm, device, ranks, reachable):
    if ranks == 1 or device.kind != "cpu":
        pytest.skip("needs several ranks on CPUs")

    def make_far():
        return make_transport("mpi-p2p", comm, device)

    mine = own(comm, "transport")
    memory = SharedArrays(mine, device, lambda r: reachable(comm.rank, r))
    transport = PeerTransport(mine, device, memory, make_far)
    for grid in factorisations(ranks, 3):
        halos = Halos(comm, device, transport, (5, 7, 12), grid, (1, 1, 1), "float64")
        together(comm, check, comm, device, [halos])


def test_exchanges_of_several_fields_in_one_graph_do_not_mix(comm, device, ranks, transports):
    grid = factorisations(ranks, 3)[0]
    for name in transports:
        transport = make_transport(name, comm, device)
        several = [
            Halos(comm, device, transport, shape, grid, (1, 1, 1), "float64")
            for shape in ((5, 7, 12), (4, 3, 9))
        ]
        together(comm, check, comm, device, several)
