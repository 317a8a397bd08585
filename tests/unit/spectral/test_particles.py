"""Particles against exact solutions: of flows whose paths are known, and of drag and gravity."""

import numpy as np
import pytest

from flows import save
from slipstream.api.forecast.noted_steps import note_spectral
from slipstream.case import make_case, parse_case
from slipstream.case.named_tables import ParticleSet
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError
from slipstream.files.checkpoint import open_checkpoint
from slipstream.runs import make_simulation
from slipstream.runs.output_writer import counts_until
from slipstream.show import series_statistics as particle_statistics
from slipstream.spectral.interpolation import spline_factors
from slipstream.spectral.particles import first_places, step_numbers

BOX = np.full(3, 2 * np.pi)


def prepared(device, particles, points=16, step=0.05, viscosity=0.0, initial="abc", **tables):
    """Return a simulation in its initial state; `particles` is a table or several."""
    several = particles if isinstance(particles, list) else [particles]
    initial_table = initial if isinstance(initial, dict) else {"flow": initial}
    settings = {
        "grid": {"points": points},
        "equation": {"viscosity": viscosity},
        "initial": initial_table,
        "time": {"end": 10.0, "step": step},
        "particles": several,
    }
    simulation = make_simulation(make_case("spectral", **{**settings, **tables}), None, device)
    simulation.prepare()
    return simulation


def advanced(simulation, time, step):
    for _ in range(round(time / step)):
        simulation.advance(step)
    return simulation


def positions(simulation, name="tracers"):
    return simulation.particles.whole(name, "position", simulation.time)


def followed(velocity, places, time, steps=400):
    """Return where a flow takes places, by a method of fourth order in small steps."""
    h = time / steps
    x = places.copy()
    for _ in range(steps):
        a = velocity(x)
        b = velocity(x + h / 2 * a)
        c = velocity(x + h / 2 * b)
        x = x + h / 6 * (a + 2 * b + 2 * c + velocity(x + h * c))
    return x


def abc(x):
    x, y, z = x
    return np.stack([np.sin(z) + np.cos(y), np.sin(x) + np.cos(z), np.sin(y) + np.cos(x)])


def test_tracers_follow_the_abc_flow_to_second_order(device):
    """A steady flow: without viscosity it stays, and its paths are chaotic."""
    exact = followed(abc, first_places(ParticleSet(number=100), 0, 100, BOX), 1.0).T
    errors = [
        np.abs(
            positions(advanced(prepared(device, {"number": 100}, points=32, step=step), 1.0, step))
            - exact
        ).max()
        for step in (0.05, 0.025)
    ]
    assert errors[1] < 1e-3 and 3.7 < errors[0] / errors[1] < 4.3


def test_tracers_stay_on_the_streamlines_of_a_plane_vortex(device):
    """The Taylor-Green vortex in a plane decays, and its streamlines stay what they are."""
    simulation = prepared(
        device,
        {"number": 100},
        points=[32, 32, 1],
        viscosity=0.1,
        initial={
            "flow": "formula",
            "fields": {"velocity": ["sin(x)*cos(y)", "-cos(x)*sin(y)", "0"]},
        },
    )

    def stream(places):
        return np.sin(places[:, 0]) * np.sin(places[:, 1])

    before = positions(simulation)
    after = positions(advanced(simulation, 2.0, 0.05))
    assert np.abs(after - before)[:, :2].max() > 1 and (after[:, 2] == before[:, 2]).all()
    assert np.abs(stream(after) - stream(before)).max() < 2e-3
    # At the time t they are where a steady flow has them at (1 - exp(-2 nu t)) / (2 nu).
    steady = followed(
        lambda x: np.stack([np.sin(x[0]) * np.cos(x[1]), -np.cos(x[0]) * np.sin(x[1]), 0 * x[2]]),
        before.T,
        (1 - np.exp(-0.4)) / 0.2,
    )
    assert np.abs(after - steady.T).max() < 5e-3


@pytest.mark.parametrize(
    ("interpolation", "precision", "most"),
    [("spline", "float64", 1e-3), ("spline", "float32", 1e-3), ("lagrange", "float64", 8e-3)],
)
def test_interpolation_is_of_fourth_order(device, interpolation, precision, most):
    """At grid points it is exact; elsewhere it differs little from the Fourier series."""
    errors = []
    for points in (16, 32):
        simulation = prepared(
            device,
            {"number": 1000, "interpolation": interpolation},
            points=points,
            initial={"flow": "formula", "fields": {"velocity": ["0", "0", "sin(3*x)*cos(2*y)"]}},
            numerics={"precision": precision},
        )
        x, y, _ = positions(simulation).T
        actual = simulation.particles.whole("tracers", "(velocity_z)", 0.0)
        errors.append(np.abs(actual - np.sin(3 * x) * np.cos(2 * y)).max())
        nodes = np.zeros((1000, 3))
        nodes[:, 0] = 2 * np.pi / points * np.arange(1000)
        simulation.place_particles("tracers", nodes)
        actual = simulation.particles.whole("tracers", "(velocity_z)", 0.0)
        accuracy = {"float64": 1e-11, "float32": 1e-4}[precision]
        assert np.abs(actual - np.sin(3 * nodes[:, 0])).max() < accuracy
    assert errors[1] < most and 12 < errors[0] / errors[1] < 22


HOST = {"run": {"residency": "host", "streaming": {"tiles": 3}}}
DIVIDED = {"run": {"residency": "host", "streaming": {"tiles": 40}}}


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("device_of", "points", "tables"),
    [
        (None, [12, 10, 8], {}),
        (None, [9, 10, 8], {"numerics": {"dealiasing": "phase-shift"}}),
        (None, [12, 10, 8], HOST),
        (None, [12, 10, 8], DIVIDED),
        ({"tiled": True}, [12, 10, 8], {}),
        ({"tiled": True}, [34, 5, 8], {}),
        (None, [12, 10, 8], {"equation": {"model": "mhd", "viscosity": 0.01, "resistivity": 0.01}}),
    ],
)
@pytest.mark.parametrize("interpolation", ["lagrange", "spline"])
def test_a_step_moves_particles_by_the_velocity_it_begins_with(
    device, interpolation, device_of, points, tables
):
    """Wherever it has it from: the first product of the step, or a transform."""
    table = {"number": 100, "interpolation": interpolation}
    if device_of is not None:
        if device.kind != "cpu":
            pytest.skip("kernels of GPUs on a CPU")
        device = HostDevice(**device_of)
    initial = {"flow": "random", "peak_wavenumber": 2, "amplitude": 1.0}
    simulation = prepared(device, table, points, initial=initial, **tables)
    earlier = None
    for _ in range(3):
        before = positions(simulation)
        velocity = simulation.particles.whole("tracers", "(velocity)", simulation.time)
        simulation.advance(0.05)
        moved = positions(simulation) - before
        expected = 0.05 * (velocity if earlier is None else 1.5 * velocity - 0.5 * earlier)
        assert np.abs(moved - expected).max() < 1e-12 and np.abs(moved).max() > 0.01
        earlier = velocity


def test_gradients_at_particles_are_those_of_the_flow(device):
    simulation = prepared(device, {"number": 200}, points=32)
    x, y, z = positions(simulation).T
    actual = simulation.particles.whole("tracers", "(grad(velocity))", 0.0)
    # d_i u_j or d_j u_i: the only entries of each kind.
    ones = sorted([actual[:, 0, 2], actual[:, 2, 0]], key=lambda one: np.abs(one + np.sin(x)).max())
    assert np.abs(ones[0] + np.sin(x)).max() < 1e-3
    assert np.abs(ones[1] - np.cos(z)).max() < 1e-3
    assert np.abs(np.trace(actual, axis1=1, axis2=2)).max() < 1e-11


def test_acceleration_along_paths_is_that_of_the_equations(device):
    """Of a decaying flow it is -grad(p) + nu laplacian(u), interpolated to where a tracer is."""
    step = 0.01
    simulation = prepared(
        device, {"number": 200}, step=step, viscosity=0.05, initial="taylor-green"
    )
    advanced(simulation, 0.5, step)
    velocities = [simulation.particles.whole("tracers", "velocity", simulation.time)]
    simulation.advance(step)
    text = "(viscosity*laplacian(velocity) - grad(pressure))"
    expected = simulation.particles.whole("tracers", text, simulation.time)
    simulation.advance(step)
    velocities.append(simulation.particles.whole("tracers", "velocity", simulation.time))
    found = (velocities[1] - velocities[0]) / (2 * step)
    assert np.abs(found - expected).max() < 0.02 * np.abs(expected).max()


def at_rest(device, **particles):
    zero = {"flow": "formula", "fields": {"velocity": ["0", "0", "0"]}}
    table = {"number": 10, "kind": "inertial", **particles}
    return prepared(device, table, points=8, initial=zero)


@pytest.mark.parametrize("response_time", [1e-4, 0.3, 1e4])
def test_settling_in_still_fluid_is_exact(device, response_time):
    """dv/dt = g - v / tau: steps much longer than tau are as good."""
    gravity = np.array([0.5, 0.0, -2.0])
    simulation = at_rest(device, response_time=response_time, gravity=list(gravity))
    before = positions(simulation)
    advanced(simulation, 1.0, 0.05)
    tau, decay = response_time, np.exp(-1 / response_time)
    lasting = -np.expm1(-1 / response_time)
    speed = tau * lasting if tau < 100 else 1 - 1 / (2 * tau)
    way = tau * (1 - tau * lasting) if tau < 100 else 0.5 - 1 / (6 * tau)
    velocity = simulation.particles.whole("tracers", "velocity", 1.0)
    assert decay >= 0
    np.testing.assert_allclose(velocity, np.tile(gravity * speed, (10, 1)), rtol=1e-7, atol=1e-15)
    np.testing.assert_allclose(
        positions(simulation) - before, np.tile(gravity * way, (10, 1)), rtol=1e-6, atol=1e-12
    )


def test_particles_of_no_inertia_are_tracers_and_heavy_ones_go_straight(device):
    sets = [
        {"number": 50},
        {"name": "light", "number": 50, "kind": "inertial", "response_time": 1e-7},
        {"name": "heavy", "number": 50, "kind": "inertial", "response_time": 1e7},
    ]
    simulation = prepared(device, sets)
    before = positions(simulation)
    start = simulation.particles.whole("heavy", "velocity", 0.0)
    advanced(simulation, 1.0, 0.05)
    assert np.abs(positions(simulation) - positions(simulation, "light")).max() < 1e-5
    assert np.abs(before + start - positions(simulation, "heavy")).max() < 1e-5


def test_heavy_particles_begin_with_the_flow_that_is_set(device):
    table = {"name": "heavy", "number": 9, "kind": "inertial", "response_time": 1.0}
    simulation = prepared(device, table, points=8)
    values = simulation.read_points(slice(0, 3))
    values[...] = 0
    values[1] = 1.5
    simulation.set_points(slice(0, 3), values, "fields")
    velocities = simulation.particles.whole("heavy", "velocity", 0.0)
    np.testing.assert_allclose(velocities, np.tile([0, 1.5, 0], (9, 1)), atol=1e-12)


@pytest.mark.parametrize("response_time", [None, 0.02, 0.3, 50.0])
def test_a_step_is_exact_for_a_velocity_that_is_linear_in_time(response_time):
    """Steps of different sizes: integrals by the midpoint rule in very many parts."""
    before, step, slope, last, speed = 0.03, 0.05, 1.7, 0.4, -0.2
    n, earlier = last, last - slope * before
    a, b, c, d, e, f = step_numbers(step, before, response_time)
    times = (np.arange(100000) + 0.5) * step / 100000
    driving = n + slope * times
    if response_time is None:
        moved = a * speed + b * n + c * earlier
        assert moved == pytest.approx(driving.mean() * step, rel=1e-12)
        return
    kernel = np.exp((times - step) / response_time)
    velocity = speed * np.exp(-step / response_time)
    velocity += (driving * kernel).sum() / response_time * step / 100000
    way = speed * response_time * -np.expm1(-step / response_time)
    way += (driving * -np.expm1((times - step) / response_time)).sum() * step / 100000
    assert d * speed + e * n + f * earlier == pytest.approx(velocity, rel=1e-7)
    assert a * speed + b * n + c * earlier == pytest.approx(way, rel=1e-7)


def test_schedules_give_the_same_bits(device):
    sets = [
        {"number": 300},
        {"name": "h", "number": 7, "kind": "inertial", "response_time": 0.2},
    ]
    actual = [
        advanced(prepared(device, sets, run={"schedule": schedule}), 2.0, 0.05)
        for schedule in ("serial", "overlap")
    ]
    for name in ("tracers", "h"):
        one, other = (positions(simulation, name) for simulation in actual)
        assert (one == other).all()


def test_places_depend_on_seed_and_identity_alone():
    whole = first_places(ParticleSet(number=150000, seed=3), 0, 150000, BOX)
    part = first_places(ParticleSet(number=150000, seed=3), 60000, 140001, BOX)
    assert (whole[:, 60000:140001] == part).all()
    assert (whole >= 0).all() and (whole < 2 * np.pi).all()
    assert np.abs(whole.mean(axis=1) - np.pi).max() < 0.02
    pairs = ParticleSet(number=150000, separation=0.25)
    whole = first_places(pairs, 0, 150000, BOX)
    assert (first_places(pairs, 3, 140001, BOX) == whole[:, 3:140001]).all()
    distances = np.linalg.norm(whole[:, 1::2] - whole[:, ::2], axis=0)
    np.testing.assert_allclose(distances, 0.25)


def test_spline_factors_undo_the_b_spline():
    values = np.random.default_rng(0).random(12)
    modes = np.fft.rfft(values) * spline_factors(12, 3.0, 2 * np.pi / 3.0 * np.arange(7))
    c = np.fft.irfft(modes, 12)
    np.testing.assert_allclose((np.roll(c, 1) + 4 * c + np.roll(c, -1)) / 6, values)


CASE = """
solver = "spectral"
grid.points = 8
equation.viscosity = 0.1
initial.flow = "taylor-green"
time.end = 1
"""


def test_cases_with_particles_are_written_and_read():
    text = (
        CASE + '[[particles]]\nnumber = 4\nrecord = ["pressure"]\n[[particles]]\n'
        'name = "b"\nnumber = 6\n'
    )
    case = parse_case(text)
    assert [one.number for one in case.particles] == [4, 6]
    assert parse_case(case.to_toml()) == case
    assert "particles" not in parse_case(CASE).to_toml()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ("number = 0", "particles[1].number"),
        ('number = 2\nkind = "inertial"', "response_time"),
        ("number = 2\nresponse_time = 0.1", "response_time"),
        ("number = 2\ngravity = [0, 0, 1]", "gravity"),
        ("number = 3\nseparation = 0.1", "separation"),
        ('number = 2\nrecord = "pressure"', "particles[1].record"),
        ('number = 2\nrecord = ["position"]', "position"),
        ("number = 2\n[[particles]]\nnumber = 2", "two sets"),
        ('number = 2\ninterpolation = "linear"', "particles[1].interpolation"),
    ],
)
def test_what_does_not_combine_is_refused(settings, named):
    with pytest.raises(InputError) as error:
        parse_case(f"{CASE}[[particles]]\n{settings}\n")
    assert named in str(error.value) and "\n" not in str(error.value)


def test_what_is_said_before_a_run_counts_paths_and_forecasts_refuse_particles():
    text = (
        f"{CASE}[[particles]]\nnumber = 2\ninterval = 0.25\n[[particles]]\nname = 'b'\nnumber = 2\n"
    )
    case = parse_case(text)
    counts = counts_until(case, 1.0)
    assert counts["particles_tracers"] == 5 and counts["particles_b"] == 1
    with pytest.raises(InputError, match="particles: forecasts"):
        note_spectral(case, None, 1)


def test_unknown_names_and_places_are_refused(device):
    with pytest.raises(InputError, match=r"particles\[1\].record: 'vortcity'"):
        prepared(device, {"number": 2, "record": ["vortcity"]})
    simulation = prepared(device, {"number": 2}, points=8)
    with pytest.raises(InputError, match="there are: tracers"):
        positions(simulation, "others")
    with pytest.raises(InputError, match=r"shape \(3, 3\); accepted: \(2, 3\)"):
        simulation.place_particles("tracers", np.zeros((3, 3)))


@pytest.mark.slow
def test_statistics_of_paths_that_are_known():
    times = 0.01 * np.arange(400)
    phases = np.random.default_rng(1).random((1, 500, 1)) * 2 * np.pi
    waves = np.cos(times[:, None, None] * 2 + phases + np.array([0.0, 1.0, 2.0]))
    accelerations = particle_statistics.acceleration(times, waves)
    variance, flatness = particle_statistics.acceleration_moments(accelerations)
    assert variance == pytest.approx(2.0, rel=0.1)
    assert flatness == pytest.approx(1.5, rel=0.1)  # of a sine
    lags, values = particle_statistics.structure_function(times, waves)
    np.testing.assert_allclose(values[:150], 1 - np.cos(2 * lags[:150]), atol=0.1)
    lags, values = particle_statistics.autocorrelation(times, waves)
    np.testing.assert_allclose(values[:150], np.cos(2 * lags[:150]), atol=0.15)
    places = np.zeros((5, 4, 3))
    places[:, 1, 0], places[:, 3, 2] = np.arange(5), 2.0
    np.testing.assert_allclose(
        particle_statistics.pair_dispersion(places), (np.arange(5) ** 2 + 4) / 2
    )
    with pytest.raises(InputError, match="equidistant"):
        particle_statistics.acceleration(np.array([0, 1, 3.0]), waves[:3])


def test_particles_go_on_where_the_grid_becomes_finer(device, tmp_path):
    """Inertial ones keep all their numbers, to the bit; then both follow the same flow."""
    sets = [
        {"number": 30, "interpolation": "lagrange"},
        {"name": "heavy", "number": 20, "kind": "inertial", "response_time": 0.3},
    ]
    coarse = advanced(prepared(device, sets), 0.2, 0.05)
    case = coarse.case
    save(coarse, tmp_path / "state")
    fine = make_simulation(parse_case(case.to_toml(), ["grid.points=32"]), None, device)
    fine.resumed = open_checkpoint(tmp_path / "state", None)
    fine.prepare()
    for resumed, other in zip(fine.particles.sets, coarse.particles.sets, strict=True):
        states = [np.array(device.to_host(one.state[:, : one.count])) for one in (resumed, other)]
        order = [np.argsort(device.to_host(one.identity[: one.count])) for one in (resumed, other)]
        assert (states[0][:, order[0]] == states[1][:, order[1]]).all()
        assert resumed.last_step == other.last_step
    for simulation in (coarse, fine):
        advanced(simulation, 0.2, 0.05)
    for name in ("tracers", "heavy"):
        assert np.abs(positions(fine, name) - positions(coarse, name)).max() < 1e-3
