"""The execution of an overlapped step: streams, events, nodes that may begin, and time limits."""

from __future__ import annotations

import contextlib
import heapq
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from slipstream.engine.collective import RankFailed, WaitedTooLong, longer_pause
from slipstream.engine.device import Device, Event, HostCall, LaneNode, Operation, Span, Stream
from slipstream.engine.errors import RunError
from slipstream.engine.schedule.step_graph import MAIN_LANE, Node, StepGraph, Transfer
from slipstream.engine.stop_signals import signals_held

# A device, and the name of one of its lanes.
_Lane = tuple[Device, str]
# Most exchanges end within this many seconds. Until then a waiting rank does not sleep: waking up
# would take longer than the exchange.
_BRISK = 2e-4
# After this many seconds the others are late, and the core is free for other work.
_LONG = 2e-2


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
        self._nodes, self._home = graph.nodes, (graph.device, MAIN_LANE)
        self._lane_of: list[_Lane] = [
            (node.device, MAIN_LANE)
            if bulk and not node.lane.startswith(MAIN_LANE)
            else (node.device, node.lane)
            for node in graph.nodes
        ]
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
        # The same for compiled code: a call of it cannot fail, and needs no name.
        self._plain = self._operations | {
            node.index: node.operation
            for node in graph.nodes
            if isinstance(node.operation, HostCall)
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
            lane_of_node, awaited = self._lane_of[node.index], []
            for lane, indices in self._awaited[node.index].items():
                if latest.get((lane_of_node, lane), -1) < max(indices):
                    latest[lane_of_node, lane] = max(indices)
                    awaited.append(max(indices))
            lane_node = LaneNode(node.index, self._plain[node.index], awaited)
            result.setdefault(self.stream_of[node.index], []).append(lane_node)
        return list(result.items())

    def in_one(self) -> list[LaneNode]:
        """Return the work of a single stream with the nodes of all lanes."""
        return [LaneNode(node.index, self._plain[node.index]) for node in self._nodes]

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
    def drained(self) -> Iterator[None]:
        """Wait on exit until all lanes are done, so that arrays are free.

        After a failure this does not wait for transfers in flight, since the other side may have
        failed too: then a step with transfers must not be run again.
        """
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):
                self.drain()
            raise
        self.drain()

    def issue(self, node: Node) -> None:
        """Submit an operation after the events that it has to wait for."""
        number, order = node.index, self._order
        lane_of_node, stream = self._lane_of[number], self.stream_of[number]
        for lane, indices in self._awaited[number].items():
            # The last one in each other lane, unless this lane has waited for it before.
            index = max(indices, key=order.__getitem__)
            if self._waited.get((lane_of_node, lane), -1) < order[index]:
                self._waited[lane_of_node, lane] = order[index]
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


class Patience:
    """The waiting times and pauses of the runs of one step.

    Each run sets the `limit` in seconds, which the environment may change. The pause between polls
    is the longest of the devices in use.
    """

    def __init__(self, *devices: Device) -> None:
        # If operations run in the caller, nothing else needs the core while this thread polls.
        self._inline = all(device.inline for device in devices)
        pause = max(device.pause for device in devices)
        # Also gives the interpreter to the threads of other lanes, which a busy loop would block
        # for milliseconds. time.sleep(0) would sleep for as long as a pause.
        self._pause = partial(time.sleep, pause) if pause else os.sched_yield
        self.limit = math.inf
        self._moved = time.perf_counter()

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Poll until something is done, with nothing else to do."""
        began = time.perf_counter()
        while not done():
            waited = time.perf_counter() - began
            if waited > self.limit:
                raise WaitedTooLong(what, self.limit)
            self._sleep(waited, waited < _BRISK)

    def moved(self) -> None:
        """Note progress: more may follow soon."""
        self._moved = time.perf_counter()

    def check(self, since: float, what: str) -> None:
        """Raise `WaitedTooLong` if the wait since `since` is too long."""
        if time.perf_counter() - since > self.limit:
            raise WaitedTooLong(what, self.limit)

    def rest(self, obstacle: Callable[[], str] = str) -> None:
        """Leave the core to kernels until the next poll; raise without progress for too long.

        `obstacle` returns a description of the wait.
        """
        idle = time.perf_counter() - self._moved
        if idle > self.limit:
            raise WaitedTooLong(obstacle(), self.limit)
        self._sleep(idle, self._inline and idle < _BRISK)

    def _sleep(self, waited: float, brisk: bool) -> None:
        signals_held.check()
        if brisk:
            os.sched_yield()
        elif waited < _LONG:
            self._pause()
        else:
            time.sleep(longer_pause(waited))


class OverlapExecutor:
    """Runs an overlapped step: tracks issued nodes, transfers in flight, and finished nodes.

    A waiting node is checked again when the node that it waits for has been issued, has arrived, or
    is finished. Operations do not announce their end: they are polled in every turn, if a node
    waits for them.
    """

    def __init__(self, nodes: list[Node], lanes: Lanes, patience: Patience) -> None:
        self._nodes, self._lanes, self._patience = nodes, lanes, patience
        # The place of each node in the order of urgency.
        self._places = [0] * len(nodes)
        order = urgency_order(nodes)
        for place, node in enumerate(order):
            self._places[node.index] = place
        # The dependencies of each node; the last recorded is checked first.
        self._dependencies = [node.dependencies for node in nodes]
        # Queues of nodes that begin one after the other, and the number of started nodes of each.
        self._queue_of = [_queue(node) for node in nodes]
        self._queues: dict[Any, list[int]] = {}
        for node in order:
            if (queue := self._queue_of[node.index]) is not None:
                self._queues.setdefault(queue, []).append(node.index)

    def begin(self, start: Event) -> None:
        """Begin a run after the work before the step."""
        self._start: Event | None = start
        self._looked_at = sorted((place, index) for index, place in enumerate(self._places))
        # Nodes that wait for another to begin or to arrive, and nodes that wait for another to
        # finish; None stands for work before the step.
        self._waiting: dict[int, list[int]] = {}
        self._polled: dict[int | None, list[int]] = {}
        self._left = [list(indices) for indices in self._dependencies]
        self._turns = dict.fromkeys(self._queues, 0)
        self._begun: set[int] = set()
        # Completed transfers, and operations known to be finished.
        self._done: set[int] = set()
        self._flying: dict[int, Transfer] = {}
        self._flights: dict[int, list[float]] = {}

    def finished(self) -> bool:
        """Return whether all nodes have been issued, and all transfers are complete."""
        return len(self._begun) == len(self._nodes) and not self._flying

    def interval(self, node: Node) -> tuple[float, float]:
        """Return the start and end of a node, in a finished profiled run."""
        if node.transfer:
            start, stop = self._flights[node.index]
            return start, stop
        return self._lanes.spans[node.index].interval()

    def advance(self) -> bool:
        """Start and issue all ready nodes, then poll; return whether anything happened."""
        before = len(self._begun)
        if self._polled:
            for ended in [index for index in self._polled if self._is_over(index)]:
                self._look_at(self._polled.pop(ended))
        while self._looked_at:
            _, index = heapq.heappop(self._looked_at)
            if index not in self._begun and self._ready(self._nodes[index]):
                self._start_node(self._nodes[index])
        return self._poll() or len(self._begun) > before

    def obstacle(self) -> str:
        """Return a description of the obstacle for the first waiting node."""
        by_urgency = sorted(self._nodes, key=lambda node: self._places[node.index])
        waiting = (node for node in by_urgency if node.index not in self._begun)
        node = next(waiting, None) or self._nodes[next(iter(self._flying))]
        what = "what came before the step"
        if left := self._left[node.index]:
            last = self._nodes[left[-1]]
            what = f"{last.label!r} ({last.category}, on {last.device.name})"
        return f"node {node.label!r}, which follows {what},"

    def _look_at(self, indices: Iterable[int]) -> None:
        """Schedule nodes to be checked, perhaps again."""
        for index in indices:
            heapq.heappush(self._looked_at, (self._places[index], index))

    def _ready(self, node: Node) -> bool:
        """Return whether a node may be issued, or started; if not, note when to check again."""
        left = self._left[node.index]
        # Each tile of a pass waits for all of the previous pass: most are known to be finished.
        while left:
            index = left[-1]
            if index not in self._done:
                earlier = self._nodes[index]
                if earlier.transfer or index not in self._begun:
                    self._waiting.setdefault(index, []).append(node.index)
                    return False
                # A transfer's data must be ready; a device cannot wait for another one's events.
                host_waits = node.transfer or earlier.device != node.device
                if host_waits and not self._is_over(index):
                    self._polled.setdefault(index, []).append(node.index)
                    return False
            left.pop()
        if node.transfer and not self._is_over(None):
            self._polled.setdefault(None, []).append(node.index)
            return False
        # If it is not this node's turn, its predecessor schedules it again.
        queue = self._queue_of[node.index]
        return queue is None or self._queues[queue][self._turns[queue]] == node.index

    def _is_over(self, index: int | None) -> bool:
        """Return whether an issued operation is finished; None stands for work before the step."""
        if index is None:
            if self._start is not None and self._start.done():
                self._start.synchronize()  # raises what failed
                self._start = None
            return self._start is None
        if index not in self._done and self._lanes.done(index):
            self._done.add(index)
        return index in self._done

    def _start_node(self, node: Node) -> None:
        self._begun.add(node.index)
        if node.transfer:
            self._flights[node.index] = [time.perf_counter()]
            try:
                node.transfer.start()
            except RankFailed:
                raise
            except Exception as failure:
                raise named_error(node, failure) from failure
            self._flying[node.index] = node.transfer
        else:
            self._lanes.issue(node)
            self._look_at(self._waiting.pop(node.index, ()))
        queue = self._queue_of[node.index]
        if queue is not None:
            self._turns[queue] = turn = self._turns[queue] + 1
            self._look_at(self._queues[queue][turn : turn + 1])
        if not node.transfer:
            self._poll()  # on a single core the operation is finished, and may have taken long

    def _poll(self) -> bool:
        """Return whether a transfer has completed."""
        landed = []
        for index, transfer in self._flying.items():
            try:
                if transfer.test():
                    landed.append(index)
            except RankFailed:
                raise
            except Exception as failure:
                raise named_error(self._nodes[index], failure) from failure
        for index in landed:
            self._flights[index].append(time.perf_counter())
            self._done.add(index)
            del self._flying[index]
            self._look_at(self._waiting.pop(index, ()))
        for index in self._flying:
            label = self._nodes[index].label
            self._patience.check(self._flights[index][0], f"exchange {label!r}")
        return bool(landed)


def _queue(node: Node) -> Any:
    """Return the queue of a node that must begin in order, as on other ranks; else None.

    Messages that devices order are matched with other ranks' messages by their order.
    """
    if node.transfer:
        return "transfers" if node.transfer.ordered else None
    return (node.device, node.lane) if node.category == "communication" else None


def urgency_order(nodes: list[Node]) -> list[Node]:
    """Return the nodes in an order in which nodes that feed the next transfer come first.

    For each transfer in the order of recording: first its dependencies that are not yet placed,
    then the transfer; at the end the nodes that no transfer needs. The order respects dependencies
    and queues, whose order is thus the same on all ranks.
    """
    placed: dict[int, None] = {}
    earlier: dict[int, list[int]] = {}
    latest: dict[Any, int] = {}
    for node in nodes:
        queue = _queue(node)
        if queue is not None:
            earlier[node.index] = [latest[queue]] if queue in latest else []
            latest[queue] = node.index

    def place_before(targets: Iterable[int]) -> None:
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
            place_before([node.index])
    place_before(range(len(nodes)))
    return [nodes[index] for index in placed]
