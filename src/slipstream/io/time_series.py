"""Time series, spectra and statistics: small, the same on all ranks, written by rank 0.

Each row of the series is written to a CSV file at once, so that it survives whatever happens later.
When the run ends, however it ends, the same series is written to a zarr group as well.
"""

import csv
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np

from slipstream.field import Field
from slipstream.io.durable_files import errors_name, flush_folder
from slipstream.io.zarr_store import FieldStore

_LEADING = {
    "step": "number of time steps done",
    "time": "time (non-dimensional)",
    "step_size": "size of the time step that follows (non-dimensional)",
}


class Series:
    """Rows of named values against time, in ``diagnostics.csv`` and ``diagnostics.zarr``.

    Comment lines (``#``) at the head of the CSV explain the columns by their `labels`; pandas reads
    it with ``read_csv(path, comment="#")``.
    """

    def __init__(self, folder: str | Path, labels: Mapping[str, str]) -> None:
        self.folder = Path(folder)
        self._path = self.folder / "diagnostics.csv"
        self.labels = {**_LEADING, **labels}
        self._rows: list[dict[str, float]] = []
        self._csv: tuple[IO[str], csv.DictWriter] | None = None

    def append(
        self, step: int, time: float, step_size: float, diagnostics: Mapping[str, float]
    ) -> None:
        """Add a row, with the same diagnostics each time, and flush it to the file."""
        row = {"step": step, "time": time, "step_size": step_size, **diagnostics}
        if self._csv is None:
            self._csv = self._open(list(row))
        file, writer = self._csv
        self._rows.append(row)
        with errors_name(self._path):
            # repr keeps all digits, and float removes NumPy's type from it.
            writer.writerow({k: v if k == "step" else repr(float(v)) for k, v in row.items()})
            file.flush()

    def _open(self, columns: list[str]) -> tuple[IO[str], csv.DictWriter]:
        with errors_name(self._path):
            file = self._path.open("w", newline="", encoding="utf-8")
        for name in columns:
            file.write(f"# {name}: {self.labels.get(name, name)}\n")
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        return file, writer

    def flush(self) -> None:
        """Wait until the rows are on the device."""
        if self._csv is not None:
            with errors_name(self._path):
                os.fsync(self._csv[0].fileno())
            flush_folder(self.folder)

    def columns(self) -> dict[str, np.ndarray]:
        """Return the columns by name: one value per row, int64 for ``step``, else float64."""
        names = self._rows[0] if self._rows else {}
        return {
            name: np.array(
                [row[name] for row in self._rows], dtype=int if name == "step" else float
            )
            for name in names
        }

    def close(self) -> None:
        """Close the CSV file and write ``diagnostics.zarr``."""
        if self._csv is None or self._csv[0].closed:
            return
        with errors_name(self._path):
            self._csv[0].close()
        columns = self.columns()
        time = columns.pop("time")
        FieldStore(self.folder / "diagnostics.zarr").write(
            whole_field(name, self.labels.get(name, name), values, {"time": time})
            for name, values in columns.items()
        )


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
