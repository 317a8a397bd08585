"""The number of tiles of slabs on the host, and their memory on devices.

Few large tiles are best: `SlabTiles` finds the smallest number that fits. `streamed_slabs.py` has
the passes over tiles.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

import numpy as np

from slipstream.engine.array_types import Comm
from slipstream.engine.collective import largest, on_every_rank
from slipstream.engine.decomposition import split
from slipstream.engine.device import Device
from slipstream.engine.errors import InputError, bytes_text
from slipstream.engine.fft.device_exchange import padded_row, placed_points
from slipstream.engine.fft.line_transforms import LineTransform, RowsOfShares, Shares, column_pass
from slipstream.engine.fft.pack_unpack import RowTables
from slipstream.engine.fft.plane_transforms import PlaneBatches, PlanePass, PointProduct
from slipstream.engine.fft.slab_engine import chunks_of_step
from slipstream.engine.fft.slab_layout import (
    PencilGeometry,
    PlaneGeometry,
    RowGeometry,
    SlabGeometry,
)
from slipstream.engine.outofcore.file_arrays import FileHome
from slipstream.engine.outofcore.memory_budget import (
    NO_LIMIT,
    Streaming,
    fewest_tiles,
    tile_counts,
    too_little,
)
from slipstream.engine.outofcore.tile_slots import ALIGNMENT, Slot, TileDevice, TileSlots, aligned

# The contiguous bytes that copy engines move at the speed of the bus.
_RUN = 48 << 10
# The number of tiles of planes in a pass, if they are large enough.
_PLANE_TILES = 32
# The least bytes of each of these tiles.
_PLANE_TILE = 16 << 20


@dataclass(frozen=True)
class TileShape:
    """The largest tile of each pass."""

    planes: int
    # Of a pass over columns; `row` is the number of elements of their rows of modes.
    ky: int
    row: int
    # Of tiles smaller than planes: modes along x of the pass along y, and rows of points of the
    # pass along x. None if y and x are transformed in the same tile.
    kx: int | None = None
    rows: int | None = None

    @property
    def has_whole_planes(self) -> bool:
        """Whether tiles have whole planes, for transforms along y and x."""
        return self.rows is None


@dataclass(frozen=True)
class TileNeeds:
    """The numbers that determine the memory of tiles."""

    geometry: PlaneGeometry
    dtype: np.dtype
    inputs: int  # fields that are transformed to physical space
    products: int  # fields that are transformed back
    spectral: int  # other complex fields that the update of a range of ky accesses
    reals: int  # real ones
    constants: int  # bytes of other arrays, on every device
    between: int = 0  # fields that are transformed together between steps
    # Whether the points are in a user's arrays, as for a transform, and whether they are real.
    has_user_points: bool = False
    real: bool = True
    exchanges_on_device: bool = False  # which requires whole planes
    stored: int = 0  # inputs whose points are stored on the host

    @property
    def fields(self) -> int:
        """The largest number of fields that are transformed together."""
        return max(self.inputs, self.products, self.between)

    @cached_property
    def pencils(self) -> PencilGeometry:
        """The geometry for separate tiles of the transforms along y and along x."""
        return PencilGeometry.of_slabs(self.geometry)

    @property
    def divides_planes(self) -> bool:
        """Whether tiles can be smaller than a plane."""
        return not self.geometry.flat and not self.exchanges_on_device

    @property
    def point_dtype(self) -> np.dtype:
        """The type of points."""
        return np.zeros(0, self.dtype).real.dtype if self.real else self.dtype

    def row_bytes(self, padded: bool) -> int:
        """Return the bytes of a row of points."""
        nx = self.geometry.plane_points[1]
        return (padded_row(nx) if padded and self.real else nx) * self.point_dtype.itemsize

    def column_bytes(self, shape: TileShape) -> int:
        """Return the bytes of the columns of a tile, of all ranges."""
        return sum(self._columns(one.geometry, shape) for one in self.geometry.ranges)

    def _columns(self, geometry: SlabGeometry, shape: TileShape) -> int:
        nz, _, row = geometry.columns_shape
        elements = self.fields * nz * shape.ky * min(row, shape.row)
        return aligned(elements * self.dtype.itemsize)

    def slot_bytes(self, shape: TileShape, device: Device) -> int:
        """Return the bytes of a slot that holds a tile of any pass."""
        size, columns = self.dtype.itemsize, 0
        for part in (of_kx.geometry for of_kx in self.geometry.ranges):
            kz, _, nx = part.spectral_box.shape
            ky, row = shape.ky, min(part.row, shape.row)
            # Every part may need a little more to be aligned.
            spectral = self.spectral * (aligned(kz * ky * row * size) + ALIGNMENT)
            spectral += aligned(self.reals * kz * ky * min(nx, row) * size // 2)
            columns = max(columns, self._columns(part, shape) + spectral)
        return max(columns, *self._count_plane_bytes(shape, device))

    def _count_plane_bytes(self, shape: TileShape, device: Device) -> Iterator[int]:
        """Yield the bytes of the tiles of a pass over planes."""
        size, planes = self.dtype.itemsize, shape.planes
        if shape.kx is None or shape.rows is None:
            ny = self.geometry.plane_points[0]
            points = self.fields if self.has_user_points else self.stored
            packed = aligned(points * planes * ny * self.row_bytes(padded=True))
            for part in (of_kx.geometry for of_kx in self.geometry.ranges):
                packed += aligned(self.fields * part.packed_size(planes) * size)
            yield packed
            return
        ny, (_, ky, kx) = self.geometry.shape[1], self.geometry.spectral_shape
        # A library transforms columns along y in separate memory.
        line = LineTransform(device, "y", ny, self.dtype)
        sides = ky, ny, *([] if line.tiled else [ny])
        yield sum(aligned(self.fields * planes * length * shape.kx * size) for length in sides)
        rows = self.fields * planes * shape.rows
        yield aligned(rows * kx * size) + aligned(
            rows * self.row_bytes(padded=self.has_user_points)
        )

    def bytes_beside(self, shape: TileShape, device: Device, streaming: Streaming) -> int:
        """Return the bytes on a device outside the slots, without a library's scratch."""
        of_lane = self.batches(device, shape).bytes
        if self.geometry.modes[0].walls:  # columns are transformed in separate memory
            of_lane += self.column_bytes(shape)
        return self.constants + len(streaming.lanes) * of_lane

    def batches(self, device: Device, shape: TileShape) -> PlaneBatches:
        """Return the batches of a tile's planes, or rows; a tile is in a single lane."""
        geometry: PlaneGeometry = self.geometry
        planes = shape.planes
        if shape.rows is not None:
            geometry = self.rows_of_tile(device, shape)
            planes = geometry.planes
        what = device, geometry, self.fields, self.dtype
        if self.has_user_points:
            return PlaneBatches.of_user(*what, self.real, planes=planes, lanes=1)
        return PlaneBatches.of_step(*what, planes, lanes=1)

    def rows_of_tile(self, device: Device, shape: TileShape) -> RowGeometry:
        """Return the rows of points of a tile as planes of the smallest unit of rows."""
        unit = row_unit(device, self.pencils.plane_points[0])
        return RowGeometry(self.pencils, shape.planes * (shape.rows or 0) // unit, unit)


def row_unit(device: Device, rows: int) -> int:
    """Return the number of rows of points that a device transforms together."""
    # Each SIMD lane of a CPU has a row. Kernels of GPUs transform rows in pairs.
    if device.kind == "cpu":
        return 1
    return 2 if rows % 2 == 0 else max(1, rows)


class SlabWorker:
    """The transforms of tiles in one lane, one after the other; a `Worker`.

    Planes are sent in `chunks` chunks. If tiles are smaller than a plane, `line` transforms along
    y, and `planes` transforms rows of points.
    """

    def __init__(
        self,
        needs: TileNeeds,
        device: Device,
        shape: TileShape,
        chunks: int,
        product: PointProduct | None,
    ) -> None:
        batches = needs.batches(device, shape)
        self._needs, self.shape, self._product = needs, shape, product
        self._chunks = [high - low for low, high in split(needs.geometry.planes, chunks)]
        self.scratch = device.fft_scratch()
        fields, dtype, geometry = needs.fields, needs.dtype, needs.geometry
        lines: list[RowsOfShares] | None = None
        self.line: LineTransform | None = None
        if not shape.has_whole_planes:
            self.line = LineTransform(device, "y", geometry.shape[1], dtype, True, self.scratch)
            geometry = rows = needs.rows_of_tile(device, shape)
            self.shares = Shares(device, rows, places=rows.places)
            lines = [RowsOfShares(device, dtype, self.line.of_gpus)]
            self.column_tables, *self.mode_tables = (
                RowTables(device, table) for table in self._make_tables_along_y()
            )
        self.planes = PlanePass(device, geometry, fields, dtype, batches, self.scratch, lines)
        self.columns = [
            column_pass(kx_range.geometry)(
                device,
                kx_range.geometry,
                fields,
                dtype,
                shape.ky,
                self.scratch,
                kx_range.geometry.modes[2].count if batches.are_given else None,
                row=shape.row,
            )
            for kx_range in needs.geometry.ranges
        ]

    def _make_tables_along_y(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the tables of a tile along y: of points, and of modes by range of kx."""
        g, shape = self._needs.pencils, self.shape
        size = shape.planes, shape.kx or 0
        yield g.columns_along_y[0].alike(*size).packed_rows()
        for of_kx in (one.geometry for one in g.ranges):
            yield of_kx.spread_ky(*of_kx.alike(*size).packed_rows())

    def plan(self, slot: Slot[SlabWorker]) -> None:
        g, needs, shape = self._needs.geometry, self._needs, self.shape
        # The sizes of tiles of planes, or of units of rows.
        sizes = {size for length in self._chunks for size in _sizes(length, shape.planes)}
        if self.line is not None and shape.kx is not None:
            sizes = {self.planes.geometry.planes}
            if not self.line.tiled:
                self._plan_along_y(slot, self.line, shape.kx)
        for size in sizes:
            if not needs.has_user_points:
                self.planes.plan(self._product, needs.inputs, needs.products, size)
                continue
            for padded in {False, needs.real}:
                points = needs.fields, size, *self.planes.geometry.plane_points
                self.planes.plan_points(placed_points(slot, points, needs.point_dtype, padded))
                slot.clear()
        for columns, kx_range in zip(self.columns, g.ranges, strict=True):
            _, all_ky, row = kx_range.geometry.columns_shape
            width = min(row, shape.row)
            for fields, size, part in itertools.product(
                {needs.inputs, needs.products}, _sizes(all_ky, shape.ky), _sizes(row, width)
            ):
                slot.clear()
                place = slot.allocate((needs.fields, g.shape[0], shape.ky, width), needs.dtype)
                columns.plan(place[:fields, :, :size, :part])
                slot.clear()

    def _plan_along_y(self, slot: Slot[SlabWorker], line: LineTransform, kx: int) -> None:
        """Plan a library's transforms along y."""
        needs, shape = self._needs, self.shape
        size_of_slot = needs.fields, shape.planes, needs.geometry.shape[1], kx
        widths = {size for one in needs.pencils.columns_along_y for size in _sizes(one.row, kx)}
        for fields, part in itertools.product({needs.inputs, needs.products}, widths):
            for planes in _sizes(needs.geometry.planes, shape.planes):
                slot.clear()
                line.plan(slot.allocate(size_of_slot, needs.dtype)[:fields, :planes, :, :part])
        slot.clear()


def _sizes(count: int, most: int) -> set[int]:
    """Return the distinct sizes of tiles of `count` planes, or ky."""
    return {min(most, count - low) for low in range(0, count, most)}


class SlabTiles:
    """The tiles of passes: their number, and their memory on `devices`."""

    # The texts of messages.
    key, what = "run.memory:", "step"

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
        """Refuse a limit that is too small for any tiles; allocates no field. Collective."""
        limit = -largest(comm, -limit)
        if largest(comm, self._count_least_bytes()) > limit:
            self._refuse(comm, limit)

    def fitting(self, comm: Comm, limit: int) -> tuple[TileSlots[SlabWorker], int]:
        """Return devices with the fewest tiles that fit on all ranks, and how many. Collective."""
        # Ranks may have different limits, since each checks its own devices.
        limit = -largest(comm, -limit)
        found = fewest_tiles(comm, self._counts(), limit, self._bytes, self._make_slots)
        return found or self._refuse(comm, limit)

    def _refuse(self, comm: Comm, limit: int) -> NoReturn:
        count = self._counts()[-1]

        def least() -> int:
            if self.streaming.tiles or all(one.kind == "cpu" for one in self.devices):
                return self._count_least_bytes()
            # Make the smallest tiles, to measure a library's memory.
            return self._make_slots(count, NO_LIMIT).bytes

        raise self._too_little(limit, largest(comm, on_every_rank(comm, least)))

    def _too_little(self, limit: int, need: int) -> InputError:
        tiles = f" with {self._counts()[-1]} tiles" if self.streaming.tiles else ""
        return too_little(self.key, limit, self.what, need, tiles)

    def planned(self, limit: int) -> tuple[int, int]:
        """Return the number of tiles of a pass, and the number of ky whose columns stay.

        Nothing is allocated, so a library's work area is not counted. `InputError` if no tiles fit.
        """
        for count in self._counts():
            left = limit - self._bytes(count)
            if left >= 0:
                most = self.shape(count).ky
                return count, min(self.staying_tiles(count, left) * most, self._ky)
        raise self._too_little(limit, self._count_least_bytes())

    def staying_tiles(self, count: int, left: int) -> int:
        """Return the number of `count` tiles whose columns stay on the device, in `left` bytes."""
        shape = self.shape(count)
        if not self.streaming.resident or shape.row < self._row:
            return 0
        return min(left // self.needs.column_bytes(shape), -(-self._ky // shape.ky))

    def _count_least_bytes(self) -> int:
        return self._bytes(self._counts()[-1])

    def _bytes(self, count: int) -> int:
        """Return the bytes of `count` tiles, without a library's work area."""
        slots = self.streaming.slots * self._count_slot_bytes(count)
        return slots + max(self._bytes_beside(count, one) for one in self.devices)

    def _count_slot_bytes(self, count: int) -> int:
        return max(self.needs.slot_bytes(self.shape(count), one) for one in self.devices)

    def _bytes_beside(self, count: int, device: Device) -> int:
        """Return the bytes of `count` tiles on a device outside the slots."""
        return self.needs.bytes_beside(self.shape(count), device, self.streaming)

    def _counts(self) -> list[int]:
        """Yield numbers of tiles to try, in increasing order."""
        g, needs = self.geometry, self.needs
        size = needs.fields * g.field_size * needs.dtype.itemsize
        # The contiguous elements are the ky of a tile.
        run = self.home.run_bytes if isinstance(self.home, FileHome) else _RUN
        in_long_runs = self._ky * self._row * needs.dtype.itemsize // run
        asked = self.streaming.tiles
        return list(tile_counts(size, self._with_whole_rows, self._most, asked, in_long_runs))

    @property
    def _with_whole_rows(self) -> int:
        """The largest number of tiles with whole planes, or whole rows of modes."""
        g = self.geometry
        along = g.workers if g.grid is None else g.grid[0]
        return max(1, -(-g.shape[0] // along), g.most_ky)

    @property
    def _most(self) -> int:
        """The largest number of tiles of a pass."""
        if not self.needs.divides_planes:
            return self._with_whole_rows
        g = self.needs.pencils
        planes = -(-g.shape[0] // g.grid[0]) if g.grid else 1
        return max(self._with_whole_rows, planes * -(-g.most_rows // 2), g.most_ky * g.widest_kx)

    def shape(self, count: int) -> TileShape:
        """Return the largest tiles of passes with `count` tiles."""
        planes, ky = self.geometry.planes, self._ky
        of_planes, of_ky = max(1, -(-planes // count)), max(1, -(-ky // count))
        row, is_pencil = self._row, isinstance(self.geometry, PencilGeometry)
        if not self.needs.divides_planes or (count <= self._with_whole_rows and not is_pencil):
            return TileShape(max(1, -(-planes // self._count_plane_tiles(count))), of_ky, row)
        g = self.needs.pencils
        # Parts of a plane, and of a ky, if there are more tiles than planes or ky.
        parts, of_row = -(-count // max(1, planes)), -(-count // max(1, ky))
        rows = g.plane_points[0]
        pairs = 2 * max(1, -(-rows // (2 * parts)))
        unit = max(row_unit(device, rows) for device in self.devices)
        return TileShape(
            of_planes,
            of_ky,
            max(1, -(-row // of_row)),
            max(1, -(-max(part.row for part in g.columns_along_y) // parts)),
            max(1, min(rows, max(unit, pairs))),
        )

    def _count_plane_tiles(self, count: int) -> int:
        """Return the number of tiles of whole planes, given `count` tiles of columns.

        Planes are contiguous, so smaller tiles are copied as fast, and a pass waits less at its
        beginning and end.
        """
        if self.streaming.tiles or self.needs.exchanges_on_device:
            return count
        size = self.needs.fields * self.geometry.field_size * self.needs.dtype.itemsize
        return max(count, min(_PLANE_TILES, size // _PLANE_TILE))

    @property
    def _row(self) -> int:
        """The length of the longest rows of modes, in elements."""
        return max(one.geometry.row for one in self.geometry.ranges)

    @property
    def _ky(self) -> int:
        """The number of ky of this rank, in the range with the most."""
        return max(one.geometry.columns_shape[1] for one in self.geometry.ranges)

    def chunks(self, count: int) -> int:
        """Return the number of chunks in which planes are sent, with `count` tiles."""
        if self.geometry.ranks == 1:
            return 1
        sent = self.streaming.tiles_per_exchange
        return -(-count // sent) if sent else self._usual_chunks

    @property
    def _usual_chunks(self) -> int:
        return chunks_of_step(self.geometry, self.needs.dtype, self.home)

    def _make_slots(self, count: int, limit: int) -> TileSlots[SlabWorker]:
        """Return devices for `count` tiles, or raise `TooLittleMemory`."""
        needs, streaming, shape = self.needs, self.streaming, self.shape(count)
        size = self._count_slot_bytes(count)
        home, stages = self.home, streaming.copies == "packed"
        if isinstance(home, FileHome):
            home, stages = home.host, any(tile_device.kind != "cpu" for tile_device in self.devices)
        packed = 2 * size * streaming.slots if stages else 0
        if packed > home.memory_free():
            raise InputError(
                f"{self.key.partition('memory')[0]}streaming: packed copies take "
                f"{bytes_text(packed)} of the host, which has "
                f"{bytes_text(home.memory_free())} free; cut more tiles, or leave "
                "copies out"
            )
        chunks = self.chunks(count)

        def worker_of(device: Device) -> Callable[[str], SlabWorker]:
            return lambda lane: SlabWorker(needs, device, shape, chunks, self._product)

        return TileSlots(
            [
                TileDevice(
                    tile_device,
                    self.home,
                    streaming,
                    size,
                    worker_of(tile_device),
                    self._bytes_beside(count, tile_device),
                    limit,
                )
                for tile_device in self.devices
            ]
        )
