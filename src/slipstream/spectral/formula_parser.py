"""Formulas of x, y and z in a case, such as ``"sin(x) * cos(2*y)"``.

Only arithmetic, numbers, and known names and functions are accepted, so a case file can do nothing
but compute. Before evaluation a formula is checked against bounds of its length, its number of
parts, their nesting, and the size of numbers and powers.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import sympy

from slipstream.equations.code_generation import array_function
from slipstream.equations.fourier_forms import COORDINATES, TIME
from slipstream.errors import InputError
from slipstream.printable_text import shown
from slipstream.spectral.spectral_problem import FieldParts

FUNCTIONS = ("sin", "cos", "tan", "exp", "log", "sqrt", "tanh", "cosh", "sinh", "Abs", "sign")
_CALLED = {name: getattr(sympy, name) for name in FUNCTIONS}
_UNDEFINED = {name: sympy.Function(name, real=True) for name in ("tanh", "cosh", "sinh")}
_NAMED = {"pi": sympy.pi, **{str(one): one for one in COORDINATES}}
INFINITE = (sympy.zoo, sympy.oo, -sympy.oo, sympy.nan)
_NO_NUMBERS = (sympy.I, *INFINITE)
_SUMS, _PRODUCTS = (ast.Add, ast.Sub), (ast.Mult, ast.Div)
_SIGNS: dict[type, Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
# A sum of sixty waves has 900 parts. SymPy's time grows faster than their number.
MOST_LETTERS, MOST_PARTS, MOST_NESTED = 8000, 1000, 20
LARGEST_NUMBER, LARGEST_EXPONENT = 1e300, 1000
# The most bits of an exact number; without a bound its digits could fill the memory.
_MOST_BITS = 1000
_MOST_EXACT_BITS = 53


class Refused(Exception):
    """An error in a formula or expression; callers add the key and the accepted values."""


def formula(text: str, where: str) -> Callable[..., Any]:
    """Return a formula as a function of x, y, z and a module, NumPy or CuPy."""
    return evaluator(parsed(text, where))


def parsed(text: str, where: str, has_time: bool = False) -> sympy.Expr:
    """Return a formula as an expression of `COORDINATES`."""
    names = {**_NAMED, "t": TIME} if has_time else _NAMED
    variables = "x, y, z, t" if has_time else "x, y, z"
    accepted = f"accepted: {variables}, pi, numbers, + - * / **, {', '.join(FUNCTIONS)}"
    try:
        return _expression_of(text, names)
    except Refused as reason:
        raise InputError(f"{where}: {shown(text)} {reason}; {accepted}") from None
    except Exception:  # SymPy raises many kinds of errors for invalid arguments
        raise InputError(f"{where}: {shown(text)} is not a formula; {accepted}") from None


def parsed_components(
    formulas: Any, field: FieldParts, key: str, has_time: bool = False
) -> list[sympy.Expr]:
    """Return the formulas of a field's components, one or a sequence; refuse another number."""
    texts = [formulas] if isinstance(formulas, str | int | float) else list(formulas)
    if len(texts) != field.size:
        raise InputError(f"{key}: {len(texts)} formulas for {field.name!r}; accepted: {field.size}")
    return [parsed(str(text), f"{key}.{field.name}", has_time) for text in texts]


def syntax_of(text: str) -> ast.expr:
    """Return the syntax tree of a formula of bounded size, without evaluating any of it."""
    if len(text) > MOST_LETTERS:
        raise Refused(f"has {len(text)} letters, beyond {MOST_LETTERS}")
    # Refuse letters that only look like digits or names, and comments.
    odd = next((letter for letter in text if not letter.isascii() or letter in "#\\"), "")
    if odd:
        raise Refused(f"has {odd!r}")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise Refused("is not a formula") from None
    _check_size(tree)
    return tree


def _expression_of(text: str, names: dict[str, sympy.Expr]) -> sympy.Expr:
    expression = value_of(syntax_of(text), names)
    if not isinstance(expression, sympy.Expr) or expression.has(*_NO_NUMBERS):
        raise Refused(f"is {shown(expression)}, no real number")
    for number in expression.atoms(sympy.Number):
        _check_number(number)
    return expression


def _check_size(tree: ast.AST) -> None:
    """Refuse a formula of too many parts, or too deeply nested, without recursion."""
    count, waiting = 0, [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        count += 1
        if count > MOST_PARTS:
            raise Refused(f"has more than {MOST_PARTS} numbers, names and operations")
        if depth > MOST_NESTED:
            raise Refused(f"is nested more than {MOST_NESTED} deep")
        if isinstance(node, ast.BinOp):
            # A long sum is a chain to the left, which counts as one level.
            kinds = _SUMS if isinstance(node.op, _SUMS) else _PRODUCTS
            is_chain = isinstance(node.left, ast.BinOp) and (
                isinstance(node.op, kinds) and isinstance(node.left.op, kinds)
            )
            waiting += [(node.left, depth + (not is_chain)), (node.right, depth + 1)]
        elif isinstance(node, ast.expr):
            inner = (one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr))
            waiting += [(one, depth + 1) for one in inner]


def value_of(node: ast.expr, names: dict[str, sympy.Expr]) -> sympy.Expr:
    """Return the value of a part of a formula; every operation is bounded."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            number = sympy.Integer(value) if isinstance(value, int) else sympy.Float(value)
            return _checked(number)
        case ast.Constant(value=value):
            raise Refused(f"has {shown(value)}")
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Name(id=name) if name in _CALLED:
            raise Refused("is not a formula")
        case ast.Name(id=name):
            raise Refused(f"has {shown(name)}")
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _SIGNS:
            return _SIGNS[type(op)](value_of(operand, names))
        case ast.BinOp(op=ast.Pow(), left=base, right=exponent):
            return _power(value_of(base, names), value_of(exponent, names))
        case ast.BinOp(op=op) if type(op) in (*_SUMS, *_PRODUCTS):
            return _chain(node, _SUMS if type(op) in _SUMS else _PRODUCTS, names)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _CALLED:
            return _of_function(name, value_of(argument, names))
        case ast.Call(func=ast.Name(id=name)) if name not in _CALLED and name not in names:
            raise Refused(f"has {shown(name)}")
        case ast.Call(func=ast.Name()):
            raise Refused("is not a formula")
    raise Refused(f"has {type(getattr(node, 'op', node)).__name__!r}")


def _chain(node: ast.expr, kinds: tuple[type, ...], names: dict[str, sympy.Expr]) -> sympy.Expr:
    """Return a sum or a product, built in one call: term by term, long ones would be slow."""
    parts = []
    while isinstance(node, ast.BinOp) and type(node.op) in kinds:
        part = value_of(node.right, names)
        if isinstance(node.op, ast.Sub):
            part = -part
        elif isinstance(node.op, ast.Div):
            part = _checked(1 / part)
        parts.append(part)
        node = node.left
    parts.append(value_of(node, names))
    return _checked((sympy.Add if kinds is _SUMS else sympy.Mul)(*reversed(parts)))


def _power(base: sympy.Expr, exponent: sympy.Expr) -> sympy.Expr:
    """Return a power; refuse one whose exact value or exponent is too large."""
    if exponent.is_number:
        size = abs(float(exponent)) if exponent.is_real else 0.0
        if size > LARGEST_EXPONENT:
            raise Refused(f"has an exponent beyond {LARGEST_EXPONENT}")
        # SymPy raises number factors immediately: (2*x)**9 becomes 512*x**9.
        _check_exact((one.as_base_exp()[0] for one in sympy.Mul.make_args(base)), size)
    return _checked(base**exponent)


def _of_function(name: str, argument: sympy.Expr) -> sympy.Expr:
    if name == "Abs" and not argument.is_number:
        # SymPy would multiply out arguments that it does not know to be real.
        return sympy.Abs(argument, evaluate=False)
    if name in _UNDEFINED and not argument.is_number:
        # To find its sign, as for a root, SymPy would multiply out the argument.
        return _UNDEFINED[name](argument)
    if name == "exp" and argument.has(sympy.log):
        # exp(9*log(2)) becomes 2**9.
        numbers = argument.atoms(sympy.Number)
        _check_exact(numbers, max((abs(float(one)) for one in numbers), default=0.0))
    return _checked(_CALLED[name](argument))


def _check_exact(numbers: Iterable[sympy.Expr], exponent: float) -> None:
    """Refuse powers of exact numbers with too many digits in total."""
    exact = (one for one in numbers if one.is_Rational)
    bits = sum(max(one.p.bit_length(), one.q.bit_length()) - 1 for one in exact)
    if exponent * bits > _MOST_BITS:
        raise Refused(f"has a number beyond {LARGEST_NUMBER:.0e}")


def _checked(value: sympy.Expr) -> sympy.Expr:
    """Return a value; refuse one whose leading factor or term is beyond finite doubles."""
    # Checking all parts at every operation would take too long.
    if value in INFINITE or (value.args and value.args[0] in INFINITE):
        raise Refused(f"is {shown(value)}, no real number")
    if value.is_number:
        # Each part has been checked, so this is little work.
        _check_number(value if value.is_Number else abs(value.evalf(3)))
        return _rounded(value)
    if (value.is_Mul or value.is_Add) and value.args[0].is_Number:
        _check_number(value.args[0])
    if value.is_Pow and value.exp.is_Number and abs(value.exp) > LARGEST_EXPONENT:
        raise Refused(f"has an exponent beyond {LARGEST_EXPONENT}")
    if value.is_Mul and any(one.is_number for one in value.args):
        return sympy.Mul(*(_rounded(one) if one.is_number else one for one in value.args))
    return value


def _rounded(number: sympy.Expr) -> sympy.Expr:
    """Return a number with integers that are too long for NumPy's functions as floats."""
    exact = (max(one.p.bit_length(), one.q.bit_length()) for one in number.atoms(sympy.Rational))
    if max(exact, default=0) <= _MOST_EXACT_BITS:
        return number
    value = sympy.Float(number.evalf(17)) if number.is_real else number
    return value if value.is_finite else number


def _check_number(number: sympy.Expr) -> None:
    is_exact = number.is_Rational
    bits = max(number.p.bit_length(), number.q.bit_length()) if is_exact else 0
    if bits > _MOST_BITS or (number.is_Float and abs(number) > LARGEST_NUMBER):
        raise Refused(f"has a number beyond {LARGEST_NUMBER:.0e}")


def evaluator(expression: sympy.Expr) -> Callable[..., Any]:
    """Return an expression of `COORDINATES`, and perhaps `TIME`, as a function.

    The function takes x, y, z and a module, and the time as `time`.
    """

    @functools.cache
    def function_of(module: Any) -> Callable[..., Any]:
        functions = {name.lower(): getattr(module, name.lower()) for name in FUNCTIONS}
        functions["Abs"] = module.abs
        return array_function((*COORDINATES, TIME), expression, functions)

    return lambda x, y, z, module, time=0.0: function_of(module)(x, y, z, time)
