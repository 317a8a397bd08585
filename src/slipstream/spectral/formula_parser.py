"""Formulas of x, y and z, such as ``"sin(x) * cos(2*y)"``: parsed, and checked on a grid."""

from __future__ import annotations

import ast
import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import sympy

from slipstream.engine.errors import InputError
from slipstream.engine.text import shown
from slipstream.equations.code_generation import array_function
from slipstream.equations.fourier_forms import AXES, COORDINATES, TIME
from slipstream.spectral.kept_modes import unit_wavenumbers
from slipstream.spectral.spectral_problem import FieldParts, SpectralProblem

# Names of functions of Python programs begin like this.
PREFIX = "python:"
# These functions, by name.
_GIVEN: dict[str, Callable[..., Any]] = {}
# The functions that formulas may call.
FUNCTIONS = ("sin", "cos", "tan", "exp", "log", "sqrt", "tanh", "cosh", "sinh", "Abs", "sign")
_CALLED = {name: getattr(sympy, name) for name in FUNCTIONS}
# Functions whose arguments SymPy must not multiply out.
_UNDEFINED = {name: sympy.Function(name, real=True) for name in ("tanh", "cosh", "sinh")}
_NAMED = {"pi": sympy.pi, **{str(one): one for one in COORDINATES}}
INFINITE = (sympy.zoo, sympy.oo, -sympy.oo, sympy.nan)
_NO_NUMBERS = (sympy.I, *INFINITE)
_SUMS = (ast.Add, ast.Sub)
_PRODUCTS = (ast.Mult, ast.Div)
_SIGNS: dict[type, Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
MOST_LETTERS = 8000
# A sum of sixty waves has 900 parts. SymPy's time grows faster than their number.
MOST_PARTS = 1000
MOST_NESTED = 20
LARGEST_NUMBER = 1e300
LARGEST_EXPONENT = 1000
# The most bits of an exact number; without a bound its digits could fill the memory.
_MOST_BITS = 1000
_MOST_EXACT_BITS = 53
# The share of energy whose loss is refused.
REFUSED = 0.99
# The share of energy whose loss gets a warning.
WARNED = 1e-6
# Places in the box, as fractions of its lengths, where no symmetry applies.
_PLACES = np.modf(np.outer(np.arange(1, 9), np.sqrt([2.0, 3.0, 5.0])))[0]
# A time at which no symmetry applies.
A_TIME = 0.37
# Grids of more points along an axis fit into no memory, and are refused when it is checked.
_MOST_POINTS = 1 << 16


# -- functions of Python programs ------------------------------------------------------------------


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function in cases, which is valid in this process only."""
    for name, known in _GIVEN.items():
        if known is function:
            return name
    label = getattr(function, "__qualname__", type(function).__name__)
    # Notebooks often define a function again: cached results belong to the earlier one.
    same = sum(name.partition("#")[0] == f"{PREFIX}{label}" for name in _GIVEN)
    name = f"{PREFIX}{label}" + (f"#{same + 1}" if same else "")
    _GIVEN[name] = function
    return name


def is_name(formula: Any) -> bool:
    """Whether a formula of a case is the name of a function."""
    return isinstance(formula, str) and formula.startswith(PREFIX)


class GivenFunction:
    """A function of x, y, z, and perhaps t, that returns field components."""

    def __init__(self, name: str, key: str, size: int, zero: Sequence[int] = ()) -> None:
        if name not in _GIVEN:
            raise InputError(
                f"{key}: {name!r} was given by a Python program; give the function there again, by"
                " slipstream.Flow(forcing=...)"
            )
        self._function, self._key, self._size, self._zero = _GIVEN[name], key, size, zero
        self.has_time = self._takes(4)
        if not (self.has_time or self._takes(3)):
            raise InputError(f"{key}: the function must take x, y and z, or x, y, z and t")

    def _takes(self, count: int) -> bool:
        try:
            inspect.signature(self._function).bind(*[None] * count)
        except TypeError:
            return False
        except ValueError:  # some built-in functions have no signature
            return count == 3
        return True

    def component(self, number: int) -> Callable[..., Any]:
        """Return the function of a component, as `evaluator` does for a formula."""

        def values(x: Any, y: Any, z: Any, module: Any, time: float = 0.0) -> Any:
            result = self._function(x, y, z, *([time] * self.has_time))
            several = result if self._size > 1 else [result]
            if not hasattr(several, "__len__") or len(several) != self._size:
                raise InputError(
                    f"{self._key}: the function returns {shown(type(result).__name__)}; accepted:"
                    f" {self._size} components"
                )
            value, shape = several[number], np.broadcast_shapes(x.shape, y.shape, z.shape)
            try:
                value = module.broadcast_to(module.asarray(value, dtype=float), shape)
            except (TypeError, ValueError):
                raise InputError(
                    f"{self._key}: the function returns {shown(value)}; accepted: real numbers that"
                    f" broadcast to {shape}"
                ) from None
            if not bool(module.isfinite(value).all()):
                raise InputError(f"{self._key}: the function is not finite at some points")
            if number in self._zero and bool(value.any()):
                raise InputError(
                    f"numerics.plane: '2D2C', but component {number + 1} of {self._key} is not 0;"
                    " accepted: a force in the plane, or '2D3C'"
                )
            return value

        return values


# -- formulas --------------------------------------------------------------------------------------


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
        expression = value_of(syntax_of(text), names)
        if not isinstance(expression, sympy.Expr) or expression.has(*_NO_NUMBERS):
            raise Refused(f"is {shown(expression)}, no real number")
        for number in expression.atoms(sympy.Number):
            _check_number(number)
        return expression
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
    """Return an expression of `COORDINATES`, and perhaps `TIME`, as a function."""

    @functools.cache
    def function_of(module: Any) -> Callable[..., Any]:
        functions = {name.lower(): getattr(module, name.lower()) for name in FUNCTIONS}
        functions["Abs"] = module.abs
        return array_function((*COORDINATES, TIME), expression, functions)

    return lambda x, y, z, module, time=0.0: function_of(module)(x, y, z, time)


# -- checks of formulas in a box -------------------------------------------------------------------


def check_periodic(expression: sympy.Expr, lengths: tuple[float, float, float], key: str) -> None:
    """Refuse a function that is not finite, or that jumps, or has a kink, where the box repeats."""
    for axis, (name, length) in enumerate(zip(AXES, reversed(lengths), strict=True)):
        along = _lines(expression, lengths, axis)
        places = length * _PLACES[:, axis, None]
        low, high, inside = along(0.0), along(length), along(places)
        if not np.isfinite([low, high, inside]).all():
            raise InputError(f"{key}: {expression} is not a finite number everywhere in the box")
        where = (
            f"along {name} in a box of length {length:.6g}; expected a function that is the same "
            "at both ends"
        )
        scale = max(np.abs(inside - low).max(), np.abs(high - low).max())
        if np.abs(along(places + length) - inside).max() <= 1e-6 * scale:
            continue  # the values continue unchanged beyond the box
        if np.abs(high - low).max() > 1e-2 * scale:
            raise InputError(f"{key}: {expression} is not periodic {where}")
        if expression.has(sympy.Abs, sympy.sign):
            continue  # kinks are intended
        near = 1e-6 * length
        first, last, others = along(near) - low, high - along(length - near), along(places + near)
        steepest = max(np.abs(slope).max() for slope in (first, last, others - inside))
        if np.abs(last - first).max() > 0.1 * steepest:
            raise InputError(f"{key}: {expression} is not periodic, since its slope jumps, {where}")


def check_resolved(expression: sympy.Expr, problem: SpectralProblem, key: str) -> list[str]:
    """Return warnings of unresolved parts of a function; refuse one that is lost entirely."""
    warnings = []
    for axis, name in enumerate(AXES):
        modes, length = problem.geometry.modes[2 - axis], problem.periods[2 - axis]
        if not expression.has(COORDINATES[axis]) or modes.size > _MOST_POINTS:
            continue
        if modes.size == 1:
            warnings.append(
                f"{key}: {expression} varies along {name}, where grid.points is 1: its values at "
                f"{name} = 0 are taken"
            )
            continue
        along, size = _lines(expression, problem.periods, axis), modes.period
        # An odd number of places, so that no wave vanishes both here and on the grid.
        count = max(4096, 16 * size) + 1
        fine, coarse = (along(length * np.arange(n) / n) for n in (count, size))
        if not (np.isfinite(fine).all() and np.isfinite(coarse).all()):
            raise InputError(f"{key}: {expression} is not a finite number everywhere in the box")
        scale = max(np.abs(fine).max(), np.abs(coarse).max()) or 1.0
        there, seen = (np.fft.rfft(one / scale) / one.shape[1] for one in (fine, coarse))
        there[:, 0] = seen[:, 0] = 0  # the mean
        kept = slice(modes.low)
        whole, missing = _sum_of_squares(there), _sum_of_squares(there[:, modes.low :])
        # Waves that the grid takes for others.
        aliased = _sum_of_squares(there[:, kept] - seen[:, kept])
        largest = max(whole, _sum_of_squares(seen[:, kept]))
        share = min(1.0, max(missing / (whole or 1.0), aliased / (largest or 1.0)))
        held = f"the {modes.low - 1} that grid.points = {modes.size} can resolve"
        what = f"{key}: {expression} has waves along {name} beyond {held}"
        warnings += judge_loss(share, what, "use more points")
    return warnings


def check_mirrored(
    expression: sympy.Expr, problem: SpectralProblem, component: int, key: str
) -> None:
    """Refuse a function without the parity of its component, between walls."""
    if problem.mirror is None:
        return
    axis, sign = problem.mirror.axis, problem.signs[component]
    along = _lines(expression, problem.periods, axis)
    places = problem.periods[2 - axis] * _PLACES[:, axis, None]
    here, there = along(places), along(-places)
    if np.abs(there - sign * here).max() > 1e-6 * np.abs(here).max():
        name, kind = AXES[axis], "even" if sign > 0 else "odd"
        such = "cosines" if sign > 0 else "sines"
        raise InputError(
            f"{key}: {expression} for {problem.model.components[component]}, which is {kind} across"
            f" the walls at {name} = 0 and {name} = {problem.lengths[2 - axis]:.6g}; accepted:"
            f" {such} of multiples of pi*{name}/{problem.lengths[2 - axis]:.6g}, and other {kind}"
            " functions"
        )


def _sum_of_squares(modes: np.ndarray) -> float:
    return float(np.square(np.abs(modes)).sum())


def judge_loss(share: float, what: str, remedy: str) -> list[str]:
    """Return the warning of a lost share of energy, if any; refuse a loss of nearly all."""
    if share < WARNED:
        return []
    text = f"{what}: {100 * share:.3g} % of its energy is lost; {remedy}"
    if share >= REFUSED:
        raise InputError(text)
    return [text]


def _lines(
    expression: sympy.Expr, lengths: tuple[float, float, float], axis: int
) -> Callable[[Any], np.ndarray]:
    """Return a function's values on lines along an axis, (line, place), at places along it."""
    function = functools.partial(evaluator(expression), module=np, time=A_TIME)
    where = [length * _PLACES[:, n, None] for n, length in enumerate(reversed(lengths))]

    def values(places: Any) -> np.ndarray:
        positions = np.broadcast_to(
            places, np.broadcast_shapes(np.shape(places), (len(_PLACES), 1))
        )
        with np.errstate(all="ignore"):
            results = function(*where[:axis], positions, *where[axis + 1 :])
        return np.broadcast_to(np.asarray(results, dtype=float), positions.shape)

    return values


def check_resolution(problem: SpectralProblem, wavenumber: int, kind: str, table: str) -> None:
    """Refuse a pattern that the grid does not resolve."""
    # The Taylor-Green vortex needs x and y; any other axis may have one point, without waves.
    needed = (1, 2) if kind == "taylor-green" else ()
    for axis, m in enumerate(problem.geometry.modes):
        if wavenumber >= m.low and (m.size > 1 or axis in needed):
            raise InputError(
                f"{table}.wavenumber: {wavenumber} is beyond the {m.low - 1} waves "
                f"that grid.points = {m.size} along {'zyx'[axis]} can resolve; use more points"
            )


def check_waves(problem: SpectralProblem, wavevector: tuple[int, int, int], key: str) -> None:
    """Refuse waves that the grid does not resolve."""
    modes = reversed(problem.geometry.modes)
    for axis, waves, m in zip("xyz", wavevector, modes, strict=True):
        if abs(waves) >= m.low:
            raise InputError(
                f"{key}: needs {abs(waves)} waves along {axis}, and grid.points = {m.size} can "
                f"resolve {m.low - 1}; use more points"
            )
    physical = np.multiply(wavevector, unit_wavenumbers(problem.periods))
    reach = np.dot(physical**2, problem.over_radii)
    if problem.dealiasing.is_spherical and reach >= 1:
        raise InputError(
            f"{key}: needs the wavevector {list(wavevector)}, which is beyond the sphere that "
            "numerics.dealiasing keeps; use more points"
        )
