"""Streams of a committed step, one per lane, and the events between them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from functools import partial

from slipstream.device import Device, Event, HostCall, LaneNode, Operation, Span, Stream
from slipstream.errors import RunError, SlipstreamError
from slipstream.schedule.step_graph import MAIN_LANE, Node, StepGraph

# A device, and the name of one of its lanes.
_Lane = tuple[Device, str]


class Lanes:
    """The streams of a committed step, and the events between them.

    Each device has separate lanes. A device cannot wait for the events of another device: the host
    waits for them before it issues the nodes that depend on them. With `bulk`, a device has one
    lane for all nodes except the batches that the threads of a CPU share.

    The other lanes fork from, and join, the lane `main`. By index, each node has a stream in
    `stream_of` (transfers do not use it), and in a profiled run each operation has a span in
    `spans`.
    """

    def __init__(self, graph: StepGraph, bulk: bool = False) -> None:
        def lane_of(node: Node) -> _Lane:
            merged = bulk and not node.lane.startswith(MAIN_LANE)
            return node.device, MAIN_LANE if merged else node.lane

        self._nodes, self._home = graph.nodes, (graph.device, MAIN_LANE)
        self._lane_of = [lane_of(node) for node in graph.nodes]
        used = [self._lane_of[node.index] for node in graph.nodes if not node.transfer]
        # Work that others wait for, perhaps on other ranks, must not queue behind large kernels.
        self._streams: dict[_Lane, Stream] = {
            (device, lane): device.stream(urgent=not lane.startswith(MAIN_LANE))
            for device, lane in dict.fromkeys([self._home, *used])
        }
        self.main = self._streams[self._home]
        self.stream_of = [self._streams.get(lane, self.main) for lane in self._lane_of]
        self._operations: dict[int, Operation] = {
            node.index: partial(run_named, node, node.operation)
            for node in graph.nodes
            if node.operation
        }
        # The operations for which each node waits in every other lane.
        self._awaited: list[dict[_Lane, list[int]]] = [{} for _ in graph.nodes]
        # The operations followed by an event, for nodes that wait for it.
        self._marked: set[int] = set()
        for node in graph.nodes:
            for index in node.dependencies:
                lane = self._lane_of[index]
                if node.transfer:
                    self._marked.add(index)
                if not graph.nodes[index].transfer and lane != self._lane_of[node.index]:
                    self._awaited[node.index].setdefault(lane, []).append(index)
                    self._marked.add(index)
        self._events: dict[int, Event] = {}
        self._order: dict[int, int] = {}
        self._waited: dict[tuple[_Lane, _Lane], int] = {}
        self._profile = False
        self.spans: dict[int, Span] = {}

    def in_order(self) -> list[tuple[Stream, list[LaneNode]]]:
        """Return the work of each lane's stream if nodes are issued in the order of recording.

        An inline stream gets the operations of all lanes.
        """
        if self._home[0].inline:
            return [(self.main, self.in_one())]
        result: dict[Stream, list[LaneNode]] = {}
        latest: dict[tuple[_Lane, _Lane], int] = {}
        for node in self._nodes:
            own, awaited = self._lane_of[node.index], []
            for lane, indices in self._awaited[node.index].items():
                if latest.get((own, lane), -1) < max(indices):
                    latest[own, lane] = max(indices)
                    awaited.append(max(indices))
            lane_node = LaneNode(node.index, self._plain_operation(node), awaited)
            result.setdefault(self.stream_of[node.index], []).append(lane_node)
        return list(result.items())

    def in_one(self) -> list[LaneNode]:
        """Return the work of a single stream with the nodes of all lanes."""
        return [LaneNode(node.index, self._plain_operation(node)) for node in self._nodes]

    def _plain_operation(self, node: Node) -> Operation:
        # A call of compiled code cannot fail: it needs no name.
        if isinstance(node.operation, HostCall):
            return node.operation
        return self._operations[node.index]

    def begin(self, profile: bool) -> None:
        """Start all lanes after the current end of the main lane."""
        for kept in (self._events, self._order, self._waited, self.spans):
            kept.clear()
        self._profile = profile
        starts = {device: device.default_stream.record() for device, _ in self._streams}
        starts[self._home[0]] = self.main.record()
        for (device, _), stream in self._streams.items():
            if stream is not self.main:
                stream.wait(starts[device])

    def join(self) -> None:
        """Continue the main lane after all lanes."""
        for stream in self._streams.values():
            if stream is not self.main:
                self.main.wait(stream.record())

    def drain(self, streams: Iterable[Stream] | None = None) -> None:
        """Wait until all lanes, or some streams, are done; raise errors, and clear them."""
        failures = []
        for stream in self._streams.values() if streams is None else streams:
            try:
                stream.synchronize()
            except Exception as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

    @contextlib.contextmanager
    def drained(self, streams: Iterable[Stream] | None = None) -> Iterator[None]:
        """Wait on exit until all lanes, or some streams, are done, so that arrays are free.

        After a failure this does not wait for transfers in flight, since the other side may have
        failed too: then a step with transfers must not be run again.
        """
        try:
            yield
            self.drain(streams)
        except BaseException as failure:
            with contextlib.suppress(Exception):
                self.drain(streams)
            if isinstance(failure, SlipstreamError) or not isinstance(failure, Exception):
                raise
            text = str(failure) or type(failure).__name__
            raise RunError(f"the step failed: {text}") from failure

    def issue(self, node: Node) -> None:
        """Submit an operation after the events that it has to wait for."""
        number, order = node.index, self._order
        own, stream = self._lane_of[number], self.stream_of[number]
        for lane, indices in self._awaited[number].items():
            # The last one in each other lane, unless this lane has waited for it before.
            index = max(indices, key=order.__getitem__)
            if self._waited.get((own, lane), -1) < order[index]:
                self._waited[own, lane] = order[index]
                if lane[0] == node.device:
                    stream.wait(self._events[index])
                else:
                    self._events[index].synchronize()
        operation = self._operations[number]
        if self._profile:
            self.spans[number] = stream.submit_timed(operation)
        else:
            stream.submit(operation)
        order[number] = len(order)
        if number in self._marked:
            self._events[number] = stream.record()

    def done(self, index: int) -> bool:
        """Return whether an issued operation is done; raise its error."""
        event = self._events[index]
        if event.done():
            event.synchronize()
            return True
        return False


def run_named(node: Node, operation: Operation, stream: Stream) -> None:
    """Run a node's operation; if it fails, the error names the node."""
    try:
        operation(stream)
    except Exception as failure:
        raise named_error(node, failure) from failure


def named_error(node: Node, failure: Exception) -> RunError:
    """Return an error that names the failed node."""
    text = str(failure) or type(failure).__name__
    return RunError(f"node {node.label!r} ({node.category}) failed: {text}")
