"""The contents of a checkpoint, and whether they are intact.

The manifest is a JSON file in the checkpoint's zarr group. It has the size and the checksum of each
other file, and one of itself. Files are looked at before they are opened: nothing but regular files
is. Arrays lie in them as plain numbers, which is compared before zarr decodes anything.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import zarr
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic import Field as Limits

from slipstream.io.folder_seals import Seal
from slipstream.io.foreign_files import kind_of, open_file
from slipstream.io.shards import (
    CODECS,
    INDEX_CODECS,
    SHARD_SEPARATOR,
    shard_index,
    shard_name,
    shard_size,
    shard_values,
)
from slipstream.io.stored_arrays import reason_of
from slipstream.io.zarr_store import all_finite
from slipstream.printable_text import printable, shortened

MANIFEST = "manifest.json"
# Of states that know of the rest of the folder, of others with shards, and of all others.
_SEALING: Literal[3] = 3
_SHARDED: Literal[2] = 2
_PLAIN: Literal[1] = 1
_DESCRIPTION = "zarr.json"
_DTYPES = ("int64", "float32", "float64", "complex64", "complex128")
# A larger file is nothing that is written here, and would only fill the memory.
_MOST_BYTES = 1 << 30

Count = Annotated[int, Limits(ge=0, lt=1 << 62)]
Length = Annotated[int, Limits(ge=1, lt=1 << 62)]


class Damage(Exception):
    """A checkpoint is not intact."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class StoredArray(_Strict):
    """How an array lies in the files of a checkpoint, with dimensions in the order of its shape.

    A file has a chunk; or is a shard with chunks of the shape `inner` in it.
    """

    shape: tuple[Count, ...]
    chunks: tuple[Length, ...]
    dtype: Literal[_DTYPES]  # type: ignore[valid-type]
    inner: tuple[Length, ...] | None = None

    def file_bytes(self, index: tuple[int, ...]) -> int:
        """Bytes of a file. Chunks at the end of an axis are filled up, shards have fewer chunks."""
        item: int = np.dtype(self.dtype).itemsize
        if self.inner is None:
            return math.prod(self.chunks) * item
        return shard_size(self.extent(index), self.chunks, self.inner, item)

    def extent(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of what of the array is in a file."""
        return tuple(part.stop for part in self.part_within(index))

    def values_in(self, content: bytes, index: tuple[int, ...]) -> Iterator[np.ndarray]:
        """Yield what of the array is in the chunks of a file."""
        if self.inner is None:
            values = np.frombuffer(content, self.dtype).reshape(self.chunks)
            yield values[self.part_within(index)]
        else:
            yield from shard_values(content, self.dtype, self.extent(index), self.inner)

    def has_its_index(self, content: bytes, index: tuple[int, ...]) -> bool:
        """Return whether the chunks of a shard are where they are written."""
        if self.inner is None:
            return True
        item: int = np.dtype(self.dtype).itemsize
        return content.endswith(shard_index(self.extent(index), self.chunks, self.inner, item))

    @property
    def chunks_along(self) -> tuple[int, ...]:
        """Number of chunks along each dimension."""
        return tuple(-(-n // size) for n, size in zip(self.shape, self.chunks, strict=True))

    def part_within(self, index: tuple[int, ...]) -> tuple[slice, ...]:
        """Return which part of a chunk lies within the array."""
        return tuple(
            slice(0, min(size, n - number * size))
            for n, size, number in zip(self.shape, self.chunks, index, strict=True)
        )


class Manifest(_Strict):
    """The contents of a checkpoint.

    Attributes
    ----------
    format : int
        Version of the format: 3 if the rest of the folder is sealed, else 2 if there
        are shards, which 1 does not know.
    library : str
        Version of Slipstream that wrote it.
    step : int
        Number of time steps that were done.
    time : float
        Time of the state (non-dimensional).
    case : str
        The effective case of the run that wrote it, as TOML.
    arrays : dict of str to StoredArray
        By name.
    files : dict of str to (int, int)
        Size and CRC-32 of each file, by its path in the checkpoint.
    seals : dict of str to Seal, or None
        What is known of the run's other output, by its path in the run's folder.
    began : (int, float), or None
        Step and time at which the run began.
    checksum : str
        Of all of the above.
    """

    format: Literal[1, 2, 3]
    library: str
    step: Count
    time: float
    case: str
    arrays: dict[str, StoredArray]
    files: dict[str, tuple[Count, Count]]
    seals: dict[str, Seal] | None = None
    began: tuple[Count, float] | None = None
    checksum: str = ""

    def text(self) -> str:
        """Return the text of the file, which names shards only if there are any."""
        return self.model_dump_json(exclude_none=True)

    def sealed(self) -> Manifest:
        """Return the same with its checksum."""
        content = self.model_copy(update={"checksum": ""}).text().encode()
        return self.model_copy(
            update={"checksum": hashlib.blake2b(content, digest_size=16).hexdigest()}
        )


def arrays_of(path: Path) -> dict[str, StoredArray]:
    """Return how arrays lie in the files of a zarr group that has just been written."""
    group: Any = zarr.open_group(path, mode="r")
    return {
        name: StoredArray(
            shape=array.shape,
            chunks=array.shards or array.chunks,
            dtype=array.dtype.name,
            inner=array.chunks if array.shards else None,
        )
        for name, array in group.arrays()
    }


def format_of(
    arrays: Mapping[str, StoredArray], seals: Mapping[str, Seal] | None = None
) -> Literal[1, 2, 3]:
    """Return the format of a manifest of arrays."""
    if seals is not None:
        return _SEALING
    return _PLAIN if all(array.inner is None for array in arrays.values()) else _SHARDED


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of a checkpoint whose files are there and are described by it.

    The content of chunks remains to be checked, by `check_chunks`. Raises `Damage`.
    """
    if not stat.S_ISDIR(_status(path).st_mode):
        raise Damage(f"it is {kind_of(_status(path).st_mode)}, not a folder")
    found = dict(_files_in(path))
    size = found.pop(MANIFEST, None)
    if size is None:
        raise Damage(f"{MANIFEST} is missing")
    manifest = _parsed(_content(path, MANIFEST, size))
    for name, (size, _) in manifest.files.items():
        if name not in found:
            raise Damage(f"{_described(name)} is missing")
        if found[name] != size:
            raise Damage(f"{_described(name)} has {found[name]} bytes, not {size}")
    for name in found:
        if name not in manifest.files:
            raise Damage(f"{_printable(name)} does not belong to it")
    _check_descriptions(path, manifest)
    return manifest


def check_chunks(path: Path, manifest: Manifest, rank: int = 0, ranks: int = 1) -> str:
    """Return the fault of this rank's share of the chunks of all arrays, or nothing."""
    chunks = (chunk for name, one in manifest.arrays.items() for chunk in _chunks(name, one))
    try:
        for name, array, index in itertools.islice(chunks, rank, None, ranks):
            content = _checked(path, manifest, name)
            if not array.has_its_index(content, index):
                raise Damage(f"{_described(name)}: its index is another")
            if not all(map(all_finite, array.values_in(content, index))):
                raise Damage(f"{_described(name)} has values that are no number")
    except Damage as damage:
        return str(damage)
    return ""


def _parsed(content: bytes) -> Manifest:
    """Return the contents of a manifest, if it is complete and of this version."""
    try:
        said = json.loads(content)
        version = said["format"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise Damage(f"{MANIFEST} is no manifest of a checkpoint") from None
    if isinstance(version, int) and version not in (_PLAIN, _SHARDED, _SEALING):
        raise Damage(
            f"{MANIFEST}: format {_printable(str(version))}; this version reads {_PLAIN} to"
            f" {_SEALING}"
        )
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError as error:
        where = ".".join(str(one) for one in error.errors()[0]["loc"])
        raise Damage(f"{MANIFEST}: {_printable(where)} is not as it was written") from None
    if manifest.sealed().checksum != manifest.checksum:
        raise Damage(f"{MANIFEST}: its checksum differs")
    if manifest.format != format_of(manifest.arrays, manifest.seals):
        raise Damage(f"{MANIFEST}: format {manifest.format} is not that of its arrays")
    return manifest


def _check_descriptions(path: Path, manifest: Manifest) -> None:
    """Compare zarr's descriptions, and the files that there should be, with the manifest."""
    expected = {_DESCRIPTION}
    for name, array in manifest.arrays.items():
        if not _is_possible(array):
            raise Damage(f"{MANIFEST}: array {_printable(name)} is not as it was written")
        if math.prod(array.chunks_along) > len(manifest.files):
            raise Damage(f"array {_printable(name)} lacks chunks")
        expected.add(f"{name}/{_DESCRIPTION}")
        for chunk, _, index in _chunks(name, array):
            expected.add(chunk)
            wanted = array.file_bytes(index)
            size, _ = manifest.files.get(chunk, (wanted, 0))
            if size != wanted:
                raise Damage(f"{_described(chunk)} has {size} bytes, not {wanted}")
    for name in sorted(expected ^ manifest.files.keys()):
        fault = "is missing" if name in expected else "does not belong to it"
        raise Damage(f"{_described(name)} {fault}")
    group = _description(path, manifest, _DESCRIPTION)
    said = group.get("attributes")
    described = {"step": manifest.step, "time": manifest.time, "case": manifest.case}
    if group.get("node_type") != "group" or said != described:
        raise Damage(f"{_DESCRIPTION} and {MANIFEST} differ")
    inside = group.get("consolidated_metadata", {}).get("metadata", {})
    for name, array in manifest.arrays.items():
        own = _description(path, manifest, f"{name}/{_DESCRIPTION}")
        if not _is_plain(own, array) or inside.get(name) != own:
            raise Damage(f"{_printable(name)}/{_DESCRIPTION} and {MANIFEST} differ")


def _is_possible(array: StoredArray) -> bool:
    """Return whether shape, chunks and checksums agree."""
    if len(array.shape) != len(array.chunks):
        return False
    inner = array.chunks if array.inner is None else array.inner
    return len(inner) == len(array.chunks) and not any(
        size % part for size, part in zip(array.chunks, inner, strict=True)
    )


def _is_plain(said: Mapping[str, Any], array: StoredArray) -> bool:
    """Return whether zarr's description is of the array, as plain numbers."""
    codecs: list[dict[str, Any]] = CODECS
    if array.inner is not None:
        sharding = {
            "chunk_shape": list(array.inner),
            "codecs": CODECS,
            "index_codecs": INDEX_CODECS,
            "index_location": "end",
        }
        codecs = [{"name": "sharding_indexed", "configuration": sharding}]
    separator = "/" if array.inner is None else SHARD_SEPARATOR
    wanted = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(array.shape),
        "data_type": array.dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(array.chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": separator}},
        "codecs": codecs,
        "storage_transformers": [],
    }
    return all(said.get(key, []) == value for key, value in wanted.items())


def _description(path: Path, manifest: Manifest, name: str) -> dict[str, Any]:
    try:
        said = json.loads(_checked(path, manifest, name))
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise Damage(f"{_described(name)} is no description of zarr's")
    return said


def _chunks(name: str, array: StoredArray) -> Iterator[tuple[str, StoredArray, tuple[int, ...]]]:
    """Yield the path of the file, and the index, of each chunk, or shard, of an array."""
    for index in itertools.product(*map(range, array.chunks_along)):
        own = shard_name(index) if array.inner else "/".join(("c", *map(str, index)))
        yield f"{name}/{own}", array, index


def _checked(path: Path, manifest: Manifest, name: str) -> bytes:
    size, checksum = manifest.files[name]
    content = _content(path, name, size)
    if zlib.crc32(content) != checksum:
        raise Damage(f"{_described(name)}: its checksum differs")
    return content


def _content(path: Path, name: str, size: int) -> bytes:
    """Return the content of a path, which is opened only if it is a regular file."""
    if size > _MOST_BYTES:
        raise Damage(f"{_described(name)} has {size} bytes, more than are ever written")
    try:
        with open_file(path / name) as file:
            content = file.read(size + 1)
    except OSError as error:
        raise Damage(f"{_described(name)} cannot be read: {reason_of(error)}") from None
    if len(content) != size:
        raise Damage(f"{_described(name)} has not {size} bytes")
    return content


def _files_in(path: Path, below: str = "") -> Iterator[tuple[str, int]]:
    """Yield the path and the size of every file in a folder; `Damage` if something is none."""
    try:
        with os.scandir(path / below) as entries:
            found = [(below + entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError as error:
        raise Damage(f"{_printable(below or '.')} cannot be read: {error.strerror}") from None
    for name, status in found:
        if stat.S_ISDIR(status.st_mode):
            yield from _files_in(path, name + "/")
        elif stat.S_ISREG(status.st_mode):
            yield name, status.st_size
        else:
            raise Damage(f"{_described(name)} is {kind_of(status.st_mode)}, not a file")


def _status(path: Path) -> os.stat_result:
    try:
        return path.lstat()
    except OSError as error:
        raise Damage(f"it cannot be read: {error.strerror}") from None


def _described(name: str) -> str:
    """Return the path of a file in a checkpoint, and what it has, for people."""
    array, *rest = name.split("/")
    if len(rest) == 1 and rest[0].startswith(f"c{SHARD_SEPARATOR}"):
        return _printable(f"{name} (array {array}, shard {rest[0][2:]})")
    if len(rest) > 1 and rest[0] == "c":
        return _printable(f"{name} (array {array}, chunk {'.'.join(rest[1:])})")
    return _printable(name)


def _printable(text: str) -> str:
    return shortened(" ".join(printable(text).split()), 120)
