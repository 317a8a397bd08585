"""Formulas of x, y and z, as people write them in a case: ``"sin(x) * cos(2*y)"``.

Only arithmetic, numbers, and known names and functions are accepted, so that a case file can do
nothing but compute.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable
from typing import Any

import sympy

from slipstream.equations.fourier_forms import COORDINATES, TIME
from slipstream.errors import InputError

FUNCTIONS = ("sin", "cos", "tan", "exp", "log", "sqrt", "tanh", "cosh", "sinh", "Abs", "sign")
_KNOWN = {name: getattr(sympy, name) for name in FUNCTIONS}
_KNOWN |= {"pi": sympy.pi, **{str(one): one for one in COORDINATES}}
# Exact powers of numbers take memory without bound.
_LARGEST_EXPONENT = 1000
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
        if isinstance(node, ast.Constant) and type(node.value) not in (int, float):
            raise InputError(f"{where}: {text!r} has {node.value!r}; {accepted}")
        match node:
            case ast.BinOp(op=ast.Pow(), right=power) if abs(_number(power)) > _LARGEST_EXPONENT:
                raise InputError(
                    f"{where}: {text!r} has an exponent beyond {_LARGEST_EXPONENT}; {accepted}"
                )
    try:
        expression = sympy.sympify(text, locals=known)
    except Exception:
        # Something that is not a function was called, or a function with the wrong arguments.
        raise InputError(f"{where}: {text!r} is no formula; {accepted}") from None
    if not isinstance(expression, sympy.Expr) or expression.has(*_NO_NUMBERS):
        raise InputError(f"{where}: {text!r} is {expression}, no real number; {accepted}")
    return expression


def _number(node: ast.AST) -> float:
    """Return the size of a part of a formula that is a number; 0 where it has names or calls."""
    if any(isinstance(one, ast.Name | ast.Call) for one in ast.walk(node)):
        return 0.0
    try:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return float(node.value)
        if isinstance(node, ast.UnaryOp):
            return _number(node.operand)
        if not isinstance(node, ast.BinOp):
            return 0.0
        left, right = abs(_number(node.left)), abs(_number(node.right))
        if isinstance(node.op, ast.Pow):
            return left**right
        return left / right if isinstance(node.op, ast.Div) else max(left * right, left + right)
    except (OverflowError, ZeroDivisionError):
        return math.inf


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
