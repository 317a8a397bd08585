"""``[[scalars]]``: passive scalars that the flow of a case carries along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator

from slipstream.case.table import Key, Table, as_three


class PassiveScalar(Table):
    """``[scalars]``, or ``[[scalars]]`` for several: a scalar that the flow carries along.

    It does not act on the flow, and its budget is its own: half its variance is no part of the
    energy.
    """

    name: str = Key("scalar", "name of the field", example="temperature")
    diffusivity: Annotated[float, Field(ge=0)] = Key(0.0, "diffusivity", example=0.01)
    diffusivity_power: Annotated[int, Field(ge=1, le=8)] = Key(
        1, "2 and more: hyperdiffusion, -diffusivity (-laplacian)^power"
    )
    mean_gradient: Annotated[tuple[float, float, float], BeforeValidator(as_three)] = Key(
        (0.0,) * 3,
        "uniform gradient of its mean along x, y and z, which the flow turns into fluctuations: the"
        " field is the scalar without it",
        example=[0, 0, 1],
    )
    initial: str | None = Key(
        None,
        "formula of x, y and z of its state at the start (default: as the initial flow has it, 0"
        " if that does not set it)",
        example="cos(x)",
    )

    @field_validator("name")
    @classmethod
    def _is_identifier(cls, name: str) -> str:
        if not name.isidentifier():
            raise ValueError(f"must be of letters, digits and underscores, not {name!r}")
        return name


def check_names(scalars: Sequence[PassiveScalar]) -> None:
    """Refuse two scalars of one name."""
    names = [one.name for one in scalars]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two scalars have the name {name!r}; accepted: a name for each")
