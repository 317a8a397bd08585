"""Chunk shapes that let all ranks write one array at the same time without locks.

A chunk is one file. If no chunk contains elements of two ranks, no two ranks ever write the
same file. Along each axis the parts begin at certain indices; a chunk length that divides all
of these never straddles a border. Within that, chunks are as large as is still convenient.
"""

import math
from collections.abc import Iterable, Sequence

MAXIMUM_CHUNK_BYTES = 16 * 2**20


def aligned_chunks(
    shape: Sequence[int],
    parts: Iterable[tuple[Sequence[int], Sequence[int]]],
    item_bytes: int,
    maximum_bytes: int = MAXIMUM_CHUNK_BYTES,
) -> tuple[int, ...]:
    """Return the chunk shape for a global array that ranks write in parts.

    Parameters
    ----------
    shape : sequence of int
        Shape of the global array.
    parts : iterable of (offset, shape)
        Where each rank's part begins, and its shape; parts without elements are ignored.
    item_bytes : int
        Size of an element in bytes.
    maximum_bytes : int
        Chunks are cut until they are no larger than this.

    Returns
    -------
    tuple of int
        Chunk length along each axis, at least 1.
    """
    chunk = [max(1, size) for size in shape]
    borders = [0] * len(chunk)
    for offset, part in parts:
        if math.prod(part) == 0:
            continue
        for axis, (start, size) in enumerate(zip(offset, part, strict=True)):
            # The end of the array needs no alignment: the last chunk may be cut short there.
            end = start + size if start + size < shape[axis] else 0
            borders[axis] = math.gcd(borders[axis], start, end)
    chunk = [border or size for border, size in zip(borders, chunk, strict=True)]
    for axis, border in enumerate(borders):
        excess = math.prod(chunk) * item_bytes / maximum_bytes
        if excess <= 1:
            break
        chunk[axis] = _shortened(chunk[axis], excess, must_divide=border > 0)
    return tuple(chunk)


def _shortened(length: int, excess: float, must_divide: bool) -> int:
    """Return a length that is smaller by the factor `excess`, or as near to it as is possible."""
    target = max(1, int(length / excess))
    if not must_divide:
        # Equal pieces rather than full ones and a remainder.
        return math.ceil(length / math.ceil(length / target))
    return next(divisor for divisor in range(target, 0, -1) if length % divisor == 0)
