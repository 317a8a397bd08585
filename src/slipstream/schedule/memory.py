"""Which accesses touch the same memory: the source of all dependencies between nodes.

Nodes declare the arrays that they read and write; views count as what they cover. Two accesses
conflict if they share a byte and one of them writes. Bounds are compared first, and an exact test
decides between interleaved views, so that nodes on different chunks of one array stay independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

# Beyond this effort the exact test gives up, and the views are taken to overlap.
_MAXIMUM_WORK = 10_000


class _Geometry:
    """Pointer, shape and strides of an array on any device, as NumPy sees them."""

    def __init__(self, array: Any) -> None:
        interface = getattr(array, "__cuda_array_interface__", None)
        interface = interface or array.__array_interface__
        names = ("shape", "strides", "typestr", "data")
        self.__array_interface__ = {name: interface.get(name) for name in names} | {"version": 3}


@dataclass(frozen=True)
class Region:
    """The memory that a view covers. Never dereferenced, so it may lie on a GPU."""

    view: np.ndarray
    low: int
    high: int
    contiguous: bool

    @classmethod
    def of(cls, array: Any) -> Region:
        """Return the region of a NumPy or CuPy array."""
        view = array if isinstance(array, np.ndarray) else np.asarray(_Geometry(array))
        low, high = byte_bounds(view) if view.size else (0, 0)
        return cls(view, low, high, view.flags.c_contiguous)

    def overlaps(self, other: Region) -> bool:
        """Return whether the two regions share memory."""
        if self.high <= other.low or other.high <= self.low:
            return False
        if self.contiguous and other.contiguous:
            return True
        try:
            return np.shares_memory(self.view, other.view, max_work=_MAXIMUM_WORK)
        except np.exceptions.TooHardError:
            return True

    def covers(self, other: Region) -> bool:
        """Return whether `other` certainly lies inside this region."""
        if self.contiguous:
            return self.low <= other.low and other.high <= self.high
        same = self.view.shape == other.view.shape and self.view.strides == other.view.strides
        return same and (self.low, self.high) == (other.low, other.high)


class AccessHistory:
    """Remembers who accessed what, and names the nodes that a new access has to wait for."""

    def __init__(self) -> None:
        self._accesses: list[tuple[int, Region, bool]] = []

    def record(self, node: int, reads: list[Any], writes: list[Any]) -> set[int]:
        """Add the accesses of `node` and return the earlier nodes that it depends on."""
        new = [(Region.of(a), False) for a in reads] + [(Region.of(a), True) for a in writes]
        dependencies = {
            earlier
            for earlier, region, wrote in self._accesses
            for access, writing in new
            if (wrote or writing) and access.overlaps(region)
        }
        # What lies wholly under a new write need not be remembered: later nodes that conflict
        # with it conflict with this write too, and this write waits for it.
        written = [access for access, writing in new if writing]
        self._accesses = [
            entry for entry in self._accesses if not any(w.covers(entry[1]) for w in written)
        ]
        self._accesses += [(node, access, writing) for access, writing in new if access.high]
        return dependencies
