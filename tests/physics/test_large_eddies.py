"""Large-eddy simulation: the eddy viscosity, its share of the energy budget, and what it is for."""

import math

import numpy as np
import pytest

from field_values import coordinates, formulas
from flows import advance, start
from slipstream.spectral.cfl import courant_rate

POINTS = 16
WIDTH = 2 * math.pi / POINTS
SMAGORINSKY = (f"equation={{ model = 'smagorinsky', viscosity = 0, width = {WIDTH} }}",)


@pytest.mark.slow
def test_eddies_damp_a_shear_wave_as_its_formula_says(device):
    size, k, mixing = 1.3, 2, (0.17 * WIDTH) ** 2
    simulation = start(
        device,
        *SMAGORINSKY,
        "grid.points=[64, 4, 4]",
        "numerics.dealiasing=none",
        *formulas(velocity=("0", "0", f"{size}*sin({k}*x)")),
    )
    actual = simulation.diagnostics()
    # |S| = size k |cos(k x)|: the mean of its cube; 64 points differ from that by 2e-5.
    expected = mixing * (size * k) ** 3 * 4 / (3 * math.pi)
    assert actual["subgrid_dissipation"] == pytest.approx(expected, rel=1e-4)
    assert actual["dissipation"] == actual["subgrid_dissipation"]
    advance(simulation, 1, 1e-6)
    x, _, _ = coordinates(simulation)
    along, across = 64 / (2 * math.pi), 4 / (2 * math.pi)
    advection = size * np.abs(np.sin(k * x)) * across
    diffusion = mixing * size * k * np.abs(np.cos(k * x)) * (along**2 + 2 * across**2)
    # Of the largest wavenumber that is usually kept, 2 pi / 3 over the spacing.
    expected = (advection + 2 * math.pi / 3 * diffusion).max()
    assert courant_rate(simulation.flow) == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "error"), [("float64", 5e-7), ("float32", 2e-4)])
def test_energy_is_lost_at_the_rate_of_subgrid_dissipation(device, precision, error):
    simulation = start(
        device,
        *SMAGORINSKY,
        "scalars=[{ diffusivity = 0.05 }]",
        "time.integrator=rk4",
        f"numerics.precision={precision}",
    )
    rows = [simulation.diagnostics()]
    for _ in range(20):
        rows.append(advance(simulation, 1, 0.01).diagnostics())
    rates = np.array([row["subgrid_dissipation"] for row in rows])
    lost = 0.01 / 3 * (rates[0] + 4 * rates[1:-1:2].sum() + 2 * rates[2:-1:2].sum() + rates[-1])
    # The error of Simpson's rule falls by 16 if the step is halved.
    assert rows[0]["energy"] - rows[-1]["energy"] == pytest.approx(lost, rel=error)
    assert lost > 0.01
    # That of the trapezoidal rule.
    assert abs(rows[-1]["budget_residual"]) <= 2e-5 + 10 * error
    # Scales of viscosity mean nothing where eddies are not resolved.
    assert "kmax_eta" not in rows[0] and rows[0]["integral_scale"] > 0


@pytest.mark.slow
def test_energy_does_not_pile_up_at_the_smallest_eddies(device):
    def steepness(*settings):
        simulation = start(device, "grid.points=32", "time.cfl=0.5", *settings)
        while simulation.time < 2:
            simulation.advance(min(simulation.step_size(), 2.01 - simulation.time))
        k, spectrum = simulation.spectra()["energy_spectrum"]
        few = (k >= 5) & (k <= 10)
        return np.polyfit(np.log(k[few]), np.log(spectrum[few]), 1)[0]

    width = f"equation.width={2 * math.pi / 32}"
    assert steepness("equation.viscosity=0") > -0.5
    # About -5/3.
    assert -2.3 < steepness(*SMAGORINSKY, width) < -1
