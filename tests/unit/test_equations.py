"""Equations in vector notation: the fewest transforms, and still the same equations."""

import numpy as np
import pytest
import sympy
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import slipstream.equations as language
from numpy_calculus import Calculus
from slipstream.case import parse_case
from slipstream.equations import (
    Lowered,
    Model,
    Scalar,
    Vector,
    abs2,
    code,
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
    y_hat,
    z_hat,
)
from slipstream.equations.explanation import explained
from slipstream.equations.forms import WAVENUMBERS, Value
from slipstream.errors import InputError

u, b = Vector("velocity", solenoidal=True), Vector("magnetic", solenoidal=True)
v, s, q = Vector("moving"), Scalar("scalar"), Scalar("other")
nu = sympy.Symbol("nu", real=True)


def lowered(name, **given):
    """Return a model that comes along; parameters that are not given have their defaults."""
    known = models.parameters_of(models.find(name))
    return models.lowered(name, {key: given.get(key, known[key][1]) for key in known})


# -- transforms ------------------------------------------------------------------------------

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


def parts(model):
    return len(model.inputs), len(model.products)


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


@pytest.mark.parametrize(("lorentz", "induction"), [*zip(LORENTZ, INDUCTION, strict=True)])
def test_magnetic_flow_takes_fourteen_transforms_in_any_notation(lorentz, induction):
    model = lower(Model({u: LORENTZ[lorentz](b) - dot(u, grad(u)), b: INDUCTION[induction](u, b)}))
    # Five products for the velocity, and the three of u x b.
    assert parts(model) == (6, 8)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_scalar_that_is_carried_takes_four_transforms_more(count):
    assert parts(lowered("hd", viscosity=0.1, scalars=count)) == (3 + count, 5 + 3 * count)


def test_models_that_come_along_take_their_known_numbers_of_transforms():
    # Neither the linear part nor a mean field adds to them.
    others = {"viscosity": 0.1, "rotation": 1.0, "viscosity_power": 2}
    stratified = {"diffusivity": 0.1, "buoyancy_frequency": 2.0}
    assert lowered("hd", **others).transforms == 8
    assert lowered("boussinesq", **others, **stratified).transforms == 12
    assert lowered("mhd", **others, resistivity=0.1, mean_field=1.0).transforms == 14


EQUATIONS = {
    # name: (model, fields to physical space, products back)
    "cubic": (lambda: {s: nu * laplacian(s) + s - s**3}, 1, 1),
    "Burgers": (lambda: {v: -dot(v, grad(v)) + nu * laplacian(v)}, 3 + 9, 3),
    "Burgers, conserving": (lambda: {v: -div(outer(v, v)) / 2 + nu * laplacian(v)}, 3, 6),
    "one-dimensional Burgers": (lambda: {s: -s * dot(x_hat, grad(s)) + nu * laplacian(s)}, 1, 1),
    "Kuramoto-Sivashinsky": (
        lambda: {s: -laplacian(s) - laplacian(s, 2) - abs2(grad(s)) / 2}, 3, 1,
    ),
    "two reacting": (lambda: {s: -s * q**2 + laplacian(s), q: s * q**2 + nu * laplacian(q)}, 2, 1),
    "of a sum alone": (lambda: {s: (s + 2 * q) ** 2, q: 3 * (s + 2 * q) ** 2}, 1, 1),
    "function": (lambda: {s: function(sympy.sin, s)}, 1, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", EQUATIONS)
def test_other_equations_take_the_fewest_transforms(name):
    equations, inputs, products = EQUATIONS[name]
    assert parts(lower(Model(equations()))) == (inputs, products)


# -- the same equations ----------------------------------------------------------------------

# Fields of wavenumbers up to 1 have cubes of wavenumbers up to 3, which 8 points tell apart.
BOX = Calculus((8, 9, 10), (2 * np.pi, 5.0, 9.0))
NUMBERS = {"nu": 0.37, "viscosity": 0.3, "diffusivity": 0.2, "resistivity": 0.7, "rotation": 1.9,
           "buoyancy_frequency": 2.3, "mean_field": 1.4}  # fmt: skip


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
    for own, rate in enumerate(rates):
        for factor, product in zip(model.multipliers[own], products, strict=True):
            rate += number(factor) * product
        for other, factor in model.linear[own].items():
            rate += number(factor) * state[other]
    for first in model.vectors:
        rates[first : first + 3] = BOX.without_gradient(rates[first : first + 3])
    for own, rate in enumerate(rates):
        rate -= number(model.decay[own]) * state[own]
        rate[0, 0, 0] += complex(number(model.constant[own]))
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
    given = {"viscosity": 0.3, "rotation": 1.9, "diffusivity": 0.2, "scalars": 2}
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
    assert_same_rates(lowered("hd", **given, viscosity_power=2), fields, rates, {"velocity"})


def test_stratified_flow_is_what_it_should_be():
    names = ("viscosity", "diffusivity", "buoyancy_frequency", "rotation")
    given = {name: NUMBERS[name] for name in names}
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
    assert_same_rates(lowered("boussinesq", **given), fields, rates, {"velocity"})


def test_magnetic_flow_in_a_mean_field_is_what_it_should_be():
    given = {name: NUMBERS[name]
             for name in ("viscosity", "resistivity", "rotation", "mean_field")}  # fmt: skip
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
    assert_same_rates(lowered("mhd", **given), fields, rates, {"velocity", "magnetic"})


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
                (term(operators, *fields) * (number if factor == "nu" else factor)
                 for factor, term in own[1:]),
                start=own[0][1](operators, *fields) * (number if own[0][0] == "nu" else own[0][0]),
            )
            for name, own in sides.items()
        }  # fmt: skip

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
    # Both have a "velocity", of which only one has no divergence.
    first = Model({u: -dot(u, grad(u))})
    other = Vector("velocity")
    second = Model({other: -dot(other, grad(other))})
    assert parts(lower(first)) == (3, 5)
    assert parts(lower(second)) == (12, 3)
    assert Scalar("velocity_x").values[0] != other.values[0] != u.values[0]
    assert parts(lower(first)) == (3, 5)


# -- parameters ------------------------------------------------------------------------------


def test_parameter_that_is_zero_leaves_no_term():
    plain = lowered("hd", viscosity=0.0)
    assert set(plain.decay) == {0}
    assert not any(plain.linear)
    assert plain.parameters == ()
    assert any(lowered("hd", viscosity=0.0, rotation=1.0).linear)
    still = lowered("boussinesq", viscosity=0.0, diffusivity=0.1, buoyancy_frequency=0.0)
    assert [str(name) for name in still.parameters] == ["diffusivity"]
    assert not any(still.linear)
    free = lowered("mhd", viscosity=0.1, resistivity=0.1)
    assert not any(free.linear)


def test_other_numbers_need_no_other_kernels():
    one = lowered("mhd", viscosity=0.1, resistivity=0.1, mean_field=1.0)
    other = lowered("mhd", viscosity=0.25, resistivity=3.0, mean_field=-7.5)
    assert other is one
    fields = [str(name) for name in one.parameters]
    assert fields == ["mean_field", "resistivity", "viscosity"]
    for header in (code.product_header, code.mode_header):
        assert "0.25" not in header(one)
    # A whole number changes the equations, not a factor in them.
    assert lowered("mhd", viscosity=0.1, resistivity=0.1, viscosity_power=2) is not one


def test_power_of_the_laplacian_is_that_of_the_wavenumber():
    for power in (1, 2, 3):
        model = lowered("hd", viscosity=0.5, viscosity_power=power)
        numbers = dict(zip(WAVENUMBERS, (1, 2, -2), strict=True)) | {model.parameters[0]: 0.5}
        assert {float(rate.subs(numbers)) for rate in model.decay} == {0.5 * 9**power}


def test_uniform_velocity_turns_modes_and_diffusion_alone_lets_them_decay():
    model = lower(Model({s: nu * laplacian(s) - 3 * dot(x_hat, grad(s))}))
    kx, ky, kz = WAVENUMBERS
    assert sympy.expand(model.decay[0] - nu * (kx**2 + ky**2 + kz**2)) == 0
    assert sympy.expand(model.linear[0][0] + 3 * sympy.I * kx) == 0


def test_constants_have_no_derivatives():
    assert not div(2 * z_hat).forms[0].terms
    assert not any(form.terms for form in cross(curl(nu * z_hat), u).forms)
    assert [form.terms for form in cross(z_hat, x_hat).forms] == [{}, {1: 1}, {}]


# -- mistakes --------------------------------------------------------------------------------

MISTAKES = {
    "sum of kinds": (lambda: u + s, r"velocity \+ scalar: a vector and a scalar cannot be added; "
                                    "expected a vector"),
    "number and vector": (lambda: u + 1, "cannot be added; expected a vector"),
    "product of vectors": (lambda: u * v, r"velocity \* moving: .*expected dot, cross or outer"),
    "divergence": (lambda: div(s), r"div\(scalar\): scalar is a scalar; expected a vector or a "
                                   "tensor"),
    "gradient": (lambda: grad(grad(u)), r"grad\(grad\(velocity\)\): grad\(velocity\) is a tensor; "
                                        "expected a scalar or a vector"),
    "curl": (lambda: curl(s), r"curl\(scalar\): scalar is a scalar; expected a vector"),
    "inner": (lambda: dot(s, u), r"dot\(scalar, velocity\): scalar is a scalar; expected a vector"),
    "cross": (lambda: cross(u, grad(u)), r"grad\(velocity\) is a tensor; expected a vector"),
    "outer": (lambda: outer(u, s), r"outer\(velocity, scalar\): scalar is a scalar"),
    "magnitude": (lambda: abs2(grad(u)), r"abs2\(.*is a tensor; expected a scalar or a vector"),
    "nested": (lambda: s * div(u * s), r"scalar \* div\(velocity \* scalar\): a factor is the "
                                       "derivative of a product; expected derivatives of fields"),
    "function of nested": (lambda: function(sympy.exp, div(u * s)),
                           r"exp\(div\(velocity \* scalar\)\): expected no derivative"),
    "function of vector": (lambda: function(sympy.exp, u), "velocity is a vector; expected a scal"),
    "division": (lambda: u / s, "velocity / scalar: expected a number or a parameter below"),
    "power": (lambda: s**-1, r"scalar \*\* -1: expected a whole power of at least 1"),
    "power of vector": (lambda: u**2, r"velocity \*\* 2: velocity is a vector; expected a scalar"),
    "laplacian": (lambda: laplacian(u, 0), r"laplacian\(velocity, 0\): expected a whole power"),
    "no number": (lambda: u * "much", "'much': expected a number, a parameter or a quantity"),
    "kind of equation": (lambda: Model({s: u}), "equation of scalar: velocity is a vector; "
                                                "expected a scalar"),
    "unknown field": (lambda: Model({s: s * q}), r"equation of scalar: scalar \* other has field "
                                                 "'other', which has no equation; expected one of "
                                                 "scalar"),
    "no equation": (lambda: Model({}), "at least one equation"),
    "two equations": (lambda: Model({Scalar("a"): s, Scalar("a"): s}), "'a' has two equations"),
    "same component": (lambda: Model({Scalar("moving_x"): 0, v: laplacian(v)}),
                       "component 'moving_x' is of two fields"),
    "name": (lambda: Scalar("two words"), "field 'two words': expected a name of letters"),
    "speeds": (lambda: Model({v: laplacian(v)}, speeds=[u]), "speeds: velocity; expected vectors"),
    "decay": (lambda: lower(Model({v: grad(div(v))})), "equation of moving: its components decay"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_told_where_it_is_made(name):
    mistake, message = MISTAKES[name]
    with pytest.raises(InputError, match=message) as caught:
        mistake()
    assert "\n" not in str(caught.value)


OWN = """
from slipstream.equations import Model, Scalar, laplacian

def decay(rate, power: int = 1):
    a = Scalar("a")
    return Model({a: rate * laplacian(a, power)})

def number(rate):
    return 3

def wave(kx):
    a = Scalar("a")
    return Model({a: kx * a * a})

some = 3
"""


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def test_model_of_a_file_has_its_functions_parameters(own):
    name = f"{own}:decay"
    assert models.parameters_of(models.find(name)) == {"rate": (float, ...), "power": (int, 1)}
    model = models.lowered(name, {"rate": 0.5, "power": 2})
    assert model.decay[0].subs({"kx": 1}) != 0
    assert [str(one) for one in model.components] == ["a"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("euler", r"'euler' is unknown; accepted: hd, boussinesq, mhd, .*or FILE.py:FUNCTION"),
        ("own.txt:decay", "is unknown; accepted"),
        ("absent.py:decay", "absent.py: no such file"),
        ("own.py:decoy", "has no function 'decoy'; it has: decay, number, wave"),
        ("own.py:some", "has no function 'some'"),
        ("broken.py:decay", "broken.py fails: ZeroDivisionError: division by zero"),
        ("unreadable.py:decay", "unreadable.py fails: SyntaxError"),
    ],
)
def test_model_that_cannot_be_found_is_told(own, monkeypatch, name, message):
    monkeypatch.chdir(own.parent)
    own.with_name("broken.py").write_text("1 / 0\n")
    own.with_name("unreadable.py").write_text("def decay(:\n")
    with pytest.raises(InputError, match=message) as caught:
        models.find(name)
    assert str(caught.value).startswith("equation.model: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("function", "values", "message"),
    [("number", {"rate": 1.5}, "returns int; expected a Model"), ("wave", {"kx": 1.5}, "'kx'")],
)
def test_function_that_makes_no_model_is_told(own, function, values, message):
    with pytest.raises(InputError, match=message):
        models.lowered(f"{own}:{function}", values)


CASE = """
solver = "spectral"
[grid]
points = 8
[equation]
model = "boussinesq"
viscosity = 0.1
diffusivity = 0.1
buoyancy_frequency = 1.0
[initial]
flow = "random"
[time]
end = 1
step = 0.1
"""


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("equation.resistivity=1", "equation.resistivity: unknown key"),
        ("equation.viscosity=-1", "equation.viscosity: must be at least 0"),
        ("equation.viscosity_power=1.5", "equation.viscosity_power"),
        ("equation.model=euler", "equation.model: 'euler' is unknown"),
    ],
)
def test_case_has_the_parameters_of_its_model(setting, message):
    assert parse_case(CASE).equation.parameters["buoyancy_frequency"] == 1.0
    with pytest.raises(InputError, match=message):
        parse_case(CASE, [setting])


def test_parameter_without_default_is_required():
    with pytest.raises(InputError, match=r"equation\.buoyancy_frequency: is required"):
        parse_case(CASE.replace("buoyancy_frequency = 1.0\n", ""))


# -- for people ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hd", "boussinesq", "mhd"])
def test_explanation_tells_of_all_that_is_computed(name):
    required = {"viscosity": 0.1, "diffusivity": 0.1, "resistivity": 0.1, "buoyancy_frequency": 1.0}
    model = lowered(name, **required)
    lines = list(explained(model))

    def named(part):
        return [what for kind, what, _ in lines if kind == part]

    assert named("to physical space") == [str(one) for one in model.symbols]
    assert named("products, back") == [f"T{n}" for n in range(len(model.products))]
    rates = " ".join(text for kind, _, text in lines if kind == "rates")
    for number in range(len(model.products)):
        assert f"T{number}" in rates
    for component in model.components:
        assert f"d {component} / dt" in named("rates")
    decays = {what: text for kind, what, text in lines if kind == "decay"}
    assert decays["velocity"] == "exp(-(k^2*viscosity) t)"
    assert named("projection") == [one for one in ("velocity", "magnetic") if one in decays]


def test_explanation_of_a_linear_model_has_no_products():
    model = lower(Model({s: nu * laplacian(s) + dot(y_hat, grad(s)) + 1}))
    text = {part: text for part, _, text in explained(model)}
    assert text["decay"] == "exp(-(k^2*nu) t)"
    assert "ky" in text["rates"]


def test_no_parameter_makes_a_combination_divide_by_zero():
    p, q = sympy.symbols("p q", real=True)
    a, b = Scalar("a"), Scalar("b")
    equations = {a: p * a**2 + q * b**2 + a * b, b: a**2 + b**2 + 2 * (a * b)}
    lowered = lower(Model(equations))
    for expression in (*lowered.products, *sum(map(list, lowered.multipliers), [])):
        assert not sympy.fraction(sympy.together(expression))[1].free_symbols


def test_means_are_scalars_of_known_fields_and_have_their_parameters():
    nu = sympy.Symbol("nu", real=True)
    a, v, other = Scalar("a"), Vector("v"), Scalar("other")
    lowered = lower(Model({a: -(a**2)}, means={"sum": (a + nu * a) ** 2}))
    assert nu in lowered.parameters
    for mean, expected in ((v, "v is a vector"), (other, "'other'"), (3, "has no field")):
        with pytest.raises(InputError, match=f"mean m: .*{expected}|mean m.*{expected}"):
            Model({a: -(a**2), v: -v}, means={"m": mean})


def test_model_that_raises_is_told_of_in_one_line(tmp_path):
    path = tmp_path / "own.py"
    path.write_text("def branching(nu):\n    return 1 if nu > 0.1 else 2\n")
    with pytest.raises(InputError, match=r"own\.py:branching fails: TypeError.*are symbols"):
        models.lowered(f"{path}:branching", {"nu": 0.5})
