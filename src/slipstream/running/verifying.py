"""``slipstream verify``: parts of a run are repeated, and compared with what it recorded.

Each part goes from a state in the folder to the next one. Digests must be the same where bits are
promised; where they are not, as on another kind of device, diagnostics must be the same but for
rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from slipstream import __version__
from slipstream.array_types import Comm
from slipstream.collective import on_all_ranks, on_first_rank, own, together
from slipstream.errors import InputError
from slipstream.io.run_folder import RunFolder
from slipstream.io.run_record import Segment
from slipstream.machine_info import compiler_name, mpi_library
from slipstream.report.console import PartVerdict
from slipstream.running.recomputing import History, Origin, Recomputation
from slipstream.running.run_recorder import hosts_and_devices
from slipstream.simulation.simulation_base import Simulation
from slipstream.simulation.solver_registry import make_simulation
from slipstream.simulation.stop_requests import Interruption

# By how much diagnostics may differ for rounding alone, as a share of their largest value; and how
# many times as much from one row to the next, as small differences grow in turbulence.
_ROUNDING = {"float64": 1e-9}
_ROUNDING_OF_OTHERS, _GROWTH = 1e-4, 1e3
# From here on flows are different ones with the same statistics.
_LOST = 1e-3


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
        Of the run, which may be under way.
    since, until : float, optional
        Between which times: from the last state at or before `since` (default: the first that is
        left before the last digest, else the initial state) to the last digest until then
        (default: of all).
    comm : mpi4py.MPI.Comm, optional
        The ranks that share the work.
    device : str
        What computes.
    settings : sequence of str
        What to change of the case, each ``section.key=value``, such as ``run.transport``.
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
            with RunFolder(folder) as entered:
                entered.check_is_a_run()
                return _parts(entered, since, until), entered.series()[0]

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
        raise InputError(f"{folder.path}: has no digests (output.digest_steps)")
    begin, end = float(table.time[0]), float(table.time[-1])
    first = None
    if since is not None:
        first = table.step_at(max(since, begin), history.steps_at_once)[0]
    last = digests[-1]
    if until is not None:
        asked = table.step_at(min(until, end), history.steps_at_once)[0]
        last = max((one for one in digests if one <= asked), default=digests[0])
    origins = {one.step: one for one in history.origins if one.step <= last}
    if first is None:
        states = [step for step, one in origins.items() if one.path is not None and step < last]
        first = min(states, default=min(origins, default=0))
    begins = max((one for one in origins if one <= first), default=None)
    if begins is None:
        raise InputError(f"{folder.path}: no state before step {first} is left")
    chosen = [origins[step] for step in sorted(origins) if step >= begins]
    ends = [*(one.step for one in chosen[1:]), last]
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
                        others=_other_software(part.segments),
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
        place = self._places.get(simulation.step)
        if place is None or not self._names:
            return False
        now, largest = simulation.diagnostics(), 0.0
        for name in self._names:
            column = self._series[name]
            scale = float(np.nanmax(np.abs(column), initial=0.0))
            if name in now and scale and math.isfinite(column[place]):
                difference = abs(now[name] - float(column[place])) / scale
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
    """Return what may have changed the bits, apart from a defect."""
    found: dict[str, None] = {}
    for segment in segments:
        for name, there, here in (
            ("compiler", segment.compiler, compiler_name()),
            ("MPI", segment.mpi, mpi_library() if segment.mpi else ""),
        ):
            if there != here:
                found[f"{name}: {there} then, {here or 'none'} now"] = None
    return tuple(found)
