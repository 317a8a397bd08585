"""One range of kx of a slab transform: its transforms along y and z, and the exchange between.

A `Piece` has the working arrays in which an exchange begins and ends; a `Flight` knows where the
blocks of one exchange are to be stored, here or in the memory of other ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slipstream.device import address_of
from slipstream.exchange import Block, ExchangePlan, Transport, pack_targets
from slipstream.fft.batch_size import balanced_batch
from slipstream.fft.line_transforms import LineTransform
from slipstream.fft.row_tables import RowTables
from slipstream.schedule import StepGraph

# Working set, in bytes, of one chunk of columns on a CPU; see `planes`.
_COLUMN_CHUNK = 1 << 20


@dataclass(frozen=True)
class SlabOptions:
    """What may be chosen freely, and is tuned: all choices give the same result.

    Attributes
    ----------
    pieces : int
        Ranges of kx.
    parts : int
        Ranges of planes.
    store : bool
        Whether transforms store into the memory of other ranks, if the transport can.
    tiled : bool
        Whether to take the device's own kernels for strided transforms.
    whole : bool
        Whether one rank leaves a forward transform that keeps all modes to one plan of the library.
    """

    pieces: int = 1
    parts: int = 1
    store: bool = True
    tiled: bool = True
    whole: bool = False


class Piece:
    """A range of kx: its y and z transforms, and the exchange between them.

    Parameters
    ----------
    device, transport, options, fields, complex_dtype
        As for `SlabTransform`.
    columns : tuple of (int, int)
        Where the piece begins among the kept modes of x, and among all.
    geometry : SlabGeometry
        With the modes of this piece alone along x.
    """

    def __init__(
        self, device, transport, options, columns, fields, complex_dtype, geometry
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
        limit = max(1, _COLUMN_CHUNK // max(1, fields * nz * row * self._columns.itemsize))
        if device.kind == "cuda":
            limit = max(1, ky)
        self._chunk = max(1, balanced_batch(ky, limit, device.lanes))
        plan = geometry.plan
        self.forward_flights = [
            Flight(self, plan, part, self.planes, self._columns)
            for part in plan.split(options.parts)
        ]
        back = plan.reversed()
        self._backward_flights, self._work = [], []
        if transport:
            self._backward_flights = [
                Flight(self, back, part, self._columns, self.planes)
                for part in back.split(options.parts)
            ]
        if transport and not self.line_z.tiled:
            self._work = [
                device.empty((fields, nz, self._chunk, row), complex_dtype)
                for _ in range(device.lanes)
            ]

    def select(self, modes: Any) -> Any:
        """Return the columns of this piece in an array of all x modes."""
        return modes[..., self._all : self._all + self._size]

    def record_z_forward(self, graph: StepGraph, spectral: Any) -> None:
        """Record columns -> spectral modes."""
        nz, ky, row = self.geometry.columns_shape
        columns = self._columns[:, : nz * ky * row].reshape(len(self._columns), nz, ky, row)
        tables = RowTables(self.device, self.geometry.spectral_rows(spectral))
        for low, high, _, lane in self._chunks(graph):
            lane = lane_after_exchange(graph, lane, self.transport)
            points, target = self._views(columns[:, :, low:high], spectral, low, high)
            self.line_z.record_forward(graph, points, target, tables, 0, [target], lane)

    def record_z_backward(self, graph: StepGraph, spectral: Any) -> None:
        """Record spectral modes -> columns -> the planes of everybody."""
        nz, ky, row = self.geometry.columns_shape
        tables = RowTables(self.device, self.geometry.spectral_rows(spectral))
        columns = self._columns[:, : nz * ky * row].reshape(len(self._columns), nz, ky, row)
        flights = self._backward_flights
        for flight in flights:
            flight.record_open(graph)
        for low, high, number, lane in self._chunks(graph):
            chunk = (
                self._work[number][:, :, : high - low] if self._work else columns[:, :, low:high]
            )
            points, source = self._views(chunk, spectral, low, high)
            if flights:
                # All parts are stored at once; their tables are the same.
                base, point_tables = flights[0].stored
                places = [view for flight in flights for view in flight.column_views(low, high)]
                self.line_z.record_backward_stored(
                    graph, source, points, tables, (base, point_tables, low, places), lane
                )
            else:
                self.line_z.record_backward(graph, source, points, tables, 0, [source], lane)
        for flight in flights:
            flight.record_close(graph)

    def record_y_backward(self, graph, modes, low: int, high: int, lane: str) -> None:
        """Record packed planes -> x modes of local planes `low` to `high`."""
        accessed = []
        for block in self.geometry.plan.sends:
            pitch = block.count // block.box.shape[0]
            start = block.offset
            accessed.append(self.planes[:, start + low * pitch : start + high * pitch])
        self.line_y.record_backward(
            graph, self.planes, self.select(modes), self._plane_tables, low, accessed, lane
        )

    def _views(self, columns: Any, spectral: Any, low: int, high: int) -> tuple[Any, Any]:
        """Return columns as (fields, ky, nz, kx), and the part of the spectral array."""
        part = spectral[:, :, low:high, self._kept : self._kept + self._size]
        return columns[..., : self._size].swapaxes(1, 2), part

    def _chunks(self, graph: StepGraph) -> Iterator[tuple[int, int, int, str]]:
        """Yield (low, high, lane, name of the lane) for chunks of this rank's ky."""
        ky = self.geometry.columns_shape[1]
        for number, low in enumerate(range(0, ky, self._chunk)):
            yield low, min(low + self._chunk, ky), *graph.lane_of_batch(number)


class Flight:
    """One exchange of a piece: where its blocks are to be stored, and by what tables.

    Parameters
    ----------
    piece : Piece
        Whose exchange it is.
    whole, plan : ExchangePlan
        All blocks, and those of this exchange: the same, or a part of each.
    source, target : array, shape (fields, field size)
        Packed arrays of the sender and of the receiver.
    """

    def __init__(self, piece: Piece, whole: ExchangePlan, plan, source, target) -> None:
        self._piece, self._plan, self._source = piece, plan, source
        pairs = list(zip(source, target, strict=True))
        self._targets = pack_targets(piece.transport, plan, pairs, piece.options.store)
        self.stores, self._places = self._targets.stores, self._targets.blocks
        # Tables are made for whole blocks, of which these may be parts.
        starts = {block.peer: block.offset for block in whole.sends}
        shifts = {block.peer: block.offset - starts[block.peer] for block in plan.sends}
        for peer, shift in shifts.items():
            distance = address_of(self._places[0][peer]) - address_of(source)
            starts[peer] = distance // source.itemsize - shift
        geometry = piece.geometry
        forward = source is piece.planes
        make = geometry.plane_rows_at if forward else geometry.column_blocks_at
        self._tables = RowTables(piece.device, make(starts))

    @property
    def stored(self) -> tuple[Any, RowTables]:
        """The array from which the tables count, and the tables."""
        return self._source, self._tables

    def record_open(self, graph: StepGraph) -> None:
        """Record what must come before anything is stored."""
        self._targets.record_open(graph, "transpose")

    def record_close(self, graph: StepGraph) -> None:
        """Record that all blocks of this exchange are stored."""
        self._targets.record_close(graph, "transpose")

    def record_y(self, graph: StepGraph, modes: Any, low: int, high: int, lane: str) -> None:
        """Record x modes of local planes `low` to `high` -> planes of the receivers."""
        piece = self._piece
        first = {block.peer: block.box.start[0] for block in self._plan.sends}
        origin = piece.geometry.physical_box.start[0]
        accessed = [
            self._block(places, block)[low + origin - first[block.peer] :][: high - low]
            for places in self._places
            for block in self._plan.sends
        ]
        piece.line_y.record_forward(
            graph,
            piece.select(modes),
            self._source,
            self._tables,
            low,
            accessed,
            lane,
        )

    def column_views(self, low: int, high: int) -> list[Any]:
        """Return where columns of local ky `low` to `high` are stored."""
        return [
            self._block(places, block)[:, low:high]
            for places in self._places
            for block in self._plan.sends
        ]

    def _block(self, places: dict[int, Any], block: Block) -> Any:
        z, ky, _ = block.box.shape
        return places[block.peer].reshape(z, ky, -1)


def lane_after_exchange(graph: StepGraph, lane: str, transport: Transport | None) -> str:
    """Return where to record what follows an exchange.

    On a GPU that is a lane of its own, so that pieces which have arrived are transformed while
    others are still being stored. The lanes of a CPU are its threads, of which there are no more.
    """
    return "after exchange" if transport and graph.device.kind == "cuda" else lane
