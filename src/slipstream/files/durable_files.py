"""Files that survive a crash, whole or not at all, and folders that one run holds at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import socket
import stat
import time
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
# The lock of the folder of a run.
LOCK_NAME = "run.lock"
# The remedy for a folder in use.
WAIT_OR_CHOOSE = "wait for it, stop it, or choose another folder"
# The remedy for a run that resumes there, which has no other folder.
WAIT = "wait for it, or stop it"
# Errors of file systems without locks.
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)
# Attempts to lock a folder: another process may hold its lock for a moment, only to test it.
_ATTEMPTS = 5
# Seconds between attempts.
_PAUSE = 0.02
# The holder of a lock: name of the machine, number of the process, and time.
_HOLDER = re.compile(rb"([\w.-]{1,255}) (\d{1,19}) ([\d:T+-]{1,40})\n")


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


class FolderLock:
    """The lock of a folder; `is_kept` is whether the file system keeps other runs out."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_NAME
        self.is_kept = True
        while True:
            self._file = _open(self._path, os.O_RDWR | os.O_CREAT)
            try:
                self.is_kept = _lock(self._file, fcntl.LOCK_EX)
            except BlockingIOError:
                holder = _read_holder(self._file)
                os.close(self._file)
                raise in_use(folder, holder) from None
            # Another run may have removed the file between the two.
            if self._is_there():
                break
            os.close(self._file)
        began = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{socket.gethostname()} {os.getpid()} {began}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock, and remove the file."""
        if self._file >= 0:
            # Removed while it is held: nobody can hold it and see it go.
            if self._is_there():
                self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), os.lstat(self._path))
        except FileNotFoundError:
            return False


def check_lock(folder: Path) -> None:
    """Refuse a folder into which a run is writing, without changing anything."""
    if not os.path.lexists(folder / LOCK_NAME):
        return
    file = _open(folder / LOCK_NAME, os.O_RDONLY)
    try:
        _lock(file, fcntl.LOCK_SH)
    except BlockingIOError:
        raise in_use(folder, _read_holder(file)) from None
    finally:
        os.close(file)


def is_locked(folder: Path) -> bool:
    """Return whether a run writes into a folder, as far as can be seen, without changing it."""
    try:
        check_lock(folder)
    except InputError:
        return True
    return False


def in_use(folder: Path, holder: str) -> InputError:
    """Return the message about a folder into which another run is writing."""
    return InputError(f"output folder {named(folder)} is in use by {holder}; {WAIT_OR_CHOOSE}")


def _open(path: Path, flags: int) -> int:
    try:
        # Nothing that is not a file of this folder is followed, or waited for.
        file = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        raise InputError(f"{named(path)} cannot be opened: {error.strerror}; remove it") from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise InputError(f"{named(path)} is no file; remove it")
    return file


def _lock(file: int, kind: int) -> bool:
    """Lock a file, and return whether there are locks; BlockingIOError if another has it."""
    for attempt in range(_ATTEMPTS):
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(_PAUSE)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return False
            raise
    return True


def _read_holder(file: int) -> str:
    """Return the holder of a lock, as it is written there."""
    match = _HOLDER.fullmatch(os.pread(file, 400, 0))
    if match is None:
        return "another run"
    host, process, began = (part.decode() for part in match.groups())
    return f"a run on {host}, process {process}, since {began}"
