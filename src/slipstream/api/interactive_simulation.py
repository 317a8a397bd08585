"""A simulation as a Python object: step it, look at it, change it.

This is what all families share; each adds its constructor, and how its fields are read and set.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import numpy as np

from slipstream.api.field_views import FieldView
from slipstream.api.output_methods import Callback, OutputMethods, checked_occasions
from slipstream.api.settings import NamedViews
from slipstream.case import Case, validate_case
from slipstream.case.keyword_options import check_arguments
from slipstream.engine import processes as mpi_launch
from slipstream.engine.array_types import Array, Comm
from slipstream.engine.collective import (
    check_agreement,
    check_communicator,
    give_up,
    on_all_ranks,
    on_every_rank,
    on_first_rank,
    own,
    sum_over_ranks,
    together,
)
from slipstream.engine.device import Device
from slipstream.engine.device.device_interface import host_values
from slipstream.engine.errors import (
    InputError,
    KnownAttributes,
    UnknownName,
    check_positive,
    check_type,
    finite_number,
    path_of,
    plain_value,
    whole_number,
)
from slipstream.engine.processes import Interrupted, Interruption
from slipstream.engine.stop_signals import signals_held
from slipstream.engine.text import counted, html_table, shown
from slipstream.runs.simulation_base import make_simulation
from slipstream.runs.time_loop import Limits, TimeLoop, check_hits

if TYPE_CHECKING:
    from types import ModuleType

    from rich.console import Console

    from slipstream.files.output_folder import OutputFolder
    from slipstream.runs.recomputing import Recomputation
    from slipstream.runs.simulation_base import Simulation

Method = TypeVar("Method", bound=Callable[..., Any])
Made = TypeVar("Made", bound="InteractiveSimulation")
# The end of a run whose end is not known when its simulation is made.
NO_END = 1e30


def communicator_of(comm: Comm | Literal["world"], what: str) -> Comm:
    """Return a duplicate of the communicator that is meant; None for one rank. Collective."""
    if isinstance(comm, str) and comm != "world":
        raise InputError(f"comm is {comm!r}; accepted: 'world', None or a communicator")
    meant = mpi_launch.world_comm() if isinstance(comm, str) else comm
    if meant is not None:
        check_communicator(meant)
    return None if meant is not None and meant.size == 1 else own(meant, what)


def made_together(constructor: Method) -> Method:
    """Make a constructor fail on all ranks if it fails on one, by its argument `comm`.

    Arguments that the signature of its class does not have are refused in one line.
    """

    @functools.wraps(constructor)
    def call(self: Any, *arguments: Any, comm: Any = "world", **options: Any) -> None:
        kind = next(one for one in type(self).__mro__ if vars(one).get("__init__") is call)
        with signals_held:
            comm = communicator_of(comm, type(self).__name__)
            with together(comm), signals_held.lifted(comm is None):
                check_arguments(inspect.signature(kind), type(self).__name__, arguments, options)
                constructor(self, *arguments, comm=comm, **options)

    return call  # type: ignore[return-value]


def collective(method: Method) -> Method:
    """Make a method fail on all ranks if it fails on one, and refuse it once closed."""

    @functools.wraps(method)
    def call(self: InteractiveSimulation, *arguments: Any, **options: Any) -> Any:
        _ = self.solver  # refused once closed
        with together(self.comm, method.__name__):
            return method(self, *arguments, **options)

    return call  # type: ignore[return-value]


def _users_level() -> int:
    """Return the number of frames of this package between its caller and the user."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(
        "slipstream."
    ):
        level, frame = level + 1, frame.f_back
    return level


class InteractiveSimulation(OutputMethods, KnownAttributes, ABC):
    """A simulation that is stepped, read and changed from Python.

    It allocates nothing until it is first stepped, read or set, or asked to `prepare`. On several
    ranks every method and property marked *collective* must be called by all of them, in the same
    order; what fails on one rank raises on all.

    Attributes
    ----------
    comm : mpi4py.MPI.Comm or None
        The ranks that share the work, on a duplicated communicator; None for a single rank.
    rank, ranks : int
        This rank, and the number of ranks.
    """

    comm: Comm
    rank: int
    ranks: int

    def __init__(
        self, case: Case, comm: Comm | Literal["world"], device: str | Device, **beside: Any
    ) -> None:
        self.comm = communicator_of(comm, type(self).__name__)
        with together(self.comm), signals_held.lifted(self.comm is None):
            check_agreement(self.comm, {"the simulation": case})
            solver = make_simulation(case, self.comm, device, **beside)
        self._solver: Simulation | None = solver
        self.rank, self.ranks = solver.rank, solver.ranks
        self._callbacks: list[Callback] = []
        self._is_prepared = self._is_running = False
        # Identifies the folder into which this has written last, on the first rank.
        self._output_mark: tuple[int, str] | None = None
        # That folder, the same while a run holds it, and the number of runs begun in a folder.
        self._folder: Path | None = None
        self._claimed: OutputFolder | None = None
        self._runs = 0
        # Whether it was made with settings of output that only a folder can have.
        self._asks_for_output = False
        self._warned: set[str] = set()  # what this run has warned of
        self._diagnosed: tuple[tuple[int, int], dict[str, float]] | None = None

    # -- what it is ----------------------------------------------------------------------------

    @property
    def solver(self) -> Simulation:
        """The underlying solver, for what this object does not offer."""
        if self._solver is None:
            raise InputError(f"this {type(self).__name__} has been closed")
        return self._solver

    @property
    def case(self) -> Case:
        """The settings, as the command line would read them from a file."""
        return self.solver.case

    @property
    def device(self) -> Device:
        """The device where this rank's fields are."""
        return self.solver.device

    @property
    def array_module(self) -> ModuleType:
        """The module of the arrays that fields are read as: NumPy or CuPy."""
        return self.solver.device.array_module

    @property
    def time(self) -> float:
        """The time reached (non-dimensional; time steps for flow in pores). Collective at first."""
        return self._ready().time

    @property
    def steps(self) -> int:
        """Number of time steps done, those before a restart included. Collective at first."""
        return self._ready().step

    @property
    def finished(self) -> str:
        """Why the run has finished, such as that a steady state is reached; empty otherwise."""
        return self._ready().finished

    # -- settings ------------------------------------------------------------------------------

    def _setting(self, key: str) -> Any:
        """Return the present value of a key of the case."""
        value: Any = self.case
        for part in key.split("."):
            value = getattr(value, part)
        return value

    @signals_held
    def _change(self, name: str, key: str, value: Any) -> None:
        """Change a key of the case, an attribute for users, from the next step on. Collective."""
        solver = self._ready()
        with together(self.comm):
            plain = on_every_rank(self.comm, lambda: plain_value(value))
            check_agreement(self.comm, {name: plain})
            solver.change(self._together_with(key, plain), type(self).__name__)
            self._tell()

    def _together_with(self, key: str, value: Any) -> dict[str, Any]:
        """Return a change with those of other keys that it implies."""
        return {key: value}

    @property
    @collective
    def time_step(self) -> float:
        """The size of the next time step, unless it is shortened. Collective."""
        return self._ready().step_size()

    @collective
    def describe(self) -> dict[str, str]:
        """Return a description of the run and its memory. Collective; allocates nothing."""
        from slipstream.show.solver_texts import description

        return description(self.solver)

    @collective
    def prepare(self) -> None:
        """Allocate all fields and set the initial state, unless that has been done. Collective.

        Raises
        ------
        InputError
            If memory does not suffice, or the initial state is not accepted.
        """
        self._ready()

    @signals_held
    def _ready(self) -> Simulation:
        solver = self.solver
        if not self._is_prepared:
            with together(self.comm):
                with signals_held.lifted(self.comm is None):  # a second call begins again
                    solver.prepare()
                    self._set_initial()
                self._is_prepared = True
            self._tell()
        solver.check_whole()
        return solver

    def _set_initial(self) -> None:
        """Set the part of the initial state that a case cannot describe."""
        return

    def _tell(self) -> None:
        """Issue the solver's warnings, on the first rank and at the user's line."""
        for text in self.solver.warnings():
            self._issue(text)

    def _issue(self, text: str) -> None:
        # Figures stand last in a warning, which is issued once per run whatever they are.
        what = text.rpartition(": ")[0] or text
        if self._is_running and what in self._warned:
            return
        self._warned.add(what)
        if self.rank == 0:
            warnings.warn(text, RuntimeWarning, stacklevel=_users_level())

    def _check_result(self) -> None:
        """Check the result of a run, for warnings of the solver. Collective."""

    # -- stepping ------------------------------------------------------------------------------

    @collective
    def step(self, steps: int = 1) -> None:
        """Take some time steps, calling callbacks that are due. Collective."""
        steps = whole_number("steps", steps, 1)
        self._run(Limits(steps=steps, stops_if_finished=False), progress=False)

    @collective
    def run(
        self,
        until: float | None = None,
        *,
        steps: int | None = None,
        wall: float | None = None,
        progress: bool | None = None,
        output: str | Path | None = None,
        overwrite: bool = False,
    ) -> None:
        """Step until a time, or for some steps or seconds, whichever comes first. Collective.

        A callback can end it earlier with `stop`.

        Adaptive steps are shortened to hit `until`, and the times of callbacks, exactly.

        Parameters
        ----------
        until : float, optional
            Time to reach; by default the end of the case, if it has one.
        steps : int, optional
            Largest number of time steps to take.
        wall : float, optional
            Seconds of wall-clock time after which to stop.
        progress : bool, optional
            Whether the first rank shows a progress bar; by default in terminals and notebooks.
        output : str or pathlib.Path, optional
            A folder into which to write what the case asks for, as ``slipstream run`` does: series,
            spectra, fields, checkpoints, pictures. Files that this simulation has written there are
            continued; a folder with anything else in it is refused.
        overwrite : bool
            Whether the output of an earlier run in that folder is replaced.

        Raises
        ------
        InputError
            If steps of one size do not hit `until`, or the time of a callback, or `output` is not
            empty and not of this simulation.
        RunError
            If the flow blows up; with `output` also where the case's ``time.wall`` is over.
        KeyboardInterrupt
            On Ctrl-C, between two steps and on all ranks: the state is kept, and with `output`
            written.
        Exception
            Whatever a callback raises; `RunError` on the other ranks.
        """
        solver = self._ready()
        if output is not None:
            output = path_of("output", output)
        if progress is not None:
            check_type("progress", progress, bool)
        overwrite = plain_value(overwrite)
        check_type("overwrite", overwrite, bool)
        given = {"until": until, "steps": steps, "wall": wall, "output": str(output)}
        check_agreement(self.comm, {**given, "overwrite": overwrite})
        if steps is not None:
            steps = whole_number("steps", steps, 1)
        if wall is not None:
            check_positive(wall=wall)
        if until is not None:
            until = finite_number("until", until)
        has_none = until is None and steps is None and wall is None and output is None
        if has_none and not solver.case.ends_early:
            until = solver.case.time.end
            if until >= NO_END:
                raise InputError("run: give until=TIME, steps=NUMBER or wall=SECONDS")
        elif until is None and solver.case.ends_early and solver.case.time.end < NO_END:
            until = solver.case.time.end
        if output is None and self._asks_for_output:
            raise InputError(
                "run: this simulation was made with output={...}, which is written into a folder"
                " only: give run(output=FOLDER)"
            )
        limits = Limits(math.inf if until is None else until, steps, wall)
        if output is None:
            self._run(limits, progress)
            self._check_result()
        else:
            self._run_into(limits, output, progress, overwrite)
            self._asks_for_output = False  # it has had its folder

    def stop(self) -> None:
        """End the run in an orderly way after this callback; one rank's call is enough.

        >>> sim.every(1.0, lambda s: s.stop() if s.diagnostics["energy"] < 0.01 else None)
        """
        if not self._is_running:
            raise InputError("stop: nothing runs; it is for functions that `every` calls")
        self.solver.is_to_stop = True

    def _end_with_output(self, limits: Limits) -> float:
        """Return the end of a run with output, from which the intervals of output follow."""
        case, time = self.case, self.solver.time
        if limits.until < math.inf:
            return limits.until
        if case.time.end < NO_END:
            return case.time.end
        if limits.steps is not None and case.fixed_step is not None:
            return time + limits.steps / case.steps_at_once * case.fixed_step
        raise InputError(
            "run: output= needs until=TIME, since intervals of output follow from it; steps= and"
            " wall= may end the run before that"
        )

    def _check_limits(self, limits: Limits) -> None:
        solver = self.solver
        if self._is_running:
            raise InputError("step and run cannot be called by a callback")
        if not limits.until > solver.time:
            raise InputError(
                f"until is {limits.until:g}; accepted: more than t = {solver.time:.12g}, which has"
                " been reached"
            )
        steps, at_once = limits.steps, solver.case.steps_at_once
        if steps is not None and steps % at_once:
            raise InputError(f"steps is {steps}; accepted: multiples of {at_once}, done together")
        fixed = solver.case.fixed_step
        if fixed is None:
            return
        if limits.until < math.inf:
            check_hits("until", [limits.until], solver.time, fixed, "time")
        self._callbacks = [one for one in self._callbacks if not one.is_cancelled]
        for callback in self._callbacks:
            callback.check_hits(solver.time, limits.until, fixed)

    def _run(self, limits: Limits, progress: bool | None) -> None:
        solver = self._ready()
        self._check_limits(limits)
        self._warned.clear()
        loop = TimeLoop(solver, self._callbacks, limits)
        self._is_running, solver.is_timed = True, False
        try:
            with contextlib.ExitStack() as stack:
                interruption = stack.enter_context(Interruption(self.comm))
                show = self._tell
                if progress is not False and self.rank == 0:
                    show = self._progress(stack, loop, limits, console_for(progress))
                loop.observe()
                loop.run(interruption, show)
        finally:
            self._is_running = False
        if loop.stopped_by == "interrupted":
            raise on_all_ranks(KeyboardInterrupt(f"at step {solver.step}, t = {solver.time:.6g}"))

    def _retrace(self, plan: Recomputation, progress: bool | None) -> str:
        """Repeat steps of a run; return where they deviate from the record. Collective."""
        from slipstream.runs.recomputing import compare_digests
        from slipstream.show.console import Progress

        solver, console = self._ready(), console_for(progress if self.rank == 0 else False)
        console.print(f"computes {plan.text()}", highlight=False, markup=False)
        first = plan.origin.step
        end = max(plan.step, first + 1)
        with Interruption(self.comm) as interruption, Progress(console, first, end) as shown:

            def after_step() -> None:
                if interruption.requested()[0]:
                    raise on_all_ranks(KeyboardInterrupt(f"at step {solver.step}"))
                shown.update(solver.step, f"step {solver.step}, t = {solver.time:.4g}")

            deviation = compare_digests(plan, solver, after_step)
        self._tell()
        return deviation

    def _progress(
        self, stack: contextlib.ExitStack, loop: TimeLoop, limits: Limits, console: Console
    ) -> Callable[[], None]:
        """Return the function that shows how far a loop is; the stack ends the progress bar."""
        from slipstream.show.console import Progress
        from slipstream.show.solver_texts import progress_text

        solver = self.solver
        start, end = solver.time, limits.until if limits.until < math.inf else solver.time + 1.0
        # If the number of steps is limited, progress counts steps: times may be of any size.
        counts = limits.steps is not None
        if counts:
            start, end = 0.0, float(limits.steps or 0)
        shown = stack.enter_context(Progress(console, start, end, f"t = {solver.time:g}"))

        def show() -> None:
            reached = loop.steps if counts else solver.time
            shown.update(reached, progress_text(solver, loop.step_size))
            self._tell()

        return show

    def _run_into(
        self, limits: Limits, output: str | Path, progress: bool | None, overwrite: bool
    ) -> None:
        """Run as the command line does, with output in a folder."""
        from slipstream.files.output_folder import claim_folder, claim_run
        from slipstream.runs.resuming import earlier_in, output_mark
        from slipstream.runs.run_case import RunOptions, run_case

        end = self._end_with_output(limits)
        self._check_limits(limits)
        self._warned.clear()
        solver, path = self.solver, Path(output)

        def is_own() -> bool:
            mark = output_mark(path)
            return mark is not None and mark == self._output_mark

        goes_on = not overwrite and on_first_rank(self.comm, is_own)
        console = console_for(progress if self.rank == 0 else False)
        # A text that no terminal shows becomes a warning of Python's.
        warn = self._issue if console.quiet else None
        options = RunOptions(observers=self._callbacks, seconds=limits.seconds, warn=warn)
        self._is_running = solver.is_timed = True
        try:
            with together(self.comm), contextlib.ExitStack() as stack:
                earlier = None
                if goes_on:
                    claimed = stack.enter_context(claim_run(path, self.comm))
                    earlier = on_first_rank(self.comm, lambda: earlier_in(claimed, solver.case))
                else:
                    inputs = solver.case.inputs()
                    claimed = stack.enter_context(claim_folder(path, self.comm, overwrite, inputs))
                self._folder, self._claimed = path.absolute(), claimed
                self._runs += not goes_on
                done = 0 if earlier is None else solver.step - earlier.step
                steps = None if limits.steps is None else limits.steps + done
                solver.case = self._case_until(end, steps)
                try:
                    run_case(solver, claimed, console, options=options, earlier=earlier)
                finally:
                    # Of use on the first rank, which decides.
                    if claimed.has_own_output():
                        self._output_mark = output_mark(path)
        except Interrupted as stop:
            if not stop.is_signalled:
                raise
            raise on_all_ranks(KeyboardInterrupt(str(stop))) from None
        finally:
            self._is_running, self._claimed = False, None

    def _outputs_folder(self) -> Path:
        """Return the folder in the run's folder for files that users name. Collective."""
        from slipstream.files.output_folder import claim_run
        from slipstream.files.run_folder import OUTPUTS_NAME

        assert self._folder is not None
        folder = self._folder / OUTPUTS_NAME
        with contextlib.ExitStack() as stack:
            claimed = self._claimed
            if claimed is None:
                claimed = stack.enter_context(claim_run(self._folder, self.comm))
                claimed.go_on()
            claimed.wrote(OUTPUTS_NAME)
            on_first_rank(self.comm, lambda: folder.mkdir(exist_ok=True))
        return folder

    def _case_until(self, end: float, steps: int | None) -> Case:
        """Return the case with another end, and intervals of output that follow from it."""
        case, data = self.case, self.case.model_dump(exclude_unset=True)
        derived = {key: case.time.end / count for key, count in case.occasions.items()}
        output = {k: v for k, v in data["output"].items() if derived.get(k) != v}
        time = {**data["time"], "end": end, **({} if steps is None else {"max_steps": steps})}
        return type(case).model_validate({**data, "time": time, "output": output})

    def every(
        self,
        interval: float | None = None,
        call: Callable[[Self], object] | None = None,
        *,
        steps: int | None = None,
        times: Any = None,
    ) -> Any:
        """Call a function with this simulation between time steps, from now on.

        >>> sim.every(0.1, lambda s: print(s.time, s.diagnostics["energy"]))

        Without `call` it is a decorator. Functions are called by all ranks; they may read and set
        fields. An exception in one ends the run; the state stays readable, and a run with output
        writes it.

        Parameters
        ----------
        interval : float, optional
            Time between two calls, the first of them now; give exactly one of `interval`, `steps`
            and `times`.
        call : callable
            Called with the simulation.
        steps : int, optional
            Number of steps between two calls.
        times : sequence of float, optional
            Times at which to call it.

        Returns
        -------
        Callback
            With a method `cancel`; as a decorator, the function itself.
        """
        solver = self._ready()
        occasions = checked_occasions(interval, steps, times, solver.time, solver.step)

        def register(function: Callable[[Self], object]) -> Callback:
            if not callable(function):
                raise InputError(f"call is {function!r}; accepted: a function of the simulation")
            callback = Callback(self, function, occasions)
            self._callbacks.append(callback)
            return callback

        if call is not None:
            return register(call)

        def decorate(function: Callable[[Self], object]) -> Callable[[Self], object]:
            register(function)
            return function

        return decorate

    def show(
        self,
        field: str | FieldView,
        interval: float | None = None,
        *,
        steps: int | None = None,
        times: Any = None,
        plane: tuple[str, float | None] = ("z", None),
        file: str | Path | None = None,
    ) -> Any:
        """Show a plane of a field, and update it while the simulation runs. Collective.

        >>> sim.show("vorticity_magnitude", 0.1, plane=("z", 0.0))
        >>> sim.run(until=10)

        In a notebook the picture appears in the cell that calls this and changes in place.
        Elsewhere it is written to a `file`, which is replaced each time.

        Parameters
        ----------
        field : str or FieldView
            A name of `fields`, or what `evaluate` returns; vectors are shown by their magnitude.
        interval, steps, times
            When to update it, as for `every`; without any of these, it is shown once, now.
        plane : (str, float or None)
            The axis normal to the plane, and the position along it; None for the middle.
        file : str or pathlib.Path, optional
            A picture file (``.png``, or another format of Matplotlib), in notebooks too: a name, in
            ``outputs`` of the run's folder as for `output`, or a path in an existing folder.

        Returns
        -------
        Callback or None
            With a method `cancel`.

        Raises
        ------
        InputError
            Outside of a notebook, if no `file` is given.
        """
        from slipstream.api.notebook_views import show

        return show(self, field, (interval, steps, times), plane, file)

    # -- looking -------------------------------------------------------------------------------

    @property
    @signals_held
    def diagnostics(self) -> Mapping[str, float]:
        """Named numbers of the state, such as ``"energy"``: the same on all ranks.

        Collective where the state is another one than when they were last read.

        The energy sums over all fields, scalars included; where there are several, each has its
        own entry, such as ``"velocity_energy"``.
        """
        self._ready()
        state = self._state_mark()
        if self._diagnosed is None or self._diagnosed[0] != state:
            with together(self.comm, "diagnostics"):
                self._diagnosed = state, self.solver.diagnostics()
        return dict(self._diagnosed[1])

    @property
    @collective
    def spectra(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Wavenumbers and values of spectra, by name: the same on all ranks. Collective."""
        return self._ready().spectra()

    @property
    def labels(self) -> dict[str, str]:
        """The long name, with unit, of each diagnostic and spectrum."""
        return self._ready().labels()

    @property
    def fields(self) -> Fields:
        """The fields at the points, by name: ``sim.fields["velocity"][...]``."""
        _ = self.solver  # refused once closed
        return Fields(self)

    def _view(self, name: str) -> FieldView:
        """Return a field by its name."""
        shapes = self._field_shapes()
        if name not in shapes:
            raise UnknownName(f"fields: there is no {shown(name)}; there are: {', '.join(shapes)}")
        return FieldView(self, name, shapes[name], *self._describe_field(name))

    def _reduced(self, view: FieldView, how: str) -> Any:
        """Return a reduction of a field over all points. Collective."""
        values = self.solver.device.to_host(view[...]).astype(np.float64)
        rows = values.reshape(*view.shape[: view.ndim - 3], -1)
        if how in ("max", "min"):
            neutral = -np.inf if how == "max" else np.inf
            operation = np.max if how == "max" else np.min
            local = operation(rows, axis=-1, initial=neutral)
            everyone = [local] if self.comm is None else self.comm.allgather(local)
            reduced = operation(np.stack(everyone), axis=0)
        else:
            sums = (rows if how == "mean" else rows**2).sum(axis=-1, keepdims=True)
            reduced = sum_over_ranks(self.comm, sums)[..., 0] / math.prod(view.global_shape[-3:])
            reduced = reduced if how == "mean" else np.sqrt(reduced)
        return reduced if reduced.ndim else float(reduced)

    @abstractmethod
    def _field_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the axes before z, y and x of each field: none for a scalar."""

    @abstractmethod
    def _read(self, name: str) -> Array:
        """Return a field at this rank's points, in an array of the device. Collective."""

    def _write(self, name: str, values: Array) -> None:
        """Set a field at this rank's points. Collective."""
        raise InputError(f"fields[{name!r}] can be read only")

    def _at_own_points(self, view: FieldView, values: Any) -> Any:
        """Return values to set at this rank's points, where they are a whole field of others."""
        return values

    def _field_dtype(self, name: str) -> np.dtype:
        """Return the type of a field's values."""
        precision = self.solver.case.numerics.precision  # type: ignore[attr-defined]
        return np.dtype("float32" if precision == "float32" else "float64")

    def _state_mark(self) -> tuple[int, int]:
        """Return a mark that identifies the present state."""
        return self.solver.step, self.solver.times_set

    def _describe_field(self, name: str) -> tuple[str, str]:
        """Return the long name and the unit of a field."""
        return name.replace("_", " "), "1"

    # -- keeping -------------------------------------------------------------------------------

    @collective
    def checkpoint(self, folder: str | Path) -> None:
        """Write a checkpoint into a run's folder. Collective.

        Restart from it with ``initial={"restart": folder}`` in Python, or ``initial.restart`` in a
        case. Earlier states there are kept as the case's ``output.keep_checkpoints`` says.
        """
        from slipstream.files.checkpoint import write_checkpoint

        solver, path = self._ready(), path_of("folder", folder)
        case = self.case
        if case.time.end >= NO_END:
            case = self._case_until(max(solver.time, 1e-300), None)
        on_first_rank(self.comm, lambda: _check_latest(path, solver.step))
        write_checkpoint(
            path,
            solver.checkpoint(),
            self.comm,
            step=solver.step,
            time=solver.time,
            case=case.to_toml(),
            keep=case.output.keep_checkpoints,
        )

    @collective
    def copy(self) -> Self:
        """Return another simulation in the same state, without the callbacks. Collective."""
        solver = self._ready()
        beside = self._beside_the_case()
        other = simulation_of(type(self), self._case_from_rest(), self.comm, solver.device, beside)
        other._continue_with(solver.case, solver.kept())
        return other

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def _continue_with(self, case: Case, kept: Mapping[str, Any]) -> None:
        """Take over the settings and the state of another simulation. Collective."""
        self._ready()
        self.solver.case = case
        self.solver.restore(kept)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle it by its arguments and its state, without callbacks: of a single rank."""
        _ = self.solver  # refused once closed
        if self.comm is not None:
            raise InputError(
                f"pickle: this {type(self).__name__} is on {self.ranks} ranks; accepted: one rank,"
                " or checkpoint(folder) on all of them"
            )
        made_again = ("comm", "rank", "ranks")
        attributes = {
            name: value
            for name, value in vars(self).items()
            if name[0] != "_" and name not in made_again
        }
        beside = self._beside_the_case()
        named, start, kept = self._named(), self.case, None  # finding the names may prepare it
        if self._is_prepared:
            start, kept = self._case_from_rest(), _move_to_host(self.solver.kept())
        cases = [case.model_dump(exclude_unset=True) for case in (start, self.case)]
        return _rebuild_simulation, (
            type(self),
            named,
            *cases,
            kept,
            self.device.kind,
            beside,
            attributes,
        )

    def _named(self) -> Any:
        """Return the object that the case has by name only, such as a model of a program."""
        return None

    def _beside_the_case(self) -> dict[str, Any]:
        """Return arguments of the solver besides the case, such as an image in memory."""
        return {}

    @staticmethod
    def _take_named(named: Any, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the settings with pickled objects instead of their names."""
        return settings

    def _case_from_rest(self) -> Case:
        """Return a case like this one that starts without reading an earlier run's state."""
        return self.case

    def close(self) -> None:
        """Free all memory; afterwards only closing it again is accepted."""
        if self._is_running:
            raise InputError("close cannot be called by a callback")
        for callback in self._callbacks:
            callback.cancel()
        self._callbacks = []
        self._solver = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        give_up(self.comm, error)
        self.close()

    def __repr__(self) -> str:
        name = type(self).__name__
        if self._solver is None:
            return f"<{name}: closed>"
        where = f"{counted(self.ranks, 'rank')} on {self.device.name}"
        if not self._is_prepared:
            return f"<{name}: {self._summary()}, not prepared, {where}>"
        return f"<{name}: {self._summary()}, t = {self.time:.6g}, step {self.steps}, {where}>"

    def _repr_html_(self) -> str:
        from slipstream.api.notebook_views import simulation_html

        return simulation_html(self)

    @abstractmethod
    def _summary(self) -> str:
        """Return the simulation in a few words."""


def simulation_of(
    kind: type[Made],
    case: Case,
    comm: Comm | Literal["world"],
    device: str | Device,
    beside: Mapping[str, Any] | None = None,
) -> Made:
    """Return a simulation of a case, without the arguments of its class. Collective."""
    made = object.__new__(kind)
    InteractiveSimulation.__init__(made, case, comm, device, **(beside or {}))
    return made


def _rebuild_simulation(
    kind: type[InteractiveSimulation],
    named: Any,
    start: dict[str, Any],
    settings: dict[str, Any],
    kept: Mapping[str, Any] | None,
    device: str,
    beside: dict[str, Any],
    attributes: dict[str, Any],
) -> InteractiveSimulation:
    """Return a simulation that was pickled."""

    def case_of(tables: dict[str, Any]) -> Case:
        return validate_case(kind._take_named(named, tables), source=kind.__name__)

    made = simulation_of(kind, case_of(start), None, device, beside)
    vars(made).update(attributes)
    if kept is not None:
        made._continue_with(case_of(settings), kept)
    return made


def _move_to_host(kept: Any) -> Any:
    """Return the state that a solver has kept, with all arrays on the host."""
    if isinstance(kept, dict):
        return {name: _move_to_host(value) for name, value in kept.items()}
    if isinstance(kept, list):
        return list(map(_move_to_host, kept))
    return host_values(kept) if hasattr(kept, "__cuda_array_interface__") else kept


def asks_for_output(output: Mapping[str, Any] | None) -> bool:
    """Return whether settings of output ask for any, and do not only leave some out."""
    return any((output or {}).values())


def console_for(progress: bool | None) -> Console:
    """Return the console of a simulation, by default one that prints only in a terminal."""
    from rich.console import Console

    from slipstream.show.console import make_console

    if progress is False:
        return Console(quiet=True)
    console = make_console()
    is_seen = console.is_terminal or console.is_jupyter
    return console if progress or is_seen else Console(quiet=True)


def _check_latest(folder: Path, step: int) -> None:
    """Make a folder for states, and refuse one that has a state of a later step.

    A restart would begin from the later state, and the oldest states are removed.
    """
    from slipstream.files.checkpoint import CHECKPOINTS_NAME, generations

    checkpoints = folder / CHECKPOINTS_NAME
    checkpoints.mkdir(parents=True, exist_ok=True)
    for path in generations(checkpoints)[:1]:
        if int(path.stem.partition("-")[0]) > step:
            raise InputError(
                f"checkpoint: {folder} has a state of a later step, {path.name}, than this one of"
                f" step {step}; accepted: another folder"
            )


class Fields(NamedViews[FieldView]):
    """The fields of a simulation, by name; each is read when it is looked at."""

    _kind = "fields"

    def __init__(self, simulation: InteractiveSimulation) -> None:
        self._simulation = simulation

    def _names(self) -> list[str]:
        return list(self._simulation._field_shapes())

    def _view(self, name: str) -> FieldView:
        return self._simulation._view(name)

    def __getitem__(self, name: str) -> FieldView:
        if not isinstance(name, str):
            raise UnknownName(f"fields: {shown(name)} is no name; there are: {', '.join(self)}")
        return self._view(name)  # which may be derived from the listed fields

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self._simulation._view(name) is not None
        except InputError:
            return False

    def __setitem__(self, name: str, values: Any) -> None:
        # A name that one rank alone gives wrongly is refused on all.
        with together(self._simulation.comm, "fields[...] = ..."):
            self[name][...] = values

    def _repr_html_(self) -> str:
        return html_table("fields", ((name, view.long_name) for name, view in self.items()))
