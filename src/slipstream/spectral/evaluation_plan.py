"""The evaluation of an expression: the sums to transform, and the functions at points.

A `Sum` adds up fields in spectral space, each with its multiplier, before a backward transform. A
`PointFunction` computes expressions at the points from few such sums. Plans have neither arrays nor
a state: `evaluation` executes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sympy

from slipstream.equations.code_generation import array_function
from slipstream.equations.fewest_transforms import essential_values, grouped_terms
from slipstream.equations.fourier_forms import (
    COORDINATES,
    TIME,
    Form,
    Value,
    has_waves,
    parameters_in,
    values_in,
)

# The most values for which the smallest number of sums is found: the search takes too long for
# more.
_MOST_VALUES = 40

# The terms of a sum in spectral space: components of the state, and values at points that go
# through a forward transform; each with its multiplier, a function of the wavenumbers.
Sum = dict[sympy.Expr, sympy.Expr]


def _sum_of_value(value: Value) -> Sum:
    return {value.undifferentiated: value.multiplier}


def sum_of_form(form: Form) -> Sum:
    """Return a form whose terms are added up in spectral space."""
    result: Sum = {}
    for points, factor in form.terms.items():
        own = _sum_of_value(points) if isinstance(points, Value) else {sympy.sympify(points): 1}
        for base, multiplier in own.items():
            result[base] = result.get(base, 0) + factor * multiplier
    return result


@dataclass(frozen=True)
class PointFunction:
    """Expressions at the points, as functions of few transformed fields."""

    inputs: list[Sum]
    symbols: list[Value]
    expressions: list[sympy.Expr]

    def split(self, limit: int) -> list[PointFunction]:
        """Return functions that sum to this one, each with at most `limit` inputs.

        If a single term needs more, this function is returned whole.
        """
        groups = grouped_terms(self.expressions, limit)
        if any(len(values) > limit for values, _ in groups):
            return [self]
        inputs = dict(zip(self.symbols, self.inputs, strict=True))
        return [
            PointFunction(
                [one for symbol, one in inputs.items() if symbol in values],
                [symbol for symbol in inputs if symbol in values],
                [sympy.Add(*own) for own in terms],
            )
            for values, terms in groups
        ]

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The expressions as a function of arrays of points, of coordinates, and of the time."""
        numbers = parameters_in(self.expressions)
        variables = (*self.symbols, *COORDINATES, TIME, *numbers)
        return array_function(variables, self.expressions, cse=True)

    @property
    def parameters(self) -> list[sympy.Symbol]:
        """The parameters that the function takes after the time."""
        return parameters_in(self.expressions)


def needs_of(form: Form) -> set[Any]:
    """Return the symbols of the fields that a form needs at points."""
    spectral = tuple((p, f) for p, f in form.terms.items() if has_waves(f))
    local = {v for p, f in form.terms.items() if not has_waves(f) for v in values_in(p)}
    return local | ({spectral} if spectral else set())


def whole_sum(form: Form) -> Sum:
    """Return a form as a sum in spectral space; terms without multipliers share a transform."""
    at_points, rest = sympy.Integer(0), {}
    for points, factor in form.terms.items():
        if isinstance(points, Value) or has_waves(factor):
            rest[points] = factor
        else:
            at_points += factor * points
    total = sum_of_form(Form(rest))
    if at_points != 0:
        total[at_points] = total.get(at_points, 0) + 1
    return total


def point_function(forms: Sequence[Form], mixes: bool = True) -> PointFunction:
    """Return the function that computes the values of forms at the points.

    Unless it `mixes` fields of different parity, each field is transformed separately.
    """
    expressions: list[sympy.Expr] = []
    sums: dict[Value, Sum] = {}
    for number, form in enumerate(forms):
        spectral = {p: f for p, f in form.terms.items() if has_waves(f)}
        local = sympy.Add(*(f * p for p, f in form.terms.items() if p not in spectral))
        if spectral:
            total = sum_of_form(Form(spectral))
            same = (value for value, one in sums.items() if one == total)
            # A name that no field has.
            whole = next(same, Value(f"sum {number}", None))
            sums[whole] = total
            local += whole
        expressions.append(local)
    values = sorted({value for one in expressions for value in values_in(one)}, key=str)
    has_positions = any(one.has(*COORDINATES, TIME) for one in expressions)
    needed: dict[Value, sympy.Expr] = {value: value for value in values}
    if mixes and not has_positions and 1 < len(values) <= _MOST_VALUES:
        needed, expressions = essential_values(expressions)
    inputs = []
    for one in needed.values():
        merged: Sum = {}
        for value in values_in(one):
            own = sums[value] if value in sums else _sum_of_value(value)
            for base, factor in own.items():
                merged[base] = merged.get(base, 0) + one.coeff(value) * factor
        inputs.append(merged)
    return PointFunction(inputs, list(needed), list(expressions))
