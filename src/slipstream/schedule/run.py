"""Committed steps: a recorded graph with an order, ready to run again and again.

Policies differ only in when nodes run; every one gives the same bits.

``serial``
    Bulk-synchronous: nodes run in the order of recording, nothing is computed while data travel,
    and a GPU finishes each node before the next. Only the lanes of a CPU, which are the threads
    of one loop over chunks, run side by side, and so do several devices.
``overlap``
    Nodes that feed a transfer come first, and transfers are in flight while everything that does
    not depend on them runs. Where a graph has no transfers, a GPU replays it as one CUDA graph,
    and a CPU runs its lanes side by side, whatever they are for.

Waiting for other ranks has an end, ``SLIPSTREAM_TIMEOUT``: where one has died, the rest stop too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import Any

from slipstream.device import Event, Stream
from slipstream.errors import InputError
from slipstream.schedule.graph import MAIN_LANE, Node, StepGraph
from slipstream.schedule.lanes import Lanes, drained, naming
from slipstream.schedule.patience import Patience
from slipstream.schedule.timeline import Timeline

POLICIES = ("serial", "overlap")


def commit(graph: StepGraph, policy: str = "overlap") -> CommittedStep:
    """Order a graph by a policy.

    Parameters
    ----------
    graph : StepGraph
        The recorded step; it must not be changed afterwards.
    policy : {"overlap", "serial"}
        See the module's docstring.

    Raises
    ------
    InputError
        If the policy is unknown.
    """
    if policy not in POLICIES:
        raise InputError(f"schedule {policy!r} is unknown; accepted: {', '.join(POLICIES)}")
    has_transfers = any(node.transfer for node in graph.nodes)
    several_devices = _several_devices(graph)
    if policy == "overlap" and (has_transfers or several_devices):
        return OverlappedStep(graph)
    if policy == "overlap" and graph.device.kind == "cuda":
        return CapturedStep(graph)
    several_lanes = graph.device.lanes > 1 or several_devices
    if policy == "overlap":
        several_lanes |= any(node.lane != MAIN_LANE for node in graph.nodes)
    return PhasedStep(graph) if several_lanes else SerialStep(graph)


def _several_devices(graph: StepGraph) -> bool:
    return any(node.device is not graph.device for node in graph.nodes)


class CommittedStep:
    """A step that can be run.

    Attributes
    ----------
    timeline : Timeline
        What ran when, collected by ``run(profile=True)``.
    """

    def __init__(self, graph: StepGraph) -> None:
        self.device = graph.device
        self.nodes = graph.nodes
        self._devices = list({graph.device: None} | {n.device: None for n in graph.nodes})
        self._several_devices = _several_devices(graph)
        self.timeline = Timeline(self._several_devices)

    def run(self, profile: bool = False, stream: Stream | None = None) -> None:
        """Run the step.

        It starts after all that the stream has been given so far. Work on a GPU may still be
        under way when this returns; it is ordered before all that the stream does next.

        Parameters
        ----------
        profile : bool
            Record when every node ran, in `timeline`. Costs some microseconds per node.
        stream : Stream, optional
            Whose work the step is part of; the device's default stream if not given.

        Raises
        ------
        InputError
            If ``SLIPSTREAM_TIMEOUT`` is not a positive number.
        RunError
            If a node fails, or waits for other ranks for longer than ``SLIPSTREAM_TIMEOUT``
            seconds; the message names it. A step whose exchange was given up must not be run again.
        """
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until all that the last run submitted has finished.

        Where the host orders the exchanges that is so when `run` returns. Where the device does,
        this waits for all work of the last run's stream.

        Raises
        ------
        InputError, RunError
            As in `run`.
        """

    def _follow(self, stream: Stream | None, patience: Patience) -> Event:
        """Let the step start after what a stream has been given; return that one's event."""
        start = (stream or self.device.default_stream).record()
        if self._several_devices:  # the others cannot wait for this event
            patience.wait(start.done, "what came before the step")
            start.synchronize()  # raises what failed
        self._lanes.main.wait(start)
        return start

    def _run_alone(self, node: Node, profile: bool, stream: Stream, patience: Patience) -> None:
        """Run a node and wait for its end, with nothing beside it."""
        began = time.perf_counter()
        if node.transfer:
            naming(node, node.transfer.start)
            patience.wait(partial(naming, node, node.transfer.test), f"exchange {node.label!r}")
        else:
            naming(node, stream.submit, node.operation)
            if node.category == "communication":
                patience.wait(stream.record().done, f"exchange {node.label!r}")
            naming(node, stream.synchronize)
        if profile:
            self.timeline.add(node, began, time.perf_counter())


class SerialStep(CommittedStep):
    """One node after another."""

    def run(self, profile: bool = False, stream: Stream | None = None) -> None:
        patience, stream = Patience(*self._devices), stream or self.device.default_stream
        patience.wait(stream.record().done, "what came before the step")
        stream.synchronize()  # raises what failed
        for node in self.nodes:
            self._run_alone(node, profile, stream, patience)


class PhasedStep(CommittedStep):
    """Lanes side by side from one transfer to the next; a transfer has the ranks to itself."""

    def __init__(self, graph: StepGraph) -> None:
        super().__init__(graph)
        self._lanes = Lanes(graph)

    def run(self, profile: bool = False, stream: Stream | None = None) -> None:
        patience, lanes = Patience(*self._devices), self._lanes
        self._follow(stream, patience)
        lanes.begin(profile)
        with drained(lanes):
            for node in self.nodes:
                if node.transfer:
                    lanes.drain()
                    self._run_alone(node, profile, lanes.main, patience)
                else:
                    lanes.issue(node)
        if profile:
            for index, span in lanes.spans.items():
                self.timeline.add(self.nodes[index], *span.interval())


class CapturedStep(CommittedStep):
    """All nodes as one CUDA graph, replayed by one call."""

    def __init__(self, graph: StepGraph) -> None:
        super().__init__(graph)
        self._lanes = Lanes(graph)
        self._replay = self._lanes.main.capture(self._enqueue)
        self._latest = self.device.default_stream

    def _enqueue(self, profile: bool = False) -> None:
        self._lanes.begin(profile)
        for node in self.nodes:
            self._lanes.issue(node)
        self._lanes.join()

    def run(self, profile: bool = False, stream: Stream | None = None) -> None:
        stream = stream or self.device.default_stream
        if profile:
            self._run_profiled(stream)
        else:
            # Replays wait for each other on the device, also those of different streams.
            stream.submit(self._replay)
        self._latest = stream

    def synchronize(self) -> None:
        self._await(self._latest.record())

    def _await(self, event: Event) -> None:
        Patience(*self._devices).wait(event.done, "the step")
        event.synchronize()  # raises what failed

    def _run_profiled(self, stream: Stream) -> None:
        main = self._lanes.main
        self.synchronize()  # nodes on their own do not wait for a replay elsewhere
        main.wait(stream.record())
        self._enqueue(profile=True)
        self._await(main.record())
        for index, span in self._lanes.spans.items():
            self.timeline.add(self.nodes[index], *span.interval())


class OverlappedStep(CommittedStep):
    """Nodes are issued as soon as what they depend on allows it, most urgent first.

    Operations wait for each other on the device, by streams and events. Transfers need the host:
    one is started once the operations before it are done, and polled; whatever depends on it is
    issued when it has arrived, in whichever order that happens. What waits for another device is
    issued when that is done.
    """

    def __init__(self, graph: StepGraph) -> None:
        super().__init__(graph)
        self._lanes = Lanes(graph)
        self._order = urgency_order(self.nodes)

    def run(self, profile: bool = False, stream: Stream | None = None) -> None:
        patience = Patience(*self._devices)
        start = self._follow(stream, patience)
        self._lanes.begin(profile)
        progress = _Progress(self._order, self._lanes, start, patience)
        with drained(self._lanes):
            while not progress.finished():
                if progress.advance():
                    patience.moved()
                else:
                    patience.check_moved(progress.obstacle)
                    patience.rest()
        if profile:
            for node in self.nodes:
                self.timeline.add(node, *progress.interval(node))


class _Progress:
    """One run of an overlapped step: what has been issued, what is in flight, what is done."""

    def __init__(self, order: list[Node], lanes: Lanes, start: Event, patience: Patience) -> None:
        self._lanes, self._patience = lanes, patience
        self._start: Event | None = start
        self._waiting = list(order)
        self._flying: list[Node] = []
        self._issued: set[int] = set()
        self._arrived: set[int] = set()
        self._flights: dict[int, list[float]] = {}
        self._transfers = {node.index for node in order if node.transfer}
        self._devices = {node.index: node.device for node in order}
        # What each node still waits for; the last recorded is looked at first.
        self._unfulfilled = {node.index: sorted(node.dependencies) for node in order}

    def finished(self) -> bool:
        return not self._waiting and not self._flying

    def interval(self, node: Node) -> tuple[float, float]:
        if node.transfer:
            return tuple(self._flights[node.index])
        return self._lanes.spans[node.index].interval()

    def advance(self) -> bool:
        """Start and issue all that can be, then poll; return whether anything happened."""
        held, blocked = [], set()
        for node in self._waiting:
            queue = _queue(node)
            if queue not in blocked and self._ready(node):
                self._go(node)
            else:
                held.append(node)
                if queue is not None:
                    blocked.add(queue)
        moved = len(held) < len(self._waiting)
        self._waiting = held
        return self._poll() or moved

    def obstacle(self) -> str:
        """Return what the first node that waits is waiting for, for people."""
        node = (self._waiting or self._flying)[0]
        left = self._unfulfilled[node.index]
        what = self._lanes.describe(left[-1]) if left else "what came before the step"
        return f"node {node.label!r}, which follows {what},"

    def _begun(self) -> bool:
        """Return whether what came before the step is done: the host may touch its arrays."""
        if self._start is not None and self._start.done():
            self._start.synchronize()  # raises what failed
            self._start = None
        return self._start is None

    def _ready(self, node: Node) -> bool:
        if node.transfer and not self._begun():
            return False
        left = self._unfulfilled[node.index]
        while left and self._fulfilled(node, left[-1]):
            left.pop()
        return not left

    def _fulfilled(self, node: Node, dependency: int) -> bool:
        """Return whether a node may be issued, or started, as far as one dependency goes."""
        if dependency in self._transfers:
            return dependency in self._arrived
        # A transfer's data must be there, and a device cannot wait for another one's events.
        host_waits = node.transfer or self._devices[dependency] is not node.device
        return dependency in self._issued and (not host_waits or self._lanes.done(dependency))

    def _go(self, node: Node) -> None:
        if node.transfer:
            self._flights[node.index] = [time.perf_counter()]
            naming(node, node.transfer.start)
            self._flying.append(node)
        else:
            self._lanes.issue(node)
            self._issued.add(node.index)
            self._poll()  # on a single core the operation is over, and may have taken long

    def _poll(self) -> bool:
        landed = [node for node in self._flying if naming(node, node.transfer.test)]
        for node in landed:
            self._flights[node.index].append(time.perf_counter())
            self._arrived.add(node.index)
            self._flying.remove(node)
        for node in self._flying:
            self._patience.check(self._flights[node.index][0], f"exchange {node.label!r}")
        return bool(landed)


def _queue(node: Node) -> Any:
    """Return the queue whose nodes begin in order, as on other ranks; None for all others.

    Messages that devices order are matched with those of other ranks by their order.
    """
    if node.transfer:
        return "transfers" if node.transfer.ordered else None
    return (node.device, node.lane) if node.category == "communication" else None


def urgency_order(nodes: list[Node]) -> list[Node]:
    """Return the nodes such that what feeds the next transfer comes first.

    For each transfer in the order of recording: all that it depends on and that is not yet
    placed, then the transfer; at the end what no transfer needs. Dependencies are respected, and so
    is the order within queues, which thus is the same on all ranks.
    """
    placed: dict[int, None] = {}
    earlier: dict[int, list[int]] = {}
    latest: dict[Any, int] = {}
    for node in nodes:
        queue = _queue(node)
        if queue is not None:
            earlier[node.index] = [latest[queue]] if queue in latest else []
            latest[queue] = node.index

    def place(targets: Iterable[int]) -> None:
        wanted, stack = set(), list(targets)
        while stack:
            index = stack.pop()
            if index not in wanted and index not in placed:
                wanted.add(index)
                stack += [*nodes[index].dependencies, *earlier.get(index, ())]
        # The order of recording is a topological one.
        placed.update(dict.fromkeys(sorted(wanted)))

    for node in nodes:
        if node.transfer:
            place([node.index])
    place(range(len(nodes)))
    return [nodes[index] for index in placed]
