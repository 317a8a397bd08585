"""Steps whose data travel between ranks in fewer bits, with the loss that is measured."""

import numpy as np
import pytest

from fft_cases import usable_transports
from flows import make_case
from slipstream.engine.errors import InputError
from slipstream.spectral.spectral_simulation import SpectralSimulation

# The largest relative error of a number that is rounded to 24 or to 8 bits.
ROUNDING = {"float32": 2**-24, "bfloat16": 2**-8}


def after_two_steps(comm, device, *settings):
    simulation = SpectralSimulation(make_case("grid.points=[12, 10, 14]", *settings), comm, device)
    simulation.prepare()
    for _ in range(2):
        simulation.advance(simulation.step_size())
    modes = simulation.device.to_host(simulation.read_modes(slice(None)))
    return modes.copy(), simulation.diagnostics()


@pytest.mark.parametrize("wire", ROUNDING)
def test_steps_lose_what_the_wire_rounds(comm, device, ranks, wire):
    whole, _ = after_two_steps(comm, device)
    narrow, actual = after_two_steps(comm, device, f"numerics.wire={wire}")
    sums = np.array([np.abs(narrow - whole).max(), np.abs(whole).max()])
    changed, largest = sums if comm is None else np.max(comm.allgather(sums), axis=0)
    if ranks == 1:
        assert changed == actual["wire_error"] == 0
        return
    assert 0.1 * ROUNDING[wire] < actual["wire_error"] < ROUNDING[wire]
    assert 0 < changed < 10 * ROUNDING[wire] * largest


@pytest.mark.slow
def test_bits_depend_neither_on_the_transport_nor_on_the_schedule(comm, device):
    wire = "numerics.wire=float32"
    expected, loss = after_two_steps(comm, device, wire, "run.schedule=serial")
    for transport in usable_transports(comm, device):
        found, lost = after_two_steps(comm, device, wire, f"run.transport={transport}")
        np.testing.assert_array_equal(found, expected)
        assert lost == loss


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("numerics.precision=float32", "numerics: 'wire' = 'float32' narrows double precision"),
        ("run.residency=host", "numerics.wire = 'float32' with run.residency = 'host'"),
    ],
)
def test_what_cannot_be_narrowed_is_refused(setting, expected):
    with pytest.raises(InputError, match=expected):
        make_case("numerics.wire=float32", setting)
