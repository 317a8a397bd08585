"""Percolating pores against a plain search from voxel to voxel, and by symmetry."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pore_oracle import NAMED, PERIODICITIES, expected, images, random_image, wanted_axes
from slipstream.engine.device import HostDevice
from slipstream.lattice.percolation import Connectivity, keep_percolating

DEVICES = [HostDevice(threads=threads) for threads in (1, 2, 3, 8)]


def found(image, periodic, axes, device=None):
    """Return the remaining pores of a copy of an image, and its connectivity."""
    left = image.copy()
    return left, keep_percolating(left, image.shape, periodic, axes, device=device)


def check(image, periodic, axes, device=None):
    left, connectivity = found(image, periodic, axes, device)
    wanted, numbers = expected(image, periodic, axes)
    np.testing.assert_array_equal(left, wanted)
    assert connectivity == numbers


@given(images(), st.sampled_from(PERIODICITIES), wanted_axes, st.sampled_from(DEVICES))
def test_what_is_kept_is_what_a_search_finds(image, periodic, axes, device):
    check(image, periodic, axes, device)


@pytest.mark.parametrize("periodic", PERIODICITIES)
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2)])
def test_every_periodicity_and_axis(periodic, axes):
    for shape, porosity in itertools.product([(7, 6, 5), (2, 1, 3), (1, 2, 2)], (0.2, 0.35, 0.5)):
        check(random_image(shape, porosity, 3), periodic, axes)


@pytest.mark.parametrize(("image", "periodic", "axes"), NAMED.values(), ids=NAMED)
def test_named_images_percolate_along(image, periodic, axes):
    for wanted in range(3):
        left, connectivity = found(image, periodic, (wanted,))
        np.testing.assert_array_equal(left, image if wanted in axes else 0)
        assert connectivity.percolates == tuple(axis in axes for axis in range(3))
        assert connectivity.kept == left.sum()
        assert connectivity.pores == image.sum()


@given(
    st.sampled_from([0.1, 0.14, 0.18, 0.25]),
    st.integers(0, 2**32 - 1),
    st.sampled_from(PERIODICITIES),
    wanted_axes,
    st.permutations(range(3)),
    st.tuples(*[st.integers(0, 20)] * 3),
    st.sampled_from(DEVICES),
)
def test_turning_and_shifting_an_image_does_the_same_to_what_is_kept(
    porosity, seed, periodic, axes, order, distances, device
):
    """Near the threshold, where components are large and winding."""
    image = random_image((21, 19, 17), porosity, seed)
    left, numbers = found(image, periodic, axes, device)
    distances = [n if joined else 0 for n, joined in zip(distances, periodic, strict=True)]

    def changed(array):
        return np.ascontiguousarray(np.roll(array, distances, (0, 1, 2)).transpose(order))

    new_axes = tuple(order.index(axis) for axis in axes)
    other, others = found(changed(image), [periodic[axis] for axis in order], new_axes)
    np.testing.assert_array_equal(other, changed(left))
    assert others.components == numbers.components
    assert others.percolates == tuple(numbers.percolates[axis] for axis in order)


@given(images((9, 9, 9)), st.sampled_from(PERIODICITIES), wanted_axes)
def test_nothing_more_is_cleared_the_second_time(image, periodic, axes):
    left, first = found(image, periodic, axes)
    again, second = found(left, periodic, axes)
    np.testing.assert_array_equal(again, left)
    assert second.pores == second.kept == first.kept
    assert second.components <= first.components


def test_porosity_is_that_of_pores_and_of_kept_ones():
    connectivity = Connectivity(200, 50, 40, 3, (True, False, False))
    assert connectivity.porosity == 0.25
    assert connectivity.open_porosity == 0.2
