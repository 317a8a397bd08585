"""The output folder of a run as an object: finished, interrupted, or still being written.

The folder may come from someone else: code that it names is never run, and only `OpenedRun.resume`
writes to it.
"""

from __future__ import annotations

import base64
import functools
import tomllib
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import slipstream
from slipstream.api.interactive_simulation import (
    InteractiveSimulation,
    communicator_of,
    console_for,
    simulation_of,
)
from slipstream.api.particle_views import StoredParticles
from slipstream.api.settings import NamedStores, NamedViews
from slipstream.case import Case, load_case, validate_case
from slipstream.case.lattice_case import ARRAY
from slipstream.engine.accepted import MODELS
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import check_agreement, on_every_rank, on_first_rank, together
from slipstream.engine.device import Device
from slipstream.engine.errors import (
    InputError,
    KnownAttributes,
    check_type,
    finite_number,
    path_of,
    plain_value,
    whole_number,
)
from slipstream.engine.stop_signals import signals_held
from slipstream.engine.text import counted, html_table, one_line, printable, shown
from slipstream.files.checkpoint import CHECKPOINTS_NAME
from slipstream.files.run_folder import CASE_NAME, FIELDS_NAME, SERIES_NAME, RunFolder
from slipstream.files.stored_arrays import StoredArrays, errors_of_store
from slipstream.runs.resuming import resume_run
from slipstream.runs.run_history import RunHistory
from slipstream.show.series_statistics import TimeAverage

if TYPE_CHECKING:
    from slipstream.equations import Model
    from slipstream.runs.recomputing import Recomputation


# Names of `slipstream`, which imports a family when it is asked for.
_CLASSES = {"spectral": "Flow", "lattice": "PorousFlow", "advection": "Advection"}
# Most bytes of a picture in a notebook.
_MOST_PICTURE = 4 << 20


@signals_held
def load(
    case: str | Path | Case,
    settings: Iterable[str] | Mapping[str, Any] = (),
    *,
    device: str | Device = "auto",
    comm: Comm | Literal["world"] = "world",
) -> InteractiveSimulation:
    """Return the simulation of a case. Collective.

    >>> sim = load("cases/taylor-green.toml", {"grid.points": 32})

    Parameters
    ----------
    case : str, pathlib.Path or Case
        A TOML file, or what `slipstream.case.make_case` returns.
    settings : mapping or iterable of str
        Keys to change from the file: ``{"grid.points": 64}`` or ``"grid.points=64"``. None, or
        ``"run.memory="``, unsets a key.
    device, comm
        See `slipstream.Flow`.

    Returns
    -------
    Flow, PorousFlow or Advection
        According to the case's ``solver``.

    Raises
    ------
    InputError
        If the case cannot be read, or a key or value is not accepted.
    """
    source, comm = case, communicator_of(comm, "load")
    with together(comm):
        changes = overrides_of(settings)
        if not isinstance(source, Case):
            made = load_case(path_of("case", source), changes)
        elif getattr(getattr(source, "image", None), "path", None) == ARRAY:
            raise InputError(
                "load: the image of this case was an array, which no file has; give it:"
                " slipstream.PorousFlow(array)"
            )
        else:
            tables = source.as_given(source.model_dump(exclude_unset=True))
            made = validate_case(tables, changes) if changes else source
        kind: type[InteractiveSimulation] = getattr(slipstream, _CLASSES[made.solver])
        return simulation_of(kind, made, comm, device)


def overrides_of(settings: Iterable[str] | Mapping[str, Any]) -> list[str]:
    """Return settings in the form of the command line: ``key=value``, or ``key=`` for None."""
    if isinstance(settings, Mapping):
        from slipstream.case.toml_text import toml_value

        return [
            f"{key}={'' if value is None else toml_value(value)}" for key, value in settings.items()
        ]
    several = [settings] if isinstance(settings, str) else plain_value(settings)
    if not isinstance(several, Iterable) or not all(isinstance(one, str) for one in several):
        raise InputError(
            f"settings are {settings!r}; accepted: a dict of keys and values, or texts such as"
            " 'grid.points=64'"
        )
    return list(several)


def open_run(
    folder: str | Path, *, model: str | Model | Callable[..., Model] | None = None
) -> OpenedRun:
    """Open the output folder of a run, to look at its results or to restart from it.

    >>> run = open_run("runs/vortex")
    >>> run.series["energy"][-1]

    Each rank that calls it reads for itself. The run may still be under way: everything is read
    when asked for, as it is at that moment.

    Parameters
    ----------
    folder : str or pathlib.Path
        The output folder.
    model : str, Model or callable, optional
        The model of the run, as for `slipstream.Flow`, if it is not a built-in one. The model that
        the folder names is not imported, because the folder may come from someone else.

    Raises
    ------
    InputError
        If the folder holds no output of a run.
    """
    return OpenedRun(folder, model)


@dataclass(frozen=True)
class State:
    """A state of a run from which it can be restarted.

    Attributes
    ----------
    path : pathlib.Path
        The zarr group.
    step : int
        Number of time steps taken.
    time : float
        Time of the state (non-dimensional).
    """

    path: Path
    step: int
    time: float


class Series(NamedViews[np.ndarray]):
    """Diagnostics against time, as of when they were read: one array each, by name.

    Attributes
    ----------
    labels : mapping of str to str
        The long name, with unit, of each.
    """

    labels: Mapping[str, str]
    _kind = "series"

    def __init__(self, columns: Mapping[str, np.ndarray], labels: Mapping[str, str]) -> None:
        self._columns, self.labels = dict(columns), dict(labels)

    def _names(self) -> list[str]:
        return list(self._columns)

    def _view(self, name: str) -> np.ndarray:
        return self._columns[name]

    @property
    def rows(self) -> int:
        """Number of times."""
        return len(next(iter(self._columns.values()), ()))

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame`` with the time as index."""
        try:
            import pandas  # type: ignore[import-untyped]
        except ImportError:
            raise InputError("to_pandas needs pandas: pip install pandas") from None
        return pandas.DataFrame(self._columns).set_index("time")

    def to_xarray(self) -> Any:
        """Return an ``xarray.Dataset`` along the time, with long names."""
        try:
            import xarray
        except ImportError:
            raise InputError("to_xarray needs xarray: pip install xarray") from None
        variables = {
            name: ("time", values, {"long_name": self.labels.get(name, name)})
            for name, values in self._columns.items()
        }
        return xarray.Dataset(variables)

    def __repr__(self) -> str:
        return f"<series: {self.rows} rows of {', '.join(map(one_line, self))}>"


class OpenedRun(KnownAttributes):
    """The output of a run, as `open_run` returns it.

    Attributes
    ----------
    path : pathlib.Path
        The output folder.
    """

    path: Path

    def __init__(
        self,
        folder: str | Path,
        model: str | Model | Callable[..., Model] | None = None,
    ) -> None:
        self.path, self._model = path_of("folder", folder), model
        if model is not None:
            from slipstream.equations import models

            models.name_of(model)  # refuses what is no model
        self._folder = RunFolder(self.path)
        self._series: tuple[Any, Series] | None = None
        self._folder.check_is_a_run()
        for fault in self._folder.faults():
            warnings.warn(printable(fault), stacklevel=3)

    # -- case and record -----------------------------------------------------------------------

    @property
    def settings(self) -> dict[str, Any]:
        """The tables of the case as written, for any model and without validation."""
        return self._folder.case_tables()

    @property
    def case(self) -> Case:
        """The settings, validated.

        Raises
        ------
        InputError
            Also if the model is Python code that was not passed to `open_run`: it is not imported.
        """
        return self._case(self.settings)

    def _case(self, tables: dict[str, Any], overrides: Iterable[str] = ()) -> Case:
        equation = tables.get("equation")
        if isinstance(equation, dict):
            equation = tables["equation"] = {**equation}
            from slipstream.case.spectral_case import model_in

            model = model_in(equation)
            if self._model is not None:
                from slipstream.equations import models

                equation["model"] = models.name_of(self._model)
            elif isinstance(model, str) and model not in MODELS and ".py:" in model:
                raise InputError(
                    f"{self.path}: its model is {shown(model)}, Python code that is not imported"
                    " from there; give model= to open"
                )
        elif self._model is not None:
            raise InputError(
                f"{self.path}: its solver, {shown(tables.get('solver'))}, has no model; leave out"
                " model="
            )
        # The case was written in full, and may have been validated by another version.
        return validate_case(tables, overrides, source=str(self.path / CASE_NAME))

    def _tables_at(self, state: State | None = None) -> dict[str, Any]:
        """Return the tables of the case as they were at a state, the last by default."""
        states = None if state is None else [state.path]
        return RunHistory(self._folder).tables_at(self.settings, states)

    def _case_of_all(
        self,
        comm: Comm,
        tables: Callable[[], dict[str, Any]],
        changes: Iterable[str],
        remedy: str,
    ) -> Case:
        """Return the case from which ranks start a simulation of this run. Collective."""

        def read() -> Case:
            case = self._case(tables(), changes)
            if getattr(getattr(case, "image", None), "path", None) == ARRAY:
                raise InputError(f"{self.path}: its image was an array{remedy}")
            return case

        with together(comm):
            check_agreement(comm, {"settings": list(changes)})
            return on_every_rank(comm, read)

    @property
    def is_running(self) -> bool:
        """Whether a run is writing to the folder now, on file systems that have locks."""
        return self._folder.is_active

    # -- what it has written -------------------------------------------------------------------

    @property
    def series(self) -> Series:
        """The diagnostics against time; without rows if none have been written yet."""
        status = self._folder.status(SERIES_NAME)
        mark = status and (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._series is None or self._series[0] != mark:
            self._series = mark, Series(*self._folder.series())
        return self._series[1]

    @property
    def times(self) -> np.ndarray:
        """The times of the snapshots in `fields`."""
        stored = self._folder.last_store(FIELDS_NAME)
        if stored is None:
            return np.zeros(0)
        with errors_of_store(stored.path):
            return stored.times

    @property
    def stores(self) -> Stores:
        """Output on grids and shells, by name: ``stores["transfer"]`` is a Dataset."""
        return Stores(self._folder)

    @property
    def fields(self) -> Any:
        """The snapshots of fields as an ``xarray.Dataset``, which is read lazily.

        If the run has changed its points, these are the snapshots on its last ones; `stores` has
        the others too: ``stores["fields"]`` the first, then ``stores["fields~2"]``.
        """
        return self._last_of("fields")

    @property
    def spectra(self) -> Any:
        """The spectra as an ``xarray.Dataset``; after a change of points, of the last ones."""
        return self._last_of("spectra")

    def _last_of(self, name: str) -> Any:
        stored = self._folder.last_store(f"{name}.zarr")
        return self.stores[name if stored is None else stored.path.stem]

    @property
    def particles(self) -> StoredParticles:
        """The paths of particles by the names of their sets, with their statistics."""
        return StoredParticles(self._folder)

    def average(
        self, name: str, since: float | None = None, until: float | None = None
    ) -> TimeAverage:
        """Return the average over time of something that was written, with its standard error.

        >>> energy = open_run("runs/forced").average("energy", since=5)
        >>> print(energy.mean, energy.error, energy.correlation_time)

        Parameters
        ----------
        name : str
            A column of `series`, or an array of `stores`: a spectrum, statistics, a field. Arrays
            are averaged element by element. If several stores have an array of that name, prefix
            the name of the store, as in ``"fields/velocity_x"``.
        since : float, optional
            Average only output from this time on (default: the end of the spin-up, which is
            detected; `TimeAverage.since` has it).
        until : float, optional
            Average only output up to this time (default: the last).

        Raises
        ------
        InputError
            If there is nothing of that name, or nothing at these times.

        Warns
        -----
        RuntimeWarning
            If the record is too short, or not steady.
        """
        from slipstream.show.stored_run import average_of_run

        check_type("name", name, str)
        since = None if since is None else finite_number("since", since)
        until = None if until is None else finite_number("until", until)
        average = average_of_run(self._folder, name, since, until)
        for text in average.warnings:
            warnings.warn(f"average of {one_line(name)}: {text}", RuntimeWarning, stacklevel=2)
        return average

    @property
    def pictures(self) -> dict[str, Path]:
        """The pictures, by name."""
        names = [one for one in self._folder.names() if one.endswith(".png") and one[0] != "."]
        return {name.removesuffix(".png"): self.path / name for name in names}

    @property
    def states(self) -> tuple[State, ...]:
        """The states to restart from, earliest first, without those found to be damaged."""
        # A run under way removes older ones.
        states = [
            State(self.path / CHECKPOINTS_NAME / path.name, said.step, said.time)
            for path, said in self._folder.manifests()
        ]
        return tuple(reversed(states))

    @signals_held
    def restart(
        self,
        settings: Iterable[str] | Mapping[str, Any] = (),
        *,
        state: State | None = None,
        device: str | Device = "auto",
        comm: Comm | Literal["world"] = "world",
    ) -> InteractiveSimulation:
        """Return a simulation that continues from the last state. Collective.

        >>> sim = open_run("runs/vortex").restart({"equation.viscosity": 0.001})

        Parameters
        ----------
        settings : mapping or iterable of str
            Keys of the case to change from the run's.
        state : State, optional
            One of `states`, instead of the last one that is intact.
        device, comm
            See `slipstream.Flow`.

        Raises
        ------
        InputError
            If there is no such state, or a key or value is not accepted.
        """
        if state is not None:
            check_type("state", state, State)
        shared, place = communicator_of(comm, "restart"), self.path if state is None else state.path
        changes = [*overrides_of({"initial.restart": str(place)}), *overrides_of(settings)]
        remedy = f"; give it: slipstream.PorousFlow(array, restart={str(place)!r}), or image.path"
        case = self._case_of_all(shared, lambda: self._tables_at(state), changes, remedy)
        return load(case, device=device, comm=shared)

    @signals_held
    def resume(
        self,
        settings: Iterable[str] | Mapping[str, Any] = (),
        *,
        device: str | Device = "auto",
        comm: Comm | Literal["world"] = "world",
        progress: bool | None = None,
        from_state: bool = False,
    ) -> None:
        """Continue with the run in its folder, to the end of its case. Collective.

        >>> open_run("runs/vortex").resume({"time.end": 20})

        Parameters
        ----------
        settings : mapping or iterable of str
            Keys of the case to change from the run's, from here on.
        device, comm
            See `slipstream.Flow`.
        progress : bool, optional
            Whether to print how far it is; by default where somebody looks on.
        from_state : bool
            Whether the case of the last state is taken where the folder has another one.

        Raises
        ------
        InputError
            If there is no state to resume from, another run writes into the folder, or a key or
            value is not accepted; the folder is as it was then.
        AtItsEnd
            If there is nothing left to do.
        """
        check_type("from_state", from_state, bool)
        if progress is not None:
            check_type("progress", progress, bool)
        shared, changes = communicator_of(comm, "resume"), overrides_of(settings)
        remedy = "; give image.path, of a file"
        case = self._case_of_all(shared, self._tables_at, changes, remedy)
        is_first = shared is None or shared.rank == 0
        console = console_for(progress if is_first else False)
        chosen = None if self._model is None else case
        resume_run(self.path, changes, shared, device, console, case=chosen, from_state=from_state)

    # -- what it has not written ---------------------------------------------------------------

    def recomputation(self, time: float | None = None, *, step: int | None = None) -> Recomputation:
        """Return from which state, and in how many steps and seconds, `at` computes another.

        >>> print(open_run("runs/vortex").recomputation(3.217).text())

        Parameters
        ----------
        time, step
            See `at`.

        Raises
        ------
        InputError
            See `at`.
        """
        from slipstream.runs.recomputing import recomputation

        if (time is None) == (step is None):
            raise InputError("give one of time and step")
        if time is not None:
            time = finite_number("time", time)
        if step is not None:
            step = whole_number("step", step, 0)
        return recomputation(self._folder, time=time, step=step)

    @signals_held
    def at(
        self,
        time: float | None = None,
        *,
        step: int | None = None,
        device: str | Device = "auto",
        comm: Comm | Literal["world"] = "world",
        progress: bool | None = None,
    ) -> InteractiveSimulation:
        """Return a simulation in a state that the run has had, stored or not. Collective.

        >>> flow = open_run("runs/vortex").at(3.217)
        >>> flow.fields["vorticity"].plane("z", 1)

        It is computed again, in memory, from the nearest state before that is left, or from the
        initial one, by the steps that the run took; the folder is only read. The bits are those of
        the run where bits are promised. The simulation can be stepped on.

        Parameters
        ----------
        time : float
            Time of the state. Between two steps, the earlier one is followed by a shorter step.
        step : int
            Number of time steps done, instead of a time.
        device, comm
            See `slipstream.Flow`.
        progress : bool, optional
            Whether to print what it takes, and how far it is; by default where somebody looks on.

        Raises
        ------
        InputError
            If the run has not come so far, its steps are not recorded, or a program has set fields
            in between.

        Warns
        -----
        RuntimeWarning
            If the digest of a state on the way differs from the run's.
        """
        if progress is not None:
            check_type("progress", progress, bool)
        shared = communicator_of(comm, "at")
        with together(shared):
            check_agreement(shared, {"time": time, "step": step})
            plan = on_first_rank(shared, lambda: self.recomputation(time, step=step))
        tables = functools.partial(tomllib.loads, plan.origin.case)
        case = self._case_of_all(shared, tables, plan.overrides(), ", which no file has")
        simulation = load(case, device=device, comm=shared)
        with together(simulation.comm):
            deviation = simulation._retrace(plan, progress)
        if deviation and simulation.rank == 0:
            warnings.warn(f"{self.path}: {deviation}", RuntimeWarning, stacklevel=3)
        return simulation

    # -- for people ----------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<run {shown(str(self.path))}: {', '.join(self._rows().values())}>"

    def _repr_html_(self) -> str:
        rows = self._rows()
        picture = base64.b64encode(self._folder.content("summary.png", _MOST_PICTURE)).decode()
        below = f"<img style='max-width:100%' src='data:image/png;base64,{picture}'>"
        return html_table(f"run {self.path}", rows.items()) + (below if picture else "")

    def _rows(self) -> dict[str, str]:
        try:
            tables = self.settings
        except InputError as error:
            return {"case": one_line(str(error))}
        rows = {"solver": one_line(str(tables.get("solver")))}
        if tables.get("title"):
            rows["title"] = one_line(str(tables["title"]))
        try:
            series = self.series
        except InputError:
            series = Series({}, {})
        end = tables["time"].get("end") if isinstance(tables.get("time"), dict) else None
        if series.rows:
            until = f" of {end:g}" if isinstance(end, int | float) else ""
            rows["time"] = f"t = {series['time'][-1]:.6g}{until}, step {series['step'][-1]}"
            rows["series"] = f"{series.rows} rows of diagnostics"
        if self.is_running:
            rows["now"] = "running"
        if len(self.stores):
            rows["stores"] = ", ".join(map(one_line, self.stores))
        rows["states"] = counted(len(self._folder.states()), "state")
        if self.pictures:
            rows["pictures"] = f"pictures: {', '.join(map(one_line, self.pictures))}"
        return rows


class Stores(NamedStores[Any]):
    """The zarr stores of a run, by name; each opens as an ``xarray.Dataset``."""

    _prefix, _kind, _absent = "", "stores", "is no store"

    def _open(self, path: Path) -> Any:
        try:
            import xarray

            from slipstream.api.lazy_arrays import lazily
        except ImportError:
            raise InputError(f"{path.stem} needs xarray: pip install xarray") from None
        stored = StoredArrays(path)
        variables: dict[str, Any] = {}
        for name, shape in stored.shapes.items():
            dims = stored.dimensions(name)
            if dims == (name,):
                values: Any = stored.coordinate(name)
            else:
                values = lazily(shape, stored.dtype(name), functools.partial(stored.read, name))
            variables[name] = xarray.Variable(dims, values, stored.attributes(name))
        return xarray.Dataset(variables)
