"""A model: fields, the equation of each, and what else is known of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import sympy

from slipstream.equations.fourier_forms import Form, Potential, Value, values_in
from slipstream.equations.vector_calculus import (
    Quantity,
    Unknown,
    Vector,
    as_quantity,
    expect,
    expect_periodic,
)
from slipstream.errors import InputError


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Model:
    """Fields, and the right-hand side of the equation of each.

    Attributes
    ----------
    equations : mapping of Scalar or Vector to Quantity
        ``d field / dt``.
    speeds : sequence of Vector
        Those that move something: the time step is chosen by them. By default all vectors without
        divergence, or all if there is none.
    means : mapping of str to Quantity
        Scalars whose means over the box are diagnostics, by name.

    Raises
    ------
    InputError
        If a right-hand side is of another kind than its field, or has a field without an equation.
    """

    equations: Mapping[Unknown, Quantity]
    speeds: Sequence[Vector] | None = None
    means: Mapping[str, Quantity] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.equations:
            raise InputError("a model needs at least one equation")
        names = [field.name for field in self.equations]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"field {name!r} has two equations; expected one")
        values = [str(value) for value in self.components]
        for name in values:
            if values.count(name) > 1:
                raise InputError(f"component {name!r} is of two fields; expected other names")
        equations = {field: as_quantity(right) for field, right in self.equations.items()}
        object.__setattr__(self, "equations", equations)
        for field, right in equations.items():
            self._check(field, right)
        for field in self.speeds or ():
            if field not in equations or field.rank != 1:
                raise InputError(f"speeds: {field.text}; expected vectors that have an equation")
        means = {name: as_quantity(mean) for name, mean in self.means.items()}
        object.__setattr__(self, "means", means)
        for name, mean in means.items():
            expect(f"mean {name}", mean, 0)
            if mean.is_complex:
                raise InputError(f"mean {name}: {mean.text} is {mean.kind}; expected a real one")
            self._check_fields(f"mean {name}", mean)
            if not any(values_in(points) for points in mean.forms[0].terms):
                raise InputError(f"mean {name}: {mean.text} has no field; expected some")

    def __repr__(self) -> str:
        lines = (f"d {field.text}/dt = {right.text}" for field, right in self.equations.items())
        return f"<Model: {'; '.join(lines)}>"

    def _repr_latex_(self) -> str:
        from slipstream.equations.latex import model_latex

        return f"$${model_latex(self)}$$"

    def _check(self, field: Unknown, right: Quantity) -> None:
        where = f"equation of {field.name}: {right.text}"
        if field.rank != right.rank or (right.is_complex and not field.is_complex):
            kind = (
                field.kind
                if right.is_complex == field.is_complex
                else (field.kind.replace("a ", "a real "))
            )
            raise InputError(f"{where} is {right.kind}; expected {kind}")
        self._check_fields(where, right)
        for form in right.forms:
            for points in form.terms:
                expect_periodic(where, sympy.sympify(points))

    def _check_fields(self, where: str, right: Quantity) -> None:
        known = {value.field for value in self.components}
        for form in right.forms:
            for points in form.terms:
                for value in values_in(points):
                    if isinstance(value, Potential):
                        raise InputError(
                            f"{where}: inverse_laplacian is for expressions that are evaluated; "
                            "expected an equation without it"
                        )
                    if value.field not in known:
                        names = ", ".join(field.name for field in self.equations)
                        raise InputError(
                            f"{where} has field {value.field!r}, which has no equation; expected "
                            f"one of {names}"
                        )

    @property
    def components(self) -> list[Value]:
        """The components of all fields, in the order of the state."""
        return [value for field in self.equations for value in field.values]

    @property
    def forms(self) -> list[Form]:
        """The right-hand sides, by component."""
        result: list[Form] = []
        for field, right in self.equations.items():
            if field.is_complex:
                result += right.forms[0].real_and_imaginary()
            else:
                result += right.forms
        return result
