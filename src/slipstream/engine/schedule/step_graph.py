"""A time step, recorded once as a graph of nodes that depend on each other by their memory."""

from __future__ import annotations

import copy
import functools
from array import array
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.device import Device, Operation, address_of

# Beyond this effort the exact test stops, and the views are assumed to overlap.
_MAXIMUM_WORK: Any = 10_000  # NumPy's type stubs have two of the values only
# The lane of ordinary operations; work on batches is in `lane_of_batch`.
MAIN_LANE = "compute"
CATEGORIES = ("fft", "pack", "communication", "copy", "compute", "io")


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
        if key in self._numbers:
            return self._regions[self._numbers[key]]
        region, number = ByteRegion(address, array), len(self._regions)
        self._numbers[key] = number
        self._regions.append(region)
        if region.low == region.high:
            return region
        # It and the regions that share memory with it enter each other's lists.
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
        return region


class Transfer(Protocol):
    """Communication that the host starts and polls."""

    # Whether all ranks must start it in the same order (collective operations).
    ordered: bool

    def start(self) -> None:
        """Start sending and receiving; the data to send are ready."""

    def test(self) -> bool:
        """Return whether all has been sent and received. Makes progress."""

    def give_up(self, failure: BaseException) -> None:
        """Note that a step with this transfer has failed, and notify the other ranks."""


@dataclass
class Node:
    """One step of the graph: an operation of the device or a transfer of the host."""

    # Its place in the order of recording.
    index: int
    label: str
    category: str
    lane: str
    device: Device
    operation: Operation | None
    transfer: Transfer | None
    # The nodes that must be complete before this one starts, in order. Each tile of a pass waits
    # for all of the previous pass: as Python objects they would take as much memory as some fields.
    dependencies: Sequence[int] = ()
    # Its arrays, if steps are only counted (`Device.notes`); and the bytes that it reads and writes
    # in its device's memory, if they differ from the sizes of the arrays.
    reads: Sequence[Array] = ()
    writes: Sequence[Array] = ()
    moves: tuple[float, float] | None = None


class StepGraph:
    """Records the nodes of a step, on one device unless a node names another."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.nodes: list[Node] = []
        self._history = AccessHistory()
        # The device and lane of all nodes of a view.
        self._lane: str | None = None

    def on(self, device: Device, lane: str | None = None) -> StepGraph:
        """Return a view of this graph that records on another device, in one lane or in any."""
        view = copy.copy(self)
        view.device, view._lane = device, lane
        return view

    def add(
        self,
        operation: Operation | None,
        *,
        reads: Sequence[Array] = (),
        writes: Sequence[Array] = (),
        label: str,
        category: str,
        lane: str = MAIN_LANE,
        device: Device | None = None,
        transfer: Transfer | None = None,
        moves: tuple[float, float] | None = None,
    ) -> None:
        """Record an operation, or a transfer: see `add_transfer`.

        `reads` and `writes` are all arrays, or views, that it accesses. Operations of one lane run
        one after the other, in the order of recording. Copies to and from a GPU have separate
        lanes. If `device` is not the graph's, the host makes it wait for other devices. `moves` is
        the number of bytes read and written, if that differs from the size of the accessed arrays.
        """
        if category not in CATEGORIES:
            raise ValueError(f"category {category!r} is unknown; accepted: {CATEGORIES}")
        index = len(self.nodes)
        dependencies = array("i", sorted(self._history.record(index, reads, writes) or ()))
        lane, device = self._lane or lane, device or self.device
        node = Node(index, label, category, lane, device, operation, transfer, dependencies)
        node.moves = moves
        if device.notes:
            node.reads, node.writes = tuple(reads), tuple(writes)
        self.nodes.append(node)

    def extend(self, index: int, reads: Sequence[Array], writes: Sequence[Array]) -> bool:
        """Add accesses to a node, whose operation must make them; return whether it may.

        It may not if it would then depend on later nodes.
        """
        earlier = self._history.record(index, reads, writes)
        if earlier is None:
            return False
        node = self.nodes[index]
        node.dependencies = array("i", sorted(earlier.union(node.dependencies)))
        return True

    def add_copy(
        self,
        target: Any,
        source: Any,
        *,
        label: str,
        category: str = "pack",
        lane: str = MAIN_LANE,
        device: Device | None = None,
    ) -> None:
        """Record ``target[...] = source``; other parameters as in `add`."""
        operation = (device or self.device).copy(target, source)
        self.add(
            operation,
            reads=[source],
            writes=[target],
            label=label,
            category=category,
            lane=lane,
            device=device,
        )

    def add_transfer(
        self, transfer: Transfer, *, reads: Sequence[Array], writes: Sequence[Array], label: str
    ) -> None:
        """Record a transfer between ranks; parameters as in `add`."""
        self.add(
            None,
            reads=reads,
            writes=writes,
            label=label,
            category="communication",
            lane="communication",
            transfer=transfer,
        )

    def lane_of_batch(self, number: int, device: Device | None = None) -> tuple[int, str]:
        """Return index and name of the lane of a batch, from the batch's number."""
        if self._lane:
            return 0, self._lane
        lane = number % (device or self.device).lanes
        return lane, f"{MAIN_LANE} {lane}" if lane else MAIN_LANE
