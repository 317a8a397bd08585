"""What is shown in a notebook, and changes in place: IPython's displays, where there is IPython."""

from __future__ import annotations

import time as clock
from typing import Any

from rich.console import Console

from slipstream.printable_text import html_text
from slipstream.report.number_text import duration

# Seconds between two changes of a bar: each is a message to the browser.
_PAUSE = 0.25


def in_notebook() -> bool:
    """Return whether output is displayed in a notebook."""
    return Console().is_jupyter


class NotebookDisplay:
    """A place below a notebook's cell, whose content is replaced."""

    def __init__(self) -> None:
        self._handle: Any = None

    def html(self, text: str) -> None:
        """Show HTML."""
        from IPython.display import HTML  # type: ignore[import-not-found]

        self._show(HTML(text))

    def png(self, content: bytes) -> None:
        """Show a picture."""
        from IPython.display import Image

        self._show(Image(data=content, format="png"))

    def _show(self, what: Any) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(what, display_id=True)
        else:
            self._handle.update(what)


class NotebookBar:
    """How far something is, as a bar in a notebook."""

    def __init__(self) -> None:
        self._display = NotebookDisplay()
        self._began = self._shown = clock.perf_counter()
        self._last = 0.0, ""
        self._is_late = False

    def update(self, part: float, state: str) -> None:
        """Show which part is done, and the state; not each time, but always the last in the end."""
        self._last, now = (min(max(part, 0.0), 1.0), state), clock.perf_counter()
        self._is_late = now - self._shown < _PAUSE
        if not self._is_late:
            self._show(now)

    def close(self) -> None:
        """Show the latest message again."""
        if self._is_late:
            self._show(clock.perf_counter())

    def _show(self, now: float) -> None:
        self._shown, self._is_late, (part, state) = now, False, self._last
        elapsed = now - self._began
        left = f", {duration(elapsed / part - elapsed)} left" if 0 < part < 1 else ""
        self._display.html(
            f"<progress style='width:50%' max='1' value='{part:.4f}'></progress>"
            f" {100 * part:.0f} %&ensp;{html_text(state + left)}"
        )
