"""Flows that blow up say so at the step at which they do, and steps that are too large before."""

import math
import warnings

import numpy as np
import pytest

from slipstream import Flow, Turbulence
from slipstream.engine.collective import sum_over_ranks
from slipstream.engine.errors import RunError
from slipstream.equations import Model, Scalar, laplacian
from slipstream.show.solver_texts import result_texts
from slipstream.spectral.cfl import stable_courant

N = 16
RANDOM = {"velocity": ["5*sin(2*y)", "5*sin(z + 1)", "5*cos(x + y)"]}
pytestmark = [
    pytest.mark.filterwarnings("ignore:kmax_eta", "ignore:numerics.dealiasing"),
    pytest.mark.filterwarnings("ignore:time.step", "ignore:invalid value", "ignore:overflow"),
]


def heat(conductivity=1.0):
    temperature = Scalar("temperature")
    return Model({temperature: conductivity * laplacian(temperature)})


def linear(**options):
    """Return a flow without products, and without a speed: too large a step amplifies each mode."""
    initial = {"temperature": "sin(x) + 0.01*sin(5*z)"}
    return Flow(heat, initial=initial, integrating_factor=False, **options)


def quantum(**options):
    initial = {"psi_real": "3*cos(x) + 2*sin(y)", "psi_imaginary": "3*sin(x)"}
    return Flow("gpe", initial=initial, **options)


def fluid(**options):
    return Turbulence(viscosity=1e-4, initial=RANDOM, **options)


def with_scalar(**options):
    return Turbulence(viscosity=1e-4, scalars=1, initial=RANDOM | {"scalar": "cos(x)"}, **options)


def magnetic(**options):
    given = {"viscosity": 1e-4, "resistivity": 1e-4, "initial": "orszag-tang-3d"}
    return Flow("mhd", **given, **options)


@pytest.mark.parametrize(
    ("make", "precision"),
    [
        (linear, "float64"),
        (quantum, "float32"),
        (fluid, "float64"),
        (with_scalar, "float32"),
        (magnetic, "float64"),
    ],
)
def test_a_blow_up_raises_at_its_step_and_not_one_later(comm, device, make, precision):
    sim = make(points=N, step=1.0, precision=precision, integrator="rk2", comm=comm, device=device)
    sim.solver._steps_under_way = 1
    with pytest.raises(RunError, match="blown up") as error:
        while sim.steps < 500:
            before = dict(sim.diagnostics)
            sim.step()
    assert f"at step {sim.steps}, t = {sim.time:g}" in str(error.value)
    assert all(map(math.isfinite, (v for k, v in before.items() if k != "budget_residual")))
    # What was left of it can still be looked at.
    assert not sim.diagnostics["energy"] < 1e299
    with pytest.raises(RunError, match="blown up"):
        sim.step()


def test_steps_that_are_looked_at_together_are_looked_at_before_a_run_returns(comm, device):
    sim = linear(points=N, step=1.0, comm=comm, device=device)
    sim.solver._steps_under_way = 1000
    with pytest.raises(RunError, match="blown up"):
        sim.step(100)
    assert sim.steps == 100


def test_a_flow_that_is_set_anew_after_a_blow_up_goes_on(comm, device):
    sim = fluid(points=N, step=1.0, comm=comm, device=device)
    with pytest.raises(RunError, match="blown up"):
        sim.step(500)
    sim.fields["velocity"] = 0.01 * np.ones(sim.fields["velocity"].shape)
    sim.step(2)
    assert sim.diagnostics["energy"] == pytest.approx(1.5e-4)


@pytest.mark.parametrize("streaming", [{"update": "host"}, {"tiles": 3}])
def test_fields_on_the_host_blow_up_as_loudly(comm, device, streaming):
    run = {"residency": "host", "streaming": streaming}
    sim = linear(points=N, step=1.0, comm=comm, device=device, run=run)
    sim.solver._steps_under_way = 1
    with pytest.raises(RunError, match="blown up") as error:
        sim.step(500)
    apart = linear(points=N, step=1.0, comm=comm, device=device)
    apart.solver._steps_under_way = 1
    with pytest.raises(RunError) as expected:
        apart.step(500)
    assert str(error.value) == str(expected.value)


def largest_rate(sim):
    """Return max(|u|/dx + |v|/dy + |w|/dz) by NumPy."""
    velocity = np.abs(sim.fields["velocity"].gather()).sum(axis=0)
    return velocity.max() * N / (2 * math.pi)


def test_a_fixed_step_has_a_courant_number_and_is_warned_of_if_it_is_large(comm, device):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sim = fluid(points=N, step=0.01, comm=comm, device=device)
        expected = 0.01 * largest_rate(sim)
        assert sim.courant_number == pytest.approx(expected, rel=1e-9)
        sim.step(2)
    assert not [one for one in caught if "Courant" in str(one.message)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sim = fluid(points=N, step=0.1, comm=comm, device=device)
        sim.solver._steps_under_way = 1
        sim.step(2)
        sim.step(2)
    told = [str(one.message) for one in caught if "Courant" in str(one.message)]
    assert told == (
        [
            "time.step: 0.1 has a Courant number above 1, where a flow may blow up or lose its"
            f" waves; use a smaller step, or time.cfl instead: {10 * expected:.3g} at t = 0"
        ]
        if sim.rank == 0
        else []
    )
    most, when = result_texts(sim.solver, 1.0, 1)["largest Courant number"]
    assert float(most) >= float(f"{10 * expected:.3g}") and when.startswith("at t = ")
    # Of N points, the waves of up to N/3 are kept.
    limit = math.sqrt(8) / (2 * math.pi * ((N - 1) // 3) / N)
    assert when.endswith(f"stable with rk4 up to about {limit:.2g}")


@pytest.mark.slow
@pytest.mark.one_rank
@pytest.mark.parametrize("integrator", ["rk3", "jst4", "etdrk4", "ars233", "rk2"])
def test_waves_are_stable_up_to_the_courant_number_that_is_told(device, integrator):
    """A wave that a uniform wind carries keeps its energy below the limit, and grows above it."""

    def growth(courant):
        sim = Turbulence(
            points=[N, 1, 1],
            viscosity=0,
            scalars=1,
            step=courant * 2 * math.pi / N,
            comm=None,
            integrator=integrator,
            device=device,
            initial={"velocity": ["1", "0", "0"], "scalar": f"cos({(N - 1) // 3}*x)"},
        )
        limit = stable_courant(sim.solver.problem)
        before = sim.diagnostics["scalar_energy"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sim.step(20)
        return sim.diagnostics["scalar_energy"] / before, limit

    if integrator == "rk2":
        assert growth(0.3)[1] == 0 and growth(0.3)[0] > 1
        return
    _, limit = growth(0.1)
    assert growth(0.98 * limit)[0] <= 1 + 1e-12
    assert growth(1.04 * limit)[0] > 1.5


def test_adaptive_steps_have_the_courant_number_that_was_asked_for(comm, device):
    sim = fluid(points=N, cfl=0.3, comm=comm, device=device)
    assert sim.courant_number == pytest.approx(0.3)
    assert "largest Courant number" not in result_texts(sim.solver, 1.0, 1)
    # Waves count, also those of models without a speed.
    waves = quantum(points=N, step=1e-3, comm=comm, device=device)
    largest = 5 * math.sqrt(3)  # of 16 points, 5 waves are kept
    assert waves.courant_number == pytest.approx(1e-3 * (largest**2 - 1) / math.sqrt(2))


def test_the_budget_is_not_known_before_there_are_two_states(comm, device):
    sim = fluid(points=N, step=0.001, comm=comm, device=device)
    assert math.isnan(sim.diagnostics["budget_residual"])
    sim.step(2)
    known = sim.diagnostics["budget_residual"]
    assert math.isfinite(known)
    # Looked at twice, the same state says the same.
    assert sim.solver.diagnostics()["budget_residual"] == known
    sim.fields["velocity"] *= 0.5
    assert math.isnan(sim.diagnostics["budget_residual"])


def test_modes_of_a_rank_that_are_not_finite_are_found_by_all(comm, device):
    """The oracle of what the kernel marks: the state itself."""
    sim = quantum(points=N, step=1.0, comm=comm, device=device)
    sim.solver._steps_under_way = 1
    with pytest.raises(RunError):
        sim.step(500)
    modes = np.concatenate(
        [np.asarray(sim.modes[n]).ravel() for n in ("psi_real", "psi_imaginary")]
    )
    wrong = np.array([np.sum(~(np.abs(modes) < 1e150))])
    assert sum_over_ranks(sim.comm, wrong)[0] > 0
