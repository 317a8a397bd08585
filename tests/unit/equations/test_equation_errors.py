"""Mistakes in equations, in files of models and in their parameters, told where they are made."""

import pytest
import sympy

from lowered_models import q, s, u, v
from refusals import refused
from slipstream.case import parse_case
from slipstream.engine.errors import InputError
from slipstream.equations import (
    Model,
    Scalar,
    Vector,
    cross,
    curl,
    div,
    dot,
    function,
    grad,
    hilbert,
    laplacian,
    lower,
    models,
    outer,
    spectral,
    x,
)
from slipstream.equations.fourier_forms import WAVENUMBERS

MISTAKES = {
    "sum of kinds": (
        lambda: u + s,
        r"velocity \+ scalar: a vector and a scalar cannot be added; expected a vector",
    ),
    "number and vector": (lambda: u + 1, "cannot be added; expected a vector"),
    "product of vectors": (lambda: u * v, r"velocity \* moving: .*expected dot, cross or outer"),
    "divergence": (
        lambda: div(s),
        r"div\(scalar\): scalar is a scalar; expected a vector or a tensor",
    ),
    "gradient": (
        lambda: grad(grad(u)),
        r"grad\(grad\(velocity\)\): grad\(velocity\) is a tensor; expected a scalar or a vector",
    ),
    "curl": (lambda: curl(s), r"curl\(scalar\): scalar is a scalar; expected a vector"),
    "inner": (lambda: dot(s, u), r"dot\(scalar, velocity\): scalar is a scalar; expected a vector"),
    "cross": (lambda: cross(u, grad(u)), r"grad\(velocity\) is a tensor; expected a vector"),
    "outer": (lambda: outer(u, s), r"outer\(velocity, scalar\): scalar is a scalar"),
    "transpose": (lambda: u.T, r"velocity\.T: .*is a vector; expected a tensor"),
    "tensor component": (
        lambda: grad(u)[1],
        r"\[1\]: expected two of 0, 1 and 2, such as \[0, 2\]",
    ),
    "function of vector": (lambda: function(sympy.exp, u), "velocity is a vector; expected a scal"),
    "division": (lambda: s / u, "scalar / velocity: velocity is a vector; expected a scalar"),
    "power": (lambda: s**0, r"scalar \*\* 0: expected a power other than 0"),
    "power of complex": (
        lambda: Scalar("psi", complex=True) ** 0.5,
        r"psi \*\* 0.5: expected a power other than 0, whole for complex",
    ),
    "power of vector": (lambda: u**2, r"velocity \*\* 2: velocity is a vector; expected a scalar"),
    "laplacian": (
        lambda: laplacian(u, 0),
        r"laplacian\(velocity, 0\): expected a number other than 0",
    ),
    "no number": (lambda: u * "much", "'much': expected a number, a parameter or a quantity"),
    "kind of equation": (
        lambda: Model({s: u}),
        "equation of scalar: velocity is a vector; expected a scalar",
    ),
    "unknown field": (
        lambda: Model({s: s * q}),
        r"equation of scalar: scalar \* other has field "
        "'other', which has no equation; expected one of scalar",
    ),
    "no equation": (lambda: Model({}), "at least one equation"),
    "two equations": (lambda: Model({Scalar("a"): s, Scalar("a"): s}), "'a' has two equations"),
    "same component": (
        lambda: Model({Scalar("moving_x"): 0, v: laplacian(v)}),
        "component 'moving_x' belongs to two fields",
    ),
    "name": (lambda: Scalar("two words"), "field 'two words': expected a name of letters"),
    "speeds": (
        lambda: Model({v: laplacian(v)}, speeds=[u]),
        "speeds has field 'velocity', which has no equation",
    ),
    "filter of a product": (
        lambda: Model({s: s * laplacian(s * s, -1)}),
        r"a function of the wavenumber of scalar\*\*2, which is multiplied again; expected one of",
    ),
    "filter of a source": (
        lambda: Model({s: laplacian(function(sympy.sin, x) * 1, -1)}),
        r"a function of the wavenumber of sin\(x\), which has no field",
    ),
    "factor that is not real": (
        lambda: spectral(lambda kx, ky, kz: kx, s),
        r"spectral\(kx, scalar\): expected factors of k and -k that are complex conjugates",
    ),
    "axis": (lambda: hilbert(s, "w"), r"hilbert\(scalar, 'w'\): expected an axis"),
    "component": (lambda: u[3], r"velocity\[3\]: expected 0, 1 or 2"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_told_where_it_is_made(name):
    mistake, message = MISTAKES[name]
    with refused(message):
        mistake()


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
    with refused(message) as caught:
        models.find(name)
    assert str(caught.value).startswith("equation.model: ")


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


def test_a_python_file_that_has_been_changed_is_read_again(tmp_path):
    """Also within a second, and in as many letters, which caches of Python do not notice."""
    file = tmp_path / "own.py"
    for rate in (1, 2):
        file.write_text(
            "from slipstream.equations import Model, Scalar, laplacian\n"
            f"def decay():\n    s = Scalar('s')\n    return Model({{s: {rate} * laplacian(s)}})\n"
        )
        lowered = models.lowered(f"{file}:decay", {})
        assert lowered.decay[0] == rate * sum(k**2 for k in WAVENUMBERS)
        assert models.lowered(f"{file}:decay", {}) is lowered
