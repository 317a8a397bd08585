"""Vortex lines of quantum fluids: rings and knots, their circulation, speed and relaxation."""

import math

import numpy as np
import pytest

from field_values import coordinates, values
from flows import advance, start
from slipstream.engine.errors import InputError

SOUND, HEALING, RADIUS, POINTS = 1.0, 0.25, 1.4, 32
ALPHA = SOUND * HEALING / math.sqrt(2)


def fluid(model, *settings):
    parameters = f"sound_speed = {SOUND}, healing_length = {HEALING}"
    equation = f"equation={{ model = '{model}', {parameters} }}"
    return (equation, f"grid.points={POINTS}", "numerics.dealiasing=none", *settings)


def wave_function(simulation):
    found = values(simulation)
    return found["psi_real"] + 1j * found["psi_imaginary"]


def around(psi, row, column):
    """Return how often the phase turns around each square of a plane, by its places."""
    steps = [np.angle(np.roll(psi, -1, axis) / psi) for axis in (row, column)]
    turns = steps[0] + np.roll(steps[1], -1, row) - np.roll(steps[0], -1, column) - steps[1]
    return np.rint(turns / (2 * math.pi))


def place_of_ring(psi):
    """Return height and radius of a ring about the middle, by the density that its core lacks."""
    missing = np.clip(1 - np.abs(psi) ** 2, 0, None) ** 4
    points = 2 * math.pi * np.arange(POINTS) / POINTS
    turn = (missing.sum(axis=(1, 2)) * np.exp(1j * points)).sum()
    distance = np.hypot((points - math.pi)[:, None], (points - math.pi)[None, :])
    return np.angle(turn) % (2 * math.pi), (missing * distance).sum() / missing.sum()


@pytest.mark.slow
def test_ring_has_one_quantum_and_the_speed_of_its_radius(device):
    settings = ("initial.flow=vortex-ring", f"initial.radius={RADIUS}", "time.integrator=rk4")
    simulation = start(device, *fluid("gpe", *settings))
    psi, middle = wave_function(simulation), POINTS // 2
    # The plane y = pi cuts the ring at two places, with circulations of opposite sign.
    turns = around(psi[:, middle], 0, 1)
    assert sorted(turns[turns != 0]) == [-1, 1]
    row, column = np.argwhere(turns == 1)[0]
    spacing = 2 * math.pi / POINTS
    assert abs(abs((column + 0.5) * spacing - math.pi) - RADIUS) < spacing
    # Where the box repeats the phase continues: a ring between others is no obstacle.
    for axis in range(3):
        seam = np.angle(psi.take(0, axis) / psi.take(-1, axis))
        assert np.abs(seam).max() < 0.06
    before, mass = place_of_ring(psi), simulation.diagnostics()["mass"]
    assert before[0] == pytest.approx(math.pi, abs=0.02)
    advance(simulation, 200, 0.01)
    after = place_of_ring(wave_function(simulation))
    assert simulation.diagnostics()["mass"] == pytest.approx(mass, rel=1e-6)
    radius = (before[1] + after[1]) / 2
    # Roberts and Grant, J. Phys. A 4, 55 (1971), without terms of (healing length / radius)^2.
    expected = ALPHA / radius * (math.log(8 * radius / HEALING) - 0.615)
    # The images of a cubic lattice, dipoles, add a third of the flow that their area drives.
    expected += 2 * ALPHA * (2 * math.pi / 3) * math.pi * radius**2 / (2 * math.pi) ** 3
    assert (after[0] - before[0]) / 2 == pytest.approx(expected, rel=0.06)


# How often knots cross their middle plane: twice for each turn around the torus.
KNOTS = {"trefoil": 6, "cinquefoil": 10}


@pytest.mark.slow
@pytest.mark.parametrize("flow", [*KNOTS, "quantum-taylor-green"])
def test_relaxation_lowers_the_free_energy_and_keeps_vortex_lines(device, flow):
    size = "initial.radius=1.2" if flow in KNOTS else "initial.amplitude=3.0"
    simulation = start(device, *fluid("argle", f"initial.flow={flow}", size))
    plane = POINTS // 2 if flow in KNOTS else 0
    lines = np.count_nonzero(around(wave_function(simulation)[plane], 0, 1))
    assert lines == KNOTS.get(flow, lines)
    rows, before = [simulation.diagnostics()], values(simulation)
    for _ in range(5):
        rows.append(advance(simulation, 2, 0.02).diagnostics())
    energies = [row["free_energy"] for row in rows]
    assert all(np.diff(energies) < 0)
    assert np.count_nonzero(around(wave_function(simulation)[plane], 0, 1)) >= 4
    # The flow that it relaxes to stays as it is.
    moved = values(simulation)["velocity_x"] - before["velocity_x"]
    assert np.abs(moved).max() <= 1e-14
    x, y, z = coordinates(simulation)
    taylor_green = 3 * np.sin(x) * np.cos(y) * np.cos(z) * (flow not in KNOTS)
    np.testing.assert_allclose(before["velocity_x"], taylor_green, atol=1e-13)


@pytest.mark.slow
def test_lines_of_quantum_abc_flow_like_it_at_large(device):
    settings = ("initial.coefficients=[0.9, 1, 1.1]", "initial.amplitude=0.5")
    simulation = start(device, *fluid("argle", "initial.flow=quantum-abc", *settings))
    energies = [simulation.diagnostics()["free_energy"]]
    for _ in range(5):
        energies.append(advance(simulation, 4, 0.02).diagnostics()["free_energy"])
    assert all(np.diff(energies) < 0)
    actual, psi = values(simulation), wave_function(simulation)
    lines = [np.count_nonzero(around(psi.take(0, axis), 0, 1)) for axis in range(3)]
    assert min(lines) >= 4
    mass = simulation.diagnostics()["mass"]
    k = 1j * np.fft.fftfreq(POINTS, 1 / POINTS)
    modes = np.fft.fftn(psi)
    for number, name in enumerate("xyz"):
        along = k.reshape([-1 if axis == 2 - number else 1 for axis in range(3)])
        momentum = 2 * ALPHA * (psi.conj() * np.fft.ifftn(along * modes)).imag
        u = actual[f"velocity_{name}"]
        assert (momentum * u).mean() == pytest.approx(mass * (u**2).mean(), rel=0.1)


def test_flow_of_less_than_half_a_quantum_is_refused(device):
    with pytest.raises(InputError, match=r"^initial\.amplitude: .* 0\.283 of a quantum"):
        start(device, *fluid("gpe", "initial.flow=quantum-abc", "initial.amplitude=0.1"))


def test_a_line_that_does_not_fit_in_the_box_is_refused(device):
    with pytest.raises(InputError, match=r"^initial\.radius: 2\.5 does not fit .* less than 2\.2"):
        start(device, *fluid("gpe", "initial.flow=trefoil", "initial.radius=2.5"))
