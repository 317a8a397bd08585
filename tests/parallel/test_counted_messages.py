"""Messages that ranks really send, counted where MPI gets them, and those of noted steps."""

from collections import Counter

import numpy as np
import pytest

import lattice_flows
from flows import MHD, make_case
from slipstream.advection.advection_simulation import AdvectionSimulation
from slipstream.api.forecast import load_machine
from slipstream.api.forecast.noted_steps import note_advection, note_lattice, note_spectral
from slipstream.case import validate_case
from slipstream.engine.decomposition import Box
from slipstream.engine.device import HostDevice
from slipstream.engine.device.noting_device import NotingDevice
from slipstream.engine.exchange import RankPlace, mpi_transport
from slipstream.engine.exchange.transport_registry import world_ranks
from slipstream.engine.step_walk import traffic_of
from slipstream.lattice.domain_decomposition import crossing_links
from slipstream.lattice.storage_tuning import Share
from slipstream.spectral.spectral_simulation import SpectralSimulation

pytestmark = pytest.mark.several_ranks

BOX = ("grid.points=[20, 12, 18]", "time.end=100.0")


class CountedRequests:
    """Stands for `MPI.Prequest`: counts sends, by receiver and bytes, as they start."""

    def __init__(self, prequest, sent, known):
        self._prequest, self._sent, self._known = prequest, sent, known

    def Startall(self, requests):
        for request in requests:
            if id(request) in self._known:
                self._sent[self._known[id(request)]] += 1
        self._prequest.Startall(requests)


class CountedComm:
    """Stands for a communicator: notes its sends."""

    def __init__(self, comm, sent, known):
        self._comm, self._sent, self._known = comm, sent, known
        # Of a process grid it has some of the ranks.
        self._ranks = world_ranks(comm)
        # A request lives as long as this: no other one may have its identity.
        self._kept = []

    def __getattr__(self, name):
        return getattr(self._comm, name)

    def Send_init(self, message, peer, tag):
        request = self._comm.Send_init(message, peer, tag)
        _, count, kind = message
        self._known[id(request)] = self._ranks[peer], count * kind.Get_size()
        self._kept.append(request)
        return request

    def Ialltoallv(self, source, target):
        _, (counts, _), kind = source
        for peer, count in enumerate(counts):
            if count:
                self._sent[peer, count * kind.Get_size()] += 1
        return self._comm.Ialltoallv(source, target)

    def Ialltoallw(self, source, target):
        _, (counts, _), kinds = source
        for peer, (count, kind) in enumerate(zip(counts, kinds, strict=True)):
            if count:
                self._sent[peer, count * kind.Get_size()] += 1
        return self._comm.Ialltoallw(source, target)


@pytest.fixture
def sent(monkeypatch):
    """Return the messages that this rank has sent since, by receiver and bytes."""
    counted, known = Counter(), {}
    make = mpi_transport.MpiTransport.__init__

    def counting(self, comm, device):
        make(self, comm, device)
        self.comm = CountedComm(self.comm, counted, known)

    monkeypatch.setattr(mpi_transport.MpiTransport, "__init__", counting)
    for kind in (mpi_transport._PointToPoint, mpi_transport._AllToAll):
        prepare = kind._prepare

        def prepared(self, tag, prepare=prepare):
            self._prequest = CountedRequests(self._prequest, counted, known)
            prepare(self, tag)

        monkeypatch.setattr(kind, "_prepare", prepared)
    return counted


def noted_messages(noted):
    """Return the messages of noted steps, by receiver and bytes."""
    senders = [node.transfer or node.operation for node in noted.nodes]
    return Counter(
        message for one in senders if hasattr(one, "messages") for message in one.messages()
    )


def check_totals(noted, sent):
    """The totals of the walk are those of the real messages."""
    found = traffic_of(noted.nodes, noted.place)
    assert (found.in_node_bytes, found.in_node_messages) == (
        sum(size * n for (_, size), n in sent.items()),
        sent.total(),
    )


def cpus(ranks):
    """Return a node with this number of CPUs."""
    machine = load_machine("summit")
    device = machine.device.model_copy(update={"kind": "cpu"})
    return machine.model_copy(update={"device": device, "devices_per_node": ranks})


STEPS = {
    "hd": ("time.integrator=rk2",),
    "hd, rk4": ("time.integrator=rk4",),
    "mhd, rk4": (*MHD, "time.integrator=rk4"),
    "pencils, rk4": ("run.decomposition=pencil", "time.integrator=rk4"),
    "pencils, serial": ("run.decomposition=pencil", "run.schedule=serial", *MHD),
    "serial": ("run.schedule=serial",),
    "single": ("numerics.precision=float32",),
    "narrow": ("numerics.wire=float32",),
    "together": ("run.transport=mpi",),
    "streamed": ("run.residency=host", "run.streaming={ tiles = 3, resident = false }"),
    "streamed, columns stay": ("run.residency=host", "run.streaming={ tiles = 2 }"),
    "streamed mhd, rk4": (*MHD, "run.residency=host", "time.integrator=rk4"),
    "streamed pencils, rk4": (
        "run.decomposition=pencil",
        "run.residency=host",
        "time.integrator=rk4",
        "run.streaming={ tiles = 24 }",
    ),
    "from disk, rk4": (
        "run.residency=disk",
        "time.integrator=rk4",
        "run.streaming={ tiles = 3 }",
    ),
    "pencils from disk, rk4": (
        *MHD,
        "run.decomposition=pencil",
        "run.residency=disk",
        "time.integrator=rk4",
    ),
    "streamed in parts": (
        "run.residency=host",
        "run.streaming={ tiles = 4, tiles_per_exchange = 1 }",
    ),
    "advanced on the host, rk4": (
        "run.residency=host",
        "time.integrator=rk4",
        'run.streaming={ tiles = 3, update = "host" }',
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_spectral_step_sends_what_is_noted_for_it(comm, sent, name):
    settings = STEPS[name]
    if not any("transport" in one for one in settings):
        settings = (*settings, "run.transport=mpi-p2p")
    case = make_case(*BOX, *settings)
    simulation = SpectralSimulation(case, comm, HostDevice(threads=1))
    simulation.prepare()
    for _ in range(2):
        simulation.advance(1e-3)
    sent.clear()
    simulation.advance(1e-3)
    noted = note_spectral(case, cpus(comm.size), comm.size, comm.rank)
    assert noted_messages(noted) == sent
    check_totals(noted, sent)
    assert sent
    if "rk4" in name or name == "together":
        # All fields go to a rank in one message, twice per substage; ranks may have no modes.
        # On a process grid it has the same planes or the same kx.
        substages = int(case.time.integrator.removeprefix("rk"))
        to_each = Counter[int]()
        for (peer, _), count in sent.items():
            to_each[peer] += count
        assert set(to_each.values()) <= {substages, 2 * substages}


@pytest.mark.parametrize("strategy", ["mpi", "mpi-nonblocking"])
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_steps_of_advection_send_what_is_noted_for_them(comm, sent, strategy, precision):
    case = validate_case(
        {
            "solver": "advection",
            "grid": {"points": [12, 14, 10]},
            "time": {"end": 1.0},
            "numerics": {"precision": precision},
            "run": {"strategy": strategy},
        }
    )
    device = {"cpu": HostDevice(threads=1, lanes=1)}
    simulation = AdvectionSimulation(case, comm, device)
    simulation.prepare()
    sent.clear()
    for _ in range(2):
        simulation.advance(simulation.step_size())
    noted = note_advection(case, cpus(comm.size), comm.size, comm.rank)
    assert noted_messages(noted) == sent
    check_totals(noted, sent)


@pytest.mark.parametrize("partition", ["bisection", "cartesian"])
@pytest.mark.parametrize("settings", [(), ("run.schedule=serial", "numerics.precision=float32")])
def test_steps_of_the_lattice_send_what_is_noted_for_them(comm, sent, partition, settings):
    settings = (*settings, f"run.partition={partition}", "run.transport=mpi-p2p")
    simulation = lattice_flows.make(HostDevice(threads=1), *settings, comm=comm)
    simulation.prepare()
    flow, case = simulation.flow, simulation.case
    sent.clear()
    flow.advance(2)
    whole = np.zeros(flow.subdomain.shape, np.uint8)
    whole[flow.subdomain.box.slices()] = flow.subdomain.own[1:-1, 1:-1, 1:-1]
    pores = comm.allreduce(whole)

    def read(box: Box) -> np.ndarray:
        return pores[box.slices()]

    periodic = [name not in case.image.walls for name in "zyx"]
    boxes, shape = flow.subdomain.boxes, flow.subdomain.shape
    links = crossing_links(read, boxes, shape, periodic, comm.rank)
    rank_place = RankPlace(comm.rank, comm.size, comm.size)
    device = NotingDevice("cpu")
    run = case.run
    share = Share(flow.sites.count, flow.subdomain.box.size, links, run.transport)
    noted = note_lattice(share, rank_place, flow.storage, device, run.schedule)
    assert noted_messages(noted) == sent
    check_totals(noted, sent)
    # Each step reads and writes as much as is noted for it.
    populations = 2 * 19 * flow.storage.dtype.itemsize * flow.sites.stored
    assert traffic_of(noted.nodes, rank_place).host_bytes >= 2 * populations
