"""Files that somebody else may have written, opened so that they do nothing but give values.

Nothing is followed, or waited for. What a zarr folder says may run code (objects that are
unpickled), fill the memory, or lead to other files, so its descriptions are read as text before
zarr decodes anything: arrays are of plain numbers, and codecs of a list; of format 2 no filters.
There are only folders and files in it, and no chunk is longer than its array says. HDF5 files may
lead to others by links, by virtual data sets, and by external values: a name is looked up link by
link, so that no other file is even opened.
"""

from __future__ import annotations

import json
import math
import os
import stat
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from slipstream.engine.text import shown

_DESCRIPTION = "zarr.json"
# The description of an array of format 2, whose filters may be Python's pickle.
_OLD_DESCRIPTION = ".zarray"
# The description of a group of format 2.
_OLD_GROUP = ".zgroup"
DTYPES = (
    "bool",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_COMPRESSORS = ("gzip", "zlib", "zstd", "blosc")
CODECS = ("bytes", "transpose", "crc32c", *_COMPRESSORS, "sharding_indexed")
# Bytes of a description, at most.
_MOST_DESCRIPTION = 16 << 20
# Bytes of a chunk, at most; it may be larger if its array is.
_MOST_CHUNK = 1 << 30
# Compressed bytes that may be decoded without counting first: they make a GiB at most.
LITTLE = 1 << 20
_LARGEST = 1 << 62
# Links of an HDF5 file that are followed, one after the other.
_MOST_LINKS = 100
_KINDS = {
    stat.S_ISLNK: "a symbolic link",
    stat.S_ISDIR: "a folder",
    stat.S_ISFIFO: "a FIFO",
    stat.S_ISSOCK: "a socket",
}


def kind_of(mode: int) -> str:
    """Return the kind of a path that is not a file, from its mode."""
    return next((kind for is_kind, kind in _KINDS.items() if is_kind(mode)), "a device or the like")


def open_file(path: str | Path) -> BinaryIO:
    """Open a regular file to be read; an OSError for anything else, such as a link or a FIFO."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "not a regular file", str(path))
    return open(descriptor, "rb")


def content_of(path: str | Path, most: int) -> bytes:
    """Return the content of a regular file; an OSError also if it is longer than `most` bytes."""
    with open_file(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(None, f"longer than {most} bytes", str(path))
    return content


# -- zarr ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForeignArray:
    """An array that can be opened: where it is, and its shape."""

    path: Path
    shape: tuple[int, ...]
    description: Mapping[str, Any]

    def open(self) -> Any:
        """Return zarr's array, if nothing in it does but compute; a ValueError says what does."""
        import zarr

        is_old = self.description.get("zarr_format") == 2
        _check(_as_of_format_3(self.description) if is_old else self.description, self.path)
        return zarr.open_array(self.path, mode="r", zarr_format=2 if is_old else 3)


def foreign_arrays(path: Path) -> dict[str, ForeignArray]:
    """Return the arrays in a zarr folder by path; raise a ValueError for links and devices."""
    arrays: dict[str, ForeignArray] = {}
    if not any(os.path.lexists(path / one) for one in (_DESCRIPTION, _OLD_DESCRIPTION, _OLD_GROUP)):
        raise ValueError(f"it has no {_DESCRIPTION}")
    for folder, names in _folders(path):
        if _DESCRIPTION in names:
            said = _description(folder / _DESCRIPTION, 3)
        elif _OLD_DESCRIPTION in names:
            said = _description(folder / _OLD_DESCRIPTION, 2)
        else:
            continue
        if said.get("node_type", "array") == "array":
            where = "" if folder == path else str(folder.relative_to(path))
            arrays[where] = ForeignArray(folder, _lengths(said.get("shape"), 0), said)
    return arrays


def published_shapes(path: Path) -> dict[str, tuple[int, ...]] | None:
    """Return the shape of each array of a zarr group as the group tells it; None if it does not.

    A run lengthens arrays before it announces a snapshot, so this count is to be read first.
    """
    if not os.path.lexists(path / _DESCRIPTION):
        return None
    told = _description(path / _DESCRIPTION, 3).get("consolidated_metadata")
    arrays = told.get("metadata") if isinstance(told, dict) else None
    if not isinstance(arrays, dict):
        return None
    return {
        name: _lengths(one.get("shape"), 0)
        for name, one in arrays.items()
        if isinstance(one, dict) and one.get("node_type") == "array"
    }


def _folders(path: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield each folder and the names of its files; a ValueError for anything else."""
    waiting = [path]
    while waiting:
        folder, names = waiting.pop(), []
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(folder / entry.name)
                elif entry.is_file(follow_symlinks=False):
                    names.append(entry.name)
                else:
                    place = shown(str((folder / entry.name).relative_to(path)))
                    raise ValueError(f"{place} is a link or a device; accepted: folders and files")
        yield folder, names


def _description(path: Path, version: int) -> dict[str, Any]:
    try:
        said = json.loads(_content(path))
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or said.get("zarr_format") != version:
        raise ValueError(f"a {path.name} is no description of zarr's format {version}")
    return said


def _as_of_format_3(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of an array of format 2 as one of format 3."""
    if said.get("filters"):
        raise ValueError("it has filters; accepted: none")
    dtype, compressor = said.get("dtype"), said.get("compressor")
    codecs: list[dict[str, Any]] = [{"name": "bytes"}]
    if compressor is not None:
        codecs.append({"name": compressor.get("id") if isinstance(compressor, dict) else ""})
    fill = said.get("fill_value")
    return {
        "shape": said.get("shape"),
        "data_type": np.dtype(dtype).name if isinstance(dtype, str) and len(dtype) < 9 else dtype,
        "fill_value": 0 if fill is None else fill,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": said.get("chunks")}},
        "codecs": codecs,
    }


def _content(path: Path) -> bytes:
    try:
        return content_of(path, _MOST_DESCRIPTION)
    except OSError as error:
        if error.errno is not None:
            raise
        raise ValueError(f"{path.name} is no file of at most {_MOST_DESCRIPTION} bytes") from error


def _lengths(value: Any, least: int) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(
        isinstance(n, int) and not isinstance(n, bool) and least <= n < _LARGEST for n in value
    ):
        raise ValueError(f"a shape is {shown(value)}; accepted: whole numbers")
    return tuple(value)


def _check(said: Mapping[str, Any], path: Path) -> None:
    """Raise a ValueError if an array is not of plain numbers in chunks that can be decoded."""
    shape, dtype = _lengths(said.get("shape"), 0), said.get("data_type")
    if dtype not in DTYPES:
        raise ValueError(f"its type is {shown(dtype)}; accepted: {', '.join(DTYPES)}")
    if said.get("storage_transformers"):
        raise ValueError("it has storage transformers; accepted: none")
    if not isinstance(said.get("fill_value"), bool | int | float | str | list):
        raise ValueError(f"its fill value is {shown(said.get('fill_value'))}; accepted: a number")
    chunk = _chunk_shape(said.get("chunk_grid"))
    if len(chunk) != len(shape):
        raise ValueError("its chunks have other axes than its shape")
    item = np.dtype(dtype).itemsize
    chunk_bytes, most = math.prod(chunk) * item, max(_MOST_CHUNK, math.prod(shape) * item)
    if chunk_bytes > most:
        raise ValueError(f"its chunks have {chunk_bytes} bytes; accepted: {most}")
    last = _check_codecs(said.get("codecs"))
    if last in _COMPRESSORS:
        for folder, names in _folders(path):
            for name in names:
                if name not in (_DESCRIPTION, _OLD_DESCRIPTION, ".zattrs"):
                    _check_content(folder / name, last, chunk_bytes)


def _chunk_shape(grid: Any) -> tuple[int, ...]:
    if not isinstance(grid, dict) or grid.get("name") != "regular":
        raise ValueError(f"its chunk grid is {shown(grid)}; accepted: a regular one")
    settings = grid.get("configuration")
    return _lengths(settings.get("chunk_shape") if isinstance(settings, dict) else None, 1)


def _check_codecs(codecs: Any) -> str:
    """Return the compressor among the codecs, if there is one; refuse unknown codecs."""
    if not isinstance(codecs, list):
        raise ValueError(f"its codecs are {shown(codecs)}; accepted: a list")
    names = []
    for codec in codecs:
        name = codec.get("name") if isinstance(codec, dict) else codec
        if name not in CODECS:
            raise ValueError(f"its codec is {shown(name)}; accepted: {', '.join(CODECS)}")
        names.append(name)
        settings = codec.get("configuration") if isinstance(codec, dict) else None
        if name == "sharding_indexed":
            settings = settings if isinstance(settings, dict) else {}
            _lengths(settings.get("chunk_shape"), 1)
            for inner in ("codecs", "index_codecs"):
                if _check_codecs(settings.get(inner)) == name:
                    raise ValueError("it has shards in shards; accepted: none")
    compressors = [name for name in names if name in _COMPRESSORS]
    if len(compressors) > 1:
        raise ValueError(f"it is compressed by {' and '.join(compressors)}; accepted: one of them")
    return "sharding_indexed" if "sharding_indexed" in names else "".join(compressors)


def _check_content(path: Path, codec: str, most: int) -> None:
    """Refuse a compressed chunk that says that it has, or has, more bytes than its array's have."""
    with open_file(path) as file:
        head = file.read(18)
        stated_size: int | None = None
        if codec == "blosc" and len(head) >= 16:
            stated_size = struct.unpack("<I", head[4:8])[0]
        elif codec == "zstd":
            stated_size = _zstd_size(head)
        elif codec in ("gzip", "zlib") and os.fstat(file.fileno()).st_size > LITTLE:
            file.seek(0)
            stated_size = inflated_size(file, most, zlib.MAX_WBITS | (16 if codec == "gzip" else 0))
    if stated_size is not None and stated_size > most:
        raise ValueError(f"{shown(path.name)} is of more bytes than the {most} of a chunk")


def _zstd_size(head: bytes) -> int | None:
    """Return the size of the content that the head of a frame of Zstandard tells (RFC 8878)."""
    if len(head) < 6 or head[:4] != b"\x28\xb5\x2f\xfd":
        return None  # which does not decode
    descriptor = head[4]
    width = (int(bool(descriptor & 0x20)), 2, 4, 8)[descriptor >> 6]
    first = 5 + (0 if descriptor & 0x20 else 1) + (0, 1, 2, 4)[descriptor & 3]
    if not width:
        return _LARGEST  # it does not tell, as writers of arrays do
    size = int.from_bytes(head[first : first + width], "little")
    return size + 256 if width == 2 else size


def inflated_size(file: Any, most: int, window: int = zlib.MAX_WBITS) -> int:
    """Return the number of bytes of a file's deflated content, or one more than `most`."""
    engine, total = zlib.decompressobj(window), 0
    while total <= most and (block := file.read(1 << 18)):
        while block and total <= most:
            total += len(engine.decompress(block, 1 << 22))
            block = engine.unconsumed_tail or engine.unused_data
            if engine.eof:
                engine = zlib.decompressobj(window)
    return min(total, most + 1)


# -- HDF5 ----------------------------------------------------------------------------------------


def own_dataset(file: Any, name: str) -> Any:
    """Return a data set of an open file, or None; a ValueError if it leads to another file."""
    import h5py

    here, rest, links = file["/"], name.split("/")[::-1], 0
    while rest:
        part = rest.pop()
        if part in ("", "."):
            continue
        link = here.get(part, getlink=True) if isinstance(here, h5py.Group) else None
        if isinstance(link, h5py.ExternalLink):
            raise ValueError(f"{name} is a link to another file, which is not followed")
        if isinstance(link, h5py.SoftLink):
            links += 1
            if links > _MOST_LINKS:
                return None
            rest += link.path.split("/")[::-1]
            here = file["/"] if link.path.startswith("/") else here
        elif link is None:
            return None
        else:
            here = here[part]
    if not isinstance(here, h5py.Dataset):
        return None
    if here.is_virtual or here.external:
        raise ValueError(f"{name} has its values in other files, which are not read")
    return here
