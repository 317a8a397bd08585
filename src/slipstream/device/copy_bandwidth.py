"""How fast a device moves memory: the bound for all that computes little."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from slipstream.array_types import Array
from slipstream.device.device_interface import Device, RowLaunch

_REPETITIONS = 3


def large_copy(
    device: Device,
    size: int = 1 << 30,
    kernel: str = "copy_rows",
    arrays: tuple[Array, Array] | None = None,
) -> tuple[Callable[[], None], int]:
    """Return what copies a large array on a device, and how many bytes it reads plus writes.

    The kernel is one of `copy_bandwidth.hpp`, "copy_rows" or "stream_rows" (a CPU's stores that
    bypass its caches), or "library" for what the device copies with. `size` is in bytes; of given
    `arrays` so much is copied.
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
    """Return a source and a target of so many bytes for `large_copy`."""
    return device.zeros((size // 8,), "float64"), device.zeros((size // 8,), "float64")


def quick_bandwidth(device: Device, size: int = 1 << 28) -> float:
    """Return the bytes read plus written per second by the faster of two ways to copy.

    The median of a few copies, which take a fraction of a second in all.
    """
    found = []
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
        found.append(moved / statistics.median(seconds))
        del copy  # with its arrays, before there are others
    return max(found)
