"""Passive scalars: equations that are added to any model with a velocity."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import sympy

from slipstream.equations.fourier_forms import AXES
from slipstream.equations.model_definition import Model
from slipstream.equations.plane_models import damping
from slipstream.equations.vector_calculus import (
    Quantity,
    Scalar,
    Unknown,
    div,
    dot,
    grad,
    x_hat,
    y_hat,
    z_hat,
)
from slipstream.errors import InputError

HATS = x_hat, y_hat, z_hat


class CarriedScalar(NamedTuple):
    """A scalar that the flow advects; parameters that are 0 omit terms."""

    name: str
    diffusivity: float
    power: int
    gradient: tuple[float, float, float]

    @property
    def numbers(self) -> dict[str, float]:
        """The parameters of its equation, by name."""
        along = {
            f"{self.name}_gradient_{a}": one for a, one in zip(AXES, self.gradient, strict=True)
        }
        return {f"{self.name}_diffusivity": self.diffusivity, **along}

    @property
    def structure(self) -> CarriedScalar:
        """The same scalar with 1 for each nonzero parameter."""
        along: Any = tuple(float(one != 0) for one in self.gradient)
        return CarriedScalar(self.name, float(self.diffusivity != 0), self.power, along)


def with_scalars(model: Model, scalars: Sequence[CarriedScalar], name: str) -> Model:
    """Return a model with passive scalars, under a name.

    ``ds/dt = -u . grad(s) - u . G + diffusivity laplacian(s)``, where G is the mean gradient.
    """
    if not scalars:
        return model
    u = _velocity(model)
    if u is None:
        raise InputError(
            f"scalars: model {name} has no velocity to advect them; accepted: a model with a"
            " vector 'velocity'"
        )
    for own in scalars:
        if own.name in (field.name for field in model.equations):
            raise InputError(
                f"scalars: model {name} has a field {own.name!r}; accepted: other names"
            )
    equations: dict[Unknown, Quantity] = dict(model.equations)
    means, gains = dict(model.means), dict(model.gains)
    for own in scalars:
        s = Scalar(own.name)
        is_solenoidal = isinstance(u, Unknown) and u.solenoidal or model.plane_vectors
        rate = -div(u * s) if is_solenoidal else -dot(u, grad(s))
        diffusivity, *gradient = _symbols(own.numbers)
        slopes = [one * hat for one, hat in zip(gradient, HATS, strict=True) if one != 0]
        if gradient[0] != 0 and model.shear != 0:
            raise InputError(
                f"scalars: {own.name} has a mean gradient along x, which equation.shear changes;"
                " accepted with it: mean_gradient = [0, y, z]"
            )
        if slopes:
            along = dot(u, sum(slopes[1:], start=slopes[0]))
            rate = rate - along
            means[f"{own.name}_production"] = -along * s
            gains[f"{own.name}_production"] = s
        equations[s] = rate + damping(s, diffusivity, own.power) if diffusivity != 0 else rate
    own_fields = [cast(Scalar, s) for s in equations if s not in model.equations]
    passive = (*model.passive, *own_fields)
    return dataclasses.replace(
        model, equations=equations, means=means, gains=gains, passive=passive
    )


def _velocity(model: Model) -> Quantity | None:
    for field in model.equations:
        if field.name == "velocity" and field.rank == 1:
            return field
    return model.plane_vectors["velocity"][1] if "velocity" in model.plane_vectors else None


def _symbols(numbers: Mapping[str, float]) -> list[sympy.Expr]:
    return [
        sympy.Symbol(key, real=True) if one else sympy.Integer(0) for key, one in numbers.items()
    ]
