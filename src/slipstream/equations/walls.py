"""Free-slip walls across an axis, as mirrors: which fields are even there, and which are odd.

A flow between frictionless walls continues, mirrored, beyond them. The normal component of a vector
is odd, so it is 0 at the walls; the others are even, so there is no shear at the walls. A scalar is
even if it has no flux through the walls, and odd if it is 0 there. Equations fit if each of their
terms has the parity of the field that it drives.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import sympy

from slipstream.engine.errors import InputError
from slipstream.equations.fourier_forms import (
    COORDINATES,
    WAVENUMBERS,
    Filter,
    FilteredSource,
    Value,
    filters_in,
    values_in,
)
from slipstream.equations.lowering import Lowered


@dataclass(frozen=True)
class Mirror:
    """A mirror across an axis (0 is x), with the sign of each component: 1 even, -1 odd."""

    axis: int
    components: tuple[Value, ...]
    signs: tuple[int, ...]

    def of_value(self, value: Value) -> int:
        """Return the sign of a component, or of a derivative of it; 0 where it has none."""
        if isinstance(value, FilteredSource):
            sign = self.of_points(value.source)
        else:
            sign = self.signs[self.components.index(value.undifferentiated)]
        derived: int = sign * (-1) ** value.orders[self.axis] * self.of_factor(value.filtered)
        return derived

    def of_factor(self, factor: sympy.Expr) -> int:
        """Return the sign of a function of the wavenumbers; 0 where it has none."""
        wave, number = WAVENUMBERS[self.axis], sympy.sympify(factor)
        filters = {
            one: Filter(one.function.subs(wave, -wave), one.at_zero) for one in filters_in(number)
        }
        return _sign(number, number.xreplace(filters).subs(wave, -wave))

    def of_points(self, points: sympy.Expr, signs: Mapping[sympy.Symbol, int] | None = None) -> int:
        """Return the sign of an expression at points; 0 where it has none.

        `given` are the signs of the symbols in it, by default those of its values.
        """
        points = sympy.sympify(points)
        if signs is None:
            signs = {value: self.of_value(value) for value in values_in(points)}
        if not all(signs[symbol] for symbol in points.free_symbols & set(signs)):
            return 0
        coordinate = COORDINATES[self.axis]
        mirrored = {symbol: sign * symbol for symbol, sign in signs.items()} | {
            coordinate: -coordinate
        }
        return _sign(points, points.subs(mirrored, simultaneous=True))

    def of_sum(self, terms: Mapping[sympy.Expr, sympy.Expr]) -> int:
        """Return the sign of a sum of points times functions of the wavenumbers; 0 for none."""
        signs = {
            self.of_points(points) * self.of_factor(factor)
            for points, factor in terms.items()
            if factor != 0
        }
        return signs.pop() if len(signs) == 1 else int(not signs)


def _sign(before: sympy.Expr, after: sympy.Expr) -> int:
    """Return 1 if both are equal, -1 if they are opposite, else 0."""
    if before == after or sympy.expand(before - after) == 0:
        return 1
    return -1 if sympy.expand(before + after) == 0 else 0


@lru_cache(64)
def mirror_of(model: Lowered, axis: int, odd: tuple[str, ...]) -> Mirror:
    """Return the mirror across an axis that fits a model.

    Parameters
    ----------
    model : Lowered
        The equations.
    axis : int
        The normal of the walls: 0 is x.
    odd : tuple of str
        Scalars that are 0 at the walls; vectors whose tangential components are 0 there. Other
        fields are odd only if their equations allow nothing else.

    Raises
    ------
    InputError
        If the equations do not fit walls, or not with these odd fields.
    """
    names = [value.field for value in model.unknowns]
    for name, first in model.complexes:
        names[first : first + 2] = name, name
    fields = list(dict.fromkeys(names))
    for name in odd:
        if name not in fields:
            raise InputError(
                f"grid.zero_at_walls: the model has no field {name!r}; it has: {', '.join(fields)}"
            )
    choices = [(-1,) if name in odd else (1, -1) for name in fields]
    # Advecting velocities have no component through the walls.
    carrier = "velocity" if "velocity" in fields else next(iter(fields))
    if carrier not in odd and model.vectors:
        choices[fields.index(carrier)] = (1,)
    wrong = ""
    for choice in itertools.product(*choices):
        own = dict(zip(fields, choice, strict=True))
        signs = [
            own[name] * (-1 if value.component == axis else 1)
            for name, value in zip(names, model.unknowns, strict=True)
        ]
        mirror = Mirror(axis, model.unknowns, tuple(signs))
        misfit = next(_misfits(model, mirror), "")
        if not misfit:
            return _with_coefficients(model, mirror)
        wrong = wrong or misfit
    raise InputError(
        f"grid.walls: {wrong}, so the flow is not symmetric across the walls; "
        "accepted: equations without such a term"
    )


def _misfits(model: Lowered, mirror: Mirror) -> Iterator[str]:
    """Yield descriptions of the terms that do not fit a mirror."""
    for value, sign, form in zip(model.unknowns, mirror.signs, model.rates, strict=True):
        for points, factor in form.terms.items():
            if mirror.of_points(points) * mirror.of_factor(factor) != sign:
                kind = "even" if sign > 0 else "odd"
                yield f"the equation of {value}, which is {kind}, has a term {points} that is not"


def _with_coefficients(model: Lowered, mirror: Mirror) -> Mirror:
    """Add the coefficients: functions of coordinates that multiply fields."""
    signs = [mirror.of_points(one, {}) for one in model.coefficients]
    if 0 in signs:
        raise InputError(
            f"grid.walls: {model.coefficients[signs.index(0)]} is neither even nor odd across the"
            " walls; accepted: coefficients that are"
        )
    return Mirror(mirror.axis, model.components, (*mirror.signs, *signs))


def signs_of_inputs(model: Lowered, mirror: Mirror) -> tuple[int, ...]:
    """Return the signs of the inputs, which are transformed to physical space."""
    return tuple(mirror.of_points(one) for one in model.inputs)


def signs_of_products(model: Lowered, mirror: Mirror) -> tuple[int, ...]:
    """Return the signs of the products, which are transformed back."""
    given = dict(zip(model.symbols, signs_of_inputs(model, mirror), strict=True))
    return tuple(mirror.of_points(one, given) for one in model.products)


def check_signs(what: Sequence[sympy.Expr], signs: Sequence[int]) -> None:
    """Refuse to transform expressions without a sign."""
    for expression, sign in zip(what, signs, strict=False):
        if not sign:
            raise InputError(
                f"grid.walls: {expression} is neither even nor odd across the walls; accepted: sums"
                " of terms that are all even, or all odd"
            )
