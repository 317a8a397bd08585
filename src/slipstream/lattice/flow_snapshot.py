"""Velocity and density of a flow at its pores, kept in the memory of the host.

Four numbers per pore are a fifth of what the flow itself takes, and none of them is on the device.
So the fields of many flows can be kept, and arrays over all voxels are made when they are asked
for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from slipstream.decomposition import Box
from slipstream.lattice.domain_decomposition import Subdomain
from slipstream.lattice.population_layout import SEGMENT, Storage
from slipstream.lattice.pore_flow import PoreFlow

# Bytes of fields in one copy from the device.
BYTES_AT_ONCE = 1 << 28


class HasFields(Protocol):
    """A flow, or its snapshot."""

    subdomain: Subdomain
    storage: Storage

    def fields(self, planes: tuple[int, int] | None = None) -> np.ndarray:
        """Return velocity (z, y, x) and density at the voxels of the box."""


class FlowSnapshot:
    """Velocity and density of a flow at the pores of this rank's box, at the present step.

    Attributes
    ----------
    sums : array of 4
        Sums of the speed and of the velocity (z, y, x) at those of these pores that are in the
        sample.
    """

    def __init__(self, flow: PoreFlow, sample: Box | None = None, keep: bool = True) -> None:
        """Copy the fields of a flow; without `keep`, only their sums.

        The sample is a box of the domain, by default all of it.
        """
        self.subdomain, self.storage, self.is_kept = flow.subdomain, flow.storage, keep
        box, device = self.subdomain.box, flow.device
        part = box if sample is None else sample.intersect(box)
        self.sums = flow.speed_sums(part.shifted(tuple(-start for start in box.start)))
        count = flow.sites.count if keep else 0
        self._values = np.empty((4, count), self.storage.real)
        self._first = device.to_host(flow.sites.first) if keep else np.zeros(0, np.int64)
        step = max(1, BYTES_AT_ONCE // (4 * self.storage.real.itemsize * SEGMENT)) * SEGMENT
        for low in range(0, count, step):
            high = min(low + step, count)
            values = flow.site_values(low // SEGMENT, -(-high // SEGMENT))
            for own, one in zip(self._values, values, strict=True):
                device.run(device.copy(own[low:high], one[: high - low]))

    def speeds(self) -> np.ndarray:
        """Return the speeds at this rank's pores."""
        return _speeds(self._values)

    def fields(self, planes: tuple[int, int] | None = None) -> np.ndarray:
        """Return velocity (z, y, x) and density at the voxels of the box, or of some planes."""
        low, high = (0, self.subdomain.box.shape[0]) if planes is None else planes
        pores = self._pores(low, high)
        result = np.zeros((4, *pores.shape), self.storage.real)
        result[3] = 1
        # Sites are numbered along rows; the order of rows is the storage's.
        _, height, _ = self.subdomain.box.shape
        planes_of, rows = np.arange(low, high)[:, None] + 1, np.arange(height) + 1
        first = self._first[planes_of * (height + 2) + rows].reshape(-1)
        counts = np.count_nonzero(pores.reshape(-1, pores.shape[2]), axis=1)
        before = np.cumsum(counts) - counts
        numbers = np.repeat(first - before, counts) + np.arange(counts.sum())
        result[:, pores] = self._values[:, numbers]
        return result

    def _pores(self, low: int, high: int) -> np.ndarray:
        pores: np.ndarray = self.subdomain.own[1 + low : 1 + high, 1:-1, 1:-1] != 0
        return pores


def snapshot_size(pores: int, storage: Storage) -> int:
    """Return the bytes of a snapshot."""
    return 4 * storage.real.itemsize * pores


def _speeds(values: np.ndarray) -> np.ndarray:
    speeds: np.ndarray = np.sqrt(np.einsum("is,is->s", values[:3], values[:3]))
    return speeds


def plane_ranges(shape: Sequence[int], storage: Storage) -> Iterator[tuple[int, int]]:
    """Yield ranges of planes of a box whose fields fit `BYTES_AT_ONCE`."""
    # Twice, since the pores are then selected from them.
    plane = 2 * 4 * storage.real.itemsize * math.prod(shape[1:])
    step = max(1, BYTES_AT_ONCE // max(1, plane))
    for low in range(0, shape[0] if plane else 0, step):
        yield low, min(low + step, shape[0])
