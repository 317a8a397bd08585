"""Distributed arrays in files: zarr and HDF5, by all ranks side by side, and VTK for viewers."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

from slipstream.engine.array_types import Array, Comm
from slipstream.engine.collective import check_agreement, collectively, on_every_rank, on_first_rank
from slipstream.engine.decomposition import Box, checked_boxes, shape_covered
from slipstream.engine.errors import InputError, path_of, table_of
from slipstream.engine.fields import Field
from slipstream.files.durable_files import PARTIAL, errors_name, flush_file, named
from slipstream.files.foreign_files import foreign_arrays, own_dataset
from slipstream.files.zarr_store import FieldStore

_TYPES = {"f4": "Float32", "f8": "Float64", "u1": "UInt8", "i4": "Int32", "i8": "Int64"}
# Each array begins with the number of its bytes.
_SIZE = np.dtype("<u8")
# The part of each rank: a box, or its offset and shape.
Boxes = Sequence[Box | tuple[Sequence[int], Sequence[int]]]
# Suffixes of HDF5 files.
_HDF5 = (".h5", ".hdf5")
# The name of an array, this rank's part of it, the shape of the whole, and where the part begins.
PlacedPart = tuple[str, np.ndarray, tuple[int, ...], tuple[int, ...]]


class ImageDataFile:
    """A new file, a context manager, that one process fills plane by plane.

    `spacing` is the edge of a cell, or one for each of x, y and z; the first cell, or the first
    point, begins at the origin. Each array has a type and a number of components.
    """

    def __init__(
        self,
        path: str | Path,
        shape: Sequence[int],
        spacing: float | Sequence[float],
        arrays: Mapping[str, tuple[Any, int]],
        origin: Sequence[float] = (0, 0, 0),
        on_points: bool = False,
    ) -> None:
        self._shape, self._origin, self._on_points = tuple(shape), tuple(origin), on_points
        self._spacing = tuple(spacing) if isinstance(spacing, Sequence) else (spacing,) * 3
        self._dtypes = {name: _little_endian(dtype) for name, (dtype, _) in arrays.items()}
        self._components = {name: components for name, (_, components) in arrays.items()}
        # Offsets of the values of each array.
        self.starts: dict[str, int] = {}
        self._file = open(path, "wb")  # noqa: SIM115
        self._write_frame()

    def __enter__(self) -> ImageDataFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _write_frame(self) -> None:
        """Write all but the values: header, sizes and end."""
        offset, offsets, sizes = 0, {}, {}
        for name, dtype in self._dtypes.items():
            offsets[name] = offset
            sizes[name] = math.prod(self._shape) * self._components[name] * dtype.itemsize
            offset += _SIZE.itemsize + sizes[name]
        head = self._head(offsets).encode()
        self._file.write(head)
        for name, size in sizes.items():
            self._file.seek(len(head) + offsets[name])
            self._file.write(np.array(size, _SIZE).tobytes())
            self.starts[name] = self._file.tell()
        self._file.seek(len(head) + offset)
        self._file.write(b"\n  </AppendedData>\n</VTKFile>\n")

    def _head(self, offsets: Mapping[str, int]) -> str:
        extent = " ".join(f"0 {size - self._on_points}" for size in reversed(self._shape))
        kind = "PointData" if self._on_points else "CellData"
        origin, spacing = (
            " ".join(repr(float(one)) if one else "0" for one in three)
            for three in (self._origin, self._spacing)
        )
        arrays = "".join(
            f'        <DataArray type="{_TYPES[dtype.str[1:]]}" Name={quoteattr(name)}'
            f' NumberOfComponents="{self._components[name]}" format="appended"'
            f' offset="{offsets[name]}"/>\n'
            for name, dtype in self._dtypes.items()
        )
        return (
            '<?xml version="1.0"?>\n'
            '<VTKFile type="ImageData" version="1.0" byte_order="LittleEndian"'
            ' header_type="UInt64">\n'
            f'  <ImageData WholeExtent="{extent}" Origin="{origin}" Spacing="{spacing}">\n'
            f'    <Piece Extent="{extent}">\n      <{kind}>\n{arrays}      </{kind}>\n'
            "    </Piece>\n  </ImageData>\n"
            '  <AppendedData encoding="raw">\n   _'
        )

    def write(self, name: str, plane: int, values: np.ndarray) -> None:
        """Write planes from number `plane` on, of shape (planes, rows, columns[, components])."""
        components, dtype = self._components[name], self._dtypes[name]
        wanted = (*self._shape[1:], *([components] if components > 1 else []))
        planes = len(values)
        if values.shape[1:] != wanted or not 0 <= plane <= self._shape[0] - planes:
            raise ValueError(
                f"{name}: planes {plane} to {plane + planes} of shape {values.shape[1:]}; accepted:"
                f" up to {self._shape[0]}, of shape {wanted}"
            )
        self._file.seek(self.starts[name] + plane * math.prod(wanted) * dtype.itemsize)
        self._file.write(np.ascontiguousarray(values, dtype).data)


def _little_endian(dtype: Any) -> np.dtype:
    """Return a type with the byte order of the file."""
    ordered: np.dtype = np.dtype(dtype).newbyteorder("<")
    if ordered.str[1:] not in _TYPES:
        raise ValueError(f"type {np.dtype(dtype)}; accepted: float32, float64, uint8, int32, int64")
    return ordered


@collectively
def write_arrays(
    path: str | Path,
    arrays: Mapping[str, Array],
    boxes: Boxes,
    comm: Comm = None,
    attributes: Mapping[str, Any] | None = None,
) -> None:
    """Write distributed arrays to a new file, which replaces an existing one. Collective.

    Parameters
    ----------
    path : str or pathlib.Path
        Of HDF5 if it ends with ``.h5`` or ``.hdf5``, of zarr if with ``.zarr``. An HDF5 file is
        replaced when all is written. A folder that is no zarr group is refused.
    arrays : mapping of str to array
        This rank's parts, NumPy's or CuPy's, by name: the same names in the same order on all
        ranks. Axes that are not divided, such as one of fields, may precede the others.
    boxes : sequence of Box or of pairs (start, stop)
        The boxes of all ranks, such as `DistributedFFT.input_boxes`; together, the array once.
    comm : mpi4py.MPI.Comm, optional
        The ranks that share the arrays; None for a single one.
    attributes : mapping, optional
        Numbers and texts that are kept with them; of an HDF5 file on its root.

    Raises
    ------
    InputError
        On all ranks, if an argument is not accepted, or differs between ranks.
    RunError
        On all ranks, if a file cannot be written.
    """
    rank, ranks = (0, 1) if comm is None else (comm.rank, comm.size)

    def check() -> tuple[Path, tuple[Box, ...], dict[str, np.ndarray]]:
        all_boxes = checked_boxes(boxes, None, ranks, "boxes")
        given, _ = table_of("arrays", arrays), table_of("attributes", attributes)
        parts = {_name(name): _part(name, one, all_boxes[rank]) for name, one in given.items()}
        if not parts:
            raise InputError("arrays is empty; accepted: one or more arrays by name")
        return _path(path), all_boxes, parts

    where, all_boxes, parts = on_every_rank(comm, check)
    check_agreement(
        comm,
        {
            "path": named(where),
            "boxes": all_boxes,
            "arrays": [
                (name, part.dtype.str, part.shape[: part.ndim - len(all_boxes[rank].start)])
                for name, part in parts.items()
            ],
            "attributes": attributes,
        },
    )
    if where.suffix in _HDF5:
        _write_hdf5(where, parts, all_boxes, comm, attributes or {})
        return
    on_first_rank(comm, lambda: check_replaceable(where))
    store = FieldStore(where, comm, attributes)
    store.write(
        _field(name, part, all_boxes[rank], shape_covered(all_boxes))
        for name, part in parts.items()
    )
    on_every_rank(comm, store.flush)


@collectively
def read_array(path: str | Path, name: str, boxes: Boxes, comm: Comm = None) -> np.ndarray:
    """Return this rank's part of an array in a file, however it was divided then. Collective.

    Parameters
    ----------
    path : str or pathlib.Path
        An HDF5 file or a zarr group, of `write_arrays` or of others.
    name : str
        The array's.
    boxes : sequence of Box or of pairs (start, stop)
        The boxes of all ranks, which cover the last axes of the array.
    comm : mpi4py.MPI.Comm, optional
        The ranks that share the array; None for a single one.

    Returns
    -------
    numpy.ndarray
        Of the type in the file. Axes that are not divided are whole.

    Raises
    ------
    InputError
        On all ranks, if there is no such array, or boxes are not of its shape.
    """
    rank, ranks = (0, 1) if comm is None else (comm.rank, comm.size)

    def read() -> np.ndarray:
        all_boxes, where = checked_boxes(boxes, None, ranks, "boxes"), path_of("path", path)
        shape = shape_covered(all_boxes)
        with _open_array(where, name) as stored:
            leading = stored.shape[: max(0, len(stored.shape) - len(shape))]
            if tuple(stored.shape[len(leading) :]) != shape:
                raise InputError(
                    f"{where}: {name!r} has shape {tuple(stored.shape)}; boxes cover {shape}"
                )
            box = all_boxes[rank]
            if not box.size:
                return np.empty((*leading, *box.shape), stored.dtype)
            return np.asarray(stored[(*(slice(None) for _ in leading), *box.slices())])

    return on_every_rank(comm, read)


@contextlib.contextmanager
def _open_array(path: Path, name: str) -> Iterator[Any]:
    """Give an array in a file that may be somebody else's, or raise `InputError`."""
    import h5py

    with contextlib.ExitStack() as open_files:
        try:
            if path.is_dir():
                array = foreign_arrays(path).get(name)
                dataset = None if array is None else array.open()
            elif path.is_file() and h5py.is_hdf5(path):
                dataset = own_dataset(open_files.enter_context(h5py.File(path, "r")), name)
            else:
                raise InputError(f"{path} is no HDF5 file and no zarr group")
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: {error}") from error
        if dataset is None or dataset.dtype.kind not in "biufc":
            raise InputError(f"{path}: holds no array {name!r} of numbers")
        yield dataset


def _path(path: str | Path) -> Path:
    where = path_of("path", path)
    if where.suffix not in (*_HDF5, ".zarr"):
        raise InputError(f"path {path!r}; accepted: one that ends with .zarr, .h5 or .hdf5")
    if not where.parent.is_dir():
        raise InputError(f"path {path!r}: there is no folder {str(where.parent)!r}")
    return where


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name or "/" in name or name.startswith("."):
        raise InputError(f"arrays: name {name!r}; accepted: texts without '/', and '.' in front")
    return name


def _part(name: str, array: Array, box: Box) -> np.ndarray:
    """Return a rank's part on the host, or raise `InputError`."""
    host = array.get() if hasattr(array, "get") and hasattr(array, "dtype") else array
    axes = len(box.start)
    if not isinstance(host, np.ndarray) or host.dtype.kind not in "biufc":
        raise InputError(f"arrays: {name!r} is no array of numbers of NumPy or CuPy")
    if host.ndim < axes or host.shape[host.ndim - axes :] != box.shape:
        raise InputError(
            f"arrays: {name!r} has shape {host.shape}; accepted: the shape of this rank's box, "
            f"{box.shape}, perhaps behind other axes"
        )
    return host if host.dtype.isnative else host.astype(host.dtype.newbyteorder("="))


def check_replaceable(path: Path) -> None:
    """Refuse to replace anything but a zarr group."""
    is_group = (path / "zarr.json").is_file() and not path.is_symlink()
    if os.path.lexists(path) and not is_group and not (path.is_dir() and not any(path.iterdir())):
        raise InputError(f"{named(path)} is there and is no zarr group; use another name")


def _field(name: str, part: np.ndarray, box: Box, shape: tuple[int, ...]) -> Field:
    leading = part.shape[: part.ndim - len(shape)]
    dims = [f"axis_{number}" for number in range(part.ndim)]
    return Field(
        name,
        tuple(dims),
        (*leading, *shape),
        (*(0 for _ in leading), *box.start),
        np.ascontiguousarray(part),
    )


def _write_hdf5(
    path: Path,
    parts: Mapping[str, np.ndarray],
    boxes: Sequence[Box],
    comm: Comm,
    attributes: Mapping[str, Any],
) -> None:
    box, shape = boxes[0 if comm is None else comm.rank], shape_covered(boxes)

    def placed() -> Iterator[PlacedPart]:
        for name, part in parts.items():
            leading = part.shape[: part.ndim - len(shape)]
            start = (*(0 for _ in leading), *box.start)
            yield name, np.ascontiguousarray(part), (*leading, *shape), start

    write_together(path, comm, lambda new: _make_hdf5(new, parts, shape, attributes), placed())


def write_together(
    path: Path,
    comm: Comm,
    make: Callable[[Path], dict[str, int]],
    parts: Iterable[PlacedPart],
) -> None:
    """Write a file that `make` lays out on the first rank, and all ranks fill. Collective."""
    unfinished = path.with_name(path.name + PARTIAL)

    def fill(part: np.ndarray, whole: tuple[int, ...], start: tuple[int, ...], begin: int) -> None:
        if not part.size:
            return
        with errors_name(unfinished), unfinished.open("r+b", buffering=0) as file:
            for offset, run in _runs_in(part, whole, start):
                _write_all(file.fileno(), run, begin + offset)

    def put_in_place() -> None:
        with errors_name(path):
            flush_file(unfinished)
            unfinished.replace(path)

    try:
        places = on_first_rank(comm, lambda: make(unfinished))
        for name, part, whole, start in parts:
            on_every_rank(comm, functools.partial(fill, part, whole, start, places[name]))
        on_first_rank(comm, put_in_place)
    except BaseException:
        if comm is None or comm.rank == 0:
            with contextlib.suppress(OSError):
                unfinished.unlink()
        raise


def _make_hdf5(
    path: Path,
    parts: Mapping[str, np.ndarray],
    shape: tuple[int, ...],
    attributes: Mapping[str, Any],
) -> dict[str, int]:
    """Make a file with space for its data sets, and return the offsets of these."""
    import h5py

    offsets = {}
    with errors_name(path), h5py.File(path, "w") as file:
        for name, value in attributes.items():
            try:
                file.attrs[name] = value
            except (TypeError, ValueError) as error:
                raise InputError(f"attributes: {name!r} is {value!r}; {error}") from error
        for name, part in parts.items():
            whole = (*part.shape[: part.ndim - len(shape)], *shape)
            how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            how.set_layout(h5py.h5d.CONTIGUOUS)
            how.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            how.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            kind = h5py.h5t.py_create(part.dtype, logical=True)
            space = h5py.h5s.create_simple(whole)
            made = h5py.h5d.create(file.id, name.encode(), kind, space, how)
            offsets[name] = made.get_offset() if math.prod(whole) else 0
    return offsets


def _runs_in(
    part: np.ndarray, whole: tuple[int, ...], start: tuple[int, ...]
) -> Iterator[tuple[int, memoryview]]:
    """Yield what of a part is contiguous in the whole array: its place there, and its bytes."""
    axis = part.ndim - 1
    while axis > 0 and part.shape[axis] == whole[axis]:
        axis -= 1
    strides = [part.itemsize * math.prod(whole[number + 1 :]) for number in range(part.ndim)]
    for index in np.ndindex(*part.shape[:axis]):
        at = [*map(sum, zip(index, start, strict=False)), *start[axis:]]
        place = sum(one * stride for one, stride in zip(at, strides, strict=True))
        yield place, part[index].reshape(-1).view(np.uint8).data


def _write_all(file: int, content: memoryview, offset: int) -> None:
    """Write at a place of an open file."""
    while content:
        written = os.pwrite(file, content, offset)
        content, offset = content[written:], offset + written
