"""``[[particles]]``: sets of particles that the flow carries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from slipstream.accepted import INTERPOLATIONS, PARTICLES
from slipstream.case.output_tables import PlainName, plain_name
from slipstream.case.table import Key, Positive, Table, as_three, as_tuple, one_of

# Arrays in stores of particles besides the recorded ones.
OWN_ARRAYS = ("time", "position", "velocity")


def array_of(expression: str) -> str:
    """Return the name of the array of an expression: "velocity" is the particles' own."""
    name = plain_name(expression)
    return "fluid_velocity" if name == "velocity" else name


class ParticleSet(Table):
    """``[particles]``, or ``[[particles]]`` for several: a set of particles that the flow carries.

    They begin at random places. Their paths are written by identity into ``particles_NAME.zarr``.
    """

    name: PlainName = Key("tracers", "name of the set, by which its output is found")
    number: Annotated[int, Field(ge=1)] = Key(..., "number of particles", example=10000)
    kind: Annotated[str, one_of(PARTICLES)] = Key("tracer", "how they move")
    response_time: Positive | None = Key(
        None,
        'of "inertial": time in which the drag takes them to the velocity of the fluid',
        example=0.1,
    )
    gravity: Annotated[tuple[float, float, float], BeforeValidator(as_three)] = Key(
        (0.0, 0.0, 0.0),
        'of "inertial": acceleration along x, y and z, buoyancy subtracted; they settle at it times'
        " the response time",
    )
    interpolation: Annotated[str, one_of(INTERPOLATIONS)] = Key(
        "spline", "how the velocity of the fluid is found between points"
    )
    seed: Annotated[int, Field(ge=0)] = Key(
        0, "of their places: the same seed gives the same places on any number of ranks"
    )
    separation: Positive | None = Key(
        None,
        "distance of pairs at the start, of particles 0 and 1, 2 and 3 ..., in random directions"
        " (default: all are placed independently)",
        example=0.05,
    )
    interval: Positive | None = Key(
        None, "time between samples of their paths (default: the last state only)", example=0.1
    )
    record: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = Key(
        (),
        "fields or expressions at the particles, besides their position and velocity;"
        ' "velocity" is that of the fluid',
        example=["grad(velocity)"],
    )

    @field_validator("record", mode="before")
    @classmethod
    def _texts(cls, record: Any) -> Any:
        is_list = isinstance(record, list | tuple)
        if not is_list or not all(isinstance(one, str) and one.strip() for one in record):
            raise ValueError("accepted: a list of names or expressions as text")
        return record

    @field_validator("record")
    @classmethod
    def _distinct(cls, record: tuple[str, ...]) -> tuple[str, ...]:
        names = [*OWN_ARRAYS, *map(array_of, record)]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name!r} is there twice, or always; accepted: others")
        return record

    @model_validator(mode="after")
    def _suits_its_kind(self) -> Self:
        if self.kind == "inertial" and self.response_time is None:
            raise ValueError("'response_time' is missing, which kind = 'inertial' needs")
        if self.kind == "tracer" and self.response_time is not None:
            raise ValueError("'response_time' goes with kind = 'inertial'")
        if self.kind == "tracer" and any(self.gravity):
            raise ValueError("'gravity' goes with kind = 'inertial'")
        if self.separation is not None and self.number % 2:
            raise ValueError("'separation' is that of pairs; accepted with it: an even number")
        return self

    @property
    def store(self) -> str:
        """The kind of output that their paths are: ``particles_NAME``."""
        return f"particles_{self.name}"


def check_names(sets: Sequence[ParticleSet]) -> None:
    """Refuse two sets of one name."""
    names = [one.name for one in sets]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two sets have the name {name!r}; accepted: a name for each")
