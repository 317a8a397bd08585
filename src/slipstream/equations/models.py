"""The models that Slipstream ships, and the search for a model by its name.

A model is a function that takes the parameters of a case and returns the equations. Terms with a
parameter that is 0 are omitted, and cost nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import sympy

from slipstream.engine.errors import InputError, SlipstreamError
from slipstream.equations.derived_models import (
    CarriedScalar,
    Direction,
    NotNegative,
    Positive,
    Power,
    chm,
    damping,
    friction,
    hd2d,
    mhd2d,
    sqg,
    with_scalars,
)
from slipstream.equations.fewest_transforms import EVERY_AXIS_VARIES, FlatAxes
from slipstream.equations.fourier_forms import WAVENUMBERS, component_names
from slipstream.equations.lowering import Lowered, lower, lower_once
from slipstream.equations.model_definition import Model
from slipstream.equations.vector_calculus import (
    Quantity,
    Scalar,
    Vector,
    abs2,
    cross,
    curl,
    div,
    dot,
    function,
    grad,
    laplacian,
    outer,
    parameter,
    spectral,
    x_hat,
    y_hat,
    z_hat,
)

_HALF = sympy.Rational(1, 2)
_CONSTANT = "smagorinsky_constant"
# The eddy viscosity over sqrt(E / cutoff) is _LEVEL + _RISE exp(-_SLOPE cutoff / k), for a
# Kolmogorov constant of 1.
_LEVEL = sympy.Rational("0.441")
_RISE = sympy.Rational("15.2")
_SLOPE = sympy.Rational("3.03")


def _vector(value: Any) -> Quantity:
    """Return a vector of three components; a number is along z."""
    if not isinstance(value, tuple | list):
        return value * z_hat
    parts = [part * hat for part, hat in zip(value, (x_hat, y_hat, z_hat), strict=True)]
    return parts[0] + parts[1] + parts[2]


def _coriolis(rotation: Any, u: Quantity) -> Quantity:
    """Return twice the rotation times the velocity, a loss of the momentum."""
    if isinstance(rotation, tuple | list):
        return 2 * cross(_vector(rotation), u)
    return 2 * rotation * cross(z_hat, u)


def _sheared(vector: Quantity, shear: Any, **directions: Any) -> Quantity:
    """Return the loss of a vector that moves along y in a mean flow S y along x.

    Vectors that would change the mean flow must have no component along y.
    """
    for key, given in directions.items():
        if shear != 0 and isinstance(given, tuple | list) and given[1] != 0:
            raise InputError(
                f"equation.{key}: has a component along y, which does not balance equation.shear;"
                " accepted with it: [x, 0, z]"
            )
    return shear * dot(vector, y_hat) * x_hat


def _mean_shear(shear: Any, stress: Quantity) -> dict[str, Any]:
    """Return the arguments of a model for a mean flow S y along x, which works against a stress."""
    if shear == 0:
        return {}
    means = {"production": -shear * stress}
    return {"shear": shear, "means": means, "gains": dict.fromkeys(means)}


def hd(
    viscosity: NotNegative,
    viscosity_power: Power = 1,
    rotation: Direction = 0.0,
    drag: NotNegative = 0.0,
    hypoviscosity: NotNegative = 0.0,
    hypoviscosity_power: Power = 1,
    shear: float = 0.0,
) -> Model:
    """Incompressible Navier-Stokes equations, optionally in a rotating frame.

    Parameters
    ----------
    viscosity
        Kinematic viscosity: one over the Reynolds number of a flow of velocity and length 1.
    viscosity_power
        2 and more: hyperviscosity, -viscosity (-laplacian)^power.
    rotation
        Angular velocity of the frame: a number about z, or [x, y, z].
    drag
        Linear drag, -drag velocity.
    hypoviscosity
        Coefficient of -hypoviscosity (-laplacian)^-power, which damps large scales.
    hypoviscosity_power
        Power of the hypoviscosity.
    shear
        Rate S of a mean flow S y along x, which the velocity does not contain.
    """
    u = Vector("velocity", solenoidal=True)
    momentum = -div(outer(u, u)) + damping(u, viscosity, viscosity_power)
    momentum = momentum + friction(u, drag, hypoviscosity, hypoviscosity_power)
    momentum = momentum - _coriolis(rotation, u) - _sheared(u, shear, rotation=rotation)
    return Model({u: momentum}, **_mean_shear(shear, dot(u, x_hat) * dot(u, y_hat)))


def boussinesq(
    viscosity: NotNegative,
    diffusivity: NotNegative,
    buoyancy_frequency: NotNegative,
    viscosity_power: Power = 1,
    rotation: Direction = 0.0,
    shear: float = 0.0,
) -> Model:
    """Stably stratified flow; the buoyancy has the unit of a velocity, so that energies add up.

    Parameters
    ----------
    viscosity
        Kinematic viscosity.
    diffusivity
        Diffusivity of the buoyancy.
    buoyancy_frequency
        Frequency N at which a parcel of fluid oscillates in the stratification.
    viscosity_power
        2 and more: hyperviscosity, and the same power of the diffusion.
    rotation
        Angular velocity of the frame: a number about z, or [x, y, z].
    shear
        Rate S of a mean flow S y along x, which the velocity does not contain: a horizontal shear.
    """
    u, b = Vector("velocity", solenoidal=True), Scalar("buoyancy")
    N, power = buoyancy_frequency, viscosity_power
    flux = {"buoyancy_flux": N * b * dot(u, z_hat)} if N != 0 else {}
    momentum = -div(outer(u, u)) - N * b * z_hat + damping(u, viscosity, power)
    mean_flow = _mean_shear(shear, dot(u, x_hat) * dot(u, y_hat))
    return Model(
        {
            u: momentum - _coriolis(rotation, u) - _sheared(u, shear, rotation=rotation),
            b: -div(u * b) + N * dot(u, z_hat) + damping(b, diffusivity, power),
        },
        shear=shear,
        means=flux | mean_flow.get("means", {}),
        gains=dict.fromkeys(flux, b) | mean_flow.get("gains", {}),
    )


def rayleigh_benard(
    viscosity: NotNegative,
    diffusivity: NotNegative,
    buoyancy_frequency: NotNegative = 1.0,
    rotation: Direction = 0.0,
) -> Model:
    """Convection of a layer heated from below, in the Boussinesq approximation.

    The Rayleigh number is ``N^2 H^4 / (viscosity diffusivity)``, where H is the height of the box
    and ``N^2`` is gravity times the expansion coefficient times the temperature difference over H.
    The buoyancy is due to the deviation from the linear temperature profile; divided by N, it is a
    velocity.

    Parameters
    ----------
    viscosity
        Kinematic viscosity.
    diffusivity
        Diffusivity of the buoyancy.
    buoyancy_frequency
        N, the growth rate of the displacement of a parcel of fluid without friction.
    rotation
        Angular velocity of the frame: a number about z, or [x, y, z].
    """
    u, b, N = Vector("velocity", solenoidal=True), Scalar("buoyancy"), buoyancy_frequency
    flux = N * b * dot(u, z_hat)
    momentum = -div(outer(u, u)) + N * b * z_hat + damping(u, viscosity, 1)
    return Model(
        {
            u: momentum - _coriolis(rotation, u),
            b: -div(u * b) + N * dot(u, z_hat) + damping(b, diffusivity, 1),
        },
        means={"buoyancy_flux": flux, "buoyancy_production": flux} if N != 0 else {},
        gains={"buoyancy_flux": None, "buoyancy_production": b} if N != 0 else {},
        passive=[b],
    )


def mhd(
    viscosity: NotNegative,
    resistivity: NotNegative,
    viscosity_power: Power = 1,
    rotation: Direction = 0.0,
    mean_field: Direction = 0.0,
    ion_inertial_length: NotNegative = 0.0,
    shear: float = 0.0,
) -> Model:
    """Incompressible magnetohydrodynamics, optionally with the Hall term; fields as velocities.

    Parameters
    ----------
    viscosity
        Kinematic viscosity.
    resistivity
        Magnetic diffusivity.
    viscosity_power
        2 and more: hyperviscosity, and the same power of the resistivity.
    rotation
        Angular velocity of the frame: a number about z, or [x, y, z].
    mean_field
        Uniform magnetic field, as an Alfven velocity: a number along z, or [x, y, z].
    ion_inertial_length
        Length below which the field moves with the electrons, u - length curl(b): Hall effect.
    shear
        Rate S of a mean flow S y along x, which the velocity does not contain.
    """
    u, b = Vector("velocity", solenoidal=True), Vector("magnetic", solenoidal=True)
    power, B = viscosity_power, _vector(mean_field)
    electrons = u - ion_inertial_length * curl(b)
    whistlers = [ion_inertial_length * abs2(b) ** _HALF] if ion_inertial_length != 0 else []
    return Model(
        {
            u: -div(outer(u, u))
            + cross(curl(b), b)
            + cross(curl(b), B)
            + damping(u, viscosity, power)
            - _coriolis(rotation, u)
            - _sheared(u, shear, rotation=rotation),
            b: curl(cross(electrons, b) + cross(electrons, B))
            + damping(b, resistivity, power)
            + _sheared(b, shear, mean_field=mean_field),
        },
        speeds=[u, b, *whistlers],
        **_mean_shear(shear, dot(u, x_hat) * dot(u, y_hat) - dot(b, x_hat) * dot(b, y_hat)),
    )


def gpe(sound_speed: Positive = 1.0, healing_length: Positive = 1.0) -> Model:
    """Gross-Pitaevskii equation of a quantum fluid of density 1.

    ``i d psi/dt = -alpha laplacian(psi) + beta (|psi|^2 - 1) psi`` with alpha = c xi / sqrt(2) and
    beta = c / (sqrt(2) xi), as in GHOST: c is the speed of sound, xi the healing length.

    Parameters
    ----------
    sound_speed
        Speed of sound.
    healing_length
        Width of the core of a vortex line.
    """
    psi = Scalar("psi", complex=True)
    alpha = sound_speed * healing_length / sympy.sqrt(2)
    beta = sound_speed / (sympy.sqrt(2) * healing_length)
    density = abs2(psi)
    energy = alpha * abs2(grad(psi)) + beta / 2 * (density - 1) ** 2
    return Model(
        {psi: 1j * (alpha * laplacian(psi) - beta * (density - 1) * psi)},
        means={"mass": density, "hamiltonian": energy},
    )


def argle(sound_speed: Positive = 1.0, healing_length: Positive = 1.0) -> Model:
    """Real Ginzburg-Landau equation with a flow (ARGLE), for initial states of `gpe` without sound.

    ``d psi/dt = alpha (grad - i u / (2 alpha))^2 psi - beta (|psi|^2 - 1) psi``, with a velocity u
    that does not change (Nore, Abid and Brachet, Phys. Fluids 9, 2644 (1997)). It lowers the mean
    `free_energy`, until the fluid flows as u does, with vortex lines instead of its vorticity.

    Parameters
    ----------
    sound_speed
        Speed of sound.
    healing_length
        Width of the core of a vortex line.
    """
    psi, u = Scalar("psi", complex=True), Vector("velocity", solenoidal=True)
    alpha = sound_speed * healing_length / sympy.sqrt(2)
    beta = sound_speed / (sympy.sqrt(2) * healing_length)
    density = abs2(psi)
    slope = grad(psi) - 1j * u * psi / (2 * alpha)
    energy = alpha * abs2(slope) + beta / 2 * (density - 1) ** 2
    carried = -1j * div(u * psi) - abs2(u) * psi / (4 * alpha)
    return Model(
        {psi: alpha * laplacian(psi) - beta * (density - 1) * psi + carried, u: 0 * u},
        means={"mass": density, "free_energy": energy},
    )


def lans_alpha(
    viscosity: NotNegative,
    width: Positive,
    viscosity_power: Power = 1,
    rotation: Direction = 0.0,
) -> Model:
    """Lagrangian-averaged Navier-Stokes equations, alpha model: Camassa-Holm with viscosity.

    The velocity u is the smoothed one; v = (1 - width^2 laplacian) u obeys
    ``dv/dt = u x curl v - grad p + viscosity laplacian(v)``.

    Parameters
    ----------
    viscosity
        Kinematic viscosity.
    width
        Length alpha, below which the flow is smoothed.
    viscosity_power
        2 and more: hyperviscosity, -viscosity (-laplacian)^power.
    rotation
        Angular velocity of the frame: a number about z, or [x, y, z].
    """
    u = Vector("velocity", solenoidal=True)
    v = u - width**2 * laplacian(u)
    bent = _smoothed(cross(u, curl(v) + 2 * _vector(rotation)), width)
    energy = {"alpha_energy": dot(u, v) / 2}
    return Model({u: bent + damping(u, viscosity, viscosity_power)}, means=energy)


def leray_alpha(
    viscosity: NotNegative,
    width: Positive,
    viscosity_power: Power = 1,
    rotation: Direction = 0.0,
) -> Model:
    """Leray's regularised Navier-Stokes equations: a smoothed velocity advects the velocity.

    Parameters
    ----------
    viscosity
        Kinematic viscosity.
    width
        Length alpha of the smoothing, one over (1 - alpha^2 laplacian).
    viscosity_power
        2 and more: hyperviscosity, -viscosity (-laplacian)^power.
    rotation
        Angular velocity of the frame: a number about z, or [x, y, z].
    """
    v = Vector("velocity", solenoidal=True)
    carried = -div(outer(_smoothed(v, width), v)) - _coriolis(rotation, v)
    return Model({v: carried + damping(v, viscosity, viscosity_power)})


def _smoothed(quantity: Quantity, width: Any) -> Quantity:
    return spectral(lambda kx, ky, kz: 1 / (1 + width**2 * (kx**2 + ky**2 + kz**2)), quantity)


def smagorinsky(
    viscosity: NotNegative,
    width: Positive,
    constant: Positive = 0.17,
    viscosity_power: Power = 1,
    rotation: Direction = 0.0,
) -> Model:
    """Large-eddy simulation with the eddy viscosity of Smagorinsky.

    ``(constant width)^2 |S|`` with ``|S|^2 = 2 S_ij S_ij``, S the rate of strain (Smagorinsky, Mon.
    Weather Rev. 91, 99 (1963)). The energy that it takes away is `subgrid_dissipation`.

    Parameters
    ----------
    viscosity
        Kinematic viscosity of the fluid, to which the eddy viscosity is added.
    width
        Width of the filter: usually the distance of the points.
    constant
        Smagorinsky's constant; for isotropic turbulence with a filter in the inertial range it is
        0.17 (Lilly 1967).
    viscosity_power
        2 and more: hyperviscosity, -viscosity (-laplacian)^power.
    rotation
        Angular velocity of the frame: a number about z, or [x, y, z].
    """
    u = Vector("velocity", solenoidal=True)
    strain = (grad(u) + grad(u).T) / 2
    mixing, square = (constant * width) ** 2, 2 * abs2(strain)
    eddy_viscosity = mixing * square**_HALF
    momentum = div(2 * eddy_viscosity * strain - outer(u, u)) - _coriolis(rotation, u)
    loss = {"subgrid_dissipation": mixing * square ** (3 * _HALF)}
    return Model(
        {u: momentum + damping(u, viscosity, viscosity_power)},
        speeds=[u, eddy_viscosity],
        means=loss,
        losses=list(loss),
    )


def dynamic_smagorinsky(
    viscosity: NotNegative,
    cutoff: Positive,
    test_filter: Positive = 2.0,
    viscosity_power: Power = 1,
    rotation: Direction = 0.0,
) -> Model:
    """Large-eddy simulation whose Smagorinsky constant follows from the flow at every step.

    ``(smagorinsky_constant pi / cutoff)^2 |S|``: of Germano's identity, between the flow and the
    flow without eddies beyond ``cutoff / test_filter``, the constant of the least squares of Lilly
    over the whole box, and 0 where its square would be negative (Germano et al., Phys. Fluids A 3,
    1760 (1991); Lilly, Phys. Fluids A 4, 633 (1992)). `smagorinsky_constant` is a column, like
    `subgrid_dissipation`.

    Parameters
    ----------
    viscosity
        Kinematic viscosity of the fluid, to which the eddy viscosity is added.
    cutoff
        Largest wavenumber that the grid keeps: n / 3 for n points in a box of length 2 pi.
    test_filter
        Width of the test filter, a sharp cutoff, in units of the width of the grid.
    viscosity_power
        2 and more: hyperviscosity, -viscosity (-laplacian)^power.
    rotation
        Angular velocity of the frame: a number about z, or [x, y, z].
    """

    def filtered(quantity: Quantity) -> Quantity:
        def inside(kx: Any, ky: Any, kz: Any) -> Any:
            return _within(kx**2 + ky**2 + kz**2 <= (cutoff / test_filter) ** 2)

        return spectral(inside, quantity)

    def stress(u: Quantity) -> Quantity:
        strain = (grad(u) + grad(u).T) / 2
        return (2 * abs2(strain)) ** _HALF * strain

    u = Vector("velocity", solenoidal=True)
    large = filtered(u)
    resolved = filtered(outer(u, u)) - outer(large, large)
    modelled = 2 * (filtered(stress(u)) - test_filter**2 * stress(large))
    product, square = map(parameter, ("resolved_and_modelled", "square_of_modelled"))
    ratio = sympy.Max(product / square, 0)
    return dataclasses.replace(
        smagorinsky(viscosity, sympy.pi / cutoff, parameter(_CONSTANT), viscosity_power, rotation),
        averages={str(product): (_deviator(resolved), modelled), str(square): (modelled, modelled)},
        follows={_CONSTANT: ratio**_HALF * cutoff / sympy.pi},
    )


def _within(condition: Any) -> Any:
    return sympy.Piecewise((sympy.Integer(1), condition), (sympy.Integer(0), True))


def _deviator(tensor: Quantity) -> Quantity:
    """Return a tensor without its trace."""
    trace = (tensor[0, 0] + tensor[1, 1] + tensor[2, 2]) / 3
    return tensor - trace * (outer(x_hat, x_hat) + outer(y_hat, y_hat) + outer(z_hat, z_hat))


def chollet_lesieur(
    viscosity: NotNegative,
    cutoff: Positive,
    kolmogorov_constant: Positive = 1.4,
    shell_width: Positive = 1.0,
    rotation: Direction = 0.0,
) -> Model:
    """Large-eddy simulation with the spectral eddy viscosity of Chollet and Lesieur.

    ``C^(-3/2) (0.441 + 15.2 exp(-3.03 cutoff / k)) sqrt(E / cutoff)`` at the wavenumber k, with the
    energy spectrum E at the cutoff and Kolmogorov's constant C (Chollet and Lesieur, J. Atmos. Sci.
    38, 2747 (1981)). The energy that it takes away is `subgrid_dissipation`; `cutoff_viscosity`,
    ``C^(-3/2) sqrt(E / cutoff)``, is a column too.

    Parameters
    ----------
    viscosity
        Kinematic viscosity of the fluid, to which the eddy viscosity is added.
    cutoff
        Largest wavenumber that the grid keeps: n / 3 for n points in a box of length 2 pi.
    kolmogorov_constant
        C, of the spectrum ``C epsilon^(2/3) k^(-5/3)``.
    shell_width
        Range of wavenumbers below the cutoff whose energy, divided by this, is E.
    rotation
        Angular velocity of the frame: a number about z, or [x, y, z].
    """
    u = Vector("velocity", solenoidal=True)
    level, energy = parameter("cutoff_viscosity"), parameter("cutoff_energy")

    def at_cutoff(kx: Any, ky: Any, kz: Any) -> Any:
        k = sympy.sqrt(kx**2 + ky**2 + kz**2)
        return _within(sympy.And(k > cutoff - shell_width, k <= cutoff))

    def eddies(kx: Any, ky: Any, kz: Any) -> Any:
        square = kx**2 + ky**2 + kz**2
        shape = _LEVEL + _RISE * sympy.exp(-_SLOPE * cutoff / sympy.sqrt(square))
        return -square * shape

    backscatter = level * spectral(eddies, u, 0)
    momentum = -div(outer(u, u)) + damping(u, viscosity, 1) - _coriolis(rotation, u)
    outermost = spectral(at_cutoff, u)
    return Model(
        {u: momentum + backscatter},
        means={"subgrid_dissipation": -dot(u, backscatter)},
        averages={str(energy): (outermost, outermost)},
        follows={
            str(level): (energy / (2 * shell_width * cutoff * kolmogorov_constant**3)) ** _HALF
        },
    )


def isothermal(viscosity: NotNegative, sound_speed: Positive) -> Model:
    """Compressible isothermal flow: the pressure is sound_speed^2 times the density, of mean 1.

    The fields are the velocity and `excess_density`, the density minus 1. `total_energy` is the
    mean of ``rho u^2 / 2 + c^2 (rho log(rho) - rho + 1)``, which viscosity dissipates at the rate
    `viscous_dissipation`.

    Parameters
    ----------
    viscosity
        Dynamic viscosity: the kinematic viscosity at density 1. There is no bulk viscosity.
    sound_speed
        Speed of sound.
    """
    u, excess = Vector("velocity"), Scalar("excess_density")
    density, pressure = 1 + excess, sound_speed**2
    friction = viscosity * (laplacian(u) + grad(div(u)) / 3)
    rate = -cross(curl(u), u) - grad(abs2(u) / 2 + pressure * function(_curved_log, density))
    rate = rate - pressure * grad(excess) + friction - friction * (excess / density)
    lost = abs2(curl(u)) + sympy.Rational(4, 3) * div(u) ** 2
    kinetic = density * abs2(u) / 2
    internal = pressure * (density * function(sympy.log, density) - excess)
    return Model(
        {u: rate, excess: -div(u * excess) - div(u)},
        speeds=[u, 4 * viscosity / 3 * (excess / density)] if viscosity != 0 else [u],
        means={
            "mass": density,
            "kinetic_energy": kinetic,
            "total_energy": kinetic + internal,
            **({"viscous_dissipation": viscosity * lost} if viscosity != 0 else {}),
        },
    )


def _curved_log(density: sympy.Expr) -> sympy.Expr:
    """Return ``log(density) - (density - 1)`` as one term, so that sound stays linear."""
    return sympy.log(density * sympy.exp(1 - density))


SHIPPED: dict[str, Callable[..., Model]] = {
    "hd": hd,
    "boussinesq": boussinesq,
    "mhd": mhd,
    "gpe": gpe,
    "argle": argle,
    "hd2d": hd2d,
    "mhd2d": mhd2d,
    "sqg": sqg,
    "chm": chm,
    "lans-alpha": lans_alpha,
    "leray-alpha": leray_alpha,
    "smagorinsky": smagorinsky,
    "dynamic-smagorinsky": dynamic_smagorinsky,
    "chollet-lesieur": chollet_lesieur,
    "isothermal": isothermal,
    "rayleigh-benard": rayleigh_benard,
}


# Functions from Python programs, by their names in cases.
_GIVEN: dict[str, Callable[..., Model]] = {}


def _has_signature(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions, such as int, have no signature
        return False
    return True


def name_of(model: str | Model | Callable[..., Model]) -> str:
    """Return the name of a model in cases; functions and models get a new one.

    The new name begins with "python:", and is valid in this process only.
    """
    if isinstance(model, str):
        return model
    maker: Callable[..., Model]
    if isinstance(model, Model):
        maker, label = _constant(model), "Model"
    elif callable(model) and _has_signature(model):
        maker, label = model, getattr(model, "__qualname__", type(model).__name__)
    else:
        raise InputError(
            f"model is {type(model).__name__}; accepted: {', '.join(SHIPPED)}, FILE.py:FUNCTION, a"
            " Model, or a function that returns one"
        )
    for name, known in _GIVEN.items():
        if known == maker:
            return name
    # Notebooks often define a function again: cached results belong to the earlier one.
    same = sum(name.partition("#")[0] == f"python:{label}" for name in _GIVEN)
    name = f"python:{label}" + (f"#{same + 1}" if same else "")
    _GIVEN[name] = maker
    return name


@dataclasses.dataclass(frozen=True, eq=False)
class Constant:
    """A function without parameters that returns a model."""

    model: Model

    def __call__(self) -> Model:
        """Return the model."""
        return self.model


@functools.lru_cache(64)
def _constant(model: Model) -> Constant:
    """Return the function that returns a model, always the same object."""
    return Constant(model)


def find(name: str) -> Callable[..., Model]:
    """Return the function of a shipped model, or of ``FILE.py:FUNCTION``."""
    if name in SHIPPED:
        return SHIPPED[name]
    if name in _GIVEN:
        return _GIVEN[name]
    if name.startswith("python:"):
        raise InputError(
            f"equation.model: {name!r} was given by a Python program; give the model there again,"
            " by slipstream.Flow(model, ...)"
        )
    path, colon, function = name.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise InputError(
            f"equation.model: {name!r} is unknown; accepted: {', '.join(SHIPPED)}, or "
            "FILE.py:FUNCTION for your own"
        )
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise InputError(
            f"equation.model: {path}: {reason}; accepted: a path from the case's folder or from"
            " the working directory"
        ) from None
    return _from_text(str(Path(path).resolve()), text, function)


@functools.lru_cache(64)
def _from_text(path: str, text: bytes, name: str) -> Callable[..., Model]:
    """Return a function of a Python file, from the text read, since the file may change."""
    specification = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert specification is not None and specification.loader is not None  # as in any .py file
    module = importlib.util.module_from_spec(specification)
    try:
        exec(compile(text, path, "exec"), module.__dict__)
    except Exception as error:
        raise InputError(
            f"equation.model: {path} fails: {type(error).__name__}: {error}"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        known = [
            n
            for n, f in vars(module).items()
            if inspect.isfunction(f) and f.__module__ == module.__name__
        ]
        accepted = ", ".join(known) or "none"
        raise InputError(f"equation.model: {path} has no function {name!r}; it has: {accepted}")
    return function


def parameters_of(function: Callable[..., Model]) -> dict[str, tuple[Any, Any]]:
    """Return type and default (`...` for none) of each parameter of a model."""
    result = {}
    for name, argument in inspect.signature(function, eval_str=True).parameters.items():
        kind = float if argument.annotation is argument.empty else argument.annotation
        result[name] = kind, (... if argument.default is argument.empty else argument.default)
    return result


def lowered(
    name: str,
    values: Mapping[str, Any],
    flat: FlatAxes = EVERY_AXIS_VARIES,
    scalars: Sequence[CarriedScalar] = (),
) -> Lowered:
    """Return a lowered model with scalars; parameters that are floats and not 0 stay symbols."""
    for key, value in values.items():
        parts = value if isinstance(value, tuple) and len(value) == 3 else (value,)
        if not all(isinstance(part, int | float) for part in parts):
            raise InputError(
                f"equation.{key}: {value!r} is not a number; accepted: a number, or three numbers"
            )
    fixed = tuple((key, _fixed(value)) for key, value in sorted(values.items()))
    for scalar in scalars:
        for key in scalar.numbers:
            if key in values:
                raise InputError(
                    f"scalars: the equation has a parameter {key!r}; accepted: another name than"
                    f" {scalar.name!r}"
                )
    return _lowered(find(name), name, fixed, flat, tuple(scalar.structure for scalar in scalars))


# A parameter in the equations: None for a symbol, else its value.
Fixed = int | None | tuple[int | None, ...]


def _fixed(value: Any) -> Fixed:
    if isinstance(value, tuple):
        return tuple(None if one != 0 else 0 for one in value)
    return None if isinstance(value, float) and value != 0 else int(value)


def _argument(key: str, value: Fixed) -> Any:
    if isinstance(value, tuple):
        names = component_names(key, 1)
        return tuple(_argument(name, one) for name, one in zip(names, value, strict=True))
    return sympy.Symbol(key, real=True) if value is None else value


def numbers_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters, with vectors split into components, by the names of their symbols."""
    numbers: dict[str, Any] = {}
    for key, value in parameters.items():
        is_vector = isinstance(value, tuple)
        numbers |= zip(component_names(key, 1), value, strict=True) if is_vector else [(key, value)]
    return numbers


@functools.cache
def _lowered(
    function: Callable[..., Model],
    name: str,
    values: tuple[tuple[str, Fixed], ...],
    flat: FlatAxes,
    scalars: tuple[CarriedScalar, ...],
) -> Lowered:
    for key, _ in values:
        if key in map(str, WAVENUMBERS):
            raise InputError(f"equation.model: {name} has parameter {key!r}, a wavenumber's name")
    arguments = {key: _argument(key, value) for key, value in values}
    try:
        model = function(**arguments)
    except SlipstreamError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(
            f"equation.model: {name} fails: {reason} (parameters that are not whole are symbols)"
        ) from error
    if not isinstance(model, Model):
        raise InputError(f"equation.model: {name} returns {type(model).__name__}; expected a Model")
    model = with_scalars(model, scalars, name)
    is_ours = function.__module__.startswith(f"{__package__}.")
    return lower_once(model, flat) if is_ours else lower(model, flat)
