"""Small tables that the kernels of a step read in addition to fields, on one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import sympy

from slipstream.engine import kernels
from slipstream.engine.device import Device
from slipstream.engine.errors import InputError
from slipstream.engine.fft import PencilGeometry, PointProduct, SlabGeometry
from slipstream.engine.fft.slab_engine import NO_SIGNS, Signs
from slipstream.equations import Lowered, code_generation, parameter
from slipstream.equations.code_generation import array_function, is_separable, wave_function
from slipstream.equations.fewest_transforms import wavevectors
from slipstream.equations.fourier_forms import (
    SQUARE,
    WAVENUMBERS,
    component_names,
    filters_in,
    has_waves,
    with_numbers,
)
from slipstream.equations.lowering import MeanPart
from slipstream.equations.walls import Mirror, check_signs, signs_of_inputs, signs_of_products
from slipstream.spectral.kept_modes import Dealiasing, Wavenumbers, periods
from slipstream.spectral.runge_kutta_tableaux import Propagator, RungeKutta

# Simulations of a process often have the same equations, which SymPy compiles slowly.
REMEMBERED = 256


@lru_cache(REMEMBERED)
def _drives(rate: sympy.Expr) -> bool:
    """Whether a decay rate, a function of the wavenumbers, drives some modes."""
    if filters_in(rate):
        function = wave_function(rate)
        return any(function(*k) < 0 for k in wavevectors(16))
    terms = sympy.Poly(rate, *WAVENUMBERS).terms()
    return any(factor < 0 or any(n % 2 for n in orders) for orders, factor in terms)


@dataclass(frozen=True)
class HeldShells:
    """A field's shells of wavenumbers, from `low` to `high`, that keep their energy."""

    first: int  # the field's components
    size: int
    low: int
    high: int

    @property
    def count(self) -> int:
        """The number of shells."""
        return self.high - self.low + 1


@dataclass(frozen=True)
class SpectralProblem:
    """The equations, grid and settings for which a step is recorded."""

    geometry: SlabGeometry | PencilGeometry
    lengths: tuple[float, float, float]  # (Lz, Ly, Lx), non-dimensional
    model: Lowered
    parameters: dict[str, float] = field(hash=False)  # at least as many fields as the model has
    method: RungeKutta
    integrating_factor: bool  # whether decay is integrated exactly
    real_dtype: np.dtype
    dealiasing: Dealiasing
    propagates: bool = False  # whether all linear terms are integrated exactly integrated exactly
    forced: tuple[int, ...] = ()  # the component that each pattern of force drives
    wire: str | None = None  # the precision of exchanged data, if reduced
    # The model without the linear terms that forces of the case add, if they add any.
    written: Lowered | None = None
    # Whether forces depend on each stage, so that a step is run substage by substage.
    is_staged: bool = False
    held: tuple[HeldShells, ...] = ()
    # The inputs whose values at points the first product of a step stores, for particles.
    stored: tuple[int, ...] = ()
    # Which fields are even and which odd across walls, if there are walls.
    mirror: Mirror | None = None

    @cached_property
    def signs(self) -> tuple[int, ...]:
        """The signs of the components between walls; empty without walls."""
        return self.mirror.signs if self.mirror else ()

    def signs_of_plane(self, scalar: int) -> tuple[int, ...]:
        """Return the signs of a plane vector whose rotation is a component."""
        if self.mirror is None:
            return ()
        own = self.signs[scalar]
        return -own, -own, own

    @cached_property
    def step_signs(self) -> Signs:
        """The signs of the fields that a step transforms to physical space, and of the products."""
        if self.mirror is None:
            return NO_SIGNS
        inputs = signs_of_inputs(self.model, self.mirror)
        return Signs(inputs, signs_of_products(self.model, self.mirror))

    def check_signs(self) -> None:
        """Refuse equations whose products are neither even nor odd across walls."""
        self.signs_of(self.model.inputs)
        check_signs(self.model.products, self.step_signs.arriving)

    def signs_of(self, inputs: Sequence[sympy.Expr]) -> list[int]:
        """Return the signs of sums of values; none without walls."""
        if self.mirror is None:
            return []
        signs = [self.mirror.of_points(one) for one in inputs]
        check_signs(inputs, signs)
        return signs

    @cached_property
    def periods(self) -> tuple[float, float, float]:
        """The periods of fields along z, y and x."""
        z, y, x = periods(self.lengths, self.geometry.modes)
        return z, y, x

    @property
    def complex_dtype(self) -> np.dtype:
        """The dtype of spectral arrays."""
        return np.result_type(self.real_dtype, np.complex64)

    @property
    def size(self) -> int:
        """Number of components of the state."""
        return len(self.model.components)

    @property
    def transformed(self) -> int:
        """Largest number of fields that are transformed together."""
        return max(len(self.model.inputs), len(self.model.products), self.stage_size)

    @property
    def stage_size(self) -> int:
        """Number of fields of the stage, which diagnostics use between steps."""
        parts = (len(part.inputs) for parts in self.model.means.values() for part in parts)
        return max(self.size, *parts, 0)

    @cached_property
    def is_sheared(self) -> bool:
        """Whether a mean shear tilts the frame of the modes."""
        return bool(self.model.shear != 0)

    @property
    def shear(self) -> float:
        """The rate S of the mean flow S y along x."""
        return float(self.model.shear.subs(self.values))

    @property
    def has_inputs(self) -> bool:
        """Whether the fields to transform to physical space are stored in addition to the state."""
        return self.dealiasing.is_shifted or not self.model.inputs_are_state

    @cached_property
    def shifts(self) -> list[float]:
        """The distinct shifts of grids, in spacings: the first is a half, as statistics need."""
        return list(dict.fromkeys([1 / 2, *filter(None, self.dealiasing.shifts(self.method))]))

    def grid_of(self, substage: int, is_odd: bool) -> int:
        """Return the number of a substage's shifted grid in `shifts`; -1 for the grid itself.

        Odd steps take the grids of even ones in reverse: all are shifted by half a spacing more.
        """
        shifts = self.dealiasing.shifts(self.method)
        shift = shifts[-1 - substage] if is_odd else shifts[substage]
        return self.shifts.index(shift) if shift else -1

    @property
    def point_lines(self) -> list[np.ndarray]:
        """The coordinates of all points along z, y and x."""
        sizes = zip(self.geometry.modes, self.lengths, strict=True)
        return [L * (np.arange(m.size) + m.walls / 2) / m.size for m, L in sizes]

    @property
    def over_radii(self) -> list[float]:
        """One over the square of the largest wavenumber of the sphere along x, y and z."""
        points = tuple(modes.period for modes in self.geometry.modes)
        return self.dealiasing.over_radii(points, self.periods)

    @property
    def values(self) -> dict[sympy.Symbol, float]:
        """The parameters, by their symbols."""
        return {name: self.parameters[str(name)] for name in self.model.parameters}

    @property
    def fixed(self) -> dict[sympy.Symbol, float]:
        """The parameters that do not follow the state, by their symbols."""
        follows = self.model.follows
        return {name: value for name, value in self.values.items() if str(name) not in follows}

    @property
    def numbers(self) -> list[float]:
        """The parameters, in the model's order."""
        return [float(self.parameters[str(name)]) for name in self.model.parameters]

    @cached_property
    def decays(self) -> list[sympy.Expr]:
        """The distinct decay rates, as functions of the wavenumbers alone."""
        values = self.values
        return [with_numbers(rate, values) for rate in dict.fromkeys(self.model.decay)]

    @property
    def decay_functions(self) -> list[Callable[..., Any]]:
        """The distinct decay rates as numerical functions of kx, ky and kz."""
        return [wave_function(rate) for rate in self.decays]

    def scalar_of_vector(
        self, name: str, vector: np.ndarray, waves: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Return the modes of the scalar that defines a plane vector, from the vector's modes.

        `waves` are the wavenumbers along z, y and x, which broadcast with the modes.
        """
        component, forms = self.model.plane_vectors[name]
        value, (kz, ky, kx) = self.model.components[component], waves
        factors = [
            with_numbers(form.terms.get(value, sympy.Integer(0)), self.values) for form in forms
        ]
        numbers = [wave_function(sympy.sympify(one))(kx, ky, kz) + 0 * kx for one in factors]
        square = sum(np.abs(one) ** 2 for one in numbers)
        along = sum(np.conj(one) * own for one, own in zip(numbers, vector, strict=True))
        result: np.ndarray = np.divide(along, square, out=np.zeros_like(along), where=square > 0)
        return result

    @cached_property
    def means(self) -> dict[str, list[tuple[MeanPart, Callable[..., Any]]]]:
        """The averages by name: parts, and their values as functions of arrays of points."""
        fixed, followed = self.fixed, [parameter(name) for name in self.model.follows]
        return {
            name: [
                (part, array_function((*part.symbols, *followed), part.expression.subs(fixed)))
                for part in parts
            ]
            for name, parts in self.model.means.items()
        }

    def follow(self, numbers: Mapping[str, float]) -> None:
        """Take other numbers of parameters that follow the state."""
        self.parameters.update(numbers)
        vars(self).pop("decays", None)

    @property
    def plain_model(self) -> Lowered:
        """The model of the equations alone, without forces of the case."""
        return self.written or self.model

    @property
    def viscosity(self) -> float | None:
        """The viscosity of the first vector, None if it is not damped as in a Newtonian fluid."""
        components = [value.component for value in self.model.unknowns]
        return self._viscosity_of(components.index(0)) if 0 in components else None

    @property
    def plane_viscosity(self) -> float | None:
        """The viscosity of the scalar that defines a velocity in the plane, if there is one."""
        found = self.model.plane_vectors.get("velocity")
        return None if found is None else self._viscosity_of(found[0])

    def _viscosity_of(self, component: int) -> float | None:
        viscosity = self.parameters.get("viscosity")
        if viscosity is None or self.model.losses or self.model.linear_follows:
            return None
        newtonian = self.model.flat.of_multiplier(viscosity * SQUARE)
        rate = with_numbers(self.plain_model.decay[component], self.values)
        return None if has_waves(sympy.expand(rate - newtonian)) else viscosity

    @property
    def uniform(self) -> list[float]:
        """The uniform source of each component."""
        return [float(sympy.sympify(one).subs(self.values)) for one in self.model.constant]

    @cached_property
    def has_driving(self) -> bool:
        """Whether linear terms of the equations drive some modes."""
        return any(self.drives_itself(c) for c in range(len(self.model.unknowns)))

    def drives_itself(self, component: int) -> bool:
        """Whether linear terms of its equation drive some modes of a component."""
        parts = self.plain_model.damping[component]
        return any(_drives(with_numbers(part, self.values)) for part in parts)

    @cached_property
    def is_separable(self) -> bool:
        """Whether decay is a product of factors along x, y and z."""
        return all(map(is_separable, dict.fromkeys(self.model.decay)))

    @property
    def decay_size(self) -> int:
        """Number of decay factors that are kept."""
        nz, ny, nx = self.geometry.spectral_box.shape
        return len(self.decays) * (nz + ny + nx if self.is_separable else nz * ny * nx)

    @property
    def has_factors_of_modes(self) -> bool:
        """Whether integrating factors are stored, one per mode; a sheared step computes them."""
        own = self.integrating_factor and not self.is_separable
        return own and not self.propagates and not self.is_sheared

    @cached_property
    def propagators(self) -> tuple[Propagator, ...]:
        """The functions of the linear terms that steps apply, if they integrate them exactly."""
        substages = range(self.method.substages) if self.propagates else ()
        every = [one for s in substages for one in self.method.propagators(s).all]
        return tuple(dict.fromkeys(every))

    @cached_property
    def coupled(self) -> tuple[tuple[int, int], ...]:
        """The pairs of components, row and column, coupled by functions of the linear terms."""
        return coupled_components(self.model) if self.propagates else ()

    def accesses(self, substage: int) -> tuple[set[str], set[str]]:
        """Return which spectral fields the update of a substage reads, and which it writes.

        The names are "state" (the start of the step, and its end), "stage", "total", "inputs",
        "forcing", "decay", "propagators" and "carried" (the start of a later stage).
        """
        method, last = self.method, substage + 1 == self.method.substages
        has_result = last or method.weights[substage] != 0
        reads_total = any(method.weights[:substage])
        needs_current = any(self.model.linear) or not self.integrating_factor or self.is_sheared
        if self.propagates:
            needs_current = False
        reads = {"state"} if not last or (has_result and not reads_total) else set()
        reads |= {"stage" if substage else "state"} if needs_current else set()
        reads |= {"total"} if reads_total else set()
        reads |= {"forcing"} if self.forced else set()
        reads |= {"decay"} if self.has_factors_of_modes else set()
        writes = {"stage"} if not last else set()
        writes |= {"state" if last else "total"} if has_result else set()
        writes |= {"inputs"} if not last and self.has_inputs and not self.held else set()
        if self.propagates:
            own = method.propagators(substage)
            reads |= {"propagators"} | ({"carried"} if own.begins_carried else set())
            writes |= {"carried"} if own.carry_rate else set()
        return reads, writes

    def steps_like(self, other: SpectralProblem) -> bool:
        """Whether the recorded step of another problem fits this one, up to parameters."""
        ours, theirs = (
            (problem.model, problem.forced, problem.is_staged, problem.held, problem.stored)
            for problem in (self, other)
        )
        return ours == theirs

    @property
    def lasting(self) -> set[str]:
        """The fields of `accesses` that are read after the update that writes them, or are kept."""
        substages = range(self.method.substages)
        staged = {"stage"} if self.is_staged else set()
        return {"state"} | staged.union(*(self.accesses(substage)[0] for substage in substages))


@lru_cache(REMEMBERED)
def coupled_components(model: Lowered) -> tuple[tuple[int, int], ...]:
    """Return the nonzero entries, row and column, of functions of the linear terms' matrix."""
    size = len(model.components)
    near = {component: {component, *row} for component, row in enumerate(model.linear)}
    for first in model.vectors:
        # The projection mixes the components of a vector, if linear terms need it.
        part = range(first, first + 3)
        if any(set(near[component]) - {component} for component in part):
            together = set().union(*(near[component] for component in part))
            near |= {component: together | set(part) for component in part}
    for _ in range(size):
        near = {
            component: set().union(*(near[other] for other in others))
            for component, others in near.items()
        }
    return tuple(
        (component, other) for component in range(size) for other in sorted(near[component])
    )


@dataclass(frozen=True)
class FieldParts:
    """The place of a field in the state: its first component, and their number."""

    name: str
    first: int
    size: int

    @property
    def is_vector(self) -> bool:
        """Whether it has three components."""
        return self.size == 3

    @property
    def components(self) -> list[str]:
        """The names of its components."""
        return component_names(self.name, int(self.is_vector))

    @property
    def is_magnetic(self) -> bool:
        """Whether it is a magnetic field, by its name."""
        return self.name == "magnetic" and self.is_vector


def field_parts(model: Lowered) -> list[FieldParts]:
    """Return the fields of a model's state."""
    names = [value.field for value in model.unknowns]
    return [FieldParts(name, names.index(name), names.count(name)) for name in dict.fromkeys(names)]


def velocity_of(model: Lowered) -> slice:
    """Return the components of the velocity: the field of that name, or the first vector."""
    vectors = [part for part in field_parts(model) if part.is_vector]
    velocities = [part for part in vectors if part.name == "velocity"] or vectors
    if not velocities:
        raise InputError("particles and bodies need a velocity, and the model has no vector")
    return slice(velocities[0].first, velocities[0].first + 3)


def inputs_of_velocity(model: Lowered) -> tuple[int, ...]:
    """Return the inputs of a model's product that are the velocity; none if one is missing."""
    values = model.components[velocity_of(model)]
    is_there = all(value in model.inputs for value in values)
    return tuple(model.inputs.index(value) for value in values) if is_there else ()


def field_of_name(fields: Sequence[FieldParts], name: str, key: str) -> FieldParts:
    """Return the field with the name that a key of the case gives."""
    for part in fields:
        if part.name == name:
            return part
    accepted = ", ".join(part.name for part in fields)
    raise InputError(f"{key}: the model has no field {name!r}; it has: {accepted}")


def key_of(name: str, tables: Sequence[Any], number: int) -> str:
    """Return the key of one of several tables in a case, as people count them."""
    return name if len(tables) == 1 else f"{name}[{number + 1}]"


def vectors_of(fields: list[FieldParts]) -> list[tuple[str, FieldParts]]:
    """Return vectors, and the prefix of their diagnostics' names, "" for the first."""
    vectors = [field for field in fields if field.is_vector]
    return [(f"{field.name}_" if number else "", field) for number, field in enumerate(vectors)]


class KernelTables:
    """The tables that the kernels of a step read, on one of its devices."""

    def __init__(
        self, problem: SpectralProblem, device: Device, waves: Wavenumbers, patterns: int
    ) -> None:
        geometry = problem.geometry
        self.device = device
        rows = max(1, geometry.planes * geometry.plane_points[0])
        # Results of a step: rates of crossing grid cells, by row of points, as ordered bits; and
        # not-a-number for each ky with a mode that is not finite at its end.
        self.found = device.zeros((rows + geometry.columns_shape[1],), np.int64)
        self.marks = self.found[rows:]
        self.product = product_of_model(
            problem.model,
            device.array(_product_numbers(problem), np.float64),
            self.found[:rows],
        )
        # Only the first substage measures the velocity, for the time step.
        self.unmeasured = replace(self.product, maxima=device.zeros((rows,), np.int64))
        self.parameters = device.array(_mode_numbers(problem), np.float64)
        # Factors that shift the grid, by each of the shifts in turn, along x, y and z.
        spacing = [length / n for n, length in zip(geometry.shape, problem.lengths, strict=True)]
        axes = waves.x * spacing[2], waves.y * spacing[1], waves.z * spacing[0]
        angles = [shift * axis for shift in problem.shifts for axis in axes]
        self.phases = device.array(np.exp(1j * np.concatenate(angles)), problem.complex_dtype)
        self.wavenumbers = device.array(waves.table(), problem.real_dtype)
        # The time step, the factors of the patterns of force, and those of shells that keep their
        # energy.
        factors = problem.method.substages * patterns
        held = sum(one.count for one in problem.held)
        self.step = device.zeros((1 + factors + held,), problem.real_dtype)
        self.held = self.step[1 + factors :]
        # The integrating factor along x, y and z, if it is separable.
        size = problem.decay_size if problem.is_separable else 0
        self.decay = device.zeros((size,), problem.real_dtype)

    def tilt(self, tilt: float) -> None:
        """Take the tilt of the frame."""
        self.device.synchronize()
        self.device.run(self.device.fill(self.wavenumbers[-1:], tilt))

    def restate(self, problem: SpectralProblem) -> None:
        """Take the parameters of another problem of the same model, for kernels to read."""
        device = self.device
        device.synchronize()
        device.run(device.copy(self.product.parameters, np.array(_product_numbers(problem))))
        device.run(device.copy(self.parameters, np.array(_mode_numbers(problem))))
        device.synchronize()


def _product_numbers(problem: SpectralProblem) -> list[float]:
    """Return the numbers that product kernels read: points per length, and the parameters."""
    # Along an axis of one point fields are uniform: no velocity along it matters.
    sizes = zip(problem.geometry.shape, problem.lengths, strict=True)
    per_spacing = [n / L if n > 1 else 0.0 for n, L in sizes]
    if problem.is_sheared:  # in a tilted frame motion along y crosses x too; take the largest tilt
        per_spacing[1] += problem.geometry.shape[2] / problem.lengths[1] / 2
    return [*per_spacing[::-1], *problem.numbers]


def _mode_numbers(problem: SpectralProblem) -> list[float]:
    """Return the numbers that kernels of modes read: the parameters, and the kept sphere."""
    return [*problem.numbers, *problem.over_radii]


def product_of_model(model: Lowered, parameters: Any = None, maxima: Any = None) -> PointProduct:
    """Return a model's product at the points; without arrays, only to compile it."""
    header = kernels.write(code_generation.product_header(model))
    return PointProduct(header, len(model.inputs), len(model.products), parameters, maxima)
