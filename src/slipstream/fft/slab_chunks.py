"""One range of kx of a slab transform: its columns, and the exchanges that lead there and back.

The exchange of a slab transform is divided twice. A `KxChunk` is a range of kx, with working arrays
in which its exchanges begin and end. Each of its exchanges, a `ChunkExchange`, carries a range of
planes (a plane chunk), and knows by what tables transforms write its blocks where they belong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from slipstream.array_types import Array
from slipstream.device import Device, address_of
from slipstream.exchange import ExchangePlan, Transport, pack_targets
from slipstream.fft.column_transforms import ColumnPass
from slipstream.fft.pack_unpack import RowTables
from slipstream.fft.plane_transforms import KxRange, PackedPlanes
from slipstream.schedule import StepGraph


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
    """A range of kx: its columns, the exchanges that lead there and back, and its transforms in z.

    `planes`, shape (fields, elements), is what a pass over planes finds packed by its senders, or
    packs for its receivers.
    """

    def __init__(
        self,
        device: Device,
        transport: Transport | None,
        options: SlabOptions,
        kx: KxRange,
        fields: int,
        complex_dtype: Any,
    ) -> None:
        self._kx, self._device, self._transport = kx, device, transport
        geometry, plan = kx.geometry, kx.geometry.plan
        shape, empty = (fields, geometry.field_size), transport.empty if transport else device.empty
        packed = empty(shape, complex_dtype)
        # Where all is stored at the receivers, each way has one end only, and no two steps run at a
        # time.
        is_stored = transport and options.store and not transport.pack_buffer_bytes(packed.nbytes)
        is_one = transport is None or is_stored
        self.planes = packed if is_one else empty(shape, complex_dtype)
        columns_shape = geometry.columns_shape
        self._columns = packed[:, : math.prod(columns_shape)].reshape(fields, *columns_shape)
        self._pass = ColumnPass(
            device,
            geometry,
            fields,
            complex_dtype,
            columns=geometry.modes[2].count,
            tiled=options.tiled,
            stored=transport is not None,
        )
        self.forward_exchanges, self.backward_exchanges = (
            [
                ChunkExchange(device, transport, whole, one, pair, make_tables, options.store)
                for one in (whole.split(options.plane_chunks) if is_used else ())
            ]
            for whole, pair, make_tables, is_used in (
                (plan, (self.planes, packed), partial(geometry.plane_rows, None), True),
                (plan.reversed(), (packed, self.planes), geometry.column_blocks, transport),
            )
        )
        self.buffer_bytes = packed.nbytes + self._pass.work_bytes
        self.buffer_bytes += 0 if is_one else self.planes.nbytes

    def leaving(self, number: int) -> PackedPlanes:
        """Return where the planes of a plane chunk go, whose exchange is open."""
        exchange, origin = self.forward_exchanges[number], self._kx.geometry.physical_box.start[0]

        def accessed(low: int, high: int) -> list[Array]:
            return [block[low + origin - z :][: high - low] for z, block in exchange.blocks]

        def record_close(graph: StepGraph) -> None:
            exchange.targets.record_close(graph, "transpose")

        return PackedPlanes(self.planes, exchange.tables, accessed, record_close)

    def record_z_forward(self, graph: StepGraph, spectral: Array) -> None:
        """Record columns -> spectral modes."""
        tables = RowTables(self._device, self._kx.geometry.spectral_rows(spectral))
        lane = lane_after_exchange(graph, self._transport)
        for low, high in self._pass.batches():
            target = spectral[..., self._kx.of_kept]
            self._pass.record_forward(graph, self._columns, low, high, target, tables, lane)

    def record_z_backward(self, graph: StepGraph, spectral: Array) -> None:
        """Record spectral modes -> columns, stored or packed for the planes of everybody.

        The exchanges that `backward_exchanges` has for each plane chunk are opened, not closed.
        """
        tables = RowTables(self._device, self._kx.geometry.spectral_rows(spectral))
        exchanges, source = self.backward_exchanges, spectral[..., self._kx.of_kept]
        for exchange in exchanges:
            exchange.targets.record_open(graph, "transpose")
        for low, high in self._pass.batches():
            if not exchanges:
                self._pass.record_backward(graph, source, self._columns, low, high, tables)
                continue
            # All plane chunks are stored at once; their tables are the same.
            places = [block[:, low:high] for one in exchanges for _, block in one.blocks]
            place = exchanges[0].source, exchanges[0].tables, places
            self._pass.record_backward_stored(
                graph, source, self._columns, low, high, tables, place
            )


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


def lane_after_exchange(graph: StepGraph, transport: Transport | None) -> str | None:
    """Return where to record what follows an exchange, or None for the lanes in turn.

    On a GPU that is a lane of its own, so that chunks which have arrived are transformed while
    others are still being stored. The lanes of a CPU are its threads, of which there are no more.
    """
    return "after exchange" if transport and graph.device.kind != "cpu" else None
