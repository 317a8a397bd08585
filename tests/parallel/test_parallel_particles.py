"""Particles on any number of ranks: the numbers of one rank, through migration and states."""

import numpy as np
import pytest

from first_rank import on_first_rank
from flows import RANDOM, advance, resumed_from, save
from refusals import refused
from slipstream.case import parse_case
from slipstream.engine.collective import own
from slipstream.engine.device import HostDevice
from slipstream.runs import make_simulation
from slipstream.spectral import particles as particle_state

# Particles that fall across several planes per step.
SETS = """
[[particles]]
number = 301
record = ["vorticity"]
[[particles]]
name = "falling"
number = 40
kind = "inertial"
response_time = 0.5
gravity = [0.0, 3.0, -20.0]
separation = 0.2
"""
STEPS, STEP = 12, 0.05
PENCILS = ("run.decomposition=pencil",)


def made(comm, device, *settings):
    case = parse_case(RANDOM + SETS, settings)
    simulation = make_simulation(case, own(comm, "particles"), device)
    simulation.prepare()
    return simulation


def everything(simulation):
    """Return all numbers of all particles, the same on all ranks."""
    return {
        (name, of): simulation.particles.whole(name, of, simulation.time)
        for name, several in {
            "tracers": ("position", "(vorticity)"),
            "falling": ("position", "velocity"),
        }.items()
        for of in several
    }


@pytest.mark.several_ranks
@pytest.mark.parametrize(
    ("case", "divided"),
    [
        (("grid.points=16",), ()),
        (("grid.points=16", 'particles[2].interpolation="lagrange"'), ("run.schedule=serial",)),
        (("grid.points=[16, 12, 10]", "numerics.precision=float32"), ()),
        (
            ("grid.points=16", 'particles[1].interpolation="lagrange"'),
            PENCILS,
        ),
        (
            ("grid.points=16", 'particles[1].interpolation="lagrange"'),
            ("run.residency=host", "run.streaming.tiles=3"),
        ),
        (("grid.points=16",), ("run.residency=host", "run.decomposition=pencil")),
    ],
)
def test_paths_do_not_depend_on_the_number_of_ranks(comm, device, case, divided):
    """Nor on how these divide space, nor on where fields are, nor on the kernels."""
    precision = "float32" if "numerics.precision=float32" in case else "float64"
    expected = on_first_rank(
        comm, lambda: everything(advance(made(None, device, *case), STEPS, STEP))
    )
    of_gpus = device.kind == "cpu" and divided == PENCILS
    simulation = made(comm, HostDevice(tiled=True) if of_gpus else device, *case, *divided)
    before = simulation.particles.whole("falling", "position", 0.0)
    actual = everything(advance(simulation, STEPS, STEP))
    length = 2 * np.pi
    assert (before[:, 2] - actual["falling", "position"][:, 2]).min() > length / 4
    tolerance = {"float64": 1e-11, "float32": 1e-4}[precision]
    for key, values in actual.items():
        assert np.abs(values - expected[key]).max() <= tolerance * np.abs(expected[key]).max(), key


def test_schedules_and_transports_give_the_same_bits(comm, device):
    def found(*settings):
        return everything(advance(made(comm, device, *settings), STEPS, STEP))

    transports = ("mpi", "auto") if comm is not None else ("auto",)
    first, *rest = [
        found(f"run.schedule={schedule}", f"run.transport={transport}")
        for schedule in ("serial", "overlap")
        for transport in transports
    ]
    for other in rest:
        assert all((other[key] == first[key]).all() for key in first)


def test_states_go_on_with_the_same_bits(comm, device, shared_folder, monkeypatch):
    """Also where particles travel a few at a time."""
    whole = everything(advance(made(comm, device), STEPS, STEP))
    monkeypatch.setattr(particle_state, "_MOST_BYTES", 2000)
    half = advance(made(comm, device), STEPS // 2, STEP)
    assert save(half, shared_folder / "half").is_dir()
    later = resumed_from(half, shared_folder / "half", device)
    found = everything(advance(later, STEPS - STEPS // 2, STEP))
    for key, values in found.items():
        assert (values == whole[key]).all(), key


WRONG_PLACES = {
    "texts": ["a", "b"],
    "texts of numbers": [["1", "2", "3"]] * 40,
    "a text": "here",
    "ragged": [[1, 2, 3], [1]],
    "objects": [[None, 0, 0]] * 40,
    "complex": [[1j, 0, 0]] * 40,
    "huge": [[10**400, 0, 0]] * 40,
    "masked": np.ma.masked_array(np.zeros((40, 3)), mask=True),
    "one": 3.0,
    "too few": np.zeros((39, 3)),
    "planar": np.zeros((40, 2)),
    "nan": np.full((40, 3), np.nan),
}


def test_places_of_wrong_kinds_are_refused_on_all_ranks(comm, device):
    simulation = made(comm, device)
    before = simulation.particles.whole("falling", "position", simulation.time)
    for name, places in WRONG_PLACES.items():
        wrong = places if comm is None or comm.rank == comm.size - 1 else before
        with refused(
            r"^particles\['falling'\].positions .*; accepted: \(40, 3\), finite x, y and z"
        ):
            simulation.place_particles("falling", wrong)
        after = simulation.particles.whole("falling", "position", simulation.time)
        np.testing.assert_array_equal(after, before, err_msg=name)
    simulation.place_particles("falling", np.ones((40, 3), ">i4"))
    assert (simulation.particles.whole("falling", "position", simulation.time) == 1).all()
