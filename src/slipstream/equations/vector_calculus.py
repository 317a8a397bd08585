"""Vector calculus with symbols: fields, and the operators that equations are written with."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import sympy

from slipstream.engine.errors import InputError
from slipstream.equations.fourier_forms import (
    AXES,
    COORDINATES,
    IMAGINARY,
    SQUARE,
    TIME,
    WAVENUMBERS,
    Filter,
    Form,
    Value,
    at_wavevector,
    form_of_points,
    parameters_in,
    values_in,
)

Parts = tuple[Any, ...]
# Operators that stand between operands, or before one.
_OPERATIONS = "sum", "negative", "scale", "product", "quotient", "power"
_KINDS = ("a scalar", "a vector", "a tensor")


class Quantity:
    """A scalar, vector or tensor field, as an expression.

    Parameters
    ----------
    forms : sequence of Form
        Its components: 1, 3 (x, y, z) or 9 (xx, xy, ...).
    text : str
        Its notation, for messages.
    parts : tuple, optional
        The name of an operator and its operands, for mathematical notation.
    """

    def __init__(self, forms: Sequence[Form], text: str, parts: Parts = ()) -> None:
        self.forms, self.text, self.parts = list(forms), text, parts
        self.rank = {1: 0, 3: 1, 9: 2}[len(self.forms)]

    @property
    def is_complex(self) -> bool:
        """Whether it has an imaginary part."""
        return any(form.is_complex for form in self.forms)

    @property
    def kind(self) -> str:
        """A description, for messages."""
        kind = _KINDS[self.rank]
        return kind.replace("a ", "a complex ") if self.is_complex else kind

    def __repr__(self) -> str:
        return f"<{self.kind.removeprefix('a ')}: {self.text}>"

    def _repr_latex_(self) -> str:
        from slipstream.equations.latex import Notation

        return rf"$\displaystyle {Notation(self).of(self)}$"

    def __add__(self, other: Any) -> Quantity:
        other = as_quantity(other)
        text = f"{self.text} + {other.text}"
        if self.rank != other.rank:
            raise InputError(
                f"{text}: {self.kind} and {other.kind} cannot be added; expected {self.kind}"
            )
        forms = [a.plus(b) for a, b in zip(self.forms, other.forms, strict=True)]
        return Quantity(forms, text, ("sum", self, other))

    def __radd__(self, other: Any) -> Quantity:
        return as_quantity(other) + self

    def __neg__(self) -> Quantity:
        forms = [form.times(sympy.Integer(-1)) for form in self.forms]
        return Quantity(forms, f"-({self.text})", ("negative", self))

    def __sub__(self, other: Any) -> Quantity:
        return self + -as_quantity(other)

    def __rsub__(self, other: Any) -> Quantity:
        return as_quantity(other) + -self

    def __mul__(self, other: Any) -> Quantity:
        if not isinstance(other, Quantity):
            factor = as_number(other)
            forms = [form.times(factor) for form in self.forms]
            return Quantity(forms, f"{factor} * {_within(self, 'sum')}", ("scale", factor, self))
        if self.rank and other.rank:
            raise InputError(
                f"{self.text} * {other.text}: the product of {self.kind} and {other.kind} is "
                "ambiguous; expected dot, cross or outer"
            )
        scalar, rest = (other, self) if self.rank else (self, other)
        text = f"{_within(self, 'sum')} * {_within(other, 'sum')}"
        scalars, parts = [[scalar.forms[0]]] * len(rest.forms), ("product", scalar, rest)
        return _product(scalars, [[f] for f in rest.forms], text, parts)

    def __rmul__(self, other: Any) -> Quantity:
        return self * other

    def __truediv__(self, other: Any) -> Quantity:
        if not isinstance(other, Quantity):
            return self * (1 / as_number(other))
        if other.rank:
            expect(f"{self.text} / {other.text}", other, 0)
        result = self * reciprocal(other)
        text = f"{_within(self, 'sum')} / {_within(other, *_OPERATIONS[:-1])}"
        return Quantity(result.forms, text, ("quotient", self, other))

    def __rtruediv__(self, other: Any) -> Quantity:
        return as_quantity(other) / self

    def __getitem__(self, index: int | tuple[int, int]) -> Quantity:
        """Return a component of a vector, 0, 1 or 2, or of a tensor, such as [0, 2]."""
        places: tuple[int, ...] = index if isinstance(index, tuple) else (index,)
        text = f"{_within(self, *_OPERATIONS)}[{', '.join(map(str, places))}]"
        expect(text, self, 1, 2)
        is_whole = all(type(one) is int and 0 <= one < 3 for one in places)
        if not is_whole or len(places) != self.rank:
            accepted = "0, 1 or 2" if self.rank == 1 else "two of 0, 1 and 2, such as [0, 2]"
            raise InputError(f"{text}: expected {accepted}")
        number = places[0] if self.rank == 1 else 3 * places[0] + places[1]
        return Quantity([self.forms[number]], text, ("component", self, *places))

    @property
    def T(self) -> Quantity:
        """The transpose of a tensor."""
        text = f"{_within(self, *_OPERATIONS)}.T"
        expect(text, self, 2)
        forms = [self.forms[3 * j + i] for i in range(3) for j in range(3)]
        return Quantity(forms, text, ("transpose", self))

    def __pow__(self, power: Any) -> Quantity:
        text, exponent = f"{_within(self, *_OPERATIONS)} ** {power}", as_number(power)
        expect(text, self, 0)
        if exponent.is_Integer and exponent > 0:
            return _product([[self.forms[0]] * int(exponent)], [[]], text, ("power", self, power))
        if exponent == 0 or (self.is_complex and not exponent.is_Integer):
            raise InputError(f"{text}: expected a power other than 0, whole for complex quantities")
        if self.is_complex:
            result = reciprocal(self) ** -int(exponent)
            return Quantity(result.forms, text, ("power", self, power))
        form = form_of_points(self.forms[0].at_points() ** exponent)
        return Quantity([form], text, ("power", self, power))


def _within(quantity: Quantity, *operations: str) -> str:
    """Return the text of an operand, in parentheses if it is the result of some operations."""
    return f"({quantity.text})" if quantity.parts[:1] in zip(operations) else quantity.text


def reciprocal(quantity: Quantity) -> Quantity:
    """Return one over a scalar, at every point."""
    text = f"1 / {quantity.text}"
    expect(text, quantity, 0)
    if quantity.is_complex:
        return conj(quantity) * reciprocal(abs2(quantity))
    points = quantity.forms[0].at_points()
    if points == 0:
        raise InputError(f"{text}: expected a quantity that is not 0 at all points")
    return Quantity([form_of_points(1 / points)], text)


class Unknown(Quantity):
    """A field with its own equation."""

    def __init__(self, name: str, values: Sequence[Value], forms: Sequence[Form]) -> None:
        if not name.isidentifier():
            raise InputError(f"field {name!r}: expected a name of letters, digits and underscores")
        self.name, self.values = name, list(values)
        self.solenoidal = values[0].solenoidal
        super().__init__(forms, name)


class Scalar(Unknown):
    """An unknown scalar field.

    Parameters
    ----------
    name : str
        Its name in output files.
    complex : bool
        Whether it is complex. It is stored as its two parts, NAME_real and NAME_imaginary.
    """

    def __init__(self, name: str, complex: bool = False) -> None:
        names = [f"{name}_real", f"{name}_imaginary"] if complex else [name]
        values = [Value(one, None) for one in names]
        factors = (sympy.Integer(1), IMAGINARY)
        form = Form(dict(zip(values, factors, strict=False)))
        super().__init__(name, values, [form])


class Vector(Unknown):
    """An unknown vector field.

    Parameters
    ----------
    name : str
        Its name in output files.
    solenoidal : bool
        Whether its divergence is zero: the gradient part of its right-hand side is removed.
    """

    def __init__(self, name: str, solenoidal: bool = False) -> None:
        values = [Value(name, component, solenoidal) for component in range(3)]
        super().__init__(name, values, [Form({value: sympy.Integer(1)}) for value in values])


def parameter(name: str) -> sympy.Symbol:
    """Return the symbol of a parameter of a model, such as one that `follows` the state."""
    return sympy.Symbol(name, real=True)


def _unit(axis: int) -> Quantity:
    forms = [Form({sympy.Integer(1): sympy.Integer(int(axis == i))}) for i in range(3)]
    return Quantity(forms, f"{AXES[axis]}_hat", ("letter", rf"\hat{{\mathbf{{{AXES[axis]}}}}}"))


def _letter(symbol: sympy.Symbol) -> Quantity:
    name = str(symbol)
    return Quantity([Form({symbol: sympy.Integer(1)})], name, ("letter", name))


x_hat = _unit(0)
y_hat = _unit(1)
z_hat = _unit(2)
x = _letter(COORDINATES[0])
y = _letter(COORDINATES[1])
z = _letter(COORDINATES[2])
t = _letter(TIME)


def as_number(value: Any) -> sympy.Expr:
    """Return a number or a parameter in exact form."""
    try:
        number = sympy.sympify(value, strict=True)
    except sympy.SympifyError:
        raise InputError(f"{value!r}: expected a number, a parameter or a quantity") from None
    is_too_large = isinstance(value, int) and value.bit_length() > 1023
    if is_too_large or number.has(sympy.zoo, sympy.oo, -sympy.oo, sympy.nan):
        raise InputError(f"expression: {value!r} is not accepted; accepted: finite numbers")
    # Numbers keep their decimal digits, for exact algebra; i differs from the i of i k.
    exact = {one: sympy.Rational(str(one)) for one in number.atoms(sympy.Float)}
    return sympy.expand(number.xreplace(exact).xreplace({sympy.I: IMAGINARY}))


def as_quantity(value: Any) -> Quantity:
    """Return a quantity; a number becomes a uniform one."""
    if isinstance(value, Quantity):
        return value
    number = as_number(value)
    return Quantity([Form({sympy.Integer(1): number})], str(value), ("number", number))


def expect(text: str, quantity: Quantity, *ranks: int) -> None:
    """Refuse a quantity whose rank (0, 1 or 2) an operator does not accept."""
    if quantity.rank not in ranks:
        accepted = " or ".join(_KINDS[rank] for rank in ranks)
        raise InputError(f"{text}: {quantity.text} is {quantity.kind}; expected {accepted}")


def _product(
    first: list[list[Form]], second: list[list[Form]], text: str, parts: Parts = ()
) -> Quantity:
    """Return a quantity whose components are products of forms at points."""
    forms = []
    for left, right in zip(first, second, strict=True):
        constant = [f for f in (*left, *right) if set(f.terms) <= {1}]
        factors = [f for f in (*left, *right) if set(f.terms) - {1}]
        factor = sympy.prod([f.terms.get(sympy.Integer(1), 0) for f in constant])
        if len(factors) == 1:  # not a product of fields: derivatives may stay
            forms.append(factors[0].times(factor))
        else:
            points = [f.at_points() for f in factors]
            if any(map(values_in, points)):
                for one in points:
                    expect_periodic(text, one)
            forms.append(form_of_points(sympy.Mul(*points)).times(factor))
    return Quantity(forms, text, parts)


def expect_periodic(text: str, points: sympy.Expr) -> None:
    """Refuse bare coordinates, which jump at the boundary of the box."""
    for coordinate in COORDINATES:
        if points.has(coordinate) and points.is_polynomial(coordinate):
            raise InputError(
                f"{text}: {coordinate} is not periodic; expected a periodic function of it, such "
                f"as function(sympy.sin, {coordinate})"
            )


def _sum(quantities: Sequence[Quantity], text: str, parts: Parts) -> Quantity:
    forms = quantities[0].forms
    for other in quantities[1:]:
        forms = [a.plus(b) for a, b in zip(forms, other.forms, strict=True)]
    return Quantity(forms, text, parts)


def grad(quantity: Quantity) -> Quantity:
    """Return the gradient: of a vector u the tensor with ``d_i u_j`` in row i, column j."""
    text = f"grad({quantity.text})"
    expect(text, quantity, 0, 1)
    forms = [form.derivative(axis) for axis in range(3) for form in quantity.forms]
    return Quantity(forms, text, ("grad", quantity))


def div(quantity: Quantity) -> Quantity:
    """Return the divergence: of a tensor T the vector ``d_i T_ij``."""
    text = f"div({quantity.text})"
    expect(text, quantity, 1, 2)
    columns = 3 if quantity.rank == 2 else 1
    return _sum(
        [
            Quantity([form.derivative(i) for form in quantity.forms[i * columns :][:columns]], text)
            for i in range(3)
        ],
        text,
        ("div", quantity),
    )


def curl(quantity: Quantity) -> Quantity:
    """Return the curl of a vector."""
    text = f"curl({quantity.text})"
    expect(text, quantity, 1)
    minus = sympy.Integer(-1)
    forms = [
        quantity.forms[(i + 2) % 3]
        .derivative((i + 1) % 3)
        .plus(quantity.forms[(i + 1) % 3].derivative((i + 2) % 3).times(minus))
        for i in range(3)
    ]
    return Quantity(forms, text, ("curl", quantity))


def dot(first: Quantity, second: Quantity) -> Quantity:
    """Return the inner product: of a vector with a vector, or ``a_i T_ij`` with a tensor."""
    text = f"dot({first.text}, {second.text})"
    expect(text, first, 1)
    expect(text, second, 1, 2)
    columns = 3 if second.rank == 2 else 1
    rows = [second.forms[i * columns :][:columns] for i in range(3)]
    products = [
        _product([[first.forms[i]]] * columns, [[form] for form in rows[i]], text) for i in range(3)
    ]
    return _sum(products, text, ("dot", first, second))


def cross(first: Quantity, second: Quantity) -> Quantity:
    """Return the cross product of two vectors."""
    text = f"cross({first.text}, {second.text})"
    expect(text, first, 1)
    expect(text, second, 1)
    after, before = (1, 2, 0), (2, 0, 1)
    one = _product([[first.forms[i]] for i in after], [[second.forms[i]] for i in before], text)
    other = _product([[first.forms[i]] for i in before], [[second.forms[i]] for i in after], text)
    return Quantity((one - other).forms, text, ("cross", first, second))


def outer(first: Quantity, second: Quantity) -> Quantity:
    """Return the outer product of two vectors: the tensor ``a_i b_j``."""
    text = f"outer({first.text}, {second.text})"
    expect(text, first, 1)
    expect(text, second, 1)
    return _product(
        [[a] for a in first.forms for _ in range(3)],
        [[b] for b in second.forms] * 3,
        text,
        ("outer", first, second),
    )


def abs2(quantity: Quantity) -> Quantity:
    """Return the square of the magnitude: of a vector or a tensor the sum over its components."""
    quantity = as_quantity(quantity)
    text = f"abs2({quantity.text})"
    squares = [_product([[form]], [[_conjugate(form)]], text) for form in quantity.forms]
    return _sum(squares, text, ("abs2", quantity))


def _conjugate(form: Form) -> Form:
    return Form(
        {points: factor.subs(IMAGINARY, -IMAGINARY) for points, factor in form.terms.items()}
    )


def conj(quantity: Quantity) -> Quantity:
    """Return the complex conjugate."""
    quantity = as_quantity(quantity)
    forms = list(map(_conjugate, quantity.forms))
    return Quantity(forms, f"conj({quantity.text})", ("conj", quantity))


def real(quantity: Quantity) -> Quantity:
    """Return the real part."""
    quantity = as_quantity(quantity)
    parts = [form.real_and_imaginary()[0] for form in quantity.forms]
    return Quantity(parts, f"real({quantity.text})", ("real", quantity))


def imag(quantity: Quantity) -> Quantity:
    """Return the imaginary part."""
    quantity = as_quantity(quantity)
    parts = [form.real_and_imaginary()[1] for form in quantity.forms]
    return Quantity(parts, f"imag({quantity.text})", ("imag", quantity))


def function(operation: Callable[[sympy.Expr], sympy.Expr], quantity: Quantity) -> Quantity:
    """Return a function of a real scalar, or of coordinates and time, at every point.

    Parameters
    ----------
    operation : callable
        A function of SymPy, such as ``sympy.exp``.
    quantity : Quantity
        A scalar.
    """
    quantity = as_quantity(quantity)
    text = f"{getattr(operation, '__name__', 'function')}({quantity.text})"
    expect(text, quantity, 0)
    if quantity.is_complex:
        raise InputError(f"{text}: {quantity.text} is {quantity.kind}; expected a real quantity")
    form = form_of_points(operation(quantity.forms[0].at_points()))
    return Quantity([form], text, ("function", operation, quantity))


def laplacian(quantity: Quantity, power: Any = 1) -> Quantity:
    """Return the Laplacian, or a power of it.

    Parameters
    ----------
    quantity : Quantity
        A scalar, vector or tensor.
    power : int, float or parameter
        A whole number n multiplies modes by ``(-k^2)^n``, and -1 inverts the Laplacian. Any other
        number s stands for ``-(-laplacian)^s``: it multiplies by ``-k^(2 s)``, so a positive
        coefficient damps. Negative powers set the mean to 0.
    """
    quantity, power = as_quantity(quantity), as_number(power)
    text = f"laplacian({quantity.text}{f', {power}' if power != 1 else ''})"
    if power == 0 or not power.is_real:
        raise InputError(f"{text}: expected a number other than 0, or a parameter, as the power")
    sign = (-1) ** power if power.is_Integer else sympy.Integer(-1)
    is_plain = power.is_Integer and power > 0
    factor = sign * (sympy.expand(SQUARE**power) if is_plain else Filter(SQUARE**power))
    return _multiplied(quantity, factor, text, ("laplacian", quantity, power))


def _multiplied(
    quantity: Quantity, factor: sympy.Expr, text: str, parts: tuple[Any, ...]
) -> Quantity:
    forms = [form.multiplied(factor) for form in quantity.forms]
    return Quantity(forms, text, parts)


def inverse_laplacian(quantity: Quantity) -> Quantity:
    """Return the quantity of zero mean whose Laplacian is the given quantity minus its mean."""
    return laplacian(quantity, -1)


def inverse_curl(quantity: Quantity) -> Quantity:
    """Return the solenoidal vector of zero mean whose curl is a solenoidal vector's fluctuation."""
    result = -laplacian(curl(quantity), -1)
    text = f"inverse_curl({quantity.text})"
    return Quantity(result.forms, text, ("inverse_curl", quantity))


def riesz(quantity: Quantity) -> Quantity:
    """Return the Riesz transform of a scalar, a vector: modes times ``-i k / |k|``, the mean 0."""
    text = f"riesz({quantity.text})"
    expect(text, quantity, 0)
    result = grad(laplacian(quantity, sympy.Rational(-1, 2)))
    return Quantity(result.forms, text, ("named", "R", quantity))


def hilbert(quantity: Quantity, axis: str = "x") -> Quantity:
    """Return the Hilbert transform along an axis: modes times ``-i sign(k)``, 0 where that is 0."""
    text = f"hilbert({quantity.text}, {axis!r})"
    if axis not in tuple(AXES):
        raise InputError(f"{text}: expected an axis of 'x', 'y', 'z'")
    factor = -sympy.I * Filter(sympy.sign(WAVENUMBERS[AXES.index(axis)]))
    return _multiplied(quantity, factor, text, ("named", f"H_{axis}", quantity))


def spectral(
    operation: Callable[[sympy.Expr, sympy.Expr, sympy.Expr], Any],
    quantity: Quantity,
    mean: Any = None,
) -> Quantity:
    """Return a quantity whose modes are multiplied by any function of their wavenumbers.

    Parameters
    ----------
    operation : callable
        ``operation(kx, ky, kz)`` returns the factor, an expression of SymPy in the wavenumbers, in
        radians per unit of length, numbers and parameters. The result is real if the factors of
        k and -k are complex conjugates; other operations are refused.
    quantity : Quantity
        A scalar, vector or tensor.
    mean : number or parameter, optional
        The factor of the mean, k = 0. By default the value of the function there, or 0 if that is
        not finite. At other wavenumbers where the function is not finite, the factor is 0.
    """
    quantity = as_quantity(quantity)
    text = f"spectral(..., {quantity.text})"
    if not callable(operation):
        raise InputError(f"{text}: expected a function of kx, ky and kz")
    multiplier = sympy.sympify(operation(*WAVENUMBERS))
    multiplier = multiplier.xreplace(
        {f: sympy.Rational(str(f)) for f in multiplier.atoms(sympy.Float)}
    )
    text = f"spectral({multiplier}, {quantity.text})"
    if not isinstance(multiplier, sympy.Expr):
        raise InputError(f"{text}: expected a function of kx, ky and kz")
    real, imaginary = _parts(multiplier)
    for part, sign in ((real, 1), (imaginary, -1)):
        _check_parity(part, sign, text)
    at_zero = _value_at_zero(real) if mean is None else as_number(mean)
    factor = sympy.Integer(0)
    for part, mean, unit in ((real, at_zero, 1), (imaginary, sympy.Integer(0), sympy.I)):
        is_plain = part.is_polynomial(*WAVENUMBERS) and mean == part.subs(
            dict.fromkeys(WAVENUMBERS, 0)
        )
        number, function = part.as_coeff_Mul()
        filtered = number * Filter(function, mean / number) if number else mean
        factor += unit * (sympy.expand(part) if is_plain else filtered)
    return _multiplied(quantity, factor, text, ("spectral", multiplier, quantity))


def _parts(function: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """Return the real and the imaginary part of a function of wavenumbers."""
    if not function.has(sympy.I):
        return function, sympy.Integer(0)
    real, imaginary = sympy.expand(function).as_real_imag()
    return real, imaginary


def _value_at_zero(part: sympy.Expr) -> sympy.Expr:
    value = part.subs(dict.fromkeys(WAVENUMBERS, 0))
    is_finite = not value.has(sympy.zoo, sympy.oo, -sympy.oo, sympy.nan)
    return value if is_finite else sympy.Integer(0)


def _check_parity(part: sympy.Expr, sign: int, text: str) -> None:
    """Refuse a factor that would make real fields complex."""
    draw = random.Random(1)
    values = {parameter: draw.uniform(0.5, 2) for parameter in parameters_in([part])}
    for _ in range(4):
        k = [draw.uniform(-9, 9) for _ in range(3)]
        opposite = [-component for component in k]
        here, there = (at_wavevector(part.subs(values), vector) for vector in (k, opposite))
        difference = sympy.N(here - sign * there)
        is_number = difference.is_number and difference.is_real
        if not is_number or abs(difference) > 1e-9 * (1 + abs(sympy.N(here))):
            raise InputError(f"{text}: expected factors of k and -k that are complex conjugates")
