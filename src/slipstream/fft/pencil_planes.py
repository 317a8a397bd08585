"""The pass over planes whose rows belong to several ranks: along y, an exchange, and along x.

A rank of a process grid has some kx of its planes, all of them along y, and at the points all x of
some of their rows. Between the transforms along y and along x, ranks with the same planes exchange
what they hold. Both transforms are those of `plane_transforms.py`, so results have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from slipstream.array_types import Array
from slipstream.decomposition import split
from slipstream.device import Device
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
from slipstream.fft.slab_layout import PackedBlocks, PencilGeometry, planes_of_run
from slipstream.schedule import StepGraph


class PencilPass:
    """Transforms in x and y between packed planes of some kx and rows of points; as `PlanePass`.

    `across` exchanges among the ranks with the same planes, which have up to `lanes` lanes each.
    Planes go through in pieces of a few: on a CPU these stay in cache from one transform to the
    other and back. Two pieces can be on the way.
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
        self._device, self.geometry, self._across = device, geometry, across
        of_kx, rows, ny = geometry.ranges[0].geometry, geometry.rows, geometry.shape[1]
        plane_bytes = fields * ny * geometry.widest_kx * np.dtype(complex_dtype).itemsize
        most = max(1, lanes * BATCH_BYTES[device.processor] // plane_bytes)
        self._piece = min(most, max(1, geometry.planes))
        slots = 2 if self._piece < geometry.planes else 1
        empty, plan = across.empty if across else device.empty, geometry.across(self._piece)
        # Columns along y, and rows.
        self._columns, self._rows = (
            [empty((fields, size), complex_dtype) for _ in range(slots)]
            for size in (plan.send_size, plan.receive_size)
        )
        self.buffer_bytes = sum(one.nbytes for one in (*self._columns, *self._rows))
        self._modes_of_kx = _Side(device, of_kx, of_kx.plane_rows(), of_kx.planes)
        columns = geometry.columns_along_y
        self._along_y = _Side(device, columns, columns.packed_rows(self._piece), self._piece)
        self._line = LineTransform(device, "y", ny, complex_dtype)
        shares = RowsOfShares(
            device,
            complex_dtype,
            rows.row,
            self._piece,
            rows.packed_runs(self._piece),
            self._line.of_gpus,
        )
        batches = PlaneBatches.of_step(device, rows, fields, complex_dtype, self._piece)
        self._points = PlanePass(device, rows, fields, complex_dtype, batches, lines=[shares])
        self._batch = max(1, balanced_batch(self._piece, self._piece, device.lanes))
        size = fields, self._batch, ny, of_kx.modes[2].count
        # Without a library only the shape counts.
        self._work: Any = np.broadcast_to(np.zeros((), complex_dtype), size)
        if not self._line.tiled:
            self._work = device.empty(size, complex_dtype)
        self._exchanges: dict[tuple[int, int, int, bool], PackTargets] = {}

    def packed(
        self, number: int, array: Array, record_close: Callable[[], None] | None = None
    ) -> PackedPlanes:
        """Return the planes (fields, planes_size) of the kx of this rank; see `PlanePass`."""
        return self._modes_of_kx.packed(array, record_close)

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
        for piece in self._pieces(first, last):
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
        for piece in self._pieces(first, last):
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
        for piece in self._pieces(first, last):
            rows = self._rows_of(piece, len(targets[0].array))
            self._points.record_forward(graph, [rows], points, *piece.range)
            self._record_from_rows(graph, targets[0], piece)

    def _pieces(self, first: int, last: int | None) -> Iterator[_Piece]:
        last = self.geometry.planes if last is None else last
        count = -(-(last - first) // self._piece)
        for number, (low, high) in enumerate(split(last - first, max(1, count))):
            yield _Piece(first + low, first + high, number % len(self._rows), high + first == last)

    def _rows_of(self, piece: _Piece, fields: int) -> PackedPlanes:
        return replace(self._points.packed(0, self._rows[piece.slot][:fields]), origin=piece.low)

    def _record_to_rows(self, graph: StepGraph, source: PackedPlanes, piece: _Piece) -> None:
        """Record packed planes -> columns along y -> rows of modes on the ranks of their points."""
        self._record_along_y(graph, source, piece, forward=False)
        self._record_exchange(graph, len(source.array), piece, forward=False)

    def _record_from_rows(self, graph: StepGraph, target: PackedPlanes, piece: _Piece) -> None:
        self._record_exchange(graph, len(target.array), piece, forward=True)
        self._record_along_y(graph, target, piece, forward=True)
        if piece.is_last and target.record_close is not None:
            target.record_close()

    def _record_along_y(
        self, graph: StepGraph, planes: PackedPlanes, piece: _Piece, forward: bool
    ) -> None:
        fields = len(planes.array)
        columns = self._along_y.packed(self._columns[piece.slot][:fields])
        for batch, low, high in self._batches(graph, piece.low, piece.high):
            modes, points = (
                (one.array, one.tables, one.accessed(low - origin, high - origin), low - origin)
                for one, origin in ((planes, 0), (columns, piece.low))
            )
            work = self._work[:fields, : high - low]
            self._line.record_between(batch, modes, points, forward, work)

    def _batches(
        self, graph: StepGraph, first: int, last: int
    ) -> Iterator[tuple[StepGraph, int, int]]:
        for number, low in enumerate(range(first, last, self._batch)):
            lane = graph.lane_of_batch(number)[1] if self._line.tiled else None
            yield graph.on(graph.device, lane), low, min(low + self._batch, last)

    def _record_exchange(self, graph: StepGraph, fields: int, piece: _Piece, forward: bool) -> None:
        """Record the exchange of a piece: rows to columns along y if `forward`, else back."""
        planes = piece.high - piece.low
        key = fields, planes, piece.slot, forward
        if key not in self._exchanges:
            plan = self.geometry.across(self._piece).between(0, planes)
            sides = self._columns[piece.slot][:fields], self._rows[piece.slot][:fields]
            if forward:
                plan, sides = plan.reversed(), sides[::-1]
            pairs = list(zip(*sides, strict=True))
            self._exchanges[key] = packed_exchange(self._across, plan, pairs)
        # Messages have lanes of their own.
        self._exchanges[key].record_close(graph.on(graph.device), "transpose")


@dataclass(frozen=True)
class _Piece:
    """Some planes that go through together, and the slot of the arrays in which they do."""

    low: int
    high: int
    slot: int
    is_last: bool

    @property
    def range(self) -> tuple[int, int]:
        return self.low, self.high


class _Side:
    """Packed planes on one side of the transforms along y: where rows are, by tables."""

    def __init__(
        self,
        device: Device,
        blocks: PackedBlocks,
        tables: tuple[np.ndarray, np.ndarray],
        held: int,
    ) -> None:
        self._runs, self._held = blocks.packed_runs(held), held
        self._tables = RowTables(device, tables)

    def packed(self, array: Array, record_close: Callable[[], None] | None = None) -> PackedPlanes:
        return PackedPlanes(array, self._tables, partial(self._accessed, array), record_close)

    def _accessed(self, array: Array, low: int, high: int) -> list[Array]:
        return [planes_of_run(array, run, self._held, low, high) for run in self._runs]
