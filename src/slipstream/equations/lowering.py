"""A cache on disk of lowered models: the algebra of some takes seconds.

The key of a model is everything that its lowered form depends on: the model itself, the code of
this package, and the versions of SymPy and Python. Loading a file can run code, so files are in a
folder that only this user can write to (`engine/private_cache.py`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import io
import itertools
import math
import operator
import pickle
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import sympy

from slipstream.engine.errors import InputError, RunError
from slipstream.engine.private_cache import find, find_or_make
from slipstream.equations import fewest_transforms
from slipstream.equations.fewest_transforms import EVERY_AXIS_VARIES, FlatAxes
from slipstream.equations.fourier_forms import (
    TIME,
    WAVENUMBERS,
    Form,
    Value,
    at_wavevector,
    form_of_points,
    has_waves,
    parameters_in,
    positions_in,
    values_in,
)
from slipstream.equations.model_definition import Model
from slipstream.equations.vector_calculus import Quantity, Scalar

# The shortest time in seconds that is worth a file.
_WORTH_KEEPING = 0.1


@dataclass(frozen=True)
class MeanPart:
    """Terms of a mean over the box that need few fields at points."""

    inputs: tuple[sympy.Expr, ...]  # the sums of values to transform to physical space
    symbols: tuple[Value, ...]  # the symbol of each of these
    expression: sympy.Expr  # the function of the symbols to average


@dataclass(frozen=True, eq=False)
class Averages:
    """Means over the box of products of two quantities, as one pass over products makes them.

    Attributes
    ----------
    model : Lowered
        Its components are those of the state; its multipliers and linear terms have a row for each
        component of the quantities.
    pairs : dict of str to tuple of (int, int, int)
        By name, the two rows of each product, and how often it is added.
    """

    model: Lowered
    pairs: dict[str, tuple[tuple[int, int, int], ...]]

    @property
    def transforms(self) -> int:
        """Number of real transforms; none where no quantity has products."""
        return self.model.transforms if self.has_products else 0

    @property
    def has_products(self) -> bool:
        """Whether some quantity has products."""
        return any(one != 0 for one in self.model.products)


# Compared by identity: a model is lowered once, and caches belong to the result.
@dataclass(frozen=True, eq=False)
class Lowered:
    """A model in the form that a pseudospectral step computes.

    Attributes
    ----------
    components : tuple of Value
        The state, component by component; the coefficients are the last of them.
    vectors : tuple of int
        The first component of each solenoidal vector.
    inputs : tuple of Expr
        The sums of values that are transformed to physical space.
    products : tuple of Expr
        The expressions that are transformed back, of the first value of each input.
    symbols : tuple of Value
        The first value of each input.
    multipliers : tuple of tuple of Expr
        For each component of the state, the multiplier of each product, before the gradient part of
        vectors is removed.
    linear : tuple of dict
        For each component, the factors of other components in its rate.
    constant : tuple of Expr
        For each component, the addition to the rate of the mode of wavenumber 0.
    decay : tuple of Expr
        For each component, the decay rate of a mode.
    parameters : tuple of Symbol
        Symbols whose values are given at run time.
    speeds : tuple of tuple of Expr
        Bounds of the time step, in terms of `symbols`: velocities along x, y and z, and single
        rates per square of the wavenumber.
    means : dict of str to tuple of MeanPart
        Diagnostics that the model defines, by name: sums of means over the box.
    sources : tuple of Expr
        For each component, the function of coordinates and time that is added to its rate.
    coefficients : tuple of Expr
        Functions of the coordinates that multiply fields.
    complexes : tuple of (str, int)
        Name of each complex field, and the component that is its real part; the imaginary part
        follows.
    rates : tuple of Form
        For each unknown, its right-hand side as written, before lowering.
    flat : FlatAxes
        The axes on which no field depends.
    plane_vectors : dict of str to (int, tuple of Form)
        For flow in a plane normal to z: vectors by name, each with the component from which it
        follows.
    gains : dict of str to str
        The means that are rates at which a field gains energy, with its name, "" for all.
    losses : tuple of str
        The means that are rates at which products dissipate energy.
    passive : tuple of str
        The names of the last fields, whose squares do not count in the energy.
    shear : Expr
        The rate S of a mean flow S y along x, which advects all fields.
    averages : Averages or None
        Means of products from which parameters follow.
    follows : dict of str to Expr
        Parameters that follow the state: functions of averages and parameters.
    """

    components: tuple[Value, ...]
    vectors: tuple[int, ...]
    inputs: tuple[sympy.Expr, ...]
    products: tuple[sympy.Expr, ...]
    symbols: tuple[Value, ...]
    multipliers: tuple[tuple[sympy.Expr, ...], ...]
    linear: tuple[dict[int, sympy.Expr], ...]
    constant: tuple[sympy.Expr, ...]
    decay: tuple[sympy.Expr, ...]
    parameters: tuple[sympy.Symbol, ...]
    speeds: tuple[tuple[sympy.Expr, ...], ...]
    means: dict[str, tuple[MeanPart, ...]]
    sources: tuple[sympy.Expr, ...]
    coefficients: tuple[sympy.Expr, ...]
    complexes: tuple[tuple[str, int], ...]
    rates: tuple[Form, ...]
    flat: FlatAxes
    plane_vectors: dict[str, tuple[int, tuple[Form, ...]]]
    gains: dict[str, str]
    losses: tuple[str, ...]
    passive: tuple[str, ...]
    shear: sympy.Expr
    averages: Averages | None = None
    follows: dict[str, sympy.Expr] = dataclasses.field(default_factory=dict)

    @property
    def unknowns(self) -> tuple[Value, ...]:
        """The components that have an equation."""
        return self.components[: len(self.components) - len(self.coefficients)]

    @property
    def active(self) -> int:
        """The number of unknowns, from the first on, that count in the energy."""
        return sum(value.field not in self.passive for value in self.unknowns)

    @property
    def transforms(self) -> int:
        """Number of real transforms per substage."""
        return len(self.inputs) + len(self.products)

    @property
    def dropped(self) -> list[int]:
        """The components of vectors along the normal of a plane, if they are 0."""
        own = enumerate(self.components)
        return [place for place, value in own if value.component in self.flat.dropped]

    @property
    def rate_factors(self) -> list[sympy.Expr]:
        """The multipliers of products, and of components in linear terms."""
        rows = (*self.multipliers, *(row.values() for row in self.linear))
        return [factor for row in rows for factor in row]

    @property
    def input_filters(self) -> list[sympy.Expr]:
        """The products of filters applied to components before the transform to physical space."""
        return [value.filtered for one in self.inputs for value in values_in(one)]

    @property
    def least_transforms(self) -> int:
        """A lower bound for any notation: fields in products there, driven components back.

        One component of a solenoidal vector follows from the others.
        """
        needed = {value.undifferentiated for one in self.inputs for value in values_in(one)}
        driven = {own for own, row in enumerate(self.multipliers) if any(f != 0 for f in row)}
        whole = [first for first in self.vectors if driven >= {first, first + 1, first + 2}]
        return min(self.transforms, len(needed) + len(driven) - len(whole))

    @property
    def inputs_are_state(self) -> bool:
        """Whether the inputs are the components of the state."""
        return self.inputs == self.components

    @functools.cached_property
    def linear_follows(self) -> bool:
        """Whether linear terms have parameters that follow the state."""
        terms = [*self.decay, *(factor for row in self.linear for factor in row.values())]
        return any(str(one) in self.follows for one in parameters_in(terms))

    @functools.cached_property
    def balances_energy(self) -> bool:
        """Whether products conserve the energy, or the model names what they take away."""
        from slipstream.equations.conservation import conserves_energy

        return bool(self.losses) or conserves_energy(self)

    @functools.cached_property
    def degree(self) -> float:
        """Largest number of fields in a product; infinity if one is not a polynomial."""
        if not all(product.is_polynomial(*self.symbols) for product in self.products):
            return math.inf
        return max(sympy.Poly(one, *self.symbols).total_degree() for one in self.products)

    @functools.cached_property
    def damping(self) -> list[list[sympy.Expr]]:
        """For each component, the rates at which linear terms damp it; negative ones drive it.

        Together they are its decay and the linear terms of the component in its own rate. Terms
        differ in their parameters or in the power of the wavenumber.
        """
        result = []
        for own, (decay, row) in enumerate(zip(self.decay, self.linear, strict=True)):
            rest = sympy.expand(row.get(own, sympy.Integer(0))).as_real_imag()[0]
            parts: dict[tuple[int, sympy.Expr], sympy.Expr] = {}
            for orders, factor in sympy.Poly(decay - rest, *WAVENUMBERS).terms():
                wave = sympy.prod([k**n for k, n in zip(WAVENUMBERS, orders, strict=True)])
                for term in sympy.Add.make_args(sympy.expand(factor)):
                    key = sum(orders), term.as_coeff_Mul()[1]
                    parts[key] = parts.get(key, 0) + term * wave
            result.append([part for part in parts.values() if part != 0])
        return result


def lower(model: Model, flat: FlatAxes = EVERY_AXIS_VARIES) -> Lowered:
    """Return a model in the form of a pseudospectral step, with as few transforms as possible.

    No field depends on `flat` axes.
    """
    coefficients: dict[sympy.Expr, Value] = {}
    taken = {value.field for value in model.components}
    forms = flat.of_forms(model.components, model.forms) if flat.axes else model.forms
    forms = [_with_coefficients(form, coefficients, taken) for form in forms]
    averages = _averages(model, flat)
    plain = replace(_lowered(model, forms, coefficients, flat), averages=averages)
    conserved = [_conserved(form, flat) for form in forms]
    if all(map(operator.is_, forms, conserved)):
        return plain
    other = replace(_lowered(model, conserved, coefficients, flat), averages=averages)
    # With as many transforms, those of the state itself need no additional memory.
    return min((plain, other), key=lambda lowered: (lowered.transforms, len(lowered.inputs)))


def _averages(model: Model, flat: FlatAxes) -> Averages | None:
    """Return the averages of a model: rows of rates that no field has."""
    rows: list[Form] = []

    def row_of(form: Form) -> int:
        for number, row in enumerate(rows):
            if row.terms == form.terms:
                return number
        rows.append(form)
        return len(rows) - 1

    pairs: dict[str, tuple[tuple[int, int, int], ...]] = {}
    for name, quantities in model.averages.items():
        counts: dict[tuple[int, int], int] = {}
        for both in zip(*(quantity.forms for quantity in quantities), strict=True):
            first, second = sorted(row_of(flat.of_form(form)) for form in both)
            if rows[first].terms and rows[second].terms:
                counts[first, second] = counts.get((first, second), 0) + 1
        pairs[name] = tuple((*pair, count) for pair, count in counts.items())
    if not pairs:
        return None
    equations: dict[Any, Any] = {field: 0 * field for field in model.equations}
    equations |= {Scalar(f"row_{n}"): Quantity([form], f"row {n}") for n, form in enumerate(rows)}
    whole = lower(Model(equations, speeds=[]), flat)
    start = len(model.components)
    return Averages(
        replace(
            whole,
            components=whole.components[:start],
            vectors=(),
            multipliers=whole.multipliers[start:],
            linear=whole.linear[start:],
            constant=whole.constant[start:],
            decay=whole.decay[start:],
            sources=whole.sources[start:],
        ),
        pairs,
    )


def _with_coefficients(
    form: Form, known: dict[sympy.Expr, Value], field_names: Collection[str]
) -> Form:
    """Return a form with values instead of the functions of coordinates that multiply fields."""
    terms: dict[sympy.Expr, sympy.Expr] = {}
    for points, factor in form.terms.items():
        values = values_in(points)
        if values and positions_in(points):
            function, fields = points.as_independent(*values, as_Add=False)
            if function.has(TIME) or positions_in(fields):
                raise InputError(
                    f"term {points}: expected a function of x, y and z times fields; only "
                    "terms without fields may depend on time"
                )
            if function not in known:
                used = {*field_names, *(value.field for value in known.values())}
                names = (f"coefficient_{number}" for number in itertools.count(1))
                known[function] = Value(next(name for name in names if name not in used), None)
            points = known[function] * fields
        terms[points] = terms.get(points, 0) + factor
    return Form(terms)


def _conserved(form: Form, flat: FlatAxes) -> Form:
    """Return a form with products of first derivatives written as divergences, if they are."""
    derived = {
        points: factor
        for points, factor in form.terms.items()
        if not has_waves(factor) and _has_one_first_derivative(points)
    }
    if not derived:
        return form
    terms = sum(points * factor for points, factor in derived.items())
    fluxes = fewest_transforms.conserved(terms, flat)
    if fluxes is None:
        return form
    result = Form({p: factor for p, factor in form.terms.items() if p not in derived})
    for axis, flux in enumerate(fluxes):
        for term in sympy.Add.make_args(sympy.expand(flux)):
            factor, points = term.as_independent(*values_in(term), as_Add=False)
            result = result.plus(Form({points: factor}).derivative(axis))
    return result


def _has_one_first_derivative(points: sympy.Expr) -> bool:
    if not points.is_Mul or len(points.args) != 2:
        return False
    return sorted(
        sum(v.orders) if isinstance(v, Value) and v.filtered == 1 else 9 for v in points.args
    ) == [0, 1]


def _lowered(
    model: Model, forms: list[Form], coefficients: dict[sympy.Expr, Value], flat: FlatAxes
) -> Lowered:
    field_names = {value.field for value in model.components}
    means = {
        name: _parts_of_mean(
            name, flat.of_form(quantity.forms[0]), len(model.components), coefficients, field_names
        )
        for name, quantity in model.means.items()
    }
    components = [*model.components, *coefficients.values()]
    forms = forms + [Form({}) for _ in coefficients]
    vectors, first = [], 0
    for field in model.equations:
        if field.solenoidal:
            vectors.append(first)
        first += len(field.values)
    unscaled = sorted(
        {p for form in forms for p in form.terms if not isinstance(p, Value) and values_in(p)},
        key=lambda p: (sympy.count_ops(p), str(p)),
    )
    multipliers = [[form.terms.get(p, sympy.Integer(0)) for p in unscaled] for form in forms]
    summed: list[sympy.Expr] = []
    if unscaled:
        rows = fewest_transforms.rows_of_multipliers(multipliers, vectors, flat.axes)
        scales, chosen, sums = fewest_transforms.scaled_dependencies(rows)
        scaled = [scale * product for scale, product in zip(scales, unscaled, strict=True)]
        summed = [
            sum(sums[r, c] * product for c, product in enumerate(scaled))
            for r in range(len(chosen))
        ]
        multipliers = [
            [row[c] if scales[c] == 1 else sympy.expand(row[c] / scales[c]) for c in chosen]
            for row in multipliers
        ]
    moving = _speeds(model)
    speeds = [flat.of_form(form).at_points() for quantity in moving for form in quantity.forms]
    needed, expressions = fewest_transforms.essential_values(summed + speeds)
    products, parts = expressions[: len(summed)], iter(expressions[len(summed) :])
    # Every step transforms to physical space and back, even for a linear model.
    needed = needed or {components[0]: components[0]}
    index_of = {value: index for index, value in enumerate(components)}
    symbols = sorted(needed, key=lambda symbol: index_of.get(needed[symbol], len(components)))
    inputs = [needed[symbol] for symbol in symbols]
    if not products:
        products, multipliers = [sympy.Integer(0)], [[sympy.Integer(0)] for _ in forms]
    linear, decay, constant = _linear(components, forms, vectors)
    sources = [
        sympy.Add(*[f * p for p, f in form.terms.items() if p != 1 and not values_in(p)])
        for form in forms
    ]
    everything = [*inputs, *products, *sum(multipliers, []), *constant, *decay, *sources]
    everything += [*coefficients, sympy.sympify(model.shear)]
    everything += [
        expression
        for parts in means.values()
        for p in parts
        for expression in (p.expression, *p.inputs)
    ]
    everything += [factor for row in linear for factor in row.values()]
    return Lowered(
        components=tuple(components),
        vectors=tuple(vectors),
        inputs=tuple(inputs),
        products=tuple(products),
        symbols=tuple(symbols),
        multipliers=tuple(map(tuple, multipliers)),
        linear=tuple(linear),
        constant=tuple(constant),
        decay=tuple(decay),
        parameters=tuple(parameters_in(everything)),
        speeds=tuple(tuple(itertools.islice(parts, len(quantity.forms))) for quantity in moving),
        means=means,
        sources=tuple(sources),
        coefficients=tuple(coefficients),
        complexes=tuple(
            (field.name, components.index(field.values[0]))
            for field in model.equations
            if field.is_complex
        ),
        rates=tuple(model.forms),
        flat=flat,
        plane_vectors={
            name: (components.index(field.values[0]), tuple(vector.forms))
            for name, (field, vector) in model.plane_vectors.items()
        },
        gains={name: field.name if field else "" for name, field in model.gains.items()},
        losses=tuple(model.losses),
        passive=tuple(field.name for field in model.passive),
        shear=sympy.sympify(model.shear),
        follows={name: sympy.sympify(value) for name, value in model.follows.items()},
    )


def _parts_of_mean(
    name: str, form: Form, limit: int, known: dict[sympy.Expr, Value], field_names: Collection[str]
) -> tuple[MeanPart, ...]:
    """Split a mean into parts, each with at most as many fields as the state has."""
    whole = form_of_points(form.at_points())
    for points in whole.terms:
        if positions_in(points) and (points.has(TIME) or not values_in(points)):
            raise InputError(
                f"mean {name}: term {points}: expected fields in every term, and no time"
            )
    points = _with_coefficients(whole, known, field_names).at_points()
    parts = []
    for _, (terms,) in fewest_transforms.grouped_terms([points], limit):
        inputs, (expression,) = fewest_transforms.essential_values([sympy.Add(*terms)])
        parts.append(MeanPart(tuple(inputs.values()), tuple(inputs), expression))
    return tuple(parts)


def _speeds(model: Model) -> list[Any]:
    if model.speeds is not None:
        return list(model.speeds)
    vectors = [field for field in model.equations if field.rank == 1]
    chosen: list[Any] = [field for field in vectors if field.solenoidal] or vectors
    return chosen + [vector for _, vector in model.plane_vectors.values()]


def _linear(
    components: list[Value], forms: list[Form], vectors: list[int]
) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the linear terms between components, the decay, and the uniform terms."""
    linear, decay, constant = [], [], []
    places = {value: index for index, value in enumerate(components)}
    for index, form in enumerate(forms):
        row = {places[p]: factor for p, factor in form.terms.items() if p in places}
        # A term that only changes a mode's phase, as a uniform velocity does, is not decay.
        rate, turning = sympy.expand(-row.pop(index, sympy.Integer(0))).as_real_imag()
        decay.append(sympy.expand(rate))
        if turning != 0:
            row[index] = sympy.expand(-sympy.I * turning)
        linear.append(row)
        steady = form.terms.get(sympy.Integer(1), sympy.Integer(0))
        constant.append(at_wavevector(steady, (0, 0, 0)))
    for first in vectors:
        # If its components decayed at different rates, a vector would not stay solenoidal.
        vector = slice(first, first + 3)
        terms = [set(sympy.Add.make_args(rate)) for rate in decay[vector]]
        common = sympy.Add(*sorted(set.intersection(*terms), key=str))
        for index in range(first, first + 3):
            rest = sympy.expand(decay[index] - common)
            if rest != 0:
                linear[index][index] = linear[index].get(index, sympy.Integer(0)) - rest
        decay[vector] = [common] * 3
    return linear, decay, constant


def lower_once(model: Model, flat: FlatAxes) -> Lowered:
    """Return a lowered model of this package, from the disk if it has been lowered before."""
    name = f"{hashlib.sha256(_content(model, flat) + _code()).hexdigest()}.model"
    with contextlib.suppress(RunError, OSError):  # without a folder, nothing is kept
        kept = find(name)
        if kept is not None:
            result: Lowered = pickle.loads(kept)
            return result
    start = time.process_time()
    result = lower(model, flat)
    if time.process_time() - start > _WORTH_KEEPING:
        _ = result.balances_energy  # is kept with it
        with contextlib.suppress(RunError, OSError):
            find_or_make(name, lambda folder: pickle.dumps(result, protocol=4))
    return result


def _content(model: Model, flat: FlatAxes) -> bytes:
    """Return bytes that are equal for equal models, whatever their expressions share."""
    written = io.BytesIO()
    pickler = pickle.Pickler(written, protocol=4)
    pickler.fast = True  # each part in full, not as a reference to an earlier part
    pickler.dump((model, flat))
    return written.getvalue()


@functools.cache
def _code() -> bytes:
    """Return a checksum of the code that lowers models."""
    code = hashlib.sha256(f"{sympy.__version__} {sys.version}".encode())
    for entry in sorted(resources.files(__package__).iterdir(), key=lambda file: file.name):
        if entry.name.endswith(".py"):
            code.update(entry.read_bytes())
    return code.digest()
