"""How much memory something takes: allocations while its meter ran that still exist."""

from __future__ import annotations

import threading
import weakref
from typing import Any, TypeVar

import numpy as np

from slipstream.array_types import Array

Allocated = TypeVar("Allocated", bound=Array)
_running = threading.local()
# So many things that are gone do not matter.
_FEW = 64


class MemoryMeter:
    """Counts what devices allocate in a thread in the ``with`` statements that this is used in."""

    def __init__(self) -> None:
        # Noted allocations: an owner, where, and how many bytes; and how many of these were left
        # at the last search for released ones.
        self.taken: list[tuple[weakref.ref[Any], str, int]] = []
        self.pruned = 0

    def __enter__(self) -> None:
        self._outer = getattr(_running, "meter", None)
        _running.meter = self

    def __exit__(self, *exception: object) -> None:
        _running.meter = self._outer

    def total(self) -> dict[str, int]:
        """Return the bytes that are taken now on the "device", a GPU, the "host" and "disk"."""
        result = {"device": 0, "host": 0}
        for owner, place, size in self.taken:
            if owner() is not None:
                result[place] = result.get(place, 0) + size
        return result


def note(array: Allocated) -> Allocated:
    """Count an array that was allocated, if a meter runs; return it."""
    if getattr(_running, "meter", None) is not None:
        owner: Any = array
        while isinstance(owner.base, type(array)):
            owner = owner.base
        note_owned(owner, "host" if isinstance(array, np.ndarray) else "device", array.nbytes)
    return array


def note_owned(owner: Any, place: str, size: int) -> None:
    """Count bytes on the "host" or a "device" for as long as their owner lives, if a meter runs."""
    meter = getattr(_running, "meter", None)
    if meter is None:
        return
    if len(meter.taken) > 2 * meter.pruned + _FEW:
        meter.taken = [one for one in meter.taken if one[0]() is not None]
        meter.pruned = len(meter.taken)
    meter.taken.append((weakref.ref(owner), place, size))
