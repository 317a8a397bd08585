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
from slipstream.lattice.population_layout import Storage
from slipstream.lattice.pore_flow import PoreFlow

# Bytes of fields that are copied from the device at once.
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
        box = self.subdomain.box
        counts = np.count_nonzero(self._pores(0, box.shape[0]), axis=(1, 2))
        self._ends = np.concatenate([[0], np.cumsum(counts)])
        kept = self._ends[-1] if keep else 0
        self._values = np.empty((4, kept), self.storage.real)
        self.sums = np.zeros(4)
        for low, high in plane_ranges(box.shape, self.storage):
            values = flow.pore_fields((low, high))
            if keep:
                self._values[:, self._ends[low] : self._ends[high]] = values
            planes = Box((0, 0, 0), (high - low, *box.shape[1:]))
            planes = planes.shifted((box.start[0] + low, *box.start[1:]))
            if sample is not None and sample.intersect(planes) != planes:
                values = values[:, self._inside(sample, planes, low)]
            self.sums[0] += np.sum(_speeds(values), dtype=np.float64)
            self.sums[1:] += np.sum(values[:3], axis=1, dtype=np.float64)

    def speeds(self) -> np.ndarray:
        """Return the speeds at this rank's pores."""
        return _speeds(self._values)

    def fields(self, planes: tuple[int, int] | None = None) -> np.ndarray:
        """Return velocity (z, y, x) and density at the voxels of the box, or of some planes."""
        low, high = (0, self.subdomain.box.shape[0]) if planes is None else planes
        pores = self._pores(low, high)
        result = np.zeros((4, *pores.shape), self.storage.real)
        result[3] = 1
        result[:, pores] = self._values[:, self._ends[low] : self._ends[high]]
        return result

    def _inside(self, sample: Box, planes: Box, low: int) -> np.ndarray:
        """Return which pores of `planes` are in the sample; the first plane in the box is `low`."""
        pores = self._pores(low, low + planes.shape[0])
        inside = np.zeros(pores.shape, bool)
        inside[sample.intersect(planes).slices(planes)] = True
        of_pores: np.ndarray = inside[pores]
        return of_pores

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
