"""Files and folders that outlast a power cut, and failures to write that name the file."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from slipstream.errors import InputError, RunError
from slipstream.io.held_paths import plain_name

# Suffixes of files that are not whole yet, and of damaged ones that were set aside.
PARTIAL, DAMAGED = ".partial", ".damaged"
# Of folders: file systems that cannot flush them, and folders that may be written but not read.
_CANNOT_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)


@contextlib.contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write a file into a `RunError` with the file and the reason.

    A name that is too long is an `InputError`.
    """
    try:
        yield
    except OSError as error:
        where = path if error.filename is None else plain_name(error.filename)
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
        # What has this name is no file of ours that is still written: it is not written to.
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
