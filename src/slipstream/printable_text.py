"""Texts that come from files, in messages, on terminals, in logs and in notebooks.

A title, a path or a value of somebody else's file may hold what a terminal obeys, or what makes a
line read as another: it is written as an escape. Long values are cut.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any

# Control and format characters, which turn the direction of text too, and what begins a line.
_OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")
_MOST_LETTERS = 80


def printable(text: str) -> str:
    """Return a text with escapes for all that is not to be seen but does something.

    Ends of lines and tabulators stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    if letter in "\n\t" or unicodedata.category(letter) not in _OBEYED:
        return letter
    return letter.encode("unicode_escape").decode("ascii")


def one_line(text: str, most: int = 200) -> str:
    """Return a text of a person, such as a title or a path, in one line that does nothing."""
    return shortened(" ".join(printable(text).split()), most)


def shown(value: Any, most: int = _MOST_LETTERS) -> str:
    """Return a value as Python writes it, in one line and cut in its middle if it is long."""
    try:
        text = repr(value)
    except Exception:  # of numbers with thousands of digits
        text = f"a {type(value).__name__}"
    return one_line(text, most)


def shortened(text: str, most: int = _MOST_LETTERS) -> str:
    """Return a text without its middle if it is long."""
    if len(text) <= most:
        return text
    ends = (most - 5) // 2
    return f"{text[:ends]} ... {text[-ends:]}"


def html_text(text: str) -> str:
    """Return text for HTML; dollars in it are no mathematics."""
    import html  # notebooks alone need it

    return html.escape(printable(text)).replace("$", "<span>$</span>")


def html_table(caption: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and values for notebooks, which shows all text as it is."""
    left = "style='text-align:left'"
    cells = (
        f"<tr><th {left}>{html_text(name)}</th><td {left}>{html_text(text)}</td></tr>"
        for name, text in rows
    )
    head = f"<caption {left}><b>{html_text(caption)}</b></caption>" if caption else ""
    return f"<table>{head}<tbody>{''.join(cells)}</tbody></table>"
