"""Tiles of a step on a device: some planes, or some columns, of fields that are on the host.

A slot has room for a tile. It is filled over the bus, worked on, and emptied over the bus; with
three slots in turn, or one per stream, all of this happens at the same time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.byte_sizes import bytes_text
from slipstream.decomposition import split
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.fft import ColumnPass, PlanePass, PointProduct, SlabGeometry, plane_pass_bytes
from slipstream.fft.device_buffers import ALIGNMENT, PIPELINE_SLOTS, aligned
from slipstream.fft.host_device_copy import Bus
from slipstream.fft.streaming_options import TileStreaming
from slipstream.schedule import MAIN_LANE, StepGraph
from slipstream.schedule.step_graph import PlacedGraph
from slipstream.spectral.transform_passes import ColumnChunk


@dataclass(frozen=True)
class TileNeeds:
    """What a step needs of every tile.

    Attributes
    ----------
    geometry : SlabGeometry
        This rank's part of physical and of spectral space.
    dtype : numpy.dtype
        complex64 or complex128.
    inputs, products : int
        Fields that go to physical space, and that come back.
    spectral, reals : int
        Other complex, and real, fields that the update of a range of ky accesses.
    constants : int
        Bytes of what is on every device besides.
    """

    geometry: SlabGeometry
    dtype: np.dtype
    inputs: int
    products: int
    spectral: int
    reals: int
    constants: int

    @property
    def fields(self) -> int:
        """The largest number of fields that are transformed together."""
        return max(self.inputs, self.products)

    def column_bytes(self, ky: int) -> int:
        """Return the bytes of the columns of so many ky."""
        nz, _, row = self.geometry.columns_shape
        return aligned(self.fields * nz * ky * row * self.dtype.itemsize)

    def slot_bytes(self, planes: int, ky: int) -> int:
        """Return the bytes of a slot for so many planes, or so many ky."""
        g, size = self.geometry, self.dtype.itemsize
        kz, _, nx = g.spectral_box.shape
        packed = aligned(self.fields * g.packed_size(planes) * size)
        # Every part may need a little more to be aligned.
        spectral = self.spectral * (aligned(kz * ky * g.row * size) + ALIGNMENT)
        spectral += aligned(self.reals * kz * ky * nx * size // 2)
        return max(packed, self.column_bytes(ky) + spectral)

    def device_bytes(self, planes: int, ky: int, device: Device, streams: int) -> int:
        """Return the bytes of a device that such tiles take, a library's scratch apart."""
        work = plane_pass_bytes(self.geometry, self.fields, self.dtype, device, planes)
        slots = streams or PIPELINE_SLOTS
        return self.constants + slots * self.slot_bytes(planes, ky) + (streams or 1) * work


class Slot:
    """Room for one tile at a time, and the lanes in which things happen to it.

    Parameters
    ----------
    device : Device
        Where.
    bus : Bus
        How tiles get there.
    size : int
        Bytes.
    stream : str
        The lane of everything; empty for the pipeline's three.
    station : Station
        Who transforms.
    """

    def __init__(self, device: Device, bus: Bus, size: int, stream: str, station: Station) -> None:
        self.device, self._bus, self._stream, self.station = device, bus, stream, station
        self._buffer, self._used = device.empty((size,), np.uint8), 0
        self._staging = [bus.staging(size) for _ in range(2)]

    def clear(self) -> None:
        """Make room for the next tile."""
        self._used = 0

    def place(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an uninitialised array of this tile."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        array = self._buffer[self._used : self._used + size].view(dtype).reshape(shape)
        self._used = aligned(self._used + size)
        return array

    def work(self, graph: StepGraph) -> PlacedGraph:
        """Return where work on this tile is recorded."""
        return graph.on(self.device, self._stream or MAIN_LANE)

    def record_in(self, graph: StepGraph, target: Any, source: Any) -> None:
        """Record a copy from the host."""
        lane = self._stream or "copy in"
        self._bus.record(graph, target, source, True, lane, self._staging[0])

    def record_out(self, graph: StepGraph, target: Any, source: Any) -> None:
        """Record a copy to the host."""
        lane = self._stream or "copy out"
        self._bus.record(graph, target, source, False, lane, self._staging[1])


class Station:
    """Transforms of tiles, one after the other.

    Parameters
    ----------
    needs : TileNeeds
        Of a step.
    device : Device
        Where.
    planes, ky : int
        How many a tile has at most.
    parts : int
        In how many ranges planes are taken one after the other.
    """

    def __init__(self, needs: TileNeeds, device: Device, planes: int, ky: int, parts: int) -> None:
        arguments = device, needs.geometry, needs.fields, needs.dtype
        self._needs, self._device, self._held = needs, device, (planes, ky)
        self._ranges = [high - low for low, high in split(needs.geometry.planes, parts)]
        self.scratch = device.fft_scratch()
        self.planes = PlanePass(*arguments, planes, self.scratch)
        self.columns = ColumnPass(*arguments, ky, self.scratch)

    def plan(self, slot: Slot, product: PointProduct | None) -> None:
        """Plan all transforms of a library, so that their scratch is known.

        Parameters
        ----------
        slot : Slot
            Where a tile may be.
        product : PointProduct or None
            What is computed at the points.
        """
        g, needs = self._needs.geometry, self._needs
        planes, ky = self._held
        for size in {one for length in self._ranges for one in _sizes(length, planes)}:
            self.planes.plan(product, needs.inputs, needs.products, size)
        for fields, size in itertools.product(
            {needs.inputs, needs.products}, _sizes(g.columns_shape[1], ky)
        ):
            slot.clear()
            columns = slot.place((needs.fields, g.shape[0], ky, g.row), needs.dtype)
            self.columns.line.plan(columns[:fields, :, :size].swapaxes(1, 2))
            slot.clear()


class TileDevice:
    """A device with slots for tiles, which take turns.

    Parameters
    ----------
    needs : TileNeeds
        Of a step.
    device, home : Device
        The device, and the host.
    planes, ky, parts : int
        How many a tile has at most; in how many ranges planes are taken.
    streaming : TileStreaming
        How tiles stream.
    product : PointProduct or None
        What is computed at the points.
    """

    def __init__(
        self,
        needs: TileNeeds,
        device: Device,
        home: Device,
        planes: int,
        ky: int,
        parts: int,
        streaming: TileStreaming,
        product: PointProduct | None,
    ) -> None:
        self.device, streams = device, streaming.streams
        bus, size = Bus(device, home, streaming.copies), needs.slot_bytes(planes, ky)
        packed = 2 * size * (streams or PIPELINE_SLOTS) if streaming.copies == "packed" else 0
        if packed > home.memory_free():
            raise InputError(
                f"run.streaming: packed copies take {bytes_text(packed)} of the host, of which "
                f"{bytes_text(home.memory_free())} are free; cut more tiles, or leave copies out"
            )
        stations = [Station(needs, device, planes, ky, parts) for _ in range(streams or 1)]
        self._stations = stations
        self.slots = []
        for number in range(streams or PIPELINE_SLOTS):
            station = stations[number % len(stations)]
            stream = f"stream {number}" if streams else ""
            self.slots.append(Slot(device, bus, size, stream, station))
        for station in stations:
            station.plan(self.slots[0], product)
        self.scratch_bytes = sum(station.scratch.needed for station in stations)

    def provide_scratch(self) -> None:
        """Allocate what transforms of a library need to work in."""
        for station in self._stations:
            station.scratch.provide(self.device.empty((station.scratch.needed,), np.uint8))


class TileChunk:
    """The part of spectral fields, and of products, that a slot has; see `ColumnChunk`.

    Parameters
    ----------
    slot : Slot
        Where.
    columns : array, shape (fields, nz, ky of a tile, row)
        Products, or what becomes of the inputs.
    low, high : int
        Which ky, among those of this rank.
    """

    def __init__(self, slot: Slot, columns: Any, low: int, high: int) -> None:
        self._slot, self._ky, self._range = slot, columns.shape[2], (low, high)
        self._parts: dict[tuple, tuple[Any, Any]] = {}
        self._filled: list[Any] = []
        self._columns = columns[:, :, : high - low]

    def columns(self) -> ColumnChunk:
        """Return the chunk as updates of modes see it."""
        return ColumnChunk(self._slot.device, *self._range, self._columns, self.part)

    def part(self, array: Any) -> Any:
        """Return where the slot has its part of a spectral field on the host."""
        key = array.ctypes.data, array.shape
        if key not in self._parts:
            low, high = self._range
            fields, kz, _, row = array.shape
            place = self._slot.place((fields, kz, self._ky, row), array.dtype)
            self._parts[key] = array[:, :, low:high], place[:, :, : high - low]
        return self._parts[key][1]

    def on_host(self, array: Any) -> Any:
        """Return what on the host a part is copied from and to."""
        return next(host for host, place in self._parts.values() if place is array)

    def missing(self, arrays: Sequence[Any]) -> list[Any]:
        """Return those of some arrays that are parts of fields, and have no values yet."""
        parts = [place for _, place in self._parts.values()]
        return [
            array
            for array in arrays
            if any(array is place for place in parts)
            and not any(array is one for one in self._filled)
        ]

    def note(self, arrays: Sequence[Any]) -> None:
        """Note that arrays have their values from now on."""
        self._filled.extend(arrays)


def _sizes(count: int, most: int) -> set[int]:
    """Return the different sizes of tiles into which so many planes, or ky, are cut."""
    return {min(most, count - low) for low in range(0, count, most)}
