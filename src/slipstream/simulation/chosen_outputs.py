"""Output that users choose: fields of some points into files, averages, numbers, movies.

Each is judged when it is made, before anything runs: names, expressions, places, and whether steps
of one size hit its times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.case import Case
from slipstream.case.chosen_outputs import MovieOutput, ScalarsOutput, check_names
from slipstream.collective import on_first_rank
from slipstream.errors import InputError
from slipstream.field import Field
from slipstream.io.checkpoint import (
    CHECKPOINTS_NAME,
    MOVIE,
    Checkpoint,
    generations,
    open_checkpoint,
)
from slipstream.io.folder_seals import KeptOutput, Seal
from slipstream.io.time_series import Series
from slipstream.io.zarr_store import NUMBER_SIGN
from slipstream.report.colour_scale import DIVERGING, INTENSITY
from slipstream.report.movies import Movie, check_movie
from slipstream.report.plane_gather import Plane
from slipstream.simulation.chosen_fields import ChosenAverages, ChosenFields
from slipstream.simulation.earlier_segments import EarlierSegments
from slipstream.simulation.occasions import AtIntervals, AtTimes, Occasions
from slipstream.simulation.point_sampling import RegionSampling
from slipstream.simulation.regions import Region
from slipstream.simulation.simulation_base import Simulation


class ChosenScalars:
    """An expression that is reduced to a number, or to one for each component."""

    def __init__(self, simulation: Simulation, settings: ScalarsOutput, where: str) -> None:
        self.settings = settings
        self._values = simulation.point_values(settings.of, f"{where}.of")
        is_complex = any("imag" in suffix for suffix in self._values.suffixes)
        if is_complex and settings.reduce in ("max", "min"):
            raise InputError(
                f"{where}.reduce: {settings.reduce!r} of a complex quantity; accepted: mean, rms"
            )
        self.columns = tuple(settings.column + suffix for suffix in self._values.suffixes)

    @property
    def labels(self) -> dict[str, str]:
        """What the columns are, for people."""
        text = f"{self.settings.reduce} of {self._values.long_name}"
        unit = self._values.unit
        unit = "non-dimensional" if unit == "1" else unit
        parts = (suffix.replace("_", " ").rstrip() for suffix in self._values.suffixes)
        pairs = zip(self.columns, parts, strict=True)
        return {name: f"{text}{part and ',' + part} ({unit})" for name, part in pairs}

    def read(self) -> dict[str, float]:
        """Return the numbers, the same on all ranks. Collective."""
        return dict(
            zip(self.columns, map(float, self._values.reduce(self.settings.reduce)), strict=True)
        )


class ChosenMovie:
    """A plane of a scalar, of which the first rank makes a movie."""

    def __init__(
        self, simulation: Simulation, settings: MovieOutput, where: str, quantity: Any = None
    ) -> None:
        self._simulation, self.settings = simulation, settings
        of = settings.of if quantity is None else quantity
        self._values = simulation.point_values(of, f"{where}.of")
        if len(self._values.suffixes) > 1:
            count = len(self._values.suffixes)
            raise InputError(
                f"{where}.of: {settings.of!r} has {count} components; accepted: scalars, such as"
                " one component, or a magnitude"
            )
        on_first_rank(simulation.comm, lambda: check_movie(settings.kind, f"{where}.format"))
        region = Region(simulation.layout(), where, plane=settings.plane)
        self._sampling = RegionSampling(simulation, region)
        self.names = (settings.file_name,)
        self._first_name = settings.file_name
        # Whether it is of a run that has made one before, which stays.
        self.goes_on = False
        self._movie: Movie | None = None
        # Of the segments before: the first and the last value, and the map.
        self._scale_before: tuple[float, float, str] | None = None

    def open(self, folder: Path) -> None:
        """Begin the file in a folder, in place of an earlier one. Collective."""
        if self._movie is None and self._simulation.rank == 0:
            # A movie that is closed cannot go on: that of a run that does is in several parts.
            if self.goes_on:
                self.settings = self.settings.model_copy(update={"file": self._free_name(folder)})
            settings, before = self.settings, self._scale_before
            limits, colours = settings.range, ""
            if limits is None and before is not None:
                limits, colours = before[:2], before[2]
            self._movie = Movie(
                folder / settings.file_name,
                kind=settings.kind,
                limits=limits,
                frames_per_second=settings.frames_per_second,
                label=settings.of,
                plane=self._plane(),
                size=settings.size,
                colours=colours,
            )

    def _plane(self) -> Plane:
        """Return where the points of the plane are."""
        points, unit = self._sampling.points, self._values.unit
        row, column = points.dims
        axis, position = next(iter(points.attributes.items()))
        label = f"{self._values.long_name} ({'non-dimensional' if unit == '1' else unit})"
        return Plane(
            self.settings.of,
            np.zeros(points.shape),
            row,
            column,
            points.coordinates[row],
            points.coordinates[column],
            axis,
            position,
            label,
            0.0,
            points.coordinate_unit,
        )

    # -- what states keep ----------------------------------------------------------------------

    @property
    def _kept_name(self) -> str:
        return f"{MOVIE}{self._first_name}.colours"

    def checkpoint(self) -> Iterator[Field]:
        """Yield the colours so far, as part of a state, so that all segments have the same."""
        scale = self._scale_before
        if self._movie is not None and self._movie.scale is not None:
            scale = self._movie.scale
        is_first = self._simulation.rank == 0
        # Collective: all ranks yield it, or none.
        comm = self._simulation.comm
        if comm is not None:
            scale = comm.bcast(scale, root=0)
        if scale is None:
            return
        numbers = np.array([scale[0], scale[1], float(scale[2] == DIVERGING)])
        shape = numbers.shape
        yield Field(
            self._kept_name, (f"{self._kept_name}.0",), shape, (0,), numbers[: 3 * is_first]
        )

    def restore(self, state: Checkpoint) -> None:
        """Take the colours of the segments before. Collective."""
        if state.shapes.get(self._kept_name) == (3,):
            low, high, is_diverging = state.read(self._kept_name).tolist()
            self._scale_before = low, high, DIVERGING if is_diverging else INTENSITY

    def _free_name(self, folder: Path) -> str:
        path, number = folder / self.settings.file_name, 1
        while (folder / path.name).exists():
            number += 1
            first = Path(self.settings.file_name)
            path = folder / f"{first.stem}{NUMBER_SIGN}{number}{first.suffix}"
        return path.name

    def write(self) -> None:
        """Add a frame of the state. Collective."""
        simulation = self._simulation
        part = self._sampling.take(self._values, slice(0, 1), np.dtype(np.float32))[0]
        points = self._sampling.points
        parts = [part] if simulation.comm is None else simulation.comm.gather(part, root=0)
        frame = np.zeros(points.shape, np.float32)
        for box, values in zip(points.boxes, parts or (), strict=False):
            frame[box.slices()] = values

        def add() -> None:
            if self._movie is not None:
                self._movie.add(frame, simulation.time)

        on_first_rank(simulation.comm, add)

    def close(self) -> None:
        """Complete the movie."""
        if self._movie is not None:
            self._movie.close()


class _Nothing:
    """Stands, on other ranks, for what the first one goes on with."""

    def replace_last(self) -> None:
        return

    def go_on(self) -> None:
        return


def _settings_before(one: Any, case: Case) -> Any:
    """Return what a case asked for under the name of this output, or None."""
    own: list[Any]
    if isinstance(one, ChosenScalars):
        own = [same for same in case.output.scalars if same.column == one.settings.column]
    else:
        key = one.settings.stem, one.settings.kind
        own = [same for same in case.output.fields if (same.stem, same.kind) == key]
    return own[0] if own else None


def _last_two(times: Sequence[float]) -> tuple[float, float | None]:
    return times[-1], times[-2] if len(times) > 1 else None


def occasions_of(
    settings: Any, now: float, earlier: EarlierSegments | None = None
) -> Occasions | None:
    """Return when output is due; None for the end of the run, or with the diagnostics.

    Intervals count from the start of the run, which is `now` unless it goes on.
    """
    start = now if earlier is None else earlier.time
    if settings.interval is not None:
        return AtIntervals(settings.interval, start)
    times = getattr(settings, "times", None)
    return None if times is None else AtTimes(times, now)


class ChosenOutputs:
    """All that a case asks for of this kind. Its methods are collective.

    Raises
    ------
    InputError
        When it is made: if anything is not accepted.
    """

    def __init__(self, simulation: Simulation, earlier: EarlierSegments | None = None) -> None:
        self._simulation, self._earlier = simulation, earlier
        output, case = simulation.case.output, simulation.case
        check_names(output.fields, output.scalars, output.movies, output.averages)
        self._fields = [
            ChosenFields(simulation, one, f"output.fields[{number}]")
            for number, one in enumerate(output.fields, 1)
        ]
        self.scalars = [
            ChosenScalars(simulation, one, f"output.scalars[{number}]")
            for number, one in enumerate(output.scalars, 1)
        ]
        start = None if earlier is None else earlier.time
        self._averages = [
            ChosenAverages(simulation, one, f"output.averages[{number}]", start=start)
            for number, one in enumerate(output.averages, 1)
        ]
        self._movies = [
            ChosenMovie(simulation, one, f"output.movies[{number}]")
            for number, one in enumerate(output.movies, 1)
        ]
        for movie in self._movies:
            movie.goes_on = earlier is not None
        if earlier is not None and simulation.restored is not None:
            for movie in self._movies:
                movie.restore(simulation.restored)
        kinds: dict[str, Sequence[Any]] = {
            "fields": self._fields,
            "scalars": self.scalars,
            "averages": self._averages,
            "movies": self._movies,
        }
        self._due: list[tuple[Any, Occasions]] = []
        self._keyed: list[tuple[str, Occasions]] = []
        # Whose sums are in a state of the folder in which the run goes on.
        self._not_restored: list[ChosenAverages] = []
        for kind, members in kinds.items():
            for number, one in enumerate(members, 1):
                occasions = occasions_of(one.settings, simulation.time, earlier)
                if isinstance(one, ChosenAverages):
                    occasions = self._occasions_of_average(one)
                if occasions is None:
                    continue
                self._due.append((one, occasions))
                times = getattr(one.settings, "times", None)
                key = f"output.{kind}[{number}].{'interval' if times is None else 'times'}"
                self._keyed.append((key, occasions))
        if case.fixed_step is not None:
            self.check_hits(simulation.time, case.time.end, case.fixed_step)
        self.with_diagnostics = [
            one for one in self.scalars if one not in [due for due, _ in self._due]
        ]
        self._series: dict[str, Series] = {}
        self._written: dict[int, float] = {}
        # What was there when the run went on.
        self._goes_on: dict[int, Any] = {}
        self._is_open = False
        self._kept = KeptOutput()

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been asked for."""
        return not (self._fields or self.scalars or self._averages or self._movies)

    @property
    def has_files(self) -> bool:
        """Whether there are files of its own."""
        own = self._fields or self._averages or self._movies
        return bool(own) or len(self.with_diagnostics) < len(self.scalars)

    def _occasions_of_average(self, one: ChosenAverages) -> Occasions:
        """Return when samples are due, after those that the state has already.

        Another run that begins from a state takes its samples only if it names a time that is over.
        """
        simulation = self._simulation
        if one.start < simulation.time:
            state = simulation.restored
            if state is not None and state.step == simulation.step:
                self._go_on_with(one, state)
            elif self._earlier is None:
                self._go_on_with(one, None)
            else:
                self._not_restored.append(one)
        occasions = AtIntervals(one.settings.interval, one.start)
        occasions.go_on(simulation.time, one.last, occasions)
        return occasions

    def _go_on_with(self, one: ChosenAverages, state: Checkpoint | None) -> None:
        """Take over the sums of a state, or begin now if it has none."""
        now = self._simulation.time
        problem = "no state has its samples" if state is None else one.restore(state)
        if problem:
            one.begin_at(now)
            text = f"{one.where}: {problem}; the average begins at t = {now:.6g}"
            self._simulation.warn([text])

    def _state_at(self, folder: Path) -> Checkpoint | None:
        """Return the state in a run's folder that the simulation is in, if there is one."""
        simulation = self._simulation

        def find() -> Path | None:
            checkpoints = folder / CHECKPOINTS_NAME
            states = generations(checkpoints) if checkpoints.is_dir() else []
            return next((one for one in states if int(one.stem[:9]) == simulation.step), None)

        path = on_first_rank(simulation.comm, find)
        return None if path is None else open_checkpoint(path, simulation.comm)

    def checkpoint(self) -> Iterator[Field]:
        """Yield sums of averages and colours of movies, as part of a state. Collective."""
        for one in self._averages:
            yield from one.checkpoint()
        for movie in self._movies:
            yield from movie.checkpoint()

    def check_hits(self, start: float, end: float, step_size: float) -> None:
        """Refuse steps of one size that miss a time at which something is to be written."""
        for key, occasions in self._keyed:
            occasions.check_hits(key, start, end, step_size)

    def check_columns(self, names: Mapping[str, Any]) -> None:
        """Refuse columns that the diagnostics have already."""
        for number, one in enumerate(self.scalars, 1):
            for name in one.columns:
                if name in ("step", "time", "step_size") or (
                    name in names and one in self.with_diagnostics
                ):
                    raise InputError(
                        f"output.scalars[{number}].name: {name!r} is a diagnostic; accepted: others"
                    )

    def labels(self) -> dict[str, str]:
        """Return what the columns among the diagnostics are."""
        return {k: text for one in self.with_diagnostics for k, text in one.labels.items()}

    def diagnostics(self) -> dict[str, float]:
        """Return the numbers that go with the diagnostics. Collective."""
        return {k: value for one in self.with_diagnostics for k, value in one.read().items()}

    def find(self, folder: Path, kept: KeptOutput) -> None:
        """Find, in the folder of a run that goes on, what goes on. Collective. Changes nothing."""
        self._kept = kept
        simulation, earlier = self._simulation, self._earlier
        if earlier is None or not on_first_rank(simulation.comm, folder.is_dir):
            return
        due = {id(one): occasions for one, occasions in self._due}
        for one in [*self._fields, *self.scalars, *self._averages]:
            if one in self.with_diagnostics:
                continue
            if isinstance(one, ChosenAverages):
                if one in self._not_restored:
                    self._go_on_with(one, self._state_at(folder.parent))
                    due[id(one)].go_on(simulation.time, one.last, due[id(one)])
                # What was written is of the end of a segment.
                if self._found(one, folder):
                    self._goes_on[id(one)].replace_last()
                continue
            before = _settings_before(one, earlier.case)
            asked = None if before is None else occasions_of(before, 0.0, earlier)
            times = self._found(one, folder)
            last = times[-1] if times else None
            if last is not None:
                self._written[id(one)] = last
            if id(one) in due:
                due[id(one)].go_on(simulation.time, last, asked)
            is_last_only = before is not None and asked is None
            if times and (is_last_only or (asked and not asked.is_occasion(*_last_two(times)))):
                self._goes_on[id(one)].replace_last()
        for movie, occasions in self._due:
            if movie in self._movies:
                occasions.go_on(simulation.time, simulation.time, None)

    def _found(self, one: Any, folder: Path) -> list[float]:
        """Return the last times, or all, of what one has written up to now. Collective."""
        simulation = self._simulation
        comm, time = simulation.comm, simulation.time
        if isinstance(one, ChosenScalars):
            name = one.settings.column

            def look() -> list[float]:
                file = f"{name}.csv"
                if not (folder / file).exists() or not self._goes_on_from(file):
                    return []
                sealed = (self._kept.seals or {}).get(file)
                series = Series(folder, one.labels, name, simulation.step, sealed)
                self._series[name] = self._goes_on[id(one)] = series
                return [row["time"] for row in series.last_rows]

            times = on_first_rank(comm, look)
            self._goes_on.setdefault(id(one), _Nothing())
            return times
        is_there = on_first_rank(comm, lambda: (folder / one.names[0]).is_dir())
        if not is_there or not self._goes_on_from(one.names[0]):
            return []
        one.open(folder, time, self._kept)
        self._goes_on[id(one)] = one.files
        return list(one.files.times)

    def _goes_on_from(self, name: str) -> bool:
        """Return whether the state knows of a file or a folder, and it is as it was then."""
        return self._kept.goes_on(name) and (self._kept.seals is None or name in self._kept.seals)

    def seals(self) -> dict[str, Seal]:
        """Return what is known of the files by name. Collective; of use on rank 0."""
        found = {f"{name}.csv": series.seal() for name, series in self._series.items()}
        for one in [*self._fields, *self._averages]:
            if one.files is not None:
                found[one.names[0]] = one.files.seal()
        return {name: seal for name, seal in found.items() if seal is not None}

    def go_on(self) -> None:
        """Leave out what `find` has found to be later than the state. Collective."""
        for one in self._goes_on.values():
            if isinstance(one, Series):
                continue
            one.go_on()

        def cut() -> None:
            for series in self._series.values():
                series.begin()

        on_first_rank(self._simulation.comm, cut)

    def next_time(self, time: float) -> float:
        """Return when anything is due next after a time; infinity for never."""
        return min((occasions.after(time) for _, occasions in self._due), default=math.inf)

    def is_due(self) -> bool:
        """Return whether anything is due in the present state; does not communicate."""
        time, step = self._simulation.time, self._simulation.step
        return any(occasions.is_due(time, step) for _, occasions in self._due)

    def record(self, folder: Path, step_size: float) -> None:
        """Write into a folder what is due. Collective."""
        time, step = self._simulation.time, self._simulation.step
        for one, occasions in self._due:
            if not occasions.due(time, step):
                continue
            if isinstance(one, ChosenAverages):
                one.sample()
            else:
                self._write(one, folder, step_size)

    def record_last(self, folder: Path, step_size: float) -> None:
        """Write of the last state what recurs, or is asked for at the end. Collective."""
        at_times = [one for one, occasions in self._due if isinstance(occasions, AtTimes)]
        for one in [*self._fields, *self.scalars, *self._averages]:
            if one in at_times or one in self.with_diagnostics:
                continue
            if self._written.get(id(one)) != self._simulation.time:
                self._write(one, folder, step_size)

    def _write(self, one: Any, folder: Path, step_size: float) -> None:
        if isinstance(one, ChosenAverages) and not one.samples:
            return
        self._open(folder)
        self._written[id(one)] = self._simulation.time
        if isinstance(one, ChosenScalars):
            numbers = one.read()
            on_first_rank(
                self._simulation.comm, lambda: self._add_row(one, folder, step_size, numbers)
            )
            return
        one.open(folder)
        one.write()

    def _open(self, folder: Path) -> None:
        if not self._is_open:
            on_first_rank(self._simulation.comm, lambda: folder.mkdir(exist_ok=True))
            self._is_open = True

    def _add_row(
        self, one: ChosenScalars, folder: Path, step_size: float, numbers: Mapping[str, float]
    ) -> None:
        name = one.settings.column
        if name not in self._series:
            self._series[name] = Series(folder, one.labels, name)
        simulation = self._simulation
        self._series[name].append(simulation.step, simulation.time, step_size, numbers)

    def flush(self) -> None:
        """Bring to the device what has been written."""
        for series in self._series.values():
            series.flush()

    def close(self) -> None:
        """Complete series and movies."""
        for series in self._series.values():
            series.close()
        for movie in self._movies:
            movie.close()

    def drawn(self, series: Series) -> dict[str, tuple[np.ndarray, np.ndarray, str]]:
        """Return times, values and label of all scalars, by column: what is drawn. On rank 0."""
        found = {}
        for one in self.scalars:
            own = series if one in self.with_diagnostics else self._series.get(one.settings.column)
            columns = {} if own is None else own.read(("time", *one.columns))
            for name in one.columns:
                if name in columns:
                    found[name] = columns["time"], columns[name], one.labels[name]
        return found
