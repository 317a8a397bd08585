"""Files that survive a crash, whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from slipstream.engine.errors import InputError, RunError

# The suffix of files that are not whole yet.
PARTIAL = ".partial"
# The suffix of damaged files that were set aside.
DAMAGED = ".damaged"
# Errors of file systems that cannot flush folders, and of folders that cannot be read.
_CANNOT_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)
# The path of a folder that is held open.
_OPEN_FOLDER = re.compile(r"/proc/self/fd/\d+")


def named(path: str | Path) -> str:
    """Return a path for people: of a folder that is held open, where it is now."""
    text = str(path)
    found = _OPEN_FOLDER.match(text)
    return os.readlink(found[0]) + text[found.end() :] if found else text


@contextlib.contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """Raise the system's refusal to write a file as a `RunError` with the file and the reason."""
    try:
        yield
    except OSError as error:
        where = named(path if error.filename is None else os.fsdecode(error.filename))
        kind = InputError if error.errno == errno.ENAMETOOLONG else RunError
        raise kind(f"{where} cannot be written: {error.strerror or error}") from error


def replace_file(
    path: Path,
    content: bytes | memoryview,
    is_flushed_later: bool = False,
    partial: Path | None = None,
) -> None:
    """Write a file that others see as it was or whole, after a power cut too.

    With `is_flushed_later` a new file may be empty after a power cut, until `flush_file`. A kill
    leaves it at `partial`, by default in the same folder.
    """
    partial = partial or path.with_name(path.name + PARTIAL)
    with errors_name(path):
        # A file of this name is no file of ours that is still written: it is not written to.
        partial.unlink(missing_ok=True)
        try:
            with partial.open("xb") as file:
                file.write(content)
                if not is_flushed_later or path.exists():
                    file.flush()
                    os.fsync(file.fileno())
            partial.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise


def free_name(path: Path) -> Path:
    """Return a path, or the same with a number if something has that name."""
    free, number = path, 1
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.name}~{number}")
    return free


def flush_file(path: Path) -> None:
    """Wait until the content of a file is on the disk."""
    with errors_name(path):
        _flush(path)


def flush_folder(path: Path) -> None:
    """Wait until it is on the disk which files a folder has, and under which names."""
    with errors_name(path):
        try:
            _flush(path)
        except OSError as error:
            if error.errno not in _CANNOT_FLUSH:
                raise


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it where they are missing, so that they last."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    flush_folder(path.parent)
