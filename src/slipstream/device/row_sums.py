"""Sums over the rows of a table on a device, of which only a few numbers go to the host."""

from __future__ import annotations

import numpy as np

from slipstream.array_types import Array
from slipstream.device.device_interface import Device, Kernel, RowLaunch

# Rows that one thread adds.
_ROWS_OF_GROUP = 64


def row_sum_kernel(device: Device) -> Kernel:
    """Return the kernel of `sum_of_rows`."""
    return device.kernel("row_sums.hpp", "sums_of_rows")


def sum_of_rows(device: Device, table: Array) -> np.ndarray:
    """Return the sum over the first axis of a table of doubles, always in the same order."""
    rows, columns = table.shape
    groups = -(-rows // _ROWS_OF_GROUP)
    totals = device.empty((groups, columns), np.float64)
    launch = RowLaunch(groups, columns)
    device.run(
        row_sum_kernel(device).bind(launch, table, totals, groups, _ROWS_OF_GROUP, rows, columns)
    )
    return device.to_host(totals).sum(axis=0)
