"""The contents of an output: fields at some points, numbers, or a movie.

Fields are made chunk by chunk, so that memory holds only the values that are written. Each output
is checked when it is made.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.case import Case
from slipstream.case.output_tables import DensitiesOutput, FieldsOutput, MovieOutput, ScalarsOutput
from slipstream.engine.collective import on_every_rank, on_first_rank
from slipstream.engine.errors import InputError
from slipstream.engine.fields import AXES, Field, PointValues
from slipstream.files.checkpoint import MOVIE, Checkpoint
from slipstream.files.folder_seals import KeptOutput, Seal
from slipstream.files.stored_arrays import NUMBER_SIGN
from slipstream.files.time_series import Series
from slipstream.runs.output_formats import (
    SNAPSHOTS,
    PlaceSampling,
    ProfileSampling,
    Region,
    RegionSampling,
    SampledArray,
    SampledPoints,
    SnapshotFiles,
    boxes_on_first_rank,
    check_places,
)
from slipstream.runs.simulation_base import Simulation
from slipstream.show.field_planes import DIVERGING, INTENSITY, FieldPlane
from slipstream.show.movies import Movie, check_movie


class Chosen(ABC):
    """An output that a user has chosen at the key `where`. Its methods are collective."""

    settings: Any
    # The tables of a case's output that ask for it, and the keys that name its files.
    group: str
    identity: tuple[str, ...] = ("stem",)

    def __init__(self, simulation: Simulation, settings: Any, where: str) -> None:
        self._simulation, self.settings, self.where = simulation, settings, where

    @abstractmethod
    def open(self, folder: Path) -> None:
        """Make the files in a folder, which replace earlier ones, unless they are open."""

    @abstractmethod
    def write(self, step_size: float = 0.0) -> None:
        """Write of the present state, before a time step of this size."""

    def settings_in(self, case: Case) -> Any:
        """Return the settings of the same output in another case, or None."""
        name = operator.attrgetter(*self.identity)
        asked = getattr(case.output, self.group, ())
        return next((one for one in asked if name(one) == name(self.settings)), None)

    def find(self, folder: Path, kept: KeptOutput) -> list[float]:
        """Return the times of the last snapshots or rows to continue; change nothing."""
        return []

    def replace_last(self) -> None:
        """Replace the last snapshot or row that was found by the next."""
        return

    def go_on(self) -> None:
        """Drop all that is later than what `find` found."""
        return

    def seals(self) -> dict[str, Seal]:
        """Return the seals of the files by name; of use on rank 0."""
        return {}

    def checkpoint(self) -> Iterator[Field]:
        """Yield the fields to be kept with a state."""
        return iter(())

    def flush(self) -> None:
        """Flush the files to the disk."""
        return

    def close(self) -> None:
        """Complete the files."""
        return


def _is_known(name: str, kept: KeptOutput) -> bool:
    """Return whether a state knows of a file or a folder that is unchanged since."""
    return kept.goes_on(name) and (kept.seals is None or name in kept.seals)


class ChosenFields(Chosen):
    """Fields and expressions of some points, which are written into files when asked."""

    group = "fields"
    identity: tuple[str, ...] = ("stem", "kind")

    def __init__(
        self,
        simulation: Simulation,
        settings: FieldsOutput,
        where: str,
        quantities: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(simulation, settings, where)
        of = settings.named if quantities is None else quantities
        self._values = {
            name: simulation.point_values(one, f"{where}.of") for name, one in of.items()
        }
        names = [name + suffix for name, one in self._values.items() for suffix in one.suffixes]
        for name in names:
            if names.count(name) > 1 or name in ("time", "point", *AXES):
                raise InputError(
                    f"{where}.of: {name!r} is a coordinate or appears twice; use another name"
                )
        layout = simulation.layout()
        self._sampling: RegionSampling | PlaceSampling | ProfileSampling
        profile = getattr(settings, "profile", None)
        if profile is not None:
            self._sampling = ProfileSampling(simulation, profile)
        elif settings.points is not None:
            places = np.array(settings.points, dtype=float)
            check_places(layout, places, f"{where}.points")
            self._sampling = PlaceSampling(simulation, places)
        else:
            region = Region(
                layout, where, settings.plane, settings.line, settings.box, settings.stride_xyz
            )
            self._sampling = RegionSampling(simulation, region)
        self._points = self._sampling.points
        self._files: SnapshotFiles | None = None
        self._found: SnapshotFiles | None = None
        self._has_warned = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the files or folders that are written."""
        return SNAPSHOTS[self.settings.kind].names(self.settings.stem)

    def open(
        self, folder: Path, until: float | None = None, kept: KeptOutput | None = None
    ) -> None:
        """Make the files in a folder, or continue the `kept` ones up to a time. Collective."""
        if self._files is not None:
            return
        settings, simulation = self.settings, self._simulation
        self._files = SNAPSHOTS[settings.kind](
            folder / self.names[0],
            self._arrays(),
            self._points,
            simulation.comm,
            {"title": simulation.case.title, **self._attributes()},
            until,
            kept,
        )

    def _arrays(self) -> list[SampledArray]:
        """Return the arrays that are written each time."""
        return [
            SampledArray(name, one.suffixes, self._dtype(one), one.long_name, one.unit)
            for name, one in self._values.items()
        ]

    def _attributes(self) -> dict[str, Any]:
        """Return the description of the files as a whole."""
        return {}

    def find(self, folder: Path, kept: KeptOutput) -> list[float]:
        name, simulation = self.names[0], self._simulation
        is_there = on_first_rank(simulation.comm, lambda: (folder / name).is_dir())
        if not is_there or not _is_known(name, kept):
            return []
        self.open(folder, simulation.time, kept)
        self._found = self._files
        return [] if self._files is None else list(self._files.times)

    def replace_last(self) -> None:
        if self._found is not None:
            self._found.replace_last()

    def go_on(self) -> None:
        if self._found is not None:
            self._found.go_on()

    def seals(self) -> dict[str, Seal]:
        return {} if self._files is None else {self.names[0]: self._files.seal()}

    def write(self, step_size: float = 0.0) -> None:
        if self._files is None:
            raise RuntimeError("files have not been opened")
        self._files.append(self._simulation.time, self._simulation.step, self._part)

    def _part(self, array: SampledArray, components: slice) -> np.ndarray:
        part = self._sampling.take(self._values[array.name], components, array.dtype)
        if array.dtype == np.float16 and not self._has_warned:
            is_wrong = on_every_rank(self._simulation.comm, lambda: bool(np.isinf(part).any()))
            everyone = self._simulation.comm and self._simulation.comm.allgather(is_wrong)
            if any(everyone or [is_wrong]):
                self._has_warned = True
                text = f"{self.where}.precision: {array.name} has values beyond 65504, the largest"
                self._simulation.warn([f"{text} of float16; they are infinite in the file"])
        return part

    def _dtype(self, values: PointValues) -> np.dtype:
        wanted = self.settings.precision
        return np.dtype(wanted) if wanted and values.dtype.kind == "f" else values.dtype


# A density to be drawn: its time, its variables, and its fields with those of the means.
DrawnDensity = tuple[float, tuple[str, ...], dict[str, Field]]


class ChosenDensities(ChosenFields):
    """Densities over bins, and conditional means: the first rank has them all."""

    group = "densities"
    identity = ("stem",)
    settings: Any

    def __init__(self, simulation: Simulation, settings: DensitiesOutput, where: str) -> None:
        Chosen.__init__(self, simulation, settings, where)
        self._density = simulation.density(settings.of, settings.means, settings.bins_each, where)
        self._files = self._found = None
        axes = self._density.coordinates(settings.range)
        shape = tuple(map(len, axes.values()))
        boxes = boxes_on_first_rank(shape, len(simulation.layout().boxes))
        self._points = SampledPoints(tuple(axes), shape, boxes, axes, "1")
        self._now: dict[str, Field] = {}
        self._time = simulation.time

    def _arrays(self) -> list[SampledArray]:
        texts, dtype = self._density.long_names(), np.dtype(np.float64)
        return [SampledArray(name, ("",), dtype, text, "1") for name, text in texts.items()]

    def write(self, step_size: float = 0.0) -> None:
        self._now = self._density.fields(self.settings.range)
        self._time = self._simulation.time
        super().write()

    def drawn(self) -> DrawnDensity | None:
        """Return the last density written, for a picture; None before."""
        return (self._time, self.settings.of, self._now) if self._now else None

    def _part(self, array: SampledArray, components: slice) -> np.ndarray:
        part = self._now[array.name].data
        return (
            part[None]
            if self._simulation.rank == 0
            else part[None, :0].reshape(1, *[0] * part.ndim)
        )


class ChosenScalars(Chosen):
    """An expression that is reduced to a number, or to one for each component."""

    group = "scalars"
    identity = ("column",)

    def __init__(self, simulation: Simulation, settings: ScalarsOutput, where: str) -> None:
        super().__init__(simulation, settings, where)
        self.series: Series | None = None  # on the first rank, if it has its own file
        self._folder = Path()
        self._values = simulation.point_values(settings.of, f"{where}.of")
        is_complex = any("imag" in suffix for suffix in self._values.suffixes)
        if is_complex and settings.reduce in ("max", "min"):
            raise InputError(
                f"{where}.reduce: {settings.reduce!r} of a complex quantity; accepted: mean, rms"
            )
        self.columns = tuple(settings.column + suffix for suffix in self._values.suffixes)

    @property
    def labels(self) -> dict[str, str]:
        """The meaning of the columns, for people."""
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

    @property
    def _file_name(self) -> str:
        return f"{self.settings.column}.csv"

    def open(self, folder: Path) -> None:
        """Note the folder of the file, which begins with the first row."""
        self._folder = folder

    def write(self, step_size: float = 0.0) -> None:
        simulation, numbers = self._simulation, self.read()

        def add() -> None:
            if self.series is None:
                self.series = Series(self._folder, self.labels, self.settings.column)
            self.series.append(simulation.step, simulation.time, step_size, numbers)

        on_first_rank(simulation.comm, add)

    def find(self, folder: Path, kept: KeptOutput) -> list[float]:
        """Find the rows to continue; return the times of the last ones. Collective."""

        def look() -> list[float]:
            name = self._file_name
            if not (folder / name).exists() or not _is_known(name, kept):
                return []
            sealed = (kept.seals or {}).get(name)
            column, until = self.settings.column, self._simulation.step
            self.series = Series(folder, self.labels, column, until, sealed)
            return [row["time"] for row in self.series.last_rows]

        return on_first_rank(self._simulation.comm, look)

    def replace_last(self) -> None:
        if self.series is not None:
            self.series.replace_last()

    def go_on(self) -> None:
        on_first_rank(self._simulation.comm, lambda: self.series.begin() if self.series else None)

    def seals(self) -> dict[str, Seal]:
        sealed = None if self.series is None else self.series.seal()
        return {} if sealed is None else {self._file_name: sealed}

    def flush(self) -> None:
        if self.series is not None:
            self.series.flush()

    def close(self) -> None:
        if self.series is not None:
            self.series.close()


class ChosenMovie(Chosen):
    """A movie of a plane of a scalar, made by the first rank."""

    group = "movies"

    def __init__(
        self, simulation: Simulation, settings: MovieOutput, where: str, quantity: Any = None
    ) -> None:
        super().__init__(simulation, settings, where)
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
        self._first_name = settings.file_name
        # Whether an earlier segment has made a movie, which stays.
        self.goes_on = False
        self._movie: Movie | None = None
        # From the segments before: the first and the last value, and the map.
        self._scale_before: tuple[float, float, str] | None = None

    def open(self, folder: Path) -> None:
        if self._movie is None and self._simulation.rank == 0:
            # A closed movie cannot be continued: a resumed run writes another part.
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

    def _plane(self) -> FieldPlane:
        """Return the plane of the points, without values."""
        points, unit = self._sampling.points, self._values.unit
        row, column = points.dims
        axis, position = next(iter(points.attributes.items()))
        label = self._values.long_name + ("" if unit == "1" else f" ({unit})")
        return FieldPlane(
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
        path: Path = folder / self.settings.file_name
        number = 1
        while (folder / path.name).exists():
            number += 1
            first = Path(self.settings.file_name)
            path = folder / f"{first.stem}{NUMBER_SIGN}{number}{first.suffix}"
        return path.name

    def write(self, step_size: float = 0.0) -> None:
        simulation = self._simulation
        part = self._sampling.take(self._values, slice(0, 1), np.dtype(np.float32))[0]
        points = self._sampling.points
        comm = simulation.comm
        parts = [part] if comm is None else comm.gather(part, root=0)
        frame = np.zeros(points.shape, np.float32)
        for box, values in zip(points.boxes, parts or (), strict=False):
            frame[box.slices()] = values

        def add() -> None:
            if self._movie is not None:
                self._movie.add(frame, simulation.time)

        on_first_rank(simulation.comm, add)

    def close(self) -> None:
        if self._movie is not None:
            self._movie.close()
