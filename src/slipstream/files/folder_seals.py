"""Seals: a state's record of the rest of its run's folder when the state was written.

Of a time series it is a length and a checksum of these bytes; of a store, checksums of each array
as it is described, and of each snapshot. What is added later does not change them, so that they are
kept while output is written, and compared when the run continues: nothing is read a second time.
"""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import re
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from slipstream.engine.errors import RunError, SlipstreamError
from slipstream.engine.processes import map_in_threads
from slipstream.files.durable_files import PARTIAL, named
from slipstream.files.foreign_files import content_of, foreign_arrays, open_file
from slipstream.files.stored_arrays import StoredArrays, reason_of

Checksum = Annotated[int, Field(ge=0, lt=1 << 32)]
_DESCRIPTION = "zarr.json"
_MOST_DESCRIPTION = 16 << 20
# Files of an array at one time, at most.
_MOST_FILES = 1 << 22
# Bytes of a file in addition to its chunks, at most.
_MORE = 1 << 20
_BLOCK = 1 << 22
# Files that are compared at the same time.
_THREADS = 4
# Reasons for which a file cannot be read that lie in the folder, not in the disk.
_DAMAGE = (None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR)


class Seal(BaseModel):
    """The record of a series (length, checksum) or of a store (checksums by array and snapshot)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    length: Annotated[int, Field(ge=0, lt=1 << 62)] | None = None
    checksum: Checksum | None = None
    arrays: dict[str, Checksum] | None = None
    snapshots: tuple[Checksum, ...] | None = None


@dataclass(frozen=True)
class KeptOutput:
    """The output that continues, by its seals, and the output that is set aside, with reasons."""

    seals: Mapping[str, Seal] | None = None
    aside: Mapping[str, str] = field(default_factory=dict)

    def goes_on(self, name: str) -> bool:
        """Return whether the output of this name continues, instead of being set aside."""
        return name not in self.aside

    def below(self, folder: str) -> KeptOutput:
        """Return the same for a folder within."""
        start = f"{folder}/"

        def inside(given: Mapping[str, Any]) -> dict[str, Any]:
            return {k.removeprefix(start): v for k, v in given.items() if k.startswith(start)}

        return KeptOutput(None if self.seals is None else inside(self.seals), inside(self.aside))


# -- series ------------------------------------------------------------------------------------


def is_prefix(path: Path, seal: Seal) -> bool:
    """Return whether a file begins with the bytes that are sealed."""
    left, checksum = seal.length or 0, 0
    with open_file(path) as file:
        while left and (block := file.read(min(left, _BLOCK))):
            left -= len(block)
            checksum = zlib.crc32(block, checksum)
    return left == 0 and checksum == (seal.checksum or 0)


def file_checksum(path: Path, most: int) -> tuple[int, int]:
    """Return the size and the CRC-32 of a file; a ValueError if it is longer than it may be."""
    size = checksum = 0
    with open_file(path) as file:
        while block := file.read(_BLOCK):
            size, checksum = size + len(block), zlib.crc32(block, checksum)
            if size > most:
                raise ValueError(f"{path.name} is longer than {most} bytes")
    return size, checksum


# -- stores ------------------------------------------------------------------------------------


def piece_checksum(key: str, index: int, size: int, checksum: int) -> int:
    """Return the share of a file, or of its part of a snapshot, in the snapshot's checksum."""
    return zlib.crc32(f"{key} {index} {size} {checksum}".encode())


def time_checksum(index: int, time: float) -> int:
    """Return the share of a snapshot's time in its checksum."""
    return piece_checksum("time", index, 8, zlib.crc32(np.float64(time).tobytes()))


def part_checksum(content: bytes, key: str, index: int, together: int, dtype: np.dtype) -> int:
    """Return the same of a file with several snapshots; 0 if nothing was written for this one."""
    size, rest = divmod(len(content), together)
    if rest or size % dtype.itemsize:
        raise ValueError(f"{key} has {len(content)} bytes, which are no {together} snapshots")
    part = content[index % together * size : (index % together + 1) * size]
    values = np.frombuffer(part, dtype)
    if np.isnan(values).all() if dtype.kind in "fc" else not values.any():
        return 0
    return piece_checksum(key, index, len(part), zlib.crc32(part))


def array_seals(path: Path) -> dict[str, int]:
    """Return the checksums of the descriptions in a store, and of arrays without a time axis."""
    arrays = foreign_arrays(path)
    group = json.loads(content_of(path / _DESCRIPTION, _MOST_DESCRIPTION))
    told = group.get("consolidated_metadata") or {}
    inside = told.get("metadata", {}) if isinstance(told, dict) else {}
    checksums = {"": _canonical(group.get("attributes"))}
    for name, array in arrays.items():
        said = _without_length(array.description)
        if name in inside and _without_length(inside[name]) != said:
            raise ValueError(f"{name} is described in two ways")
        checksums[name] = _canonical(said)
        if not _has_times(array.description):
            most = _most_bytes(array.description)
            for key in sorted(_keys(name, array.description, ())):
                size, checksum = file_checksum(path / key, most)
                checksums[name] = zlib.crc32(f"{key} {size} {checksum}".encode(), checksums[name])
    return checksums


def snapshot_checksums(path: Path, times: Sequence[float] | np.ndarray) -> list[int]:
    """Return the checksum of each snapshot of a store up to some of its times."""
    arrays = {
        name: array.description
        for name, array in foreign_arrays(path).items()
        if _has_times(array.description) and name != "time"
    }

    def of(index: int) -> int:
        checksum = time_checksum(index, times[index])
        for name, said in arrays.items():
            dtype, together = np.dtype(said["data_type"]), _chunk_shape(said)[0]
            most = _most_bytes(said)
            for key in _keys(name, said, (index // together,)):
                try:
                    if together == 1:
                        checksum ^= piece_checksum(key, index, *file_checksum(path / key, most))
                    else:
                        content = content_of(path / key, most)
                        checksum ^= part_checksum(content, key, index, together, dtype)
                except (FileNotFoundError, NotADirectoryError):
                    continue  # of an array that not all snapshots have
        return checksum

    return map_in_threads(_THREADS, of, range(len(times)))


def _canonical(said: Any) -> int:
    return zlib.crc32(json.dumps(said, sort_keys=True).encode())


def _has_times(said: Mapping[str, Any]) -> bool:
    names = said.get("dimension_names")
    return isinstance(names, list) and names[:1] == ["time"]


def _without_length(said: Any) -> Any:
    """Return a description without what grows with the number of snapshots."""
    if not isinstance(said, Mapping) or not _has_times(said):
        return said
    shape = said.get("shape")
    return {**said, "shape": shape[1:] if isinstance(shape, list) else shape}


def _chunk_shape(said: Mapping[str, Any]) -> list[int]:
    shape: list[int] = said["chunk_grid"]["configuration"]["chunk_shape"]
    return shape


def _most_bytes(said: Mapping[str, Any]) -> int:
    item: int = np.dtype(said["data_type"]).itemsize
    return math.prod(_chunk_shape(said)) * item + _MORE


def _keys(name: str, said: Mapping[str, Any], leading: tuple[int, ...]) -> Iterator[str]:
    """Yield the path in the store of each file of an array, or of those at one time."""
    lengths = [
        -(-n // size)
        for n, size in list(zip(said["shape"], _chunk_shape(said), strict=True))[len(leading) :]
    ]
    if math.prod(lengths) > _MOST_FILES:
        raise ValueError(f"{name} has more than {_MOST_FILES} files")
    separator = said["chunk_key_encoding"]["configuration"]["separator"]
    for rest in itertools.product(*map(range, lengths)):
        yield f"{name}/{separator.join(('c', *map(str, (*leading, *rest))))}"


# -- files for each snapshot ---------------------------------------------------------------------


def file_seal(path: Path, count: int, known: Seal | None = None) -> Seal:
    """Return the seal of the first `count` files of a folder; `known` is of the first of these."""
    known = known or Seal(length=0, snapshots=())
    length, checksums = known.length or 0, list(known.snapshots or ())
    collection = path.with_name(f"{path.name}.pvd")
    text = content_of(collection, _MOST_DESCRIPTION).decode() if collection.exists() else ""
    times = re.findall(r'<DataSet timestep="([^"]*)"', text)
    names = {one.partition(".")[0]: one for one in os.listdir(path) if not one.endswith(PARTIAL)}
    for number in range(len(checksums), count):
        name = names.get(f"{path.name}_{number:06d}", "")
        if not name:
            raise ValueError(f"its snapshot {number} is missing")
        size, checksum = file_checksum(path / name, sys.maxsize)
        time = times[number] if number < len(times) else ""
        checksums.append(zlib.crc32(f"{name} {size} {checksum} {time}".encode()))
        length += size
    return Seal(length=length, snapshots=tuple(checksums))


# -- faults ------------------------------------------------------------------------------------


def fault_of(path: Path, seal: Seal | None) -> str:
    """Return the fault of output that is to continue; raise a `RunError` if the disk fails."""
    try:
        if path.suffix == ".zarr":
            return _fault_of_store(path, seal)
        if seal is None:
            return ""
        if path.suffix == ".csv":
            is_same = is_prefix(path, seal)
        else:
            count = len(seal.snapshots or ())
            starts = tuple(f"{path.name}_{number:06d}." for number in range(count))
            names = [name for name in os.listdir(path) if name.startswith(starts)]
            sizes = sum(os.lstat(path / name).st_size for name in names)
            is_same = sizes == seal.length and file_seal(path, count) == seal
        return "" if is_same else "it is not as it was written"
    except OSError as error:
        raise_if_disk_fails(error, path)
        return reason_of(error)
    except SlipstreamError:
        raise
    except Exception as error:  # of zarr, its codecs, or what reads JSON
        return reason_of(error)


def _fault_of_store(path: Path, seal: Seal | None) -> str:
    stored = StoredArrays(path)
    for name in stored.shapes:
        stored.dtype(name)  # refuses types that cannot be decoded safely
    times = stored.times
    if seal is None:
        return "" if np.isfinite(times).all() else "its times are no numbers"
    wanted = seal.snapshots or ()
    if not wanted:  # it begins again, and may have done so before a run was killed
        return ""
    if len(times) < len(wanted):
        return f"it has {len(times)} snapshots, not {len(wanted)}"
    arrays = array_seals(path)
    for name, checksum in (seal.arrays or {}).items():
        if arrays.get(name) != checksum or (name and name not in stored.shapes):
            return f"{name or 'its description'} is not as it was written"
    for number, checksum in enumerate(snapshot_checksums(path, times[: len(wanted)])):
        if checksum != wanted[number]:
            return f"its snapshot {number} (t = {times[number]:.6g}) is not as it was written"
    return ""


def raise_if_disk_fails(error: BaseException, path: Path) -> None:
    """Raise a `RunError` if a file cannot be read because of the disk that it is on."""
    if isinstance(error, OSError) and error.errno not in _DAMAGE:
        where = named(os.fsdecode(error.filename or path))
        raise RunError(f"{where} cannot be read: {reason_of(error)}") from error
