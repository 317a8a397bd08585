"""Forms: the terms of an equation, in the order in which a pseudospectral method does things.

In a periodic box every right-hand side is a sum of terms ``m(k) F[p]``: a polynomial ``m`` of the
wavenumbers times the Fourier transform of ``p``, which is known point by point. Such a sum is a
form. A field itself is a form, a derivative multiplies by ``i k``, and only a product has to go to
points.

What is known at points is an expression of values: of components of fields, and of their
derivatives. Where a field has no divergence, derivatives along z of its z component are expressed
by others, so that equal expressions look equal.
"""

from __future__ import annotations

import sympy

WAVENUMBERS = sympy.symbols("kx ky kz", real=True)
AXES = "xyz"

Orders = tuple[int, int, int]
_VALUE: Orders = (0, 0, 0)


class Value(sympy.Symbol):
    """The value at a point of a component of a field, or of a derivative of it.

    Attributes
    ----------
    field : str
        Name of the field.
    component : int or None
        Which of x, y and z; None for a scalar.
    solenoidal : bool
        Whether the field has no divergence.
    orders : tuple of int
        Of the derivatives along x, y and z.
    """

    def __new__(
        cls, field: str, component: int | None, solenoidal: bool = False, orders: Orders = _VALUE
    ) -> Value:
        """Make the one symbol that has these attributes."""
        name = field if component is None else f"{field}_{AXES[component]}"
        suffix = "".join(axis * order for axis, order in zip(AXES, orders, strict=True))
        # Not SymPy's cached symbol of that name, which may be of a field with other attributes.
        self = super().__xnew__(cls, f"{name}__{suffix}" if suffix else name, real=True)
        self.field, self.component, self.solenoidal = field, component, solenoidal
        self.orders = orders
        return self

    def _hashable_content(self) -> tuple:
        own = (self.field, self.component, self.solenoidal, self.orders)
        return (*super()._hashable_content(), *own)

    @property
    def is_derivative(self) -> bool:
        """Whether it is the value of a derivative."""
        return self.orders != _VALUE

    @property
    def undifferentiated(self) -> Value:
        """The value of the component itself."""
        return Value(self.field, self.component, self.solenoidal)

    @property
    def multiplier(self) -> sympy.Expr:
        """What the Fourier coefficients of the component are multiplied by: (i k)^orders."""
        factors = zip(WAVENUMBERS, self.orders, strict=True)
        return sympy.prod([(sympy.I * k) ** order for k, order in factors])

    def differentiated(self, orders: Orders) -> sympy.Expr:
        """Return a further derivative."""
        total = tuple(own + more for own, more in zip(self.orders, orders, strict=True))
        if self.solenoidal and self.component == 2 and total[2]:
            x, y = (Value(self.field, axis, True) for axis in (0, 1))
            return -x.differentiated((total[0] + 1, total[1], total[2] - 1)) - y.differentiated(
                (total[0], total[1] + 1, total[2] - 1)
            )
        return Value(self.field, self.component, self.solenoidal, total)


def values_in(expression: sympy.Expr) -> list[Value]:
    """Return the values that an expression has, in the order of their names."""
    found = (symbol for symbol in expression.free_symbols if isinstance(symbol, Value))
    return sorted(found, key=str)


def differentiate(expression: sympy.Expr, axis: int) -> sympy.Expr:
    """Return the derivative along an axis of an expression of values, by the chain rule."""
    once = tuple(int(other == axis) for other in range(3))
    return sympy.expand(
        sum(
            sympy.diff(expression, value) * value.differentiated(once)
            for value in values_in(expression)
        )
    )


class NestedDerivative(Exception):
    """The derivative of a product is a factor of another product."""


class Form:
    """A sum of terms, each a polynomial of the wavenumbers times the transform of points.

    Parameters
    ----------
    terms : dict
        From expressions of values (1 for what is the same everywhere) to polynomials of the
        wavenumbers, whose coefficients may have parameters.
    """

    def __init__(self, terms: dict[sympy.Expr, sympy.Expr]) -> None:
        expanded = {points: sympy.expand(factor) for points, factor in terms.items()}
        self.terms = {points: factor for points, factor in expanded.items() if factor != 0}

    def plus(self, other: Form) -> Form:
        """Return the sum."""
        terms = dict(self.terms)
        for points, factor in other.terms.items():
            terms[points] = terms.get(points, 0) + factor
        return Form(terms)

    def times(self, factor: sympy.Expr) -> Form:
        """Return the product with what is the same everywhere."""
        return Form({points: factor * own for points, own in self.terms.items()})

    def derivative(self, axis: int) -> Form:
        """Return the derivative along x, y or z."""
        varying = Form({points: factor for points, factor in self.terms.items() if points != 1})
        return varying.times(sympy.I * WAVENUMBERS[axis])

    def at_points(self) -> sympy.Expr:
        """Return the values at points.

        Raises
        ------
        NestedDerivative
            If it is the derivative of a product.
        """
        result = sympy.Integer(0)
        for points, factor in self.terms.items():
            for orders, coefficient in sympy.Poly(factor, *WAVENUMBERS).terms():
                if orders == _VALUE:
                    result += coefficient * points
                elif isinstance(points, Value):
                    real = sympy.expand(coefficient / sympy.I ** sum(orders))
                    result += real * points.differentiated(orders)
                elif points != 1:
                    raise NestedDerivative
        return sympy.expand(result)


def form_of_points(expression: sympy.Expr) -> Form:
    """Return the form of an expression of values: its terms, without constant factors."""
    values = values_in(expression)
    terms: dict[sympy.Expr, sympy.Expr] = {}
    for term in sympy.Add.make_args(sympy.expand(expression)):
        factor, points = term.as_independent(*values, as_Add=False)
        if isinstance(points, Value):
            factor, points = factor * points.multiplier, points.undifferentiated
        terms[points] = terms.get(points, 0) + factor
    return Form(terms)
