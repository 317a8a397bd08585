"""Flows with known solutions: reference numbers, exact decay, an independent solver."""

import math

import numpy as np
import pytest

from flows import BOUSSINESQ, MHD, UNEVEN_BOX, advance, modes_of, points_of, relative_error, start
from numpy_solver import NumpySolver
from slipstream.api.validation.reference_solutions import (
    beltrami_decay,
    plane_taylor_green_decay,
    taylor_green_enstrophy,
)
from slipstream.engine.device import HostDevice
from slipstream.spectral.cfl import courant_rate

INTEGRATORS = ("rk2", "rk3", "rk4")


def test_taylor_green_has_the_reference_energy_and_enstrophy(device):
    simulation = start(
        device, "grid.points=32", f"equation.viscosity={1 / 1600!r}", "initial.flow=taylor-green"
    )
    before = simulation.diagnostics()
    assert before["energy"] == pytest.approx(1 / 8, rel=1e-14)
    assert before["enstrophy"] == pytest.approx(3 / 8, rel=1e-14)
    assert before["helicity"] == pytest.approx(0, abs=1e-15)
    after = advance(simulation, 10).diagnostics()
    assert simulation.time == pytest.approx(0.1, rel=1e-14)
    # The numbers of spectralDNS (demo/TG.py), which an independent solver gives in all 12 digits.
    assert after["energy"] == pytest.approx(0.124953117517, rel=1e-9)
    assert after["enstrophy"] == pytest.approx(0.375249930801, rel=1e-9)
    # The sixth power of the time is neglected.
    assert after["enstrophy"] == pytest.approx(taylor_green_enstrophy(0.1, 1 / 1600), rel=1e-8)
    assert after["dissipation"] == pytest.approx(2 / 1600 * after["enstrophy"], rel=1e-13)


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_abc_flow_decays_exactly(device, integrator):
    viscosity, step, steps = 1.3, 0.7, 3
    simulation = start(
        device,
        "initial.flow=abc",
        "initial.coefficients=[1.0, 0.7, 0.43]",
        f"equation.viscosity={viscosity}",
        f"time.integrator={integrator}",
    )
    initial = modes_of(simulation)
    energy = simulation.diagnostics()["energy"]
    assert energy == pytest.approx((1 + 0.7**2 + 0.43**2) / 2, rel=1e-14)
    advance(simulation, steps, step)
    # curl u = u: the non-linear term is a gradient, so the integrating factor leaves no error but
    # rounding, which the products, 1 / decay times larger at first, bring in.
    decay = beltrami_decay(step * steps, viscosity)
    assert np.abs(modes_of(simulation) - decay * initial).max() <= 1e-14
    after = simulation.diagnostics()
    assert after["energy"] == pytest.approx(decay**2 * energy, rel=1e-12)
    assert after["helicity"] == pytest.approx(2 * after["energy"], rel=1e-12)
    assert after["enstrophy"] == pytest.approx(after["energy"], rel=1e-12)


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_abc_flow_without_integrating_factor_decays_by_the_stability_polynomial(device, integrator):
    # Small enough that the highest modes, k^2 = 75, are stable, so that roundings do not grow.
    viscosity, step, wavenumber = 0.3, 0.08, 2
    simulation = start(
        device,
        "initial.flow=abc",
        f"initial.wavenumber={wavenumber}",
        f"equation.viscosity={viscosity}",
        f"time.integrator={integrator}",
        "numerics.integrating_factor=false",
    )
    initial = modes_of(simulation)
    assert simulation.diagnostics()["helicity"] == pytest.approx(2 * wavenumber * 1.5, rel=1e-13)
    # All methods of order p = stages turn u' = z u into the exponential series up to z^p.
    z, order = -viscosity * wavenumber**2 * step, int(integrator[-1])
    factor = sum(z**n / math.factorial(n) for n in range(order + 1))
    advance(simulation, 2, step)
    assert np.abs(modes_of(simulation) - factor**2 * initial).max() <= 1e-14


@pytest.mark.parametrize("sizes", ["[24, 18, 1]", "[9, 10, 1]"])
def test_two_dimensional_taylor_green_decays_exactly(device, sizes):
    viscosity, time = 0.05, 1.0
    simulation = start(
        device,
        f"grid.points={sizes}",
        "initial.flow=taylor-green",
        "initial.wavenumber=2",
        f"equation.viscosity={viscosity}",
    )
    initial = points_of(simulation)
    assert np.abs(initial).max() > 0.5
    advance(simulation, 10, time / 10)
    # In two dimensions the vortices are steady but for their decay at twice the squared wavenumber.
    expected = plane_taylor_green_decay(time, viscosity, wavenumber=2) * initial
    assert relative_error(points_of(simulation), expected) <= 1e-13


@pytest.mark.parametrize("points", ["[1, 20, 18]", "[20, 1, 18]", "[20, 18, 1]", "[5, 1, 1]"])
def test_axes_of_one_point_are_two_dimensional_flow(device, points):
    settings = (f"grid.points={points}", "grid.length=[5.0, 6.0, 7.0]")
    check_against_numpy(device, settings, "rk4", True)


@pytest.mark.parametrize("integrating_factor", [True, False])
@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_random_flow_equals_that_of_an_independent_solver(device, integrator, integrating_factor):
    settings = ("grid.points=[24, 20, 18]", 'grid.length=["2 pi", "3 pi", 5.0]')
    check_against_numpy(device, settings, integrator, integrating_factor)


def check_against_numpy(device, settings, integrator, integrating_factor):
    viscosity, steps, step = 0.02, 5, 0.02
    simulation = start(
        device,
        *settings,
        f"equation.viscosity={viscosity}",
        f"time.integrator={integrator}",
        f"numerics.integrating_factor={str(integrating_factor).lower()}",
    )
    initial = points_of(simulation)
    solver = NumpySolver(initial, simulation.case.grid.lengths_xyz, viscosity)
    # The initial flow has no modes that the solver would drop.
    assert relative_error(solver.velocity(), initial) <= 1e-14
    expected = solver.advance(steps, step, integrator, integrating_factor).velocity()
    assert relative_error(expected, initial) > 1e-3
    advance(simulation, steps, step)
    # Rounding of 5 steps; the two forms of the non-linear term are equal without aliasing.
    assert relative_error(points_of(simulation), expected) <= 1e-11


@pytest.mark.slow
@pytest.mark.parametrize(
    "box", [UNEVEN_BOX, ("grid.points=[34, 12, 17]", "numerics.dealiasing=none")]
)
def test_tiled_transforms_of_gpus_give_the_same_flow_on_the_cpu(box):
    # 17 and 34 have no tiled kernels, so there both kinds of transforms meet in one step.
    expected = advance(start(HostDevice(), *box), 5)
    tiled = advance(start(HostDevice(tiled=True), *box), 5)
    assert relative_error(modes_of(tiled), modes_of(expected)) <= 1e-12
    assert tiled.step_size() == expected.step_size()
    rates = [courant_rate(simulation.flow) for simulation in (tiled, expected)]
    assert rates[0] == pytest.approx(rates[1], rel=1e-12)


@pytest.mark.parametrize("box", [UNEVEN_BOX, ("grid.points=32",), MHD, BOUSSINESQ])
def test_single_precision_follows_double_precision(device, box):
    double = advance(start(device, *box), 5)
    single = advance(start(device, *box, "numerics.precision=float32"), 5)
    assert modes_of(single).dtype == np.complex64
    # Some roundings of 6e-8 of the largest values, in each of 20 substages.
    assert relative_error(modes_of(single), modes_of(double)) <= 2e-6
    for name in ("energy", "enstrophy"):
        assert single.diagnostics()[name] == pytest.approx(double.diagnostics()[name], rel=2e-6)
    # Divergence, in units of the vorticity.
    diagnostics = single.diagnostics()
    assert diagnostics["divergence"] <= 1e-6 * math.sqrt(2 * diagnostics["enstrophy"])
