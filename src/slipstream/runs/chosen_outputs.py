"""The output that a case chooses: fields, scalars, densities and movies, and averages over time."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from slipstream.case.output_tables import AveragesOutput, check_names
from slipstream.engine.collective import on_every_rank, on_first_rank, sum_over_ranks
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.fields import Field, PointValues
from slipstream.files.checkpoint import (
    AVERAGE,
    CHECKPOINTS_NAME,
    Checkpoint,
    generations,
    open_checkpoint,
)
from slipstream.files.folder_seals import KeptOutput, Seal
from slipstream.files.run_folder import EarlierSegments
from slipstream.files.time_series import LEADING_COLUMNS, Series
from slipstream.runs.output_contents import (
    Chosen,
    ChosenDensities,
    ChosenFields,
    ChosenMovie,
    ChosenScalars,
    DrawnDensity,
)
from slipstream.runs.output_formats import ProfileSampling, SampledArray
from slipstream.runs.simulation_base import Simulation
from slipstream.runs.time_loop import AtIntervals, AtTimes, Occasions, OutputTimes, occasions_of
from slipstream.show.series_statistics import RunningAverage

# Batches of an average where none are asked for.
_BATCHES = 16
# Samples in each batch where no end is known.
_USUAL_BATCH = 50
_NO_END = 1e30


class ChosenAverages(ChosenFields):
    """Averages over time, whose sums are on the host in double precision: 40 bytes per value."""

    settings: AveragesOutput
    group = "averages"

    def __init__(
        self,
        simulation: Simulation,
        settings: AveragesOutput,
        where: str,
        quantities: Mapping[str, Any] | None = None,
        start: float | None = None,
    ) -> None:
        super().__init__(simulation, settings, where, quantities)
        self.start = simulation.time if start is None else start
        if settings.since is not None:
            self.start = settings.since
        end = simulation.case.time.end
        if settings.since is not None and self.start >= end:
            raise InputError(f"{where}.since: is {self.start:g}; accepted: less than time.end")
        self.batch = settings.batch or self._usual_batch(end)
        shape = self._sampling.points.boxes[simulation.rank].shape
        # By the names of averages: the names of values, and the phase.
        self._sums: dict[str, RunningAverage] = {}
        self._averaged: dict[str, PointValues] = {}
        for name, point_values in self._values.items():
            for phase in range(settings.phases):
                array_name, begin = self._name(name, phase), self._begin(phase)
                self._averaged[array_name] = point_values
                self._sums[array_name] = self._no_sums((len(point_values.suffixes), *shape), begin)
        self._is_profile = isinstance(self._sampling, ProfileSampling)
        # Mean squares within the planes of a profile, about their mean.
        self._spread = self._no_spread()

    def _no_sums(self, shape: tuple[int, ...], begin: float) -> RunningAverage:
        return RunningAverage(shape, self.batch, begin, self.settings.phases > 1)

    def _no_spread(self) -> dict[str, RunningAverage]:
        sums = self._sums if self._is_profile else {}
        return {name: self._no_sums(one.mean.shape, one.start) for name, one in sums.items()}

    def _name(self, name: str, phase: int) -> str:
        phases = self.settings.phases
        return name if phases == 1 else f"{name}_phase_{phase:0{len(str(phases - 1))}d}"

    def _begin(self, phase: int) -> float:
        """Return the time from which the first sample of a phase counts: a period before it."""
        settings = self.settings
        return self.start + ((phase or settings.phases) - settings.phases) * settings.interval

    def _usual_batch(self, end: float) -> float:
        interval = self.settings.period
        if end >= _NO_END or end <= self.start:
            return _USUAL_BATCH * interval
        return max(2, math.ceil((end - self.start) / interval / _BATCHES * (1 - 1e-9))) * interval

    def begin_at(self, time: float) -> None:
        """Begin at a time, without any samples."""
        self.start = time
        for place, (name, sums) in enumerate(self._sums.items()):
            begin = self._begin(place % self.settings.phases)
            self._sums[name] = self._no_sums(sums.mean.shape, begin)
        self._spread = self._no_spread()

    @property
    def sums(self) -> Mapping[str, RunningAverage]:
        """The averages so far, by name."""
        return self._sums

    @property
    def last(self) -> float:
        """Time of the last sample, or of the start."""
        return max(one.last for one in self._sums.values())

    @property
    def last_counted(self) -> float | None:
        """Time of the last sample; None before the first, which may be due at the start."""
        return None if self._needs_first else self.last

    @property
    def _needs_first(self) -> bool:
        return any(one.needs_first for one in self._sums.values())

    def statistic(self, name: str, kind: str) -> np.ndarray:
        """Return the mean, the fluctuation or the error of this rank's part, component first."""
        sums = self._sums[name]
        if self.settings.phases > 1 and not sums.samples:
            return np.full(sums.mean.shape, np.nan)
        if kind == "mean":
            return sums.mean
        if kind == "fluctuation":
            within = self._spread[name].mean if self._is_profile else 0.0
            variance = sums.variance + within
        else:
            variance = sums.variance_of_mean
        deviation: np.ndarray = np.sqrt(variance)
        return deviation

    def write_now(self, path: Path) -> None:
        """Write the averages so far into a file of this name. Collective."""
        self.settings = self.settings.model_copy(update={"file": path.name})
        self._files = None
        self.open(path.parent)
        self.write()

    @property
    def samples(self) -> int:
        """Number of samples so far."""
        first = itertools.islice(self._sums.values(), self.settings.phases)
        return sum(one.samples for one in first)

    def sample(self) -> None:
        """Add the present state to the samples. Collective."""
        time, interval = self._simulation.time, self.settings.interval
        if time - self.last <= (-1e-9 if self._needs_first else 1e-9) * interval:
            return
        phase = round((time - self.start) / interval) % self.settings.phases
        for name, values in self._values.items():
            own = self._name(name, phase)
            sums, spreads, parts = self._sums[own], [], []
            for low in range(0, len(values.suffixes), 3):
                values_at_points = self._sampling.take(values, slice(low, low + 3), np.dtype(float))
                if self._is_profile:
                    mean, square = np.split(values_at_points, 2)
                    spreads.append(np.maximum(square - mean**2, 0.0))
                    values_at_points = mean
                parts.append(values_at_points)
            part = np.concatenate(parts) if len(parts) > 1 else parts[0]
            self._check_finite(name, part)
            # A sample at the start may differ from it by rounding.
            at = max(time, sums.last)
            sums.add(part.reshape(sums.mean.shape), at)
            if spreads:
                self._spread[own].add(np.concatenate(spreads).reshape(sums.mean.shape), at)

    def _check_finite(self, name: str, part: np.ndarray) -> None:
        def check() -> None:
            if not np.isfinite(part).all():
                raise RunError(
                    f"{self.where}: {name} has values that are no number at t ="
                    f" {self._simulation.time:.6g}, so it has no average"
                )

        on_every_rank(self._simulation.comm, check)

    # -- output --------------------------------------------------------------------------------

    def _arrays(self) -> list[SampledArray]:
        texts = {
            "mean": "time average of {}",
            "fluctuation": "root mean square of the fluctuation of {}",
            "error": "standard error of the time average of {}",
        }
        dtype = np.dtype(self.settings.precision or "float64")
        return [
            SampledArray(f"{name}_{end}", one.suffixes, dtype, text.format(one.long_name), one.unit)
            for name, one in self._averaged.items()
            for end, text in texts.items()
        ]

    def _attributes(self) -> dict[str, Any]:
        found = {"since": self.start, "interval": self.settings.interval, "batch": self.batch}
        return found | ({"phases": self.settings.phases} if self.settings.phases > 1 else {})

    def _part(self, array: SampledArray, components: slice) -> np.ndarray:
        name, _, end = array.name.rpartition("_")
        found = self.statistic(name, end)
        return np.ascontiguousarray(found[components], array.dtype)

    def write(self, step_size: float = 0.0) -> None:
        """Write the averages so far, and warn of errors that are not to be trusted. Collective."""
        super().write()
        for name, sums in self._sums.items():
            if not sums.samples:
                self._simulation.warn([f"{self.where}: {name} has no samples yet"])
                continue
            own = [float(np.nansum(one)) for one in (sums.variance, sums.variance_of_mean)]
            variances = sum_over_ranks(self._simulation.comm, np.array(own))
            doubts = sums.doubts(*map(float, variances))
            self._simulation.warn([f"{self.where}: {name}: {text}" for text in doubts])

    # -- what states keep ----------------------------------------------------------------------

    def checkpoint(self) -> Iterator[Field]:
        """Yield the sums so far, as part of a state. Collective."""
        simulation, points = self._simulation, self._sampling.points
        box = points.boxes[simulation.rank]
        copied = np.copy if simulation.output_is_copied else np.asarray
        for name, sums in self._sums.items():
            numbers = np.array([self._mark(), sums.batch_length, sums.start, *sums.numbers])
            yield self._kept(f"{name}.numbers", numbers.shape, (0,), numbers, simulation.rank == 0)
            for part, values in self._arrays_kept(name).items():
                for number, suffix in enumerate(self._averaged[name].suffixes):
                    yield self._kept(
                        f"{name}{suffix}.{part}",
                        points.shape,
                        box.start,
                        copied(values[number]),
                        bool(box.size),
                    )

    def _arrays_kept(self, name: str) -> dict[str, np.ndarray]:
        """Return the arrays of sums that a state keeps, by their names there."""
        arrays = dict(self._sums[name].arrays)
        if self._is_profile:
            spread = self._spread[name].arrays
            arrays |= {
                f"spread_{part}": spread[part] for part in ("mean", "before") if part in spread
            }
        return arrays

    def _kept(
        self,
        name: str,
        shape: tuple[int, ...],
        offset: tuple[int, ...],
        values: np.ndarray,
        is_mine: bool,
    ) -> Field:
        full = f"{AVERAGE}{self.settings.stem}.{name}"
        dims = tuple(f"{full}.{axis}" for axis in range(len(shape)))
        if not is_mine:
            offset, values = (0,) * len(shape), np.zeros((0,) * len(shape))
        return Field(full, dims, shape, offset, values)

    def _mark(self) -> float:
        """Return a number that identifies the averages and their settings."""
        return float(zlib.crc32(self.settings.identity.encode()))

    def restore(self, state: Checkpoint) -> str:
        """Continue the sums in a state; return the reason if that is impossible. Collective."""

        def read() -> str:
            for name in self._sums:
                problem = self._read(state, name)
                if problem:
                    return problem
            self.start = max(one.start for one in self._sums.values())
            return ""

        found = on_every_rank(self._simulation.comm, read)
        comm = self._simulation.comm
        problems = [found] if comm is None else comm.allgather(found)
        return next(filter(None, problems), "")

    def _read(self, state: Checkpoint, name: str) -> str:
        sums, points = self._sums[name], self._sampling.points
        stem = f"{AVERAGE}{self.settings.stem}.{name}"
        if f"{stem}.numbers" not in state.arrays:
            return "the state has no such average"
        mark, batch, start, *numbers = state.read(f"{stem}.numbers").tolist()
        if len(numbers) != len(sums.numbers):
            return "another version has written the state"
        if mark != self._mark():
            return "its settings are not those of before"
        box = points.boxes[self._simulation.rank]
        suffixes = self._averaged[name].suffixes
        for part, values in self._arrays_kept(name).items():
            for number, suffix in enumerate(suffixes):
                array = f"{stem}{suffix}.{part}"
                if state.shapes.get(array) != points.shape:
                    return "its points are others than before"
                if box.size:
                    values[number] = state.read(array, box.start, box.shape)
        for one in (sums, self._spread[name]) if self._is_profile else (sums,):
            one.numbers = np.array(numbers)
            one.batch_length, one.start = batch, start
        self.batch = batch
        return ""


_Kind = TypeVar("_Kind", bound=Chosen)


class ChosenOutputs:
    """All chosen output of a case, checked when this is made. Its methods are collective."""

    def __init__(self, simulation: Simulation, earlier: EarlierSegments | None = None) -> None:
        self._simulation, self._earlier = simulation, earlier
        output, case = simulation.case.output, simulation.case
        densities = getattr(output, "densities", ())
        check_names(output.fields, output.scalars, output.movies, output.averages, densities)

        def made(kind: type[_Kind], **how: Any) -> list[_Kind]:
            tables = enumerate(getattr(output, kind.group, ()), 1)
            where = f"output.{kind.group}"
            return [
                kind(simulation, settings, f"{where}[{number}]", **how)
                for number, settings in tables
            ]

        fields, self.scalars = made(ChosenFields), made(ChosenScalars)
        averages = made(ChosenAverages, start=None if earlier is None else earlier.time)
        self._densities, self._movies = made(ChosenDensities), made(ChosenMovie)
        stored = [*fields, *self.scalars, *averages, *self._densities]
        self._all: list[Chosen] = [*stored, *self._movies]
        for movie in self._movies:
            movie.goes_on = earlier is not None
            if earlier is not None and simulation.restored is not None:
                movie.restore(simulation.restored)
        # Averages whose sums are in a state in the folder of the resumed run.
        self._not_restored: list[ChosenAverages] = []
        self._due = {chosen: OutputTimes(self._occasions(chosen)) for chosen in self._all}
        self._warn_of_times_after(case.time.end)
        if case.fixed_step is not None:
            self.check_hits(simulation.time, case.time.end, case.fixed_step)
        self.with_diagnostics = [
            chosen
            for chosen in self.scalars
            if chosen.settings.interval is None and chosen.settings.times is None
        ]
        # All but movies have something to write of the last state.
        self._of_files = [chosen for chosen in stored if chosen not in self.with_diagnostics]
        self._is_open = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been asked for."""
        return not self._all

    @property
    def has_files(self) -> bool:
        """Whether any output has its own files."""
        return len(self.with_diagnostics) < len(self._all)

    def _occasions(self, output: Chosen) -> Occasions:
        """Return when an output is due: intervals count from the start of the whole run."""
        if isinstance(output, ChosenAverages):
            return self._occasions_of_average(output)
        return self._asked(output.settings)

    def _asked(self, settings: Any) -> Occasions:
        now, earlier = self._simulation.time, self._earlier
        start = now if earlier is None else earlier.time
        return occasions_of(settings.interval, getattr(settings, "times", None), start, now)

    def _occasions_of_average(self, average: ChosenAverages) -> Occasions:
        """Return when samples are due, after the samples in the state.

        Another run that begins from a state takes its samples only if it names a time that is over.
        """
        simulation = self._simulation
        if average.start < simulation.time:
            state = simulation.restored
            if state is not None and state.step == simulation.step:
                self._go_on_with(average, state)
            elif self._earlier is None:
                self._go_on_with(average, None)
            else:
                self._not_restored.append(average)
        occasions = AtIntervals(average.settings.interval, average.start)
        occasions.resume_at(simulation.time, average.last_counted, occasions)
        return occasions

    def _go_on_with(self, average: ChosenAverages, state: Checkpoint | None) -> None:
        """Take over the sums of a state, or begin now if it has none."""
        now = self._simulation.time
        problem = "no state has its samples" if state is None else average.restore(state)
        if problem:
            average.begin_at(now)
            text = f"{average.where}: {problem}; the average begins at t = {now:.6g}"
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
        for one in self._all:
            yield from one.checkpoint()

    def check_hits(self, start: float, end: float, step_size: float) -> None:
        """Refuse steps of one size that miss a time of output."""
        for one, due in self._due.items():
            key = "interval" if getattr(one.settings, "times", None) is None else "times"
            due.occasions.check_hits(f"{one.where}.{key}", start, end, step_size)

    def _warn_of_times_after(self, end: float) -> None:
        for chosen in self._all:
            late = [f"{t:g}" for t in getattr(chosen.settings, "times", None) or () if t > end]
            if late:
                text = (
                    f"{chosen.where}.times: not written, as time.end is {end:g}: {', '.join(late)}"
                )
                self._simulation.warn([text])

    def check_columns(self, names: Mapping[str, Any]) -> None:
        """Refuse columns that the diagnostics have already."""
        for number, one in enumerate(self.scalars, 1):
            for name in one.columns:
                if name in LEADING_COLUMNS or (name in names and one in self.with_diagnostics):
                    raise InputError(
                        f"output.scalars[{number}].name: {name!r} is a diagnostic; use another name"
                    )

    def labels(self) -> dict[str, str]:
        """Return the labels of the columns among the diagnostics."""
        return {k: text for one in self.with_diagnostics for k, text in one.labels.items()}

    def diagnostics(self) -> dict[str, float]:
        """Return the numbers that go with the diagnostics. Collective."""
        return {k: value for one in self.with_diagnostics for k, value in one.read().items()}

    def find(self, folder: Path, kept: KeptOutput) -> None:
        """Find the output to continue in the folder of a run; change nothing. Collective."""
        simulation, earlier = self._simulation, self._earlier
        if earlier is None or not on_first_rank(simulation.comm, folder.is_dir):
            return
        for output in self._of_files:
            if isinstance(output, ChosenAverages):
                if output in self._not_restored:
                    self._go_on_with(output, self._state_at(folder.parent))
                    occasions = self._due[output].occasions
                    occasions.resume_at(simulation.time, output.last_counted, occasions)
                # The output belongs to the end of a segment.
                if output.find(folder, kept):
                    output.replace_last()
                continue
            before = output.settings_in(earlier.case)
            asked = None if before is None else self._asked(before)
            if self._due[output].resume_at(simulation.time, output.find(folder, kept), asked):
                output.replace_last()
        for movie in self._movies:
            self._due[movie].occasions.resume_at(simulation.time, simulation.time, None)

    def seals(self) -> dict[str, Seal]:
        """Return the seals of the files by name. Collective; of use on rank 0."""
        return {name: seal for one in self._all for name, seal in one.seals().items()}

    def go_on(self) -> None:
        """Drop all output that `find` found to be later than the state. Collective."""
        for one in self._all:
            one.go_on()

    def next_time(self, time: float) -> float:
        """Return when anything is due next after a time; infinity for never."""
        return min((due.occasions.after(time) for due in self._due.values()), default=math.inf)

    def is_due(self) -> bool:
        """Return whether anything is due in the present state; does not communicate."""
        time, step = self._simulation.time, self._simulation.step
        return any(due.occasions.is_due(time, step) for due in self._due.values())

    def record(self, folder: Path, step_size: float) -> None:
        """Write the output that is due into a folder. Collective."""
        time, step = self._simulation.time, self._simulation.step
        for output, due in self._due.items():
            if not due.occasions.take_if_due(time, step):
                continue
            if isinstance(output, ChosenAverages):
                output.sample()
            else:
                self._write(output, folder, step_size)

    def record_last(self, folder: Path, step_size: float) -> None:
        """Write the last state to output that recurs, or is due at the end. Collective."""
        for chosen in self._of_files:
            due = self._due[chosen]
            if not isinstance(due.occasions, AtTimes) and due.last != self._simulation.time:
                self._write(chosen, folder, step_size)

    def _write(self, output: Chosen, folder: Path, step_size: float) -> None:
        if isinstance(output, ChosenAverages) and not output.samples:
            return
        if not self._is_open:
            on_first_rank(self._simulation.comm, lambda: folder.mkdir(exist_ok=True))
            self._is_open = True
        self._due[output].last = self._simulation.time
        output.open(folder)
        output.write(step_size)

    def flush(self) -> None:
        """Flush the files to the disk."""
        for one in self._all:
            one.flush()

    def close(self) -> None:
        """Complete series and movies."""
        for one in self._all:
            one.close()

    def drawn(self, series: Series) -> dict[str, tuple[np.ndarray, np.ndarray, str]]:
        """Return times, values and label of all scalars, by column, for pictures. On rank 0."""
        curves = {}
        for scalars in self.scalars:
            column_series = series if scalars in self.with_diagnostics else scalars.series
            columns = (
                {} if column_series is None else column_series.read(("time", *scalars.columns))
            )
            for name in scalars.columns:
                if name in columns:
                    curves[name] = columns["time"], columns[name], scalars.labels[name]
        return curves

    def drawn_densities(self) -> dict[str, DrawnDensity]:
        """Return the last densities that were written, by the names of their stores."""
        found = {one.settings.stem: one.drawn() for one in self._densities}
        return {stem: one for stem, one in found.items() if one is not None}
