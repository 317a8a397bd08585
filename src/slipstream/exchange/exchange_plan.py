"""Exchange plans: the elements for each rank, as counts and offsets, made once.

A plan is independent of the transport. It describes, for one rank, contiguous blocks of a *packed*
source (block by block in rank order of the receivers) and of a *packed* target (in rank order of
the senders). Every transport executes the same plan.

Inside a block, elements are in C order of the global array. Working arrays in the packed layout
need no packing; the slab transforms choose this layout.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from slipstream.array_types import Array
from slipstream.decomposition import Box, common_parts, split


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
            parts = ((one, one.box.start[0], one.box.stop[0]) for one in blocks)
            return tuple(
                _range(one, max(low, first) - first, min(high, last) - first)
                for one, first, last in parts
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


def part_of(array: Array, block: Block) -> Array:
    """Return the part of a flat packed array that a block describes."""
    return array[block.offset : block.offset + block.count]


def ranges_of(blocks: Iterable[Block]) -> list[tuple[int, int]]:
    """Return the ranges of elements that blocks cover, with adjacent ranges joined."""
    return joined((block.offset, block.offset + block.count) for block in blocks)


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges in order, with adjacent ranges joined."""
    found: list[tuple[int, int]] = []
    for low, high in ranges:
        if found and found[-1][1] == low:
            low = found.pop()[0]
        found.append((low, high))
    return found


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
