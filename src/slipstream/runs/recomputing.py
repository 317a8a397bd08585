"""Steps of a run, computed again from its folder: for states not stored, and to verify it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from slipstream import __version__
from slipstream.case import Case
from slipstream.case.case_loading import parse_case_of_run
from slipstream.case.toml_text import toml_value
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_all_ranks, on_first_rank, own, together
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.processes import Interruption
from slipstream.engine.text import counted, duration
from slipstream.files.run_folder import RUN_RECORD_NAME, RunFolder, Segment
from slipstream.runs.run_history import Origin, RunHistory, SettingChanges, StepTable
from slipstream.runs.run_recorder import compiler_name, hosts_and_devices, mpi_library
from slipstream.runs.simulation_base import Simulation, make_simulation
from slipstream.runs.time_loop import check_finite
from slipstream.show.console import PartVerdict

# By how much diagnostics may differ for rounding alone, as a share of their largest value.
_ROUNDING = {"float64": 1e-9}
# The same for all other precisions.
_ROUNDING_OF_OTHERS = 1e-4
# The factor by which differences may grow from one row to the next, as they do in turbulence.
_GROWTH = 1e3
# Differences from which on flows are different ones with the same statistics.
_LOST = 1e-3


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
    changes: SettingChanges = field(default=(), repr=False)
    # The segments of the run that took these steps.
    segments: tuple[Segment, ...] = field(default=(), repr=False)

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
        changes = [*self.overrides(), *settings]
        return parse_case_of_run(self.origin.case, changes, self.origin.source)

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
                self._change(simulation, waiting.pop(0)[1])
            # As in the run: it limits how much a GPU has to do.
            check_finite("the state", simulation.step_size(), simulation)
            simulation.advance(self.table.size_after(simulation.step))
            yield
        if self.time is not None:
            simulation.advance(self.time - simulation.time)
        simulation.complete_steps()
        simulation.synchronize()

    def _change(self, simulation: Simulation, settings: Mapping[str, Any]) -> None:
        """Change settings as the run did."""
        try:
            simulation.change(settings, str(self.folder / RUN_RECORD_NAME))
        except InputError as error:
            raise InputError(
                f"{self.folder}: step {self.step} cannot be computed again: from"
                f" {self.origin.text()}: at step {simulation.step}: {error.text()}"
            ) from error

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
    history = RunHistory(folder)
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
    return _plan(folder, history, step, time if remaining else None)


def _plan(
    folder: RunFolder, history: RunHistory, step: int, time: float | None = None
) -> Recomputation:
    """Return the plan that computes a state from the nearest origin that leads there."""
    # The step after it is shortened to reach a time.
    end, reasons = step + (time is not None), []
    for origin in reversed([one for one in history.origins if one.step <= step]):
        if origin.step == end:  # the state as it was written, before what changed there
            origin = origin.as_written()
        _, reason, changes = history.way(origin, end)
        if not reason:
            return _from_origin(folder, history, origin, (step, end), changes, time)
        reasons.append(f"from {origin.text()}: {reason}")
    if not reasons and history.table.is_set[0] > 0:
        reasons.append("its fields were set by a program at the start, and no state is before")
    why = "; ".join(reasons[:2]) or "no state before it is left"
    raise InputError(
        f"{folder.path}: step {step} cannot be computed again: {why}; more states:"
        " output.checkpoint_interval and output.keep_checkpoints"
    )


def _from_origin(
    folder: RunFolder,
    history: RunHistory,
    origin: Origin,
    steps: tuple[int, int],
    changes: SettingChanges,
    time: float | None = None,
) -> Recomputation:
    step, end = steps
    return Recomputation(
        folder.path,
        origin,
        step,
        time,
        end - origin.step,
        history.seconds(origin.step, end),
        history.table,
        changes,
        history.segments_of(origin.step, end),
    )


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
            if doubt := _doubt(simulation, plan.segments):
                text = f"the bits are not those of the run, but for rounding the same: {doubt}"
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
    start: int
    end: int
    plan: Recomputation | None
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
    history = RunHistory(folder)
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
    pairs = zip(chosen, ends, strict=True)
    return [part for pair in pairs for part in _parts_between(folder, history, *pair)]


def _parts_between(
    folder: RunFolder, history: RunHistory, origin: Origin, end: int
) -> Iterator[_Part]:
    """Yield the part from an origin that can be repeated, and the rest, if any, with the reason."""
    reach, reason, changes = history.way(origin, end)
    known = [step for step in history.table.digests if origin.step <= step <= reach]
    last = end if not reason else max(known, default=origin.step)
    if last > origin.step or not reason:
        plan = _from_origin(folder, history, origin, (last, last), changes)
        yield _Part(origin, origin.step, last, plan)
    if reason:
        yield _Part(origin, last, end, None, f"from {origin.text()}: {reason}")


def _verdict(
    part: _Part,
    series: Mapping[str, np.ndarray],
    comm: Comm,
    device: str,
    settings: Sequence[str],
) -> PartVerdict:
    """Repeat a part. Collective."""
    verdict = PartVerdict(part.origin.text(), part.start, part.end)
    if part.plan is None:
        return replace(verdict, problem=part.problem)
    try:
        simulation = make_simulation(part.plan.case(tuple(settings)), comm, device)
        simulation.prepare()
    except InputError:
        state = part.origin.path
        if state is None or on_first_rank(comm, state.exists):
            raise
        problem = f"the run has removed {state.name} since; use output.keep_checkpoints in the run"
        return replace(verdict, problem=problem)
    try:
        return _repeated(part.plan, simulation, verdict, series)
    except InputError as error:
        return replace(verdict, problem=error.text().partition("again: ")[2] or error.text())


def _repeated(
    plan: Recomputation,
    simulation: Simulation,
    verdict: PartVerdict,
    series: Mapping[str, np.ndarray],
) -> PartVerdict:
    """Take the steps of a part and compare them. Collective."""
    doubt = _doubt(simulation, plan.segments)
    rows = _Rows(series, simulation, plan.origin) if doubt else None
    compared = 0
    with Interruption(simulation.comm) as interruption:
        walk = plan.compared(simulation, lambda: rows is None or not rows.is_needed)
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
                        other_software=_other_software(plan.segments),
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

    def __init__(
        self, series: Mapping[str, np.ndarray], simulation: Simulation, origin: Origin
    ) -> None:
        self._simulation, self._series = simulation, series
        self._names = [name for name in series if name.endswith(simulation.lasting)]
        steps = series.get("step", np.zeros(0, int))
        self._places = {int(step): place for place, step in enumerate(steps)}
        if origin.path is not None:
            # The row may be of the state before settings changed, or it was converted.
            self._places.pop(origin.step, None)
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


def _doubt(simulation: Simulation, segments: Sequence[Segment]) -> str:
    """Return why the bits need not be those of the record; empty if they must. Collective."""
    _, devices = hosts_and_devices(simulation)
    here = sorted({_processor(one) for one in devices})
    for segment in segments:
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
