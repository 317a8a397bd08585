"""Simulations from Python: made, described, prepared and advanced without files or a console."""

import functools
import tracemalloc

import numpy as np
import pytest

from slipstream.case import make_case
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError
from slipstream.lattice import lattice_simulation
from slipstream.runs import make_simulation
from slipstream.show.solver_texts import description, step_description
from slipstream.spectral.energy_budget import LARGE, SMALL

SPECTRAL = {
    "grid": {"points": 16},
    "equation": {"viscosity": 0.01},
    "initial": {"flow": "random", "seed": 7},
    "time": {"end": 1.0, "step": 0.01},
}
ADVECTION = {"grid": {"points": 16}, "flow": {"courant": (0.5, 0.4, 0.3)}, "time": {"end": 1.0}}
LATTICE = {
    "image": {"sample": "channel", "shape": (10, 6, 4), "axis": "x"},
    "time": {"end": 100},
    "convergence": {"interval": 2},
}
CASES = {"spectral": SPECTRAL, "advection": ADVECTION, "lattice": LATTICE}
# How populations are stored, which changes the last digits.
STORAGE = {"propagation": "aa", "layout": "stream", "order": "raster", "encoding": "strips"}
FIXED = {**CASES, "lattice": {**LATTICE, "numerics": STORAGE}}


def states(simulation):
    """Return the arrays of the state, as bytes."""
    return [field.data.tobytes() for field in simulation.checkpoint()]


def advance(simulation, steps):
    for _ in range(steps):
        simulation.advance(simulation.step_size())
    return simulation


def started(solver):
    simulation = make_simulation(make_case(solver, **FIXED[solver]), device="cpu")
    simulation.prepare()
    return simulation


def test_turbulence_from_python():
    case = make_case("spectral", **SPECTRAL)
    simulation = make_simulation(case)
    simulation.prepare()
    before = simulation.diagnostics()["energy"]
    simulation.advance(0.01)
    assert simulation.step == 1
    assert simulation.time == 0.01
    assert 0 < simulation.diagnostics()["energy"] < before


def test_advection_from_python():
    case = make_case("advection", **ADVECTION)
    simulation = make_simulation(case)
    simulation.prepare()
    simulation.advance(simulation.step_size())
    assert simulation.step == 1
    assert simulation.time == 0.5 / 16
    assert 0 < max(simulation.diagnostics().values()) < 1


def test_flow_through_pores_from_python():
    case = make_case("lattice", **LATTICE)
    simulation = make_simulation(case)
    simulation.prepare()
    while not simulation.finished:
        simulation.advance(simulation.step_size())
    assert "converged" in simulation.finished
    assert simulation.diagnostics()["permeability_lattice"] == pytest.approx(64 / 12 * 0.8, 0.02)


@pytest.mark.parametrize("solver", CASES)
def test_simulations_alternate_in_one_process_and_their_case_runs_again(solver):
    first, other = started(solver), started(solver)
    for _ in range(3):
        advance(first, 1), advance(other, 2)
    again = make_simulation(first.case, device="cpu")
    again.prepare()
    assert states(advance(again, 3)) == states(first) != states(other)
    assert states(advance(first, 3)) == states(other)
    assert first.diagnostics() == other.diagnostics()


@pytest.mark.parametrize("solver", CASES)
def test_prepared_again_a_simulation_begins_anew(solver):
    simulation = advance(started(solver), 3)
    expected, rows = states(simulation), simulation.diagnostics()
    simulation.prepare()
    assert (simulation.step, simulation.time, simulation.finished) == (0, 0.0, "")
    assert simulation.timers() == {}
    assert states(advance(simulation, 3)) == expected
    assert simulation.diagnostics() == rows


@pytest.mark.parametrize(
    ("solver", "residency"),
    [
        ("spectral", "device"),
        ("spectral", "host"),
        ("spectral", "auto"),
        ("advection", ""),
        ("lattice", ""),
    ],
)
def test_describing_allocates_no_field(solver, residency, monkeypatch):
    """Neither on a device nor, beyond an image's voxels, anywhere else."""
    tables = dict(CASES[solver])
    if solver == "lattice":
        tables["image"] = {"sample": "channel", "shape": (64, 64, 64), "axis": "x"}
    else:
        tables["grid"] = {"points": 128}
    if residency:
        tables["run"] = {"residency": residency}
    allocated = []
    for name in ("empty", "pinned"):
        monkeypatch.setattr(HostDevice, name, lambda *arguments: allocated.append(arguments))
    description(make_simulation(make_case(solver, **CASES[solver]), device="cpu"))  # imports
    tracemalloc.start()
    simulation = make_simulation(make_case(solver, **tables), device="cpu")
    described = description(simulation), description(simulation)
    left, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not allocated
    assert described[0].keys() >= {"device", "memory per device", "ranks", "transport"}
    # Voxels are bytes; a field of numbers has eight a voxel or point.
    field = 8 * (64**3 if solver == "lattice" else 128**3)
    assert left < field / 2
    assert solver == "lattice" or peak < field / 2


def test_measured_storage_is_told_when_it_has_been_measured(monkeypatch):
    candidates = functools.partial(lattice_simulation.storage_candidates, is_measured=True)
    monkeypatch.setattr(lattice_simulation, "storage_candidates", candidates)
    simulation = make_simulation(make_case("lattice", **LATTICE), device="cpu")
    described = description(simulation)
    assert described["storage"] == "fastest of 2, to be measured"
    assert described["memory per device"].startswith("at most ")
    simulation.prepare()
    assert "(fastest of 2, measured)" in step_description(simulation)["storage"]
    assert description(simulation)["storage"] in step_description(simulation)["storage"]
    named = started("lattice")
    assert description(named)["storage"] == "aa, stream, raster, strips (not measured)"
    assert step_description(named) == {}


@pytest.mark.parametrize("solver", CASES)
def test_after_memory_did_not_suffice_the_same_simulation_can_be_prepared(solver, monkeypatch):
    simulation = make_simulation(make_case(solver, **FIXED[solver]), device="cpu")
    with monkeypatch.context() as patched:
        patched.setattr(HostDevice, "memory_free", lambda _: 1000)
        with pytest.raises(InputError, match="GiB free"):
            simulation.prepare()
    simulation.prepare()
    assert states(advance(simulation, 1)) == states(advance(started(solver), 1))


def test_device_of_the_case_is_taken_unless_another_is_asked_for():
    case = make_case("advection", **ADVECTION, run={"device": "cpu"})
    assert make_simulation(case).device.kind == "cpu"
    mine = HostDevice(threads=1)
    assert make_simulation(case, device=mine).device is mine
    with pytest.raises(InputError, match="run.strategy: 'gpu' needs a GPU"):
        make_simulation(make_case("advection", **ADVECTION, run={"strategy": "gpu"}), device="cpu")


def test_cases_of_keywords_are_checked_as_those_of_files_are():
    with pytest.raises(InputError, match="equation.viscosty: unknown key; did you mean"):
        make_case("spectral", **{**SPECTRAL, "equation": {"viscosty": 0.01}})
    with pytest.raises(InputError, match="solver: 'spectra' is not accepted"):
        make_case("spectra")
    assert np.prod(make_case("spectral", **SPECTRAL).grid.points_xyz) == 16**3


@pytest.mark.parametrize("viscosity", [1e300, 1e100, 1e-200, 1e-300])
def test_scales_of_any_viscosity_are_numbers_or_infinity(viscosity):
    tables = {**SPECTRAL, "equation": {"viscosity": viscosity}}
    simulation = make_simulation(make_case("spectral", **tables), None, HostDevice())
    simulation.prepare()
    found = simulation.diagnostics()
    assert all(found[name] >= 0 for name in (*LARGE, *SMALL[False]))
