"""Tables of a case: keys, each declared once with its type, default and meaning."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from slipstream.engine.accepted import PRECISIONS, listed
from slipstream.engine.errors import InputError

Type = TypeVar("Type")
# The words for the bounds of a schema.
_BOUNDS = {
    "exclusiveMinimum": "more than",
    "minimum": "at least",
    "exclusiveMaximum": "less than",
    "maximum": "at most",
}
# One of a kind, and several.
_KINDS = {
    "integer": ("a whole number", "whole numbers"),
    "number": ("a number", "numbers"),
    "string": ("text", "texts"),
    "boolean": ("true or false", "true or false"),
    "object": ("a table", "tables"),
}
# The words for small numbers.
_COUNTS = {2: "two", 3: "three"}
# The line below the heading of a section of a docstring.
_HEADING = re.compile(r"-{3,}")
# The line of a docstring that names parameters.
_NAMES = re.compile(r"(\w+(?:, \w+)*)(?: : .*)?")


def Key(default: Any, meaning: str, *, example: Any = None) -> Any:
    """Return pydantic's `Field` for a key; `...` is the default of one that is required.

    `meaning` has its unit, begins in lower case and has no full stop. `example` is what the
    template shows if there is no default.
    """
    examples = None if example is None else [example]
    return Field(default, description=meaning, examples=examples)


@dataclass(frozen=True)
class OneOf:
    """The constraint of a key to some names, made by `one_of`."""

    names: tuple[str, ...]
    meanings: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of a literal, whose error `validation_messages` words."""
        return core_schema.literal_schema(list(self.names))


def one_of(names: Iterable[str], auto: bool = False) -> OneOf:
    """Return the constraint of a key to names of `engine.accepted`, and to "auto" if asked."""
    meanings = names if isinstance(names, Mapping) else {}
    return OneOf(("auto", *names) if auto else tuple(names), meanings)


@dataclass(frozen=True)
class Such:
    """Names that explain a key which accepts other text too."""

    meanings: Mapping[str, str] = field(hash=False)


class _Unchecked:
    """Lets pydantic accept anything for a type that only people and the JSON schema use."""

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.any_schema(metadata={"kind": handler(kind)})

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        inner: Any = schema
        while "kind" not in inner.get("metadata", {}):  # validators stand around it
            inner = inner["schema"]
        return handler(inner["metadata"]["kind"])


Positive = Annotated[float, Field(gt=0)]
# A time at which a run ends: steps, and times of output, until then are numbers.
EndTime = Annotated[float, Field(gt=0, lt=1e100)]
Precision = Annotated[str, one_of(PRECISIONS)]


def as_tuple(value: Any) -> Any:
    """Return TOML's lists as the tuples that frozen settings need."""
    return tuple(value) if isinstance(value, list) else value


def as_tuples(value: Any) -> Any:
    """Return TOML's lists as tuples, and the lists in them too."""
    return tuple(map(as_tuples, value)) if isinstance(value, list | tuple) else value


def as_three(value: Any) -> Any:
    """Return a list of three as a tuple; refuse anything else."""
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise ValueError(f"accepted: a list of three numbers, not {value!r}")
    return tuple(value)


# The type of a key whose validator checks it, with its own message.
Unchecked = Annotated[Type, _Unchecked(), BeforeValidator(as_tuple)]


def is_number(value: Any) -> bool:
    """Return whether a value is a number, which booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number, which booleans are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_positive(value: Any, axes: Sequence[str]) -> Any:
    """Return a tuple of positive whole numbers, one for each axis, or None; refuse the rest."""
    is_tuple = isinstance(value, tuple)
    fits = is_tuple and len(value) == len(axes) and all(is_whole(n) and n >= 1 for n in value)
    if value is not None and not fits:
        count = {2: "two", 3: "three"}[len(axes)]
        raise ValueError(
            f"accepted: {count} whole numbers for {', '.join(axes[:-1])} and {axes[-1]}, each at"
            f" least 1, not {list(value) if is_tuple else value!r}"
        )
    return value


def check_belongs(table: Table, key: str, accepted: Iterable[str], keys: Iterable[str]) -> None:
    """Refuse those of some keys that are set, but do not belong to the value of a key."""
    fields = type(table).model_fields
    for name in keys:
        # Cases that a run has written have all keys, with their defaults.
        if name not in accepted and getattr(table, name) != fields[name].default:
            raise ValueError(
                f"{name!r} does not belong to {key} = {getattr(table, key)!r}; accepted with it:"
                f" {', '.join(accepted)}"
            )


def three(value: Any) -> tuple[Any, ...]:
    """Return one value for all three axes, or three values, as a tuple of three."""
    return value if isinstance(value, tuple) else (value,) * 3


class Table(BaseModel):
    """One table of a case: frozen, and without unknown keys."""

    # Validators are built when a family's first case is made, so that others need not wait.
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True
    )

    # Type checkers know from pydantic that it is frozen.
    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            raise InputError(
                f"{name} cannot be set: a case is frozen; between steps, change attributes of"
                " the simulation, such as sim.viscosity = 0.02"
            )


def tables_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the table classes of a type, which may be optional or one of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from tables_in(part)


def table_at(model: type[BaseModel], path: tuple[Any, ...]) -> type[BaseModel]:
    """Return the table class at a path of names; numbers in it, of lists, are skipped."""
    for part in path:
        if isinstance(part, str):
            model = next(tables_in(model.model_fields[part].annotation))
    return model


def key_at(model: type[BaseModel], dotted: str) -> FieldInfo:
    """Return the declaration of a key, such as ``"flow.axis"``."""
    *path, name = dotted.split(".")
    return table_at(model, tuple(path)).model_fields[name]


def is_key(model: type[BaseModel], dotted: str) -> bool:
    """Return whether there is a key, or a table, of a name."""
    try:
        key_at(model, dotted)
    except (KeyError, StopIteration):
        return False
    return True


def keys_of(model: type[BaseModel]) -> Iterator[str]:
    """Yield the dotted keys of a case, as ``--set`` takes them."""
    for name, info in model.model_fields.items():
        tables = list(tables_in(info.annotation))
        yield from ([f"{name}.{key}" for key in tables[0].model_fields] if tables else [name])


def argument_keys(
    case: type[BaseModel], chosen: Iterable[str], without: Collection[str] = ()
) -> dict[str, str]:
    """Return the keys of a case that are arguments, by name: `chosen` keys or whole tables."""
    keys = [key for key in keys_of(case) if key not in without]
    return {
        key.partition(".")[2]: key
        for one in chosen
        for key in keys
        if key == one or key.startswith(f"{one}.")
    }


def choices_at(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """Return the words that the key at a location accepts, or the items of its list."""
    *path, name = (part for part in location if isinstance(part, str))
    field = table_at(model, tuple(path)).model_fields[name]
    return [word for one in (field.annotation, *field.metadata) for word in _choices(one)]


def _choices(annotation: Any) -> list[str]:
    """Return the accepted words of a type, also inside unions; none if it is not a choice."""
    if isinstance(annotation, OneOf):
        return list(annotation.names)
    if get_origin(annotation) is Literal:
        return [str(word) for word in get_args(annotation)]
    return [word for part in get_args(annotation) for word in _choices(part)]


def meanings_of_names(field: FieldInfo) -> Mapping[str, str]:
    """Return the names that a key accepts, with a line on each; empty if there are none."""
    for one in (*field.metadata, *_arguments(field.annotation)):
        if isinstance(one, OneOf | Such):
            return one.meanings
    return {}


def _arguments(annotation: Any) -> Iterator[Any]:
    for part in (*get_args(annotation), *getattr(annotation, "__metadata__", ())):
        yield part
        yield from _arguments(part)


def meaning_of_table(table: type[BaseModel]) -> str:
    """Return the meaning of a table, by its docstring: ``"the fluid, and what drives it"``."""
    text = " ".join((inspect.getdoc(table) or "").split())
    return (text.partition("``: ")[2] or text).removesuffix(".")


def sentence(meaning: str) -> str:
    """Return the meaning of a key as a sentence."""
    return f"{meaning[:1].upper()}{meaning[1:].rstrip('.')}."


def type_of(field: FieldInfo) -> Any:
    """Return the type of a key, with what it accepts."""
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def accepted_values(field: FieldInfo) -> str:
    """Return in words what a key accepts: ``"a number more than 0"``."""
    if any(tables_in(field.annotation)):
        return "a table" if get_origin(field.annotation) is not tuple else "a list of tables"
    return _in_words(TypeAdapter(type_of(field)).json_schema())


def range_of(field: FieldInfo) -> str:
    """Return the bounds of a key in words; empty if there are none, or no surprising ones."""
    schema = TypeAdapter(type_of(field)).json_schema()
    kinds = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    schema_of_kind = kinds[0] if len(kinds) == 1 else {}
    is_plain = not schema_of_kind.keys() & {"maximum", "exclusiveMaximum"}
    if is_plain and all(schema_of_kind.get(key) in (None, 0, 1) for key in _BOUNDS):
        return ""
    return _bounds_of(schema_of_kind)


def _in_words(schema: Mapping[str, Any], several: bool = False) -> str:
    if "anyOf" in schema:
        kinds = [_in_words(one, several) for one in schema["anyOf"] if one.get("type") != "null"]
        return listed(dict.fromkeys(kinds))
    if "const" in schema or "enum" in schema:
        names = [schema["const"]] if "const" in schema else schema["enum"]
        return listed([f'"{name}"' if isinstance(name, str) else f"{name}" for name in names])
    kind = schema.get("type", "object")
    if kind == "array":
        items = schema.get("prefixItems", [schema.get("items", {})])
        count = f"{_COUNTS[len(items)]} " if "prefixItems" in schema else ""
        lists = "lists of" if several else "" if count else "a list of"
        return f"{lists} {count}{_in_words(items[0], several=True)}".strip()
    return f"{_KINDS[kind][several]} {_bounds_of(schema)}".strip()


def _bounds_of(schema: Mapping[str, Any]) -> str:
    if {"minimum", "maximum"} <= schema.keys():
        return f"from {schema['minimum']:g} to {schema['maximum']:g}"
    # Pydantic's names of bounds where a function stands before them.
    found = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
    words = {**_BOUNDS, **found}
    return ", ".join(f"{text} {schema[key]:g}" for key, text in words.items() if key in schema)


def meanings_of_parameters(function: Any) -> dict[str, str]:
    """Return the meaning of each parameter, by a NumPy docstring; empty if there is none."""
    # Without a docstring that is inherited.
    lines = inspect.cleandoc(getattr(function, "__doc__", None) or "").split("\n")
    meanings: dict[str, str] = {}
    names: list[str] = []
    is_inside = False
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        match = _NAMES.fullmatch(line)
        if _HEADING.fullmatch(following):
            is_inside, names = line == "Parameters", []
        elif is_inside and line.startswith("    "):
            for name in names:
                meanings[name] = f"{meanings[name]} {line.strip()}".strip()
        elif is_inside and match is not None and not _HEADING.fullmatch(line):
            names = match[1].split(", ")
            meanings |= dict.fromkeys(names, "")
    return meanings


def as_meaning(text: str) -> str:
    """Return a sentence of a docstring in the form of meanings of a `Key`."""
    is_word = text[:2] != text[:2].upper()
    return (text[:1].lower() + text[1:] if is_word else text).rstrip(".")
