"""A time step, recorded once as a graph of operations and transfers.

Each node names the arrays that it reads and writes; in the order of recording, dependencies follow
from that. The graph says nothing about when or on which stream a node runs: `commit` decides.
"""

from __future__ import annotations

import copy
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from slipstream.array_types import Array
from slipstream.device import Device, Operation
from slipstream.schedule.dependencies import AccessHistory

# The lane of ordinary operations; work on batches is in `lane_of_batch`.
MAIN_LANE = "compute"

CATEGORIES = ("fft", "pack", "communication", "copy", "compute", "io")


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
        found = self._history.record(index, reads, writes)
        if found is None:
            return False
        node = self.nodes[index]
        node.dependencies = array("i", sorted(found.union(node.dependencies)))
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
