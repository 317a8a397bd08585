"""Free-slip walls: exact solutions, and equality with a periodic box of twice the height."""

import math

import numpy as np
import pytest

from flows import leave_state
from slipstream import Flow
from slipstream.engine.errors import InputError

HEIGHT = math.pi / 2
# Every parity and axis, without divergence; formulas of a periodic box of twice the height too.
FORMULAS = {
    "velocity": [
        "sin(y)*cos(2*z) + 0.4*cos(x + y)*cos(4*z) - sin(x)*cos(2*z)",
        "0.5*sin(x) + 0.3*cos(2*x)*cos(2*z)",
        "0.5*cos(x)*sin(2*z) + 0.1*sin(x + y)*sin(4*z)",
    ],
    "buoyancy": "0.5*sin(2*z)*cos(x) - 0.3*sin(4*z)*cos(y)",
}
SCALARS = [{"name": "dye", "diffusivity": 0.02, "initial": "cos(x)*cos(2*z) + 0.2"}]
FORCES = [{"kind": "formula", "formula": ["cos(y)*cos(2*z)", "sin(x)*cos(t)", "0"]}]
NUMBERS = {"viscosity": 0.02, "diffusivity": 0.03, "buoyancy_frequency": 1.3, "rotation": 0.7}
EXPRESSIONS = (
    "vorticity",
    "pressure",
    "div(velocity*dye)",
    "laplacian(velocity_x*buoyancy)",
)


def walled(device, comm=None, points=(12, 10, 8), model="boussinesq", **options):
    defaults = {
        "length": ["2 pi", "2 pi", HEIGHT],
        "walls": "z",
        "step": 0.02,
        "initial": {"flow": "formula", "fields": FORMULAS},
        **(NUMBERS if model == "boussinesq" else {"viscosity": 0.02}),
        **options,
    }
    return Flow(model, points=list(points), comm=comm, device=device, **defaults)


def doubled(device, points=(12, 10, 8), **options):
    length, points = ["2 pi", "2 pi", 2 * HEIGHT], (*points[:2], 2 * points[2])
    return walled(device, points=points, walls=None, length=length, **options)


def at_middles(values):
    """Return the values of a doubled box half a spacing beyond its points, up to the wall."""
    count = values.shape[-3]
    waves = np.fft.fftfreq(count)[:, None, None]
    modes = np.fft.fft(values, axis=-3) * np.exp(1j * np.pi * waves)
    return np.fft.ifft(modes, axis=-3).real[..., : count // 2, :, :]


def assert_close(own, theirs, tolerance):
    np.testing.assert_allclose(own, theirs, rtol=0, atol=tolerance * np.abs(theirs).max())


@pytest.fixture(scope="module")
def symmetric(device):
    """The doubled box after some steps, in one process."""
    flow = doubled(device, scalars=SCALARS, forcing=FORCES)
    flow.step(4)
    return flow


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_equals_the_symmetric_flow_of_a_doubled_box(comm, device, symmetric, precision):
    flow = walled(device, comm, scalars=SCALARS, forcing=FORCES, precision=precision)
    flow.step(4)
    tolerance = 1e-13 if precision == "float64" else 3e-6
    for name in ("velocity", "buoyancy", "dye"):
        assert_close(
            flow.fields[name].gather(), at_middles(symmetric.fields[name].gather()), tolerance
        )
    actual, theirs = flow.diagnostics, symmetric.diagnostics
    assert set(theirs) - set(actual) == {"helicity"}
    for name in actual:
        if "residual" not in name and name not in ("divergence", "work"):
            assert actual[name] == pytest.approx(theirs[name], rel=10 * tolerance, abs=1e-15), name
    for name, (shells, values) in flow.spectra.items():
        expected = symmetric.spectra[name]
        np.testing.assert_array_equal(shells, expected[0])
        assert_close(values, expected[1], 10 * tolerance)


WHERE = {
    "host": {},
    "parts of rows": {"tiles": 100, "resident": False},
    "updated there": {"tiles": 3, "streams": 2, "update": "host"},
    "disk": {"tiles": 3},
    "pencils": None,
}


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize("where", WHERE)
def test_fields_anywhere_take_the_same_steps(comm, device, device_kind, shared_folder, where):
    if where == "pencils":
        run = {"decomposition": "pencil"}
    else:
        run = {"residency": "disk" if where == "disk" else "host", "streaming": WHERE[where]}
    if where == "disk":
        run["scratch"] = str(shared_folder)
    flows = [
        walled(device, comm, scalars=SCALARS, forcing=FORCES, dealiasing="2/3 sphere", run=own)
        for own in ({}, run)
    ]
    for flow in flows:
        flow.step(3)
    near, far = (flow.fields["velocity"].gather() for flow in flows)
    if device_kind == "cpu":
        np.testing.assert_array_equal(near, far)
    assert_close(far, near, 1e-14)


def shifted(text):
    """Return a formula of a doubled box whose points are those between walls, and their images."""
    return text.replace("z", f"(z + {HEIGHT / 16!r})")


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_bodies_are_those_of_a_doubled_box_with_their_mirror_images(comm, device, precision):
    """One that moves along the walls, and one by a formula, in a mean flow."""
    sphere = {"shape": "sphere", "radius": 0.3, "width": 0.05, "velocity": [0.5, 0.2, 0.0]}
    wavy = {"shape": "formula", "name": "wavy", "formula": "sqrt((x-4)**2 + 4*cos(z)**2) - 0.7"}
    bodies = [sphere | {"center": [2.0, 3.0, 0.8], "rotation": [0, 0.4, 0.3]}, wavy]
    forcing = [{"kind": "mean-flow", "velocity": [0.5, 0.1, 0.0]}]
    options = {"model": "hd", "precision": precision, "forcing": forcing}
    velocity = FORMULAS["velocity"]
    flow = walled(
        device,
        comm,
        bodies=bodies,
        initial={"flow": "formula", "fields": {"velocity": velocity}},
        **options,
    )
    half = HEIGHT / 16
    whole = doubled(
        device,
        bodies=[
            bodies[0] | {"center": [2.0, 3.0, 0.8 - half]},
            sphere
            | {"name": "image", "center": [2.0, 3.0, -0.8 - half], "rotation": [0, -0.4, 0.3]},
            wavy | {"formula": shifted(wavy["formula"])},
        ],
        initial={"flow": "formula", "fields": {"velocity": [shifted(one) for one in velocity]}},
        **options,
    )
    for one in (flow, whole):
        one.step(3)
    tolerance = 1e-12 if precision == "float64" else 1e-5
    upper = whole.fields["velocity"].gather()[:, :8]
    found = flow.fields["velocity"].gather()
    assert_close(found, upper, tolerance)
    actual, theirs = flow.diagnostics, whole.diagnostics
    # The body of the formula is its own image.
    drags = {"wavy_force_x", "wavy_force_y", "wavy_torque_z"}
    for name in actual:
        is_apart = "residual" in name or "wavy" in name or name in ("divergence", "work")
        if name in drags or not is_apart:
            near = pytest.approx(theirs[name], rel=50 * tolerance, abs=50 * tolerance)
            assert (2 if name in drags else 1) * actual[name] == near, name


@pytest.mark.slow
def test_expressions_have_the_parity_of_their_terms(comm, device, symmetric):
    flow = walled(device, comm, scalars=SCALARS, forcing=FORCES)
    flow.step(4)
    for text in EXPRESSIONS:
        found = flow.evaluate(text).gather()
        assert_close(found, at_middles(symmetric.evaluate(text).gather()), 1e-12)
    mixed = flow.evaluate("velocity_z*dye + dye").gather()
    w, s = flow.fields["velocity"].gather()[2], flow.fields["dye"].gather()
    assert_close(mixed, w * s + s, 1e-14)
    with pytest.raises(InputError, match="neither even nor odd"):
        flow.evaluate("div(velocity*(buoyancy + dye))").gather()


@pytest.mark.parametrize("high", [8, 17], ids=["8 points", "17, for which GPUs have no kernel"])
def test_modes_of_stokes_flow_decay_exactly(comm, device, high):
    """Of one wavevector nothing is nonlinear, so that only diffusion is left."""
    one = ["sin(y)*cos(6*z)", "0", "0"]
    given = {"flow": "formula", "fields": {"velocity": one}}
    flow = walled(device, comm, (12, 10, high), "hd", initial=given)
    before = flow.diagnostics["energy"]
    flow.step(5)
    decay = math.exp(-2 * 0.02 * (1 + 36) * flow.time)
    assert flow.diagnostics["energy"] == pytest.approx(before * decay, rel=1e-14)
    assert before == pytest.approx(1 / 8, rel=1e-14)


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_convection_begins_at_the_rayleigh_number_of_rayleigh(comm, device, precision):
    """27 pi^4 / 4 at a wavelength of 2 sqrt(2) heights (Phil. Mag. 32, 529, 1916)."""
    width = 2 * math.sqrt(2)
    wave, square = 2 * math.pi / width, 1.5 * math.pi**2
    rates = []
    for number in (640.0, 675.0):
        damping = number**-0.5
        texts = {"buoyancy": f"1e-6*cos({wave}*x)*sin({math.pi}*z)"}
        flow = walled(
            device,
            comm,
            (8, 1, 8),
            "rayleigh-benard",
            length=[width, 1.0, 1.0],
            viscosity=damping,
            diffusivity=damping,
            linear="all",
            step=1.0,
            precision=precision,
            initial={"flow": "formula", "fields": texts},
        )
        flow.step(20)
        before = flow.diagnostics["energy"]
        flow.step(20)
        rates.append(math.log(flow.diagnostics["energy"] / before) / 40)
        exact = wave / math.sqrt(square) - square * damping
        assert rates[-1] == pytest.approx(exact, rel=1e-6 if precision == "float64" else 1e-3)
    # The rate is linear in one over the root of the Rayleigh number.
    first, last = 640**-0.5, 675**-0.5
    critical = (first - rates[0] * (last - first) / (rates[1] - rates[0])) ** -2
    assert rates[0] < 0 < rates[1]
    assert critical == pytest.approx(27 * math.pi**4 / 4, rel=1e-5)


def test_budgets_of_convection_are_met_to_the_order_of_time(comm, device):
    numbers = {"viscosity": 0.02, "diffusivity": 0.03, "buoyancy_frequency": 2.0}
    flow = walled(device, comm, (12, 1, 12), "rayleigh-benard", **numbers, step=0.01, initial=ROLLS)
    flow.step(20)
    rows = [flow.diagnostics]
    for steps in (4, 1):
        flow.step(steps)
        rows.append(flow.diagnostics)
    _, far, near = rows
    for name in ("budget_residual", "buoyancy_residual"):
        assert 0 < abs(near[name]) < 0.2 * abs(far[name]) < 0.02
    velocity, buoyancy = (flow.fields[one].gather() for one in ("velocity", "buoyancy"))
    assert near["buoyancy_flux"] == pytest.approx(2 * (velocity[2] * buoyancy).mean(), rel=1e-12)
    assert near["energy"] == pytest.approx((velocity**2).sum(axis=0).mean() / 2, rel=1e-12)


ROLLS = {
    "flow": "formula",
    "fields": {
        "velocity": ["sin(x)*cos(2*z)", "0", "-0.5*cos(x)*sin(2*z)"],
        "buoyancy": "sin(4*z)",
    },
}


def test_random_states_have_their_amplitude_and_no_flow_through_walls(comm, device):
    random = {"flow": "random", "amplitude": 0.7, "peak_wavenumber": 3.0}
    flow = walled(device, comm, initial=random)
    assert flow.diagnostics["energy"] == pytest.approx(1.5 * 0.7**2, rel=1e-12)
    assert flow.diagnostics["divergence"] < 1e-14
    values = flow.fields["velocity"].gather()
    assert np.square(values).sum(axis=0).mean() / 2 == pytest.approx(1.5 * 0.7**2, rel=1e-12)
    places = [[1.0, 2.0, 0.0], [1.0, 2.0, HEIGHT]]
    assert np.abs(flow.fields["velocity"].at(places)[:, 2]).max() < 0.2
    # What is set at the points is the same state.
    again = walled(device, comm, initial={"velocity": flow.fields["velocity"][:]})
    assert_close(again.fields["velocity"].gather(), values, 1e-14)


@pytest.mark.parametrize(
    ("kind", "field", "points"),
    [
        ("random", "velocity", (12, 10, 8)),
        ("ornstein-uhlenbeck", "velocity", (12, 10, 8)),
        ("random", "velocity", (12, 1, 8)),
        ("random", "dye", (12, 10, 8)),
        ("random", "buoyancy", (12, 10, 8)),
    ],
)
def test_random_forces_are_mirror_images_of_a_known_strength(comm, device, kind, field, points):
    force = {"kind": kind, "field": field, "amplitude": 0.3, "shells": [1, 3], "seed": 4}
    force |= {"correlation_time": 10.0} if kind != "random" else {}
    rest = {"flow": "formula", "fields": {"velocity": ["0", "0", "0"]}}
    dye = [{"name": "dye", "diffusivity": 0.02}]
    flow = walled(device, comm, points, forcing=[force], scalars=dye, initial=rest, step=1e-3)
    flow.step(1)
    found = flow.fields[field].gather() / 1e-3
    squares = np.square(found).mean(axis=(-3, -2, -1))
    count = 1 if squares.ndim == 0 else 3 if points[1] > 1 else 2
    # That of a process is a mean over all that could have been drawn.
    near = pytest.approx(count * 0.3**2, rel=0.01 if kind == "random" else 0.5)
    assert squares.sum() == near
    if field == "velocity":
        assert flow.diagnostics["divergence"] < 1e-13
        assert squares[: 3 if points[1] > 1 else 1].min() > 0.01
    # What the modes have reaches the points: none is of the other parity.
    again = walled(device, comm, points, scalars=dye, initial={field: flow.fields[field][:]})
    assert_close(again.fields[field].gather(), flow.fields[field].gather(), 1e-13)
    flow.step(1)
    alone = walled(device, None, points, forcing=[force], scalars=dye, initial=rest, step=1e-3)
    alone.step(2)
    assert_close(flow.fields[field].gather(), alone.fields[field].gather(), 1e-12)


@pytest.mark.slow
def test_goes_on_from_a_state_of_any_resolution(comm, device, shared_folder):
    flow = walled(device, comm)
    flow.step(3)
    alone = walled(device)
    alone.step(3)
    leave_state(alone.solver, shared_folder / "run", comm)
    finer, same = (
        walled(device, comm, points, initial={"restart": str(shared_folder / "run")})
        for points in ((16, 14, 11), (12, 10, 8))
    )
    flow.step(2)
    same.step(2)
    assert same.time == pytest.approx(flow.time)
    assert_close(same.fields["velocity"].gather(), flow.fields["velocity"].gather(), 1e-13)
    assert finer.diagnostics["energy"] == pytest.approx(alone.diagnostics["energy"], rel=1e-13)
    places = [[0.3, 2.2, 0.1], [3.0, 0.4, 1.5]]
    coarse, fine = (one.fields["buoyancy"].at(places) for one in (alone, finer))
    np.testing.assert_allclose(coarse, fine, rtol=0, atol=0.05)
    with pytest.raises(InputError, match=r"grid\.walls = 'z', this case None"):
        walled(device, comm, walls=None, initial={"restart": str(shared_folder / "run")}).step(1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"walls": "x"}, r"grid\.walls"),
        ({"walls": None, "zero_at_walls": ["dye"]}, r"goes with grid\.walls"),
        ({"zero_at_walls": ["heat"]}, "no field 'heat'; it has: velocity, buoyancy"),
        ({"zero_at_walls": ["velocity"]}, r"equation of velocity_x, which is odd"),
        ({"rotation": [0.1, 0, 0]}, r"equation of velocity_y, which is even, has a term veloc"),
        ({"dealiasing": "phase-shift"}, "accepted with it: '2/3', '2/3 sphere'"),
        ({"forcing": "abc"}, r"forcing\.kind: 'abc' with grid\.walls"),
        ({"initial": "abc"}, r"initial\.flow: 'abc' with grid\.walls"),
        (
            {"bodies": {"shape": "sphere", "radius": 0.3, "center": [1, 1, -1]}},
            r"bodies\.center: .* along z 0 to 1",
        ),
        (
            {"bodies": {"shape": "sphere", "radius": 0.3, "velocity": [0, 0, 1]}},
            r"bodies\.velocity: .* along z 0",
        ),
        ({"particles": 4}, r"particles: .* with grid\.walls"),
        ({"points": (8, 8, 1)}, r"grid\.points along z: 1 with"),
        (
            {"initial": {"flow": "formula", "fields": {"buoyancy": "cos(2*z)"}}},
            r"cos\(2\*z\) for buoyancy, which is odd",
        ),
    ],
)
def test_what_has_no_meaning_between_walls_is_refused(options, message, device):
    with pytest.raises(InputError, match=message):
        walled(device, **options).diagnostics  # noqa: B018


def test_scalars_may_be_fixed_at_the_walls(device):
    one = [{"name": "dye", "initial": "cos(x)*sin(2*z)", "diffusivity": 0.02}]
    flow = walled(device, model="hd", scalars=one, zero_at_walls=["dye"], initial="taylor-green")
    flow.step(1)
    assert np.abs(flow.fields["dye"].at([[0.0, 0.0, 0.0]])).max() < 0.05
    assert flow.diagnostics["dye_energy"] == pytest.approx(1 / 8, rel=0.05)
