"""Patterns of force in space and time, and linear forces, which a step integrates exactly."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sympy

from slipstream.equations import Lowered
from slipstream.equations.fourier_forms import COORDINATES, SQUARE, TIME, Filter, expanded
from slipstream.spectral.formula_parser import GivenFunction, check_periodic, evaluator
from slipstream.spectral.runge_kutta_tableaux import RungeKutta
from slipstream.spectral.spectral_problem import FieldParts

Shells = tuple[int, int] | None
# The highest power that is multiplied out.
_LARGEST_POWER = 16
# The most terms that are multiplied out.
_MOST_TERMS = 400


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


@dataclass(frozen=True)
class ForcePattern:
    """A force on all components of a field of the state."""

    components: tuple[int, ...]
    # A function of the coordinates for each component, also of the time if `node` is set. Empty for
    # a pattern whose modes are set otherwise.
    shapes: tuple[sympy.Expr, ...] | None
    # A function of the time.
    factor: sympy.Expr = sympy.Integer(1)
    # The only node of the integrator at which it acts; None for all of them.
    node: float | None = None
    # Whether the gradient part is removed.
    is_solenoidal: bool = False
    # The number of the case's table of forcing, from 0; -1 for a source of the equations.
    table: int = -1
    # A function from a Python program, instead of shapes.
    given: GivenFunction | None = None

    @property
    def is_function(self) -> bool:
        """Whether it is a function of the coordinates."""
        return self.shapes is not None or self.given is not None

    @cached_property
    def functions(self) -> list[Callable[..., Any]]:
        """The shapes as functions (see `evaluator`), cached since some are called in every step."""
        if self.given is not None:
            return [self.given.component(number) for number in range(len(self.components))]
        return [evaluator(shape) for shape in self.shapes or ()]


def sources_of(
    model: Lowered,
    values: Mapping[sympy.Symbol, float],
    fields: Sequence[FieldParts],
    lengths: tuple[float, float, float],
    method: RungeKutta,
) -> list[ForcePattern]:
    """Return the sources of the equations, which do not depend on the fields."""
    expressions = [source.subs(values) for source in model.sources]
    for expression in expressions:
        if expression != 0:
            check_periodic(expression, lengths, "equation.model")
    together = [tuple(range(field.first, field.first + field.size)) for field in fields]
    return patterns_of(expressions, together, model.vectors, method)


def patterns_of(
    expressions: Sequence[sympy.Expr] | Mapping[int, sympy.Expr],
    fields: Sequence[tuple[int, ...]],
    solenoidal: Sequence[int],
    method: RungeKutta,
    table: int = -1,
) -> list[ForcePattern]:
    """Return the patterns of functions of coordinates and time, by component of the state."""
    patterns = []
    for components in fields:
        separated: dict[sympy.Expr | None, list[sympy.Expr]] = {}
        for index, component in enumerate(components):
            for factor, shape in _separated(expressions[component]):
                shapes = separated.setdefault(factor, [sympy.Integer(0)] * len(components))
                shapes[index] += shape
        for factor, shapes in separated.items():
            nodes: Sequence[float | None] = [None]
            if factor is None:
                nodes = sorted(set(method.nodes))
            patterns += [
                ForcePattern(
                    components,
                    tuple(shapes),
                    sympy.Integer(1) if factor is None else factor,
                    node,
                    components[0] in solenoidal,
                    table,
                )
                for node in nodes
            ]
    return patterns


def _separated(expression: sympy.Expr) -> list[tuple[sympy.Expr | None, sympy.Expr]]:
    """Return pairs of a factor of time, None if inseparable, and a function of coordinates."""
    factors: dict[sympy.Expr, sympy.Expr] = {}
    together = sympy.Integer(0)
    steady, moving = expression.as_independent(TIME, as_Add=True)
    if not _can_be_expanded(moving):
        return [(sympy.Integer(1), steady)] * (steady != 0) + [(None, moving)]
    for term in (steady, *sympy.Add.make_args(expanded(moving))):
        pairs = [_factors(term)]
        if pairs[0][1].has(TIME):
            separate = expanded(term.replace(_is_of_both, _by_addition))
            pairs = [_factors(one) for one in sympy.Add.make_args(separate)]
        if any(shape.has(TIME) for _, shape in pairs):
            together += term
            continue
        for factor, shape in pairs:
            factors[shape] = factors.get(shape, 0) + factor
    result: list[tuple[sympy.Expr | None, sympy.Expr]] = []
    for shape, factor in factors.items():
        number, of_time = factor.as_independent(TIME, as_Add=False)
        result.append((of_time, number * shape))
    result = [(factor, shape) for factor, shape in result if shape != 0]
    return result + ([(None, together)] if together != 0 else [])


def _can_be_expanded(expression: sympy.Expr) -> bool:
    """Return whether an expression, and the arguments of its waves, have few terms expanded."""
    powers = expression.atoms(sympy.Pow)
    if any(power.exp.is_Integer and power.exp > _LARGEST_POWER for power in powers):
        return False
    insides = [one.args[0] for one in expression.atoms(sympy.sin, sympy.cos)]
    insides += [part for power in powers for part in power.args]
    return all(_terms(one) <= _MOST_TERMS for one in (expression, *insides))


def _terms(expression: sympy.Expr) -> int:
    """Return an upper bound of the number of terms of an expression when multiplied out."""
    if expression.is_Add:
        return sum(map(_terms, expression.args))
    if expression.is_Mul:
        return math.prod(map(_terms, expression.args))
    if expression.is_Pow and expression.exp.is_Integer:
        terms, power = _terms(expression.base), abs(int(expression.exp))
        return math.comb(terms + power - 1, power)
    # By the addition theorem a wave becomes a sum of two.
    return 2 if isinstance(expression, sympy.sin | sympy.cos) else 1


def _is_of_both(expression: sympy.Expr) -> bool:
    """Return whether an expression is the sine or cosine of a sum over coordinates and time."""
    if not isinstance(expression, sympy.sin | sympy.cos):
        return False
    terms = sympy.Add.make_args(sympy.expand(expression.args[0]))
    together = [term.has(TIME) and term.has(*COORDINATES) for term in terms]
    return expression.has(TIME) and expression.has(*COORDINATES) and not any(together)


def _by_addition(expression: sympy.Expr) -> sympy.Expr:
    """Return sin(a + b) or cos(a + b), b of time alone, by the addition theorem."""
    of_time, of_space = sympy.expand(expression.args[0]).as_independent(*COORDINATES, as_Add=True)
    a, b = of_space, of_time
    if isinstance(expression, sympy.sin):
        return sympy.sin(a) * sympy.cos(b) + sympy.cos(a) * sympy.sin(b)
    return sympy.cos(a) * sympy.cos(b) - sympy.sin(a) * sympy.sin(b)


def _factors(term: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    if not term.has(*COORDINATES):
        return term, sympy.Integer(1)
    rest, factor = term.as_independent(*COORDINATES, as_Add=False)
    return rest, factor
