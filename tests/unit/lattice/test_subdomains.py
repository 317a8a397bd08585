"""Division of images into boxes of as many pores, and what a single rank is handed."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lattice_oracle import Image, random_pores
from slipstream.engine.decomposition import grid_boxes, recursive_bisection, whole
from slipstream.engine.errors import InputError
from slipstream.lattice import decompose, make_sample
from slipstream.lattice.domain_decomposition import no_path_text
from slipstream.lattice.storage_tuning import some_planes

PERIODICITIES = list(itertools.product((False, True), repeat=3))


class Weights:
    """An array of weights, and how often it was asked for."""

    def __init__(self, values):
        self.values, self.calls = values, 0

    def __call__(self, boxes, axes):
        self.calls += 1
        return [
            self.values[box.slices()].sum(axis=tuple({*range(self.values.ndim)} - {axis}))
            for box, axis in zip(boxes, axes, strict=True)
        ]

    def of(self, boxes):
        return np.array([self.values[box.slices()].sum() for box in boxes])


def divided(values, parts):
    weigh = Weights(values)
    return recursive_bisection(values.shape, parts, weigh), weigh


def slimness(box):
    return max(box.shape) / min(box.shape)


# -- recursive bisection -------------------------------------------------------------------------


@st.composite
def weights(draw):
    """Return an array of one to three axes; all or most elements may be zero."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    least = draw(st.sampled_from([-20, -1, 0, 1]))
    values = np.random.default_rng(draw(st.integers(0, 99))).integers(least, 5, shape)
    return np.maximum(values, 0)


@given(weights(), st.integers(1, 40))
def test_boxes_cover_every_point_once(values, parts):
    boxes, weigh = divided(values, parts)
    assert len(boxes) == parts
    covered = np.zeros(values.shape, int)
    for box in boxes:
        assert whole(values.shape).intersect(box) == box
        covered[box.slices()] += 1
    assert (covered == 1).all()
    # All ranks take part in each call, so there is one for all cuts of a generation.
    assert weigh.calls <= math.ceil(math.log2(parts))


@given(weights())
def test_no_other_cut_in_two_is_better(values):
    boxes, weigh = divided(values, 2)
    axis = int(np.argmax(values.shape))
    if values.shape[axis] < 2:
        assert sorted(box.size for box in boxes) == [0, values.size]
        return
    (planes,) = Weights(values)([whole(values.shape)], [axis])
    before = np.cumsum(planes)[:-1]
    assert boxes[0].stop[axis] == boxes[1].start[axis]
    if values.any():
        assert weigh.of(boxes).max() == np.maximum(before, values.sum() - before).min()


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 5, 7, 8, 12, 27, 64])
def test_equal_weights_give_equal_boxes_near_cubes(parts):
    boxes, weigh = divided(np.ones((60, 60, 60), np.int64), parts)
    found = weigh.of(boxes)
    # Each of at most six cuts is at most half a plane, of 15 or more, from where it should be.
    assert found.max() / found.mean() < 1.12
    # Where parts are odd in number, the first cut is off the middle.
    assert max(slimness(box) for box in boxes) < (2.2 if parts & (parts - 1) == 0 else 3.1)


def test_where_nothing_weighs_boxes_are_of_equal_size():
    boxes, _ = divided(np.zeros((8, 8, 8), int), 8)
    assert {box.shape for box in boxes} == {(4, 4, 4)}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pores_of_a_sandstone_are_shared_evenly(seed):
    sample = make_sample("sandstone", (128, 128, 128), porosity=0.13, radius=8, seed=seed)
    image = sample.read(whole(sample.shape)).astype(np.int64)
    boxes, weigh = divided(image, 64)
    found = weigh.of(boxes)
    assert found.max() / found.mean() <= 1.06
    # Blocks of the same size would not do.
    cubes = weigh.of(grid_boxes(image.shape, (4, 4, 4)))
    assert cubes.max() / cubes.mean() > 1.8
    slim = sorted(slimness(box) for box in boxes)
    assert slim[32] < 1.5
    assert slim[-1] < 4


# -- a single rank's subdomain ---------------------------------------------------------------------


def padded(image, periodic):
    """Return an image with a shell: its other end along periodic axes, else solid."""
    for axis, joined in enumerate(periodic):
        widths = [(int(axis == other),) * 2 for other in range(3)]
        image = np.pad(image, widths, mode="wrap" if joined else "constant")
    return image


@pytest.mark.parametrize("periodic", PERIODICITIES)
@pytest.mark.parametrize("shape", [(4, 5, 6), (1, 2, 7), (1, 1, 3)])
def test_shell_of_a_single_rank_is_its_own_other_end(periodic, shape):
    image = random_pores(shape)
    image[0, 0] = 1
    subdomain = decompose(Image(image), periodic, [2])
    kept = subdomain.own[1:-1, 1:-1, 1:-1]
    assert (kept <= image).all()
    assert kept.sum() == subdomain.connectivity.kept
    np.testing.assert_array_equal(subdomain.own, padded(kept, periodic))
    assert (subdomain.shape, subdomain.rank, subdomain.neighbours) == (shape, 0, {})
    assert subdomain.boxes == [subdomain.box] == [whole(shape)]
    # The images say where the shell is from.
    copied = np.zeros_like(subdomain.own)
    for source, target in subdomain.images:
        assert source.intersect(subdomain.box) == source
        copied[target.shifted((1, 1, 1)).slices()] += kept[source.slices()]
    copied[1:-1, 1:-1, 1:-1] += kept
    np.testing.assert_array_equal(copied, subdomain.own)


def lonely_pore():
    """Return an image with a way along x, and a pore from which nothing continues."""
    image = np.zeros((5, 5, 6), np.uint8)
    image[0, 0], image[2, 3, 3] = 1, 1
    return image


def test_pores_that_do_not_percolate_are_removed_or_kept():
    image = lonely_pore()
    removed = decompose(Image(image), (True,) * 3, [2])
    kept = decompose(Image(image), (True,) * 3, [2], isolated="keep")
    assert removed.own[3, 4, 4] == 0
    assert removed.own[1:-1, 1:-1, 1:-1].sum() == image.sum() - 1
    np.testing.assert_array_equal(kept.own[1:-1, 1:-1, 1:-1], image)
    assert removed.connectivity == kept.connectivity
    assert (removed.connectivity.pores, removed.connectivity.kept) == (7, 6)


@pytest.mark.parametrize("isolated", ["remove", "keep"])
def test_images_without_a_pore_are_refused_and_those_without_a_path_told(isolated):
    with pytest.raises(InputError, match="^the image has no pore voxel; say which value is pore"):
        decompose(Image(np.zeros((3, 4, 5), np.uint8)), (True,) * 3, [0], isolated=isolated)
    image = lonely_pore()
    for axes, named in (([0], "z"), ([1], "y"), ([0, 1], "z and y"), ([2, 1, 0], "y and z")):
        actual = decompose(Image(image), (True,) * 3, axes, isolated=isolated)
        told = no_path_text(actual.connectivity, axes)
        assert told.startswith(f"no path leads through the pores along {named}: nothing")
        # What would be left of nothing is nothing: then all is kept.
        kept = image.sum() - (isolated == "remove" and 2 in axes)
        assert actual.own[1:-1, 1:-1, 1:-1].sum() == kept
    assert not no_path_text(decompose(Image(image), (True,) * 3, [2]).connectivity, [2])


def test_unknown_partitions_are_refused():
    with pytest.raises(InputError, match="^partition 'other' is unknown; accepted: bisection, c"):
        decompose(Image(np.ones((2, 2, 2), np.uint8)), (True,) * 3, [0], partition="other")


@pytest.mark.parametrize(("voxels", "planes"), [(1, 1), (60, 2), (89, 2), (90, 3), (10**9, 9)])
def test_some_planes_are_those_in_the_middle_between_walls(voxels, planes):
    image = random_pores((9, 5, 6), 0.8)
    subdomain = decompose(Image(image), (True,) * 3, [0], isolated="keep")
    part = some_planes(subdomain, voxels)
    start = part.box.start[0]
    assert part.box.shape == (planes, 5, 6)
    assert abs((9 - planes) - 2 * start) <= 1
    np.testing.assert_array_equal(
        part.own, padded(image[start : start + planes], (False, False, False))
    )
    assert (part.images, part.neighbours) == ([], {})
