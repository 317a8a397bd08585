"""Exact linear algebra that finds the fewest transforms, also for fields of fewer axes."""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy
from sympy.polys.matrices import DomainMatrix

from slipstream.engine.errors import InputError
from slipstream.equations.fourier_forms import (
    WAVENUMBERS,
    Filter,
    Form,
    Value,
    at_wavevector,
    differentiate,
    expanded,
    filters_in,
    form_of_points,
    values_in,
)


@dataclass(frozen=True)
class FlatAxes:
    """The axes (0 is x) without dependence, and whether a plane lacks its normal component."""

    axes: tuple[int, ...] = ()
    has_two_components: bool = False

    @property
    def dropped(self) -> tuple[int, ...]:
        """The components of vectors that are 0."""
        return self.axes if self.has_two_components else ()

    def of_multiplier(self, factor: sympy.Expr) -> sympy.Expr:
        """Return a multiplier without the wavenumbers along these axes."""
        zero = {WAVENUMBERS[axis]: sympy.Integer(0) for axis in self.axes}
        filters = {
            one: Filter(one.function.xreplace(zero), one.at_zero) for one in filters_in(factor)
        }
        return sympy.expand(factor.xreplace(filters).subs(zero))

    def of_value(self, value: Value) -> sympy.Expr:
        """Return a value at points, simplified."""
        if value.component in self.dropped or any(value.orders[axis] for axis in self.axes):
            return sympy.Integer(0)
        value = value.with_orders(value.orders, self.of_multiplier(value.filtered))
        x, y, z = value.orders
        if 2 in self.axes and value.solenoidal and value.component == 1 and y:
            # As for derivatives of the z component along z elsewhere: equal values look equal.
            other = Value(value.field, 0, True, (x + 1, y - 1, z), value.filtered)
            return -self.of_value(other)
        return value

    def of_points(self, points: sympy.Expr) -> sympy.Expr:
        """Return an expression at points, simplified."""
        mapped = {value: self.of_value(value) for value in values_in(points)}
        if all(value == other for value, other in mapped.items()):
            return points
        return points.subs(mapped, simultaneous=True)

    def of_form(self, form: Form) -> Form:
        """Return a form, simplified."""
        result = Form({})
        for points, factor in form.terms.items():
            own = sympy.sympify(points)
            here = self.of_points(own)
            part = Form({own: sympy.Integer(1)}) if here is own else form_of_points(here)
            result = result.plus(part.times(self.of_multiplier(factor)))
        return result

    def of_forms(self, components: Sequence[Value], forms: Iterable[Form]) -> list[Form]:
        """Return right-hand sides, simplified; components that are 0 only decay."""
        result = []
        for value, form in zip(components, forms, strict=True):
            here = self.of_form(form)
            if value.component in self.dropped:
                if not self._vanishes(here):
                    raise InputError(
                        f"numerics.plane: '2D2C', but the equations drive {value}; accepted: a"
                        " model whose flow stays in the plane, or '2D3C'"
                    )
                decay = self.of_multiplier(form.terms.get(value, sympy.S.Zero))
                here = Form({value: decay})
            result.append(here)
        return result

    def _vanishes(self, form: Form) -> bool:
        """Whether a form is 0, given that fields are solenoidal."""
        one, other = (axis for axis in range(3) if axis not in self.axes)
        # A solenoidal field has the modes (-k_other, k_one) times a stream function.
        stream = {one: -WAVENUMBERS[other], other: WAVENUMBERS[one]}
        sums: dict[str, sympy.Expr] = {}
        for points, factor in form.terms.items():
            if not isinstance(points, Value) or not points.solenoidal:
                return False
            part = factor * stream[points.component or 0]
            sums[points.field] = sums.get(points.field, 0) + part
        return all(sympy.expand(total) == 0 for total in sums.values())


EVERY_AXIS_VARIES = FlatAxes()


Rows = list[list[sympy.Expr]]
# The most entries of a column that are searched for common factors.
_TRIED = 12


def dependencies(rows: Rows) -> tuple[list[int], sympy.Matrix]:
    """Return the independent columns, and all columns as sums of them."""
    columns = len(rows[0]) if rows else 0
    # If this divides by zero for some parameters, all columns count as independent.
    return _dependencies(rows) or (list(range(columns)), sympy.eye(columns))


def scaled_dependencies(
    rows: Rows,
) -> tuple[list[sympy.Expr], list[int], sympy.Matrix]:
    """Return factors of the columns, and `dependencies` of the columns divided by these.

    The factors are 1, unless the result would divide by parameters: then they are the common
    factors of all entries of a column.
    """
    solution = _dependencies(rows)
    scales = [sympy.Integer(1) for _ in (rows[0] if rows else [])]
    if solution is not None:
        return scales, *solution
    scales = [_common_factor([row[column] for row in rows]) for column in range(len(scales))]
    # Not simplified: the field of rational functions does that faster.
    scaled = [[entry / scale for entry, scale in zip(row, scales, strict=True)] for row in rows]
    return scales, *dependencies(scaled)


def _common_factor(entries: Sequence[sympy.Expr]) -> sympy.Expr:
    """Return the parameters that all entries, or the first of them, have as factors or divisors."""
    # Entries belong to generic wavevectors: factors common to some are common to all.
    some = itertools.islice((entry for entry in entries if entry != 0), _TRIED)
    parts = [sympy.fraction(sympy.together(entry)) for entry in some]
    if not parts:
        return sympy.Integer(1)
    above, below = (sympy.gcd_list(several) for several in zip(*parts, strict=True))
    return above.as_coeff_Mul()[1] / below.as_coeff_Mul()[1]


def _dependencies(rows: Rows) -> tuple[list[int], sympy.Matrix] | None:
    rows = [row for row in rows if any(entry != 0 for entry in row)]
    if not rows:
        return [], sympy.zeros(0, 0)
    reduced, pivots = DomainMatrix.from_Matrix(sympy.Matrix(rows)).to_field().rref()
    sums = reduced.to_Matrix()[: len(pivots), :]
    if any(sympy.fraction(sympy.together(entry))[1].free_symbols for entry in sums):
        return None
    return list(pivots), sums


def wavevectors(count: int) -> list[tuple[int, int, int]]:
    """Return generic wavevectors of integers, the same in every call."""
    draw = random.Random(1)

    def number() -> int:
        return draw.choice((-1, 1)) * draw.randint(1, 99)

    return [(number(), number(), number()) for _ in range(count)]


def solenoidal_part(vector: Sequence[Any], k: Sequence[int]) -> list[Any]:
    """Return a vector without its part along the wavevector."""
    along = sum(map(operator.mul, k, vector)) / sum(own**2 for own in k)
    return [part - own * along for own, part in zip(k, vector, strict=True)]


def rows_of_multipliers(
    multipliers: Sequence[Sequence[sympy.Expr]], vectors: Sequence[int], flat: Sequence[int] = ()
) -> Rows:
    """Return rows of numbers, a column for each product, with the rank of the multipliers."""
    columns = len(multipliers[0])
    rows: Rows = []
    distinct = {factor for row in multipliers for factor in row}
    # Each gives a row or two for each component; take four more than fill the matrix.
    for tried_k in wavevectors(4 + 2 * columns // len(multipliers)):
        k = tuple(0 if axis in flat else own for axis, own in enumerate(tried_k))
        tried = {factor: _real_and_imaginary(_at(factor, k)) for factor in distinct}
        for which in (0, 1):
            parts = [[tried[factor][which] for factor in row] for row in multipliers]
            for first in vectors:
                vector = zip(*parts[first : first + 3], strict=True)
                solenoidal = [solenoidal_part(column, k) for column in vector]
                parts[first : first + 3] = map(list, zip(*solenoidal, strict=True))
            rows += [[_expression(part) for part in row] for row in parts]
    return rows


def _at(factor: sympy.Expr, k: tuple[int, ...]) -> sympy.Expr:
    """Return a multiplier at a wavevector, exactly.

    A filter that is not rational there is replaced by a generic number: algebra with roots would be
    slow.
    """
    filters = {}
    for filter_ in filters_in(factor):
        value = at_wavevector(filter_, k)
        if not _is_rational(value):
            draw = random.Random(f"{filter_}{k}")
            value = sympy.Rational(draw.randint(1, 999), draw.randint(1, 999))
        filters[filter_] = value
    return at_wavevector(factor.xreplace(filters), k)


def _is_rational(value: sympy.Expr) -> bool:
    """Whether a value is a rational function of parameters, with rational numbers."""
    powers, numbers = value.atoms(sympy.Pow), value.atoms(sympy.Number, sympy.NumberSymbol)
    has_roots = any(not power.exp.is_Integer for power in powers)
    return not (has_roots or value.has(sympy.Function)) and all(n.is_Rational for n in numbers)


def _real_and_imaginary(value: sympy.Expr) -> Sequence[Any]:
    """Return both parts of a value, as Python's fractions if possible, which are faster."""
    parts = sympy.expand(value).as_real_imag()
    if all(part.is_Rational for part in parts):
        return [Fraction(part.p, part.q) for part in parts]
    return parts


def _expression(value: Any) -> sympy.Expr:
    if isinstance(value, Fraction):
        return sympy.Rational(value.numerator, value.denominator)
    return sympy.expand(value)


def essential_values(
    expressions: Sequence[sympy.Expr],
) -> tuple[dict[Value, sympy.Expr], list[sympy.Expr]]:
    """Return the fewest sums of values that expressions depend on, and the expressions in them.

    Each sum is named after the value that represents it in the expressions.
    """
    values = sorted({v for e in expressions for v in values_in(e)}, key=_order)
    rows: Rows = []
    for expression in expressions:
        gradient = [expanded(sympy.diff(expression, value)) for value in values]
        row_of_points: dict[sympy.Expr, list[sympy.Expr]] = {}
        for column, entry in enumerate(gradient):
            for term in sympy.Add.make_args(entry):
                factor, points = term.as_independent(*values, as_Add=False)
                row = row_of_points.setdefault(points, [sympy.Integer(0)] * len(values))
                row[column] += factor
        rows += row_of_points.values()
    scales, chosen, sums = scaled_dependencies(rows)
    # The value that represents a sum of scaled values takes its scale from the expressions.
    instead = {
        value: value / scale if i in chosen else sympy.Integer(0)
        for i, (value, scale) in enumerate(zip(values, scales, strict=True))
    }
    functions = [expanded(expression.subs(instead)) for expression in expressions]
    if any(_divides_by(one, set(values)) for one in functions if any(s != 1 for s in scales)):
        return {value: value for value in values}, list(expressions)
    scaled = [scale * value for scale, value in zip(scales, values, strict=True)]
    inputs = {
        values[column]: sympy.expand(sum(sums[r, c] * value for c, value in enumerate(scaled)))
        for r, column in enumerate(chosen)
    }
    return inputs, functions


def _divides_by(expression: sympy.Expr, values: set[Value]) -> bool:
    """Whether an expression has a parameter in a denominator."""
    powers = expression.atoms(sympy.Pow)
    return any(power.exp.is_negative and power.free_symbols - values for power in powers)


def grouped_terms(
    expressions: Sequence[sympy.Expr], limit: int
) -> list[tuple[set[Value], list[list[sympy.Expr]]]]:
    """Return groups of terms, and the values that each needs: at most `limit`.

    A group has a list of terms for every expression. A term that needs more values is a group by
    itself.
    """
    groups: list[tuple[set[Value], list[list[sympy.Expr]]]] = []
    for index, expression in enumerate(expressions):
        for term in sympy.Add.make_args(expression):
            needed = set(values_in(term))
            fitting = (group for group in groups if len(group[0] | needed) <= limit)
            values, terms = next(fitting, (set(), [[] for _ in expressions]))
            if not any(terms):
                groups.append((values, terms))
            values |= needed
            terms[index].append(term)
    return groups


def _order(value: Value) -> tuple[Any, ...]:
    filtered = value.filtered != 1
    return sum(value.orders), filtered, value.field, value.component or 0, value.orders, str(value)


def conserved(expression: sympy.Expr, flat: FlatAxes) -> list[sympy.Expr] | None:
    """Write products of values with first derivatives as a divergence of products."""
    values = sorted({v.undifferentiated for v in values_in(expression)}, key=_order)
    fluxes = [
        (axis, a * b)
        for axis in range(3)
        if axis not in flat.axes
        for a, b in itertools.combinations_with_replacement(values, 2)
    ]
    columns = [flat.of_points(differentiate(product, axis)) for axis, product in fluxes]
    columns.append(expression)
    row_of_points: dict[sympy.Expr, list[sympy.Expr]] = {}
    for column, entry in enumerate(columns):
        for term in sympy.Add.make_args(sympy.expand(entry)):
            factor, points = term.as_independent(*values_in(term), as_Add=False)
            row = row_of_points.setdefault(points, [sympy.Integer(0)] * len(columns))
            row[column] += factor
    chosen, sums = dependencies(list(row_of_points.values()))
    if len(columns) - 1 in chosen:
        return None
    result = [sympy.Integer(0)] * 3
    for place, column in enumerate(chosen):
        axis, product = fluxes[column]
        result[axis] += sums[place, len(columns) - 1] * product
    return result
