"""Stored arrays: their division into chunks and shards, and whether all of these exist."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.engine.array_types import Comm
from slipstream.engine.decomposition import Box, redistribute
from slipstream.engine.errors import InputError, SlipstreamError
from slipstream.engine.text import one_line, shown
from slipstream.files.durable_files import named
from slipstream.files.foreign_files import ForeignArray, foreign_arrays, published_shapes

# Between the indices in the name of a shard.
SHARD_SEPARATOR = "."
CODECS = [{"name": "bytes", "configuration": {"endian": "little"}}]
INDEX_CODECS = [*CODECS, {"name": "crc32c"}]
# In an index, instead of a chunk that does not exist.
_NOTHING = 2**64 - 1
# Precedes the number in the name of a store: no name that users choose has it.
NUMBER_SIGN = "~"
# Most bytes of a coordinate, which is read as a whole.
_MOST_COORDINATE = 1 << 28
# Bytes of a chunk, at most.
MAXIMUM_CHUNK_BYTES = 16 * 2**20
# Files of an array, or of each of its snapshots: as many may be chunks, and large arrays have about
# as many shards, or more if these would be larger than the largest.
FEW_FILES = 1024
# Files up to which an array has more shards if this saves an exchange.
_MORE_FILES = 2048
# Usual bytes of a shard.
_SHARD_BYTES = 256 * 2**20
_LARGEST_SHARD = 512 * 2**20
# Files that all ranks write together about as fast as they can.
_MANY_WRITERS = 128
# Bytes of a chunk in a shard: a plane takes a part of each chunk, which is read whole.
_INNER_BYTES = 2**20
# Chunks of fewer bytes are no good layout, unless there are few.
_SMALL = 2**20
# Small chunks per rank that are few.
_OF_A_RANK = 4
# Small chunks of an array that are few, whatever the number of ranks.
_FEW = 64
# Files that are smaller travel together.
_LEAST_BYTES = 16 * 2**20
# Offset and shape of the part of each rank.
Boxes = Iterable[tuple[Sequence[int], Sequence[int]]]


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
        target = content[number * size : (number + 1) * size].view(values.dtype).reshape(chunk)
        piece = values[part]
        if piece.shape != target.shape:
            target[...] = fill
        target[tuple(map(slice, piece.shape))] = piece
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
    table, checksum = _crc32c_table(), 0xFFFFFFFF
    for byte in content:
        checksum = table[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    return checksum ^ 0xFFFFFFFF


def next_store_name(path: Path) -> str:
    """Return the name of the next store, with other points, such as ``fields~2``."""
    stem, _, number = path.stem.partition(NUMBER_SIGN)
    return f"{stem}{NUMBER_SIGN}{int(number or 1) + 1}{path.suffix}"


def numbered_stores(path: Path) -> list[Path]:
    """Return a store and its continuations with other points, in order."""
    name = re.compile(rf"{re.escape(path.stem)}(?:{NUMBER_SIGN}(\d{{1,6}}))?{path.suffix}")
    folder = path.parent.iterdir() if path.parent.is_dir() else ()
    found = ((name.fullmatch(one.name), one) for one in folder)
    return [one for _, one in sorted((int(match[1] or 1), one) for match, one in found if match)]


class StoredArrays:
    """The contents of a zarr group when this is made: a half-written snapshot is not seen.

    Raises a ValueError, OSError or KeyError, which `errors_of_store` turns into an `InputError`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity = _identity(path)
        published = published_shapes(path)
        self._arrays: dict[str, ForeignArray] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for name, array in sorted(foreign_arrays(path).items()):
            shape = array.shape if published is None else published.get(name)
            if shape is not None and "/" not in name:
                if len(shape) != len(array.shape) or any(
                    n > most for n, most in zip(shape, array.shape, strict=True)
                ):
                    raise ValueError(f"{name} is of another shape than its group says")
                self._arrays[name], self.shapes[name] = array, shape
        self._opened: dict[str, Any] = {}

    def dimensions(self, name: str) -> tuple[str, ...]:
        """Return the names of an array's axes."""
        array = self._arrays[name]
        said = array.description.get("dimension_names")
        if isinstance(said, list) and len(said) == len(array.shape):
            return tuple(str(one or f"{name}_{i}") for i, one in enumerate(said))
        return tuple(f"{name}_{i}" for i in range(len(array.shape)))

    def attributes(self, name: str) -> dict[str, Any]:
        """Return the store's description of an array."""
        said = self._arrays[name].description.get("attributes")
        return dict(said) if isinstance(said, dict) else {}

    def dtype(self, name: str) -> np.dtype:
        """Return the type of an array's elements."""
        dtype: np.dtype = self.array(name).dtype
        return dtype

    def read(self, name: str, key: Any = ...) -> np.ndarray:
        """Return a part of an array; an `InputError` if another run has replaced the store."""
        try:
            whole = tuple(slice(0, size) for size in self.shapes[name])
            values = np.asarray(self.array(name)[whole if key is ... else key])
            # Chunks that no longer exist would read as not-a-number.
            if _identity(self.path) == self._identity:
                return values
        except FileNotFoundError:
            pass
        except Exception as error:  # of zarr, and of its codecs
            reason = reason_of(error)
            raise InputError(
                f"{named(self.path)}: {shown(name)} cannot be read: {reason}"
            ) from error
        raise InputError(f"{self.path} has been replaced since it was opened; open it again")

    def coordinate(self, name: str) -> np.ndarray:
        """Return an array that says where the points of an axis are."""
        shape = self.shapes[name]
        if len(shape) != 1 or shape[0] * self.dtype(name).itemsize > _MOST_COORDINATE:
            raise ValueError(f"coordinate {shown(name)} is of shape {shape}")
        return self.read(name)

    @property
    def times(self) -> np.ndarray:
        """The times of the snapshots; none of a store without them."""
        return self.coordinate("time") if "time" in self.shapes else np.zeros(0)

    def array(self, name: str) -> Any:
        """Return zarr's array, which does but compute."""
        if name not in self._opened:
            self._opened[name] = self._arrays[name].open()
        return self._opened[name]


@contextlib.contextmanager
def errors_of_store(path: Path) -> Iterator[None]:
    """Turn whatever keeps a store from being read into an `InputError` with its path."""
    try:
        yield
    except SlipstreamError:
        raise
    except Exception as error:  # of zarr, and of its codecs
        raise InputError(f"{named(path)}: cannot be read: {reason_of(error)}") from error


def reason_of(error: BaseException) -> str:
    """Return the text of an error, in one line."""
    return one_line(getattr(error, "strerror", None) or str(error) or type(error).__name__)


class StoredSpectra(Sequence[tuple[float, Mapping[str, tuple[np.ndarray, np.ndarray]]]]):
    """The spectra of a store, read on demand: their time, and wavenumbers and values by name."""

    def __init__(self, stored: StoredArrays, names: Iterable[str] | None = None) -> None:
        self._stored, self._times = stored, stored.times
        self._axes = {}
        for name in stored.shapes if names is None else names:
            dims = stored.dimensions(name)
            if len(dims) == 2 and dims[0] == "time" and dims[1] in stored.shapes:
                self._axes[name] = dims[1]

    def __len__(self) -> int:
        return len(self._times)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index, curves, shapes = range(len(self))[index], {}, self._stored.shapes
        for name, axis in self._axes.items():
            if index < shapes[name][0]:
                values = self._stored.read(name, (index, slice(0, shapes[name][1])))
                curves[name] = self._stored.coordinate(axis), values
        return float(self._times[index]), curves


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


@dataclass(frozen=True)
class StoredLayout:
    """The shape of the part of an array in each file, and of the chunks in a file."""

    file: tuple[int, ...]
    chunk: tuple[int, ...]

    @property
    def is_sharded(self) -> bool:
        """Whether a file has several chunks."""
        return self.file != self.chunk

    def files(self, shape: Sequence[int]) -> int:
        """Return the number of files of an array of a shape."""
        return _count(shape, self.file)


def stored_layout(shape: Sequence[int], boxes: Boxes, item_bytes: int) -> StoredLayout:
    """Return the layout of an array whose boxes, (offset, shape), ranks hold.

    Files belong to one rank each where that makes neither too many nor tiny ones. Where it does,
    an `Aggregation` says which rank writes a file that several have parts of.
    """
    boxes = [box for box in boxes if math.prod(box[1])]
    chunk = aligned_chunks(shape, boxes, item_bytes)
    files = _count(shape, chunk)
    is_fine = math.prod(chunk) * item_bytes >= _SMALL or files <= max(_FEW, _OF_A_RANK * len(boxes))
    if files <= FEW_FILES and is_fine:
        return StoredLayout(chunk, chunk)
    total = math.prod(shape) * item_bytes
    # Not even thousands of ranks make small shards of an array that has many.
    least = min(_SHARD_BYTES // 2, total // _MANY_WRITERS)
    least = max(MAXIMUM_CHUNK_BYTES, total // FEW_FILES, least)
    size = min(max(total // len(boxes), least), max(_SHARD_BYTES, least), _LARGEST_SHARD)
    # Lengths are halved: a little more is nearer to it than half of it.
    size = min(size + size // 4, _LARGEST_SHARD)
    borders = _borders(shape, boxes)
    file = _divide_lengths(_whole(shape, borders), borders, size // item_bytes)
    bytes_of_file = math.prod(file) * item_bytes
    if bytes_of_file < size // 2 and (
        bytes_of_file < MAXIMUM_CHUNK_BYTES or _count(shape, file) > _MORE_FILES
    ):
        borders = [0] * len(borders)
        file = _cut(_whole(shape, borders), borders, size // item_bytes)
    if math.prod(file) * item_bytes <= MAXIMUM_CHUNK_BYTES:
        return StoredLayout(file, file)
    divided = [n if border else 0 for n, border in zip(file, borders, strict=True)]
    chunk = _cut(file, divided, _INNER_BYTES // item_bytes)
    # Of equal chunks, so it may reach a little beyond the end of an axis that is not divided.
    file = tuple(-(-n // size) * size for n, size in zip(file, chunk, strict=True))
    return StoredLayout(file, chunk)


def file_indices(box: Box, file: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the indices of the files that have something of a box."""
    ranges = (
        range(start // size, -(-stop // size))
        for start, stop, size in zip(box.start, box.stop, file, strict=True)
    )
    return itertools.product(*ranges)


def file_box(index: Sequence[int], file: Sequence[int]) -> Box:
    """Return the box of a file, which may reach beyond the end of the array."""
    start = tuple(i * size for i, size in zip(index, file, strict=True))
    return Box(start, tuple(a + size for a, size in zip(start, file, strict=True)))


def aligned_chunks(
    shape: Sequence[int],
    boxes: Boxes,
    item_bytes: int,
    maximum_bytes: int | None = None,
) -> tuple[int, ...]:
    """Return the largest shape of chunks that never have elements of two boxes."""
    borders = _borders(shape, boxes)
    chunk = _whole(shape, borders)
    for axis, border in enumerate(borders):
        excess = math.prod(chunk) * item_bytes / (maximum_bytes or MAXIMUM_CHUNK_BYTES)
        if excess <= 1:
            break
        chunk[axis] = _shorten_length(chunk[axis], excess, must_divide=border > 0)
    return tuple(chunk)


def _borders(shape: Sequence[int], boxes: Boxes) -> list[int]:
    """Return for each axis the divisor of all indices where boxes begin; 0 if none is inside."""
    if not shape:  # a number, not an array
        return []
    corners = np.array([box for box in boxes if math.prod(box[1])], np.int64)
    starts, extents = corners.reshape(-1, 2, len(shape)).swapaxes(0, 1)
    ends = starts + extents
    # The end of the array needs no alignment: the last chunk may be cut short there.
    inside = np.concatenate([starts, np.where(ends < np.array(shape), ends, 0)])
    borders: list[int] = np.gcd.reduce(inside, axis=0, initial=0).tolist()
    return borders


def _whole(shape: Sequence[int], borders: Sequence[int]) -> list[int]:
    return [border or max(1, size) for border, size in zip(borders, shape, strict=True)]


def _shorten_length(length: int, excess: float, must_divide: bool) -> int:
    """Return a length that is smaller by a factor of at least `excess`, if there is one."""
    target = max(1, int(length / excess))
    if not must_divide:
        # Equal chunks rather than full ones and a remainder.
        return math.ceil(length / math.ceil(length / target))
    return next(divisor for divisor in range(target, 0, -1) if length % divisor == 0)


def _cut(lengths: Sequence[int], borders: Sequence[int], most: int) -> tuple[int, ...]:
    """Return lengths of at most `most` elements: the longest is halved, along borders evenly."""
    result = list(lengths)
    while math.prod(result) > max(1, most):
        shorter = [
            _shorten_length(n, 2, must_divide=True) if border else -(-n // 2)
            for n, border in zip(result, borders, strict=True)
        ]
        axis = max(range(len(result)), key=lambda i: (4 * shorter[i] >= result[i] > 1, result[i]))
        result[axis] = shorter[axis]
    return tuple(result)


def _divide_lengths(lengths: Sequence[int], borders: Sequence[int], most: int) -> tuple[int, ...]:
    """Return lengths of at most `most` elements in all, for the fewest equal parts."""
    halved = _cut(lengths, borders, most)
    for parts in range(-(-math.prod(lengths) // max(1, most)), _count(lengths, halved)):
        result = list(lengths)
        for factor in reversed(_prime_factors(parts)):
            able = [i for i, border in enumerate(borders) if not border or result[i] % factor == 0]
            axis = max(able, key=lambda i: result[i], default=0)
            result[axis] = -(-result[axis] // factor)
        divides = all(n and border % n == 0 for n, border in zip(result, borders, strict=True))
        if divides and math.prod(result) <= most:
            return tuple(result)
    return halved


def _prime_factors(number: int) -> list[int]:
    factors, candidate = [], 2
    while candidate * candidate <= number:
        while number % candidate == 0:
            factors.append(candidate)
            number //= candidate
        candidate += 1
    return factors + [number] * (number > 1)


def _count(shape: Sequence[int], file: Sequence[int]) -> int:
    return math.prod(-(-n // size) for n, size in zip(shape, file, strict=True))


# -- who writes a file ---------------------------------------------------------------------------


class Aggregation:
    """The parts of an array that each rank writes, in rounds, so that every file has one writer."""

    def __init__(
        self, shape: Sequence[int], boxes: Sequence[Box], file: Sequence[int], item_bytes: int
    ) -> None:
        self._boxes = list(boxes)
        self.rounds: list[list[Box]] | None = None
        if not all(_is_whole(box, file, shape) for box in boxes):
            self.rounds = _rounds(shape, self._boxes, _group_files(file, shape, item_bytes))

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


def _group_files(file: Sequence[int], shape: Sequence[int], item_bytes: int) -> list[int]:
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
    files_of_rank: list[list[Box]] = [[] for _ in boxes]
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
        files_of_rank[writer].append(Box(start, stop))
    nothing = Box((0,) * len(shape), (0,) * len(shape))
    return [
        [files[number] if number < len(files) else nothing for files in files_of_rank]
        for number in range(max(map(len, files_of_rank), default=0))
    ]


def _common(count: int, size: int, axis: int, boxes: Sequence[Box]) -> np.ndarray:
    """Return the number of indices along an axis that each row of files shares with each box."""
    low = size * np.arange(count)[:, None]
    start = np.array([box.start[axis] for box in boxes])
    stop = np.array([box.stop[axis] if box.size else box.start[axis] for box in boxes])
    common: np.ndarray = np.maximum(0, np.minimum(low + size, stop) - np.maximum(low, start))
    return common
