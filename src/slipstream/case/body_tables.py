"""``[[bodies]]``: solid bodies in the box, by volume penalisation."""

from __future__ import annotations

import math
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from slipstream.accepted import BODIES
from slipstream.case.named_tables import Identifier
from slipstream.case.output_tables import Axis
from slipstream.case.table import Key, Positive, Table, as_three, one_of

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
        "time in which a field becomes that of the body, in its inside (default: (width/2.65)^2 /"
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
        for name in _OF_SHAPES:
            is_default = getattr(self, name) == type(self).model_fields[name].default
            if name not in keys and not is_default:
                accepted = ", ".join(str(one) for one in keys if one)
                raise ValueError(
                    f"{name!r} does not belong to shape = {self.shape!r}; accepted with it:"
                    f" {accepted}"
                )
        return self
