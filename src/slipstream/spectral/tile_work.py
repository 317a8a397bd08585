"""What a step needs of tiles, some planes or columns of fields on the host, and does to them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.array_types import Array
from slipstream.decomposition import split
from slipstream.device import Device
from slipstream.fft import ColumnPass, PlanePass, PointProduct, SlabGeometry, plane_pass_bytes
from slipstream.outofcore.streaming_options import Streaming
from slipstream.outofcore.tile_executor import ALIGNMENT, Slot, aligned
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

    def bytes_beside(self, planes: int, device: Device, streaming: Streaming) -> int:
        """Return the bytes of a device that are taken beside slots, a library's scratch apart."""
        work = plane_pass_bytes(self.geometry, self.fields, self.dtype, device, planes)
        return self.constants + len(streaming.lanes) * work


class TilePasses:
    """The passes over tiles in one lane of a device, one after the other; a `Worker`.

    A tile has at most so many planes, or ky. Planes are taken in `ranges` one after the other.
    """

    def __init__(
        self,
        needs: TileNeeds,
        device: Device,
        planes: int,
        ky: int,
        ranges: int,
        product: PointProduct | None,
    ) -> None:
        arguments = device, needs.geometry, needs.fields, needs.dtype
        self._needs, self._held, self._product = needs, (planes, ky), product
        self._ranges = [high - low for low, high in split(needs.geometry.planes, ranges)]
        self.scratch = device.fft_scratch()
        self.planes = PlanePass(*arguments, planes, self.scratch)
        self.columns = ColumnPass(*arguments, ky, self.scratch)

    def plan(self, slot: Slot[TilePasses]) -> None:
        g, needs = self._needs.geometry, self._needs
        planes, ky = self._held
        for size in {one for length in self._ranges for one in _sizes(length, planes)}:
            self.planes.plan(self._product, needs.inputs, needs.products, size)
        for fields, size in itertools.product(
            {needs.inputs, needs.products}, _sizes(g.columns_shape[1], ky)
        ):
            slot.clear()
            columns = slot.place((needs.fields, g.shape[0], ky, g.row), needs.dtype)
            self.columns.line.plan(columns[:fields, :, :size].swapaxes(1, 2))
            slot.clear()


class TileChunk:
    """The part of spectral fields, and of products, that a slot has; see `ColumnChunk`.

    It has those ky of this rank from `low` to `high`; columns are products, or what becomes of the
    inputs, shape (fields, nz, ky of a tile, row).
    """

    def __init__(self, slot: Slot[TilePasses], columns: Array, low: int, high: int) -> None:
        self._slot, self._ky, self._range = slot, columns.shape[2], (low, high)
        self._parts: dict[tuple, tuple[Array, Array]] = {}
        self._filled: list[Array] = []
        self._columns = columns[:, :, : high - low]

    def columns(self) -> ColumnChunk:
        """Return the chunk as updates of modes see it."""
        return ColumnChunk(self._slot.device, *self._range, self._columns, self.part)

    def part(self, array: Array) -> Array:
        """Return where the slot has its part of a spectral field on the host."""
        key = array.ctypes.data, array.shape
        if key not in self._parts:
            low, high = self._range
            fields, kz, _, row = array.shape
            place = self._slot.place((fields, kz, self._ky, row), array.dtype)
            self._parts[key] = array[:, :, low:high], place[:, :, : high - low]
        return self._parts[key][1]

    def on_host(self, array: Array) -> Array:
        """Return what on the host a part is copied from and to."""
        return next(host for host, place in self._parts.values() if place is array)

    def missing(self, arrays: Sequence[Array]) -> list[Array]:
        """Return those of some arrays that are parts of fields, and have no values yet."""
        parts = [place for _, place in self._parts.values()]
        return [
            array
            for array in arrays
            if any(array is place for place in parts)
            and not any(array is one for one in self._filled)
        ]

    def note(self, arrays: Sequence[Array]) -> None:
        """Note that arrays have their values from now on."""
        self._filled.extend(arrays)


def _sizes(count: int, most: int) -> set[int]:
    """Return the different sizes of tiles into which so many planes, or ky, are cut."""
    return {min(most, count - low) for low in range(0, count, most)}
