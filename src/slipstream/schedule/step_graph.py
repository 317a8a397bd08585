"""A time step, recorded once as a graph of operations and transfers.

Each node names the arrays that it reads and writes; in the order of recording, dependencies follow
from that. The graph says nothing about when or on which stream a node runs: `commit` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from slipstream.device import Device, Operation
from slipstream.schedule.dependencies import AccessHistory

# The lane of ordinary operations; work on batches is dealt out to `lane_of_batch`.
MAIN_LANE = "compute"

CATEGORIES = ("fft", "pack", "communication", "copy", "compute", "io")


class Transfer(Protocol):
    """Communication that the host starts and polls.

    Attributes
    ----------
    ordered : bool
        Whether all ranks must start it in the same order (collective operations).
    """

    ordered: bool

    def start(self) -> None:
        """Start sending and receiving; the data to send are ready."""

    def test(self) -> bool:
        """Return whether all has been sent and received. Makes progress."""


@dataclass
class Node:
    """One step of the graph: an operation of the device or a transfer of the host.

    Attributes
    ----------
    index : int
        Position in the order of recording.
    label, category, lane : str
        For timers and timelines; nodes of one lane run in order.
    device : Device
        Where an operation runs; each device has lanes of its own.
    operation : callable or None
        What to submit to a stream; None for a transfer.
    transfer : Transfer or None
        What to start and poll; None for an operation.
    dependencies : set of int
        Nodes that must be complete before this one starts.
    """

    index: int
    label: str
    category: str
    lane: str
    device: Device
    operation: Operation | None
    transfer: Transfer | None
    dependencies: set[int] = field(default_factory=set)


class StepGraph:
    """Records the nodes of a step.

    Parameters
    ----------
    device : Device
        Where operations run that name no other.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.nodes: list[Node] = []
        self._history = AccessHistory()

    def add(
        self,
        operation: Operation,
        *,
        reads: Sequence[Any] = (),
        writes: Sequence[Any] = (),
        label: str,
        category: str,
        lane: str = MAIN_LANE,
        device: Device | None = None,
    ) -> None:
        """Record an operation.

        Parameters
        ----------
        operation : callable
            What to submit to a stream.
        reads, writes : sequence of arrays
            Every array, or view, that the operation accesses.
        label : str
            Name in timelines and messages.
        category : str
            One of `CATEGORIES`, for the process timers.
        lane : str
            Operations of one lane are never reordered into each other's time; copies to and from
            a GPU have lanes of their own.
        device : Device, optional
            Where it runs, if not on the graph's device. Devices wait for each other through the
            host.

        Raises
        ------
        ValueError
            If the category is unknown.
        """
        self._append(label, category, lane, device, operation, None, reads, writes)

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
        device = device or self.device
        operation = device.copy(target, source)
        self._append(label, category, lane, device, operation, None, [source], [target])

    def add_transfer(
        self, transfer: Transfer, *, reads: Sequence[Any], writes: Sequence[Any], label: str
    ) -> None:
        """Record a transfer between ranks; parameters as in `add`."""
        self._append(label, "communication", "communication", None, None, transfer, reads, writes)

    def lane_of_batch(self, number: int, device: Device | None = None) -> tuple[int, str]:
        """Return index and name of the lane that works on a batch, by the batch's number."""
        lane = number % (device or self.device).lanes
        return lane, f"{MAIN_LANE} {lane}" if lane else MAIN_LANE

    def on(self, device: Device, lane: str | None = None) -> PlacedGraph:
        """Return a view of this graph that records on one device, in one lane or in any."""
        return PlacedGraph(self, device, lane)

    def _append(self, label, category, lane, device, operation, transfer, reads, writes) -> None:
        if category not in CATEGORIES:
            raise ValueError(f"category {category!r} is unknown; accepted: {CATEGORIES}")
        index = len(self.nodes)
        dependencies = self._history.record(index, list(reads), list(writes))
        device = device or self.device
        self.nodes.append(
            Node(index, label, category, lane, device, operation, transfer, dependencies)
        )


class PlacedGraph:
    """Records into a graph, all on one device: whoever records need not know on which.

    Parameters
    ----------
    graph : StepGraph
        Where nodes are added.
    device : Device
        Where they run.
    lane : str or None
        In which lane; None leaves it to those who record.
    """

    def __init__(self, graph: StepGraph, device: Device, lane: str | None) -> None:
        self._graph, self.device, self._lane = graph, device, lane

    def add(self, operation: Operation, *, lane: str = MAIN_LANE, **others: Any) -> None:
        """Record an operation; parameters as of `StepGraph.add`."""
        lane = self._lane or lane
        self._graph.add(operation, lane=lane, device=self.device, **others)

    def add_copy(self, target: Any, source: Any, *, lane: str = MAIN_LANE, **others: Any) -> None:
        """Record ``target[...] = source``; other parameters as of `StepGraph.add`."""
        lane = self._lane or lane
        self._graph.add_copy(target, source, lane=lane, device=self.device, **others)

    def lane_of_batch(self, number: int) -> tuple[int, str]:
        """Return index and name of the lane that works on a batch, by the batch's number."""
        return (0, self._lane) if self._lane else self._graph.lane_of_batch(number, self.device)
