"""The history of a run, by its folder: its steps, settings, states, and what a program set.

A run writes it as it goes: `steps.csv` has the sizes of steps, digests, and where a program set
fields or particles; `run.json` has the segments, with their cases and changes of settings; each
state has its case. Resuming, computing states again and verifying all read it here.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.case import SOLVERS, Case
from slipstream.engine.errors import InputError
from slipstream.engine.text import STEPPING, one_line
from slipstream.files.checkpoint import CHECKPOINTS_NAME, Damage, read_manifest
from slipstream.files.run_folder import (
    RUN_RECORD_NAME,
    STEPS_NAME,
    Change,
    RunFolder,
    Segment,
    is_around,
    table_differences,
)

# Tables whose keys `Simulation.change` accepts.
_CHANGEABLE = ("equation", "scalars", "forcing", "flow", "convergence")
# Tables of which a case may have several.
_LISTED = ("scalars", "forcing")
# Keys of the names of scalars, of several and of one.
_SCALARS = ("scalars", "scalars.name")
# Times that are the same but for rounding, in steps.
_SAME = 1e-9
_MOST_STEPS = 1 << 62
# Changes of settings: after which step, and the new values by key.
SettingChanges = tuple[tuple[int, Mapping[str, Any]], ...]


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
        where = folder.path / STEPS_NAME
        if not columns:
            raise InputError(
                f"{folder.path}: has no {STEPS_NAME}, which earlier versions did not write; without"
                " the steps of the run, a state that was not stored cannot be computed again"
            )
        try:
            names = ("step", "time", "step_size", "digest", "set")
            table = cls(*(columns[name] for name in names))
        except KeyError as error:
            raise InputError(f"{where}: has no column {error}, as it was written with") from None
        steps = table.step
        if not len(steps):
            raise InputError(f"{where}: has no whole row, as if it had been cut")
        is_possible = steps.dtype.kind == "i" and steps[0] >= 0 and steps[-1] < _MOST_STEPS
        if not is_possible or not np.isfinite(table.time).all():
            raise InputError(f"{where}: has steps or times that no run can have")
        if not (np.diff(steps) > 0).all() or not (np.diff(table.time) > 0).all():
            raise InputError(f"{where}: its steps are not in order")
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

    def reach(self, start: int, end: int) -> tuple[int, str]:
        """Return the last step between two that can be taken again, and why not the next."""
        before = self.step[:-1]
        within = (before < end) & (self.step[1:] > start)
        gaps = np.flatnonzero(within & np.isnan(self.size[1:]))
        given = np.flatnonzero((before >= start) & (before < end) & (self.is_set[1:] > 0))
        found = [(end, "")]
        if len(gaps):
            low, high = int(before[gaps[0]]), self.step[gaps[0] + 1]
            found.append((max(low, start), f"the steps from {low} to {high} are not recorded"))
        if len(given):
            step = int(before[given[0]])
            found.append((step, f"a program set fields or particles at step {step}"))
        return min(found)


@dataclass(frozen=True)
class Origin:
    """From where a state is computed again: a state in the folder, or the initial one."""

    step: int
    time: float
    path: Path | None
    case: str
    # Where the case is written, for messages.
    source: str
    # Whether the run continued from it with other numbers than its last step led to, such as those
    # of more points, or those that a program set.
    is_converted: bool = False
    # What it was before the run continued from it with another case.
    written: Origin | None = field(default=None, repr=False)

    def as_written(self) -> Origin:
        """Return the origin with the case of the state, not that with which the run continued."""
        return self.written or self

    def text(self) -> str:
        """Return it for people."""
        name = "the initial state" if self.path is None else f"state {self.path.name}"
        return f"{name}, step {self.step}, t = {self.time:.6g}"


class RunHistory:
    """The steps, settings and states of a run, by its folder; read when asked for."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    @cached_property
    def table(self) -> StepTable:
        """The steps."""
        return StepTable.of_folder(self._folder)

    @cached_property
    def segments(self) -> list[Segment]:
        """The segments whose steps have not been taken again by a later one."""
        segments: list[Segment] = []
        for segment in self._folder.record().segments:
            while segments and segments[-1].from_step >= segment.from_step:
                segments.pop()
            segments.append(segment)
        where = self._folder.path / RUN_RECORD_NAME
        if not segments:
            raise InputError(f"{where}: has no segments of the run")
        for segment in segments:
            _parse(segment.case, _case_of_segment(segment, where))
        return segments

    @cached_property
    def _kind(self) -> type[Case]:
        solver = tables_of(self.segments[0].case).get("solver")
        # An unknown solver is refused when its case is read.
        return SOLVERS[solver] if isinstance(solver, str) and solver in SOLVERS else Case

    @property
    def steps_at_once(self) -> int:
        """The number of time steps that are done together."""
        return self._kind.steps_at_once

    @property
    def shortens_steps(self) -> bool:
        """Whether a step can be shorter than the run's."""
        return self._kind.shortens_steps

    @property
    def origins(self) -> list[Origin]:
        """From where states can be computed, the earliest first."""
        first, origins = self.segments[0], []
        where = self._folder.path / RUN_RECORD_NAME
        begins = {segment.from_step: segment for segment in self.segments}
        begins_here = first.from_step == self.table.step[0] and not first.reads_state
        if begins_here and not self.table.is_set[0] > 0:
            source = _case_of_segment(first, where)
            origins.append(Origin(first.from_step, first.from_time, None, first.case, source))
        for path, said in self._folder.manifests():
            place = self._folder.path / CHECKPOINTS_NAME / path.name
            source, is_set = f"{place}: its case", bool(said.is_set)
            origin = Origin(said.step, said.time, place, said.case, source, is_set)
            _parse(said.case, origin.source)
            begun = begins.get(said.step)
            if begun is not None:
                keys = changed_keys(flatten_tables(said.case), flatten_tables(begun.case))
                origin = replace(
                    origin,
                    case=begun.case,
                    source=_case_of_segment(begun, where),
                    is_converted=is_set
                    or any(_converts(key, *values) for key, values in keys.items()),
                    written=origin,
                )
            origins.append(origin)
        return sorted(origins, key=lambda origin: (origin.step, origin.path is not None))

    def way(self, origin: Origin, end: int) -> tuple[int, str, SettingChanges]:
        """Return how far the run can be computed again from an origin, up to a step.

        Returns
        -------
        int
            The last such step.
        str
            Why it is not the `end`; empty if it is.
        tuple
            The changes of settings on the way.
        """
        reach, reason = self.table.reach(origin.step, end)
        last, why = self._last_exact(origin, reach)
        if why:
            reach, reason = last, why
        last, why, changes = self._setting_changes(origin, reach)
        return (last, why, changes) if why else (reach, reason, changes)

    def _last_exact(self, origin: Origin, end: int) -> tuple[int, str]:
        """Return how far a run from an origin has the bits of one that never stopped, and why."""
        reason = "a flow that is extrapolated continues with other bits (convergence.vectors)"
        # Where a simulation went on in memory, its state does not have what it remembered.
        read = [one.from_step for one in self.segments if one.reads_state]
        if _extrapolates(origin.case) and origin.path is not None and origin.step not in read:
            return origin.step, reason
        for before, segment in itertools.pairwise(self.segments):
            is_lost = _extrapolates(before.case, *before.changes) or _extrapolates(segment.case)
            is_lost = is_lost and segment.reads_state is not False
            if origin.step < segment.from_step < end and is_lost:
                return segment.from_step, reason
        return end, ""

    def _setting_changes(self, origin: Origin, end: int) -> tuple[int, str, SettingChanges]:
        changes: list[tuple[int, dict[str, Any]]] = []
        now = flatten_tables(origin.case)
        for number, segment in enumerate(self.segments):
            until = [later.from_step for later in self.segments[number + 1 :]][:1] or [end]
            if until[0] <= origin.step:
                continue
            if origin.step < segment.from_step < end:
                case = flatten_tables(segment.case)
                for key, values in changed_keys(now, case).items():
                    if not _can_change(key, *values):
                        step = segment.from_step
                        what = "other scalars" if key in _SCALARS else f"another {key}"
                        why = f"the run continued with {what} at step {step}"
                        return step, why, tuple(changes)
                here = _settings_between(now, case)
                if here:
                    changes.append((segment.from_step, here))
                now = case
            for change in segment.changes:
                is_after = origin.step <= change.step < min(end, until[0])
                if is_after and now.get(change.key) != change.after:
                    now[change.key] = change.after
                    if not is_around(change.key):
                        changes.append((change.step, {change.key: change.after}))
        return end, "", tuple(changes)

    def tables_at(
        self, tables: dict[str, Any], states: Sequence[Path] | None = None
    ) -> dict[str, Any]:
        """Return tables of the run's case as they were at one of some states, by default the last.

        Settings that a program has changed between steps are in the record, and in the states.
        """
        last = None
        with contextlib.suppress(InputError):
            last = next(reversed(self._folder.record().segments), None)
        if last is None or not last.changes:
            return tables
        for state in self._folder.states() if states is None else states:
            with contextlib.suppress(Damage, OSError, ValueError, RecursionError):
                said = read_manifest(state)
                if said.step <= last.from_step:
                    break
                theirs = tomllib.loads(said.case)
                result = copy.deepcopy(tables)
                for change in last.changes:
                    if change.step <= said.step:
                        _take_over(change.key, theirs, result)
                return result
        return tables

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

    def segments_of(self, start: int, end: int) -> tuple[Segment, ...]:
        """Return the segments that took the steps between two."""
        ends = [*(one.from_step for one in self.segments[1:]), math.inf]
        within = [
            segment
            for segment, until in zip(self.segments, ends, strict=True)
            if segment.from_step < end and until > start
        ]
        before = [one for one in self.segments if one.from_step < end] or self.segments[:1]
        return tuple(within) or (before[-1],)


def _case_of_segment(segment: Segment, where: Path) -> str:
    return f"{where}: the case of the segment from step {segment.from_step}"


def _parse(text: str, source: str) -> None:
    """Refuse the text of a case that is no TOML."""
    try:
        tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source} cannot be read: {one_line(str(error))}") from error


def _extrapolates(case: str, *changes: Change) -> bool:
    """Return whether a case, or one of its changes, extrapolates a flow: with what it remembers."""
    keys = flatten_tables(case) | {change.key: change.after for change in changes if change.after}
    return bool(keys.get("convergence.vectors") and keys.get("convergence.tolerance"))


def tables_of(text: str) -> dict[str, Any]:
    """Return the tables of a recorded case; none if it is damaged."""
    with contextlib.suppress(ValueError, RecursionError):
        return tomllib.loads(text)
    return {}


def flatten_tables(text: str) -> dict[str, Any]:
    """Return the keys of a case and their values."""
    return {key: values[1] for key, values in table_differences({}, tables_of(text)).items()}


def changed_keys(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the keys in which two cases differ, each with both values."""
    keys = dict.fromkeys([*before, *now])
    pairs = {key: (before.get(key), now.get(key)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _settings_between(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings by which a simulation continues with another case."""
    keys = {key: after for key, (_, after) in changed_keys(before, now).items()}
    settings = {key: after for key, after in keys.items() if not is_around(key)}
    for section in _LISTED:
        forms = [_section(section, case) for case in (before, now)]
        if forms[0] != forms[1] and not all(isinstance(form, dict) for form in forms):
            # One table became several, or none: the keys of one do not tell that.
            settings = {k: v for k, v in settings.items() if k.partition(".")[0] != section}
            settings[section] = [forms[1]] if isinstance(forms[1], dict) else forms[1]
    return settings


def _section(name: str, case: Mapping[str, Any]) -> dict[str, Any] | list[Any]:
    """Return a table, or a list of tables, of the keys of a case."""
    keys = {
        key.partition(".")[2]: value for key, value in case.items() if key.startswith(f"{name}.")
    }
    return keys or case.get(name) or []


def _can_change(key: str, before: Any, after: Any) -> bool:
    """Return whether a simulation can continue with another value of a key, or does so anyway."""
    return is_around(key) or (
        key.partition(".")[0] in _CHANGEABLE and not _changes_fields(key, before, after)
    )


def _converts(key: str, before: Any, after: Any) -> bool:
    """Return whether a state has other numbers if it is read with another value of a key."""
    if key == "time.integrator":
        return False
    return not _can_change(key, before, after)


def _changes_fields(key: str, before: Any, after: Any) -> bool:
    """Return whether another value of a key changes the fields of the model."""
    if key == "scalars":
        return _names(before) != _names(after)
    return key in ("equation.model", *_SCALARS)


def _names(scalars: Any) -> list[Any]:
    return [one.get("name") for one in scalars or () if isinstance(one, dict)]


def _take_over(key: str, theirs: dict[str, Any], tables: dict[str, Any]) -> None:
    """Set a key of tables to its value in other tables, or remove it if they have none."""
    name, _, inner = key.partition(".")
    source, target = theirs.get(name), tables.get(name)
    if not inner or not isinstance(source, dict) or not isinstance(target, dict):
        return
    target.pop(inner, None)
    if inner in source:
        target[inner] = source[inner]
