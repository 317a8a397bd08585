"""Time series, spectra and statistics: small, the same on all ranks, written by rank 0.

Each row of the series is written to a CSV file immediately, so that it survives a later failure.
When the run ends, however it ends, the same series is written to a zarr group as well. Runs have
millions of rows: none is kept in memory.
"""

from __future__ import annotations

import csv
import itertools
import math
import os
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np

from slipstream.engine.errors import InputError
from slipstream.engine.fields import Field
from slipstream.engine.text import one_line
from slipstream.files.durable_files import PARTIAL, errors_name, flush_file, flush_folder, named
from slipstream.files.folder_seals import Seal, file_checksum
from slipstream.files.foreign_files import open_file
from slipstream.files.zarr_store import FieldStore

LEADING_COLUMNS = {
    "step": "number of time steps done",
    "time": "time (non-dimensional)",
    "step_size": "size of the time step that follows (non-dimensional)",
}


_ROWS_AT_ONCE = 1024
_LONGEST_LINE = 1 << 20
# Rows that a followed series keeps: of more, every other is dropped.
_MOST_ROWS = 4096
# Bytes that are read together.
_AT_ONCE = 1 << 24


class Series:
    """Rows of named values against time, in files such as ``diagnostics.csv`` and ``.zarr``.

    Comment lines (``#``) at the head of the CSV explain the columns by their `labels`; pandas reads
    it with ``read_csv(path, comment="#")``. With `until`, a step, the existing series continues:
    its later rows, and those beyond what is `sealed`, are left out from `begin` on. Columns that
    only some rows have are not-a-number in the others. Only one that `has_store` has a zarr group.
    """

    def __init__(
        self,
        folder: str | Path,
        labels: Mapping[str, str],
        name: str = "diagnostics",
        until: int | None = None,
        sealed: Seal | None = None,
        has_store: bool = True,
    ) -> None:
        self.folder = Path(folder)
        self._name, self._has_store = name, has_store
        self._path = self.folder / f"{name}.csv"
        self.labels = {**LEADING_COLUMNS, **labels}
        self._columns: list[str] = []
        self._rows = 0
        self._csv: tuple[_SealedLines, csv.DictWriter[str]] | None = None
        self._earlier: _Earlier | None = None
        self._replaces_last = self._is_closed = False
        # The rows before, if columns have been added to them.
        self.rewritten: Seal | None = None
        if until is not None and self._path.exists():
            self._earlier = _rows_until(self._path, until, sealed)

    @property
    def last_rows(self) -> list[dict[str, float]]:
        """The last two rows, or fewer, of the series that continues."""
        return self._earlier.last_rows if self._earlier else []

    def begin(self) -> None:
        """Drop all rows after the step at which the series continues, for good."""
        if self._earlier is not None:
            self._cut(self._earlier.ends[-1])
            self._columns, self._rows = self._earlier.columns, self._earlier.rows

    def replace_last(self) -> None:
        """Leave out the last row of the series that continues as soon as there is another one."""
        self._replaces_last = self._earlier is not None and self._earlier.rows > 0

    def _cut(self, size: int) -> None:
        with errors_name(self._path):
            if self._path.stat().st_size > size:
                os.truncate(self._path, size)
                flush_file(self._path)

    def append(
        self,
        step: int,
        time: float,
        step_size: float,
        diagnostics: Mapping[str, float],
        is_flushed: bool = True,
    ) -> None:
        """Add a row, and flush it to the file unless others follow immediately."""
        row = {"step": step, "time": time, "step_size": step_size, **diagnostics}
        if self._csv is None:
            self._columns = list(row)
            self._csv = self._open(self._columns)
        elif not row.keys() <= set(self._columns):
            # A setting has been changed, with which the equations have more diagnostics.
            self._csv[0].file.close()
            self._replaces_last = False
            self._csv = self._open_again(_rows_until(self._path, step), list(row))
        file, writer = self._csv
        self._rows += 1
        with errors_name(self._path):
            # repr keeps all digits, and float removes NumPy's type from it.
            writer.writerow({k: v if k == "step" else repr(float(v)) for k, v in row.items()})
            if is_flushed:
                file.flush()

    def seal(self) -> Seal | None:
        """Return the seal of the rows so far; None if there are none."""
        if self._csv is not None:
            return self._csv[0].seal()
        if self._earlier is None:
            return None
        last = -2 if self._replaces_last else -1
        return Seal(length=self._earlier.ends[last], checksum=self._earlier.checksums[last])

    def _open(self, columns: list[str]) -> tuple[_SealedLines, csv.DictWriter[str]]:
        if self._earlier is not None:
            return self._open_again(self._earlier, columns)
        with errors_name(self._path):
            # Not written to where something else has the name.
            self._path.unlink(missing_ok=True)
            file = _SealedLines(self._path.open("ab"))
        for name in columns:
            file.write(f"# {name}: {self.labels.get(name, name)}\n")
        writer = csv.DictWriter(file, columns, restval="nan", lineterminator="\n")
        writer.writeheader()
        return file, writer

    def _open_again(
        self, earlier: _Earlier, columns: list[str]
    ) -> tuple[_SealedLines, csv.DictWriter[str]]:
        """Open the series that continues, with its earlier columns and the new ones."""
        if self._replaces_last:
            earlier.ends.pop()
            earlier.checksums.pop()
            earlier.rows -= 1
        self._cut(earlier.ends[-1])
        self._rows = earlier.rows
        self._columns = [*earlier.columns, *(one for one in columns if one not in earlier.columns)]
        known = earlier.ends[-1], earlier.checksums[-1]
        if self._columns != earlier.columns:
            self._rewrite(earlier)
            known = file_checksum(self._path, sys.maxsize)
            self.rewritten = Seal(length=known[0], checksum=known[1])
        with errors_name(self._path):
            file = _SealedLines(self._path.open("ab"), *known)
        return file, csv.DictWriter(file, self._columns, restval="nan", lineterminator="\n")

    def _rewrite(self, earlier: _Earlier) -> None:
        """Replace the file by one with columns more."""
        more = ",nan" * (len(self._columns) - len(earlier.columns))
        labels = {**earlier.labels, **self.labels}
        partial = self._path.with_name(self._path.name + PARTIAL)
        with errors_name(self._path):
            with self._path.open(encoding="utf-8") as rows, partial.open("w", newline="") as file:
                file.writelines(f"# {one}: {labels.get(one, one)}\n" for one in self._columns)
                file.write(",".join(self._columns) + "\n")
                lines = (line for line in rows if not line.startswith("#"))
                next(lines, None)
                file.writelines(f"{line.rstrip(chr(10))}{more}\n" for line in lines)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self._path)
            flush_folder(self.folder)

    def flush(self) -> None:
        """Wait until the rows are on the disk."""
        if self._csv is not None:
            with errors_name(self._path):
                os.fsync(self._csv[0].file.fileno())
            flush_folder(self.folder)

    def read(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Return the named columns that exist."""
        places = {name: self._columns.index(name) for name in names if name in self._columns}
        columns: dict[str, list[np.ndarray]] = {name: [] for name in places}
        for block in self._blocks() if places else ():
            for name, place in places.items():
                columns[name].append(np.array([row[place] for row in block], float))
        return {name: np.concatenate([np.zeros(0), *parts]) for name, parts in columns.items()}

    def close(self) -> None:
        """Close the CSV file and write the zarr group."""
        if self._is_closed or not self._columns:
            return
        self._is_closed = True
        if self._csv is not None:
            with errors_name(self._path):
                self._csv[0].file.close()
        if not self._has_store:
            return
        with errors_name(self.folder), tempfile.TemporaryFile(dir=self.folder) as file:
            columns = self._transposed(file)
            time = columns.pop("time")
            FieldStore(self.folder / f"{self._name}.zarr").write(
                whole_field(name, self.labels.get(name, name), values, {"time": time})
                for name, values in columns.items()
            )

    def _transposed(self, file: IO[bytes]) -> dict[str, np.ndarray]:
        """Write the rows into a file, column by column, and return the columns where they are."""
        rows = 0
        types = {name: np.dtype(int if name == "step" else float) for name in self._columns}
        for block in self._blocks():
            for column, (values, dtype) in enumerate(
                zip(zip(*block, strict=True), types.values(), strict=True)
            ):
                # Written, not mapped: a full disk is an error here, and would be a signal there.
                file.seek((column * self._rows + rows) * dtype.itemsize)
                file.write(np.array(values, dtype).tobytes())
            rows += len(block)
        file.flush()
        return {
            name: np.memmap(file, dtype, "r", column * self._rows * dtype.itemsize, (rows,))
            for column, (name, dtype) in enumerate(types.items())
        }

    def _blocks(self) -> Iterator[list[list[str]]]:
        """Yield the rows of the CSV file, some at a time."""
        with self._path.open(newline="", encoding="utf-8") as file:
            yield from _row_blocks(csv.reader(line for line in file if not line.startswith("#")))


class _SealedLines:
    """A file of text to which lines are added, with the length and the checksum of all of it."""

    def __init__(self, file: BinaryIO, length: int = 0, checksum: int = 0) -> None:
        self.file, self._length, self._checksum = file, length, checksum

    def write(self, text: str) -> int:
        content = text.encode("utf-8", "replace")
        self._length += len(content)
        self._checksum = zlib.crc32(content, self._checksum)
        return self.file.write(content)

    def flush(self) -> None:
        self.file.flush()

    def seal(self) -> Seal:
        return Seal(length=self._length, checksum=self._checksum)


@dataclass
class _Earlier:
    """The rows of a series that continues; ends and checksums are of the last rows, and before."""

    columns: list[str]
    labels: dict[str, str]
    rows: int
    ends: list[int]
    checksums: list[int]
    last_rows: list[dict[str, float]]


def _rows_until(path: Path, step: int, sealed: Seal | None = None) -> _Earlier:
    """Return the rows of a series until a step; raise an `InputError` if it is no series."""
    columns, labels = _heading(path)
    earlier = _Earlier(columns, labels, 0, [], [], [])
    most = None if sealed is None else sealed.length
    with open_file(path) as file:
        size = checksum = 0
        while (line := file.readline(_LONGEST_LINE)).startswith(b"#"):
            size, checksum = size + len(line), zlib.crc32(line, checksum)
        size, checksum = size + len(line), zlib.crc32(line, checksum)
        earlier.ends.append(size)
        earlier.checksums.append(checksum)
        # A power cut may have left zeros, or half a row.
        while (line := file.readline(_LONGEST_LINE)).endswith(b"\n"):
            try:
                row = dict(zip(columns, map(float, line.split(b",")), strict=True))
            except ValueError:
                break
            if not row["step"] <= step or (most is not None and size + len(line) > most):
                break
            size, checksum = size + len(line), zlib.crc32(line, checksum)
            earlier.rows += 1
            earlier.ends = [*earlier.ends[-2:], size]
            earlier.last_rows = [*earlier.last_rows[-1:], row]
            earlier.checksums = [*earlier.checksums[-2:], checksum]
    return earlier


def _row_blocks(rows: Iterator[list[str]]) -> Iterator[list[list[str]]]:
    """Yield the rows of a series below its heading, some at a time."""
    columns = len(next(rows, []))
    # A full disk may have cut the last one short.
    whole = (row for row in rows if len(row) == columns and row[-1])
    while block := list(itertools.islice(whole, _ROWS_AT_ONCE)):
        yield block


def read_series(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the complete rows of a series by column, and the labels of the columns."""
    head, labels = _heading(path)
    parts: list[list[np.ndarray]] = [[] for _ in head]
    try:
        with open_file(path) as file:
            blocks = _row_blocks(csv.reader(_complete_lines(file)))
            for block in blocks:
                for part, values in zip(parts, zip(*block, strict=True), strict=True):
                    part.append(np.array(values, float))
    except (ValueError, csv.Error) as error:
        raise InputError(f"{named(path)}: not a series: {one_line(str(error))}") from error
    columns = [np.concatenate([np.zeros(0), *part]) for part in parts]
    return {
        name: column.astype(int) if name == "step" and np.isfinite(column).all() else column
        for name, column in zip(head, columns, strict=True)
    }, labels


def _heading(path: str | Path) -> tuple[list[str], dict[str, str]]:
    """Return the names of the columns of a series, and the labels in the comments above them."""
    labels: dict[str, str] = {}
    with open_file(path) as file:
        while line := file.readline(_LONGEST_LINE):
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            if not text.startswith("#"):
                names = text.split(",")
                if not {"step", "time"} <= set(names) or len(set(names)) < len(names):
                    break
                return names, {name: labels.get(name, name) for name in names}
            _take_label(text, labels)
    raise InputError(f"{named(path)}: not a series: it has no heading with step and time")


def _take_label(comment: str, labels: dict[str, str]) -> None:
    name, colon, label = comment[1:].strip().partition(": ")
    if colon:
        labels[name] = label


def _complete_lines(file: BinaryIO) -> Iterator[str]:
    while line := file.readline(_LONGEST_LINE):
        if not line.endswith(b"\n"):
            return
        if not line.startswith(b"#"):
            yield line.decode("utf-8")


class SeriesTail:
    """Follows a ``diagnostics.csv`` that may not exist yet; of millions of rows some are kept."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.columns: tuple[str, ...] = ()
        self.labels: dict[str, str] = {}
        self._rows: list[list[float]] = []
        self._last: list[float] | None = None
        self._stride, self._seen = 1, 0
        self._identity: tuple[int, int] | None = None
        self._offset, self._rest = 0, b""

    def read(self) -> bool:
        """Read the rows that have been added; return whether there are any."""
        try:
            with open_file(self._path) as file:
                about = os.fstat(file.fileno())
                identity = about.st_dev, about.st_ino
                # A run that continues may have dropped rows after its last state.
                if identity != self._identity or about.st_size < self._offset:
                    self._begin_anew()
                    self._identity = identity
                file.seek(self._offset)
                is_new = False
                while block := file.read(_AT_ONCE):
                    self._offset += len(block)
                    is_new = self._take(block) or is_new
                    if len(self._rest) > _LONGEST_LINE:
                        # It is no series: the rest may be as long as a disk.
                        self._rest = b""
                        break
                return is_new
        except OSError:
            return False

    def _take(self, block: bytes) -> bool:
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            self._take_line(line.decode("utf-8", "replace").rstrip("\r"))
        return bool(lines)

    def _take_line(self, line: str) -> None:
        if line.startswith("#"):
            _take_label(line, self.labels)
            return
        try:
            cells = next(csv.reader([line.replace("\0", "")]), [])
        except csv.Error:
            return
        if not self.columns:
            if {"step", "time"} <= set(cells):
                self.columns = tuple(cells)
            return
        if len(cells) != len(self.columns):
            return
        try:
            row = [float(cell) for cell in cells]
        except ValueError:
            return
        self._drop_from(row)
        self._last = row
        if self._seen % self._stride == 0:
            self._rows.append(row)
        self._seen += 1
        if len(self._rows) > _MOST_ROWS:
            self._rows, self._stride = self._rows[::2], 2 * self._stride

    def _drop_from(self, row: list[float]) -> None:
        """Forget rows of times that come again, as when a run continues from an earlier state."""
        place = self.columns.index("time")
        while self._rows and self._rows[-1][place] >= row[place]:
            self._rows.pop()

    def __len__(self) -> int:
        return len(self._rows)

    def last(self, name: str) -> float:
        """Return the last value of a column; not-a-number if there is none."""
        if self._last is None or name not in self.columns:
            return math.nan
        return self._last[self.columns.index(name)]

    def values(self, name: str) -> np.ndarray:
        """Return the values of a column that have been kept, and the last."""
        if name not in self.columns:
            return np.zeros(0)
        column = self.columns.index(name)
        rows = self._rows
        if self._last is not None and (not rows or rows[-1] is not self._last):
            rows = [*rows, self._last]
        return np.array([row[column] for row in rows])


def whole_field(
    name: str,
    long_name: str,
    values: np.ndarray,
    coordinates: Mapping[str, np.ndarray],
    **attributes: object,
) -> Field:
    """Return a small array, with a coordinate for each dimension, as a field."""
    data = np.asarray(values)
    return Field(
        name=name,
        dims=tuple(coordinates),
        shape=data.shape,
        offset=(0,) * data.ndim,
        data=data,
        coordinates={axis: np.asarray(along, dtype=float) for axis, along in coordinates.items()},
        attributes={"long_name": long_name, **attributes},
    )


def spectrum_fields(
    spectra: Mapping[str, tuple[np.ndarray, np.ndarray]], labels: Mapping[str, str]
) -> Iterator[Field]:
    """Yield spectra, (wavenumber, values), as fields; equal wavenumbers become one shared axis."""
    axes = [wavenumber for wavenumber, _ in spectra.values()]
    is_shared = all(np.array_equal(axes[0], axis) for axis in axes)
    for name, (wavenumber, values) in spectra.items():
        axis = "wavenumber" if is_shared else f"wavenumber_{name}"
        yield whole_field(name, labels.get(name, name), values, {axis: wavenumber})
