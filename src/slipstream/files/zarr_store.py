"""Arrays of all ranks in one zarr group.

Rank 0 creates an array and its description; after that every rank writes its own files, without
locks: its box, or files that it assembles from several boxes (`stored_layout.py`). Snapshots have
a leading time axis, which grows by one with each; a static array has none.

Each file is replaced as a whole, and a snapshot is not described before it is there: whatever kills
a run, the group can be read.
"""

import asyncio
import contextlib
import functools
import itertools
import json
import math
import operator
import shutil
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore

from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_every_rank, on_first_rank
from slipstream.engine.decomposition import Box
from slipstream.engine.errors import InputError
from slipstream.engine.fields import Field
from slipstream.files.durable_files import (
    PARTIAL,
    errors_name,
    flush_file,
    flush_folder,
    replace_file,
)
from slipstream.files.folder_seals import (
    KeptOutput,
    Seal,
    array_seals,
    part_checksum,
    piece_checksum,
    snapshot_checksums,
    time_checksum,
)
from slipstream.files.foreign_files import foreign_arrays, published_shapes
from slipstream.files.stored_arrays import (
    SHARD_SEPARATOR,
    Aggregation,
    StoredArrays,
    StoredLayout,
    errors_of_store,
    file_box,
    file_indices,
    next_store_name,
    numbered_stores,
    shard_content,
    shard_name,
    stored_layout,
)

_TIMES_PER_CHUNK = 1024
# Of a group: the file that describes it, and in consolidated form all arrays in it.
_DESCRIPTION = "zarr.json"
# Bytes up to which several snapshots are in one chunk.
_SMALL_CHUNK = 1 << 16
# Of a coordinate: the coordinate of a time series may be long.
_LONGEST_CHUNK = 1 << 17


class FieldStore:
    """A zarr group, replacing what `path` has, into which all ranks write fields. Collective.

    A chunk has one snapshot of an array, or several `times_together` if they are small: then each
    writes again what the chunk has already.

    With `until`, a time, an existing store continues: `go_on` drops its later snapshots, and those
    that are not `kept`, and begins it again if none remains. Snapshots of other points go into
    another store with a number in its name, with which `begins` is called on rank 0 before it is
    made. An array that only some snapshots have is not-a-number in the others.
    """

    def __init__(
        self,
        path: str | Path,
        comm: Comm = None,
        attributes: Mapping[str, Any] | None = None,
        times_together: int = 1,
        until: float | None = None,
        begins: Callable[[str], None] = lambda name: None,
        kept: KeptOutput | None = None,
    ) -> None:
        self.path = Path(path)
        self._times_together = times_together
        self._comm = comm
        self._attributes, self._begins = dict(attributes or {}), begins
        self._snapshots = 0
        self._names: set[str] = set()
        self._files = _WholeFiles(self.path)
        # Arrays that rank 0 has made, by name: opening one takes as long as writing a small array.
        self._group: Any = None
        self._arrays: dict[str, Any] = {}
        # The times of the snapshots that stay, where a store continues, and obstacles.
        self.times: list[float] = []
        self._later: list[Path] = []
        self._is_continued = False
        # Files that each time adds, of the arrays that this store has made.
        self.files_each_time = 0
        # By array.
        self._layouts: dict[str, StoredLayout] = {}
        # The parts that each rank writes: arrays of the same points and boxes share them.
        self._aggregations: dict[str, Aggregation] = {}
        self._last_aggregation: tuple[Any, Aggregation] | None = None
        # Snapshots in a file, and their type, by array; and what this rank adds to each checksum.
        self._together: dict[str, tuple[int, np.dtype]] = {}
        self._checksums: list[int] = []
        self._sealed_arrays: dict[str, int] = {}
        if until is not None:
            self._find(until, kept or KeptOutput())
        else:
            self._on_first_rank(self._begin)

    def append(self, time: float, fields: Iterable[Field]) -> None:
        """Write a snapshot: the same fields as before, in the same order and boxes."""
        fields = iter(fields)
        if self._is_continued:
            first = list(itertools.islice(fields, 1))
            self._is_continued = False
            self._go_on_with(first[0] if first else None)
            fields = _yield_fields(first, fields)
        # Others may write only after the arrays have grown.
        self._on_first_rank(lambda: self._append_time(time))
        index = self._snapshots
        self._snapshots += 1
        is_longer_only = index > 0
        for field in fields:
            if field.name not in self._names:
                is_longer_only = False
                self._create(field, snapshots=self._snapshots)
            self._write_box(field, (index,))
            del field
        # Everything described below is on the disk: not even a power cut leaves half a snapshot.
        written = on_every_rank(self._comm, self.flush)
        own = on_every_rank(self._comm, lambda: self._checksum(written, index))
        is_first = self._comm is None or self._comm.rank == 0
        self._checksums[index:] = [own ^ time_checksum(index, time) if is_first else own]
        if is_longer_only:
            # Zarr would read every description again, which took half of the time of a small one.
            self._on_first_rank(lambda: self._publish_lengths(self._snapshots))
        else:
            self._publish()

    def write(self, fields: Iterable[Field], is_flushed_later: bool = False) -> None:
        """Write static arrays: the same fields in the same order on all ranks."""
        for field in fields:
            self._create(field, snapshots=None)
            self._write_box(field, ())
        if not is_flushed_later:
            on_every_rank(self._comm, self.flush)
        self._publish()

    def go_on(self) -> None:
        """Drop all snapshots after the time at which the store continues, for good. Collective."""
        self._on_first_rank(self._cut)
        self._later = []

    def replace_last(self) -> None:
        """Leave out the last snapshot of a store that continues as soon as there is another one."""
        if self._is_continued:
            self._snapshots -= 1

    def seal(self) -> Seal:
        """Return the seal of the written arrays and snapshots. Collective; of use on rank 0."""
        parts = [self._checksums] if self._comm is None else self._comm.gather(self._checksums)
        if not self._sealed_arrays.keys() >= {"", *self._together}:
            self._sealed_arrays = on_first_rank(self._comm, lambda: array_seals(self.path))
        found = [functools.reduce(operator.xor, one) for one in zip(*parts or (), strict=True)]
        # Without a last one that will be replaced.
        return Seal(arrays=self._sealed_arrays, snapshots=tuple(found[: self._snapshots]))

    def _checksum(self, written: Mapping[str, tuple[int, int]], index: int) -> int:
        """Return this rank's share in the checksum of a snapshot that it has just written."""
        checksum = 0
        for key, known in written.items():
            together, dtype = self._together.get(key.partition("/")[0], (0, np.dtype(float)))
            if together == 0 or key.endswith(_DESCRIPTION):
                continue
            if together == 1:
                checksum ^= piece_checksum(key, index, *known)
            else:
                content = (self.path / key).read_bytes()
                checksum ^= part_checksum(content, key, index, together, dtype)
        return checksum

    def _find(self, until: float, kept: KeptOutput) -> None:
        """Find the store that continues: the last one with snapshots up to a time. Collective."""

        @errors_of_store(self.path)
        def look() -> tuple[str, list[float], dict[str, StoredLayout], Any, list[int], list[Path]]:
            later: list[Path] = []
            for path in reversed(numbered_stores(self.path)):
                if not kept.goes_on(path.name):
                    continue
                seal = (kept.seals or {}).get(path.name)
                times: list[float] = []
                if (seal or kept.seals is None) and published_shapes(path) is not None:
                    most = None if seal is None else len(seal.snapshots or ())
                    stored = StoredArrays(path)
                    times = [one for one in stored.times[:most] if one <= until * (1 + 1e-12)]
                if times:
                    growing = {
                        name: stored.array(name)
                        for name in stored.shapes
                        if name != "time" and stored.dimensions(name)[0] == "time"
                    }
                    layouts = {
                        name: StoredLayout(
                            tuple((array.shards or array.chunks)[1:]), tuple(array.chunks[1:])
                        )
                        for name, array in growing.items()
                    }
                    together = {
                        name: ((array.shards or array.chunks)[0], array.dtype)
                        for name, array in growing.items()
                    }
                    sealed = None if seal is None else seal.snapshots
                    checksums = list(sealed or snapshot_checksums(path, times))[: len(times)]
                    return path.name, list(map(float, times)), layouts, together, checksums, later
                later.append(path)
            return self.path.name, [], {}, {}, [], later

        found = on_first_rank(self._comm, look)
        name, self.times, self._layouts, self._together, self._checksums, self._later = found
        if self._comm is not None and self._comm.rank:
            self._checksums = [0] * len(self._checksums)
        self.path = self.path.with_name(name)
        self._is_continued = bool(self.times)
        self._files = _WholeFiles(self.path)
        self._snapshots, self._names = len(self.times), set(self._layouts)

    def _cut(self) -> None:
        """Remove later snapshots on rank 0: first from the description, then from arrays."""
        for path in self._later:
            _remove(path)
            flush_folder(path.parent)
        if not self._is_continued:
            self._begin()
            return
        self._group = zarr.open_group(self._files, mode="r+")
        # The group may list fewer snapshots than an array has, but not more.
        self._arrays = dict(self._group.arrays())
        for name, array in list(self._arrays.items()):
            growing = array.metadata.dimension_names[:1] == ("time",) and name != "time"
            if growing and name not in self._names:  # begun by a run that was killed
                del self._arrays[name]
                shutil.rmtree(self.path / name)
        self._shorten(len(self.times))

    def _shorten(self, snapshots: int) -> None:
        told = (published_shapes(self.path) or {}).get("time", (0,))
        if snapshots < told[0]:
            self._publish_lengths(snapshots)
            self._files.flush()
        for name in ("time", *sorted(self._names)):
            array = self._arrays[name]
            if array.shape[0] > snapshots:
                array.resize((snapshots, *array.shape[1:]))
        self._files.flush()

    def _go_on_with(self, first: Field | None) -> None:
        """Continue in the store, or in a new one if the points are others. Collective."""
        if first is not None and not on_first_rank(self._comm, lambda: self._suits(first)):
            name = next_store_name(self.path)
            self.path = self.path.with_name(name)
            self._files = _WholeFiles(self.path)
            self._snapshots, self._names, self._layouts = 0, set(), {}
            self._arrays, self._aggregations = {}, {}
            self._together, self._checksums, self._sealed_arrays = {}, [], {}
            self._on_first_rank(lambda: self._begins(name))
            self._on_first_rank(self._begin)
        elif self._snapshots < len(self.times):
            self._on_first_rank(lambda: self._shorten(self._snapshots))

    def _suits(self, field: Field) -> bool:
        """Return whether the stored array has the points of this field."""
        array = self._arrays.get(field.name)
        if array is None:
            return True
        places = {name: self._arrays.get(name) for name in field.coordinates}
        return (
            array.shape[1:] == tuple(field.shape)
            and tuple(array.metadata.dimension_names) == ("time", *field.dims)
            and array.attrs.get("units", "1") == field.attributes.get("units", "1")
            and all(
                one is not None and one.shape == np.shape(values) and np.allclose(one[...], values)
                for one, values in zip(places.values(), field.coordinates.values(), strict=True)
            )
            and all(
                array.attrs.get(name) == value
                for name, value in field.attributes.items()
                if isinstance(value, float)
            )
        )

    def flush(self) -> dict[str, tuple[int, int]]:
        """Flush this rank's files; return their sizes and checksums (CRC-32) by path."""
        return self._files.flush()

    def _begin(self) -> None:
        _remove(self.path)
        self._group = zarr.create_group(store=self._files, attributes=self._attributes)

    def _append_time(self, time: float) -> None:
        """Lengthen the time axis of all arrays, on rank 0 only."""
        size = self._snapshots + 1
        if "time" not in self._arrays:
            self._arrays["time"] = self._group.create_array(
                "time",
                shape=(1,),
                chunks=(_TIMES_PER_CHUNK,),
                dtype="float64",
                fill_value=np.nan,
                dimension_names=("time",),
                attributes={"long_name": "time", "units": "1", "axis": "T"},
            )
        # All arrays are lengthened before any is filled: readers refuse unequal lengths.
        for name in ("time", *sorted(self._names)):
            array = self._arrays[name]
            if array.shape[0] != size:
                array.resize((size, *array.shape[1:]))
        self._arrays["time"][size - 1] = time

    def _create(self, field: Field, snapshots: int | None) -> None:
        """Create the array of a field, and its coordinates, on rank 0; the others wait."""
        self._names.add(field.name)
        boxes = self._boxes(field)
        layout = stored_layout(
            field.shape, [(box.start, box.shape) for box in boxes], field.data.itemsize
        )
        self._layouts[field.name] = layout
        self.files_each_time += layout.files(field.shape)
        self._aggregations[field.name] = self._aggregation(field, boxes, layout)
        if snapshots is not None:
            dtype = field.data.dtype
            chunk_bytes = math.prod(layout.chunk) * dtype.itemsize
            most = 1 if layout.is_sharded else _SMALL_CHUNK // chunk_bytes
            times = max(1, min(self._times_together, most))
            self._together[field.name] = times, dtype
        self._on_first_rank(lambda: self._create_array(field, snapshots, layout))

    def _boxes(self, field: Field) -> tuple[Box, ...]:
        """Return the boxes of all ranks of a field. Collective."""
        box = Box(field.offset, tuple(map(sum, zip(field.offset, field.data.shape, strict=True))))
        return (box,) if self._comm is None else tuple(self._comm.allgather(box))

    def _aggregation(
        self, field: Field, boxes: tuple[Box, ...], layout: StoredLayout
    ) -> Aggregation:
        """Return the parts that each rank writes, alike for arrays of the same points and boxes."""
        key = field.shape, boxes, layout.file
        if self._last_aggregation is None or self._last_aggregation[0] != key:
            made = Aggregation(field.shape, boxes, layout.file, field.data.itemsize)
            self._last_aggregation = key, made
        return self._last_aggregation[1]

    def _create_array(self, field: Field, snapshots: int | None, layout: StoredLayout) -> None:
        leading, dtype = () if snapshots is None else (snapshots,), field.data.dtype
        # JSON holds no NumPy values.
        attributes: dict[str, Any] = {
            key: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
            for key, value in field.attributes.items()
        }
        times = self._together.get(field.name, (1, dtype))[0]
        lying: dict[str, Any] = {"chunks": (times,) * len(leading) + layout.chunk}
        if layout.is_sharded:
            lying["shards"] = (times,) * len(leading) + layout.file
            # There would be more folders for indices than files.
            lying["chunk_key_encoding"] = {"name": "default", "separator": SHARD_SEPARATOR}
        self._arrays[field.name] = self._group.create_array(
            field.name,
            shape=leading + tuple(field.shape),
            dtype=dtype,
            fill_value=_fill(dtype),
            dimension_names=("time",) * len(leading) + tuple(field.dims),
            attributes={"units": "1", **attributes},
            overwrite=True,  # what a run that was killed has begun
            # The digits of turbulence do not compress; trying costs more than the disk.
            compressors=None,
            **lying,
        )
        self._create_coordinates(field)

    def _create_coordinates(self, field: Field) -> None:
        for name, values in field.coordinates.items():
            if name in self._arrays:
                continue
            values = np.asarray(values)
            array = self._arrays[name] = self._group.create_array(
                name,
                shape=values.shape,
                chunks=tuple(min(max(1, size), _LONGEST_CHUNK) for size in values.shape),
                dtype=values.dtype,
                # Of points that lie anywhere each coordinate goes along the only axis.
                dimension_names=(name,) if name in field.dims else field.dims,
                attributes={"long_name": name, "units": field.coordinate_unit},
                overwrite=True,
                compressors=None,
            )
            array[...] = values

    def _write_box(self, field: Field, leading: tuple[int, ...]) -> None:
        layout = self._layouts[field.name]
        if field.name not in self._aggregations:  # of an array that was there
            boxes = self._boxes(field)
            self._aggregations[field.name] = self._aggregation(field, boxes, layout)
        for box, values in self._aggregations[field.name].parts(field.data, self._comm):
            on_every_rank(
                self._comm,
                functools.partial(self._write_part, field.name, layout, leading, box, values),
            )

    def _write_part(
        self,
        name: str,
        layout: StoredLayout,
        leading: tuple[int, ...],
        box: Box,
        values: np.ndarray,
    ) -> None:
        """Write whole files of an array."""
        if not box.size:
            return
        with self._writing():
            if not layout.is_sharded:
                # Others than rank 0 open it again: it has grown.
                array = self._arrays.get(name)
                if array is None:
                    array = zarr.open_array(self._files, path=name, mode="r+")
                array[leading + box.slices()] = values
                return
            for index in file_indices(box, layout.file):
                part = values[box.intersect(file_box(index, layout.file)).slices(box)]
                content = shard_content(part, layout.file, layout.chunk, _fill(values.dtype))
                self._files.replace(f"{name}/{shard_name((*leading, *index))}", content.data)

    def _publish(self) -> None:
        """Update the group's consolidated metadata: readers then see only whole snapshots."""

        def consolidate() -> None:
            with warnings.catch_warnings():
                # zarr warns that it is not in the standard yet, but readers warn if it is missing.
                warnings.simplefilter("ignore")
                zarr.consolidate_metadata(self._files)

        self._on_first_rank(consolidate)

    def _publish_lengths(self, snapshots: int) -> None:
        """Publish as `_publish` does, where nothing but the number of snapshots has changed."""
        group = json.loads((self.path / _DESCRIPTION).read_bytes())
        arrays = group["consolidated_metadata"]["metadata"]
        for name in ("time", *self._names):
            arrays[name]["shape"][0] = snapshots
        text = json.dumps(group, indent=zarr.config.get("json_indent"))
        self._files.replace(_DESCRIPTION, text.encode())

    def _on_first_rank(self, write: Callable[[], None]) -> None:
        def write_there() -> None:
            with self._writing():
                write()

        on_first_rank(self._comm, write_there)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        # Every chunk is a file, also one that equals what readers take for a missing one.
        with errors_name(self.path), zarr.config.set({"array.write_empty_chunks": True}):
            yield


def _remove(path: Path) -> None:
    """Remove a group: readers see all of it or nothing, even if the process is killed."""
    aside = path.with_name(path.name + PARTIAL)
    if aside.exists():
        shutil.rmtree(aside)
    if path.exists():
        path.rename(aside)
        shutil.rmtree(aside)


def _yield_fields(first: list[Field], rest: Iterator[Field]) -> Iterator[Field]:
    """Yield the fields of a list, then the rest, without keeping any."""
    while first:
        yield first.pop()
    yield from rest


class _WholeFiles(LocalStore):
    """Zarr's way to files: each is replaced as a whole, and its checksum is kept."""

    def __init__(self, root: Path | str, *, read_only: bool = False) -> None:
        super().__init__(root, read_only=read_only)
        self._written: dict[str, tuple[int, int]] = {}

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: Any = None,
    ) -> Buffer | None:
        path = self.root / key
        try:  # most files are small, or not there: to wake a thread would take longer
            if path.stat().st_size > _SMALL_CHUNK or prototype is None or byte_range is not None:
                return await super().get(key, prototype, byte_range)
            return prototype.buffer.from_bytes(path.read_bytes())
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    async def set(self, key: str, value: Buffer) -> None:
        if len(value) > _SMALL_CHUNK:
            await asyncio.to_thread(self.set_sync, key, value)
        else:  # to wake a thread would take longer
            self.set_sync(key, value)

    def set_sync(self, key: str, value: Buffer) -> None:
        self.replace(key, memoryview(value.as_buffer_like()))

    def replace(self, key: str, content: bytes | memoryview) -> None:
        """Write a file, and remember it."""
        path = self.root / key
        with errors_name(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content, is_flushed_later=True)
        self._written[key] = memoryview(content).nbytes, zlib.crc32(content)

    def flush(self) -> dict[str, tuple[int, int]]:
        written, self._written = self._written, {}
        folders: set[Path] = set()
        for key in written:
            flush_file(self.root / key)
            folders.update(Path(key).parents)
        for folder in sorted(folders, reverse=True):
            flush_folder(self.root / folder)
        return written


def _fill(dtype: np.dtype) -> Any:
    """Return the value of elements that are never written: not-a-number where the type has it."""
    return dtype.type(np.nan if dtype.kind in "fc" else 0)


def all_finite(values: np.ndarray) -> bool:
    """Return whether no value is infinite or not-a-number."""
    if values.dtype.kind not in "fc":
        return True
    with np.errstate(all="ignore"):
        # A sum is cheap, and finite only if all terms are; large terms may overflow, though.
        return bool(np.isfinite(values.sum()) or np.isfinite(values).all())


def read_field(
    path: str | Path,
    name: str,
    offset: Sequence[int] | None = None,
    shape: Sequence[int] | None = None,
) -> np.ndarray:
    """Read a box of a stored array, by default to its end; each rank may read another box."""
    try:
        array = foreign_arrays(Path(path) / name)[""].open()
    except (FileNotFoundError, NotADirectoryError, KeyError, ValueError) as error:
        raise InputError(f"{path}: holds no array {name!r}") from error
    start = tuple(offset) if offset is not None else (0,) * array.ndim
    if shape is None:
        shape = tuple(size - first for size, first in zip(array.shape, start, strict=False))
    fits = len(start) == len(shape) == array.ndim and all(
        first >= 0 and size >= 0 and first + size <= whole
        for first, size, whole in zip(start, shape, array.shape, strict=True)
    )
    if not fits:
        raise InputError(
            f"{path}: {name!r} has shape {array.shape}; there is no box of shape {tuple(shape)}"
            f" at {start} in it"
        )
    if 0 in shape:
        return np.empty(shape, dtype=array.dtype)
    region = tuple(slice(first, first + size) for first, size in zip(start, shape, strict=True))
    return np.asarray(array[region])
