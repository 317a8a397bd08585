"""How much memory something takes: what was allocated while its meter ran, and is still there."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np

_running = threading.local()


class MemoryMeter:
    """Counts what devices allocate in a thread in the ``with`` statements that this is used in."""

    def __init__(self) -> None:
        self._taken: list[tuple[weakref.ref, str, int]] = []
        self._pruned = 0

    def __enter__(self) -> None:
        self._outer = getattr(_running, "meter", None)
        _running.meter = self

    def __exit__(self, *exception: object) -> None:
        _running.meter = self._outer

    def add(self, owner: Any, place: str, size: int) -> None:
        """Count so many bytes as long as their owner lives."""
        if len(self._taken) > 2 * self._pruned + 64:
            self._taken = [one for one in self._taken if one[0]() is not None]
            self._pruned = len(self._taken)
        self._taken.append((weakref.ref(owner), place, size))

    def total(self) -> dict[str, int]:
        """Return the bytes that are taken now on the "device", a GPU, and on the "host"."""
        result = {"device": 0, "host": 0}
        for owner, place, size in self._taken:
            if owner() is not None:
                result[place] += size
        return result


def note(array: Any) -> Any:
    """Count an array that was allocated, if a meter runs; return it."""
    meter = getattr(_running, "meter", None)
    if meter is not None:
        owner = array
        while isinstance(owner.base, type(array)):
            owner = owner.base
        place = "host" if isinstance(array, np.ndarray) else "device"
        meter.add(owner, place, array.nbytes)
    return array


def note_shared(owner: Any, kind: str, size: int) -> None:
    """Count memory that is shared with other ranks, of a kind of device, if a meter runs."""
    meter = getattr(_running, "meter", None)
    if meter is not None:
        meter.add(owner, "host" if kind == "cpu" else "device", size)
