"""Streams of a committed step, one per lane, and the events by which they wait for each other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from slipstream.device import Device, Event, Span, Stream
from slipstream.errors import RunError, SlipstreamError
from slipstream.schedule.step_graph import MAIN_LANE, Node, StepGraph


class Lanes:
    """The streams of a committed step, one per lane, and the events between them.

    A device cannot wait for another one's events: the host does, before it issues what depends.

    Parameters
    ----------
    graph : StepGraph
        The recorded step.
    bulk : bool
        Whether a device has one lane for all, apart from those that work on chunks.

    Attributes
    ----------
    main : Stream
        The lane that others fork from and join.
    spans : dict of int to Span
        When each node ran, in a profiled run.
    """

    def __init__(self, graph: StepGraph, bulk: bool = False) -> None:
        self._nodes, self._home, self._bulk = graph.nodes, graph.device, bulk
        lanes = dict.fromkeys(self._lane(node) for node in graph.nodes if not node.transfer)
        home = graph.device, MAIN_LANE
        self._awaited = [self._in_other_lanes(node) for node in graph.nodes]
        self._operations = [partial(naming, node, node.operation) for node in graph.nodes]
        # What others wait for, perhaps on other ranks, must not queue behind large kernels.
        self._streams: dict[tuple[Device, str], Stream] = {
            (device, lane): device.stream(urgent=not lane.startswith(MAIN_LANE))
            for device, lane in dict.fromkeys([home, *lanes])
        }
        self.main = self._streams[home]
        self._events: dict[int, Event] = {}
        self._order: dict[int, int] = {}
        self._waited: dict[tuple, int] = {}
        self._marked = {
            index for node in graph.nodes if node.transfer for index in node.dependencies
        } | {
            index for awaited in self._awaited for indices in awaited.values() for index in indices
        }
        self._profile = False
        self.spans: dict[int, Span] = {}

    def begin(self, profile: bool) -> None:
        """Let all lanes start after the main lane's present end."""
        for kept in (self._events, self._order, self._waited, self.spans):
            kept.clear()
        self._profile = profile
        starts = {device: device.default_stream.record() for device, _ in self._streams}
        starts[self._home] = self.main.record()
        for (device, _), stream in self._streams.items():
            if stream is not self.main:
                stream.wait(starts[device])

    def join(self) -> None:
        """Let the main lane continue after all lanes."""
        for stream in self._streams.values():
            if stream is not self.main:
                self.main.wait(stream.record())

    def drain(self) -> None:
        """Wait until all lanes are done; raise what failed in any, and forget it."""
        failures = []
        for stream in self._streams.values():
            try:
                stream.synchronize()
            except Exception as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

    def stream(self, node: Node) -> Stream:
        """Return where an operation runs."""
        return self._streams[self._lane(node)]

    def issue(self, node: Node) -> None:
        """Submit an operation behind the events that it has to wait for."""
        stream = self.stream(node)
        for index in self._last_of_each_lane(node):
            if self._nodes[index].device == node.device:
                stream.wait(self._events[index])
            else:
                self._events[index].synchronize()
        operation = self._operations[node.index]
        if self._profile:
            self.spans[node.index] = stream.submit_timed(operation)
        else:
            stream.submit(operation)
        self._order[node.index] = len(self._order)
        if node.index in self._marked:
            self._events[node.index] = stream.record()

    def _in_other_lanes(self, node: Node) -> dict[tuple[Device, str], list[int]]:
        """Return the operations for which a node waits in each other lane."""
        own, result = self._lane(node), {}
        for index in node.dependencies:
            lane = self._lane(self._nodes[index])
            if not self._nodes[index].transfer and lane != own:
                result.setdefault(lane, []).append(index)
        return result

    def _last_of_each_lane(self, node: Node) -> list[int]:
        """Return, of the dependencies in each other lane, the last one not waited for yet."""
        own, order, result = self._lane(node), self._order, []
        for lane, indices in self._awaited[node.index].items():
            index = max(indices, key=order.__getitem__)
            if self._waited.get((own, lane), -1) < order[index]:
                self._waited[own, lane] = order[index]
                result.append(index)
        return result

    def describe(self, index: int) -> str:
        """Return a node's name, for people."""
        node = self._nodes[index]
        return f"{node.label!r} ({node.category}, on {node.device.name})"

    def done(self, index: int) -> bool:
        """Return whether an issued operation is done; raise what it raised."""
        event = self._events[index]
        if event.done():
            event.synchronize()
            return True
        return False

    def _lane(self, node: Node) -> tuple[Device, str]:
        """Return the lane of a node, of which each device has its own."""
        merged = self._bulk and not node.lane.startswith(MAIN_LANE)
        return node.device, MAIN_LANE if merged else node.lane


@contextlib.contextmanager
def drained(lanes: Lanes) -> Iterator[None]:
    """Leave with all lanes done, so that who catches a failure may use what they work on.

    Transfers in flight at a failure are not waited for, as the other side may have failed too: a
    step with transfers must not be run again then.
    """
    try:
        yield
        lanes.drain()
    except BaseException as failure:
        with contextlib.suppress(Exception):
            lanes.drain()
        if isinstance(failure, SlipstreamError) or not isinstance(failure, Exception):
            raise
        raise RunError(f"the step failed: {failure}") from failure


def naming(node: Node, function: Callable, *arguments: Any) -> Any:
    """Call a function on behalf of a node, whose name its failure shall bear."""
    try:
        return function(*arguments)
    except Exception as failure:
        message = f"node {node.label!r} ({node.category}) failed: {failure}"
        raise RunError(message) from failure
