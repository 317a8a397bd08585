"""Waves of stratified and of rotating flow, whose frequencies depend on their directions alone."""

import math

import numpy as np
import pytest

from field_values import coordinates, formulas, largest_error, values
from flows import BOUSSINESQ, advance, start
from slipstream.api.validation.reference_solutions import (
    gravity_wave_frequency,
    inertial_wave_frequency,
)


def test_internal_gravity_wave_has_the_frequency_of_its_direction(device):
    frequency, (kx, kz), time, steps = 2.0, (2, 1), 1.5, 75
    omega = gravity_wave_frequency((kx, 0, kz), frequency)
    # u = (kz, 0, -kx) cos(k.x) / |k| is solenoidal; buoyancy lags a quarter behind.
    simulation = start(
        device,
        *BOUSSINESQ,
        "equation.viscosity=0",
        "equation.diffusivity=0",
        f"equation.buoyancy_frequency={frequency}",
        *formulas(velocity=[f"{kz}*cos({kx}*x + {kz}*z)", "0", f"-{kx}*cos({kx}*x + {kz}*z)"]),
    )
    advance(simulation, steps, time / steps)
    x, _, z = coordinates(simulation)
    wave = np.cos(kx * x + kz * z)
    error = largest_error(
        simulation,
        velocity_x=kz * math.cos(omega * time) * wave,
        velocity_z=-kx * math.cos(omega * time) * wave,
        buoyancy=-math.hypot(kx, kz) * math.sin(omega * time) * wave,
    )
    # t omega^5 step^4 / 120 of amplitudes up to 2.3.
    assert error <= 1e-7


def test_inertial_wave_turns_at_twice_the_rotation_along_its_direction(device):
    rotation, (kx, ky, kz), time, steps = 1.5, (1, 2, 2), 1.2, 60
    length = math.sqrt(kx**2 + ky**2 + kz**2)
    omega = inertial_wave_frequency((kx, ky, kz), rotation)
    # A circularly polarised wave a cos(phase) - b sin(phase), where k, a and b are at right
    # angles in this order: curl u = |k| u, so it is a solution also nonlinearly.
    k = np.array([kx, ky, kz]) / length
    a = np.cross(k, [0, 0, 1.0])
    a /= np.linalg.norm(a)
    b = np.cross(k, a)
    phase = f"({kx}*x + {ky}*y + {kz}*z)"
    simulation = start(
        device,
        "equation.viscosity=0",
        f"equation.rotation={rotation}",
        *formulas(velocity=[f"({a[i]})*cos{phase} - ({b[i]})*sin{phase}" for i in range(3)]),
    )
    vorticity = simulation.diagnostics()["helicity"] / (2 * simulation.diagnostics()["energy"])
    sense = round(vorticity / length)
    assert abs(sense) == 1
    advance(simulation, steps, time / steps)
    x, y, z = coordinates(simulation)
    # d u / dt = -2 Omega z_hat x u + gradient is, for curl u = s |k| u, the same as
    # d (curl u) / dt = 2 Omega d u / dz: s |k| du/dt = 2 Omega du/dz, a wave that moves down for s.
    moved = kx * x + ky * y + kz * z + sense * omega * time
    expected = {
        f"velocity_{axis}": a[i] * np.cos(moved) - b[i] * np.sin(moved)
        for i, axis in enumerate("xyz")
    }
    # t omega^5 step^4 / 120.
    assert largest_error(simulation, **expected) <= 1e-7


WAVES = {
    # model: (settings, what its largest frequency is of the largest wavenumber of each axis)
    "inertial": (("equation.rotation=1.5",), lambda k: 2 * 1.5),
    "gravity": (
        (
            "equation.model=boussinesq",
            "equation.diffusivity=0.01",
            "equation.buoyancy_frequency=4.0",
        ),
        lambda k: 4.0,
    ),
    "Alfven": (
        ("equation.model=mhd", "equation.resistivity=0.01", "equation.mean_field=1.7"),
        lambda k: 1.7 * k,
    ),
    "quantum": (
        (
            "equation={ model = 'gpe', sound_speed = 2.0, healing_length = 0.5 }",
            "initial.flow=formula",
            "initial.fields={ psi_real = '1' }",
        ),
        lambda k: 2 * 0.5 / math.sqrt(2) * 3 * k**2 - 2 / 0.5 / math.sqrt(2),
    ),
    "viscous": (
        ("equation.viscosity=0.01", "numerics.integrating_factor=false"),
        lambda k: 0.01 * 3 * k**2,
    ),
}


@pytest.mark.parametrize("name", WAVES)
def test_adaptive_step_is_bounded_by_waves_and_speeds_together(device, name):
    settings, frequency = WAVES[name]
    simulation = start(device, *settings, "time.cfl=0.7")
    points = simulation.case.grid.points_xyz[0]
    fields = values(simulation)
    speeds = [np.abs(own) for field, own in fields.items() if field[-2:] in ("_x", "_y", "_z")]
    # Where a model has two velocities, both are counted.
    advection = (sum(speeds) * points / (2 * math.pi)).max() if speeds else 0.0
    rate = advection + frequency((points - 1) // 3)
    assert simulation.step_size() == pytest.approx(0.7 / rate, rel=1e-12)
