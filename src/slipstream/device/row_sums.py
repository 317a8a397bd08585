"""Sums over the rows of a table on a device; only a few numbers go to the host."""

from __future__ import annotations

import math

import numpy as np

from slipstream.array_types import Array
from slipstream.device.device_interface import Device, Kernel, RowLaunch

# Rows that one thread adds.
ROWS_OF_GROUP = 64


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
