"""The JSON schema of cases, by which editors complete keys, explain them, and mark errors."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from slipstream.case.case_loading import SOLVERS
from slipstream.case.common_tables import Case, Output
from slipstream.case.spectral_case import Equation, SpectralCase
from slipstream.case.table import (
    meaning_of_table,
    sentence,
    tables_in,
)
from slipstream.engine.accepted import MODELS
from slipstream.engine.errors import InputError

if TYPE_CHECKING:
    pass


_REFERENCE = "#/definitions/{model}"


# Words of a schema, and the words of draft 7 for them.
_WORDS = {
    "$defs": "definitions",
    "prefixItems": "items",
    # Pydantic leaves these unchanged where a function stands before the bound.
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
}


def schema_of_cases(solver: str | None = None) -> dict[str, Any]:
    """Return the JSON schema (draft 7) of the cases of a solver family, or of all families."""
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
        table_schema, table = super().model_schema(schema), schema["cls"]
        table_schema["description"] = sentence(meaning_of_table(table))
        for key, key_schema in table_schema.get("properties", {}).items():
            inner = next(tables_in(table.model_fields[key].annotation), None)
            meaning = key_schema.get("description") or meaning_of_table(inner or table)
            key_schema["description"] = sentence(meaning)
            if key in getattr(table, "one_or_more", ()):
                list_of = {
                    name: key_schema.pop(name) for name in ("type", "items") if name in key_schema
                }
                key_schema.pop("default", None)
                key_schema["anyOf"] = [list_of["items"], list_of]
        # Keys that are filled in where they are missing.
        filled: set[str] = set()
        if issubclass(table, Output):
            filled = {f"{name}_interval" for name in ("diagnostics", "spectra")}
        elif issubclass(table, Case):
            filled = {"output"}
        if "required" in table_schema:
            table_schema["required"] = [
                key for key in table_schema["required"] if key not in filled
            ]
        return _of_any_model(table_schema) if table is Equation else table_schema


def _of_any_model(equation_schema: JsonSchemaValue) -> JsonSchemaValue:
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
    user_model = {
        "title": "FILE.py:FUNCTION",
        "type": "object",
        "properties": {"model": {"type": "string", "pattern": r"\.py:\w+$"}},
        "required": ["model"],
        "additionalProperties": {"type": "number"},
    }
    return {
        "title": equation_schema["title"],
        "description": equation_schema["description"],
        "anyOf": [*kinds, user_model],
    }


def _as_draft_7(schema: Any) -> Any:
    """Return a schema with the words of draft 7, which editors for TOML know, and without null."""
    if isinstance(schema, list):
        return [_as_draft_7(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {
        _WORDS.get(key, key): _as_draft_7(value)
        for key, value in schema.items()
        if not (key == "default" and value is None)
    }
    if "anyOf" in made:
        kinds = [kind for kind in made["anyOf"] if kind != {"type": "null"}]
        made = {**made, "anyOf": kinds}
        if len(kinds) == 1:
            del made["anyOf"]
            made = {**kinds[0], **made}
    return made
