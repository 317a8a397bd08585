"""Flow through pores: exact solutions, series, literature, and the symmetries of Stokes flow."""

import dataclasses
import itertools
import warnings

import numpy as np
import pytest

from lattice_oracle import random_pores, set_populations, subdomain_of, tight_pores
from slipstream.api.validation.reference_solutions import (
    SQUARE_DUCT_MIDDLE,
    channel_permeability,
    cubic_spheres_permeability,
    square_duct_permeability,
)
from slipstream.engine.decomposition import whole
from slipstream.engine.errors import RunError
from slipstream.lattice import Fluid, PoreFlow, Storage, make_sample, permeability
from slipstream.lattice.convergence import Steadiness
from slipstream.lattice.velocity_set import D3Q19

AXES = "zyx"
PERIODIC = (True, True, True)


def voxels(name, shape, **parameters):
    return make_sample(name, shape, **parameters).read(whole(shape))


def sandstone(size=24, porosity=0.35):
    return voxels("sandstone", (size,) * 3, porosity=porosity, radius=5, seed=2)


def flow_through(image, fluid, device, **storage):
    return PoreFlow(subdomain_of(image, PERIODIC), fluid, Storage(**storage), device)


# -- channels and ducts --------------------------------------------------------------------------


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize("width", [5, 10])
@pytest.mark.parametrize("magic", [3 / 16, 1 / 8])
@pytest.mark.parametrize("relaxation_time", [0.6, 1.0, 2.0])
def test_permeability_of_a_channel_is_exact(device, width, magic, relaxation_time):
    sample = make_sample("channel", (2, width + 2, 3), axis="y")
    result = permeability(
        sample,
        axis="z",
        magic=magic,
        relaxation_time=relaxation_time,
        tolerance=1e-10,
        device=device,
    )
    # Two of the layers are solid.
    expected = channel_permeability(width, magic) * width / (width + 2)
    assert result.converged
    assert result.k_lattice == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("flow", "walls"), list(itertools.permutations("xyz", 2)))
def test_channels_have_no_preferred_axis(device, flow, walls):
    shape = tuple({flow: 3, walls: 7}.get(name, 2) for name in AXES)
    settings = {"axis": flow, "relaxation_time": 2.0, "tolerance": 1e-11, "device": device}
    layers = permeability(make_sample("channel", shape, axis=walls), **settings)
    assert layers.k_lattice == pytest.approx(channel_permeability(5, 3 / 16) * 5 / 7, rel=1e-10)
    faces = permeability(np.ones(shape, np.uint8), walls=walls, **settings)
    assert faces.k_lattice == pytest.approx(channel_permeability(7, 3 / 16), rel=1e-10)


@pytest.mark.parametrize("magic", [3 / 16, 1 / 8])
@pytest.mark.parametrize("drive", ["force", "pressure_drop"])
def test_every_node_of_a_channel_has_the_velocity_of_the_parabola(device, magic, drive):
    length, width, gradient = 6, 10, 1e-4
    strength = {"force": gradient, "pressure_drop": gradient * length}[drive]
    fluid = Fluid(1.0, magic, **{drive: (strength, 0.0, 0.0)})
    flow = flow_through(voxels("channel", (length, width + 2, 2), axis="y"), fluid, device)
    flow.advance(3000)  # the slowest mode is 1e-21 of what it was
    velocity, density = flow.fields()[0, :, 1:-1], flow.fields()[3, :, 1:-1]
    place = np.arange(width) + 0.5
    # None with 3/16.
    slip = channel_permeability(width, magic) - channel_permeability(width, 3 / 16)
    parabola = gradient / fluid.viscosity * (place * (width - place) / 2 + slip)
    np.testing.assert_allclose(velocity, velocity[:1, :, :1] + 0 * velocity, rtol=1e-12)
    np.testing.assert_allclose(velocity[0, :, 0], parabola, rtol=1e-12)
    # Pressure is a third of the density. With a force, what drives is no part of it.
    planes = np.arange(length) - (length - 1) / 2
    falls = -3 * gradient * planes if drive == "pressure_drop" else 0 * planes
    np.testing.assert_allclose(density - 1, falls[:, None, None] + 0 * density, atol=1e-15)


@pytest.mark.slow
def test_permeability_of_a_square_duct_converges_by_second_order(device):
    errors = []
    for width in (8, 16, 32):
        sample = make_sample("duct", (width + 2, width + 2, 1), axis="x")
        result = permeability(sample, axis="x", relaxation_time=2.0, tolerance=1e-7, device=device)
        found = result.k_lattice * (width + 2) ** 2 / width**2
        errors.append(found / square_duct_permeability(width) - 1)
        if width == 32:
            # Nodes nearest to the middle are half a voxel from it.
            assert result.mach / 3**0.5 == pytest.approx(
                SQUARE_DUCT_MIDDLE * 1e-5 * 32**2 / 0.5, rel=0.005
            )
    np.testing.assert_allclose(errors, [0.0141, 0.0037, 0.00094], rtol=0.02)
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    np.testing.assert_allclose(orders, 2, atol=0.08)


# -- spheres -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solid_fraction", "tolerance"), [(0.027, 0.015), (0.216, 0.035), (0.5236, 0.055)]
)
def test_permeability_of_cubic_sphere_lattices_is_that_of_the_literature(
    device, solid_fraction, tolerance
):
    """Spheres are stairs of voxels, which makes pores narrower the fewer voxels these are wide.

    That is why the tolerance grows with the solid fraction. It is measured with the fraction that
    the voxels have, since the permeability depends on it more than on anything else.
    """
    size = 32
    sample = make_sample("spheres", (size,) * 3, lattice="simple", solid_fraction=solid_fraction)
    result = permeability(sample, axis="x", relaxation_time=2.0, tolerance=1e-3, device=device)
    expected = cubic_spheres_permeability(1 - result.porosity, size)
    assert result.converged
    assert result.k_lattice == pytest.approx(expected, rel=tolerance)


# -- invariants ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_permeability_does_not_depend_on_the_relaxation_time(device):
    image = sandstone()
    actual = [
        permeability(image, relaxation_time=time, tolerance=1e-6, device=device).k_lattice
        for time in (0.6, 1.0, 2.0)
    ]
    np.testing.assert_allclose(actual, actual[1], rtol=1e-4)
    # But it does on their product, so equal rates for both parts would not do.
    other = permeability(image, relaxation_time=2.0, magic=2.25, tolerance=1e-6, device=device)
    assert other.k_lattice > 1.1 * actual[1]


@pytest.mark.parametrize("inertia", [False, True])
def test_mass_is_kept_over_ten_thousand_steps(device, inertia):
    image = random_pores((6, 7, 8), 0.7)
    drive = {"force": (1e-4, 0.0, 2e-4), "pressure_drop": (0.0, 1e-4, 0.0)}
    flow = flow_through(image, Fluid(0.8, inertia=inertia, **drive), device)
    flow.advance(10_000)
    assert abs(flow.sums()[0][3]) < 1e-12 * image.sum()


@pytest.mark.slow
def test_tensor_is_symmetric_and_its_diagonal_that_of_single_axes(device):
    image = voxels("random-pack", (16, 20, 24), radius=4, solid_fraction=0.3)
    settings = {"relaxation_time": 2.0, "tolerance": 1e-5, "device": device}
    result = permeability(image, voxel_size=1e-6, axis="all", **settings)
    scale = np.abs(result.tensor).max()
    # Stokes flow is reciprocal, on the lattice too.
    np.testing.assert_allclose(result.tensor, result.tensor.T, rtol=0, atol=2e-5 * scale)
    assert (np.linalg.eigvalsh(result.tensor) > 0).all()
    assert np.abs(result.tensor - np.diag(np.diag(result.tensor))).max() > 1e-3 * scale
    single = [permeability(image, voxel_size=1e-6, axis=axis, **settings).k for axis in "xyz"]
    np.testing.assert_allclose(np.diag(result.tensor), single, rtol=1e-12)
    assert result.k == pytest.approx(np.mean(single), rel=1e-12)


def test_pressure_drives_a_periodic_sample_as_a_force_does(device):
    """The gradient of a pressure is a force, also to the lattice: flows are the same."""
    image, gradient = sandstone(16), 1e-5
    fields = []
    for drive in ({"force": (gradient, 0, 0)}, {"pressure_drop": (gradient * 16, 0, 0)}):
        flow = flow_through(image, Fluid(2.0, **drive), device)
        flow.advance(2000)
        fields.append(flow.fields())
    scale = np.abs(fields[0][:3]).max()
    np.testing.assert_allclose(fields[1][:3], fields[0][:3], rtol=0, atol=1e-10 * scale)
    # The pressures differ by one that falls linearly.
    planes = np.arange(16) - 7.5
    difference = (fields[1][3] - fields[0][3] + 3 * gradient * planes[:, None, None])[image != 0]
    np.testing.assert_allclose(difference, difference[0], rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("axis", ["x", "z"])
def test_mirror_images_follow_the_sample_and_have_its_permeability(device, axis):
    image, axis_index = sandstone(16), AXES.index(axis)
    # By time steps alone, which round both images alike.
    settings = {"axis": axis, "relaxation_time": 2.0, "tolerance": 1e-8, "device": device}
    settings["vectors"] = 0
    mirrored = np.flip(image, axis_index)
    both = permeability(np.concatenate([image, mirrored], axis_index), **settings)
    # The order of sites, and so the order of sums, is whichever happens to be fastest.
    found = permeability(image, mirror=True, **settings)
    assert found.k_lattice == pytest.approx(both.k_lattice, rel=1e-12)
    one, other = (permeability(array, **settings).k_lattice for array in (image, mirrored))
    assert other == pytest.approx(one, rel=1e-11)
    assert both.k_lattice != pytest.approx(one, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("mixed", 1e-4)])
def test_less_precision_gives_the_same_permeability(device, precision, tolerance):
    settings = {"relaxation_time": 2.0, "tolerance": 1e-5, "device": device}
    exact = permeability(sandstone(), **settings)
    found = permeability(sandstone(), precision=precision, **settings)
    assert found.converged
    assert found.k_lattice == pytest.approx(exact.k_lattice, rel=tolerance)


# -- driven otherwise ----------------------------------------------------------------------------

# What flows before, and then; from rest as well.
CHANGES = {
    "twice the force": (Fluid(force=(1e-5, 0, 0)), Fluid(force=(2e-5, 0, 0))),
    "another axis": (Fluid(force=(0, 1e-5, 0)), Fluid(force=(1e-5, 0, 0))),
    "another relaxation time": (Fluid(0.8, force=(1e-5, 0, 0)), Fluid(force=(1e-5, 0, 0))),
    "a pressure drop": (Fluid(force=(1e-5, 0, 0)), Fluid(pressure_drop=(1e-4, 0, 0))),
    "a force": (Fluid(pressure_drop=(1e-4, 0, 0)), Fluid(force=(1e-5, 0, 0))),
    "inertia": (Fluid(force=(1e-6, 0, 0)), Fluid(force=(2e-6, 0, 0), inertia=True)),
}


@pytest.mark.parametrize(
    ("propagation", "change"),
    [*itertools.product(["aa"], CHANGES), ("two-lattice", "twice the force")],
)
def test_flow_driven_otherwise_becomes_that_from_rest(device, propagation, change):
    """Momentum between walls would alternate for ever if the change of the force excited it."""
    image, (before, fluid), steps = tight_pores(), CHANGES[change], 1200
    drops = tuple(max(pair) for pair in zip(before.pressure_drop, fluid.pressure_drop, strict=True))
    made = dataclasses.replace(fluid, pressure_drop=drops)
    flow = flow_through(image, made, device, propagation=propagation)
    flow.drive(fluid), flow.rest(), flow.advance(steps)
    expected, mean = flow.fields()[:3], flow.sums()[0][4]
    scale = np.abs(expected).max()
    flow.drive(before), flow.rest(), flow.advance(steps)
    flow.drive(fluid), flow.advance(steps)
    np.testing.assert_allclose(flow.fields()[:3], expected, rtol=0, atol=5e-4 * scale)
    sums = flow.sums()[0]
    # Nor does a step differ from the last one.
    assert sums[0] == pytest.approx(sums[4], rel=2e-5)
    assert sums[4] == pytest.approx(mean, rel=5e-6)


def test_flow_that_alternates_from_step_to_step_is_not_steady(device):
    """As flows of version 0.1 did, whose first momentum was not the momentum of a fluid at rest."""
    image, fluid = tight_pores(), Fluid(force=(1e-5, 0, 0))
    results = []
    for is_wrong in (True, False):
        flow = flow_through(image, fluid, device)
        if is_wrong:
            set_populations(flow, np.zeros((19, *image.shape)))
        steadiness = Steadiness(flow, 0, 1e-5, tolerance=1e-3, interval=100, comm=None)
        while flow.steps < 4000 and not steadiness.is_steady:
            flow.advance(100)
            steadiness.look()
        mean = flow.sums()[0][4] / image.size * fluid.viscosity / 1e-5
        results.append((steadiness.means().permeability, mean, steadiness.means().alternation))
        doubts = steadiness.warnings()
        assert steadiness.is_steady == (not is_wrong)
        assert (steadiness.residual <= 1e-3) == (not is_wrong)
        assert len(doubts) == is_wrong
        assert all("alternates from step to step" in text for text in doubts)
    (wrong, mean, more), (right, _, least) = results
    assert wrong != pytest.approx(right, rel=0.01)
    assert (more > 0.01) and least < 1e-4
    # The mean of two steps is right even then.
    assert mean == pytest.approx(right, rel=2e-3)


# -- inertia -------------------------------------------------------------------------------------


def steady(image, force, device, inertia):
    options = {"relaxation_time": 0.7, "tolerance": 1e-5, "max_steps": 20_000, "vectors": 0}
    fluid = {"force": force, "inertia": inertia, "storage": Storage(), "device": device}
    return permeability(image, axis="x", **fluid, **options).k


@pytest.mark.slow
def test_inertia_of_slow_flow_does_not_count_and_that_of_fast_flow_resists(device):
    image = voxels("spheres", (16, 16, 16), lattice="simple", solid_fraction=0.216)
    stokes = steady(image, 1e-4, device, inertia=False)
    slow, faster = (steady(image, f, device, inertia=True) for f in (1e-7, 2e-4))
    with pytest.warns(RuntimeWarning, match="beyond 0.1"):
        fast = steady(image, 8e-4, device, inertia=True)
    # By symmetry, what inertia changes first is proportional to the square of the velocity.
    assert slow == pytest.approx(stokes, rel=1e-5)
    assert slow > faster > fast
    assert fast < 0.98 * stokes


@pytest.mark.parametrize("inertia", [False, True])
def test_shear_waves_decay_by_viscosity_and_move_with_the_flow_if_it_has_inertia(device, inertia):
    size, steps, speed, height = 32, 200, 0.05, 1e-3
    shape, fluid = (2, 2, size), Fluid(0.7, inertia=inertia)
    wavenumber = 2 * np.pi / size
    velocity = np.zeros((3, *shape))
    velocity[2] = speed
    velocity[0] = height * np.cos(wavenumber * np.arange(size))
    along = np.einsum("qa,azyx->qzyx", D3Q19.velocities, velocity)
    equilibrium = 3 * along + inertia * (4.5 * along**2 - 1.5 * (velocity**2).sum(axis=0))
    flow = flow_through(np.ones(shape, np.uint8), fluid, device)
    set_populations(flow, D3Q19.weights[:, None, None, None] * equilibrium)
    flow.advance(steps)
    mode = np.fft.rfft(flow.fields()[0], axis=2)[0, 0, 1] / (size / 2)
    # Waves of 32 voxels are slower than long ones, and decay less, by some thousandths.
    assert -np.angle(mode) == pytest.approx(inertia * wavenumber * speed * steps, rel=0.01)
    decay = np.exp(-fluid.viscosity * wavenumber**2 * steps)
    assert abs(mode) == pytest.approx(height * decay, rel=0.01)


# -- no flow -------------------------------------------------------------------------------------


def test_without_inertia_no_force_is_too_large(device):
    """The equations are linear: another force changes digits at most."""
    sample, settings = make_sample("channel", (2, 24, 2), axis="y"), {"tolerance": 1e-5}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        slow, fast = (
            permeability(sample, force=force, device=device, **settings) for force in (1e-6, 0.5)
        )
    assert fast.mach > 1
    # Extrapolations keep changes in single precision: digits far below the tolerance differ.
    assert fast.k == pytest.approx(slow.k, rel=1e-7)


def test_flow_that_is_too_fast_is_an_error_that_tells_what_to_do(device):
    sample = make_sample("channel", (2, 12, 2), axis="y")
    with pytest.raises(RunError, match="Mach number.*at step 6, .*force at least .* smaller$"):
        permeability(sample, force=0.1, inertia=True, device=device)
    flow = flow_through(voxels("channel", (2, 12, 2), axis="y"), Fluid(), device)
    set_populations(flow, np.full((19, 2, 12, 2), np.nan))
    assert np.isnan(flow.sums()[1])
