"""How an overlapped step runs: which nodes may begin, and what the others wait for."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable
from typing import Any

from slipstream.collective import RankFailed
from slipstream.device import Event
from slipstream.schedule.step_graph import Node, Transfer
from slipstream.schedule.streams import Lanes, named_error
from slipstream.schedule.timeouts import Patience


class OverlapExecutor:
    """Runs an overlapped step: knows what has been issued, what is in flight, and what is done.

    A node that waits is looked at again when what it waits for has been issued, has arrived, or is
    over. Nothing announces that an operation is over: it is asked at every turn, if a node waits
    for it.
    """

    def __init__(self, nodes: list[Node], lanes: Lanes, patience: Patience) -> None:
        self._nodes, self._lanes, self._patience = nodes, lanes, patience
        # The place of each node in the order of urgency.
        self._places = [0] * len(nodes)
        order = urgency_order(nodes)
        for place, node in enumerate(order):
            self._places[node.index] = place
        # What each node waits for; the last recorded is looked at first.
        self._dependencies = [node.dependencies for node in nodes]
        # Nodes that begin one after the other, and how many of each queue have begun.
        self._queue_of = [_queue(node) for node in nodes]
        self._queues: dict[Any, list[int]] = {}
        for node in order:
            if (queue := self._queue_of[node.index]) is not None:
                self._queues.setdefault(queue, []).append(node.index)

    def begin(self, start: Event) -> None:
        """Begin a run after what came before the step."""
        self._start: Event | None = start
        self._looked_at = sorted((place, index) for index, place in enumerate(self._places))
        # Nodes that wait for another to begin or to arrive, and nodes that wait for another to be
        # over; None stands for work before the step.
        self._waiting: dict[int, list[int]] = {}
        self._polled: dict[int | None, list[int]] = {}
        self._left = [list(indices) for indices in self._dependencies]
        self._turns = dict.fromkeys(self._queues, 0)
        self._begun: set[int] = set()
        # Transfers that have arrived, and operations known to be over.
        self._done: set[int] = set()
        self._flying: dict[int, Transfer] = {}
        self._flights: dict[int, list[float]] = {}

    def finished(self) -> bool:
        """Return whether everything has been issued, and all transfers have arrived."""
        return len(self._begun) == len(self._nodes) and not self._flying

    def interval(self, node: Node) -> tuple[float, float]:
        """Return when a node ran, in a profiled run that has ended."""
        if node.transfer:
            start, stop = self._flights[node.index]
            return start, stop
        return self._lanes.spans[node.index].interval()

    def advance(self) -> bool:
        """Start and issue all that can be, then poll; return whether anything happened."""
        before = len(self._begun)
        if self._polled:
            for ended in [index for index in self._polled if self._is_over(index)]:
                self._look_at(self._polled.pop(ended))
        while self._looked_at:
            _, index = heapq.heappop(self._looked_at)
            if index not in self._begun and self._ready(self._nodes[index]):
                self._go(self._nodes[index])
        return self._poll() or len(self._begun) > before

    def obstacle(self) -> str:
        """Return what the first node that waits is waiting for, for people."""
        by_urgency = sorted(self._nodes, key=lambda node: self._places[node.index])
        waiting = (node for node in by_urgency if node.index not in self._begun)
        node = next(waiting, None) or self._nodes[next(iter(self._flying))]
        what = "what came before the step"
        if left := self._left[node.index]:
            last = self._nodes[left[-1]]
            what = f"{last.label!r} ({last.category}, on {last.device.name})"
        return f"node {node.label!r}, which follows {what},"

    def _look_at(self, indices: Iterable[int]) -> None:
        """Let nodes be looked at, perhaps again."""
        for index in indices:
            heapq.heappush(self._looked_at, (self._places[index], index))

    def _ready(self, node: Node) -> bool:
        """Return whether a node may be issued, or started; if not, see when to look again."""
        left = self._left[node.index]
        # Each tile of a pass waits for all of the pass before: most are known to be over.
        while left:
            index = left[-1]
            if index not in self._done:
                earlier = self._nodes[index]
                if earlier.transfer or index not in self._begun:
                    self._waiting.setdefault(index, []).append(node.index)
                    return False
                # A transfer's data must be there; a device cannot wait for another one's events.
                host_waits = node.transfer or earlier.device != node.device
                if host_waits and not self._is_over(index):
                    self._polled.setdefault(index, []).append(node.index)
                    return False
            left.pop()
        if node.transfer and not self._is_over(None):
            self._polled.setdefault(None, []).append(node.index)
            return False
        # If it is not this node's turn, its predecessor brings it up again.
        queue = self._queue_of[node.index]
        return queue is None or self._queues[queue][self._turns[queue]] == node.index

    def _is_over(self, index: int | None) -> bool:
        """Return whether an issued operation is over; None stands for what came before the step."""
        if index is None:
            if self._start is not None and self._start.done():
                self._start.synchronize()  # raises what failed
                self._start = None
            return self._start is None
        if index not in self._done and self._lanes.done(index):
            self._done.add(index)
        return index in self._done

    def _go(self, node: Node) -> None:
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
            self._poll()  # on a single core the operation is over, and may have taken long

    def _poll(self) -> bool:
        """Return whether a transfer has arrived."""
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
