"""The output folder of a run, as far as pictures and reports need it: it is only read.

The run may be finished, interrupted or under way, and the folder somebody else's.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from slipstream.accepted import STATISTICS
from slipstream.case.output_tables import DensitiesOutput, ScalarsOutput
from slipstream.errors import InputError, SlipstreamError
from slipstream.field import Field
from slipstream.io.run_folder import FIELDS_NAME, OUTPUTS_NAME, SPECTRA_NAME, RunFolder
from slipstream.io.run_record import RunRecord
from slipstream.io.stored_arrays import StoredArrays, StoredSpectra, errors_of_store
from slipstream.io.time_series import LEADING_COLUMNS
from slipstream.printable_text import one_line, printable, shown
from slipstream.report.field_planes import (
    FieldPlane,
    composed_plane,
    index_at,
    liveliest,
    normal_axis,
    plane_at,
)
from slipstream.report.picture_process import shown_spectra
from slipstream.report.run_pictures import Picture, run_pictures, scalar_pictures
from slipstream.report.run_status import RUNNING, RunWatcher
from slipstream.report.statistics_pictures import density_pictures, statistics_pictures
from slipstream.simulation.solver_values import PictureChoice, PlaneChoice, Spectra

# Values of a field that are in memory while its liveliest plane is looked for.
_MOST_VALUES = 1 << 23
_DIMS = ("z", "y", "x")
_MASK = "pore"

_Chosen = TypeVar("_Chosen", ScalarsOutput, DensitiesOutput)
Series = tuple[dict[str, np.ndarray], dict[str, str]]


class StoredRun:
    """The contents of the folder of a run.

    Everything is read when it is asked for and then kept: as of one moment, nearly.

    Attributes
    ----------
    path : pathlib.Path
        The folder.
    folder : RunFolder
        The same, as all is read.

    Raises
    ------
    InputError
        If the folder holds no output of a run.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path, self.folder = Path(folder), RunFolder(folder)
        self.folder.check_is_a_run()
        self._faults = self.folder.faults()
        for fault in self._faults:
            print(printable(f"slipstream: warning: {fault}"), file=sys.stderr)

    @contextlib.contextmanager
    def drawn(self) -> Iterator[StoredRun]:
        """Report in one line that damaged output cannot be drawn."""
        try:
            yield self
        except SlipstreamError:
            raise
        except Exception as error:
            if not self._faults:
                raise
            raise InputError(f"{self._faults[0]}; it cannot be drawn") from error

    @cached_property
    def case_text(self) -> str:
        """The case as written."""
        return self.folder.case_text()

    @cached_property
    def case(self) -> dict[str, Any]:
        """The tables of the case as written, without validation."""
        return self.folder.case_tables()

    @property
    def is_running(self) -> bool:
        """Whether the run is under way, as far as its files show."""
        return RunWatcher(self.folder).look().state == RUNNING

    @property
    def title(self) -> str:
        """The title of the case."""
        return str(self.case.get("title", ""))

    @cached_property
    def record(self) -> RunRecord:
        """The record of the run; without segments if the folder lacks it."""
        return self.folder.record()

    @cached_property
    def choice(self) -> PictureChoice:
        """The pictures that the run has chosen, or else the first series and one field."""
        for segment in reversed(self.record.segments):
            if segment.pictures:
                with contextlib.suppress(ValidationError):
                    return _CHOICES.validate_python(segment.pictures)
        columns = [name for name in self.series[0] if name not in LEADING_COLUMNS]
        return PictureChoice(
            curves=tuple((name,) for name in columns[:3]),
            # Fields made of others are written last.
            planes=tuple(PlaneChoice(name, f"{name}.png") for name in self._on_grid[-1:]),
        )

    @cached_property
    def series(self) -> Series:
        """The columns of the time series, and their labels; none if it has not begun."""
        return self.folder.series()

    @cached_property
    def fields(self) -> StoredArrays | None:
        """The snapshots of fields on the run's last points, if there are any."""
        return self.folder.last_store(FIELDS_NAME)

    @property
    def _on_grid(self) -> list[str]:
        """The names of the fields that have snapshots on a grid."""
        stored, dims = self.fields, ("time", *_DIMS)
        return [name for name in stored.shapes if stored.dimensions(name) == dims] if stored else []

    @cached_property
    def _snapshots(self) -> list[tuple[float, StoredArrays, int]]:
        """All snapshots of fields in the order of time: the time, a store, the number in it."""
        found = []
        for stored in self.folder.stores(FIELDS_NAME):
            with errors_of_store(stored.path):
                found += [(float(t), stored, number) for number, t in enumerate(stored.times)]
        return found

    @property
    def spectra(self) -> Spectra:
        """The spectra that pictures show, in the order of time."""
        stored = self.folder.last_store(SPECTRA_NAME)
        if stored is None:
            return []
        with errors_of_store(stored.path):
            return shown_spectra(StoredSpectra(stored))

    @property
    def statistics(self) -> dict[str, tuple[float, dict[str, Field]]]:
        """The last statistics of each kind: a time, and fields by name."""
        found = {}
        for kind in STATISTICS:
            stored = self.folder.last_store(f"{kind}.zarr")
            if stored is not None:
                with errors_of_store(stored.path):
                    found[kind] = _last_fields(stored)
        return {kind: one for kind, one in found.items() if one is not None}

    @property
    def scalars(self) -> dict[str, tuple[np.ndarray, np.ndarray, str]]:
        """The numbers that the case asks for: times, values and label by column."""
        found = {}
        for one in self._chosen("scalars", ScalarsOutput):
            column, recurs = one.column, one.interval is not None or one.times is not None
            columns, labels = (
                self.folder.series(f"{OUTPUTS_NAME}/{column}.csv") if recurs else self.series
            )
            for name in columns:
                if name == column or (name[:-1] == f"{column}_" and name[-1] in "xyz"):
                    found[name] = columns["time"], columns[name], labels[name]
        return found

    @property
    def densities(self) -> dict[str, tuple[float, Sequence[str], dict[str, Field]]]:
        """The last densities that the case asks for: time, variables and fields by store."""
        found: dict[str, tuple[float, Sequence[str], dict[str, Field]]] = {}
        for one in self._chosen("densities", DensitiesOutput):
            stored = self.folder.store(f"{OUTPUTS_NAME}/{one.stem}.zarr")
            last = None if stored is None else _last_fields(stored)
            if last is not None:
                found[one.stem] = last[0], one.of, last[1]
        return found

    def _chosen(self, kind: str, model: type[_Chosen]) -> Iterator[_Chosen]:
        """Yield what the case asks for of a kind of output, but for tables that are not valid."""
        output = self.case.get("output")
        tables = output.get(kind, []) if isinstance(output, dict) else []
        for table in tables if isinstance(tables, list) else []:
            with contextlib.suppress(ValueError):
                yield model.model_validate(table)

    # -- planes --------------------------------------------------------------------------------

    def snapshot(self, time: float | None = None) -> int:
        """Return the number of the snapshot of fields that is nearest to a time, or the last."""
        times = self.times
        if not len(times):
            raise InputError(f"{self.path}: there are no snapshots of fields yet")
        return len(times) - 1 if time is None else int(np.argmin(np.abs(times - time)))

    @property
    def times(self) -> np.ndarray:
        """The times of all snapshots of fields."""
        return np.array([time for time, _, _ in self._snapshots])

    @property
    def last_snapshots(self) -> range:
        """The numbers of the snapshots on the run's last points."""
        count = len(self._snapshots)
        return range(count - self._snapshots[-1][2] - 1 if count else 0, count)

    def choice_of(self, name: str, there: Sequence[str] | None = None) -> PlaneChoice:
        """Return how a field is drawn: of vectors and complex fields the magnitude.

        `there` names the existing fields; by default those of snapshots.
        """
        there = self._on_grid if there is None else there
        for one in self.choice.planes:
            if one.field == name and set(one.needed) <= set(there):
                return one
        parts = [f"{name}_{end}" for end in ("x", "y", "z", "real", "imaginary")]
        components = tuple(part for part in parts if part in there)
        if name not in there and not components:
            composed = (one.field for one in self.choice.planes if one.components)
            names = ", ".join(map(one_line, (*there, *composed))) or "none"
            raise InputError(f"--field: there is no {shown(name)}; there are: {names}")
        mask = _MASK if _MASK in there and name != _MASK else ""
        file = "".join(letter if letter.isalnum() or letter in "_-" else "_" for letter in name)
        return PlaneChoice(
            name, f"{file}.png", components=() if name in there else components, mask=mask
        )

    def plane(
        self, choice: PlaneChoice, snapshot: int, axis: str = "", position: float | None = None
    ) -> FieldPlane:
        """Return the plane of a snapshot, where the choice wants it or nearest to a position."""
        _, stored, number = self._snapshots[snapshot]

        def plane_of(name: str, where: float | None) -> FieldPlane:
            normal = axis or choice.normal
            return _plane(stored, name, number, normal, choice.is_central, where)

        with errors_of_store(stored.path):
            return composed_plane(choice, plane_of, position)

    # -- pictures ------------------------------------------------------------------------------

    def planes(self) -> list[FieldPlane]:
        """Return the planes of the last snapshot that the run itself would draw."""
        wanted = [one for one in self.choice.planes if set(one.needed) <= set(self._on_grid)]
        if not wanted or not len(self.times):
            return []
        return [self.plane(one, self.snapshot()) for one in wanted]

    def pictures(self) -> list[Picture]:
        """Return all pictures that a run draws at its end, of what there is now."""
        series, labels = self.series
        spectra = self.spectra
        stored = self.folder.last_store(SPECTRA_NAME)
        if stored is not None:
            labels = labels | {
                name: str(stored.attributes(name).get("long_name", name)) for name in stored.shapes
            }
        return [
            *run_pictures(
                choice=self.choice,
                title=self.title,
                series=series,
                labels=labels,
                spectra=spectra,
                planes=self.planes(),
            ),
            *scalar_pictures(title=self.title, scalars=self.scalars),
            *statistics_pictures(title=self.title, choice=self.choice, statistics=self.statistics),
            *density_pictures(title=self.title, densities=self.densities),
        ]


def _plane(
    stored: StoredArrays,
    name: str,
    snapshot: int,
    normal: str,
    is_central: bool,
    position: float | None,
) -> FieldPlane:
    shape = stored.shapes[name][1:]
    coordinates = [
        stored.coordinate(dim) if dim in stored.shapes else np.arange(float(size))
        for dim, size in zip(_DIMS, shape, strict=True)
    ]
    axis = normal_axis(shape, _DIMS, normal)
    if position is not None:
        index = index_at(position, coordinates[axis], _DIMS[axis])
    elif is_central:
        index = shape[axis] // 2
    else:
        squares = np.zeros(shape[axis])
        for start, part in _slabs(stored, name, snapshot):
            moved = np.moveaxis(part, axis, 0)
            first = start if axis == 0 else 0
            squares[first : first + len(moved)] += [np.vdot(one, one) for one in moved]
        index = liveliest(squares)
    key: list[Any] = [snapshot, *(slice(0, size) for size in shape)]
    key[1 + axis] = index
    attributes = stored.attributes(name)
    unit = str(stored.attributes(_DIMS[0]).get("units", "1")) if "z" in stored.shapes else "1"
    label, time = str(attributes.get("long_name", name)), float(stored.times[snapshot])
    values = stored.read(name, tuple(key))
    return plane_at(name, values, _DIMS, coordinates, axis, index, label, time, unit)


def _slabs(stored: StoredArrays, name: str, snapshot: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the values of a snapshot, some planes at a time, and where these begin."""
    depth, *rest = stored.shapes[name][1:]
    planes = max(1, _MOST_VALUES // max(1, math.prod(rest)))
    whole = tuple(slice(0, size) for size in rest)
    for start in range(0, depth, planes):
        part = slice(start, min(start + planes, depth))
        yield start, stored.read(name, (snapshot, part, *whole))


def _last_fields(stored: StoredArrays) -> tuple[float, dict[str, Field]] | None:
    """Return the last snapshot of statistics, a time and whole fields, if there is one."""
    times, fields = stored.times, {}
    if not len(times):
        return None
    for name, shape in stored.shapes.items():
        dims = stored.dimensions(name)
        if dims[0] == "time" and name != "time" and shape[0] == len(times):
            whole = tuple(slice(0, size) for size in shape[1:])
            fields[name] = Field(
                name=name,
                dims=dims[1:],
                shape=shape[1:],
                offset=(0,) * len(shape[1:]),
                data=stored.read(name, (len(times) - 1, *whole)),
                coordinates={dim: stored.coordinate(dim) for dim in dims[1:]},
                attributes=stored.attributes(name),
            )
    return float(times[-1]), fields


_CHOICES: TypeAdapter[PictureChoice] = TypeAdapter(PictureChoice)
