"""What a case of a model begins with: its parameters, with what they mean, and its fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from slipstream.accepted import MODELS
from slipstream.case.docstring_sections import explained_in
from slipstream.equations import Lowered, models

# Values of parameters that have no default, where there is a usual one.
_STARTING_VALUES = {
    "viscosity": 0.005,
    "diffusivity": 0.005,
    "resistivity": 0.005,
}
# Of shipped models, where the defaults suit no box of length 2 pi.
_STARTING_PARAMETERS = {"gpe": {"sound_speed": 2.0, "healing_length": 0.1}}
# Initial flows of shipped models.
_STARTING_FLOWS = {
    "hd": "taylor-green",
    "boussinesq": "taylor-green",
    "mhd": "orszag-tang-3d",
    "gpe": "quantum-taylor-green",
}
_BOUNDS = {
    "exclusiveMinimum": "more than",
    "minimum": "at least",
    "exclusiveMaximum": "less than",
    "maximum": "at most",
}


def explained_parameters(
    equation: Mapping[str, Any], imports: bool = True
) -> Iterator[tuple[str, Any, str]]:
    """Yield key, default and explanation of each parameter of the model of a table ``[equation]``.

    The default is a value to start from where the model has none. A Python file is run only if
    that is asked for; else its parameters are those that the table has.
    """
    name = equation.get("model", "hd")
    known: set[str] = set()
    if isinstance(name, str) and (imports or name in MODELS):
        function = models.find(name)
        texts = explained_in(function, "Parameters")
        for key, (kind, default) in models.parameters_of(function).items():
            known.add(key)
            text = texts.get(key, "").rstrip(".") or "parameter of the model"
            text = text[0].lower() + text[1:] if text[:2] != text[:2].upper() else text
            start = _starting_value(key, kind) if default is ... else default
            required = " (required)" if default is ... else ""
            yield key, start, f"{text}; {_range_of(kind)}{required}"
    for key, value in equation.items():
        if key != "model" and key not in known:
            yield key, value, "parameter of the model"


def _range_of(kind: Any) -> str:
    """Return in words which numbers a type of a parameter takes."""
    schema = TypeAdapter(kind).json_schema()
    what = "a whole number" if schema.get("type") == "integer" else "a number"
    if {"minimum", "maximum"} <= set(schema):
        return f"{what} from {schema['minimum']:g} to {schema['maximum']:g}"
    bounds = [f"{words} {schema[key]:g}" for key, words in _BOUNDS.items() if key in schema]
    return " ".join([what, ", ".join(bounds)]).strip()


def _starting_value(key: str, kind: Any) -> Any:
    """Return a value for a parameter that has no default."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    schema = adapter.json_schema()
    bounds = [schema[one] for one in ("minimum", "maximum") if one in schema]
    for value in (_STARTING_VALUES.get(key), 1.0, 1, *bounds):
        try:
            return adapter.validate_python(value, strict=True)
        except ValidationError:
            continue
    return 1.0


def tables_of_model(name: str) -> dict[str, Any]:
    """Return the tables that a case of a model begins with: parameters, and a state of its fields.

    A Python file is run.
    """
    function = models.find(name)
    equation: dict[str, Any] = {"model": name}
    parameters: dict[str, Any] = {}
    for key, (kind, default) in models.parameters_of(function).items():
        parameters[key] = _starting_value(key, kind) if default is ... else default
        if default is ...:
            equation[key] = parameters[key]
    equation |= _STARTING_PARAMETERS.get(name, {})
    lowered = models.lowered(name, parameters)
    initial: dict[str, Any] = {"flow": _STARTING_FLOWS.get(name, "formula")}
    if initial["flow"] == "formula":
        initial["fields"] = _formulas(lowered)
    time = {"end": 10, "cfl": 0.8}
    if not lowered.speeds or any(source != 0 for source in lowered.sources):
        time["max_step"] = 0.01
    numerics = {"dealiasing": "1/2"} if lowered.degree > 2 else {}
    return {
        "solver": "spectral",
        "grid": {"points": 64},
        "equation": equation,
        "initial": initial,
        "time": time,
        "numerics": numerics,
    }


def _formulas(lowered: Lowered) -> dict[str, Any]:
    """Return a formula for each field, or three of a vector without divergence."""
    sizes: dict[str, int] = {}
    for component in lowered.unknowns:
        sizes[component.field] = sizes.get(component.field, 0) + 1
    return {
        name: ["sin(y)", "sin(z)", "sin(x)"] if size == 3 else "0.1*sin(x)*cos(y)"
        for name, size in sizes.items()
    }
