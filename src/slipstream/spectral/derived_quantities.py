"""Named quantities derived from the fields of a model, such as pressure and helicity.

Each entry of the registry defines a name in the language of equations, and lists the fields that a
model needs for it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import sympy

from slipstream.equations import (
    Lowered,
    Quantity,
    abs2,
    cross,
    curl,
    div,
    dot,
    grad,
    inverse_laplacian,
    x_hat,
    y_hat,
)
from slipstream.equations.fourier_forms import IMAGINARY, Form, component_names, form_of_points
from slipstream.equations.vector_calculus import function
from slipstream.spectral.spectral_problem import field_parts

Fields = Mapping[str, Quantity]


@dataclass(frozen=True)
class Derived:
    """A quantity that follows from the fields of a model."""

    text: str  # descriptive name
    make: Callable[[Fields], Quantity]
    needs: tuple[str, ...]  # fields
    rank: int = 0  # 1 for a vector, 2 for a tensor, whose components have their own names
    is_component: bool = False


def fields_of(model: Lowered) -> dict[str, Quantity]:
    """Return the fields of a model, and their components, as quantities by name."""
    found: dict[str, Quantity] = {}
    values = model.unknowns
    for name, first in model.complexes:
        real, imaginary = (values[place] for place in (first, first + 1))
        found[name] = Quantity([Form({real: sympy.Integer(1), imaginary: IMAGINARY})], name)
    for part in field_parts(model):
        own = values[part.first : part.first + part.size]
        found[part.name] = Quantity([Form({v: sympy.Integer(1)}) for v in own], part.name)
    for value in values:
        found[str(value)] = Quantity([Form({value: sympy.Integer(1)})], str(value))
    return found


def vector_potential(field: Quantity) -> Quantity:
    """Return the vector potential of a field: solenoidal, with zero mean."""
    return -inverse_laplacian(curl(field))


def strain(velocity: Quantity) -> Quantity:
    """Return the rate-of-strain tensor, (d_i u_j + d_j u_i) / 2."""
    slopes = grad(velocity)
    return (slopes + slopes.T) / 2


def q_criterion(velocity: Quantity) -> Quantity:
    """Return -d_i u_j d_j u_i / 2: positive where rotation exceeds strain, for solenoidal flow."""
    slopes = [Quantity([form], velocity.text) for form in grad(velocity).forms]
    products = [slopes[3 * i + j] * slopes[3 * j + i] for i in range(3) for j in range(3)]
    return sum(products[1:], products[0]) / -2


def r_invariant(velocity: Quantity) -> Quantity:
    """Return minus the determinant of d_i u_j: the third invariant, for solenoidal flow.

    In the plane of Q and R, 27 R^2 + 4 Q^3 = 0 divides swirling from straining motion (Chong, Perry
    and Cantwell, 1990).
    """
    return _minus_determinant(grad(velocity))


def _minus_determinant(tensor: Quantity) -> Quantity:
    x, y, z = (Quantity(tensor.forms[3 * i : 3 * i + 3], f"{tensor.text}[{i}]") for i in range(3))
    return -dot(x, cross(y, z))


def enstrophy_production(velocity: Quantity) -> Quantity:
    """Return w_i S_ij w_j, the rate of vortex stretching; w is the vorticity, S the strain."""
    own = curl(velocity)
    return dot(dot(own, strain(velocity)), own)


def pressure(model: Lowered, velocity: Quantity) -> Quantity:
    """Return the pressure that keeps the velocity free of divergence, over the density.

    Its Laplacian is the divergence of the right-hand side as written, so rotation, buoyancy,
    magnetic tension and mean shear contribute. The forces of a case do not: they are solenoidal.
    """
    place = [value.field for value in model.unknowns].index(velocity.text)
    rate = Quantity(list(model.rates[place : place + 3]), f"rate of {velocity.text}")
    source = div(rate)
    if model.shear != 0:
        source = source - model.shear * dot(grad(dot(velocity, y_hat)), x_hat)
    return inverse_laplacian(source)


def magnitude(vector: Quantity) -> Quantity:
    """Return the magnitude of a vector, or of a scalar that may be complex."""
    return function(sympy.sqrt, abs2(vector))


def _phase(complex_scalar: Quantity) -> Quantity:
    real, imaginary = (one.at_points() for one in complex_scalar.forms[0].real_and_imaginary())
    text = f"phase({complex_scalar.text})"
    return Quantity([form_of_points(sympy.atan2(imaginary, real))], text)


_FLOW, _MHD = ("velocity",), ("velocity", "magnetic")
DERIVED: dict[str, Derived] = {
    "vorticity": Derived("curl of the velocity", lambda f: curl(f["velocity"]), _FLOW, rank=1),
    "vorticity_magnitude": Derived(
        "magnitude of the vorticity", lambda f: magnitude(curl(f["velocity"])), _FLOW
    ),
    "kinetic_energy": Derived(
        "density of kinetic energy", lambda f: abs2(f["velocity"]) / 2, _FLOW
    ),
    "enstrophy": Derived(
        "density of enstrophy, half the square of the vorticity",
        lambda f: abs2(curl(f["velocity"])) / 2,
        _FLOW,
    ),
    "helicity": Derived(
        "density of helicity, velocity times vorticity",
        lambda f: dot(f["velocity"], curl(f["velocity"])),
        _FLOW,
    ),
    "strain": Derived("rate-of-strain tensor", lambda f: strain(f["velocity"]), _FLOW, rank=2),
    "q_criterion": Derived(
        "excess of rotation over strain, half the second invariant",
        lambda f: q_criterion(f["velocity"]),
        _FLOW,
    ),
    "r_invariant": Derived(
        "minus the determinant of the velocity gradient, its third invariant",
        lambda f: r_invariant(f["velocity"]),
        _FLOW,
    ),
    "r_strain": Derived(
        "minus the determinant of the strain, its third invariant: a third of its production",
        lambda f: _minus_determinant(strain(f["velocity"])),
        _FLOW,
    ),
    "enstrophy_production": Derived(
        "production of enstrophy, by the stretching of vortices",
        lambda f: enstrophy_production(f["velocity"]),
        _FLOW,
    ),
    "current_density": Derived(
        "curl of the magnetic field", lambda f: curl(f["magnetic"]), _MHD, rank=1
    ),
    "magnetic_energy": Derived(
        "density of magnetic energy", lambda f: abs2(f["magnetic"]) / 2, _MHD
    ),
    "cross_helicity": Derived(
        "density of cross helicity, velocity times magnetic field",
        lambda f: dot(f["velocity"], f["magnetic"]),
        _MHD,
    ),
    "vector_potential": Derived(
        "vector potential of the magnetic field, without divergence and mean",
        lambda f: vector_potential(f["magnetic"]),
        _MHD,
        rank=1,
    ),
    "magnetic_helicity": Derived(
        "density of magnetic helicity, vector potential times magnetic field",
        lambda f: dot(vector_potential(f["magnetic"]), f["magnetic"]),
        _MHD,
    ),
}


def derived_of(model: Lowered) -> dict[str, Derived]:
    """Return the quantities derived from the fields of a model, and their components, by name.

    The velocity is the first vector, if no field has that name; a field of the model takes
    precedence over a derived quantity of the same name.
    """
    fields = fields_of(model)
    vectors = [part.name for part in field_parts(model) if part.is_vector]
    have = {"velocity"} & set(fields) or set(vectors[:1])
    roles = {"velocity": have.pop()} if have else {}
    roles |= {"magnetic": "magnetic"} if "magnetic" in vectors else {}
    of_plane = {
        name: Quantity(list(forms), name) for name, (_, forms) in model.plane_vectors.items()
    }
    roles |= {name: name for name in of_plane}

    def in_roles(make: Callable[[Fields], Quantity]) -> Callable[[Fields], Quantity]:
        return lambda f: make({role: (of_plane | dict(f))[name] for role, name in roles.items()})

    found = {
        name: Derived(f"{name} in the plane", in_roles(operator.itemgetter(name)), (), rank=1)
        for name in of_plane
    }
    found |= {
        name: replace(one, make=in_roles(one.make))
        for name, one in DERIVED.items()
        if set(one.needs) <= set(roles)
    }
    firsts = {model.unknowns[first].field for first in model.vectors}
    if roles.get("velocity") in firsts:
        found["pressure"] = Derived(
            "kinematic pressure, without its mean",
            in_roles(lambda f: pressure(model, f["velocity"])),
            _FLOW,
        )
    for name, _ in model.complexes:
        found |= _of_complex(name)
    found |= {
        part: component
        for name, one in found.items()
        for part, component in _components(name, one).items()
    }
    return {name: one for name, one in found.items() if name not in fields}


def _components(name: str, whole: Derived) -> dict[str, Derived]:
    """Return the components of a vector (``vorticity_z``), or of a tensor (``strain_xy``)."""

    def take(number: int) -> Callable[[Fields], Quantity]:
        return lambda f: Quantity([whole.make(f).forms[number]], name)

    if not whole.rank:
        return {}
    return {
        component: Derived(
            f"{component.removeprefix(name)[1:]} component of {name}",
            take(number),
            whole.needs,
            is_component=True,
        )
        for number, component in enumerate(component_names(name, whole.rank))
    }


def _of_complex(name: str) -> dict[str, Derived]:
    return {
        f"{name}_density": Derived(f"|{name}|^2", lambda f: abs2(f[name]), (name,)),
        f"{name}_phase": Derived(
            f"phase of {name}, from -pi to pi", lambda f: _phase(f[name]), (name,)
        ),
    }
