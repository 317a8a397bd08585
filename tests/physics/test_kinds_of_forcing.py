"""Each kind of forcing against what defines it: power, spectrum, correlation, order in time."""

import math

import numpy as np
import pytest

from flows import MHD, advance, make_case, modes_of, start
from slipstream import Turbulence
from slipstream.engine.errors import InputError
from slipstream.spectral.spectral_simulation import SpectralSimulation

BAND = 'forcing={ kind = "linear", rate = 0.3, shells = [1, 1] }'
HELD = 'forcing={ kind = "constant-energy", shells = [1, 2] }'
POWERED = 'forcing={ kind = "linear", injection = [0.05, 0.03, 0.0], shells = [1, 2] }'
# In the first of its intervals, in which the force is linear in time.
DRAWN = 'forcing={ kind = "random", amplitude = 1.0, correlation_time = 2.0 }'
ABC = ("initial.flow=abc", "equation.viscosity=0.05")


def shells_of(simulation):
    return simulation.spectra()["energy_spectrum"][1]


def modes_in_shells(simulation, low, high):
    """Return the wavevectors (3, ...) of modes, how often each counts, and those of some shells."""
    w = simulation.flow.wavenumbers
    k = np.stack(np.broadcast_arrays(w.x, w.y[:, None], w.z[:, None, None]))
    shell = np.rint(np.sqrt((k**2).sum(axis=0)))
    return k, w.multiplicity, (shell >= low) & (shell <= high)


# -- linear forces --------------------------------------------------------------------------------


ALL_SHELLS, LOW, HIGH = ("", 1), (", shells = [1, 1]", 1), (", shells = [2, 3]", 0)


# Shells are functions of the wavenumber in the model, which every integrator takes in one way, and
# those of propagators in another.
@pytest.mark.parametrize(
    ("numerics", "shells", "grows"),
    [
        (("time.integrator=rk2",), *ALL_SHELLS),
        (("time.integrator=rk2",), *LOW),
        (("time.integrator=rk2",), *HIGH),
        (("time.integrator=rk3", "numerics.linear=all"), *ALL_SHELLS),
        (("time.integrator=rk3", "numerics.linear=all"), *LOW),
        (("time.integrator=rk3", "numerics.linear=all"), *HIGH),
        (("time.integrator=etdrk4",), *LOW),
        (("numerics.precision=float32",), *LOW),
    ],
)
def test_linear_force_lets_modes_grow_at_its_rate(device, numerics, shells, grows):
    """Of an ABC flow products are a gradient: its energy grows as exp(2 (rate - viscosity) t)."""
    force = f'forcing={{ kind = "linear", rate = 0.3{shells} }}'
    simulation = start(device, *ABC, *numerics, force)
    before = simulation.diagnostics()
    assert before["injection"] == pytest.approx(0.6 * before["energy"] * grows, rel=1e-6)
    assert "driving" not in before
    assert before["kmax_eta"] > 0
    after = advance(simulation, 10, 0.1).diagnostics()
    expected = math.exp(2 * (0.3 * grows - 0.05))
    rounding = 1e-5 if "numerics.precision=float32" in numerics else 1e-12
    assert after["energy"] / before["energy"] == pytest.approx(expected, rel=rounding)


def test_linear_force_balances_dissipation(device):
    """Lundgren: with rate = dissipation / (2 energy) the energy is steady at first."""
    free = start(device).diagnostics()
    rate = free["dissipation"] / (2 * free["energy"])
    simulation = start(device, f'forcing={{ kind = "linear", rate = {rate!r} }}')
    now = simulation.diagnostics()
    assert now["injection"] == pytest.approx(now["dissipation"], rel=1e-12)
    after = advance(simulation, 2, 1e-3).diagnostics()
    assert abs(after["energy"] / now["energy"] - 1) < 1e-5
    assert advance(simulation, 1, 1e-3).diagnostics()["budget_residual"] < 1e-5


def test_linear_force_of_a_scalar_leaves_its_mean(device):
    settings = ("scalars=[{diffusivity=0.05}]", "initial.flow=formula")
    initial = 'initial.fields={ velocity = ["0", "0", "0"], scalar = "1 + cos(x)" }'
    force = 'forcing={ kind = "linear", rate = 0.3, field = "scalar" }'
    simulation = advance(start(device, *settings, initial, force), 10, 0.1)
    scalar = simulation.flow.modes_of(simulation.device.to_host(simulation.flow.state))[3]
    assert scalar[0, 0, 0] == pytest.approx(1, rel=1e-14)
    assert scalar[0, 0, 1].real == pytest.approx(0.5 * math.exp(0.25), rel=1e-12)


# -- constant power -------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("shells", [", shells = [1, 2]", ""])
def test_each_component_gets_its_power(device, precision, shells):
    powers, rounding = (0.05, 0.03, 0.01), 1e-12 if precision == "float64" else 1e-6
    force = f'forcing={{ kind = "linear", injection = {list(powers)}{shells} }}'
    simulation = start(device, force, "time.integrator=rk2", f"numerics.precision={precision}")
    for _ in range(2):
        assert simulation.diagnostics()["injection"] == pytest.approx(sum(powers), rel=rounding)
        flow = simulation.flow
        force = np.array(flow.modes_of(simulation.device.to_host(flow.forcing))).astype(complex)
        k, weight, inside = modes_in_shells(simulation, *((1, 2) if shells else (1, 99)))
        work = (weight * (force.conj() * modes_of(simulation)).real).sum(axis=(1, 2, 3))
        np.testing.assert_allclose(work, powers, rtol=rounding)
        assert not force[:, ~inside].any()
        assert np.abs((k * force).sum(axis=0)).max() < rounding
        simulation.advance(0.01)


@pytest.mark.parametrize("power", ["0.1", "[0.1]"])
def test_a_scalar_gets_its_power(device, power):
    settings = ("scalars=[{diffusivity=0}]", "initial.flow=formula")
    initial = 'initial.fields={ velocity = ["0", "0", "0"], scalar = "1 + cos(x)" }'
    force = f'forcing={{ kind = "linear", injection = {power}, field = "scalar" }}'
    simulation = start(device, *settings, initial, force)
    before = simulation.diagnostics()["scalar_energy"]
    after = advance(simulation, 10, 0.1).diagnostics()["scalar_energy"]
    assert after - before == pytest.approx(0.1, rel=1e-6)  # a method of the fourth order


def test_a_component_may_get_no_power(device):
    simulation = start(device, POWERED, "equation.viscosity=0.05")
    simulation.warnings()
    assert simulation.diagnostics()["injection"] == pytest.approx(0.08, rel=1e-12)
    simulation.advance(0.01)
    assert not [one for one in simulation.warnings() if "too little" in one]


def test_constant_power_needs_a_flow(device):
    simulation = start(
        device,
        "initial.flow=formula",
        'initial.fields={ velocity = ["sin(z)", "0", "0"] }',
        'forcing={ kind = "linear", injection = [0.1, 0.1, 0.0] }',
    )
    simulation.advance(0.01)
    assert any("too little energy" in one for one in simulation.warnings())
    simulation.advance(0.01)
    assert not simulation.warnings()


# -- constant energy ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [(), ("numerics.precision=float32",), ("numerics.linear=all",)]
)
def test_shells_keep_their_energy(device, settings):
    simulation = start(device, HELD, "time.integrator=rk2", *settings)
    before = shells_of(simulation)
    advance(simulation, 5)
    rounding = 1e-6 if "numerics.precision=float32" in settings else 1e-13
    np.testing.assert_allclose(shells_of(simulation)[1:3], before[1:3], rtol=rounding)
    assert abs(shells_of(simulation)[3] / before[3] - 1) > 1e-3
    # What the force did in a step is what energy was gained and lost.
    for _ in range(2):
        first = simulation.diagnostics()
        simulation.advance(0.001)
        second = simulation.diagnostics()
        lost = (first["dissipation"] + second["dissipation"]) / 2
        gained = (second["energy"] - first["energy"]) / 0.001
    assert second["injection"] == pytest.approx(gained + lost, rel=1e-3)


def test_shells_come_to_the_energies_of_the_case(device):
    simulation = start(device, HELD, "forcing.energy=[0.2, 0.05]")
    advance(simulation, 2)
    np.testing.assert_allclose(shells_of(simulation)[1:3], [0.2, 0.05], rtol=1e-13)


def test_magnetic_and_kinetic_shells_keep_theirs(device):
    both = (
        'forcing=[{ kind = "constant-energy" }, { kind = "constant-energy", field = "magnetic" }]'
    )
    simulation = start(device, *MHD, both)
    before = simulation.spectra()
    advance(simulation, 3)
    for name in ("velocity_spectrum", "magnetic_spectrum"):
        after = simulation.spectra()[name][1]
        np.testing.assert_allclose(after[1:3], before[name][1][1:3], rtol=1e-13)


# -- order in time --------------------------------------------------------------------------------

SWINGING = 'forcing={ kind = "formula", formula = ["sin(y + 3*t)*cos(2*t)", "0", "cos(x)"] }'


@pytest.mark.samples(4)
@pytest.mark.parametrize(
    ("force", "numerics", "order"),
    [
        (HELD, ("time.integrator=rk2",), 2),
        (HELD, ("time.integrator=rk3",), 3),
        (HELD, ("time.integrator=rk4",), 4),
        (HELD, ("time.integrator=rk3", "numerics.linear=all"), 3),
        (POWERED, ("time.integrator=rk2",), 2),
        (POWERED, ("time.integrator=rk3",), 3),
        (POWERED, ("time.integrator=etdrk4",), 4),
        (POWERED, ("time.integrator=ars233",), 3),
        (SWINGING, ("time.integrator=ars233",), 3),
        (BAND, ("time.integrator=rk3",), 3),
        (DRAWN, ("time.integrator=rk3",), 2),
    ],
)
def test_forces_have_the_order_of_the_integrator(device, force, numerics, order):
    def after(steps):
        simulation = start(device, force, *numerics, "initial.peak_wavenumber=2.0")
        return modes_of(advance(simulation, steps, 0.8 / steps))

    coarse, middle, fine = (after(n) for n in (8, 16, 32))
    found = math.log2(np.abs(coarse - middle).max() / np.abs(middle - fine).max())
    assert found > order - 0.35


# -- random forces --------------------------------------------------------------------------------

OU = 'forcing={ kind = "ornstein-uhlenbeck", amplitude = 0.4, shells = [1, 2], seed = 3'


def ensemble(device, settings, steps, step_size):
    """Return modes of a force at the starts of steps: (steps, components, modes), and weights."""
    simulation = start(device, settings, "grid.points=12")
    forcing = simulation.forcing
    (drawn,) = forcing._random.values()
    flow, results = simulation.flow, []
    _, weight, inside = modes_in_shells(simulation, 1, 2)
    for number in range(steps):
        drawn.set(0.0)
        force = flow.modes_of(simulation.device.to_host(flow.forcing))
        assert number or not force[:, ~inside].any()
        results.append(force[:, inside])
        drawn.advance(number, step_size(number))
    return np.array(results), np.broadcast_to(weight, inside.shape)[inside]


def test_ornstein_uhlenbeck_force_has_its_variance_and_correlation(device):
    """In units of the correlation time steps are 1/4, and so are lags: r = exp(-lag)."""
    force, weight = ensemble(device, OU + ", correlation_time = 2.0 }", 1200, lambda n: 0.5)
    square = (weight * np.abs(force) ** 2).sum(axis=(1, 2))
    # About 80 modes of 4 numbers, over 150 correlation times: a standard error of 0.8 %.
    assert square.mean() == pytest.approx(3 * 0.4**2, rel=0.03)
    for lag in (1, 4, 8):
        product = (force[lag:] * force[:-lag].conj()).real
        found = (weight * product).sum(axis=(1, 2)).mean() / square.mean()
        assert found == pytest.approx(math.exp(-lag / 4), abs=0.03)
    # Normal numbers have a fourth moment of 2 |f|^4 where they are complex.
    k4 = (np.abs(force) ** 4).mean(axis=(0, 2)) / (np.abs(force) ** 2).mean(axis=(0, 2)) ** 2
    assert 1.9 < k4.mean() < 3.2


def test_ornstein_uhlenbeck_force_does_not_depend_on_the_steps(device):
    """The update is exact: long and short steps, mixed, have the same variance."""
    sizes = (0.05, 3.0, 0.4)
    force, weight = ensemble(device, OU + ", correlation_time = 1.0 }", 600, lambda n: sizes[n % 3])
    square = (weight * np.abs(force) ** 2).sum(axis=(1, 2))
    for phase in range(3):
        assert square[phase::3].mean() == pytest.approx(3 * 0.4**2, rel=0.05)


def test_energy_of_a_flow_at_rest_grows_as_random_forces_say(device):
    """Without products, E(t) = 3 a^2 T (t - T (1 - exp(-t/T))) on average, to second order."""
    simulation = start(
        device,
        "initial.flow=formula",
        "equation.viscosity=0",
        "grid.points=12",
        OU.replace("0.4", "1e-6") + ", correlation_time = 0.5 }",
    )
    for _ in range(40):
        before = simulation.diagnostics()["energy"]
        simulation.advance(0.1)
        after = simulation.diagnostics()
        gained = (after["energy"] - before) / 0.1
        assert after["injection"] == pytest.approx(gained, rel=1e-6, abs=1e-18)
    time, amplitude, memory = 4.0, 1e-6, 0.5
    expected = 3 * amplitude**2 * memory * (time - memory * (1 - math.exp(-time / memory)))
    # Of about 80 modes, each with two waves: a standard error of 8 %.
    assert after["energy"] == pytest.approx(expected, rel=0.3)


@pytest.mark.parametrize("kind", ['"random"', '"ornstein-uhlenbeck", correlation_time = 1.0'])
@pytest.mark.parametrize("helicity", [1.0, -1.0, 0.5])
def test_helical_forces_have_the_helicity_of_each_mode(device, kind, helicity):
    settings = f"forcing={{ kind = {kind}, helicity = {helicity}, amplitude = 0.4 }}"
    simulation = start(device, settings, "grid.points=12")
    flow = simulation.flow
    force = flow.modes_of(simulation.device.to_host(flow.forcing))
    k, weight, inside = modes_in_shells(simulation, 1, 2)
    curl = 1j * np.cross(k, force, axis=0)
    length = np.sqrt((k**2).sum(axis=0))
    if abs(helicity) == 1:
        np.testing.assert_allclose(curl, helicity * length * force, atol=1e-14)
    else:
        along = (
            weight * (curl * force.conj()).real.sum(axis=0) / np.where(inside, length, 1)
        ).sum()
        square = (weight * np.abs(force) ** 2).sum()
        rounding = 1e-12 if "random" in kind else 0.25
        assert along / square == pytest.approx(helicity, rel=rounding)
    assert np.abs((k * force).sum(axis=0)).max() < 1e-14


def test_random_forces_of_a_scalar(device):
    settings = ("scalars=[{diffusivity=0.05}]", "grid.points=12")
    for kind in ('"random"', '"ornstein-uhlenbeck", correlation_time = 1.0'):
        force = f'forcing={{ kind = {kind}, field = "scalar", amplitude = 0.4, shells = [1, 3] }}'
        simulation = start(device, *settings, force)
        flow = simulation.flow
        (modes,) = flow.modes_of(simulation.device.to_host(flow.forcing))
        square = (flow.wavenumbers.multiplicity * np.abs(modes) ** 2).sum()
        assert square == pytest.approx(0.16, rel=1e-12 if "random" in kind else 0.3)
        assert not modes[0, 0, 0]


# -- several --------------------------------------------------------------------------------------


def test_forces_add_up(device):
    """Two forces together do to a flow at rest, in one step, the sum of their separate effects."""

    def after(*forces):
        sim = Turbulence(
            points=16, viscosity=0, step=1e-3, forcing=list(forces), device=device, comm=None
        )
        sim.step()
        return sim.fields["velocity"].gather()

    one = {"kind": "abc", "amplitude": 0.1}
    other = {"kind": "ornstein-uhlenbeck", "amplitude": 0.2, "correlation_time": 1.0, "seed": 4}
    np.testing.assert_allclose(
        after(one, "taylor-green"), after(one) + after("taylor-green"), atol=1e-9
    )
    both = after(other, other) - after(other)
    # Two tables with the same seed are independent.
    assert np.abs(both - after(other)).max() > 0.01e-3
    assert np.abs(both).max() > 0.01e-3


def test_a_function_is_the_force_that_its_formula_is(device):
    def after(forcing):
        sim = Turbulence(
            points=12,
            viscosity=0.1,
            step=0.1,
            initial="abc",
            forcing=forcing,
            device=device,
            comm=None,
        )
        sim.step(2)
        return sim.fields["velocity"].gather()

    formula = ["sin(y - 2*t)", "0", "0.2*cos(x)"]
    wave = after({"kind": "formula", "formula": formula})
    actual = after(lambda x, y, z, t: (np.sin(y - 2 * t), 0, 0.2 * np.cos(x)))
    np.testing.assert_allclose(actual, wave, atol=1e-14)
    steady = after({"kind": "formula", "formula": ["sin(y)", "0", "0"], "injection": 0.1})
    actual = after({"formula": lambda x, y, z: (np.sin(y), 0, 0), "injection": 0.1})
    np.testing.assert_allclose(actual, steady, atol=1e-14)


def test_a_function_of_another_program_is_asked_for(device):
    with pytest.raises(InputError, match=r"forcing\.formula: 'python:gone' was given by a Python"):
        start(device, 'forcing={ kind = "formula", formula = "python:gone" }')


def test_a_setting_of_one_of_several_forces_changes(device):
    forces = [{"kind": "abc", "amplitude": 0.1}, {"kind": "linear", "rate": 0.2}]
    sim = Turbulence(points=12, viscosity=0.1, step=0.01, forcing=forces, device=device, comm=None)
    sim.step()
    sim.forcing[1].rate = 0.5
    assert (sim.forcing[1].rate, sim.forcing[0].amplitude, len(sim.forcing)) == (0.5, 0.1, 2)
    energy, injection = sim.diagnostics["energy"], sim.diagnostics["injection"]
    sim.forcing[0].amplitude = 0.0
    assert sim.diagnostics["injection"] == pytest.approx(energy, rel=1e-12)
    assert injection > energy
    with pytest.raises(
        InputError, match=r"forcing\.rate: there are 2 forces; .*forcing\[0\]\.rate"
    ):
        sim.forcing.rate = 0.1
    with pytest.raises(InputError, match=r"forcing\[2\].amplitude: .*'linear' has none"):
        sim.forcing[1].amplitude = 0.1


def test_a_case_has_one_table_or_several(device):
    one = make_case("forcing.kind=abc")
    assert "\n[forcing]\n" in one.to_toml()
    several = make_case(
        'forcing=[{ kind = "abc" }, { kind = "linear", rate = 0.1 }]', "forcing[2].rate=0.3"
    )
    assert several.to_toml().count("\n[[forcing]]\n") == 2
    assert [force.rate for force in several.forcing] == [None, 0.3]
    assert SpectralSimulation(several, None, device).problem.parameters["forcing_2_rate"] == 0.3


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ('forcing={ kind = "linear" }', "forcing: .*needs either 'rate' or 'injection'"),
        ('forcing={ kind = "ornstein-uhlenbeck" }', "forcing: .*'correlation_time' more than 0"),
        ('forcing={ kind = "abc", injection = [0.1, 0.1, 0.1] }', "goes with kind = 'linear'"),
        ('forcing={ kind = "linear", injection = [0.1, 0.1] }', r"forcing\.injection: 2 numbers"),
        ('forcing={ kind = "linear", injection = -1.0 }', r"forcing\.injection: must be greater"),
        ('forcing={ kind = "constant-energy", energy = [0.1] }', "1 numbers; accepted: 2"),
        ('forcing={ kind = "random", rate = 0.1 }', "'rate' does not belong to kind"),
        ('forcing=[{ kind = "abc" }, { kind = "abd" }]', r"forcing\[2\]\.kind: 'abd'"),
        (
            'forcing=[{ kind = "constant-energy" }, { kind = "constant-energy", shells = [2, 3] }]',
            r"forcing\[2\]\.shells: shell 2 keeps its energy already by forcing\[1\]",
        ),
    ],
)
def test_wrong_forces_are_named(device, settings, expected):
    with pytest.raises(InputError, match=expected):
        start(device, settings)
