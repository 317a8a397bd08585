"""The work of forces in the rows of a run, and the energy budget that closes with it."""

from itertools import product

import numpy as np
import pytest
from rich.console import Console

from flows import diagnostics, make_case
from pairwise import every_pair
from slipstream.runs import make_simulation
from slipstream.runs.resuming import resume_run
from slipstream.runs.run_case import run_case

QUIET = Console(quiet=True)
BOX = (
    "grid.points=[12, 12, 12]",
    "equation.viscosity=0.05",
    "initial.amplitude=0.6",
    "initial.peak_wavenumber=2.0",
    "time.end=0.4",
    "output.pictures=false",
    "output.report=false",
)
KINDS = {
    "ornstein-uhlenbeck": [
        '{ kind = "ornstein-uhlenbeck", amplitude = 0.3, correlation_time = 0.1 }'
    ],
    "random": ['{ kind = "random", amplitude = 0.3, correlation_time = 0.05 }'],
    "random with a power": ['{ kind = "random", injection = 0.1, correlation_time = 0.1 }'],
    "taylor-green": ['{ kind = "taylor-green", injection = 0.1 }'],
    "constant-energy": ['{ kind = "constant-energy", shells = [1, 1] }'],
    "linear": ['{ kind = "linear", rate = 0.05, shells = [1, 1] }'],
    "linear with a power": ['{ kind = "linear", injection = 0.05, shells = [1, 1] }'],
    "formula": ['{ kind = "formula", formula = ["0", "0.1*cos(2*x)*sin(t)", "0"] }'],
}
KINDS["two"] = KINDS["ornstein-uhlenbeck"] + KINDS["formula"]
KINDS["four"] = KINDS["two"] + KINDS["constant-energy"] + KINDS["linear"]
MEMORY = {
    "device": (),
    "host": ("run.residency=host", "run.streaming={ tiles = 3 }"),
    "disk": ("run.residency=disk",),
}


STEPS = {"fixed": ("time.step=0.02",), "adaptive": ("time.cfl=0.05", "time.max_step=0.02")}


def settings_of(kind, *more, steps=STEPS["fixed"]):
    return (*BOX, *steps, f"forcing=[{', '.join(KINDS[kind])}]", *more)


def run(settings, comm, device, folder):
    run_case(make_simulation(make_case(*settings), comm, device), folder, QUIET)
    if comm is not None:
        comm.Barrier()
    return diagnostics(folder)


# Dissipation is known in the rows alone, so that few of them leave more.
@pytest.mark.slow
@pytest.mark.samples(3)
@pytest.mark.parametrize(("interval", "most"), [(0.02, 6e-4), (0.1, 2e-3)])
@pytest.mark.parametrize("kind", KINDS)
def test_budget_closes(comm, device, shared_folder, kind, interval, most):
    settings = settings_of(kind, f"output.diagnostics_interval={interval}")
    rows = run(settings, comm, device, shared_folder / "run")
    assert np.isnan(rows["budget_residual"][0]) and np.isnan(rows["work"][0])
    assert np.abs(rows["budget_residual"][1:]).max() < most
    lost = np.diff(rows["time"]) * (rows["dissipation"][1:] + rows["dissipation"][:-1]) / 2
    np.testing.assert_allclose(
        np.diff(rows["energy"]) + lost, rows["work"][1:], rtol=0, atol=most * lost.max()
    )


@pytest.mark.parametrize("kind", ["ornstein-uhlenbeck", "four"])
def test_work_is_that_of_all_steps(comm, device, shared_folder, kind):
    every, fifth = (
        run(
            settings_of(kind, f"output.diagnostics_interval={interval}"),
            comm,
            device,
            shared_folder / str(interval),
        )
        for interval in (0.02, 0.1)
    )
    sums = every["work"][1:].reshape(4, 5).sum(axis=1)
    # Of forces that change with the flow and the time alone, by the trapezoidal rule.
    rounding = 1e-13 if kind == "ornstein-uhlenbeck" else 1e-4
    np.testing.assert_allclose(fifth["work"][1:], sums, rtol=0, atol=rounding)


@pytest.mark.slow
@pytest.mark.samples(2)
@pytest.mark.parametrize(
    ("kind", "steps", "memory"),
    every_pair(product(["ornstein-uhlenbeck", "random with a power", "four"], STEPS, MEMORY)),
)
def test_a_resumed_run_writes_the_same_rows(comm, device, shared_folder, kind, steps, memory):
    more = *MEMORY[memory], "output.diagnostics_interval=0.1"
    settings = settings_of(kind, *more, steps=STEPS[steps])
    whole = run(settings, comm, device, shared_folder / "whole")
    # The state lies between two rows, the row that the first segment ends with is not kept.
    run((*settings, "time.max_steps=7"), comm, device, shared_folder / "parts")
    resume_run(shared_folder / "parts", ["time.max_steps=1000"], comm, device, QUIET)
    if comm is not None:
        comm.Barrier()
    parts = diagnostics(shared_folder / "parts")
    if steps == "fixed":
        for name, values in whole.items():
            assert parts[name].tobytes() == values.tobytes(), name
    else:  # the first step after a state has another size
        assert len(parts["step"]) == len(whole["step"])
        assert np.abs(parts["budget_residual"][1:]).max() < 2e-3


@pytest.mark.slow
def test_bodies_and_a_mean_flow_do_work(comm, device, shared_folder):
    """The first steps stop the fluid in the body: their work is no mean of two rows."""
    settings = (
        *BOX,
        *STEPS["fixed"],
        "grid.points=[16, 16, 16]",
        "bodies=[{ name = 'ball', shape = 'sphere', radius = 1.0, eta = 0.05 }]",
        "forcing=[{ kind = 'mean-flow', velocity = [0.5, 0.0, 0.0] }]",
        "output.diagnostics_interval=0.1",
    )
    rows = run(settings, comm, device, shared_folder / "ball")
    assert np.abs(rows["budget_residual"][1:]).max() < 0.02


@pytest.mark.slow
def test_scalars_have_their_own_work(comm, device, shared_folder):
    forces = [*KINDS["ornstein-uhlenbeck"], '{ kind = "random", field = "dye", injection = 0.1 }']
    scalars = "scalars=[{ name = 'dye', diffusivity = 0.05, initial = 'sin(x)' }]"
    settings = (
        *BOX,
        *STEPS["fixed"],
        f"forcing=[{', '.join(forces)}]",
        scalars,
        "output.diagnostics_interval=0.02",
    )
    rows = run(settings, comm, device, shared_folder / "dye")
    assert np.abs(rows["dye_residual"][1:]).max() < 2e-3
    assert np.abs(rows["budget_residual"][1:]).max() < 6e-4
    assert rows["dye_work"][1:].sum() == pytest.approx(0.04, rel=0.05)
