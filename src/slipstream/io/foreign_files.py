"""Files of folders that somebody else may have written: nothing is followed, or waited for."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

_KINDS = {
    stat.S_ISLNK: "a symbolic link",
    stat.S_ISDIR: "a folder",
    stat.S_ISFIFO: "a FIFO",
    stat.S_ISSOCK: "a socket",
}


def kind_of(mode: int) -> str:
    """Return what something is that is no file, by its mode."""
    return next((kind for is_kind, kind in _KINDS.items() if is_kind(mode)), "a device or the like")


def open_file(path: str | Path) -> BinaryIO:
    """Open a regular file to be read; an OSError for anything else, such as a link or a FIFO."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "not a regular file", str(path))
    return open(descriptor, "rb")


def content_of(path: str | Path, most: int) -> bytes:
    """Return what is in a regular file; an OSError also if it is longer than `most` bytes."""
    with open_file(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(None, f"longer than {most} bytes", str(path))
    return content
