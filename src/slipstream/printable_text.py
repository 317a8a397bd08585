"""Texts that come from files, in messages, on terminals, in logs and in notebooks.

A title, a path or a value of a foreign file may hold what a terminal obeys, or what makes a line
read as another: it is written as an escape. Long values are cut. Letters that a terminal or a file
cannot show, and readers that have gone, end no run.
"""

from __future__ import annotations

import codecs
import errno
import io
import sys
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


def below(value: float, bound: float) -> str:
    """Return a number below a bound with two digits, or as many as show that it is below."""
    texts = (f"{value:.{digits}g}" for digits in range(2, 17))
    return next((text for text in texts if float(text) < bound), repr(value))


def shortened(text: str, most: int = _MOST_LETTERS) -> str:
    """Return a text without its middle if it is long."""
    if len(text) <= most:
        return text
    ends = (most - 5) // 2
    return f"{text[:ends]} ... {text[-ends:]}"


def escaped(text: object) -> str:
    """Return text for HTML that is shown as it is, whatever it contains."""
    import html  # pages and notebooks alone need it

    return html.escape(printable(str(text)))


def html_text(text: str) -> str:
    """Return text for notebooks; dollars in it are no mathematics."""
    return escaped(text).replace("$", "<span>$</span>")


def html_table(caption: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and values for notebooks, which shows all text as it is."""
    left = "style='text-align:left'"
    cells = (
        f"<tr><th {left}>{html_text(name)}</th><td {left}>{html_text(text)}</td></tr>"
        for name, text in rows
    )
    head = f"<caption {left}><b>{html_text(caption)}</b></caption>" if caption else ""
    return f"<table>{head}<tbody>{''.join(cells)}</tbody></table>"


# What the system answers when nobody reads a pipe, or a terminal, any more.
_GONE = (errno.EPIPE, errno.EIO)

# How people write in ASCII what commands print.
_WRITTEN = str.maketrans(
    {"π": "pi", "µ": "u", "−": "-", "–": "-", "—": "-", "²": "^2", "³": "^3", "×": "x", "·": "*"}
)


def plain(failure: UnicodeError) -> tuple[str, int]:
    """Return a replacement for letters that an encoding lacks, as an error handler of `codecs`."""
    if not isinstance(failure, UnicodeEncodeError):
        raise failure
    text = failure.object[failure.start : failure.end].translate(_WRITTEN)
    letters = (unicodedata.normalize("NFKD", letter).encode("ascii", "ignore") for letter in text)
    return b"".join(letter or b"?" for letter in letters).decode(), failure.end


class _UnheardFile(io.FileIO):
    """A file that takes what nobody reads."""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            return memoryview(content).nbytes


def allow_plain_output() -> None:
    """Make standard output and error replace letters that their encoding lacks, and never fail."""
    codecs.register_error("slipstream.plain", plain)
    sys.stdout, sys.stderr = _allow(sys.stdout), _allow(sys.stderr)


def _allow(stream: Any) -> Any:
    if not hasattr(stream, "reconfigure"):
        return stream
    stream.reconfigure(errors="slipstream.plain")
    if stream not in (sys.__stdout__, sys.__stderr__):
        return stream  # not the process's own, but a test's
    stream.flush()
    file = io.BufferedWriter(_UnheardFile(stream.fileno(), "wb", closefd=False))
    return io.TextIOWrapper(
        file,
        encoding=stream.encoding,
        errors="slipstream.plain",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
