"""Initial states of quantum fluids, as `gpe` describes them: vortex lines and dark solitons.

With ``i d psi/dt = -alpha laplacian(psi) + beta (|psi|^2 - 1) psi``, alpha = c xi / sqrt(2) and
beta = c / (sqrt(2) xi), the velocity is 2 alpha times the gradient of the phase, so circulation
comes in quanta of 4 pi alpha, and a wall or the core of a line is sqrt(2) xi wide.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from slipstream.engine.errors import InputError
from slipstream.spectral.formula_parser import check_waves, formula
from slipstream.spectral.spectral_problem import SpectralProblem

_COMPONENTS = ["psi_real", "psi_imaginary"]
_PARAMETERS = {"sound_speed", "healing_length"}
# The number of straight pieces of a curve.
_PIECES = 96
# A direction that differs from every line between two points of a grid.
_AXIS = (0.6180339887, 0.4142135624, math.sqrt(1 - 0.6180339887**2 - 0.4142135624**2))


def is_quantum_fluid(problem: SpectralProblem) -> bool:
    """Return whether the model is `gpe`, or has its field and parameters."""
    components = [str(value) for value in problem.model.unknowns]
    return components[:2] == _COMPONENTS and _PARAMETERS.issubset(problem.parameters)


def coefficients(problem: SpectralProblem) -> tuple[float, float]:
    """Return alpha and beta."""
    c, xi = (problem.parameters[name] for name in ("sound_speed", "healing_length"))
    return c * xi / math.sqrt(2), c / (math.sqrt(2) * xi)


def quantum_taylor_green(
    problem: SpectralProblem, amplitude: float
) -> dict[str, Callable[..., Any]]:
    """Vortex lines with the large-scale flow of Taylor and Green.

    Nore, Abid and Brachet, Phys. Fluids 9, 2644 (1997). The vorticity of the flow is the cross
    product of the gradients of ``lambda = cos x sqrt(2 |cos z|)`` and ``mu = cos y sqrt(2 |cos z|)
    sgn(cos z)``. In the plane of these, there are four lines, where one of ``lambda +- 1/sqrt(2)``
    and ``mu +- 1/sqrt(2)`` is 0 and so is the other coordinate. psi is the product of their wave
    functions, to the power of the integer part of ``amplitude L / (4 pi^2 alpha)``, L the length of
    the box along x and y: around a cell of half that length the circulation of the flow is
    ``4 amplitude L / pi``; each line carries a quarter of it, in quanta of 4 pi alpha.

    The authors then relax psi by a Ginzburg-Landau equation with this flow, which is what the model
    `argle` does: its velocity is set too. Otherwise the lines, which lie on top of each other at
    first, emit sound.
    """
    _check_model(problem, "quantum-taylor-green")
    check_waves(problem, (1, 1, 0), "initial.flow")
    lz, ly, lx = problem.lengths
    if not math.isclose(lx, ly, rel_tol=1e-12):
        raise InputError(
            f"grid.length: {lx:g} along x and {ly:g} along y; accepted for 'quantum-taylor-green': "
            "the same along both"
        )
    quantum = 4 * math.pi**2 * coefficients(problem)[0] / lx
    # An amplitude meant as a whole number of quanta must not lose one to rounding.
    power = math.floor(amplitude / quantum * (1 + 1e-12))
    if power < 1:
        raise InputError(
            f"initial.amplitude: {amplitude:g} gives less than one quantum to each vortex line; "
            f"accepted: at least {quantum:.6g} (less with a smaller equation.healing_length)"
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

    functions = dict(zip(_COMPONENTS, (real, imaginary), strict=True))
    if len(problem.model.unknowns) > len(_COMPONENTS):
        texts = (f"sin({k!r}*x)*cos({k!r}*y)", f"-cos({k!r}*x)*sin({k!r}*y)")
        for name, text in zip(("velocity_x", "velocity_y"), texts, strict=True):
            functions[name] = formula(f"{amplitude!r}*{text}*cos({kz!r}*z)", "initial.flow")
    return functions


def quantum_abc(
    problem: SpectralProblem,
    wavenumber: int,
    coefficients_abc: Sequence[float],
    velocity: Mapping[str, Callable[..., Any]],
) -> dict[str, Callable[..., Any]]:
    """Vortex lines with the large-scale flow of Arnold, Beltrami and Childress.

    Clark di Leoni, Mininni and Brachet, Phys. Rev. A 95, 053636 (2017): each of the six terms of
    the flow, such as ``A sin(kz z)`` along x, becomes a phase ``n(z) kx x``, where n is the whole
    number closest to ``A sin(kz z) / (2 alpha kx)``. Lines are where n changes; the model `argle`,
    whose `velocity` is set too, makes their cores.
    """
    _check_model(problem, "quantum-abc")
    units = [2 * math.pi / length for length in problem.lengths[::-1]]
    quanta = [2 * coefficients(problem)[0] * unit for unit in units]
    # By axis along which the fluid moves: strength, sine or cosine, axis of its argument.
    a, b, c = coefficients_abc
    terms = (
        ((a, "sin", 2), (c, "cos", 1)),
        ((b, "sin", 0), (a, "cos", 2)),
        ((c, "sin", 1), (b, "cos", 0)),
    )
    strongest = max(
        abs(one[0]) / quantum
        for phases, quantum in zip(terms, quanta, strict=True)
        for one in phases
    )
    if strongest <= 0.5:
        raise InputError(
            "initial.amplitude: the largest term of the flow has"
            f" {strongest:.3g} of a quantum of circulation; accepted: more than half (less with a"
            " smaller equation.healing_length)"
        )

    def wave(x: Any, y: Any, z: Any, module: Any) -> Any:
        places, phase = (x, y, z), 0.0
        for along, (phases, quantum) in enumerate(zip(terms, quanta, strict=True)):
            for strength, name, axis in phases:
                value = getattr(module, name)(wavenumber * units[axis] * places[axis])
                number = module.rint(strength / quantum * value)
                phase = phase + number * units[along] * places[along]
        return module.exp(1j * phase)

    parts = (lambda *at: wave(*at).real, lambda *at: wave(*at).imag)
    return {**dict(zip(_COMPONENTS, parts, strict=True)), **velocity}


# By the name of a flow: a closed curve of radius 1, at angles.
CURVES: dict[str, Callable[[np.ndarray], tuple[Any, Any, Any]]] = {
    "vortex-ring": lambda a: (np.cos(a), np.sin(a), 0 * a),
    "trefoil": lambda a: (
        (1 + 0.4 * np.cos(3 * a)) * np.cos(2 * a),
        (1 + 0.4 * np.cos(3 * a)) * np.sin(2 * a),
        0.4 * np.sin(3 * a),
    ),
    "cinquefoil": lambda a: (
        (1 + 0.4 * np.cos(5 * a)) * np.cos(2 * a),
        (1 + 0.4 * np.cos(5 * a)) * np.sin(2 * a),
        0.4 * np.sin(5 * a),
    ),
}


def vortex_line(
    problem: SpectralProblem, flow: str, radius: float | None
) -> dict[str, Callable[..., Any]]:
    """One quantum of circulation around a closed curve in the middle of the box.

    The potential of a vortex line is minus the solid angle that it subtends, times a constant. The
    phase is half of the solid angle, which is summed over straight pieces with a fixed direction
    (van Oosterom and Strackee, IEEE Trans. Biomed. Eng. 30, 125 (1983)). The next images in the
    periodic box are taken as dipoles of the area of the curve, and a uniform flow makes the phase
    periodic, up to a few hundredths. The modulus belongs to a straight line, tanh(distance /
    (sqrt(2) xi)).
    """
    _check_model(problem, flow)
    check_waves(problem, (1, 1, 1), "initial.flow")
    sizes = problem.lengths[::-1]
    radius = min(sizes) / 6 if radius is None else radius
    corners = radius * np.stack(CURVES[flow](np.linspace(0, 2 * math.pi, _PIECES + 1)), axis=1)
    reach = float(np.abs(corners).max())
    if reach >= min(sizes) / 2:
        largest = radius / reach * min(sizes) / 2
        raise InputError(
            f"initial.radius: {radius:g} does not fit in the box; accepted: less than {largest:.4g}"
        )
    area = np.cross(corners[:-1], corners[1:]).sum(axis=0) / 2
    shifts = [
        (i * sizes[0], j * sizes[1], k * sizes[2])
        for i, j, k in itertools.product((-1, 0, 1), repeat=3)
        if (i, j, k) != (0, 0, 0)
    ]
    width = math.sqrt(2) * problem.parameters["healing_length"]

    def dipole(x: Any, y: Any, z: Any) -> Any:
        along = float(area[0]) * x + float(area[1]) * y + float(area[2]) * z
        return -along / (2 * (x**2 + y**2 + z**2) ** 1.5)

    def images(x: Any, y: Any, z: Any) -> Any:
        return sum(dipole(x - i, y - j, z - k) for i, j, k in shifts)

    # The phase difference of all lines between opposite sides of the box.
    gains = []
    for axis, size in enumerate(sizes):
        side = [size / 2 * (axis == direction) for direction in range(3)]
        gains.append(2 * (dipole(*side) + images(*side)) / size)

    def wave(x: Any, y: Any, z: Any, module: Any) -> Any:
        x, y, z = (coordinate - size / 2 for coordinate, size in zip((x, y, z), sizes, strict=True))
        turned: Any = 1.0
        nearest: Any = math.inf
        first = None
        for corner in corners.tolist():
            second = [corner[0] - x, corner[1] - y, corner[2] - z]
            length = module.sqrt(second[0] ** 2 + second[1] ** 2 + second[2] ** 2)
            toward = sum(part * distance for part, distance in zip(_AXIS, second, strict=True))
            if first is not None:
                a, (b, far, before) = second, first
                triple = (
                    _AXIS[0] * (b[1] * a[2] - b[2] * a[1])
                    + _AXIS[1] * (b[2] * a[0] - b[0] * a[2])
                    + _AXIS[2] * (b[0] * a[1] - b[1] * a[0])
                )
                inner = a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
                angle = far * length + before * length + toward * far + inner + 1j * triple
                turned = turned * angle
                turned = turned / module.maximum(module.abs(turned), 1e-30)
                # The distance from a straight piece: for a point between its ends the height of a
                # triangle.
                piece = far**2 + length**2 - 2 * inner
                share = module.clip((far**2 - inner) / piece, 0, 1)
                height = far**2 - 2 * share * (far**2 - inner) + share**2 * piece
                nearest = module.minimum(nearest, height)
            first = second, length, toward
        phase = images(x, y, z) - gains[0] * x - gains[1] * y - gains[2] * z
        modulus = module.tanh(module.sqrt(module.maximum(nearest, 0)) / width)
        return modulus * turned * module.exp(1j * phase)

    return dict(
        zip(
            _COMPONENTS,
            (lambda *at: wave(*at).real, lambda *at: wave(*at).imag),
            strict=True,
        )
    )


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
            f'initial.flow: {flow!r} is for equation.model = "gpe" or "argle", with the fields '
            f"{' and '.join(_COMPONENTS)}; this model has: {names}"
        )
