"""The JSON schema of cases, by which editors complete keys, explain them, and mark errors.

Pydantic makes it from the tables. What depends on several keys is not in it: a run reports that.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from slipstream.accepted import MODELS
from slipstream.case.case_loading import SOLVERS
from slipstream.case.common_tables import Case, Output
from slipstream.case.declared_keys import meaning_of_table, sentence, tables_in
from slipstream.case.spectral_case import Equation, SpectralCase
from slipstream.errors import InputError

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
    draft: dict[str, Any] = _as_draft_7({**schema, **head})
    return draft


class _GenerateCaseSchema(GenerateJsonSchema):
    """Words what pydantic finds for people, and requires no key that is filled in."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        found, table = super().model_schema(schema), schema["cls"]
        found["description"] = sentence(meaning_of_table(table))
        for key, own in found.get("properties", {}).items():
            inner = next(tables_in(table.model_fields[key].annotation), None)
            meaning = own.get("description") or meaning_of_table(inner or table)
            own["description"] = sentence(meaning)
            if key in getattr(table, "one_or_more", ()):
                list_of = {name: own.pop(name) for name in ("type", "items") if name in own}
                own.pop("default", None)
                own["anyOf"] = [list_of["items"], list_of]
        # What is filled in where it is not given.
        filled: set[str] = set()
        if issubclass(table, Output):
            filled = {f"{name}_interval" for name in ("diagnostics", "spectra")}
        elif issubclass(table, Case):
            filled = {"output"}
        if "required" in found:
            found["required"] = [key for key in found["required"] if key not in filled]
        return _of_any_model(found) if table is Equation else found


def _of_any_model(found: JsonSchemaValue) -> JsonSchemaValue:
    """Return the schema of ``[equation]`` with the parameters of each shipped model, or any."""
    kinds = []
    for name, meaning in MODELS.items():
        suited = SpectralCase.suited_to({"equation": {"model": name}})
        table = next(tables_in(suited.model_fields["equation"].annotation))
        kind = TypeAdapter(table).json_schema(schema_generator=_GenerateCaseSchema)
        kind["title"] = name
        kind["properties"]["model"] = {"const": name, "description": meaning}
        if name != Equation.model_fields["model"].default:
            kind["required"] = ["model", *kind.get("required", ())]
        kinds.append(kind)
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
