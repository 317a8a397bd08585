"""The traffic of a recorded step: a walk over its nodes, recorded on devices that run nothing.

A node of a GPU moves bytes in the memory of its device, and over the bus where it accesses the
host's; a node of the host moves bytes there. Messages are those of the exchanges of the step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from slipstream.engine.device.noting_device import DEVICE, HOST, PEER, NotingDevice, place_of
from slipstream.engine.exchange import RankPlace
from slipstream.engine.exchange.noting_transport import noting_grid as noting_grid
from slipstream.engine.exchange.peer_transport import HANDSHAKE_LANES
from slipstream.engine.schedule import StepGraph
from slipstream.engine.schedule.step_graph import Node


@dataclass
class StepTraffic:
    """The traffic of one rank in a step.

    Attributes
    ----------
    memory_bytes, host_bytes : float
        Read and written by GPUs in their memory, and by the host's cores in its memory.
    bus_in_bytes, bus_out_bytes : float
        Copied to its devices from the host, and back.
    in_node_bytes, off_node_bytes : float
        Sent to ranks of its node, and of others.
    in_node_messages, off_node_messages : float
        Their numbers of messages. Each store into the memory of another rank counts as a message.
    message_bytes : float
        The largest message to a rank of another node.
    sent_in : dict of float to float
        Bytes to ranks of other nodes, by the largest message of the exchange that sends them.
    relayed_bytes : float
        Sent within the node, from the host, before and after they travel between nodes.
    is_from_host : bool
        Whether messages leave from memory of the host, by requests of the host.
    exchanges : float
        How many times it waits for messages.
    launches, host_calls : float
        Operations of its GPUs, and of the host's cores, one after the other.
    """

    memory_bytes: float = 0.0
    host_bytes: float = 0.0
    bus_in_bytes: float = 0.0
    bus_out_bytes: float = 0.0
    in_node_bytes: float = 0.0
    off_node_bytes: float = 0.0
    in_node_messages: float = 0.0
    off_node_messages: float = 0.0
    message_bytes: float = 0.0
    sent_in: dict[float, float] = field(default_factory=dict)
    relayed_bytes: float = 0.0
    is_from_host: bool = False
    exchanges: float = 0.0
    launches: float = 0.0
    host_calls: float = 0.0

    def note(self, node: Node, rank_place: RankPlace) -> None:
        """Add the traffic of a node."""
        sender: Any = node.transfer or node.operation
        if node.operation is not None:
            self.launches += node.device.kind != "cpu"
            self.host_calls += node.device.kind == "cpu"
        if hasattr(sender, "messages"):
            self.exchanges += 1
            self.relayed_bytes += getattr(sender, "relayed_bytes", 0)
            messages = sender.messages()
            alike = Counter((rank_place.is_near(peer), size) for peer, size in messages)
            for (is_near, size), count in alike.items():
                self._note_message(is_near, size, count)
            self._note_sent({size: n for (is_near, size), n in alike.items() if not is_near})
            self.is_from_host |= bool(
                node.transfer and node.reads and place_of(node.reads[0]) == HOST
            )
        elif node.transfer or node.lane in HANDSHAKE_LANES:
            self.exchanges += node.lane != "signal" and node.label.endswith(": wait")
        else:
            self._note_work(node, rank_place)

    def _note_sent(self, sizes: Mapping[int, int]) -> None:
        """Add messages of one exchange to other nodes: how many there are of each size."""
        if sizes:
            largest = float(max(sizes))
            total = sum(size * count for size, count in sizes.items())
            self.sent_in[largest] = self.sent_in.get(largest, 0.0) + total

    def _note_message(self, is_near: bool, size: int, count: int = 1) -> None:
        if is_near:
            self.in_node_bytes += count * size
            self.in_node_messages += count
        else:
            self.off_node_bytes += count * size
            self.off_node_messages += count
            self.message_bytes = max(self.message_bytes, size)

    def _note_work(self, node: Node, rank_place: RankPlace) -> None:
        is_gpu = node.device.kind != "cpu"
        moved, crossing = 0.0, [0.0, 0.0]
        for is_written, arrays in enumerate((node.reads, node.writes)):
            for array in arrays:
                where = place_of(array)
                if where == PEER:
                    owner = cast(NotingDevice, node.device).memory.owner_of(array)
                    is_near = rank_place.is_near(owner)
                    self._note_message(is_near, array.nbytes)
                    self._note_sent({} if is_near else {array.nbytes: 1})
                if is_gpu and (where == HOST or where == PEER and node.category == "copy"):
                    crossing[is_written] += array.nbytes
                elif where in (DEVICE, HOST):
                    moved += array.nbytes
        self.bus_in_bytes += crossing[0]
        self.bus_out_bytes += crossing[1]
        if node.category == "communication":
            return
        moved = moved if node.moves is None else sum(node.moves)
        if not is_gpu:
            self.host_bytes += moved
        elif not any(crossing):
            self.memory_bytes += moved


def traffic_of(nodes: Iterable[Node], rank_place: RankPlace) -> StepTraffic:
    """Return the traffic of a rank by nodes that were recorded on noting devices."""
    traffic = StepTraffic()
    for node in nodes:
        traffic.note(node, rank_place)
    return traffic


def traffic_of_step(
    record: Callable[[NotingDevice, Any], StepGraph],
    device: NotingDevice,
    rank: int,
    ranks: int,
    transport: str,
    is_on_host: bool = False,
    grid: tuple[int, int] | None = None,
) -> StepTraffic:
    """Return the traffic of a step that is recorded on a device, for a rank of a single node.

    `record` gets the device and the transport that notes its exchanges, of arrays on the device or
    on its host.
    """
    rank_place = RankPlace(rank, ranks, ranks)
    home = device.home if is_on_host else device
    exchange = noting_grid(transport, rank_place, home, None, grid)
    return traffic_of(record(device, exchange).nodes, rank_place)
