"""Users' models, from a file: exact solutions, and an independent solver."""

import math

import numpy as np
import pytest

from field_values import coordinates, formulas, largest_error, values
from flows import advance, modes_of, relative_error, start
from numpy_calculus import Calculus
from numpy_solver import TABLEAUS
from own_models import own_models

OWN = """
from slipstream.equations import (
    Model, Scalar, Vector, abs2, cross, curl, dot, grad, laplacian, outer, x_hat, y_hat, z_hat
)

def fisher(diffusivity, growth):
    a = Scalar("growth")  # named as a parameter is
    return Model({a: diffusivity * laplacian(a) + growth * a * (1 - a)})

def bistable(diffusivity):
    a = Scalar("phase")
    return Model({a: diffusivity * laplacian(a) + a - a**3})

def sivashinsky():
    h = Scalar("height")
    return Model({h: -laplacian(h) - laplacian(h, 2) - abs2(grad(h)) / 2})

def burgers(viscosity):
    u = Vector("velocity")
    return Model({u: -dot(u, grad(u)) + viscosity * laplacian(u)})

def heat(diffusivity, speed):
    a = Scalar("heat")
    return Model({a: diffusivity * laplacian(a) - speed * dot(x_hat + y_hat, grad(a)) + 2})

def lundgren(viscosity, gain, drag, wind):
    u = Vector("velocity", solenoidal=True)
    return Model({
        u: -dot(u, grad(u)) + viscosity * laplacian(u) + gain * u - drag * dot(u, x_hat) * x_hat
        + wind * y_hat
    })

def thick(viscosity):
    u = Vector("velocity", solenoidal=True)
    return Model({u: -dot(u, grad(u)) - viscosity * laplacian(u, 2)})

def derived(viscosity, drag):
    u, w = Vector("velocity", solenoidal=True), Vector("wind")
    a = Scalar("a")
    return Model({
        u: cross(u, curl(u)) + a * curl(w) + viscosity * laplacian(u),
        w: -dot(u, grad(w)) - drag * w * abs2(w) + viscosity * laplacian(w) + cross(z_hat, w),
        a: -dot(w, grad(a)) + abs2(grad(a)) + drag * laplacian(a) + dot(u, x_hat),
    })
"""


@pytest.fixture(scope="module")
def settings_of(tmp_path_factory):
    return own_models(OWN, tmp_path_factory.mktemp("models"))


def test_travelling_front_of_a_bistable_medium_is_a_resting_pair_of_walls(device, settings_of):
    """Two walls tanh(x / sqrt(2 D)) of the Allen-Cahn equation, far from each other, rest."""
    length, diffusivity = 80.0, 1.0
    wall = f"tanh((x - {length / 4})/sqrt(2)) - tanh((x - {3 * length / 4})/sqrt(2)) - 1"
    simulation = start(
        device,
        *settings_of("bistable", f"diffusivity = {diffusivity}"),
        "grid.points=[432, 1, 1]",
        f"grid.length={length}",
        *formulas(phase=wall),
    )
    initial = values(simulation)["phase"]
    advance(simulation, 50, 0.01)
    # They attract each other by exp(-sqrt(2) 40), and half way there is a kink of
    # exp(-sqrt(2) 20) = 5e-13. What is left is the integrator's: with an integrating factor that
    # grows, what rests does so but for errors of step^4 / 10.
    assert np.abs(values(simulation)["phase"] - initial).max() <= 1e-9


def test_uniform_growth_is_logistic(device, settings_of):
    rate, time = 1.3, 1.0
    simulation = start(
        device,
        *settings_of("fisher", "diffusivity = 0.1", f"growth = {rate}"),
        "grid.points=4",
        *formulas(growth="0.2"),
    )
    advance(simulation, 100, time / 100)
    expected = 1 / (1 + (1 / 0.2 - 1) * math.exp(-rate * time))
    # t (rate step)^4, a little at a time.
    assert np.abs(values(simulation)["growth"] - expected).max() <= 1e-9


def test_small_waves_of_kuramoto_and_sivashinsky_grow_exactly_at_first(device, settings_of):
    length, waves, time, size = 20.0, (1, 3, 4), 2.0, 1e-9
    text = " + ".join(f"{size}*sin({2 * math.pi * n / length!r}*x)" for n in waves)
    simulation = start(
        device,
        *settings_of("sivashinsky"),
        "grid.points=[32, 1, 1]",
        f"grid.length={length}",
        *formulas(height=text),
    )
    advance(simulation, 20, time / 20)
    modes = modes_of(simulation)[0, 0, 0]
    for n in waves:
        square = (2 * math.pi * n / length) ** 2
        grown = size / 2 * math.exp((square - square**2) * time)
        # Products are smaller than the waves by their amplitude.
        assert abs(modes[n]) == pytest.approx(grown, rel=1e-7)


@pytest.mark.parametrize("integrating_factor", ["true", "false"])
def test_linear_model_is_exact(device, settings_of, integrating_factor):
    diffusivity, speed, time, steps = 0.3, 0.7, 0.5, 50
    simulation = start(
        device,
        *settings_of("heat", f"diffusivity = {diffusivity}", f"speed = {speed}"),
        f"numerics.integrating_factor={integrating_factor}",
        "grid.points=[8, 6, 5]",
        *formulas(heat="sin(x) + cos(x - y + z)"),
    )
    squares = simulation.diagnostics()
    # Of the energy 1/4 + 1/4 the parts decay at 2 D and 6 D.
    assert squares["dissipation"] == pytest.approx(diffusivity * (2 + 6) / 4, rel=1e-13)
    advance(simulation, steps, time / steps)
    x, y, z = coordinates(simulation)
    carried = math.exp(-diffusivity * time) * np.sin(x - speed * time)
    # Where the wave's velocity is along x - y there is none.
    carried = carried + math.exp(-3 * diffusivity * time) * np.cos(x - y + z) + 2 * time
    # t (speed^5 or, without integrating factor, the fifth power of all rates) step^4 / 120
    assert largest_error(simulation, heat=carried) <= 1e-7


def test_burgers_shock_is_that_of_cole_and_hopf(device, settings_of):
    """u = -2 nu d/dx log(phi), where phi solves the heat equation."""
    viscosity, time, steps, amplitude = 0.2, 0.5, 50, 1.0
    ratio = f"({amplitude}*sin(x)/(2 + {amplitude}*cos(x)))"
    simulation = start(
        device,
        *settings_of("burgers", f"viscosity = {viscosity}"),
        "grid.points=[96, 2, 1]",
        *formulas(velocity=[f"2*{viscosity}*{ratio}", "0", "0"]),
    )
    advance(simulation, steps, time / steps)
    x, _, _ = coordinates(simulation)
    left = amplitude * math.exp(-viscosity * time)
    expected = 2 * viscosity * left * np.sin(x) / (2 + left * np.cos(x))
    # Modes beyond the 31 that are kept fall as (2 - sqrt(3))^k; the steps are of fourth order.
    assert np.abs(values(simulation)["velocity_x"] - expected).max() <= 1e-9


class Derived:
    """The right-hand sides of `derived` in plain NumPy, advanced by a full tableau."""

    def __init__(self, fields, lengths_xyz, viscosity, drag):
        self.box = Calculus(fields[0].shape[1:], lengths_xyz)
        self.viscosity, self.drag = viscosity, drag
        inside = [np.abs(m) <= (m.size - 1) // 3 for m in self.box.integers]
        self.mask = np.logical_and.outer(np.logical_and.outer(inside[0], inside[1]), inside[2])
        self.fields = fields

    def rates(self, fields):
        o, (u, w, a) = self.box, fields
        right = (
            o.cross(u, o.curl(u)) + a * o.curl(w) + self.viscosity * o.laplacian(u),
            -o.dot(u, o.grad(w))
            - self.drag * w * o.abs2(w)
            + self.viscosity * o.laplacian(w)
            + o.cross(o.z_hat, w),
            -o.dot(w, o.grad(a)) + o.abs2(o.grad(a)) + self.drag * o.laplacian(a) + u[0],
        )
        modes = [self.mask * o.modes(one) for one in right]
        modes[0] = o.without_gradient(modes[0])
        return [o.points(one) for one in modes]

    def advance(self, steps, step, integrator):
        tableau, weights = TABLEAUS[integrator]
        for _ in range(steps):
            slopes = []
            for row in tableau:
                slopes.append(self.rates(self.moved(slopes, row, step)))
            self.fields = self.moved(slopes, weights, step)
        return self.fields

    def moved(self, slopes, weights, step):
        return [
            field + step * sum(b * slope[i] for b, slope in zip(weights, slopes))  # noqa: B905
            for i, field in enumerate(self.fields)
        ]


@pytest.mark.slow
@pytest.mark.parametrize("integrator", TABLEAUS)
def test_derived_fields_give_the_flow_of_an_independent_solver(device, settings_of, integrator):
    viscosity, drag, steps, step = 0.05, 0.2, 4, 0.02
    simulation = start(
        device,
        *settings_of("derived", f"viscosity = {viscosity}", f"drag = {drag}"),
        "grid.points=[12, 10, 9]",
        'grid.length=["2 pi", 7.0, 5.0]',
        "initial.peak_wavenumber=2.0",
        f"time.integrator={integrator}",
        "numerics.integrating_factor=false",
    )
    # The random flow leaves a scalar zero.
    rng = np.random.default_rng(5)
    flow, model = simulation.flow, simulation.problem.model
    assert not model.inputs_are_state
    box = Calculus(simulation.problem.geometry.shape, simulation.case.grid.lengths_xyz)
    bump = box.modes(box.random(rng, components=1, solenoidal=False))
    flow.state[6, 0, 0, :2] = flow.device.array(bump[0, 0, :2])
    fields = fields_of(simulation)
    expected = Derived(fields, simulation.case.grid.lengths_xyz, viscosity, drag)
    expected = expected.advance(steps, step, integrator)
    advance(simulation, steps, step)
    for before, actual, wanted in zip(fields, fields_of(simulation), expected, strict=True):
        assert relative_error(before, wanted) > 1e-3
        # Roundings of some tens of products in up to 16 substages.
        assert relative_error(actual, wanted) <= 1e-11


def fields_of(simulation):
    actual = values(simulation)
    vectors = [
        np.stack([actual[f"{name}_{axis}"] for axis in "xyz"]) for name in ("velocity", "wind")
    ]
    return [*vectors, actual["a"]]


def test_model_without_a_velocity_has_its_spectrum_and_the_step_that_is_given(device, settings_of):
    simulation = start(
        device,
        *settings_of("bistable", "diffusivity = 1.0"),
        "grid.points=8",
        "time.cfl=1.0",
        "time.max_step=0.3",
        *formulas(phase="sin(2*x) + 0.5*cos(y)"),
    )
    assert simulation.step_size() == 0.3
    diagnostics = simulation.diagnostics()
    assert diagnostics["energy"] == pytest.approx((1 + 0.25) / 4, rel=1e-14)
    _, spectrum = simulation.spectra()["energy_spectrum"]
    np.testing.assert_allclose(spectrum[:4], [0, 0.25 / 4, 1 / 4, 0], atol=1e-15)
    assert "enstrophy" not in diagnostics


def test_dissipation_driving_and_injection_are_told_apart(device, settings_of):
    """Linear driving adds energy, drag on one component and viscosity take it away."""
    viscosity, gain, drag, wind = 0.03, 0.4, 0.25, 0.2
    model = settings_of(
        "lundgren",
        f"viscosity = {viscosity}",
        f"gain = {gain}",
        f"drag = {drag}",
        f"wind = {wind}",
    )
    flow = ("sin(y) + 0.5*cos(z)", "0.3 + cos(x)", "sin(x + y)")
    simulation = start(device, *model, *formulas(velocity=flow))
    actual = simulation.diagnostics()
    u = [values(simulation)[f"velocity_{axis}"] for axis in "xyz"]
    assert actual["driving"] == pytest.approx(2 * gain * actual["energy"], rel=1e-12)
    lost = 2 * viscosity * actual["enstrophy"] + drag * np.mean(u[0] ** 2)
    assert actual["dissipation"] == pytest.approx(lost, rel=1e-12)
    assert actual["injection"] == pytest.approx(wind * np.mean(u[1]), rel=1e-12)
    assert simulation.labels().keys() >= actual.keys()
    residual = advance(simulation, 4, 0.0025).diagnostics()["budget_residual"]
    # The trapezoidal rule's, of second order in the interval.
    assert abs(residual) <= 1e-4


@pytest.mark.slow
def test_a_viscosity_of_another_kind_gives_no_scales_of_turbulence(device, settings_of):
    named = {"lundgren": ["gain = 0.0", "drag = 0.0", "wind = 0.0"], "thick": []}
    for name, others in named.items():
        simulation = start(device, *settings_of(name, "viscosity = 0.01", *others))
        assert ("kmax_eta" in simulation.diagnostics()) == (name == "lundgren")


GAS = """
from slipstream.equations import Model, Scalar, Vector, div, dot, grad, laplacian

def gas(viscosity, speed):
    r, u = Scalar("density"), Vector("velocity")
    stress = viscosity * (laplacian(u) + grad(div(u)) / 3) - speed**2 * grad(r)
    return Model({r: -div(r * u), u: -dot(u, grad(u)) + stress / r})

def apart(viscosity, speed):
    r, u = Scalar("density"), Vector("velocity")
    rest = viscosity * r**-1 * laplacian(u) + viscosity * grad(div(u)) / r / 3
    return Model({r: -div(r * u), u: -dot(u, grad(u)) + rest - grad(r) * (speed**2 / r)})

def numbers():
    return gas(0.05, 1.5)
"""


@pytest.mark.slow
def test_quotients_of_fields_are_what_they_are_at_points(device, tmp_path):
    path = tmp_path / "gas.py"
    path.write_text(GAS)
    results = []
    for name in ("gas", "apart", "numbers"):
        given = "" if name == "numbers" else ", viscosity = 0.05, speed = 1.5"
        simulation = start(
            device,
            f"equation={{ model = '{path}:{name}'{given} }}",
            "grid.points=[16, 12, 1]",
            *formulas(velocity=["0.2*sin(y)", "0.1*cos(x)", "0"], density="1 + 0.2*cos(x + y)"),
        )
        results.append(modes_of(advance(simulation, 10)))
    assert relative_error(results[1], results[0]) <= 1e-13
    assert relative_error(results[2], results[0]) <= 1e-13
