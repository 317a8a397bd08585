"""Domains against NumPy's slices, flips and padding of the whole sample."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import refused
from slipstream.engine.decomposition import Box, grid_boxes, whole
from slipstream.lattice.flow_domain import Domain

AXES = ("z", "y", "x")
PORE = -1


class Sample:
    """A sample in memory that notes the parts that are read."""

    def __init__(self, values):
        self.values, self.shape, self.boxes = values, values.shape, []

    def read(self, box):
        self.boxes.append(box)
        return self.values[box.slices()].copy()


def sample(shape, seed=0):
    return Sample(np.random.default_rng(seed).integers(0, 2, shape, np.uint8))


def transformed(values, pore, crop=None, mirror=(), buffer=0, buffer_axis="z"):
    """Return the domain that is asked for, all of it."""
    if crop is not None:
        values = values[tuple(slice(*pair) for pair in crop)]
    for name in mirror:
        axis = AXES.index(name)
        values = np.concatenate([values, np.flip(values, axis)], axis)
    widths = [(buffer, buffer) if name == buffer_axis else (0, 0) for name in AXES]
    return np.pad(values, widths, constant_values=pore)


def interval(draw, size, smallest):
    low, high = sorted(draw(st.tuples(*[st.integers(0, size)] * 2)))
    return (low, high) if high - low >= smallest else (0, size)


@st.composite
def cases(draw):
    shape = draw(st.tuples(*[st.integers(1, 6)] * 3))
    return shape, {
        "crop": draw(st.sampled_from([None, tuple(interval(draw, n, 1) for n in shape)])),
        "mirror": tuple(draw(st.sets(st.sampled_from(AXES)))),
        "buffer": draw(st.integers(0, 3)),
        "buffer_axis": draw(st.sampled_from(AXES)),
    }


@given(case=cases(), data=st.data())
def test_any_box_is_that_of_the_whole_domain(case, data):
    shape, options = case
    source = sample(shape)
    domain = Domain(source, **options)
    expected = transformed(source.values, 1, **options)
    assert domain.shape == expected.shape
    box = Box(*zip(*[interval(data.draw, n, 0) for n in domain.shape], strict=True))
    found = domain.read(box)
    assert found.dtype == np.uint8
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, expected[box.slices()])


@given(case=cases(), data=st.data())
def test_of_the_source_only_what_a_box_needs_is_read_and_once(case, data):
    shape, options = case
    source = sample(shape)
    domain = Domain(source, **options)
    box = Box(*zip(*[interval(data.draw, n, 0) for n in domain.shape], strict=True))
    domain.read(box)
    index = transformed(np.arange(source.values.size).reshape(shape), PORE, **options)
    used = index[box.slices()]
    used = np.unravel_index(used[used != PORE], shape)
    (read,) = source.boxes
    if used[0].size:
        assert read.start == tuple(along.min() for along in used)
        assert read.stop == tuple(along.max() + 1 for along in used)
    else:
        assert read.size == 0


@given(cases())
def test_the_domain_knows_where_the_sample_is(case):
    shape, options = case
    domain = Domain(sample(shape), **options)
    flags = transformed(np.zeros(shape, int), PORE, **options) != PORE
    inside = np.zeros(domain.shape, bool)
    inside[domain.sample.slices()] = True
    np.testing.assert_array_equal(inside, flags)
    axis = AXES.index(options["buffer_axis"])
    along = flags.any(axis=tuple({0, 1, 2} - {axis}))
    assert domain.sample_fraction == along.mean()


@pytest.mark.parametrize("mirror", ["", "x", "y", "z", "xy", "zx", "xyz"])
def test_mirrored_samples_read_the_same_backwards(mirror):
    """So their last layer is the first one again, which they touch where they are repeated."""
    domain = Domain(sample((4, 5, 6)), mirror=mirror)
    values = domain.read(whole(domain.shape))
    for name in mirror:
        np.testing.assert_array_equal(values, np.flip(values, AXES.index(name)))


def test_domains_of_domains():
    source = sample((4, 5, 6))
    outer = Domain(
        Domain(source, buffer=2, buffer_axis="x"), crop=((1, 3), (0, 5), (1, 9)), mirror="z"
    )
    expected = transformed(source.values, 1, buffer=2, buffer_axis="x")
    expected = transformed(expected, 1, crop=((1, 3), (0, 5), (1, 9)), mirror="z")
    for box in grid_boxes(outer.shape, (3, 2, 4)):
        np.testing.assert_array_equal(outer.read(box), expected[box.slices()])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop": ((0, 5), (0, 5), (0, 6))}, r"image.crop: \[0, 5\] along z is beyond .* 4 voxels"),
        ({"crop": ((0, 4), (0, 5), (2, 7))}, r"image.crop: \[2, 7\] along x is beyond .* 6 voxels"),
    ],
)
def test_mistakes_are_told_in_one_line(options, message):
    with refused(message):
        Domain(sample((4, 5, 6)), **options)


def test_boxes_beyond_the_domain_are_refused():
    with pytest.raises(ValueError, match="no box"):
        Domain(sample((4, 5, 6)), buffer=1).read(Box((0, 0, 0), (7, 5, 6)))
