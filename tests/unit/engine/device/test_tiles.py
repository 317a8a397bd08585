"""Radices, tables of roots and launch sizes of the tiled transforms: integer facts."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from products import NAVIER_STOKES
from slipstream.engine.device import gpu_fft_launch

PRODUCT = NAVIER_STOKES


@given(
    st.integers(1, 20000),
    st.sampled_from([4, 8, 16]),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 3, 6]),
)
def test_radices_multiply_to_the_length(n, budget, first, last):
    radices = gpu_fft_launch.factorise(n, budget, first, last)
    rest = n
    for prime in (2, 3, 5, 7, 11, 13):
        while rest % prime == 0:
            rest //= prime
    assert (radices is None) == (rest > 1)
    if radices:
        assert math.prod(radices) == n


def test_radices_are_few_and_fit_registers():
    assert gpu_fft_launch.factorise(512, 8) == (8, 8, 8)
    assert gpu_fft_launch.factorise(1024, 16) == (16, 8, 8)
    assert gpu_fft_launch.factorise(512, 16, first=2, last=3) == (8, 16, 4)
    assert gpu_fft_launch.factorise(13, 16, first=2, last=3) == (13, 1)


@pytest.mark.parametrize("real", ["float32", "float64"])
@given(n=st.integers(1, 20000))
def test_kernels_fit_the_machine(real, n):
    limit = 100 * 1024
    for kernel in (
        gpu_fft_launch.strided_fft(n, real, -1, limit),
        gpu_fft_launch.fused_product(n, real, 3, 5, PRODUCT, limit),
    ):
        if kernel is None:
            continue
        blocks = kernel.constants["BLOCKS_PER_SM"]
        assert kernel.shared_bytes <= limit
        assert kernel.threads % 32 == 0
        assert 32 <= kernel.threads <= 1024
        assert blocks * kernel.threads <= 2048
        assert blocks * (kernel.shared_bytes + 1024) <= 228 * 1024


def test_lengths_that_do_not_fit_have_no_kernel():
    assert gpu_fft_launch.strided_fft(16384, "float64", -1) is None
    assert gpu_fft_launch.strided_fft(17, "float64", -1) is None
    assert gpu_fft_launch.fused_product(4096, "float64", 3, 5, PRODUCT) is None


@pytest.mark.parametrize(
    ("n", "real", "group"), [(512, "float64", 3), (512, "float32", 3), (256, "float32", 5)]
)
def test_products_go_back_in_groups_where_that_makes_room_for_blocks(n, real, group):
    kernel = gpu_fft_launch.fused_product(n, real, 3, 5, PRODUCT)
    assert kernel.constants["GROUP"] == group


@given(n=st.integers(2, 4096), inputs=st.integers(1, 8), outputs=st.integers(1, 12))
def test_points_that_stay_in_registers_have_a_thread_for_each_butterfly(n, inputs, outputs):
    kernel = gpu_fft_launch.fused_product(n, "float64", inputs, outputs, PRODUCT)
    if kernel and kernel.constants["GROUP"] < outputs:
        butterflies = n // kernel.constants["RADICES"][-1] * kernel.constants["PAIRS"]
        assert kernel.constants["GROUP"] >= inputs
        assert kernel.threads >= butterflies


def test_launch_covers_all_columns():
    kernel = gpu_fft_launch.strided_fft(512, "float64", -1)
    assert kernel.constants["LANES"] == 8
    launch = kernel.launch(17, 5, 2)
    assert (launch.blocks, launch.rows, launch.layers) == (3, 5, 2)


@pytest.mark.parametrize("n", [1, 2, 7, 12, 1000, 1024])
def test_roots(n):
    table = gpu_fft_launch.roots(n, np.float64)
    angle = 2 * np.arccos(np.longdouble(-1)) * np.arange(n) / n
    error = max(np.abs(table.real - np.cos(angle)).max(), np.abs(table.imag + np.sin(angle)).max())
    assert error <= np.finfo(np.float64).eps / 2  # at most one rounding of numbers below one
    np.testing.assert_array_equal(table[1:], table[:0:-1].conj())
