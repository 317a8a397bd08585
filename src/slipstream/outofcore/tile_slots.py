"""Rotating buffers on a device: slots through which tiles go, and the lanes in which they do.

Arrays on the host are cut into tiles so that they fit on a device one by one. While one tile is
worked on, the next is copied in and the one before is copied out: with a lane each for copies in,
for work and for copies out, three slots make the pipeline. Or everything that happens to a tile
does so in one of several streams, a slot each, as in GHOST.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from slipstream.array_types import Array
from slipstream.device import Device, Scratch
from slipstream.outofcore.host_device_copy import HostDeviceCopier
from slipstream.outofcore.memory_budget import TooLittleMemory
from slipstream.outofcore.streaming_options import Streaming
from slipstream.schedule import MAIN_LANE, StepGraph

# Buffers begin at multiples of this many bytes, as cuFFT, vector code and drives like it.
ALIGNMENT = 512


def aligned(size: int) -> int:
    """Return the bytes after which the next buffer may begin."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Worker(Protocol):
    """Who works on tiles in one lane of a device, one after the other."""

    @property
    def scratch(self) -> Scratch:
        """The resources that a library's transforms in this lane share."""

    def plan(self, slot: Slot[Any]) -> None:
        """Plan all that a library will do to tiles in a slot, so that its scratch is known."""


W = TypeVar("W", bound=Worker)


class Slot(Generic[W]):
    """Room for one tile at a time, and the lanes in which things happen to it.

    `stream` is the lane of everything; empty for the pipeline's three.
    """

    def __init__(
        self, device: Device, bus: HostDeviceCopier, size: int, stream: str, worker: W
    ) -> None:
        self.device, self.worker = device, worker
        self._bus, self._stream = bus, stream
        self._buffer = device.empty((size,), np.uint8)
        self._staging = [bus.staging(size) for _ in range(2)]
        self._used = 0
        # How much of the memory for each way the copies of this tile have taken.
        self._staged = [0, 0]

    def clear(self) -> None:
        """Make room for the next tile."""
        self._used, self._staged = 0, [0, 0]
        self._bus.begin_tile()

    def place(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an uninitialised array of this tile."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        array = self._buffer[self._used : self._used + size].view(dtype).reshape(shape)
        self._used = aligned(self._used + size)
        return array

    def work(self, graph: StepGraph) -> StepGraph:
        """Return where work on this tile is recorded."""
        return graph.on(self.device, self._stream or MAIN_LANE)

    def record_in(self, graph: StepGraph, target: Array, source: Array) -> None:
        """Record a copy from the host."""
        lane = self._stream or "copy in"
        self._bus.record(graph, target, source, True, lane, self._staging_of(0, source.nbytes))

    def record_out(self, graph: StepGraph, target: Array, source: Array) -> None:
        """Record a copy to the host."""
        lane = self._stream or "copy out"
        self._bus.record(graph, target, source, False, lane, self._staging_of(1, source.nbytes))

    def _staging_of(self, way: int, size: int) -> Array | None:
        """Return memory for a copy, apart from other copies of the tile, as far as it goes."""
        staging = self._staging[way]
        if staging is None:
            return None
        low = self._staged[way] if self._staged[way] + size <= staging.nbytes else 0
        self._staged[way] = aligned(low + size)
        return staging[low : low + size]


class TileDevice(Generic[W]):
    """A device with slots for tiles, which take turns, and with a worker for each of its lanes.

    A slot has `size` bytes. `beside` are the bytes of workers and of all else on the device.
    `TooLittleMemory` is raised if all `bytes` exceed the limit.
    """

    def __init__(
        self,
        device: Device,
        home: Device,
        streaming: Streaming,
        size: int,
        make_worker: Callable[[str], W],
        beside: int,
        limit: int,
    ) -> None:
        self.device = device
        self.bytes = beside + streaming.slots * size
        if self.bytes > limit:
            raise TooLittleMemory
        bus = HostDeviceCopier(device, home, streaming.copies)
        lanes = streaming.lanes
        self._workers = [make_worker(lane) for lane in lanes]
        self.slots = [
            Slot(device, bus, size, lanes[number % len(lanes)], self._workers[number % len(lanes)])
            for number in range(streaming.slots)
        ]
        # First planned to find out what a library needs to work in, then again with that memory.
        for slot in self.slots:
            slot.worker.plan(slot)
        self.bytes += sum(worker.scratch.needed for worker in self._workers)
        if self.bytes > limit:
            raise TooLittleMemory
        self.provide_scratch()

    def provide_scratch(self) -> None:
        """Allocate what transforms of a library need to work in."""
        for worker in self._workers:
            worker.scratch.provide(self.device.empty((worker.scratch.needed,), np.uint8))


class TileSlots(Generic[W]):
    """Takes tiles through slots: copies in, work, copies out; those of all devices in turn."""

    def __init__(self, devices: Sequence[TileDevice[W]]) -> None:
        self._devices, self._turn = list(devices), 0

    @property
    def bytes(self) -> int:
        """Bytes allocated on each device."""
        return max((one.bytes for one in self._devices), default=0)

    def next_slot(self) -> Slot[W]:
        """Return the slot whose turn it is, with room for a tile."""
        devices, turn = len(self._devices), self._turn
        self._turn += 1
        slots = self._devices[turn % devices].slots
        slot = slots[turn // devices % len(slots)]
        slot.clear()
        return slot
