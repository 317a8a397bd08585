"""The interface of a solver to a run: `Simulation`, from which each family derives its class."""

from __future__ import annotations

import contextlib
import importlib
import time as clock
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from slipstream.case import Case, changed_case
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import sum_over_ranks, together
from slipstream.engine.device import Device
from slipstream.engine.device.array_kernels import folded
from slipstream.engine.device_memory import check_memory
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.exchange import open_matching_device
from slipstream.engine.fields import (
    Fact,
    Field,
    Layout,
    PictureChoice,
    PilotFindings,
    PointDensity,
    PointValues,
)
from slipstream.engine.schedule import Timeline
from slipstream.engine.stop_signals import signals_held

if TYPE_CHECKING:
    from slipstream.files.checkpoint import Checkpoint
    from slipstream.files.run_folder import Change

# One step in this many is timed node by node, at first; all others run without any probe. Probes
# keep the work of a step from overlapping as it would, so that many would slow down a run.
_INTERVAL_AT_FIRST = 8
# Steps that count as the first.
_FIRST_STEPS = 32
# The interval after the first steps.
_INTERVAL = 128
# Module and class of each solver.
SIMULATIONS = {
    "spectral": ("slipstream.spectral.spectral_simulation", "SpectralSimulation"),
    "advection": ("slipstream.advection.advection_simulation", "AdvectionSimulation"),
    "lattice": ("slipstream.lattice.lattice_simulation", "LatticeSimulation"),
}


@dataclass(frozen=True)
class StepRun:
    """Steps of one size, one after the other.

    Attributes
    ----------
    step, time : int, float
        To which the last of them led.
    size : float
        The size of each.
    is_set : bool
        Whether a program had set fields before the first of them.
    """

    step: int
    time: float
    size: float
    is_set: bool


class StepLog:
    """Notes the steps of a simulation while somebody writes them down.

    `sets` is always how often a program has set fields, a step and a time are those reached.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._runs: list[StepRun] = []
        self._size: float | None = None
        self._is_set = False
        self._sets = 0
        # The last step of the runs that are complete.
        self._last = -1

    @property
    def waiting(self) -> int:
        """Number of complete runs that have not been taken."""
        return len(self._runs)

    def begin(self, step: int, sets: int, goes_on: bool) -> bool:
        """Start noting; return whether the record has a gap before this step.

        If it `goes_on`, the last step of the record is this one, unless this object knows better.
        """
        has_gap = goes_on and self._last not in (-1, step)
        self.is_on, self._runs, self._size = True, [], None
        if not goes_on or self._last == -1:
            self._sets = sets
        self._last = step
        return has_gap

    def is_set_after_steps(self, sets: int) -> bool:
        """Return whether a program has set fields after the last step."""
        return sets != self._sets

    def pause(self) -> None:
        """Note nothing until `begin`."""
        self.is_on = False

    def note(self, step: int, time: float, size: float, sets: int) -> None:
        """Note, while this is on, that a step of this size begins."""
        if size == self._size and sets == self._sets:
            return
        self._close(step, time)
        self._size, self._is_set, self._sets = size, sets != self._sets, sets

    def take(self) -> list[StepRun]:
        """Return the complete runs, once."""
        taken, self._runs = self._runs, []
        return taken

    def take_until(self, step: int, time: float) -> list[StepRun]:
        """Return all runs up to the present, once; steps of the same size begin another run."""
        self._close(step, time)
        return self.take()

    def _close(self, step: int, time: float) -> None:
        if self._size is not None and step > self._last:
            self._runs.append(StepRun(step, time, self._size, self._is_set))
            self._is_set, self._last = False, step


class Simulation(ABC):
    """A simulation of a case between two time steps.

    Attributes
    ----------
    case : Case
        The settings.
    comm : mpi4py.MPI.Comm or None
        The ranks that share the work; None for a serial run.
    rank, ranks : int
        This one, and how many there are.
    device : Device
        The device that has this rank's fields.
    step : int
        Number of time steps done, those before a restart included.
    time : float
        Time reached (non-dimensional).
    finished : str
        Why the run is over although its end time has not come, for people, such as that a steady
        state has been reached; empty as long as it is not. The same on all ranks.
    transport : str
        Name of what carries blocks between ranks; "none" if there is one rank.
    schedule : str
        Policy or strategy by which the nodes of a step are ordered.
    is_prepared : bool
        Whether it has an initial state, from which it can be advanced.
    resumed : Checkpoint or None
        The state from which its run continues, in its folder: instead of what the case says of the
        initial state.
    changes : list of Change
        Settings that have been changed since the initial state.
    restored : Checkpoint or None
        The state from which it began, if it did not begin again.
    is_timed : bool
        Whether some steps are timed node by node, for `timers`.
    timer : StepTimer
        The timings of these steps.
    courant : float or None
        The Courant number of the last step whose size was looked at, the same on all ranks, where
        steps are of one size; None where it is given, or does not say how large they may be.
    needs_earlier : frozenset of str
        Diagnostics that compare the state with an earlier one: not-a-number at first.
    """

    # The part that one timing covers, for the title of its picture.
    timed = "one time step"
    # Whether steps can be shorter than `step_size`, to hit the end of the run and times of output.
    shortens_steps = True
    courant: float | None = None
    needs_earlier: frozenset[str] = frozenset()
    # Diagnostics, by the ends of their names, that rounding changes by no more than rounding.
    lasting: tuple[str, ...] = ()

    @property
    def rank_dependence(self) -> str:
        """Why the bits of the state depend on the number of ranks; empty if they do not."""
        return ""

    @property
    def output_is_copied(self) -> bool:
        """Whether later steps leave alone the memory of what `fields` and `checkpoint` yield."""
        return False

    rank: int
    ranks: int
    transport: str
    schedule: str
    is_prepared: bool

    def __init__(self, case: Case, comm: Comm = None, device: str | Device = "auto") -> None:
        self.case, self.comm = case, comm
        self.rank, self.ranks = (0, 1) if comm is None else (comm.rank, comm.size)
        if isinstance(device, str):
            device = case.run.device if device == "auto" else device
        self.device = open_matching_device(device, comm)
        self._is_allocated = self.is_prepared = False
        self.is_timed = True
        self.resumed: Checkpoint | None = None
        # The check by `TimeLoop` of steps of one size, while it runs.
        self.check_step: Callable[[], Callable[[float], None] | None] = lambda: None
        self.restored: Checkpoint | None = None
        # Number of times that fields or settings have been set: an earlier step may not suit them.
        self.times_set = 0
        self._times_settings_changed = 0
        # The sizes of steps, for the recorder.
        self.step_log = StepLog()
        # Whether what looks on between two steps wants the run to end there.
        self.is_to_stop = False
        # Whether an interrupt has ended a step before its end.
        self._is_cut_short = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.step, self.time, self.finished = 0, 0.0, ""
        self.restored = None
        self._warnings: list[str] = []
        self.changes: list[Change] = []
        self.timer = StepTimer(eager=self.case.run.timeline)

    # -- before the run ----------------------------------------------------------------------

    def facts(self) -> dict[str, Fact]:
        """Return the facts of problem, method, devices and memory. Collective.

        Allocates no field; once prepared, what depends on that is known too. A family adds its own
        facts to these.
        """
        return {
            **self._device_facts(),
            "ranks": Fact(self.ranks),
            "transport": Fact(self.transport),
        }

    def _device_facts(self) -> dict[str, Fact]:
        """Return the devices that compute, and the memory needed there. Collective."""
        needs = self.memory()
        return {
            "device": Fact([device.name for device, _ in needs]),
            "memory per device": Fact(
                [need for _, need in needs],
                "bytes",
                free=[device.memory_free() for device, _ in needs],
            ),
        }

    def check_size(self) -> None:
        """Refuse a problem far too large for this machine, before anything is read. Collective."""
        return

    @abstractmethod
    def memory(self) -> list[tuple[Device, int]]:
        """Return this rank's devices, and the bytes that all ranks on one need there. Collective.

        Data that waits to be written is included, if the device is the host.
        """

    def _check_memory(self) -> None:
        """Refuse, on all ranks, a run that exceeds the free memory of some device."""
        case: Any = self.case  # each family has its own table of numerics
        check_memory(self.comm, self.memory(), precision=case.numerics.precision)

    def prepare(self) -> None:
        """Allocate all fields, and set the initial state, or an earlier run's. Collective.

        Called again, it starts the simulation over.

        Raises
        ------
        InputError
            If memory does not suffice, which is found out before allocating, or there is no state
            to continue from, or it does not suit the case.
        """
        with together(self.comm, holds=False):
            if not self._is_allocated:
                self._allocate()
                self._is_allocated = True
            self._begin_anew()
            self._initialise()
            self.is_prepared = True

    @abstractmethod
    def _allocate(self) -> None:
        """Allocate everything that the run needs, if memory suffices. Collective."""

    @abstractmethod
    def _initialise(self) -> None:
        """Set the initial state, or the state of the run to continue from. Collective."""

    @property
    def restart(self) -> str | None:
        """The folder of the run, this one or another, from whose state it continues."""
        if self.resumed is not None:
            return str(self.resumed.path.parent.parent)
        return getattr(getattr(self.case, "initial", None), "restart", None)

    def recall(self, diagnostics: Mapping[str, float]) -> None:
        """Take over what new diagnostics need of those before, with their time, of the same run."""
        return

    # -- stepping ----------------------------------------------------------------------------

    @abstractmethod
    def step_size(self) -> float:
        """Return the size of the next time step (non-dimensional). Collective.

        Fixed, or from the Courant number; not shortened to hit the end of the run. Not-a-number
        if the state has blown up, which is looked at when steps have been waited for: all that
        choose the next step, but only some that are of one size, so that a GPU has always work.
        """

    def is_finite(self) -> bool:
        """Return whether the state is one of finite numbers, if steps find that out. Collective.

        That is known without another look at the state, after the last step too.
        """
        return True

    def advance(self, step_size: float) -> None:
        """Do one time step, or a few that only go together. Collective.

        The size (non-dimensional) is `step_size`, or less where the run would otherwise
        pass its end; a simulation whose steps cannot be shortened does a whole one, so that the
        run ends with the first step that reaches its end. `step` counts those done.
        """
        with signals_held:
            self.check_whole()
            if self.step_log.is_on:
                self.step_log.note(self.step, self.time, step_size, self.times_fields_set)
            try:
                timeline = self._advance(step_size, self.is_timed and self.timer.wants_next())
            except Exception:
                raise
            except BaseException:
                self._is_cut_short = True
                raise
            if timeline is not None:
                self.timer.add(timeline, self._busy_seconds(timeline))

    def check_whole(self) -> None:
        """Refuse a state that is half a step."""
        if self._is_cut_short:
            raise RunError(
                "a second interrupt has cut a time step short, and the fields are lost; make the"
                " simulation again, or restart it from a checkpoint"
            )

    def change(self, settings: Mapping[str, Any], source: str = "change") -> None:
        """Continue with other settings from the next step on. Collective.

        Parameters
        ----------
        settings : mapping
            New values by the key of the case, ``section.key``.
        source : str
            Their source, for messages.

        Raises
        ------
        InputError
            If a value is not accepted, or cannot be changed any more; all is as it was then.
        RunError
            If the flow has blown up.
        """
        from slipstream.files.run_folder import Change, differences

        with together(self.comm):
            before, now = self.case, changed_case(self.case, settings, source)
            changed = differences(before, now)
            if not changed:
                return
            check_step = self.check_step()
            if now.fixed_step not in (None, before.fixed_step) and check_step is not None:
                check_step(now.fixed_step)
            self.synchronize()
            if not self.is_finite():
                # The code below measures again, and would not detect it.
                raise RunError(
                    f"the flow has blown up at step {self.step}, t = {self.time:.6g}: its settings"
                    " cannot be changed any more"
                )
            self.case = now
            try:
                self._take_settings(before)
            except Exception:
                self.case = before
                raise
            self.changes += [
                Change(self.step, self.time, key, *values) for key, values in changed.items()
            ]
            self.note_change()
            self._times_settings_changed += 1

    def _take_settings(self, before: Case) -> None:
        """Continue with the case as it is now, or refuse and leave all as it was. Collective."""
        raise InputError("the settings of this simulation cannot be changed between steps")

    def note_change(self) -> None:
        """Note that fields or settings have been set, which may allow another step."""
        self.times_set += 1

    @property
    def times_fields_set(self) -> int:
        """Number of times that fields have been set, which a record of settings does not show."""
        return self.times_set - self._times_settings_changed

    def complete_steps(self) -> None:
        """Take steps that were put off, so that any rank can read the state. Collective."""
        return

    def synchronize(self) -> None:
        """Wait until all steps are done."""
        self.device.synchronize()

    @abstractmethod
    def _advance(self, step_size: float, profile: bool) -> Timeline | None:
        """Advance step and time; with `profile`, return what ran when in this step alone."""

    def _busy_seconds(self, timeline: Timeline) -> dict[str, float]:
        """Return a step's seconds by category, averaged over lanes that work side by side."""
        return {
            category: seconds / (1 if category == "communication" else self._lanes)
            for category, seconds in timeline.totals().items()
        }

    @property
    def _lanes(self) -> int:
        """Number of lanes that work on a step side by side."""
        return self.device.lanes

    def timers(self) -> dict[str, float]:
        """Return this rank's seconds so far by category, extrapolated from the steps timed."""
        return self.timer.seconds()

    def indicators(self) -> dict[str, Fact]:
        """Return facts between two steps that show how the run goes; costs nothing.

        "expected end" is the time at which it will end, if that is not the end of the case.
        """
        return {}

    def warn(self, texts: list[str]) -> None:
        """Add warnings, to be shown when `warnings` is asked for the next time."""
        self._warnings += texts

    def warnings(self) -> list[str]:
        """Return warnings that have not been shown yet."""
        new, self._warnings = self._warnings, []
        return new

    # -- results -----------------------------------------------------------------------------

    @abstractmethod
    def diagnostics(self) -> dict[str, float]:
        """Return named values such as energy and dissipation, the same on all ranks. Collective."""

    @abstractmethod
    def labels(self) -> dict[str, str]:
        """Return the long name, with unit, of each diagnostic and spectrum."""

    @abstractmethod
    def pictures(self) -> PictureChoice:
        """Return the diagnostics and the field that are drawn at the end."""

    def spectra(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return pairs of wavenumbers and values by name, the same on all ranks. Collective."""
        return {}

    def statistics(self, kind: str) -> Iterator[Field]:
        """Yield one kind of `STATISTICS`: small arrays, whole on every rank. Collective."""
        return iter(())

    def density(
        self, of: Sequence[Any], means: Sequence[Any], bins: Sequence[int], where: str
    ) -> PointDensity:
        """Return the maker of the density of points over values, and of conditional means.

        As `point_values`, it may be asked for before anything is allocated.
        """
        raise InputError(f"{where}: this simulation has no densities")

    def paths(self, kind: str) -> Iterator[Field]:
        """Yield the records of a kind of paths, by identity. Collective."""
        return iter(())

    @abstractmethod
    def fields(self) -> Iterator[Field]:
        """Yield the fields for people to look at, in the same order on all ranks. Collective."""

    def layout(self) -> Layout:
        """Return the layout of the points. Collective at first."""
        raise NotImplementedError

    def point_values(self, of: Any, where: str) -> PointValues:
        """Return the maker of the values of a field or of an expression at the points.

        It may be asked for before anything is allocated, but for values only after that; `where`
        is named in messages.

        Raises
        ------
        InputError
            If there is nothing of that name.
        """
        raise InputError(f"{where}: this simulation has no {of!r}")

    def checkpoint(self) -> Iterator[Field]:
        """Yield the state to continue from, in the same order on all ranks. Collective."""
        return self.fields()

    def digest(self) -> int:
        """Return a number of 53 bits that tells this state from others. Collective.

        It is made of the bits of all numbers of `checkpoint` that make up the flow, and of their
        places: the same for any ranks, storage and schedule, if the bits are.
        """
        self.complete_steps()
        return folded(int(sum_over_ranks(self.comm, self._digest_sum())[0]))

    @abstractmethod
    def _digest_sum(self) -> np.ndarray:
        """Return this rank's part of the digest, as an array of one (see `array_kernels`)."""

    def kept(self) -> dict[str, Any]:
        """Return all that continues with the same steps, to be pickled: of a single rank."""
        return {"step": self.step, "time": self.time, "changes": list(self.changes)}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Continue from what a simulation of the same case has kept, once this is prepared."""
        self.step, self.time, self.changes = kept["step"], kept["time"], list(kept["changes"])

    def findings(self, seconds: float, steps: int) -> dict[str, Fact]:
        """Return the results of the run, and its speed. Collective.

        `seconds` is the time of this run's `steps` time steps on this rank.
        """
        return {}

    def pilot_findings(self, first_step: float, target: float, seconds: float) -> PilotFindings:
        """Return findings about a run to come, beyond its cost, once it is prepared. Collective.

        `first_step` is the size of its first step, `target` the desired kmax_eta of the smallest
        eddies, and pilot runs take at most `seconds`.
        """
        return PilotFindings()

    def write_at_end(self, folder: Path) -> list[Path]:
        """Write what only this family has; return its paths on the first rank. Collective."""
        return []


class StepTimer:
    """Times some steps node by node, and extrapolates; work between nodes it times in full.

    An eager timer also times the first step, typical or not, for runs of a single step.
    """

    def __init__(self, eager: bool = False) -> None:
        self._eager = eager
        self._totals: dict[str, float] = {}
        self._measured: dict[str, float] = {}
        self._timeline = Timeline()
        self._timed = self._steps = 0

    def wants_next(self) -> bool:
        """Count a step that is about to begin; return whether to time it."""
        self._steps += 1
        interval = _INTERVAL_AT_FIRST if self._steps <= _FIRST_STEPS else _INTERVAL
        return (self._eager and not self._timed) or self._steps % interval == 2

    def add(self, timeline: Timeline, seconds: Mapping[str, float]) -> None:
        """Add a timed step: what ran when, and its seconds by category."""
        self._timed += 1
        self._timeline = timeline
        for category, one in seconds.items():
            self._totals[category] = self._totals.get(category, 0.0) + one

    @contextlib.contextmanager
    def measured(self, category: str) -> Iterator[None]:
        """Add the seconds that this takes to a category, unless no step has begun yet."""
        began = clock.perf_counter()
        yield
        if self._steps:
            seconds = clock.perf_counter() - began
            self._measured[category] = self._measured.get(category, 0.0) + seconds

    def seconds(self) -> dict[str, float]:
        """Return the seconds of all steps so far by category, extrapolated or measured."""
        factor = self._steps / self._timed if self._timed else 0.0
        found = {category: factor * seconds for category, seconds in self._totals.items()}
        return found | self._measured

    def write(self, folder: Path, title: str, rank: int) -> list[Path]:
        """Write the last step that was timed, as picture and Chrome trace; return the picture."""
        if not self._timeline.entries:
            return []
        picture = folder / "timeline.png"
        self._timeline.write_picture(picture, title)
        self._timeline.write_chrome_trace(folder / "timeline.json", rank)
        return [picture]


def make_simulation(
    case: Case,
    comm: Comm = None,
    device: str | Device | Mapping[str, Device] = "auto",
    **extras: Any,
) -> Simulation:
    """Make the simulation of a case, without allocating its fields. Collective.

    Parameters
    ----------
    case : Case
        The case to simulate, from `slipstream.case.load_case` or `slipstream.case.make_case`.
    comm : mpi4py.MPI.Comm, optional
        The ranks that share the work.
    device : {"auto", "cpu", "cuda"} or Device
        The device that computes; "auto" leaves it to the case's ``run.device``. Ranks of a node
        share its GPUs in turn. An advection by a strategy of two devices takes a mapping with "cpu"
        and "gpu".
    **extras
        Further arguments of the family's class, such as an ``image`` in memory.

    Returns
    -------
    Simulation
        Ask it for `facts` of what it would take, or `prepare` it and `advance` it.

    Raises
    ------
    InputError
        If there is no such device, or the case does not suit the devices or the ranks.
    """
    module, name = SIMULATIONS[case.solver]
    made: Simulation = getattr(importlib.import_module(module), name)(case, comm, device, **extras)
    return made
