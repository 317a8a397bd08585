"""Equations other than plain flow: reference numbers, exact solutions, an independent solver."""

import math

import numpy as np
import pytest
from numpy_solver import TABLEAUS

from flows import advance, modes_of, relative_error, start
from numpy_calculus import Calculus
from slipstream.errors import InputError
from slipstream.spectral.formulas import formula

INTEGRATORS = {"rk2": 2, "rk3": 3, "rk4": 4}
MHD = ("equation.model=mhd", "equation.resistivity=0.01")
BOUSSINESQ = ("equation.model=boussinesq", "equation.diffusivity=0.01",
              "equation.buoyancy_frequency=4.0")  # fmt: skip


def formulas(**fields):
    """Return the settings of an initial state; a vector is given as three formulas."""
    texts = {name: own if isinstance(own, str) else list(own) for name, own in fields.items()}
    return [
        "initial.flow=formula",
        "initial.fields={" + ", ".join(f"{k} = {v!r}" for k, v in texts.items()) + "}",
    ]


def values(simulation):
    """Return all fields of the state at the points, by name."""
    return {field.name: np.array(field.data) for field in simulation.fields()}


def coordinates(simulation):
    """Return x, y and z of the points, which broadcast together."""
    grid = simulation.case.grid
    axes = [length * np.arange(n) / n
            for n, length in zip(grid.points_xyz, grid.lengths_xyz, strict=True)]  # fmt: skip
    return axes[0], axes[1][:, None], axes[2][:, None, None]


def largest_error(simulation, **expected):
    """Return the largest difference from what fields should be, by their names."""
    actual = values(simulation)
    return max(np.abs(actual[name] - value).max() for name, value in expected.items())


# -- magnetic flow ---------------------------------------------------------------------------


def test_orszag_tang_vortex_has_the_reference_energies(device):
    # As many points as the reference has: with 96^2 the last digits differ.
    simulation = start(
        device, "grid.points=[128, 128, 1]", *MHD, "initial.flow=orszag-tang",
        "equation.viscosity=0.01",
    )  # fmt: skip
    assert simulation.diagnostics()["energy"] == pytest.approx(1, rel=1e-14)
    after = advance(simulation, 100, 0.01).diagnostics()
    # ../shared/validation.md, given to 8 digits; steps of fourth order err by less.
    assert after["velocity_energy"] == pytest.approx(0.42015556, rel=1e-7)
    assert after["magnetic_energy"] == pytest.approx(0.53416812, rel=1e-7)
    assert after["enstrophy"] == pytest.approx(1.00630389, rel=1e-7)
    assert after["magnetic_enstrophy"] == pytest.approx(2.6287981, rel=1e-7)


@pytest.mark.parametrize("sign", [1, -1])
def test_alfven_wave_travels_along_the_mean_field(device, sign):
    strength, viscosity, time, steps = 1.7, 0.03, 0.8, 40
    # One of Elsasser's fields is zero, so waves of any shape pass through each other unchanged;
    # cos(2z) and cos(z + x) travel along z alone, and are solenoidal.
    velocity = ("cos(2*z)", "0.5*sin(z + x)", "0.3*sin(x)")
    magnetic = [f"{sign} * ({one})" for one in velocity]
    simulation = start(
        device, *MHD, *formulas(velocity=velocity, magnetic=magnetic),
        f"equation.viscosity={viscosity}", f"equation.resistivity={viscosity}",
        f"equation.mean_field={strength}",
    )  # fmt: skip
    advance(simulation, steps, time / steps)
    x, _, z = coordinates(simulation)
    # With u = b the wave moves against the mean field, with u = -b along it.
    z = z + sign * strength * time
    decay = {k2: math.exp(-viscosity * k2 * time) for k2 in (1, 2, 4)}
    u_x = decay[4] * np.cos(2 * z) + 0 * x
    u_y = 0.5 * decay[2] * np.sin(z + x)
    u_z = 0.3 * decay[1] * np.sin(x) + 0 * z
    error = largest_error(
        simulation, velocity_x=u_x, velocity_y=u_y, velocity_z=u_z,
        magnetic_x=sign * u_x, magnetic_y=sign * u_y, magnetic_z=sign * u_z,
    )  # fmt: skip
    # The fourth-order method errs by t (k B)^5 step^4 / 120 = 0.8 * 3.4^5 * 0.02^4 / 120.
    assert error <= 1e-6


def test_cross_helicity_and_energy_of_ideal_magnetic_flow_drift_at_the_order(device):
    def drifts(steps):
        simulation = start(device, *MHD, "equation.viscosity=0", "equation.resistivity=0",
                           "grid.points=12")  # fmt: skip
        # Two random fields that have nothing to do with each other have little cross helicity.
        simulation.flow.state[3:] += 0.5 * simulation.flow.state[:3]
        before = energy_and_cross_helicity(simulation)
        after = energy_and_cross_helicity(advance(simulation, steps, 0.4 / steps))
        return np.abs(after - before)

    coarse, fine = drifts(16), drifts(32)
    assert np.all(np.log2(coarse / fine) >= 4 - 0.2)
    assert np.all(fine < 1e-4)


def energy_and_cross_helicity(simulation):
    fields = values(simulation)
    u, b = (np.stack([fields[f"{name}_{axis}"] for axis in "xyz"])
            for name in ("velocity", "magnetic"))  # fmt: skip
    return np.array([(u**2 + b**2).sum(axis=0).mean() / 2, (u * b).sum(axis=0).mean()])


# -- waves -----------------------------------------------------------------------------------


def test_internal_gravity_wave_has_the_frequency_of_its_direction(device):
    frequency, (kx, kz), time, steps = 2.0, (2, 1), 1.5, 75
    omega = frequency * kx / math.hypot(kx, kz)
    # u = (kz, 0, -kx) cos(k.x) / |k| is solenoidal; buoyancy lags a quarter behind.
    simulation = start(
        device, *BOUSSINESQ, "equation.viscosity=0", "equation.diffusivity=0",
        f"equation.buoyancy_frequency={frequency}",
        *formulas(velocity=[f"{kz}*cos({kx}*x + {kz}*z)", "0", f"-{kx}*cos({kx}*x + {kz}*z)"]),
    )  # fmt: skip
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
    omega = 2 * rotation * kz / length
    # A circularly polarised wave a cos(phase) - b sin(phase), where k, a and b are at right
    # angles in this order: curl u = |k| u, so it is a solution also nonlinearly.
    k = np.array([kx, ky, kz]) / length
    a = np.cross(k, [0, 0, 1.0])
    a /= np.linalg.norm(a)
    b = np.cross(k, a)
    phase = f"({kx}*x + {ky}*y + {kz}*z)"
    simulation = start(
        device, "equation.viscosity=0", f"equation.rotation={rotation}",
        *formulas(velocity=[f"({a[i]})*cos{phase} - ({b[i]})*sin{phase}" for i in range(3)]),
    )  # fmt: skip
    vorticity = simulation.diagnostics()["helicity"] / (2 * simulation.diagnostics()["energy"])
    sense = round(vorticity / length)
    assert abs(sense) == 1
    advance(simulation, steps, time / steps)
    x, y, z = coordinates(simulation)
    # d u / dt = -2 Omega z_hat x u + gradient is, for curl u = s |k| u, the same as
    # d (curl u) / dt = 2 Omega d u / dz: s |k| du/dt = 2 Omega du/dz, a wave that moves down for s.
    moved = kx * x + ky * y + kz * z + sense * omega * time
    expected = {f"velocity_{axis}": a[i] * np.cos(moved) - b[i] * np.sin(moved)
                for i, axis in enumerate("xyz")}  # fmt: skip
    # t omega^5 step^4 / 120.
    assert largest_error(simulation, **expected) <= 1e-7


# -- transport and diffusion -----------------------------------------------------------------


def test_uniform_velocity_carries_a_scalar_that_diffuses(device):
    diffusivity, time, steps = 0.05, 0.6, 60
    simulation = start(
        device, "equation.scalars=1", f"equation.diffusivity={diffusivity}",
        *formulas(velocity=["0.8", "-0.5", "0.3"], scalar="sin(x + 2*y) + cos(2*z) + 3"),
    )  # fmt: skip
    advance(simulation, steps, time / steps)
    x, y, z = coordinates(simulation)
    x, y, z = x - 0.8 * time, y + 0.5 * time, z - 0.3 * time
    expected = (
        math.exp(-5 * diffusivity * time) * np.sin(x + 2 * y)
        + math.exp(-4 * diffusivity * time) * np.cos(2 * z)
        + 3
    )
    # Carried by t (k u)^5 step^4 / 120 wrongly, of k u below 1; diffusion is exact.
    assert largest_error(simulation, scalar=expected) <= 1e-9


@pytest.mark.parametrize("power", [2, 3])
def test_hyperviscosity_lets_waves_decay_exactly(device, power):
    viscosity, time = 0.02, 0.5
    simulation = start(
        device, f"equation.viscosity={viscosity}", f"equation.viscosity_power={power}",
        "equation.scalars=1", f"equation.diffusivity={2 * viscosity}",
        *formulas(velocity=["sin(2*y + z)", "0", "0"], scalar="cos(y - 2*z)"),
    )  # fmt: skip
    initial = values(simulation)
    advance(simulation, 1, time)
    decay = math.exp(-viscosity * 5**power * time)
    # The shear u(y, z) moves nothing along x, so the integrating factor leaves roundings alone.
    error = largest_error(
        simulation, velocity_x=decay * initial["velocity_x"], scalar=decay**2 * initial["scalar"]
    )
    assert error <= 1e-14


# -- budgets and orders ----------------------------------------------------------------------


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_energy_of_ideal_stratified_flow_drifts_at_the_order_of_the_integrator(device, integrator):
    def drift(steps):
        simulation = start(device, *BOUSSINESQ, "equation.viscosity=0", "equation.diffusivity=0",
                           "grid.points=12", "initial.seed=1",
                           f"time.integrator={integrator}")  # fmt: skip
        before = simulation.diagnostics()
        after = advance(simulation, steps, 0.8 / steps).diagnostics()
        # Kinetic energy turns into potential energy, which there was none of.
        assert after["buoyancy_energy"] > 0.05 * before["energy"]
        return abs(after["energy"] / before["energy"] - 1)

    coarse, fine = drift(32), drift(64)
    # It may fall faster than the order, never more slowly.
    assert math.log2(coarse / fine) >= INTEGRATORS[integrator] - 0.2
    assert fine < 1e-3


@pytest.mark.parametrize("integrating_factor", ["true", "false"])
@pytest.mark.parametrize("integrator", INTEGRATORS)
@pytest.mark.parametrize("model", [MHD, BOUSSINESQ], ids=["mhd", "boussinesq"])
def test_integrators_converge_at_their_order(device, model, integrator, integrating_factor):
    def result(steps, method, factor):
        simulation = start(device, *model, "grid.points=10", "equation.viscosity=0.02",
                           f"time.integrator={method}",
                           f"numerics.integrating_factor={factor}")  # fmt: skip
        return modes_of(advance(simulation, steps, 0.4 / steps))

    exact = result(192, "rk4", "true")
    coarse, fine = (
        np.linalg.norm(result(steps, integrator, integrating_factor) - exact) for steps in (24, 48)
    )
    # The next order in the step size changes the observed order by some hundredths.
    assert math.log2(coarse / fine) == pytest.approx(INTEGRATORS[integrator], abs=0.2)
    assert fine > 1e-11  # far above rounding


@pytest.mark.parametrize("model", [MHD, BOUSSINESQ], ids=["mhd", "boussinesq"])
def test_single_precision_follows_double_precision(device, model):
    double = advance(start(device, *model), 5)
    single = advance(start(device, *model, "numerics.precision=float32"), 5)
    assert modes_of(single).dtype == np.complex64
    # Some roundings of 6e-8 of the largest values, in each of 20 substages.
    assert relative_error(modes_of(single), modes_of(double)) <= 2e-6


# -- models of one's own ---------------------------------------------------------------------

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
def own(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "own.py"
    path.write_text(OWN)

    def settings(name, *parameters):
        # The case of these tests has a viscosity, which other equations do not have.
        table = ", ".join([f"model = '{path}:{name}'", *parameters])
        return [f"equation={{ {table} }}"]

    return settings


def test_travelling_front_of_a_bistable_medium_is_a_resting_pair_of_walls(device, own):
    """Two walls tanh(x / sqrt(2 D)) of the Allen-Cahn equation, far from each other, rest."""
    length, diffusivity = 80.0, 1.0
    wall = f"tanh((x - {length / 4})/sqrt(2)) - tanh((x - {3 * length / 4})/sqrt(2)) - 1"
    simulation = start(
        device, *own("bistable", f"diffusivity = {diffusivity}"), "grid.points=[432, 1, 1]",
        f"grid.length={length}", *formulas(phase=wall),
    )  # fmt: skip
    initial = values(simulation)["phase"]
    advance(simulation, 50, 0.01)
    # They attract each other by exp(-sqrt(2) 40), and half way there is a kink of
    # exp(-sqrt(2) 20) = 5e-13. What is left is the integrator's: with an integrating factor that
    # grows, what rests does so but for errors of step^4 / 10.
    assert np.abs(values(simulation)["phase"] - initial).max() <= 1e-9


def test_uniform_growth_is_logistic(device, own):
    rate, time = 1.3, 1.0
    simulation = start(
        device, *own("fisher", "diffusivity = 0.1", f"growth = {rate}"), "grid.points=4",
        *formulas(growth="0.2"),
    )  # fmt: skip
    advance(simulation, 100, time / 100)
    expected = 1 / (1 + (1 / 0.2 - 1) * math.exp(-rate * time))
    # t (rate step)^4, a little at a time.
    assert np.abs(values(simulation)["growth"] - expected).max() <= 1e-9


def test_small_waves_of_kuramoto_and_sivashinsky_grow_exactly_at_first(device, own):
    length, waves, time, size = 20.0, (1, 3, 4), 2.0, 1e-9
    text = " + ".join(f"{size}*sin({2 * math.pi * n / length!r}*x)" for n in waves)
    simulation = start(
        device, *own("sivashinsky"), "grid.points=[32, 1, 1]", f"grid.length={length}",
        *formulas(height=text),
    )  # fmt: skip
    advance(simulation, 20, time / 20)
    modes = modes_of(simulation)[0, 0, 0]
    for n in waves:
        square = (2 * math.pi * n / length) ** 2
        grown = size / 2 * math.exp((square - square**2) * time)
        # Products are smaller than the waves by their amplitude.
        assert abs(modes[n]) == pytest.approx(grown, rel=1e-7)


@pytest.mark.parametrize("integrating_factor", ["true", "false"])
def test_linear_model_is_exact(device, own, integrating_factor):
    diffusivity, speed, time, steps = 0.3, 0.7, 0.5, 50
    simulation = start(
        device, *own("heat", f"diffusivity = {diffusivity}", f"speed = {speed}"),
        f"numerics.integrating_factor={integrating_factor}", "grid.points=[8, 6, 5]",
        *formulas(heat="sin(x) + cos(x - y + z)"),
    )  # fmt: skip
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


def test_burgers_shock_is_that_of_cole_and_hopf(device, own):
    """u = -2 nu d/dx log(phi), where phi solves the heat equation."""
    viscosity, time, steps, amplitude = 0.2, 0.5, 50, 1.0
    ratio = f"({amplitude}*sin(x)/(2 + {amplitude}*cos(x)))"
    simulation = start(
        device, *own("burgers", f"viscosity = {viscosity}"), "grid.points=[96, 2, 1]",
        *formulas(velocity=[f"2*{viscosity}*{ratio}", "0", "0"]),
    )  # fmt: skip
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
            -o.dot(u, o.grad(w)) - self.drag * w * o.abs2(w) + self.viscosity * o.laplacian(w)
            + o.cross(o.z_hat, w),
            -o.dot(w, o.grad(a)) + o.abs2(o.grad(a)) + self.drag * o.laplacian(a) + u[0],
        )  # fmt: skip
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


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_derived_fields_give_the_flow_of_an_independent_solver(device, own, integrator):
    viscosity, drag, steps, step = 0.05, 0.2, 4, 0.02
    simulation = start(
        device, *own("derived", f"viscosity = {viscosity}", f"drag = {drag}"),
        "grid.points=[12, 10, 9]", 'grid.length=["2 pi", 7.0, 5.0]', "initial.peak_wavenumber=2.0",
        f"time.integrator={integrator}", "numerics.integrating_factor=false",
    )  # fmt: skip
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
    found = values(simulation)
    vectors = [np.stack([found[f"{name}_{axis}"] for axis in "xyz"])
               for name in ("velocity", "wind")]  # fmt: skip
    return [*vectors, found["a"]]


def test_model_without_a_velocity_has_its_spectrum_and_the_step_that_is_given(device, own):
    simulation = start(
        device, *own("bistable", "diffusivity = 1.0"), "grid.points=8", "time.cfl=1.0",
        "time.max_step=0.3", *formulas(phase="sin(2*x) + 0.5*cos(y)"),
    )  # fmt: skip
    assert simulation.step_size() == 0.3
    diagnostics = simulation.diagnostics()
    assert diagnostics["energy"] == pytest.approx((1 + 0.25) / 4, rel=1e-14)
    _, spectrum = simulation.spectra()["energy_spectrum"]
    np.testing.assert_allclose(spectrum[:4], [0, 0.25 / 4, 1 / 4, 0], atol=1e-15)
    assert "enstrophy" not in diagnostics


# -- formulas of initial states --------------------------------------------------------------

X, Y, Z = np.linspace(0.1, 2, 5), np.linspace(0.2, 1, 4)[:, None], np.ones((3, 1, 1)) / 3
MEANT = {
    "sin(x) * cos(2*y)": np.sin(X) * np.cos(2 * Y),
    "-x**2 + y/4 - +z": -(X**2) + Y / 4 - Z,
    "exp(-(x - pi)**2) + sqrt(2)": np.exp(-((X - np.pi) ** 2)) + math.sqrt(2),
    "tanh(x) + cosh(y) * sinh(z) - tan(z)": np.tanh(X) + np.cosh(Y) * np.sinh(Z) - np.tan(Z),
    "Abs(x - 1) * sign(y - 0.5) + log(x)": np.abs(X - 1) * np.sign(Y - 0.5) + np.log(X),
    "1/3": 1 / 3,
    "1e-3": 1e-3,
}


@pytest.mark.parametrize("text", MEANT)
def test_formula_is_evaluated_as_it_is_read(text):
    value = formula(text, "initial.fields.a")(X, Y, Z, np)
    np.testing.assert_allclose(value + 0 * X * Y * Z, MEANT[text] + 0 * X * Y * Z, rtol=1e-14)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').getcwd()", "x.__class__", "(1).real", "open('file')", "[x][0]",
        "lambda: x", "x if y else z", "x == y", "x and y", "'x'", "f'{x}'", "1j", "q",
        "S", "symbols", "eval", "sin(x=1)", "sin(*x)", "x := 1", "x ^ 2", "x % 2", "x // 2",
        "~x", "", "x +", "2 x", "x; y",
        "x\ny", "\0", "sin", "sin + 1", "x(1)", "pi(2)", "sin(x, y)", "1/0", "sqrt(-1)", "log(0)",
        "True",
    ],
)  # fmt: skip
def test_formula_can_do_nothing_but_compute(text):
    with pytest.raises(InputError, match=r"^initial\.fields\.a: .*accepted: x, y, z") as caught:
        formula(text, "initial.fields.a")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"velocity": ["x", "y"]}, "2 formulas for 'velocity'; expected 3"),
        ({"velocity": "x"}, "1 formulas for 'velocity'; expected 3"),
        ({"buoyancy": "x"}, "the model has no field 'buoyancy'; it has: velocity, scalar"),
        ({"scalar": ["x", "y", "z"]}, "3 formulas for 'scalar'; expected 1"),
        ({"scalar": "q"}, "'q'"),
    ],
)
def test_initial_fields_are_those_of_the_model(device, fields, message):
    with pytest.raises(InputError, match=message):
        start(device, "equation.scalars=1", *formulas(**fields))
