"""The state at the start of a run: what each ``initial.flow`` stands for, on any ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from slipstream.errors import InputError
from slipstream.spectral.energy_budget import FieldParts
from slipstream.spectral.formula_parser import formula
from slipstream.spectral.grid_functions import (
    check_resolution,
    check_waves,
    set_formulas,
    set_values,
)
from slipstream.spectral.initial_conditions import named_flows, quantum_fluids
from slipstream.spectral.initial_conditions.fields_from_files import read_points
from slipstream.spectral.initial_conditions.linear_waves import wave_formulas
from slipstream.spectral.initial_conditions.random_modes import random_flow
from slipstream.spectral.spectral_problem import SpectralProblem
from slipstream.spectral.time_step import SpectralStep


def set_initial_flow(
    flow: SpectralStep, settings: Any, fields: list[FieldParts], comm: Any
) -> None:
    """Set the state to an initial flow; what that does not tell of is 0. Collective.

    Parameters
    ----------
    flow : SpectralStep
        Whose state is set.
    settings : slipstream.case.spectral_case.Initial
        The case's table, with a flow.
    fields : list of FieldParts
        The fields of the model.
    comm : mpi4py.MPI.Comm or None
        The ranks.

    Raises
    ------
    InputError
        If the flow is none of this model, or the grid cannot hold it; on all ranks alike.
    """
    if settings.flow == "random":
        _set_random(flow, settings, fields)
    elif settings.flow == "file":
        set_values(flow, read_points(settings.path, settings.time, flow.problem, comm))
    else:
        set_formulas(flow, _formulas(flow.problem, settings, fields))


def _set_random(flow: SpectralStep, settings: Any, fields: list[FieldParts]) -> None:
    vectors = [field for field in fields if field.is_vector]
    if not vectors:
        raise InputError(
            "initial.flow: 'random' is for vectors, of which the model has none; accepted "
            "for scalars: formula"
        )
    for number, field in enumerate(vectors):
        modes = random_flow(
            flow.wavenumbers,
            settings.peak_wavenumber,
            settings.amplitude,
            settings.seed + number,
            flow.problem.complex_dtype,
        )
        target = flow.modes_of(flow.state[field.first : field.first + 3])
        flow.device.run(flow.device.copy(target, modes))


def _formulas(
    problem: SpectralProblem, settings: Any, fields: list[FieldParts]
) -> dict[str, Callable[..., Any]]:
    """Return the formulas of a flow that has some, by component."""
    if settings.flow == "wave":
        return wave_formulas(problem, settings.wavevector, settings.amplitude, settings.branch)
    if settings.flow == "quantum-taylor-green":
        return quantum_fluids.quantum_taylor_green(problem, settings.amplitude)
    if settings.flow == "solitons":
        return quantum_fluids.solitons(problem, settings.speed)
    if settings.flow == "orszag-tang-3d":
        check_waves(problem, named_flows.ORSZAG_TANG_3D_WAVES, "initial.flow")
    if settings.wavenumber is not None:
        check_resolution(problem, settings.wavenumber, settings.flow, "initial")
    if settings.magnetic not in (None, "none"):
        waves = named_flows.magnetic_waves(settings.magnetic, settings.wavenumber)
        check_waves(problem, (waves,) * 3, "initial.magnetic")
    return _named_formulas(settings, fields, problem.lengths)


def _named_formulas(
    settings: Any, fields: list[FieldParts], lengths: tuple[float, float, float]
) -> dict[str, Callable[..., Any]]:
    waves = _waves(lengths)
    if settings.flow == "formula":
        return _parsed(dict(settings.fields), fields, "initial.fields")
    if settings.flow in _MAGNETIC_PATTERNS:
        velocity, magnetic = _MAGNETIC_PATTERNS[settings.flow](settings, waves)
        return _parsed({"velocity": velocity, "magnetic": magnetic}, fields, "initial.flow")
    texts = {"velocity": _PATTERNS[settings.flow](settings, waves)}
    if settings.magnetic not in (None, "none"):
        texts["magnetic"] = named_flows.taylor_green_magnetic(settings, waves)
    return _parsed(texts, fields, "initial.flow")


def _waves(lengths: tuple[float, float, float]) -> list[float]:
    return [2 * math.pi / length for length in reversed(lengths)]


_PATTERNS = {"taylor-green": named_flows.taylor_green, "abc": named_flows.abc}
_MAGNETIC_PATTERNS = {
    "orszag-tang": named_flows.orszag_tang,
    "orszag-tang-3d": named_flows.orszag_tang_3d,
}


def _parsed(
    texts: dict[str, Any], fields: list[FieldParts], key: str
) -> dict[str, Callable[..., Any]]:
    known, result = {field.name: field for field in fields}, {}
    for name, own in texts.items():
        if name not in known:
            raise InputError(f"{key}: the model has no field {name!r}; it has: {', '.join(known)}")
        parts = [own] if isinstance(own, str | int | float) else list(own)
        if len(parts) != known[name].size:
            raise InputError(
                f"{key}: {len(parts)} formulas for {name!r}; expected {known[name].size}"
            )
        suffixes = [f"_{axis}" for axis in "xyz"] if known[name].is_vector else [""]
        for suffix, part in zip(suffixes, parts, strict=True):
            result[name + suffix] = formula(str(part), f"{key}.{name}")
    return result
