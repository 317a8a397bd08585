"""Compressible flow at one temperature: sound, mass, and where the energy goes."""

import math

import numpy as np
import pytest

from field_values import largest_error
from flows import advance, modes_of, start

SOUND = 1.5


def isothermal(viscosity):
    parameters = f"viscosity = {viscosity}, sound_speed = {SOUND}"
    return (f"equation={{ model = 'isothermal', {parameters} }}",)


@pytest.mark.slow
@pytest.mark.parametrize("linear", ["decay", "all"])
def test_sound_of_small_amplitude_has_its_speed(device, linear):
    simulation = start(
        device,
        *isothermal(0),
        f"numerics.linear={linear}",
        "time.integrator=rk4",
        "grid.points=12",
        "initial.flow=wave",
        "initial.wavevector=[2, 1, 2]",
        "initial.amplitude=1e-7",
    )
    before = {field.name: np.array(field.data) for field in simulation.fields()}
    # A whole period of the wave of wavenumber 3, in steps of 1/100 of it; or in one.
    period = 2 * math.pi / (SOUND * 3)
    advance(simulation, *((100, period / 100) if linear == "decay" else (1, period)))
    assert max(np.abs(one).max() for one in before.values()) > 1e-8
    # Products are smaller by the amplitude.
    assert largest_error(simulation, **before) <= 1e-12


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "error"), [("float64", 1e-8), ("float32", 1e-5)])
def test_mass_is_kept_and_viscosity_takes_the_energy(device, precision, error):
    simulation = start(
        device,
        *isothermal(0.1),
        "initial.flow=taylor-green",
        "time.integrator=rk4",
        f"numerics.precision={precision}",
    )
    rows = [simulation.diagnostics()]
    for _ in range(20):
        rows.append(advance(simulation, 1, 0.01).diagnostics())
    # The mode of wavenumber 0 never changes; that the mean over points does not, is rounding.
    assert modes_of(simulation)[3, 0, 0, 0] == 0
    assert all(row["mass"] == pytest.approx(1, abs=error / 10) for row in rows)
    # The density has changed, and with it the energy that it stores.
    assert rows[-1]["total_energy"] - rows[-1]["kinetic_energy"] > 1e-4
    rates = np.array([row["viscous_dissipation"] for row in rows])
    lost = 0.01 / 3 * (rates[0] + 4 * rates[1:-1:2].sum() + 2 * rates[2:-1:2].sum() + rates[-1])
    total = [rows[0]["total_energy"], rows[-1]["total_energy"]]
    assert total[0] - total[1] == pytest.approx(lost, abs=error * total[0])
