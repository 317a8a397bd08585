"""The pass over planes whose rows belong to several ranks: along y, an exchange, and along x.

A rank of a process grid has some kx of its planes, all of them along y, and at the points all x of
some of their rows. Between the transforms along y and along x, ranks with the same planes exchange
what they hold. Both transforms are those of `plane_transforms.py`, so results have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from slipstream.array_types import Array
from slipstream.device import Device
from slipstream.exchange import PackTargets, Transport, packed_exchange
from slipstream.fft.line_transforms import LineTransform, SharedRows, balanced_batch
from slipstream.fft.pack_unpack import RowTables
from slipstream.fft.plane_transforms import (
    PackedPlanes,
    PlanePass,
    PointOperation,
    PointProduct,
)
from slipstream.fft.slab_layout import PackedBlocks, PencilGeometry, planes_of_run
from slipstream.schedule import StepGraph

# Bytes of a batch of the transforms along y on a GPU that leaves them to a library.
_LIBRARY_BATCH_BYTES = 1 << 30


class PencilPass:
    """Transforms in x and y between packed planes of some kx and rows of points; as `PlanePass`.

    `across` exchanges among the ranks with the same planes.
    """

    def __init__(
        self,
        device: Device,
        geometry: PencilGeometry,
        fields: int,
        complex_dtype: Any,
        across: Transport | None,
    ) -> None:
        self._device, self.geometry, self._across = device, geometry, across
        of_kx, sides = geometry.ranges[0].geometry, (geometry.columns_along_y, geometry.rows)
        empty = across.empty if across else device.empty
        plan = geometry.across
        # Columns along y, and rows. All planes have room, so that chunks of them can be on the way.
        self._columns, self._rows = (
            empty((fields, size), complex_dtype) for size in (plan.send_size, plan.receive_size)
        )
        self.buffer_bytes = self._columns.nbytes + self._rows.nbytes
        self._modes_of_kx = _Side(device, of_kx, of_kx.plane_rows())
        self._along_y = _Side(device, sides[0], sides[0].packed_rows())
        self._line = LineTransform(device, "y", geometry.shape[1], complex_dtype)
        lines = [SharedRows(geometry.x_modes, self._line.of_gpus)]
        self._points = PlanePass(device, geometry.rows, fields, complex_dtype, lines=lines)
        shape = fields, geometry.planes, geometry.shape[1], of_kx.modes[2].count
        plane_bytes = max(1, fields * shape[2] * shape[3]) * np.dtype(complex_dtype).itemsize
        most = geometry.planes if self._line.tiled else _LIBRARY_BATCH_BYTES // plane_bytes
        self._batch = max(1, balanced_batch(geometry.planes, max(1, most), device.lanes))
        size = shape[0], self._batch, *shape[2:]
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
        last = self.geometry.planes if last is None else last
        arrived, leaving = (self._packed_rows(len(one[0].array)) for one in (sources, targets))
        self._record_to_rows(graph, sources[0], first, last)
        self._points.record_through(graph, [arrived], [leaving], product, first, last)
        self._record_from_rows(graph, targets[0], first, last)

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
        last = self.geometry.planes if last is None else last
        self._record_to_rows(graph, sources[0], first, last)
        rows = self._packed_rows(len(sources[0].array))
        self._points.record_backward(graph, [rows], points, first, last, scale)

    def record_forward(
        self,
        graph: StepGraph,
        targets: Sequence[PackedPlanes],
        points: Array | PointOperation,
        first: int = 0,
        last: int | None = None,
    ) -> None:
        """Record physical space -> packed planes; see `PlanePass`."""
        last = self.geometry.planes if last is None else last
        rows = self._packed_rows(len(targets[0].array))
        self._points.record_forward(graph, [rows], points, first, last)
        self._record_from_rows(graph, targets[0], first, last)

    def _packed_rows(self, fields: int) -> PackedPlanes:
        return self._points.packed(0, self._rows[:fields])

    def _record_to_rows(
        self, graph: StepGraph, source: PackedPlanes, first: int, last: int
    ) -> None:
        """Record packed planes -> columns along y -> rows of modes on the ranks of their points."""
        self._record_along_y(graph, source, first, last, forward=False)
        self._record_exchange(graph, len(source.array), first, last, forward=False)

    def _record_from_rows(
        self, graph: StepGraph, target: PackedPlanes, first: int, last: int
    ) -> None:
        self._record_exchange(graph, len(target.array), first, last, forward=True)
        self._record_along_y(graph, target, first, last, forward=True)
        if target.record_close is not None:
            target.record_close()

    def _record_along_y(
        self, graph: StepGraph, planes: PackedPlanes, first: int, last: int, forward: bool
    ) -> None:
        fields = len(planes.array)
        columns = self._along_y.packed(self._columns[:fields])
        for batch, low, high in self._batches(graph, first, last):
            modes, points = (
                (one.array, one.tables, one.accessed(low, high)) for one in (planes, columns)
            )
            work = self._work[:fields, : high - low]
            self._line.record_between(batch, modes, points, low, forward, work)

    def _batches(
        self, graph: StepGraph, first: int, last: int
    ) -> Iterator[tuple[StepGraph, int, int]]:
        for number, low in enumerate(range(first, last, self._batch)):
            lane = graph.lane_of_batch(number)[1] if self._line.tiled else None
            yield graph.on(graph.device, lane), low, min(low + self._batch, last)

    def _record_exchange(
        self, graph: StepGraph, fields: int, first: int, last: int, forward: bool
    ) -> None:
        """Record the exchange of some planes: rows to columns along y if `forward`, else back."""
        key = fields, first, last, forward
        if key not in self._exchanges:
            plan = self.geometry.across.between(first, last)
            pairs = list(zip(self._columns[:fields], self._rows[:fields], strict=True))
            if forward:
                plan, pairs = plan.reversed(), [(target, source) for source, target in pairs]
            self._exchanges[key] = packed_exchange(self._across, plan, pairs)
        # Messages have lanes of their own.
        self._exchanges[key].record_close(graph.on(graph.device), "transpose")


class _Side:
    """Packed planes on one side of the transforms along y: where rows are, by tables."""

    def __init__(
        self, device: Device, blocks: PackedBlocks, tables: tuple[np.ndarray, np.ndarray]
    ) -> None:
        self._runs, self._held = blocks.packed_runs(), blocks.planes
        self._tables = RowTables(device, tables)

    def packed(self, array: Array, record_close: Callable[[], None] | None = None) -> PackedPlanes:
        return PackedPlanes(array, self._tables, partial(self._accessed, array), record_close)

    def _accessed(self, array: Array, low: int, high: int) -> list[Array]:
        return [planes_of_run(array, run, self._held, low, high) for run in self._runs]
