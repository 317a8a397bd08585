"""Output for terminals and files that cannot show every letter, and for readers that have gone.

None ends in a traceback, and none ends a run.
"""

from __future__ import annotations

import codecs
import errno
import io
import sys
import unicodedata
from typing import Any

# What the system answers when nobody reads a pipe, or a terminal, any more.
_GONE = (errno.EPIPE, errno.EIO)

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
    """Let standard output and error write plainly what their encoding lacks, to readers or none."""
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
