"""The state at the start of a run: what each ``initial.flow`` stands for, on any ranks.

Flows that few cases have are imported when a case names them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import Any

import sympy

from slipstream.array_types import Comm
from slipstream.errors import InputError
from slipstream.spectral.fields_at_points import set_formulas, set_values
from slipstream.spectral.formula_checks import (
    check_periodic,
    check_resolution,
    check_resolved,
    check_waves,
)
from slipstream.spectral.formula_parser import evaluator, parsed_components
from slipstream.spectral.initial_conditions.named_flows import (
    MAGNETIC_FIELDS,
    ORSZAG_TANG_3D_WAVES,
    abc,
    orszag_tang,
    orszag_tang_3d,
    taylor_green,
    taylor_green_magnetic,
)
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.spectral_problem import FieldParts, SpectralProblem, field_of_name
from slipstream.spectral.wavenumbers import unit_wavenumbers

# The table `slipstream.case.spectral_case.Initial`; the keys that its flow has are not None.
Settings = Any
# By component: functions of x, y, z and a module, NumPy or CuPy.
Formulas = dict[str, Callable[..., Any]]


@dataclass(frozen=True)
class InitialFlow:
    """A flow that suits a problem: what sets the state to it, and warnings of what it loses.

    `set` is collective; fields that the flow does not set are 0. It returns further warnings.
    """

    set: Callable[[SpectralStep, Comm], list[str]]
    warnings: list[str] = attribute(default_factory=list)


# Returns a flow, or refuses one that does not suit model or grid.
FlowOf = Callable[[SpectralProblem, Settings, list[FieldParts]], InitialFlow]


def _random(problem: SpectralProblem, settings: Settings, fields: list[FieldParts]) -> InitialFlow:
    vectors = [field for field in fields if field.is_vector]
    if not vectors:
        raise InputError(
            "initial.flow: 'random' is for vectors, of which the model has none; accepted "
            "for scalars: formula"
        )

    def set_state(flow: SpectralStep, comm: Comm) -> list[str]:
        from slipstream.spectral.initial_conditions.random_field import random_flow

        waves = flow.wavenumbers
        for number, field in enumerate(vectors):
            modes = random_flow(
                waves,
                settings.peak_wavenumber,
                settings.amplitude,
                settings.seed + number,
                problem.complex_dtype,
            )
            target = flow.modes_of(flow.state[field.first : field.first + 3])
            flow.device.run(flow.device.copy(target, modes))
        kept = waves.largest / waves.unit
        if settings.peak_wavenumber <= kept:
            return []
        return [
            f"initial.peak_wavenumber: {settings.peak_wavenumber:g} is beyond the {kept:.3g} that "
            "the grid keeps along every axis: the spectrum ends before its peak; use more points"
        ]

    return InitialFlow(set_state)


def _from_file(
    problem: SpectralProblem, settings: Settings, fields: list[FieldParts]
) -> InitialFlow:
    def set_state(flow: SpectralStep, comm: Comm) -> list[str]:
        from slipstream.spectral.initial_conditions.fields_from_files import read_points

        values = read_points(settings.path, settings.time, problem, comm)
        return set_values(flow, values, "initial.path", comm)

    return InitialFlow(set_state)


def _of_case(problem: SpectralProblem, settings: Settings, fields: list[FieldParts]) -> InitialFlow:
    found = _expressions(settings.fields, fields, "initial.fields")
    warnings: list[str] = []
    for expression, key in found.values():
        check_periodic(expression, problem.lengths, key)
        warnings += check_resolved(expression, problem, key)
    functions = {name: evaluator(expression) for name, (expression, _) in found.items()}
    return InitialFlow(
        lambda flow, comm: set_formulas(flow, functions, "initial.fields", comm), warnings
    )


def _named(
    formulas_of: Callable[[SpectralProblem, Settings, list[FieldParts]], Formulas],
) -> FlowOf:
    """Return what makes a flow of the formulas that a function returns."""

    def make(problem: SpectralProblem, settings: Settings, fields: list[FieldParts]) -> InitialFlow:
        functions = formulas_of(problem, settings, fields)
        return InitialFlow(lambda flow, comm: set_formulas(flow, functions, "initial.flow", comm))

    return make


def _taylor_green(
    problem: SpectralProblem, settings: Settings, fields: list[FieldParts]
) -> Formulas:
    check_resolution(problem, settings.wavenumber, settings.flow, "initial")
    waves, sizes = unit_wavenumbers(problem.lengths), (settings.amplitude, settings.wavenumber)
    texts = {"velocity": taylor_green(*sizes, waves)}
    if settings.magnetic not in (None, "none"):
        count = MAGNETIC_FIELDS[settings.magnetic][0] * settings.wavenumber
        check_waves(problem, (count,) * 3, "initial.magnetic")
        texts["magnetic"] = taylor_green_magnetic(*sizes, settings.magnetic, waves)
    return _parsed(texts, fields, "initial.flow")


def _abc(problem: SpectralProblem, settings: Settings, fields: list[FieldParts]) -> Formulas:
    check_resolution(problem, settings.wavenumber, settings.flow, "initial")
    sizes, waves = (settings.amplitude, settings.wavenumber), unit_wavenumbers(problem.lengths)
    texts = abc(*sizes, settings.coefficients, waves)
    return _parsed({"velocity": texts}, fields, "initial.flow")


def _orszag_tang(
    problem: SpectralProblem, settings: Settings, fields: list[FieldParts]
) -> Formulas:
    flow = orszag_tang
    if settings.flow == "orszag-tang-3d":
        check_waves(problem, ORSZAG_TANG_3D_WAVES, "initial.flow")
        flow = orszag_tang_3d
    velocity, magnetic = flow(settings.amplitude, unit_wavenumbers(problem.lengths))
    return _parsed({"velocity": velocity, "magnetic": magnetic}, fields, "initial.flow")


def _quantum_fluid(
    problem: SpectralProblem, settings: Settings, fields: list[FieldParts]
) -> Formulas:
    from slipstream.spectral.initial_conditions.quantum_fluids import quantum_taylor_green, solitons

    if settings.flow == "solitons":
        return solitons(problem, settings.speed)
    return quantum_taylor_green(problem, settings.amplitude)


def _wave(problem: SpectralProblem, settings: Settings, fields: list[FieldParts]) -> Formulas:
    from slipstream.spectral.initial_conditions.linear_waves import wave_formulas

    return wave_formulas(problem, settings.wavevector, settings.amplitude, settings.branch)


def _parsed(texts: dict[str, Any], fields: list[FieldParts], key: str) -> Formulas:
    found = _expressions(texts, fields, key)
    return {name: evaluator(expression) for name, (expression, _) in found.items()}


def _expressions(
    texts: dict[str, Any], fields: list[FieldParts], key: str
) -> dict[str, tuple[sympy.Expr, str]]:
    """Return by component an expression, and the key that it is of."""
    result: dict[str, tuple[sympy.Expr, str]] = {}
    for name, own in texts.items():
        field = field_of_name(fields, name, key)
        expressions = parsed_components(own, field, key)
        for component, expression in zip(field.components, expressions, strict=True):
            result[component] = expression, f"{key}.{name}"
    return result


# By the name in a case; a line for people on each is in `slipstream.accepted`.
INITIAL_FLOWS: dict[str, FlowOf] = {
    "taylor-green": _named(_taylor_green),
    "abc": _named(_abc),
    "random": _random,
    "orszag-tang": _named(_orszag_tang),
    "orszag-tang-3d": _named(_orszag_tang),
    "quantum-taylor-green": _named(_quantum_fluid),
    "solitons": _named(_quantum_fluid),
    "wave": _named(_wave),
    "file": _from_file,
    "formula": _of_case,
}
