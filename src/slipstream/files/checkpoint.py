"""The states of a run, from which another run restarts, on any number of ranks.

Each is a *generation* in a folder of the run: complete and on the disk, or absent. It is written
under another name and flushed before it is renamed; older ones are removed only after that. Its
manifest lists its contents (`checkpoint_manifest.py`). A run continues from its latest intact
generation; damaged ones are named.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re
import shutil
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import zarr
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic import Field as Limits

from slipstream import __version__
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_every_rank, on_first_rank
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.fields import Field
from slipstream.engine.text import printable, shortened
from slipstream.files.durable_files import (
    DAMAGED,
    PARTIAL,
    errors_name,
    flush_file,
    flush_folder,
    free_name,
    make_folder,
    named,
    replace_file,
)
from slipstream.files.folder_seals import Seal
from slipstream.files.foreign_files import kind_of, open_file
from slipstream.files.stored_arrays import (
    CODECS,
    INDEX_CODECS,
    SHARD_SEPARATOR,
    reason_of,
    shard_index,
    shard_name,
    shard_size,
    shard_values,
)
from slipstream.files.zarr_store import FieldStore, all_finite, read_field

MANIFEST = "manifest.json"
_FORMAT: Literal[3] = 3
_DESCRIPTION = "zarr.json"
_DTYPES = ("int64", "float32", "float64", "complex64", "complex128")
# Bytes of a file: a larger one is not written here, and would only fill the memory.
_MOST_BYTES = 1 << 30

Count = Annotated[int, Limits(ge=0, lt=1 << 62)]
Length = Annotated[int, Limits(ge=1, lt=1 << 62)]
CHECKPOINTS_NAME = "checkpoints"
# Prefixes of the names of arrays that are no part of the flow.
# Output: sums of averages.
AVERAGE = "average."
# Output: colours of movies.
MOVIE = "movie."
# States of random forces.
FORCE = "force."
PARTICLES = "particles."
# The array of the tilt of a sheared frame.
TILT = "frame.tilt"
# The name of the array of the work of forces, and of the rows of the energy budget before it.
BUDGET = "energy.budget"
# The step, and a number if a run has more than one state of it.
_GENERATION = re.compile(r"(\d{1,19})(?:-(\d{1,9}))?\.zarr")
_EXPECTED = (
    f"the output folder of a run, or one of its states, as in {CHECKPOINTS_NAME}/000000100.zarr"
)


class Damage(Exception):
    """A checkpoint is not intact."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class StoredArray(_Strict):
    """The files of an array: each is a chunk, or a shard with chunks of shape `inner`."""

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
        """Return the part of a chunk that lies within the array."""
        return tuple(
            slice(0, min(size, n - number * size))
            for n, size, number in zip(self.shape, self.chunks, index, strict=True)
        )


class Manifest(_Strict):
    """The contents of a checkpoint; its checksum is of everything else in it."""

    format: Literal[3] = _FORMAT
    library: str
    step: Count
    time: float
    case: str
    arrays: dict[str, StoredArray]
    files: dict[str, tuple[Count, Count]]
    seals: dict[str, Seal] | None = None
    began: tuple[Count, float] | None = None
    # Whether a program set fields after the last step, whose digest is not the state's then.
    is_set: bool | None = None
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
    """Return the arrays and files of a zarr group that has just been written."""
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


def read_manifest(path: Path) -> Manifest:
    """Return the manifest if all files exist; raise `Damage` if not. Chunks are not read."""
    if not stat.S_ISDIR(_status(path).st_mode):
        raise Damage(f"it is {kind_of(_status(path).st_mode)}, not a folder")
    sizes = dict(_files_in(path))
    size = sizes.pop(MANIFEST, None)
    if size is None:
        raise Damage(f"{MANIFEST} is missing")
    manifest = _parse_manifest(_content(path, MANIFEST, size))
    for name, (size, _) in manifest.files.items():
        if name not in sizes:
            raise Damage(f"{_describe_file(name)} is missing")
        if sizes[name] != size:
            raise Damage(f"{_describe_file(name)} has {sizes[name]} bytes, not {size}")
    for name in sizes:
        if name not in manifest.files:
            raise Damage(f"{_printable(name)} does not belong to it")
    _check_descriptions(path, manifest)
    return manifest


def check_chunks(path: Path, manifest: Manifest, rank: int = 0, ranks: int = 1) -> str:
    """Return the fault of this rank's share of the chunks of all arrays, or nothing."""
    chunks = (chunk for name, one in manifest.arrays.items() for chunk in _chunks(name, one))
    try:
        for name, array, index in itertools.islice(chunks, rank, None, ranks):
            content = _read_regular_file(path, manifest, name)
            if not array.has_its_index(content, index):
                raise Damage(f"{_describe_file(name)}: its index is another")
            if not all(map(all_finite, array.values_in(content, index))):
                raise Damage(f"{_describe_file(name)} has values that are no number")
    except Damage as damage:
        return str(damage)
    return ""


def _parse_manifest(content: bytes) -> Manifest:
    """Return the contents of a manifest, if it is complete and of this version."""
    try:
        said = json.loads(content)
        version = said["format"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise Damage(f"{MANIFEST} is no manifest of a checkpoint") from None
    if isinstance(version, int) and version != _FORMAT:
        reads = f"this version reads {_FORMAT}"
        raise Damage(f"{MANIFEST}: format {_printable(str(version))}; {reads}")
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError as error:
        where = ".".join(str(one) for one in error.errors()[0]["loc"])
        raise Damage(f"{MANIFEST}: {_printable(where)} is not as it was written") from None
    if manifest.sealed().checksum != manifest.checksum:
        raise Damage(f"{MANIFEST}: its checksum differs")
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
                raise Damage(f"{_describe_file(chunk)} has {size} bytes, not {wanted}")
    for name in sorted(expected ^ manifest.files.keys()):
        fault = "is missing" if name in expected else "does not belong to it"
        raise Damage(f"{_describe_file(name)} {fault}")
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
        said = json.loads(_read_regular_file(path, manifest, name))
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise Damage(f"{_describe_file(name)} is no description of zarr's")
    return said


def _chunks(name: str, array: StoredArray) -> Iterator[tuple[str, StoredArray, tuple[int, ...]]]:
    """Yield the path of the file, and the index, of each chunk, or shard, of an array."""
    for index in itertools.product(*map(range, array.chunks_along)):
        own = shard_name(index) if array.inner else "/".join(("c", *map(str, index)))
        yield f"{name}/{own}", array, index


def _read_regular_file(path: Path, manifest: Manifest, name: str) -> bytes:
    size, checksum = manifest.files[name]
    content = _content(path, name, size)
    if zlib.crc32(content) != checksum:
        raise Damage(f"{_describe_file(name)}: its checksum differs")
    return content


def _content(path: Path, name: str, size: int) -> bytes:
    """Return the content of a path, which is opened only if it is a regular file."""
    if size > _MOST_BYTES:
        raise Damage(f"{_describe_file(name)} has {size} bytes, more than are ever written")
    try:
        with open_file(path / name) as file:
            content = file.read(size + 1)
    except OSError as error:
        raise Damage(f"{_describe_file(name)} cannot be read: {reason_of(error)}") from None
    if len(content) != size:
        raise Damage(f"{_describe_file(name)} has not {size} bytes")
    return content


def _files_in(path: Path, below: str = "") -> Iterator[tuple[str, int]]:
    """Yield the path and the size of every file in a folder; `Damage` if something is none."""
    try:
        with os.scandir(path / below) as entries:
            statuses = [
                (below + entry.name, entry.stat(follow_symlinks=False)) for entry in entries
            ]
    except OSError as error:
        raise Damage(f"{_printable(below or '.')} cannot be read: {error.strerror}") from None
    for name, status in statuses:
        if stat.S_ISDIR(status.st_mode):
            yield from _files_in(path, name + "/")
        elif stat.S_ISREG(status.st_mode):
            yield name, status.st_size
        else:
            raise Damage(f"{_describe_file(name)} is {kind_of(status.st_mode)}, not a file")


def _status(path: Path) -> os.stat_result:
    try:
        return path.lstat()
    except OSError as error:
        raise Damage(f"it cannot be read: {error.strerror}") from None


def _describe_file(name: str) -> str:
    """Return the path of a file in a checkpoint, and what it has, for people."""
    array, *rest = name.split("/")
    if len(rest) == 1 and rest[0].startswith(f"c{SHARD_SEPARATOR}"):
        return _printable(f"{name} (array {array}, shard {rest[0][2:]})")
    if len(rest) > 1 and rest[0] == "c":
        return _printable(f"{name} (array {array}, chunk {'.'.join(rest[1:])})")
    return _printable(name)


def _printable(text: str) -> str:
    return shortened(" ".join(printable(text).split()), 120)


Result = TypeVar("Result")


class Checkpoint(Manifest):
    """A state that is as it was written, and the faults of later states of its run."""

    path: Path
    warnings: tuple[str, ...] = ()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Global shape of each stored array."""
        return {name: array.shape for name, array in self.arrays.items()}

    def read(
        self, name: str, offset: Sequence[int] | None = None, shape: Sequence[int] | None = None
    ) -> np.ndarray:
        """Read a box of one array, as `read_field` does."""
        values = read_field(self.path, name, offset, shape)
        # A run that is under way removes its older states; then readers get not-a-number.
        if not all_finite(values):
            raise InputError(f"initial.restart: {self.path} has changed while it was read")
        return values

    def check_array(self, name: str, kind: str, dimensions: int) -> tuple[int, ...]:
        """Return the shape of an array; refuse one of another kind ("f", "c", "i"), or none."""
        array = self.arrays.get(name)
        if array is None:
            raise InputError(f"initial.restart: {self.path} holds no {name}")
        if np.dtype(array.dtype).kind != kind or len(array.shape) != dimensions:
            raise InputError(
                f"initial.restart: {self.path}: {name} is {array.dtype} in {len(array.shape)} "
                "dimensions, which is not what such a run writes"
            )
        return array.shape


def write_checkpoint(
    folder: str | Path,
    fields: Iterable[Field],
    comm: Comm = None,
    *,
    step: int,
    time: float,
    case: str,
    keep: int | None = None,
    seals: dict[str, Seal] | None = None,
    began: tuple[int, float] | None = None,
    is_set: bool = False,
) -> Path:
    """Write a state into a run's folder, and return its path once it is on the disk. Collective."""
    checkpoints = Path(folder) / CHECKPOINTS_NAME
    # A name, since each rank has its own path to a folder that is held open.
    name = _on_first_rank(comm, checkpoints, lambda: _new_generation(checkpoints, step))
    path = checkpoints / name
    partial = path.with_suffix(PARTIAL)
    try:
        said: dict[str, Any] = {"step": step, "time": time, "case": case}
        store = FieldStore(partial, comm, said)
        when = f"step {step}, t = {time:.6g}"
        store.write(_check_finite(fields, comm, when), is_flushed_later=True)
        files = on_every_rank(comm, store.flush)
        parts = [files] if comm is None else comm.gather(files, root=0) or []

        def complete() -> None:
            manifest = Manifest(
                seals=seals,
                began=began,
                is_set=is_set or None,
                library=__version__,
                arrays=arrays_of(partial),
                files={name: file for part in parts for name, file in part.items()},
                **said,
            )
            replace_file(partial / MANIFEST, manifest.sealed().text().encode())
            flush_file(partial / MANIFEST)
            flush_folder(partial)
            flush_folder(checkpoints)
            partial.rename(path)
            flush_folder(checkpoints)

        _on_first_rank(comm, partial, complete)
    except BaseException:
        if comm is None or comm.rank == 0:
            shutil.rmtree(partial, ignore_errors=True)
        raise
    if keep is not None:
        _on_first_rank(comm, checkpoints, lambda: _remove_oldest(checkpoints, keep))
    return path


def reseal(state: Path, seals: dict[str, Seal]) -> None:
    """Add the seals of later output to a state that has been written."""
    with errors_name(state):
        try:
            said = read_manifest(state)
        except Damage as damage:
            raise RunError(
                f"{named(state)} has been changed while the run continues: {damage}"
            ) from damage
        changed = said.model_copy(update={"seals": seals})
        # A kill must not leave a foreign file in the state.
        partial = state.with_name(state.name + PARTIAL)
        replace_file(state / MANIFEST, changed.sealed().text().encode(), partial=partial)


def _remove_oldest(checkpoints: Path, keep: int) -> None:
    for path in generations(checkpoints)[keep:]:
        # Never incomplete under its name.
        partial = path.with_suffix(PARTIAL)
        path.rename(partial)
        shutil.rmtree(partial)


def _check_finite(fields: Iterable[Field], comm: Comm, when: str) -> Iterator[Field]:
    """Pass fields on, but refuse, on all ranks, one with values that are no number."""
    for field in fields:

        def check(field: Field = field) -> None:
            if not all_finite(field.data):
                raise RunError(
                    f"{field.name} has values that are no number at {when}: the flow has blown up,"
                    " and this state is not written"
                )

        on_every_rank(comm, check)
        yield field


def open_checkpoint(folder: str | Path, comm: Comm = None) -> Checkpoint:
    """Return the latest intact state of a run, or one of its states. Collective."""
    damaged: list[str] = []
    # Each rank would have another path of a folder that is held open.
    for path in on_first_rank(comm, lambda: _generations_at(Path(named(folder)))):
        manifest = _read(path, comm)
        if isinstance(manifest, Manifest):
            warnings = (f"{one}; continuing from {path.name}" for one in damaged)
            return Checkpoint(**dict(manifest), path=path, warnings=tuple(warnings))
        damaged.append(f"initial.restart: {path} is damaged: {manifest}")
    raise InputError(f"{'; '.join(damaged)}; there is no other state to continue from")


def _read(path: Path, comm: Comm) -> Manifest | str:
    """Return the manifest of a generation, or its fault. Collective."""

    def described() -> Manifest | str:
        try:
            manifest = read_manifest(path)
        except Damage as damage:
            return str(damage)
        named = _GENERATION.fullmatch(path.name)
        if named and int(named[1]) != manifest.step:
            return f"its name is not the name of step {manifest.step}"
        return manifest

    description = on_first_rank(comm, described)
    if isinstance(description, str):
        return description
    rank, ranks = (0, 1) if comm is None else (comm.rank, comm.size)
    fault = on_every_rank(comm, lambda: check_chunks(path, description, rank, ranks))
    faults = [fault] if comm is None else comm.allgather(fault)
    return next(filter(None, faults), description)


def generations(checkpoints: Path) -> list[Path]:
    """Return the states in a folder of a run, complete ones only, the latest first."""
    named = ((_GENERATION.fullmatch(path.name), path) for path in checkpoints.iterdir())
    found = [((int(name[1]), int(name[2] or 0)), path) for name, path in named if name]
    return [path for _, path in sorted(found, reverse=True)]


def _generations_at(folder: Path) -> list[Path]:
    """Return the states to read for a folder that a user names; `InputError` if there is none."""
    try:
        if _GENERATION.fullmatch(folder.name) or (folder / MANIFEST).exists():
            folder.lstat()
            return [folder]
        inside = folder if folder.name == CHECKPOINTS_NAME else folder / CHECKPOINTS_NAME
        if found := generations(inside):
            return found
    except (FileNotFoundError, NotADirectoryError, ValueError):
        pass
    except OSError as error:
        raise InputError(
            f"initial.restart: {folder} cannot be read: {error.strerror}; expected {_EXPECTED}"
        ) from error
    raise InputError(f"initial.restart: {folder}: holds no checkpoint; expected {_EXPECTED}")


def _new_generation(checkpoints: Path, step: int) -> str:
    """Return the name of a new generation; remove what writes that failed have left."""
    make_folder(checkpoints)
    remove_partial(checkpoints)
    name, number = f"{step:09d}.zarr", 1
    while (checkpoints / name).exists():
        number += 1
        name = f"{step:09d}-{number}.zarr"
    return name


def remove_partial(checkpoints: Path) -> None:
    """Remove what writes that were cut short have left of states, and of old ones that went."""
    for partial in checkpoints.glob(f"*{PARTIAL}"):
        if partial.is_dir():
            shutil.rmtree(partial)
        else:
            partial.unlink()


def set_aside_later(folder: Path, step: int) -> None:
    """Rename the damaged states after `step`."""
    checkpoints = folder / CHECKPOINTS_NAME
    for path in generations(checkpoints) if checkpoints.is_dir() else []:
        if int(path.stem.partition("-")[0]) > step:
            with errors_name(path):
                path.rename(free_name(path.with_suffix(DAMAGED)))
                flush_folder(checkpoints)


def _on_first_rank(comm: Comm, path: Path, function: Callable[[], Result]) -> Result:
    """Return on all ranks what a function that writes returns on rank 0. Collective."""

    def write() -> Result:
        with errors_name(path):
            return function()

    return on_first_rank(comm, write)
