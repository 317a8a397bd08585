"""Your own equations, named in a case as ``model = "examples/equations.py:FUNCTION"``.

slipstream explain --model examples/equations.py:active_matter
"""

import sympy

from slipstream.equations import (
    Model,
    Scalar,
    Vector,
    abs2,
    div,
    dot,
    function,
    grad,
    laplacian,
    outer,
    t,
    x_hat,
    y,
)


def kuramoto_sivashinsky():
    """Flame fronts: unstable at long waves, smoothed at short ones."""
    h = Scalar("height")
    return Model({h: -abs2(grad(h)) / 2 - laplacian(h) - laplacian(h, 2)})


def allen_cahn(width: float):
    """Two phases that separate, with an interface of that width."""
    c = Scalar("phase")
    return Model({c: (c - c**3) / width**2 + laplacian(c)})


def active_matter(friction: float, advection: float, pattern: float):
    """Bacterial turbulence after Wensink et al. (PNAS 109, 14308, 2012), incompressible."""
    u = Vector("velocity", solenoidal=True)
    swimming = -advection * div(outer(u, u)) + friction * u - dot(u, u) * u
    return Model({u: swimming - pattern * laplacian(u) - laplacian(u, 2)})


def reacting(viscosity: float, diffusivity: float, rate: float):
    """Carry a flame by a flow: what burns, burns faster the more of it is burnt."""
    u, c = Vector("velocity", solenoidal=True), Scalar("burnt")
    return Model(
        {
            u: -dot(u, grad(u)) + viscosity * laplacian(u),
            c: -dot(u, grad(c)) + rate * (c - c**2) + diffusivity * laplacian(c),
        }
    )


def kolmogorov(viscosity: float, frequency: float):
    """Flow that a shear force drives, which swings in time."""
    u = Vector("velocity", solenoidal=True)
    force = function(sympy.cos, frequency * t) * function(sympy.sin, 4 * y) * x_hat
    return Model({u: -div(outer(u, u)) + viscosity * laplacian(u) + force})


def ginzburg_landau(dispersion: float, detuning: float):
    """Oscillating media near threshold: spirals, and turbulence of phases and defects."""
    A = Scalar("amplitude", complex=True)
    return Model({A: A + (1 + 1j * dispersion) * laplacian(A) - (1 + 1j * detuning) * abs2(A) * A})


def korteweg_de_vries(dispersion: float):
    """Waves in shallow water along x: a cosine becomes solitons (Zabusky and Kruskal, 1965)."""
    h = Scalar("height")
    along = dot(x_hat, grad(h))
    return Model({h: -dot(x_hat, grad(h**2)) / 2 - dispersion**2 * laplacian(along)})
