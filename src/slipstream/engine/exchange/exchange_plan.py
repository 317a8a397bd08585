"""Exchange plans: the elements for each rank, and the order of sending and receiving."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from slipstream.engine.array_types import Array
from slipstream.engine.decomposition import Box, common_parts, split


@dataclass(frozen=True)
class Block:
    """A contiguous part of a packed array: the global indices of `box`, to or from one rank.

    `offset` and `count` are in elements.
    """

    peer: int
    box: Box
    offset: int
    count: int


@dataclass(frozen=True)
class ExchangePlan:
    """The blocks that one rank sends and receives, one per peer in rank order, itself included.

    Sizes are the sizes of the packed source and target, in elements.
    """

    rank: int
    sends: tuple[Block, ...]
    receives: tuple[Block, ...]
    send_size: int
    receive_size: int

    @classmethod
    def redistribution(
        cls, sources: Sequence[Box], targets: Sequence[Box], rank: int
    ) -> ExchangePlan:
        """Plan the move from one decomposition, a box per rank without overlaps, to another."""
        sends = _blocks(common_parts(targets, sources[rank]))
        receives = _blocks(common_parts(sources, targets[rank]))
        return cls(rank, sends, receives, sources[rank].size, targets[rank].size)

    def reversed(self) -> ExchangePlan:
        """Return the plan of the exchange in the opposite direction."""
        return ExchangePlan(self.rank, self.receives, self.sends, self.receive_size, self.send_size)

    def of_fields(self, count: int) -> ExchangePlan:
        """Return the plan of several fields that are side by side in each row of a block."""

        def wide(corner: tuple[int, ...]) -> tuple[int, ...]:
            return (*corner[:-1], count * corner[-1])

        def widened(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
            return tuple(
                Block(
                    block.peer,
                    Box(wide(block.box.start), wide(block.box.stop)),
                    count * block.offset,
                    count * block.count,
                )
                for block in blocks
            )

        sizes = count * self.send_size, count * self.receive_size
        return ExchangePlan(self.rank, widened(self.sends), widened(self.receives), *sizes)

    def split(self, count: int) -> list[ExchangePlan]:
        """Divide every block along its slowest axis, into chunks that are sent one by one.

        All refer to the same packed arrays. Ranks may have slabs of different sizes: both ends of a
        block divide it equally.
        """
        if count == 1:
            return [self]

        ranges: dict[int, list[tuple[int, int]]] = {}

        def chunks(blocks: tuple[Block, ...], number: int) -> tuple[Block, ...]:
            cut = []
            for block in blocks:
                length = block.box.stop[0] - block.box.start[0]
                if length not in ranges:
                    ranges[length] = split(length, count)
                low, high = ranges[length][number]
                if low < high:
                    cut.append(_range(block, low, high))
            return tuple(cut)

        return [
            ExchangePlan(
                self.rank,
                chunks(self.sends, number),
                chunks(self.receives, number),
                self.send_size,
                self.receive_size,
            )
            for number in range(count)
        ]

    def between(self, low: int, high: int) -> ExchangePlan:
        """Return the part of the plan between two indices of the slowest axis of all blocks.

        It refers to the same packed arrays.
        """

        def cut(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
            parts = ((block, block.box.start[0], block.box.stop[0]) for block in blocks)
            return tuple(
                _range(block, max(low, first) - first, min(high, last) - first)
                for block, first, last in parts
                if max(low, first) < min(high, last)
            )

        sends, receives = cut(self.sends), cut(self.receives)
        return ExchangePlan(self.rank, sends, receives, self.send_size, self.receive_size)

    def among(self, peers: Collection[int]) -> ExchangePlan:
        """Return the part of the plan for some ranks."""
        sends, receives = (
            tuple(block for block in blocks if block.peer in peers)
            for blocks in (self.sends, self.receives)
        )
        return ExchangePlan(self.rank, sends, receives, self.send_size, self.receive_size)

    def off_rank_elements(self) -> int:
        """Return the number of elements that leave this rank."""
        return sum(block.count for block in self.sends if block.peer != self.rank)


def _blocks(parts: Iterable[tuple[int, Box]]) -> tuple[Block, ...]:
    blocks, offset = [], 0
    for peer, box in parts:
        if count := box.size:
            blocks.append(Block(peer, box, offset, count))
            offset += count
    return tuple(blocks)


def _range(block: Block, low: int, high: int) -> Block:
    row = block.count // block.box.shape[0]
    start, stop = block.box.start, block.box.stop
    box = Box((start[0] + low, *start[1:]), (start[0] + high, *stop[1:]))
    return Block(block.peer, box, block.offset + low * row, box.size)


def part_of(array: Array, block: Block) -> Array:
    """Return the part of a flat packed array that a block describes."""
    return array[block.offset : block.offset + block.count]


def ranges_of(blocks: Iterable[Block]) -> list[tuple[int, int]]:
    """Return the ranges of elements that blocks cover, with adjacent ranges joined."""
    return joined((block.offset, block.offset + block.count) for block in blocks)


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges in order, with adjacent ranges joined."""
    result: list[tuple[int, int]] = []
    for low, high in ranges:
        if result and result[-1][1] == low:
            low = result.pop()[0]
        result.append((low, high))
    return result


def views_of_ranges(array: Array, ranges: Sequence[tuple[int, int]]) -> list[Array]:
    """Return views of a flat array that cover ranges; equal, equidistant ranges are one view.

    Thousands of ranks may have blocks of a few sizes.
    """
    views, first = [], 0
    while first < len(ranges):
        low, high = ranges[first]
        count, distance = 1, 0
        while first + count < len(ranges):
            start, stop = ranges[first + count]
            step = start - ranges[first + count - 1][0]
            if stop - start != high - low or count > 1 and step != distance:
                break
            count, distance = count + 1, step
        if low + count * distance > array.size:  # the last one ends with the array
            count -= 1
        if count > 1:
            rows = array[low : low + count * distance].reshape(count, distance)
            views.append(rows[:, : high - low])
        else:
            count = 1
            views.append(array[low:high])
        first += count
    return views


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
    position = members[node].index(rank)

    def at(node: int, position: int) -> int | None:
        there = members[node % count]
        # Nodes with fewer ranks than others have empty places.
        return there[position] if position < len(there) else None

    steps: list[tuple[int | None, int | None]] = []
    for shift in range(largest):
        receiver, sender = (position + shift) % largest, (position - shift) % largest
        for turn in range(count - 1):
            # The distance in nodes depends on the sender's place in its node.
            to, back = (1 + (turn + start) % (count - 1) for start in (position, sender))
            steps.append((at(node + to, receiver), at(node - back, sender)))
    for shift in range(1, largest):
        if shift < len(members[node]):
            places = [(position + way) % len(members[node]) for way in (shift, -shift)]
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
