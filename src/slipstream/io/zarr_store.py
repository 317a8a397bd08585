"""Arrays of all ranks in one zarr group.

Rank 0 creates an array and its description; after a barrier every rank writes its own box, without
locks, as no two ranks share a chunk (see `aligned_chunks`). Snapshots have a leading time axis,
which grows by one with each; a static array has none.
"""

import math
import shutil
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from slipstream.array_types import Comm
from slipstream.errors import InputError
from slipstream.field import Field

MAXIMUM_CHUNK_BYTES = 16 * 2**20
_TIMES_PER_CHUNK = 1024


class FieldStore:
    """A zarr group, replacing what `path` has, into which all ranks write fields. Collective."""

    def __init__(
        self,
        path: str | Path,
        comm: Comm = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = Path(path)
        self._comm = comm
        self._is_first = comm is None or comm.rank == 0
        self._snapshots = 0
        self._names: set[str] = set()
        if self._is_first:
            if self.path.exists():
                shutil.rmtree(self.path)
            zarr.create_group(store=self.path, attributes=dict(attributes or {}))
        self._barrier()

    def append(self, time: float, fields: Iterable[Field]) -> None:
        """Write a snapshot: the same fields in the same order, each with the same boxes as before.

        Fields are taken one by one, so that only one needs to be in memory.
        """
        if self._is_first:
            self._append_time(time)
        # Others may write only after the arrays have grown.
        self._barrier()
        index = self._snapshots
        self._snapshots += 1
        for field in fields:
            if field.name not in self._names:
                self._create(field, snapshots=self._snapshots)
            self._write_box(field, (index,))
        self._publish()

    def write(self, fields: Iterable[Field]) -> None:
        """Write static arrays: the same fields in the same order on all ranks."""
        for field in fields:
            self._create(field, snapshots=None)
            self._write_box(field, ())
        self._publish()

    def _append_time(self, time: float) -> None:
        """Lengthen the time axis of all arrays, on rank 0 only."""
        size = self._snapshots + 1
        group: Any = zarr.open_group(self.path, mode="r+", use_consolidated=False)
        if self._snapshots == 0:
            group.create_array(
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
            array = group[name]
            if array.shape[0] != size:
                array.resize((size, *array.shape[1:]))
        group["time"][size - 1] = time

    def _create(self, field: Field, snapshots: int | None) -> None:
        """Create the array of a field, and its coordinates, on rank 0; the others wait."""
        self._names.add(field.name)
        box = (field.offset, field.data.shape)
        boxes = [box] if self._comm is None else self._comm.allgather(box)
        if self._is_first:
            group = zarr.open_group(self.path, mode="r+", use_consolidated=False)
            chunks = aligned_chunks(field.shape, boxes, field.data.itemsize)
            leading, dtype = () if snapshots is None else (snapshots,), field.data.dtype
            # JSON holds no NumPy values.
            attributes: dict[str, Any] = {
                key: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
                for key, value in field.attributes.items()
            }
            group.create_array(
                field.name,
                shape=leading + tuple(field.shape),
                chunks=tuple(1 for _ in leading) + chunks,
                dtype=dtype,
                # Elements that are never written are NaN where the dtype has it.
                fill_value=dtype.type(np.nan if dtype.kind in "fc" else 0),
                dimension_names=("time",) * len(leading) + tuple(field.dims),
                attributes={"units": "1", **attributes},
                # The digits of turbulence do not compress; trying costs more than the disk.
                compressors=None,
            )
            self._create_coordinates(group, field)
        self._barrier()

    @staticmethod
    def _create_coordinates(group: zarr.Group, field: Field) -> None:
        for name, values in field.coordinates.items():
            if name in group:
                continue
            values = np.asarray(values)
            array = group.create_array(
                name,
                shape=values.shape,
                chunks=tuple(max(1, size) for size in values.shape),
                dtype=values.dtype,
                dimension_names=(name,),
                attributes={"long_name": name, "units": field.coordinate_unit},
            )
            array[...] = values

    def _write_box(self, field: Field, leading: tuple[int, ...]) -> None:
        if field.data.size:
            array = zarr.open_array(self.path, path=field.name, mode="r+")
            array[leading + field.region()] = field.data

    def _publish(self) -> None:
        """Wait until all boxes are written, then update the group's consolidated metadata.

        Readers such as xarray rely on the metadata, so they never see a snapshot half written.
        """
        self._barrier()
        if self._is_first:
            with warnings.catch_warnings():
                # zarr warns that it is not in the standard yet, but readers warn if it is missing.
                warnings.simplefilter("ignore")
                zarr.consolidate_metadata(self.path)

    def _barrier(self) -> None:
        if self._comm is not None:
            self._comm.Barrier()


def aligned_chunks(
    shape: Sequence[int],
    boxes: Iterable[tuple[Sequence[int], Sequence[int]]],
    item_bytes: int,
    maximum_bytes: int = MAXIMUM_CHUNK_BYTES,
) -> tuple[int, ...]:
    """Return the shape of chunks of a global array of which ranks write boxes, (offset, shape).

    A chunk is one file, and no chunk contains elements of two ranks: its length along each axis
    divides all indices at which boxes begin. Within that, chunks are as large as `maximum_bytes`
    allows.
    """
    chunk = [max(1, size) for size in shape]
    borders = [0] * len(chunk)
    for offset, extent in boxes:
        if math.prod(extent) == 0:
            continue
        for axis, (start, size) in enumerate(zip(offset, extent, strict=True)):
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
    """Return a length that is smaller by a factor of at least `excess`, if there is one."""
    target = max(1, int(length / excess))
    if not must_divide:
        # Equal chunks rather than full ones and a remainder.
        return math.ceil(length / math.ceil(length / target))
    return next(divisor for divisor in range(target, 0, -1) if length % divisor == 0)


def read_field(
    path: str | Path,
    name: str,
    offset: Sequence[int] | None = None,
    shape: Sequence[int] | None = None,
) -> np.ndarray:
    """Read a box of a stored array, on any number of ranks, each its own.

    Parameters
    ----------
    path : str or pathlib.Path
        The zarr group.
    name : str
        Name of the array in it.
    offset : sequence of int, optional
        Index of the first element along each of the array's dimensions (time included where it
        has one); the origin by default.
    shape : sequence of int, optional
        Shape of the box; up to the end of the array by default.

    Returns
    -------
    numpy.ndarray
        The box, of the stored dtype.

    Raises
    ------
    InputError
        If there is no such array, or the box reaches beyond it.
    """
    try:
        array = zarr.open_array(Path(path), path=name, mode="r")
    except (FileNotFoundError, KeyError, ValueError) as error:
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
