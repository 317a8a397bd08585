"""Kernels round each product and each sum, on any processor and at any level of optimisation."""

import ctypes

import numpy as np
import pytest

from slipstream.engine import kernels
from slipstream.engine.device import host_compiler

# In a loop, compilers vectorise products of complex numbers, whose parts alternate in memory.
LOOP = """
extern "C" void multiply(const Complex* RESTRICT phases, Complex* RESTRICT values, Index count) {
  for (Index i = 0; i < count; ++i)
    values[i] = conjugate(shift_phase(phases, 0, i, i, i, count, count, count)) * values[i];
}
"""


def product(a, b):
    return a.real * b.real - a.imag * b.imag + 1j * (a.real * b.imag + a.imag * b.real)


@pytest.mark.parametrize("level", ["0", "1", "2", "3"])
def test_products_of_complex_numbers_are_not_fused(level, monkeypatch):
    monkeypatch.setenv(host_compiler.OPTIMISATION, level)
    text = kernels.source("dealiasing.hpp", {"REAL": "double"}) + LOOP
    library = ctypes.CDLL(str(host_compiler.compile_library(text)))
    random = np.random.default_rng(1)
    count = 1000
    parts = random.standard_normal((4 * count, 2))
    phases, values = parts[: 3 * count].view(complex)[:, 0], parts[3 * count :].copy()
    x, y, z = np.split(phases, 3)
    expected = product(np.conj(product(product(z, y), x)), values.view(complex)[:, 0])
    addresses = [ctypes.c_void_p(array.ctypes.data) for array in (phases, values)]
    library.multiply(*addresses, ctypes.c_longlong(count))
    assert np.array_equal(values.view(complex)[:, 0], expected)
