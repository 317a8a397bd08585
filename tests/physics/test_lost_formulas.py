"""Formulas that a grid, a box or equations cannot hold: refused, or warned of with their loss."""

import re

import numpy as np
import pytest

from field_values import formulas, values
from flows import points_of, start
from own_models import own_models
from slipstream.engine.errors import InputError

POINTS = "grid.points=32"


def velocity(x="0", y="0", z="0"):
    return formulas(velocity=(x, y, z))


def force(text):
    return [f'forcing={{ kind = "formula", formula = ["{text}", "0", "0"] }}']


def share_of(warnings):
    """Return the share that the only warning says is lost."""
    (text,) = warnings
    return float(re.search(r": (\S+) % of its energy is lost", text)[1]) / 100


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "sin(30*y)",
            r"sin\(30\*y\) has waves along y beyond the 10 that grid.points = 32 .*100 %",
        ),
        ("cos(16*y)", r"waves along y beyond the 10 .*: 100 %"),
        ("2 + sin(14*y)", r"waves along y beyond the 10 .*: 100 %"),
        ("sin(1000*z)", r"waves along z beyond the 10 .*: 100 %"),
        ("exp(-(y - pi)**2/1e-9)", r"has waves along y beyond the 10 .*: 100 %"),
        ("y", "y is not periodic along y"),
        ("1000 + y", "is not periodic along y"),
        ("sin(0.5*y)", r"sin\(0.5\*y\) is not periodic, since its slope jumps, along y"),
        ("(y - pi)**2", "its slope jumps, along y"),
        ("1/y", "1/y is not a finite number everywhere"),
        ("sqrt(sin(y))", r"sqrt\(sin\(y\)\) is not a finite number everywhere"),
    ],
)
def test_formula_that_cannot_be_held_is_refused(device, text, message):
    with pytest.raises(InputError, match=r"^initial\.fields\.velocity: .*" + message):
        start(device, POINTS, *velocity(text))
    with pytest.raises(InputError, match=r"^forcing\.formula(\.velocity)?: .*" + message):
        start(device, POINTS, *force(text))


def test_gradients_are_refused(device):
    with pytest.raises(InputError, match=r"^initial.fields: velocity has a divergence.*: 100 %"):
        start(device, *velocity("sin(x)"))
    with pytest.raises(InputError, match=r"^forcing.formula has a divergence.*: 100 %"):
        start(device, *force("sin(x)"))


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "1",
        "sin(10*y) + cos(2*z)",
        "sign(sin(y)) * 0 + cos(y)",
        "exp(-(y - pi)**2)",
        "tanh((y - pi/2)/0.4) - tanh((y - 3*pi/2)/0.4) - 1",
    ],
)
def test_formula_that_fits_is_taken_without_a_word(device, text):
    simulation = start(device, "grid.points=[8, 96, 8]", *velocity(text))
    assert simulation.warnings() == []


def test_what_is_lost_is_said_once_and_rightly(device):
    # Mean squares of 1/2 and 0.02 / 2; the second is beyond the grid.
    simulation = start(device, POINTS, *velocity("sin(y) + sqrt(0.02)*sin(30*y)"))
    assert share_of(simulation.warnings()) == pytest.approx(0.02 / 1.02, rel=1e-2)
    assert simulation.warnings() == []
    # The same with a gradient; only its solenoidal part remains.
    simulation = start(device, *velocity("sin(y) + sqrt(0.02)*sin(x)"))
    assert share_of(simulation.warnings()) == pytest.approx(0.02 / 1.02, rel=1e-2)
    expected = np.sin(2 * np.pi * np.arange(16) / 16)[:, None] + np.zeros((16, 16, 16))
    np.testing.assert_allclose(points_of(simulation)[0], expected, atol=1e-14)


def test_modes_beyond_the_sphere_are_lost(device):
    sphere = 'numerics.dealiasing="2/3 sphere"'
    with pytest.raises(InputError, match="velocity_x has modes beyond the sphere .*: 100 %"):
        start(device, POINTS, sphere, *velocity("sin(10*y)*sin(10*z)"))
    assert start(device, POINTS, sphere, *velocity("sin(7*y)*sin(7*z)")).warnings() == []


def test_an_axis_of_one_point_is_the_plane_at_0(device):
    simulation = start(device, "grid.points=[16, 16, 1]", *velocity("sin(y)*cos(z)"))
    (text,) = simulation.warnings()
    assert "varies along z, where grid.points is 1: its values at z = 0 are taken" in text


def test_coefficients_are_held_too(device, tmp_path):
    model = own_models(
        "from slipstream.equations import Model, Scalar, function, x\nimport sympy\n"
        "def wavy(waves):\n    a = Scalar('a')\n"
        "    return Model({a: -function(sympy.sin, waves * x) * a})\n",
        tmp_path,
    )
    begin = formulas(a="1")
    with pytest.raises(InputError, match=r"^equation.model: .* has waves along x beyond the 10"):
        start(device, POINTS, *model("wavy", "waves = 30"), *begin)
    assert start(device, POINTS, *model("wavy", "waves = 10"), *begin).warnings() == []


def test_files_say_what_is_left_out(device, tmp_path):
    y = 2 * np.pi * np.arange(16)[:, None] / 16
    path = tmp_path / "flow.npz"
    wave = np.sin(y) + np.sqrt(0.02) * np.sin(7 * y)
    np.savez(path, velocity_x=wave + np.zeros((16, 16, 16)))
    simulation = start(device, "initial.flow=file", f"initial.path={path}")
    assert share_of(simulation.warnings()) == pytest.approx(0.02 / 1.02, rel=1e-2)
    np.savez(path, **values(simulation))
    again = start(device, "initial.flow=file", f"initial.path={path}")
    assert again.warnings() == []


@pytest.mark.parametrize("time", ["", " * cos(t)", " + 0.3*sin(t)*cos(2*y)"])
def test_a_narrow_force_is_evaluated_as_it_is_written(device, time):
    """Multiplied out, its exponential would be 0 times infinity."""
    text = "exp(-(y - pi)**2/0.05)"
    simulation = start(device, "grid.points=[4, 48, 4]", *force(text + time))
    simulation.diagnostics()
    patterns = simulation.device.to_host(simulation.flow.modes_of(simulation.flow.forcing))
    y = 2 * np.pi * np.arange(48) / 48
    modes = np.fft.fft(np.exp(-((y - np.pi) ** 2) / 0.05)) / 48
    found = [one[0, :16, 0] for one in patterns if np.abs(one).max() > 0]
    errors = [np.abs(one - modes[:16]).max() for one in found]
    assert min(errors) <= 1e-15
