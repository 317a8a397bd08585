"""Forces that keep a flow going, and dealiasing: balances that are exact."""

import copy
import math

import numpy as np
import pytest

from flows import advance, modes_of, start
from slipstream import Turbulence
from slipstream.engine.errors import InputError

RANDOM_FORCE = ('forcing.kind="random"', "forcing.shells=[1, 3]", "forcing.seed=5")


def test_abc_force_balances_viscosity(device):
    """Of an ABC flow the curl is the flow, so a force of viscosity times the flow keeps it."""
    simulation = start(
        device,
        "initial.flow=abc",
        "equation.viscosity=0.05",
        'forcing.kind="abc"',
        "forcing.amplitude=0.05",
    )
    before = modes_of(simulation)
    advance(simulation, 20)
    # Roundings of 20 steps: the balance is of the fourth order and the flow of order one.
    np.testing.assert_allclose(modes_of(simulation), before, rtol=0, atol=1e-9)


def test_uniform_force_accelerates_uniformly(device):
    simulation = start(
        device,
        "initial.flow=taylor-green",
        'forcing.kind="formula"',
        'forcing.formula=["0.5", "0", "0"]',
    )
    advance(simulation, 10)
    assert modes_of(simulation)[:, 0, 0, 0] == pytest.approx([0.05, 0, 0], rel=1e-13)


@pytest.mark.parametrize("correlation_time", [0.0, 0.07])
def test_energy_grows_by_what_is_injected(device, correlation_time):
    simulation = start(
        device,
        *RANDOM_FORCE,
        "forcing.injection=0.3",
        "initial.amplitude=0.2",
        f"forcing.correlation_time={correlation_time}",
    )
    for _ in range(5):
        before = simulation.diagnostics()
        simulation.advance(0.005)
        after = simulation.diagnostics()
        # The strength takes the force's own work into account, but not how the flow changes
        # for other reasons. The work that it did is reported.
        assert after["injection"] == pytest.approx(0.3, rel=0.05)
        assert after["injection"] != 0.3
        lost = (before["dissipation"] + after["dissipation"]) / 2
        gained = (after["energy"] - before["energy"]) / 0.005 + lost
        assert gained == pytest.approx(after["injection"], rel=2e-4)
        # The same once more, and after a detour.
        assert simulation.diagnostics()["injection"] == after["injection"]
        kept = copy.deepcopy(simulation.kept())
        simulation.advance(0.01)
        simulation.restore(kept)
        assert simulation.diagnostics()["injection"] == after["injection"]


def test_random_force_has_the_amplitude_and_no_divergence(device):
    simulation = start(device, *RANDOM_FORCE, "forcing.amplitude=0.4")
    simulation.diagnostics()
    flow = simulation.flow
    force = flow.device.to_host(flow.modes_of(flow.forcing))
    weight = flow.wavenumbers.multiplicity
    mean_square = (weight * (np.abs(force) ** 2)).sum()
    assert math.sqrt(mean_square / 3) == pytest.approx(0.4, rel=1e-12)
    w = flow.wavenumbers
    divergence = force[0] * w.x + force[1] * w.y[:, None] + force[2] * w.z[:, None, None]
    assert np.abs(divergence).max() < 1e-14
    length = np.sqrt(w.x**2 + w.y[:, None] ** 2 + w.z[:, None, None] ** 2)
    assert not force[:, np.rint(length) > 3].any()


@pytest.mark.parametrize(
    ("kind", "largest", "rms"),
    [
        ("taylor-green", 1.0, 12**-0.5),
        ("abc", math.sqrt(6), 1.0),
        ("random", None, 1.0),
    ],
)
def test_the_amplitude_of_a_force_is_what_is_documented(device, kind, largest, rms):
    sim = Turbulence(
        points=16,
        viscosity=0,
        step=1e-3,
        forcing={"kind": kind, "amplitude": 0.1},
        device=device,
        comm=None,
    )
    sim.step()
    force = sim.fields["velocity"].gather() / 1e-3  # of a flow that begins at rest
    if largest is not None:
        assert np.linalg.norm(force, axis=0).max() == pytest.approx(0.1 * largest, rel=1e-6)
    assert np.sqrt((force**2).mean()) == pytest.approx(0.1 * rms, rel=1e-6)


def test_random_force_depends_on_seed_and_time_alone(device):
    settings = (*RANDOM_FORCE, "forcing.correlation_time=0.05", "forcing.amplitude=0.5")
    first, other = (start(device, *settings) for _ in range(2))
    for time in (0.0, 0.013, 0.12, 0.05):
        first.forcing.prepare(time, 0.01)
    other.forcing.prepare(0.05, 0.01)
    forces = [s.device.to_host(s.flow.forcing) for s in (first, other)]
    np.testing.assert_array_equal(*forces)
    third = start(device, *settings, "forcing.seed=6")
    third.forcing.prepare(0.05, 0.01)
    assert not np.allclose(third.device.to_host(third.flow.forcing), forces[0])


def test_injection_sets_a_flow_at_rest_going(device):
    simulation = start(
        device,
        "initial.flow=formula",
        'initial.fields={ velocity = ["0", "0", "0"] }',
        *RANDOM_FORCE,
        "forcing.injection=0.1",
        "equation.viscosity=0",
    )
    energy = advance(simulation, 1).diagnostics()["energy"]
    # The force alone acts, but for products of the velocity that it has made.
    assert energy == pytest.approx(0.1 * 0.01, rel=1e-3)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (('forcing.kind="abc"', "forcing.field=heat"), r"forcing\.field: .*'heat'; it has: vel"),
        (('forcing.kind="formula"', 'forcing.formula="x"'), "1 formulas for 'velocity'; acc"),
        (('forcing.kind="abc"', 'forcing.formula="x"'), "'formula' goes with kind"),
        (('forcing.kind="abc"', "forcing.seed=3"), r"forcing: 'seed' does not belong to kind = 'a"),
        (('forcing.kind="abc"', "forcing.wavenumber=9"), r"forcing\.wavenumber: 9 is beyond"),
        (("numerics.dealiasing=phase-shift", "time.integrator=rk2"), "with it: .*heun, rk4"),
    ],
)
def test_wrong_forcing_is_named(device, settings, expected):
    with pytest.raises(InputError, match=expected):
        start(device, *settings)


def drift(device, dealiasing, step=0.005, integrator="rk4"):
    """Return the relative change of energy of a flow without viscosity, which should have none."""
    simulation = start(
        device,
        "equation.viscosity=0",
        f"numerics.dealiasing={dealiasing}",
        f"time.integrator={integrator}",
    )
    before = simulation.diagnostics()["energy"]
    return abs(advance(simulation, 20, step).diagnostics()["energy"] / before - 1)


@pytest.mark.parametrize("dealiasing", ["2/3", "2/3 sphere", "1/2"])
def test_energy_is_kept_without_aliases(device, dealiasing):
    # Twenty steps of the fourth order.
    assert drift(device, dealiasing) < 1e-6


@pytest.mark.parametrize("integrator", ["heun", "rk4"])
def test_phase_shifts_cancel_aliases_to_the_order_of_the_step(device, integrator):
    aliased = drift(device, "none")
    shifted = drift(device, "phase-shift", integrator=integrator)
    assert aliased > 1e-3
    assert shifted < aliased / (10 if integrator == "heun" else 1e4)


def test_spheres_are_kept(device):
    simulation = start(device, "numerics.dealiasing=2/3 sphere", "grid.points=[24, 18, 12]")
    advance(simulation, 3)
    waves = simulation.flow.wavenumbers
    axes = zip((waves.x, waves.y, waves.z), (24, 18, 12), strict=True)
    parts = [3 * axis / n for axis, n in axes]
    square = parts[0] ** 2 + parts[1][:, None] ** 2 + parts[2][:, None, None] ** 2
    strength = np.abs(modes_of(simulation)).max(axis=0)
    assert not strength[square >= 1].any()
    assert strength[(square > 0) & (square < 0.9)].all()


def test_random_flow_needs_a_vector(device):
    with pytest.raises(InputError, match="'random' is for vectors, and the model has none"):
        start(device, "equation={ model = 'gpe' }")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (RANDOM_FORCE, "a forced flow may start at rest"),
        (("equation={ model = 'examples/equations.py:allen_cahn', width = 0.5 }",), "no speed"),
    ],
)
def test_adaptive_steps_need_a_bound_where_nothing_gives_one(device, settings, why):
    with pytest.raises(InputError, match=rf"time\.max_step: needed with time\.cfl, since .*{why}"):
        start(device, "time.cfl=0.5", *settings)


def test_force_needs_modes_that_the_grid_keeps(device):
    with pytest.raises(InputError, match=r"forcing\.shells: .* of shells 20 to 30; .*1 to 5"):
        start(device, 'forcing.kind="random"', "forcing.shells=[20, 30]")


def test_growth_does_not_make_fields_complex(device):
    """Both halves of the plane kx = 0 are stored; only their common part is a real field."""
    simulation = start(
        device,
        "equation={ model = 'examples/equations.py:allen_cahn', width = 0.2 }",
        "grid.points=[24, 24, 1]",
        "initial.flow=formula",
        "numerics.dealiasing=1/2",
        'initial.fields={ phase = "0.1*sin(x) + 0.1*cos(2*y + 1) + 0.05*sin(3*y)" }',
    )
    energy = advance(simulation, 500, 0.005).diagnostics()["energy"]
    (points,) = (field.data for field in simulation.fields())
    # Growth by exp(25 * 2.5) would make of a rounding more than of the field.
    assert energy == pytest.approx((points**2).mean() / 2, rel=1e-12)
