"""One range of kx of a slab transform: its transforms along y and z, and the exchanges between.

The exchange of a slab transform is divided twice. A `KxChunk` is a range of kx, with working arrays
in which its exchanges begin and end. Each of its exchanges, a `ChunkExchange`, carries a range of
planes (a plane chunk), and knows by what tables transforms write its blocks where they belong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slipstream.array_types import Array
from slipstream.device import Device, address_of
from slipstream.exchange import Block, ExchangePlan, Transport, pack_targets
from slipstream.fft.batch_size import balanced_batch
from slipstream.fft.line_transforms import LineTransform
from slipstream.fft.row_tables import RowTables
from slipstream.fft.slab_layout import SlabGeometry
from slipstream.schedule import StepGraph

# Working set, in bytes, of one batch of columns on a CPU; see `plane_transforms`.
_COLUMN_BATCH = 1 << 20


@dataclass(frozen=True)
class SlabOptions:
    """What may be chosen freely, and is tuned: all choices give the same result.

    `pieces` and `parts`, so called in files of what was tuned, are the numbers of kx chunks and of
    plane chunks. `store` is whether transforms store into the memory of other ranks, if the
    transport can; `tiled`, whether to take the device's own kernels for strided transforms; and
    `whole`, whether one rank leaves a forward transform that keeps all modes to one library plan.
    """

    pieces: int = 1
    parts: int = 1
    store: bool = True
    tiled: bool = True
    whole: bool = False


class KxChunk:
    """A range of kx: its y and z transforms, and the exchanges between.

    `columns` say where the range begins among the kept modes of x, and among all; the geometry has
    the modes of this range alone along x.
    """

    def __init__(
        self,
        device: Device,
        transport: Transport | None,
        options: SlabOptions,
        columns: tuple[int, int],
        fields: int,
        complex_dtype: Any,
        geometry: SlabGeometry,
    ) -> None:
        self.geometry, self.device, self.transport = geometry, device, transport
        self.options = options
        (self._kept, self._all), self._size = columns, geometry.modes[2].count
        shape = (fields, geometry.field_size)
        empty = transport.empty if transport else device.empty
        self._columns = empty(shape, complex_dtype)
        # What a transform finds packed by its sender, or packs for its receivers.
        self.planes = empty(shape, complex_dtype) if transport else self._columns
        nz, ny, _ = geometry.shape
        self.line_y, self.line_z = (
            LineTransform(device, axis, n, complex_dtype, self._size, options.tiled)
            for axis, n in (("y", ny), ("z", nz))
        )
        self._plane_tables = RowTables(device, geometry.plane_rows())
        _, ky, row = geometry.columns_shape
        limit = max(1, _COLUMN_BATCH // max(1, fields * nz * row * self._columns.itemsize))
        if device.kind == "cuda":
            limit = max(1, ky)
        self._batch = max(1, balanced_batch(ky, limit, device.lanes))
        plan = geometry.plan
        self.forward_exchanges = [
            ChunkExchange(self, plan, one, self.planes, self._columns)
            for one in plan.split(options.parts)
        ]
        back = plan.reversed()
        self._backward_exchanges: list[ChunkExchange] = []
        self._work: list[Array] = []
        if transport:
            self._backward_exchanges = [
                ChunkExchange(self, back, one, self._columns, self.planes)
                for one in back.split(options.parts)
            ]
        if transport and not self.line_z.tiled:
            self._work = [
                device.empty((fields, nz, self._batch, row), complex_dtype)
                for _ in range(device.lanes)
            ]

    def select(self, modes: Array) -> Array:
        """Return the columns of this chunk in an array of all x modes."""
        return modes[..., self._all : self._all + self._size]

    def record_z_forward(self, graph: StepGraph, spectral: Array) -> None:
        """Record columns -> spectral modes."""
        nz, ky, row = self.geometry.columns_shape
        columns = self._columns[:, : nz * ky * row].reshape(len(self._columns), nz, ky, row)
        tables = RowTables(self.device, self.geometry.spectral_rows(spectral))
        for low, high, _, lane in self._batches(graph):
            lane = lane_after_exchange(graph, lane, self.transport)
            points, target = self._views(columns[:, :, low:high], spectral, low, high)
            self.line_z.record_forward(graph, points, target, tables, 0, [target], lane)

    def record_z_backward(self, graph: StepGraph, spectral: Array) -> None:
        """Record spectral modes -> columns -> the planes of everybody."""
        nz, ky, row = self.geometry.columns_shape
        tables = RowTables(self.device, self.geometry.spectral_rows(spectral))
        columns = self._columns[:, : nz * ky * row].reshape(len(self._columns), nz, ky, row)
        exchanges = self._backward_exchanges
        for exchange in exchanges:
            exchange.record_open(graph)
        for low, high, number, lane in self._batches(graph):
            batch = (
                self._work[number][:, :, : high - low] if self._work else columns[:, :, low:high]
            )
            points, source = self._views(batch, spectral, low, high)
            if exchanges:
                # All plane chunks are stored at once; their tables are the same.
                base, point_tables = exchanges[0].stored
                places = [
                    view for exchange in exchanges for view in exchange.column_views(low, high)
                ]
                self.line_z.record_backward_stored(
                    graph, source, points, tables, (base, point_tables, low, places), lane
                )
            else:
                self.line_z.record_backward(graph, source, points, tables, 0, [source], lane)
        for exchange in exchanges:
            exchange.record_close(graph)

    def record_y_backward(
        self, graph: StepGraph, modes: Array, low: int, high: int, lane: str
    ) -> None:
        """Record packed planes -> x modes of local planes `low` to `high`."""
        accessed = []
        for block in self.geometry.plan.sends:
            pitch = block.count // block.box.shape[0]
            start = block.offset
            accessed.append(self.planes[:, start + low * pitch : start + high * pitch])
        self.line_y.record_backward(
            graph, self.planes, self.select(modes), self._plane_tables, low, accessed, lane
        )

    def _views(self, columns: Array, spectral: Array, low: int, high: int) -> tuple[Array, Array]:
        """Return columns as (fields, ky, nz, kx), and the part of the spectral array."""
        part = spectral[:, :, low:high, self._kept : self._kept + self._size]
        return columns[..., : self._size].swapaxes(1, 2), part

    def _batches(self, graph: StepGraph) -> Iterator[tuple[int, int, int, str]]:
        """Yield (low, high, lane, name of the lane) for batches of this rank's ky."""
        ky = self.geometry.columns_shape[1]
        for number, low in enumerate(range(0, ky, self._batch)):
            yield low, min(low + self._batch, ky), *graph.lane_of_batch(number)


class ChunkExchange:
    """The exchange of one plane chunk of a kx chunk: where its blocks are written, by what tables.

    `whole` has all blocks of the kx chunk, of which those of `plan` are the same, or a part of
    each; `source` and `target`, shape (fields, field size), are packed for sender and receiver.
    """

    def __init__(
        self, chunk: KxChunk, whole: ExchangePlan, plan: ExchangePlan, source: Array, target: Array
    ) -> None:
        self._chunk, self._plan, self._source = chunk, plan, source
        pairs = list(zip(source, target, strict=True))
        self._targets = pack_targets(chunk.transport, plan, pairs, chunk.options.store)
        self.stores, self._places = self._targets.stores, self._targets.blocks
        # Tables are made for whole blocks, of which these may be parts.
        starts = {block.peer: block.offset for block in whole.sends}
        shifts = {block.peer: block.offset - starts[block.peer] for block in plan.sends}
        for peer, shift in shifts.items():
            distance = address_of(self._places[0][peer]) - address_of(source)
            starts[peer] = distance // source.itemsize - shift
        geometry = chunk.geometry
        forward = source is chunk.planes
        make = geometry.plane_rows_at if forward else geometry.column_blocks_at
        self._tables = RowTables(chunk.device, make(starts))

    @property
    def stored(self) -> tuple[Array, RowTables]:
        """The array from which the tables count, and the tables."""
        return self._source, self._tables

    def record_open(self, graph: StepGraph) -> None:
        """Record what must come before anything is stored."""
        self._targets.record_open(graph, "transpose")

    def record_close(self, graph: StepGraph) -> None:
        """Record that all blocks of this exchange are stored."""
        self._targets.record_close(graph, "transpose")

    def record_y(self, graph: StepGraph, modes: Array, low: int, high: int, lane: str) -> None:
        """Record x modes of local planes `low` to `high` -> planes of the receivers."""
        chunk = self._chunk
        first = {block.peer: block.box.start[0] for block in self._plan.sends}
        origin = chunk.geometry.physical_box.start[0]
        accessed = [
            self._block(places, block)[low + origin - first[block.peer] :][: high - low]
            for places in self._places
            for block in self._plan.sends
        ]
        chunk.line_y.record_forward(
            graph,
            chunk.select(modes),
            self._source,
            self._tables,
            low,
            accessed,
            lane,
        )

    def column_views(self, low: int, high: int) -> list[Array]:
        """Return where columns of local ky `low` to `high` are stored."""
        return [
            self._block(places, block)[:, low:high]
            for places in self._places
            for block in self._plan.sends
        ]

    def _block(self, places: dict[int, Array], block: Block) -> Array:
        z, ky, _ = block.box.shape
        return places[block.peer].reshape(z, ky, -1)


def lane_after_exchange(graph: StepGraph, lane: str, transport: Transport | None) -> str:
    """Return where to record what follows an exchange.

    On a GPU that is a lane of its own, so that chunks which have arrived are transformed while
    others are still being stored. The lanes of a CPU are its threads, of which there are no more.
    """
    return "after exchange" if transport and graph.device.kind == "cuda" else lane
