"""Accesses to the same memory: the source of all dependencies between nodes.

Nodes declare the arrays that they read and write; a view counts as the memory that it covers. Two
accesses conflict if they share a byte and one of them writes. Bounds are compared first, and an
exact test decides between interleaved views, so that nodes on different pieces of one array stay
independent.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, insort
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from slipstream.array_types import Array
from slipstream.device import address_of

# Beyond this effort the exact test stops, and the views are assumed to overlap.
_MAXIMUM_WORK: Any = 10_000  # NumPy's type stubs have two of the values only


class ByteRegion:
    """The memory that a view covers. Never dereferenced, so it may be on a GPU.

    It extends from address `low` to below `high`. `overlapping` has the numbers of all known
    regions that share memory with it, itself included; `covered` those of the regions inside it.
    They are numbers because references would keep the arrays of all regions alive. `accesses` has
    the nodes that accessed the region, and whether they wrote, as far as later nodes need them.
    """

    def __init__(self, address: int, array: Array) -> None:
        self.address, self.itemsize = address, array.itemsize
        self.shape, self.strides = array.shape, array.strides
        self.contiguous = array.flags.c_contiguous
        # Keep it: no other host array may get its memory while the step is recorded.
        self._kept = array if isinstance(array, np.ndarray) else None
        if not array.size:
            self.low = self.high = 0
        elif self.contiguous:
            self.low, self.high = address, address + array.nbytes
        else:
            steps = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
            self.low = address + sum(step for step in steps if step < 0)
            self.high = address + sum(step for step in steps if step > 0) + self.itemsize
        self.overlapping: list[int] = []
        self.covered: list[int] = []
        self.accesses: list[tuple[int, bool]] = []

    def overlaps(self, other: ByteRegion) -> bool:
        """Return whether the two regions share memory."""
        if self.high <= other.low or other.high <= self.low:
            return False
        # Every view has an element at either end of its bounds.
        if self.low == other.low or self.high == other.high:
            return True
        if self.contiguous and (self.low < other.low or other.high < self.high):
            return True
        if other.contiguous and (other.low < self.low or self.high < other.high):
            return True
        if self.strides == other.strides:
            first, second = (self, other) if self.low <= other.low else (other, self)
            itemsize, distance = max(self.itemsize, other.itemsize), second.low - first.low
            if _are_beside(self.strides, first.shape, second.shape, itemsize, distance):
                return False
        try:
            return np.shares_memory(self._view, other._view, max_work=_MAXIMUM_WORK)
        except np.exceptions.TooHardError:
            return True

    @functools.cached_property
    def _view(self) -> np.ndarray:
        """The region as a NumPy array of opaque elements, which must not be read."""
        memory = SimpleNamespace()
        memory.__array_interface__ = {
            "version": 3,
            "shape": self.shape,
            "strides": self.strides,
            "typestr": f"|V{self.itemsize}",
            "data": (self.address, True),
        }
        return np.asarray(memory)

    def covers(self, other: ByteRegion) -> bool:
        """Return whether `other` certainly lies inside this region."""
        if self.contiguous:
            return self.low <= other.low and other.high <= self.high
        same = self.shape == other.shape and self.strides == other.strides
        return same and (self.low, self.high) == (other.low, other.high)


# Pieces of arrays have few shapes and distances, which recur for each pair of them.
@functools.lru_cache(maxsize=1 << 14)
def _are_beside(
    strides: tuple[int, ...],
    first: tuple[int, ...],
    second: tuple[int, ...],
    itemsize: int,
    distance: int,
) -> bool:
    """Return whether two views with equal strides, as of one array, are certainly disjoint.

    The distance of their origins is a number of indices along each axis, and a remainder. If the
    extent of the inner axes is less than one step of the outer ones, no other combination of
    indices gives the same address; then the views overlap only if the distance is within the first
    view along every axis. This decides pieces of an array, the common case, in a fraction of the
    time of the exact test.
    """
    if min(strides) <= 0:
        return False
    axes = sorted(zip(strides, first, second, strict=True))
    rest, apart, steps = distance, False, []
    for stride, size, _ in reversed(axes):
        step, rest = divmod(rest, stride)
        steps.append(step)
        apart |= step >= size
    reach = itemsize + rest
    for stride, size, other_size in axes:
        if reach > stride:
            return False
        reach += (max(size, other_size) - 1 + steps.pop()) * stride
    return apart or rest >= itemsize


class AccessHistory:
    """Remembers accesses, and returns the nodes that a new access has to wait for.

    The views of a step recur in every substage: geometry is compared once per pair of views.
    """

    def __init__(self) -> None:
        self._regions: list[ByteRegion] = []
        self._numbers: dict[tuple[Any, ...], int] = {}
        # An index to find the few near ones among thousands: by the order of magnitude of their
        # length, sorted by address, with their numbers.
        self._sorted: dict[int, list[tuple[int, int]]] = {}

    def record(self, node: int, reads: Sequence[Array], writes: Sequence[Array]) -> set[int] | None:
        """Add accesses of `node` and return the earlier nodes that it depends on.

        The node may have accesses already. Returns None, and adds nothing, if it would depend on
        later nodes.
        """
        new = [(self._region(a), False) for a in reads] + [(self._region(a), True) for a in writes]
        dependencies = {
            earlier
            for region, writing in new
            for other in region.overlapping
            for earlier, wrote in self._regions[other].accesses
            if wrote or writing
        }
        dependencies.discard(node)
        if any(other > node for other in dependencies):
            return None
        for region, writing in new:
            if writing:
                # Accesses completely under a new write can be dropped: later nodes that conflict
                # with them conflict with this write too, and this write waits for them.
                for other in region.covered:
                    self._regions[other].accesses.clear()
        for region, writing in new:
            region.accesses.append((node, writing))
        return dependencies

    def _region(self, array: Array) -> ByteRegion:
        """Return the region of a NumPy or CuPy array, always the same for the same geometry."""
        address = address_of(array)
        key = (address, array.shape, array.strides, array.itemsize)
        if key not in self._numbers:
            self._numbers[key] = len(self._regions)
            self._regions.append(ByteRegion(address, array))
            self._compare(self._regions[-1], self._numbers[key])
        return self._regions[self._numbers[key]]

    def _compare(self, region: ByteRegion, number: int) -> None:
        """Enter a new region and the regions that share memory with it in each other's lists."""
        if region.low == region.high:
            return
        for magnitude, known in self._sorted.items():
            first = bisect_left(known, (region.low - (1 << magnitude),))
            last = bisect_left(known, (region.high,))
            for _, known_number in known[first:last]:
                other = self._regions[known_number]
                if region.overlaps(other):
                    region.overlapping.append(known_number)
                    other.overlapping.append(number)
                    if region.covers(other):
                        region.covered.append(known_number)
                    if other.covers(region):
                        other.covered.append(number)
        region.overlapping.append(number)
        region.covered.append(number)
        magnitude = (region.high - region.low).bit_length()
        insort(self._sorted.setdefault(magnitude, []), (region.low, number))
