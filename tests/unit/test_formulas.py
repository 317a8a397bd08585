"""Formulas of initial states: what they mean, and the texts that they refuse."""

import math

import numpy as np
import pytest

from field_values import formulas
from flows import start
from slipstream.errors import InputError
from slipstream.spectral.formula_parser import formula

X, Y, Z = np.linspace(0.1, 2, 5), np.linspace(0.2, 1, 4)[:, None], np.ones((3, 1, 1)) / 3
MEANT = {
    "sin(x) * cos(2*y)": np.sin(X) * np.cos(2 * Y),
    "-x**2 + y/4 - +z": -(X**2) + Y / 4 - Z,
    "exp(-(x - pi)**2) + sqrt(2)": np.exp(-((X - np.pi) ** 2)) + math.sqrt(2),
    "tanh(x) + cosh(y) * sinh(z) - tan(z)": np.tanh(X) + np.cosh(Y) * np.sinh(Z) - np.tan(Z),
    "Abs(x - 1) * sign(y - 0.5) + log(x)": np.abs(X - 1) * np.sign(Y - 0.5) + np.log(X),
    "1/3": 1 / 3,
    "1e-3": 1e-3,
}


@pytest.mark.parametrize("text", MEANT)
def test_formula_is_evaluated_as_it_is_read(text):
    value = formula(text, "initial.fields.a")(X, Y, Z, np)
    np.testing.assert_allclose(value + 0 * X * Y * Z, MEANT[text] + 0 * X * Y * Z, rtol=1e-14)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').getcwd()",
        "x.__class__",
        "(1).real",
        "open('file')",
        "[x][0]",
        "lambda: x",
        "x if y else z",
        "x == y",
        "x and y",
        "'x'",
        "f'{x}'",
        "1j",
        "q",
        "S",
        "symbols",
        "eval",
        "sin(x=1)",
        "sin(*x)",
        "x := 1",
        "x ^ 2",
        "x % 2",
        "x // 2",
        "~x",
        "",
        "x +",
        "2 x",
        "x; y",
        "x\ny",
        "\0",
        "sin",
        "sin + 1",
        "x(1)",
        "pi(2)",
        "sin(x, y)",
        "1/0",
        "sqrt(-1)",
        "log(0)",
        "True",
        "log(True)",
        "9**9**9",
        "y**1" + "0" * 400,
        "y**(10**9)",
    ],
)
def test_formula_can_do_nothing_but_compute(text):
    with pytest.raises(InputError, match=r"^initial\.fields\.a: .*accepted: x, y, z") as caught:
        formula(text, "initial.fields.a")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"velocity": ["x", "y"]}, "2 formulas for 'velocity'; expected 3"),
        ({"velocity": "x"}, "1 formulas for 'velocity'; expected 3"),
        ({"buoyancy": "x"}, "the model has no field 'buoyancy'; it has: velocity, scalar"),
        ({"scalar": ["x", "y", "z"]}, "3 formulas for 'scalar'; expected 1"),
        ({"scalar": "q"}, "'q'"),
    ],
)
def test_initial_fields_are_those_of_the_model(device, fields, message):
    with pytest.raises(InputError, match=message):
        start(device, "equation.scalars=1", *formulas(**fields))
