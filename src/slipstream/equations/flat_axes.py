"""Equations whose fields do not depend on some axes.

A grid of one point along an axis has no modes along it, so derivatives vanish and fewer fields are
transformed. In a plane the component along the normal may be absent too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sympy

from slipstream.equations.fourier_forms import (
    WAVENUMBERS,
    Filter,
    Form,
    Value,
    filters_in,
    form_of_points,
    values_in,
)
from slipstream.errors import InputError


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
        own = {value: self.of_value(value) for value in values_in(points)}
        if all(value == other for value, other in own.items()):
            return points
        return points.subs(own, simultaneous=True)

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
