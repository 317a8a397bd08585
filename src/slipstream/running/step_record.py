"""The record of a run's steps, ``steps.csv``: their sizes, and digests of states.

From the sizes a state that was not stored is computed again (`running/recomputing.py`), and the
digests show whether it is the state that the run had. A row stands for some steps of one size: a
run of fixed steps has a row for each digest, one of adaptive steps a row for each step.
"""

from __future__ import annotations

import math
from pathlib import Path

from slipstream.collective import on_first_rank
from slipstream.io.folder_seals import KeptOutput, Seal
from slipstream.io.run_folder import STEPS_NAME
from slipstream.io.time_series import Series
from slipstream.output.occasions import EverySteps
from slipstream.simulation.simulation_base import Simulation
from slipstream.simulation.step_log import StepRun

LABELS = {
    "step_size": "size of the steps since the row before (non-dimensional)",
    "digest": "digest of the state, a number of 53 bits",
    "set": "1 if a program had set fields before the first of these steps",
}
# Runs of steps that wait for a digest, at most.
_MOST_WAITING = 1000


class StepRecord:
    """Writes the steps of a simulation down. Its methods are collective."""

    def __init__(self, simulation: Simulation, folder: Path) -> None:
        self._simulation, self._folder = simulation, folder
        self._series = self._new_series() if simulation.rank == 0 else None
        self._goes_on = self._is_begun = False
        self._written = -1
        self._every = simulation.case.output.digest_steps
        self._due = EverySteps(self._every or 1, 0)

    def _new_series(self, until: int | None = None, sealed: Seal | None = None) -> Series:
        name = STEPS_NAME.removesuffix(".csv")
        return Series(self._folder, LABELS, name, until, sealed, has_store=False)

    def find(self, kept: KeptOutput) -> None:
        """Find the rows that continue; change nothing."""

        def look() -> bool:
            if not (self._folder / STEPS_NAME).exists() or not kept.goes_on(STEPS_NAME):
                return False
            sealed = (kept.seals or {}).get(STEPS_NAME)
            self._series = self._new_series(self._simulation.step, sealed)
            rows = self._series.last_rows
            return bool(rows) and int(rows[-1]["step"]) == self._simulation.step

        self._goes_on = on_first_rank(self._simulation.comm, look)

    def begin(self) -> None:
        """Begin with the present state, or continue after the rows of before."""
        simulation = self._simulation
        if self._series is not None:
            self._series.begin()
        step, sets = simulation.step, simulation.times_fields_set
        has_gap = simulation.step_log.begin(step, sets, self._goes_on)
        self._is_begun = True
        self._written = step if self._goes_on else -1
        self._due.take(simulation.time, step)
        if not self._goes_on or has_gap:
            first = StepRun(step, simulation.time, math.nan, sets > 0 or has_gap)
            self._write([first])

    def is_due(self) -> bool:
        """Return whether a digest is due, or many steps wait; does not communicate."""
        if not self._is_begun:
            return False
        is_full = self._simulation.step_log.waiting > _MOST_WAITING
        return is_full or self._is_digest_due()

    def _is_digest_due(self) -> bool:
        return self._every > 0 and self._due.is_due(self._simulation.time, self._simulation.step)

    def record_if_due(self) -> None:
        """Write the rows that are due."""
        if not self._is_begun:
            return
        if self._is_digest_due():
            self.record()
        elif self._simulation.step_log.waiting > _MOST_WAITING:
            self._append(self._simulation.step_log.take())

    def record(self) -> None:
        """Write all steps up to now, with a digest of the state."""
        simulation = self._simulation
        if self._is_begun and simulation.step != self._written:
            self._write(simulation.step_log.take_until(simulation.step, simulation.time))

    def _write(self, runs: list[StepRun]) -> None:
        simulation = self._simulation
        digest = float(simulation.digest()) if self._every else math.nan
        self._append(runs, digest)
        self._written = simulation.step
        self._due.take(simulation.time, simulation.step)

    def _append(self, runs: list[StepRun], digest: float = math.nan) -> None:
        if self._series is None:
            return
        for number, one in enumerate(runs, 1):
            is_last = number == len(runs)
            row = {"digest": digest if is_last else math.nan, "set": float(one.is_set)}
            self._series.append(one.step, one.time, one.size, row, is_flushed=is_last)

    def seals(self) -> dict[str, Seal]:
        """Return the seal of the file, on the first rank. Not collective."""
        seal = None if self._series is None else self._series.seal()
        return {} if seal is None else {STEPS_NAME: seal}

    def flush(self) -> None:
        """Flush the rows to the disk. Not collective."""
        if self._series is not None:
            self._series.flush()

    def close(self) -> None:
        """Note no more steps, and close the file. Not collective."""
        self._simulation.step_log.pause()
        if self._series is not None:
            self._series.close()
