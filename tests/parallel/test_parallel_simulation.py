"""Simulations on any number of ranks against the same simulation in one process."""

import numpy as np
import pytest

from first_rank import on_first_rank
from flows import (
    UNEVEN_BOX,
    advance,
    make_case,
    modes_of,
    own_part,
    points_of,
    relative_error,
    start,
)
from slipstream.engine.collective import on_every_rank
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import mpi_transport
from slipstream.engine.fft import slab_engine
from slipstream.show.solver_texts import description
from slipstream.spectral.cfl import courant_rate
from slipstream.spectral.spectral_simulation import SpectralSimulation

BOXES = {"cube": ("grid.points=16",), "uneven box": UNEVEN_BOX}


@pytest.mark.several_ranks
@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_result_does_not_depend_on_the_number_of_ranks(comm, device, box, precision):
    settings = [*BOXES[box], f"numerics.precision={precision}"]

    def alone():
        serial = advance(start(device, *settings), 5)
        spectrum = serial.spectra()["energy_spectrum"]
        return modes_of(serial), serial.diagnostics(), spectrum, serial.step_size()

    expected, row, (waves, spectrum), step_size = on_first_rank(comm, alone)
    shared = advance(start(device, *settings, comm=comm), 5)
    # Only the grouping of transforms differs, so errors are a few roundings per step.
    tolerance = {"float64": 1e-12, "float32": 1e-5}[precision]
    mine = np.abs(modes_of(shared) - own_part(shared, expected)).max(initial=0.0)
    assert mine <= tolerance * np.abs(expected).max()
    many = shared.diagnostics()
    for name in ("energy", "enstrophy", "dissipation", "helicity"):
        assert many[name] == pytest.approx(row[name], rel=tolerance, abs=tolerance)
    shared_waves, shared_spectrum = shared.spectra()["energy_spectrum"]
    np.testing.assert_array_equal(shared_waves, waves)
    np.testing.assert_allclose(shared_spectrum, spectrum, rtol=0, atol=tolerance * spectrum.max())
    assert shared.step_size() == step_size


@pytest.mark.parametrize(
    ("box", "integrator"),
    [("uneven box", "rk2"), ("cube", "rk3"), ("uneven box", "rk4")],
)
def test_schedules_and_transports_give_the_same_bits(comm, device, box, integrator):
    def result(schedule, transport):
        settings = (f"run.schedule={schedule}", f"run.transport={transport}")
        integration = f"time.integrator={integrator}"
        simulation = start(device, *BOXES[box], integration, *settings, comm=comm)
        return modes_of(advance(simulation, 5)).tobytes(), courant_rate(simulation.flow)

    expected = result("serial", "mpi")
    # What a method adds to a step is not exchanged: one of them is sent in every way.
    transports = ("mpi", "mpi-p2p", "auto") if integrator == "rk2" else ("auto",)
    for transport in transports:
        for schedule in ("serial", "overlap"):
            assert result(schedule, transport) == expected


@pytest.mark.several_ranks
@pytest.mark.parametrize(
    ("joined", "chunks", "flying", "transport"),
    [
        (0, 1, None, "mpi"),
        (1 << 20, 4, None, "mpi-p2p"),
        (200, 3, 1, "mpi-p2p"),
        (1 << 20, 1, 2, "mpi-p2p"),
        (1 << 20, 2, None, "auto"),
    ],
)
def test_messages_of_any_size_give_the_same_bits(
    comm, device, monkeypatch, joined, chunks, flying, transport
):
    def result():
        settings = (*UNEVEN_BOX, f"run.transport={transport}")
        return modes_of(advance(start(device, *settings, comm=comm), 2)).tobytes()

    expected = result()
    monkeypatch.setattr(mpi_transport, "JOINED_BYTES", joined)
    if flying is not None:
        monkeypatch.setattr(mpi_transport, "PERSISTENT", 0)
        monkeypatch.setattr(mpi_transport, "FLYING", flying)
    monkeypatch.setattr(
        slab_engine, "CHUNKS_FROM", dict.fromkeys(("cpu", "gpu"), ((0, 0, chunks),))
    )
    assert result() == expected


@pytest.mark.several_ranks
@pytest.mark.parametrize("box", BOXES)
def test_random_flow_has_the_same_bits_on_any_number_of_ranks(comm, device, box):
    expected = on_first_rank(comm, lambda: modes_of(start(device, *BOXES[box])))
    shared = start(device, *BOXES[box], comm=comm)
    assert modes_of(shared).tobytes() == own_part(shared, expected).tobytes()


@pytest.mark.several_ranks
@pytest.mark.parametrize("flow", ["taylor-green", "abc"])
def test_flows_with_a_formula_do_not_depend_on_the_number_of_ranks(comm, device, flow):
    settings = ("grid.points=[12, 10, 7]", f"initial.flow={flow}")
    shared = start(device, *settings, comm=comm)
    expected = on_first_rank(comm, lambda: modes_of(start(device, *settings)))
    # Transforms of the same rows in other groups may round differently.
    error = np.abs(modes_of(shared) - own_part(shared, expected)).max(initial=0.0)
    assert error <= 1e-14 * np.abs(expected).max()


@pytest.mark.several_ranks
def test_adaptive_step_is_the_same_on_all_ranks(comm, device):
    settings = (*UNEVEN_BOX, "time.cfl=0.5")
    serial, shared = start(device, *settings), start(device, *settings, comm=comm)
    for _ in range(3):
        step = shared.step_size()
        assert step == pytest.approx(serial.step_size(), rel=1e-12)
        if comm is not None:
            assert len(set(comm.allgather(step))) == 1
        advance(shared, 1, step)
        advance(serial, 1, step)


@pytest.mark.several_ranks
def test_fields_do_not_depend_on_the_number_of_ranks(comm, device):
    expected = on_first_rank(comm, lambda: points_of(advance(start(device, *UNEVEN_BOX), 2)))
    shared = advance(start(device, *UNEVEN_BOX, comm=comm), 2)
    mine = (slice(None), *shared.problem.geometry.physical_box.slices())
    error = np.abs(points_of(shared) - expected[mine]).max(initial=0.0)
    # As in the test above all: roundings of a few steps.
    assert error <= 1e-12 * np.abs(expected).max()


@pytest.mark.several_ranks
def test_flow_on_fewer_planes_and_modes_than_ranks(comm, device):
    # Two planes and one ky: with 3 and more ranks some have nothing in either space.
    settings = ("grid.points=[16, 1, 2]", "initial.peak_wavenumber=2.0")
    serial, shared = start(device, *settings), start(device, *settings, comm=comm)
    advance(serial, 3), advance(shared, 3)
    expected = own_part(shared, modes_of(serial))
    assert relative_error(modes_of(shared), expected) <= 1e-12
    assert shared.diagnostics()["energy"] == pytest.approx(
        serial.diagnostics()["energy"], rel=1e-12
    )


def test_not_a_number_on_one_rank_is_seen_by_all(comm, device):
    shared = start(device, "grid.points=16", comm=comm)
    last = shared.problem.geometry.ranks - 1
    if shared.problem.geometry.rank == last:
        shared.flow.state[0, 0, 0, 1] = np.nan
    advance(shared, 1)
    assert np.isnan(shared.step_size())
    assert np.isnan(shared.diagnostics()["energy"])


def test_describing_allocates_nothing_on_any_rank(comm, device, ranks, monkeypatch):
    for name in ("empty", "pinned"):
        monkeypatch.setattr(type(device), name, None)
    for transport in ("auto", "mpi"):
        case = make_case(f"run.transport={transport}", "grid.points=64")
        described = description(SpectralSimulation(case, comm, device))
        assert described["ranks"].startswith(str(ranks))
        assert (described["transport"] == "none (one rank)") == (ranks == 1)
        assert described["transport"] == "mpi" or "auto" in transport or ranks == 1


def test_memory_lacking_on_one_rank_is_refused_by_all(comm, device, monkeypatch):
    simulation = SpectralSimulation(make_case(), comm, device)
    if simulation.problem.geometry.rank == simulation.problem.geometry.ranks - 1:
        monkeypatch.setattr(device, "memory_free", lambda: 1000)
    with pytest.raises(InputError, match=r"grid\.points.* 9\.31e-07 GiB free"):
        on_every_rank(comm, simulation._allocate)
