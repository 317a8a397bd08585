"""Operators that multiply every mode by a function of its wavenumber, such as the Laplacian.

A function that is not a polynomial becomes a filter (see `fourier_forms`). It costs no transform:
the kernels multiply modes by it together with the factors of derivatives. A filter that damps modes
is integrated exactly.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import sympy

from slipstream.equations.fourier_forms import (
    AXES,
    SQUARE,
    WAVENUMBERS,
    Filter,
    at_wavevector,
    parameters_in,
)
from slipstream.equations.vector_calculus import (
    Quantity,
    as_number,
    as_quantity,
    curl,
    expect,
    grad,
)
from slipstream.errors import InputError


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
        radians per unit of length, numbers and parameters. The result is real if the factor of -k
        is the complex conjugate of that of k; others are refused.
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
    given = sympy.sympify(operation(*WAVENUMBERS))
    given = given.xreplace({f: sympy.Rational(str(f)) for f in given.atoms(sympy.Float)})
    text = f"spectral({given}, {quantity.text})"
    if not isinstance(given, sympy.Expr):
        raise InputError(f"{text}: expected a function of kx, ky and kz")
    real, imaginary = _parts(given)
    for part, sign in ((real, 1), (imaginary, -1)):
        _check_parity(part, sign, text)
    at_zero = _value_at_zero(real) if mean is None else as_number(mean)
    factor = sympy.Integer(0)
    for part, own, unit in ((real, at_zero, 1), (imaginary, sympy.Integer(0), sympy.I)):
        is_plain = part.is_polynomial(*WAVENUMBERS) and own == part.subs(
            dict.fromkeys(WAVENUMBERS, 0)
        )
        number, function = part.as_coeff_Mul()
        filtered = number * Filter(function, own / number) if number else own
        factor += unit * (sympy.expand(part) if is_plain else filtered)
    return _multiplied(quantity, factor, text, ("spectral", given, quantity))


def _parts(given: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """Return the real and the imaginary part of a function of wavenumbers."""
    if not given.has(sympy.I):
        return given, sympy.Integer(0)
    real, imaginary = sympy.expand(given).as_real_imag()
    return real, imaginary


def _value_at_zero(part: sympy.Expr) -> sympy.Expr:
    value = part.subs(dict.fromkeys(WAVENUMBERS, 0))
    is_finite = not value.has(sympy.zoo, sympy.oo, -sympy.oo, sympy.nan)
    return value if is_finite else sympy.Integer(0)


def _check_parity(part: sympy.Expr, sign: int, text: str) -> None:
    """Refuse a factor that would make real fields complex."""
    draw = random.Random(1)
    values = {one: draw.uniform(0.5, 2) for one in parameters_in([part])}
    for _ in range(4):
        k = [draw.uniform(-9, 9) for _ in range(3)]
        here, there = (at_wavevector(part.subs(values), one) for one in (k, [-one for one in k]))
        difference = sympy.N(here - sign * there)
        is_number = difference.is_number and difference.is_real
        if not is_number or abs(difference) > 1e-9 * (1 + abs(sympy.N(here))):
            raise InputError(f"{text}: expected factors of k and -k that are complex conjugates")
