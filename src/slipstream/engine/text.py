"""Text for terminals and pages: strings that can be printed, and numbers as people write them."""

from __future__ import annotations

import codecs
import errno
import io
import math
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

# Categories of letters that are escaped: control and format characters, which turn the direction
# of text too, and separators of lines.
_OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")
# The most letters of a text that is not shortened.
_MOST_LETTERS = 80
# The errors of a pipe, or a terminal, that nobody reads any more; and of a disk without room.
_GONE = (errno.EPIPE, errno.EIO)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Letters of output, as people write them in ASCII.
_WRITTEN = str.maketrans(
    {"π": "pi", "µ": "u", "−": "-", "–": "-", "—": "-", "²": "^2", "³": "^3", "×": "x", "·": "*"}
)
# The part of a run whose categories of work are known.
STEPPING = "time steps"
# The time that belongs to no part and no category.
REST = "waiting and the rest"


def printable(text: str) -> str:
    """Return a text with escapes for invisible letters that have an effect.

    Ends of lines and tabulators stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape_letter(letter) for letter in text)


def _escape_letter(letter: str) -> str:
    if letter in "\n\t" or unicodedata.category(letter) not in _OBEYED:
        return letter
    return letter.encode("unicode_escape").decode("ascii")


def one_line(text: str, most: int = 200) -> str:
    """Return a person's text, such as a title or a path, in one line without such letters."""
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


def plain(failure: UnicodeError) -> tuple[str, int]:
    """Return a replacement for letters that an encoding lacks, as an error handler of `codecs`."""
    if not isinstance(failure, UnicodeEncodeError):
        raise failure
    text = failure.object[failure.start : failure.end].translate(_WRITTEN)
    letters = (unicodedata.normalize("NFKD", letter).encode("ascii", "ignore") for letter in text)
    return b"".join(letter or b"?" for letter in letters).decode(), failure.end


class _UnheardFile(io.FileIO):
    """A file that accepts text which nobody reads, or for which there is no room."""

    # The reason why some text is lost that somebody may want to read.
    lost = ""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except OSError as error:
            if error.errno not in (*_GONE, *_FULL):
                raise
            if error.errno in _FULL and not self.lost:
                self.lost = error.strerror or str(error)
            return memoryview(content).nbytes


def lost_output() -> str:
    """Return why not all of the standard output could be written; "" if it was."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.lost if isinstance(raw, _UnheardFile) else ""


def allow_plain_output() -> None:
    """Make standard output and error replace letters that their encoding lacks, and never fail."""
    codecs.register_error("slipstream.plain", plain)
    sys.stdout, sys.stderr = _allow_fallback(sys.stdout), _allow_fallback(sys.stderr)


def _allow_fallback(stream: Any) -> Any:
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


def quantity(value: float, unit: str) -> str:
    """Return a value with three digits and a metric prefix."""
    if value <= 0 or not math.isfinite(value):
        return f"{value:.3g} {unit}"
    prefixes = {-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T"}
    power = min(4, max(-3, math.floor(math.log10(value) / 3 + 1e-12)))
    return f"{value / 1000.0**power:.3g} {prefixes[power]}{unit}"


def counted(number: int, noun: str) -> str:
    """Return a number of things: 1 rank, 2 ranks."""
    return f"{number} {noun}{'s' * (number != 1)}"


def duration(seconds: float) -> str:
    """Return a duration as people write it: ``12.3 s``, ``4 min 10 s``, ``3 h 5 min``."""
    if seconds < 60:
        return quantity(seconds, "s")
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def pi_text(multiple: float) -> str:
    """Return a multiple of pi as mathematical text, such as ``3π/2``."""
    if abs(multiple) < 1e-9:
        return "0"
    for divisor in (1, 2, 3, 4):
        factor = multiple * divisor
        if abs(factor - round(factor)) < 1e-6:
            top = {1: "π", -1: "−π"}.get(round(factor), f"{round(factor)}π")
            return top if divisor == 1 else f"{top}/{divisor}"
    return f"{multiple:.3g}π"


def scaled_unit(unit: str, largest: float) -> tuple[float, str]:
    """Return how many of a unit a handier one is for a length, and its name; only metres change."""
    if unit != "m":
        return 1.0, unit
    prefixes = {1.0: "m", 1e-3: "mm", 1e-6: "µm"}
    factor = next((factor for factor in prefixes if largest >= factor), 1e-9)
    return factor, prefixes.get(factor, "nm")


def inner_times(seconds: float, timers: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the seconds of steps by category, the largest first, and last what these leave.

    Categories overlap where communication hides behind work: then nothing is left.
    """
    inner = sorted(timers.items(), key=lambda item: -item[1])
    rest = seconds - sum(timers.values())
    return [*inner, (REST, rest)] if inner and rest > 0 else inner
