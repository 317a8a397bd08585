"""Complex fields, coordinates and time in equations: what they are lowered to."""

import pytest
import sympy

from lowered_models import nu, parts, q, s, u
from refusals import refused
from slipstream.equations import (
    Model,
    Scalar,
    abs2,
    conj,
    cross,
    dot,
    function,
    grad,
    imag,
    laplacian,
    lower,
    real,
    t,
    x,
    x_hat,
    y,
    z,
    z_hat,
)
from slipstream.equations.fourier_forms import COORDINATES, TIME
from slipstream.spectral.force_patterns import patterns_of
from slipstream.spectral.runge_kutta_tableaux import METHODS

A = Scalar("A", complex=True)
X, Y, Z = COORDINATES


def sin(quantity):
    return function(sympy.sin, quantity)


def by_hand(equation):
    """Return the equations of both parts, in terms of two real fields."""
    a, b = Scalar("A_real"), Scalar("A_imaginary")
    return {a: equation(a, b)[0], b: equation(a, b)[1]}


EQUATIONS = {
    "Schroedinger": (1j * laplacian(A), lambda a, b: (-laplacian(b), laplacian(a))),
    "Ginzburg-Landau": (
        A + (1 + 2j) * laplacian(A) - (1 - nu * 1j) * abs2(A) * A,
        lambda a, b: (
            a + laplacian(a) - 2 * laplacian(b) - (a**2 + b**2) * (a + nu * b),
            b + laplacian(b) + 2 * laplacian(a) - (a**2 + b**2) * (b - nu * a),
        ),
    ),
    "square": (A**2 + conj(A) ** 2, lambda a, b: (2 * a**2 - 2 * b**2, 0)),
    "parts": (real(A) ** 2 + 1j * imag(A) * real(A), lambda a, b: (a**2, a * b)),
    "gradients": (
        dot(grad(A), grad(conj(A))) * 1j,
        lambda a, b: (0, abs2(grad(a)) + abs2(grad(b))),
    ),
}


@pytest.mark.parametrize("name", EQUATIONS)
def test_complex_equation_is_that_of_its_two_parts(name):
    equation, expected = EQUATIONS[name]
    model, other = lower(Model({A: equation})), lower(Model(by_hand(expected)))
    assert [str(one) for one in model.components] == ["A_real", "A_imaginary"]
    for attribute in ("products", "multipliers", "linear", "decay", "constant", "inputs"):
        assert getattr(model, attribute) == getattr(other, attribute)


def test_numbers_of_equations_are_exact():
    # With a binary 0.1 the two terms would not cancel, and nothing would be known of ranks.
    model = lower(Model({s: 0.1 * s**2 - s * s / 10 + 0.3 * s**3}))
    assert model.products == (s.values[0] ** 3,)
    assert model.multipliers == ((sympy.Rational(3, 10),),)


def test_derivative_of_a_product_may_be_a_factor():
    nested = lower(Model({s: dot(u, grad(s * s)), u: -dot(u, grad(u))}))
    plain = lower(Model({s: 2 * dot(u, s * grad(s)), u: -dot(u, grad(u))}))
    assert nested.products == plain.products
    assert nested.inputs == plain.inputs


def test_functions_of_coordinates_are_sources_and_coefficients():
    model = lower(
        Model({u: -dot(u, grad(u)) + sin(4 * y) * nu * x_hat, s: sin(y) * dot(x_hat, grad(s))})
    )
    assert model.sources == (nu * sympy.sin(4 * Y), 0, 0, 0, 0)
    assert model.coefficients == (sympy.sin(Y),)
    assert [str(one) for one in model.components][-1] == "coefficient_1"
    assert [str(one) for one in model.unknowns][-1] == "scalar"
    assert model.decay[-1] == 0
    assert model.linear[-1] == {}
    # Of the product there are two factors to physical space and one product back.
    assert parts(model) == (3 + 2, 5 + 1)
    assert nu in model.parameters


def test_derivatives_of_what_is_known_are_known():
    model = lower(Model({u: cross(z_hat, u) + grad(sin(x) * sin(2 * y)), s: laplacian(sin(3 * z))}))
    assert model.sources[0] == sympy.cos(X) * sympy.sin(2 * Y)
    assert model.sources[1] == 2 * sympy.sin(X) * sympy.cos(2 * Y)
    assert model.sources[3] == -9 * sympy.sin(3 * Z)


def test_coefficients_have_names_that_no_field_has():
    model = lower(Model({Scalar("coefficient_1"): sin(y) * s + sin(x) * s, s: sin(x) * s}))
    assert [str(one) for one in model.components] == [
        "coefficient_1",
        "scalar",
        "coefficient_2",
        "coefficient_3",
    ]


def test_coefficients_that_are_the_same_are_kept_once():
    model = lower(Model({s: sin(y) * q * s + 3 * (sin(y) * s), q: sin(y) * s * nu}))
    assert model.coefficients == (sympy.sin(Y),)


MISTAKES = {
    "coordinate": (
        lambda: x * u,
        r"x \* velocity: x is not periodic; expected a periodic function "
        r"of it, such as function\(sympy.sin, x\)",
    ),
    "coordinate in a sum": (lambda: dot((sin(x) + y) * x_hat, u), "y is not periodic"),
    "coordinate alone": (lambda: Model({s: y * sin(x)}), "equation of scalar: y .*y is not perio"),
    "time": (
        lambda: lower(Model({s: function(sympy.cos, t) * s})),
        r"term scalar\*cos\(t\): expected a function of x, y and z times fields",
    ),
    "function of both": (lambda: lower(Model({s: sin(x + s)})), r"term sin\(x \+ scalar\)"),
    "complex": (
        lambda: Model({s: A * s, A: A}),
        r"equation of scalar: A \* scalar is a complex scalar; expected a real scalar",
    ),
    "complex mean": (lambda: Model({A: A}, means={"m": A}), "mean m: A is a complex scalar"),
    "mean of time": (lambda: lower(Model({s: -s}, means={"m": s + t})), "mean m: term t: expected"),
    "infinity": (lambda: s * float("inf"), "inf is not accepted; accepted: finite numbers"),
    "function": (lambda: sin(A), r"sin\(A\): A is a complex scalar; expected a real quantity"),
    "complex vector": (lambda: Model({u: 1j * u}), "a complex vector; expected a real vector"),
    "type": (lambda: Model({A: A * grad(A)}), "is a complex vector; expected a complex scalar"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_told_where_it_is_made(name):
    mistake, message = MISTAKES[name]
    with refused(message):
        mistake()


# -- forces ----------------------------------------------------------------------------------


def parted(expression, method="rk4"):
    return patterns_of([expression], [(0,)], [], METHODS[method])


def test_forces_are_parted_into_space_and_time():
    (steady,) = parted(2 * sympy.sin(X))
    assert (steady.shapes, steady.factor) == ((2 * sympy.sin(X),), 1)
    (swinging,) = parted(sympy.sin(X) * sympy.cos(TIME) * sympy.exp(-TIME))
    assert swinging.shapes == (sympy.sin(X),)
    assert swinging.factor == sympy.cos(TIME) * sympy.exp(-TIME)
    (uniform,) = parted(sympy.cos(TIME))
    assert uniform.shapes == (1,)
    assert parted(sympy.Integer(0)) == []


def test_travelling_wave_is_two_patterns():
    patterns = parted(sympy.sin(X - 2 * TIME))
    assert len(patterns) == 2
    total = sum(pattern.shapes[0] * pattern.factor for pattern in patterns)
    assert sympy.expand_trig(total - sympy.sin(X - 2 * TIME)).expand() == 0


@pytest.mark.parametrize("k", [1, 7, 40])
def test_short_travelling_waves_are_parted_without_loss(k):
    expression = sympy.cos(k * (X - TIME) + 3 * Y)
    total = sum(pattern.shapes[0] * pattern.factor for pattern in parted(expression))
    evaluate, exact = (sympy.lambdify([X, Y, TIME], one) for one in (total, expression))
    # Products of two sines and cosines: a few roundings of numbers of order k.
    assert abs(evaluate(1.1, 0.3, 2.3) - exact(1.1, 0.3, 2.3)) <= 1e-15 * 4 * k


@pytest.mark.parametrize(("method", "nodes"), [("rk2", [0, 1]), ("rk4", [0, 1, 2])])
def test_what_cannot_be_parted_has_a_pattern_for_each_node(method, nodes):
    pulse = sympy.exp(sympy.cos(X - TIME))
    patterns = parted(pulse, method)
    assert [pattern.node for pattern in patterns] == nodes
    assert all(pattern.shapes == (pulse,) for pattern in patterns)
