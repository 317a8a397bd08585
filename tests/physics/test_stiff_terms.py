"""Linear terms that are integrated exactly, damping, waves and what couples components."""

import math

import numpy as np
import pytest

from field_values import coordinates, formulas, largest_error, values
from flows import BOUSSINESQ, MHD, advance, modes_of, relative_error, start
from slipstream.engine.errors import InputError
from slipstream.spectral.cfl import LinearOperator

KDV = """
from slipstream.equations import Model, Scalar, dot, grad, laplacian, x_hat

def kdv(dispersion):
    h = Scalar("height")
    along = dot(x_hat, grad(h))
    return Model({h: -3 * dot(x_hat, grad(h**2)) - dispersion * laplacian(along)})
"""
ALL = "numerics.linear=all"
WAVES = {
    # Settings of a wave's model, its wavevector, and its frequency.
    "inertia-gravity": (
        (*BOUSSINESQ, "equation.rotation=1.5", "equation.diffusivity=0"),
        (2, 1, 3),
        math.sqrt((4.0**2 * 5 + 3.0**2 * 9) / 14),
    ),
    "Alfven": (
        (*MHD, "equation.mean_field=[1.0, -0.5, 2.5]", "equation.resistivity=0"),
        (1, 2, 3),
        7.5,
    ),
    "inertial": (("equation.rotation=[1.0, -2.0, 1.5]",), (2, 1, 3), 2 * 4.5 / math.sqrt(14)),
}
# Propagators depend on the waves, and substages on the integrator: not every pair is shown.
WAVES_AND_METHODS = [
    ("inertia-gravity", "rk4"),
    ("inertia-gravity", "jst3"),
    ("inertia-gravity", "etdrk2"),
    ("Alfven", "rk2"),
    ("Alfven", "etdrk4"),
    ("inertial", "rk4"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "integrator"), WAVES_AND_METHODS)
def test_waves_have_their_frequencies_at_ten_times_the_explicit_step(name, integrator, device):
    settings, wavevector, omega = WAVES[name]
    options = (
        *settings,
        "grid.points=12",
        "equation.viscosity=0",
        "initial.flow=wave",
        f"initial.wavevector={list(wavevector)}",
        "initial.amplitude=1e-7",
    )
    explicit = start(device, *options, ALL, f"time.integrator={integrator}")
    fastest = LinearOperator(explicit.problem).wave_rate
    # Four periods, in steps ten times those at which explicit rk4 becomes unstable.
    step = 10 * 2.8 / fastest
    before = values(explicit)
    later = values(advance(explicit, 4, step))
    turned = start(device, *options)
    state, phase = turned.flow.modes_of(turned.flow.state), np.exp(-1j * omega * 4 * step)
    # Of a real field, both a mode and its conjugate are waves: a exp(i (k x - omega t)).
    at = tuple(wavevector[::-1])
    state[(slice(None), *at)] *= phase
    for name_of, expected in values(turned).items():
        error = np.abs(later[name_of] - expected).max()
        assert error <= 1e-11 * max(np.abs(own).max() for own in before.values()), name_of


@pytest.mark.parametrize(
    ("integrator", "order"),
    [("etdrk2", 2), ("etdrk4", 4), ("rk4", 4), ("ars222", 2), ("ars233", 3)],
)
def test_orders_with_coupled_stiff_terms(integrator, order, device):
    def after(steps, integrator, linear):
        simulation = start(
            device,
            *BOUSSINESQ,
            "equation.rotation=3",
            "grid.points=10",
            f"time.integrator={integrator}",
            f"numerics.linear={linear}",
        )
        return modes_of(advance(simulation, steps, 0.4 / steps))

    exact = after(192, "rk4", "decay")
    coarse, fine = (np.abs(after(n, integrator, "all") - exact).max() for n in (12, 24))
    assert math.log2(coarse / fine) == pytest.approx(order, abs=0.25)


@pytest.mark.slow
@pytest.mark.parametrize(("integrator", "order"), [("ars222", 2), ("ars233", 3)])
@pytest.mark.parametrize("name", WAVES)
def test_implicit_waves_have_the_factor_of_the_method(name, integrator, order, device):
    """A step multiplies a wave exp(-i omega t) by the method's rational function of -i omega dt."""
    settings, wavevector, omega = WAVES[name]
    options = (*settings, "grid.points=12", "equation.viscosity=0", "initial.flow=wave")
    options += (f"initial.wavevector={list(wavevector)}", "initial.amplitude=1e-7")
    at = (slice(None), *wavevector[::-1])
    fastest = LinearOperator(start(device, *options).problem).wave_rate
    results = {}
    for step in (0.02 / omega, 0.04 / omega, 30 / fastest):
        simulation = start(device, *options, f"time.integrator={integrator}")
        before = modes_of(simulation)[at]
        after = modes_of(advance(simulation, 3, step))[at]
        # Solved with a matrix of the method's tableau for a single mode.
        gamma = 1 - math.sqrt(0.5) if order == 2 else (3 + math.sqrt(3)) / 6
        z = -1j * omega * step
        if order == 2:
            second = 1 / (1 - gamma * z)
            factor = (1 + (1 - gamma) * z * second) / (1 - gamma * z)
        else:
            second = 1 / (1 - gamma * z)
            third = (1 + (1 - 2 * gamma) * z * second) / (1 - gamma * z)
            factor = 1 + z * (second + third) / 2
        np.testing.assert_allclose(
            after, factor**3 * before, rtol=0, atol=1e-11 * abs(before).max()
        )
        assert abs(factor) <= 1
        results[step] = abs(factor - np.exp(z))
    small, large = list(results.values())[:2]
    assert math.log2(large / small) == pytest.approx(order + 1, abs=0.1)


@pytest.mark.parametrize(("integrator", "left"), [("ars222", 0.0), ("ars233", 1 - math.sqrt(3))])
def test_implicit_steps_of_any_size_damp_what_is_viscous(device, integrator, left):
    settings = "grid.points=8", "equation.viscosity=1e9", "initial.flow=abc"
    simulation = start(device, *settings, f"time.integrator={integrator}")
    before = modes_of(simulation)
    after = modes_of(advance(simulation, 1, 1.0))
    np.testing.assert_allclose(after, left * before, rtol=0, atol=1e-8)


@pytest.mark.slow
def test_soliton_of_korteweg_and_de_vries_takes_few_steps(device, tmp_path):
    path = tmp_path / "kdv.py"
    path.write_text(KDV)
    width, time, length = 2.0, 0.5, 20.0
    profile = f"{width**2 / 2}/cosh({width / 2}*(x - {length / 2}))**2"
    simulation = start(
        device,
        f"equation={{ model = '{path}:kdv', dispersion = 1 }}",
        "grid.points=[256, 1, 1]",
        f"grid.length=[{length}, 1, 1]",
        *formulas(height=profile),
        "time.integrator=etdrk4",
    )
    # The third power of the largest wavenumber would take 0.5 * (2 pi 85 / 20)^3 / 2.8 = 3400.
    advance(simulation, 200, time / 200)
    x, _, _ = coordinates(simulation)
    moved = np.mod(x - width**2 * time, length) - length / 2
    expected = width**2 / 2 / np.cosh(width / 2 * moved) ** 2
    assert largest_error(simulation, height=expected + 0 * values(simulation)["height"]) <= 1e-6


@pytest.mark.slow
def test_damping_is_the_same_in_both_ways(device):
    given = ("grid.points=12", "equation.viscosity=0.05", "equation.hypoviscosity=0.3")
    plain, all_linear = (
        modes_of(advance(start(device, *given, f"numerics.linear={one}"), 5))
        for one in ("decay", "all")
    )
    assert relative_error(all_linear, plain) <= 1e-13


def test_steps_are_bounded_by_speeds_alone(device):
    stiff = (*BOUSSINESQ, "equation.buoyancy_frequency=400", "time.cfl=0.5", "time.step=null")
    settings = [one for one in stiff if one != "time.step=null"]
    sizes = [start(device, *settings, *more).step_size() for more in ((), (ALL,))]
    assert sizes[1] > 10 * sizes[0]
    with pytest.raises(InputError, match="'linear' = 'all' integrates damping exactly too"):
        start(device, ALL, "numerics.integrating_factor=false")
