"""All output that users choose in a case: when each is written, and how it is continued.

Each output is judged when it is made, before anything runs: names, expressions, places, and whether
steps of one size hit its times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from slipstream.case.output_tables import check_names
from slipstream.collective import on_first_rank
from slipstream.errors import InputError
from slipstream.field import Field
from slipstream.io.checkpoint import CHECKPOINTS_NAME, Checkpoint, generations, open_checkpoint
from slipstream.io.folder_seals import KeptOutput, Seal
from slipstream.io.time_series import LEADING_COLUMNS, Series
from slipstream.output.averages import ChosenAverages
from slipstream.output.contents import (
    Chosen,
    ChosenDensities,
    ChosenFields,
    ChosenMovie,
    ChosenScalars,
    DrawnDensity,
)
from slipstream.output.occasions import AtIntervals, AtTimes, Occasions, OutputTimes, occasions_of
from slipstream.simulation.earlier_segments import EarlierSegments
from slipstream.simulation.simulation_base import Simulation

_Kind = TypeVar("_Kind", bound=Chosen)


class ChosenOutputs:
    """All chosen output of a case. Its methods are collective.

    Raises
    ------
    InputError
        When it is made: if anything is not accepted.
    """

    def __init__(self, simulation: Simulation, earlier: EarlierSegments | None = None) -> None:
        self._simulation, self._earlier = simulation, earlier
        output, case = simulation.case.output, simulation.case
        densities = getattr(output, "densities", ())
        check_names(output.fields, output.scalars, output.movies, output.averages, densities)

        def made(kind: type[_Kind], **how: Any) -> list[_Kind]:
            tables = enumerate(getattr(output, kind.group, ()), 1)
            where = f"output.{kind.group}"
            return [kind(simulation, one, f"{where}[{number}]", **how) for number, one in tables]

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
        self._due = {one: OutputTimes(self._occasions(one)) for one in self._all}
        self._warn_of_times_after(case.time.end)
        if case.fixed_step is not None:
            self.check_hits(simulation.time, case.time.end, case.fixed_step)
        self.with_diagnostics = [
            one
            for one in self.scalars
            if one.settings.interval is None and one.settings.times is None
        ]
        # All but movies have something to write of the last state.
        self._of_files = [one for one in stored if one not in self.with_diagnostics]
        self._is_open = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been asked for."""
        return not self._all

    @property
    def has_files(self) -> bool:
        """Whether any output has its own files."""
        return len(self.with_diagnostics) < len(self._all)

    def _occasions(self, one: Chosen) -> Occasions:
        """Return when an output is due: intervals count from the start of the whole run."""
        if isinstance(one, ChosenAverages):
            return self._occasions_of_average(one)
        return self._asked(one.settings)

    def _asked(self, settings: Any) -> Occasions:
        now, earlier = self._simulation.time, self._earlier
        start = now if earlier is None else earlier.time
        return occasions_of(settings.interval, getattr(settings, "times", None), start, now)

    def _occasions_of_average(self, one: ChosenAverages) -> Occasions:
        """Return when samples are due, after the samples in the state.

        Another run that begins from a state takes its samples only if it names a time that is over.
        """
        simulation = self._simulation
        if one.start < simulation.time:
            state = simulation.restored
            if state is not None and state.step == simulation.step:
                self._go_on_with(one, state)
            elif self._earlier is None:
                self._go_on_with(one, None)
            else:
                self._not_restored.append(one)
        occasions = AtIntervals(one.settings.interval, one.start)
        occasions.resume_at(simulation.time, one.last, occasions)
        return occasions

    def _go_on_with(self, one: ChosenAverages, state: Checkpoint | None) -> None:
        """Take over the sums of a state, or begin now if it has none."""
        now = self._simulation.time
        problem = "no state has its samples" if state is None else one.restore(state)
        if problem:
            one.begin_at(now)
            text = f"{one.where}: {problem}; the average begins at t = {now:.6g}"
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
        """Refuse steps of one size that miss a time at which something is to be written."""
        for one, due in self._due.items():
            key = "interval" if getattr(one.settings, "times", None) is None else "times"
            due.occasions.check_hits(f"{one.where}.{key}", start, end, step_size)

    def _warn_of_times_after(self, end: float) -> None:
        for one in self._all:
            late = [f"{t:g}" for t in getattr(one.settings, "times", None) or () if t > end]
            if late:
                text = f"{one.where}.times: not written, as time.end is {end:g}: {', '.join(late)}"
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
        for one in self._of_files:
            if isinstance(one, ChosenAverages):
                if one in self._not_restored:
                    self._go_on_with(one, self._state_at(folder.parent))
                    occasions = self._due[one].occasions
                    occasions.resume_at(simulation.time, one.last, occasions)
                # What was written is of the end of a segment.
                if one.find(folder, kept):
                    one.replace_last()
                continue
            before = one.settings_in(earlier.case)
            asked = None if before is None else self._asked(before)
            if self._due[one].resume_at(simulation.time, one.find(folder, kept), asked):
                one.replace_last()
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
        for one, due in self._due.items():
            if not due.occasions.take_if_due(time, step):
                continue
            if isinstance(one, ChosenAverages):
                one.sample()
            else:
                self._write(one, folder, step_size)

    def record_last(self, folder: Path, step_size: float) -> None:
        """Write the last state to output that recurs, or is due at the end. Collective."""
        for one in self._of_files:
            due = self._due[one]
            if not isinstance(due.occasions, AtTimes) and due.last != self._simulation.time:
                self._write(one, folder, step_size)

    def _write(self, one: Chosen, folder: Path, step_size: float) -> None:
        if isinstance(one, ChosenAverages) and not one.samples:
            return
        if not self._is_open:
            on_first_rank(self._simulation.comm, lambda: folder.mkdir(exist_ok=True))
            self._is_open = True
        self._due[one].last = self._simulation.time
        one.open(folder)
        one.write(step_size)

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
        found = {}
        for one in self.scalars:
            own = series if one in self.with_diagnostics else one.series
            columns = {} if own is None else own.read(("time", *one.columns))
            for name in one.columns:
                if name in columns:
                    found[name] = columns["time"], columns[name], one.labels[name]
        return found

    def drawn_densities(self) -> dict[str, DrawnDensity]:
        """Return the last densities that were written, by the names of their stores."""
        found = {one.settings.stem: one.drawn() for one in self._densities}
        return {stem: one for stem, one in found.items() if one is not None}
