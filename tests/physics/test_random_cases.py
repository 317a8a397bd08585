"""Runs and restarts with keys drawn at random give what plain NumPy gives."""

import math

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from rich.console import Console

from flows import RANDOM, diagnostics, points_of, relative_error
from numpy_solver import NumpySolver
from slipstream.case import parse_case
from slipstream.runs import make_simulation
from slipstream.runs.run_case import run_case

STEPS = 3
# What a run may change that continues from the state of another one.
LEGS = st.fixed_dictionaries(
    {
        "equation.viscosity": st.sampled_from([0.0, 0.003, 0.02]),
        "time.step": st.sampled_from([0.004, 0.01]),
        "time.integrator": st.sampled_from(["rk2", "rk3", "rk4"]),
        "numerics.integrating_factor": st.booleans(),
        "numerics.precision": st.sampled_from(["float64", "float64", "float32"]),
        "run.schedule": st.sampled_from(["serial", "overlap"]),
        "run.residency": st.sampled_from(["device", "host"]),
        "output.diagnostics_interval": st.sampled_from([0.004, 1.0]),
    }
)
BOXES = st.tuples(
    st.tuples(*[st.integers(5, 12)] * 3), st.tuples(*[st.sampled_from([3.0, 2 * math.pi, 7.5])] * 3)
)


def run(folder, keys):
    overrides = [
        f"{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in keys.items()
    ]
    simulation = make_simulation(parse_case(RANDOM, [*overrides, "run.device=cpu"]))
    run_case(simulation, folder, Console(quiet=True))
    return simulation


@pytest.mark.thorough
@settings(max_examples=6, phases=[Phase.generate])
@given(box=BOXES, first=LEGS, second=LEGS, seed=st.integers(0, 9))
def test_any_run_and_any_run_that_goes_on_from_it(tmp_path_factory, box, first, second, seed):
    points, lengths = box
    grid = {"grid.points": list(points), "grid.length": list(lengths), "time.max_steps": STEPS}
    start = {**grid, "initial.seed": seed, "initial.peak_wavenumber": 2.0}
    folder = tmp_path_factory.mktemp("runs")
    beginning = make_simulation(parse_case(RANDOM, [f"{k}={v}" for k, v in start.items()]))
    beginning.prepare()
    expected = NumpySolver(points_of(beginning), lengths, 0.0)
    restart = {**grid, "initial.restart": folder / "0"}
    for number, (leg, keys) in enumerate([(first, start), (second, restart)]):
        simulation = run(folder / str(number), {**keys, **leg})
        expected.viscosity = leg["equation.viscosity"]
        expected.advance(
            STEPS, leg["time.step"], leg["time.integrator"], leg["numerics.integrating_factor"]
        )
        single = "float32" in (first["numerics.precision"], leg["numerics.precision"])
        tolerance = 5e-6 if single else 1e-12
        velocity = expected.velocity()
        assert relative_error(points_of(simulation), velocity) <= tolerance
        last = {name: column[-1] for name, column in diagnostics(folder / str(number)).items()}
        energy = 0.5 * (velocity**2).sum(axis=0).mean()
        assert last["step"] == simulation.step == STEPS * (number + 1)
        assert np.isclose(last["energy"], energy, rtol=10 * tolerance, atol=0)
        assert np.isclose(
            last["dissipation"],
            2 * leg["equation.viscosity"] * last["enstrophy"],
            rtol=10 * tolerance,
            atol=1e-300,
        )
