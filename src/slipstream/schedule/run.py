"""Committed steps: a recorded graph with an order, ready to run again and again.

Policies differ only in when nodes run; every one gives the same bits.

``serial``
    Bulk-synchronous: nodes run in the order of recording, nothing is computed while data travel,
    and a GPU finishes each node before the next. Only the lanes of a CPU, which are the threads
    of one loop over chunks, run side by side.
``overlap``
    Nodes that feed a transfer come first, and transfers are in flight while everything that does
    not depend on them runs. Where a graph has no transfers, a GPU replays it as one CUDA graph,
    and for a CPU both policies are the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

from slipstream.errors import InputError
from slipstream.schedule.graph import Node, StepGraph
from slipstream.schedule.lanes import Lanes, drained, naming
from slipstream.schedule.timeline import Timeline

POLICIES = ("serial", "overlap")

# Seconds between polls. On a CPU, polling without a pause would take a core from the kernels;
# beside a GPU it has nothing else to do, and messages through the host advance only when polled.
_PAUSE = {"cpu": 2e-5, "cuda": 0.0}


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
    if policy == "overlap" and has_transfers:
        return OverlappedStep(graph)
    if policy == "overlap" and graph.device.kind == "cuda":
        return CapturedStep(graph)
    return PhasedStep(graph) if graph.device.lanes > 1 else SerialStep(graph)


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
        self.timeline = Timeline()

    def run(self, profile: bool = False) -> None:
        """Run the step.

        Work on a GPU may still be under way when this returns; it is ordered before all that the
        device's default stream does next.

        Parameters
        ----------
        profile : bool
            Record when every node ran, in `timeline`. Costs some microseconds per node.

        Raises
        ------
        RunError
            If a node fails; the message names it.
        """
        raise NotImplementedError

    def _run_alone(self, node: Node, profile: bool, start: Callable, finish: Callable) -> None:
        """Start a node and wait for its end, with nothing beside it."""
        began = time.perf_counter()
        naming(node, start)
        naming(node, finish)
        if profile:
            self.timeline.add(node, began, time.perf_counter())


class SerialStep(CommittedStep):
    """One node after another."""

    def run(self, profile: bool = False) -> None:
        stream = self.device.default_stream
        for node in self.nodes:
            if node.transfer:
                self._run_alone(node, profile, node.transfer.start, node.transfer.wait)
            else:
                submit = partial(stream.submit, node.operation)
                self._run_alone(node, profile, submit, stream.synchronize)


class PhasedStep(CommittedStep):
    """Lanes side by side from one transfer to the next; a transfer has the ranks to itself."""

    def __init__(self, graph: StepGraph) -> None:
        super().__init__(graph)
        self._lanes = Lanes(graph)

    def run(self, profile: bool = False) -> None:
        lanes = self._lanes
        lanes.begin(profile)
        with drained(lanes):
            for node in self.nodes:
                if node.transfer:
                    lanes.drain()
                    self._run_alone(node, profile, node.transfer.start, node.transfer.wait)
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

    def _enqueue(self, profile: bool = False) -> None:
        self._lanes.begin(profile)
        for node in self.nodes:
            self._lanes.issue(node)
        self._lanes.join()

    def run(self, profile: bool = False) -> None:
        default, main = self.device.default_stream, self._lanes.main
        main.wait(default.record())
        if profile:
            self._enqueue(profile)
            main.synchronize()
            for index, span in self._lanes.spans.items():
                self.timeline.add(self.nodes[index], *span.interval())
        else:
            main.submit(self._replay)
        default.wait(main.record())


class OverlappedStep(CommittedStep):
    """Nodes are issued as soon as what they depend on allows it, most urgent first.

    Operations wait for each other on the device, by streams and events. Only transfers need the
    host: one is started once the operations before it are done, and polled; whatever depends on
    it is issued when it has arrived, in whichever order that happens.
    """

    def __init__(self, graph: StepGraph) -> None:
        super().__init__(graph)
        self._lanes = Lanes(graph)
        self._order = urgency_order(self.nodes)

    def run(self, profile: bool = False) -> None:
        self._lanes.main.wait(self.device.default_stream.record())
        self._lanes.begin(profile)
        progress, pause = _Progress(self._order, self._lanes), _PAUSE[self.device.kind]
        with drained(self._lanes):
            while not progress.finished():
                if not progress.advance() and pause:
                    time.sleep(pause)
        if profile:
            for node in self.nodes:
                self.timeline.add(node, *progress.interval(node))


class _Progress:
    """One run of an overlapped step: what has been issued, what is in flight, what is done."""

    def __init__(self, order: list[Node], lanes: Lanes) -> None:
        self._lanes = lanes
        self._waiting = list(order)
        self._flying: list[Node] = []
        self._issued: set[int] = set()
        self._arrived: set[int] = set()
        self._flights: dict[int, list[float]] = {}
        self._transfers = {node.index for node in order if node.transfer}

    def finished(self) -> bool:
        return not self._waiting and not self._flying

    def interval(self, node: Node) -> tuple[float, float]:
        if node.transfer:
            return tuple(self._flights[node.index])
        return self._lanes.spans[node.index].interval()

    def advance(self) -> bool:
        """Start and issue all that can be, then poll; return whether anything happened."""
        held, blocked = [], False
        for node in self._waiting:
            if node.transfer and node.transfer.ordered and blocked:
                held.append(node)
            elif self._ready(node):
                self._go(node)
            else:
                held.append(node)
                blocked |= bool(node.transfer and node.transfer.ordered)
        moved = len(held) < len(self._waiting)
        self._waiting = held
        return self._poll() or moved

    def _ready(self, node: Node) -> bool:
        for index in node.dependencies:
            if index in self._transfers:
                if index not in self._arrived:
                    return False
            elif index not in self._issued or node.transfer and not self._lanes.done(index):
                return False
        return True

    def _go(self, node: Node) -> None:
        if node.transfer:
            self._flights[node.index] = [time.perf_counter()]
            naming(node, node.transfer.start)
            self._flying.append(node)
        else:
            self._lanes.issue(node)
            self._issued.add(node.index)

    def _poll(self) -> bool:
        landed = [node for node in self._flying if naming(node, node.transfer.test)]
        for node in landed:
            self._flights[node.index].append(time.perf_counter())
            self._arrived.add(node.index)
            self._flying.remove(node)
        return bool(landed)


def urgency_order(nodes: list[Node]) -> list[Node]:
    """Return the nodes such that what feeds the next transfer comes first.

    For each transfer in the order of recording: all that it depends on and that is not yet
    placed, then the transfer; at the end what no transfer needs. Dependencies are respected.
    """
    placed: dict[int, None] = {}

    def place(targets: Iterable[int]) -> None:
        wanted, stack = set(), list(targets)
        while stack:
            index = stack.pop()
            if index not in wanted and index not in placed:
                wanted.add(index)
                stack += nodes[index].dependencies
        # The order of recording is a topological one.
        placed.update(dict.fromkeys(sorted(wanted)))

    for node in nodes:
        if node.transfer:
            place([node.index])
    place(range(len(nodes)))
    return [nodes[index] for index in placed]
