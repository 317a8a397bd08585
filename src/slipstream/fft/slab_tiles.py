"""How many tiles slabs on the host are cut into, and the memory of devices that these take.

Few large tiles are best, as far as they fit: `SlabTiles` finds the fewest. What tiles do is in
`streamed_slabs.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from slipstream.array_types import Array, Comm
from slipstream.byte_sizes import bytes_text
from slipstream.collective import largest, on_every_rank
from slipstream.decomposition import split
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.fft.column_transforms import ColumnPass
from slipstream.fft.padded_rows import padded_row
from slipstream.fft.plane_transforms import PlaneBatches, PlanePass, PointProduct
from slipstream.fft.slab_engine import PLANE_CHUNKS
from slipstream.fft.slab_layout import PlaneGeometry, SlabGeometry
from slipstream.outofcore.file_arrays import FileHome
from slipstream.outofcore.memory_budget import NO_LIMIT, fewest_tiles, tile_counts, too_little
from slipstream.outofcore.streaming_options import Streaming
from slipstream.outofcore.tile_slots import ALIGNMENT, Slot, TileDevice, TileSlots, aligned


@dataclass(frozen=True)
class TileNeeds:
    """The numbers that decide how much memory the tiles of a step take."""

    geometry: PlaneGeometry
    dtype: np.dtype
    inputs: int  # fields that go to physical space
    products: int  # fields that come back
    spectral: int  # other complex fields that the update of a range of ky accesses
    reals: int  # real ones
    constants: int  # bytes of other arrays, on every device
    between: int = 0  # fields that are transformed together between steps
    # The points of a transform are in a user's arrays: bytes of a plane, and the batches of some
    # planes on a device.
    plane_bytes: int = 0
    given: Callable[[Device, int], PlaneBatches] | None = None

    @property
    def fields(self) -> int:
        """The largest number of fields that are transformed together."""
        return max(self.inputs, self.products, self.between)

    def column_bytes(self, ky: int) -> int:
        """Return the bytes of the columns of `ky` ky, of all ranges."""
        return sum(self._columns(one.geometry, ky) for one in self.geometry.ranges)

    def _columns(self, one: SlabGeometry, ky: int) -> int:
        nz, _, row = one.columns_shape
        return aligned(self.fields * nz * ky * row * self.dtype.itemsize)

    def slot_bytes(self, planes: int, ky: int) -> int:
        """Return the bytes of a slot that holds `planes` planes, or `ky` ky."""
        size, packed, columns = self.dtype.itemsize, aligned(planes * self.plane_bytes), 0
        for one in (of_kx.geometry for of_kx in self.geometry.ranges):
            packed += aligned(self.fields * one.packed_size(planes) * size)
            kz, _, nx = one.spectral_box.shape
            # Every part may need a little more to be aligned.
            spectral = self.spectral * (aligned(kz * ky * one.row * size) + ALIGNMENT)
            spectral += aligned(self.reals * kz * ky * nx * size // 2)
            columns = max(columns, self._columns(one, ky) + spectral)
        return max(packed, columns)

    def bytes_beside(self, planes: int, device: Device, streaming: Streaming) -> int:
        """Return the bytes of a device outside the slots, without a library's scratch."""
        return self.constants + len(streaming.lanes) * self.batches(device, planes).bytes

    def batches(self, device: Device, planes: int) -> PlaneBatches:
        """Return the batches of a tile of `planes` planes, which is in one lane of a device."""
        if self.given:
            return self.given(device, planes)
        return PlaneBatches.of_step(device, self.geometry, self.fields, self.dtype, planes, lanes=1)


class SlabWorker:
    """The transforms of tiles in one lane of a device, one after the other; a `Worker`.

    A tile has at most `planes` planes, or `ky` ky. Planes are sent in `chunks` chunks.
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
        batches = needs.batches(device, planes)
        self._needs, self._held, self._product = needs, (planes, ky), product
        self._chunks = [high - low for low, high in split(needs.geometry.planes, chunks)]
        self.scratch = device.fft_scratch()
        fields, dtype = needs.fields, needs.dtype
        self.planes = PlanePass(device, needs.geometry, fields, dtype, batches, self.scratch)
        self.columns = [
            ColumnPass(
                device,
                one.geometry,
                fields,
                dtype,
                ky,
                self.scratch,
                one.geometry.modes[2].count if batches.are_given else None,
            )
            for one in needs.geometry.ranges
        ]

    def plan(self, slot: Slot[SlabWorker]) -> None:
        g, needs = self._needs.geometry, self._needs
        planes, ky = self._held
        for size in {one for length in self._chunks for one in _sizes(length, planes)}:
            if needs.given is None:
                self.planes.plan(self._product, needs.inputs, needs.products, size)
                continue
            for padded in {False, needs.given(slot.device, size).real}:
                self.planes.plan_points(placed_points(slot, needs, size, padded))
                slot.clear()
        for columns, one in zip(self.columns, g.ranges, strict=True):
            for fields, size in itertools.product(
                {needs.inputs, needs.products}, _sizes(one.geometry.columns_shape[1], ky)
            ):
                slot.clear()
                shape = needs.fields, g.shape[0], ky, one.geometry.row
                columns.plan(slot.place(shape, needs.dtype)[:fields, :, :size])
                slot.clear()


def placed_points(slot: Slot[SlabWorker], needs: TileNeeds, planes: int, padded: bool) -> Array:
    """Return the place in a slot for some planes of a user's points, perhaps in padded rows."""
    ny, nx = needs.geometry.plane_points
    real = np.zeros(0, needs.dtype).real.dtype
    dtype = real if needs.batches(slot.device, planes).real else needs.dtype
    row = padded_row(nx) if padded else nx
    return slot.place((needs.fields, planes, ny, row), dtype)[..., :nx]


def _sizes(count: int, most: int) -> set[int]:
    """Return the different sizes of tiles into which `count` planes, or ky, are cut."""
    return {min(most, count - low) for low in range(0, count, most)}


class SlabTiles:
    """The tiles of passes: how many there can be, and the memory of `devices` that they take."""

    # What messages say.
    key, what = "run.memory:", "step"
    # In how many chunks planes are sent by default.
    _chunks = PLANE_CHUNKS

    def __init__(
        self,
        needs: TileNeeds,
        product: PointProduct | None,
        devices: Sequence[Device],
        home: Device,
        streaming: Streaming,
    ) -> None:
        self.devices, self.home, self.streaming = list(devices), home, streaming
        self.geometry, self.needs, self._product = needs.geometry, needs, product

    def check(self, comm: Comm, limit: int) -> None:
        """Refuse a limit into which no tiles fit, without allocating any field. Collective."""
        limit = -largest(comm, -limit)
        if largest(comm, self._least_bytes()) > limit:
            self._refuse(comm, limit)

    def fitting(self, comm: Comm, limit: int) -> tuple[TileSlots[SlabWorker], int]:
        """Return devices with the fewest tiles that fit on all ranks, and how many. Collective."""
        # Ranks may have different limits, since each checks its own devices.
        limit = -largest(comm, -limit)
        found = fewest_tiles(comm, self._counts(), limit, self._bytes, self._made)
        return found or self._refuse(comm, limit)

    def _refuse(self, comm: Comm, limit: int) -> NoReturn:
        count = self._counts()[-1]

        def least() -> int:
            if self.streaming.tiles or all(one.kind == "cpu" for one in self.devices):
                return self._least_bytes()
            # The smallest tiles are made, to find out what a library takes for them.
            return self._made(count, NO_LIMIT).bytes

        raise self._too_little(limit, largest(comm, on_every_rank(comm, least)))

    def _too_little(self, limit: int, need: int) -> InputError:
        tiles = f" with {self._counts()[-1]} tiles" if self.streaming.tiles else ""
        return too_little(self.key, limit, self.what, need, tiles)

    def planned(self, limit: int) -> tuple[int, int]:
        """Return the number of tiles of a pass, and the number of ky whose columns stay.

        Nothing is allocated, so a library's work area is not counted.

        Raises
        ------
        InputError
            If no tiles fit.
        """
        for count in self._counts():
            left = limit - self._bytes(count)
            if left >= 0:
                most = self.most(count)[1]
                return count, min(self.staying_tiles(count, left) * most, self._ky)
        raise self._too_little(limit, self._least_bytes())

    def staying_tiles(self, count: int, left: int) -> int:
        """Return how many of `count` tiles keep columns on the device if `left` bytes are free."""
        if not self.streaming.resident:
            return 0
        most = self.most(count)[1]
        return min(left // self.needs.column_bytes(most), -(-self._ky // most))

    def _least_bytes(self) -> int:
        return self._bytes(self._counts()[-1])

    def _bytes(self, count: int) -> int:
        """Return the bytes that `count` tiles take, without a library's work area."""
        slots = self.streaming.slots * self.needs.slot_bytes(*self.most(count))
        return slots + max(self._beside(count, one) for one in self.devices)

    def _beside(self, count: int, device: Device) -> int:
        """Return the bytes of a device that `count` tiles take outside the slots."""
        return self.needs.bytes_beside(self.most(count)[0], device, self.streaming)

    def _counts(self) -> list[int]:
        """Return numbers of tiles to try, larger ones when smaller ones do not fit."""
        g = self.geometry
        longest = max(-(-g.shape[0] // g.workers), g.most_ky)
        size = self.needs.fields * g.field_size * self.needs.dtype.itemsize
        fewest = None
        if isinstance(self.home, FileHome):
            # What lies side by side of the ky of a tile.
            row = max(one.geometry.row for one in g.ranges) * self.needs.dtype.itemsize
            fewest = self._ky * row // self.home.run_bytes
        return list(tile_counts(size, longest, self.streaming.tiles, fewest))

    def most(self, count: int) -> tuple[int, int]:
        """Return how many planes, and how many ky, tiles have at most."""
        return max(1, -(-self.geometry.planes // count)), max(1, -(-self._ky // count))

    @property
    def _ky(self) -> int:
        """How many ky this rank has, of the range of which it has the most."""
        return max(one.geometry.columns_shape[1] for one in self.geometry.ranges)

    def chunks(self, count: int) -> int:
        """Return in how many chunks planes are sent, if there are `count` tiles."""
        if self.geometry.ranks == 1:
            return 1
        sent = self.streaming.tiles_per_exchange
        return -(-count // sent) if sent else self._chunks

    def _made(self, count: int, limit: int) -> TileSlots[SlabWorker]:
        """Return devices for `count` tiles, or raise `TooLittleMemory`."""
        needs, streaming, most = self.needs, self.streaming, self.most(count)
        size = needs.slot_bytes(*most)
        home, stages = self.home, streaming.copies == "packed"
        if isinstance(home, FileHome):
            home, stages = home.host, any(one.kind != "cpu" for one in self.devices)
        packed = 2 * size * streaming.slots if stages else 0
        if packed > home.memory_free():
            raise InputError(
                f"{self.key.partition('memory')[0]}streaming: packed copies take "
                f"{bytes_text(packed)} of the host, of which "
                f"{bytes_text(home.memory_free())} are free; cut more tiles, or leave "
                "copies out"
            )
        chunks = self.chunks(count)

        def worker_of(device: Device) -> Callable[[str], SlabWorker]:
            return lambda lane: SlabWorker(needs, device, *most, chunks, self._product)

        return TileSlots(
            [
                TileDevice(
                    one,
                    self.home,
                    streaming,
                    size,
                    worker_of(one),
                    self._beside(count, one),
                    limit,
                )
                for one in self.devices
            ]
        )
