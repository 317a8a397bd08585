"""Initial states of quantum fluids, as `gpe` describes them: vortex lines and dark solitons.

With ``i d psi/dt = -alpha laplacian(psi) + beta (|psi|^2 - 1) psi``, alpha = c xi / sqrt(2) and
beta = c / (sqrt(2) xi), the velocity is 2 alpha times the gradient of the phase, so circulation
comes in quanta of 4 pi alpha, and a wall or the core of a line is sqrt(2) xi wide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from slipstream.errors import InputError
from slipstream.spectral.formula_checks import check_waves
from slipstream.spectral.formula_parser import formula
from slipstream.spectral.spectral_problem import SpectralProblem

_COMPONENTS = ["psi_real", "psi_imaginary"]
_PARAMETERS = {"sound_speed", "healing_length"}


def is_quantum_fluid(problem: SpectralProblem) -> bool:
    """Return whether the model is `gpe`, or has the same fields and parameters."""
    components = [str(value) for value in problem.model.unknowns]
    return components == _COMPONENTS and _PARAMETERS.issubset(problem.parameters)


def coefficients(problem: SpectralProblem) -> tuple[float, float]:
    """Return alpha and beta."""
    c, xi = (problem.parameters[name] for name in ("sound_speed", "healing_length"))
    return c * xi / math.sqrt(2), c / (math.sqrt(2) * xi)


def quantum_taylor_green(
    problem: SpectralProblem, amplitude: float
) -> dict[str, Callable[..., Any]]:
    """Vortex lines whose flow at large is that of Taylor and Green.

    Nore, Abid and Brachet, Phys. Fluids 9, 2644 (1997). The vorticity of the flow is the cross
    product of the gradients of ``lambda = cos x sqrt(2 |cos z|)`` and ``mu = cos y sqrt(2 |cos z|)
    sgn(cos z)``. In the plane of these, there are four lines, where one of ``lambda +- 1/sqrt(2)``
    and ``mu +- 1/sqrt(2)`` is 0 and so is the other coordinate. psi is the product of their wave
    functions, to the power of the integer part of ``amplitude L / (4 pi^2 alpha)``, L the length of
    the box along x and y: around a cell of half that length the circulation of the flow is
    ``4 amplitude L / pi``, of which each line carries a quarter, in quanta of 4 pi alpha.

    The authors then relax psi by a Ginzburg-Landau equation with this flow; here the lines lie on
    top of each other at first, and emit sound.
    """
    _check_model(problem, "quantum-taylor-green")
    check_waves(problem, (1, 1, 0), "initial.flow")
    lz, ly, lx = problem.lengths
    if not math.isclose(lx, ly, rel_tol=1e-12):
        raise InputError(
            f"grid.length: {lx:g} along x and {ly:g} along y; accepted for 'quantum-taylor-green': "
            "the same along both"
        )
    one = 4 * math.pi**2 * coefficients(problem)[0] / lx
    # An amplitude that is meant as a whole number of quanta must not lose one by rounding.
    power = math.floor(amplitude / one * (1 + 1e-12))
    if power < 1:
        raise InputError(
            f"initial.amplitude: {amplitude:g} takes less than the quantum of each vortex line; "
            f"accepted: at least {one:.6g} (less with a smaller equation.healing_length)"
        )
    k, kz = 2 * math.pi / lx, 2 * math.pi / lz
    width = math.sqrt(2) * problem.parameters["healing_length"] * k
    shift = 1 / math.sqrt(2)

    def modulus_and_phase(x: Any, y: Any, z: Any, module: Any) -> tuple[Any, Any]:
        upright = module.cos(kz * z)
        height = module.sqrt(2 * module.abs(upright))
        first = module.cos(k * x) * height
        second = module.cos(k * y) * height * module.sign(upright)
        modulus, phase = 1.0, 0.0
        for along, across in ((-shift, 0), (0, -shift), (shift, 0), (0, shift)):
            a, b = first + along, second + across
            modulus = modulus * module.tanh(module.sqrt(a**2 + b**2) / width)
            phase = phase + module.arctan2(b, a)
        return modulus**power, power * phase

    def real(x: Any, y: Any, z: Any, module: Any) -> Any:
        modulus, phase = modulus_and_phase(x, y, z, module)
        return modulus * module.cos(phase)

    def imaginary(x: Any, y: Any, z: Any, module: Any) -> Any:
        modulus, phase = modulus_and_phase(x, y, z, module)
        return modulus * module.sin(phase)

    return dict(zip(_COMPONENTS, (real, imaginary), strict=True))


def solitons(problem: SpectralProblem, speed: float) -> dict[str, Callable[..., Any]]:
    """Two dark solitons across x, at a quarter and three quarters of the box.

    One is ``s tanh(s (x - v c t) / (sqrt(2) xi)) + i v`` with ``s = sqrt(1 - v^2)``: in units of
    c and of sqrt(2) xi the equation has no parameters left. Its density, ``1 - s^2 sech^2``, moves
    along x at v times the speed of sound. The other is its mirror image and moves against x, so
    that their product is periodic but for their tails, ``exp(-s Lx / (2 sqrt(2) xi))``.
    """
    _check_model(problem, "solitons")
    check_waves(problem, (1, 0, 0), "initial.flow")
    length = problem.lengths[2]
    depth = math.sqrt(1 - speed**2)
    steepness = depth / (math.sqrt(2) * problem.parameters["healing_length"])
    first = f"tanh({steepness!r}*(x - {length / 4!r}))"
    second = f"tanh({steepness!r}*({3 * length / 4!r} - x))"
    texts = (
        f"{depth**2!r}*{first}*{second} - {speed**2!r}",
        f"{depth * speed!r}*({first} + {second})",
    )
    return {
        name: formula(text, "initial.flow") for name, text in zip(_COMPONENTS, texts, strict=True)
    }


def _check_model(problem: SpectralProblem, flow: str) -> None:
    if not is_quantum_fluid(problem):
        names = ", ".join(map(str, problem.model.unknowns))
        raise InputError(
            f'initial.flow: {flow!r} is for equation.model = "gpe", with the fields '
            f"{' and '.join(_COMPONENTS)}; this model has: {names}"
        )
