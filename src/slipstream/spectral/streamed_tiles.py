"""Tiles of a step out of core: what they need, and how planes and columns come and go."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.array_types import Array
from slipstream.decomposition import Box, split
from slipstream.device import Device
from slipstream.fft import ColumnPass, PlanePass, PointProduct, SlabGeometry, plane_pass_bytes
from slipstream.fft.slab_engine import (
    ColumnTile,
    ColumnUpdate,
    PlaneTile,
    SlabEngine,
    SlabExchange,
    TileUpdate,
)
from slipstream.outofcore.streaming_options import Streaming
from slipstream.outofcore.tile_slots import ALIGNMENT, Slot, aligned
from slipstream.schedule import StepGraph
from slipstream.spectral.resident_columns import ResidentColumns


@dataclass(frozen=True)
class TileNeeds:
    """What a step needs of every tile."""

    geometry: SlabGeometry
    dtype: np.dtype
    inputs: int  # fields that go to physical space
    products: int  # fields that come back
    spectral: int  # other complex fields that the update of a range of ky accesses
    reals: int  # real ones
    constants: int  # bytes of what is on every device besides

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

    def bytes_beside(self, planes: int, device: Device, streaming: Streaming) -> int:
        """Return the bytes of a device that are taken beside slots, a library's scratch apart."""
        work = plane_pass_bytes(self.geometry, self.fields, self.dtype, device, planes)
        return self.constants + len(streaming.lanes) * work


class TileTransforms:
    """The transforms of tiles in one lane of a device, one after the other; a `Worker`.

    A tile has at most so many planes, or ky. Planes are sent in `chunks` one after the other.
    """

    def __init__(
        self,
        needs: TileNeeds,
        device: Device,
        planes: int,
        ky: int,
        chunks: int,
        product: PointProduct | None,
    ) -> None:
        arguments = device, needs.geometry, needs.fields, needs.dtype
        self._needs, self._held, self._product = needs, (planes, ky), product
        self._chunks = [high - low for low, high in split(needs.geometry.planes, chunks)]
        self.scratch = device.fft_scratch()
        self.planes = PlanePass(*arguments, planes, self.scratch)
        self.columns = ColumnPass(*arguments, ky, self.scratch)

    def plan(self, slot: Slot[TileTransforms]) -> None:
        g, needs = self._needs.geometry, self._needs
        planes, ky = self._held
        for size in {one for length in self._chunks for one in _sizes(length, planes)}:
            self.planes.plan(self._product, needs.inputs, needs.products, size)
        for fields, size in itertools.product(
            {needs.inputs, needs.products}, _sizes(g.columns_shape[1], ky)
        ):
            slot.clear()
            columns = slot.place((needs.fields, g.shape[0], ky, g.row), needs.dtype)
            self.columns.line.plan(columns[:fields, :, :size].swapaxes(1, 2))
            slot.clear()


@dataclass(frozen=True)
class HostFields:
    """Fields on the host, what of them stays on a device, and how much a tile can hold of them."""

    transforms: SlabEngine
    resident: ResidentColumns
    fields: int
    planes: int
    ky: int


class StreamedColumnTile(ColumnTile):
    """Columns of some ky in a slot, or in memory that stays there; fields are on the host."""

    def __init__(
        self, graph: StepGraph, slot: Slot[TileTransforms], host: HostFields, low: int, high: int
    ) -> None:
        self._graph, self._slot, self._resident = graph, slot, host.resident
        self._geometry, self._ky = host.transforms.geometry, host.ky
        (all_columns,) = host.transforms.columns
        self._on_host = all_columns[:, :, low:high]
        columns = host.resident.columns(low)
        if columns is None:
            _, nz, _, row = all_columns.shape
            columns = slot.place((host.fields, nz, host.ky, row), all_columns.dtype)
        work = slot.work(graph)
        super().__init__(slot.worker.columns, work, columns[:, :, : high - low], low, high)
        # Parts of fields: by field, and by the part what it is on the host; which have values.
        self._parts: dict[tuple, Array] = {}
        self._sources: dict[int, Array] = {}
        self._filled: set[int] = set()
        self._kept: list[Array] = []

    def part(self, array: Array) -> Array:
        """Return where the slot has its part of a spectral field on the host."""
        key = array.ctypes.data, array.shape
        if key not in self._parts:
            fields, kz, _, row = array.shape
            place = self._slot.place((fields, kz, self._ky, row), array.dtype)
            part = place[:, :, : self.high - self.low]
            self._parts[key] = part
            self._sources[id(part)] = array[:, :, self.low : self.high]
        return self._parts[key]

    def record_update(self, update: ColumnUpdate) -> TileUpdate:
        done = super().record_update(update)
        self._filled.update(map(id, self._parts_among(done.writes)))
        self._kept += done.kept
        return done

    def record_columns_in(self, fields: int) -> None:
        for z in self._resident.elsewhere(self.low):
            self._slot.record_in(self._graph, self.columns[:fields, z], self._on_host[:fields, z])

    def record_columns_out(self, fields: int) -> None:
        self._slot.record_out(self._graph, self._on_host[:fields], self.columns[:fields])

    def record_blocks_out(self, fields: slice, exchanges: Sequence[SlabExchange]) -> None:
        (targets,) = (one.targets for one in exchanges)
        first = self._geometry.spectral_box.start[1] + self.low
        columns = self.columns[fields]
        _, nz, ky, row = columns.shape
        mine = self._geometry.physical_box
        low, high = 0, nz
        peer: int | None = None
        if not targets.stores:
            # Columns are packed as they are, but for what this rank sends to itself.
            low, high, peer = mine.start[0], mine.stop[0], self._geometry.rank
            for z in (slice(0, low), slice(high, nz)):
                if z.start < z.stop:
                    self._slot.record_out(self._graph, self._on_host[fields, z], columns[:, z])
        box = Box((low, first, 0), (high, first + ky, row))
        for field, values in enumerate(columns[:, low:high]):
            for part, target in targets.views(field, box, peer):
                if not self._resident.is_here(self.low, part.start[0]):
                    self._slot.record_out(self._graph, target, values[part.slices(box)])

    def record_in(self, arrays: Sequence[Array]) -> None:
        for array in self._parts_among(arrays):
            if id(array) not in self._filled:
                self._slot.record_in(self._graph, array, self._sources[id(array)])
                self._filled.add(id(array))

    def record_kept_out(self) -> None:
        for array in self._kept:
            self._slot.record_out(self._graph, self._sources[id(array)], array)

    def _parts_among(self, arrays: Sequence[Array]) -> list[Array]:
        return [array for array in arrays if id(array) in self._sources]


class StreamedPlaneTile(PlaneTile):
    """Planes of this rank from `low` to `high` in a slot; fields are on the host."""

    is_in_place = False

    def __init__(
        self, graph: StepGraph, slot: Slot[TileTransforms], host: HostFields, low: int, high: int
    ) -> None:
        self._graph, self._slot, self._resident = graph, slot, host.resident
        self._geometry = host.transforms.geometry
        (self._on_host,) = host.transforms.planes
        size = self._geometry.packed_size(host.planes)
        packed = slot.place((host.fields, size), self._on_host.dtype)
        self._held, self._blocks = host.planes, self._geometry.packed_blocks(host.planes)
        super().__init__(slot.worker.planes, slot.work(graph), [packed], low, high, 0)
        self._in_slot = packed

    def record_in(self, fields: int) -> None:
        g, kept = self._geometry, self._resident.ky
        for packed, own in self._pairs(fields):
            self._slot.record_in(self._graph, packed, own)
        packed, own = (
            self._mine(self._in_slot[:fields]),
            self._mine(self._on_host[:fields], g.planes),
        )
        self._resident.record_in(self.work, packed, self.low)
        if packed[:, :, kept:].size:
            self._slot.record_in(self._graph, packed[:, :, kept:], own[:, :, kept:])

    def record_blocks_out(self, fields: int, exchanges: Sequence[SlabExchange]) -> None:
        (targets,) = (one.targets for one in exchanges)
        g, low, ky = self._geometry, self.low, 0
        if not targets.stores:
            # They are packed as they came, but for what this rank sends to itself.
            for packed, own in self._pairs(fields):
                self._slot.record_out(self._graph, own, packed)
        z, planes = g.physical_box.start[0] + low, self.high - low
        for rank, (start, size) in enumerate(self._blocks):
            first, ky = ky, ky + size // g.row
            if rank != g.rank and not targets.stores:
                continue
            packed = _planes_of(self._in_slot[:fields], start, size, 0, planes, g.row)
            if rank == g.rank:
                self._resident.record_out(self.work, packed, low)
                packed, first = packed[:, :, self._resident.ky :], first + self._resident.ky
            box = Box((z, first, 0), (z + planes, ky, g.row))
            for field, values in enumerate(packed):
                for part, target in targets.views(field, box, rank):
                    self._slot.record_out(self._graph, target, values[part.slices(box)])

    def _pairs(self, fields: int) -> Iterator[tuple[Array, Array]]:
        """Yield what the tile has of blocks of other ranks, and these on the host, run by run."""
        g, low, high, held = self._geometry, self.low, self.high, self._held
        runs = zip(g.packed_runs(held, g.rank), g.packed_runs(None, g.rank), strict=True)
        for run, run_on_host in runs:
            yield (
                g.planes_of_run(self._in_slot[:fields], run, held, 0, high - low),
                g.planes_of_run(self._on_host[:fields], run_on_host, g.planes, low, high),
            )

    def _mine(self, packed: Array, held: int | None = None) -> Array:
        """Return planes of this rank's block, of the tile or, if so many are held, of the host."""
        g, low, high = self._geometry, self.low, self.high
        if held is None:
            held, low, high = self._held, 0, high - low
        start, size = g.packed_blocks(held)[g.rank]
        return _planes_of(packed, start, size, low, high, g.row)


def _planes_of(packed: Array, start: int, size: int, low: int, high: int, row: int) -> Array:
    """Return planes of a packed block, (fields, planes, ky, row), whose planes have this size."""
    part = packed[:, start + low * size : start + high * size]
    return part.reshape(len(packed), high - low, size // row, row)


def _sizes(count: int, most: int) -> set[int]:
    """Return the different sizes of tiles into which so many planes, or ky, are cut."""
    return {min(most, count - low) for low in range(0, count, most)}
