"""Memory of a GPU that other ranks of the node access directly, see `peer_memory`."""

from __future__ import annotations

import math
import platform
from typing import Any

import cupy
import numpy as np

from slipstream.engine.device.cuda_device import CudaDevice
from slipstream.engine.exchange.peer_memory import Owner


class CudaMemory:
    """An allocation that other processes open through CUDA's inter-process handles."""

    def __init__(self, device: CudaDevice, size: int) -> None:
        self._device, self._runtime = device, cupy.cuda.runtime
        with device.context:
            self._pointer = device.allocate(size)
            self.handle = self._runtime.ipcGetMemHandle(self._pointer)
        # Freed by `free` alone: if this kept the object, neither would end without the collector.
        self.own = self._bytes(self._pointer, size, device)
        self.where = platform.node(), device.identity
        self._others: list[int] = []

    def open(self, where: Any, handle: Any, size: int) -> Any:
        node, identity = where
        # Ranks that share a GPU take turns on it: one that waits there would keep the other out.
        if node != platform.node() or identity == self._device.identity:
            return None
        lazily = cupy.cuda.runtime.cudaIpcMemLazyEnablePeerAccess
        with self._device.context:
            try:
                pointer = self._runtime.ipcOpenMemHandle(handle, lazily)
            except self._runtime.CUDARuntimeError:
                return None
        self._others.append(pointer)
        return self._bytes(pointer, size)

    def own_array(self, shape: tuple[int, ...], dtype: np.dtype) -> tuple[Any, Any]:
        size = math.prod(shape) * dtype.itemsize
        owner = Owner(self.own)
        array = self._bytes(self._pointer, size, owner)
        return array.view(dtype).reshape(shape), owner

    def opened(self) -> None:
        """Do nothing: the handle needs no file."""

    def close_others(self) -> None:
        with self._device.context:
            for pointer in self._others:
                self._runtime.ipcCloseMemHandle(pointer)
        self._others.clear()

    def free(self) -> None:
        self._device.release(self._pointer)

    def _bytes(self, pointer: int, size: int, owner: Any = None) -> Any:
        memory = cupy.cuda.UnownedMemory(pointer, size, owner or self, self._device.ordinal)
        with self._device.context:
            return cupy.ndarray((size,), np.uint8, cupy.cuda.MemoryPointer(memory, 0))
