"""Threads of this process: their number, and objects that a forked process must recreate."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from slipstream.errors import InputError


class Renewable(Protocol):
    """An object with threads, locks or other resources of one process."""

    def renew(self) -> None:
        """Take the place of what the parent process had."""


_things: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_in_child(thing: Renewable) -> None:
    """Renew an object in processes that are forked while it is alive."""
    _things.add(thing)


def _renew() -> None:
    for thing in list(_things):
        thing.renew()


os.register_at_fork(after_in_child=_renew)


# The most threads, if there are few cores: of thousands, systems refuse some, and
# OpenMP then ends the process.
_MOST = 256


def thread_count() -> int:
    """Return ``OMP_NUM_THREADS`` if it is set, else the number of cores this process may use."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    if not setting.strip():
        return len(os.sched_getaffinity(0))
    # One for each level of nested loops; here there is one level.
    numbers = [number.strip() for number in setting.split(",")]
    most = max(_MOST, 4 * (os.cpu_count() or 1))
    if not all(one.isdecimal() and 1 <= int(one) <= most for one in numbers):
        raise InputError(f"OMP_NUM_THREADS is {setting!r}; accepted: a whole number, 1 to {most}")
    return int(numbers[0])
