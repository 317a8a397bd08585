"""Fields driven by functions of x and t, and multiplied by them: exact solutions."""

import math

import numpy as np
import pytest

from field_values import coordinates, formulas, largest_error, values
from flows import advance, modes_of, save, start
from own_models import own_models
from slipstream.engine.errors import InputError

OWN = """
import sympy
from slipstream.equations import (
    Model, Scalar, Vector, div, dot, function, grad, laplacian, outer, t, x, x_hat, y, y_hat, z
)

def sin(quantity):
    return function(sympy.sin, quantity)

def cos(quantity):
    return function(sympy.cos, quantity)

def swinging(viscosity, frequency):
    u = Vector("velocity", solenoidal=True)
    force = cos(frequency * t) * sin(4 * y) * x_hat + sin(x) * x_hat
    return Model({u: -div(outer(u, u)) + viscosity * laplacian(u) + force})

def plain(viscosity):
    u = Vector("velocity", solenoidal=True)
    return Model({u: -div(outer(u, u)) + viscosity * laplacian(u)})

def pulse():
    a, b = Scalar("a"), Scalar("b")
    shape = function(sympy.exp, cos(x - t))
    return Model({a: sin(x - t) * shape - a * b + b * b, b: cos(t) - b * b + a * a})

def sheared():
    a = Scalar("a")
    return Model({a: -(sin(y) * dot(x_hat, grad(a)))}, means={"flux": sin(y) * a * a})

def uneven(width):
    a = Scalar("a")
    return Model({a: -sin(x / width) * a})
"""


@pytest.fixture(scope="module")
def settings_of(tmp_path_factory):
    return own_models(OWN, tmp_path_factory.mktemp("models"))


def shear_under_a_swinging_force(y, time, viscosity, frequency):
    """Return u_x of a shear flow at rest at first: du/dt = cos(w t) sin(4 y) - 16 nu u."""
    rate = 16 * viscosity
    swing = rate * math.cos(frequency * time) + frequency * math.sin(frequency * time)
    return (swing - rate * math.exp(-rate * time)) / (rate**2 + frequency**2) * np.sin(4 * y)


def test_swinging_force_drives_the_exact_shear_flow(device, settings_of):
    viscosity, frequency, time, steps = 0.05, 3.0, 1.0, 50
    simulation = start(
        device,
        *settings_of("swinging", f"viscosity = {viscosity}", f"frequency = {frequency}"),
        *formulas(velocity=("0", "0", "0")),
    )
    advance(simulation, steps, time / steps)
    _, y, _ = coordinates(simulation)
    # The force along sin(x) x_hat is a gradient, which pressure balances.
    expected = shear_under_a_swinging_force(y, time, viscosity, frequency)
    # Simpson's rule: time (w step)^4 w / 2880, times what the viscosity leaves.
    assert largest_error(simulation, velocity_x=expected, velocity_y=0, velocity_z=0) <= 1e-6


def test_force_of_the_case_is_that_of_the_equations(device, settings_of):
    begin = formulas(velocity=("0", "sin(z)", "cos(x)"))
    written = start(device, *settings_of("swinging", "viscosity = 0.05", "frequency = 3.0"), *begin)
    table = start(
        device,
        *settings_of("plain", "viscosity = 0.05"),
        *begin,
        'forcing={ kind = "formula", formula = ["cos(3*t)*sin(4*y) + sin(x)", "0", "0"] }',
    )
    one, other = (modes_of(advance(simulation, 5)) for simulation in (written, table))
    assert np.abs(one).max() > 0.1
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-15)
    assert written.diagnostics()["injection"] == pytest.approx(table.diagnostics()["injection"])


def test_work_of_sources_is_in_the_energy_budget(device, settings_of):
    simulation = start(
        device,
        *settings_of("swinging", "viscosity = 0.05", "frequency = 3.0"),
        *formulas(velocity=("sin(4*y)", "0", "0")),
    )
    before = simulation.diagnostics()
    # The mean of sin^2 is a half.
    assert before["injection"] == pytest.approx(0.5, rel=1e-12)
    after = advance(simulation, 1, 1e-3).diagnostics()
    # The trapezoidal rule over 1e-3 errs by its square.
    assert abs(after["budget_residual"]) <= 1e-5


@pytest.mark.parametrize(("integrator", "order"), [("heun", 2), ("rk4", 4)])
def test_changing_forces_keep_the_order_of_the_integrator(device, settings_of, integrator, order):
    """A pulse that travels cannot be parted into space and time; a + b = exp(cos(x-t)) + sin t."""

    def state(steps):
        simulation = start(
            device,
            *settings_of("pulse"),
            "grid.points=[32, 1, 1]",
            f"time.integrator={integrator}",
            *formulas(a="exp(cos(x))", b="0.3"),
            "numerics.dealiasing=none",
        )
        return modes_of(advance(simulation, steps, 0.4 / steps))

    coarse, fine, finest = state(8), state(16), state(32)
    ratio = np.abs(coarse - fine).max() / np.abs(fine - finest).max()
    assert math.log2(ratio) >= order - 0.25


def test_shear_carries_a_scalar_exactly(device, settings_of):
    """a(x, y, t) = a(x - t sin(y), y, 0), whatever the strength of the shear."""
    simulation = start(
        device, *settings_of("sheared"), "grid.points=[32, 64, 1]", *formulas(a="sin(x) + cos(2*y)")
    )
    advance(simulation, 50, 0.02)
    x, y, _ = coordinates(simulation)
    expected = np.sin(x - np.sin(y)) + np.cos(2 * y)
    # The method of fourth order errs by time step^4 / 120; Bessel functions of order beyond 21,
    # which 64 points do not keep, are smaller than 1e-20.
    assert largest_error(simulation, a=expected) <= 1e-8
    # What multiplies a field is none: it is neither energy nor written.
    rows = simulation.diagnostics()
    assert rows["energy"] == pytest.approx((expected**2).mean() / 2, rel=1e-8)
    assert rows["flux"] == pytest.approx((np.sin(y) * expected**2).mean(), abs=1e-8)
    assert list(values(simulation)) == ["a"]
    assert [field.name for field in simulation.checkpoint()] == ["a_hat"]
    _, spectrum = simulation.spectra()["energy_spectrum"]
    assert spectrum.sum() == pytest.approx(rows["energy"], rel=1e-12)


def test_run_with_coefficients_goes_on_from_a_state(device, settings_of, tmp_path):
    settings = [*settings_of("sheared"), "grid.points=[16, 24, 1]"]
    whole = start(device, *settings, *formulas(a="sin(x) + cos(2*y)"))
    advance(whole, 3)
    save(whole, tmp_path)
    later = start(device, *settings, "initial={ restart = '" + str(tmp_path) + "' }")
    assert modes_of(advance(later, 2)).tobytes() == modes_of(advance(whole, 2)).tobytes()


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("x", r"forcing.formula.velocity: x is not periodic along x"),
        ("1/sin(x)", r"1/sin\(x\) is not a finite number everywhere"),
        ("tanh(x - 3) + 1000*cos(y)", r"tanh\(x - 3\) is not periodic along x"),
    ],
)
def test_force_has_to_fit_the_box(device, formula, message):
    settings = f'forcing={{ kind = "formula", formula = ["{formula}", "0", "0"] }}'
    with pytest.raises(InputError, match=message):
        start(device, settings)


def test_strength_cannot_follow_from_a_rate_where_the_force_has_time(device):
    settings = (
        'forcing={ kind = "formula", formula = ["sin(y)*cos(t)", "0", "0"], injection = 0.1 }'
    )
    with pytest.raises(InputError, match="forcing.injection: .* where the formula has t"):
        start(device, settings)


@pytest.mark.parametrize("width", [1.0, 0.5])
def test_coefficient_has_to_fit_the_box(device, settings_of, width):
    begin = formulas(a="1")
    start(device, *settings_of("uneven", f"width = {width}"), *begin)
    with pytest.raises(InputError, match=r"sin\(\S*x\) is not periodic along x in a box of leng"):
        start(device, *settings_of("uneven", f"width = {width * 1.3}"), *begin)
