"""Formulas of x, y and z, as people write them in a case: ``"sin(x) * cos(2*y)"``.

Only arithmetic, numbers, and known names and functions are accepted, so that a case file can do
nothing but compute.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import sympy

from slipstream.equations.fourier_forms import COORDINATES, TIME
from slipstream.errors import InputError

FUNCTIONS = ("sin", "cos", "tan", "exp", "log", "sqrt", "tanh", "cosh", "sinh", "Abs", "sign")
_KNOWN = {name: getattr(sympy, name) for name in FUNCTIONS}
_KNOWN |= {"pi": sympy.pi, **{str(one): one for one in COORDINATES}}
_NO_NUMBERS = (sympy.I, sympy.zoo, sympy.oo, -sympy.oo, sympy.nan)
_ALLOWED = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.Constant,
    ast.Name,
    ast.Call,
    ast.Load,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.Pow,
    ast.USub,
    ast.UAdd,
)


def texts_of(formulas: Any, field: str, size: int, where: str) -> list[str]:
    """Return the formulas of a field's components, one or a sequence; refuse another number."""
    texts = [formulas] if isinstance(formulas, str | int | float) else list(formulas)
    if len(texts) != size:
        raise InputError(f"{where}: {len(texts)} formulas for {field!r}; expected {size}")
    return [str(text) for text in texts]


def formula(text: str, where: str) -> Callable[..., Any]:
    """Return a formula as a function of x, y, z and a module, NumPy or CuPy."""
    return evaluator(parsed(text, where))


def parsed(text: str, where: str, has_time: bool = False) -> sympy.Expr:
    """Return a formula as an expression of `COORDINATES`."""
    known = {**_KNOWN, "t": TIME} if has_time else _KNOWN
    names = "x, y, z, t" if has_time else "x, y, z"
    accepted = f"accepted: {names}, pi, numbers, + - * / **, {', '.join(FUNCTIONS)}"
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        raise InputError(f"{where}: {text!r} is no formula; {accepted}") from None
    for node in ast.walk(tree):
        is_known = not isinstance(node, ast.Name) or node.id in known
        if not isinstance(node, _ALLOWED) or not is_known:
            what = node.id if isinstance(node, ast.Name) else type(node).__name__
            raise InputError(f"{where}: {text!r} has {what!r}; {accepted}")
        if isinstance(node, ast.Constant) and not isinstance(node.value, int | float):
            raise InputError(f"{where}: {text!r} has {node.value!r}; {accepted}")
    try:
        expression = sympy.sympify(text, locals=known)
    except TypeError:
        # Something that is not a function was called, or a function with the wrong arguments.
        raise InputError(f"{where}: {text!r} is no formula; {accepted}") from None
    if not isinstance(expression, sympy.Expr) or expression.has(*_NO_NUMBERS):
        raise InputError(f"{where}: {text!r} is {expression}, no real number; {accepted}")
    return expression


def evaluator(expression: sympy.Expr) -> Callable[..., Any]:
    """Return an expression of `COORDINATES`, and perhaps `TIME`, as a function.

    It takes x, y, z and a module, and the time as `time`.
    """

    @functools.cache
    def function_of(module: Any) -> Callable[..., Any]:
        functions = {name.lower(): getattr(module, name.lower()) for name in FUNCTIONS}
        functions["Abs"] = module.abs
        return sympy.lambdify((*COORDINATES, TIME), expression, [functions, "numpy"])

    return lambda x, y, z, module, time=0.0: function_of(module)(x, y, z, time)


def check_periodic(expression: sympy.Expr, lengths: tuple[float, float, float], key: str) -> None:
    """Refuse a function that jumps where the box repeats, or is not finite everywhere."""
    for term in sympy.Add.make_args(sympy.expand(expression)):
        function = functools.partial(evaluator(term), time=0.37)
        # The corner, and some positions that no symmetry distinguishes.
        x, y, z = (length * np.array([0.0, 0.137, 0.41, 0.733]) for length in reversed(lengths))
        with np.errstate(all="ignore"):
            inside = function(x, y, z, np)
            for axis, (name, length) in enumerate(zip("xyz", reversed(lengths), strict=True)):
                here = [x[1:], y[1:], z[1:]]
                ends = [np.zeros(3), np.full(3, length)]
                low, high = (function(*here[:axis], end, *here[axis + 1 :], np) for end in ends)
                values = [np.abs(value).max() for value in (low, high, inside)]
                if not np.all(np.isfinite(values)):
                    raise InputError(f"{key}: {term} is not a finite number everywhere in the box")
                if np.abs(np.subtract(high, low)).max() > 1e-2 * max(values):
                    raise InputError(
                        f"{key}: {term} is not periodic along {name} in a box of length "
                        f"{length:.6g}; expected a function that is the same at both ends"
                    )
