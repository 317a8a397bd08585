"""How the time of a run divides by category of work: some steps are timed node by node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slipstream.schedule import Timeline

# One step in this many is timed node by node, at first and later; all others run without any probe.
# Probes keep the work of a step from overlapping as it would, so that many would slow down a run.
_INTERVAL_AT_FIRST, _FIRST_STEPS, _INTERVAL = 8, 32, 128


class StepTimer:
    """Times some steps, and extrapolates.

    An eager timer also times the first step, typical or not, for runs of a single step.
    """

    def __init__(self, eager: bool = False) -> None:
        self._eager = eager
        self._totals: dict[str, float] = {}
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

    def seconds(self) -> dict[str, float]:
        """Return the seconds of all steps so far by category, extrapolated from those timed."""
        factor = self._steps / self._timed if self._timed else 0.0
        return {category: factor * seconds for category, seconds in self._totals.items()}

    def write(self, folder: Path, title: str, rank: int) -> list[Path]:
        """Write the last step that was timed, as picture and Chrome trace; return the picture."""
        if not self._timeline.entries:
            return []
        picture = folder / "timeline.png"
        self._timeline.write_picture(picture, title)
        self._timeline.write_chrome_trace(folder / "timeline.json", rank)
        return [picture]
