"""Columns that stay on a device: of as many ky as its memory allows, nothing crosses the bus.

Between the pass over the columns and that over the planes, what both passes of this rank share lies
on the device, tile by tile of ky; the rest of these columns, which belongs to planes of other
ranks, comes and goes as ever. The less a grid exceeds the GPU, the less crosses the bus.
"""

from __future__ import annotations

from collections.abc import Iterator

from numpy.typing import DTypeLike

from slipstream.array_types import Array
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.fft import SlabGeometry
from slipstream.schedule import StepGraph


class ResidentColumns:
    """The columns of the first ky of this rank: `tiles` of them stay, with `ky` ky in all.

    A tile has `ky` ky, and `count` tiles stay if the device has room for them; it is tried with
    fewer if not.
    """

    def __init__(
        self,
        geometry: SlabGeometry,
        device: Device,
        fields: int,
        dtype: DTypeLike,
        ky: int,
        count: int,
    ) -> None:
        nz, all_ky, row = geometry.columns_shape
        self._step = ky
        self._first, self._last = geometry.physical_box.start[0], geometry.physical_box.stop[0]
        self._columns: Array = None
        while count and self._columns is None:
            try:
                self._columns = device.empty((count, fields, nz, ky, row), dtype)
            except InputError:  # the device has less room than it said
                count //= 2
        self.tiles, self.ky = count, min(count * ky, all_ky)

    def columns(self, low: int) -> Array:
        """Return the columns of the tile that begins at a ky of this rank; None if they leave."""
        return self._columns[low // self._step] if low < self.ky else None

    def elsewhere(self, low: int) -> list[slice]:
        """Return which z of a tile come and go: those of other ranks, or all."""
        if low >= self.ky:
            return [slice(None)]
        nz = self._columns.shape[2]
        return [slice(a, b) for a, b in ((0, self._first), (self._last, nz)) if a < b]

    def is_here(self, low: int, z: int) -> bool:
        """Return whether a plane of a tile stays."""
        return low < self.ky and self._first <= z < self._last

    def record_in(self, graph: StepGraph, planes: Array, low: int) -> None:
        """Record that planes of this rank from `low` on get what stays.

        Their shape is (fields, planes, ky of this rank, row), on the device.
        """
        for part, own in self._shared(planes, low):
            graph.add_copy(part, own, label="keep")

    def record_out(self, graph: StepGraph, planes: Array, low: int) -> None:
        """Record that planes leave what stays; parameters as of `record_in`."""
        for part, own in self._shared(planes, low):
            graph.add_copy(own, part, label="keep")

    def _shared(self, planes: Array, low: int) -> Iterator[tuple[Array, Array]]:
        if not self.tiles:
            return
        fields, count, _, row = planes.shape
        z, step = self._first + low, self._step
        own = self._columns[:, :fields, z : z + count].transpose(1, 2, 0, 3, 4)
        # All whole tiles at once, as an axis of their own, and the last if it has fewer ky.
        whole = self.ky // step
        part = planes[:, :, : whole * step].reshape(fields, count, whole, step, row)
        yield part, own[:, :, :whole]
        if whole < self.tiles:
            yield planes[:, :, whole * step : self.ky], own[:, :, whole, : self.ky - whole * step]
