"""Bodies against formulas at the points, the balance of momentum, and exact Stokes flows."""

import numpy as np
import pytest

import slipstream as ss
from numpy_calculus import Calculus
from slipstream.engine.errors import InputError
from slipstream.spectral.bodies import turned

N, STEP, VISCOSITY = 16, 0.02, 0.05
BOX = 2 * np.pi
FLOW = {"flow": "random", "seed": 3, "peak_wavenumber": 2.0, "amplitude": 0.5}


def made(device, bodies, **settings):
    """Return a flow past bodies, on one rank."""
    given = {"points": N, "viscosity": VISCOSITY, "step": STEP, "integrator": "rk2"}
    given |= {"initial": FLOW, "device": device, "comm": None} | settings
    model = given.pop("model", "hd")
    return ss.Flow(model, bodies=bodies, **given)


def on_host(sim):
    values = sim.fields["velocity"][...]
    return values.get() if hasattr(values, "get") else values


def points(n=N):
    z, y, x = np.meshgrid(*[BOX * np.arange(n) / n] * 3, indexing="ij")
    return np.stack([x, y, z])


def rounded_box(p, half):
    """Return the signed distance of a box around the origin."""
    q = np.abs(p) - np.reshape(half, (3, 1, 1, 1))
    return np.sqrt((np.maximum(q, 0) ** 2).sum(axis=0)) + np.minimum(q.max(axis=0), 0)


def nearest(center):
    r = points() - np.reshape(center, (3, 1, 1, 1))
    return r - BOX * np.rint(r / BOX)


def of_formula(x, y, z, t):
    return ((x - 3) ** 2 + (y - 3) ** 2 + (z - 3) ** 2) ** 0.5 - 1 - t


# Tables, signed distances and centers at the end of the first step.
MOVED = np.array([1.0, 3.0, 0.2]) + STEP * np.array([1.0, 0.0, -2.0])
TILTED = turned(STEP * np.array([20.0, 0.0, 10.0])).T
SHAPES = {
    "sphere": (
        {"radius": 1.2, "center": [1.0, 3.0, 0.2], "velocity": [1.0, 0.0, -2.0]},
        lambda: np.sqrt((nearest(MOVED) ** 2).sum(axis=0)) - 1.2,
        MOVED,
    ),
    "cylinder": (
        {"radius": 1.0, "axis": "y", "rotation": [0.0, 2.0, 0.0]},
        lambda: np.sqrt((nearest([np.pi] * 3)[[0, 2]] ** 2).sum(axis=0)) - 1.0,
        [np.pi] * 3,
    ),
    "box": (
        {"size": [1.0, 2.0, 3.0], "rotation": [20.0, 0.0, 10.0]},
        lambda: rounded_box(
            np.einsum("ij,jzyx->izyx", TILTED, nearest([np.pi] * 3)), [0.5, 1.0, 1.5]
        ),
        [np.pi] * 3,
    ),
    "formula": (
        {"formula": of_formula, "center": [3, 3, 3]},
        lambda: of_formula(*points(), STEP),
        [3.0, 3.0, 3.0],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_ends_with_the_exact_penalisation(device, shape):
    table, distance, center = SHAPES[shape]
    width, eta = 0.8, 0.01
    sim = made(device, {"shape": shape, "width": width, "eta": eta, **table})
    bare = made(device, ())
    for one in (sim, bare):
        one.step()
    before = on_host(bare)
    mask = 0.5 * (1 - np.tanh(2 * distance() / width))
    spin = np.cross(table.get("rotation", [0, 0, 0]), np.moveaxis(nearest(center), 0, -1))
    solid = np.reshape(table.get("velocity", [0, 0, 0]), (3, 1, 1, 1)) + np.moveaxis(spin, -1, 0)
    after = solid + (before - solid) * np.exp(-mask * STEP / eta)
    calculus = Calculus((N, N, N))
    modes = calculus.without_gradient(calculus.modes(after))
    kept = np.abs(calculus.integers[0]) <= (N - 1) // 3
    modes *= kept[:, None, None] * kept[:, None] * kept
    assert np.abs(on_host(sim) - calculus.points(modes)).max() < 1e-12
    lost = (before - after) * (BOX / N) ** 3 / STEP
    force = lost.sum(axis=(1, 2, 3))
    arm = np.cross(np.moveaxis(nearest(center), 0, -1), np.moveaxis(lost, 0, -1))
    row = sim.diagnostics
    for number, axis in enumerate("xyz"):
        assert abs(row[f"body_force_{axis}"] - force[number]) < 1e-10 * np.abs(lost).sum()
        torque = arm.sum(axis=(0, 1, 2))[number]
        assert abs(row[f"body_torque_{axis}"] - torque) < 1e-10 * np.abs(arm).sum()


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_momentum_changes_by_the_forces_on_the_bodies(device, precision, tmp_path):
    solid = np.zeros((N, N, N), np.uint8)
    solid[2:6, 3:9, 1:5] = 1
    np.save(tmp_path / "solid.npy", solid)
    bodies = [
        {"shape": "sphere", "radius": 0.9, "velocity": [0.5, 0, 0]},
        {"name": "rock", "shape": "image", "path": str(tmp_path / "solid.npy")},
    ]
    forcing = {"kind": "formula", "formula": ["0.1", "0", "-0.2"]}
    sim = made(device, bodies, forcing=forcing, precision=precision)
    sim.step()
    means = []
    for _ in range(2):
        means.append(np.array([float(one.mean(dtype="f8")) for one in sim.fields["velocity"][...]]))
        last = means[-1]
        sim.step()
    now = np.array([float(one.mean(dtype="f8")) for one in sim.fields["velocity"][...]])
    row = sim.diagnostics
    force = [row[f"body_force_{axis}"] + row[f"rock_force_{axis}"] for axis in "xyz"]
    balance = (now - last) / STEP - np.array([0.1, 0, -0.2]) + np.array(force) / BOX**3
    assert np.abs(force).min() > 1e-3
    assert np.abs(balance).max() < {"float64": 1e-12, "float32": 1e-5}[precision]


def test_the_mean_flow_is_kept_and_its_power_counts(device):
    velocity = [0.3, 0.0, 0.1]
    sim = made(
        device,
        {"shape": "sphere", "radius": 1.0},
        forcing={"kind": "mean-flow", "velocity": velocity},
    )
    sim.step(3)
    before = sim.diagnostics
    sim.step()
    row = sim.diagnostics
    mean = [float(one.mean()) for one in sim.fields["velocity"][...]]
    np.testing.assert_allclose(mean, velocity, atol=1e-14)
    # What keeps the mean balances the force on the body, to round-off.
    for axis in "xyz":
        assert abs(row[f"mean_force_{axis}"] * BOX**3 - row[f"body_force_{axis}"]) < 1e-10
    change = (row["energy"] - before["energy"]) / STEP
    loss = (row["dissipation"] + before["dissipation"]) / 2
    assert abs(change + loss - row["injection"] - row["bodies_power"]) < 0.02 * loss


@pytest.mark.slow
def test_a_scalar_takes_the_value_of_the_body(device):
    body = {"shape": "sphere", "radius": 1.5, "values": {"scalar": 2.0}, "eta": 1e-4}
    dye, name = {"name": "dye", "mean_gradient": [1, 0, 0]}, "scalar"
    sim = made(device, body, scalars=[dye, {"name": name, "diffusivity": 0.1}])
    sim.step(2)
    before = float(sim.fields[name][...].mean())
    sim.step()
    values = sim.fields[name][...]
    row = sim.diagnostics
    gained = (float(values.mean()) - before) / STEP * BOX**3
    assert abs(gained + row[f"body_{name}_loss"]) < 1e-9 and gained > 1
    assert abs(float(values[N // 2, N // 2, N // 2]) - 2) < 0.1
    # What bodies add is not in the budgets of single fields.
    assert "dye_residual" in row and "scalar_residual" not in row


@pytest.mark.slow
def test_flow_between_walls_is_that_of_poiseuille(device):
    """Walls are boxes as long as the grid's; the error falls as the square of their width."""
    errors = []
    for n in (16, 32):
        wall = {"shape": "box", "size": [1.0, 0.5, 1.0], "center": [0.5, 0.0, 0.5]}
        step = 0.25 / n**2
        sim = ss.Turbulence(
            points=[4, n, 4],
            length=[4 / n, 1.0, 4 / n],
            viscosity=1.0,
            step=step,
            integrator="rk2",
            forcing={"kind": "formula", "formula": ["1", "0", "0"]},
            bodies={**wall, "width": 2 / n},
            device=device,
            comm=None,
        )
        sim.step(round(0.12 / step))
        flow = 0.5**3 / 12  # of half the box, per length along z
        errors.append(abs(float(sim.fields["velocity"][...][0].mean()) / flow - 1))
    assert errors[1] < 0.08 and errors[0] / errors[1] > 3


@pytest.mark.slow
def test_cylinders_have_the_drag_of_sangani_and_acrivos(device):
    """Square array of a solid fraction of 0.2 in Stokes flow: force over viscosity and velocity."""
    results = []
    for width in (2.0, 1.0):
        eta = (width / 24 / 2.648) ** 2
        sim = ss.Turbulence(
            points=[24, 24, 1],
            length=1.0,
            viscosity=1.0,
            step=0.5 * eta,
            integrator="rk2",
            forcing={"kind": "mean-flow", "velocity": [0.01, 0, 0]},
            bodies={"shape": "cylinder", "radius": np.sqrt(0.2 / np.pi), "width": width / 24},
            device=device,
            comm=None,
        )
        sim.step(round(0.08 / (0.5 * eta)))
        results.append(sim.diagnostics["body_force_x"] / 0.01)
    errors = np.array(results) / 51.53 - 1
    assert abs(errors[1]) < 0.08 and 2.5 < errors[0] / errors[1] < 4.5
    # What is left as the width goes to 0.
    assert abs((4 * results[1] - results[0]) / 3 / 51.53 - 1) < 0.015


def test_steps_longer_than_eta_are_warned_of(device):
    with pytest.warns(RuntimeWarning, match="surface recedes by about"):
        made(device, {"shape": "sphere", "radius": 1.0, "eta": 1e-3}).step()


def test_bodies_without_effect_are_named(device, tmp_path):
    with pytest.warns(
        RuntimeWarning, match=r"bodies: 0\.02 across, it is smaller than the spacing"
    ):
        made(device, {"shape": "sphere", "radius": 0.01, "width": 0.5}).step()
    np.save(tmp_path / "pores.npy", np.zeros((N, N, N), np.uint8))
    image = {"shape": "image", "path": str(tmp_path / "pores.npy")}
    for table, text in ((image, "no voxel but 0"), (image | {"solid": 7}, "with the value 7")):
        with pytest.raises(InputError, match=text):
            made(device, table).step()


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"shape": "sphere"}, "'radius' is missing"),
        ({"shape": "sphere", "radius": 1.0, "size": [1, 1, 1]}, "'size' does not belong"),
        ({"shape": "sphere", "radius": 3.2}, r"bodies\.radius: 3\.2; accepted: at most 3\.1"),
        ({"shape": "cylinder", "radius": 1, "length": 7}, r"bodies\.length: 7; accepted"),
        ({"shape": "ball"}, "sphere"),
        ({"shape": "cylinder", "radius": 1.0, "rotation": [1.0, 0, 0]}, "through the whole box"),
        ({"shape": "sphere", "radius": 1.0, "values": {"heat": 1.0}}, "no scalar of the model"),
        ({"shape": "formula", "formula": "sqrt(q)"}, "'q'"),
    ],
)
def test_what_cannot_be_computed_is_refused(device, table, text):
    with pytest.raises(InputError, match=text):
        made(device, table)


def test_an_ideal_fluid_needs_eta(device):
    with pytest.raises(InputError, match=r"bodies\.eta"):
        made(device, {"shape": "sphere", "radius": 1.0}, viscosity=0.0)


def test_eta_is_needed_only_for_what_a_body_sets(device):
    body = {"shape": "sphere", "radius": 1.0, "values": {"scalar": 2.0}}
    dye, scalar = {"name": "dye"}, {"name": "scalar", "diffusivity": 0.1}
    made(device, body, scalars=[dye, scalar])
    with pytest.raises(InputError, match=r"bodies\.eta: .* dye has no diffusivity"):
        made(device, body | {"values": {"dye": 2.0}}, scalars=[dye, scalar])


def test_a_mean_flow_needs_bodies(device):
    with pytest.raises(InputError, match=r"goes with \[\[bodies\]\]"):
        made(device, (), forcing={"kind": "mean-flow", "velocity": [1, 0, 0]})
