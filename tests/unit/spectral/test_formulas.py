"""Formulas of initial states: what they mean, and the texts that they refuse."""

import math
import warnings

import numpy as np
import pytest

from field_values import formulas
from flows import start
from refusals import refused
from slipstream.case import make_case
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError
from slipstream.runs import make_simulation
from slipstream.spectral.fields_at_points import normalise
from slipstream.spectral.force_patterns import patterns_of
from slipstream.spectral.formula_parser import formula, parsed
from slipstream.spectral.runge_kutta_tableaux import METHODS

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
    with refused(r"^initial\.fields\.a: .*accepted: x, y, z"):
        formula(text, "initial.fields.a")


BEYOND = {
    "9**9**9": "an exponent beyond 1000",
    "10**10**10": "an exponent beyond 1000",
    "x**100000": "an exponent beyond 1000",
    "(x**100)**100": "an exponent beyond 1000",
    "999**999": "a number beyond 1e\\+300",
    "((2*x)**900)**900": "a number beyond 1e\\+300",
    "exp(10**300*log(2))": "a number beyond 1e\\+300",
    "exp(exp(exp(exp(9))))": "a number beyond 1e\\+300",
    "exp(exp(exp(exp(9.5))))": "a number beyond 1e\\+300",
    "9" * 400: "a number beyond 1e\\+300",
    "9" * 5000: "not a formula",
    "+".join(["sin(x)"] * 3000): "20999 letters, beyond 8000",
    "+".join("xyz" * 200): "more than 1000 numbers, names and operations",
    "sin(" * 50 + "x" + ")" * 50: "nested more than 20 deep",
    "(" * 3000 + "x" + ")" * 3000: "not a formula",
    "-" * 7000 + "x": "(not a formula|nested more than 20 deep)",
    "x" + "**x" * 300: "nested more than 20 deep",
    "sin(x)  # a wave": "'#'",
    "\u0661 + x": "'\u0661'",
    "\uff53in(x)": "'\uff53'",
    "\x1b[31mx": r"x1b",
}


@pytest.mark.parametrize("text", BEYOND, ids=range(len(BEYOND)))
def test_formula_beyond_a_limit_is_refused_before_it_is_evaluated(text):
    message = rf"^initial\.fields\.a: .*{BEYOND[text]}.*; accepted: x, y, z"
    with pytest.raises(InputError, match=message) as caught:
        formula(text, "initial.fields.a")
    told = str(caught.value)
    assert told.replace("\uff53", "").replace("\u0661", "").isprintable() and len(told) < 400


@pytest.mark.parametrize(
    "text",
    [
        "(x + 1)**1000 * (y + 1)**1000",
        "Abs(" + "*".join(f"(log(x) + {i}*y)" for i in range(30)) + ")",
        "*".join(f"(x + {i})" for i in range(200)),
        "+".join(f"sin({i}*x)" for i in range(150)),
        "sin(10**300) + sin(1e300)",
        "2**(x*10**300)",
        "cosh(tanh(sinh(sqrt(cosh(" + "*".join(f"(x + {i}*y - z)" for i in range(40)) + ")))))",
        "*".join(f"sqrt({i})" for i in range(1, 60)) + "*x",
        "/".join(f"sqrt({i})" for i in range(1, 60)) + " + x",
        "sin(" + "*".join(f"sqrt({i})" for i in range(1, 60)) + ")",
        "(3*x)**300 + sqrt(1/3**90)",
    ],
)
def test_formula_within_the_limits_is_not_multiplied_out(text):
    with np.errstate(all="ignore"):
        assert np.isfinite(formula(text, "initial.fields.a")(X, X, X, np)).dtype == bool


@pytest.mark.parametrize(
    "text",
    [
        "(sin(x) + sin(y) + cos(z) + cos(x) + t + 1)**16",
        "*".join(f"sin({i}*x + t)" for i in range(20)),
        "sin((x + y + z + 1)**16 + t)",
        "9**(" + "*".join(f"(sin({i}*x) + t)" for i in range(40)) + ")",
    ],
)
def test_force_that_would_have_too_many_terms_is_evaluated_as_it_is(text):
    expression = parsed(text, "forcing.formula", has_time=True)
    patterns = patterns_of([expression], [(0,)], [], METHODS["rk2"])
    assert [pattern.shapes for pattern in patterns] == [(expression,)] * len(patterns)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"velocity": ["x", "y"]}, "2 formulas for 'velocity'; accepted: 3"),
        ({"velocity": "x"}, "1 formulas for 'velocity'; accepted: 3"),
        ({"buoyancy": "x"}, "the model has no field 'buoyancy'; it has: velocity, scalar"),
        ({"scalar": ["x", "y", "z"]}, "3 formulas for 'scalar'; accepted: 1"),
        ({"scalar": "q"}, "'q'"),
    ],
)
def test_initial_fields_are_those_of_the_model(device, fields, message):
    with pytest.raises(InputError, match=message):
        start(device, "scalars=[{}]", *formulas(**fields))


def test_grid_beyond_any_memory_is_not_sampled():
    case = make_case(
        "spectral",
        grid={"points": (2**31, 8, 8)},
        equation={"viscosity": 0.01},
        initial={"flow": "formula", "fields": {"velocity": ["sin(y)", "0", "sin(x)"]}},
        time={"end": 1.0, "step": 0.01},
    )
    with pytest.raises(InputError, match="grid.points: this grid needs"):
        make_simulation(case, None, HostDevice()).prepare()


def test_numbers_behind_the_modes_of_rows_give_no_warning():
    """Rows begin at lines of the cache, or blocks of a disk, and what is between is not set."""
    flow = start(HostDevice(), "grid.points=16", "time.end=0.1")
    modes = np.array([1.0, complex(np.inf, 0), np.nan])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        normalise(flow, modes)
    assert modes[0] == 1 / 16**3
