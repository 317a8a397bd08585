"""Linear forces, a rate times the field: terms that a step integrates exactly."""

from __future__ import annotations

import dataclasses
import functools

import sympy

from slipstream.equations import Lowered
from slipstream.equations.fourier_forms import SQUARE, Filter
from slipstream.spectral.spectral_problem import FieldParts

Shells = tuple[int, int] | None


def rate_name(table: int) -> str:
    """Return the name of the parameter that is the rate of a table of forcing."""
    return f"forcing_{table + 1}_rate"


@functools.lru_cache(64)
def amplified(
    model: Lowered, forces: tuple[tuple[int, FieldParts, Shells], ...], unit: float
) -> Lowered:
    """Return a model whose fields grow at the rates of some tables of forcing.

    Each table is given by its number, its field and its shells of width `unit`; None stands for all
    modes but the mean.
    """
    decay = list(model.decay)
    for table, field, shells in forces:
        rate = sympy.Symbol(rate_name(table), real=True)
        for component in range(field.first, field.first + field.size):
            decay[component] -= rate * _inside(shells, unit)
    names = [sympy.Symbol(rate_name(table), real=True) for table, _, _ in forces]
    return dataclasses.replace(
        model, decay=tuple(decay), parameters=(*model.parameters, *dict.fromkeys(names))
    )


def _inside(shells: Shells, unit: float) -> Filter:
    """Return the function of the wavenumber that is 1 in some shells, and 0 elsewhere."""
    if shells is None:
        return Filter(sympy.Integer(1))
    low, high = (((n + side) * unit) ** 2 for n, side in zip(shells, (-0.5, 0.5), strict=True))
    inside = sympy.And(sympy.Ge(SQUARE, low), sympy.Lt(SQUARE, high))
    return Filter(sympy.Piecewise((sympy.Integer(1), inside), (sympy.Integer(0), True)))
