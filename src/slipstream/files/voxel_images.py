"""Voxel images of porous media: any box of one as a mask, 1 in pores and 0 in solid.

Values are compared in batches of planes that stay in cache, so that reading costs little more than
moving the file's bytes. Ranks read a raw file together, through MPI-IO; of other formats each rank
reads what its own box needs.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_every_rank
from slipstream.engine.decomposition import Box, whole
from slipstream.engine.error_terms import KeyedError, KeyName, PerAxis, keys_in_order
from slipstream.engine.errors import InputError, plain_value
from slipstream.engine.processes import map_in_threads
from slipstream.files.image_formats import FORMATS, PATH, SLICES, Source, array_source, readable

if TYPE_CHECKING:
    from mpi4py import MPI

# Bytes that are read and then compared while they are in cache.
_BATCH_BYTES = 4 * 2**20
# More threads than this would wait for memory.
_MOST_THREADS = 8


def open_image(
    source: str | os.PathLike[str] | np.ndarray,
    *,
    pore: int | Sequence[int] | None = None,
    pore_below: float | None = None,
    pore_above: float | None = None,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    byte_order: str = "little",
    offset: int = 0,
    dataset: str | None = None,
    comm: Comm = None,
) -> Image:
    """Open a voxel image, by the suffix of its path. Collective.

    All values but zero are pore, unless `pore` has them, or thresholds of grey images: values below
    `pore_below`, above `pore_above`, or between them. Raw files need `shape` (z, y, x) and `dtype`;
    `dataset` names the array in an HDF5 file or zarr group if several have three axes.
    """
    options = {
        name: value
        for name, value, is_given in (
            ("shape", shape, shape is not None),
            ("dtype", dtype, dtype is not None),
            # Arrays do not compare as one value; as of a wrong kind they are refused.
            ("byte_order", byte_order, plain_value(byte_order) != "little"),
            ("offset", offset, plain_value(offset) != 0),
            ("dataset", dataset, dataset is not None),
        )
        if is_given
    }
    rule, found = on_every_rank(
        comm, lambda: (_pore_rule(pore, pore_below, pore_above), _find(source, options))
    )
    return Image(found, rule, comm)


def _pore_rule(pore: Any, below: Any, above: Any) -> PoreRule:
    """Return the rule for pores, or refuse the arguments."""
    thresholds = {"pore_below": below, "pore_above": above}
    limits = [name for name, value in thresholds.items() if value is not None]
    for name in limits:
        value = thresholds[name]
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise KeyedError(KeyName("image", name), f" is {value!r}; accepted: a finite number")
    if below is not None and above is not None and not above < below:
        raise KeyedError(
            KeyName("image", "pore_above"),
            f" is {above!r}; accepted: less than ",
            KeyName("image", "pore_below"),
            f", {below!r}, as what lies between is pore",
        )
    if pore is None:
        return PoreRule((), above, below)
    if limits:
        raise KeyedError(
            *keys_in_order("image", ["pore", *limits]), ": give values or thresholds, not both"
        )
    try:
        values = tuple(operator.index(value) for value in (pore if np.iterable(pore) else (pore,)))
    except TypeError:
        values = ()
    if not values:
        raise KeyedError(
            KeyName("image", "pore"), f" is {pore!r}; accepted: a whole number, or several"
        )
    return PoreRule(values)


def _find(source: Any, options: dict[str, Any]) -> Source:
    """Return the source of an image, opened with the options that were given."""
    if isinstance(source, np.ndarray):
        check_options("an array", options, ())
        if isinstance(source, np.ma.MaskedArray):
            raise KeyedError(
                PATH, " is a masked array; accepted: a plain one, such as its .filled(0)"
            )
        return array_source(source)
    if not isinstance(source, str | os.PathLike):
        # Not the value itself, which may be a list of a whole image.
        kind = type(source).__name__
        raise KeyedError(PATH, f" is of type {kind}; accepted: a path, or a NumPy array")
    path = Path(source)
    suffix, is_there = path.suffix.lower(), os.path.exists(path)  # which takes names of any length
    if is_there and path.is_dir() and not (suffix in FORMATS and FORMATS[suffix].is_folder):
        suffix, what = SLICES, "a folder of slices"
    elif suffix in FORMATS:
        what = f"a {suffix} file"
    elif is_there or suffix:
        accepted = ", ".join(one for one in FORMATS if one != SLICES)
        raise KeyedError(
            PATH, f": {path} has suffix {suffix!r}; accepted: {accepted}, or a folder of slices"
        )
    else:
        raise _missing_error(path)
    image_format = FORMATS[suffix]
    check_options(what, options, image_format.options)
    if not is_there:
        raise _missing_error(path)
    if image_format.is_folder and not path.is_dir():
        raise KeyedError(PATH, f": {path} is no folder")
    if not (image_format.is_folder or path.is_file()):
        # Of which opening alone may never end.
        raise KeyedError(PATH, f": {path} is no file, but a device or the like")
    with readable(PATH, f": {path}"):
        return image_format.read(path, **options)


@dataclass(frozen=True)
class PoreRule:
    """The values that are pore: some, or all between two thresholds; by default all but 0."""

    values: tuple[int, ...] = ()
    above: float | None = None
    below: float | None = None

    @property
    def is_given(self) -> bool:
        """Whether the caller has told which values are pore."""
        return self != PoreRule()

    def text(self, pore_value: float | None) -> str:
        """Return the values that are pore, for people; without a rule the only one but 0."""
        if self.values:
            listed = ", ".join(map(str, self.values))
            return f"value{'s' * (len(self.values) > 1)} {listed}"
        limits = {"above": self.above, "below": self.below}
        texts = [f"{name} {limit:g}" for name, limit in limits.items() if limit is not None]
        if texts:
            return f"values {' and '.join(texts)}"
        return "all values but 0" if pore_value is None else f"value {pore_value:g}"

    def mark(self, values: np.ndarray, mask: np.ndarray) -> None:
        """Set a mask where values are pore."""
        if self.values:
            np.equal(values, self.values[0], out=mask)
            for value in self.values[1:]:
                np.logical_or(mask, values == value, out=mask)
        elif not self.is_given:
            np.not_equal(values, 0, out=mask)
        else:
            mask[...] = True
            if self.above is not None:
                np.greater(values, self.above, out=mask)
            if self.below is not None:
                np.logical_and(mask, values < self.below, out=mask)


class Image:
    """An image of `shape` z, y, x; any box of it can be read. Made by `open_image`.

    It `is_flat` if it was a picture of two axes, which is a single slice.
    """

    def __init__(self, source: Source, rule: PoreRule, comm: Comm) -> None:
        self.shape, self.is_flat = source.shape, source.is_flat
        self._source, self._rule, self._comm = source, rule, comm
        # A few of the values other than 0 that have been read, unless a rule says which are pore.
        self._seen: set[float] = set()

    def read(self, box: Box) -> np.ndarray:
        """Return the uint8 mask of this rank's box, which may be empty. Collective."""
        several, raw = self._comm is not None and self._comm.size > 1, self._source.raw
        if several and raw is not None:
            return self._read_together(raw, box)

        def read_alone() -> np.ndarray:
            mask = self._empty(box)
            if mask.size:
                with readable(PATH, f": {self._source.name}"), self._source.open() as values:
                    self._convert(values, box, mask)
            return mask

        return on_every_rank(self._comm, read_alone)

    def _empty(self, box: Box) -> np.ndarray:
        """Return an array for the mask of a box."""
        if box.size and whole(self.shape).intersect(box) != box:
            raise KeyedError(
                PATH,
                f": {self._source.name} has shape ",
                PerAxis(self.shape),
                "; there is no box from ",
                PerAxis(box.start),
                " to ",
                PerAxis(box.stop),
                " in it",
            )
        return np.empty(box.shape, np.uint8)

    def _convert(self, values: Any, box: Box, mask: np.ndarray) -> None:
        first, (_, rows, columns) = box.start[0], box.slices()

        def convert(planes: tuple[int, int]) -> None:
            low, high = planes
            self._mark(values[low:high, rows, columns], mask[low - first : high - first])

        if self._source.threaded:
            threads = min(_MOST_THREADS, len(os.sched_getaffinity(0)))
            map_in_threads(threads, convert, self._batches(box))
        else:
            for planes in self._batches(box):
                convert(planes)

    def _mark(self, values: np.ndarray, target: np.ndarray) -> None:
        """Set a mask to 1 where values are pore, to 0 elsewhere."""
        if values.dtype.kind == "f" and np.isnan(values).any():
            raise KeyedError(
                PATH,
                f": {self._source.name} has voxels that are not a number (NaN); accepted:"
                " numbers, so replace these by the value of solid or of pore",
            )
        is_told = self._rule.is_given or values.dtype.kind == "b"
        if values.dtype.kind == "b":
            # Any byte but zero is true, and bytes are compared faster.
            values = values.view(np.uint8)
        mask = target.view(bool)
        self._rule.mark(values, mask)
        if not is_told and mask.any():
            high = values.max()
            pore_value = high if high != 0 else values.min()
            self._seen.add(pore_value.item())
            if np.count_nonzero(values == pore_value) != np.count_nonzero(mask):
                self._seen.add(values[mask & (values != pore_value)][0].item())

    def check_values(self) -> None:
        """Refuse an image of several values but 0 without a rule for pores. Collective."""
        seen = self._all_seen()
        if len(seen) > 1:
            low, high, *_ = sorted(seen)
            raise KeyedError(
                PATH,
                f": {self._source.name} has voxels of {low:g} and of {high:g}, not only of 0 and "
                "of one other value, so say which are pore; accepted: ",
                KeyName("image", "pore"),
                ", one or several values, or a threshold, ",
                KeyName("image", "pore_below"),
                " or ",
                KeyName("image", "pore_above"),
            )

    def pore_text(self) -> str:
        """Return the values that are pore, once the image has been read. Collective."""
        seen = self._all_seen()
        if self._source.dtype.kind == "b" and not self._rule.is_given:
            return "value True"
        return self._rule.text(min(seen) if len(seen) == 1 else None)

    def _all_seen(self) -> set[float]:
        """Return values but 0 that any rank has read, two of each at most. Collective."""
        if self._comm is None:
            return self._seen
        return set().union(*self._comm.allgather(sorted(self._seen)[:2]))

    def _batches(self, box: Box) -> Iterator[tuple[int, int]]:
        """Divide the planes of a box; planes that are stored together are read once."""
        together = self._source.planes
        plane_bytes = box.shape[1] * box.shape[2] * self._source.dtype.itemsize
        count = max(1, _BATCH_BYTES // (plane_bytes * together)) * together
        low = box.start[0]
        while low < box.stop[0]:
            high = min((low // count + 1) * count, box.stop[0])
            yield low, high
            low = high

    def _read_together(self, raw: tuple[Path, int], box: Box) -> np.ndarray:
        """Read a box of a raw file, all ranks at the same time."""
        from mpi4py import MPI

        mask = on_every_rank(self._comm, lambda: self._empty(box))
        flat, dtype = mask.reshape(-1), self._source.dtype
        batch = np.empty(max(1, _BATCH_BYTES // dtype.itemsize), dtype)
        comm = cast("MPI.Intracomm", self._comm)
        turns = comm.allreduce(-(-flat.size // batch.size), MPI.MAX)
        failure = None

        def open_view() -> RawView:
            with readable(PATH, f": {self._source.name}"):
                return RawView(comm, self._source, raw, box)

        with on_every_rank(self._comm, open_view) as view:
            # Ranks that are done, or have failed, continue taking part, as reading is collective.
            for turn in range(turns):
                values = batch[: max(0, flat.size - turn * batch.size)]
                start = turn * batch.size
                try:
                    view.read_next(values)
                    self._mark(values, flat[start : start + values.size])
                except (MPI.Exception, InputError) as error:
                    failure = failure or error

        def report() -> None:
            with readable(PATH, f": {self._source.name}"):
                if failure is not None:
                    raise failure

        on_every_rank(self._comm, report)
        return mask


class RawView:
    """A box of a raw file that ranks read together by MPI-IO; enter it on all ranks. Collective."""

    def __init__(
        self, comm: MPI.Intracomm, source: Source, raw: tuple[Path, int], box: Box
    ) -> None:
        from mpi4py import MPI

        path, self._offset = raw
        self._file = MPI.File.Open(comm, str(path), MPI.MODE_RDONLY)
        # Not every MPI raises an error when it reads beyond the end, or says how much it read.
        if self._file.Get_size() < self._offset + math.prod(source.shape) * source.dtype.itemsize:
            raise EOFError("it has become shorter")
        self._element = MPI.BYTE.Create_contiguous(source.dtype.itemsize).Commit()
        if box.size:
            self._box = self._element.Create_subarray(source.shape, box.shape, box.start)
        else:
            self._box = self._element.Dup()
        self._box.Commit()

    def __enter__(self) -> RawView:
        self._file.Set_view(self._offset, self._element, self._box)
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.Close()
        self._box.Free()
        self._element.Free()

    def read_next(self, values: np.ndarray) -> None:
        """Fill an array with the next values of this rank's box."""
        self._file.Read_all([values, values.size, self._element])


def _missing_error(path: Path) -> KeyedError:
    where = "" if path.is_absolute() else f" in the working directory, {os.getcwd()}"
    return KeyedError(PATH, f": {path} does not exist{where}")


def check_options(what: str, options: Iterable[str], accepted: Sequence[str]) -> None:
    """Refuse options that do not apply to an image, in one message."""
    foreign = [name for name in options if name not in accepted]
    if not foreign:
        return
    reason = f"{what} tells its own {' and '.join(foreign)}"
    if not {"shape", "dtype"}.issuperset(foreign):
        reason = f"not of {what}"
    raise KeyedError(
        *keys_in_order("image", foreign),
        f": remove {'them' if foreign[1:] else 'it'}, {reason}; accepted: ",
        *keys_in_order("image", ["pore", "pore_below", "pore_above", *accepted]),
    )
