"""Files of which several ranks have a part: one of them writes it, after an exchange.

Each is written by a rank that has much of it, so little travels where boxes and files nearly agree;
of several such ranks that with the fewest files. Ranks exchange in rounds, in which each writes one
file at most, so that none needs more memory than for that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from slipstream.array_types import Comm
from slipstream.decomposition import Box
from slipstream.redistribution import redistribute

# Files that are smaller travel together.
_LEAST_BYTES = 16 * 2**20


class Aggregation:
    """Who writes what of an array that ranks hold in boxes, so that every file has one writer.

    Attributes
    ----------
    rounds : list of list of Box, or None
        For each round, what each rank writes; None if all boxes are whole files.
    """

    def __init__(
        self, shape: Sequence[int], boxes: Sequence[Box], file: Sequence[int], item_bytes: int
    ) -> None:
        self._boxes = list(boxes)
        self.rounds: list[list[Box]] | None = None
        if not all(_is_whole(box, file, shape) for box in boxes):
            self.rounds = _rounds(shape, self._boxes, _grown(file, shape, item_bytes))

    def parts(self, values: np.ndarray, comm: Comm) -> Iterator[tuple[Box, np.ndarray]]:
        """Yield what this rank writes, whole files each, empty ones included. Collective."""
        rank = 0 if comm is None else comm.rank
        if self.rounds is None:
            yield self._boxes[rank], values
            return
        values = np.ascontiguousarray(values)
        for targets in self.rounds:
            yield targets[rank], redistribute(values, self._boxes, targets, comm)


def _is_whole(box: Box, file: Sequence[int], shape: Sequence[int]) -> bool:
    return not box.size or all(
        start % size == 0 and (stop % size == 0 or stop == n)
        for start, stop, size, n in zip(box.start, box.stop, file, shape, strict=True)
    )


def _grown(file: Sequence[int], shape: Sequence[int], item_bytes: int) -> list[int]:
    """Return the shape of several files that travel together."""
    grown = list(file)
    for axis in reversed(range(len(grown))):
        while grown[axis] < shape[axis] and 2 * math.prod(grown) * item_bytes <= _LEAST_BYTES:
            grown[axis] *= 2
    return grown


def _rounds(shape: Sequence[int], boxes: Sequence[Box], file: Sequence[int]) -> list[list[Box]]:
    counts = [-(-n // size) for n, size in zip(shape, file, strict=True)]
    common = [
        _common(count, size, axis, boxes)
        for axis, (count, size) in enumerate(zip(counts, file, strict=True))
    ]
    own: list[list[Box]] = [[] for _ in boxes]
    loads = np.zeros(len(boxes), int)
    for index in np.ndindex(*counts):
        has = np.asarray(math.prod(along[i] for along, i in zip(common, index, strict=True)))
        if not has.any():
            continue
        start = tuple(i * size for i, size in zip(index, file, strict=True))
        stop = tuple(min(a + size, n) for a, size, n in zip(start, file, shape, strict=True))
        able = np.flatnonzero(2 * has >= has.max())
        writer = able[np.lexsort((-has[able], loads[able]))[0]]
        loads[writer] += 1
        own[writer].append(Box(start, stop))
    nothing = Box((0,) * len(shape), (0,) * len(shape))
    return [
        [files[number] if number < len(files) else nothing for files in own]
        for number in range(max(map(len, own), default=0))
    ]


def _common(count: int, size: int, axis: int, boxes: Sequence[Box]) -> np.ndarray:
    """Return how many indices along an axis each row of files has in common with each box."""
    low = size * np.arange(count)[:, None]
    start = np.array([box.start[axis] for box in boxes])
    stop = np.array([box.stop[axis] if box.size else box.start[axis] for box in boxes])
    return np.maximum(0, np.minimum(low + size, stop) - np.maximum(low, start))
