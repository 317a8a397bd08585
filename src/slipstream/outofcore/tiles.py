"""Tiles: the pieces into which a local array is cut so that they fit on a device one by one.

A rank works on some axes of its array in one pass: the array is cut along another axis, and every
piece, a tile, is worked on by itself. All of this is integer geometry; indices are those of an
array [field, ...axes].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from slipstream.decomposition import Box, split

# Bytes of a tile that keep the bus busy, and tiles that keep a pipeline filled.
_TILE, _FEWEST = 128 << 20, 8


@dataclass(frozen=True)
class TiledPass:
    """Work of all ranks along some axes, with nothing exchanged."""

    # One box per rank, before and after the work.
    before: tuple[Box, ...]
    after: tuple[Box, ...]
    # Axes that are worked on, in this order; 1 is the first after the fields. A pass without any
    # moves data from one exchange, or from the user's array, to the next.
    axes: tuple[int, ...]
    # The axis along which tiles are cut; 0 leaves every field whole.
    cut: int

    @property
    def longest_cut(self) -> int:
        """The largest number of tiles of a field that are not empty, on any rank."""
        return max(box.shape[self.cut] if self.cut else 1 for box in self.before)

    def tiles(self, rank: int, field: int, count: int) -> list[tuple[Box, Box]]:
        """Return a rank's tiles of a field, before and after; some may be empty.

        All ranks have the same number of them, so that ranks can exchange them.
        """
        before, after = self.before[rank], self.after[rank]
        ranges = (
            split(before.shape[self.cut], count) if self.cut else [(0, 1)] + [(0, 0)] * (count - 1)
        )
        return [
            (self._part(before, field, *part), self._part(after, field, *part)) for part in ranges
        ]

    def tile_shapes(self, rank: int, count: int) -> list[tuple[int, ...]]:
        """Return the shapes before the work that a rank's tiles of a field have, each once."""
        box = self.before[rank]
        if not box.size:
            return []
        size = box.shape[self.cut] if self.cut else 1
        smaller, larger = divmod(size, count if self.cut else 1)
        lengths = [smaller + 1] * (larger > 0) + [smaller] * (smaller > 0)
        return [
            (1, *(n if axis == self.cut else m for axis, m in enumerate(box.shape) if axis))
            for n in lengths
        ]

    def _part(self, box: Box, field: int, low: int, high: int) -> Box:
        start, stop = list(box.start), list(box.stop)
        here = high > low and start[0] <= field < stop[0]  # fields may be divided among ranks
        start[0], stop[0] = field, field + here
        if self.cut and box.size:
            origin = box.start[self.cut]
            start[self.cut], stop[self.cut] = origin + low, origin + high
        return Box(tuple(start), tuple(stop))


def tile_counts(size: int, longest: int, asked: int | None) -> Iterator[int]:
    """Yield numbers of tiles to try for so many bytes, more of them when fewer do not fit.

    There cannot be more than `longest`; a number that the user has asked for is the only one.
    """
    longest = max(1, longest)
    if asked is not None:
        yield min(asked, longest)
        return
    count = max(_FEWEST, -(-size // _TILE))
    while count < longest:
        yield count
        count = max(count + 1, count * 5 // 4)
    yield longest
