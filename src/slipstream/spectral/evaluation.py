"""Evaluation of expressions on a state: at points, as Fourier coefficients, means and spectra.

Linear terms, derivatives included, are exact: they are computed from Fourier coefficients. Products
are taken at the points; the derivative of a product goes through a forward transform, in which
dealiasing discards the same modes as in a time step. Within another product, the derivative of a
product is expanded by the chain rule.

An expression becomes a plan (`evaluation_plan`): the sums of fields to transform, and the functions
to compute at the points. Values are passed chunk by chunk to a consumer: an array, a sum, a file.
Fields to transform are made in the memory of the stage; where that does not suffice, and for
forward transforms, more is allocated and freed again. The state is not changed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy

from slipstream.engine.accepted import REDUCTIONS
from slipstream.engine.array_types import Array, Comm
from slipstream.engine.collective import greatest, sum_over_ranks
from slipstream.engine.device import Operation
from slipstream.engine.errors import InputError
from slipstream.engine.fft import PointOperation
from slipstream.engine.fields import PointValues, Take, check_reduction
from slipstream.equations import Quantity
from slipstream.equations.code_generation import array_function, wave_function
from slipstream.equations.fewest_transforms import essential_values, grouped_terms
from slipstream.equations.fourier_forms import (
    COORDINATES,
    TIME,
    Form,
    Value,
    component_names,
    has_waves,
    parameters_in,
    values_in,
)
from slipstream.spectral.expressions import accepted_names, quantity_of
from slipstream.spectral.fields_at_points import sum_over_points, to_points, values_to_modes
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectrum import keep_sphere, sums_in_shells

if TYPE_CHECKING:
    from slipstream.spectral.spectral_simulation import SpectralSimulation


# The most values for which the smallest number of sums is found: the search takes too long for
# more.
_MOST_VALUES = 40

# The terms of a sum in spectral space: components of the state, and values at points that go
# through a forward transform; each with its multiplier, a function of the wavenumbers.
Sum = dict[sympy.Expr, sympy.Expr]
# The numbers of points and of modes handled together, which bound temporary arrays.
_AT_A_TIME = 1 << 22
# ``take(values, planes, plane)`` gets the values of `planes` planes from `plane` on, as arrays or
# numbers.
_TakeEach = Callable[[Sequence[Any], int, int], None]


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
        """Return functions that sum to this one, each with at most `limit` inputs, if possible."""
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
            same = (value for value, need in sums.items() if need == total)
            # A name that no field has.
            whole = next(same, Value(f"sum {number}", None))
            sums[whole] = total
            local += whole
        expressions.append(local)
    values = sorted({value for need in expressions for value in values_in(need)}, key=str)
    has_positions = any(need.has(*COORDINATES, TIME) for need in expressions)
    needed: dict[Value, sympy.Expr] = {value: value for value in values}
    if mixes and not has_positions and 1 < len(values) <= _MOST_VALUES:
        needed, expressions = essential_values(expressions)
    inputs = []
    for need in needed.values():
        merged: Sum = {}
        for value in values_in(need):
            own = sums[value] if value in sums else _sum_of_value(value)
            for base, factor in own.items():
                merged[base] = merged.get(base, 0) + need.coeff(value) * factor
        inputs.append(merged)
    return PointFunction(inputs, list(needed), list(expressions))


class Evaluation:
    """An expression of the fields of a simulation that can be evaluated on its state at any time.

    All methods but `__init__` are collective. None changes the state, or any bit of later steps.
    Its values have the components `shape`, () for a scalar, and the type `dtype`.
    """

    def __init__(
        self, flow: SpectralStep, expression: str | Quantity | float, where: str = "expression"
    ) -> None:
        self.flow, self._expression, self._where = flow, expression, where
        self.restate()
        flow.evaluations.add(self)

    def restate(self) -> None:
        """Evaluate the expression again with the model of the step, which may have changed."""
        flow = self.flow
        self.quantity = quantity_of(self._expression, flow.problem, self._where)
        self.shape = (3,) * self.quantity.rank
        problem = flow.problem
        self.is_complex = self.quantity.is_complex
        self.dtype = np.dtype(problem.complex_dtype if self.is_complex else problem.real_dtype)
        self._names = problem.model.components
        self._functions: dict[Any, PointFunction] = {}
        # The real parts of all components, then their imaginary parts if they are complex.
        pairs = [form.real_and_imaginary() for form in self.quantity.forms]
        parts = list(zip(*pairs, strict=True))
        self._parts: list[Form] = [form for part in parts[: 1 + self.is_complex] for form in part]
        for points in itertools.chain(*(form.terms for form in self._parts)):
            if sympy.sympify(points).has(sympy.DiracDelta, sympy.Derivative):
                raise InputError(
                    f"{self._where}: {self.quantity.text} differentiates a kink or a jump;"
                    " accepted: smooth functions"
                )

    # -- values ------------------------------------------------------------------------------

    def at_points(self, time: float = 0.0) -> Array:
        """Return the values at this rank's points, [z, y, x] after the axes of `shape`.

        They are a new CuPy or NumPy array, on the device of the state.
        """
        count = len(self.quantity.forms)
        result = self.flow.device.empty((count, *self._box), self.dtype)
        for group in self._groups:

            def keep(values: Array, plane: int, target: Array = result[group]) -> None:
                target[:, plane : plane + values.shape[1]] = values

            self.each_chunk(keep, time, components=group)
        return result.reshape(*self.shape, *self._box)

    def each_chunk(
        self,
        consumer: Take,
        time: float = 0.0,
        exact: bool = False,
        components: slice = slice(None),
    ) -> None:
        """Pass all values to ``consumer(values, plane)``, some planes at a time.

        It gets [component, z, y, x] on the device, from this rank's plane `plane` on, and may
        change them. Chunks come in any order, on a CPU possibly from several threads. `exact`
        values are in double precision for any precision of the state.
        """
        real = np.dtype(np.float64) if exact else self.flow.problem.real_dtype
        module, count = self.flow.device.array_module, len(self.quantity.forms)
        forms = self._parts[:count][components]
        half = len(forms)
        forms += self._parts[count:][components]

        def assembled(values: Sequence[Any], planes: int, plane: int) -> None:
            chunk = module.empty((len(forms), planes, *self._box[1:]), real)
            for target, one in zip(chunk, values, strict=True):
                target[...] = one
            consumer(chunk[:half] + 1j * chunk[half:] if self.is_complex else chunk, plane)

        first, last, _ = components.indices(count)
        self._run((first, last), forms, assembled, time, real)

    @cached_property
    def _groups(self) -> list[slice]:
        """Groups of components to evaluate together, so that few fields are kept at points."""
        limit, count = len(self.flow.working), len(self.quantity.forms)
        whole = slice(0, count)
        parts = self._parts
        if len(self._function_of((0, count), parts).inputs) <= limit:
            return [whole]
        first, groups = 0, []
        held: set[Any] = set()
        for component in range(count):
            needed = {v for form in parts[component::count] for v in needs_of(form)}
            if component > first and len(held | needed) > limit:
                groups.append(slice(first, component))
                first, held = component, set()
            held |= needed
        return [*groups, slice(first, count)]

    def modes(self, time: float = 0.0) -> Array:
        """Return the Fourier coefficients, [component, kz, ky of this rank, kx], a new array.

        For a complex quantity the real parts of all components come first, as fields are stored.
        """
        return self.flow.modes_of(self._stored(self._parts, time))

    def stored_modes(self, components: slice, time: float = 0.0) -> Array:
        """Return the modes of some components of a real quantity, stored like a step's fields."""
        return self._stored(self._parts[components], time)

    def _stored(self, forms: Sequence[Form], time: float) -> Array:
        problem = self.flow.problem
        shape = len(forms), *problem.geometry.stored_shape
        result = self.flow.device.zeros(shape, problem.complex_dtype)
        self._accumulate(result, [whole_sum(form) for form in forms], time)
        return result

    # -- means and spectra -------------------------------------------------------------------

    def reduce(self, how: str, comm: Comm = None, time: float = 0.0) -> Any:
        """Return the "mean", "max", "min" or "rms" of each component over the box.

        Planes are summed in the order of z, so the sum does not depend on their division among
        ranks.
        """
        accepted = ("mean", "rms") if self.is_complex else tuple(REDUCTIONS)
        check_reduction(how, accepted, self._where, self.quantity.kind)
        device, module = self.flow.device, self.flow.device.array_module
        nz, ny, nx = self.flow.problem.geometry.shape
        reductions: dict[tuple[int, int], Any] = {}

        def reduced(first: int) -> Take:
            def take(values: Array, plane: int) -> None:
                rows = values.reshape(*values.shape[:2], -1)
                if how == "rms":
                    reductions[first, plane] = (rows * rows.conj()).real.sum(axis=2)
                else:
                    operation = {"mean": module.sum, "max": module.max, "min": module.min}[how]
                    reductions[first, plane] = operation(rows, axis=2)

            return take

        for part in self._groups:
            self.each_chunk(reduced(part.start), time, exact=True, components=part)
        device.synchronize()
        dtype = np.dtype(np.complex128 if self.is_complex else np.float64)
        planes = np.zeros((len(self.quantity.forms), nz), dtype)
        start = self.flow.problem.geometry.physical_box.start[0]
        for (first, plane), values in reductions.items():
            own = device.to_host(values)
            low = start + plane
            planes[first : first + len(own), low : low + own.shape[1]] = own
        if how in ("max", "min"):
            mine = slice(start, start + self._box[0])
            sign = 1 if how == "max" else -1
            ends = np.max(sign * planes[:, mine], axis=1, initial=-np.inf)
            result = np.array([sign * greatest(comm, float(one)) for one in ends])
        else:
            # Ranks without points of a plane add 0.
            result = np.sum(sum_over_ranks(comm, planes), axis=1)
        if how in ("mean", "rms"):
            result = result / (nz * ny * nx)
        if how == "rms":
            result = np.sqrt(result.real)
        return result.reshape(self.shape) if self.shape else result[0].item()

    def spectrum(self, comm: Comm = None, time: float = 0.0) -> np.ndarray:
        """Return half the sums of squared modes over the shells of `energy_spectrum`."""
        return self.cospectrum(self, comm, time) / 2

    def cospectrum(self, other: Evaluation, comm: Comm = None, time: float = 0.0) -> np.ndarray:
        """Return sums over shells of Re(conj(a) . b), with another evaluation of this state."""
        if self.quantity.kind != other.quantity.kind:
            raise InputError(
                f"{self._where}: {self.quantity.text} is {self.quantity.kind}, "
                f"{other.quantity.text} is {other.quantity.kind}; accepted: two of the same kind"
            )
        total = np.zeros(self.flow.wavenumbers.shell_count)
        pairs = list(zip(self._parts, other._parts, strict=True))
        for first_form, second_form in pairs:
            if self._signs_of([whole_sum(first_form)]) == other._signs_of([whole_sum(second_form)]):
                continue
            raise InputError(
                f"{self._where}: one of {self.quantity.text} and {other.quantity.text} is even and"
                " one odd across the walls (grid.walls); accepted: two of the same"
            )
        for first_form, second_form in pairs:
            first = second = self.flow.modes_of(self._stored([first_form], time))
            if other is not self:
                second = self.flow.modes_of(self._stored([second_form], time))
            total += sums_in_shells(self.flow, first, second, comm)
        return total

    # -- transforms --------------------------------------------------------------------------

    @property
    def _box(self) -> tuple[int, ...]:
        return self.flow.problem.geometry.physical_box.shape

    def _function_of(self, key: Any, forms: Sequence[Form]) -> PointFunction:
        if key not in self._functions:
            mixes = self.flow.problem.mirror is None
            self._functions[key] = point_function(forms, mixes)
        return self._functions[key]

    def _run(
        self,
        key: Any,
        forms: Sequence[Form],
        take: _TakeEach,
        time: float,
        real: np.dtype,
    ) -> None:
        """Evaluate forms at points: ``take(values, planes, plane)`` gets arrays or numbers."""
        points, limit = self._function_of(key, forms), len(self.flow.working)
        # Products are summed at the points, if fewer fields are kept there that way.
        is_long = len(points.inputs) - limit > len(forms)
        *former, last = points.split(limit) if is_long else [points]
        total = self.flow.device.zeros((len(forms), *self._box) if former else (0,), real)

        def add(values: Sequence[Any], planes: int, plane: int) -> None:
            for target, value in zip(total, values, strict=True):
                target[plane : plane + planes] += value

        def take_sums(values: Sequence[Any], planes: int, plane: int) -> None:
            add(values, planes, plane)
            take([array[plane : plane + planes] for array in total], planes, plane)

        for part in former:
            self._pass(part, add, time, real)
        self._pass(last, take_sums if former else take, time, real)

    def _pass(self, points: PointFunction, take: _TakeEach, time: float, real: np.dtype) -> None:
        flow = self.flow
        device, inputs, limit = flow.device, points.inputs, len(flow.working)
        # Sums that contain products are computed first, in separate memory.
        added = [number for number, one in enumerate(inputs) if one.keys() - set(self._names)]
        stored = device.zeros(
            (len(added), *flow.problem.geometry.stored_shape), flow.problem.complex_dtype
        )
        self._accumulate(stored, [inputs[number] for number in added], time)
        signs = self._signs_of(inputs)

        def prepared(low: int, high: int) -> Array:
            for number in range(low, high):
                target = flow.working[number - low : number - low + 1]
                if number in added:
                    source = stored[added.index(number)]
                    device.run(device.copy(target[0], source))
                else:
                    target[...] = 0
                    self._add_linear(target, [inputs[number]])
            device.synchronize()
            return flow.working[: high - low]

        # The values of all fields but the last are kept.
        waiting = max(0, len(inputs) - limit)
        held = device.empty((waiting, *self._box), flow.problem.real_dtype)
        for low in range(0, waiting, limit):
            high = min(low + limit, waiting)
            keep = _keep_in(held[low:high], device)
            to_points(flow, prepared(low, high), keep, signs[low:high])
        compute = self._chunk_function(points, take, time, real)
        if not inputs:
            for plane in range(0, self._box[0], self._planes_at_a_time):
                count = min(self._planes_at_a_time, self._box[0] - plane)

                def of_no_fields(stream: Any, planes: int = count, first: int = plane) -> None:
                    compute([], planes, first)

                device.run(of_no_fields)
            return

        def evaluate(chunk: Array, plane: int) -> tuple[Operation, list[Array]]:
            def run(stream: Any) -> None:
                for low in range(0, chunk.shape[1], self._planes_at_a_time):
                    part = chunk[:, low : low + self._planes_at_a_time]
                    first, count = plane + low, part.shape[1]
                    compute([*held[:, first : first + count], *part], count, first)

            return run, []

        to_points(flow, prepared(waiting, len(inputs)), evaluate, signs[waiting:])

    def _signs_of(self, sums: Sequence[Sum]) -> list[int]:
        """Return which sums are even (1) and which odd (-1) between walls; refuse others."""
        mirror = self.flow.problem.mirror
        if mirror is None:
            return []
        signs = [mirror.of_sum(one) for one in sums]
        if not all(signs):
            raise InputError(
                f"{self._where}: {self.quantity.text} differentiates a sum that is neither even"
                " nor odd across the walls (grid.walls); accepted: terms all even, or all odd"
            )
        return signs

    @property
    def _planes_at_a_time(self) -> int:
        return max(1, _AT_A_TIME // math.prod(self._box[1:]))

    def _chunk_function(
        self,
        points: PointFunction,
        take: _TakeEach,
        time: float,
        real: np.dtype,
    ) -> _TakeEach:
        """Return the operation that evaluates some planes of fields and passes on the values."""
        geometry, device = self.flow.problem.geometry, self.flow.device
        numbers = [float(self.flow.problem.parameters[str(symbol)]) for symbol in points.parameters]
        axes: list[Any] = [0.0, 0.0, 0.0]
        needed = any(expression.has(*COORDINATES) for expression in points.expressions)
        if needed:
            z, y, x = map(device.array, self.flow.problem.point_lines)
            y = y[geometry.physical_box.slices()[1]]
            axes = [x[None, None, :], y[None, :, None], z[:, None, None]]
        start = geometry.physical_box.start[0]
        function = points.function  # made once, not in every thread

        def compute(fields: Sequence[Array], planes: int, plane: int) -> None:
            arrays = [field.astype(real, copy=False) for field in fields]
            x, y, z = axes
            if needed:
                z = z[start + plane : start + plane + planes]
            with np.errstate(all="ignore"):
                take(function(*arrays, x, y, z, time, *numbers), planes, plane)

        return compute

    def _accumulate(self, targets: Array, sums: Sequence[Sum], time: float) -> None:
        """Add sums to spectral fields; products in them are transformed one by one."""
        flow, device = self.flow, self.flow.device
        products = self._products_of(sums)
        values = device.empty((1, *self._box) if products else (0,), flow.problem.real_dtype)

        def keep(results: Sequence[Any], planes: int, plane: int) -> None:
            values[0, plane : plane + planes] = results[0]

        for factors, product in products.items():
            form = Form({product: sympy.Integer(1)})
            self._run(product, [form], keep, time, flow.problem.real_dtype)
            spectral = flow.working[:1]
            signs = self._signs_of([{product: sympy.Integer(1)}])
            values_to_modes(flow, values, spectral, signs)
            keep_sphere(flow, spectral)
            device.synchronize()
            for target, factor in zip(targets, factors, strict=True):
                if factor != 0:
                    _add_multiple(flow, target, factor, spectral[0])
            device.synchronize()  # before the next sum uses its memory
        self._add_linear(targets, sums)
        device.synchronize()

    def _products_of(self, sums: Sequence[Sum]) -> dict[tuple[sympy.Expr, ...], sympy.Expr]:
        """Return the products to transform forward, by their factors in each sum."""
        products: dict[tuple[sympy.Expr, ...], sympy.Expr] = {}
        for base in dict.fromkeys(base for one in sums for base in one):
            if base not in self._names:
                factors = tuple(sympy.expand(one.get(base, 0)) for one in sums)
                products[factors] = products.get(factors, 0) + base
        return products

    def _add_linear(self, targets: Array, sums: Sequence[Sum]) -> None:
        flow, state = self.flow, self.flow.read_state()
        for target, one in zip(targets, sums, strict=True):
            for base, factor in one.items():
                if base in self._names:
                    _add_multiple(flow, target, factor, state[self._names.index(base)])


def _add_multiple(flow: SpectralStep, target: Array, factor: sympy.Expr, source: Array) -> None:
    """Add a spectral field times a function of the wavenumbers, some planes at a time."""
    factor = sympy.sympify(factor)
    function = wave_function(factor)
    values = [float(flow.problem.parameters[str(one)]) for one in parameters_in([factor])]
    waves, array = flow.wavenumbers, flow.device.array
    x, y, z = array(waves.x), array(waves.along_y), array(waves.z)[:, None, None]
    target, source = flow.modes_of(target), flow.modes_of(source)
    count = max(1, _AT_A_TIME // max(1, len(y) * x.size))
    for low in range(0, len(z), count):
        part = slice(low, low + count)
        target[part] += function(x, y, z[part], *values) * source[part]


def mean_over_box(flow: SpectralStep, name: str, comm: Comm) -> float:
    """Return the mean over the box that a model defines by a name. Collective."""
    total, problem, state = 0.0, flow.problem, flow.read_state()
    names, fixed = problem.model.components, problem.fixed
    followed = [problem.parameters[name] for name in problem.model.follows]
    for part, function in problem.means[name]:
        spectral = flow.working[: len(part.inputs)]
        spectral[...] = 0
        for target, expression in zip(spectral, part.inputs, strict=True):
            for value in values_in(expression):
                factor = expression.coeff(value).subs(fixed) * value.multiplier
                source = state[names.index(value.undifferentiated)]
                _add_multiple(flow, target, factor, source)

        def at_points(points: Any, function: Callable[..., Any] = function) -> Any:
            values = list(points)
            # A constant is a number here, which counts at every point.
            return function(*values, *followed) + 0 * values[0]

        signs = problem.signs_of(part.inputs)
        total += sum_over_points(flow, spectral, at_points, comm, signs)
    return total / math.prod(problem.geometry.shape)


def _keep_in(held: Array, device: Any) -> PointOperation:
    """Return an operation that copies chunks of points into an array of this rank's part."""

    def store(points: Array, plane: int) -> tuple[Operation, list[Array]]:
        target = held[:, plane : plane + points.shape[1]]
        return device.copy(target, points), [target]

    return store


class ExpressionValues(PointValues):
    """The values of an expression on the state of a simulation, at any time."""

    def __init__(self, simulation: SpectralSimulation, of: Any, where: str) -> None:
        self._simulation, self._of, self._where = simulation, of, where
        problem = simulation.problem
        self._quantity = quantity_of(of, problem, where)
        suffixes = component_names("", self._quantity.rank)
        if self._quantity.is_complex:
            suffixes = [f"{one}_{part}" for part in ("real", "imag") for one in suffixes]
        self.suffixes, self.dtype = tuple(suffixes), np.dtype(problem.real_dtype)
        self.long_name = accepted_names(problem).get(str(of), self._quantity.text)

    @cached_property
    def _evaluation(self) -> Evaluation:
        return Evaluation(self._simulation.flow, self._of, self._where)

    def each_chunk(self, take: Take, components: slice) -> None:
        time = self._simulation.time
        if not self._quantity.is_complex:
            self._evaluation.each_chunk(take, time, components=components)
            return
        module = self._simulation.device.array_module

        def take_parts(values: Array, plane: int) -> None:
            take(module.concatenate([values.real, values.imag])[components], plane)

        self._evaluation.each_chunk(take_parts, time)

    def reduce(self, how: str) -> np.ndarray:
        simulation = self._simulation
        found = self._evaluation.reduce(how, simulation.comm, simulation.time)
        parts = np.ravel(found)
        if not self._quantity.is_complex:
            return parts
        # A root mean square is real.
        return np.concatenate([parts.real, parts.imag if how == "mean" else np.zeros(parts.size)])


def evaluate(flow: SpectralStep, expression: str | Quantity | float, time: float = 0.0) -> Array:
    """Return the values of an expression at this rank's points; see `Evaluation.at_points`."""
    return Evaluation(flow, expression).at_points(time)


def reduce(
    flow: SpectralStep,
    expression: str | Quantity | float,
    how: str,
    comm: Comm = None,
    time: float = 0.0,
) -> Any:
    """Return "mean", "max", "min" or "rms" of an expression; see `Evaluation.reduce`."""
    return Evaluation(flow, expression).reduce(how, comm, time)


def spectrum(
    flow: SpectralStep,
    expression: str | Quantity | float,
    comm: Comm = None,
    time: float = 0.0,
) -> np.ndarray:
    """Return the energy spectrum of an expression; see `Evaluation.spectrum`."""
    return Evaluation(flow, expression).spectrum(comm, time)


def cospectrum(
    flow: SpectralStep,
    first: str | Quantity,
    second: str | Quantity,
    comm: Comm = None,
    time: float = 0.0,
) -> np.ndarray:
    """Return the co-spectrum of two expressions of the same kind; see `Evaluation.cospectrum`."""
    return Evaluation(flow, first).cospectrum(Evaluation(flow, second), comm, time)
