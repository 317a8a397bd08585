"""Shearing boxes: exact waves across changes of labels, the equations themselves, and restarts."""

import contextlib

import numpy as np
import pytest

from slipstream import Flow
from slipstream.api.validation.reference_solutions import sheared_wave_growth
from slipstream.engine.errors import InputError

VISCOSITY, SHEAR, LENGTH = (
    0.4,
    1.2,
    ["2 pi", "3 pi", 5.0],
)  # labels change after half of (2 pi / 3 pi) / 1.2
WAVE = np.array([1, 4 / 3, 2 * np.pi / 5])
START = np.array([0.6, 0.3, 0.0])
START[2] = -(WAVE @ START) / WAVE[2]
MAGNETIC = np.array([0.2, -0.4, 0.0])
MAGNETIC[2] = -(WAVE @ MAGNETIC) / WAVE[2]
STRATIFIED = {"diffusivity": 0.03, "buoyancy_frequency": 0.8, "rotation": [0.2, 0, 0.7]}
SCALARS = [{"name": "dye", "diffusivity": 0.02, "mean_gradient": [0, 0.5, -1]}]
CHARGED = {"resistivity": 0.02, "rotation": 0.3, "mean_field": [0.5, 0, 0.4]}
RANDOM = {"flow": "random", "seed": 1, "amplitude": 0.5, "peak_wavenumber": 2}


def boxed(model, comm, device, points=12, step=0.01, **options):
    """Return a flow in a shearing box."""
    return Flow(
        model,
        points=points,
        length=options.pop("length", LENGTH),
        viscosity=VISCOSITY,
        shear=options.pop("shear", SHEAR),
        step=step,
        comm=comm,
        device=device,
        **options,
    )


def stratified(comm, device, **options):
    return boxed("boussinesq", comm, device, scalars=SCALARS, **STRATIFIED, **options)


def warned(comm, text):
    """Return the context that expects a warning, which the first rank gets."""
    is_first = comm is None or comm.rank == 0
    return pytest.warns(RuntimeWarning, match=text) if is_first else contextlib.nullcontext()


def along(wave, *amplitudes):
    """Return formulas of a wave along the box."""
    phase = f"cos(({wave[0]})*x + ({wave[1]})*y + ({wave[2]})*z)"
    return [f"({float(one)!r})*{phase}" for one in amplitudes]


def amplitudes_of_wave(time, start, rates):
    """Return the amplitudes at a time, from `rates(wavevector, amplitudes)` without the pressure.

    The first three are those of the velocity, which stays across the wavevector.
    """
    steps = 1500
    size, now = time / steps, np.array(start, complex)

    def slopes(at, values):
        k = WAVE - [0, SHEAR * at * WAVE[0], 0]
        found = rates(k, values)
        found[:3] -= k * (k @ found[:3] - SHEAR * k[0] * values[1]) / (k @ k)
        return found

    for number in range(steps):
        at = number * size
        slope = slopes(at, now)
        two = slopes(at + size / 2, now + size / 2 * slope)
        three = slopes(at + size / 2, now + size / 2 * two)
        four = slopes(at + size, now + size * three)
        now = now + size / 6 * (slope + 2 * two + 2 * three + four)
    return now


def turned(rotation, u):
    return -2 * np.cross(rotation, u) - [SHEAR * u[1], 0, 0]


def rates_when_stratified(k, values):
    u, b, dye, k2 = values[:3], values[3], values[4], k @ k
    momentum = turned(STRATIFIED["rotation"], u) - VISCOSITY * k2 * u - [0, 0, 0.8 * b]
    return np.array([*momentum, 0.8 * u[2] - 0.03 * k2 * b, -(0.5 * u[1] - u[2]) - 0.02 * k2 * dye])


def rates_when_charged(k, values):
    u, b, k2 = values[:3], values[3:], k @ k
    tension = 1j * (k @ CHARGED["mean_field"])
    momentum = turned([0, 0, CHARGED["rotation"]], u) - VISCOSITY * k2 * u + tension * b
    return np.array([*momentum, *(tension * u + [SHEAR * b[1], 0, 0] - 0.02 * k2 * b)])


def at_points(values, time):
    """Return the fields of a wave of these amplitudes at the points of the box."""
    lines = (length * np.arange(12) / 12 for length in (5, 3 * np.pi, 2 * np.pi))
    z, y, x = np.meshgrid(*lines, indexing="ij")
    return at_places(x, y, z, values, time)


def at_places(x, y, z, values, time):
    phase = np.exp(1j * (WAVE[0] * x + (WAVE[1] - SHEAR * time * WAVE[0]) * y + WAVE[2] * z))
    return [(one * phase).real for one in values]


@pytest.mark.slow
@pytest.mark.parametrize("time", [0.25, 0.9])
def test_waves_are_exact_across_changes_of_labels(comm, device, time):
    sim = stratified(comm, device, initial={"velocity": along(WAVE, *START)})
    sim.run(until=time)
    values = amplitudes_of_wave(time, [*START, 0, 0], rates_when_stratified)
    *velocity, buoyancy, dye = at_points(values, time)
    for name, expected in (("velocity", velocity), ("buoyancy", buoyancy), ("dye", dye)):
        np.testing.assert_allclose(sim.fields[name].gather(), expected, rtol=0, atol=1e-9)
    # Between the last points along y and the first, which are those of a box that has moved.
    places = np.array([[0.3, 3 * np.pi - 0.2, 1.2], [5, -0.3, 2.1], [2, 3 * np.pi + 0.1, 0]])
    found, exact = sim.fields["buoyancy"].at(places), at_places(*places.T, values, time)[3]
    np.testing.assert_allclose(found, exact, rtol=0, atol=0.01 * np.abs(values[3]))


def test_growth_is_that_of_orr():
    """Reference of the waves: k^2 u_y is constant but for the integral of viscosity."""
    time = 2.5

    def rates(k, values):
        return turned(np.zeros(3), values) - VISCOSITY * (k @ k) * values

    expected = START[1] * sheared_wave_growth(tuple(WAVE), SHEAR, VISCOSITY, time)
    assert amplitudes_of_wave(time, START, rates)[1] == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_what_depends_on_z_alone_swings_at_the_epicyclic_frequency(comm, device):
    wave, twice = 2 * np.pi / 5, 2 * STRATIFIED["rotation"][2]
    sim = stratified(comm, device, initial={"velocity": [f"cos({wave}*z)", "0", "0"]})
    sim.step(90)
    frequency, damped = np.sqrt(twice * (twice - SHEAR)), np.exp(-VISCOSITY * wave**2 * 0.9)
    phase, profile = frequency * 0.9, damped * np.cos(wave * 5 * np.arange(12) / 12)
    velocity = sim.fields["velocity"].gather()
    swing = np.cos(phase), -twice / frequency * np.sin(phase), 0.0
    for found, amplitude in zip(velocity, swing, strict=True):
        expected = np.broadcast_to(amplitude * profile[:, None, None], found.shape)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_forces_that_no_frame_changes_are_exact(comm, device):
    """A jet that a force of y and t drives, with a wave that grows at a rate besides."""
    rate, wave, time = 0.3, 4 / 3, 0.9
    forces = [
        {"kind": "linear", "rate": rate},
        {"kind": "formula", "formula": [f"0.5*sin({wave!r}*y)*(1 + t)", "0", f"cos({wave!r}*y)"]},
    ]
    sim = boxed("hd", comm, device, forcing=forces, initial={"velocity": ["0", "0", "0"]})
    sim.run(until=time)
    damping = VISCOSITY * wave**2 - rate
    grown = -np.expm1(-damping * time) / damping
    y = wave * np.arange(12)[:, None] * (np.pi / 4)
    jet = 0.5 * (grown + (time - grown) / damping) * np.sin(y)
    for found, expected in zip(
        sim.fields["velocity"].gather(), (jet, 0, grown * np.cos(y)), strict=True
    ):
        np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=0, atol=1e-9)
    simulation = boxed(
        "hd", comm, device, forcing=forces[0], initial={"velocity": along(WAVE, *START)}
    )
    simulation.run(until=time)

    def rates(k, values):
        return turned(np.zeros(3), values) + (rate - VISCOSITY * (k @ k)) * values

    expected = at_points(amplitudes_of_wave(time, START, rates), time)
    np.testing.assert_allclose(simulation.fields["velocity"].gather(), expected, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_charged_waves_are_exact(comm, device):
    sim = boxed(
        "mhd",
        comm,
        device,
        **CHARGED,
        initial={"velocity": along(WAVE, *START), "magnetic": along(WAVE, *MAGNETIC)},
    )
    sim.run(until=0.6)
    values = amplitudes_of_wave(0.6, [*START, *MAGNETIC], rates_when_charged)
    fields = at_points(values, 0.6)
    for name, expected in (("velocity", fields[:3]), ("magnetic", fields[3:])):
        np.testing.assert_allclose(sim.fields[name].gather(), expected, rtol=0, atol=1e-9)
    assert sim.diagnostics["divergence"] < 1e-13


EQUATION = (
    f"-dot(velocity, grad(velocity)) - {SHEAR}*velocity_y*x_hat"
    f" - grad(pressure) + {VISCOSITY}*laplacian(velocity) - 0.8*buoyancy*z_hat"
    " - 2*cross(0.2*x_hat + 0.7*z_hat, velocity)"
)


@pytest.mark.slow
def test_a_step_solves_the_equations_of_the_box(comm, device):
    """At all points of the box, in a frame that is tilted, and with all that is not linear."""
    slopes = []
    for step in (2e-4, 1e-4):
        sim = stratified(comm, device, step=step, initial=RANDOM)
        assert sim.diagnostics["energy"] > 0  # there is a state now
        sim.solver.flow.tilt = 0.2
        kz, ky, kx = np.broadcast_arrays(*sim.wavenumbers)
        # Waves whose products the grid keeps, of any direction: the divergence is taken away.
        few = device.array((np.abs(kz) < 2) & (kx < 1.5) & (np.abs(ky + 0.2 * kx) < 1))
        with warned(comm, "divergence"):
            sim.modes["velocity"][...] = sim.modes["velocity"][...] * few
        before, rate = sim.fields["velocity"].gather(), sim.evaluate(EQUATION).gather()
        y = np.arange(12)[:, None] * (np.pi / 4)
        rate -= SHEAR * y * sim.evaluate("dot(x_hat, grad(velocity))").gather()
        sim.step()
        slopes.append((sim.fields["velocity"].gather() - before) / step)
    found = 2 * slopes[1] - slopes[0]
    np.testing.assert_allclose(found, rate, rtol=0, atol=1e-6 * np.abs(rate).max())


def test_the_mean_flow_pays_for_the_energy(comm, device):
    sim = stratified(comm, device, initial=RANDOM)
    sim.step(20)
    rows = [sim.diagnostics]
    for steps in (4, 1):
        sim.step(steps)
        rows.append(sim.diagnostics)
    _, far, near = rows
    u = sim.fields["velocity"].gather()
    assert near["production"] == pytest.approx(-SHEAR * (u[0] * u[1]).mean(), rel=1e-10)
    assert abs(near["budget_residual"]) < 0.2 * abs(far["budget_residual"]) < 0.02
    assert sim.spectra["velocity_spectrum"][1].sum() == pytest.approx(
        near["velocity_energy"], rel=1e-12
    )


@pytest.mark.slow
def test_ranks_and_restarts_change_nothing(comm, device, shared_folder):
    """Runs that end before and after labels have changed; warnings say what the grid drops."""
    folder, options = shared_folder / "run", {"output": {"pictures": False}}
    whole, alone = (stratified(one, device, initial=RANDOM) for one in (comm, None))
    first = stratified(comm, device, initial=RANDOM, **options)
    first.run(until=0.2, output=folder)
    again = stratified(comm, device, initial={"restart": str(folder)})
    for sim, own, steps in ((whole, comm, 40), (alone, None, 40), (again, comm, 20)):
        with warned(own, "sheared grid does not keep"):
            sim.step(steps)
    assert again.solver.flow.tilt == whole.solver.flow.tilt < 0
    kept = whole.fields["velocity"].gather()
    np.testing.assert_array_equal(again.fields["velocity"].gather(), kept)
    np.testing.assert_allclose(alone.fields["velocity"].gather(), kept, rtol=0, atol=1e-13)
    with pytest.raises(InputError, match="is of a sheared flow; accepted"):
        stratified(comm, device, shear=0, initial={"restart": str(folder)}).step()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"forcing": {"kind": "abc"}}, "forcing: not with a mean shear"),
        ({"forcing": {"kind": "formula", "formula": ["sin(x)", "0", "0"]}}, "of y, z and t"),
        ({"particles": 10}, "particles: not with a mean shear"),
        ({"linear": "all"}, "numerics.linear: not with a mean shear"),
        ({"points": [8, 1, 8]}, "more than one point along y"),
        ({"rotation": [0, 1, 0]}, "equation.rotation: has a component along y"),
        ({"scalars": {"mean_gradient": [1, 0, 0]}}, "accepted with it: mean_gradient = [0, y, z]"),
    ],
)
def test_what_shear_cannot_have_is_refused(comm, device, options, text):
    with pytest.raises(InputError) as refused:
        boxed("hd", comm, device, **{"initial": RANDOM, **options})
    assert text in str(refused.value)
