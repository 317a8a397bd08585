"""Advection and diffusion of fields, against exact solutions."""

import math

import numpy as np
import pytest

from field_values import coordinates, formulas, largest_error, values
from flows import advance, start


def test_uniform_velocity_carries_a_scalar_that_diffuses(device):
    diffusivity, time, steps = 0.05, 0.6, 60
    simulation = start(
        device,
        f"scalars=[{{diffusivity={diffusivity}}}]",
        *formulas(velocity=["0.8", "-0.5", "0.3"], scalar="sin(x + 2*y) + cos(2*z) + 3"),
    )
    advance(simulation, steps, time / steps)
    x, y, z = coordinates(simulation)
    x, y, z = x - 0.8 * time, y + 0.5 * time, z - 0.3 * time
    expected = (
        math.exp(-5 * diffusivity * time) * np.sin(x + 2 * y)
        + math.exp(-4 * diffusivity * time) * np.cos(2 * z)
        + 3
    )
    # Carried by t (k u)^5 step^4 / 120 wrongly, of k u below 1; diffusion is exact.
    assert largest_error(simulation, scalar=expected) <= 1e-9


@pytest.mark.parametrize("power", [2, 3])
def test_hyperviscosity_lets_waves_decay_exactly(device, power):
    viscosity, time = 0.02, 0.5
    simulation = start(
        device,
        f"equation.viscosity={viscosity}",
        f"equation.viscosity_power={power}",
        f"scalars=[{{diffusivity={2 * viscosity},diffusivity_power={power}}}]",
        *formulas(velocity=["sin(2*y + z)", "0", "0"], scalar="cos(y - 2*z)"),
    )
    initial = values(simulation)
    advance(simulation, 1, time)
    decay = math.exp(-viscosity * 5**power * time)
    # The shear u(y, z) moves nothing along x, so the integrating factor leaves roundings alone.
    error = largest_error(
        simulation, velocity_x=decay * initial["velocity_x"], scalar=decay**2 * initial["scalar"]
    )
    assert error <= 1e-14


OWN = """
from slipstream.equations import Model, Scalar, Vector, div, dot, grad, laplacian, x_hat

def bulk(shear, bulk):
    v = Vector("velocity")
    return Model({v: shear * laplacian(v) + bulk * grad(div(v))})

def layered(along):
    u = Vector("velocity", solenoidal=True)
    return Model({u: laplacian(u) / 10 + along * laplacian(dot(u, x_hat)) * x_hat})
"""


def settings_of(tmp_path, text):
    (tmp_path / "own.py").write_text(OWN)
    return f"equation={{ {text.replace('FILE', str(tmp_path / 'own.py'))} }}"


def test_components_may_decay_at_different_rates(device, tmp_path):
    shear, bulk, time, steps = 0.1, 0.3, 0.5, 50
    simulation = start(
        device,
        settings_of(tmp_path, f"model = 'FILE:bulk', shear = {shear}, bulk = {bulk}"),
        *formulas(velocity=["sin(2*x) + cos(x + y)", "cos(x + y)", "sin(x)"]),
    )
    initial = values(simulation)
    assert simulation.problem.model.decay[0] != simulation.problem.model.decay[1]
    advance(simulation, steps, time / steps)
    x, y, z = coordinates(simulation)
    # What lies along its wavevector decays by both viscosities, what lies across by one.
    waves = math.exp(-4 * (shear + bulk) * time), math.exp(-2 * (shear + bulk) * time)
    error = largest_error(
        simulation,
        velocity_x=waves[0] * np.sin(2 * x) + waves[1] * np.cos(x + y),
        velocity_y=waves[1] * np.cos(x + y),
        velocity_z=math.exp(-shear * time) * initial["velocity_z"],
    )
    # t rate^5 step^4 / 120 for rates up to 1.6.
    assert error <= 1e-9


def test_vector_stays_without_divergence_where_its_components_decay_differently(device, tmp_path):
    along, time, steps = 0.4, 0.5, 50
    simulation = start(
        device,
        settings_of(tmp_path, f"model = 'FILE:layered', along = {along}"),
        *formulas(velocity=["sin(y)", "0", "0"]),
    )
    model = simulation.problem.model
    assert len(set(model.decay)) == 1
    advance(simulation, steps, time / steps)
    _, y, _ = coordinates(simulation)
    expected = math.exp(-(0.1 + along) * time) * np.sin(y)
    assert largest_error(simulation, velocity_x=expected) <= 1e-10
    oblique = advance(start(device, simulation_settings(simulation)), 3)
    diagnostics = oblique.diagnostics()
    assert diagnostics["divergence"] <= 1e-14 * math.sqrt(diagnostics["enstrophy"])


def simulation_settings(simulation):
    """Return the equation of a simulation, for another one."""
    parameters = [f"{key} = {value!r}" for key, value in simulation.case.equation]
    return f"equation={{ {', '.join(parameters)} }}"
