"""Copies of many strided boxes together, element by element against NumPy's assignment."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.engine.exchange import copy_boxes

POISON = 777
REALS = st.sampled_from(["float32", "float64"])
# Rows shorter and longer than the unit of moves along the last axis.
LENGTHS = st.sampled_from([0, 1, 2, 3, 5, 7, 8, 9, 17])


@st.composite
def views(draw, shape):
    """Return how to take a view of a shape: any order of axes, any strides, an offset."""
    order = draw(st.permutations(range(3)))
    steps = draw(st.tuples(*[st.sampled_from([1, 2, 3, -1, -2])] * 3))
    return shape, tuple(order), steps


class Array:
    """Memory on a device, and a view of some of it."""

    def __init__(self, device, recipe, dtype, seed=None):
        shape, order, steps = recipe
        sizes = [n * abs(step) + 1 for n, step in zip(shape, steps, strict=True)]
        memory = np.full([sizes[axis] for axis in order], POISON, dtype)
        if seed is not None:
            memory[...] = np.random.default_rng(seed).standard_normal(memory.shape)
        self.before, self.memory = memory.copy(), device.array(memory)
        self._device, self._recipe = device, recipe
        self.view = self._view_of(self.memory)
        assert self.view.shape == shape

    def _view_of(self, memory):
        shape, order, steps = self._recipe
        parts = [slice(1, None, step) if step > 0 else slice(None, 0, step) for step in steps]
        return memory.transpose(np.argsort(order))[tuple(parts)][tuple(slice(n) for n in shape)]

    def content(self):
        return self._device.to_host(self.memory)

    def values(self):
        return self._view_of(self.content())

    def expected(self, values):
        """Return the memory with other values in the view, and all else as it was."""
        memory = self.before.copy()
        self._view_of(memory)[...] = values
        return memory


@pytest.mark.slow
@given(REALS, st.lists(st.tuples(LENGTHS, LENGTHS, LENGTHS), max_size=4), st.data())
def test_views_of_any_strides_are_moved_and_nothing_else_is_touched(device, dtype, shapes, data):
    sources = [Array(device, data.draw(views(s)), dtype, seed) for seed, s in enumerate(shapes)]
    targets = [Array(device, data.draw(views(s)), dtype) for s in shapes]
    operation = copy_boxes(
        device, [(a.view, b.view) for a, b in zip(sources, targets, strict=True)]
    )
    for _ in range(2):
        device.run(operation)
        for source, target in zip(sources, targets, strict=True):
            assert source.content().tobytes() == source.before.tobytes()
            expected = target.expected(source.values())
            np.testing.assert_array_equal(target.content(), expected, strict=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_survive_whatever_they_mean(device, dtype):
    """Not-a-numbers with a payload, negative zeros and denormal numbers are not arithmetic."""
    integers = {"float32": np.uint32, "float64": np.uint64}[dtype]
    bits = np.random.default_rng(0).integers(0, np.iinfo(integers).max, (3, 4, 40), integers)
    bits[0, 0, :3] = 1, integers(1) << (np.iinfo(integers).bits - 1), np.iinfo(integers).max
    source = device.array(bits.view(dtype))
    for axes in ((0, 1, 2), (2, 1, 0)):  # along rows, and across them
        target = device.zeros(tuple(bits.shape[axis] for axis in axes), dtype)
        device.run(copy_boxes(device, [(source.transpose(axes), target)]))
        moved = device.to_host(target).view(integers)
        np.testing.assert_array_equal(moved, bits.transpose(axes))


def test_parts_of_one_array_may_be_moved_within_it(device):
    """As halos of periodic boxes are: sources and targets are apart, if interleaved."""
    values = np.random.default_rng(0).standard_normal((4, 5, 12))
    array = device.array(values)
    pairs = [(np.s_[:3, :, 10:11], np.s_[:3, :, :1]), (np.s_[1:2, :, 1:], np.s_[3:4, :, 1:])]
    device.run(copy_boxes(device, [(array[source], array[target]) for source, target in pairs]))
    expected = values.copy()
    for source, target in pairs:
        expected[target] = values[source]
    np.testing.assert_array_equal(device.to_host(array), expected)


def test_an_operation_keeps_its_arrays_alive(device):
    source, target = device.array(np.ones((2, 3, 4))), device.zeros((2, 3, 4), "float64")
    operation = copy_boxes(device, [(source[:, ::2], target[:, 1:])])
    del source
    waste = [device.zeros((2, 3, 4), "float64") for _ in range(20)]
    device.run(operation)
    assert device.to_host(target).sum() == 16
    assert len(waste) == 20


def test_nothing_may_be_moved(device):
    empty = device.zeros((0, 3, 4), "float64")
    device.run(copy_boxes(device, []))
    device.run(copy_boxes(device, [(empty, empty)]))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ((2, 3, 4), (2, 4, 3)),
        ((1, 1, 9), (1, 1, 8)),
        ((2, 3, 4), (2, 3, 1)),
        ((0, 3, 4), (2, 3, 4)),
        ((2, 3, 4), (0, 3, 4)),
    ],
)
def test_pairs_of_unequal_shapes_are_errors(device, source, target):
    good = device.zeros((2, 2, 2), "float64"), device.zeros((2, 2, 2), "float64")
    pair = device.zeros(source, "float64"), device.zeros(target, "float64")
    with pytest.raises(ValueError, match="cannot move"):
        copy_boxes(device, [good, pair])
