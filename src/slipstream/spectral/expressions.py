"""Expressions in the language of equations, as users write them: ``"dot(velocity, vorticity)"``.

They may contain the fields of a model, derived quantities, its parameters, coordinates, the time,
numbers, and the operators of `slipstream.equations`. They are parsed, never executed, and bounded
in size like formulas. Derived quantities, such as pressure and helicity, are a registry: a name,
and the fields that a model needs for it.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import sympy

from slipstream import equations
from slipstream.engine.errors import InputError, nearest
from slipstream.engine.text import shown
from slipstream.equations import (
    Lowered,
    Quantity,
    abs2,
    cross,
    curl,
    div,
    dot,
    grad,
    inverse_laplacian,
    x_hat,
    y_hat,
)
from slipstream.equations.fourier_forms import (
    IMAGINARY,
    WAVENUMBERS,
    FilteredSource,
    Form,
    Value,
    component_names,
    form_of_points,
    has_waves,
    parameters_in,
    values_in,
)
from slipstream.equations.vector_calculus import as_quantity, function, reciprocal
from slipstream.spectral.formula_parser import FUNCTIONS, INFINITE, Refused, syntax_of, value_of
from slipstream.spectral.spectral_problem import REMEMBERED, SpectralProblem, field_parts

Fields = Mapping[str, Quantity]
# The most terms that products of sums, and derivatives of products, may expand to.
_MOST_TERMS = 2000
# The highest order of a derivative of a product that is a factor of a product.
_MOST_ORDERS = 4
_LARGEST_POWER = 12
# The highest order of derivatives: the order of the highest hyperviscosity.
_HIGHEST_ORDER = 16
# The order of the derivative that an operator takes.
_ORDERS = {"grad": 1, "div": 1, "curl": 1, "laplacian": 2}
Part: TypeAlias = Quantity | sympy.Expr


# -- quantities derived from fields ----------------------------------------------------------------


@dataclass(frozen=True)
class Derived:
    """A quantity that follows from the fields of a model."""

    text: str  # descriptive name
    make: Callable[[Fields], Quantity]
    needs: tuple[str, ...]  # fields
    rank: int = 0  # 1 for a vector, 2 for a tensor, whose components have their own names
    is_component: bool = False


def fields_of(model: Lowered) -> dict[str, Quantity]:
    """Return the fields of a model, and their components, as quantities by name."""
    fields: dict[str, Quantity] = {}
    values = model.unknowns
    for name, first in model.complexes:
        real, imaginary = (values[place] for place in (first, first + 1))
        fields[name] = Quantity([Form({real: sympy.Integer(1), imaginary: IMAGINARY})], name)
    for part in field_parts(model):
        own = values[part.first : part.first + part.size]
        fields[part.name] = Quantity([Form({v: sympy.Integer(1)}) for v in own], part.name)
    for value in values:
        fields[str(value)] = Quantity([Form({value: sympy.Integer(1)})], str(value))
    return fields


def vector_potential(field: Quantity) -> Quantity:
    """Return the vector potential of a field: solenoidal, with zero mean."""
    return -inverse_laplacian(curl(field))


def strain(velocity: Quantity) -> Quantity:
    """Return the rate-of-strain tensor, (d_i u_j + d_j u_i) / 2."""
    slopes = grad(velocity)
    return (slopes + slopes.T) / 2


def q_criterion(velocity: Quantity) -> Quantity:
    """Return -d_i u_j d_j u_i / 2: positive where rotation exceeds strain, for solenoidal flow."""
    slopes = [Quantity([form], velocity.text) for form in grad(velocity).forms]
    products = [slopes[3 * i + j] * slopes[3 * j + i] for i in range(3) for j in range(3)]
    return sum(products[1:], products[0]) / -2


def r_invariant(velocity: Quantity) -> Quantity:
    """Return minus the determinant of d_i u_j: the third invariant, for solenoidal flow.

    In the plane of Q and R, 27 R^2 + 4 Q^3 = 0 divides swirling from straining motion (Chong, Perry
    and Cantwell, 1990).
    """
    return _minus_determinant(grad(velocity))


def _minus_determinant(tensor: Quantity) -> Quantity:
    x, y, z = (Quantity(tensor.forms[3 * i : 3 * i + 3], f"{tensor.text}[{i}]") for i in range(3))
    return -dot(x, cross(y, z))


def enstrophy_production(velocity: Quantity) -> Quantity:
    """Return w_i S_ij w_j, the rate of vortex stretching; w is the vorticity, S the strain."""
    own = curl(velocity)
    return dot(dot(own, strain(velocity)), own)


def pressure(model: Lowered, velocity: Quantity) -> Quantity:
    """Return the pressure that keeps the velocity free of divergence, over the density.

    Its Laplacian is the divergence of the right-hand side as written; the forces of a case are
    solenoidal.
    """
    place = [value.field for value in model.unknowns].index(velocity.text)
    rate = Quantity(list(model.rates[place : place + 3]), f"rate of {velocity.text}")
    source = div(rate)
    if model.shear != 0:
        source = source - model.shear * dot(grad(dot(velocity, y_hat)), x_hat)
    return inverse_laplacian(source)


def magnitude(vector: Quantity) -> Quantity:
    """Return the magnitude of a vector, or of a scalar that may be complex."""
    return function(sympy.sqrt, abs2(vector))


def _phase(complex_scalar: Quantity) -> Quantity:
    real, imaginary = (one.at_points() for one in complex_scalar.forms[0].real_and_imaginary())
    text = f"phase({complex_scalar.text})"
    return Quantity([form_of_points(sympy.atan2(imaginary, real))], text)


# The fields that a derived quantity needs.
_FLOW = ("velocity",)
_MHD = ("velocity", "magnetic")
DERIVED: dict[str, Derived] = {
    "vorticity": Derived("curl of the velocity", lambda f: curl(f["velocity"]), _FLOW, rank=1),
    "vorticity_magnitude": Derived(
        "magnitude of the vorticity", lambda f: magnitude(curl(f["velocity"])), _FLOW
    ),
    "kinetic_energy": Derived(
        "density of kinetic energy", lambda f: abs2(f["velocity"]) / 2, _FLOW
    ),
    "enstrophy": Derived(
        "density of enstrophy, half the square of the vorticity",
        lambda f: abs2(curl(f["velocity"])) / 2,
        _FLOW,
    ),
    "helicity": Derived(
        "density of helicity, velocity times vorticity",
        lambda f: dot(f["velocity"], curl(f["velocity"])),
        _FLOW,
    ),
    "strain": Derived("rate-of-strain tensor", lambda f: strain(f["velocity"]), _FLOW, rank=2),
    "q_criterion": Derived(
        "excess of rotation over strain, half the second invariant",
        lambda f: q_criterion(f["velocity"]),
        _FLOW,
    ),
    "r_invariant": Derived(
        "minus the determinant of the velocity gradient, its third invariant",
        lambda f: r_invariant(f["velocity"]),
        _FLOW,
    ),
    "r_strain": Derived(
        "minus the determinant of the strain, its third invariant: a third of its production",
        lambda f: _minus_determinant(strain(f["velocity"])),
        _FLOW,
    ),
    "enstrophy_production": Derived(
        "production of enstrophy, by the stretching of vortices",
        lambda f: enstrophy_production(f["velocity"]),
        _FLOW,
    ),
    "current_density": Derived(
        "curl of the magnetic field", lambda f: curl(f["magnetic"]), _MHD, rank=1
    ),
    "magnetic_energy": Derived(
        "density of magnetic energy", lambda f: abs2(f["magnetic"]) / 2, _MHD
    ),
    "cross_helicity": Derived(
        "density of cross helicity, velocity times magnetic field",
        lambda f: dot(f["velocity"], f["magnetic"]),
        _MHD,
    ),
    "vector_potential": Derived(
        "vector potential of the magnetic field, without divergence and mean",
        lambda f: vector_potential(f["magnetic"]),
        _MHD,
        rank=1,
    ),
    "magnetic_helicity": Derived(
        "density of magnetic helicity, vector potential times magnetic field",
        lambda f: dot(vector_potential(f["magnetic"]), f["magnetic"]),
        _MHD,
    ),
}


def derived_of(model: Lowered) -> dict[str, Derived]:
    """Return the quantities derived from the fields of a model, and their components, by name.

    The velocity is the first vector, if no field has that name; a field of the model takes
    precedence over a derived quantity of the same name.
    """
    fields = fields_of(model)
    vectors = [part.name for part in field_parts(model) if part.is_vector]
    have = {"velocity"} & set(fields) or set(vectors[:1])
    roles = {"velocity": have.pop()} if have else {}
    roles |= {"magnetic": "magnetic"} if "magnetic" in vectors else {}
    of_plane = {
        name: Quantity(list(forms), name) for name, (_, forms) in model.plane_vectors.items()
    }
    roles |= {name: name for name in of_plane}

    def in_roles(make: Callable[[Fields], Quantity]) -> Callable[[Fields], Quantity]:
        return lambda f: make({role: (of_plane | dict(f))[name] for role, name in roles.items()})

    derived = {
        name: Derived(f"{name} in the plane", in_roles(operator.itemgetter(name)), (), rank=1)
        for name in of_plane
    }
    derived |= {
        name: replace(entry, make=in_roles(entry.make))
        for name, entry in DERIVED.items()
        if set(entry.needs) <= set(roles)
    }
    firsts = {model.unknowns[first].field for first in model.vectors}
    if roles.get("velocity") in firsts:
        derived["pressure"] = Derived(
            "kinematic pressure, without its mean",
            in_roles(lambda f: pressure(model, f["velocity"])),
            _FLOW,
        )
    for name, _ in model.complexes:
        derived |= _of_complex(name)
    derived |= {
        part: component
        for name, entry in derived.items()
        for part, component in _components(name, entry).items()
    }
    return {name: entry for name, entry in derived.items() if name not in fields}


def _of_complex(name: str) -> dict[str, Derived]:
    return {
        f"{name}_density": Derived(f"|{name}|^2", lambda f: abs2(f[name]), (name,)),
        f"{name}_phase": Derived(
            f"phase of {name}, from -pi to pi", lambda f: _phase(f[name]), (name,)
        ),
    }


def _components(name: str, whole: Derived) -> dict[str, Derived]:
    """Return the components of a vector (``vorticity_z``), or of a tensor (``strain_xy``)."""

    def take(number: int) -> Callable[[Fields], Quantity]:
        return lambda f: Quantity([whole.make(f).forms[number]], name)

    if not whole.rank:
        return {}
    return {
        component: Derived(
            f"{component.removeprefix(name)[1:]} component of {name}",
            take(number),
            whole.needs,
            is_component=True,
        )
        for number, component in enumerate(component_names(name, whole.rank))
    }


# -- expressions in text ---------------------------------------------------------------------------


# Operators, by their accepted numbers of arguments.
_OPERATORS: dict[str, tuple[Callable[..., Quantity], tuple[int, ...]]] = {
    "grad": (equations.grad, (1,)),
    "div": (equations.div, (1,)),
    "curl": (equations.curl, (1,)),
    "laplacian": (equations.laplacian, (1, 2)),
    "inverse_laplacian": (equations.inverse_laplacian, (1,)),
    "inverse_curl": (equations.inverse_curl, (1,)),
    "riesz": (equations.riesz, (1,)),
    "dot": (equations.dot, (2,)),
    "cross": (equations.cross, (2,)),
    "outer": (equations.outer, (2,)),
    "abs2": (equations.abs2, (1,)),
    "conj": (equations.conj, (1,)),
    "real": (equations.real, (1,)),
    "imag": (equations.imag, (1,)),
}
_FUNCTIONS = {name: getattr(sympy, name) for name in FUNCTIONS}
_CONSTANTS: dict[str, Quantity] = {
    name: getattr(equations, name) for name in ("x", "y", "z", "t", "x_hat", "y_hat", "z_hat")
}


def quantity_of(
    expression: str | Quantity | float, problem: SpectralProblem, where: str = "expression"
) -> Quantity:
    """Return an expression as a quantity of the fields of a problem's model, or raise `InputError`.

    Text may have the names of `accepted_names`; `where` is the key or argument, for messages.
    """
    if isinstance(expression, str):
        parsed = _parsed(expression, problem.model, tuple(problem.parameters), where)
        return _finite(parsed, where)
    numbers = Quantity | int | float | sympy.Expr
    if isinstance(expression, bool) or not isinstance(expression, numbers):
        raise InputError(
            f"{where}: {shown(expression)} is of type {type(expression).__name__}; accepted: text "
            "or a quantity, such as curl(velocity)"
        )
    return _finite(_adapted(as_quantity(expression), problem, where), where)


def _finite(quantity: Quantity, where: str) -> Quantity:
    """Return a quantity; refuse one that divides by zero at all points."""
    for form in quantity.forms:
        for points, factor in form.terms.items():
            if (sympy.sympify(points) + factor).has(*INFINITE):
                raise InputError(
                    f"{where}: {shown(quantity.text)} is infinite or undefined at all points;"
                    " accepted: finite values"
                )
    return quantity


def accepted_names(problem: SpectralProblem) -> dict[str, str]:
    """Return the names of fields and derived quantities, each with a description."""
    fields = fields_of(problem.model).items()
    named = {name: f"{quantity.kind} of the model" for name, quantity in fields}
    return named | {name: one.text for name, one in derived_of(problem.model).items()}


def names_of_language(model: Lowered) -> set[str]:
    """Return the names that the language defines for every model."""
    own = {"pi", "abs", "function", "pressure", *FUNCTIONS, *_OPERATORS, *_CONSTANTS}
    # A field hides a derived quantity of its name.
    return own | derived_of(model).keys() | DERIVED.keys()


def listed_names(model: Lowered) -> str:
    """Return the names of fields and derived quantities, shortened for messages."""
    derived = derived_of(model)
    whole = [name for name, one in derived.items() if not one.is_component]
    parts = [name for name, one in derived.items() if one.is_component]
    also = f", components such as {parts[min(2, len(parts) - 1)]}" if parts else ""
    return ", ".join([*fields_of(model), *whole]) + also


@functools.lru_cache(REMEMBERED)
def _parsed(text: str, model: Lowered, parameters: tuple[str, ...], where: str) -> Quantity:
    try:
        quantity = as_quantity(_Reader(model, parameters).read(syntax_of(text)))
    except Refused as reason:
        raise InputError(f"{where}: {shown(text)} {reason}") from None
    except InputError as error:
        raise InputError(f"{where}: {shown(text)}: {error}") from None
    except Exception:  # SymPy raises many kinds of errors for invalid arguments
        raise InputError(
            f"{where}: {shown(text)} is not an expression; accepted: one "
            "such as dot(velocity, curl(velocity))"
        ) from None
    # Pictures and files name it as its author does.
    own = " ".join(text.split())
    return quantity if quantity.text == own else Quantity(quantity.forms, own, quantity.parts)


class _Reader:
    """Turns a syntax tree into a quantity, or into a number if it has neither fields nor axes."""

    def __init__(self, model: Lowered, parameters: tuple[str, ...]) -> None:
        self._fields, self._derived = fields_of(model), derived_of(model)
        self._listed = listed_names(model)
        self._numbers: dict[str, sympy.Expr] = {"pi": sympy.pi}
        self._numbers |= {name: sympy.Symbol(name, real=True) for name in parameters}

    def read(self, node: ast.expr) -> Part:
        """Return the value of a part of an expression; the work of every step is bounded."""
        names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        if names <= {*self._numbers, *FUNCTIONS} - self._fields.keys():
            return value_of(node, self._numbers)
        match node:
            case ast.Name(id=name):
                return self._named(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.read(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.read(operand)
            case ast.BinOp(op=ast.Pow(), left=base, right=exponent):
                return self._power(self.read(base), self.read(exponent))
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                return self._chain(node, (ast.Add, ast.Sub))
            case ast.BinOp(op=ast.Mult() | ast.Div()):
                return self._chain(node, (ast.Mult, ast.Div))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self._called(name, arguments)
            case ast.Subscript(value=value, slice=place):
                return as_quantity(self.read(value))[_places(place)]
            case ast.Attribute(value=value, attr="T"):
                return as_quantity(self.read(value)).T
        raise Refused(f"has {type(getattr(node, 'op', node)).__name__!r}; expected + - * / ** ( )")

    def _named(self, name: str) -> Part:
        if name in self._fields:
            return self._fields[name]
        if name in self._numbers:
            return self._numbers[name]
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        if name in self._derived:
            return Quantity(self._derived[name].make(self._fields).forms, name)
        raise self._unknown(name)

    def _unknown(self, name: str) -> Refused:
        named = [*self._fields, *self._derived, *_CONSTANTS, *self._numbers]
        every = [*named, *_OPERATORS, *FUNCTIONS, "abs"]
        guess = nearest(name, [one for one in every if one != name])
        return Refused(
            f"has the unknown name {shown(name)}{guess or ';'} accepted: {self._listed}, and"
            " operators of equations"
        )

    def _chain(self, node: ast.expr, kinds: tuple[type, ...]) -> Part:
        """Return a sum or a product, without recursion: long ones nest deeply to the left."""
        parts: list[tuple[type, Part]] = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, kinds):
            parts.append((type(node.op), self.read(node.right)))
            node = node.left
        result = self.read(node)
        for kind, part in reversed(parts):
            if kind is ast.Add:
                result = result + part
            elif kind is ast.Sub:
                result = result - part
            else:
                factor = _inverse(part) if kind is ast.Div else part
                _check_product(result, factor)
                result = result * factor
        return _bounded(result)

    def _power(self, base: Part, exponent: Part) -> Part:
        if isinstance(exponent, Quantity) or not exponent.is_number:
            raise Refused("has an exponent that is not a number")
        if not isinstance(base, Quantity):
            return base**exponent
        if exponent.is_Integer and 1 <= exponent <= _LARGEST_POWER:
            _check_product(*[base] * int(exponent))
            return _bounded(base ** int(exponent))
        if abs(float(exponent)) > _LARGEST_POWER:
            raise Refused(f"has an exponent beyond {_LARGEST_POWER}")
        power = sympy.nsimplify(exponent, rational=True)
        return _bounded(_of_points("**", lambda points: points**power, base))

    def _called(self, name: str, arguments: list[ast.expr]) -> Part:
        if name == "function" and len(arguments) == 2:
            first = arguments[0]
            name = first.attr if isinstance(first, ast.Attribute) else getattr(first, "id", "")
            arguments = arguments[1:]
            if name not in _FUNCTIONS:
                raise Refused(f"has function {shown(name)}; accepted: {', '.join(FUNCTIONS)}")
        parts = [self.read(one) for one in arguments]
        if name in _OPERATORS:
            operator, counts = _OPERATORS[name]
            if len(parts) not in counts:
                expected = " or ".join(map(str, counts))
                raise Refused(f"has {name} of {len(parts)} arguments; expected {expected}")
            power = _power_of_laplacian(parts[1]) if name == "laplacian" and parts[1:] else 1
            if name in _ORDERS:
                quantity = as_quantity(parts[0])
                factors = [factor for form in quantity.forms for factor in form.terms.values()]
                order = max(map(_degree, factors), default=0) + max(0, power) * _ORDERS[name]
                if order > _HIGHEST_ORDER:
                    raise Refused(f"has a derivative of an order beyond {_HIGHEST_ORDER}")
                options = {"power": power} if power != 1 else {}
                return _bounded(operator(quantity, **options))
            quantities = list(map(as_quantity, parts))
            if name in ("dot", "cross", "outer", "abs2"):
                _check_product(*quantities, *quantities[: name == "abs2"])
            return _bounded(operator(*quantities))
        if name in ("abs", "Abs") and len(parts) == 1:
            return _bounded(_absolute(as_quantity(parts[0])))
        if name in _FUNCTIONS and len(parts) == 1:
            return _bounded(_of_points(name, _FUNCTIONS[name], as_quantity(parts[0])))
        if name in _FUNCTIONS:
            raise Refused(f"has {name} of {len(parts)} arguments; expected 1")
        raise self._unknown(name)


def _places(node: ast.expr) -> Any:
    """Return the indices in brackets, whole numbers."""
    nodes = node.elts if isinstance(node, ast.Tuple) else [node]
    places = tuple(one.value for one in nodes if isinstance(one, ast.Constant))
    if len(places) < len(nodes) or not all(type(one) is int for one in places):
        raise Refused("has an index that is not a whole number; accepted: such as [0] or [0, 2]")
    return places if isinstance(node, ast.Tuple) else places[0]


def _power_of_laplacian(power: Part) -> sympy.Expr:
    if isinstance(power, Quantity) or not power.is_Rational or not 0 < abs(power) <= 8:
        raise Refused("has a power of the Laplacian beyond -8 to 8, or 0")
    return power


def _of_points(name: str, operation: Callable[[Any], Any], quantity: Quantity) -> Quantity:
    _check_product(quantity)
    result = function(operation, quantity)
    return Quantity(result.forms, f"{name}({quantity.text})")


def _inverse(part: Part) -> Part:
    if isinstance(part, Quantity):
        _check_product(part)
        return reciprocal(part)
    if part == 0:
        raise Refused("divides by 0")
    return 1 / part


def _absolute(quantity: Quantity) -> Quantity:
    if quantity.rank == 0 and not quantity.is_complex:
        return _of_points("abs", sympy.Abs, quantity)
    if quantity.rank == 2:
        raise Refused("has abs of a tensor; expected a scalar or a vector")
    _check_product(quantity, quantity)
    return magnitude(quantity)


def _terms(form: Form) -> int:
    return sum(len(sympy.Add.make_args(factor)) for factor in form.terms.values())


def _bounded(part: Part) -> Part:
    """Return a quantity; refuse one with too many terms."""
    if isinstance(part, Quantity) and sum(map(_terms, part.forms)) > _MOST_TERMS:
        raise Refused(f"has more than {_MOST_TERMS} terms once multiplied out")
    return part


def _degree(factor: sympy.Expr) -> int:
    """Return the order of the highest derivative in the factor of a term."""
    return int(sympy.Poly(factor, *WAVENUMBERS).total_degree())


def _check_product(*parts: Part) -> None:
    """Refuse a product that would take too long to expand."""
    terms = 1
    for part in parts:
        if isinstance(part, Quantity):
            terms *= max(map(_terms, part.forms))
            for points, factor in (term for form in part.forms for term in form.terms.items()):
                # The chain rule makes high derivatives of products long.
                is_product = not isinstance(points, Value) and has_waves(factor)
                if is_product and _degree(factor) > _MOST_ORDERS:
                    raise Refused(
                        f"multiplies a derivative of a product of an order beyond {_MOST_ORDERS}"
                    )
    if terms > 4 * _MOST_TERMS:
        raise Refused(f"has more than {_MOST_TERMS} terms once multiplied out")


# -- quantities made in Python --------------------------------------------------------------------


def _adapted(quantity: Quantity, problem: SpectralProblem, where: str) -> Quantity:
    """Return a quantity with its fields replaced by the model's fields of the same names."""
    known = {(value.field, value.component): value for value in problem.model.unknowns}

    def adapt_value(value: Value) -> sympy.Expr:
        if isinstance(value, FilteredSource):
            source = value.source.xreplace(
                {inner: adapt_value(inner) for inner in values_in(value.source)}
            )
            return FilteredSource(source, value.filtered, value.orders)
        if (value.field, value.component) not in known:
            names = list(dict.fromkeys(str(unknown.field) for unknown in problem.model.unknowns))
            raise InputError(
                f"{where}: {shown(quantity.text)} has the unknown name {value.field!r}"
                f"{nearest(value.field, names) or ';'} accepted: {', '.join(names)}"
            )
        plain = known[value.field, value.component]
        plain = plain.with_orders(plain.orders, value.filtered)
        return plain.differentiated(value.orders) if any(value.orders) else plain

    def adapt_form(form: Form) -> Form:
        result = Form({})
        for points, factor in form.terms.items():
            _check_parameters(sympy.sympify(points) + factor, problem, quantity.text, where)
            adapted_values = {value: adapt_value(value) for value in values_in(points)}
            if all(value == other for value, other in adapted_values.items()):
                result = result.plus(Form({points: factor}))
            else:
                result = result.plus(form_of_points(points.xreplace(adapted_values)).times(factor))
        return result

    return Quantity([adapt_form(form) for form in quantity.forms], quantity.text)


def _check_parameters(
    expression: sympy.Expr, problem: SpectralProblem, text: str, where: str
) -> None:
    for symbol in parameters_in([expression]):
        if str(symbol) not in problem.parameters:
            accepted = ", ".join(problem.parameters) or "none"
            raise InputError(
                f"{where}: {shown(text)} has parameter {str(symbol)!r}; accepted: {accepted}"
            )
