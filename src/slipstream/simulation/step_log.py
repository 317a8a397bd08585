"""The sizes of the steps that a simulation has taken, until they are written down.

With them a state that was never stored can be computed again: steps that adapt depend on when a run
was stopped and on what looked on, and cannot be derived from a case.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepRun:
    """Steps of one size, one after the other.

    Attributes
    ----------
    step, time : int, float
        To which the last of them led.
    size : float
        Of each.
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
        self._is_on = False
        self._runs: list[StepRun] = []
        self._size: float | None = None
        self._is_set = False
        self._sets = 0
        # The last step of the runs that are complete.
        self._last = -1

    @property
    def waiting(self) -> int:
        """How many complete runs have not been taken."""
        return len(self._runs)

    def begin(self, step: int, sets: int, goes_on: bool) -> bool:
        """Note from now on; return whether the record has a gap before this step.

        If it `goes_on`, the last step of the record is this one, unless this object knows better.
        """
        has_gap = goes_on and self._last not in (-1, step)
        self._is_on, self._runs, self._size = True, [], None
        if not goes_on or self._last == -1:
            self._sets = sets
        self._last = step
        return has_gap

    def pause(self) -> None:
        """Note nothing until `begin`."""
        self._is_on = False

    def note(self, step: int, time: float, size: float, sets: int) -> None:
        """Note that a step of this size begins."""
        if not self._is_on or (size == self._size and sets == self._sets):
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
