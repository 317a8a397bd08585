"""Models made from others: flow in a plane, and passive scalars that any velocity carries."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, cast

import sympy
from pydantic import BeforeValidator, Field

from slipstream.engine.errors import InputError
from slipstream.equations.fourier_forms import AXES
from slipstream.equations.model_definition import Model
from slipstream.equations.vector_calculus import (
    Quantity,
    Scalar,
    Unknown,
    abs2,
    cross,
    curl,
    div,
    dot,
    grad,
    laplacian,
    outer,
    spectral,
    x_hat,
    y_hat,
    z_hat,
)

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Power = Annotated[int, Field(ge=1, le=8)]


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# A number is along z.
Direction = float | Annotated[tuple[float, float, float], BeforeValidator(_as_tuple)]


def damping(quantity: Quantity, coefficient: Any, power: int) -> Quantity:
    """Return ``-coefficient (-laplacian)^power``: viscosity, or hyperviscosity."""
    return (-1) ** (power + 1) * coefficient * laplacian(quantity, power)


def friction(quantity: Quantity, drag: Any, hypoviscosity: Any, power: int) -> Quantity:
    """Return ``-drag - hypoviscosity (-laplacian)^-power``, which damps large scales."""
    return -drag * quantity + damping(quantity, hypoviscosity, -power)


def _velocity(stream: Quantity) -> Quantity:
    return curl(-stream * z_hat)


def _advected(u: Quantity) -> Quantity:
    """Return ``-u . grad(vorticity)``, in products with the fewest transforms."""
    return -dot(z_hat, curl(div(outer(u, u))))


def hd2d(
    viscosity: NotNegative,
    viscosity_power: Power = 1,
    drag: NotNegative = 0.0,
    hypoviscosity: NotNegative = 0.0,
    hypoviscosity_power: Power = 1,
    beta: float = 0.0,
) -> Model:
    """Two-dimensional Navier-Stokes equations for the vorticity, optionally on a beta plane.

    Parameters
    ----------
    viscosity
        Kinematic viscosity.
    viscosity_power
        2 and more: hyperviscosity, -viscosity (-laplacian)^power.
    drag
        Linear (Ekman) drag, -drag vorticity.
    hypoviscosity
        Coefficient of -hypoviscosity (-laplacian)^-power, which damps large scales.
    hypoviscosity_power
        Power of the hypoviscosity.
    beta
        Gradient along y of the Coriolis parameter.
    """
    w = Scalar("vorticity")
    u = _velocity(laplacian(w, -1))
    rate = _advected(u) - beta * u[1] + damping(w, viscosity, viscosity_power)
    return Model(
        {w: rate + friction(w, drag, hypoviscosity, hypoviscosity_power)},
        means={"kinetic_energy": abs2(u) / 2},
        plane_vectors={"velocity": (w, u)},
    )


def mhd2d(
    viscosity: NotNegative,
    resistivity: NotNegative,
    viscosity_power: Power = 1,
    drag: NotNegative = 0.0,
    mean_field: float = 0.0,
) -> Model:
    """Two-dimensional magnetohydrodynamics for vorticity and flux function.

    Parameters
    ----------
    viscosity
        Kinematic viscosity.
    resistivity
        Magnetic diffusivity.
    viscosity_power
        2 and more: hyperviscosity, and the same power of the resistivity.
    drag
        Linear drag, -drag vorticity.
    mean_field
        Uniform magnetic field along x, as an Alfven velocity.
    """
    w, a = Scalar("vorticity"), Scalar("flux")
    u, b, B = _velocity(laplacian(w, -1)), curl(a * z_hat), mean_field * x_hat
    bent = dot(z_hat, curl(div(outer(b, b)) + cross(curl(b), B)))
    rate = _advected(u) + bent + damping(w, viscosity, viscosity_power) - drag * w
    induced = dot(z_hat, cross(u, b) + cross(u, B))
    return Model(
        {w: rate, a: induced + damping(a, resistivity, viscosity_power)},
        means={
            "kinetic_energy": abs2(u) / 2,
            "magnetic_energy": abs2(b) / 2,
            "cross_helicity": dot(u, b),
        },
        plane_vectors={"velocity": (w, u), "magnetic": (a, b)},
    )


def sqg(
    diffusivity: NotNegative,
    diffusivity_power: Power = 1,
    drag: NotNegative = 0.0,
    gradient: float = 0.0,
) -> Model:
    """Surface quasi-geostrophic flow: buoyancy theta = -(-laplacian)^(1/2) psi at a surface.

    Parameters
    ----------
    diffusivity
        Diffusivity of the buoyancy.
    diffusivity_power
        2 and more: hyperdiffusion, -diffusivity (-laplacian)^power.
    drag
        Linear damping, -drag buoyancy.
    gradient
        Mean gradient of the buoyancy along y.
    """
    s = Scalar("buoyancy")
    u = _velocity(laplacian(s, -0.5))
    rate = -div(u * s) - gradient * u[1] + damping(s, diffusivity, diffusivity_power)
    means = {"kinetic_energy": abs2(u) / 2, "stream_buoyancy": laplacian(s, -0.5) * s}
    return Model({s: rate - drag * s}, means=means, plane_vectors={"velocity": (s, u)})


def chm(
    viscosity: NotNegative,
    radius: Positive,
    beta: float = 0.0,
    viscosity_power: Power = 1,
    drag: NotNegative = 0.0,
) -> Model:
    """Charney-Hasegawa-Mima equation of the potential vorticity q = (laplacian - 1/radius^2) psi.

    Parameters
    ----------
    viscosity
        Diffusivity of the potential vorticity.
    radius
        Rossby radius of deformation, or ion sound Larmor radius.
    beta
        Gradient along y of the Coriolis parameter, or of the logarithm of the density.
    viscosity_power
        2 and more: hyperviscosity, -viscosity (-laplacian)^power.
    drag
        Linear damping, -drag q.
    """
    q = Scalar("potential_vorticity")
    stream = spectral(lambda kx, ky, kz: -1 / (kx**2 + ky**2 + 1 / radius**2), q)
    u = _velocity(stream)
    rate = _advected(u) - beta * u[1] + damping(q, viscosity, viscosity_power) - drag * q
    means = {"kinetic_energy": abs2(u) / 2, "total_energy": -stream * q / 2}
    return Model({q: rate}, means=means, plane_vectors={"velocity": (q, u)})


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
    """Return a model with passive scalars, under a name."""
    if not scalars:
        return model
    u = _velocity_of_model(model)
    if u is None:
        raise InputError(
            f"scalars: model {name} has no velocity to advect them; accepted: a model with a"
            " vector 'velocity'"
        )
    for scalar in scalars:
        if scalar.name in (field.name for field in model.equations):
            raise InputError(
                f"scalars: model {name} has a field {scalar.name!r}; accepted: other names"
            )
    equations: dict[Unknown, Quantity] = dict(model.equations)
    means, gains = dict(model.means), dict(model.gains)
    for scalar in scalars:
        s = Scalar(scalar.name)
        is_solenoidal = isinstance(u, Unknown) and u.solenoidal or model.plane_vectors
        rate = -div(u * s) if is_solenoidal else -dot(u, grad(s))
        diffusivity, *gradient = (
            sympy.Symbol(key, real=True) if number else sympy.Integer(0)
            for key, number in scalar.numbers.items()
        )
        slopes = [one * hat for one, hat in zip(gradient, HATS, strict=True) if one != 0]
        if gradient[0] != 0 and model.shear != 0:
            raise InputError(
                f"scalars: {scalar.name} has a mean gradient along x, which equation.shear changes;"
                " accepted with it: mean_gradient = [0, y, z]"
            )
        if slopes:
            along = dot(u, sum(slopes[1:], start=slopes[0]))
            rate = rate - along
            means[f"{scalar.name}_production"] = -along * s
            gains[f"{scalar.name}_production"] = s
        equations[s] = rate + damping(s, diffusivity, scalar.power) if diffusivity != 0 else rate
    own_fields = [cast(Scalar, s) for s in equations if s not in model.equations]
    passive = (*model.passive, *own_fields)
    return dataclasses.replace(
        model, equations=equations, means=means, gains=gains, passive=passive
    )


def _velocity_of_model(model: Model) -> Quantity | None:
    for field in model.equations:
        if field.name == "velocity" and field.rank == 1:
            return field
    return model.plane_vectors["velocity"][1] if "velocity" in model.plane_vectors else None
