"""The cache of things made once per machine: compiled kernels, lowered models, timings.

Code is loaded from it, so it is a folder of this user with mode 0700; any other is refused. Entries
that are code carry a checksum of their name and content, so a truncated or damaged file is a miss.
They are written under a unique name, flushed to disk and renamed, so no reader sees half a file.
One process per node makes an entry, under a file lock; the others wait and load it. What has not
been used for long is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from slipstream.engine.errors import RunError
from slipstream.engine.text import printable

# The most bytes of the folder.
MOST_BYTES = 512 << 20
# The seconds after which an unused entry is removed.
LONGEST_UNUSED = 180 * 86400.0
# The seconds between two prunings.
_BETWEEN_PRUNINGS = 86400.0
# The seconds after which an unused lock or scratch file is left over from a process that ended.
_LEFT_OVER = 86400.0
# An entry that was used a moment ago may be about to be loaded.
_MOMENT = 3600.0
# The file whose time tells when entries were last pruned.
_PRUNED = "pruned"
# Names in the folder that are no entries.
KEPT_NAMES = (_PRUNED,)
# Names the variable for the folder.
CACHE = "SLIPSTREAM_CACHE"
# The prefix of scratch folders.
SCRATCH = "compiling-"
# The suffixes of compiled code.
CODE_SUFFIXES = (".so", ".cubin")
# The suffixes of all entries.
_SUFFIXES = (*CODE_SUFFIXES, ".model")
# The text at the end of an entry, before its checksum.
MARK = b"slipstream-kernel"
# The bytes of this text and the checksum.
_FOOTER = len(MARK) + hashlib.sha256().digest_size

_warned: set[str] = set()


def cache_folder() -> Path:
    """Return a folder that this user, and nobody else, can read and write.

    The first of ``$SLIPSTREAM_CACHE``, ``$XDG_CACHE_HOME/slipstream`` (``~/.cache/slipstream``)
    and a private folder under the system's temporary one that is such a folder, or can be made.
    """
    folder, refused = _choose_folder()
    if folder is None:
        raise RunError(
            f"no folder for compiled kernels can be used ({'; '.join(refused)}); set {CACHE} to one"
        )
    return folder


def cache_text() -> str:
    """Return the folder of the cache, and the reason if it is not the usual one, for people."""
    folder, refused = _choose_folder()
    passed_over = f" (passed over: {'; '.join(refused)})" if refused else ""
    return f"{folder or 'none'}{passed_over}"


def _choose_folder() -> tuple[Path | None, list[str]]:
    """Return the first folder that will do, if any, and the faults of earlier ones."""
    refused: list[str] = []
    for folder in _candidates():
        reason = _make_folder(folder) or distrusted(folder)
        if not reason:
            return folder, refused
        refused.append(f"{folder}: {reason}")
    return None, refused


def _candidates() -> list[Path]:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    private = Path(tempfile.gettempdir()) / f"slipstream-{os.getuid()}"
    chosen = os.environ.get(CACHE)
    return ([Path(chosen)] if chosen else []) + [Path(base) / "slipstream", private]


def _make_folder(folder: Path) -> str:
    """Make a folder, and those above it, if need be; return why that failed."""
    try:
        for path in (*reversed(folder.parents), folder):
            if not path.exists():
                # Not as `parents=True` makes them: with those rights that the umask leaves.
                path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        return error.strerror or str(error)
    return "" if os.access(folder, os.W_OK) else "it cannot be written"


def distrusted(folder: Path) -> str:
    """Return the reason why a folder is not this user's alone; nothing if it is."""
    try:
        status = folder.stat()
    except OSError as error:
        return error.strerror or str(error)
    if not stat.S_ISDIR(status.st_mode):
        return "it is no folder"
    if status.st_uid != os.getuid():
        return "it belongs to another user"
    mode = status.st_mode & 0o777
    return "" if mode == 0o700 else f"its mode is {mode:04o}; accepted: 0700 (chmod 700)"


def find(name: str) -> bytes | None:
    """Return the content of a code entry; None if there is none."""
    return _read_entry(cache_folder() / name)


def find_or_make(name: str, make: Callable[[Path], bytes]) -> tuple[Path, bytes]:
    """Return the path and content of a code entry, making it in the given folder if needed."""
    folder = cache_folder()
    path = folder / name
    content = _read_entry(path)
    if content is not None:
        return path, content
    _warn_if_passed_over(folder)
    with locked(path.with_suffix(".lock")):
        content = _read_entry(path)
        if content is None:
            content = make(folder)
            write_atomically(path, _add_footer(content, path))
    prune(folder)
    return path, content


def _warn_if_passed_over(folder: Path) -> None:
    """Warn that the folder that the user chose is not used, once per process and reason."""
    _, refused = _choose_folder()
    if os.environ.get(CACHE) and refused:
        # The chosen folder is the first candidate.
        text = f"{CACHE}: {printable(refused[0])}; kernels are kept in {folder} instead"
        if text not in _warned:
            _warned.add(text)
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def _add_footer(content: bytes, path: Path) -> bytes:
    # Loaders ignore bytes after the last section, so the checksum can travel in the file.
    return content + MARK + hashlib.sha256(path.name.encode() + b"\0" + content).digest()


def _read_entry(path: Path) -> bytes | None:
    """Return the code in an entry; None if there is none, or it is damaged."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    content = data[:-_FOOTER]
    if not content or data != _add_footer(content, path):
        return None
    note_use(path)
    return content


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


def note_use(path: Path) -> None:
    """Note that an entry is used now, which keeps it from being removed."""
    with contextlib.suppress(OSError):
        status = path.stat()
        if time.time() - _find_last_use(status) > _MOMENT / 2:
            os.utime(path, ns=(time.time_ns(), status.st_mtime_ns))


def _find_last_use(status: os.stat_result) -> float:
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
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    while True:
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, how)
            # Who had it may have removed the file: then others lock another one of that name.
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
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
    """Remove entries that are long unused, or too many, at most once a day."""
    now = time.time() if now is None else now
    stamp = folder / _PRUNED
    with contextlib.suppress(OSError):
        if now - stamp.lstat().st_mtime < _BETWEEN_PRUNINGS:
            return
    with contextlib.suppress(OSError):
        write_atomically(stamp, b"")
        _remove_unused(folder, now)


def _remove_unused(folder: Path, now: float) -> None:
    entries, total = [], 0
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            status = path.lstat()
            unused = now - _find_last_use(status)
            if path.name.startswith(SCRATCH) or _is_half_written(path):
                if unused > _LEFT_OVER:
                    shutil.rmtree(path) if stat.S_ISDIR(status.st_mode) else path.unlink()
            elif path.suffix == ".lock" and unused > _LEFT_OVER:
                descriptor = _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if descriptor is not None:
                    _unlock(path, descriptor)
            elif path.suffix in _SUFFIXES:
                entries.append((unused, path, status.st_size))
                total += status.st_size
    for unused, path, size in sorted(entries, reverse=True):
        if unused > LONGEST_UNUSED or (total > MOST_BYTES and unused > _MOMENT):
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size


def _is_half_written(path: Path) -> bool:
    named = any(suffix in path.name for suffix in _SUFFIXES)
    return named and path.suffix not in _SUFFIXES
