"""A model: fields, their equations, and further properties."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import sympy

from slipstream.engine.errors import InputError
from slipstream.equations.fourier_forms import (
    COORDINATES,
    FilteredSource,
    Form,
    Value,
    filters_in,
    parameters_in,
    positions_in,
    values_in,
)
from slipstream.equations.vector_calculus import (
    Quantity,
    Scalar,
    Unknown,
    as_quantity,
    expect,
    expect_periodic,
)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Model:
    """Fields, and the right-hand side of the equation of each.

    Attributes
    ----------
    equations : mapping of Scalar or Vector to Quantity
        ``d field / dt``.
    speeds : sequence of Quantity
        The speeds that bound the time step: advecting velocities, and scalars D, such as an eddy
        viscosity, with which products damp or turn a wave of wavenumber k at the rate ``D k^2``. By
        default all solenoidal vector fields, or all vector fields if none is solenoidal, and the
        vectors of a plane.
    means : mapping of str to Quantity
        Scalars whose means over the box are diagnostics, by name.
    gains : mapping of str to Scalar, Vector or None
        The means, by name, that are rates at which a field gains energy from other fields, or from
        a mean gradient. The field gets its own budget. None stands for the total energy, which
        gains from outside, such as from a mean flow.
    losses : sequence of str
        The names of means that are rates at which products dissipate energy, such as the products
        of a subgrid model. They are part of the dissipation.
    passive : sequence of Scalar
        The last fields, if their squares do not count in the energy, such as fields that do not act
        on others.
    plane_vectors : mapping of str to (Scalar, Quantity)
        For flow in a plane normal to z: vectors by name, such as the velocity, each with the field
        from which it follows linearly. The grid has one point along z.
    shear : float or sympy.Expr
        Rate S of a mean flow S y along x, which is no part of the fields and carries all of them: a
        shearing box. What it does besides, such as -S u_y along x, is written in the equations.
    averages : mapping of str to (Quantity, Quantity)
        By name, two quantities of one kind, of whose product the mean over the box is taken:
        component by component, from the modes that a step keeps, so that both may have derivatives
        and functions of the wavenumber of products.
    follows : mapping of str to sympy.Expr
        Parameters that follow the state, each a function of averages and of other parameters. They
        are evaluated at the start of every step, and are 0 where the function is not finite, as in
        a flow at rest; equations have them as ``parameter(name)``.

    Raises
    ------
    InputError
        If a right-hand side is of another kind than its field, or has a field without an equation.
    """

    equations: Mapping[Unknown, Quantity]
    speeds: Sequence[Quantity] | None = None
    means: Mapping[str, Quantity] = dataclasses.field(default_factory=dict)
    plane_vectors: Mapping[str, tuple[Scalar, Quantity]] = dataclasses.field(default_factory=dict)
    gains: Mapping[str, Unknown | None] = dataclasses.field(default_factory=dict)
    losses: Sequence[str] = ()
    passive: Sequence[Scalar] = ()
    shear: sympy.Expr | float = 0
    averages: Mapping[str, tuple[Quantity, Quantity]] = dataclasses.field(default_factory=dict)
    follows: Mapping[str, sympy.Expr] = dataclasses.field(default_factory=dict)

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
                raise InputError(f"component {name!r} belongs to two fields; expected other names")
        equations = {field: as_quantity(right) for field, right in self.equations.items()}
        object.__setattr__(self, "equations", equations)
        for field, right in equations.items():
            self._check(field, right)
        for speed in self.speeds or ():
            expect("speeds", speed, 0, 1)
            self._check_fields("speeds", speed)
            if speed.is_complex or any(positions_in(form.at_points()) for form in speed.forms):
                raise InputError(f"speeds: {speed.text}; expected a real quantity of fields alone")
        for name, (field, vector) in self.plane_vectors.items():
            expect(f"plane vector {name}", vector, 1)
            if any(not set(form.terms) <= set(field.values) for form in vector.forms):
                raise InputError(
                    f"plane vector {name}: {vector.text}; expected one linear in {field.name}"
                )
        means = {name: as_quantity(mean) for name, mean in self.means.items()}
        object.__setattr__(self, "means", means)
        for name, mean in means.items():
            expect(f"mean {name}", mean, 0)
            if mean.is_complex:
                raise InputError(f"mean {name}: {mean.text} is {mean.kind}; expected a real scalar")
            self._check_fields(f"mean {name}", mean)
            if not any(values_in(points) for points in mean.forms[0].terms):
                raise InputError(f"mean {name}: {mean.text} has no field; expected some")
        for what, several in (("gains", self.gains), ("losses", self.losses)):
            for name in several:
                if name not in means:
                    raise InputError(f"{what}: {name!r} is not a mean; expected names of means")
        unknowns = list(equations)
        gaining = [field for field in self.gains.values() if field is not None]
        for what, fields in (("gains", gaining), ("passive", self.passive)):
            for field in fields:
                if field not in unknowns:
                    raise InputError(
                        f"{what}: {field.name} has no equation; expected a field with one"
                    )
        self._check_averages()
        if self.shear != 0:
            self._check_shear()
        if self.passive and unknowns[-len(self.passive) :] != list(self.passive):
            raise InputError("passive: expected the last fields of the equations, in their order")

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
            for points, factor in form.terms.items():
                expect_periodic(where, sympy.sympify(points))
                if filters_in(factor) and not values_in(points):
                    raise InputError(
                        f"{where}: a function of the wavenumber of {points}, which has no field; "
                        "expected a function of terms with fields"
                    )

    def _check_shear(self) -> None:
        """Refuse functions of coordinates that a shear would advect."""
        for field, right in self.equations.items():
            for form in right.forms:
                if any(sympy.sympify(points).has(*COORDINATES[:2]) for points in form.terms):
                    raise InputError(
                        f"equation of {field.name}: {right.text} depends on x or y, along which the"
                        " model's shear moves all fields; expected functions of z and t"
                    )

    def _check_averages(self) -> None:
        """Refuse averages that are of no real fields of one kind, and what cannot follow them."""
        if self.averages and self.shear != 0:
            raise InputError("averages: the model has a shear; accepted with it: none")
        for name, pair in self.averages.items():
            first, second = (as_quantity(part) for part in pair)
            if first.kind != second.kind or first.is_complex:
                raise InputError(
                    f"average {name}: {first.text} is {first.kind}, {second.text} is {second.kind};"
                    " expected two real quantities of the same kind"
                )
            for quantity in (first, second):
                self._check_fields(f"average {name}", quantity)
                terms = [term for form in quantity.forms for term in form.terms.items()]
                parameters = parameters_in([sympy.sympify(e) for term in terms for e in term])
                for symbol in parameters:
                    if str(symbol) in self.follows:
                        raise InputError(
                            f"average {name} has {symbol}, which follows from averages; expected"
                            " fields and other parameters"
                        )
                if any(
                    positions_in(sympy.sympify(p)) for form in quantity.forms for p in form.terms
                ):
                    raise InputError(
                        f"average {name}: {quantity.text} has coordinates or the time; expected"
                        " fields"
                    )
        for name, value in self.follows.items():
            symbols = {str(symbol) for symbol in sympy.sympify(value).free_symbols}
            if name in self.averages or name in self.means or symbols & self.follows.keys():
                raise InputError(
                    f"follows: {name} = {value}: expected a name that nothing else has, and a"
                    f" function of averages ({', '.join(self.averages)}) and of parameters that do"
                    " not follow"
                )

    def _check_fields(self, where: str, right: Quantity) -> None:
        known = {value.field for value in self.components}
        for form in right.forms:
            for points in form.terms:
                for value in values_in(points):
                    if isinstance(value, FilteredSource):
                        raise InputError(
                            f"{where}: a function of the wavenumber of {value.source}, which is "
                            "multiplied again; expected one of fields, or of a whole term"
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
