"""Fields that stay on the host: the passes of the slab engine, tile by tile through devices.

A transform (`streamed_transform.py`) loads planes, transforms them along x and y, and stores them
for the exchange; then it does the same with columns along z. A solver's step crosses the bus twice
per substage. The pass over columns loads the products of a range of ky, finishes their transform,
advances the modes, and begins the transform towards physical space. The pass over planes loads some
planes, transforms to physical space, multiplies, and transforms back. So only the host's memory
limits the size. GHOST's batches (Rosenberg et al., Atmosphere 11, 178 (2020)) and the pencils of
Ravikumar, Appelhans and Yeung (SC 2019) work like this, with the update on the host, which is an
option here.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from slipstream.engine.array_types import Array, Comm
from slipstream.engine.decomposition import Box
from slipstream.engine.device import Device, Operation, Stream, address_of
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import ExchangePlan, PackTargets, Views
from slipstream.engine.fft.device_exchange import crossing, placed_points
from slipstream.engine.fft.pencil_planes import PencilExchanges, Piece
from slipstream.engine.fft.plane_transforms import PlaneTask, PointOperation
from slipstream.engine.fft.slab_engine import (
    ColumnTile,
    ColumnUpdate,
    Passes,
    PlaneTile,
    SlabEngine,
    SlabExchange,
    TileUpdate,
)
from slipstream.engine.fft.slab_layout import SlabGeometry
from slipstream.engine.fft.slab_tiles import SlabTiles, SlabWorker, TileNeeds, TileShape
from slipstream.engine.fft.streamed_pencils import (
    DividedPlanes,
    PackedPart,
    StagedPoints,
    planes_of_piece,
    record_store,
)
from slipstream.engine.outofcore.file_arrays import FileHome
from slipstream.engine.outofcore.tile_slots import Slot
from slipstream.engine.schedule import StepGraph


class ResidentColumns:
    """Columns that stay on a device: as many of the first ky of this rank as fit.

    Both passes of this rank use the part of these columns in its own planes. This part stays on the
    device between the passes, in tiles of ky. The other part belongs to planes of other ranks, and
    is copied as usual. So the less a grid exceeds the device, the less traffic there is on the bus.
    Tiles have `ky` ky each. The constructor tries to keep `count` of them, and keeps fewer if the
    device has no room. The attribute `tiles` is the number kept, and `ky` the number of ky in all
    of these tiles.
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
        self._columns: Any = None
        while count and self._columns is None:
            try:
                self._columns = device.empty((count, fields, nz, ky, row), dtype)
            except InputError:  # the device has less free memory than it reported
                count //= 2
        self.tiles, self.ky = count, min(count * ky, all_ky)

    def columns(self, low: int) -> Array | None:
        """Return the columns of the tile that begins at a ky of this rank; None if not resident."""
        return self._columns[low // self._step] if low < self.ky else None

    def elsewhere(self, low: int) -> list[slice]:
        """Return the z of a tile that are copied from and to the host: other ranks' z, or all."""
        if low >= self.ky:
            return [slice(None)]
        nz = self._columns.shape[2]
        return [slice(a, b) for a, b in ((0, self._first), (self._last, nz)) if a < b]

    def is_here(self, low: int, z: int) -> bool:
        """Return whether a plane of a tile stays on the device."""
        return low < self.ky and self._first <= z < self._last

    def record_in(self, graph: StepGraph, planes: Array, low: int, kx: slice) -> None:
        """Record copies from the resident columns into planes of this rank from `low` on.

        The planes are (fields, planes, ky of this rank, elements `kx` of rows), on the device.
        """
        for part, own in self._shared(planes, low, kx):
            graph.add_copy(part, own, label="keep")

    def record_out(self, graph: StepGraph, planes: Array, low: int, kx: slice) -> None:
        """Record copies from planes into the resident columns; parameters as of `record_in`."""
        for part, own in self._shared(planes, low, kx):
            graph.add_copy(own, part, label="keep")

    def _shared(self, planes: Array, low: int, kx: slice) -> Iterator[tuple[Array, Array]]:
        if not self.tiles:
            return
        fields, count, _, row = planes.shape
        z, step = self._first + low, self._step
        resident = self._columns[:, :fields, z : z + count, :, kx].transpose(1, 2, 0, 3, 4)
        # All whole tiles in one copy, along a separate axis; then the last if it has fewer ky.
        whole = self.ky // step
        part = planes[:, :, : whole * step].reshape(fields, count, whole, step, row)
        yield part, resident[:, :, :whole]
        if whole < self.tiles:
            last = slice(whole * step, self.ky)
            yield planes[:, :, last], resident[:, :, whole, : self.ky - whole * step]


@dataclass(frozen=True)
class HostFields:
    """Fields on the host, and the largest `shape` of a tile.

    They are in the working arrays of `engine`, and `resident` are the columns of each range of kx
    that stay on the device. If `by_device`, tiles go to `DeviceTargets`. Points may have `padded`
    rows, whose padding is copied too. A single rank may have columns `apart`, instead of the
    engine's.
    """

    needs: TileNeeds
    engine: SlabEngine
    resident: Sequence[ResidentColumns]
    shape: TileShape
    home: Device
    by_device: bool = False
    padded: bool = False
    apart: Sequence[OwnColumns] = ()
    # The place of the first field.
    first: int = 0

    @property
    def leaves_whole(self) -> bool:
        """Whether all blocks, including the rank's own, are sent from the arrays of the engine."""
        return bool(self.engine.beside)

    def columns_of(self, kx: int, fields: int, leaves: bool, low: int, high: int) -> Any:
        """Return some ky of this rank on the host, (fields, nz, ky, row); None if resident.

        An exchange writes there, or reads there if it `leaves`.
        """
        if self.apart:
            columns = self.apart[kx].columns(low, high)
            return None if columns is None else columns[:fields]
        columns = self.engine.columns_of(kx, self.first + fields, leaves)
        return columns[self.first :, :, low:high]

    def planes_of_run(
        self, kx: int, fields: int, leaves: bool, run: tuple[int, int, int], low: int, high: int
    ) -> Array:
        """Return planes of a run, (fields, blocks, planes, elements); see `columns_of`."""
        planes = self.engine.planes_of_run(kx, self.first + fields, leaves, run, low, high)
        return planes[self.first :]

    def own_planes(
        self, kx: int, fields: int, leaves: bool, low: int, high: int
    ) -> Iterator[tuple[slice, Array]]:
        """Yield this rank's own part of its planes that is not resident, by ranges of ky.

        Arrays have the shape (fields, planes, ky, row), in the memory of `columns_of`.
        """
        if self.apart:
            for ky, part in self.apart[kx].parts:
                yield ky, part[:fields, low:high]
            return
        g, stay = self.needs.geometry.ranges[kx].geometry, self.resident[kx].ky
        start, size = g.packed_block(g.rank, g.planes)
        own = self.planes_of_run(kx, fields, leaves, (start, size, 1), low, high)
        rows = own.reshape(fields, high - low, size // g.row, g.row)[:, :, stay:]
        if rows.size:
            yield slice(stay, size // g.row), rows

    def at_home(
        self, points: PointOperation, low: int, device: Device, fills: bool
    ) -> PointOperation:
        """Return an operation on a tile's points on a device, from one on points on the host.

        The first plane of the tile is `low`. `points` makes the operation on the host, which either
        `fills` points or uses them.
        """
        staging: list[Array] = []

        def of_batch(batch: Array, plane: int) -> tuple[Operation, list[Array]]:
            if isinstance(batch, np.ndarray):
                return points(batch, plane + low)
            if not staging:
                staging.append(self.home.empty((batch.size,), batch.dtype))
            on_host = staging[0][: batch.size].reshape(batch.shape)
            operation, accessed = points(on_host, plane + low)

            def run(stream: Stream) -> None:
                if fills:
                    operation(self.home.default_stream)
                    device.copy(batch, on_host)(stream)
                    stream.synchronize()  # the next batch uses the same memory
                else:
                    device.copy(on_host, batch)(stream)
                    stream.synchronize()
                    operation(self.home.default_stream)

            return run, accessed

        return of_batch


class OwnColumns:
    """The columns of a single rank that are not resident, in memory or in files.

    In memory all are in one array; in files every tile is contiguous, since drives read and write
    long pieces faster: `parts` has ranges of ky, and arrays (fields, nz, ky, row).
    """

    def __init__(
        self, home: Device, fields: int, geometry: SlabGeometry, dtype: DTypeLike, ky: int, low: int
    ) -> None:
        (nz, all_ky, row), self._geometry = geometry.columns_shape, geometry
        step = ky if isinstance(home, FileHome) else max(1, all_ky - low)
        self.parts: list[tuple[slice, Array]] = []
        for first in range(low, all_ky, step):
            last = min(first + step, all_ky)
            array = home.zeros((fields, nz, last - first, row), dtype)
            self.parts.append((slice(first, last), array))

    def of_field(self, number: int) -> OwnColumns:
        """Return the columns of one field."""
        result = copy.copy(self)
        result.parts = [(ky, part[number : number + 1]) for ky, part in self.parts]
        return result

    def columns(self, low: int, high: int) -> Any:
        """Return the columns of a tile: (fields, nz, ky, row); None if it stays on the device."""
        for ky, part in self.parts:
            if ky.start <= low < ky.stop:
                return part[:, :, low - ky.start : high - ky.start]
        return None

    def targets(self, fields: range) -> OwnTargets:
        """Return the targets of the blocks of some fields."""
        parts = [(ky, part[fields.start : fields.stop]) for ky, part in self.parts]
        return OwnTargets(self._geometry.plan, parts)


class OwnTargets(PackTargets):
    """The targets of a single rank's tiles: its own columns, by ranges of ky."""

    stores = True

    def __init__(self, plan: ExchangePlan, parts: Sequence[tuple[slice, Array]]) -> None:
        super().__init__(plan, [])
        self._parts = parts

    def views(self, number: int, box: Box, peer: int | None = None) -> Views:
        parts = []
        for ky, array in self._parts:
            _, nz, _, row = array.shape
            whole = Box((0, ky.start, 0), (nz, ky.stop, row))
            part = box.intersect(whole)
            if part.size:
                parts.append((part, array[number][part.slices(whole)]))
        return parts


class StreamedColumnTile(ColumnTile):
    """Columns of some ky in a slot, or in resident memory; fields are on the host.

    The tile has the elements `part` of the rows of modes.
    """

    def __init__(
        self,
        graph: StepGraph,
        slot: Slot[SlabWorker],
        host: HostFields,
        kx: int,
        low: int,
        high: int,
        part: slice,
    ) -> None:
        self._graph, self._slot, self._resident = graph, slot, host.resident[kx]
        self._host, self._number, self._ky, self._row = host, kx, host.shape.ky, part
        needs, kx_range = host.needs, host.needs.geometry.ranges[kx]
        self._geometry = kx_range.geometry
        nz, _, row = kx_range.geometry.columns_shape
        is_whole = part.stop - part.start == row
        kept = kx_range.among_kept
        if not is_whole:
            first = kept.start or 0
            kept = slice(first + part.start, first + part.stop)
        columns = self._resident.columns(low)
        if columns is None:
            size = needs.fields, nz, self._ky, part.stop - part.start
            columns = slot.allocate(size, needs.dtype)
        super().__init__(
            slot.worker.columns[kx],
            slot.work(graph),
            columns[:, :, : high - low],
            columns[:, :, : high - low],
            low,
            high,
            kept,
        )
        # Parts of fields in the slot, by field; their sources on the host, by the part's id; and
        # the ids of parts that are loaded.
        self._parts: dict[tuple[Any, ...], Array] = {}
        self._sources: dict[int, Array] = {}
        self._filled: set[int] = set()
        self._kept: list[Array] = []

    def part(self, array: Array) -> Array:
        """Return the memory in the slot for the tile's part of a spectral field on the host."""
        key = address_of(array), array.shape
        if key not in self._parts:
            source = super().part(array)
            fields, kz, count, row = source.shape
            part = self._slot.allocate((fields, kz, self._ky, row), array.dtype)[:, :, :count]
            self._parts[key] = part
            self._sources[id(part)] = source
        return self._parts[key]

    def record_update(self, update: ColumnUpdate) -> TileUpdate:
        done = super().record_update(update)
        self._filled.update(map(id, self._parts_among(done.writes)))
        self._kept += done.kept
        return done

    def record_forward(self, fields: int, target: Any = None) -> None:
        on_host = self._on_host(fields, leaves=False)
        for z in self._resident.elsewhere(self.low):
            self._slot.record_in(self._graph, self.columns[:fields, z], on_host[:, z])
        super().record_forward(fields, target)
        if target is not None:
            self._kept.append(self.part(target))

    def record_backward(
        self, source: Array, fields: slice, exchanges: Sequence[SlabExchange], scale: float = 1.0
    ) -> None:
        super().record_backward(source, fields, exchanges, scale)
        first = self._geometry.spectral_box.start[1] + self.low
        columns = self.columns[fields]
        count, nz, ky, _ = columns.shape
        if self._host.leaves_whole:
            on_host = self._on_host(count, leaves=True)
            for z in self._resident.elsewhere(self.low):
                self._slot.record_out(self._graph, on_host[:, z], columns[:, z])
            return
        box_of_rank = self._geometry.physical_box
        low, high = 0, nz
        peer: int | None = None
        if not exchanges[0].targets.stores:
            # Columns are packed already, except for the block of this rank itself.
            low, high, peer = box_of_rank.start[0], box_of_rank.stop[0], self._geometry.rank
            on_host = self._on_host(count, leaves=True)
            for z in (slice(0, low), slice(high, nz)):
                if z.start < z.stop:
                    self._slot.record_out(self._graph, on_host[:, z], columns[:, z])
        box = Box((low, first, self._row.start), (high, first + ky, self._row.stop))
        for exchange, (field, values) in itertools.product(
            exchanges, enumerate(columns[:, low:high])
        ):
            for part, target in exchange.targets.views(field, box, peer):
                if not self._resident.is_here(self.low, part.start[0]):
                    value = values[part.slices(box)]
                    record_store(self._graph, self._slot, self._host.by_device, target, value)
        if self._row.stop == self._geometry.row:
            for exchange in exchanges:
                exchange.targets.record_written(self._graph, self.high)

    def record_in(self, arrays: Sequence[Array]) -> None:
        for array in self._parts_among(arrays):
            if id(array) not in self._filled:
                self._slot.record_in(self._graph, array, self._sources[id(array)])
                self._filled.add(id(array))

    def record_out(self, columns: int) -> None:
        if columns:
            on_host = self._on_host(columns, leaves=False)
            self._slot.record_out(self._graph, on_host, self.columns[:columns])
        for array in self._kept:
            self._slot.record_out(self._graph, self._sources[id(array)], array)

    def _on_host(self, fields: int, leaves: bool) -> Any:
        """Return the columns on the host, or None; see `HostFields.columns_of`."""
        columns = self._host.columns_of(self._number, fields, leaves, self.low, self.high)
        return None if columns is None else columns[..., self._row]

    def _parts_among(self, arrays: Sequence[Array]) -> list[Array]:
        return [array for array in arrays if id(array) in self._sources]


class StreamedPlaneTile(PlaneTile):
    """Planes of this rank from `low` to `high` in a slot; fields are on the host."""

    def __init__(
        self,
        graph: StepGraph,
        slot: Slot[SlabWorker],
        passes: StreamedPasses,
        low: int,
        high: int,
    ) -> None:
        host = passes.fields
        self._graph, self._slot, self._host = graph, slot, host
        self._in_slot = [
            PackedPart(graph, slot, passes, kx, low, high, host.shape.planes, kx_range.geometry.row)
            for kx, kx_range in enumerate(host.needs.geometry.ranges)
        ]
        firsts = [lambda fields, _, part=part: part.array[:fields] for part in self._in_slot]
        super().__init__(slot.worker.planes, slot.work(graph), firsts, low, high, 0)

    def record(
        self, task: PlaneTask, exchanges: Sequence[SlabExchange], closing: StepGraph | None
    ) -> None:
        slot, host, graph = self._slot, self._host, self._graph
        for part in self._in_slot if task.arrives else ():
            part.record_in(task.inputs)
        points, product = task.points, task.product
        leaving: tuple[Any, Any] | None = None
        if callable(points):
            points = host.at_home(points, self.low, slot.device, fills=task.leaves)
        elif points is not None:
            on_host = points[:, self.low : self.high]
            points = placed_points(slot, on_host.shape, on_host.dtype, host.padded)
            if task.leaves:
                slot.record_in(graph, *crossing(points, on_host, host.padded))
            else:
                leaving = crossing(on_host, points, host.padded)
        elif product is not None and product.stored:
            on_host = product.points[:, self.low : self.high]
            product = replace(product, points=slot.allocate(on_host.shape, on_host.dtype))
            leaving = on_host, product.points
        super().record(replace(task, points=points, product=product), exchanges, None)
        if leaving is not None:
            slot.record_out(graph, *leaving)
        for part, exchange in zip(self._in_slot if exchanges else (), exchanges, strict=True):
            part.record_out(task.outputs, exchange.targets)
            exchange.targets.record_written(graph, self.high)
            if closing is not None:
                exchange.targets.record_close(closing, "transpose")


class StreamedPasses:
    """The passes of fields on the host, tile by tile. Collective.

    Tiles are loaded from, and stored in, the arrays of `engine`. At most `limit` bytes may be
    allocated on each device, `reserved` of them for other uses than passes. The passes allocate
    `device_bytes`, which includes a generous estimate for small tables. A pass cuts the columns of
    this rank into `tiles` tiles, and its planes into at least as many.
    """

    goes_ahead = True
    input_chunks = 1
    # Whether to allocate the columns of a single rank's engine that has no working memory.
    _adds_columns = True

    def __init__(
        self,
        engine: SlabEngine,
        tiles: SlabTiles,
        comm: Comm,
        limit: int,
        reserved: int,
    ) -> None:
        self._host, self._tiles = engine, tiles
        self.devices, self.geometry = tiles.devices, engine.geometry
        self._slots, self.tiles = tiles.fitting(comm, limit)
        self.device_bytes = self._slots.bytes
        self.residents = self._keep(max(0, limit - self.device_bytes - reserved))
        needs, shape = tiles.needs, tiles.shape(self.tiles)
        self.fields = HostFields(needs, engine, self.residents, shape, tiles.home)
        if self._adds_columns and not len(engine.columns[0]):
            apart = self.own_columns(needs.fields, self.residents)
            self.fields = replace(self.fields, apart=apart)
        self._staging: dict[int, Array] = {}
        if not shape.has_whole_planes:
            planes = planes_of_piece(needs.pencils, shape.planes, needs.dtype.itemsize)
            what = needs.pencils, needs.fields, needs.dtype
            self.pieces = PencilExchanges(tiles.home, *what, engine.across, planes, stores=False)

    @property
    def resident(self) -> ResidentColumns:
        """The columns that stay on the device, of the first range of kx."""
        return self.residents[0]

    def _keep(self, left: int) -> list[ResidentColumns]:
        """Return the columns of each range of kx that fit into the remaining memory."""
        needs, shape = self._tiles.needs, self._tiles.shape(self.tiles)
        size, count = needs.column_bytes(shape), self._tiles.staying_tiles(self.tiles, left)
        most, dtype = shape.ky, needs.dtype
        kept = [
            ResidentColumns(kx_range.geometry, self.devices[0], needs.fields, dtype, most, count)
            for kx_range in needs.geometry.ranges
        ]
        self.device_bytes += max(resident.tiles for resident in kept) * size
        return kept

    def own_columns(self, fields: int, resident: Sequence[ResidentColumns]) -> list[OwnColumns]:
        """Return the columns of a single rank that are not resident, by range of kx."""
        needs, ky, home = self.fields.needs, self.fields.shape.ky, self.fields.home
        return [
            OwnColumns(home, fields, one.geometry, needs.dtype, ky, stay.ky)
            for one, stay in zip(self.geometry.ranges, resident, strict=True)
        ]

    # -- tiles -------------------------------------------------------------------------------

    @property
    def updating(self) -> Passes:
        return self._host if self._tiles.streaming.update == "host" else self

    @property
    def plane_chunks(self) -> int:
        """The number of chunks of planes that are sent separately."""
        return self._tiles.chunks(self.tiles)

    def column_tiles(
        self, graph: StepGraph, kx: int = 0, arriving: int = 0, leaving: int = 0
    ) -> Iterator[StreamedColumnTile]:
        """Yield tiles of columns, each in the next slot."""
        _, ky, row = self.geometry.ranges[kx].geometry.columns_shape
        shape = self.fields.shape
        for low, first in itertools.product(range(0, ky, shape.ky), range(0, row, shape.row)):
            part = slice(first, min(first + shape.row, row))
            high, slot = min(low + shape.ky, ky), self.next_slot()
            yield StreamedColumnTile(graph, slot, self.fields, kx, low, high, part)

    def plane_tiles(
        self, graph: StepGraph, first: int, last: int, arriving: bool = False
    ) -> Iterator[StreamedPlaneTile | DividedPlanes]:
        """Yield tiles of planes, each in the next slot, or one object that divides all planes."""
        most = self.fields.shape.planes
        if not self.fields.shape.has_whole_planes:
            if first < last:
                yield DividedPlanes(graph, self, first, last)
            return
        for low in range(first, last, most):
            yield StreamedPlaneTile(graph, self.next_slot(), self, low, min(low + most, last))

    def next_slot(self) -> Slot[SlabWorker]:
        """Return the next slot, with memory for a tile."""
        return self._slots.next_slot()

    def staged_points(self, fields: int, piece: Piece) -> StagedPoints:
        """Return memory on the host for the points of a piece."""
        if piece.slot not in self._staging:
            rows, nx = self.pieces.geometry.plane_points
            real = np.zeros(0, self.fields.needs.dtype).real.dtype
            size = self.fields.needs.fields, self.pieces.planes, rows, nx
            self._staging[piece.slot] = self.fields.home.empty(size, real)
        planes = piece.high - piece.low
        return StagedPoints(self._staging[piece.slot][:fields, :planes], piece.low)

    def exchange(
        self, kx: int, fields: range, forward: bool, chunk: int = 0, chunks: int = 1
    ) -> SlabExchange:
        """Return the exchange of the blocks that tiles write. Collective."""
        if self.fields.apart:
            return SlabExchange(self.fields.apart[kx].targets(fields), self._host.columns[kx])
        return self._host.exchange(kx, fields, forward, chunk, chunks, whole=False)
