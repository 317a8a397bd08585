"""Equations in vector notation mean the same, lowered to products of fields, as in plain NumPy."""

import numpy as np
import pytest
import sympy
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import slipstream.equations as language
from lowered_models import lowered, nu, parts, u
from numpy_calculus import Calculus
from slipstream.equations import Lowered, Model, Scalar, Vector, dot, grad, lower
from slipstream.equations.derived_models import CarriedScalar
from slipstream.equations.fourier_forms import WAVENUMBERS, Value

# Fields of wavenumbers up to 1 have cubes of wavenumbers up to 3, which 8 points tell apart.
BOX = Calculus((8, 9, 10), (2 * np.pi, 5.0, 9.0))
NUMBERS = {
    "nu": 0.37,
    "viscosity": 0.3,
    "diffusivity": 0.2,
    "scalar_1_diffusivity": 0.2,
    "scalar_2_diffusivity": 0.2,
    "resistivity": 0.7,
    "rotation": 1.9,
    "buoyancy_frequency": 2.3,
    "mean_field": 1.4,
}


def rates_of(model: Lowered, state):
    """Return d state / dt of Fourier coefficients, by what `Lowered` says of its attributes."""
    numbers = [NUMBERS[str(name)] for name in model.parameters]
    given = [*WAVENUMBERS, *model.parameters]

    def number(expression):
        return sympy.lambdify(given, expression, "numpy")(*BOX.k, *numbers)

    def of_state(expression):
        total = np.zeros(BOX.shape, complex)
        for value in (one for one in expression.free_symbols if isinstance(one, Value)):
            place = [str(c) for c in model.components].index(str(value).split("__")[0])
            waves = np.prod([(1j * k) ** n for k, n in zip(BOX.k, value.orders, strict=True)], 0)
            total += number(sympy.expand(expression).coeff(value)) * waves * state[place]
        return total

    points = [BOX.points(of_state(one)) for one in model.inputs]
    arguments = [*model.symbols, *model.parameters]
    products = [
        BOX.modes(sympy.lambdify(arguments, one, "numpy")(*points, *numbers) + np.zeros(BOX.shape))
        for one in model.products
    ]
    rates = np.zeros((len(model.components), *BOX.shape), complex)
    for index, rate in enumerate(rates):
        for factor, product in zip(model.multipliers[index], products, strict=True):
            rate += number(factor) * product
        for other, factor in model.linear[index].items():
            rate += number(factor) * state[other]
    for first in model.vectors:
        rates[first : first + 3] = BOX.without_gradient(rates[first : first + 3])
    for index, rate in enumerate(rates):
        rate -= number(model.decay[index]) * state[index]
        rate[0, 0, 0] += complex(number(model.constant[index]))
    return rates


def assert_same_rates(model: Lowered, fields, rates, solenoidal):
    """Compare with right-hand sides at points, whose gradient part some fields do without."""
    state = np.concatenate([BOX.modes(field).reshape(-1, *BOX.shape) for field in fields.values()])
    expected = []
    for name in fields:
        modes = BOX.modes(rates[name] + 0 * fields[name])
        modes = BOX.without_gradient(modes) if name in solenoidal else modes
        expected.append(modes.reshape(-1, *BOX.shape))
    expected = np.concatenate(expected)
    # Sums of some tens of roundings of the largest terms, which may cancel.
    scale = np.abs(expected).max() + np.abs(state).max()
    assert np.abs(rates_of(model, state) - expected).max() <= 1e-12 * scale


def random_fields(seed=0, **kinds):
    rng = np.random.default_rng(seed)
    sizes = {"solenoidal": (3, True), "vector": (3, False), "scalar": (1, False)}
    return {
        name: BOX.random(rng, components=sizes[kind][0], solenoidal=sizes[kind][1])
        for name, kind in kinds.items()
    }


def test_flow_with_rotation_and_scalars_is_what_it_should_be():
    numbers = {"viscosity": 0.3, "rotation": 1.9}
    scalars = [CarriedScalar(name, 0.2, 2, (0.0, 0.0, 0.0)) for name in ("scalar_1", "scalar_2")]
    fields = random_fields(velocity="solenoidal", scalar_1="scalar", scalar_2="scalar")
    velocity = fields["velocity"]
    k2, along_z = BOX.square, np.stack([-velocity[1], velocity[0], 0 * velocity[2]])
    vorticity = BOX.curl(velocity)
    rates = {
        "velocity": np.cross(velocity, vorticity, axis=0)
        - 2 * NUMBERS["rotation"] * along_z
        - BOX.points(NUMBERS["viscosity"] * k2**2 * BOX.modes(velocity))
    }
    for name in ("scalar_1", "scalar_2"):
        gradient = BOX.grad(fields[name])
        rates[name] = -(velocity * gradient).sum(axis=0) - BOX.points(
            NUMBERS["diffusivity"] * k2**2 * BOX.modes(fields[name])
        )
    model = lowered("hd", scalars, **numbers, viscosity_power=2)
    assert_same_rates(model, fields, rates, {"velocity"})


def test_stratified_flow_is_what_it_should_be():
    names = ("viscosity", "diffusivity", "buoyancy_frequency", "rotation")
    numbers = {name: NUMBERS[name] for name in names}
    fields = random_fields(velocity="solenoidal", buoyancy="scalar")
    velocity, buoyancy = fields.values()
    frequency = NUMBERS["buoyancy_frequency"]
    rate = np.cross(velocity, BOX.curl(velocity), axis=0)
    rate[0] += 2 * NUMBERS["rotation"] * velocity[1]
    rate[1] -= 2 * NUMBERS["rotation"] * velocity[0]
    rate[2] -= frequency * buoyancy
    rates = {
        "velocity": rate - BOX.points(NUMBERS["viscosity"] * BOX.square * BOX.modes(velocity)),
        "buoyancy": frequency * velocity[2]
        - (velocity * BOX.grad(buoyancy)).sum(axis=0)
        - BOX.points(NUMBERS["diffusivity"] * BOX.square * BOX.modes(buoyancy)),
    }
    assert_same_rates(lowered("boussinesq", **numbers), fields, rates, {"velocity"})


def test_magnetic_flow_in_a_mean_field_is_what_it_should_be():
    numbers = {
        name: NUMBERS[name] for name in ("viscosity", "resistivity", "rotation", "mean_field")
    }
    fields = random_fields(velocity="solenoidal", magnetic="solenoidal")
    velocity, magnetic = fields.values()
    whole = magnetic + NUMBERS["mean_field"] * np.eye(3)[2].reshape(3, 1, 1, 1)
    # Elsasser's form: products of gradients alone.
    plus, minus = velocity + whole, velocity - whole
    carried = [
        -(one[:, None] * BOX.grad(other)).sum(axis=0)
        for one, other in ((minus, plus), (plus, minus))
    ]
    turning = np.stack([velocity[1], -velocity[0], 0 * velocity[0]])
    rates = {
        "velocity": sum(carried) / 2
        + 2 * NUMBERS["rotation"] * turning
        - BOX.points(NUMBERS["viscosity"] * BOX.square * BOX.modes(velocity)),
        "magnetic": (carried[0] - carried[1]) / 2
        - BOX.points(NUMBERS["resistivity"] * BOX.square * BOX.modes(magnetic)),
    }
    assert_same_rates(lowered("mhd", **numbers), fields, rates, {"velocity", "magnetic"})


# Terms of formulas; `o` has the operators: the language, or plain NumPy.
FOR_VECTORS = [
    lambda o, u, b, s: o.div(o.outer(u, b)),
    lambda o, u, b, s: o.dot(b, o.grad(u)),
    lambda o, u, b, s: o.dot(u, o.grad(u)),
    lambda o, u, b, s: o.cross(u, o.curl(b)),
    lambda o, u, b, s: o.cross(o.curl(b + 2 * o.z_hat), b + 2 * o.z_hat),
    lambda o, u, b, s: o.curl(o.cross(u, b - o.x_hat)),
    lambda o, u, b, s: o.cross(o.curl(u), o.curl(b)),
    lambda o, u, b, s: o.grad(o.dot(u, b) * s),
    lambda o, u, b, s: s * o.laplacian(u) - s * s * b,
    lambda o, u, b, s: o.div(o.grad(u)) - o.laplacian(b, 2),
    lambda o, u, b, s: o.curl(b) - o.dot(o.y_hat, o.grad(u)),
    lambda o, u, b, s: (s + 1) * o.x_hat - o.abs2(b) * o.z_hat,
    lambda o, u, b, s: o.cross(o.z_hat, u) * o.dot(u, o.y_hat),
    lambda o, u, b, s: o.div(o.outer(o.z_hat + u, b + o.y_hat)) + o.grad(s),
]
FOR_SCALARS = [
    lambda o, u, b, s: o.div(u * s),
    lambda o, u, b, s: o.dot(b, o.grad(s)),
    lambda o, u, b, s: o.abs2(o.grad(s)) - 2,
    lambda o, u, b, s: s**3 - s / 2,
    lambda o, u, b, s: o.dot(u, o.curl(b)) + o.div(o.cross(u, b)),
    lambda o, u, b, s: s * o.div(o.x_hat + b) + o.div(o.grad(s)),
    lambda o, u, b, s: o.dot(o.x_hat, o.grad(s)) - o.laplacian(s, 2),
    lambda o, u, b, s: o.dot(u + o.z_hat, s * o.grad(s)) + o.div(o.grad(s * s)),
    lambda o, u, b, s: o.dot(o.x_hat, o.curl(u)) ** 2,
]


# Shrinking formulas takes minutes, and two terms of each field are easily read.
@pytest.mark.slow
@settings(max_examples=4, phases=[Phase.generate])
@given(st.data())
def test_any_formula_means_the_same_as_in_plain_numpy(data):
    kinds = {
        "first": data.draw(st.sampled_from(["solenoidal", "vector"])),
        "second": data.draw(st.sampled_from(["solenoidal", "vector"])),
        "third": "scalar",
    }
    sides = {}
    for name, terms in (("first", FOR_VECTORS), ("second", FOR_VECTORS), ("third", FOR_SCALARS)):
        places = st.integers(0, len(terms) - 1)
        chosen = data.draw(st.lists(places, min_size=1, max_size=2, unique=True), label=name)
        factors = [data.draw(st.sampled_from([1, -1, 2, "nu"])) for _ in chosen]
        sides[name] = [
            (factor, terms[place]) for factor, place in zip(factors, chosen, strict=True)
        ]

    def evaluated(operators, fields, number):
        return {
            name: sum(
                (
                    term(operators, *fields) * (number if factor == "nu" else factor)
                    for factor, term in own[1:]
                ),
                start=own[0][1](operators, *fields) * (number if own[0][0] == "nu" else own[0][0]),
            )
            for name, own in sides.items()
        }

    unknowns = [
        Scalar(name) if kind == "scalar" else Vector(name, solenoidal=kind == "solenoidal")
        for name, kind in kinds.items()
    ]
    right = evaluated(language, unknowns, nu)
    model = lower(Model({field: right[field.name] for field in unknowns}))
    fields = random_fields(3, **kinds)
    solenoidal = {name for name, kind in kinds.items() if kind == "solenoidal"}
    rates = evaluated(BOX, fields.values(), NUMBERS["nu"])
    assert_same_rates(model, fields, rates, solenoidal)


def test_models_do_not_disturb_each_other():
    # Both have a "velocity", but only one has no divergence.
    first = Model({u: -dot(u, grad(u))})
    other = Vector("velocity")
    second = Model({other: -dot(other, grad(other))})
    assert parts(lower(first)) == (3, 5)
    assert parts(lower(second)) == (12, 3)
    assert Scalar("velocity_x").values[0] != other.values[0] != u.values[0]
    assert parts(lower(first)) == (3, 5)


@pytest.mark.parametrize("component", [None, 1])
def test_equal_values_that_are_two_objects_have_the_same_place_in_a_sum(component):
    """SymPy's cache of objects forgets, and then its order compares equal objects."""
    first, second = Value("density", component), Value("density", component)
    assert first is not second
    assert first == second
    assert first.compare(second) == 0
    assert first.compare(Value("density", 2)) == -1
