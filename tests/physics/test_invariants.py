"""Laws that hold for every flow: budgets, conservation, orders of convergence, spectra."""

import math

import numpy as np
import pytest

from flows import UNEVEN_BOX, advance, modes_of, points_of, relative_error, save, start

INTEGRATORS = {"rk2": 2, "heun": 2, "rk3": 3, "rk4": 4, "jst3": 2, "jst4": 2}


def after(device, time, steps, *settings):
    return advance(start(device, *settings), steps, time / steps)


@pytest.fixture(scope="module")
def almost_exact(device):
    """Modes whose error is 1 / 8^4 of the error of the finest ones below, or much less."""
    return modes_of(after(device, 0.4, 256, "equation.viscosity=0.02", "time.integrator=rk4"))


@pytest.mark.parametrize("integrating_factor", ["true", "false"])
@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_integrators_converge_at_their_order(device, almost_exact, integrator, integrating_factor):
    settings = (
        "equation.viscosity=0.02",
        f"time.integrator={integrator}",
        f"numerics.integrating_factor={integrating_factor}",
    )
    coarse, fine = (
        np.linalg.norm(modes_of(after(device, 0.4, steps, *settings)) - almost_exact)
        for steps in (16, 32)
    )
    # The next order in the step size changes the observed order by a few hundredths; by more that
    # of methods which are of a higher one for linear terms.
    assert math.log2(coarse / fine) == pytest.approx(INTEGRATORS[integrator], abs=0.2)
    assert fine > 1e-11  # far above rounding


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_energy_of_an_inviscid_flow_drifts_at_the_order_of_the_integrator(device, integrator):
    time, settings = 0.8, ("equation.viscosity=0", f"time.integrator={integrator}")
    energy = start(device, *settings).diagnostics()["energy"]
    drift = [
        abs(after(device, time, steps, *settings).diagnostics()["energy"] / energy - 1)
        for steps in (16, 32)
    ]
    # Truncated equations conserve the energy, so all of the drift is the integrator's. It may
    # fall faster than its order, never more slowly.
    assert math.log2(drift[0] / drift[1]) >= INTEGRATORS[integrator] - 0.15
    assert 1e-13 < drift[1] < 1e-3


def test_inviscid_flow_conserves_helicity_too(device):
    settings = ("equation.viscosity=0", "time.integrator=rk4")
    helicity = start(device, *settings).diagnostics()["helicity"]
    later = after(device, 0.2, 64, *settings).diagnostics()["helicity"]
    # The drift of a fourth-order method in steps of 1/300 of a turnover time.
    assert later == pytest.approx(helicity, rel=1e-7)


def test_energy_budget_closes_as_the_interval_shrinks(device):
    def largest_residual(interval):
        simulation = start(device, "equation.viscosity=0.05")
        residuals = [simulation.diagnostics()["budget_residual"]]
        assert math.isnan(residuals.pop())
        while simulation.time < 0.16 - 1e-9:
            advance(simulation, round(interval / 0.005), 0.005)
            residuals.append(simulation.diagnostics()["budget_residual"])
        return np.abs(residuals).max()

    coarse, fine = largest_residual(0.04), largest_residual(0.02)
    assert fine < 1e-3
    # The trapezoidal rule's error is of second order in the interval.
    assert coarse / fine == pytest.approx(4, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("power", [1, 2])  # factors along the axes, or one per mode
@pytest.mark.parametrize("integrating_factor", ["true", "false"])
def test_single_precision_keeps_its_digits(device, integrating_factor, power):
    """Factors near one must not be rounded in the same way in every step."""
    settings = (
        "equation.viscosity=0.002",
        f"equation.viscosity_power={power}",
        f"numerics.integrating_factor={integrating_factor}",
        "time.integrator=rk2",
    )

    def diagnostics(precision):
        simulation = start(device, *settings, f"numerics.precision={precision}")
        simulation.diagnostics()
        return advance(simulation, 200, 0.005).diagnostics()

    single, double = diagnostics("float32"), diagnostics("float64")
    # Some roundings of each mode, which add up like a random walk: 6e-8 sqrt(200), and of the sum.
    assert single["energy"] == pytest.approx(double["energy"], rel=4e-7)
    assert single["budget_residual"] == pytest.approx(double["budget_residual"], abs=1e-4)


@pytest.mark.parametrize("flow", ["random", "taylor-green", "abc"])
def test_velocity_stays_solenoidal(device, flow):
    settings = ("grid.points=[18, 24, 20]", f"initial.flow={flow}")
    if flow == "random":
        settings = UNEVEN_BOX
    simulation = start(device, *settings)
    for steps in (0, 10):
        diagnostics = advance(simulation, steps).diagnostics()
        # In units of the vorticity: some roundings of each mode.
        assert diagnostics["divergence"] <= 1e-14 * math.sqrt(2 * diagnostics["enstrophy"])


@pytest.mark.parametrize("lengths", ['["2 pi", "4 pi", "2 pi"]', "[1.0, 2.0, 3.0]"])
def test_taylor_green_is_solenoidal_in_any_box(device, lengths):
    simulation = start(device, f"grid.length={lengths}", "initial.flow=taylor-green")
    diagnostics = simulation.diagnostics()
    assert diagnostics["divergence"] <= 1e-14 * math.sqrt(2 * diagnostics["enstrophy"])


def test_mean_velocity_carries_the_flow_unchanged(device):
    """A Galilean shift: the same flow, seen from a moving frame."""
    step, steps = 0.01, 5
    resting, moving = start(device), start(device)
    mean = np.array([0.8, -0.5, 0.3])
    for component in range(3):
        moving.flow.state[component, 0, 0, 0] = mean[component]
    advance(resting, steps, step), advance(moving, steps, step)
    waves = moving.flow.wavenumbers
    travelled = mean * step * steps
    phase = (
        waves.z[:, None, None] * travelled[2]
        + waves.y[:, None] * travelled[1]
        + waves.x * travelled[0]
    )
    expected = modes_of(resting) * np.exp(-1j * phase)
    expected[:, 0, 0, 0] += mean
    # Both frames have the integrator's error, of the fifth power of k u step = 5 * 0.01.
    assert relative_error(modes_of(moving), expected) <= 1e-7


@pytest.mark.parametrize("box", [(), UNEVEN_BOX, ("grid.points=[16, 1, 12]",)])
def test_spectrum_sums_to_the_energy(device, box):
    simulation = advance(start(device, *box), 3)
    _, spectrum = simulation.spectra()["energy_spectrum"]
    assert spectrum.sum() == pytest.approx(simulation.diagnostics()["energy"], rel=1e-13)
    # Parseval: the same as the mean over the points.
    mean = 0.5 * (points_of(simulation) ** 2).sum(axis=0).mean()
    assert simulation.diagnostics()["energy"] == pytest.approx(mean, rel=1e-13)


def test_spectrum_of_a_single_wave_is_in_its_shell(device):
    simulation = start(device, "initial.flow=abc", "initial.wavenumber=3")
    waves, spectrum = simulation.spectra()["energy_spectrum"]
    np.testing.assert_array_equal(waves, np.arange(waves.size))
    assert spectrum[3] == pytest.approx(1.5, rel=1e-14)
    assert np.delete(spectrum, 3).max() <= 1e-28


def test_random_flow_has_the_prescribed_spectrum(device):
    amplitude, peak = 0.7, 3.0
    simulation = start(device, "grid.points=24", f"initial.amplitude={amplitude}")
    waves, spectrum = simulation.spectra()["energy_spectrum"]
    expected = waves**4 * np.exp(-2 * (waves / peak) ** 2)
    expected *= 1.5 * amplitude**2 / expected.sum()
    # Every mode has exactly the share of its shell.
    np.testing.assert_allclose(spectrum, expected, rtol=1e-12, atol=1e-300)
    assert spectrum.argmax() == peak


BOXES = [
    (),
    UNEVEN_BOX,
    ("grid.points=[32, 8, 8]", 'grid.length=["16 pi", "2 pi", "2 pi"]'),
    ("grid.points=[16, 2, 2]", 'grid.length=["2 pi", "20 pi", "20 pi"]'),
]


@pytest.mark.parametrize("box", BOXES)
def test_random_flow_has_the_energy_of_its_amplitude_in_any_box(device, box):
    simulation = start(device, *box, "initial.amplitude=0.7")
    assert simulation.diagnostics()["energy"] == pytest.approx(1.5 * 0.7**2, rel=1e-12)


@pytest.mark.parametrize("normal", range(3))
def test_random_flow_and_force_stay_in_a_plane(device, normal):
    """With one point along an axis, which is what two-dimensional flow means."""
    points = [1 if axis == normal else 20 for axis in range(3)]
    simulation = start(
        device,
        f"grid.points={points}",
        "initial.amplitude=0.7",
        "forcing.kind=random",
        "forcing.amplitude=0.3",
        "forcing.shells=[1, 3]",
    )
    assert simulation.diagnostics()["energy"] == pytest.approx(0.7**2, rel=1e-12)
    force = simulation.device.to_host(simulation.flow.modes_of(simulation.flow.forcing))
    weight = simulation.flow.wavenumbers.multiplicity
    assert (weight * np.abs(force) ** 2).sum() == pytest.approx(2 * 0.3**2, rel=1e-12)
    for modes in (force, modes_of(simulation), modes_of(advance(simulation, 3))):
        assert np.abs(modes[normal]).max() == 0
        assert np.abs(np.delete(modes, normal, axis=0)).max() > 1e-3


def test_a_spectrum_that_ends_before_its_peak_is_warned_of(device):
    (text,) = start(device, "initial.peak_wavenumber=6").warnings()
    assert text.startswith("initial.peak_wavenumber: 6 is beyond the 5 that the grid keeps")
    assert start(device, "initial.peak_wavenumber=5").warnings() == []


def test_other_seeds_give_other_flows(device):
    flows = [modes_of(start(device, f"initial.seed={seed}")) for seed in (1, 2)]
    assert np.abs(flows[0] - flows[1]).max() > 0.1 * np.abs(flows[0]).max()
    again = modes_of(start(device, "initial.seed=1"))
    assert again.tobytes() == flows[0].tobytes()


def courant_rate(simulation):
    """Return max(|u|/dx + |v|/dy + |w|/dz) by its definition."""
    grid = simulation.case.grid
    spacing = np.divide(grid.lengths_xyz, grid.points_xyz)
    return (np.abs(points_of(simulation)) / spacing[:, None, None, None]).sum(axis=0).max()


def test_adaptive_step_satisfies_the_courant_condition(device):
    cfl = 0.6
    simulation = start(device, *UNEVEN_BOX, f"time.cfl={cfl}")
    for _ in range(3):
        # The first substage measures the rate, so it is the rate at the start of the step.
        wanted = cfl / courant_rate(simulation)
        if simulation.step == 0:
            assert simulation.step_size() == pytest.approx(wanted, rel=1e-13)
        advance(simulation, 1, simulation.step_size())
        assert simulation.step_size() == pytest.approx(wanted, rel=1e-13)


def test_adaptive_step_is_bounded(device):
    assert start(device, "time.cfl=1", "time.max_step=1e-4").step_size() == 1e-4
    assert start(device, "time.cfl=1", "initial.amplitude=0").step_size() == math.inf


def modes_by_wavenumber(simulation):
    integers = simulation.flow.wavenumbers.integers
    velocity = modes_of(simulation)
    return {
        (int(kz), int(ky), int(kx)): velocity[:, z, y, x]
        for z, kz in enumerate(integers[0])
        for y, ky in enumerate(integers[1])
        for x, kx in enumerate(integers[2])
    }


@pytest.mark.slow
@pytest.mark.parametrize("points", ["[24, 12, 16]", "[10, 10, 10]", "[16, 16, 1]", "[40, 36, 30]"])
def test_restart_at_another_resolution_keeps_the_common_modes(device, tmp_path, points):
    earlier = advance(start(device, "grid.points=[20, 18, 16]"), 2)
    save(earlier, tmp_path)
    later = start(device, f"grid.points={points}", f"initial.restart={tmp_path}")
    lost = [text for text in later.warnings() if text.startswith("initial.restart: ")]
    assert (later.step, later.time) == (earlier.step, earlier.time)
    before, now = modes_by_wavenumber(earlier), modes_by_wavenumber(later)
    common = before.keys() & now.keys()
    counts = zip(*(one.problem.geometry.spectral_shape for one in (earlier, later)), strict=True)
    assert len(common) == math.prod(min(pair) for pair in counts)
    energies = [one.diagnostics()["energy"] for one in (later, earlier)]
    share = 1 - energies[0] / energies[1]
    assert len(lost) == (share > 1e-6)
    assert not lost or f": {100 * share:.3g} % of its energy is lost" in lost[0]
    for wave, value in now.items():
        expected = before[wave] if wave in common else np.zeros(3)
        np.testing.assert_array_equal(value, expected, err_msg=str(wave))


def test_restarted_flow_continues_with_the_same_bits(device, tmp_path):
    whole = advance(start(device), 6)
    half = advance(start(device), 3)
    save(half, tmp_path)
    resumed = advance(start(device, f"initial.restart={tmp_path}"), 3)
    assert modes_of(resumed).tobytes() == modes_of(whole).tobytes()
    assert (resumed.step, resumed.time) == (whole.step, whole.time)


def test_vorticity_is_the_curl_of_the_velocity(device):
    simulation = start(device, *UNEVEN_BOX)
    fields = {field.name: field for field in simulation.fields()}
    u = np.stack([fields[f"velocity_{name}"].data for name in "xyz"])
    shape, lengths = u.shape[1:], simulation.case.grid.lengths_xyz[::-1]
    k = np.meshgrid(
        *[2 * np.pi * np.fft.fftfreq(n, length / n) for n, length in zip(shape, lengths)],  # noqa: B905
        indexing="ij",
    )
    modes = np.fft.fftn(u, axes=(1, 2, 3))
    curl = np.fft.ifftn(1j * np.cross(np.stack(k[::-1]), modes, axis=0), axes=(1, 2, 3)).real
    magnitude = np.sqrt((curl**2).sum(axis=0))
    # One transform either way.
    assert relative_error(fields["vorticity_magnitude"].data, magnitude) <= 1e-13
    for axis, n, length in zip("zyx", shape, lengths, strict=True):
        coordinates = fields["velocity_x"].coordinates[axis]
        np.testing.assert_allclose(coordinates, np.arange(n) * length / n, rtol=1e-15)
