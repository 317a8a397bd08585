"""Cases of the advection family: settings, defaults, and messages about wrong ones."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import refusal
from slipstream.advection import STRATEGIES
from slipstream.case import parse_case, validate_case

REPOSITORY = Path(__file__).resolve().parents[3]
MINIMAL = """
solver = "advection"
[grid]
points = 32
[time]
end = 1
"""


def failure(*overrides):
    return refusal(parse_case, MINIMAL, overrides)


def test_minimal_case_has_the_documented_defaults():
    case = parse_case(MINIMAL)
    assert case.grid.points_xyz == (32, 32, 32)
    assert case.points == 32**3
    assert case.flow.courant_xyz == (1.0, 1.0, 1.0)
    assert (case.initial.width, case.initial.restart) == (0.1, None)
    assert case.numerics.precision == "float64"
    assert (case.run.device, case.run.strategy, case.run.shell) == ("auto", "auto", 1)
    assert case.run.grid is None
    assert case.output.diagnostics_interval == 1 / 50


@pytest.mark.parametrize(
    ("points", "courant", "steps"),
    [
        ("64", "0.5", 128),
        ("64", "1", 64),
        ("[64, 32, 16]", "[0.5, 0.5, 0.5]", 32),  # z is crossed first
        ("[64, 32, 16]", "[1, -0.25, 0]", 64),
    ],
)
def test_time_is_counted_in_crossings_along_the_fastest_axis(points, courant, steps):
    case = parse_case(MINIMAL, [f"grid.points={points}", f"flow.courant={courant}"])
    assert steps * case.fixed_step == pytest.approx(1, rel=1e-15)
    assert "fixed step" in case.stepping


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("grid.points=[8, 8]", ["grid.points", "three"]),
        ("grid.points=0", ["grid.points", "at least 1 point"]),
        ("grid.length=1", ["grid.length", "accepted here: points"]),
        ("flow.courant=1.5", ["flow.courant", "from -1 to 1", "1.5"]),
        ("flow.courant=-2", ["flow.courant", "from -1 to 1", "-2"]),
        ("flow.courant=[1, 1]", ["flow.courant", "three", "[1, 1]"]),
        ("flow.courant=[1, 1, 'a']", ["flow.courant", "three"]),
        ("flow.courant=true", ["flow.courant", "number"]),
        ("flow.courant=nan", ["flow.courant", "number"]),
        ("flow.courant=0", ["flow.courant", "nothing moves"]),
        ("initial.width=0", ["initial.width", "greater than 0"]),
        ("initial.width=2", ["initial.width", "at most 1"]),
        ("initial.flow=abc", ["initial.flow", "restart, width"]),
        ("time.step=1", ["time.step", "end, max_steps"]),
        ("time.cfl=0.5", ["time.cfl", "end, max_steps"]),
        ("numerics.precision=float16", ["numerics.precision", "float64, float32"]),
        ("run.strategy=gpu-pear", ["run.strategy", "did you mean 'gpu-peer'", "hybrid-overlap"]),
        ("run.device=gpu", ["run.device", "auto, cpu, cuda"]),
        ("run.schedule=serial", ["run.schedule", "strategy"]),
        ("run.shell=-1", ["run.shell", "at least 0"]),
        ("run.grid=4", ["run.grid", "three whole numbers"]),
        ("run.grid=[1, 2]", ["run.grid", "three whole numbers", "[1, 2]"]),
        ("run.grid=[1, 2, 0]", ["run.grid", "at least 1"]),
        ("run.grid=[1, 2, true]", ["run.grid", "three whole numbers"]),
        ("output.spectra_interval=1", ["output.spectra_interval", "diagnostics_interval"]),
        ("equation.viscosity=1", ["equation", "accepted here"]),
    ],
)
def test_wrong_settings_are_named_in_one_line(override, expected):
    message = failure(override)
    assert all(part in message for part in expected), message


numbers = st.floats(-1, 1).filter(lambda number: abs(number) > 1e-3)
threes = st.lists(st.integers(1, 10**6), min_size=3, max_size=3)
cases = st.fixed_dictionaries(
    {
        "solver": st.just("advection"),
        "title": st.text(),
        "grid": st.fixed_dictionaries({"points": st.integers(1, 10**6) | threes}),
        "time": st.fixed_dictionaries({"end": st.floats(1e-6, 1e6)}),
    },
    optional={
        "flow": st.fixed_dictionaries(
            {"courant": numbers | st.lists(numbers, min_size=3, max_size=3)}
        ),
        "initial": st.fixed_dictionaries(
            {"width": st.floats(1e-6, 1)}, optional={"restart": st.text(min_size=1)}
        ),
        "run": st.fixed_dictionaries(
            {"strategy": st.sampled_from(["auto", *STRATEGIES])}, optional={"grid": threes}
        ),
    },
)


@given(cases)
def test_effective_case_loads_equal(data):
    case = validate_case(data)
    assert parse_case(case.to_toml()) == case
    assert 0 < case.fixed_step <= 1
    assert math.isfinite(case.fixed_step)
