"""Several forces of all kinds: the same on any ranks, in any memory, and after a restart."""

import copy

import numpy as np
import pytest

from first_rank import on_first_rank
from flows import advance, modes_of, own_part, save, start

BOX = ("grid.points=[16, 12, 10]", "initial.peak_wavenumber=2.0", "time.integrator=rk3")
FORCES = """forcing=[
    { kind = "ornstein-uhlenbeck", amplitude = 0.3, correlation_time = 0.1, helicity = 0.5 },
    { kind = "random", amplitude = 0.2, shells = [2, 3], correlation_time = 0.03 },
    { kind = "constant-energy", shells = [3, 3] },
    { kind = "linear", injection = [0.05, 0.03, 0.0], shells = [1, 2] },
    { kind = "linear", rate = 0.2 },
    { kind = "formula", formula = ["sin(y)*cos(3*t)", "0", "0"] }
]""".replace("\n", " ")
MEMORY = {
    "slab": (),
    "serial": ("run.schedule=serial",),
    "pencil": ("run.decomposition=pencil",),
    "host": ("run.residency=host", "run.streaming={ tiles = 3 }"),
    "host update": ("run.residency=host", 'run.streaming={ tiles = 2, update = "host" }'),
    "disk": ("run.residency=disk",),
}


def settings_of(name):
    return (*BOX, FORCES, *MEMORY[name])


@pytest.fixture(scope="module")
def alone(comm, device):
    """The modes after three steps in one process, the last one longer."""

    def made():
        simulation = advance(start(device, *settings_of("slab")), 2)
        return modes_of(advance(simulation, 1, 0.02)), simulation.diagnostics()

    return on_first_rank(comm, made)


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=pytest.mark.one_rank if one == "disk" else ()) for one in MEMORY],
)
def test_forces_do_not_depend_on_ranks_or_memory(comm, device, ranks, alone, name):
    simulation = advance(start(device, *settings_of(name), comm=comm), 2)
    advance(simulation, 1, 0.02)
    expected, diagnostics = alone
    actual = modes_of(simulation)
    # What follows from sums over all modes differs by roundings; in one process nothing does.
    if ranks == 1 and device.kind == "cpu" and name != "host update":
        np.testing.assert_array_equal(actual, own_part(simulation, expected))
    np.testing.assert_allclose(actual, own_part(simulation, expected), rtol=0, atol=1e-13)
    now = simulation.diagnostics()
    assert now["injection"] == pytest.approx(diagnostics["injection"], rel=1e-10)


def test_schedules_give_the_same_bits(comm, device):
    first, other = (
        modes_of(advance(start(device, *settings_of(name), comm=comm), 2))
        for name in ("slab", "serial")
    )
    assert first.tobytes() == other.tobytes()


@pytest.mark.parametrize("name", ["slab", "pencil"])
def test_a_state_goes_on_with_the_same_bits(comm, device, name, shared_folder):
    first = advance(start(device, *settings_of(name), comm=comm), 3)
    save(first, shared_folder)
    settings = [one for one in settings_of(name) if not one.startswith("initial.")]
    restart = f"initial.restart={shared_folder}"
    second = advance(start(device, *settings, restart, comm=comm), 2)
    kept = copy.deepcopy(first.kept())
    expected = modes_of(advance(first, 2))
    assert modes_of(second).tobytes() == expected.tobytes()
    # What a process keeps continues as well.
    first.restore(kept)
    assert modes_of(advance(first, 2)).tobytes() == expected.tobytes()
    # A force of other shells has no state there, and says so.
    other = [one.replace("0.1, helicity", "0.1, shells = [1, 3], helicity") for one in settings]
    changed = start(device, *other, restart, comm=comm)
    assert any("no state of this force" in one for one in changed.warnings())
