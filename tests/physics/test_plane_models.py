"""Models with functions of the wavenumber: plane flow by vorticity, and alpha models."""

import math

import mpmath
import numpy as np
import pytest
import sympy

from field_values import coordinates, formulas, largest_error, values
from flows import advance, relative_error, start
from slipstream.equations import Scalar, Vector, hilbert, inverse_curl, laplacian, riesz, spectral
from slipstream.spectral.energy_budget import LARGE, SMALL
from slipstream.spectral.evaluation import Evaluation, evaluate
from slipstream.spectral.fields_at_points import values_to_modes

PLANE = ("grid.points=[24, 20, 1]", 'grid.length=["2 pi", 5.0, 1.0]')


def _take(target, place, source, expression):
    """Set a component of a state to an expression of another state."""
    modes = target.flow.modes_of(target.flow.state)
    modes[place] = Evaluation(source.flow, expression).modes()[0]
    target.device.synchronize()


def _difference(simulation, place, other, expression):
    """Return how far a component is from an expression of another state, relative to that."""
    own = simulation.device.to_host(simulation.flow.modes_of(simulation.flow.read_state())[place])
    modes = Evaluation(other.flow, expression).modes()
    return relative_error(own, other.device.to_host(modes)[0])


def test_vorticity_form_equals_the_velocity_form(device):
    force = ("forcing={ kind = 'random', shells = [1, 2], seed = 3, correlation_time = 0.07 }",)
    by_velocity = start(device, *PLANE, *force)
    by_vorticity = start(device, *PLANE, *force, "equation.model=hd2d", "forcing.field=vorticity")
    # The same random flow, driven by the same random force.
    for steps in (0, 20):
        for one in (by_velocity, by_vorticity):
            advance(one, steps)
        assert _difference(by_vorticity, 0, by_velocity, "vorticity_z") <= 1e-13
    assert _difference(by_velocity, 0, by_vorticity, "velocity_x") <= 1e-13
    expected, found = by_velocity.diagnostics(), by_vorticity.diagnostics()
    assert found["kinetic_energy"] == pytest.approx(expected["energy"], rel=1e-12)
    for name in (*LARGE, *SMALL[True]):
        assert found[name] == pytest.approx(expected[name], rel=1e-12) != 0, name


def test_flux_function_form_equals_the_form_of_vectors(device):
    given = ("equation.resistivity=0.02", "grid.points=[24, 20, 1]")
    vectors = start(device, *given, "equation.model=mhd", "initial.flow=orszag-tang")
    plane = start(device, *given, "equation.model=mhd2d", *formulas(vorticity="cos(x)"))
    _take(plane, 0, vectors, "vorticity_z")
    _take(plane, 1, vectors, "vector_potential_z")
    for simulation in (vectors, plane):
        advance(simulation, 20)
    assert _difference(plane, 0, vectors, "vorticity_z") <= 1e-13
    assert _difference(plane, 1, vectors, "vector_potential_z") <= 1e-13
    plane_row, vector_row = plane.diagnostics(), vectors.diagnostics()
    # Spectra are those of the vectors, not of the stored scalars.
    for name in ("velocity", "magnetic"):
        spectra = [simulation.spectra()[f"{name}_spectrum"][1] for simulation in (plane, vectors)]
        assert relative_error(*spectra) <= 1e-12
    assert plane_row["magnetic_energy"] == pytest.approx(vector_row["magnetic_energy"], rel=1e-12)
    assert plane_row["cross_helicity"] == pytest.approx(
        Evaluation(vectors.flow, "cross_helicity").reduce("mean"), rel=1e-10
    )


# Settings, the field, and the frequency of the wave cos(2 x + 3 y - frequency t).
DISPERSION = {
    "Rossby": ("hd2d", {"viscosity": 0, "beta": 3}, "vorticity", -3 * 2 / 13),
    "drift": (
        "chm",
        {"viscosity": 0, "beta": 3, "radius": 0.5},
        "potential_vorticity",
        -3 * 2 / (13 + 4),
    ),
    "surface": ("sqg", {"diffusivity": 0, "gradient": 3}, "buoyancy", -3 * 2 / math.sqrt(13)),
}


@pytest.mark.parametrize("name", DISPERSION)
def test_waves_in_a_plane_have_their_frequencies(name, device):
    model, parameters, field, omega = DISPERSION[name]
    given = ", ".join(f"{key} = {value}" for key, value in parameters.items())
    simulation = start(
        device,
        "grid.points=[16, 16, 1]",
        f"equation={{ model = '{model}', {given} }}",
        *formulas(**{field: "cos(2*x + 3*y)"}),
    )
    time, steps = 1.5, 100
    advance(simulation, steps, time / steps)
    x, y, _ = coordinates(simulation)
    # One wave is no obstacle to itself. t omega^5 step^4 / 120.
    expected = np.cos(2 * x + 3 * y - omega * time)
    assert largest_error(simulation, **{field: expected}) <= 1e-8


def test_dipole_of_lamb_travels_at_its_speed(device):
    radius, speed, points = 0.6, 1.0, 96
    simulation = start(
        device,
        f"grid.points=[{points}, {points}, 1]",
        "equation={ model = 'hd2d', viscosity = 0, viscosity_power = 1 }",
        "initial.flow=lamb-dipole",
        f"initial.amplitude={speed}",
        f"initial.radius={radius}",
    )
    x, y, _ = coordinates(simulation)
    x, y = np.broadcast_arrays(x - math.pi, y - math.pi)
    zero, r = float(mpmath.besseljzero(1, 1)), np.hypot(x, y)
    k, bessel = zero / radius, np.vectorize(lambda one: float(mpmath.besselj(1, one)))
    # Lamb (1906): vorticity -2 U k J1(k r) sin(angle) / J0(k a) within the circle, none outside.
    vorticity, inside = np.zeros_like(r), (r > 0) & (r < radius)
    shape = bessel(k * r[inside]) * y[inside] / r[inside]
    vorticity[inside] = -2 * speed * k * shape / float(mpmath.besselj(0, zero))
    given, target = (
        simulation.device.array(vorticity[None, None], np.float64),
        simulation.flow.stage,
    )
    values_to_modes(simulation.flow, given, target)
    own, expected = (simulation.device.to_host(one) for one in (simulation.flow.state, target))
    assert np.abs(own - expected).max() <= 1e-13 * np.abs(expected).max()

    def position():
        w = values(simulation)["vorticity"] ** 2
        return np.angle((w * np.exp(1j * x)).sum())

    before, time, steps = position(), 0.6, 120
    advance(simulation, steps, time / steps)
    # Its images, dipoles of the impulse 2 pi a^2 U, drive it back by half of that over L^2.
    images = -math.pi * radius**2 * speed / (2 * math.pi) ** 2
    assert abs(position() - before) == pytest.approx((speed + images) * time, rel=2e-3)


HYPOVISCOUS = "viscosity = 0, hypoviscosity = 3, hypoviscosity_power = 2, drag = 0.1"
ALPHA = "viscosity = 0.1, width = 0.3, model = "


@pytest.mark.parametrize(
    ("equation", "steps", "step", "decay"),
    [
        pytest.param(f"{ALPHA}'lans-alpha'", 10, 0.05, 0.2, marks=pytest.mark.slow),
        pytest.param(f"{ALPHA}'leray-alpha'", 10, 0.05, 0.2, marks=pytest.mark.slow),
        (HYPOVISCOUS, 2, 0.5, 0.1 + 3 / 2**4),
    ],
    ids=["lans-alpha", "leray-alpha", "hypoviscosity and drag"],
)
def test_beltrami_flow_decays_exactly(device, equation, steps, step, decay):
    abc = ("initial.flow=abc", "initial.wavenumber=2")
    simulation = start(device, f"equation={{ {equation} }}", *abc)
    before = values(simulation)
    advance(simulation, steps, step)
    decayed = {name: math.exp(-decay) * value for name, value in before.items()}
    assert largest_error(simulation, **decayed) <= 1e-13


@pytest.mark.slow
def test_averaged_flow_conserves_its_own_energy(device):
    simulation = start(device, "equation={ model = 'lans-alpha', viscosity = 0, width = 0.5 }")
    before = simulation.diagnostics()
    advance(simulation, 20)
    after = simulation.diagnostics()
    assert after["alpha_energy"] == pytest.approx(before["alpha_energy"], rel=1e-8)
    assert abs(after["energy"] / before["energy"] - 1) > 1e-4


def test_functions_of_the_wavenumber_are_those_of_fourier_transforms(device):
    simulation = start(device, "grid.points=[12, 10, 9]", "scalars=[{}]")
    u, s = Vector("velocity", solenoidal=True), Scalar("scalar")
    _take(simulation, 3, simulation, "velocity_x * velocity_y + 2 + velocity_z")
    known = values(simulation)
    kx, ky, kz = (
        np.fft.fftfreq(n, 1 / n).reshape(shape)
        for n, shape in ((12, (1, 1, 12)), (10, (1, 10, 1)), (9, (9, 1, 1)))
    )
    k2 = kx**2 + ky**2 + kz**2
    over = np.divide(1, k2, out=np.zeros_like(k2), where=k2 > 0)

    def through(factor, values):
        return np.fft.ifftn(factor * np.fft.fftn(values)).real

    scalar = known["scalar"]
    u_x, u_y = known["velocity_x"], known["velocity_y"]
    along_x = np.divide(1, kx**2, out=np.zeros_like(kx), where=kx != 0) + 0 * k2
    along_x[0, 0, 0] = 3
    expected = [
        (laplacian(s, 0.5), through(-np.sqrt(k2), scalar)),
        (laplacian(s, -2), through(over**2, scalar)),
        (hilbert(s, "y"), through(-1j * np.sign(ky), scalar)),
        (riesz(s)[0], through(-1j * kx * np.sqrt(over), scalar)),
        (spectral(lambda a, b, c: sympy.exp(-(a**2)), s), through(np.exp(-(kx**2)), scalar)),
        (spectral(lambda a, b, c: 1 / a**2, s, mean=3), through(along_x, scalar)),
        (inverse_curl(u)[2], through(1j * over * kx, u_y) - through(1j * over * ky, u_x)),
    ]
    for quantity, value in expected:
        own = simulation.device.to_host(evaluate(simulation.flow, quantity))
        assert relative_error(own, value) <= 1e-12
