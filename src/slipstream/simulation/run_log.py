"""The log of a run, ``run.log``: lines for people by the clock, warnings, and what was written.

It goes on in each segment of the run. A log that cannot be written ends no run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from slipstream.accepted import LOG_LEVELS
from slipstream.printable_text import one_line
from slipstream.simulation.output_folder import RUN_LOG_NAME

# Seconds between lines that tell how far a run is: at first, at most, and as a share of its age.
_FIRST, _MOST, _SHARE = 30.0, 600.0, 0.05
_LONGEST_LINE = 4000


class RunLog:
    """Appends lines with a date, each with its level; on the first rank only.

    What comes before `begin` is kept until then.
    """

    def __init__(self, folder: Path, level: str = "info", is_first: bool = True) -> None:
        self._path = folder / RUN_LOG_NAME
        self._least = LOG_LEVELS.index(level) if is_first else len(LOG_LEVELS)
        self._waiting: list[str] | None = []
        self._began = self._told = time.monotonic()

    def begin(self, text: str) -> None:
        """Write the first line, and all that has waited for it."""
        waiting, self._waiting = self._waiting or [], None
        self.info(text)
        self._append(waiting)

    def progress(self, text: Callable[[], str]) -> None:
        """Write how far the run is, if it is time to: every 30 seconds at first, then slower."""
        now = time.monotonic()
        if now - self._told >= min(_MOST, max(_FIRST, _SHARE * (now - self._began))):
            self._told = now
            self.info(text())

    def debug(self, text: str) -> None:
        """Write what only those who look for something want to know."""
        self._write("debug", text)

    def info(self, text: str) -> None:
        """Write what has happened."""
        self._write("info", text)

    def warning(self, text: str) -> None:
        """Write what is wrong but does not end the run."""
        self._write("warning", text)

    def error(self, text: str) -> None:
        """Write what has ended the run."""
        self._write("error", text)

    def _write(self, level: str, text: str) -> None:
        if LOG_LEVELS.index(level) < self._least:
            return
        date = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        line = f"{date} {level:7} {one_line(text, _LONGEST_LINE)}\n"
        if self._waiting is None:
            self._append([line])
        else:
            self._waiting.append(line)

    def _append(self, lines: list[str]) -> None:
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.writelines(lines)
