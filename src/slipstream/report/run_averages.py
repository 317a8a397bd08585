"""Averages over time of what a run has written: its series, spectra, statistics and fields."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from slipstream.errors import InputError
from slipstream.field import Field
from slipstream.io.durable_files import errors_name, replace_file
from slipstream.io.run_folder import RunFolder
from slipstream.io.stored_arrays import StoredArrays, errors_of_store
from slipstream.io.time_series import LEADING_COLUMNS
from slipstream.io.zarr_store import FieldStore
from slipstream.printable_text import one_line, shown
from slipstream.report.stored_run import StoredRun
from slipstream.time_averages import TimeAverage, average_of, rounded, time_average

_SERIES, _STORE = ".csv", ".zarr"
_MOST_NAMES = 40
# The energy of forced turbulence is correlated over a few times energy / dissipation. A shorter
# record does not show that: its own correlation time comes out too small.
_FEWEST_DISSIPATION_TIMES = 20


@dataclass(frozen=True)
class _Record:
    """Something that a run has written at several times, where it is, and what averages it."""

    name: str
    place: str
    average: Callable[..., TimeAverage]
    is_number: bool = False

    @property
    def full_name(self) -> str:
        return f"{self.place}/{self.name}"


def average_of_run(
    run: RunFolder, name: str, since: float | None = None, until: float | None = None
) -> TimeAverage:
    """Return the average over time of something in a run's folder, which is only read.

    The name is one of `averaged_names`: a column of the series, a spectrum, statistics or a field.
    The store precedes it, as in ``fields/velocity_x``, if several stores have the same name. Only
    output from `since` to `until` counts; without
    `since` the spin-up is found from the record, and left out.
    """
    records = list(_records(run))
    found = [one for one in records if name in (one.name, one.full_name)]
    # Numbers that are written at their own intervals are also among the diagnostics.
    if not found:
        names = ", ".join(map(one_line, _unambiguous(records)[:_MOST_NAMES])) or "nothing yet"
        raise InputError(f"average: there is no {shown(name)}; there are: {names}")
    if len(found) > 1:
        both = " and ".join(one_line(one.full_name) for one in found)
        raise InputError(f"average: {shown(name)} is there more than once; accepted: {both}")
    return found[0].average(since=since, until=until, what=f"average of {one_line(name)}")


def average_of_spectrum(
    run: RunFolder, name: str, since: float | None, tell: Callable[[str], None]
) -> TimeAverage:
    """Return the average of a spectrum for a picture, and say in lines what to know of it."""
    found = average_of_run(run, f"spectra/{name}", since)
    if found.is_spin_up_found:
        tell(f"{run.path}: averaged from t = {found.since:.6g} on, after the spin-up")
    for text in found.warnings:
        tell(f"warning: {run.path}: {text}")
    return found


def averaged_names(run: RunFolder, only_numbers: bool = False) -> list[str]:
    """Return the names of the output that can be averaged; perhaps only of numbers."""
    return _unambiguous([one for one in _records(run) if one.is_number or not only_numbers])


def _unambiguous(records: Sequence[_Record]) -> list[str]:
    names = [one.name for one in records]
    return [one.full_name if names.count(one.name) > 1 else one.name for one in records]


def _records(run: RunFolder) -> Iterator[_Record]:
    """Yield all that a run has written at several times, in a fixed order."""
    series = [one.removesuffix(_SERIES) for one in run.outputs(_SERIES)]
    for place in series:
        yield from _columns(run, place)
    for place in (one.removesuffix(_STORE) for one in run.outputs(_STORE)):
        # The series has been found as text; its copy lacks rows while the run is under way.
        stored = run.store(f"{place}{_STORE}") if place not in series else None
        if stored is not None:
            with errors_of_store(stored.path):
                found = _arrays(place, stored)
            yield from found


def _columns(run: RunFolder, place: str) -> Iterator[_Record]:
    columns, labels = run.series(f"{place}{_SERIES}")

    def average(name: str, **how: object) -> TimeAverage:
        found = time_average(columns["time"], columns[name], **how)  # type: ignore[arg-type]
        doubts = _doubts_of_turbulence(columns, found) if found.fluctuation > 0 else ()
        return replace(found, name=name, label=labels[name], warnings=(*found.warnings, *doubts))

    for name in columns:
        if name not in LEADING_COLUMNS:
            yield _Record(name, place, partial(average, name), is_number=True)


def _doubts_of_turbulence(columns: Mapping[str, np.ndarray], found: TimeAverage) -> tuple[str, ...]:
    """Return a warning if an average is over a few times the energy over the dissipation only."""
    if not {"energy", "dissipation"} <= columns.keys():
        return ()
    counted = (columns["time"] >= found.since) & (columns["time"] <= found.until)
    energy, dissipation = (
        float(np.nanmean(columns[name][counted])) for name in ("energy", "dissipation")
    )
    if not found.duration * dissipation < _FEWEST_DISSIPATION_TIMES * energy:
        return ()
    return (
        f"the record is {found.duration * dissipation / energy:.2g} times energy / dissipation"
        f" long, less than {_FEWEST_DISSIPATION_TIMES}: slow motion is not seen in it, and the"
        " error may be too small",
    )


def _arrays(place: str, stored: StoredArrays) -> list[_Record]:
    return [
        _Record(name, place, partial(_average_of_array, stored, name))
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
        found = average_of(times, width, read, shape, row=row, **how)  # type: ignore[arg-type]
        label = str(stored.attributes(name).get("long_name", name))
        coordinates = {dim: stored.coordinate(dim) for dim in dims if dim in stored.shapes}
        return replace(found, name=name, label=label, coordinates=coordinates)


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
    wanted = list(dict.fromkeys(names)) or averaged_names(run, only_numbers=True)
    if not wanted:
        raise InputError(f"{folder}: there is nothing to average yet")
    averages = [average_of_run(run, name, since, until) for name in wanted]
    if out is not None:
        write_averages(out, averages)
    numbers = [one for one in averages if not np.ndim(one.mean)]
    if numbers:
        yield _table_of_numbers(numbers)
    for one in averages:
        if np.ndim(one.mean) == 1:
            yield _table_of_curve(one)
        elif np.ndim(one.mean) > 1:
            yield _line_of_array(one)
    yield from _notes(averages)
    if out is not None:
        yield f"averages: {one_line(str(out))}"


def _table_of_numbers(averages: Iterable[TimeAverage]) -> Table:
    headings = ("mean", "fluctu-\nation", "corr.\ntime", "how\nmany", "from t", "to t")
    table = _table("", headings)
    for one in averages:
        table.add_row(
            Text(one_line(one.name)),
            rounded(one.mean, one.error),
            f"{one.fluctuation:.3g}",
            f"{one.correlation_time:.3g}" if math.isfinite(one.correlation_time) else "",
            f"{one.correlation_times:.3g}" if math.isfinite(one.correlation_times) else "",
            f"{one.since:.6g}{'*' if one.is_spin_up_found else ''}",
            f"{one.until:.6g}",
        )
    return table


def _table_of_curve(one: TimeAverage) -> Table:
    axis, along = next(iter(one.coordinates.items()), ("", np.arange(len(one.mean))))
    star = "*" if one.is_spin_up_found else ""
    heading = f"{one_line(one.name)}, t = {one.since:.6g}{star} to {one.until:.6g}"
    table = _table(axis, (heading, "fluctuation"))
    for place, mean, error, fluctuation in zip(
        along, one.mean, one.error, one.fluctuation, strict=True
    ):
        table.add_row(f"{place:.6g}", rounded(mean, error), f"{fluctuation:.3g}")
    return table


def _table(first: str, headings: Iterable[str]) -> Table:
    table = Table(box=box.HORIZONTALS, pad_edge=False)
    table.add_column(Text(one_line(first)), overflow="fold")
    for heading in headings:
        table.add_column(Text(heading), justify="right", no_wrap=True)
    return table


def _line_of_array(one: TimeAverage) -> str:
    star = "*" if one.is_spin_up_found else ""
    shape = " x ".join(map(str, np.shape(one.mean)))
    squares = {
        "mean": np.mean(one.mean**2),
        "fluctuation": np.mean(one.fluctuation**2),
        "error": np.mean(one.error**2),
    }
    numbers = ", ".join(f"{name} {math.sqrt(value):.4g}" for name, value in squares.items())
    return (
        f"{one_line(one.name)}: {shape} averages, t = {one.since:.6g}{star} to {one.until:.6g};"
        f" root mean squares: {numbers}; --out FILE.zarr writes them"
    )


def _notes(averages: Sequence[TimeAverage]) -> Iterator[str]:
    if any(one.is_spin_up_found for one in averages):
        yield "* the earlier record was left out as spin-up; --since T chooses another time"
    names: dict[str, list[str]] = {}
    for one in averages:
        for text in one.warnings:
            names.setdefault(text, []).append(one_line(one.name))
    for text, of in names.items():
        yield f"warning: {', '.join(of)}: {text}"


def write_averages(path: Path, averages: Sequence[TimeAverage]) -> None:
    """Write averages into a file: ``.csv`` for numbers and curves, ``.zarr`` for any arrays."""
    if path.suffix == _STORE:
        if path.exists():
            raise InputError(f"--out: {path} is there; accepted: another name")
        with errors_name(path):
            FieldStore(path).write(one for average in averages for one in _as_fields(average))
        return
    if path.suffix != ".csv":
        raise InputError(f"--out: {shown(path.name)}; accepted: names that end with .csv or .zarr")
    text = io.StringIO()
    for one in averages:
        text.writelines(f"# {one_line(one.name)}: {line}\n" for line in (str(one), *one.warnings))
    writer = csv.writer(text, lineterminator="\n")
    axes = {name for one in averages for name in one.coordinates}
    if any(np.ndim(one.mean) > 1 for one in averages) or len(axes) > 1:
        raise InputError("--out: arrays of several axes go into .zarr, not .csv")
    heading = ("mean", "error", "fluctuation", "correlation_time")
    if axes:
        writer.writerow(["name", *axes, *heading])
    else:
        writer.writerow(["name", *heading])
    for one in averages:
        numbers = np.array([one.mean, one.error, one.fluctuation, one.correlation_time]).T
        along = next(iter(one.coordinates.values()), None)
        for number, row in enumerate(np.atleast_2d(numbers)):
            place = [] if along is None else [repr(float(along[number]))]
            writer.writerow([one.name, *place, *(repr(float(value)) for value in row)])
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
