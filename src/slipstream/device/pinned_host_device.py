"""The host beside a GPU: its arrays are pinned, and copied asynchronously."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from slipstream.device.cpu_device import HostDevice
from slipstream.device.device_interface import Device
from slipstream.device.noting_device import NotingDevice

if TYPE_CHECKING:
    from slipstream.device.cuda_device import CudaDevice


class PinnedHost(HostDevice):
    """The CPU, with arrays that a GPU allocates and reaches."""

    def __init__(self, device: CudaDevice) -> None:
        super().__init__()
        self._device = device
        # What ranks share through it is pinned, unlike what they share through the CPU alone.
        self.identity = f"{self.identity}, pinned"

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return an uninitialised array that is pinned."""
        return self._device.pinned(shape, dtype)

    pinned = empty

    def pin(self, memory: np.ndarray) -> None:
        self._device.pin(memory)

    def holds(self, array: object) -> bool:
        """Return whether an array is pinned; other arrays would have to be copied."""
        return isinstance(array, np.ndarray) and self._device.is_pinned(array)


@functools.cache
def _pinned_host(device: CudaDevice) -> PinnedHost:
    return PinnedHost(device)


def home_of(device: Device) -> Device:
    """Return the host as the home of arrays that a device copies, always the same object.

    A CPU is its own home.
    """
    if isinstance(device, NotingDevice):
        return device.home
    return device if device.kind == "cpu" else _pinned_host(cast("CudaDevice", device))
