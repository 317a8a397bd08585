"""The JSON schema of cases, by which editors complete keys, explain them, and mark what is wrong.

Pydantic makes it from the tables; docstrings explain the keys, and say of which type those are that
the tables judge by functions. What depends on several keys is not in it: a run tells that.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from slipstream.accepted import MODELS
from slipstream.case.case_loading import SOLVERS
from slipstream.case.common_tables import Case, Output
from slipstream.case.docstring_sections import explained_in, summary_of, types_in
from slipstream.case.spectral_case import Equation
from slipstream.errors import InputError

_TYPES = {
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "str": {"type": "string"},
    "bool": {"type": "boolean"},
    "tuple": {"type": "array"},
    "dict": {"type": "object"},
}
_TUPLE = re.compile(r"tuple of (?:(\d+)\b ?)?(\w+)?")
_REFERENCE = "#/definitions/{model}"


def schema_of_cases(solver: str | None = None) -> dict[str, Any]:
    """Return the JSON schema of the cases of a solver family, or of all (draft 7).

    Parameters
    ----------
    solver : str, optional
        A name of `slipstream.accepted.SOLVERS`.

    Raises
    ------
    InputError
        If there is no such family.
    """
    if solver is not None and solver not in SOLVERS:
        raise InputError(f"--solver: {solver!r} is not accepted; accepted: {', '.join(SOLVERS)}")
    kinds: Any
    if solver is not None:
        kinds = SOLVERS[solver]
    else:
        kinds = Annotated[
            functools.reduce(operator.or_, SOLVERS.values()), Field(discriminator="solver")
        ]
    schema = TypeAdapter(kinds).json_schema(
        ref_template=_REFERENCE, schema_generator=_GenerateCaseSchema
    )
    schema.pop("discriminator", None)  # OpenAPI's, which editors do not know
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Case of Slipstream"}
    return _as_draft_7({**schema, **head})


class _GenerateCaseSchema(GenerateJsonSchema):
    """Explains tables and their keys by docstrings."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        found, table = super().model_schema(schema), schema["cls"]
        found["description"] = summary_of(table)
        for documented in reversed(table.__mro__):
            texts, types = (one(documented, "Attributes") for one in (explained_in, types_in))
            for key, own in found.get("properties", {}).items():
                if key in texts:
                    own["description"] = texts[key]
                if key in types and not own.keys() & {"type", "anyOf", "$ref", "enum", "const"}:
                    own |= _schema_of(types[key])
        # What is filled in where it is not given.
        filled: set[str] = set()
        if issubclass(table, Output):
            filled = {f"{name}_interval" for name in ("diagnostics", "spectra")}
        elif issubclass(table, Case):
            filled = {"output"}
        if "required" in found:
            found["required"] = [key for key in found["required"] if key not in filled]
        return _of_any_model(found) if table is Equation else found


def _schema_of(text: str) -> dict[str, Any]:
    """Return the schema of a type as docstrings write it, such as ``int or tuple of 3 int``."""
    kinds: list[dict[str, Any]] = []
    for one in re.split(r", | or ", text.removesuffix(" or None")):
        match = _TUPLE.fullmatch(one)
        if match is None:
            kinds.append(_TYPES.get(one, {}))
            continue
        kind: dict[str, Any] = {"type": "array"}
        if match[2] in _TYPES:
            kind["items"] = _TYPES[match[2]]
        if match[1]:
            kind |= {"minItems": int(match[1]), "maxItems": int(match[1])}
        kinds.append(kind)
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def _of_any_model(found: JsonSchemaValue) -> JsonSchemaValue:
    """Return the schema of ``[equation]`` with the parameters of each shipped model, or any."""
    from slipstream.equations import models

    kinds = []
    for name, what in MODELS.items():
        function = models.find(name)
        texts = explained_in(function, "Parameters")
        keys: dict[str, Any] = {"model": {"const": name, "description": what}}
        required = [] if name == Equation.model_fields["model"].default else ["model"]
        for key, (kind, default) in models.parameters_of(function).items():
            keys[key] = {**TypeAdapter(kind).json_schema(), "description": texts.get(key, "")}
            if default is ...:
                required.append(key)
            else:
                keys[key]["default"] = default
        kinds.append(
            {
                "title": name,
                "type": "object",
                "properties": keys,
                "required": required,
                "additionalProperties": False,
            }
        )
    own = {
        "title": "FILE.py:FUNCTION",
        "type": "object",
        "properties": {"model": {"type": "string", "pattern": r"\.py:\w+$"}},
        "required": ["model"],
        "additionalProperties": {"type": "number"},
    }
    return {"title": found["title"], "description": found["description"], "anyOf": [*kinds, own]}


_WORDS = {
    "$defs": "definitions",
    "prefixItems": "items",
    # What pydantic leaves as it is where a function stands before the bound.
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
}


def _as_draft_7(schema: Any) -> Any:
    """Return a schema with the words of draft 7, which editors for TOML know, and without null."""
    if isinstance(schema, list):
        return [_as_draft_7(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {
        _WORDS.get(key, key): _as_draft_7(value)
        for key, value in schema.items()
        if not (key == "default" and value is None)
    }
    if "anyOf" in made:
        kinds = [one for one in made["anyOf"] if one != {"type": "null"}]
        made = {**made, "anyOf": kinds}
        if len(kinds) == 1:
            del made["anyOf"]
            made = {**kinds[0], **made}
    return made
