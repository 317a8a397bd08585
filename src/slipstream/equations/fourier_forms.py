"""Fourier forms: the terms of an equation, as a pseudospectral method evaluates them.

In a periodic box every right-hand side is a sum of terms ``m(k) F[p]``: a multiplier ``m``, a
function of the wavenumbers, times the Fourier transform of ``p``, an expression at the points. Such
a sum is a form. A field is a form, a derivative multiplies it by ``i k``, and only products need
the points. A multiplier is a polynomial of the wavenumbers and of filters: symbols for other
functions of the wavenumbers.

An expression at the points consists of values (of components of fields and of their derivatives),
of coordinates and of the time. In a solenoidal field, derivatives of the z component along z are
expressed by the others, so equal expressions look equal. The imaginary unit of a complex quantity
is a symbol among the multipliers, different from the ``i`` of ``i k``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sympy

WAVENUMBERS = sympy.symbols("kx ky kz", real=True)
AXES = "xyz"


def component_names(name: str, rank: int) -> list[str]:
    """Return the names of the components of a scalar, a vector (rank 1) or a tensor (rank 2)."""
    ends = map("".join, itertools.product(AXES, repeat=rank))
    return [f"{name}_{end}" if end else name for end in ends]


class Known(sympy.Symbol):
    """A symbol of every model, distinct from any parameter of the same name."""


COORDINATES = tuple(Known(axis, real=True) for axis in AXES)
TIME = Known("t", real=True)
IMAGINARY = Known("i", real=True)

# The square of the wavenumber.
SQUARE = sum(k**2 for k in WAVENUMBERS)

Orders = tuple[int, int, int]
_VALUE: Orders = (0, 0, 0)


class Filter(Known):
    """A real function of the wavenumbers that is not a polynomial, as a symbol of multipliers.

    It may have parameters. At k = 0 its value is `at_zero`; elsewhere it is 0 if `function` is not
    finite.
    """

    def __new__(cls, function: sympy.Expr, at_zero: sympy.Expr = sympy.S.Zero) -> Filter:
        """Return the only symbol with these attributes."""
        written = sympy.sympify(function).xreplace({SQUARE: _K**2})
        self = super().__xnew__(cls, f"[{written}]", real=True)
        self.function, self.at_zero = sympy.sympify(function), sympy.sympify(at_zero)
        return self

    def _hashable_content(self) -> tuple[Any, ...]:
        return (*super()._hashable_content(), self.function, self.at_zero)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Filter, (self.function, self.at_zero)


_K = sympy.Symbol("k", nonnegative=True)


class Value(sympy.Symbol):
    """The value of a field's component, or of a derivative of it, at a point.

    The component is 0, 1 or 2 for x, y or z, and None for a scalar; `orders` are the orders of the
    derivatives along x, y and z, and `filtered` is the product of the filters applied to it.
    """

    def __new__(
        cls,
        field: str,
        component: int | None,
        solenoidal: bool = False,
        orders: Orders = _VALUE,
        filtered: sympy.Expr = sympy.S.One,
    ) -> Value:
        """Return the only symbol with these attributes."""
        name = field if component is None else f"{field}_{AXES[component]}"
        suffix = "".join(axis * order for axis, order in zip(AXES, orders, strict=True))
        suffix += "" if filtered == 1 else str(filtered)
        # Not SymPy's cached symbol of that name, which may belong to a field with other attributes.
        self = super().__xnew__(cls, f"{name}__{suffix}" if suffix else name, real=True)
        self.field, self.component, self.solenoidal = field, component, solenoidal
        self.orders, self.filtered = orders, filtered
        return self

    @property
    def _attributes(self) -> tuple[Any, ...]:
        return self.field, self.component, self.solenoidal, self.orders, self.filtered

    def _hashable_content(self) -> tuple[Any, ...]:
        # SymPy orders equal symbols by this, and nothing is less or greater than None.
        component = -1 if self.component is None else self.component
        rest = (self.solenoidal, self.orders, self.filtered)
        return (*super()._hashable_content(), self.field, component, *rest)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # SymPy would recreate it from its name and assumptions alone.
        return Value, self._attributes

    def with_orders(self, orders: Orders, filtered: sympy.Expr | None = None) -> Value:
        """Return the value of a derivative of the component, with these filters or its own."""
        filtered = self.filtered if filtered is None else filtered
        return Value(self.field, self.component, self.solenoidal, orders, filtered)

    @property
    def undifferentiated(self) -> Value:
        """The value of the component itself."""
        return self.with_orders(_VALUE, sympy.Integer(1))

    @property
    def multiplier(self) -> sympy.Expr:
        """The factor of the Fourier coefficients of the component."""
        factors = zip(WAVENUMBERS, self.orders, strict=True)
        return self.filtered * sympy.prod([(sympy.I * k) ** order for k, order in factors])

    def differentiated(self, orders: Orders) -> sympy.Expr:
        """Return a further derivative."""
        total = tuple(own + more for own, more in zip(self.orders, orders, strict=True))
        if self.solenoidal and self.component == 2 and total[2]:
            x, y = (Value(self.field, axis, True, _VALUE, self.filtered) for axis in (0, 1))
            return -x.differentiated((total[0] + 1, total[1], total[2] - 1)) - y.differentiated(
                (total[0], total[1] + 1, total[2] - 1)
            )
        return self.with_orders(total)


class FilteredSource(Value):
    """The value at a point of a filtered expression, such as a product."""

    def __new__(
        cls, source: sympy.Expr, filtered: sympy.Expr, orders: Orders = _VALUE
    ) -> FilteredSource:
        """Return the only symbol with these attributes."""
        self = super().__new__(cls, f"({source})", None, False, orders, filtered)
        self.source = source
        return self

    def _hashable_content(self) -> tuple[Any, ...]:
        return (*super()._hashable_content(), self.source)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return FilteredSource, (self.source, self.filtered, self.orders)

    def with_orders(self, orders: Orders, filtered: sympy.Expr | None = None) -> FilteredSource:
        return FilteredSource(self.source, self.filtered if filtered is None else filtered, orders)

    @property
    def undifferentiated(self) -> sympy.Expr:
        """The expression before the filters."""
        return self.source


def filters_in(expression: sympy.Basic) -> list[Filter]:
    """Return the filters in an expression, or a matrix, sorted by name."""
    return sorted((one for one in expression.free_symbols if isinstance(one, Filter)), key=str)


def has_waves(factor: sympy.Expr) -> bool:
    """Whether a multiplier depends on the wavenumbers."""
    return factor.has(*WAVENUMBERS) or bool(filters_in(factor))


def with_numbers(expression: Any, values: Mapping[sympy.Symbol, Any]) -> Any:
    """Return an expression with numbers instead of parameters, also in its filters."""
    filters = {
        one: Filter(one.function.subs(values), one.at_zero.subs(values))
        for one in filters_in(expression)
    }
    return expression.xreplace(filters).subs(values)


def at_wavevector(expression: sympy.Expr, k: Sequence[Any]) -> sympy.Expr:
    """Return a multiplier at a wavevector."""
    instead = dict(zip(WAVENUMBERS, map(sympy.sympify, k), strict=True))
    filters = {
        one: one.function.xreplace(instead) if any(k) else one.at_zero
        for one in filters_in(expression)
    }
    return expression.xreplace(filters).xreplace(instead)


def values_in(expression: sympy.Expr) -> list[Value]:
    """Return the values in an expression, sorted by name."""
    found = (symbol for symbol in expression.free_symbols if isinstance(symbol, Value))
    return sorted(found, key=str)


def positions_in(expression: sympy.Expr) -> list[sympy.Symbol]:
    """Return the coordinates, and the time, in an expression."""
    return [one for one in (*COORDINATES, TIME) if expression.has(one)]


def parameters_in(expressions: Iterable[sympy.Expr]) -> list[sympy.Symbol]:
    """Return the parameters of a model in expressions, sorted by name."""
    parameters = {
        symbol for expression in expressions for symbol in sympy.sympify(expression).free_symbols
    }
    for symbol in [symbol for symbol in parameters if isinstance(symbol, Filter)]:
        parameters |= symbol.function.free_symbols | symbol.at_zero.free_symbols
    for symbol in [symbol for symbol in parameters if isinstance(symbol, Value)]:
        parameters |= set(parameters_in(filters_in(symbol.filtered)))
    remaining = {symbol for symbol in parameters if not isinstance(symbol, Value | Known)}
    return sorted(remaining - set(WAVENUMBERS), key=str)


def expanded(expression: sympy.Expr) -> sympy.Expr:
    """Return a sum of products; functions, roots and divisors are not expanded.

    Expanded, exp(-(y - a)^2) would be a product of too large and too small numbers, (x + y)^(3/2)
    two terms with the same root, and x / (3 (1 + y)) would lose the divisor 1 + y.
    """
    powers = [power for power in expression.atoms(sympy.Pow) if power.base.is_Add]
    kept = [power for power in powers if power.exp.is_negative or not power.exp.is_Integer]
    kept += expression.atoms(sympy.Function)
    functions = {call: sympy.Dummy(real=True) for call in kept}
    back = {symbol: call for call, symbol in functions.items()}
    return sympy.expand(expression.xreplace(functions), power_exp=False).xreplace(back)


def differentiate(expression: sympy.Expr, axis: int) -> sympy.Expr:
    """Return the derivative of an expression at points along an axis, by the chain rule."""
    once = int(axis == 0), int(axis == 1), int(axis == 2)
    along = sympy.diff(expression, COORDINATES[axis])
    for value in values_in(expression):
        along += sympy.diff(expression, value) * value.differentiated(once)
    return expanded(along)


class Form:
    """A sum of terms, each a multiplier times the transform of points."""

    def __init__(self, terms: dict[sympy.Expr, sympy.Expr]) -> None:
        expanded = {points: _reduced(factor) for points, factor in terms.items()}
        self.terms = {points: factor for points, factor in expanded.items() if factor != 0}

    def plus(self, other: Form) -> Form:
        """Return the sum."""
        terms = dict(self.terms)
        for points, factor in other.terms.items():
            terms[points] = terms.get(points, 0) + factor
        return Form(terms)

    def times(self, factor: sympy.Expr) -> Form:
        """Return the product with a uniform factor."""
        return Form({points: factor * own for points, own in self.terms.items()})

    def derivative(self, axis: int) -> Form:
        """Return the derivative along x, y or z."""
        result = Form({})
        for points, factor in self.terms.items():
            if values_in(points):
                result = result.plus(Form({points: factor * sympy.I * WAVENUMBERS[axis]}))
            elif points != 1:  # a function of the coordinates, differentiated analytically
                result = result.plus(form_of_points(differentiate(points, axis)).times(factor))
        return result

    def multiplied(self, factor: sympy.Expr) -> Form:
        """Return the form multiplied by a function of the wavenumbers, polynomial or not."""
        result = Form({})
        for points, coefficient in self.terms.items():
            if points == 1:
                result = result.plus(Form({points: coefficient * at_wavevector(factor, (0, 0, 0))}))
            elif values_in(points) or filters_in(factor):
                result = result.plus(Form({points: coefficient * factor}))
            else:  # a function of the coordinates, differentiated analytically
                known = Form({points: factor}).at_points()
                result = result.plus(form_of_points(known).times(coefficient))
        return result

    def at_points(self) -> sympy.Expr:
        """Return the values at points."""
        result = sympy.Integer(0)
        for points, factor in self.terms.items():
            for orders, coefficient in sympy.Poly(factor, *WAVENUMBERS).terms():
                for number, filtered in _by_filters(coefficient):
                    derived = _through(filtered, points)
                    for axis, order in enumerate(orders):
                        for _ in range(order):
                            derived = differentiate(derived, axis)
                    result += sympy.expand(number / sympy.I ** sum(orders)) * derived
        return expanded(result)

    def real_and_imaginary(self) -> tuple[Form, Form]:
        """Return both parts of a complex quantity."""
        parts: tuple[dict[sympy.Expr, sympy.Expr], ...] = ({}, {})
        for points, factor in self.terms.items():
            for power, part in enumerate(parts):
                part[points] = factor.coeff(IMAGINARY, power)
        return Form(parts[0]), Form(parts[1])

    @property
    def is_complex(self) -> bool:
        """Whether it has an imaginary part."""
        return any(factor.has(IMAGINARY) for factor in self.terms.values())


def _by_filters(factor: sympy.Expr) -> list[tuple[sympy.Expr, sympy.Expr]]:
    """Return the terms of a factor without wavenumbers: numbers, and products of filters."""
    filters = filters_in(factor)
    if not filters:
        return [(factor, sympy.Integer(1))]
    terms = sympy.Add.make_args(sympy.expand(factor))
    return [term.as_independent(*filters, as_Add=False) for term in terms]


def _through(filtered: sympy.Expr, points: sympy.Expr) -> sympy.Expr:
    """Return an expression at points after a product of filters."""
    if filtered == 1:
        return points
    if points == 1:
        return at_wavevector(filtered, (0, 0, 0))
    if isinstance(points, Value):
        return points.with_orders(points.orders, points.filtered * filtered)
    return FilteredSource(points, filtered)


def _reduced(factor: sympy.Expr) -> sympy.Expr:
    """Expand, and reduce powers of the imaginary unit."""
    factor = sympy.expand(factor)
    if not factor.has(IMAGINARY):
        return factor
    powers = sympy.Poly(factor, IMAGINARY).terms()
    return sympy.expand(
        sum((-1) ** (n // 2) * IMAGINARY ** (n % 2) * coefficient for (n,), coefficient in powers)
    )


def form_of_points(expression: sympy.Expr) -> Form:
    """Return the form of an expression at points: its terms, without constant factors."""
    varying = values_in(expression) + positions_in(expression)
    terms: dict[sympy.Expr, sympy.Expr] = {}
    for term in sympy.Add.make_args(expanded(expression)):
        factor, points = term.as_independent(*varying, as_Add=False)
        if isinstance(points, Value):
            factor, points = factor * points.multiplier, points.undifferentiated
        terms[points] = terms.get(points, 0) + factor
    return Form(terms)
