"""Tiles: the pieces into which a local array is cut so that they fit on a device one by one.

A rank transforms some axes of its array in one pass: the array is cut along another axis, which
is not transformed in it, and every piece, a tile, is transformed for itself. All of this is
integer geometry; indices are those of an array [field, ...axes].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slipstream.decomposition import Box, split
from slipstream.fft.layout_search import Boxes, Stage
from slipstream.fft.truncation import Modes

# Bytes of a tile that keep the bus busy, and tiles that keep a pipeline filled.
_TILE, _FEWEST = 128 << 20, 8


@dataclass(frozen=True)
class PassGeometry:
    """Transforms of all ranks along some axes, with nothing exchanged.

    Attributes
    ----------
    before, after : tuple of Box
        One box per rank, before and after the transforms.
    axes : tuple of int
        Axes that are transformed, in this order; 1 is the first after the fields. A pass without
        any moves data from one exchange, or from the user's array, to the next.
    cut : int
        The axis along which tiles are cut; 0 leaves every field whole.
    """

    before: Boxes
    after: Boxes
    axes: tuple[int, ...]
    cut: int

    @property
    def longest_cut(self) -> int:
        """The largest number of tiles of a field that are not empty, on any rank."""
        return max(box.shape[self.cut] if self.cut else 1 for box in self.before)

    def tiles(self, rank: int, field: int, count: int) -> list[tuple[Box, Box]]:
        """Return a rank's tiles of a field, before and after; some may be empty.

        Parameters
        ----------
        rank, field : int
            Whose they are, and of which field.
        count : int
            Their number: the same on all ranks, so that ranks can exchange them.
        """
        before, after = self.before[rank], self.after[rank]
        ranges = (
            split(before.shape[self.cut], count) if self.cut else [(0, 1)] + [(0, 0)] * (count - 1)
        )
        return [
            (self._part(before, field, *part), self._part(after, field, *part)) for part in ranges
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
    """Yield numbers of tiles to try, larger ones when smaller ones do not fit.

    Parameters
    ----------
    size : int
        Bytes of what is cut.
    longest : int
        Into how many tiles it can be cut.
    asked : int or None
        How many the user wants.
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


def passes_of(stage: Stage, modes: Sequence[Modes]) -> list[PassGeometry]:
    """Divide the transforms of a stage into passes, each of which leaves an axis to cut along.

    Parameters
    ----------
    stage : Stage
        A layout, and the axes that are transformed in it.
    modes : sequence of Modes
        The modes kept along each axis.
    """
    last = len(modes)
    free = [axis for axis in range(1, last + 1) if axis not in stage.axes]
    if free or last == 1:
        cut = free[0] if free and stage.axes else 0
        return [PassGeometry(stage.before, stage.after, stage.axes, cut)]
    # The slowest axis is left for a pass of its own, which is cut along the next one.
    first, second = stage.axes[:-1], stage.axes[-1:]
    between = tuple(_transformed(box, first, modes) for box in stage.before)
    return [
        PassGeometry(stage.before, between, first, second[0]),
        PassGeometry(between, stage.after, second, first[-1]),
    ]


def _transformed(box: Box, axes: Sequence[int], modes: Sequence[Modes]) -> Box:
    if not box.size:
        return box
    stop = list(box.stop)
    for axis in axes:
        stop[axis] = box.start[axis] + modes[axis - 1].count
    return Box(box.start, tuple(stop))
