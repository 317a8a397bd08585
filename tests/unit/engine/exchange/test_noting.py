"""Steps that are only noted: the nodes of real ones, in no memory, for any number of ranks."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows import MHD, make_case, start
from slipstream.api.forecast import load_machine
from slipstream.api.forecast.noted_steps import bytes_of_step, note_spectral
from slipstream.engine.decomposition import Box
from slipstream.engine.device import HostDevice, address_of
from slipstream.engine.device.noting_device import CACHE, DEVICE, HOST, NotingDevice, place_of
from slipstream.engine.exchange import RankPlace
from slipstream.engine.exchange.exchange_plan import Block, ranges_of, views_of_ranges
from slipstream.engine.exchange.noting_transport import noting_transport
from slipstream.engine.fft import SlabGeometry
from slipstream.engine.schedule import StepGraph
from slipstream.engine.step_walk import traffic_of
from slipstream.spectral.kept_modes import DEALIASING
from slipstream.spectral.memory_placement import crossings
from slipstream.spectral.problem_of_case import problem_of_case

MACHINE = load_machine("h200-nvl8-ib")
MODELS = {
    "hd": (),
    "mhd": MHD,
    "rk4": ("time.integrator=rk4",),
    "explicit": ("numerics.integrating_factor=false",),
    "hyperviscous": ("equation.viscosity_power=2", "equation.viscosity=0.001"),
    "shifted": ("numerics.dealiasing=phase-shift", "time.integrator=rk4"),
    "driven": ('forcing={ kind = "random", amplitude = 0.5, shells = [1, 2] }',),
    "odd": ("grid.points=[22, 26, 13]",),
}
STREAMED = ("run.residency=host", "run.streaming={ tiles = 3, resident = false }")


def cpus(ranks=1):
    device = MACHINE.device.model_copy(update={"kind": "cpu"})
    return MACHINE.model_copy(update={"device": device, "devices_per_node": ranks})


def seen(nodes):
    return [(node.label, node.category, node.lane, list(node.dependencies)) for node in nodes]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_noted_nodes_are_those_of_a_run(model, streams):
    settings = ("grid.points=[12, 10, 14]", *MODELS[model], *(STREAMED if streams else ()))
    case = make_case(*settings)
    flow = start(HostDevice(threads=1), *settings).flow
    real = flow.record_step(begins=not flow.passes.goes_ahead)
    noted = note_spectral(case, cpus(), 1)
    assert seen(noted.nodes) == seen(real.nodes)
    # Nodes of a run keep no array only to be counted.
    assert not any(node.reads or node.writes for node in real.nodes)
    assert traffic_of(noted.nodes, noted.place).host_bytes > 0


@pytest.mark.parametrize("dealiasing", DEALIASING)
def test_what_gpus_do_is_noted_without_one(dealiasing):
    case = make_case("grid.points=32", f"numerics.dealiasing={dealiasing}", "time.integrator=rk4")
    noted = note_spectral(case, MACHINE, 1)
    found = traffic_of(noted.nodes, noted.place)
    assert found.launches == len(noted.nodes) and not found.host_calls
    assert found.memory_bytes > 0 and not (found.bus_in_bytes or found.host_bytes)


def test_a_step_moves_what_its_five_kernels_must():
    """Backward z and y of the inputs, x with the product, forward y and z, and the update."""
    case = make_case("grid.points=128", "time.integrator=rk2")
    g = problem_of_case(case, 0, 1, 128).problem.geometry
    (kz, ky, kx), nz, ny = g.spectral_shape, 128, 128
    inputs, products, states = 3, 5, 6
    spectral, columns, rows = kz * ky * kx, nz * ky * kx, nz * ny * kx
    elements = inputs * (spectral + 2 * columns + 2 * rows) + products * (2 * rows + 2 * columns)
    elements += 2 * products * spectral + states * spectral
    moved = bytes_of_step(case, problem_of_case(case, 0, 1, 128).problem, "gpu")
    # Rows are padded, and a few small tables are read.
    assert 2 * 16 * elements < moved < 1.15 * 2 * 16 * elements


@pytest.mark.samples(6)
@pytest.mark.parametrize("update", ["device", "host"])
@pytest.mark.parametrize("model", MODELS)
def test_what_crosses_the_bus_is_what_a_run_announces(model, update):
    how = f'run.streaming={{ tiles = 3, update = "{update}", resident = false }}'
    case = make_case("grid.points=[12, 10, 14]", *MODELS[model], "run.residency=host", how)
    found = [note_spectral(case, MACHINE, 2, rank) for rank in range(2)]
    for rank, noted in enumerate(found):
        traffic = traffic_of(noted.nodes, noted.place)
        problem = problem_of_case(case, rank, 2, 128).problem
        assert (traffic.bus_in_bytes, traffic.bus_out_bytes) == crossings(problem, update)


@pytest.mark.parametrize("residency", ["device", "host"])
def test_a_rank_of_many_notes_few_views(residency):
    """With as many planes for each, a rank of many has few nodes, and these access few views."""

    def accesses(ranks):
        case = make_case(
            f"grid.points=[16, 16, {2 * ranks}]", f"run.residency={residency}", "time.end=1e6"
        )
        nodes = note_spectral(case, MACHINE, ranks).nodes
        return len(nodes), sum(len(node.reads) + len(node.writes) for node in nodes)

    (few_nodes, few), (nodes, many) = accesses(64), accesses(512)
    assert nodes == few_nodes
    assert many <= 1.5 * few


def test_arrays_have_addresses_of_their_own_and_no_memory():
    device = NotingDevice("cuda")
    arrays = [device.empty((1 << 20, 1 << 20), "complex128") for _ in range(3)]
    arrays += [device.pinned((5,), "int8"), device.home.in_cache((7,), "float32")]
    ends = sorted((address_of(one), address_of(one) + one.nbytes) for one in arrays)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(ends))
    places = [place_of(one) for one in arrays]
    assert places == [DEVICE] * 3 + [HOST, CACHE]
    assert place_of(arrays[0][5:, ::2]) == DEVICE
    arrays[0][...] = 1
    with pytest.raises(TypeError, match="no memory"):
        arrays[0] + 1


@given(st.data())
def test_views_of_ranges_cover_them_once(data):
    gaps = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=12))
    blocks, offset = [], 0
    for gap, count in gaps:
        offset += gap
        blocks.append(Block(0, Box((0,), (count,)), offset, count))
        offset += count
    array = np.zeros(offset + data.draw(st.integers(0, 3)), int)
    expected = array.copy()
    for block in blocks:
        expected[block.offset : block.offset + block.count] += 1
    views = views_of_ranges(array, ranges_of(blocks))
    for view in views:
        assert np.shares_memory(view, array)
        view += 1
    assert np.array_equal(array, expected)


@pytest.mark.parametrize("ranks", [1, 5, 7, 40])
def test_runs_of_blocks_are_all_blocks(ranks):
    modes = SlabGeometry((30, 24, 9), tuple(_all_modes(n) for n in (30, 24, 5)), 0, ranks)
    for apart in (None, 0, ranks - 1):
        blocks = [
            (start, size)
            for rank, (start, size) in enumerate(modes.packed_blocks(3))
            if size and rank != apart
        ]
        actual = [
            (start + 3 * size * n, size)
            for start, size, count in modes.packed_runs(3, apart)
            for n in range(count)
        ]
        assert actual == blocks
        assert len(modes.packed_runs(3, apart)) <= 3


def _all_modes(count):
    from slipstream.engine.fft import Modes

    return Modes(count, count, 0)


@pytest.mark.parametrize("name", ["peer", "nccl", "mpi-p2p", "mpi", "mpi-hierarchical"])
def test_transports_note_what_leaves_a_rank(name):
    """Four ranks on two nodes send each other blocks of one, two, three and four numbers."""
    from slipstream.engine.exchange import ExchangePlan

    rank_place, device = RankPlace(1, 4, 2), NotingDevice("cuda")
    blocks, offset = [], 0
    for peer in range(4):
        blocks.append(Block(peer, Box((offset,), (offset + peer + 1,)), offset, peer + 1))
        offset += peer + 1
    plan = ExchangePlan(1, tuple(blocks), tuple(blocks), offset, offset)
    transport = noting_transport(name, rank_place, device)
    pair = transport.empty((offset,), "float64"), transport.empty((offset,), "float64")
    exchange = transport.prepare(plan, [pair])
    graph = StepGraph(device)
    exchange.record_open(graph, "test")
    exchange.record_close(graph, "test")
    actual = traffic_of(graph.nodes, rank_place)
    near = actual.in_node_bytes, actual.in_node_messages
    far = actual.off_node_bytes, actual.off_node_messages
    if name == "mpi-hierarchical":
        # The second rank of a node carries nothing, as there is one other node.
        assert far == (0, 0) and actual.relayed_bytes == near[0] - 8
    else:
        assert near == (8, 1) and far == (8 * (3 + 4), 2)
    crossing = 8 * (1 + 3 + 4) if name.startswith("mpi") else 0
    assert (actual.bus_in_bytes, actual.bus_out_bytes) == (crossing, crossing)
    assert actual.is_from_host == name.startswith("mpi")
