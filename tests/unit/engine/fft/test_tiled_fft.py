"""The tiled transforms against numpy.fft, on the CPU build of their kernels."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from products import NAVIER_STOKES
from slipstream.engine.device import HostDevice, gpu_fft_launch
from slipstream.engine.fft.pack_unpack import RowTables
from slipstream.engine.fft.slab_layout import NOT_KEPT

LENGTHS = (1, 2, 3, 4, 5, 8, 12, 13, 16, 24, 30, 60, 64, 96, 100, 128, 384, 512, 1000, 1024)
# Every length in one precision, and both where the two choose different radices.
CASES = [(n, ("float64", "float32")[i % 2]) for i, n in enumerate(LENGTHS)]
CASES = sorted({*CASES, (128, "float64"), (512, "float32"), (1024, "float64")})
# Of most lengths one direction, in turn: both have the same radices, and conjugate roots.
DIRECTIONS = [
    (n, real, sign)
    for i, (n, real) in enumerate(CASES)
    for sign in (-1, 1)
    if n in (13, 30, 60, 384) or sign == (-1, 1)[i % 2]
]
# The passes of a product are those of the other transforms: some odd lengths and even ones, of few
# passes and of many.
PRODUCT_CASES = [one for one in CASES if one[0] in (1, 2, 3, 8, 13, 30, 64, 128, 384, 1024)]
POISON = 777.0
PRODUCT = NAVIER_STOKES
DEVICE = HostDevice(tiled=True)


def compiled(tile):
    """Return a function (launch, *arguments) that runs a tiled kernel."""
    kernel = DEVICE.kernel(tile.header, tile.name, **tile.constants)

    def run(launch, *arguments):
        DEVICE.run(kernel.bind(tile.launch(*launch), *arguments))

    return run


def random_complex(shape, real, seed=0):
    values = np.random.default_rng(seed).standard_normal((*shape, 2)).astype(real)
    return values.view(np.result_type(real, np.complex64))[..., 0]


def tolerance(expected, n, real):
    # A pass rounds each value a few times, and its twiddles are right to a few eps: so errors stay
    # below some eps per pass of the largest value, while any wrong twiddle or index errs by ~1.
    return 8 * np.finfo(real).eps * (1 + math.log2(n)) * np.abs(expected).max(initial=1e-30)


def assert_close(actual, expected, n, real):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance(expected, n, real))


def strides(array, count):
    return [stride // array.itemsize for stride in array.strides[:count]]


def kept_variants(n):
    """Return masks of modes: all, the 2/3 rule, none above zero, none below, one, none."""
    pairs = {(n - n // 2, n // 2), ((n - 1) // 3 + 1, (n - 1) // 3), (0, n // 2), (n // 2 + 1, 0)}
    row = np.arange(n)
    return [(row < low) | (row >= n - high) for low, high in sorted(pairs | {(1, 0), (0, 0)})]


class Strided:
    """Run `strided_fft` on arrays with guard bands, checking that these stay as they were."""

    def __init__(self, n, real, sign, are_even=False):
        self.n, self.real, self.sign, self.are_even = n, np.dtype(real), sign, are_even
        tile = gpu_fft_launch.strided_fft(n, real, sign, are_even=are_even)
        self.lanes, self.run = tile.items_per_block, compiled(tile)
        self.roots = gpu_fft_launch.roots(n, real)

    def tables(self, kept, planes, columns, blocks, seed):
        """Return offset, pitch and size of modes stored [block][plane][row of block][column].

        The rows of a block are any of those kept, in any order; gaps lie between the blocks.
        """
        offset, pitch = np.full(self.n, NOT_KEPT), np.full(self.n, 10**15)
        rows = np.random.default_rng(seed).permutation(np.flatnonzero(kept))
        base = 2 if self.are_even else 1
        columns += columns % 2 if self.are_even else 0
        for block in np.array_split(rows, blocks):
            offset[block] = base + columns * np.arange(len(block))
            pitch[block] = columns * len(block)
            base += planes * columns * len(block) + 2
        return offset, pitch, base

    def check(self, fields, outer, columns, kept, first=0, blocks=1, seed=0):
        offset, pitch, size = self.tables(kept, first + outer, columns, blocks, seed)
        modes = random_complex((fields, size), self.real, seed)
        row = columns + 2 + columns % 2 if self.are_even else columns + 3
        points = random_complex((fields, outer + 1, self.n + 1, row), self.real, seed + 1)
        plane = first + np.arange(outer)[:, None, None]
        row = np.flatnonzero(kept)[:, None]
        stored = np.s_[:, offset[row] + plane * pitch[row] + np.arange(columns)]
        inside = np.s_[:, :outer, : self.n, :columns]
        if self.sign < 0:
            source, target, written = points, modes, stored
            expected = np.fft.fft(points[inside].astype(complex), axis=2)[:, :, kept]
        else:
            source, target, written = modes, points, inside
            padded = np.zeros((fields, outer, self.n, columns), complex)
            padded[:, :, kept] = modes[stored]
            expected = np.fft.ifft(padded, axis=2) * self.n
        target[...] = POISON
        entries = RowTables(DEVICE, (offset, pitch)).entries
        self.run(
            (columns, outer, fields),
            source,
            target,
            self.roots,
            entries,
            first,
            fields,
            outer,
            columns,
            size,
            *strides(points, 3),
            entries,
            0,
        )
        assert_close(target[written], expected, self.n, self.real)
        target[written] = POISON
        assert (target == POISON).all()


@pytest.mark.samples(6)
@pytest.mark.parametrize(("n", "real", "sign"), DIRECTIONS)
def test_strided_fft_equals_numpy(n, real, sign):
    strided = Strided(n, real, sign)
    for seed, kept in enumerate(kept_variants(n)):
        strided.check(1, 2, strided.lanes + 3, kept, first=seed % 3, blocks=1 + seed, seed=seed)
    strided.check(2, 1, 1, np.ones(n, bool))


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("n", [1, 24, 512])
def test_two_columns_a_thread_are_two_columns(n, sign):
    """Also where the last thread of a row has one."""
    strided = Strided(n, "float32", sign, are_even=True)
    for seed, kept in enumerate(kept_variants(n)):
        columns = strided.lanes + 3 + seed % 2
        strided.check(2, 2, columns, kept, first=seed % 3, blocks=1 + seed, seed=seed)
    strided.check(2, 1, 1, np.ones(n, bool))


@settings(max_examples=60)
@given(data=st.data(), sign=st.sampled_from([-1, 1]))
def test_strided_fft_with_any_sizes_and_tables(data, sign):
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=24, max_size=24)))
    fields, outer, columns, first, blocks, seed = (
        data.draw(st.integers(low, high))
        for low, high in ((0, 3), (0, 3), (0, 70), (0, 4), (1, 5), (0, 99))
    )
    Strided(24, "float64", sign).check(fields, outer, columns, kept, first, blocks, seed)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("n", [7, 24, 512])
@pytest.mark.parametrize("truncated", [False, True])
def test_strided_fft_in_place(n, sign, truncated):
    """Tables that leave every kept row where it is let both sides be the same memory."""
    strided = Strided(n, "float64", sign)
    array = random_complex((2, 3, n, strided.lanes + 1), "float64")
    kept = np.abs(np.fft.fftfreq(n, 1 / n)) <= (n // 3 if truncated else n)
    field, plane, row = strides(array, 3)
    offset = np.where(kept, row * np.arange(n), NOT_KEPT)
    masked = np.where(kept[:, None], array, 0)
    expected = np.fft.fft(array, axis=2) if sign < 0 else np.fft.ifft(masked, axis=2) * n
    entries = RowTables(DEVICE, (offset, np.full(n, plane))).entries
    strided.run(
        (array.shape[3], 3, 2),
        array,
        array,
        strided.roots,
        entries,
        0,
        2,
        3,
        array.shape[3],
        field,
        field,
        plane,
        row,
        entries,
        0,
    )
    defined = kept if sign < 0 else np.ones(n, bool)
    assert_close(array[:, :, defined], expected[:, :, defined], n, "float64")


def navier_stokes(u, v, w):
    return np.stack([u * u - w * w, u * v, u * w, v * v - w * w, v * w])


class Physical:
    """Run `fused_product` and compare it with irfft, product, rfft."""

    def __init__(
        self, n, real, inputs=3, outputs=5, header=PRODUCT, product=navier_stokes, odd_rows=0
    ):
        self.n, self.real, self.inputs, self.outputs = n, np.dtype(real), inputs, outputs
        self.odd_rows = odd_rows
        self.product, self.parameters = product, np.array([2.0, 0.5, 3.0])
        self.tile = gpu_fft_launch.fused_product(n, real, inputs, outputs, header, rows=odd_rows)
        self.run, self.roots = compiled(self.tile), gpu_fft_launch.roots(n, real)

    def points(self, source):
        return np.fft.irfft(source.astype(complex), self.n, axis=2) * self.n

    def reference(self, source, kept):
        return 0.25 * np.fft.rfft(self.product(*self.points(source)), axis=2)[:, :, :kept]

    def check(self, rows, kept, seed=0):
        source = random_complex((self.inputs, rows + 1, kept + 2), self.real, seed)
        target = np.full((self.outputs, rows + 2, kept + 3), POISON, source.dtype)
        maxima = self.launch(source, target, rows, kept)
        inside = np.s_[:, :rows, :kept]
        assert_close(target[inside], self.reference(source[inside], kept), self.n, self.real)
        target[inside] = POISON
        assert (target == POISON).all()
        return source[inside], maxima

    def launch(self, source, target, rows, kept):
        """Return the largest rate of each block of rows, and one entry more."""
        # The last row of a plane with an odd number of them takes the place of two.
        places = rows + rows // self.odd_rows if self.odd_rows else rows
        maxima = np.zeros(self.tile.launch(places).blocks + 1, np.int64)
        self.run(
            (places,),
            source,
            target,
            self.roots,
            self.real.type(0.25),
            maxima,
            self.parameters,
            rows,
            kept,
            *strides(source, 2),
            *strides(target, 2),
        )
        return maxima


@pytest.mark.parametrize(("n", "real"), PRODUCT_CASES)
def test_fused_product_equals_numpy(n, real):
    # Random coefficients have imaginary parts at k = 0 and n / 2, which must be ignored.
    physical = Physical(n, real)
    rows = physical.tile.items_per_block
    for kept in sorted({1, n // 3 + 1, (n + 1) // 2, n // 2 + 1}):
        physical.check(rows + 1, kept)
    physical.check(rows + 2, n // 2 + 1)


@pytest.mark.parametrize(("n", "outputs", "real"), [(32, 5, "float64"), (36, 14, "float32")])
def test_fused_product_stores_points_in_their_order(n, outputs, real, tmp_path):
    """Products all together, and in groups; rows of all pairs, and of one that has no second."""
    header, rows = tmp_path / "product.hpp", 7
    assigned = "".join(f"out[{i}] = in[{i % 3}];" for i in range(outputs))
    header.write_text(
        f"INLINE double pointwise(const Real (&in)[3], Real (&out)[{outputs}],"
        f" const double* RESTRICT) {{ {assigned} return 0; }}"
    )
    tile = gpu_fft_launch.fused_product(n, real, 3, outputs, str(header))
    constants = dict(tile.constants) | {"STORES": 2, "STORED": "{0, 2}", "GROUP": min(outputs, 5)}
    kept, run = n // 3, compiled(replace(tile, constants=constants))
    source = random_complex((3, rows, kept), real)
    target = np.zeros((outputs, rows, kept), source.dtype)
    stored = np.full((2, rows + 1, n), 7, real)
    maxima, roots = np.zeros(rows, np.int64), gpu_fft_launch.roots(n, real)
    sizes = *strides(source, 2), *strides(target, 2)
    arrays = source, target, roots, np.dtype(real).type(1), maxima, np.zeros(1)
    run((rows,), *arrays, rows, kept, *sizes, stored, stored[0].size)
    expected = np.fft.irfft(source[[0, 2]].astype(complex), n, axis=2) * n
    assert_close(stored[:, :rows], expected, n, real)
    assert (stored[:, rows] == 7).all()


def test_fused_product_gives_planes_of_odd_numbers_of_rows_the_same_bits_wherever_they_are():
    physical = Physical(24, "float64", odd_rows=3)
    source, _ = physical.check(4 * physical.odd_rows, 9)
    whole, part = (np.empty((5, rows, 9), complex) for rows in (12, 3))
    physical.launch(source, whole, 12, 9)
    for plane in range(0, 12, 3):
        physical.launch(np.ascontiguousarray(source[:, plane : plane + 3]), part, 3, 9)
        assert part.tobytes() == np.ascontiguousarray(whole[:, plane : plane + 3]).tobytes()


@settings(max_examples=40)
@given(rows=st.integers(0, 40), kept=st.integers(0, 13), seed=st.integers(0, 99))
def test_fused_product_with_any_sizes(rows, kept, seed):
    """Any number of rows; the largest rate of every block of rows is reported, and no more."""
    physical = Physical(24, "float64")
    source, maxima = physical.check(rows, kept, seed)
    rate = np.einsum("i,irx->rx", physical.parameters, np.abs(physical.points(source)))
    rate = rate.max(axis=1, initial=0)
    block = physical.tile.items_per_block
    expected = [rate[i : i + block].max(initial=0) for i in range(0, len(maxima) * block, block)]
    assert_close(maxima.view(np.float64), np.array(expected), 24, "float64")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_fused_product_reports_a_rate_that_is_not_finite(bad):
    physical, rows = Physical(24, "float64"), 40
    source = random_complex((3, rows, 9), "float64")
    source[1, 17, 2] = bad
    maxima = physical.launch(source, np.empty((5, rows, 9), complex), rows, 9)
    assert not np.isfinite(maxima.max().view(np.float64))
    assert np.flatnonzero(~np.isfinite(maxima.view(np.float64))) == [
        17 // physical.tile.items_per_block
    ]


@pytest.mark.slow
@pytest.mark.parametrize("n", [30, 48, 256])
def test_fused_product_does_not_depend_on_groups(n):
    """Products that go back together or one after the other have the same bits."""
    physical, rows, kept = Physical(n, "float64"), 5, n // 3 + 1
    source = random_complex((3, rows, kept), "float64")
    targets = []
    for group in (5, 4, 1):
        constants = physical.tile.constants | {"GROUP": group}
        physical.run = compiled(replace(physical.tile, constants=constants))
        targets.append(np.empty((5, rows, kept), complex))
        physical.launch(source, targets[-1], rows, kept)
    assert (targets[0] == targets[1]).all()
    assert (targets[0] == targets[2]).all()


@pytest.mark.parametrize("n", [30, 512])
def test_fused_product_in_place(n):
    """Outputs overwrite the inputs, and continue in the memory behind them."""
    physical, rows, kept = Physical(n, "float64"), 5, n // 3 + 1
    fields = random_complex((5, rows, kept), "float64")
    expected = physical.reference(fields[:3], kept)
    physical.launch(fields, fields, rows, kept)
    assert_close(fields, expected, n, "float64")


@pytest.mark.parametrize("n", [15, 16])
def test_fused_product_with_fewer_outputs_than_inputs(tmp_path, n):
    header = tmp_path / "dot.hpp"
    header.write_text(
        "INLINE double pointwise(const Real (&in)[4], Real (&out)[1], const double*)"
        " { out[0] = in[0] * in[2] + in[1] * in[3]; return 0; }"
    )
    dot = Physical(n, "float64", 4, 1, str(header), lambda a, b, c, d: (a * c + b * d)[None])
    dot.check(7, n // 2 + 1)


class RealRows:
    """Run `real_rows` on arrays with guard bands, checking that these stay as they were."""

    def __init__(self, n, real, sign):
        self.n, self.real, self.sign = n, np.dtype(real), sign
        tile = gpu_fft_launch.real_rows(n, real, sign)
        self.rows_per_block, self.run = tile.items_per_block, compiled(tile)
        self.roots = gpu_fft_launch.roots(n, real)

    def launch(self, points, modes, fields, outer, rows, kept, scale=0.5):
        self.run(
            (-(-rows // 2) * fields * outer,),
            points,
            modes,
            self.roots,
            self.real.type(scale),
            fields,
            outer,
            rows,
            kept,
            *strides(points, 3),
            *strides(modes, 3),
            *[np.zeros(1, np.int64)] * 3,
        )

    def check(self, fields, outer, rows, kept, seed=0):
        shape = (fields, outer + 1, rows + 2, self.n + 3)
        points = np.random.default_rng(seed).standard_normal(shape).astype(self.real)
        modes = random_complex((fields, outer + 2, rows + 1, kept + 2), self.real, seed + 1)
        real_side, mode_side = np.s_[:, :outer, :rows, : self.n], np.s_[:, :outer, :rows, :kept]
        if self.sign < 0:
            source, target, written = points, modes, mode_side
            expected = np.fft.rfft(points[real_side].astype(float), axis=3)[..., :kept]
        else:
            source, target, written = modes, points, real_side
            expected = np.fft.irfft(modes[mode_side].astype(complex), self.n) * self.n
        target[...] = POISON
        before = source.copy()
        self.launch(points, modes, fields, outer, rows, kept)
        assert_close(target[written], 0.5 * expected, self.n, self.real)
        target[written] = POISON
        assert (target == POISON).all()
        np.testing.assert_array_equal(source, before)


@pytest.mark.parametrize(("n", "real", "sign"), DIRECTIONS)
def test_real_rows_equals_numpy(n, real, sign):
    # Random coefficients have imaginary parts at k = 0 and n / 2, which must be ignored.
    transform = RealRows(n, real, sign)
    for seed, kept in enumerate(sorted({1, n // 3 + 1, (n + 1) // 2, n // 2 + 1})):
        transform.check(1, 2, transform.rows_per_block + 1, kept, seed)
    transform.check(2, 1, 2, n // 2 + 1)
    transform.check(2, 2, 1, n // 2 + 1)


@settings(max_examples=60)
@given(data=st.data(), sign=st.sampled_from([-1, 1]), n=st.sampled_from([15, 24]))
def test_real_rows_with_any_sizes(data, sign, n):
    transform = RealRows(n, "float64", sign)
    fields, outer, rows, kept, seed = (
        data.draw(st.integers(low, high))
        for low, high in ((0, 3), (0, 3), (0, 70), (1, n // 2 + 1), (0, 99))
    )
    transform.check(fields, outer, rows, kept, seed)


def test_real_rows_without_modes_are_zero():
    points, modes = np.full((1, 2, 5, 24), POISON), np.empty((1, 2, 5, 1), complex)
    RealRows(24, "float64", 1).launch(points, modes, 1, 2, 5, 0)
    assert (points == 0).all()


@pytest.mark.parametrize("sign", [-1, 1])
def test_real_rows_do_not_depend_on_how_planes_are_chunked(sign):
    transform, (fields, outer, rows, n) = RealRows(60, "float64", sign), (2, 5, 27, 60)
    points = np.random.default_rng(0).standard_normal((fields, outer, rows, n))
    modes = random_complex((fields, outer, rows, 21), "float64")
    whole, parts = (points.copy(), modes.copy()), (points.copy(), modes.copy())
    transform.launch(*whole, fields, outer, rows, 21)
    for planes in (np.s_[:, :1], np.s_[:, 1:4], np.s_[:, 4:]):
        chunk = [array[planes] for array in parts]
        transform.launch(*chunk, fields, chunk[0].shape[1], rows, 21)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


def test_real_rows_of_unsupported_lengths():
    assert gpu_fft_launch.real_rows(17, "float64", -1) is None
    assert gpu_fft_launch.real_rows(1024, "float64", 1, limit=16384) is None
