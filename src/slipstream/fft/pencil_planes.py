"""The pass over planes whose rows belong to several ranks: along y, an exchange, and along x.

A rank of a process grid has some kx of its planes, all of them along y, and at the points all x of
some of their rows. Between the transforms along y and along x, ranks with the same planes exchange
what they hold. Both transforms are those of `plane_transforms.py`, so results have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slipstream.array_types import Array
from slipstream.decomposition import split
from slipstream.device import Device, address_of
from slipstream.exchange import PackTargets, Transport, packed_exchange
from slipstream.fft.line_transforms import LineTransform, RowsOfShares, balanced_batch
from slipstream.fft.pack_unpack import RowTables
from slipstream.fft.plane_transforms import (
    BATCH_BYTES,
    PackedPlanes,
    PlaneBatches,
    PlanePass,
    PointOperation,
    PointProduct,
)
from slipstream.fft.slab_layout import PencilGeometry, planes_of_run
from slipstream.schedule import StepGraph

# Bytes of the blocks of a field, at least, if there are so many planes: each piece waits for two
# exchanges. At 64³ on two ranks of two cores one piece took 0.88 of the time of three.
LEAST_BLOCK = 1 << 20


class PencilPieces:
    """What pieces of a few planes have between the transforms along y and x, and its exchange.

    The arrays are on `home`, and `across` exchanges among the ranks with the same planes. Of the
    modes of this rank's kx those of its own rows are at once where the transform along x reads
    them: they take no part in the exchange. Two pieces can be on the way.
    """

    def __init__(
        self,
        home: Device,
        geometry: PencilGeometry,
        fields: int,
        complex_dtype: Any,
        across: Transport | None,
        planes: int,
    ) -> None:
        self.planes, self.geometry, self._across = planes, geometry, across
        self._dtype, self._plan = np.dtype(complex_dtype), geometry.across(planes)
        slots = 2 if planes < geometry.planes else 1
        # One distance from field to field, so that tables lead from one array to the other.
        size = max(self._plan.send_size, self._plan.receive_size)
        empty = across.empty if across else home.empty
        self.columns, self.rows = (
            [empty((fields, size), self._dtype) for _ in range(slots if used else 0)]
            for used in (across is not None, True)
        )
        # A rank that has all rows of its planes has them in one place.
        self.columns = self.columns or self.rows
        arrays = {id(one): one.nbytes for one in (*self.columns, *self.rows)}
        self.buffer_bytes = sum(arrays.values())
        self._exchanges: dict[tuple[int, int, int, bool], PackTargets] = {}

    def of_range(self, first: int, last: int) -> Iterator[Piece]:
        """Yield the pieces of planes from `first` to `last`, in slots in turn."""
        count = -(-(last - first) // self.planes)
        for number, (low, high) in enumerate(split(last - first, max(1, count))):
            yield Piece(first + low, first + high, number % len(self.rows), high + first == last)

    def column_rows(self, slot: int) -> tuple[np.ndarray, np.ndarray]:
        """Return tables of the rows of columns along y; see `PackedBlocks.packed_rows`."""
        g, part = self.geometry, self.geometry.part
        columns = g.columns_along_y[0]
        starts = [start for start, _ in columns.packed_blocks(self.planes)]
        distance = address_of(self.rows[slot]) - address_of(self.columns[slot])
        own, _ = g.rows.packed_blocks(self.planes)[part]
        starts[part] = distance // self._dtype.itemsize + own
        return columns.packed_rows(self.planes, dict(enumerate(starts)))

    def column_runs(
        self, slot: int, fields: int, kx: int = 0
    ) -> Iterator[tuple[Array, tuple[int, int, int]]]:
        """Yield arrays and runs of blocks in them: columns along y for other ranks, and its own.

        They are those of a range of kx.
        """
        g, part = self.geometry, self.geometry.part
        for run in g.columns_along_y[kx].packed_runs(self.planes, part):
            yield self.columns[slot][:fields], run
        # Blocks of rows are those of ranks, or of the ranges of the only one.
        start, size = g.rows.packed_blocks(self.planes)[part + kx]
        if size:
            yield self.rows[slot][:fields], (start, size, 1)

    def record_exchange(self, graph: StepGraph, fields: int, piece: Piece, forward: bool) -> None:
        """Record the exchange of a piece: rows to columns along y if `forward`, else back."""
        if self._across is None:
            return
        planes = piece.high - piece.low
        key = fields, planes, piece.slot, forward
        if key not in self._exchanges:
            others = [rank for rank in range(self.geometry.over) if rank != self.geometry.part]
            plan = self._plan.among(others).between(0, planes)
            sides = (
                self.columns[piece.slot][:fields, : plan.send_size],
                self.rows[piece.slot][:fields, : plan.receive_size],
            )
            if forward:
                plan, sides = plan.reversed(), sides[::-1]
            pairs = list(zip(*sides, strict=True))
            self._exchanges[key] = packed_exchange(self._across, plan, pairs)
        # Messages have lanes of their own.
        self._exchanges[key].record_close(graph.on(graph.device), "transpose")


@dataclass(frozen=True)
class Piece:
    """Some planes that go through together, and the slot of the arrays in which they do."""

    low: int
    high: int
    slot: int
    is_last: bool

    @property
    def range(self) -> tuple[int, int]:
        return self.low, self.high


class PencilPass:
    """Transforms in x and y between packed planes of some kx and rows of points; as `PlanePass`.

    `across` exchanges among the ranks with the same planes, which have up to `lanes` lanes each.
    Planes go through in pieces of a few: on a CPU these stay in cache from one transform to the
    other and back.
    """

    def __init__(
        self,
        device: Device,
        geometry: PencilGeometry,
        fields: int,
        complex_dtype: Any,
        across: Transport | None,
        lanes: int,
    ) -> None:
        self._device, self.geometry = device, geometry
        of_kx, rows, ny = geometry.ranges[0].geometry, geometry.rows, geometry.shape[1]
        plane_bytes = fields * ny * geometry.widest_kx * np.dtype(complex_dtype).itemsize
        block_bytes = geometry.most_rows * geometry.widest_kx * np.dtype(complex_dtype).itemsize
        most = max(
            1, lanes * BATCH_BYTES[device.processor] // plane_bytes, LEAST_BLOCK // block_bytes
        )
        piece = min(most, max(1, geometry.planes))
        self._pieces = PencilPieces(device, geometry, fields, complex_dtype, across, piece)
        self.buffer_bytes = self._pieces.buffer_bytes
        self._mode_tables = RowTables(device, of_kx.plane_rows())
        self._column_tables = [
            RowTables(device, self._pieces.column_rows(slot))
            for slot in range(len(self._pieces.rows))
        ]
        self._line = LineTransform(device, "y", ny, complex_dtype)
        shares = RowsOfShares(
            device, complex_dtype, rows.row, piece, rows.packed_runs(piece), self._line.of_gpus
        )
        batches = PlaneBatches.of_step(device, rows, fields, complex_dtype, piece)
        self._points = PlanePass(device, rows, fields, complex_dtype, batches, lines=[shares])
        self._batch = max(1, balanced_batch(piece, piece, device.lanes))
        size = fields, self._batch, ny, of_kx.modes[2].count
        # Without a library only the shape counts.
        self._work: Any = np.broadcast_to(np.zeros((), complex_dtype), size)
        if not self._line.tiled:
            self._work = device.empty(size, complex_dtype)

    def packed(
        self, number: int, array: Array, record_close: Callable[[], None] | None = None
    ) -> PackedPlanes:
        """Return the planes (fields, planes_size) of the kx of this rank; see `PlanePass`."""
        of_kx = self.geometry.ranges[0].geometry
        runs, held = of_kx.packed_runs(), of_kx.planes

        def accessed(low: int, high: int) -> list[Array]:
            return [planes_of_run(array, run, held, low, high) for run in runs]

        return PackedPlanes(array, self._mode_tables, accessed, record_close)

    def record_through(
        self,
        graph: StepGraph,
        sources: Sequence[PackedPlanes],
        targets: Sequence[PackedPlanes],
        product: PointProduct | None,
        first: int = 0,
        last: int | None = None,
    ) -> None:
        """Record packed planes -> physical space -> product -> packed planes; see `PlanePass`."""
        for piece in self._range(first, last):
            arrived, leaving = (
                self._rows_of(piece, len(one[0].array)) for one in (sources, targets)
            )
            self._record_to_rows(graph, sources[0], piece)
            self._points.record_through(graph, [arrived], [leaving], product, *piece.range)
            self._record_from_rows(graph, targets[0], piece)

    def record_backward(
        self,
        graph: StepGraph,
        sources: Sequence[PackedPlanes],
        points: Array | PointOperation,
        first: int = 0,
        last: int | None = None,
        scale: float = 1.0,
    ) -> None:
        """Record packed planes -> physical space, times a constant; see `PlanePass`."""
        for piece in self._range(first, last):
            self._record_to_rows(graph, sources[0], piece)
            rows = self._rows_of(piece, len(sources[0].array))
            self._points.record_backward(graph, [rows], points, *piece.range, scale)

    def record_forward(
        self,
        graph: StepGraph,
        targets: Sequence[PackedPlanes],
        points: Array | PointOperation,
        first: int = 0,
        last: int | None = None,
    ) -> None:
        """Record physical space -> packed planes; see `PlanePass`."""
        for piece in self._range(first, last):
            rows = self._rows_of(piece, len(targets[0].array))
            self._points.record_forward(graph, [rows], points, *piece.range)
            self._record_from_rows(graph, targets[0], piece)

    def _range(self, first: int, last: int | None) -> Iterator[Piece]:
        return self._pieces.of_range(first, self.geometry.planes if last is None else last)

    def _rows_of(self, piece: Piece, fields: int) -> PackedPlanes:
        return replace(
            self._points.packed(0, self._pieces.rows[piece.slot][:fields]), origin=piece.low
        )

    def _record_to_rows(self, graph: StepGraph, source: PackedPlanes, piece: Piece) -> None:
        """Record packed planes -> columns along y -> rows of modes on the ranks of their points."""
        self._record_along_y(graph, source, piece, forward=False)
        self._pieces.record_exchange(graph, len(source.array), piece, forward=False)

    def _record_from_rows(self, graph: StepGraph, target: PackedPlanes, piece: Piece) -> None:
        self._pieces.record_exchange(graph, len(target.array), piece, forward=True)
        self._record_along_y(graph, target, piece, forward=True)
        if piece.is_last and target.record_close is not None:
            target.record_close()

    def _record_along_y(
        self, graph: StepGraph, planes: PackedPlanes, piece: Piece, forward: bool
    ) -> None:
        fields, slot = len(planes.array), piece.slot
        base, runs = self._pieces.columns[slot][:fields], self._pieces.column_runs(slot, fields)
        columns, held = list(runs), self._pieces.planes
        for batch, low, high in self._batches(graph, piece.low, piece.high):
            first, last = low - piece.low, high - piece.low
            accessed = [planes_of_run(array, run, held, first, last) for array, run in columns]
            modes = planes.array, planes.tables, planes.accessed(low, high), low
            points = base, self._column_tables[slot], accessed, first
            work = self._work[:fields, : high - low]
            self._line.record_between(batch, modes, points, forward, work)

    def _batches(
        self, graph: StepGraph, first: int, last: int
    ) -> Iterator[tuple[StepGraph, int, int]]:
        for number, low in enumerate(range(first, last, self._batch)):
            lane = graph.lane_of_batch(number)[1] if self._line.tiled else None
            yield graph.on(graph.device, lane), low, min(low + self._batch, last)
