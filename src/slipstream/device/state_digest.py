"""Digests of arrays: numbers that tell states from each other, in whatever order they are added."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slipstream.array_types import Array
from slipstream.device.array_addresses import REAL_NAMES
from slipstream.device.device_interface import Device, Kernel, RowLaunch

# As in `kernels/digests.hpp`.
SUMS = 64
# A number of a time series holds so many bits exactly.
DIGEST_BITS = 53
# Particles that a row of threads adds, as in `kernels/state_digest.hpp`.
_TOGETHER = 256
_MIX, _ALL = 0x9E3779B97F4A7C15, (1 << 64) - 1


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
