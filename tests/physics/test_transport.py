"""What is carried and what diffuses, against exact solutions."""

import math

import numpy as np
import pytest

from field_values import coordinates, formulas, largest_error, values
from flows import advance, start


def test_uniform_velocity_carries_a_scalar_that_diffuses(device):
    diffusivity, time, steps = 0.05, 0.6, 60
    simulation = start(
        device, "equation.scalars=1", f"equation.diffusivity={diffusivity}",
        *formulas(velocity=["0.8", "-0.5", "0.3"], scalar="sin(x + 2*y) + cos(2*z) + 3"),
    )  # fmt: skip
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
        device, f"equation.viscosity={viscosity}", f"equation.viscosity_power={power}",
        "equation.scalars=1", f"equation.diffusivity={2 * viscosity}",
        *formulas(velocity=["sin(2*y + z)", "0", "0"], scalar="cos(y - 2*z)"),
    )  # fmt: skip
    initial = values(simulation)
    advance(simulation, 1, time)
    decay = math.exp(-viscosity * 5**power * time)
    # The shear u(y, z) moves nothing along x, so the integrating factor leaves roundings alone.
    error = largest_error(
        simulation, velocity_x=decay * initial["velocity_x"], scalar=decay**2 * initial["scalar"]
    )
    assert error <= 1e-14
