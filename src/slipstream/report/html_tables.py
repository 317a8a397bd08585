"""Tables for notebooks, of text that may be anybody's."""

from __future__ import annotations

import html
from collections.abc import Iterable

from slipstream.printable_text import printable


def html_table(caption: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and values as HTML, which shows all text as it is."""
    left = "style='text-align:left'"
    cells = (
        f"<tr><th {left}>{escaped(name)}</th><td {left}>{escaped(text)}</td></tr>"
        for name, text in rows
    )
    head = f"<caption {left}><b>{escaped(caption)}</b></caption>" if caption else ""
    return f"<table>{head}<tbody>{''.join(cells)}</tbody></table>"


def escaped(text: str) -> str:
    """Return text for HTML; dollars in it are no mathematics."""
    return html.escape(printable(text)).replace("$", "<span>$</span>")
