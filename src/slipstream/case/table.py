"""What the tables of a case are made of."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from slipstream.accepted import PRECISIONS
from slipstream.errors import InputError


@dataclass(frozen=True)
class OneOf:
    """The constraint of a key to some names, made by `one_of`."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of a literal, whose error `validation_messages` words."""
        return core_schema.literal_schema(list(self.names))


def one_of(names: Iterable[str], auto: bool = False) -> OneOf:
    """Return the constraint of a key to names of `slipstream.accepted`, and to "auto" if asked."""
    return OneOf(("auto", *names) if auto else tuple(names))


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


def three(value: Any) -> tuple[Any, ...]:
    """Return one value for all three axes, or three values, as a tuple of three."""
    return value if isinstance(value, tuple) else (value,) * 3


class Table(BaseModel):
    """One table of a case: frozen, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    # Type checkers know from pydantic that it is frozen.
    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            raise InputError(
                f"{name} cannot be set: a case is frozen; what can be changed between steps are"
                " attributes of the simulation, such as sim.viscosity = 0.02"
            )
