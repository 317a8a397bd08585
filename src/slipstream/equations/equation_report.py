"""What a model was made into, for people: `slipstream explain`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import sympy

from slipstream.equations.forms import WAVENUMBERS
from slipstream.equations.lowering import Lowered


def explained(model: Lowered) -> Iterator[tuple[str, str, str]]:
    """Yield lines of a table: of which part, a name, and what it is."""
    for symbol, expression in zip(model.symbols, model.inputs, strict=True):
        yield "to physical space", str(symbol), _text(expression)
    for number, product in enumerate(model.products):
        yield "products, back", f"T{number}", _text(product)
    for own, component in enumerate(model.unknowns):
        yield "rates", f"d {component} / dt", _rate(model, own)
    for component, source in zip(model.components, model.sources, strict=True):
        if source != 0:
            yield "sources", str(component), _text(source)
    for component, function in zip(
        model.components[len(model.unknowns) :], model.coefficients, strict=True
    ):
        yield "known fields", str(component), _text(function)
    for field, values in groupby(model.components, key=lambda value: value.field):
        first = model.components.index(next(values))
        rate = model.decay[first]
        if rate != 0:
            yield "decay", field, f"exp(-({_text(_of_square(rate))}) t)"
    for first in model.vectors:
        yield "projection", model.components[first].field, "without its gradient part"


def _text(expression: sympy.Expr) -> str:
    return str(expression).replace("**", "^")


def _rate(model: Lowered, own: int) -> str:
    products = sum(
        factor * sympy.Symbol(f"T{number}") for number, factor in enumerate(model.multipliers[own])
    )
    linear = sum(
        _of_square(factor) * model.components[other] for other, factor in model.linear[own].items()
    )
    constant = model.constant[own] * sympy.Symbol("[k = 0]")
    return _text(sympy.collect(products, sympy.I) + linear + constant)


def _of_square(rate: sympy.Expr) -> sympy.Expr:
    """Write a rate with k^2, if it is a polynomial of that."""
    kx, ky, kz = WAVENUMBERS
    square = sympy.Symbol("k^2")
    along = rate.subs({ky: 0, kz: 0})
    power = sympy.degree(along, kx) if along.has(kx) else 0
    simple = along.subs(kx, sympy.sqrt(square)) if power % 2 == 0 else rate
    back = simple.subs(square, kx**2 + ky**2 + kz**2)
    return simple if sympy.expand(back - rate) == 0 else rate
