"""The order in which a rank sends to the other ranks, and receives from them.

Messages to other nodes take longest, so they go first, and copies within the node overlap with
them. Each step shifts the ranks by a distance: of nodes, and of places within a node. In each step
a rank sends to one rank and receives from one rank. If there are enough nodes, the ranks of a node
send to different nodes, and receive from different nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slipstream.exchange.exchange_plan import Block


def members_of(nodes: Sequence[int]) -> list[list[int]]:
    """Return the ranks of each node, from the node of each rank: 0, 1, ..."""
    members: list[list[int]] = [[] for _ in range(max(nodes) + 1)]
    for rank, node in enumerate(nodes):
        members[node].append(rank)
    return members


def exchange_steps(nodes: Sequence[int], rank: int) -> list[tuple[int | None, int | None]]:
    """Return the receiver and the sender of a rank at each step; None for no rank.

    All ranks have equally many steps. The receiver of a message receives it in the same step.
    """
    members = members_of(nodes)
    node, count, largest = nodes[rank], len(members), max(map(len, members))
    place = members[node].index(rank)

    def at(node: int, place: int) -> int | None:
        there = members[node % count]
        # Nodes with fewer ranks than others have empty places.
        return there[place] if place < len(there) else None

    steps: list[tuple[int | None, int | None]] = []
    for shift in range(largest):
        receiver, sender = (place + shift) % largest, (place - shift) % largest
        for turn in range(count - 1):
            # The distance in nodes depends on the sender's place in its node.
            to, back = (1 + (turn + start) % (count - 1) for start in (place, sender))
            steps.append((at(node + to, receiver), at(node - back, sender)))
    for shift in range(1, largest):
        if shift < len(members[node]):
            places = [(place + way) % len(members[node]) for way in (shift, -shift)]
            steps.append((members[node][places[0]], members[node][places[1]]))
        else:
            steps.append((None, None))
    return steps


class ExchangeOrder:
    """The order of a rank's messages, given the node of each rank."""

    def __init__(self, nodes: Sequence[int], rank: int) -> None:
        steps = exchange_steps(nodes, rank)
        self._sent = {to: step for step, (to, _) in enumerate(steps)}
        self._heard = {sender: step for step, (_, sender) in enumerate(steps)}

    def sends(self, blocks: Iterable[Block]) -> list[Block]:
        """Return blocks for other ranks in the order in which they are sent."""
        return sorted(blocks, key=lambda block: self._sent[block.peer])

    def receives(self, blocks: Iterable[Block]) -> list[Block]:
        """Return blocks from other ranks in the order in which they are received."""
        return sorted(blocks, key=lambda block: self._heard[block.peer])
