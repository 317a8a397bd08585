"""One range of kx of a slab transform: its transforms along y and z, and the exchanges between.

The exchange of a slab transform is divided twice. A `KxChunk` is a range of kx, with working arrays
in which its exchanges begin and end. Each of its exchanges, a `ChunkExchange`, carries a range of
planes (a plane chunk), and knows by what tables transforms write its blocks where they belong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from slipstream.array_types import Array
from slipstream.device import Device, address_of
from slipstream.exchange import ExchangePlan, Transport, pack_targets
from slipstream.fft.batch_size import balanced_batch
from slipstream.fft.line_transforms import LineTransform
from slipstream.fft.pack_unpack import RowTables
from slipstream.fft.slab_layout import SlabGeometry
from slipstream.schedule import StepGraph

# Working set, in bytes, of one batch of columns on a CPU; see `plane_transforms`.
_COLUMN_BATCH = 1 << 20


@dataclass(frozen=True)
class SlabOptions:
    """What may be chosen freely, and is tuned: all choices give the same result.

    `kx_chunks` and `plane_chunks` are how many there are. `store` is whether transforms store into
    the memory of other ranks, if the transport can; `tiled`, whether to take the device's own
    kernels for strided transforms; and `whole`, whether one rank leaves a forward transform that
    keeps all modes to one library plan.
    """

    kx_chunks: int = 1
    plane_chunks: int = 1
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
        self.geometry, self._device, self._transport = geometry, device, transport
        (kept, everywhere), size = columns, geometry.modes[2].count
        # Where the modes of this chunk are among those kept, and among all.
        self._kept, self._all = slice(kept, kept + size), slice(everywhere, everywhere + size)
        shape, plan = (fields, geometry.field_size), geometry.plan
        empty = transport.empty if transport else device.empty
        packed = empty(shape, complex_dtype)
        # What a transform finds packed by its sender, or packs for its receivers. Where all is
        # stored at the receivers, each way has one end only, and no two steps run at a time.
        is_stored = transport and options.store and not transport.pack_buffer_bytes(packed.nbytes)
        is_one = transport is None or is_stored
        self._planes = packed if is_one else empty(shape, complex_dtype)
        nz, ky, row = geometry.columns_shape
        self._columns = packed[:, : nz * ky * row].reshape(fields, nz, ky, row)
        self.line_y, self.line_z = (
            LineTransform(device, axis, n, complex_dtype, size, options.tiled)
            for axis, n in (("y", geometry.shape[1]), ("z", nz))
        )
        self._plane_tables = RowTables(device, geometry.plane_rows())
        limit = max(1, _COLUMN_BATCH // max(1, fields * nz * row * packed.itemsize))
        if device.kind != "cpu":
            limit = max(1, ky)
        self._batch = max(1, balanced_batch(ky, limit, device.lanes))
        self.forward_exchanges, self.backward_exchanges = (
            [
                ChunkExchange(device, transport, whole, one, pair, make_tables, options.store)
                for one in (whole.split(options.plane_chunks) if is_used else ())
            ]
            for whole, pair, make_tables, is_used in (
                (plan, (self._planes, packed), partial(geometry.plane_rows, None), True),
                (plan.reversed(), (packed, self._planes), geometry.column_blocks, transport),
            )
        )
        self._work: list[Array] = []
        if transport and not self.line_z.tiled:
            self._work = [
                device.empty((fields, nz, self._batch, row), complex_dtype)
                for _ in range(device.lanes)
            ]
        buffers = [packed, *self._work] + ([] if is_one else [self._planes])
        self.buffer_bytes = sum(one.nbytes for one in buffers)

    def record_y_forward(
        self, graph: StepGraph, number: int, modes: Array, low: int, high: int, lane: str
    ) -> None:
        """Record x modes of local planes `low` to `high`, of a plane chunk -> their receivers."""
        exchange, origin = self.forward_exchanges[number], self.geometry.physical_box.start[0]
        accessed = [block[low + origin - first :][: high - low] for first, block in exchange.blocks]
        modes = modes[..., self._all]
        self.line_y.record_forward(graph, modes, self._planes, exchange.tables, low, accessed, lane)

    def record_z_forward(self, graph: StepGraph, spectral: Array) -> None:
        """Record columns -> spectral modes."""
        tables = RowTables(self._device, self.geometry.spectral_rows(spectral))
        for low, high, _, lane in self._batches(graph):
            lane = lane_after_exchange(graph, lane, self._transport)
            points, target = self._views(self._columns[:, :, low:high], spectral, low, high)
            self.line_z.record_forward(graph, points, target, tables, 0, [target], lane)

    def record_z_backward(self, graph: StepGraph, spectral: Array) -> None:
        """Record spectral modes -> columns, stored or packed for the planes of everybody.

        The exchanges that `backward_exchanges` has for each plane chunk are opened, not closed.
        """
        tables = RowTables(self._device, self.geometry.spectral_rows(spectral))
        exchanges = self.backward_exchanges
        for exchange in exchanges:
            exchange.targets.record_open(graph, "transpose")
        for low, high, number, lane in self._batches(graph):
            work = self._work[number] if self._work else self._columns[:, :, low:]
            points, source = self._views(work[:, :, : high - low], spectral, low, high)
            if exchanges:
                # All plane chunks are stored at once; their tables are the same.
                places = [block[:, low:high] for one in exchanges for _, block in one.blocks]
                stored = exchanges[0].source, exchanges[0].tables, low, places
                self.line_z.record_backward_stored(graph, source, points, tables, stored, lane)
            else:
                self.line_z.record_backward(graph, source, points, tables, 0, [source], lane)

    def record_y_backward(
        self, graph: StepGraph, modes: Array, low: int, high: int, lane: str
    ) -> None:
        """Record packed planes -> x modes of local planes `low` to `high`."""
        accessed = []
        for block in self.geometry.plan.sends:
            pitch, start = block.count // block.box.shape[0], block.offset
            accessed.append(self._planes[:, start + low * pitch : start + high * pitch])
        modes = modes[..., self._all]
        self.line_y.record_backward(
            graph, self._planes, modes, self._plane_tables, low, accessed, lane
        )

    def _views(self, columns: Array, spectral: Array, low: int, high: int) -> tuple[Array, Array]:
        """Return columns as (fields, ky, nz, kx), and the part of the spectral array."""
        size = self.geometry.modes[2].count
        return columns[..., :size].swapaxes(1, 2), spectral[:, :, low:high, self._kept]

    def _batches(self, graph: StepGraph) -> Iterator[tuple[int, int, int, str]]:
        """Yield (low, high, lane, name of the lane) for batches of this rank's ky."""
        ky = self.geometry.columns_shape[1]
        for number, low in enumerate(range(0, ky, self._batch)):
            yield low, min(low + self._batch, ky), *graph.lane_of_batch(number)


class ChunkExchange:
    """The exchange of one plane chunk of a kx chunk: where its blocks are written, by what tables.

    `whole` has all blocks of the kx chunk, of which those of `plan` are the same, or a part of
    each; the pair (source, target), shape (fields, field size), is packed for sender and receiver.
    `blocks` has for each field and receiver the first global plane of its block, and where that is
    written; the tables of rows, made by `make_tables`, count from the source.
    """

    def __init__(
        self,
        device: Device,
        transport: Transport | None,
        whole: ExchangePlan,
        plan: ExchangePlan,
        pair: tuple[Array, Array],
        make_tables: Callable[[dict[int, int]], tuple[np.ndarray, np.ndarray]],
        store: bool,
    ) -> None:
        self.source, _ = pair
        self.targets = pack_targets(transport, plan, list(zip(*pair, strict=True)), store)
        # Tables are made for whole blocks, of which these may be parts.
        starts = {block.peer: block.offset for block in whole.sends}
        self.blocks = []
        for number, places in enumerate(self.targets.blocks):
            for block in plan.sends:
                first, place = block.box.start[0], places[block.peer]
                self.blocks.append((first, place.reshape(*block.box.shape[:2], -1)))
                if number == 0:
                    distance = address_of(place) - address_of(self.source)
                    shift = block.offset - starts[block.peer]
                    starts[block.peer] = distance // place.itemsize - shift
        self.tables = RowTables(device, make_tables(starts))


def lane_after_exchange(graph: StepGraph, lane: str, transport: Transport | None) -> str:
    """Return where to record what follows an exchange.

    On a GPU that is a lane of its own, so that chunks which have arrived are transformed while
    others are still being stored. The lanes of a CPU are its threads, of which there are no more.
    """
    return "after exchange" if transport and graph.device.kind != "cpu" else lane
