"""What the tables of a case are made of: keys, each declared once.

`Key` gives a key its default and its meaning; its type says what it accepts. The template of
`slipstream new`, the JSON schema, the tables in docs/cases.md, and signatures and docstrings of the
Python classes are all made from these declarations.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from slipstream.accepted import PRECISIONS
from slipstream.errors import InputError

Type = TypeVar("Type")


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
    """Return the constraint of a key to names of `slipstream.accepted`, and to "auto" if asked."""
    meanings = names if isinstance(names, Mapping) else {}
    return OneOf(("auto", *names) if auto else tuple(names), meanings)


@dataclass(frozen=True)
class Such:
    """Names that explain a key which accepts other text too."""

    meanings: Mapping[str, str] = field(hash=False)


class _Unchecked:
    """Lets pydantic accept anything for a type that is there for people and for the JSON schema."""

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.any_schema(metadata={"kind": handler(kind)})

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        found: Any = schema
        while "kind" not in found.get("metadata", {}):  # validators stand around it
            found = found["schema"]
        return handler(found["metadata"]["kind"])


Positive = Annotated[float, Field(gt=0)]
Precision = Annotated[str, one_of(PRECISIONS)]


def as_tuple(value: Any) -> Any:
    """Let TOML's lists pass as the tuples that frozen settings need."""
    return tuple(value) if isinstance(value, list) else value


def as_tuples(value: Any) -> Any:
    """Let TOML's lists pass as tuples, those within them too."""
    return tuple(map(as_tuples, value)) if isinstance(value, list | tuple) else value


def as_three(value: Any) -> Any:
    """Let a list of three pass as a tuple, and nothing else."""
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise ValueError(f"accepted: a list of three numbers, not {value!r}")
    return tuple(value)


# The type of a key whose validator checks it, with its own message.
Unchecked = Annotated[Type, _Unchecked(), BeforeValidator(as_tuple)]


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
