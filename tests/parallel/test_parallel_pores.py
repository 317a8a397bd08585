"""Percolating pores of divided images against a plain search in the whole image."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fft_cases import alike, together
from pore_oracle import NAMED, PERIODICITIES, expected, images, random_image, wanted_axes
from slipstream.engine.decomposition import slabs, split
from slipstream.lattice.domain_decomposition import pore_widths
from slipstream.lattice.percolation import keep_percolating

pytestmark = pytest.mark.several_ranks


def planes(comm, image):
    """Return a copy of this rank's planes of an image."""
    rank, ranks = (0, 1) if comm is None else (comm.rank, comm.size)
    return image[slice(*split(image.shape[0], ranks)[rank])].copy()


def check(comm, image, periodic, axes, kept, numbers):
    """Compare this rank's part of the result with the result of the whole image."""
    voxels = planes(comm, image)
    actual = keep_percolating(voxels, image.shape, periodic, axes, comm)

    def compare():
        np.testing.assert_array_equal(voxels, planes(comm, kept))
        assert actual == numbers

    together(comm, compare)


@alike(examples=50)
@given(images(), st.sampled_from(PERIODICITIES), wanted_axes)
def test_what_is_kept_is_what_a_search_finds(comm, image, periodic, axes):
    """Images of fewer planes than ranks are among them."""
    check(comm, image, periodic, axes, *expected(image, periodic, axes))


@pytest.mark.parametrize(("image", "periodic", "axes"), NAMED.values(), ids=NAMED)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_named_images_percolate_along_any_axis(comm, image, periodic, axes, order):
    image, periodic = image.transpose(order), [periodic[axis] for axis in order]
    for axis in range(3):
        check(comm, image, periodic, (axis,), *expected(image, periodic, (axis,)))


@alike(examples=25)
@given(images(), st.sampled_from(PERIODICITIES))
def test_every_number_of_ranks_counts_the_same_widths_of_pores(comm, image, periodic):
    whole = slabs(image.shape, 0, 1)[0]
    wanted = pore_widths(image, whole, image.shape, periodic, None)
    rank, ranks = (0, 1) if comm is None else (comm.rank, comm.size)
    slab = slabs(image.shape, 0, ranks)[rank]
    found = pore_widths(planes(comm, image), slab, image.shape, periodic, comm)
    together(comm, lambda: pytest.approx(wanted, rel=1e-14) == found or pytest.fail(f"{found}"))


@alike(examples=15)
@given(
    st.sampled_from([0.12, 0.15, 0.2]), st.integers(0, 2**32 - 1), st.sampled_from(PERIODICITIES)
)
def test_every_number_of_ranks_gives_the_same(comm, porosity, seed, periodic):
    """Near the threshold, where components go to and fro between ranks."""
    image = random_image((20, 18, 16), porosity, seed)
    kept = image.copy()
    numbers = keep_percolating(kept, image.shape, periodic, (0,))
    check(comm, image, periodic, (0,), kept, numbers)
