"""Small kernels on whole arrays: sums over rows, digests of states, and the speed of a copy."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.device.device_interface import REAL_NAMES, Device, Kernel, RowLaunch

# The copies that are timed.
_REPETITIONS = 3
# Rows that one thread adds.
ROWS_OF_GROUP = 64
# The number of partial sums of a digest, as in `engine/kernels/digests.hpp`.
SUMS = 64
# A number of a time series holds this many bits exactly.
DIGEST_BITS = 53
# Particles that a row of threads adds, as in `engine/kernels/state_digest.hpp`.
_TOGETHER = 256
# The factor that mixes the bits of a sum.
_MIX = 0x9E3779B97F4A7C15
# All bits of a sum.
_ALL = (1 << 64) - 1


def large_copy(
    device: Device,
    size: int = 1 << 30,
    kernel: str = "copy_rows",
    arrays: tuple[Array, Array] | None = None,
) -> tuple[Callable[[], None], int]:
    """Return a function that copies a large array on a device, and the bytes it reads plus writes.

    The kernel is one of `copy_bandwidth.hpp`, "copy_rows" or "stream_rows" (a CPU's stores that
    bypass its caches), or "library" for the device's own copy. `size` is in bytes, also if `arrays`
    are larger.
    """
    size = min(size, 1 << 28) if device.kind == "cpu" else size
    source, target = arrays or copied_arrays(device, size)
    source, target = (one[: size // 8] for one in (source, target))
    columns = 4096
    rows = source.size // columns
    if kernel == "library":
        whole_copy = device.copy(target, source)
        return lambda: device.run(whole_copy), 2 * source.nbytes
    bound = device.kernel("copy_bandwidth.hpp", kernel, REAL="double")
    operation = bound.bind(RowLaunch(rows, columns), source, target, rows, columns)
    return lambda: device.run(operation), 2 * rows * columns * 8


def copied_arrays(device: Device, size: int) -> tuple[Array, Array]:
    """Return a source and a target of `size` bytes for `large_copy`."""
    return device.zeros((size // 8,), "float64"), device.zeros((size // 8,), "float64")


def quick_bandwidth(device: Device, size: int = 1 << 28) -> float:
    """Return the bytes read plus written per second by the faster of two ways to copy.

    The median of a few copies, which take a fraction of a second in all.
    """
    rates = []
    for kernel in ("copy_rows", "library"):
        copy, moved = large_copy(device, size, kernel)
        copy()
        seconds = []
        for _ in range(_REPETITIONS):
            device.synchronize()
            began = time.perf_counter()
            copy()
            device.synchronize()
            seconds.append(time.perf_counter() - began)
        rates.append(moved / statistics.median(seconds))
        del copy  # with its arrays, before there are others
    return max(rates)


def row_sum_kernel(device: Device) -> Kernel:
    """Return the kernel of `sum_of_rows`."""
    return device.kernel("row_sums.hpp", "sums_of_rows")


def sum_of_rows(device: Device, table: Array) -> np.ndarray:
    """Return the sum over the first axis of a table of doubles, always in the same order."""
    total: np.ndarray = device.to_host(group_sums(device, table)).sum(axis=0)
    return total


def group_sums(
    device: Device, table: Array, rows_of_group: int = ROWS_OF_GROUP, name: str = "sums_of_rows"
) -> Array:
    """Return the sums over groups of rows of a table of doubles, on the device.

    Or, with the name "maxima_of_rows", the largest of each column. The host does not wait for them.
    """
    rows, columns = table.shape
    groups = -(-rows // rows_of_group)
    totals = device.empty((groups, columns), np.float64)
    kernel = device.kernel("row_sums.hpp", name)
    launch = RowLaunch(groups, columns)
    add = kernel.bind(launch, table, totals, groups, rows_of_group, rows, columns)
    device.default_stream.submit(add)
    return totals


def scale_to_bits(most: float, bits: int) -> float:
    """Return the power of two by which numbers up to `most` become at most 2^bits; 0 for none.

    Whole numbers that they are rounded to have the same sum in any order.
    """
    return math.ldexp(1.0, bits - math.frexp(most)[1]) if most else 0.0


def digest_kernel(device: Device, dtype: np.dtype) -> Kernel:
    """Return the kernel of `digest_of_boxes`, for real numbers or pairs of them."""
    real = np.zeros(0, dtype).real.dtype.name
    return device.kernel("state_digest.hpp", "digest_of_rows", REAL=REAL_NAMES[real])


def empty_sums(device: Device) -> Array:
    """Return the numbers to which kernels add."""
    return device.zeros((SUMS,), np.int64)


def add_boxes(
    device: Device,
    values: Array,
    sums: Array,
    columns: int,
    start: Sequence[int],
    shape: Sequence[int],
) -> None:
    """Add a box of fields, [field][z][y][x], to a digest: `columns` of each row, from `start` on.

    Places are counted in fields of this `shape`, (z, y, x).
    """
    if not values.size or not columns:
        return
    parts = values.itemsize // np.zeros(0, values.dtype).real.dtype.itemsize
    fields, nz, ny = values.shape[:3]
    pitches = [stride // values.itemsize * parts for stride in values.strides[:3]]
    (z, y, x), (depth, height, width) = start, shape
    first, row = ((z * height + y) * width + x) * parts, width * parts
    places = depth * height * row, height * row, row
    launch = RowLaunch(fields * nz * ny, columns * parts, reduces=True)
    sizes = fields, nz, ny, columns * parts
    kernel = digest_kernel(device, values.dtype)
    device.run(kernel.bind(launch, values, sums, *sizes, *pitches, first, *places))


def add_particles(device: Device, values: Array, identity: Array, sums: Array, start: int) -> None:
    """Add the numbers of particles, [number][particle], to a digest.

    Places are counted by identity, from `start` on.
    """
    rows, count = values.shape
    if not count:
        return
    real = REAL_NAMES[values.dtype.name]
    kernel = device.kernel("state_digest.hpp", "digest_of_particles", REAL=real)
    launch = RowLaunch(-(-count // _TOGETHER), _TOGETHER, reduces=True)
    pitch = values.strides[0] // values.itemsize
    device.run(kernel.bind(launch, values, identity, sums, pitch, count, rows, start))


def total_of(device: Device, sums: Array) -> np.ndarray:
    """Return the sum so far, modulo 2^64, as an array of one."""
    device.synchronize()
    parts: np.ndarray = device.to_host(sums).view(np.uint64)
    return np.array([parts.sum(dtype=np.uint64)])


def folded(total: int) -> int:
    """Return a digest as a number of `DIGEST_BITS` bits."""
    return (total * _MIX & _ALL) >> (64 - DIGEST_BITS)
