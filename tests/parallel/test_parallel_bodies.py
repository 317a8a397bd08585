"""Bodies on any number of ranks: the numbers of one rank, on slabs and pencils, through states."""

import numpy as np
import pytest

from first_rank import on_first_rank
from flows import RANDOM, advance, resumed_from, save
from slipstream.case import parse_case
from slipstream.engine.collective import own
from slipstream.runs import make_simulation

BODIES = """
[[forcing]]
kind = "mean-flow"
velocity = [0.5, 0.0, 0.1]
[[bodies]]
shape = "sphere"
radius = 0.9
velocity = [0.0, 0.3, -2.0]
[[bodies]]
name = "ellipsoid"
shape = "formula"
formula = "sqrt((x-3)**2 + 2*(y-3)**2 + 4*(z-3)**2) - 1 - 0.2*sin(9*t)"
rotation = [0.0, 0.0, 1.0]
"""
STEPS, STEP = 6, 0.02


def made(comm, device, *settings):
    case = parse_case(RANDOM + BODIES, settings)
    simulation = make_simulation(case, own(comm, "bodies"), device)
    simulation.prepare()
    return simulation


def row_of(simulation):
    """Return all diagnostics but those that compare the state with an earlier row."""
    row = simulation.diagnostics()
    return {name: value for name, value in row.items() if name not in ("budget_residual", "work")}


@pytest.mark.several_ranks
@pytest.mark.parametrize("decomposition", ["slab", "pencil"])
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_forces_do_not_depend_on_the_number_of_ranks(comm, device, precision, decomposition):
    settings = ("grid.points=[16, 12, 10]", f"numerics.precision={precision}")
    expected = on_first_rank(
        comm, lambda: row_of(advance(made(None, device, *settings), STEPS, STEP))
    )
    divided = (*settings, f"run.decomposition={decomposition}")
    actual = row_of(advance(made(comm, device, *divided), STEPS, STEP))
    tolerance = {"float64": 1e-10, "float32": 2e-4}[precision]
    scale = max(abs(value) for name, value in expected.items() if "_force_" in name)
    assert list(actual) == list(expected) and scale > 0.1
    for name, value in actual.items():
        assert abs(value - expected[name]) <= tolerance * max(scale, abs(expected[name])), name


def test_schedules_give_the_same_bits(comm, device):
    first, second = (
        row_of(advance(made(comm, device, f"run.schedule={one}"), 3, STEP))
        for one in ("serial", "overlap")
    )
    assert first == second


def test_states_go_on_with_the_same_bits(comm, device, shared_folder):
    whole = advance(made(comm, device), STEPS, STEP)
    half = advance(made(comm, device), STEPS // 2, STEP)
    save(half, shared_folder / "half")
    later = resumed_from(half, shared_folder / "half", device)
    advance(later, STEPS - STEPS // 2, STEP)
    assert row_of(later) == row_of(whole)
    assert np.isfinite(list(row_of(whole).values())).all()
