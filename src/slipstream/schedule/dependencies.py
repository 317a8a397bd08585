"""Which accesses touch the same memory: the source of all dependencies between nodes.

Nodes declare the arrays that they read and write; views count as what they cover. Two accesses
conflict if they share a byte and one of them writes. Bounds are compared first, and an exact test
decides between interleaved views, so that nodes on different pieces of one array stay independent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

# Beyond this effort the exact test gives up, and the views are taken to overlap.
_MAXIMUM_WORK: Any = 10_000  # NumPy's type stubs know two of the values only


class _Geometry:
    """Pointer, shape and strides of an array on any device, as NumPy sees them."""

    def __init__(self, array: Any) -> None:
        interface = getattr(array, "__cuda_array_interface__", None)
        interface = interface or array.__array_interface__
        names = ("shape", "strides", "typestr", "data")
        self.__array_interface__ = {name: interface.get(name) for name in names} | {"version": 3}


@dataclass(eq=False)
class Region:
    """The memory that a view covers. Never dereferenced, so it may lie on a GPU.

    It ranges from address `low` to below `high`; `overlapping` are the known regions that share
    memory with it, `covered` those that lie inside it. `accesses` are the nodes that accessed it,
    and whether they wrote, as far as later nodes need them.
    """

    view: np.ndarray
    low: int
    high: int
    overlapping: list[Region] = field(default_factory=list)
    covered: list[Region] = field(default_factory=list)
    accesses: list[tuple[int, bool]] = field(default_factory=list)

    def overlaps(self, other: Region) -> bool:
        """Return whether the two regions share memory."""
        if self.high <= other.low or other.high <= self.low:
            return False
        if self.view.flags.c_contiguous and other.view.flags.c_contiguous:
            return True
        if self.view.strides == other.view.strides and self._is_beside(other):
            return False
        try:
            return np.shares_memory(self.view, other.view, max_work=_MAXIMUM_WORK)
        except np.exceptions.TooHardError:
            return True

    def _is_beside(self, other: Region) -> bool:
        """Return whether two views with equal strides, as of one array, are certainly apart.

        The distance of their origins is so many indices along each axis, and a rest. Where the
        inner axes cannot reach as far as one step of the outer ones, no other combination of
        indices gives the same address; the views then overlap only if the distance is within the
        first one along every axis. This settles pieces of an array, the common case, in a
        fraction of the time of the exact test.
        """
        first, second = (self, other) if self.low <= other.low else (other, self)
        strides = first.view.strides
        if min(strides) <= 0:
            return False
        itemsize = max(first.view.itemsize, second.view.itemsize)
        axes = sorted(range(len(strides)), key=strides.__getitem__)
        rest, apart = second.low - first.low, False
        steps = dict.fromkeys(axes, 0)
        for axis in reversed(axes):
            steps[axis], rest = divmod(rest, strides[axis])
            apart |= steps[axis] >= first.view.shape[axis]
        reach = itemsize + rest
        for axis in axes:
            if reach > strides[axis]:
                return False
            longest = max(first.view.shape[axis], second.view.shape[axis])
            reach += (longest - 1 + steps[axis]) * strides[axis]
        return apart or rest >= itemsize

    def covers(self, other: Region) -> bool:
        """Return whether `other` certainly lies inside this region."""
        if self.view.flags.c_contiguous:
            return self.low <= other.low and other.high <= self.high
        same = self.view.shape == other.view.shape and self.view.strides == other.view.strides
        return same and (self.low, self.high) == (other.low, other.high)


class AccessHistory:
    """Remembers who accessed what, and names the nodes that a new access has to wait for.

    The views of a step recur, substage after substage: geometry is compared once per pair of views.
    """

    def __init__(self) -> None:
        self._regions: dict[tuple, Region] = {}
        self._all: list[Region] = []
        # Where each region begins and ends, to find the few that are near among thousands.
        self._bounds = np.zeros((2, 64), np.uint64)

    def record(self, node: int, reads: list[Any], writes: list[Any]) -> set[int]:
        """Add the accesses of `node` and return the earlier nodes that it depends on."""
        new = [(self._region(a), False) for a in reads] + [(self._region(a), True) for a in writes]
        dependencies = {
            earlier
            for region, writing in new
            for other in region.overlapping
            for earlier, wrote in other.accesses
            if wrote or writing
        }
        for region, writing in new:
            if writing:
                # What lies wholly under a new write need not be remembered: later nodes that
                # conflict with it conflict with this write too, and this write waits for it.
                for other in region.covered:
                    other.accesses.clear()
        for region, writing in new:
            region.accesses.append((node, writing))
        return dependencies

    def _region(self, array: Any) -> Region:
        """Return the region of a NumPy or CuPy array, always the same for the same geometry."""
        view = array if isinstance(array, np.ndarray) else np.asarray(_Geometry(array))
        key = (view.__array_interface__["data"][0], view.shape, view.strides, view.itemsize)
        if key not in self._regions:
            low, high = byte_bounds(view) if view.size else (0, 0)
            self._regions[key] = region = Region(view, low, high)
            for other in self._near(low, high):
                if region.overlaps(other):
                    _make_known(region, other)
            if region.overlaps(region):
                _make_known(region, region)
            self._remember(region)
        return self._regions[key]

    def _near(self, low: int, high: int) -> list[Region]:
        """Return the known regions whose bounds share a byte with these."""
        lows, highs = self._bounds[:, : len(self._all)]
        return [self._all[i] for i in np.flatnonzero((lows < high) & (highs > low))]

    def _remember(self, region: Region) -> None:
        count = len(self._all)
        if count == self._bounds.shape[1]:
            self._bounds = np.concatenate([self._bounds, np.zeros_like(self._bounds)], axis=1)
        self._bounds[:, count] = region.low, region.high
        self._all.append(region)


def _make_known(region: Region, other: Region) -> None:
    region.overlapping.append(other)
    if region.covers(other):
        region.covered.append(other)
    if other is not region:
        other.overlapping.append(region)
        if other.covers(region):
            other.covered.append(region)
