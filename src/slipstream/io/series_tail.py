"""A time series that another process is writing, read again and again: only what has been added."""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path

import numpy as np

from slipstream.io.foreign_files import open_file
from slipstream.io.held_paths import as_path

# Rows that are kept: of more, every other is left out. And bytes that are read at once.
_MOST_ROWS, _AT_ONCE = 4096, 1 << 24


class SeriesTail:
    """Follows a ``diagnostics.csv``, wherever it is: it may not be there yet, or be begun anew.

    Rows that are half written, or are none, are left out; there may be millions, of which some
    thousand are kept, the last one among them.

    Attributes
    ----------
    columns : tuple of str
        Names, in their order; empty as long as there is no heading.
    labels : dict of str to str
        What the columns are, as the comments above the heading say.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = as_path(path)
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
        """Take over what has been added; return whether anything has."""
        try:
            with open_file(self._path) as file:
                about = os.fstat(file.fileno())
                identity = about.st_dev, about.st_ino
                # A run that goes on may have dropped rows after its last state.
                if identity != self._identity or about.st_size < self._offset:
                    self._begin_anew()
                    self._identity = identity
                file.seek(self._offset)
                is_new = False
                while block := file.read(_AT_ONCE):
                    self._offset += len(block)
                    is_new = self._take(block) or is_new
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
            name, colon, label = line[1:].strip().partition(": ")
            if colon:
                self.labels[name] = label
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
        """Forget rows of times that come again, as when a run goes on from an earlier state."""
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
        place = self.columns.index(name)
        rows = self._rows
        if self._last is not None and (not rows or rows[-1] is not self._last):
            rows = [*rows, self._last]
        return np.array([row[place] for row in rows])
