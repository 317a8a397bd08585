"""Plane waves as states at the start of a run: their frequencies, from the phases of modes."""

import math

import numpy as np
import pytest

from field_values import values
from flows import advance, modes_of, points_of, start
from slipstream.api.validation.reference_solutions import (
    bogoliubov_frequency,
    gravity_wave_frequency,
)

GPE = (
    'equation={ model = "gpe", sound_speed = 1.5, healing_length = 0.2 }',
    'numerics.dealiasing="1/2"',
)
SOUND, HEALING = 1.5, 0.2
ROTATING = ("equation.viscosity=0", "equation.rotation=1.5")
STRATIFIED = (
    "equation={ model = 'boussinesq', viscosity = 0.0, diffusivity = 0.0,"
    " buoyancy_frequency = 2.0 }",
)
STRATIFIED_ROTATING = (STRATIFIED[0].replace("frequency = 2.0", "frequency = 2.0, rotation = 0.6"),)
MAGNETIC = ("equation={ model = 'mhd', viscosity = 0.0, resistivity = 0.0, mean_field = 1.7 }",)
HALL = (MAGNETIC[0].replace("mean_field = 1.7", "mean_field = 1.7, ion_inertial_length = 0.4"),)
# Of the wavevector (1, 2, 2) and the same field: 3.4 (sqrt(1 + (0.4 * 3 / 2)^2) +- 0.4 * 3 / 2).
WHISTLER, CYCLOTRON = (3.4 * (math.sqrt(1.36) + sign * 0.6) for sign in (1, -1))
WAVES = {
    # Model, wavevector, and the frequencies from the highest down.
    "inertial": (ROTATING, (1, 2, 2), [2.0, -2.0]),
    "inertial, another way": (ROTATING, (-2, 0, 1), [3 / math.sqrt(5), -3 / math.sqrt(5)]),
    "gravity": (STRATIFIED, (2, 0, 1), [4 / math.sqrt(5), -4 / math.sqrt(5)]),
    "gravity and rotation": (
        STRATIFIED_ROTATING,
        (1, 2, 2),
        [math.sqrt(4 * 5 + 1.44 * 4) / 3, -math.sqrt(4 * 5 + 1.44 * 4) / 3],
    ),
    "alfven": (MAGNETIC, (1, 1, 2), [3.4, 3.4, -3.4, -3.4]),
    "whistler": (HALL, (1, 2, 2), [WHISTLER, CYCLOTRON, -CYCLOTRON, -WHISTLER]),
}


def frequency(simulation, wavevector, steps=16, step=0.005):
    """Return omega, from the phase of a mode after each of some steps."""
    index = tuple(reversed(wavevector))
    sign = 1
    if index[2] < 0:
        index, sign = tuple(-n for n in index), -1
    largest = np.abs(modes_of(simulation)[(slice(None), *index)]).argmax()
    phases = []
    for _ in range(steps):
        phases.append(np.angle(modes_of(simulation)[(largest, *index)]))
        advance(simulation, 1, step)
    slope = np.polyfit(step * np.arange(steps), np.unwrap(phases), 1)[0]
    return -sign * slope


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "branch"), [(name, branch) for name in WAVES for branch in range(len(WAVES[name][2]))]
)
def test_wave_has_the_frequency_of_its_branch(device, name, branch):
    model, wavevector, frequencies = WAVES[name]
    simulation = start(
        device,
        *model,
        "grid.points=8",
        "initial.flow=wave",
        "initial.amplitude=0.3",
        f"initial.wavevector={list(wavevector)}",
        f"initial.branch={branch}",
    )
    assert simulation.diagnostics()["energy"] == pytest.approx(0.3**2 / 2, rel=1e-13)
    before = np.abs(modes_of(simulation))
    # One plane wave has no product with itself; the phase errs by omega^5 step^4 / 120.
    assert frequency(simulation, wavevector) == pytest.approx(frequencies[branch], rel=1e-7)
    # Neither it nor anything else grows: it is one wave, not two.
    assert np.abs(np.abs(modes_of(simulation)) - before).max() <= 1e-9


def test_alfven_waves_of_one_frequency_are_polarised_across_each_other(device):
    fields = [
        points_of(
            start(
                device,
                *MAGNETIC,
                "grid.points=8",
                "initial.flow=wave",
                "initial.wavevector=[0, 0, 1]",
                f"initial.branch={branch}",
            )
        )
        for branch in range(2)
    ]
    # The first has as much of the first component as can be, so the second has none.
    for first, second in ((0, 1), (1, 0)):
        assert np.abs(fields[first][first]).max() == pytest.approx(1, rel=1e-13)
        assert np.abs(fields[first][second]).max() <= 1e-14


def test_waves_are_those_of_the_box(device):
    simulation = start(
        device,
        *STRATIFIED,
        "grid.points=8",
        "grid.length=[4.0, 7.0, 10.0]",
        "initial.flow=wave",
        "initial.wavevector=[1, 0, 1]",
    )
    expected = gravity_wave_frequency((1 / 4, 0, 1 / 10), 2.0)
    assert frequency(simulation, (1, 0, 1)) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("branch", [0, 1])
@pytest.mark.parametrize("wavevector", [(1, 0, 0), (2, 1, -1), (0, 3, 1)])
def test_small_waves_of_a_quantum_fluid_have_the_frequency_of_bogoliubov(
    device, wavevector, branch
):
    omega = bogoliubov_frequency(wavevector, SOUND, HEALING)
    simulation = start(
        device,
        *GPE,
        "grid.points=16",
        "initial.flow=wave",
        "initial.amplitude=1e-6",
        f"initial.wavevector={list(wavevector)}",
        f"initial.branch={branch}",
    )
    fields = values(simulation)
    rest = fields["psi_real"] + 1j * fields["psi_imaginary"] - 1
    assert math.sqrt((np.abs(rest) ** 2).mean()) == pytest.approx(1e-6, rel=1e-8)
    # Products of two are smaller by the amplitude.
    assert frequency(simulation, wavevector) == pytest.approx((-1) ** branch * omega, rel=1e-5)
