"""Synthetic samples against formulas evaluated at every voxel."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import refused
from slipstream.engine.decomposition import Box, grid_boxes, whole
from slipstream.engine.errors import InputError
from slipstream.lattice import samples
from slipstream.lattice.samples import SAMPLES, make_sample

AXES = ("z", "y", "x")
EXAMPLES = {
    "channel": {"axis": "y"},
    "duct": {"axis": "x"},
    "spheres": {"lattice": "body-centred", "solid_fraction": 0.6},
    "random-pack": {"radius": 3.0, "solid_fraction": 0.2, "seed": 4},
    "sandstone": {"radius": 3.0, "porosity": 0.3, "seed": 5},
}


def mask_of(sample):
    return sample.read(whole(sample.shape))


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_arrays_to_numpy(name):
    sample = make_sample(name, (12, 12, 12), **EXAMPLES[name])
    found = np.asarray(sample)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, mask_of(sample))
    assert np.asarray(sample, bool).dtype == bool
    assert np.mean(sample) == mask_of(sample).mean()


def assert_drawn(mask, centres, radius, shape):
    """Check voxels by the distance to each sphere and to its images; none is on a surface."""
    nearest = np.full(shape, np.inf)
    most = math.ceil(radius / min(shape))
    for centre in centres:
        squares = []
        for size, place in zip(shape, centre, strict=True):
            images = place + size * np.arange(-most, most + 1)
            squares.append(((np.arange(size)[:, None] + 0.5 - images) ** 2).min(1))
        nearest = np.minimum(nearest, sum(np.meshgrid(*squares, indexing="ij")))
    clear = np.abs(nearest - radius**2) > 1e-9
    assert clear.mean() > 0.99
    np.testing.assert_array_equal(mask[clear], nearest[clear] > radius**2)


def assert_apart(centres, diameter, shape):
    """Check that no two centres are nearer than a diameter, periodic images included."""
    steps = centres[:, None] - centres[None]
    steps -= np.array(shape) * np.round(steps / shape)
    distances = np.sqrt((steps**2).sum(-1))[np.triu_indices(len(centres), 1)]
    assert (distances >= diameter * (1 - 1e-12)).all()


@pytest.mark.parametrize("axis", AXES)
def test_channel_has_walls_at_both_ends(axis):
    shape = (5, 6, 7)
    at = np.indices(shape)[AXES.index(axis)]
    expected = (at > 0) & (at < shape[AXES.index(axis)] - 1)
    np.testing.assert_array_equal(mask_of(make_sample("channel", shape, axis=axis)), expected)


@pytest.mark.parametrize("axis", AXES)
def test_duct_has_walls_around(axis):
    shape = (5, 6, 7)
    expected = np.ones(shape, bool)
    for number, at in enumerate(np.indices(shape)):
        if number != AXES.index(axis):
            expected &= (at > 0) & (at < shape[number] - 1)
    np.testing.assert_array_equal(mask_of(make_sample("duct", shape, axis=axis)), expected)


PLACES = {
    "simple": [(1, 1, 1)],
    "body-centred": [(0, 0, 0), (1, 1, 1)],
    "face-centred": [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0)],
}
# Radii in cells of edge 1 at which neighbours touch, and the pores close.
TOUCHING = {"simple": 1 / 2, "body-centred": 3**0.5 / 4, "face-centred": 8**-0.5}
CLOSED = {"simple": 0.5**0.5, "body-centred": 0.75 * 0.5**0.5, "face-centred": 6**-0.5}
PACKING = {
    "simple": math.pi / 6,
    "body-centred": math.pi * 3**0.5 / 8,
    "face-centred": math.pi * 2**0.5 / 6,
}


@pytest.mark.parametrize("part", [0.05, 0.5, 0.8, 0.99])
@pytest.mark.parametrize("lattice", PLACES)
def test_lattices_of_spheres(lattice, part):
    size = 15
    radius = part * CLOSED[lattice] * size
    found = mask_of(make_sample("spheres", (size,) * 3, lattice=lattice, radius=radius))
    assert_drawn(found, np.array(PLACES[lattice]) * size / 2, radius, (size,) * 3)


@pytest.mark.parametrize("lattice", PLACES)
def test_fraction_of_touching_spheres_is_that_of_close_packings(lattice):
    sample = make_sample("spheres", (8, 8, 8), lattice=lattice, solid_fraction=PACKING[lattice])
    assert sample.sphere_radius == pytest.approx(8 * TOUCHING[lattice], rel=1e-12)


@pytest.mark.parametrize("fraction", [0.1, 0.4, 0.7, 0.85, 0.95])
@pytest.mark.parametrize("lattice", PLACES)
def test_voxels_of_lattices_have_the_fraction_that_is_asked_for(lattice, fraction):
    sample = make_sample("spheres", (96,) * 3, lattice=lattice, solid_fraction=fraction)
    # As many voxels are on surfaces, half of them on either side, but not quite.
    assert 1 - mask_of(sample).mean() == pytest.approx(fraction, abs=1e-3)


@given(
    shape=st.tuples(*[st.integers(1, 9)] * 3),
    radius=st.floats(0.1, 12),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_any_box_of_any_spheres(shape, radius, seed, data):
    """Radii larger than the period, too."""
    centres = np.random.default_rng(seed).random((data.draw(st.integers(0, 3)), 3)) * shape
    mask = samples.draw_spheres(centres, radius, shape, whole(shape))
    if len(centres):
        assert_drawn(mask, centres, radius, shape)
    else:
        assert mask.all()
    pairs = [sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2))) for n in shape]
    box = Box(*zip(*pairs, strict=True))
    part = samples.draw_spheres(centres, radius, shape, box)
    assert part.dtype == np.uint8
    np.testing.assert_array_equal(part, mask[box.slices()])


@pytest.mark.parametrize("name", SAMPLES)
def test_boxes_of_all_ranks_make_the_sample(name):
    shape = (24, 24, 24) if name == "spheres" else (20, 24, 31)
    mask = mask_of(make_sample(name, shape, **EXAMPLES[name]))
    assert mask.dtype == np.uint8
    assert mask.flags.c_contiguous
    assert 0 < mask.mean() < 1
    assert mask.max() == 1
    for box in [*grid_boxes(shape, (3, 2, 2)), Box((4, 4, 4), (4, 9, 9))]:
        part = make_sample(name, shape, **EXAMPLES[name]).read(box)
        assert part.shape == box.shape
        np.testing.assert_array_equal(part, mask[box.slices()])


@pytest.mark.parametrize(
    ("shape", "radius"), [((40, 30, 20), 2.5), ((13, 14, 30), 6.0), ((9, 9, 9), 1.0)]
)
def test_packs_are_made_of_separate_spheres(shape, radius):
    sample = make_sample("random-pack", shape, radius=radius, solid_fraction=0.28, seed=3)
    wanted = 0.28 * math.prod(shape) / (4 / 3 * math.pi * radius**3)
    assert len(sample.centres) == round(wanted) > 0
    assert_apart(sample.centres, 2 * radius, shape)
    assert_drawn(mask_of(sample), sample.centres, radius, shape)


def test_packs_take_what_fits_of_random_candidates_in_their_order():
    shape, radius, seed = (30, 22, 26), 3.0, 7
    centres = make_sample(
        "random-pack", shape, radius=radius, solid_fraction=0.3, seed=seed
    ).centres
    random, expected = np.random.default_rng(seed), []
    while len(expected) < len(centres):
        candidate = random.random(3) * shape
        steps = np.array(expected).reshape(-1, 3) - candidate
        steps -= np.array(shape) * np.round(steps / shape)
        if ((steps**2).sum(1) >= (2 * radius) ** 2).all():
            expected.append(candidate)
    np.testing.assert_array_equal(centres, expected)


def test_dense_packs_are_reached():
    sample = make_sample("random-pack", (64, 64, 64), radius=5, solid_fraction=0.35)
    assert_apart(sample.centres, 10, sample.shape)
    assert 1 - mask_of(sample).mean() == pytest.approx(0.35, abs=3e-3)


def test_packs_that_have_no_room_are_refused():
    sample = make_sample("random-pack", (48, 48, 48), radius=3, solid_fraction=0.38)
    with pytest.raises(InputError, match=r"sample.solid_fraction is 0.38; .* up to 0.3\d\d,"):
        mask_of(sample)


@pytest.mark.parametrize("seed", [0, 1])
def test_sandstone_has_the_porosity_that_is_asked_for(seed):
    sample = make_sample("sandstone", (128, 128, 128), radius=8, seed=seed)
    assert mask_of(sample).mean() == pytest.approx(0.13, abs=2e-3)
    assert sample.grain_radius == pytest.approx(8, rel=0.05)
    volume = 4 / 3 * math.pi * 8**3
    assert len(sample.centres) == round(-math.log(0.13) * 128**3 / volume)


def test_sandstone_of_many_voxels_is_probed_by_some(monkeypatch):
    monkeypatch.setattr(samples, "_PROBED_VOXELS", 2**16)
    sample = make_sample("sandstone", (96, 110, 120), radius=7, porosity=0.2, seed=2)
    assert mask_of(sample).mean() == pytest.approx(0.2, abs=4e-3)


def test_sandstone_is_the_union_of_its_grains():
    sample = make_sample("sandstone", (12, 17, 20), radius=4, porosity=0.3)
    assert_drawn(mask_of(sample), sample.centres, sample.grain_radius, sample.shape)


@pytest.mark.parametrize("name", ["random-pack", "sandstone"])
def test_seeds_make_other_samples(name):
    options = {**EXAMPLES[name]}
    first = mask_of(make_sample(name, (20, 20, 20), **options))
    second = mask_of(make_sample(name, (20, 20, 20), **{**options, "seed": 9}))
    assert (first != second).mean() > 0.1


CUBE = (20, 20, 20)
MISTAKES = [
    ("granite", CUBE, {}, "sample 'granite' is unknown; accepted: channel, duct"),
    ("channel", CUBE, {}, "sample.axis is missing: 'channel' needs it"),
    ("channel", CUBE, {"axis": "w"}, "sample.axis is 'w'; accepted: x, y, z"),
    ("channel", CUBE, {"axis": "x", "seed": 1}, "sample.seed is no parameter of 'channel'; .*axis"),
    ("channel", (2, 20, 20), {"axis": "z"}, "sample.shape is .* 3 voxels or more along z"),
    ("channel", (20, 20), {"axis": "z"}, r"sample.shape is \(20, 20\); accepted: three"),
    ("channel", (20, 20, 0), {"axis": "z"}, "sample.shape"),
    ("channel", (20, 20, 1.5), {"axis": "z"}, "sample.shape"),
    ("duct", (20, 2, 20), {"axis": "z"}, "sample.shape is .* 3 voxels or more along y"),
    ("spheres", (20, 20, 21), {"radius": 3}, "sample.shape .* a cube"),
    ("spheres", CUBE, {}, "sample.radius, sample.solid_fraction: give one"),
    ("spheres", CUBE, {"radius": 3, "solid_fraction": 0.1}, "give one"),
    ("spheres", CUBE, {"radius": 3, "lattice": "cubic"}, "sample.lattice is 'cubic'; accepted: s"),
    ("spheres", CUBE, {"radius": 0}, "sample.radius is 0; accepted: a number above 0 up to 14.14"),
    ("spheres", CUBE, {"radius": 15}, "sample.radius is 15; accepted"),
    ("spheres", CUBE, {"solid_fraction": 0.97}, "sample.solid_fraction is 0.97; .* up to 0.9651"),
    ("random-pack", CUBE, {"radius": 3}, "sample.solid_fraction is missing"),
    ("random-pack", CUBE, {"radius": 11, "solid_fraction": 0.1}, "radius is 11; .* up to 10"),
    ("random-pack", CUBE, {"radius": 0.5, "solid_fraction": 0.1}, "radius is 0.5; .* from 1"),
    ("random-pack", CUBE, {"radius": 3, "solid_fraction": 0.4}, "fraction is 0.4; .* up to 0.384"),
    ("random-pack", CUBE, {"radius": 8, "solid_fraction": 0.1}, "fraction is 0.1; .* from 0.134"),
    ("sandstone", CUBE, {"radius": 3, "porosity": 0}, "sample.porosity is 0; accepted"),
    ("sandstone", CUBE, {"radius": 3, "porosity": 1.2}, "sample.porosity is 1.2; accepted"),
    ("sandstone", CUBE, {"radius": "big"}, "sample.radius is 'big'; accepted"),
    ("sandstone", CUBE, {"radius": math.nan}, "sample.radius is nan; accepted"),
    ("sandstone", CUBE, {"radius": 3, "seed": -1}, "sample.seed is -1; accepted"),
]


@pytest.mark.parametrize(("name", "shape", "parameters", "message"), MISTAKES)
def test_mistakes_are_told_in_one_line(name, shape, parameters, message):
    with refused(message):
        make_sample(name, shape, **parameters)


@pytest.mark.parametrize("name", SAMPLES)
def test_boxes_beyond_a_sample_are_refused(name):
    sample = make_sample(name, (24, 24, 24), **EXAMPLES[name])
    with pytest.raises(ValueError, match="no box"):
        sample.read(Box((0, 0, 0), (24, 24, 25)))
