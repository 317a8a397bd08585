"""A simulation frees its memory as soon as it is deleted."""

import gc
import weakref

import pytest

from slipstream.case import make_case
from slipstream.runs import make_simulation

pytestmark = pytest.mark.usefixtures("quick_collector")

HD = {
    "equation": {"model": "hd", "viscosity": 0.01},
    "grid": {"points": 12},
    "time": {"end": 1.0, "cfl": 0.5},
    "initial": {"flow": "taylor-green"},
}
SAMPLE = {"sample": "sandstone", "shape": [12, 12, 12], "porosity": 0.4, "radius": 3}
CASES = {
    "spectral": ("spectral", HD),
    "spectral, on the host": (
        "spectral",
        HD | {"run": {"residency": "host", "memory": "4 MiB"}},
    ),
    "advection": ("advection", {"grid": {"points": 12}, "time": {"end": 1.0}}),
    "lattice": (
        "lattice",
        {
            "image": SAMPLE | {"voxel_size": 2e-6},
            "flow": {"relaxation_time": 0.8},
            "time": {"end": 100},
        },
    ),
}
# What computes, by the attribute of the simulation of each family.
SOLVERS = {"spectral": "flow", "advection": "solver", "lattice": "flow"}


@pytest.mark.parametrize("name", CASES)
def test_a_simulation_ends_when_it_is_deleted(comm, device, name):
    solver, tables = CASES[name]
    case = make_case(solver, **tables)
    if solver == "advection" and device.kind == "cuda":
        pytest.skip("chooses its devices by itself")

    def advanced():
        simulation = make_simulation(case, comm, *([] if solver == "advection" else [device]))
        simulation.prepare()
        for _ in range(2):
            simulation.advance(simulation.step_size())
        simulation.diagnostics()
        simulation.fields()
        return simulation

    advanced()
    gc.collect()
    gc.disable()
    try:
        simulation = advanced()
        references = weakref.ref(simulation), weakref.ref(getattr(simulation, SOLVERS[solver]))
        del simulation
        assert [reference() for reference in references] == [None, None]
        # Nothing of ours is left for the collector either, which might have an array.
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = {type(one).__module__ for one in gc.garbage}
        assert not {module for module in left if module.startswith("slipstream")}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
