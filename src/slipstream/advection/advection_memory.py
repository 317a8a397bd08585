"""How much memory advection needs, computed before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from slipstream.advection.overlap_strategies import Strategy, place
from slipstream.decomposition import Box
from slipstream.device import Device

# Two arrays take turns; each has spare elements at both ends, and a step that writes to it.
_ARRAYS = 2
_SPARE = 8
# A step's list of work has six 64-bit numbers for every eight rows.
_BYTES_PER_ROW = 6


def memory_needed(
    strategy: Strategy,
    devices: Mapping[str, Device],
    box: Box,
    grid: Sequence[int],
    dtype: np.dtype,
    shell: int,
) -> dict[str, int]:
    """Return the bytes that one rank needs on each of its devices."""
    divided = [int(ranks > 1) for ranks in grid]
    regions = place(strategy, devices, box, divided, dtype, shell)
    needed = dict.fromkeys(devices, 0)
    for name, region in regions.items():
        layout = region.layout
        elements = math.prod(layout.shape) + _SPARE * layout.alignment
        work = _BYTES_PER_ROW * math.prod(layout.shape[:2])
        needed[name] += _ARRAYS * (elements * dtype.itemsize + work)
    # Halos are packed on the device that has the points which other ranks read.
    halo = box.grown(divided).size - box.size if box.size else 0
    needed[next(iter(regions))] += 2 * _ARRAYS * halo * dtype.itemsize
    return needed


def memory_with_output(
    strategy: Strategy,
    devices: Mapping[str, Device],
    box: Box,
    grid: Sequence[int],
    dtype: np.dtype,
    shell: int,
) -> dict[str, int]:
    """Return the bytes that a rank of a run needs on each of its devices, for output too."""
    needed = memory_needed(strategy, devices, box, grid, dtype, shell)
    if "cpu" in needed:
        # Where the device is the host, so are the initial values, and those that are written.
        needed["cpu"] += box.size * (8 if dtype.itemsize == 8 else 8 + dtype.itemsize)
    return needed
