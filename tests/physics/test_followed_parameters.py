"""Parameters that follow the state: eddy viscosities of large-eddy simulation, and others."""

import copy
import math

import numpy as np
import pytest

from flows import advance, leave_state, modes_of, points_of, start
from slipstream.engine.errors import InputError
from slipstream.equations import Model, Vector, cross, curl, div, laplacian, outer, parameter
from slipstream.equations.models import name_of

POINTS = 16
# The largest wavenumber that 2/3 dealiasing keeps; in the test filter is half of that.
CUTOFF = 5.0
DYNAMIC = (f"equation={{ model = 'dynamic-smagorinsky', viscosity = 0, cutoff = {CUTOFF} }}",)


SETTINGS = "time.integrator=rk4", "initial.peak_wavenumber=1.5"


def spectral_eddies(cutoff, viscosity=0.0):
    parameters = f"viscosity = {viscosity}, cutoff = {cutoff}"
    return (f"equation={{ model = 'chollet-lesieur', {parameters} }}",)


def constant_by_definition(u):
    """Return Lilly's constant of a velocity [3, z, y, x] at the points, with NumPy alone."""
    n = u.shape[-1]
    axis = np.fft.fftfreq(n, 1 / n)
    kz, ky, kx = np.meshgrid(axis, axis, axis, indexing="ij")
    k = np.stack([kx, ky, kz])
    is_kept = np.abs(k).max(axis=0) <= CUTOFF
    is_large = (k**2).sum(axis=0) <= (CUTOFF / 2) ** 2

    def only(part, values):
        return np.fft.ifftn(np.fft.fftn(values, axes=(-3, -2, -1)) * part, axes=(-3, -2, -1)).real

    def stress(velocity):
        modes = np.fft.fftn(velocity, axes=(-3, -2, -1))
        slopes = np.fft.ifftn(1j * k[:, None] * modes[None], axes=(-3, -2, -1)).real
        strain = (slopes + slopes.swapaxes(0, 1)) / 2
        return np.sqrt(2 * (strain**2).sum(axis=(0, 1))) * strain

    def squares(velocity):
        return velocity[:, None] * velocity[None]

    large = only(is_large, u)
    resolved = only(is_large, squares(u)) - only(is_kept, squares(large))
    modelled = 2 * (only(is_large, stress(u)) - 4 * only(is_kept, stress(large)))
    mixing = (resolved * modelled).mean(axis=(2, 3, 4)).sum() / (modelled**2).mean(
        axis=(2, 3, 4)
    ).sum()
    return math.sqrt(max(mixing, 0)) * CUTOFF / math.pi


@pytest.mark.slow
def test_constant_of_smagorinsky_is_that_of_least_squares(device):
    simulation = advance(start(device, *DYNAMIC, *SETTINGS), 12, 0.05)
    row = simulation.diagnostics()
    actual = row["smagorinsky_constant"]
    assert actual == pytest.approx(constant_by_definition(points_of(simulation)), rel=1e-10)
    # As of turbulence at high Reynolds numbers (Meneveau and Katz, Annu. Rev. 32, 1 (2000)).
    assert 0.1 < actual < 0.2
    # The energy that is lost is subgrid_dissipation, but for its change within a step, in which the
    # viscosity, the square of the constant, stays what it was at its start.
    later = advance(simulation, 1).diagnostics()
    change = later["smagorinsky_constant"] / actual - 1
    assert later["budget_residual"] == pytest.approx(change, rel=0.01)
    assert 0 < row["subgrid_dissipation"] == row["dissipation"]
    actual = later["smagorinsky_constant"]
    # The constant is one of the flow's shape alone.
    simulation.set_points(slice(0, 3), 2 * points_of(simulation), "velocity")
    same = simulation.diagnostics()["smagorinsky_constant"]
    assert same == pytest.approx(actual, rel=1e-10)
    simulation.set_points(slice(0, 3), 0 * points_of(simulation), "velocity")
    assert simulation.diagnostics()["smagorinsky_constant"] == 0


@pytest.mark.slow
def test_spectral_eddies_damp_a_wave_at_the_cutoff_as_their_formula_says(device):
    size, k, end = 1.3, 4, 0.4
    fields = f"initial.fields={{ velocity = ['0', '0', '{size}*sin({k}*x)'] }}"
    wave = (*spectral_eddies(k), "initial.flow=formula", fields, "grid.points=[16, 4, 4]")
    # With the energy a^2 / 4 of a wave of amplitude a: da/dt = -slope a^2.
    level = 1.4**-1.5 * math.sqrt(1 / 4 / k)
    slope = level * (0.441 + 15.2 * math.exp(-3.03)) * k**2
    expected = size / (1 + slope * size * end)
    errors = []
    for settings, steps in (((), 20), ((), 40), (("numerics.integrating_factor=false",), 40)):
        simulation = start(device, *wave, *settings)
        row = simulation.diagnostics()
        assert row["cutoff_viscosity"] == pytest.approx(level * size, rel=1e-13)
        assert row["subgrid_dissipation"] == pytest.approx(slope * size**3 / 2, rel=1e-13)
        assert row["dissipation"] == pytest.approx(row["subgrid_dissipation"], rel=1e-13)
        assert "kmax_eta" not in row
        advance(simulation, steps, end / steps)
        errors.append(points_of(simulation)[2].max() / expected - 1)
    # Its value is taken at the start of each step: first order.
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.05)
    assert abs(errors[2]) == pytest.approx(abs(errors[1]), rel=0.1)
    assert abs(errors[1]) < 0.01


def test_viscosity_without_exact_decay_limits_the_step(device):
    settings = (*spectral_eddies(4), "numerics.integrating_factor=false", "time.cfl=0.5")
    simulation = start(device, *settings)
    first = simulation.step_size()
    simulation.set_points(slice(0, 3), 2 * points_of(simulation), "velocity")
    assert simulation.step_size() == pytest.approx(first / 2, rel=1e-12)


def stirred(viscosity):
    """Return a model with products in an average, and a parameter in a product."""
    u, rate = Vector("velocity", solenoidal=True), parameter("rate")
    twist, square = parameter("twist"), parameter("square")
    bent = cross(u, curl(u))
    return Model(
        {u: -div(outer(u, u)) + rate * bent + viscosity * laplacian(u)},
        averages={"twist": (bent, bent), "square": (curl(u), curl(u))},
        follows={"rate": twist / (1 + square) + viscosity},
    )


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize(("precision", "error"), [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize("settings", [(), ("numerics.linear=all",)])
def test_parameter_of_any_model_follows_and_a_run_goes_on_with_the_same_bits(
    device, precision, error, settings, tmp_path
):
    model = (f"equation={{ model = {name_of(stirred)!r}, viscosity = 0.01 }}", *settings)
    model += (f"numerics.precision={precision}", "numerics.dealiasing=1/2")
    simulation = advance(start(device, *model), 2)
    rate = simulation.diagnostics()["rate"]
    u = points_of(simulation).astype(float)
    axis = np.fft.fftfreq(POINTS, 1 / POINTS)
    kz, ky, kx = np.meshgrid(axis, axis, axis, indexing="ij")
    modes = np.fft.fftn(u, axes=(1, 2, 3))
    curls = np.cross(1j * np.stack([kx, ky, kz]), modes, axis=0)
    w = np.fft.ifftn(curls, axes=(1, 2, 3)).real
    bent = np.fft.fftn(np.cross(u, w, axis=0), axes=(1, 2, 3))
    kept = np.abs(np.stack([kx, ky, kz])).max(axis=0) < POINTS / 4
    twist = (np.abs(bent * kept) ** 2).sum() / POINTS**6
    expected = twist / (1 + (w**2).sum(axis=0).mean()) + 0.01
    assert rate == pytest.approx(expected, rel=error)
    leave_state(simulation, tmp_path, None)
    kept, whole = copy.deepcopy(simulation.kept()), modes_of(advance(simulation, 2))
    settings = [one for one in model if not one.startswith("initial.")]
    again = start(device, *settings, f"initial.restart={tmp_path}")
    assert again.diagnostics()["rate"] == rate
    assert modes_of(advance(again, 2)).tobytes() == whole.tobytes()
    simulation.restore(kept)
    assert modes_of(advance(simulation, 2)).tobytes() == whole.tobytes()


REFUSED = {
    "run.residency": ("run.residency=host",),
    "grid.walls": ("grid.walls=z",),
}


@pytest.mark.parametrize("key", REFUSED)
def test_what_parameters_that_follow_do_not_go_with_is_refused(device, key):
    model = f"equation={{ model = {name_of(stirred)!r}, viscosity = 0.01 }}"
    with pytest.raises(InputError, match=f"^{key}"):
        start(device, model, *REFUSED[key])


WRONG = {
    "kinds": (
        {"a": (Vector("velocity"), curl(Vector("velocity"))[0])},
        {},
        "average a: .*the same kind",
    ),
    "fields": ({"a": (Vector("wind"), Vector("wind"))}, {}, "average a .*'wind'"),
    "follows": ({}, {"b": parameter("b") + 1}, "follows: b = .*a name that nothing else has"),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_in_averages_are_refused(case):
    averages, follows, message = WRONG[case]
    u = Vector("velocity")
    with pytest.raises(InputError, match=message):
        Model({u: laplacian(u)}, averages=averages, follows=follows)
