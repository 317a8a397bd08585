"""Texts of expressions: accepted ones, and messages about refused ones."""

import pytest

from flows import MHD, start
from slipstream.engine.errors import InputError
from slipstream.spectral.expressions import accepted_names, quantity_of


@pytest.fixture(scope="module")
def problem():
    return start("cpu", *MHD, "grid.points=8").problem


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("velocity", "a vector"),
        ("magnetic_z", "a scalar"),
        ("pressure", "a scalar"),
        ("grad(velocity)", "a tensor"),
        ("function(sympy.exp, dot(velocity, magnetic))", "a scalar"),
        ("function(cos, x) * velocity", "a vector"),
        ("laplacian(velocity, 2)", "a vector"),
        ("+velocity_x - -1 + pi", "a scalar"),
        (" + ".join(["velocity_x"] * 300), "a scalar"),
        (1.5, "a scalar"),
    ],
)
def test_kind_of_an_expression(problem, text, kind):
    assert quantity_of(text, problem).kind == kind


@pytest.mark.parametrize(
    "text", ["velocity / (1 + abs(velocity_x))", "velocity_x ** -2", "(1 + velocity_x)**0.5"]
)
def test_an_expression_is_called_as_it_was_written(problem, text):
    assert quantity_of(text, problem).text == text


def test_quantities_keep_their_parentheses(problem):
    a, v = (quantity_of(name, problem) for name in ("velocity_x", "velocity"))
    expression = "1 + velocity_x"
    for quantity, text in [
        ((1 + a) * v, f"({expression}) * velocity"),
        (v / (1 + a), f"velocity / ({expression})"),
        (v / (a * a), "velocity / (velocity_x * velocity_x)"),
        ((1 + a) ** 2, f"({expression}) ** 2"),
    ]:
        assert quantity.text == text


def test_every_accepted_name_is_a_quantity(problem):
    names = accepted_names(problem)
    assert {"velocity", "velocity_x", "current_density", "pressure"} <= names.keys()
    for name in names:
        assert quantity_of(name, problem).text == name


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("vorticty", "has the unknown name 'vorticty'; did you mean 'vorticity'"),
        ("dott(velocity, velocity)", "has the unknown name 'dott'; did you mean 'dot'"),
        ("viscosty * velocity", "has the unknown name 'viscosty'; did you mean 'viscosity'"),
        ("dot(velocity, pressure)", "pressure is a scalar; expected a vector or a tensor"),
        ("velocity * velocity", "expected dot, cross or outer"),
        ("velocity + 1", "a vector and a scalar cannot be added"),
        ("x * velocity_x", "x is not periodic"),
        ("sqrt(velocity)", "velocity is a vector; expected a scalar"),
        ("curl(velocity, 2)", "has curl of 2 arguments; expected 1"),
        ("laplacian(velocity, 9.5)", "beyond -8 to 8, or 0"),
        ("function(eval, velocity_x)", "has function 'eval'; accepted: sin, cos"),
        ("__import__('os')", "has 'os'"),
        ("velocity.forms", "has 'Attribute'"),
        ("velocity[0:2]", "has an index that is not a whole number"),
        ("velocity[True]", "has an index that is not a whole number"),
        ("velocity[3]", "expected 0, 1 or 2"),
        ("velocity.T", "expected a tensor"),
        ("[velocity for x in y]", "has 'ListComp'"),
        ("velocity_x ** magnetic_x", "has an exponent that is not a number"),
        ("velocity_x ** 100", "has an exponent beyond 12"),
        ("(velocity_x + velocity_y + velocity_z + 1) ** 12", "more than 2000 terms"),
        ("laplacian(velocity_x * velocity_y, 8) * velocity_x", "of an order beyond 4"),
        ("laplacian(laplacian(velocity, 8))", "a derivative of an order beyond 16"),
        ("velocity_x / 0", "divides by 0"),
        ("9 ** 9 ** 9 * velocity_x", "beyond"),
        ("", "is not a"),
        ("velocity_x +", "is not a"),
        ("-" * 60 + "velocity_x", "nested more than 20 deep"),
        ("velocity_x" * 1000, "letters, beyond"),
        ([1], "is of type list; accepted: text or a quantity"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(problem, text, reason):
    with pytest.raises(InputError) as caught:
        quantity_of(text, problem, "output.scalars")
    message = str(caught.value)
    assert message.startswith("output.scalars: ")
    assert reason in message
    assert "\n" not in message
