"""The `mpi-hierarchical` transport: one message carries all blocks from one node to another.

With s ranks a node, other transports send s x s messages from one node to another. Here one rank of
a node, the *carrier*, is responsible for each other node. It gathers the blocks that its node sends
there, exchanges them with the carrier on the other side, and scatters the received blocks. The
other nodes are divided among the ranks, so that all ranks carry. Every byte is copied twice more,
within nodes. So this is for small messages, whose number matters, not their size. Ranks of one node
exchange directly.

MPI packs and unpacks by datatypes. Blocks on a GPU are staged through pinned memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from slipstream.device import Device
from slipstream.exchange.exchange_order import members_of
from slipstream.exchange.exchange_plan import Block
from slipstream.exchange.mpi_transport import MpiExchange, MpiTransport

if TYPE_CHECKING:
    from slipstream.collective.own_communicator import OwnCommunicator

# The elements that a rank sends to each rank of other nodes, and receives from them.
Counts = tuple[dict[int, int], dict[int, int]]
STAGES = ("gather", "between", "scatter", "direct")


class Carriers:
    """The ranks of a node that carry the messages to, and from, other nodes."""

    def __init__(self, nodes: Sequence[int], rank: int) -> None:
        self.nodes, self.rank, self.here = nodes, rank, nodes[rank]
        self.members = members_of(nodes)

    def of(self, node: int, other: int) -> int:
        """Return the carrier of a node for another node."""
        distance, there = (other - node) % len(self.members), self.members[node]
        return there[(distance - 1) % len(there)]

    def carried_by(self, rank: int) -> list[int]:
        """Return the nodes for which a rank of this node is the carrier, the next one first."""
        count = len(self.members)
        others = ((self.here + distance) % count for distance in range(1, count))
        return [other for other in others if self.of(self.here, other) == rank]

    def in_turn(self) -> list[int]:
        """Return the ranks of this node, beginning with this one, so that all begin differently."""
        ranks = self.members[self.here]
        place = ranks.index(self.rank)
        return ranks[place:] + ranks[:place]


class Leg(NamedTuple):
    """A message of a stage to, or from, a rank: ranges of the packed array, or of the relay."""

    stage: str
    peer: int
    is_relayed: bool
    # Offsets and lengths.
    ranges: list[tuple[int, int]]

    def elements(self) -> int:
        """Return the number of its elements."""
        return sum(length for _, length in self.ranges)


class Legs:
    """All messages that one rank sends and receives in an exchange.

    `said` has the counts of every rank of this node. The relay has the elements that a carrier
    gathers, then the ones that it scatters: `relay_size` elements, by node, sender and receiver.
    """

    def __init__(
        self,
        carriers: Carriers,
        sends: Sequence[Block],
        receives: Sequence[Block],
        said: dict[int, Counts],
    ) -> None:
        self.sends: list[Leg] = []
        self.receives: list[Leg] = []
        self.relay_size = 0
        self._carriers = carriers
        here, members, turn = carriers.here, carriers.members, carriers.in_turn()
        mine = carriers.carried_by(carriers.rank)
        out = {(rank, peer): n for rank, (to, _) in said.items() for peer, n in to.items()}
        back = {(peer, rank): n for rank, (_, by) in said.items() for peer, n in by.items()}
        outgoing = [self._placed(members[here], members[node], out) for node in mine]
        incoming = [self._placed(members[node], members[here], back) for node in mine]
        for other in turn:
            nodes = carriers.carried_by(other)
            self._add(self.sends, "gather", other, False, self._packed(sends, nodes))
            self._add(self.receives, "scatter", other, False, self._packed(receives, nodes))
            gathered = [
                place for places in outgoing for (by, _), place in places.items() if by == other
            ]
            scattered = [
                place for places in incoming for (_, to), place in places.items() if to == other
            ]
            self._add(self.receives, "gather", other, True, gathered)
            self._add(self.sends, "scatter", other, True, scattered)
        for node, leaving, coming in zip(mine, outgoing, incoming, strict=True):
            carrier = carriers.of(node, here)
            self._add(self.sends, "between", carrier, True, list(leaving.values()))
            self._add(self.receives, "between", carrier, True, list(coming.values()))
        for legs, blocks in ((self.sends, sends), (self.receives, receives)):
            near = (block for block in blocks if carriers.nodes[block.peer] == here)
            for block in near:
                self._add(legs, "direct", block.peer, False, [(block.offset, block.count)])

    def _placed(
        self, senders: Iterable[int], receivers: list[int], counts: dict[tuple[int, int], int]
    ) -> dict[tuple[int, int], tuple[int, int]]:
        """Return the places in the relay of elements from one node to another, by ranks."""
        places = {}
        for pair in ((sender, receiver) for sender in senders for receiver in receivers):
            if count := counts.get(pair, 0):
                places[pair] = self.relay_size, count
                self.relay_size += count
        return places

    def _packed(self, blocks: Sequence[Block], nodes: Iterable[int]) -> list[tuple[int, int]]:
        """Return the places in the packed array of blocks for ranks of some nodes, in order."""
        places = {block.peer: (block.offset, block.count) for block in blocks}
        peers = (peer for node in nodes for peer in self._carriers.members[node])
        return [places[peer] for peer in peers if peer in places]

    @staticmethod
    def _add(
        legs: list[Leg], stage: str, peer: int, is_relayed: bool, ranges: list[tuple[int, int]]
    ) -> None:
        if ranges:
            legs.append(Leg(stage, peer, is_relayed, _merged(ranges)))


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges with adjacent ones joined."""
    merged = ranges[:1]
    for offset, length in ranges[1:]:
        start, before = merged[-1]
        if start + before == offset:
            merged[-1] = start, before + length
        else:
            merged.append((offset, length))
    return merged


def counts_of(carriers: Carriers, sends: Iterable[Block], receives: Iterable[Block]) -> Counts:
    """Return the elements that a rank sends to ranks of other nodes, and receives."""
    to, by = (
        {block.peer: block.count for block in blocks if carriers.nodes[block.peer] != carriers.here}
        for blocks in (sends, receives)
    )
    return to, by


class _Aggregated(MpiExchange):
    """Gathering on the node, messages between nodes, scattering on the node.

    Each stage begins when this rank has all data of the previous one. Receives are posted at the
    beginning; ranks of a node exchange their own messages while nodes exchange theirs.
    """

    _transport: MpiHierarchical
    tags = len(STAGES)

    def _prepare(self, tag: int) -> None:
        carriers, order = self._transport.carriers, self._transport.order
        sends, receives = order.sends(self.sends), order.receives(self.receives)
        said = self._transport.said_on_node(counts_of(carriers, sends, receives))
        self._legs = legs = Legs(carriers, sends, receives, said)
        dtype = self._staged[0][0].dtype
        # Ranks that only carry have no other array from which dependencies follow.
        self._scratch = [np.empty(legs.relay_size, dtype) for _ in self.pairs]
        ranges = (one for leg in (*legs.sends, *legs.receives) for one in leg.ranges)
        unit = max(1, math.gcd(*(number for one in ranges for number in one)))
        element = self._byte.Create_contiguous(unit * dtype.itemsize)
        made: dict[tuple[str, bool], list[Any]] = {}
        for is_sent, some in ((False, legs.receives), (True, legs.sends)):
            for leg in some:
                lengths, offsets = ([one[i] // unit for one in leg.ranges] for i in (1, 0))
                self._types.append(element.Create_indexed(lengths, offsets).Commit())
                first = tag + STAGES.index(leg.stage) * len(self.pairs)
                requests = self._persistent_of(leg, is_sent, self._types[-1], first)
                made.setdefault((leg.stage, is_sent), []).extend(requests)
        element.Free()
        self._requests = [request for requests in made.values() for request in requests]
        expected = [made.get((stage, False), []) for stage in STAGES]
        gather, between, scatter, direct = (made.get((stage, True), []) for stage in STAGES)
        self._first = [request for requests in expected for request in requests] + gather
        # The requests to wait for, and the functions that then begin.
        self._stages = [(expected[0], between + direct), (expected[1], scatter)]
        self._begun = len(self._stages)

    def _persistent_of(self, leg: Leg, is_sent: bool, kind: Any, tag: int) -> Iterator[Any]:
        init = self._comm.Send_init if is_sent else self._comm.Recv_init
        packed = [pair[not is_sent] for pair in self._staged]
        arrays = self._scratch if leg.is_relayed else packed
        for numbers in self.arrays_by_message(leg.elements()):
            some = kind if len(numbers) == 1 else self._joined(kind, arrays)
            message = [arrays[numbers.start].view(np.uint8), 1, some]
            yield init(message, leg.peer, tag + numbers.start)

    def _start(self) -> None:
        self._prequest.Startall(self._first)
        self._begun = 0
        self._is_over()

    def _is_over(self) -> bool:
        for awaited, following in self._stages[self._begun :]:
            if not self._request.Testall(awaited):
                return False
            self._prequest.Startall(following)
            self._begun += 1
        return super()._is_over()

    def messages(self) -> list[tuple[int, int]]:
        to_others = [leg for leg in self._legs.sends if leg.peer != self.plan.rank]
        return self._messages_of((leg.peer, leg.elements()) for leg in to_others)


class MpiHierarchical(MpiTransport):
    """Messages between nodes are aggregated on each of them."""

    name = "mpi-hierarchical"
    exchange = _Aggregated
    aggregates = True

    def __init__(self, comm: OwnCommunicator, device: Device) -> None:
        super().__init__(comm, device)
        self.carriers = Carriers(self.nodes, comm.rank)
        self._owner, self._node = comm, comm.part(self.carriers.here)

    def said_on_node(self, counts: Counts) -> dict[int, Counts]:
        """Return the counts of all ranks of this node. Collective."""
        self._owner.meet()
        ranks = self.carriers.members[self.carriers.here]
        return dict(zip(ranks, self._node.allgather(counts), strict=True))
