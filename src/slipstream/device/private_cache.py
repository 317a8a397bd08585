"""The cache of what is made once per machine: compiled kernels, FFTW's wisdom, timings.

Code is loaded from it, so it is used only if nobody else can have written there: the folder, and
all that leads to it, belong to this user or to root, and nobody else may write to them. Files that
are read must belong to this user. Entries that are code carry a digest of their content, keyed by a
secret of the folder, so a truncated or foreign file is a miss. They are written under a unique
name, flushed to disk and renamed, so no reader sees half a file. One process per node makes an
entry, under a file lock; the others wait and load it. What has not been used for long is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import grp
import hashlib
import hmac
import os
import pwd
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from slipstream.errors import RunError

# Sizes in bytes, ages in seconds.
MOST_BYTES, LONGEST_UNUSED = 512 << 20, 180 * 86400.0
_BETWEEN_PRUNINGS, _LEFT_OVER = 86400.0, 86400.0
# An entry that was used a moment ago may be about to be loaded.
_MOMENT = 3600.0
_KEY, _PRUNED = "key", "pruned"
KEPT_NAMES = (_KEY, _PRUNED)
SCRATCH = "compiling-"
CODE_SUFFIXES = (".so", ".cubin")
MARK = b"slipstream-kernel"
_FOOTER = len(MARK) + hashlib.sha256().digest_size
_KEY_BYTES = 32
_MOST_LINKS = 40


def cache_folder() -> Path:
    """Return a folder that this user, and nobody else, can write to.

    The first of ``$SLIPSTREAM_CACHE``, ``$XDG_CACHE_HOME/slipstream`` (``~/.cache/slipstream``)
    and a private folder under the system's temporary one that is such a folder, or can be made.
    """
    folder, refused = _chosen()
    if folder is None:
        raise RunError(
            f"no folder for compiled kernels can be used ({'; '.join(refused)}); "
            "set SLIPSTREAM_CACHE to one"
        )
    return folder


def cache_text() -> str:
    """Return where the cache is, and why it is not where it would be, for people."""
    folder, refused = _chosen()
    passed_over = f" (passed over: {'; '.join(refused)})" if refused else ""
    return f"{folder or 'none'}{passed_over}"


def _chosen() -> tuple[Path | None, list[str]]:
    """Return the folder, if any will do, and what is wrong with those before it."""
    refused: list[str] = []
    for folder in _candidates():
        reason = _made(folder) or distrusted(folder)
        if not reason:
            return folder, refused
        refused.append(f"{folder}: {reason}")
    return None, refused


def _candidates() -> list[Path]:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    private = Path(tempfile.gettempdir()) / f"slipstream-{os.getuid()}"
    chosen = os.environ.get("SLIPSTREAM_CACHE")
    return ([Path(chosen)] if chosen else []) + [Path(base) / "slipstream", private]


def _made(folder: Path) -> str:
    """Make a folder, and those above it, if need be; return why that failed."""
    try:
        for one in (*reversed(folder.parents), folder):
            if not one.exists():
                # Not as `parents=True` makes them: with those rights that the umask leaves.
                one.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        return error.strerror or str(error)
    return "" if os.access(folder, os.W_OK) else "it cannot be written"


def distrusted(folder: Path) -> str:
    """Return who else may have written into a folder; nothing if nobody can."""
    try:
        last = Path(os.path.realpath(folder))
        for place, status in _way_to(folder):
            is_last = place == last
            if status.st_uid not in ((os.getuid(),) if is_last else (0, os.getuid())):
                return f"{place} belongs to another user"
            if stat.S_ISLNK(status.st_mode):
                continue  # of which the owner alone may change where it leads
            # In a folder such as /tmp nobody can replace what is somebody else's.
            if _is_open(status) and (is_last or not status.st_mode & stat.S_ISVTX):
                return f"others may write to {place}"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _is_open(status: os.stat_result) -> bool:
    """Return whether others than the owner may write to a folder or a file."""
    if status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid):
        return True
    return bool(status.st_mode & stat.S_IWOTH)


def _way_to(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield all folders and links that lead to a folder, and the folder itself, as it is."""
    waiting, here, links = list(reversed(folder.absolute().parts[1:])), Path("/"), 0
    yield here, os.lstat(here)
    while waiting:
        part = waiting.pop()
        if part == "..":
            here = here.parent
            continue
        place = here / part
        status = os.lstat(place)
        yield place, status
        if not stat.S_ISLNK(status.st_mode):
            here = place
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError("too many links")
        target = Path(os.readlink(place))
        if target.is_absolute():
            here = Path("/")
        waiting += [one for one in reversed(target.parts) if one != "/"]


@functools.cache
def _is_private_group(group: int) -> bool:
    """Return whether a group is that of this user alone, as many systems make for each."""
    try:
        name, entry = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_name == name and set(entry.gr_mem) <= {name}


def find_or_make(name: str, make: Callable[[Path], bytes]) -> tuple[Path, bytes]:
    """Return the path and content of a code entry, making it in the given folder if needed."""
    folder = cache_folder()
    path = folder / name
    content = _whole(path)
    if content is not None:
        return path, content
    with locked(path.with_suffix(".lock")):
        content = _whole(path)
        if content is None:
            content = make(folder)
            write_atomically(path, _with_footer(content, path))
    prune(folder)
    return path, content


def _with_footer(content: bytes, path: Path) -> bytes:
    # Loaders ignore bytes after the last section, so the digest can travel in the file.
    return content + MARK + digest(path.parent, path.name, content)


def _whole(path: Path) -> bytes | None:
    """Return the code in an entry; None if there is none, or it is not what was written."""
    try:
        data = read_own(path)
    except OSError:
        return None
    content = data[:-_FOOTER]
    if not content or not hmac.compare_digest(data, _with_footer(content, path)):
        return None
    note_use(path)
    return content


def read_own(path: Path, most: int = 1 << 28) -> bytes:
    """Return what is in a file of the cache; an OSError if it is not this user's alone."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()
        if not is_own or _is_open(status) or status.st_size > most:
            raise PermissionError(f"{path} is not a file that this user alone writes")
        return file.read()


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to `path` so that every reader sees the old file or the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def digest(folder: Path, name: str, content: bytes) -> bytes:
    """Return the digest of an entry of a folder, which only this user can make."""
    return hmac.digest(_key(folder), name.encode() + b"\0" + content, "sha256")


def _key(folder: Path) -> bytes:
    path = folder / _KEY
    for _ in range(3):
        with contextlib.suppress(OSError):
            key = read_own(path, _KEY_BYTES)
            if len(key) == _KEY_BYTES and not os.lstat(path).st_mode & 0o077:
                return key
            path.unlink()  # and all entries are made anew
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=SCRATCH)  # for this user alone
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        # Of several processes that make one, all take the first.
        with contextlib.suppress(OSError):
            os.link(temporary, path)
        os.unlink(temporary)
    raise RunError(f"{path} cannot be used; remove it, or set SLIPSTREAM_CACHE to another folder")


def note_use(path: Path) -> None:
    """Note that an entry is used now, which keeps it from being removed."""
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        if time.time() - _used(status) > _MOMENT / 2:
            os.utime(path, ns=(time.time_ns(), status.st_mtime_ns), follow_symlinks=False)


def _used(status: os.stat_result) -> float:
    return max(status.st_atime, status.st_mtime)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is there only as long as somebody has it."""
    descriptor = _lock(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor is not None:
            _unlock(path, descriptor)


def _lock(path: Path, how: int) -> int | None:
    """Return the descriptor of a lock; None if somebody has it and `how` is not to wait."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, how)
            # Who had it may have removed the file: then others lock another one of that name.
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        os.close(descriptor)


def _unlock(path: Path, descriptor: int) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
    os.close(descriptor)


def prune(folder: Path, now: float | None = None) -> None:
    """Remove what has not been used for long, or is too much, at most once a day."""
    now = time.time() if now is None else now
    stamp = folder / _PRUNED
    with contextlib.suppress(OSError):
        if now - stamp.lstat().st_mtime < _BETWEEN_PRUNINGS:
            return
    with contextlib.suppress(OSError):
        write_atomically(stamp, b"")
        _prune(folder, now)


def _prune(folder: Path, now: float) -> None:
    entries, total = [], 0
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            status = path.lstat()
            unused = now - _used(status)
            if path.name.startswith(SCRATCH) or _is_half_written(path):
                if unused > _LEFT_OVER:
                    shutil.rmtree(path) if stat.S_ISDIR(status.st_mode) else path.unlink()
            elif path.suffix == ".lock" and unused > _LEFT_OVER:
                descriptor = _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if descriptor is not None:
                    _unlock(path, descriptor)
            elif path.suffix in CODE_SUFFIXES:
                entries.append((unused, path, status.st_size))
                total += status.st_size
    for unused, path, size in sorted(entries, reverse=True):
        if unused > LONGEST_UNUSED or (total > MOST_BYTES and unused > _MOMENT):
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size


def _is_half_written(path: Path) -> bool:
    named = any(suffix in path.name for suffix in CODE_SUFFIXES)
    return named and path.suffix not in CODE_SUFFIXES
