"""The tiled transforms against numpy.fft, on the CPU build of their kernels."""

import ctypes
import functools
import math
import subprocess
from importlib import resources

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream.device import tiled_fft

LENGTHS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 18, 24, 30, 40, 48, 60, 64, 96, 100, 128, 256, 384, 512,
           1000, 1024)  # fmt: skip
# Every length in one precision, and both where the two choose different radices.
CASES = [(n, ("float64", "float32")[i % 2]) for i, n in enumerate(LENGTHS)]
CASES += [(7, "float64"), (128, "float32"), (256, "float64"), (512, "float32"), (1024, "float64")]
CASES = sorted(set(CASES))
POISON = 777.0

PRODUCT = "navier_stokes_product.hpp"


def navier_stokes(u, v, w):
    return np.stack([u * u - w * w, u * v, u * w, v * v - w * w, v * w])


@pytest.fixture(scope="session")
def compile_kernel(tmp_path_factory):
    """Return a function (header, name, constants) -> compiled kernel."""
    folder = tmp_path_factory.mktemp("kernels")
    headers = resources.files("slipstream.kernels")

    @functools.cache
    def library(header, constants):
        lines = []
        for name, value in constants:
            text = ", ".join(map(str, value)) if isinstance(value, tuple) else value
            lines.append(f"#define {name} {text}")
        base = folder / f"{abs(hash((header, constants)))}"
        base.with_suffix(".cpp").write_text("\n".join([*lines, f'#include "{header}"\n']))
        command = ["g++", "-O1", "-march=native", "-std=c++17", "-fopenmp", "-shared", "-fPIC",
                   "-w", f"-I{headers}", f"{base}.cpp", "-o", f"{base}.so"]  # fmt: skip
        subprocess.run(command, check=True)
        return ctypes.CDLL(f"{base}.so")

    def compile_kernel(header, name, constants):
        function = getattr(library(header, tuple(sorted(constants.items()))), name)

        def call(*arguments):
            function(*map(c_argument, arguments))

        return call

    return compile_kernel


def c_argument(value):
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    if isinstance(value, np.floating):
        return np.ctypeslib.as_ctypes_type(value.dtype)(value.item())
    return ctypes.c_longlong(value)


def random_complex(shape, real, seed=0):
    values = np.random.default_rng(seed).standard_normal((*shape, 2)).astype(real)
    return values.view(np.result_type(real, np.complex64))[..., 0]


def assert_close(actual, expected, n, real):
    # A pass rounds each value a few times, and its twiddles are right to a few eps: so errors stay
    # below some eps per pass of the largest value, while any wrong twiddle or index errs by ~1.
    tolerance = 8 * np.finfo(real).eps * (1 + math.log2(n)) * np.abs(expected).max(initial=1e-30)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def kept_variants(n):
    """Return (low, high): all modes, the 2/3 rule, none above zero, none below, one, few."""
    pairs = {(n - n // 2, n // 2), ((n - 1) // 3 + 1, (n - 1) // 3), (0, n // 2), (n // 2 + 1, 0)}
    return sorted({(low, high) for low, high in pairs | {(1, 0)} if low + high <= n})


class Strided:
    """Run `strided_fft` on arrays with guard bands, checking that these stay as they were."""

    def __init__(self, compile_kernel, n, real, sign):
        self.n, self.real, self.sign = n, np.dtype(real), sign
        self.kernel = tiled_fft.strided_fft(n, real, sign)
        self.run = compile_kernel(self.kernel.header, self.kernel.name, self.kernel.constants)
        self.roots = tiled_fft.roots(n, real)

    def check(self, fields, outer, columns, low, high, seed=0):
        rows = {-1: (self.n, low + high), 1: (low + high, self.n)}[self.sign]
        guarded = [(fields, outer + 1, count + 1, columns + 3) for count in rows]
        inside = [np.s_[:, :outer, :count, :columns] for count in rows]
        source = random_complex(guarded[0], self.real, seed)
        target = np.full(guarded[1], POISON, source.dtype)
        strides = [stride // source.itemsize for a in (source, target) for stride in a.strides[:3]]
        scale = self.real.type(0.5)
        self.run(source, target, self.roots, scale, fields, outer, columns, low, high, *strides)
        expected = 0.5 * self.reference(source[inside[0]], low, high)
        assert_close(target[inside[1]], expected, self.n, self.real)
        target[inside[1]] = POISON
        assert (target == POISON).all()

    def reference(self, source, low, high):
        source = source.astype(complex)
        if self.sign < 0:
            modes = np.fft.fft(source, axis=2)
            return np.concatenate([modes[:, :, :low], modes[:, :, self.n - high :]], axis=2)
        padded = np.zeros((*source.shape[:2], self.n, source.shape[3]), complex)
        padded[:, :, :low] = source[:, :, :low]
        padded[:, :, self.n - high :] = source[:, :, low:]
        return np.fft.ifft(padded, axis=2) * self.n


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("n", "real"), CASES)
def test_strided_fft_equals_numpy(compile_kernel, n, real, sign):
    strided = Strided(compile_kernel, n, real, sign)
    lanes = strided.kernel.items_per_block
    for low, high in kept_variants(n):
        strided.check(1, 2, lanes + 3, low, high)
    strided.check(2, 1, 1, n, 0)


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.data(), sign=st.sampled_from([-1, 1]))
def test_strided_fft_with_any_sizes(compile_kernel, data, sign):
    low = data.draw(st.integers(0, 24))
    sizes = [data.draw(st.integers(0, top)) for top in (3, 3, 70, 24 - low, 99)]
    fields, outer, columns, high, seed = sizes
    Strided(compile_kernel, 24, "float64", sign).check(fields, outer, columns, low, high, seed)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("n", [7, 24, 512])
def test_strided_fft_in_place(compile_kernel, n, sign):
    strided = Strided(compile_kernel, n, "float64", sign)
    array = random_complex((1, 3, n, strided.kernel.items_per_block + 1), "float64")
    expected = strided.reference(array, n, 0)
    strides = [stride // array.itemsize for stride in array.strides[:3]]
    strided.run(array, array, strided.roots, np.float64(1), 1, 3, array.shape[3], n, 0,
                *strides, *strides)  # fmt: skip
    assert_close(array, expected, n, "float64")


class Physical:
    """Run `physical_pass` and compare it with irfft, product, rfft."""

    def __init__(self, compile_kernel, n, real, inputs=3, outputs=5, header=PRODUCT,
                 product=navier_stokes):  # fmt: skip
        self.n, self.real, self.inputs, self.outputs = n, np.dtype(real), inputs, outputs
        self.product = product
        self.kernel = tiled_fft.physical_pass(n, real, inputs, outputs, header)
        self.run = compile_kernel(self.kernel.header, self.kernel.name, self.kernel.constants)
        self.roots = tiled_fft.roots(n, real)

    def reference(self, source, kept):
        physical = np.fft.irfft(source.astype(complex), self.n, axis=2) * self.n
        return 0.25 * np.fft.rfft(self.product(*physical), axis=2)[:, :, :kept]

    def check(self, rows, kept, seed=0):
        source = random_complex((self.inputs, rows + 1, kept + 2), self.real, seed)
        target = np.full((self.outputs, rows + 2, kept + 3), POISON, source.dtype)
        self.launch(source, target, rows, kept)
        inside = np.s_[:, :rows, :kept]
        expected = self.reference(source[inside], kept)
        assert_close(target[inside], expected, self.n, self.real)
        target[inside] = POISON
        assert (target == POISON).all()

    def launch(self, source, target, rows, kept):
        strides = [stride // source.itemsize for a in (source, target) for stride in a.strides[:2]]
        self.run(source, target, self.roots, self.real.type(0.25), rows, kept, *strides)


@pytest.mark.parametrize(("n", "real"), CASES)
def test_physical_pass_equals_numpy(compile_kernel, n, real):
    # Random coefficients have imaginary parts at k = 0 and n / 2, which must be ignored.
    physical = Physical(compile_kernel, n, real)
    rows = physical.kernel.items_per_block
    for kept in sorted({1, n // 3 + 1, (n + 1) // 2, n // 2 + 1}):
        physical.check(rows + 1, kept)
    physical.check(rows + 2, n // 2 + 1)


@settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck))
@given(rows=st.integers(0, 40), kept=st.integers(0, 13), seed=st.integers(0, 99))
def test_physical_pass_with_any_sizes(compile_kernel, rows, kept, seed):
    Physical(compile_kernel, 24, "float64").check(rows, kept, seed)


@pytest.mark.parametrize("n", [30, 512])
def test_physical_pass_in_place(compile_kernel, n):
    """Outputs overwrite the inputs, and go on in the memory behind them."""
    physical, rows, kept = Physical(compile_kernel, n, "float64"), 5, n // 3 + 1
    fields = random_complex((5, rows, kept), "float64")
    expected = physical.reference(fields[:3], kept)
    physical.launch(fields, fields, rows, kept)
    assert_close(fields, expected, n, "float64")


@pytest.mark.parametrize("n", [15, 16])
def test_physical_pass_with_fewer_outputs_than_inputs(compile_kernel, tmp_path, n):
    header = tmp_path / "dot.hpp"
    header.write_text("INLINE void pointwise(const Real (&in)[4], Real (&out)[1]) {"
                      " out[0] = in[0] * in[2] + in[1] * in[3]; }")  # fmt: skip
    physical = Physical(compile_kernel, n, "float64", 4, 1, str(header),
                        lambda a, b, c, d: (a * c + b * d)[None])  # fmt: skip
    physical.check(7, n // 2 + 1)


@given(st.integers(1, 20000), st.sampled_from([4, 8, 16]), st.sampled_from([1, 2]),
       st.sampled_from([1, 3, 6]))  # fmt: skip
def test_radices_multiply_to_the_length(n, budget, first, last):
    radices = tiled_fft.factorise(n, budget, first, last)
    rest = n
    for prime in (2, 3, 5, 7, 11, 13):
        while rest % prime == 0:
            rest //= prime
    assert (radices is None) == (rest > 1)
    if radices:
        assert math.prod(radices) == n


def test_radices_are_few_and_fit_registers():
    assert tiled_fft.factorise(512, 8) == (8, 8, 8)
    assert tiled_fft.factorise(1024, 16) == (16, 8, 8)
    assert tiled_fft.factorise(512, 16, first=2, last=3) == (8, 16, 4)
    assert tiled_fft.factorise(13, 16, first=2, last=3) == (13, 1)


@pytest.mark.parametrize("real", ["float32", "float64"])
@given(n=st.integers(1, 20000))
def test_kernels_fit_the_machine(real, n):
    limit = 100 * 1024
    for kernel in (tiled_fft.strided_fft(n, real, -1, limit),
                   tiled_fft.physical_pass(n, real, 3, 5, PRODUCT, limit)):  # fmt: skip
        if kernel is None:
            continue
        blocks = kernel.constants["BLOCKS_PER_SM"]
        assert kernel.shared_bytes <= limit
        assert kernel.threads % 32 == 0
        assert 32 <= kernel.threads <= 1024
        assert blocks * kernel.threads <= 2048
        assert blocks * (kernel.shared_bytes + 1024) <= 228 * 1024


def test_lengths_that_do_not_fit_have_no_kernel():
    assert tiled_fft.strided_fft(16384, "float64", -1) is None
    assert tiled_fft.strided_fft(17, "float64", -1) is None
    assert tiled_fft.physical_pass(4096, "float64", 3, 5, PRODUCT) is None


def test_launch_covers_all_columns():
    kernel = tiled_fft.strided_fft(512, "float64", -1)
    assert kernel.constants["LANES"] == 8
    assert kernel.launch(17, 5).blocks == 5 * 3


@pytest.mark.parametrize("n", [1, 2, 7, 12, 1000, 1024])
def test_roots(n):
    table = tiled_fft.roots(n, np.float64)
    angle = 2 * np.arccos(np.longdouble(-1)) * np.arange(n) / n
    error = max(np.abs(table.real - np.cos(angle)).max(), np.abs(table.imag + np.sin(angle)).max())
    assert error <= np.finfo(np.float64).eps / 2  # at most one rounding of numbers below one
    np.testing.assert_array_equal(table[1:], table[:0:-1].conj())
