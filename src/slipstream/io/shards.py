"""Shards: files of many chunks of an array, as zarr's codec ``sharding_indexed`` describes them.

The chunks that are within the array come first, in their order and not compressed; then where each
begins and how long it is, and the CRC-32C of that. So the size of a shard, and its index, follow
from the shape of what it holds. zarr would write the same by way of three copies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

# Between the indices in the name of a shard.
SHARD_SEPARATOR = "."
CODECS = [{"name": "bytes", "configuration": {"endian": "little"}}]
INDEX_CODECS = [*CODECS, {"name": "crc32c"}]
_NOTHING = 2**64 - 1  # instead of a chunk that is not there


def shard_content(
    values: np.ndarray, shard: Sequence[int], chunk: Sequence[int], fill: Any
) -> np.ndarray:
    """Return the bytes of a shard that holds `values`, less than its shape at the array's end."""
    values = np.asarray(values, values.dtype.newbyteorder("<"))
    size = math.prod(chunk) * values.itemsize
    inside = _chunks_along(values.shape, chunk)
    index = shard_index(values.shape, shard, chunk, values.itemsize)
    content = np.empty(math.prod(inside) * size + len(index), np.uint8)
    content[len(content) - len(index) :] = np.frombuffer(index, np.uint8)
    for number, part in enumerate(_parts(values.shape, chunk)):
        own = content[number * size : (number + 1) * size].view(values.dtype).reshape(chunk)
        piece = values[part]
        if piece.shape != own.shape:
            own[...] = fill
        own[tuple(map(slice, piece.shape))] = piece
    return content


def shard_name(index: Sequence[int]) -> str:
    """Return the name of a shard in the folder of its array: there is no folder in between."""
    return SHARD_SEPARATOR.join(("c", *map(str, index)))


def shard_size(
    extent: Sequence[int], shard: Sequence[int], chunk: Sequence[int], item_bytes: int
) -> int:
    """Return the bytes of a shard that holds values of shape `extent`."""
    inside = math.prod(_chunks_along(extent, chunk)) * math.prod(chunk) * item_bytes
    return inside + 16 * math.prod(_chunks_along(shard, chunk)) + 4


def shard_values(
    content: bytes, dtype: Any, extent: Sequence[int], chunk: Sequence[int]
) -> Iterator[np.ndarray]:
    """Yield the part of the array in each chunk of a shard that holds values of shape `extent`."""
    size = math.prod(chunk) * np.dtype(dtype).itemsize
    for number, part in enumerate(_parts(extent, chunk)):
        values = np.frombuffer(content, dtype, math.prod(chunk), number * size).reshape(chunk)
        yield values[tuple(slice(one.stop - one.start) for one in part)]


def shard_index(
    extent: Sequence[int], shard: Sequence[int], chunk: Sequence[int], item_bytes: int
) -> bytes:
    """Return the end of a shard, which says where its chunks are."""
    inside = _chunks_along(extent, chunk)
    table = np.full((*_chunks_along(shard, chunk), 2), _NOTHING, "<u8")
    size = math.prod(chunk) * item_bytes
    own = table[tuple(map(slice, inside))]
    own[..., 0] = size * np.arange(math.prod(inside), dtype="<u8").reshape(inside)
    own[..., 1] = size
    content = table.tobytes()
    return content + _crc32c(content).to_bytes(4, "little")


def _chunks_along(extent: Sequence[int], chunk: Sequence[int]) -> tuple[int, ...]:
    return tuple(-(-n // size) for n, size in zip(extent, chunk, strict=True))


def _parts(extent: Sequence[int], chunk: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Yield the slices that each chunk has of values of shape `extent`."""
    for index in np.ndindex(*_chunks_along(extent, chunk)):
        yield tuple(
            slice(i * size, min((i + 1) * size, n))
            for i, size, n in zip(index, chunk, extent, strict=True)
        )


@cache
def _crc32c_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [one >> 1 ^ (0x82F63B78 if one & 1 else 0) for one in table]
    return table


def _crc32c(content: bytes) -> int:
    """Return Castagnoli's checksum, of the few kilobytes of an index."""
    table, found = _crc32c_table(), 0xFFFFFFFF
    for byte in content:
        found = table[(found ^ byte) & 0xFF] ^ found >> 8
    return found ^ 0xFFFFFFFF
