"""Memory that ranks really allocate, counted by a meter, and its forecast."""

import gc

import pytest

import lattice_flows
from flows import MHD, make_case
from slipstream.advection.advection_simulation import AdvectionSimulation
from slipstream.case import validate_case
from slipstream.engine.device import HostDevice
from slipstream.engine.device.memory import MemoryMeter
from slipstream.engine.exchange import RankPlace, make_transport
from slipstream.lattice.storage_tuning import memory_needed
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_simulation import SpectralSimulation

BOX = ("grid.points=[20, 12, 18]",)


def taken(make, place="host"):
    """Return the bytes that `make` allocates and keeps."""
    gc.collect()
    meter = MemoryMeter()
    with meter:
        made = make()
    found = meter.total()[place]
    del made
    return found


SPECTRAL = {
    "hd": (),
    "rk4": ("time.integrator=rk4",),
    "mhd": MHD,
    "single precision": ("numerics.precision=float32",),
    "shifted": ("numerics.dealiasing=phase-shift", "time.integrator=rk4"),
    "between walls": ("grid.walls=z",),
    "by messages": ("run.transport=mpi-p2p",),
    "narrow wire": ("numerics.wire=bfloat16",),
}


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", SPECTRAL)
def test_a_spectral_step_takes_what_is_said_before(comm, device, name):
    simulation = SpectralSimulation(make_case(*BOX, *SPECTRAL[name]), comm, device)

    def make():
        step = SpectralStep(simulation.problem, device, simulation.placement.make_transport())
        return step, simulation.problem.wire and step.record_step()

    if device.kind == "cpu":
        assert simulation.placement.fields_bytes == taken(make)
    else:
        # On GPUs flags are shared by all transports of a process, and may have been there before.
        found = taken(make, "device")
        assert found <= simulation.placement.fields_bytes <= found + (2 << 20)


@pytest.mark.parametrize("strategy", ["auto", "mpi", "gpu-mpi-streams", "gpu-peer", "hybrid"])
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_points_of_advection_take_what_is_said_before(comm, device, strategy, precision):
    """Without the lists of rows that a step has; they are a percent where there are many points."""
    tables = {"grid": {"points": [20, 14, 22]}, "time": {"end": 1.0}}
    tables |= {"numerics": {"precision": precision}, "run": {"strategy": strategy, "shell": 2}}
    case = validate_case({"solver": "advection", **tables})
    devices = {"cpu": HostDevice(threads=1), "gpu": HostDevice(tiled=True)}
    on_host = strategy == "auto" and device.kind == "cpu"
    simulation = AdvectionSimulation(case, comm, device if on_host else devices)
    problem, rank = simulation.problem, RankPlace.of(comm)
    actual = taken(
        lambda: problem.allocate(rank.rank, lambda name, on: make_transport(name, comm, on))
    )
    # The flags by which a GPU's peers report failures, in the host's memory.
    beside = 8 if simulation.transport == "peer" else 0
    assert sum(problem.memory(rank).values()) == actual - beside


@pytest.mark.parametrize(
    ("encoding", "most"), [("wide", 1.05), ("compact", 1.05), ("strips", 1.15)]
)
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_flow_through_pores_takes_about_what_is_said_before(comm, encoding, most, precision):
    """Only the pores determine how many links are exceptions, and how many strips there are."""
    settings = f"numerics.encoding={encoding}", f"numerics.precision={precision}"
    device = HostDevice(threads=1)
    simulation = lattice_flows.make(device, *settings, "image.shape=[64, 60, 70]", comm=comm)
    simulation._read_image()
    found = taken(simulation._allocate)
    needed = memory_needed(simulation._share, simulation.storage, "cpu")
    assert found <= needed <= most * found
