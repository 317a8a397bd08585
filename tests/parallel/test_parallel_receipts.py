"""Digests, and states that are computed again, on any number of ranks."""

import numpy as np
import pytest
from rich.console import Console

import slipstream
from first_rank import on_first_rank
from flows import UNEVEN_BOX, make_case
from slipstream.case import parse_case
from slipstream.runs import make_simulation
from slipstream.runs.recomputing import verify_run
from slipstream.runs.run_case import run_case

QUIET = Console(quiet=True)
LATTICE = """
solver = "lattice"
[image]
sample = "sandstone"
shape = [14, 12, 10]
radius = 3
porosity = 0.6
[flow]
relaxation_time = 0.8
[convergence]
vectors = 0
[time]
end = 8
"""
ADVECTION = """
solver = "advection"
[grid]
points = [14, 12, 10]
[flow]
courant = [0.6, -0.4, 0.5]
[time]
end = 0.3
"""
SHORT = "time.end=0.04"
CASES = {
    "spectral": make_case(*UNEVEN_BOX, SHORT),
    "single": make_case(*UNEVEN_BOX, SHORT, "numerics.precision=float32"),
    "on the host": make_case(*UNEVEN_BOX, SHORT, "run.residency=host"),
    "particles": make_case(*UNEVEN_BOX, SHORT, "particles=[{number=50}]"),
    "lattice": parse_case(LATTICE),
    "advection": parse_case(ADVECTION),
}


def digest_of(case, comm, device):
    simulation = make_simulation(case, comm, device)
    simulation.prepare()
    for _ in range(3):
        simulation.advance(simulation.step_size())
    return simulation.digest()


@pytest.mark.parametrize("name", CASES)
def test_digests_do_not_depend_on_the_number_of_ranks(comm, device, name):
    found = digest_of(CASES[name], comm, device)
    alone = on_first_rank(comm, lambda: digest_of(CASES[name], None, device))
    assert found == alone and 0 < found < 1 << 53


@pytest.mark.slow
def test_a_run_is_repeated_on_another_number_of_ranks(comm, device, shared_folder):
    forced = [*UNEVEN_BOX, "time.end=0.06", "output.digest_steps=2", "output.report=false"]
    forced += ["output.diagnostics_interval=0.01", "forcing.kind='abc'", "forcing.amplitude=0.1"]

    def run_alone(name, *settings):
        case = make_case(*forced, *settings)
        run_case(make_simulation(case, None, device.kind), shared_folder / name, QUIET)

    def both():
        run_alone("run")
        run_alone("power", "forcing.injection=0.1")

    on_first_rank(comm, both)
    (first, last) = verify_run(shared_folder / "run", since=0.0, comm=comm, device=device.kind)
    assert first.text == last.text == "the same bits" and first.digests == 4
    # The force follows from a sum over ranks.
    found = verify_run(shared_folder / "power", since=0.0, comm=comm, device=device.kind)
    assert not any(one.deviates for one in found)
    flow = slipstream.open(shared_folder / "run").at(0.035, comm=comm, device=device.kind)
    alone = on_first_rank(
        comm,
        lambda: (
            slipstream.open(shared_folder / "run")
            .at(0.035, comm=None, device=device.kind)
            .fields["vorticity"]
            .plane("z", 1)
        ),
    )
    np.testing.assert_array_equal(flow.fields["vorticity"].plane("z", 1), alone)
    assert flow.device.kind == device.kind
