"""Which of a user's arrays a plan can use in place.

Recording a transform between two arrays takes longer than a copy, and keeps them alive. So arrays
are used in place from the second time on; what comes only once is copied.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from slipstream.device import Device, address_of

_RECOGNISED = 8


class KnownArrays:
    """The arrays that a plan has seen lately.

    Parameters
    ----------
    device : Device
        Where arrays must be to be used in place.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._seen: deque[tuple] = deque(maxlen=_RECOGNISED)

    def note(self, array: Any) -> None:
        """Remember an array that will come again."""
        self._seen.append(array_key(array))

    def usable(self, array: Any) -> bool:
        """Return whether an array can be used in place, and has been seen before."""
        if not self._device.holds(array):
            return False
        key = array_key(array)
        fits = array.size and key[0] % 16 == 0 and min(array.strides) > 0
        if self._device.kind == "cuda":
            # A library may choose another way for other strides, and so give other bits.
            fits = fits and array.flags.c_contiguous
        else:
            fits = fits and array.strides[-1] == array.itemsize and array.flags.writeable
        if fits and key not in self._seen:
            self._seen.append(key)
            return False
        return bool(fits)


def array_key(array: Any) -> tuple:
    """Return what tells arrays of one shape and type apart: address and strides."""
    return address_of(array), array.strides
