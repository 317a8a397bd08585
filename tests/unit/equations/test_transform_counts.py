"""Equations in vector notation take the fewest transforms, however they are written."""

import pytest
import sympy

from lowered_models import b, lowered, nu, parts, q, s, u, v
from slipstream.equations import (
    Model,
    abs2,
    cross,
    curl,
    div,
    dot,
    function,
    grad,
    laplacian,
    lower,
    models,
    outer,
    x_hat,
    z_hat,
)
from slipstream.equations.derived_models import CarriedScalar

ADVECTION = {
    "div(outer(u, u))": lambda u: div(outer(u, u)),
    "dot(u, grad(u))": lambda u: dot(u, grad(u)),
    "cross(curl(u), u)": lambda u: cross(curl(u), u),
    "half of two": lambda u: (div(outer(u, u)) + dot(u, grad(u))) / 2,
    "with a gradient": lambda u: dot(u, grad(u)) + grad(abs2(u)),
}
LORENTZ = {
    "cross(curl(b), b)": lambda b: cross(curl(b), b),
    "div(outer(b, b))": lambda b: div(outer(b, b)),
    "dot(b, grad(b))": lambda b: dot(b, grad(b)),
}
INDUCTION = {
    "curl(cross(u, b))": lambda u, b: curl(cross(u, b)),
    "dot(b, grad(u)) - dot(u, grad(b))": lambda u, b: dot(b, grad(u)) - dot(u, grad(b)),
    "div(outer(b, u) - outer(u, b))": lambda u, b: div(outer(b, u) - outer(u, b)),
}


@pytest.mark.parametrize("advection", ADVECTION)
def test_flow_takes_eight_transforms_in_any_notation(advection):
    model = lower(Model({u: -ADVECTION[advection](u) + nu * laplacian(u)}))
    # Six products of the velocity's components, less one that the pressure absorbs.
    assert parts(model) == (3, 5)
    assert model.transforms == 8
    assert model.inputs_are_state


CARRYING = {"div(u * s)": lambda: div(u * s), "dot(u, grad(s))": lambda: dot(u, grad(s))}


@pytest.mark.parametrize("advection", ["div(outer(u, u))", "dot(u, grad(u))"])
@pytest.mark.parametrize("carrying", CARRYING)
def test_stratified_flow_takes_twelve_transforms_in_any_notation(advection, carrying):
    momentum = -ADVECTION[advection](u) - nu * s * z_hat
    model = lower(Model({u: momentum, s: nu * dot(u, z_hat) - CARRYING[carrying]()}))
    # Twelve as well are three velocities, three gradients and six products: more memory.
    assert parts(model) == (4, 8)


@pytest.mark.slow
@pytest.mark.parametrize(("lorentz", "induction"), [*zip(LORENTZ, INDUCTION, strict=True)])
def test_magnetic_flow_takes_fourteen_transforms_in_any_notation(lorentz, induction):
    model = lower(Model({u: LORENTZ[lorentz](b) - dot(u, grad(u)), b: INDUCTION[induction](u, b)}))
    # Five products for the velocity, and the three of u x b.
    assert parts(model) == (6, 8)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_scalar_that_is_carried_takes_four_transforms_more(count):
    scalars = [CarriedScalar(f"s{n}", 0.1, 1, (0.0, 0.0, 1.0)) for n in range(count)]
    model = lowered("hd", viscosity=0.1, scalars=scalars)
    assert parts(model) == (3 + count, 5 + 3 * count)


def test_models_that_come_along_take_their_known_numbers_of_transforms():
    # Neither the linear part nor a mean field adds to them.
    parameters = {"viscosity": 0.1, "rotation": 1.0, "viscosity_power": 2}
    stratified = {"diffusivity": 0.1, "buoyancy_frequency": 2.0}
    assert lowered("hd", **parameters).transforms == 8
    assert lowered("boussinesq", **parameters, **stratified).transforms == 12
    assert lowered("mhd", **parameters, resistivity=0.1, mean_field=1.0).transforms == 14


EQUATIONS = {
    # name: (model, fields to physical space, products back)
    "cubic": (lambda: {s: nu * laplacian(s) + s - s**3}, 1, 1),
    "Burgers": (lambda: {v: -dot(v, grad(v)) + nu * laplacian(v)}, 3 + 9, 3),
    "Burgers, conserving": (lambda: {v: -div(outer(v, v)) / 2 + nu * laplacian(v)}, 3, 6),
    "one-dimensional Burgers": (lambda: {s: -s * dot(x_hat, grad(s)) + nu * laplacian(s)}, 1, 1),
    "Kuramoto-Sivashinsky": (
        lambda: {s: -laplacian(s) - laplacian(s, 2) - abs2(grad(s)) / 2},
        3,
        1,
    ),
    "two reacting": (lambda: {s: -s * q**2 + laplacian(s), q: s * q**2 + nu * laplacian(q)}, 2, 1),
    "of a sum alone": (lambda: {s: (s + 2 * q) ** 2, q: 3 * (s + 2 * q) ** 2}, 1, 1),
    "function": (lambda: {s: function(sympy.sin, s)}, 1, 1),
}


@pytest.mark.parametrize("name", EQUATIONS)
def test_other_equations_take_the_fewest_transforms(name):
    equations, inputs, products = EQUATIONS[name]
    assert parts(lower(Model(equations()))) == (inputs, products)


COUNTS = {
    "hd2d": (2, 2),
    "chm": (2, 2),
    "sqg": (3, 2),
    "mhd2d": (4, 3),
    "lans-alpha": (6, 3),
    "leray-alpha": (6, 8),
    "smagorinsky": (8, 5),
    "dynamic-smagorinsky": (8, 5),
    "chollet-lesieur": (3, 5),
    "isothermal": (10, 7),
    "argle": (5, 8),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_other_shipped_models_take_few_transforms(name):
    values = dict.fromkeys(("viscosity", "diffusivity", "resistivity", "radius"), 0.5)
    values |= dict.fromkeys(("width", "constant", "sound_speed", "healing_length"), 0.5)
    values["cutoff"] = 5.5
    known = models.parameters_of(models.find(name))
    model = lowered(name, **{key: one for key, one in values.items() if key in known})
    assert parts(model) == COUNTS[name]
    # Of the velocity and its strain, and both after the test filter: 8 there and 10 back of each.
    averages = 36 if name == "dynamic-smagorinsky" else 0
    assert (model.averages.transforms if model.averages else 0) == averages


def test_parameters_of_single_terms_cost_no_transforms():
    # Three velocities, nine gradients of these, the scalar and three of its gradients.
    model = lower(Model({v: -dot(v, grad(v)) + nu * s * grad(s), s: laplacian(s)}))
    assert parts(model) == (16, 3)


def test_compressible_momentum_takes_few_transforms():
    # The velocity and its gradient, the density, and the quotient by it, of each component.
    strain = nu * (laplacian(v) + grad(div(v)) / 3) - sympy.Symbol("c", real=True) ** 2 * grad(s)
    model = lower(Model({s: -div(s * v), v: -dot(v, grad(v)) + strain / s}))
    assert parts(model) == (16, 6)
    assert model.least_transforms == 8
