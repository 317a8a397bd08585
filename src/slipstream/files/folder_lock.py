"""The lock of a run's folder, by which one process at a time writes into it."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import stat
import time
from pathlib import Path

from slipstream.engine.errors import InputError
from slipstream.files.durable_files import named

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
