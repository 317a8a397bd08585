"""Rows of points that lie in the memory of their modes."""

import numpy as np
import pytest

from slipstream.engine.fft.device_exchange import has_padding, padded_row, whole_rows


def in_one_memory(shape):
    """Return points and modes of a transform in place, as FFTW lays them out."""
    modes = np.zeros((*shape[:-1], shape[-1] // 2 + 1), complex)
    return modes.view(float)[..., : shape[-1]], modes


@pytest.mark.parametrize("nx", [1, 8, 9])
def test_rows_with_their_padding_are_the_memory_of_the_modes(nx):
    points, modes = in_one_memory((2, 3, nx))
    assert has_padding(points, modes)
    whole = whole_rows(points)
    assert whole.shape == (2, 3, padded_row(nx))
    assert whole.flags.c_contiguous
    assert np.shares_memory(whole, modes)
    assert whole.nbytes == modes.nbytes


def test_parts_of_points_have_padding_too():
    points, modes = in_one_memory((4, 6, 10))
    assert has_padding(points[1:3, 2:5], modes)


def test_padding_outside_of_the_modes_is_not_ours():
    points, modes = in_one_memory((4, 6, 10))
    assert not has_padding(points, np.zeros_like(modes))
    assert not has_padding(points, modes[:-1])  # the last rows' padding is somebody else's
    assert not has_padding(np.zeros((4, 6, 10)), modes)  # nothing is padded
    assert not has_padding(points.astype(complex), modes)
