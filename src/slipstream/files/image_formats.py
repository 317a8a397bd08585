"""Formats of voxel images, each reduced to values indexed by [z, y, x].

A source knows the shape and type of an image before any of it is read, and gives access to boxes of
it. Raw files are bare values: their shape and type must be given. Of a folder, the TIFF files are
slices in the order of the numbers in their names: slice_2 is before slice_10.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import logging
import math
import operator
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.engine.error_terms import KeyedError, KeyName, PerAxis
from slipstream.engine.errors import InputError
from slipstream.engine.text import shortened, shown
from slipstream.files.foreign_files import LITTLE, foreign_arrays, inflated_size, own_dataset

# Keys that messages name.
PATH = KeyName("image", "path")
DATASET = KeyName("image", "dataset")
SHAPE = KeyName("image", "shape")
DTYPE = KeyName("image", "dtype")
BYTE_ORDER = KeyName("image", "byte_order")
OFFSET = KeyName("image", "offset")
# TIFF's numbers of compression by zlib.
_DEFLATED = (8, 32946, 50013)
# tifffile would log a second message about a broken file.
_SILENT = logging.NullHandler()


@dataclass(frozen=True)
class Source:
    """An image that can be read; `open` gives what three slices index, as a context manager.

    An image of two axes becomes a volume of one slice.
    """

    name: str  # in messages
    shape: tuple[int, ...]  # three of them, once made
    dtype: np.dtype
    open: Callable[[], AbstractContextManager[Any]]
    planes: int = 1  # stored together: reading one of them costs as much as reading all
    threaded: bool = False  # whether several threads may read at the same time
    # File and number of bytes before the first value, if the file has the bare values.
    raw: tuple[Path, int] | None = None
    # Whether the file is a picture, not a volume.
    is_flat: bool = False

    def __post_init__(self) -> None:
        if len(self.shape) == 2:
            for name, value in (
                ("shape", (1, *self.shape)),
                ("open", functools.partial(_open_as_slice, self.open)),
                ("planes", 1),
                ("is_flat", True),
            ):
                object.__setattr__(self, name, value)
        fault = "" if len(self.shape) == 3 else "; accepted: three axes, or two of one slice"
        if not fault and 0 in self.shape:
            fault = ": no voxel at all"
        if fault:
            shape = PerAxis(tuple(self.shape))
            raise KeyedError(PATH, f": {self.name} has shape ", shape, fault)
        if self.dtype.kind not in "biuf":
            raise KeyedError(
                PATH,
                f": {self.name} has values of type {self.dtype}; accepted: whole "
                "numbers, floating-point numbers and booleans",
            )


@contextlib.contextmanager
def _open_as_slice(open_picture: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
    with open_picture() as values:
        yield _OneSlice(values)


@dataclass(frozen=True)
class _OneSlice:
    """Values of two axes, indexed as a volume."""

    values: Any

    def __getitem__(self, box: tuple[slice, slice, slice]) -> np.ndarray:
        plane: np.ndarray = np.asarray(self.values[box[1:]])[None][box[0]]
        return plane


@contextlib.contextmanager
def readable(*what: str | KeyName) -> Iterator[None]:
    """Turn whatever a library raises while it reads into a `KeyedError` of one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # each library, and each of its filters, raises its own kinds
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        if "imagecodecs" in reason:
            reason += "; pip install imagecodecs, or save it uncompressed"
        raise KeyedError(*what, f" cannot be read ({reason})") from error


def array_source(array: np.ndarray) -> Source:
    """Return an array in memory as a source."""
    return Source(
        "the array",
        array.shape,
        array.dtype,
        functools.partial(contextlib.nullcontext, array),
        threaded=True,
    )


def raw_source(
    path: Path,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    byte_order: str = "little",
    offset: int = 0,
) -> Source:
    """Return a file of bare values, whose size must match the arguments."""
    if shape is None and dtype is None:
        raise KeyedError(
            SHAPE,
            " and ",
            DTYPE,
            " are missing: a raw file does not tell them; accepted: "
            "three positive whole numbers; bool, uint8, int16, float32 and the like",
        )
    counts, kind = _check_shape(shape), _check_dtype(dtype, byte_order)
    if not isinstance(offset, int | np.integer) or offset < 0:
        raise KeyedError(OFFSET, f" is {offset!r}; accepted: a number of bytes, 0 or more")
    size, wanted = path.stat().st_size, offset + math.prod(counts) * kind.itemsize
    if size != wanted:
        raise KeyedError(
            PATH,
            f": {path} has {size} bytes, but ",
            SHAPE,
            " ",
            PerAxis(counts),
            f" of {kind.name} after ",
            OFFSET,
            f" {offset} makes {wanted}",
        )

    def open_raw() -> AbstractContextManager[Any]:
        return contextlib.nullcontext(np.memmap(path, kind, "r", int(offset), counts))

    return Source(str(path), counts, kind, open_raw, threaded=True, raw=(path, int(offset)))


def _check_shape(shape: Any) -> tuple[int, int, int]:
    if shape is None:
        raise KeyedError(
            SHAPE,
            " is missing: a raw file does not tell it; accepted: three positive whole numbers",
        )
    try:
        z, y, x = (operator.index(value) for value in shape)
    except (TypeError, ValueError):
        z = y = x = 0
    if min(z, y, x) < 1:
        raise KeyedError(SHAPE, " is ", PerAxis(shape), "; accepted: three positive whole numbers")
    return z, y, x


def _check_dtype(dtype: Any, byte_order: str) -> np.dtype:
    """Return the type of the stored values, byte order included."""
    accepted = "accepted: bool, uint8, int16, float32 and the like"
    if dtype is None:
        raise KeyedError(DTYPE, f" is missing: a raw file does not tell it; {accepted}")
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = np.dtype(object)
    if kind.kind not in "biuf":
        raise KeyedError(DTYPE, f" is {dtype!r}; {accepted}")
    if not kind.isnative:
        raise KeyedError(DTYPE, f" is {dtype!r}; ", BYTE_ORDER, " gives the order of bytes")
    if byte_order not in ("little", "big"):
        raise KeyedError(BYTE_ORDER, f" is {byte_order!r}; accepted: little, big")
    ordered: np.dtype = kind.newbyteorder(byte_order)
    return ordered


def npy_source(path: Path) -> Source:
    """Return a NumPy file, mapped into memory."""
    # The number of voxels that a damaged header tells may be more than a number can hold.
    with np.errstate(over="raise"):
        array = np.lib.format.open_memmap(path, mode="r")
    return Source(
        str(path),
        array.shape,
        array.dtype,
        functools.partial(contextlib.nullcontext, array),
        threaded=True,
    )


def tiff_source(path: Path) -> Source:
    """Return a TIFF file: a stack of pages, or a picture of one."""
    image = _grey_pages(path)
    return replace(image, is_flat=image.shape[0] == 1)


def _pixels(image: Source) -> str:
    return f"{image.shape[1]} x {image.shape[2]} pixels"


def _grey_pages(path: Path) -> Source:
    """Return a TIFF file of one grey page or several."""
    logging.getLogger("tifffile").addHandler(_SILENT)
    with _open_tiff(path) as file:
        _check_chain(file)
        series, page = file.series[0], file.pages.first
        size, plane = math.prod(series.shape), page.imagelength * page.imagewidth
        is_stack = sum(n > 1 for n in series.shape) <= 3 and size % plane == 0
        if len(file.series) > 1 or page.samplesperpixel > 1 or not is_stack:
            found = ", ".join(f"{one.axes} {one.shape}" for one in file.series)
            raise KeyedError(PATH, f": {path} holds {found}; accepted: one stack of grey pages")
        shape = (size // plane, page.imagelength, page.imagewidth)
        dtype, offset = np.dtype(series.dtype), series.dataoffset
        stored = dtype.newbyteorder(file.byteorder)
        mapped = offset is not None and series.dtype == page.dtype
        together = shape[0] // len(series.pages)

    def open_mapped() -> AbstractContextManager[Any]:
        return contextlib.nullcontext(np.memmap(path, stored, "r", offset, shape))

    @contextlib.contextmanager
    def open_pages() -> Iterator[Any]:
        with _open_tiff(path) as file:
            yield _Pages(file.series[0].pages, (together, *shape[1:]))

    if mapped:
        return Source(str(path), shape, dtype, open_mapped, threaded=True)
    return Source(str(path), shape, dtype, open_pages, planes=together)


def _open_tiff(path: Path) -> Any:
    import tifffile

    # Microscopes describe series of several files in one of them.
    return tifffile.TiffFile(path, is_ome=False, is_mmstack=False, _multifile=False)


def _check_chain(file: Any) -> None:
    """Raise a ValueError if the list of pages does not end, as in a truncated file."""
    place = file.pages.next_page_offset
    if place is not None:
        file.filehandle.seek(place)
        following = file.filehandle.read(file.tiff.offsetsize)
        if len(following) < file.tiff.offsetsize or any(following):
            raise ValueError("pages are missing")


class _Pages:
    """Pages of a TIFF file, all of the same three-dimensional shape, indexed like one array."""

    def __init__(self, pages: Any, shape: tuple[int, int, int]) -> None:
        self._pages, self._shape = pages, shape

    def __getitem__(self, box: tuple[slice, slice, slice]) -> np.ndarray:
        planes, rows, columns = box
        together = self._shape[0]
        first, last = planes.start // together, (planes.stop - 1) // together
        pages = []
        for number in range(first, last + 1):
            _check_segments(self._pages[number])
            page = self._pages[number].asarray().reshape(self._shape)
            low = max(planes.start - number * together, 0)
            pages.append(page[low : planes.stop - number * together, rows, columns])
        return pages[0] if len(pages) == 1 else np.concatenate(pages)


def _check_segments(page: Any) -> None:
    """Raise a ValueError if a page has more bytes than its size tells, before it is decoded."""
    if page.compression not in _DEFLATED:
        return
    file = page.parent.filehandle
    for place, count in zip(page.dataoffsets, page.databytecounts, strict=False):
        if count > LITTLE:
            file.seek(place)
            if inflated_size(io.BytesIO(file.read(count)), page.nbytes) > page.nbytes:
                raise ValueError("a page has more bytes than its size tells")


def slices_source(path: Path) -> Source:
    """Return a folder of TIFF slices; each is compared with the first when it is read."""
    files = slice_files(path)
    first = _one_slice(files[0])
    slices = _Slices(files, first)
    shape = (len(files), *first.shape[1:])
    return Source(
        str(path),
        shape,
        first.dtype,
        functools.partial(contextlib.nullcontext, slices),
        threaded=True,
    )


def _one_slice(path: Path) -> Source:
    """Return a file of a folder of slices."""
    with readable(PATH, f": {path}"):
        if path.exists() and not path.is_file():
            # Of which opening alone may never end.
            raise KeyedError(PATH, f": {path} is no file, but a device or the like")
        image = _grey_pages(path)
    if image.shape[0] > 1:
        raise KeyedError(
            PATH, f": {path} has {image.shape[0]} pages; accepted: one in each file of a folder"
        )
    return image


@dataclass(frozen=True)
class _Slices:
    """Files of one slice each, like the first one, indexed like one array."""

    files: Sequence[Path]
    first: Source

    def __getitem__(self, box: tuple[slice, slice, slice]) -> np.ndarray:
        planes, rows, columns = box
        return np.concatenate([self._read(file, rows, columns) for file in self.files[planes]])

    def _read(self, path: Path, rows: slice, columns: slice) -> np.ndarray:
        image = _one_slice(path)
        if (image.shape, image.dtype) != (self.first.shape, self.first.dtype):
            raise KeyedError(
                PATH,
                f": {path} is of {_pixels(image)}, {image.dtype}, but {self.first.name} of "
                f"{_pixels(self.first)}, {self.first.dtype}; accepted: slices of one size and type",
            )
        with readable(PATH, f": {path}"), image.open() as values:
            plane: np.ndarray = values[0:1, rows, columns]
            return plane


def hdf5_source(path: Path, dataset: str | None = None) -> Source:
    """Return a data set of an HDF5 file: the named one, or the only one of three axes."""
    import h5py

    with h5py.File(path, "r") as file:
        names: list[str] = []

        def note(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset) and item.ndim == 3:
                names.append(name)

        # `visititems` does not follow links, so a name may be valid without being found.
        array = None if dataset is None else own_dataset(file, dataset)
        if array is None:
            file.visititems(note)
            dataset = _choose_dataset(path, names, dataset)
            array = own_dataset(file, dataset)
        name, chunks, shape, dtype = dataset or "", array.chunks, array.shape, array.dtype

    @contextlib.contextmanager
    def open_dataset() -> Iterator[Any]:
        with h5py.File(path, "r") as file:
            yield own_dataset(file, name)

    planes = chunks[0] if chunks else 1
    return Source(f"{path}: {name}", shape, dtype, open_dataset, planes)


def zarr_source(path: Path, dataset: str | None = None) -> Source:
    """Return the zarr array at the root, or one of a group, chosen as by `hdf5_source`."""
    arrays = foreign_arrays(path)
    name = "" if dataset is None else dataset.strip("/")
    if name not in arrays:
        volumes = [name for name, one in arrays.items() if len(one.shape) == 3]
        name = _choose_dataset(path, volumes, dataset)
    array = arrays[name].open()
    planes = (array.shards or array.chunks)[0] if array.ndim else 1
    return Source(
        str(path),
        array.shape,
        array.dtype,
        functools.partial(contextlib.nullcontext, array),
        planes,
    )


def _choose_dataset(path: Path, datasets: list[str], dataset: str | None) -> str:
    """Return the only name found if no `dataset` is given; a given one is known to be missing."""
    names = shortened(", ".join(sorted(datasets)), 400) or "none"
    if dataset is not None:
        raise KeyedError(
            DATASET, f" {shown(dataset)} is not in {path}; those of three axes there: {names}"
        )
    if len(datasets) != 1:
        raise KeyedError(
            DATASET, f" is missing: {path} does not hold just one of three axes, but {names}"
        )
    return datasets[0]


@dataclass(frozen=True)
class Format:
    """A format's reader, and the arguments that it takes."""

    read: Callable[..., Source]
    options: tuple[str, ...] = ()
    is_folder: bool = False


_RAW = Format(raw_source, ("shape", "dtype", "byte_order", "offset"))
_TIFF = Format(tiff_source)
_HDF5 = Format(hdf5_source, ("dataset",))
# Stands for the suffix of a folder, if it is no other format's.
SLICES = "/"
# Formats by suffix.
FORMATS = {
    ".raw": _RAW,
    ".bin": _RAW,
    ".dat": _RAW,
    ".tif": _TIFF,
    ".tiff": _TIFF,
    ".npy": Format(npy_source),
    ".h5": _HDF5,
    ".hdf5": _HDF5,
    ".nxs": _HDF5,
    ".zarr": Format(zarr_source, ("dataset",), is_folder=True),
    SLICES: Format(slices_source, is_folder=True),
}


# -- slices --------------------------------------------------------------------------------------


def slice_files(folder: Path) -> list[Path]:
    """Return the slices in a folder in their order; refuse names that do not count them."""
    with os.scandir(folder) as entries:
        names = sorted(
            entry.name
            for entry in entries
            if Path(entry.name).suffix.lower() in (".tif", ".tiff")
            and not entry.name.startswith(".")
            and not entry.is_dir()
        )
    if not names:
        raise _refusal(f"{folder} is a folder without slices; accepted: a TIFF file for each")
    numbers = _numbers(folder, names)
    names.sort(key=lambda name: numbers[name])
    pairs = list(itertools.pairwise(names))
    for one, other in pairs:
        if numbers[one] == numbers[other]:
            raise _refusal(f"{folder} has {shown(one)} and {shown(other)}, which have one number")
    if pairs:
        _check_gaps(folder, pairs, numbers)
    return [folder / name for name in names]


def _refusal(text: str) -> KeyedError:
    return KeyedError(KeyName("image", "path"), f": {text}")


def _numbers(folder: Path, names: list[str]) -> dict[str, tuple[int, ...]]:
    """Return the numbers in each name; a `KeyedError` if names differ by more than these."""
    parts = {name: re.split("([0-9]+)", Path(name).stem.casefold()) for name in names}
    texts = {name: tuple(parts_of_name[::2]) for name, parts_of_name in parts.items()}
    usual, _ = Counter(texts.values()).most_common(1)[0]
    odd = next((name for name in names if texts[name] != usual), None)
    if odd is not None:
        like = next(name for name in names if texts[name] == usual)
        raise _refusal(
            f"{folder} has {shown(like)} and {shown(odd)}, whose names differ by more than a "
            "number; accepted: the slices of one image"
        )
    return {name: tuple(map(int, parts_of_name[1::2])) for name, parts_of_name in parts.items()}


def _check_gaps(
    folder: Path, pairs: list[tuple[str, str]], numbers: dict[str, tuple[int, ...]]
) -> None:
    """Refuse slices if none of the numbers in their names counts them.

    Names may have several numbers, such as depths or times: the number that grows in the order of
    all slices, and by the least, counts them.
    """
    first, last = numbers[pairs[0][0]], numbers[pairs[-1][1]]
    growing = [
        column
        for column in range(len(first))
        if all(numbers[former][column] < numbers[latter][column] for former, latter in pairs)
    ]
    if not growing:
        former, latter = (shown(name) for name in pairs[0])
        raise _refusal(
            f"{folder} has {former}, {latter} and so on, in which no number counts the slices;"
            " accepted: names as slice_0001.tif"
        )
    column = min(growing, key=lambda column: last[column] - first[column])
    number = operator.itemgetter(column)
    lacking = number(last) - number(first) - len(pairs)
    for former, latter in pairs:
        missing = number(numbers[former]) + 1
        if missing != number(numbers[latter]):
            more = f", and {lacking - 1:,} more" if lacking > 1 else ""
            raise _refusal(
                f"{folder} has no slice {missing}, between {shown(former)} and"
                f" {shown(latter)}{more}; accepted: slices without gaps"
            )
