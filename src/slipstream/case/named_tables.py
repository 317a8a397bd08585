"""``[[scalars]]``, ``[[particles]]``, ``[[bodies]]``: a flow may have several of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from slipstream.case.output_tables import Axis, plain_name
from slipstream.case.table import Key, Positive, Table, as_three, as_tuple, check_belongs, one_of
from slipstream.engine.accepted import BODIES, INTERPOLATIONS, PARTICLES


def _identifier(name: str) -> str:
    if not name.isidentifier() or len(name) > 100:
        raise ValueError(f"is {name!r}; accepted: letters, digits and '_', not first a digit")
    return name


# A name that expressions can have, too.
Identifier = Annotated[str, AfterValidator(_identifier)]


def check_distinct(tables: Sequence[Any], what: str) -> None:
    """Refuse two tables of one name."""
    names = [one.name for one in tables]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two {what} have the name {name!r}; accepted: a name for each")


class PassiveScalar(Table):
    """``[scalars]``, or ``[[scalars]]`` for several: a scalar that the flow carries along.

    It does not act on the flow, and its budget is its own: half its mean square is no part of the
    energy.
    """

    name: Identifier = Key("scalar", "name of the field", example="temperature")
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

    name: Identifier = Key("tracers", "name of the set, by which its output is found")
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
        ' "velocity" is the velocity of the fluid',
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
                raise ValueError(f"{name!r} is there twice, or always; use other names")
        return record

    @model_validator(mode="after")
    def _suits_its_kind(self) -> Self:
        if self.kind == "inertial" and self.response_time is None:
            raise ValueError("'response_time' is missing, which kind = 'inertial' needs")
        if self.kind == "tracer" and self.response_time is not None:
            raise ValueError("'response_time' goes with kind = 'inertial'; use that, or unset it")
        if self.kind == "tracer" and any(self.gravity):
            raise ValueError("'gravity' goes with kind = 'inertial'; use that, or unset it")
        if self.separation is not None and self.number % 2:
            raise ValueError("'separation' is that of pairs; accepted with it: an even number")
        return self

    @property
    def store(self) -> str:
        """The kind of output that their paths are: ``particles_NAME``."""
        return f"particles_{self.name}"


_Three = Annotated[tuple[float, float, float], BeforeValidator(as_three)]
# The keys that only some shapes have; keys after None are optional.
BODY_KEYS: dict[str, tuple[str | None, ...]] = {
    "sphere": ("radius", None),
    "cylinder": ("radius", None, "length", "axis"),
    "box": ("size", None),
    "image": ("path", None, "solid"),
    "formula": ("formula", None),
}
_OF_SHAPES = ("radius", "length", "axis", "size", "path", "solid", "formula")


class Body(Table):
    """``[bodies]``, or ``[[bodies]]`` for several: a solid body, at whose points fields are set.

    Its surface is a layer of some width. Forces and torques are columns of the series.
    """

    name: Identifier = Key("body", "name of the body, with which its columns begin")
    shape: Annotated[str, one_of(BODIES)] = Key(..., "what it is", example="sphere")
    center: _Three | None = Key(
        None,
        "its center at time 0, about which torques are (default: the middle of the box)",
        example=[1.0, 2.0, 3.0],
    )
    radius: Positive | None = Key(None, 'of "sphere" and "cylinder"', example=0.5)
    axis: Axis = Key("z", 'of "cylinder": the axis that it is along')
    length: Positive | None = Key(
        None, 'of "cylinder": its length (default: through the whole box)', example=2.0
    )
    size: Annotated[tuple[Positive, Positive, Positive] | None, BeforeValidator(as_three)] = Key(
        None,
        'of "box": lengths along x, y and z; one as long as the box of the grid has no ends',
        example=[1.0, 1.0, 2.0],
    )
    path: Annotated[str, Field(min_length=1)] | None = Key(
        None,
        'of "image": a voxel image [z, y, x] with as many voxels as the grid has points: .npy,'
        " .tif, .h5, .zarr",
        example="rock.npy",
    )
    solid: int | None = Key(
        None, 'of "image": the value of solid voxels (default: all but 0)', example=1
    )
    formula: str | None = Key(
        None,
        'of "formula": distance from the surface, negative inside, of x, y, z and the time t',
        example="sqrt((x-3)**2 + (y-3)**2) - 1 - 0.2*sin(t)",
    )
    velocity: _Three = Key(
        (0.0, 0.0, 0.0),
        'velocity of its center; an "image" or a "formula" stays where it is, and has a surface of'
        " that velocity",
    )
    rotation: _Three = Key((0.0, 0.0, 0.0), "angular velocity about its center, around x, y and z")
    values: dict[str, float] = Key(
        {}, "by field, what a scalar is in the body", example={"temperature": 1.0}
    )
    width: Positive | None = Key(
        None,
        "width of the layer in which the mask falls from 0.88 to 0.12 (default: 1.5 times the"
        " largest spacing of points)",
        example=0.1,
    )
    eta: Positive | None = Key(
        None,
        "time in which a field inside the body takes the body's value (default: (width/2.65)^2 /"
        " viscosity, with which the surface is where it should be to second order in width)",
        example=1e-3,
    )

    @field_validator("values", mode="after")
    @classmethod
    def _finite(cls, values: dict[str, float]) -> dict[str, float]:
        if not all(math.isfinite(one) for one in values.values()):
            raise ValueError("accepted: finite numbers")
        return values

    @model_validator(mode="after")
    def _suits_its_shape(self) -> Self:
        keys = BODY_KEYS[self.shape]
        split = keys.index(None)
        for name in keys[:split]:
            if getattr(self, str(name)) is None:
                raise ValueError(f"{name!r} is missing, which shape = {self.shape!r} needs")
        check_belongs(self, "shape", [key for key in keys if key], _OF_SHAPES)
        return self
