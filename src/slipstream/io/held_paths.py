"""Paths in a folder that is held open: they stay valid if it is renamed.

People read the name by which they know the folder; the system is given the open folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

# By what the system is given, what people read.
_NAMES: dict[str, str] = {}


def held_path(folder: str | Path) -> tuple[Path, int, Callable[[], None]]:
    """Open a folder; return its path, its descriptor, and what closes it.

    The path, and all paths below it, lead into the open folder. Once that is closed, and where the
    system does not list open files, they are paths like any others.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(folder, flags)
    door, name = f"/proc/self/fd/{descriptor}", str(Path(folder))
    doors = [door] if _leads_to(door, descriptor) else []
    below = "" if name == "." else f"{name.rstrip('/')}/"

    class HeldPath(type(Path())):  # type: ignore[misc]
        """A path whose text is for people."""

        def __fspath__(self) -> str:
            text = str(self)
            if not doors:
                return text
            if text == name:
                return doors[0]
            is_below = text.startswith(below) if below else not self.is_absolute()
            return f"{doors[0]}/{text[len(below) :]}" if is_below else text

        def __reduce__(self) -> tuple[type, tuple[str]]:
            return Path, (str(self),)  # another process has not opened it

    def close() -> None:
        for one in doors:
            _NAMES.pop(one, None)
        doors.clear()
        os.close(descriptor)

    HeldPath.__name__ = type(Path()).__name__
    if doors:
        _NAMES[door] = name
    return HeldPath(name), descriptor, close


def _leads_to(door: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(door), os.fstat(descriptor))
    except OSError:
        return False


def door_of(path: str | Path) -> str:
    """Return by which path another process of this user reaches the same file."""
    return os.path.abspath(os.fspath(path).replace("/proc/self/", f"/proc/{os.getpid()}/", 1))


def as_path(given: str | Path) -> Path:
    """Return a path that is held where the given one is."""
    return given if isinstance(given, Path) else Path(given)


def plain_name(name: str | bytes | os.PathLike[str]) -> str:
    """Return the path by which people know a file that the system names."""
    text = str(name) if isinstance(name, os.PathLike) else os.fsdecode(name)
    door = "/".join(text.split("/")[:5])
    return _NAMES[door] + text[len(door) :] if door in _NAMES else text
