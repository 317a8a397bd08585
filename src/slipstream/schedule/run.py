"""Committed steps: a recorded graph with an order, ready to run again and again.

Policies differ only in when nodes run; every one gives the same bits.

``serial``
    One node after another, each complete before the next: bulk-synchronous.
``overlap``
    Nodes that feed a transfer come first, and transfers are in flight while everything that does
    not depend on them runs. Where a graph has no transfers, a GPU replays it as one CUDA graph,
    and a CPU, which has one compute lane, simply runs it in order.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from slipstream.device import Event, Span, Stream
from slipstream.errors import InputError, RunError, SlipstreamError
from slipstream.schedule.graph import Node, StepGraph
from slipstream.schedule.timeline import Timeline

POLICIES = ("serial", "overlap")

# Polling without a pause would take a core from the kernels; longer ones would show as latency.
_PAUSE = 2e-5


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
    if policy == "serial":
        return SerialStep(graph)
    if any(node.transfer for node in graph.nodes):
        return OverlappedStep(graph)
    return CapturedStep(graph) if graph.device.kind == "cuda" else SerialStep(graph)


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


class SerialStep(CommittedStep):
    """One node after another."""

    def run(self, profile: bool = False) -> None:
        stream = self.device.default_stream
        for node in self.nodes:
            start = time.perf_counter()
            try:
                if node.transfer:
                    node.transfer.start()
                    node.transfer.wait()
                else:
                    stream.submit(node.operation)
                    stream.synchronize()
            except Exception as failure:
                raise _failed(node, failure) from failure
            if profile:
                self.timeline.add(node, start, time.perf_counter())


class CapturedStep(CommittedStep):
    """All nodes as one CUDA graph, replayed by one call."""

    def __init__(self, graph: StepGraph) -> None:
        super().__init__(graph)
        self._lanes = _Lanes(graph)
        self._replay = self._lanes.main.capture(self._enqueue)

    def _enqueue(self) -> list[Span]:
        self._lanes.begin()
        spans = [self._lanes.issue(node) for node in self.nodes]
        self._lanes.join()
        return spans

    def run(self, profile: bool = False) -> None:
        default, main = self.device.default_stream, self._lanes.main
        main.wait(default.record())
        if profile:
            self._lanes.profile = True
            spans = self._enqueue()
            self._lanes.profile = False
            main.synchronize()
            for node, span in zip(self.nodes, spans, strict=True):
                self.timeline.add(node, *span.interval())
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
        self._lanes = _Lanes(graph)
        self._order = urgency_order(self.nodes)

    def run(self, profile: bool = False) -> None:
        self._lanes.profile = profile
        self._lanes.main.wait(self.device.default_stream.record())
        self._lanes.begin()
        progress = _Progress(self._order, self._lanes)
        try:
            while not progress.finished():
                if not progress.advance():
                    time.sleep(_PAUSE)
            self._lanes.join()
            self._lanes.main.synchronize()
        except SlipstreamError:
            raise
        except Exception as failure:
            raise RunError(f"the step failed: {failure}") from failure
        if profile:
            for node in self.nodes:
                self.timeline.add(node, *progress.interval(node))


class _Progress:
    """One run of an overlapped step: what has been issued, what is in flight, what is done."""

    def __init__(self, order: list[Node], lanes: _Lanes) -> None:
        self._lanes = lanes
        self._waiting = list(order)
        self._flying: list[Node] = []
        self._issued: set[int] = set()
        self._arrived: set[int] = set()
        self._spans: dict[int, Span] = {}
        self._flights: dict[int, list[float]] = {}
        self._transfers = {node.index for node in order if node.transfer}

    def finished(self) -> bool:
        return not self._waiting and not self._flying

    def interval(self, node: Node) -> tuple[float, float]:
        if node.transfer:
            return tuple(self._flights[node.index])
        return self._spans[node.index].interval()

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
        try:
            if node.transfer:
                self._flights[node.index] = [time.perf_counter()]
                node.transfer.start()
                self._flying.append(node)
            else:
                self._spans[node.index] = self._lanes.issue(node)
                self._issued.add(node.index)
        except Exception as failure:
            raise _failed(node, failure) from failure

    def _poll(self) -> bool:
        landed = [node for node in self._flying if node.transfer.test()]
        for node in landed:
            self._flights[node.index].append(time.perf_counter())
            self._arrived.add(node.index)
            self._flying.remove(node)
        return bool(landed)


class _Lanes:
    """The streams of a committed step, one per lane, and the events between them."""

    def __init__(self, graph: StepGraph) -> None:
        lanes = dict.fromkeys(node.lane for node in graph.nodes if not node.transfer)
        self._lane_of = {node.index: node.lane for node in graph.nodes}
        self._streams: dict[str, Stream] = {lane: graph.device.stream() for lane in lanes}
        self.main = self._streams.setdefault("compute", graph.device.stream())
        self._default = graph.device.default_stream
        self._events: dict[int, Event] = {}
        self._marked = _observed(graph.nodes)
        self.profile = False

    def begin(self) -> None:
        """Let all lanes start after the main lane's present end."""
        self._events.clear()
        start = self.main.record()
        for stream in self._streams.values():
            if stream is not self.main:
                stream.wait(start)

    def join(self) -> None:
        """Let the main lane continue after all lanes."""
        for stream in self._streams.values():
            if stream is not self.main:
                self.main.wait(stream.record())

    def issue(self, node: Node) -> Span | None:
        """Submit an operation behind the events that it has to wait for."""
        stream = self._streams[node.lane]
        for index in node.dependencies:
            if index in self._events and self._lane_of[index] != node.lane:
                stream.wait(self._events[index])
        span = stream.submit_timed(node.operation) if self.profile else None
        if not self.profile:
            stream.submit(node.operation)
        if node.index in self._marked:
            self._events[node.index] = stream.record()
        return span

    def done(self, index: int) -> bool:
        """Return whether an issued operation is done; raise what it raised."""
        event = self._events[index]
        if event.done():
            event.synchronize()
            return True
        return False


def _observed(nodes: list[Node]) -> set[int]:
    """Return the operations whose end somebody outside their lane waits for."""
    return {
        index
        for node in nodes
        for index in node.dependencies
        if not nodes[index].transfer and (node.transfer or node.lane != nodes[index].lane)
    }


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


def _failed(node: Node, failure: Exception) -> RunError:
    return RunError(f"node {node.label!r} ({node.category}) failed: {failure}")
