"""Magnetic flow: reference numbers, waves along a mean field, and what ideal flow conserves."""

import math

import numpy as np
import pytest

from field_values import coordinates, formulas, largest_error, values
from flows import MHD, advance, start
from slipstream.api.validation.reference_solutions import ORSZAG_TANG_AT_1


@pytest.mark.slow
def test_orszag_tang_vortex_has_the_reference_energies(device):
    # As many points as the reference has: with 96^2 the last digits differ.
    simulation = start(
        device,
        "grid.points=[128, 128, 1]",
        *MHD,
        "initial.flow=orszag-tang",
        "equation.viscosity=0.01",
    )
    assert simulation.diagnostics()["energy"] == pytest.approx(1, rel=1e-14)
    after = advance(simulation, 100, 0.01).diagnostics()
    # The steps of fourth order err by less than the last of these digits.
    for name, expected in ORSZAG_TANG_AT_1.items():
        assert after[name] == pytest.approx(expected, rel=1e-7), name


def test_helicities_of_a_magnetic_field_are_what_their_names_say(device):
    """Of b = curl a with a = b / 2: <b . curl b> = 2 <b^2>, and <a . b> = <b^2> / 2."""
    magnetic = ("sin(2*z)", "cos(2*z)", "0.25")
    simulation = start(device, *MHD, *formulas(velocity=("0", "0", "0"), magnetic=magnetic))
    diagnostics = simulation.diagnostics()
    assert diagnostics["current_helicity"] == pytest.approx(2, rel=1e-14)
    assert diagnostics["magnetic_helicity"] == pytest.approx(1 / 2, rel=1e-14)
    assert "current" in simulation.labels()["current_helicity"]
    assert simulation.labels().keys() >= diagnostics.keys() - {"step", "time", "step_size"}


@pytest.mark.parametrize("sign", [1, -1])
def test_alfven_wave_travels_along_the_mean_field(device, sign):
    strength, viscosity, time, steps = 1.7, 0.03, 0.8, 40
    # One of Elsasser's fields is zero, so waves of any shape pass through each other unchanged;
    # cos(2z) and cos(z + x) travel along z alone, and are solenoidal.
    velocity = ("cos(2*z)", "0.5*sin(z + x)", "0.3*sin(x)")
    magnetic = [f"{sign} * ({one})" for one in velocity]
    simulation = start(
        device,
        *MHD,
        *formulas(velocity=velocity, magnetic=magnetic),
        f"equation.viscosity={viscosity}",
        f"equation.resistivity={viscosity}",
        f"equation.mean_field={strength}",
    )
    advance(simulation, steps, time / steps)
    x, _, z = coordinates(simulation)
    # With u = b the wave moves against the mean field, with u = -b along it.
    z = z + sign * strength * time
    decay = {k2: math.exp(-viscosity * k2 * time) for k2 in (1, 2, 4)}
    u_x = decay[4] * np.cos(2 * z) + 0 * x
    u_y = 0.5 * decay[2] * np.sin(z + x)
    u_z = 0.3 * decay[1] * np.sin(x) + 0 * z
    error = largest_error(
        simulation,
        velocity_x=u_x,
        velocity_y=u_y,
        velocity_z=u_z,
        magnetic_x=sign * u_x,
        magnetic_y=sign * u_y,
        magnetic_z=sign * u_z,
    )
    # The fourth-order method errs by t (k B)^5 step^4 / 120 = 0.8 * 3.4^5 * 0.02^4 / 120.
    assert error <= 1e-6


@pytest.mark.slow
def test_cross_helicity_and_energy_of_ideal_magnetic_flow_drift_at_the_order(device):
    def drifts(steps):
        simulation = start(
            device, *MHD, "equation.viscosity=0", "equation.resistivity=0", "grid.points=12"
        )
        # Two random fields that have nothing to do with each other have little cross helicity.
        simulation.flow.state[3:] += 0.5 * simulation.flow.state[:3]
        before = energy_and_cross_helicity(simulation)
        after = energy_and_cross_helicity(advance(simulation, steps, 0.4 / steps))
        return np.abs(after - before)

    coarse, fine = drifts(16), drifts(32)
    assert np.all(np.log2(coarse / fine) >= 4 - 0.2)
    assert np.all(fine < 1e-4)


def energy_and_cross_helicity(simulation):
    fields = values(simulation)
    u, b = (
        np.stack([fields[f"{name}_{axis}"] for axis in "xyz"]) for name in ("velocity", "magnetic")
    )
    return np.array([(u**2 + b**2).sum(axis=0).mean() / 2, (u * b).sum(axis=0).mean()])
