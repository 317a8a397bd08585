"""Output of simulations that are stepped from Python, and users' functions between steps."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Required, TypedDict, TypeVar, Unpack, cast

import numpy as np
from pydantic import ValidationError

from slipstream.case.case_loading import explain
from slipstream.case.keyword_options import KeywordOptions, with_options
from slipstream.case.output_tables import AveragesOutput, FieldsOutput, MovieOutput, plain_name
from slipstream.case.table import Table
from slipstream.engine.collective import check_agreement, on_every_rank, together
from slipstream.engine.errors import (
    InputError,
    KnownAttributes,
    is_finite,
    path_of,
    plain_value,
    table_of,
    whole_number,
)
from slipstream.engine.stop_signals import signals_held
from slipstream.engine.text import shown
from slipstream.runs.time_loop import EverySteps, Occasions, occasions_of

if TYPE_CHECKING:
    from slipstream.api.interactive_simulation import InteractiveSimulation
    from slipstream.runs.chosen_outputs import ChosenAverages
    from slipstream.runs.output_contents import ChosenFields, ChosenMovie


def checked_occasions(interval: Any, steps: Any, times: Any, time: float, step: int) -> Occasions:
    """Return when a function is to be called, from the arguments of `every`."""
    if callable(interval):
        raise InputError(
            "every: the first argument is the interval of time between calls; give the function"
            " after it, or as call="
        )
    chosen = [one for one in (interval, steps, times) if one is not None]
    if len(chosen) != 1:
        raise InputError(
            "every: exactly one of interval (of time), steps and times is needed,"
            f" {len(chosen) or 'none'} given"
        )
    if steps is not None:
        return EverySteps(whole_number("steps", steps, 1), step)
    if times is not None:
        wanted = np.asarray(plain_value(times), dtype=object).ravel().tolist()
        if not all(map(is_finite, wanted)):
            raise InputError(f"times are {times!r}; accepted: finite numbers")
        times = list(map(float, wanted))
    else:
        wished = plain_value(interval)
        if not (is_finite(wished) and wished > 0):
            raise InputError(f"every: interval is {interval!r}; accepted: a positive number")
        interval = float(wished)
    return occasions_of(interval, times, start=time, now=time)


class Callback(KnownAttributes):
    """A function that a simulation calls when it is due, until it is cancelled."""

    occasions: Occasions

    def __init__(
        self, simulation: Any, function: Callable[[Any], object], occasions: Occasions
    ) -> None:
        # The simulation owns its callbacks: a strong reference back would keep it alive.
        self._simulation = weakref.ref(simulation)
        self._function, self.occasions = function, occasions
        self._is_cancelled = False

    def __repr__(self) -> str:
        name = getattr(self._function, "__name__", type(self._function).__name__)
        return f"<callback {name}{', cancelled' if self.is_cancelled else ''}>"

    def __reduce__(self) -> Any:
        raise InputError(
            "pickle: what a simulation calls cannot be copied; accepted: its values, such as the"
            " mean of an average"
        )

    @property
    def is_cancelled(self) -> bool:
        """Whether the function is not called any more."""
        return self._is_cancelled

    def cancel(self) -> None:
        """Stop calling the function."""
        self._is_cancelled = True

    def next_time(self, time: float) -> float:
        """Return the next time at which the function is to be called, or infinity."""
        return np.inf if self.is_cancelled else self.occasions.after(time)

    def is_due(self) -> bool:
        """Return whether the function is to be called now."""
        simulation = self._simulation()
        if simulation is None or self.is_cancelled:
            return False
        return self.occasions.is_due(simulation.solver.time, simulation.solver.step)

    def check_hits(self, start: float, end: float, step_size: float) -> None:
        """Refuse steps of one size that miss the times at which the function is to be called."""
        if not self.is_cancelled:
            self.occasions.check_hits("every", start, end, step_size)

    def record(self, step_size: float) -> None:
        """Call the function."""
        simulation = self._simulation()
        if simulation is not None:
            self.occasions.take(simulation.solver.time, simulation.solver.step)
            # If it fails, all ranks are here, and can write the state.
            with together(simulation.comm), signals_held.lifted():
                self._function(simulation)


Settings = TypeVar("Settings", bound=Table)
# A plane or a line: its axis and its position, or both by name.
Place = tuple[str, Any] | Mapping[str, Any]


class PointsOptions(TypedDict, total=False):
    """The points to write or to average: the same as keys of cases, or shorter."""

    plane: Place | None
    line: Place | None
    points: Any
    box: Mapping[str, Sequence[float]] | None
    stride: int | Sequence[int]


class OutputOptions(PointsOptions, total=False):
    """The arguments of `OutputMethods.output` that are keys of cases."""

    precision: str | None
    format: str | None


class AverageOptions(PointsOptions, total=False):
    """The arguments of `OutputMethods.average` that are keys of cases."""

    batch: float | None
    profile: str | None
    phases: int


class MovieOptions(TypedDict, total=False):
    """The arguments of `OutputMethods.movie` that are keys of cases."""

    plane: Required[Place]
    range: Sequence[float] | None
    frames_per_second: float
    size: int | None
    format: str | None


# Names of points: arrays and pairs do as well as tables.
_POINTS = {
    "plane": ("Place", "(axis, position)"),
    "line": ("Place", "(axis, (a, b))"),
    "points": ("Any", "array of shape (n, 3)"),
    "box": ("Mapping[str, Sequence[float]]", 'mapping such as ``{"x": (0, 1)}``'),
    "stride": ("int | Sequence[int]", "int or sequence of 3 int"),
}


def _options(table: type[Table], options: type) -> KeywordOptions:
    """Return the keys of a table of outputs that have the names of options."""
    return KeywordOptions(
        table, {name: name for name in options.__annotations__}, _POINTS, hidden=()
    )


# Files that simulations of this process have written.
_WRITTEN: set[Path] = set()


class _Writing(Callback):
    """An output that is written when it is due, until it is cancelled.

    A file whose name has no directory is begun again in the folder of each run.
    """

    def __init__(
        self,
        simulation: InteractiveSimulation,
        path: Path,
        make: Callable[[], ChosenFields | ChosenMovie],
        occasions: Occasions,
    ) -> None:
        super().__init__(simulation, self._write, occasions)
        self._path, self._make = path, make
        self._chosen: ChosenFields | ChosenMovie | None = make()
        self._run: int | None = None
        if not is_bare(path):
            self._open(simulation)

    def _open(self, simulation: InteractiveSimulation) -> None:
        """Begin the file, if it has not begun in the folder of this run. Collective."""
        run = simulation._runs if is_bare(self._path) else 0
        if run == self._run:
            return
        if self._run is not None:
            self._close()
        self._chosen = self._chosen or self._make()
        _open(simulation, self._chosen, self._path)
        self._run = run

    def _write(self, simulation: InteractiveSimulation) -> None:
        self._open(simulation)
        if self._chosen is not None:
            self._chosen.write()

    def cancel(self) -> None:
        """Stop writing, and complete the file."""
        super().cancel()
        self._close()

    def _close(self) -> None:
        if self._chosen is not None:
            self._chosen.close()
        self._chosen = None


def is_bare(path: Path) -> bool:
    """Return whether a file is in the folder of the run, if it has one: its name says no other."""
    return path.parent == Path()


def file_in_run(simulation: InteractiveSimulation, path: Path) -> Path:
    """Return the path of a file that the user has named, in an existing folder. Collective."""

    def check_folder() -> None:
        if not path.parent.is_dir():
            raise InputError(f"file {str(path)!r}: there is no folder {str(path.parent)!r}")

    if simulation._folder is None or not is_bare(path):
        on_every_rank(simulation.comm, check_folder)
        return path
    output = simulation.case.output
    densities = getattr(output, "densities", ())
    names = {table.stem for table in (*output.fields, *output.averages, *densities)}
    names |= {table.file_name for table in output.movies}
    names |= {table.column for table in output.scalars}
    if {path.name, path.stem} & names:
        raise InputError(f"file {str(path)!r}: the case writes a file of this name; use another")
    return simulation._outputs_folder() / path


def _open(
    simulation: InteractiveSimulation, chosen: ChosenFields | ChosenMovie, path: Path
) -> None:
    """Begin a file. What another process has left there is replaced, but not in silence."""
    path = file_in_run(simulation, path)
    is_new = path.resolve() not in _WRITTEN
    if is_new and any(one.exists() for one in (path, path.with_suffix(""))):
        simulation._issue(f"output: {path} was there, from an earlier process: replaced")
    chosen.open(path.parent)
    _WRITTEN.add(path.resolve())


class Averaging(Callback):
    """Averages over time of fields or expressions: samples are added until it is cancelled.

    Arrays are of this rank's part, on the host. Components are the first axis, where there are
    several. Profiles and values at single points are on the first rank.
    """

    def __init__(self, simulation: Any, averages: ChosenAverages, occasions: Occasions) -> None:
        super().__init__(simulation, lambda _: averages.sample(), occasions)
        self._averages = averages

    @property
    def samples(self) -> int:
        """Number of samples so far."""
        return self._averages.samples

    @property
    def mean(self) -> dict[str, np.ndarray]:
        """The averages, by name."""
        return self._all("mean")

    @property
    def fluctuation(self) -> dict[str, np.ndarray]:
        """The root mean squares of the distances from the averages, by name."""
        return self._all("fluctuation")

    @property
    def error(self) -> dict[str, np.ndarray]:
        """The standard errors of the averages, by name."""
        return self._all("error")

    def _all(self, kind: str) -> dict[str, np.ndarray]:
        parts = {name: self._averages.statistic(name, kind) for name in self._averages.sums}
        return {name: np.array(one[0] if len(one) == 1 else one) for name, one in parts.items()}

    def write(self, file: str | Path) -> None:
        """Write them into a file: zarr, HDF5 or VTK, as its name ends. Collective.

        A name without a directory is in ``outputs`` of the run's folder, as for `output`.

        Raises
        ------
        InputError
            If there are no samples yet, or the file is none that may be replaced.
        """
        simulation = self._simulation()
        if simulation is None:
            raise InputError("write: the simulation is gone")
        with together(simulation.comm):
            path = path_of("file", file)
            if not self.samples:
                raise InputError("write: there are no samples yet; accepted: after some time")
            validated(AveragesOutput, {"of": "x", "interval": 1.0, "file": path.name}, "write")
            self._averages.write_now(file_in_run(simulation, path))
            simulation._tell()


class OutputMethods:
    """Output of simulations into files that the user names, in a run's folder or not."""

    @with_options(_options(FieldsOutput, OutputOptions))
    @signals_held
    def output(
        self,
        of: Any,
        every: float | None = None,
        *,
        file: str | Path,
        steps: int | None = None,
        times: Any = None,
        **options: Unpack[OutputOptions],
    ) -> Callback | None:
        """Write fields or expressions to files, now or between time steps from now on.

        >>> sim.output("vorticity", every=0.1, plane=("z", 0.5), file="slices.zarr")
        >>> sim.output({"h": "dot(velocity, vorticity)"}, file="helicity.h5")

        Collective. A `file` without a directory is in ``outputs`` of the folder of
        ``run(output=)``, in each one again, and in the working directory while there is none; any
        other path is taken as it is. A file that an earlier call wrote is replaced, with a warning
        if that was in another process; any other is refused. Steps are shortened to hit the times,
        as with `every`.

        Parameters
        ----------
        of : str, Quantity, sequence or mapping
            A name or an expression, several, or a mapping of names of arrays to these.
        every : float, optional
            Time between two outputs, the first of them now. Without this, `steps` or `times`, the
            state is written once, now.
        file : str or pathlib.Path
            A name, or a path in an existing folder. Its ending chooses the format, unless `format`
            is given: ``.zarr``, ``.h5`` or ``.vti``. HDF5 and VTK write a file for each time into a
            folder of that name without the ending; VTK writes a collection (``.pvd``) next to it.
        steps : int, optional
            Number of steps between two outputs.
        times : sequence of float, optional
            Times of output.
        **options
            Keys of ``[[output.fields]]``.

        Returns
        -------
        Callback or None
            An object with a method `cancel`; None if the state was written immediately.

        Raises
        ------
        InputError
            If anything is not accepted.
        RunError
            If a file cannot be written.
        """
        from slipstream.runs.output_contents import ChosenFields

        simulation = cast("InteractiveSimulation", self)
        solver, when = simulation._ready(), (every, steps, times)
        with together(simulation.comm):
            path, quantities = path_of("file", file), _quantities(of)
            keys = {"of": _texts(quantities), "file": path.name, **_plain_options(options)}
            settings = _settings(simulation, FieldsOutput, "output", keys, when)
            make = functools.partial(ChosenFields, solver, settings, "output", quantities)
            if all(part is None for part in when):
                chosen = make()
                _open(simulation, chosen, path)
                chosen.write()
                simulation._tell()
                return None
            writing = _Writing(simulation, path, make, _occasions(simulation, when))
        simulation._callbacks.append(writing)
        return writing

    @with_options(_options(AveragesOutput, AverageOptions))
    @signals_held
    def average(
        self,
        of: Any,
        every: float | None = None,
        *,
        steps: int | None = None,
        times: Any = None,
        **options: Unpack[AverageOptions],
    ) -> Averaging:
        """Average fields or expressions over time from now on, with standard errors. Collective.

        >>> average = sim.average("velocity", every=0.1, profile="z")
        >>> sim.run(until=50)
        >>> average.mean["velocity"], average.error["velocity"]

        Only sums are kept: 40 bytes for each value, on the host. Means are integrals by the
        trapezoidal rule. The sums last as long as the simulation;
        ``output={"averages": [...]}`` and ``run(output=)`` keep them in states.

        Parameters
        ----------
        of : str, Quantity, sequence or mapping
            As for `output`.
        every, steps, times
            When samples are taken, as for `every`; one of them is needed, and with `steps` or
            `times` a `batch`, too. Where the case has no end, a batch has 50 samples by default.
        **options
            Keys of ``[[output.averages]]``.

        Returns
        -------
        Averaging
            With `mean`, `fluctuation` and `error` by name, `write` and `cancel`.

        Raises
        ------
        InputError
            If anything is not accepted.
        """
        from slipstream.runs.chosen_outputs import ChosenAverages

        simulation = cast("InteractiveSimulation", self)
        solver, when = simulation._ready(), (every, steps, times)
        with together(simulation.comm):
            quantities = _quantities(of)
            occasions = _occasions(simulation, when)
            keys = {"of": _texts(quantities), **_plain_options(options)}
            batch: Any = keys.get("batch")
            if every is None and batch is None:
                raise InputError("average: batch is needed with steps and times; accepted: a time")
            if every is None and keys.get("phases", 1) != 1:
                raise InputError("average: phases need every; accepted: the time between samples")
            # Where steps or times say when, any interval that suits the batch.
            half = float(batch) / 2 if is_finite(batch) else 1.0
            keys["interval"] = half if every is None else plain_value(every)
            settings = _settings(simulation, AveragesOutput, "average", keys, when)
            averages = ChosenAverages(solver, settings, "average", quantities)
        averaging = Averaging(simulation, averages, occasions)
        simulation._callbacks.append(averaging)
        return averaging

    @with_options(_options(MovieOutput, MovieOptions))
    @signals_held
    def movie(
        self,
        of: Any,
        every: float | None = None,
        *,
        file: str | Path,
        steps: int | None = None,
        times: Any = None,
        **options: Unpack[MovieOptions],
    ) -> Callback:
        """Make a movie of a plane while the simulation is stepped, from now on.

        >>> sim.movie("vorticity_magnitude", every=0.1, plane=("z", 0.5), file="vortices.gif")

        Collective. A GIF is complete after each frame; an MP4, which ffmpeg writes, when it is
        cancelled or the simulation is closed.

        Parameters
        ----------
        of : str or Quantity
            Name of a scalar field, or an expression.
        every, steps, times
            See `output`; one of them is needed.
        **options
            Keys of ``[[output.movies]]``.
        file : str or pathlib.Path
            A name, in ``outputs`` of the run's folder as for `output`, or a path in an existing
            folder; a file of this name is replaced.

        Returns
        -------
        Callback
            With a method `cancel`, which completes the file.

        Raises
        ------
        InputError
            If anything is not accepted.
        RunError
            If the file cannot be written.
        """
        from slipstream.runs.output_contents import ChosenMovie

        simulation = cast("InteractiveSimulation", self)
        solver, when = simulation._ready(), (every, steps, times)
        with together(simulation.comm):
            path = path_of("file", file)
            occasions = _occasions(simulation, when)
            # Cases have an interval where occasions say when.
            keys = {"of": _text(of), "interval": 1.0, "file": path.name, **_plain_options(options)}
            settings = _settings(simulation, MovieOutput, "movie", keys, when)
            make = functools.partial(ChosenMovie, solver, settings, "movie", of)
            writing = _Writing(simulation, path, make, occasions)
        simulation._callbacks.append(writing)
        return writing


def _quantities(of: Any) -> dict[str, Any]:
    """Return names and expressions by the names of their arrays."""
    if isinstance(of, Mapping):
        return dict(of)
    several = list(of) if isinstance(of, list | tuple) else [of]
    return {plain_name(_text(one)): one for one in several}


def _texts(quantities: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(quantity) for name, quantity in quantities.items()}


def _text(quantity: Any) -> str:
    return quantity if isinstance(quantity, str) else str(getattr(quantity, "text", quantity))


def _plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as the values of keys in a case."""
    special: dict[str, Callable[[Any], Any]] = {
        "plane": functools.partial(_place, "plane"),
        "line": functools.partial(_place, "line"),
        "points": _points,
        "box": functools.partial(_box, "box"),
    }
    return {name: special.get(name, plain_value)(one) for name, one in options.items()}


def _points(points: Any) -> Any:
    try:
        return None if points is None else plain_value(np.asarray(points))
    except ValueError:  # of lists of different lengths, which the case refuses
        return points


def _box(key: str, box: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if box is None:
        return None
    return {name: plain_value(ends) for name, ends in table_of(key, box).items()}


def _place(key: str, named: Place | None) -> dict[str, Any] | None:
    """Return the table of a plane or a line."""
    if named is None or isinstance(named, Mapping):
        return _box(key, named)
    if not isinstance(named, tuple | list) or len(named) != 2:
        raise InputError(f"{key} is {shown(named)}; accepted: an axis and a position")
    return {"axis": named[0], "position": plain_value(named[1])}


def validated(kind: type[Settings], keys: dict[str, Any], where: str) -> Settings:
    """Return the table of a case that arguments stand for, or refuse them by their names."""
    try:
        return kind.model_validate({k: v for k, v in keys.items() if v is not None})
    except ValidationError as error:
        key, message = explain(kind, error)
        begin = f"{where}: " if key == "case" else f"{where}."
        raise InputError(begin + message.removeprefix("case: ")) from error


def _settings(
    simulation: InteractiveSimulation,
    kind: type[Settings],
    name: str,
    keys: dict[str, Any],
    when: tuple[Any, Any, Any],
) -> Settings:
    """Return the table that the arguments of a method stand for, if ranks agree. Collective."""
    settings = validated(kind, keys, name)
    check_agreement(simulation.comm, {name: (settings, *when)})
    return settings


def _occasions(simulation: InteractiveSimulation, when: tuple[Any, Any, Any]) -> Occasions:
    return checked_occasions(*when, simulation.solver.time, simulation.solver.step)
