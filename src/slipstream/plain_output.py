"""Output for terminals and files that cannot show every letter: none ends in a traceback."""

from __future__ import annotations

import codecs
import sys
import unicodedata

# How people write in ASCII what commands print.
_WRITTEN = str.maketrans(
    {"π": "pi", "µ": "u", "−": "-", "–": "-", "—": "-", "²": "^2", "³": "^3", "×": "x", "·": "*"}
)


def plain(failure: UnicodeError) -> tuple[str, int]:
    """Return what to write for letters that an encoding lacks, as `codecs` asks for it."""
    if not isinstance(failure, UnicodeEncodeError):
        raise failure
    text = failure.object[failure.start : failure.end].translate(_WRITTEN)
    letters = (unicodedata.normalize("NFKD", letter).encode("ascii", "ignore") for letter in text)
    return b"".join(letter or b"?" for letter in letters).decode(), failure.end


def allow_plain_output() -> None:
    """Let standard output and error write plainly what their encoding lacks."""
    codecs.register_error("slipstream.plain", plain)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="slipstream.plain")
