"""How an overlapped step goes on: which nodes may begin, and what the others wait for."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from slipstream.device import Event
from slipstream.schedule.step_graph import Node
from slipstream.schedule.streams import Lanes, naming
from slipstream.schedule.timeouts import Patience


class Progress:
    """One run of an overlapped step: what has been issued, what is in flight, what is done.

    A node that waits is looked at again when what it waits for has been issued, has arrived, or is
    over. No one tells that an operation is over, so it is asked at every turn, if one waits for it.

    Parameters
    ----------
    order : list of Node
        The most urgent first, see `urgency_order`.
    lanes : Lanes
        Where operations run.
    start : Event
        What came before the step.
    patience : Patience
        How long transfers may take.
    """

    def __init__(self, order: list[Node], lanes: Lanes, start: Event, patience: Patience) -> None:
        self._lanes, self._patience = lanes, patience
        self._start: Event | None = start
        self._nodes = {node.index: node for node in order}
        # Nodes to look at, by urgency; those that wait for something to begin or arrive, by what it
        # is; and those that wait for something to be over, None for what came before the step.
        self._places = {node.index: place for place, node in enumerate(order)}
        self._looked_at = [(place, node.index) for place, node in enumerate(order)]
        self._waiting: dict[int, list[int]] = {}
        self._polled: dict[int | None, list[int]] = {}
        self._begun: set[int] = set()
        self._queues = _Queues(order)
        self._flying: list[Node] = []
        # Transfers that have arrived, and operations known to be over.
        self._done: set[int] = set()
        self._flights: dict[int, list[float]] = {}
        # What each node still waits for; the last recorded is looked at first.
        self._unfulfilled = {node.index: sorted(node.dependencies) for node in order}

    def finished(self) -> bool:
        """Return whether everything has been issued, and all transfers have arrived."""
        return len(self._begun) == len(self._nodes) and not self._flying

    def interval(self, node: Node) -> tuple[float, float]:
        """Return when a node ran, in a profiled run that has ended."""
        if node.transfer:
            return tuple(self._flights[node.index])
        return self._lanes.spans[node.index].interval()

    def advance(self) -> bool:
        """Start and issue all that can be, then poll; return whether anything happened."""
        before = len(self._begun)
        for ended in [index for index in self._polled if self._is_over(index)]:
            self._call_for(self._polled.pop(ended))
        while self._looked_at:
            _, index = heapq.heappop(self._looked_at)
            if index not in self._begun and self._ready(self._nodes[index]):
                self._go(self._nodes[index])
        return self._poll() or len(self._begun) > before

    def obstacle(self) -> str:
        """Return what the first node that waits is waiting for, for people."""
        waiting = (node for index, node in self._nodes.items() if index not in self._begun)
        node = next(waiting, None) or self._flying[0]
        left = self._unfulfilled[node.index]
        what = self._lanes.describe(left[-1]) if left else "what came before the step"
        return f"node {node.label!r}, which follows {what},"

    def _call_for(self, indices: Iterable[int]) -> None:
        """Let nodes be looked at, perhaps again."""
        for index in indices:
            heapq.heappush(self._looked_at, (self._places[index], index))

    def _may_touch(self) -> bool:
        """Return whether what came before the step is done: the host may touch its arrays."""
        if self._start is not None and self._start.done():
            self._start.synchronize()  # raises what failed
            self._start = None
        return self._start is None

    def _ready(self, node: Node) -> bool:
        """Return whether a node may be issued, or started; if not, see when to look again."""
        left = self._unfulfilled[node.index]
        # Each tile of a pass waits for all of the pass before: most are known to be over.
        while left and (left[-1] in self._done or self._fulfilled(node, left[-1])):
            left.pop()
        if left and (self._nodes[left[-1]].transfer or left[-1] not in self._begun):
            self._waiting.setdefault(left[-1], []).append(node.index)
        elif left or (node.transfer and not self._may_touch()):
            self._polled.setdefault(left[-1] if left else None, []).append(node.index)
        else:
            return self._queues.is_next(node)  # if not, the one before calls for it
        return False

    def _fulfilled(self, node: Node, dependency: int) -> bool:
        """Return whether a node may be issued, or started, as far as one dependency goes."""
        earlier = self._nodes[dependency]
        if earlier.transfer or dependency not in self._begun:
            return dependency in self._done
        # A transfer's data must be there, and a device cannot wait for another one's events.
        host_waits = node.transfer or earlier.device != node.device
        return not host_waits or self._is_over(dependency)

    def _is_over(self, index: int | None) -> bool:
        """Return whether an issued operation is over, or what came before the step."""
        if index is None:
            return self._may_touch()
        if index not in self._done and self._lanes.done(index):
            self._done.add(index)
        return index in self._done

    def _go(self, node: Node) -> None:
        self._begun.add(node.index)
        if node.transfer:
            self._flights[node.index] = [time.perf_counter()]
            naming(node, node.transfer.start)
            self._flying.append(node)
        else:
            self._lanes.issue(node)
            self._call_for(self._waiting.pop(node.index, ()))
        self._call_for(self._queues.advance(node))
        if not node.transfer:
            self._poll()  # on a single core the operation is over, and may have taken long

    def _poll(self) -> bool:
        landed = [node for node in self._flying if naming(node, node.transfer.test)]
        for node in landed:
            self._flights[node.index].append(time.perf_counter())
            self._done.add(node.index)
            self._flying.remove(node)
            self._call_for(self._waiting.pop(node.index, ()))
        for node in self._flying:
            self._patience.check(self._flights[node.index][0], f"exchange {node.label!r}")
        return bool(landed)


class _Queues:
    """Nodes that begin one after the other, in the order of recording, as on other ranks."""

    def __init__(self, order: list[Node]) -> None:
        self._left: dict[Any, deque[int]] = {}
        for node in order:
            queue = _queue(node)
            if queue is not None:
                self._left.setdefault(queue, deque()).append(node.index)

    def is_next(self, node: Node) -> bool:
        """Return whether those before a node have begun."""
        queue = _queue(node)
        return queue is None or self._left[queue][0] == node.index

    def advance(self, node: Node) -> list[int]:
        """Note that a node has begun; return whose turn it is."""
        queue = _queue(node)
        if queue is None:
            return []
        self._left[queue].popleft()
        return list(self._left[queue])[:1]


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
