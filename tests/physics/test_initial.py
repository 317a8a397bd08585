"""States at the start of a run, by name: their values, their motion, and refusals."""

import math

import numpy as np
import pytest

from field_values import coordinates, largest_error, values
from flows import MHD, advance, make_case, start
from numpy_calculus import Calculus
from refusals import refused
from slipstream.case import parse_case
from slipstream.engine.errors import InputError

GPE = (
    'equation={ model = "gpe", sound_speed = 1.5, healing_length = 0.2 }',
    'numerics.dealiasing="1/2"',
)
SOUND, HEALING = 1.5, 0.2


def vector(simulation, name):
    found = values(simulation)
    return np.stack([found[f"{name}_{axis}"] for axis in "xyz"])


def divergence(simulation, field):
    box = Calculus(field.shape[1:], simulation.case.grid.lengths_xyz)
    return box.div(field)


def energy(field):
    return (field**2).sum(axis=0).mean() / 2


# -- magnetic flow ---------------------------------------------------------------------------

# Strength and field as in the article, by sines and cosines of x, y and z, and of twice these.
ARTICLE = {
    "insulating": (
        1 / math.sqrt(3),
        lambda s, c, s2, c2: (c[0] * s[1] * s[2], s[0] * c[1] * s[2], -2 * s[0] * s[1] * c[2]),
    ),
    "conducting": (
        1 / math.sqrt(3),
        lambda s, c, s2, c2: (
            s2[0] * c2[1] * c2[2],
            c2[0] * s2[1] * c2[2],
            -2 * c2[0] * c2[1] * s2[2],
        ),
    ),
    "alternative": (1.0, lambda s, c, s2, c2: (c2[0] * s2[1] * s2[2], -s2[0] * c2[1] * s2[2], 0.0)),
}


def sines_and_cosines(simulation):
    points = coordinates(simulation)
    return [[f(m * one) for one in points] for m in (1, 2) for f in (np.sin, np.cos)]


@pytest.mark.parametrize("kind", ARTICLE)
def test_magnetic_taylor_green_vortex_is_that_of_the_article(device, kind):
    simulation = start(device, *MHD, "initial.flow=taylor-green", f"initial.magnetic={kind}")
    strength, products = ARTICLE[kind]
    for actual, expected in zip(
        vector(simulation, "magnetic"), products(*sines_and_cosines(simulation)), strict=True
    ):
        np.testing.assert_allclose(actual, strength * expected + 0 * actual, rtol=0, atol=1e-14)
    diagnostics = simulation.diagnostics()
    assert diagnostics["velocity_energy"] == pytest.approx(1 / 8, rel=1e-14)
    assert diagnostics["magnetic_energy"] == pytest.approx(1 / 8, rel=1e-14)


@pytest.mark.parametrize("kind", ARTICLE)
def test_magnetic_taylor_green_vortex_has_no_sources_in_any_box(device, kind):
    simulation = start(
        device,
        *MHD,
        "initial.flow=taylor-green",
        f"initial.magnetic={kind}",
        "initial.amplitude=1.7",
        "initial.wavenumber=2",
        "grid.points=[20, 18, 16]",
        'grid.length=["2 pi", 3.0, 8.0]',
    )
    u, b = vector(simulation, "velocity"), vector(simulation, "magnetic")
    # Had there been sources, taking them away would have changed the energy.
    assert energy(b) == pytest.approx(energy(u), rel=1e-13)
    assert energy(u) == pytest.approx(1.7**2 * (1 + (3 / (2 * math.pi)) ** 2) / 16, rel=1e-13)
    assert np.abs(divergence(simulation, b)).max() < 1e-12


def test_taylor_green_vortex_has_no_magnetic_field_unless_it_is_asked_for(device):
    simulation = start(device, *MHD, "initial.flow=taylor-green")
    assert simulation.diagnostics()["magnetic_energy"] == 0


def test_orszag_tang_vortex_in_three_dimensions_is_that_of_the_article(device):
    simulation = start(device, *MHD, "initial.flow=orszag-tang-3d", "grid.points=[8, 10, 9]")
    x, y, z = coordinates(simulation)
    a, b = 1.0, 0.8
    expected = {
        "velocity_x": -2 * a * np.sin(y),
        "velocity_y": 2 * a * np.sin(x),
        "velocity_z": 0.0,
        "magnetic_x": b * (-2 * np.sin(2 * y) + np.sin(z)),
        "magnetic_y": b * (2 * np.sin(x) + np.sin(z)),
        "magnetic_z": b * (np.sin(x) + np.sin(y)),
    }
    assert largest_error(simulation, **expected) <= 1e-14
    diagnostics = simulation.diagnostics()
    assert diagnostics["velocity_energy"] == pytest.approx(2, rel=1e-14)
    # 0.8^2 ((4 + 1) + (4 + 1) + (1 + 1)) / 4
    assert diagnostics["magnetic_energy"] == pytest.approx(1.92, rel=1e-14)


# -- quantum fluids --------------------------------------------------------------------------


def wave_function(simulation):
    found = values(simulation)
    return found["psi_real"] + 1j * found["psi_imaginary"]


def test_lines_of_the_quantum_taylor_green_vortex_have_its_circulation(device):
    # Of two quanta in each of four lines, of 4 pi alpha; a bit more is no third.
    healing, sound, quanta = 0.1, 1.5, 2
    alpha = sound * healing / math.sqrt(2)
    simulation = start(
        device,
        f'equation={{ model = "gpe", sound_speed = {sound}, healing_length = {healing} }}',
        "grid.points=[64, 64, 16]",
        "initial.flow=quantum-taylor-green",
        f"initial.amplitude={2.3 * math.pi * alpha * quanta}",
        "numerics.dealiasing=none",
    )
    psi = wave_function(simulation)
    n = psi.shape[2] // 2
    # Around the cell 0 < x, y < pi of the plane z = 0 the flow is a Taylor-Green vortex.
    turn = [*psi[0, 0, :n], *psi[0, :n, n], *psi[0, n, n:0:-1], *psi[0, n:0:-1, 0]]
    steps = np.angle(np.roll(turn, -1) / turn)
    assert np.abs(steps).max() < 2  # the phase is followed
    circulation = 2 * alpha * steps.sum()
    assert circulation == pytest.approx(4 * quanta * 4 * math.pi * alpha, rel=1e-12)
    # Of the flow at large: 8 amplitude, rounded down to whole lines.
    assert 4 * quanta * 4 * math.pi * alpha < 8 * 2.3 * math.pi * alpha * quanta
    # In the plane z = pi it is the other way round.
    middle = psi.shape[0] // 2
    np.testing.assert_allclose(psi[middle], psi[0].conj(), atol=1e-12)


def test_quantum_taylor_green_vortex_is_the_product_of_the_article(device):
    simulation = start(
        device,
        *GPE,
        "grid.points=[13, 13, 11]",
        "numerics.dealiasing=none",
        "initial.flow=quantum-taylor-green",
        "initial.amplitude=4.1",
    )
    x, y, z = coordinates(simulation)
    height = np.sqrt(2 * np.abs(np.cos(z)))
    first, second = np.cos(x) * height, np.cos(y) * height * np.sign(np.cos(z))

    def line(a, b):
        r = np.maximum(np.hypot(a, b), 1e-30)
        return (a + 1j * b) * np.tanh(r / (math.sqrt(2) * HEALING)) / r

    s = 1 / math.sqrt(2)
    product = line(first - s, second) * line(first, second - s)
    product = product * line(first + s, second) * line(first, second + s)
    power = int(4.1 / (2 * math.pi * SOUND * HEALING / math.sqrt(2)))
    assert power == 3
    assert np.abs(wave_function(simulation) - product**power).max() <= 1e-13


@pytest.mark.slow
def test_dark_solitons_move_at_their_speed(device):
    speed, healing, sound, time, steps = 0.4, 0.1, 1.3, 0.8, 640
    length = 2 * math.pi
    simulation = start(
        device,
        f'equation={{ model = "gpe", sound_speed = {sound}, healing_length = {healing} }}',
        "grid.points=[384, 1, 1]",
        "numerics.dealiasing=1/2",
        "initial.flow=solitons",
        f"initial.speed={speed}",
    )
    x, _, _ = coordinates(simulation)
    depth = 1 - speed**2
    steepness = math.sqrt(depth) / (math.sqrt(2) * healing)

    def density(moved):
        first, second = length / 4 + moved, 3 * length / 4 - moved
        result = 1.0
        for middle in (first, second):
            result = result * (1 - depth / np.cosh(steepness * (x - middle)) ** 2)
        return result

    def error(moved):
        return np.abs(np.abs(wave_function(simulation)[0, 0]) ** 2 - density(moved)).max()

    # The tails overlap where the box repeats, by exp(-2 steepness length / 4) = 1.4e-9; what the
    # grid drops of modes falls as exp(-pi k / (2 steepness)), 8e-11.
    assert error(0) <= 2e-9
    advance(simulation, steps, time / steps)
    assert error(sound * speed * time) <= 5e-9
    assert error(0) > 0.5
    # The minimum between points of a parabola through three.
    profile = np.abs(wave_function(simulation)[0, 0]) ** 2
    lowest = int(profile[:192].argmin())
    left, here, right = profile[lowest - 1 : lowest + 2]
    found = x[lowest] + x[1] * (left - right) / (2 * (left - 2 * here + right))
    assert found == pytest.approx(length / 4 + sound * speed * time, abs=1e-3)
    assert here == pytest.approx(speed**2, abs=(steepness * x[1]) ** 2)


# -- what cannot be --------------------------------------------------------------------------

STILL = ("equation.viscosity=0.1",)
ROTATING = ("equation.viscosity=0", "equation.rotation=1.5")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            (*STILL, "initial.flow=taylor-green", "initial.magnetic=insulating"),
            r"^initial\.flow: the model has no field 'magnetic'",
        ),
        (
            (
                *MHD,
                "initial.flow=taylor-green",
                "initial.magnetic=conducting",
                "grid.points=[8,8,1]",
            ),
            r"^initial\.magnetic: needs 2 waves along z, and grid\.points = 1 can resolve 0",
        ),
        (
            (*MHD, "initial.flow=orszag-tang-3d", "grid.points=[4,4,4]"),
            r"^initial\.flow: needs 2 waves along y, and grid\.points = 4 can resolve 1",
        ),
        ((*STILL, "initial.flow=orszag-tang-3d"), r"^initial\.flow: .*no field 'magnetic'"),
        ((*STILL, "initial.flow=quantum-taylor-green"), r"^initial\.flow: .*\"gpe\".*velocity_x"),
        ((*STILL, "initial.flow=solitons"), r"^initial\.flow: .*\"gpe\".*velocity_x"),
        (
            (*GPE, "initial.flow=quantum-taylor-green"),
            r"^initial\.amplitude: 1 gives less.*accepted: at least 1\.3328",
        ),
        (
            (*GPE, "initial.flow=quantum-taylor-green", "grid.length=[1.0, 2.0, 1.0]"),
            r"^grid\.length: 1 along x and 2 along y; accepted .*the same",
        ),
        (
            (*GPE, "initial.flow=solitons", "grid.points=[1, 8, 8]"),
            r"^initial\.flow: needs 1 waves along x",
        ),
        (
            (*STILL, "initial.flow=wave", "initial.wavevector=[1, 0, 1]"),
            r"^initial\.flow: 'wave' needs a model with waves",
        ),
        (
            (*ROTATING, "initial.flow=wave", "initial.wavevector=[1, 0, 0]"),
            r"^initial\.wavevector: no wave of this model has \[1, 0, 0\]",
        ),
        (
            (*ROTATING, "initial.flow=wave", "initial.wavevector=[0, 0, 0]"),
            r"^initial\.wavevector: \[0, 0, 0\] is not a wave",
        ),
        (
            (*ROTATING, "initial.flow=wave", "initial.wavevector=[0, -9, 1]"),
            r"^initial\.wavevector: needs 9 waves along y, and grid\.points = 16 can resolve 5",
        ),
        (
            (
                *ROTATING,
                "initial.flow=wave",
                "initial.wavevector=[5, 5, 5]",
                'numerics.dealiasing="2/3 sphere"',
            ),
            r"^initial\.wavevector: .*beyond the sphere",
        ),
        (
            (*ROTATING, "initial.flow=wave", "initial.wavevector=[1, 2, 2]", "initial.branch=2"),
            r"^initial\.branch: 2 is beyond the 2 waves of \[1, 2, 2\].* 2, -2; accepted: 0 to 1$",
        ),
    ],
)
def test_flow_that_a_model_or_grid_does_not_have_is_refused(device, settings, message):
    with refused(message):
        start(device, *settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("initial.flow=wave",), "'wavevector' is missing"),
        (("initial.flow=file",), "'path' is missing"),
        (("initial.flow=wave", "initial.wavevector=[1, 2]"), "initial.wavevector"),
        (("initial.flow=wave", "initial.wavevector=[1, 2, 0.5]"), "initial.wavevector"),
        (("initial.flow=solitons", "initial.speed=1.0"), "initial.speed"),
        (("initial.flow=file", "initial.path=a", "initial.time=-1"), "initial.time"),
        (("initial.flow=taylor-green", "initial.magnetic=strong"), "initial.magnetic"),
        (("initial.flow=abc", "initial.magnetic=none"), "'magnetic' does not belong"),
        (
            ("initial.flow=wave", "initial.wavevector=[1, 0, 0]", "initial.seed=1"),
            "'seed' does not belong.*wavevector, amplitude, branch",
        ),
    ],
)
def test_keys_of_a_flow_are_checked(device, settings, message):
    with pytest.raises(InputError, match=message):
        start(device, *settings)


@pytest.mark.parametrize(
    "flow",
    [
        ("initial.flow=wave", "initial.wavevector=[1, 0, 2]", "initial.branch=1"),
        ("initial.flow=file", "initial.path=runs/a", "initial.time=3"),
        ("initial.flow=solitons", "initial.speed=-0.2"),
    ],
)
def test_restart_displaces_whatever_a_flow_has(flow):
    case = make_case(*flow)
    # What a run writes of its case is the case.
    assert parse_case(case.to_toml()) == case
    restarted = parse_case(case.to_toml(), ["initial.restart=runs/b"]).initial
    assert restarted.restart == "runs/b"
    assert {one for key, one in restarted if key != "restart"} == {None}
