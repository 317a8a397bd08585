"""Arrays of random numbers, in memory as devices allocate it."""

import numpy as np

from slipstream.engine.device import HostDevice

_DEVICE, _RANDOM = HostDevice(threads=1), np.random.default_rng(0)


def draw(shape, dtype):
    """Return an array of normally distributed numbers, real or complex."""
    values = _RANDOM.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * _RANDOM.standard_normal(shape)
    array = _DEVICE.empty(shape, dtype)
    array[...] = values
    return array
