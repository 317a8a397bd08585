"""Forcing: what drives fields, mode by mode, and how strongly at a time.

A case has any number of forces, which add up. A force is a function of x and t, evaluated at the
time of every substage (`force_patterns.py`); random modes; the field times a rate, which is a
linear term of the equations; or it follows from the flow at every substage. Random modes and forces
that follow from the flow are in `staged_forces.py`. If the rate of injection is given, the strength
of the first two follows in every step from the work to be done. The sources of a model's own
equations are forces too, with the strength written there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slipstream.case.spectral_case import Forcing as ForcingTable
from slipstream.engine.array_types import Array, Comm
from slipstream.engine.collective import on_every_rank, sum_over_ranks
from slipstream.engine.errors import InputError
from slipstream.engine.fields import Field
from slipstream.equations import Lowered
from slipstream.equations.code_generation import array_function
from slipstream.equations.fourier_forms import TIME
from slipstream.files.checkpoint import Checkpoint
from slipstream.spectral.fields_at_points import set_points
from slipstream.spectral.force_patterns import ForcePattern, patterns_of, rate_name
from slipstream.spectral.formula_parser import (
    A_TIME,
    GivenFunction,
    check_mirrored,
    check_periodic,
    check_resolution,
    check_resolved,
    is_name,
    parsed_components,
)
from slipstream.spectral.initial_flows import abc, taylor_green
from slipstream.spectral.kept_modes import unit_wavenumbers
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.runge_kutta_tableaux import RungeKutta
from slipstream.spectral.spectral_problem import FieldParts, SpectralProblem, field_of_name, key_of
from slipstream.spectral.spectrum import keep_sphere, make_solenoidal, remove_gradients
from slipstream.spectral.staged_forces import (
    Band,
    ConstantEnergyForce,
    ConstantPowerForce,
    OrnsteinUhlenbeckForce,
    RandomForce,
)


@dataclass(frozen=True)
class ForcingKind:
    """A ``forcing.kind``: its formulas, or none if it has none."""

    # Of x, y, z and t, from the case's table and 2 pi over the lengths of the box along x, y and z.
    formulas: Callable[[ForcingTable, list[float]], Any] | None = None
    is_for_scalars: bool = True
    # Whether it has `wavenumber` waves along each axis, which the grid must hold.
    has_waves: bool = False
    # What draws its modes, if these are random.
    drawn: type[RandomForce] | None = None


# By the name in a case; a line for people on each is in `slipstream.engine.accepted`.
FORCINGS = {
    "random": ForcingKind(drawn=RandomForce),
    "ornstein-uhlenbeck": ForcingKind(drawn=OrnsteinUhlenbeckForce),
    "linear": ForcingKind(),
    "constant-energy": ForcingKind(),
    "taylor-green": ForcingKind(
        lambda settings, waves: taylor_green(settings.amplitude, settings.wavenumber, waves),
        is_for_scalars=False,
        has_waves=True,
    ),
    "abc": ForcingKind(
        lambda settings, waves: abc(
            settings.amplitude, settings.wavenumber, settings.coefficients, waves
        ),
        is_for_scalars=False,
        has_waves=True,
    ),
    "formula": ForcingKind(lambda settings, waves: settings.formula),
    # Kept at the end of every step, with the bodies: `bodies.py`.
    "mean-flow": ForcingKind(is_for_scalars=False),
}

Tables = Sequence[ForcingTable]


def check_forcing(
    tables: Tables,
    problem: SpectralProblem,
    forces: Sequence[ForcePattern],
    sources: Sequence[ForcePattern],
) -> list[str]:
    """Refuse forces that the grid cannot hold; return warnings of what it loses of others."""
    for number, settings in enumerate(tables):
        if FORCINGS[settings.kind].has_waves:
            what = settings.wavenumber, settings.kind, key_of("forcing", tables, number)
            check_resolution(problem, *what)
    keyed = [(pattern, "equation.model") for pattern in sources]
    keyed += [
        (pattern, f"{key_of('forcing', tables, pattern.table)}.formula")
        for pattern in forces
        if tables[pattern.table].kind == "formula"
    ]
    warnings: list[str] = []
    for pattern, key in keyed:
        for component, shape in zip(pattern.components, pattern.shapes or (), strict=False):
            warnings += check_resolved(shape, problem, key)
            check_mirrored(shape, problem, component, key)
    _check_held(tables, problem)
    return list(dict.fromkeys(warnings))


def _check_held(tables: Tables, problem: SpectralProblem) -> None:
    """Refuse shells of constant energy with forces that break the order of the method."""
    held = iter(problem.held)
    numbers = [n for n, settings in enumerate(tables) if settings.kind == "constant-energy"]
    keys: dict[tuple[int, int], str] = {}
    for number, shells in zip(numbers, held, strict=True):
        key = key_of("forcing", tables, number)
        if problem.dealiasing.is_shifted:
            raise InputError(
                f"{key}.kind: 'constant-energy' with numerics.dealiasing = 'phase-shift'; accepted"
                " with it: 2/3, 2/3 sphere, 1/2, none"
            )
        if problem.method.is_implicit:
            raise InputError(
                f"{key}.kind: 'constant-energy' with time.integrator = {problem.method.name!r},"
                " which is exact for no linear terms; accepted with it: the others"
            )
        own = set(range(shells.first, shells.first + shells.size))
        if any((row in own) != (column in own) for row, column in problem.coupled):
            raise InputError(
                f"{key}.kind: 'constant-energy' of a field that linear terms couple with another"
                " one; accepted with it: numerics.linear = 'decay', and no integrator etdrk2 or"
                " etdrk4"
            )
        for shell in range(shells.low, shells.high + 1):
            other = keys.setdefault((shells.first, shell), key)
            if other != key:
                raise InputError(
                    f"{key}.shells: shell {shell} keeps its energy already by {other}; accepted:"
                    " other shells"
                )


def forces_of(
    tables: Tables,
    fields: Sequence[FieldParts],
    model: Lowered,
    lengths: tuple[float, float, float],
    method: RungeKutta,
) -> list[ForcePattern]:
    """Return the forces in the case's tables of forcing, for a box of lengths (Lz, Ly, Lx)."""
    patterns: list[ForcePattern] = []
    for number, field in enumerate(forced_fields(tables, fields, model)):
        key = key_of("forcing", tables, number)
        patterns += _patterns_of_table(number, tables[number], key, field, model, lengths, method)
    return patterns


def _patterns_of_table(
    number: int,
    settings: ForcingTable,
    key: str,
    field: FieldParts,
    model: Lowered,
    lengths: tuple[float, float, float],
    method: RungeKutta,
) -> list[ForcePattern]:
    kind = FORCINGS[settings.kind]
    components = tuple(range(field.first, field.first + field.size))
    if settings.kind in ("constant-energy", "mean-flow") or settings.rate is not None:
        return []
    pattern = ForcePattern(
        components, None, is_solenoidal=field.first in model.vectors, table=number
    )
    if kind.formulas is None:
        if isinstance(settings.injection, tuple) and len(settings.injection) != field.size:
            raise InputError(
                f"{key}.injection: {len(settings.injection)} numbers for {field.name!r}; accepted:"
                f" {field.size}, or one"
            )
        return [pattern]
    if is_name(settings.formula):
        what = "function"
        dropped = [number for number, one in enumerate(components) if one in model.dropped]
        function = GivenFunction(str(settings.formula), f"{key}.formula", field.size, dropped)
        has_time = function.has_time
        # A force that depends on time is evaluated at each of the integrator's nodes.
        nodes: list[float | None] = [*sorted(set(method.nodes))] if has_time else [None]
        patterns = [replace(pattern, given=function, node=node) for node in nodes]
    else:
        what, of_kind = "formula", f"{key}.{settings.kind}"
        formulas = kind.formulas(settings, unit_wavenumbers(lengths))
        parsed = parsed_components(formulas, field, of_kind, has_time=True)
        for expression in parsed:
            check_periodic(expression, lengths, f"{of_kind}.{field.name}")
        has_time = any(expression.has(TIME) for expression in parsed)
        expressions = dict(zip(components, parsed, strict=True))
        patterns = patterns_of(expressions, [components], model.vectors, method, number)
    if settings.injection is not None and has_time:
        raise InputError(
            f"{key}.injection: the strength cannot follow from a rate where the {what} has t; "
            "leave out one of them"
        )
    return patterns


def forced_fields(tables: Tables, fields: Sequence[FieldParts], model: Lowered) -> list[FieldParts]:
    """Return the field that each table drives."""
    driven = []
    for number, settings in enumerate(tables):
        key = key_of("forcing", tables, number)
        field = field_of_name(fields, settings.field, f"{key}.field")
        if not (FORCINGS[settings.kind].is_for_scalars or field.is_vector):
            accepted = ", ".join(name for name, one in FORCINGS.items() if one.is_for_scalars)
            raise InputError(
                f"{key}.kind: {settings.kind!r} is for vectors, {field.name!r} is a scalar; "
                f"accepted for it: {accepted}"
            )
        driven.append(field)
    return driven


def is_staged(settings: ForcingTable) -> bool:
    """Whether a force follows from the flow at every substage."""
    is_linear = settings.kind == "linear" and settings.injection is not None
    return is_linear or settings.kind == "constant-energy"


def is_stepped(settings: ForcingTable) -> bool:
    """Whether a force changes from step to step, not with the flow and the time alone.

    It is random, or its strength follows from what it is to do.
    """
    if settings.kind == "random":
        return settings.injection is not None or settings.correlation_time > 0
    follows = settings.injection is not None and settings.kind != "linear"
    return follows or settings.kind in ("ornstein-uhlenbeck", "constant-energy", "mean-flow")


@dataclass(frozen=True)
class HeldForce:
    """A force as a step holds it: set at a time, times a gain, with its power then."""

    time: float
    gain: float
    power: float


class Forcing:
    """The forcing of a run: all its forces, and the sources of the model. Collective."""

    def __init__(
        self,
        tables: Tables,
        flow: SpectralStep,
        comm: Comm,
        forces: Sequence[ForcePattern],
        sources: Sequence[ForcePattern],
    ) -> None:
        self._flow, self._tables = flow, tables
        # Work per time of each table's force and, with None, of sources, as of the last `measure`.
        self.powers: dict[int | None, float] = {}
        # By table, for forces that are held over the step: what it holds, and the mean power in the
        # last one.
        self._held: dict[int, HeldForce] = {}
        self._mean_powers: dict[int, float] = {}
        places, start = [], 0
        for pattern in (*forces, *sources):
            places.append(slice(start, start + len(pattern.components)))
            start = places[-1].stop
        self._patterns = list(zip((*forces, *sources), places, strict=True))
        self._factors = [array_function([TIME], pattern.factor) for pattern, _ in self._patterns]
        self._make_tables(forces, comm)
        on_every_rank(comm, self._try_functions)
        for pattern, place in self._patterns:
            if pattern.is_function and pattern.node is None:
                self._evaluate(pattern, place, 0.0)
        self.warnings = self._project(comm)
        for process in self._processes.values():
            process.begin(0)
        self._update(0.0, 0.0)
        entries = list(zip(self._patterns, self._factors, strict=True))
        own = entries[: len(forces)]
        self._works = {
            number: _Work(flow, comm, [one for one in own if one[0][0].table == number])
            for number in dict.fromkeys(pattern.table for pattern in forces)
            if number not in self._powered
        }
        self._sources = _Work(flow, comm, entries[len(forces) :])

    def _make_tables(self, forces: Sequence[ForcePattern], comm: Comm) -> None:
        """Make what sets the forces of each table, unless formulas do. Collective."""
        flow, tables = self._flow, self._tables
        self._random: dict[int, RandomForce] = {}
        self._powered: dict[int, ConstantPowerForce] = {}
        for pattern, target in self._patterns[: len(forces)]:
            settings, key = tables[pattern.table], key_of("forcing", tables, pattern.table)
            drawn = FORCINGS[settings.kind].drawn
            if drawn is not None:
                self._random[pattern.table] = drawn(settings, pattern.table, key, flow, target)
            elif settings.kind == "linear":
                removes = pattern.is_solenoidal
                powered = ConstantPowerForce(settings, key, flow, target, comm, removes)
                self._powered[pattern.table] = powered
        self._processes = {
            number: force
            for number, force in self._random.items()
            if isinstance(force, OrnsteinUhlenbeckForce)
        }
        numbers = [n for n, one in enumerate(tables) if one.kind == "constant-energy"]
        self._energetic = {
            number: ConstantEnergyForce(
                tables[number], key_of("forcing", tables, number), held, flow, comm
            )
            for number, held in zip(numbers, flow.problem.held, strict=True)
        }

    def _try_functions(self) -> None:
        """Refuse functions of Python programs that do not give numbers. Does not communicate."""
        device = self._flow.device
        z, y, x = (device.array(axis[:1]) for axis in self._flow.problem.point_lines)
        for pattern, _ in self._patterns:
            for function in pattern.functions if pattern.given is not None else ():
                function(x[None, None, :], y[None, :, None], z[:, None, None], device.array_module)

    def _project(self, comm: Comm) -> list[str]:
        """Return warnings of what the projection takes from formulas in the case. Collective."""
        # Of the equations' own sources a gradient part may be taken away without a word.
        warnings: list[str] = []
        for number, settings in enumerate(self._tables):
            targets = []
            for pattern, part in self._patterns if settings.kind == "formula" else ():
                if pattern.table == number and pattern.is_solenoidal:
                    targets.append(self._flow.forcing[part])
                    self._set(pattern, targets[-1], A_TIME)
            key = f"{key_of('forcing', self._tables, number)}.formula"
            warnings += remove_gradients(self._flow, targets, key, comm)
            for target in targets:
                keep_sphere(self._flow, target)
        return warnings

    def _set(self, pattern: ForcePattern, target: Array, time: float) -> None:
        functions = [functools.partial(one, time=time) for one in pattern.functions]
        signs = self._flow.problem.signs
        own = [signs[one] for one in pattern.components] if signs else []
        set_points(self._flow, target, functions, own)

    def _evaluate(self, pattern: ForcePattern, part: slice, time: float) -> None:
        """Set a pattern to its functions of the points."""
        target = self._flow.forcing[part]
        self._set(pattern, target, time)
        if pattern.is_solenoidal:
            make_solenoidal(self._flow, target)
        keep_sphere(self._flow, target)

    # -- a step ------------------------------------------------------------------------------

    def prepare(self, time: float, step: float) -> np.ndarray:
        """Set the forces for the next step; return factors (substages, patterns). Collective.

        A force a f that acts for a time h on a velocity u does work a h <f.u> + a^2 h^2 <f.f> / 2.
        Two strengths do the requested work; the smaller is taken, so that a force with hardly any
        power does not become huge.
        """
        self._update(time, step)
        method = self._flow.problem.method
        factors = np.zeros((method.substages, len(self._flow.problem.forced)))
        for row, node in zip(factors, method.nodes, strict=True):
            for (pattern, part), factor in zip(self._patterns, self._factors, strict=True):
                if pattern.node in (None, node):
                    row[part] = factor(time + step * node / method.divisions)
        for number in self._held_tables:
            injection = self._tables[number].power
            if injection is None:
                gain, power = 1.0, self._works[number].products(time)[0]
            else:
                gain, power = self._gain(number, injection, time, step)
                for pattern, part in self._patterns:
                    if pattern.table == number:
                        factors[:, part] *= gain
            self._held[number] = HeldForce(time, gain, gain * power)
        return factors

    @property
    def _held_tables(self) -> list[int]:
        """The numbers of tables whose forces are constant within steps, and change from each on."""
        return [
            number
            for number, settings in enumerate(self._tables)
            if is_stepped(settings) and number in self._works
        ]

    def before(self, substage: int) -> None:
        """Set the forces that follow from what a substage begins with. Collective."""
        flow = self._flow
        stage, factors = flow.read_stage(substage), []
        for energetic in self._energetic.values():
            factors.append(energetic.rescale(stage) if substage else energetic.begin())
        if factors:
            flow.set_held(np.concatenate(factors))
        for powered in self._powered.values():
            powered.set(stage)

    def after(self, step: int, step_size: float) -> dict[int, float]:
        """Continue to the end of the step of this number; return its works. Collective.

        They are by table, of forces that are not functions of the flow and the time alone.
        """
        for energetic in self._energetic.values():
            energetic.end(step_size)
        self._mean_powers = {
            number: (held.power + held.gain * self._works[number].products(held.time)[0]) / 2
            for number, held in self._held.items()
        }
        for process in self._processes.values():
            process.advance(step, step_size)
        return {number: power * step_size for number, power in self._powers_of_step().items()}

    def _powers_of_step(self) -> dict[int, float]:
        """Return the mean powers in the last step, if there was one, of the forces of `after`."""
        powers = {number: energetic.power for number, energetic in self._energetic.items()}
        return {**self._mean_powers, **powers}

    def new_warnings(self) -> list[str]:
        """Return the findings of forces, each once."""
        forces: list[Any] = [*self._energetic.values(), *self._powered.values()]
        warnings = []
        for force in forces:
            # What was said once stays in the list of the force, as None says nothing again.
            warnings += [text for text in force.warnings if text]
            force.warnings = [""] * bool(force.warnings)
        return warnings

    # -- what it does ------------------------------------------------------------------------

    def measure(self, time: float) -> None:
        """Set `powers` to those at a time, but for linear terms. Collective.

        Of forces that `is_stepped` finds it is the mean over the step that ended at this time.
        """
        powers: dict[int | None, float] = {}
        for number, power in self._powers_of_step().items():
            powers[number] = power
        self._update(time, 0.0)
        for number, work in self._works.items():
            if number in powers:
                continue
            power = work.products(time)[0]
            injection = self._tables[number].power
            if injection is not None:
                power = injection if power else 0.0
            powers[number] = power
        for number, powered in self._powered.items():
            powered.set(self._flow.read_state())
            powers[number] = powered.power
        self.powers = {**powers, None: self._sources.products(time)[0]}

    def _gain(self, number: int, injection: float, time: float, step: float) -> tuple[float, float]:
        """Return a factor of the forces for the injection asked for, and their power without."""
        power, square = self._works[number].products(time)
        root = math.sqrt(power * power + 2 * injection * step * square)
        together = power + math.copysign(root, power)
        if not together:  # the flow does not move along the force, and no time is given
            return 1.0, power
        return 2 * injection / together, power

    def _update(self, time: float, step: float) -> None:
        """Set the patterns that change with time, for the step, or its start if `step` is 0."""
        for number, force in self._random.items():
            # In its middle, which is right to second order where the force is linear in time.
            held = self._tables[number].injection is not None
            force.set(time if held else time + step / 2)
        divisions = self._flow.problem.method.divisions
        for pattern, part in self._patterns:
            if pattern.node == 0 or (pattern.node and step):
                self._evaluate(pattern, part, time + step * pattern.node / divisions)

    # -- what it continues with ----------------------------------------------------------------

    def fields(self) -> Iterator[Field]:
        """Yield the states of random forces, for a checkpoint."""
        for process in self._processes.values():
            yield process.field()

    def begin(self, step: int, checkpoint: Checkpoint | None, folder: str | None) -> list[str]:
        """Begin, or continue from a checkpoint; return warnings. Does not communicate."""
        warnings = []
        for process in self._processes.values():
            if checkpoint is None or not process.read(checkpoint):
                process.begin(step)
                if checkpoint is not None:
                    warnings.append(
                        f"{process.key}: {folder} has no state of this force, which starts again"
                    )
        return warnings

    def kept(self) -> dict[str, Any]:
        """Return the state from which a copy continues."""
        drawn = {number: process.kept() for number, process in self._processes.items()}
        done = {number: one.power for number, one in self._energetic.items()}
        return {"powers": dict(self._mean_powers), "drawn": drawn, "done": done}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Continue with what another forcing of the same case has kept."""
        self._mean_powers = dict(kept["powers"])
        self.go_on(kept)
        for number, power in kept["done"].items():
            if number in self._energetic:
                self._energetic[number].power = power

    def go_on(self, kept: Mapping[str, Any]) -> None:
        """Take over the states of random forces that an earlier forcing has kept."""
        for number, state in kept["drawn"].items():
            if number in self._processes:
                self._processes[number].restore(state)

    def forget_work(self) -> None:
        """Note that the state is another one, on which no force has done any work."""
        self._mean_powers = {}


def powers_of_linear_forces(
    tables: Tables,
    flow: SpectralStep,
    fields: Sequence[FieldParts],
    squares: np.ndarray,
    comm: Comm,
) -> dict[int | None, float]:
    """Return the powers of forces that are linear terms, and take them from the sums."""
    problem = flow.problem
    powers: dict[int | None, float] = {}
    driven: dict[FieldParts, float] = {}
    for number, field in enumerate(fields):
        if tables[number].rate is None:
            continue
        rate = problem.parameters[rate_name(number)]
        part = slice(field.first, field.first + field.size)
        band = Band(flow, tables[number].shells)
        flow.device.synchronize()
        own = band.squares(flow.read_state()[part]).sum(keepdims=True)
        powers[number] = rate * float(sum_over_ranks(comm, own)[0])
        driven[field] = driven.get(field, 0.0) + powers[number]
    for field, power in driven.items():
        part = slice(field.first, field.first + field.size)
        itself = any(map(problem.drives_itself, range(part.start, part.stop)))
        rest = squares[2, part].sum() / 2 - power if itself else 0.0
        squares[2, part] = 0.0
        squares[2, part.start] = 2 * rest
    return powers


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
        for (_, part), _ in () if moves else patterns:
            for force in flow.modes_of(flow.forcing[part]):
                strength += abs(device.to_host(force))
        least = 1e-13 * strength.max(initial=0.0)
        others = [tuple({0, 1, 2} - {axis}) for axis in range(3)]
        places = [np.flatnonzero(strength.max(axis=o, initial=0.0) > least) for o in others]
        self._places = tuple(device.array(part) for part in np.ix_(*places))
        z, x = flow.wavenumbers.multiplicity_z, flow.wavenumbers.multiplicity
        self._weight = device.array(z)[self._places[0]] * device.array(x)[self._places[2]]

    def products(self, time: float) -> tuple[float, float]:
        """Return the means over the box of force times field, and of the force's square."""
        if not self._patterns:
            return 0.0, 0.0
        flow = self._flow
        forces: dict[int, Array] = {}
        flow.device.synchronize()
        for (pattern, part), factor in self._patterns:
            if pattern.node:  # it acts in a later substage
                continue
            modes = flow.modes_of(flow.forcing[part])
            for component, force in zip(pattern.components, modes, strict=True):
                forces[component] = forces.get(component, 0) + factor(time) * force[self._places]
        state, terms = flow.modes_of(flow.read_state()), []
        for component, force in forces.items():
            for other in (state[component][self._places], force):
                both = self._weight * (force.real * other.real + force.imag * other.imag)
                terms.append(both.sum())
        sums = np.zeros(2)
        if terms:  # a GPU is waited for once
            for pair in flow.device.to_host(flow.device.array_module.stack(terms)).reshape(-1, 2):
                sums += pair
        power, square = sum_over_ranks(self._comm, sums)
        return float(power), float(square)
