"""Memory that ranks really allocate, counted by a meter, beside what is said before they do."""

import gc

import pytest

from flows import MHD, make_case
from slipstream.device.memory_meter import MemoryMeter
from slipstream.exchange import make_transport
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_simulation import SpectralSimulation

BOX = ("grid.points=[20, 12, 18]",)


def taken(make):
    """Return what is made, and the bytes that are allocated for it and still there."""
    gc.collect()
    meter = MemoryMeter()
    with meter:
        made = make()
    return made, sum(meter.total().values())


SPECTRAL = {
    "hd": (),
    "rk4": ("time.integrator=rk4",),
    "mhd": MHD,
    "single precision": ("numerics.precision=float32",),
    "shifted": ("numerics.dealiasing=phase-shift", "time.integrator=rk4"),
    "by messages": ("run.transport=mpi-p2p",),
}


@pytest.mark.parametrize("name", SPECTRAL)
def test_a_spectral_step_takes_what_is_said_before(comm, device, name):
    simulation = SpectralSimulation(make_case(*BOX, *SPECTRAL[name]), comm, device)

    def make():
        transport = make_transport(simulation.transport, comm, device)
        return SpectralStep(simulation.problem, device, transport)

    _, found = taken(make)
    assert simulation.placement.fields_bytes == found
