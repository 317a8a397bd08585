"""The output folder of a run, as pictures and reports read it, and averages of what it has."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError
from rich import box
from rich.table import Table
from rich.text import Text

from slipstream.case.output_tables import DensitiesOutput, ScalarsOutput
from slipstream.engine.accepted import STATISTICS
from slipstream.engine.errors import InputError, SlipstreamError
from slipstream.engine.fields import Field, PictureChoice, PlaneChoice, Spectra
from slipstream.engine.text import one_line, printable, shown
from slipstream.files.durable_files import errors_name, replace_file
from slipstream.files.run_folder import (
    FIELDS_NAME,
    OUTPUTS_NAME,
    SPECTRA_NAME,
    STEPS_NAME,
    RunFolder,
    RunRecord,
)
from slipstream.files.stored_arrays import StoredArrays, StoredSpectra, errors_of_store
from slipstream.files.time_series import LEADING_COLUMNS
from slipstream.files.zarr_store import FieldStore
from slipstream.show.field_planes import FieldPlane, composed_plane, cut_plane, squares_along
from slipstream.show.picture_process import shown_spectra
from slipstream.show.run_pictures import Picture, run_pictures, scalar_pictures
from slipstream.show.run_status import RUNNING, RunWatcher
from slipstream.show.series_statistics import TimeAverage, average_of, rounded, time_average
from slipstream.show.statistics_pictures import density_pictures, statistics_pictures

# Values of a field in memory while its liveliest plane is sought.
_MOST_VALUES = 1 << 23
_DIMS = ("z", "y", "x")
_MASK = "pore"

_Chosen = TypeVar("_Chosen", ScalarsOutput, DensitiesOutput)
Series = tuple[dict[str, np.ndarray], dict[str, str]]
_CHOICES: TypeAdapter[PictureChoice] = TypeAdapter(PictureChoice)
# The ending of a series.
_SERIES = ".csv"
# The ending of a store.
_STORE = ".zarr"
# Names that a message lists, at most.
_MOST_NAMES = 40
# The energy of forced turbulence is correlated over a few times energy / dissipation. A shorter
# record does not show that: its own correlation time comes out too small.
_FEWEST_DISSIPATION_TIMES = 20


class StoredRun:
    """The contents of the folder of a run.

    Everything is read on first use and then kept, so that it is of about one moment.

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
        """Turn failures of damaged output into a message of one line."""
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
        snapshots = []
        for stored in self.folder.stores(FIELDS_NAME):
            with errors_of_store(stored.path):
                snapshots += [(float(t), stored, number) for number, t in enumerate(stored.times)]
        return snapshots

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
        statistics = {}
        for kind in STATISTICS:
            stored = self.folder.last_store(f"{kind}.zarr")
            if stored is not None:
                with errors_of_store(stored.path):
                    statistics[kind] = _last_fields(stored)
        return {kind: one for kind, one in statistics.items() if one is not None}

    @property
    def scalars(self) -> dict[str, tuple[np.ndarray, np.ndarray, str]]:
        """The numbers that the case asks for: times, values and label by column."""
        scalars = {}
        for table in self._chosen("scalars", ScalarsOutput):
            column, recurs = table.column, table.interval is not None or table.times is not None
            columns, labels = (
                self.folder.series(f"{OUTPUTS_NAME}/{column}.csv") if recurs else self.series
            )
            for name in columns:
                if name == column or (name[:-1] == f"{column}_" and name[-1] in "xyz"):
                    scalars[name] = columns["time"], columns[name], labels[name]
        return scalars

    @property
    def densities(self) -> dict[str, tuple[float, Sequence[str], dict[str, Field]]]:
        """The last densities that the case asks for: time, variables and fields by store."""
        densities: dict[str, tuple[float, Sequence[str], dict[str, Field]]] = {}
        for table in self._chosen("densities", DensitiesOutput):
            stored = self.folder.store(f"{OUTPUTS_NAME}/{table.stem}.zarr")
            last = None if stored is None else _last_fields(stored)
            if last is not None:
                densities[table.stem] = last[0], table.of, last[1]
        return densities

    def _chosen(self, kind: str, model: type[_Chosen]) -> Iterator[_Chosen]:
        """Yield the output of a kind that the case asks for, without tables that are not valid."""
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
        """Return the choice of a plane of a field: of vectors and complex fields the magnitude.

        `there` names the existing fields; by default those of snapshots.
        """
        there = self._on_grid if there is None else there
        for plane in self.choice.planes:
            if plane.field == name and set(plane.needed) <= set(there):
                return plane
        parts = [f"{name}_{end}" for end in ("x", "y", "z", "real", "imaginary")]
        components = tuple(part for part in parts if part in there)
        if name not in there and not components:
            composed = (plane.field for plane in self.choice.planes if plane.components)
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
            how = axis or choice.normal, choice.is_central, where
            return _plane(stored, name, number, how)

        with errors_of_store(stored.path):
            return composed_plane(choice, plane_of, position)

    # -- pictures ------------------------------------------------------------------------------

    def planes(self) -> list[FieldPlane]:
        """Return the planes of the last snapshot that the run itself would draw."""
        wanted = [plane for plane in self.choice.planes if set(plane.needed) <= set(self._on_grid)]
        if not wanted or not len(self.times):
            return []
        return [self.plane(plane, self.snapshot()) for plane in wanted]

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
    stored: StoredArrays, name: str, snapshot: int, choice: tuple[str, bool, float | None]
) -> FieldPlane:
    shape = stored.shapes[name][1:]
    coordinates = {
        dim: stored.coordinate(dim) if dim in stored.shapes else np.arange(float(size))
        for dim, size in zip(_DIMS, shape, strict=True)
    }

    def squares(axis: int) -> np.ndarray:
        sums = np.zeros(shape[axis])
        for start, part in _slabs(stored, name, snapshot):
            first = start if axis == 0 else 0
            sums[first : first + part.shape[axis]] += squares_along(part, axis)
        return sums

    def read(axis: int, index: int) -> np.ndarray:
        key: list[Any] = [snapshot, *(slice(0, size) for size in shape)]
        key[1 + axis] = index
        return stored.read(name, tuple(key))

    unit = str(stored.attributes(_DIMS[0]).get("units", "1")) if "z" in stored.shapes else "1"
    label = str(stored.attributes(name).get("long_name", name))
    about = name, label, float(stored.times[snapshot]), unit
    plane = cut_plane(about, coordinates, choice, squares, read)
    assert plane is not None  # one is always read
    return plane


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


@dataclass(frozen=True)
class _Record:
    """Output of a run at several times: its name, its store and the function that averages it."""

    name: str
    store: str
    average: Callable[..., TimeAverage]
    is_number: bool = False

    @property
    def full_name(self) -> str:
        return f"{self.store}/{self.name}"


def average_of_run(
    run: RunFolder, name: str, since: float | None = None, until: float | None = None
) -> TimeAverage:
    """Return the time average of an output of a run; its folder is only read.

    The name is one of `averaged_names`: a column of the series, a spectrum, statistics or a field.
    The store precedes it, as in ``fields/velocity_x``, if several stores have the same name. Only
    output from `since` to `until` counts; without
    `since` the spin-up is found from the record, and left out.
    """
    left_out: list[str] = []
    records = list(_records(run, left_out))
    matching = [output for output in records if name in (output.name, output.full_name)]
    # Numbers that are written at their own intervals are also among the diagnostics.
    if not matching:
        names = ", ".join(map(one_line, _unambiguous(records)[:_MOST_NAMES])) or "nothing yet"
        more = "".join(f"; {text}" for text in left_out)
        raise InputError(f"average: there is no {shown(name)}; there are: {names}{more}")
    if len(matching) > 1:
        both = " and ".join(one_line(output.full_name) for output in matching)
        raise InputError(f"average: {shown(name)} is there more than once; accepted: {both}")
    return matching[0].average(since=since, until=until, what=f"average of {one_line(name)}")


def average_of_spectrum(
    run: RunFolder, name: str, since: float | None, tell: Callable[[str], None]
) -> TimeAverage:
    """Return the average of a spectrum for a picture, and print its start and warnings."""
    average = average_of_run(run, f"spectra/{name}", since)
    if average.is_spin_up_found:
        tell(f"{run.path}: averaged from t = {average.since:.6g} on, after the spin-up")
    for text in average.warnings:
        tell(f"warning: {run.path}: {text}")
    return average


def averaged_names(
    run: RunFolder, only_numbers: bool = False, left_out: list[str] | None = None
) -> list[str]:
    """Return the names of the output that can be averaged: all, or only of numbers.

    A line about each series that cannot be read, or has no rows, is added to `left_out`.
    """
    records = _records(run, [] if left_out is None else left_out)
    return _unambiguous([one for one in records if one.is_number or not only_numbers])


def _unambiguous(records: Sequence[_Record]) -> list[str]:
    names = [one.name for one in records]
    return [one.full_name if names.count(one.name) > 1 else one.name for one in records]


def _records(run: RunFolder, left_out: list[str]) -> Iterator[_Record]:
    """Yield all output of a run that has several times, in a fixed order."""
    # Sizes of steps and digests are a record, from which states are computed again.
    series = [name.removesuffix(_SERIES) for name in run.outputs(_SERIES) if name != STEPS_NAME]
    for store in series:
        yield from _columns(run, store, left_out)
    for store in (name.removesuffix(_STORE) for name in run.outputs(_STORE)):
        # The series has been found as text; its copy lacks rows while the run is under way.
        stored = run.store(f"{store}{_STORE}") if store not in series else None
        if stored is not None:
            with errors_of_store(stored.path):
                found = _arrays(store, stored)
            yield from found


def _columns(run: RunFolder, store: str, left_out: list[str]) -> Iterator[_Record]:
    try:
        columns, labels = run.series(f"{store}{_SERIES}")
    except InputError as error:
        left_out.append(f"left out: {error}")
        return
    if not len(columns.get("time", ())):
        left_out.append(f"left out: {store}{_SERIES}: it has no rows")
        return

    def average(name: str, **how: object) -> TimeAverage:
        mean = time_average(columns["time"], columns[name], **how)  # type: ignore[arg-type]
        doubts = _doubts_of_turbulence(columns, mean) if mean.fluctuation > 0 else ()
        return replace(mean, name=name, label=labels[name], warnings=(*mean.warnings, *doubts))

    for name in columns:
        if name not in LEADING_COLUMNS:
            yield _Record(name, store, partial(average, name), is_number=True)


def _doubts_of_turbulence(
    columns: Mapping[str, np.ndarray], average: TimeAverage
) -> tuple[str, ...]:
    """Return a warning if an average is over a few times the energy over the dissipation only."""
    if not {"energy", "dissipation"} <= columns.keys():
        return ()
    counted = (columns["time"] >= average.since) & (columns["time"] <= average.until)
    energy, dissipation = (
        float(np.nanmean(columns[name][counted])) for name in ("energy", "dissipation")
    )
    if not average.duration * dissipation < _FEWEST_DISSIPATION_TIMES * energy:
        return ()
    return (
        f"the record is {average.duration * dissipation / energy:.2g} times energy / dissipation"
        f" long, less than {_FEWEST_DISSIPATION_TIMES}: slow motion is not seen in it, and the"
        " error may be too small",
    )


def _arrays(store: str, stored: StoredArrays) -> list[_Record]:
    return [
        _Record(name, store, partial(_average_of_array, stored, name))
        for name, shape in stored.shapes.items()
        if name != "time"
        and stored.dimensions(name)[0] == "time"
        and stored.dtype(name).kind == "f"
        and "time" in stored.shapes
        and shape[0] == stored.shapes["time"][0]
    ]


def _average_of_array(stored: StoredArrays, name: str, **how: object) -> TimeAverage:
    shape, dims = stored.shapes[name][1:], stored.dimensions(name)[1:]
    # Arrays of three axes are read by whole planes.
    row, rest = math.prod(shape[1:]), tuple(slice(0, size) for size in shape[1:])

    def read(rows: np.ndarray, columns: slice) -> np.ndarray:
        first, last = int(rows[0]), int(rows[-1]) + 1
        end = min(columns.stop, row * shape[0]) if shape else 1
        inner = (slice(columns.start // row, end // row), *rest) if shape else ()
        values = stored.read(name, (slice(first, last), *inner))
        wanted: np.ndarray = values.reshape(last - first, -1)[rows - first]
        return wanted

    with errors_of_store(stored.path):
        times, width = stored.times, math.prod(shape)
        average = average_of(times, width, read, shape, row=row, **how)  # type: ignore[arg-type]
        label = str(stored.attributes(name).get("long_name", name))
        coordinates = {dim: stored.coordinate(dim) for dim in dims if dim in stored.shapes}
        return replace(average, name=name, label=label, coordinates=coordinates)


def average_command(
    folder: Path,
    names: Sequence[str] = (),
    since: float | None = None,
    until: float | None = None,
    out: Path | None = None,
) -> Iterator[Table | str]:
    """Average the named output, or all numbers, and yield tables and texts to print."""
    run = StoredRun(folder).folder
    if since is not None and until is not None and not since < until:
        raise InputError(f"--since {since:g} --until {until:g}; accepted: the first is less")
    left_out: list[str] = []
    wanted = list(dict.fromkeys(names)) or averaged_names(run, True, left_out)
    if not wanted:
        raise InputError("; ".join([f"{folder}: there is nothing to average yet", *left_out]))
    averages = [average_of_run(run, name, since, until) for name in wanted]
    if out is not None:
        write_averages(out, averages)
    numbers = [average for average in averages if not np.ndim(average.mean)]
    if numbers:
        yield _table_of_numbers(numbers)
    for average in averages:
        if np.ndim(average.mean) == 1:
            yield _table_of_curve(average)
        elif np.ndim(average.mean) > 1:
            yield _line_of_array(average)
    yield from _notes(averages)
    yield from left_out
    if out is not None:
        yield f"averages: {one_line(str(out))}"


def _table_of_numbers(averages: Iterable[TimeAverage]) -> Table:
    headings = ("mean", "fluctu-\nation", "corr.\ntime", "how\nmany", "from t", "to t")
    table = _table("", headings)
    for average in averages:
        table.add_row(
            Text(one_line(average.name)),
            rounded(average.mean, average.error),
            f"{average.fluctuation:.3g}",
            f"{average.correlation_time:.3g}" if math.isfinite(average.correlation_time) else "",
            f"{average.correlation_times:.3g}" if math.isfinite(average.correlation_times) else "",
            _since(average),
            f"{average.until:.6g}",
        )
    return table


def _since(average: TimeAverage) -> str:
    """Return when an average begins, with a star if that was not requested."""
    return f"{average.since:.6g}{'*' if average.is_spin_up_found else ''}"


def _table_of_curve(average: TimeAverage) -> Table:
    axis, along = next(iter(average.coordinates.items()), ("", np.arange(len(average.mean))))
    heading = f"{one_line(average.name)}, t = {_since(average)} to {average.until:.6g}"
    table = _table(axis, (heading, "fluctuation"))
    for coordinate, mean, error, fluctuation in zip(
        along, average.mean, average.error, average.fluctuation, strict=True
    ):
        table.add_row(f"{coordinate:.6g}", rounded(mean, error), f"{fluctuation:.3g}")
    return table


def _table(first: str, headings: Iterable[str]) -> Table:
    table = Table(box=box.HORIZONTALS, pad_edge=False)
    table.add_column(Text(one_line(first)), overflow="fold")
    for heading in headings:
        table.add_column(Text(heading), justify="right", no_wrap=True)
    return table


def _line_of_array(average: TimeAverage) -> str:
    shape = " x ".join(map(str, np.shape(average.mean)))
    numbers = ", ".join(
        f"{name} {math.sqrt(np.mean(getattr(average, name) ** 2)):.4g}"
        for name in ("mean", "fluctuation", "error")
    )
    return (
        f"{one_line(average.name)}: {shape} averages, t = {_since(average)} to {average.until:.6g};"
        f" root mean squares: {numbers}; --out FILE.zarr writes them"
    )


def _notes(averages: Sequence[TimeAverage]) -> Iterator[str]:
    if any(average.is_spin_up_found for average in averages):
        yield "* the earlier record was left out as spin-up; --since T chooses another time"
    names: dict[str, list[str]] = {}
    for average in averages:
        for text in average.warnings:
            names.setdefault(text, []).append(one_line(average.name))
    for text, of in names.items():
        yield f"warning: {', '.join(of)}: {text}"


def write_averages(path: Path, averages: Sequence[TimeAverage]) -> None:
    """Write averages into a file: ``.csv`` for numbers and curves, ``.zarr`` for any arrays."""
    if path.suffix == _STORE:
        if path.exists():
            raise InputError(f"--out: {path} is there; accepted: another name")
        with errors_name(path):
            FieldStore(path).write(field for average in averages for field in _as_fields(average))
        return
    if path.suffix != ".csv":
        raise InputError(f"--out: {shown(path.name)}; accepted: names that end with .csv or .zarr")
    text = io.StringIO()
    for average in averages:
        lines = str(average), *average.warnings
        text.writelines(f"# {one_line(average.name)}: {line}\n" for line in lines)
    writer = csv.writer(text, lineterminator="\n")
    axes = {name for average in averages for name in average.coordinates}
    if any(np.ndim(average.mean) > 1 for average in averages) or len(axes) > 1:
        raise InputError("--out: arrays of several axes go into .zarr, not .csv")
    heading = ("mean", "error", "fluctuation", "correlation_time")
    writer.writerow(["name", *axes, *heading])
    for average in averages:
        numbers = np.array([getattr(average, name) for name in heading]).T
        along = next(iter(average.coordinates.values()), None)
        for number, row in enumerate(np.atleast_2d(numbers)):
            place = [] if along is None else [repr(float(along[number]))]
            writer.writerow([average.name, *place, *(repr(float(value)) for value in row)])
    with errors_name(path):
        replace_file(path, text.getvalue().encode())


def _as_fields(average: TimeAverage) -> Iterator[Field]:
    parts = {
        "mean": ("time average of {}", average.mean),
        "error": ("standard error of the time average of {}", average.error),
        "fluctuation": ("root mean square of the fluctuation of {}", average.fluctuation),
        "correlation_time": ("integral correlation time of {}", average.correlation_time),
    }
    shape = np.shape(average.mean)
    names = list(average.coordinates) or [f"{average.name}_{n}" for n in range(len(shape))]
    said: Mapping[str, object] = {
        "since": average.since,
        "until": average.until,
        "duration": average.duration,
        "samples": average.samples,
        "warnings": list(average.warnings),
    }
    for end, (text, values) in parts.items():
        yield Field(
            f"{average.name}_{end}",
            tuple(names),
            shape,
            (0,) * len(shape),
            np.asarray(values, float),
            average.coordinates,
            {"long_name": text.format(average.label or average.name), **said},
        )
