"""Kernels that work row by row, against NumPy, bitwise: no operation is contracted."""

import numpy as np
import pytest

from products import NAVIER_STOKES
from slipstream.engine.device import HostDevice, RowLaunch
from slipstream.engine.fft.slab_layout import NOT_KEPT

DEVICE = HostDevice()
REALS = pytest.mark.parametrize(("real", "name"), [("float32", "float"), ("float64", "double")])


def navier_stokes(u, v, w):
    return np.stack([u * u - w * w, u * v, u * w, v * v - w * w, v * w])


def rates(fields, parameters):
    u, v, w = (np.abs(field.astype(float)) for field in fields)
    return (u * parameters[0] + v * parameters[1]) + w * parameters[2]


@REALS
def test_pointwise_product_is_exact_and_its_rate_keeps_nan(real, name):
    fields = np.random.default_rng(0).standard_normal((5, 7, 33)).astype(real)
    fields[2, 3, 20], fields[0, 5, 1], fields[1, 6, 1] = np.inf, np.nan, np.inf
    fields[0, 6, 32] = np.nan  # not-a-number ranks above infinity
    parameters, maxima = np.array([2.0, 0.5, 3.0]), np.zeros(7, np.int64)
    with np.errstate(invalid="ignore"):
        expected = navier_stokes(*fields[:3])
    rate = rates(fields[:3], parameters).max(axis=1)
    kernel = DEVICE.kernel(
        "pointwise.hpp",
        "apply_pointwise",
        REAL=name,
        INPUTS=3,
        OUTPUTS=5,
        PRODUCT_HEADER=f'"{NAVIER_STOKES}"',
    )
    DEVICE.run(kernel.bind(RowLaunch(7, 33), fields, maxima, parameters, 7, 33, 7 * 33))
    np.testing.assert_array_equal(fields, expected)
    np.testing.assert_array_equal(maxima.view(np.float64), rate)
    assert np.isnan(maxima.max().view(np.float64))
    assert np.flatnonzero(~np.isfinite(rate)).tolist() == [3, 5, 6]


@REALS
def test_copy_rows(real, name):
    source = np.random.default_rng(2).standard_normal((6, 8)).astype(real)
    target = np.full((7, 8), 777, real)
    kernel = DEVICE.kernel("copy_bandwidth.hpp", "copy_rows", REAL=name)
    DEVICE.run(kernel.bind(RowLaunch(6, 8), source, target, 6, 8))
    np.testing.assert_array_equal(target[:6], source)
    assert (target[6] == 777).all()


def make_packed(fields, planes, rows, columns, seed=0):
    """Return tables of [block][plane][row][column] with one row discarded, and random data."""
    generator = np.random.default_rng(seed)
    kept = np.delete(generator.permutation(rows), 0)
    offset, pitch, base = np.full(rows, NOT_KEPT), np.zeros(rows, np.int64), 3
    for block in np.array_split(kept, 2):
        offset[block] = base + columns * np.arange(len(block))
        pitch[block] = columns * len(block)
        base += planes * columns * len(block) + 1
    values = generator.standard_normal((fields, base, 2)).view(complex)[..., 0]
    return offset, pitch, values


@pytest.mark.parametrize("low", [0, 2, 5])
@pytest.mark.parametrize("gap", [0, 3])
def test_gather_rows_pads_and_scatter_rows_truncates(low, gap):
    """Working rows hold the packed ones with a gap of zeros; discarded rows are zero."""
    fields, planes, rows, columns, first = 2, 3, 5, 5, 2
    offset, pitch, packed = make_packed(fields, first + planes, rows, columns)
    work = np.full((fields, planes, rows, columns + gap + 1), 777, complex)
    expected = np.zeros_like(work)
    expected[..., columns + gap :] = 777  # beyond the row: untouched
    where = [c if c < low else c + gap for c in range(columns)]
    places = []
    for field, plane, row in np.ndindex(fields, planes, rows):
        if offset[row] != NOT_KEPT:
            start = offset[row] + (first + plane) * pitch[row]
            expected[field, plane, row, where] = packed[field, start : start + columns]
            places.append((field, plane, row, start))
    sizes = (
        first,
        fields,
        planes,
        rows,
        columns,
        low,
        gap,
        packed.shape[1],
        *(stride // 16 for stride in work.strides[:3]),
    )
    launch = RowLaunch(fields * planes * rows, columns)
    gather, scatter = (
        DEVICE.kernel("gather_scatter.hpp", f"{name}_rows", REAL="double")
        for name in ("gather", "scatter")
    )
    DEVICE.run(gather.bind(launch, packed, work, offset, pitch, *sizes, 0.5))
    kept = np.arange(work.shape[-1]) < columns + gap
    np.testing.assert_array_equal(work, np.where(kept, 0.5 * expected, expected))

    work[...] = np.random.default_rng(3).standard_normal(work.shape)
    target = np.full_like(packed, 777)
    DEVICE.run(scatter.bind(launch, target, work, offset, pitch, *sizes))
    expected = np.full_like(packed, 777)
    for field, plane, row, start in places:
        expected[field, start : start + columns] = work[field, plane, row, where]
    np.testing.assert_array_equal(target, expected)
