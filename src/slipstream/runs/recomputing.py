"""Steps of a run, computed again from its folder: for states not stored, and to verify it."""

from __future__ import annotations

import contextlib
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from slipstream import __version__
from slipstream.case import SOLVERS, Case
from slipstream.case.case_loading import parse_case_of_run
from slipstream.case.toml_text import toml_value
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_all_ranks, on_first_rank, own, together
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.processes import Interruption
from slipstream.engine.text import STEPPING, counted, duration
from slipstream.files.checkpoint import CHECKPOINTS_NAME
from slipstream.files.run_folder import CASE_NAME, STEPS_NAME, RunFolder, Segment, table_differences
from slipstream.runs.run_recorder import compiler_name, hosts_and_devices, mpi_library
from slipstream.runs.simulation_base import Simulation, make_simulation
from slipstream.runs.time_loop import check_finite
from slipstream.show.console import PartVerdict

# Tables whose keys change no bits of a state, but for the sizes of steps, which are recorded.
_AROUND = ("title", "time", "run", "output", "initial")
# Tables whose keys `Simulation.change` accepts.
_CHANGEABLE = ("equation", "scalars", "forcing", "flow", "convergence")
# Keys of these that change a state of the run as it is read.
_CONVERTING = ("equation.model", "scalars", "scalars.name")
# Times that are the same but for rounding, in steps.
_SAME = 1e-9
# By how much diagnostics may differ for rounding alone, as a share of their largest value.
_ROUNDING = {"float64": 1e-9}
# The same for all other precisions.
_ROUNDING_OF_OTHERS = 1e-4
# The factor by which differences may grow from one row to the next, as they do in turbulence.
_GROWTH = 1e3
# Differences from which on flows are different ones with the same statistics.
_LOST = 1e-3


@dataclass(frozen=True)
class StepTable:
    """The steps of a run, from ``steps.csv``: a row for some of one size."""

    step: np.ndarray
    time: np.ndarray
    size: np.ndarray
    digest: np.ndarray
    is_set: np.ndarray

    @classmethod
    def of_folder(cls, folder: RunFolder) -> StepTable:
        """Read it; an `InputError` tells if there is none."""
        columns, _ = folder.series(STEPS_NAME)
        try:
            names = ("step", "time", "step_size", "digest", "set")
            table = cls(*(columns[name] for name in names))
        except KeyError:
            table = None
        if table is None or not len(table.step):
            raise InputError(
                f"{folder.path}: has no {STEPS_NAME}, which earlier versions did not write; without"
                " the steps of the run, a state that was not stored cannot be computed again"
            )
        if not (np.diff(table.step) > 0).all() or not (np.diff(table.time) > 0).all():
            raise InputError(f"{folder.path / STEPS_NAME}: its steps are not in order")
        return table

    @property
    def digests(self) -> dict[int, int]:
        """The recorded digests, by step."""
        known = np.isfinite(self.digest)
        return dict(zip(self.step[known].tolist(), self.digest[known].astype(int), strict=True))

    def size_after(self, step: int) -> float:
        """Return the size of the step after this one."""
        return float(self.size[np.searchsorted(self.step, step, side="right")])

    def step_at(self, time: float, at_once: int) -> tuple[int, float]:
        """Return the last step at or before a time, and what remains until then, in steps."""
        row = int(np.searchsorted(self.time, time - 1e-12 * abs(time)))
        if row < len(self.time) and abs(self.time[row] - time) <= _SAME * abs(self._spacing(row)):
            return int(self.step[row]), 0.0
        if row == 0 or row == len(self.time):
            raise InputError(
                f"time is {time:.12g}; accepted: {self.time[0]:.12g} to {self.time[-1]:.12g}, of"
                " which the steps are recorded"
            )
        steps = (time - float(self.time[row - 1])) / self._spacing(row)
        whole = math.floor(steps + _SAME)
        return int(self.step[row - 1]) + whole * at_once, max(0.0, steps - whole)

    def _spacing(self, row: int) -> float:
        size = float(self.size[row])
        if math.isfinite(size):
            return size
        return float(self.time[row] - self.time[row - 1]) if row else math.ulp(self.time[row])

    def obstacle(self, start: int, end: int) -> str:
        """Return why steps between two cannot be taken again; empty if they can."""
        before = self.step[:-1]
        within = (before < end) & (self.step[1:] > start)
        gaps = np.flatnonzero(within & np.isnan(self.size[1:]))
        if len(gaps):
            low, high = before[gaps[0]], self.step[gaps[0] + 1]
            return f"the steps from {low} to {high} are not recorded"
        given = np.flatnonzero((before >= start) & (before < end) & (self.is_set[1:] > 0))
        if len(given):
            return f"a program set fields at step {before[given[0]]}"
        return ""


@dataclass(frozen=True)
class Origin:
    """From where a state is computed again: a state in the folder, or the initial one."""

    step: int
    time: float
    path: Path | None
    case: str
    # Whether the run continued from it with other numbers, such as those of more points.
    is_converted: bool = False

    def text(self) -> str:
        """Return it for people."""
        name = "the initial state" if self.path is None else f"state {self.path.name}"
        return f"{name}, step {self.step}, t = {self.time:.6g}"


@dataclass(frozen=True)
class Comparison:
    """Whether a state has its recorded digest: its step, and the step of the digest before."""

    before: int
    step: int
    is_same: bool


@dataclass(frozen=True)
class Recomputation:
    """The plan that computes an earlier state of a run again.

    Attributes
    ----------
    folder : pathlib.Path
        The folder of the run.
    origin : Origin
        From where: `origin.step`, `origin.time`, and `origin.path`, None for the initial state.
    step : int
        The last whole step.
    time : float or None
        The time to reach from there by a shorter step; None if the step ends there.
    steps : int
        Number of steps to take.
    seconds : float
        About how long they take, if as long as in the run; not-a-number if that is not known.
    """

    folder: Path
    origin: Origin
    step: int
    time: float | None
    steps: int
    seconds: float
    table: StepTable = field(repr=False)
    changes: tuple[tuple[int, Mapping[str, Any]], ...] = field(default=(), repr=False)

    @property
    def digests(self) -> dict[int, int]:
        """The recorded digests to compare with, by step."""
        digests = self.table.digests
        if self.origin.is_converted:
            digests.pop(self.origin.step, None)
        return digests

    def text(self) -> str:
        """Return the steps and seconds of the computation, for people."""
        about = "" if math.isnan(self.seconds) else f": about {duration(self.seconds)}"
        how = ", by the record of the run" if about else ""
        return f"{counted(self.steps, 'step')} from {self.origin.text()}{about}{how}"

    def overrides(self) -> list[str]:
        """Return the changes to the case of the origin, each ``section.key=value``."""
        if self.origin.path is None:
            return []
        return [f"initial.restart={toml_value(str(self.origin.path))}"]

    def case(self, settings: tuple[str, ...] = ()) -> Case:
        """Return the case of the origin; no Python file is imported but one of the settings."""
        source = str(self.folder / CASE_NAME)
        return parse_case_of_run(self.origin.case, [*self.overrides(), *settings], source)

    def walk(self, simulation: Simulation) -> Iterator[None]:
        """Advance a simulation that is prepared at the origin; stop after every step, and at first.

        Collective.
        """
        if (simulation.step, simulation.time) != (self.origin.step, self.origin.time):
            raise RunError(
                f"{self.folder}: its {self.origin.text()} was read as step {simulation.step},"
                f" t = {simulation.time:.6g}"
            )
        waiting = list(self.changes)
        simulation.is_timed = False
        yield
        while simulation.step < self.step:
            while waiting and waiting[0][0] <= simulation.step:
                simulation.change(waiting.pop(0)[1], str(self.folder / CASE_NAME))
            # As in the run: it limits how much a GPU has to do.
            check_finite("the state", simulation.step_size(), simulation)
            simulation.advance(self.table.size_after(simulation.step))
            yield
        if self.time is not None:
            simulation.advance(self.time - simulation.time)
        simulation.complete_steps()
        simulation.synchronize()

    def compared(
        self, simulation: Simulation, is_wanted: Callable[[], bool] = lambda: True
    ) -> Iterator[Comparison | None]:
        """Take the steps as `walk` does; give what each recorded digest says of the state there.

        None where there is no digest, or it is not wanted. Collective.
        """
        recorded, before = self.digests, self.origin.step
        for _ in self.walk(simulation):
            step, comparison = simulation.step, None
            if step in recorded and is_wanted():
                comparison = Comparison(before, step, simulation.digest() == recorded[step])
                before = step
            yield comparison


def recomputation(
    folder: RunFolder,
    *,
    time: float | None = None,
    step: int | None = None,
) -> Recomputation:
    """Return the plan that computes a state of a run again, by time or step; only reads.

    Parameters
    ----------
    folder : RunFolder
        The folder of the run, which may be under way.
    time, step : float, int
        One of them. A time between two steps is reached by a shorter step.

    Raises
    ------
    InputError
        If the run has not had that state, or the folder lacks something that it takes.
    """
    history = History(folder)
    table, remaining = history.table, 0.0
    if step is None:
        assert time is not None
        step, remaining = table.step_at(time, history.steps_at_once)
    elif not table.step[0] <= step <= table.step[-1]:
        raise InputError(
            f"step is {step}; accepted: {table.step[0]} to {table.step[-1]}, which are recorded"
        )
    elif (step - int(table.step[0])) % history.steps_at_once:
        raise InputError(
            f"step is {step}; accepted: every {history.steps_at_once}nd from the first"
        )
    if remaining and not history.shortens_steps:
        size = table.size_after(step)
        raise InputError(
            f"time is {time:.12g}, between two steps, which cannot be shortened; accepted:"
            f" multiples of {size:.12g}, or step={step}"
        )
    return history.plan(step, time if remaining else None)


class History:
    """The steps, settings and states of a run, by its folder."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.table = StepTable.of_folder(folder)
        # The segments whose steps have not been taken again by a later one, and where they begin.
        self.segments: list[Segment] = []
        for segment in folder.record().segments:
            while self.segments and self.segments[-1].from_step >= segment.from_step:
                self.segments.pop()
            self.segments.append(segment)
        if not self.segments:
            raise InputError(f"{folder.path}: its record of the run has no segments")
        solver = _tables(self.segments[0].case).get("solver")
        # An unknown solver is refused when its case is read.
        case = SOLVERS[solver] if isinstance(solver, str) and solver in SOLVERS else Case
        self.steps_at_once, self.shortens_steps = case.steps_at_once, case.shortens_steps

    @property
    def origins(self) -> list[Origin]:
        """From where states can be computed, the earliest first."""
        first, origins = self.segments[0], []
        begins = {segment.from_step: segment.case for segment in self.segments}
        if first.from_step == self.table.step[0] and not self.table.is_set[0] > 0:
            origins.append(Origin(first.from_step, first.from_time, None, first.case))
        for path, said in self._folder.manifests():
            state_path = self._folder.path / CHECKPOINTS_NAME / path.name
            case = begins.get(said.step, said.case)
            is_converted = any(
                map(
                    _is_converted_by,
                    _changed_keys(_flatten_tables(said.case), _flatten_tables(case)),
                )
            )
            origins.append(Origin(said.step, said.time, state_path, case, is_converted))
        return sorted(origins, key=lambda origin: (origin.step, origin.path is not None))

    def plan(
        self, step: int, time: float | None = None, wanted: Origin | None = None
    ) -> Recomputation:
        """Return the plan that computes the state after a step, or at a time after it.

        It begins at the nearest origin that leads there, or at the requested one.
        """
        end = step + (time is not None)
        origin, changes = self._way_to(step, end, wanted)
        steps, seconds = end - origin.step, self.seconds(origin.step, end)
        return Recomputation(
            self._folder.path, origin, step, time, steps, seconds, self.table, changes
        )

    def _way_to(
        self, step: int, end: int, wanted: Origin | None
    ) -> tuple[Origin, tuple[tuple[int, Mapping[str, Any]], ...]]:
        """Return the nearest origin that leads to a step, and the changes of settings after it.

        Steps are taken up to the `end`, which may be the next one.
        """
        reasons = []
        candidates = self.origins if wanted is None else [wanted]
        for origin in reversed([one for one in candidates if one.step <= step]):
            reason = self.table.obstacle(origin.step, end) or self._inexact(origin, end)
            changes, problem = self._changes(origin, end)
            if not (reason or problem):
                return origin, changes
            reasons.append(f"from {origin.text()}: {reason or problem}")
        if not reasons and self.table.is_set[0] > 0:
            reasons.append("its fields were set by a program at the start, and no state is before")
        why = "; ".join(reasons[:2]) or "no state before it is left"
        raise InputError(
            f"{self._folder.path}: step {step} cannot be computed again: {why}; more states:"
            " output.checkpoint_interval and output.keep_checkpoints"
        )

    def _inexact(self, origin: Origin, end: int) -> str:
        """Return why a run that continues from an origin differs from one that never stopped."""
        convergence = _tables(origin.case).get("convergence")
        if not isinstance(convergence, dict):
            return ""
        if not (convergence.get("vectors") and convergence.get("tolerance")):
            return ""
        begins = [one.from_step for one in self.segments]
        if origin.step not in begins or any(origin.step < one < end for one in begins):
            return "a flow that is extrapolated continues with other bits (convergence.vectors)"
        return ""

    def _changes(
        self, origin: Origin, end: int
    ) -> tuple[tuple[tuple[int, Mapping[str, Any]], ...], str]:
        """Return the changes of settings after an origin, or what cannot be changed."""
        changes: list[tuple[int, dict[str, Any]]] = []
        now = _flatten_tables(origin.case)
        for number, segment in enumerate(self.segments):
            until = [later.from_step for later in self.segments[number + 1 :]][:1] or [end]
            if until[0] <= origin.step:
                continue
            if origin.step < segment.from_step < end:
                changes.append(
                    (segment.from_step, _changed_keys(now, _flatten_tables(segment.case)))
                )
                now = _flatten_tables(segment.case)
            for change in segment.changes:
                is_after = origin.step <= change.step < min(end, until[0])
                if is_after and now.get(change.key) != change.after:
                    changes.append((change.step, {change.key: change.after}))
                    now[change.key] = change.after
        kept = []
        for step, keys in changes:
            here = {
                key: value for key, value in keys.items() if key.partition(".")[0] not in _AROUND
            }
            other = [key for key in here if key.partition(".")[0] not in _CHANGEABLE]
            if other:
                return (), f"the run continued with another {other[0]} at step {step}"
            if here:
                kept.append((step, here))
        return tuple(kept), ""

    def seconds(self, start: int, end: int) -> float:
        """Return the seconds that the run took for these steps; not-a-number if not known."""
        total = 0.0
        ends = [one.from_step for one in self.segments[1:]] + [max(end, self.segments[-1].to_step)]
        for segment, until in zip(self.segments, ends, strict=True):
            steps = min(end, until) - max(start, segment.from_step)
            if steps <= 0:
                continue
            done, took = segment.to_step - segment.from_step, segment.parts.get(STEPPING, math.nan)
            total += steps * (took / done if done > 0 else math.nan)
        return total

    def segment_at(self, step: int) -> Segment:
        """Return the segment that took this step."""
        before = [one for one in self.segments if one.from_step < step]
        return before[-1] if before else self.segments[0]


def _tables(text: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        return tomllib.loads(text)
    return {}


def _flatten_tables(text: str) -> dict[str, Any]:
    """Return the keys of a case and their values."""
    return {key: values[1] for key, values in table_differences({}, _tables(text)).items()}


def _changed_keys(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    keys = dict.fromkeys([*before, *now])
    return {key: now.get(key) for key in keys if before.get(key) != now.get(key)}


def _is_converted_by(key: str) -> bool:
    """Return whether a state has other numbers if it is read with another value of a key."""
    return key in _CONVERTING or key.partition(".")[0] not in (*_AROUND, *_CHANGEABLE)


def compare_digests(
    plan: Recomputation, simulation: Simulation, after_step: Callable[[], None] = lambda: None
) -> str:
    """Take the steps of a recomputation; return where it deviates from the record. Collective.

    What is returned is for people, and empty if all digests on the way are those of the run.
    """
    text = ""
    for comparison in plan.compared(simulation):
        if comparison is not None and not comparison.is_same and not text:
            text = f"{plan.origin.text()}: is not as the run had it, by its digest"
            if comparison.step > plan.origin.step:
                text = "the digest deviates from the record of the run between steps"
                text += f" {comparison.before} and {comparison.step}"
        after_step()
    return text


def recomputed(
    folder: Path, time: float, tell: Callable[[str], None] = lambda text: None
) -> Simulation:
    """Return a simulation, on one rank, of a run in the state of a time; only reads.

    `tell` gets what it takes before it begins, and where it deviates from the record of the run.
    """
    plan = recomputation(RunFolder(folder), time=time)
    tell(f"computes {plan.text()}")
    simulation = make_simulation(plan.case())
    simulation.prepare()
    deviation = compare_digests(plan, simulation)
    if deviation:
        tell(f"warning: {deviation}")
    return simulation


@dataclass(frozen=True)
class _Part:
    """A part of the run to repeat; or why that cannot be."""

    origin: Origin
    end: int
    plan: Recomputation | None
    segments: tuple[Segment, ...]
    problem: str = ""


def verify_run(
    folder: Path,
    since: float | None = None,
    until: float | None = None,
    comm: Comm = None,
    device: str = "auto",
    settings: Sequence[str] = (),
    tell: Callable[[str], None] = lambda text: None,
) -> list[PartVerdict]:
    """Repeat parts of a run and compare them with its record. Collective; only reads.

    Parameters
    ----------
    folder : pathlib.Path
        The folder of the run, which may be under way.
    since, until : float, optional
        Between which times: from the last state at or before `since` (default: the first that is
        left before the last digest, else the initial state) to the last digest until then
        (default: of all).
    comm : mpi4py.MPI.Comm, optional
        The ranks that share the work.
    device : str
        The device that computes.
    settings : sequence of str
        Changes to the case, each ``section.key=value``, such as ``run.transport``.
    tell : callable, optional
        Gets a line before each part, on the first rank.

    Raises
    ------
    InputError
        If there is no digest to compare with.
    """
    comm = own(comm, "verify")
    rank = 0 if comm is None else comm.rank
    with together(comm):

        def read() -> tuple[list[_Part], dict[str, np.ndarray]]:
            run = RunFolder(folder)
            run.check_is_a_run()
            return _parts(run, since, until), run.series()[0]

        parts, series = on_first_rank(comm, read)
        verdicts = []
        for part in parts:
            if part.plan is not None and rank == 0:
                tell(f"repeats {part.plan.text()}")
            verdicts.append(_verdict(part, series, comm, device, settings))
    return verdicts


def _parts(folder: RunFolder, since: float | None, until: float | None) -> list[_Part]:
    history = History(folder)
    table, digests = history.table, sorted(history.table.digests)
    if not digests:
        raise InputError(f"{folder.path}: has no digests; use output.digest_steps in the run")
    begin, end = float(table.time[0]), float(table.time[-1])
    first = None
    if since is not None:
        first = table.step_at(max(since, begin), history.steps_at_once)[0]
    last = digests[-1]
    if until is not None:
        asked = table.step_at(min(until, end), history.steps_at_once)[0]
        last = max((step for step in digests if step <= asked), default=digests[0])
    origins = {origin.step: origin for origin in history.origins if origin.step <= last}
    if first is None:
        states = [
            step for step, origin in origins.items() if origin.path is not None and step < last
        ]
        first = min(states, default=min(origins, default=0))
    begins = max((step for step in origins if step <= first), default=None)
    if begins is None:
        raise InputError(
            f"{folder.path}: no state before step {first} is left; use a later time, or"
            " output.keep_checkpoints in the run"
        )
    chosen = [origins[step] for step in sorted(origins) if step >= begins]
    ends = [*(origin.step for origin in chosen[1:]), last]
    return [_part(history, *pair) for pair in zip(chosen, ends, strict=True)]


def _part(history: History, origin: Origin, end: int) -> _Part:
    within = [
        one
        for number, one in enumerate(history.segments)
        if one.from_step < end
        and [*(later.from_step for later in history.segments[number + 1 :]), math.inf][0]
        > origin.step
    ]
    segments = tuple(within) or (history.segment_at(origin.step),)
    try:
        plan = history.plan(end, wanted=origin)
    except InputError as error:
        return _Part(origin, end, None, segments, error.text().partition("again: ")[2])
    return _Part(origin, end, plan, segments)


def _verdict(
    part: _Part,
    series: Mapping[str, np.ndarray],
    comm: Comm,
    device: str,
    settings: Sequence[str],
) -> PartVerdict:
    """Repeat a part. Collective."""
    verdict = PartVerdict(part.origin.text(), part.origin.step, part.end)
    if part.plan is None:
        return replace(verdict, problem=part.problem)
    simulation = make_simulation(part.plan.case(tuple(settings)), comm, device)
    simulation.prepare()
    doubt = _doubt(simulation, part)
    rows = _Rows(series, simulation) if doubt else None
    compared = 0
    with Interruption(simulation.comm) as interruption:
        walk = part.plan.compared(simulation, lambda: rows is None or not rows.is_needed)
        for digest in walk:
            if interruption.requested()[0]:
                raise on_all_ranks(KeyboardInterrupt(f"at step {simulation.step}"))
            compared += digest is not None
            if digest is not None and not digest.is_same:
                if rows is None:
                    return replace(
                        verdict,
                        digests=compared,
                        deviates=(digest.before, digest.step),
                        other_software=_other_software(part.segments),
                    )
                rows.is_needed = True
            if rows is not None and rows.deviates():
                low, high = rows.last, simulation.step
                return replace(
                    verdict, doubt=doubt, digests=compared, deviates=(low, high), **rows.found()
                )
            if rows is not None and rows.is_lost:
                break
    if rows is not None and rows.is_needed:
        return replace(verdict, doubt=doubt, digests=compared, **rows.found())
    return replace(verdict, digests=compared)


class _Rows:
    """Compares diagnostics with rows of the series."""

    def __init__(self, series: Mapping[str, np.ndarray], simulation: Simulation) -> None:
        self._simulation, self._series = simulation, series
        self._names = [name for name in series if name.endswith(simulation.lasting)]
        steps = series.get("step", np.zeros(0, int))
        self._places = {int(step): place for place, step in enumerate(steps)}
        precision = simulation.case.numerics.precision  # type: ignore[attr-defined]
        self._most = _ROUNDING.get(precision, _ROUNDING_OF_OTHERS)
        self.last, self.is_needed, self.is_lost = simulation.step, False, False
        self._rows, self._largest = 0, 0.0

    def deviates(self) -> bool:
        """Return whether the present state does, if there is a row of it. Collective."""
        simulation = self._simulation
        row = self._places.get(simulation.step)
        if row is None or not self._names:
            return False
        now, largest = simulation.diagnostics(), 0.0
        for name in self._names:
            column = self._series[name]
            scale = float(np.nanmax(np.abs(column), initial=0.0))
            if name in now and scale and math.isfinite(column[row]):
                difference = abs(now[name] - float(column[row])) / scale
                largest = max(largest, difference if math.isfinite(difference) else math.inf)
        self._rows, self._largest = self._rows + 1, max(self._largest, largest)
        if largest > self._most:
            return True
        self.last = simulation.step
        self._most = max(self._most, _GROWTH * largest)
        self.is_lost = self._most > _LOST
        return False

    def found(self) -> dict[str, Any]:
        return {"rows": self._rows, "difference": self._largest, "is_lost": self.is_lost}


def _doubt(simulation: Simulation, part: _Part) -> str:
    """Return why the bits need not be those of the record; empty if they must. Collective."""
    _, devices = hosts_and_devices(simulation)
    here = sorted({_processor(one) for one in devices})
    for segment in part.segments:
        there = sorted({_processor(one) for one in segment.devices})
        if there != here:
            return f"computed on {', '.join(there) or 'an unknown device'}"
        if segment.version != __version__:
            return f"computed by Slipstream {segment.version or '?'}"
        if segment.ranks != simulation.ranks and simulation.rank_dependence:
            ranks = f"computed on {segment.ranks} rank{'s' * (segment.ranks != 1)}"
            return f"{ranks}, and {simulation.rank_dependence}"
    return ""


def _processor(device: str) -> str:
    """Return the name of a device without its number of threads."""
    name, _, threads = device.rpartition(", ")
    return name if threads.endswith(("thread", "threads")) else device


def _other_software(segments: Sequence[Segment]) -> tuple[str, ...]:
    """Return the changes of software that may have changed the bits, without a defect."""
    differences: dict[str, None] = {}
    for segment in segments:
        for name, there, here in (
            ("compiler", segment.compiler, compiler_name()),
            ("MPI", segment.mpi, mpi_library() if segment.mpi else ""),
        ):
            if there != here:
                differences[f"{name}: {there} then, {here or 'none'} now"] = None
    return tuple(differences)
