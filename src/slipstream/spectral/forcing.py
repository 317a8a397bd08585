"""Forcing: what drives fields, mode by mode, and how strongly at a time.

A force is a function of x and t, or random: then a new pattern is drawn every correlation time, and
in between the force is interpolated linearly. Random patterns come from hashes of the wavenumber,
so they depend on the seed and the time alone, not on the number of ranks or on whether a run was
interrupted. With a given rate of injection the strength follows in every step from the work that is
to be done. The sources of a model's own equations are forces too, with the strength that is
written.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy

from slipstream.array_types import Array, Comm
from slipstream.case.spectral_case import Forcing as ForcingTable
from slipstream.collective import sum_over_ranks
from slipstream.equations import Lowered
from slipstream.equations.code_generation import array_function
from slipstream.equations.fourier_forms import TIME
from slipstream.errors import InputError
from slipstream.spectral.fields_at_points import set_points
from slipstream.spectral.force_patterns import ForcePattern, patterns_of
from slipstream.spectral.formula_checks import (
    A_TIME,
    check_periodic,
    check_resolution,
    check_resolved,
)
from slipstream.spectral.formula_parser import parsed_components
from slipstream.spectral.initial_conditions.initial_flows import abc, taylor_green
from slipstream.spectral.kept_modes import unit_wavenumbers
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.runge_kutta_tableaux import RungeKutta
from slipstream.spectral.spectral_operators import keep_sphere, make_solenoidal, remove_gradients
from slipstream.spectral.spectral_problem import FieldParts, SpectralProblem, field_of_name


@dataclass(frozen=True)
class ForcingKind:
    """A ``forcing.kind``: its formulas, or none if it is drawn mode by mode."""

    # Of x, y, z and t, from the case's table and 2 pi over the lengths of the box along x, y and z.
    formulas: Callable[[ForcingTable, list[float]], Any] | None
    is_for_scalars: bool = False
    # Whether it has `wavenumber` waves along each axis, which the grid must hold.
    has_waves: bool = False


# By the name in a case; a line for people on each is in `slipstream.accepted`.
FORCINGS = {
    "random": ForcingKind(None),
    "taylor-green": ForcingKind(
        lambda settings, waves: taylor_green(settings.amplitude, settings.wavenumber, waves),
        has_waves=True,
    ),
    "abc": ForcingKind(
        lambda settings, waves: abc(
            settings.amplitude, settings.wavenumber, settings.coefficients, waves
        ),
        has_waves=True,
    ),
    "formula": ForcingKind(lambda settings, waves: settings.formula, is_for_scalars=True),
}


def check_forcing(
    settings: ForcingTable | None,
    problem: SpectralProblem,
    forces: Sequence[ForcePattern],
    sources: Sequence[ForcePattern],
) -> list[str]:
    """Refuse forces that the grid cannot hold; return warnings of what it loses of others."""
    if settings is not None and FORCINGS[settings.kind].has_waves:
        check_resolution(problem, settings.wavenumber, settings.kind, "forcing")
    keyed = [(pattern, "equation.model") for pattern in sources]
    if settings is not None and settings.kind == "formula":
        keyed += [(pattern, "forcing.formula") for pattern in forces]
    found: list[str] = []
    for pattern, key in keyed:
        for shape in pattern.shapes or ():
            found += check_resolved(shape, problem, key)
    return list(dict.fromkeys(found))


def forces_of(
    settings: ForcingTable | None,
    fields: Sequence[FieldParts],
    model: Lowered,
    lengths: tuple[float, float, float],
    method: RungeKutta,
) -> list[ForcePattern]:
    """Return what the case's table of forcing asks for, in a box of lengths (Lz, Ly, Lx)."""
    if settings is None:
        return []
    field, kind = _forced_field(settings, fields, model), FORCINGS[settings.kind]
    components = tuple(range(field.first, field.first + field.size))
    if kind.formulas is None:
        return [ForcePattern(components, None, is_solenoidal=field.first in model.vectors)]
    key = f"forcing.{settings.kind}"
    formulas = kind.formulas(settings, unit_wavenumbers(lengths))
    expressions = [sympy.Integer(0)] * len(model.components)
    for component, expression in zip(
        components, parsed_components(formulas, field, key, has_time=True), strict=True
    ):
        check_periodic(expression, lengths, f"{key}.{field.name}")
        expressions[component] = expression
    if settings.injection is not None and any(one.has(TIME) for one in expressions):
        raise InputError(
            "forcing.injection: the strength cannot follow from a rate where the formula has t; "
            "leave out one of them"
        )
    return patterns_of(expressions, [components], model.vectors, method)


def _forced_field(
    settings: ForcingTable, fields: Sequence[FieldParts], model: Lowered
) -> FieldParts:
    field = field_of_name(fields, settings.field, "forcing.field")
    of_plane = [first for first, _ in model.plane_vectors.values()]
    is_of_plane = settings.kind == "random" and field.first in of_plane
    if not (FORCINGS[settings.kind].is_for_scalars or field.is_vector or is_of_plane):
        accepted = ", ".join(name for name, one in FORCINGS.items() if one.is_for_scalars)
        raise InputError(
            f"forcing.kind: {settings.kind!r} is for vectors, {field.name!r} is a scalar; "
            f"accepted for it: {accepted}"
        )
    return field


@dataclass(frozen=True)
class HeldForce:
    """A force as the last step held it: set at a time, times a gain, with its power then."""

    time: float
    gain: float
    power: float


class Forcing:
    """The forcing of a run. Collective."""

    def __init__(
        self,
        settings: ForcingTable | None,
        flow: SpectralStep,
        comm: Comm,
        forces: Sequence[ForcePattern],
        sources: Sequence[ForcePattern],
    ) -> None:
        self._flow = flow
        self._injection = settings.injection if settings else None
        self.power = 0.0  # work of all forces per time, as of the last `measure`
        self.held: HeldForce | None = None
        places, start = [], 0
        for pattern in (*forces, *sources):
            places.append(slice(start, start + len(pattern.components)))
            start = places[-1].stop
        self._patterns = list(zip((*forces, *sources), places, strict=True))
        self._factors = [array_function([TIME], pattern.factor) for pattern, _ in self._patterns]
        self._random = [
            _RandomForce(settings, flow, place)
            for pattern, place in self._patterns
            if settings is not None and pattern.shapes is None
        ]
        for pattern, place in self._patterns:
            if pattern.shapes is not None and pattern.node is None:
                self._evaluate(pattern, place, 0.0)
        # Of the equations' own sources a gradient part may be taken away without a word.
        is_written = settings is not None and settings.kind == "formula"
        self.warnings = self._project(forces if is_written else (), comm)
        self._update(0.0, 0.0)
        self._slots = sum(len(pattern.components) for pattern in forces)
        entries = list(zip(self._patterns, self._factors, strict=True))
        parts = entries[: len(forces)], entries[len(forces) :]
        self._forces, self._sources = (_Work(flow, comm, part) for part in parts)

    def _project(self, forces: Sequence[ForcePattern], comm: Comm) -> list[str]:
        """Return warnings of what the projection takes from formulas in the case. Collective."""
        targets = []
        for pattern, place in self._patterns[: len(forces)]:
            if pattern.is_solenoidal:
                targets.append(self._flow.forcing[place])
                self._set(pattern, targets[-1], A_TIME)
        found = remove_gradients(self._flow, targets, "forcing.formula", comm)
        for target in targets:
            keep_sphere(self._flow, target)
        return found

    def _set(self, pattern: ForcePattern, target: Array, time: float) -> None:
        functions = [functools.partial(one, time=time) for one in pattern.functions]
        set_points(self._flow, target, functions)

    def _evaluate(self, pattern: ForcePattern, place: slice, time: float) -> None:
        """Set a pattern to its functions of the points."""
        target = self._flow.forcing[place]
        self._set(pattern, target, time)
        if pattern.is_solenoidal:
            make_solenoidal(self._flow, target)
        keep_sphere(self._flow, target)

    def prepare(self, time: float, step: float) -> np.ndarray:
        """Set the forces of a step; return factors (substages, patterns). Collective.

        A force a f that acts for a time h on a velocity u does work a h <f.u> + a^2 h^2 <f.f> / 2.
        Of the two strengths for which that is what was asked for, the smaller is taken: a force
        that has hardly any power for the moment does not become huge.
        """
        self._update(time, step)
        method = self._flow.problem.method
        factors = np.zeros((method.substages, len(self._flow.problem.forced)))
        for row, node in zip(factors, method.nodes, strict=True):
            for (pattern, place), factor in zip(self._patterns, self._factors, strict=True):
                if pattern.node in (None, node):
                    row[place] = factor(time + step * node / method.divisions)
        if self._injection is not None:
            gain, power = self._gain(self._injection, time, step)
            factors[:, : self._slots] *= gain
            self.held = HeldForce(time, gain, gain * power)
        return factors

    def measure(self, time: float) -> None:
        """Set `power` to that at a time. Collective.

        A force whose strength follows from its power is held over a step, in which the flow
        changes: its power is what it has done in the step that ended at this time.
        """
        if self.held is None or self._injection is None:
            self._update(time, 0.0)
            own = self._forces.products(time)[0]
            if self._injection is not None:
                own = self._injection if own else 0.0
        else:
            self._update(self.held.time, 0.0)
            own = (self.held.power + self.held.gain * self._forces.products(time)[0]) / 2
            self._update(time, 0.0)
        self.power = own + self._sources.products(time)[0]

    def _gain(self, injection: float, time: float, step: float) -> tuple[float, float]:
        """Return a factor of the forces for the injection asked for, and their power without."""
        power, square = self._forces.products(time)
        root = math.sqrt(power * power + 2 * injection * step * square)
        together = power + math.copysign(root, power)
        if not together:  # the flow does not move along the force, and no time is given
            return 1.0, power
        return 2 * injection / together, power

    def _update(self, time: float, step: float) -> None:
        """Set the patterns that change with time."""
        for force in self._random:
            force.set(time)
        divisions = self._flow.problem.method.divisions
        for pattern, place in self._patterns:
            if pattern.node == 0 or (pattern.node and step):
                self._evaluate(pattern, place, time + step * pattern.node / divisions)


class _RandomForce:
    """Random modes in some of a step's forces, drawn anew every correlation time."""

    def __init__(self, settings: ForcingTable, flow: SpectralStep, place: slice) -> None:
        self._settings, self._flow, self._target = settings, flow, flow.forcing[place]
        # Of a scalar in a plane, the vector whose force is drawn.
        vectors = flow.problem.model.plane_vectors.items()
        forced = flow.problem.forced[place][0]
        self._vector = next((name for name, (first, _) in vectors if first == forced), None)
        # The modes that are drawn, as indices that broadcast, and those of each number of times.
        self._places, first = self._draw(0)
        self._drawn = {0: first}
        self._is_set = False

    def set(self, time: float) -> None:
        """Set the force to that of a time: interpolated linearly between two patterns."""
        duration = self._settings.correlation_time
        if self._is_set and not duration:
            return
        number = math.floor(time / duration) if duration else 0
        part = time / duration - number if duration else 0.0
        needed = {number, number + 1} if duration else {number}
        self._drawn = {n: self._drawn[n] if n in self._drawn else self._draw(n)[1] for n in needed}
        values = self._drawn[number]
        if part:
            values = (1 - part) * values + part * self._drawn[number + 1]
        self._flow.modes_of(self._target)[(slice(None), *self._places)] = values
        keep_sphere(self._flow, self._target)
        self._is_set = True

    def _draw(self, number: int) -> tuple[tuple[Array, ...], Array]:
        """Return where a pattern has modes, and these."""
        from slipstream.spectral.initial_conditions.random_field import random_modes

        settings, device = self._settings, self._flow.device
        places, modes = random_modes(
            self._flow.wavenumbers, settings.shells, settings.amplitude, settings.seed, number
        )
        if self._vector is not None:
            waves = self._flow.wavenumbers
            axes = waves.z[places[0]], waves.y[places[1]], waves.x[places[2]]
            modes = self._flow.problem.scalar_of_vector(self._vector, np.array(modes), axes)[None]
        values = device.array(modes.astype(self._flow.problem.complex_dtype))
        return tuple(device.array(place) for place in places), values


class _Work:
    """Sums over modes of forces times fields, where the forces have modes."""

    def __init__(
        self,
        flow: SpectralStep,
        comm: Comm,
        patterns: Sequence[tuple[tuple[ForcePattern, slice], Callable[[float], float]]],
    ) -> None:
        self._flow, self._comm, self._patterns = flow, comm, patterns
        device = flow.device
        moves = any(pattern.node is not None for (pattern, _), _ in patterns)
        shape = flow.modes_of(flow.read_state()).shape[1:]
        strength = (np.ones if moves else np.zeros)(shape, flow.problem.real_dtype)
        for (_, place), _ in () if moves else patterns:
            for force in flow.modes_of(flow.forcing[place]):
                strength += abs(device.to_host(force))
        least = 1e-13 * strength.max(initial=0.0)
        others = [tuple({0, 1, 2} - {axis}) for axis in range(3)]
        places = [np.flatnonzero(strength.max(axis=o, initial=0.0) > least) for o in others]
        self._places = tuple(device.array(place) for place in np.ix_(*places))
        self._weight = device.array(flow.wavenumbers.multiplicity)[self._places[2]]

    def products(self, time: float) -> tuple[float, float]:
        """Return the means over the box of force times field, and of the force's square."""
        if not self._patterns:
            return 0.0, 0.0
        flow = self._flow
        forces: dict[int, Array] = {}
        flow.device.synchronize()
        for (pattern, place), factor in self._patterns:
            if pattern.node:  # that of a later substage
                continue
            own = flow.modes_of(flow.forcing[place])
            for component, force in zip(pattern.components, own, strict=True):
                forces[component] = forces.get(component, 0) + factor(time) * force[self._places]
        state, sums = flow.modes_of(flow.read_state()), np.zeros(2)
        for component, force in forces.items():
            for number, other in enumerate((state[component][self._places], force)):
                both = self._weight * (force.real * other.real + force.imag * other.imag)
                sums[number] += float(both.sum())
        power, square = sum_over_ranks(self._comm, sums)
        return float(power), float(square)
