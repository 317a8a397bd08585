"""The slab engine: it transforms fields between physical and spectral space, in passes.

A rank has some planes of physical space: all x and y of some z. In spectral space it has some
columns: all z of some ky. So it can transform its planes along x and y, and its columns along z.
Between the two, the ranks exchange their data. On a process grid (pencils) a rank has some kx of
the columns, and some rows of the planes: a pass over planes has an exchange between y and x
(`pencil_planes.py`).

pass
    One sweep over all planes or columns that a rank has. A pass over planes transforms along x and
    y, a pass over columns along z. A transform (`SlabTransform`) is one pass of each kind. A step
    of a solver does more in the same passes: a pass over planes goes to physical space, multiplies
    the fields there and comes back; a pass over columns comes to spectral space, updates the modes
    and goes back.
range
    Either some kx (`KxRange`), or some planes (a chunk). The exchange of one range overlaps the
    computation of the next. Forward, with three chunks of planes::

      x of all planes | y of chunk 0 | y of chunk 1  | y of chunk 2  |
                                     | chunk 0 flies | chunk 1 flies | chunk 2 flies |
                                                     | z of chunk 0  | z of chunk 1  | z of chunk 2

exchange
    The blocks that ranks send each other for one range of kx and one chunk of planes
    (`SlabExchange`).
tile
    The planes (`PlaneTile`) or columns (`ColumnTile`) that a pass works on together on one device.
    If the fields are on the device, tiles are parts of them. If the fields are on the host, tiles
    are loaded and stored (`streamed_slabs.py`).
batch
    The planes or columns of a tile that are transformed together. On a CPU they stay in a core's
    cache.

This file goes from the top down: the functions that record a pass; the `Passes` protocol, which
gives them tiles and exchanges; `SlabEngine`, which is `Passes` for fields on the device; and then
tiles and exchanges.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from slipstream.engine.array_types import Array
from slipstream.engine.decomposition import split
from slipstream.engine.device import Device, Operation, address_of
from slipstream.engine.exchange import (
    ExchangePlan,
    GridTransports,
    PackTargets,
    Transport,
    pack_targets,
    packed_exchange,
)
from slipstream.engine.fft.line_transforms import ColumnPass, Rows, column_pass
from slipstream.engine.fft.pack_unpack import RowTables
from slipstream.engine.fft.pencil_planes import PencilPass
from slipstream.engine.fft.plane_transforms import (
    PackedPlanes,
    PlaneBatches,
    PlanePass,
    PlaneTask,
    PointOperation,
    PointProduct,
)
from slipstream.engine.fft.slab_layout import (
    PencilGeometry,
    PlaneGeometry,
    SlabGeometry,
    planes_beside,
    planes_of_run,
)
from slipstream.engine.schedule import StepGraph

# Chunks of planes in which fields are sent, if their blocks are large: the first travel while the
# last are computed.
PLANE_CHUNKS = 4
# The number of chunks of fields whose blocks, and data sent by a rank per field, have at least
# these bytes: so each chunk is worth its messages.
CHUNKS_FROM = {
    "cpu": ((1 << 20, 0, PLANE_CHUNKS),),
    "gpu": ((1 << 20, 1 << 26, PLANE_CHUNKS), (1 << 18, 1 << 24, 2)),
}

# The lane of a GPU for work after an exchange, where received chunks are transformed while others
# are still being stored. On a CPU each lane is a thread, and there is no spare thread.
LANE_AFTER_EXCHANGE = "after exchange"

# What is side by side for all fields in a message: see `SlabEngine`.
Beside: TypeAlias = Literal["", "rows", "planes"]


class Signs(NamedTuple):
    """Between walls, 1 for each even field of a pass, and -1 for each odd one."""

    leaving: Sequence[int] = ()  # to physical space
    arriving: Sequence[int] = ()  # from there


NO_SIGNS = Signs()


# Records nothing itself: it returns the operation that advances the modes of a tile.
ColumnUpdate: TypeAlias = "Callable[[ColumnTile], TileUpdate]"
# Makes the product of a pass over planes on the device that holds the points.
ProductOf: TypeAlias = Callable[[Device], PointProduct]


def record_from_points(
    graph: StepGraph,
    passes: Passes,
    points: Array | PointOperation,
    fields: int,
    chunks: int = 1,
    scale: float = 1.0,
) -> None:
    """Record the pass over planes that takes `fields` fields from physical space. Collective.

    They are multiplied by a constant. `record_columns` comes next. `points` is this rank's array,
    or the operation that makes the points of each batch: see `PlaneTask`.
    """
    _record_planes(graph, passes, PlaneTask(0, fields, points, scale=scale), chunks)


def record_to_points(
    graph: StepGraph,
    passes: Passes,
    points: Array | PointOperation,
    fields: int,
    chunks: int = 1,
    scale: float = 1.0,
) -> None:
    """Record the pass over planes that takes `fields` fields to physical space, times a constant.

    `record_columns` comes before. `points` is this rank's array, or the operation that uses the
    points of each batch: see `PlaneTask`.
    """
    _record_planes(graph, passes, PlaneTask(fields, 0, points, scale=scale), chunks)


def record_through(
    graph: StepGraph, passes: Passes, product_of: ProductOf | None, inputs: int, outputs: int
) -> None:
    """Record a solver's pass over planes: to physical space, product, and back. Collective.

    `record_columns` comes before and after. `inputs` fields are transformed to physical space and
    `outputs` fields are transformed back. Without a product the values do not change.
    """
    _record_planes(graph, passes, PlaneTask(inputs, outputs), passes.plane_chunks, product_of)


def _record_planes(
    graph: StepGraph,
    passes: Passes,
    task: PlaneTask,
    chunks: int,
    product_of: ProductOf | None = None,
) -> None:
    """Record a pass over planes in chunks; the last tile of a chunk closes its exchanges."""
    for chunk, (first, last) in enumerate(split(passes.geometry.planes, chunks)):
        exchanges = [
            passes.exchange(kx, range(task.outputs), True, chunk, chunks)
            for kx in range(len(passes.geometry.ranges) if task.leaves else 0)
        ]
        for exchange in exchanges:
            exchange.targets.record_open(graph, "transpose")
        for tile in passes.plane_tiles(graph, first, last, arriving=not task.leaves):
            if product_of is not None:
                task = replace(task, product=product_of(tile.device))
            tile.record(task, exchanges, graph if tile.high == last else None)
        for exchange in exchanges if first == last else ():
            exchange.targets.record_close(graph, "transpose")


def record_columns(
    graph: StepGraph,
    passes: Passes,
    source: Any = None,
    updates: Sequence[ColumnUpdate] = (),
    forward: int = 0,
    target: Any = None,
    chunks: int = 1,
    signs: Signs = NO_SIGNS,
    arrived: int = 0,
    scale: float = 1.0,
) -> None:
    """Record one pass over the columns. Collective.

    Each tile finishes the forward transform of `forward` fields, into the spectral fields `target`
    or in place. It then applies `updates` to its modes. Finally it starts the backward transform of
    the spectral fields `source`, times a constant, which are sent in `chunks` chunks of planes.
    Spectral fields have the shape (fields, kz, ky of this rank, row). The forward transform of
    `arrived` fields is done already. Between walls, `signs` are the signs of the fields.
    """
    if updates and passes.updating is not passes:
        if forward:
            record_columns(graph, passes, forward=forward, signs=signs)
        record_columns(graph, passes.updating, updates=updates, arrived=forward)
        updates, forward = (), 0
    fields = range(0 if source is None else len(source))
    part = slice(fields.start, fields.stop)
    exchanges = [
        [
            passes.exchange(kx, fields, False, chunk, chunks)
            for chunk in range(0 if source is None else chunks)
        ]
        for kx in range(len(passes.geometry.ranges))
    ]
    for exchange in itertools.chain(*exchanges):
        exchange.targets.record_open(graph, "transpose")
    for kx, leaving in enumerate(exchanges):
        for tile in passes.column_tiles(graph, kx, forward or arrived, len(fields)):
            tile.signs = signs
            if forward:
                tile.record_forward(forward, target)
            for update in updates:
                tile.record_update(update)
            if leaving:
                tile.record_backward(source, part, leaving, scale)
            stays = leaving or updates or target is not None
            tile.record_out(0 if stays else forward)
        if leaving and (leaving[0].targets.closes_early or not passes.geometry.apart):
            leaving[0].targets.record_close(graph, "transpose")
    # The first chunks of all ranges are sent before the later ones. Passes transform them while the
    # later ones are exchanged. A rank with the columns of one range sends to other ranks first.
    for chunk, of_chunk in enumerate(zip(*exchanges, strict=True)):
        for exchange in of_chunk if chunk or passes.geometry.apart else ():
            exchange.targets.record_close(graph, "transpose")


class Passes(Protocol):
    """The tiles and exchanges of passes, for fields on the device or on the host."""

    # The planes of this rank, and the ranges of kx: each has separate columns.
    geometry: PlaneGeometry
    # The devices on which passes run.
    devices: list[Device]
    # Whether the last pass of a step should also begin the next step.
    goes_ahead: bool

    @property
    def plane_chunks(self) -> int:
        """The number of chunks of planes in which products are sent."""

    @property
    def input_chunks(self) -> int:
        """The number of chunks of planes in which a step sends fields to physical space."""

    @property
    def updating(self) -> Passes:
        """The passes that update modes: these passes, or the host's."""

    def column_tiles(
        self, graph: StepGraph, kx: int = 0, arriving: int = 0, leaving: int = 0
    ) -> Iterator[ColumnTile]:
        """Yield the tiles of a pass over the columns of a range of kx.

        The caller records each tile before it takes the next one. An exchange may deliver
        `arriving` fields, and another takes `leaving` fields.
        """

    def plane_tiles(
        self, graph: StepGraph, first: int, last: int, arriving: bool = False
    ) -> Iterator[Any]:
        """Yield the `PlaneTile`s of a pass over planes of this rank, `arriving` or not."""

    def exchange(
        self, kx: int, fields: range, forward: bool, chunk: int = 0, chunks: int = 1
    ) -> SlabExchange:
        """Return an exchange of a range of kx; see `SlabEngine.exchange`. Collective."""


class SlabEngine:
    """A rank's working arrays, exchanges between them, and the passes over them in place.

    It transforms at most `fields` fields together, in `batches` of planes. By default the points
    of one batch exist at a time, in working memory.

    Without `store`, exchanges send whole working arrays. With `store`, passes write blocks for the
    exchange: into the memory of other ranks if `store` is true and the transport supports it, else
    into a buffer, packed. If not `works`, the engine has the arrays and exchanges for other passes.

    Small blocks of all fields of a step's exchange are one message per rank, without packing:
    "rows", or "planes" of a block, are side by side in it for all fields. The layout then depends
    on the number of fields, so passes cannot work in place: they read the array that an exchange
    writes, and write the array that an exchange reads. The passes of this engine use rows, other
    passes planes, which they copy in long runs. Pencils whose planes and columns need no exchange
    have such rows too, in place: the pass along y takes all fields of a row together.

    The attribute `beside` is "rows" or "planes", or "" if fields are separate. By range of kx,
    `columns` are the results of forward transforms, (fields, nz, ky of this rank, row), with
    undefined values where truncation discards modes; `planes` are packed, (fields, planes_size),
    in the same memory on one rank, and if other ranks store everything that this rank receives.
    """

    goes_ahead = False

    def __init__(
        self,
        device: Device,
        geometry: PlaneGeometry,
        fields: int,
        complex_dtype: DTypeLike,
        transport: Transport | GridTransports | None,
        batches: PlaneBatches | None = None,
        store: bool | None = None,
        works: bool = True,
        beside: Beside = "",
    ) -> None:
        # The exchanges between the passes along y and x.
        self.across: Transport | None = None
        lanes = device.lanes
        if isinstance(transport, GridTransports):
            self.across, lanes = transport.across, transport.lanes
            transport = transport.along
        self.geometry, self.devices, self._transport = geometry, [device], transport
        self._store, self._takes_whole = store, store is None or transport is None
        self._complex_dtype = np.dtype(complex_dtype)
        is_pencil = isinstance(geometry, PencilGeometry)
        self.beside: Beside = ""
        if (
            (transport is not None or is_pencil)
            and (is_pencil or isinstance(geometry, SlabGeometry))
            and not geometry.flat
            and self._takes_whole
            and self._step_chunks == 1
        ):
            self.beside = beside
        is_apart = device.kind != "cpu" and not self._takes_whole
        self.lane_after_exchange = LANE_AFTER_EXCHANGE if is_apart else None
        self._plans: dict[tuple[int, int], list[ExchangePlan]] = {}
        self._exchanges: dict[tuple[Any, ...], SlabExchange] = {}
        self._memory = self._allocate_memory(fields, self._complex_dtype)
        self.planes, self.columns = self._parts()
        self.buffer_bytes = sum({id(array): array.nbytes for array in self._memory}.values())
        if not works:
            return
        if batches is None:
            batches = PlaneBatches.of_step(device, geometry, fields, complex_dtype)
            for array in {id(memory): memory for memory in self._memory}.values():
                device.run(device.fill(array, 0))
        self._column_passes = [
            column_pass(kx_range.geometry)(
                device,
                kx_range.geometry,
                fields,
                complex_dtype,
                columns=kx_range.geometry.modes[2].count if batches.are_given else None,
                tiled=batches.tiled,
                stored=not self._takes_whole,
            )
            for kx_range in geometry.ranges
        ]
        self.buffer_bytes += sum(kx_pass.work_bytes for kx_pass in self._column_passes)
        self._plane_pass: PlanePass | PencilPass
        if isinstance(geometry, PencilGeometry) and self.across is not None:
            self._plane_pass = PencilPass(
                device, geometry, fields, complex_dtype, self.across, lanes
            )
            self.buffer_bytes += self._plane_pass.buffer_bytes
        else:
            self._plane_pass = PlanePass(device, geometry, fields, complex_dtype, batches)

    def _allocate_memory(self, fields: int, dtype: np.dtype) -> tuple[Array, Array]:
        """Return memory for the planes, and for the columns, of all ranges. Collective."""
        transport, parts = self._transport, [one.geometry for one in self.geometry.ranges]
        empty = transport.empty if transport else self.devices[0].empty
        if self._store is None:
            sizes = [
                sum(part.planes_size for part in parts),
                sum(math.prod(part.columns_shape) for part in parts),
            ]
        else:
            sizes = [self.geometry.field_size] * 2
        if self.beside:
            sizes = [max(sizes)] * 2
        columns = empty((fields, sizes[1]), dtype)
        # If every block is stored at its receiver, one array is enough: steps run one at a time.
        stores = self._store and transport and not transport.pack_buffer_bytes(columns.nbytes)
        planes = columns if stores or not transport else empty((fields, sizes[0]), dtype)
        return planes, columns

    def _parts(self) -> tuple[list[Array], list[Array]]:
        """Return the planes and the columns of each range, contiguous in their memory."""
        (packed, stored), planes, columns = self._memory, [], []
        low = start = 0
        for part in (kx.geometry for kx in self.geometry.ranges):
            high, stop = low + part.planes_size, start + math.prod(part.columns_shape)
            planes.append(packed[:, low:high])
            columns.append(stored[:, start:stop].reshape(len(stored), *part.columns_shape))
            low, start = high, stop
        return planes, columns

    def _planes_of(self, kx: int, fields: int, leaves: bool) -> Array:
        """Return the packed planes of some fields, as `PlanePass.packed` takes them."""
        if not self.beside:
            return self.planes[kx][:fields]
        row = self.geometry.row
        return self._side_by_side(fields, leaves, self.planes[kx].shape[1] // row, row)

    def planes_of_run(
        self, kx: int, fields: int, leaves: bool, run: tuple[int, int, int], low: int, high: int
    ) -> Array:
        """Return planes of a run of blocks: (fields, blocks, planes, elements); see `beside`."""
        held, size = self.geometry.planes, run[1]
        if self.beside:
            memory = self._memory[0 if leaves else 1]
            result: Array = planes_beside(memory, fields, run, held, low, high)
        else:
            planes = planes_of_run(self.planes[kx][:fields], run, held, low, high)
            result = planes.reshape(*planes.shape[:2], high - low, size)
        return result

    def columns_of(self, kx: int, fields: int, leaves: bool) -> Array:
        """Return the columns of some fields: (fields, nz, ky of this rank, row)."""
        columns = self.columns[kx][:fields]
        if not self.beside:
            return columns
        _, nz, ky, row = columns.shape
        if self.beside == "planes":
            return self._side_by_side(fields, leaves, nz, ky * row).reshape(columns.shape)
        return self._side_by_side(fields, leaves, nz * ky, row).reshape(columns.shape)

    def _side_by_side(self, fields: int, leaves: bool, count: int, size: int) -> Array:
        """Return parts of fields that are side by side: (fields, count, size)."""
        memory = self._memory[0 if leaves else 1]
        # Without an exchange everything is in place, for any number of fields.
        beside = fields if self._transport else len(memory)
        of_all = memory.reshape(-1)[: count * beside * size].reshape(count, beside, size)
        return of_all[:, :fields].swapaxes(0, 1)

    def exchange_memory(self) -> tuple[Array, Array]:
        """Return the memory that exchanges read and write, as bytes."""
        source, target = (memory.reshape(-1).view(np.uint8) for memory in self._memory)
        return source, target

    def with_memory(self, memory: Array) -> SlabEngine:
        """Return this engine of a single rank with other working memory, (fields, ...)."""
        result = copy.copy(self)
        result._memory = (memory.reshape(len(memory), -1),) * 2
        result.planes, result.columns = result._parts()
        result._exchanges = {}
        return result

    @property
    def updating(self) -> Passes:
        return self

    @property
    def plane_chunks(self) -> int:
        return self._step_chunks

    @property
    def input_chunks(self) -> int:
        return self._step_chunks

    @cached_property
    def _step_chunks(self) -> int:
        if self._transport is None:
            return 1
        return chunks_of_step(self.geometry, self._complex_dtype, self.devices[0])

    def column_tiles(
        self, graph: StepGraph, kx: int = 0, arriving: int = 0, leaving: int = 0
    ) -> Iterator[ColumnTile]:
        """Yield batches of columns, each in its lane."""
        device, passes = self.devices[0], self._column_passes[kx]
        most = len(self.columns[kx])
        columns, left = (
            self.columns_of(kx, fields if self.beside and fields else most, leaves)
            for fields, leaves in ((arriving, False), (leaving, True))
        )
        late = self.lane_after_exchange if arriving else None
        for number, (low, high) in enumerate(passes.batches):
            work = graph.on(device, late or graph.lane_of_batch(number, device)[1])
            part = self.geometry.ranges[kx].among_kept
            here, there = columns[:, :, low:high], left[:, :, low:high]
            yield ColumnTile(passes, work, here, there, low, high, part)

    def plane_tiles(
        self, graph: StepGraph, first: int, last: int, arriving: bool = False
    ) -> Iterator[PlaneTile]:
        """Yield these planes as one tile, with batches distributed to lanes."""
        if first < last:
            work = graph.on(self.devices[0], self.lane_after_exchange if arriving else None)
            packed = [
                partial(self._planes_of, number) for number in range(len(self.geometry.ranges))
            ]
            yield PlaneTile(self._plane_pass, work, packed, first, last, first)

    def exchange(
        self,
        kx: int,
        fields: range,
        forward: bool,
        chunk: int = 0,
        chunks: int = 1,
        whole: bool | None = None,
    ) -> SlabExchange:
        """Return the exchange of some fields of a range of kx, made once. Collective.

        It goes from planes to columns if `forward`, else back, and is number `chunk` of `chunks`
        chunks of planes. It sends `whole` arrays, or blocks that passes have stored: by default the
        passes of this engine, which may need tables.
        """
        has_tables = whole is None and self._store is not None
        whole = self._takes_whole if whole is None else whole
        key = kx, fields, forward, chunk, chunks, whole, has_tables
        if key in self._exchanges:
            return self._exchanges[key]
        geometry = self.geometry.ranges[kx].geometry
        if (kx, chunks) not in self._plans:
            self._plans[kx, chunks] = geometry.plan.split(chunks)
        plan, all_blocks = self._plans[kx, chunks][chunk], geometry.plan
        if not forward:
            plan, all_blocks = plan.reversed(), all_blocks.reversed()
        if self.beside:
            # Whole arrays, with fields side by side.
            plan = plan.of_fields(len(fields))
            leaving, arriving = (memory.reshape(-1) for memory in self._memory)
            source, target = leaving[: plan.send_size], arriving[: plan.receive_size]
            pairs = [(source, target)]
        else:
            part = slice(fields.start, fields.stop)
            source, target = self.planes[kx][part], self.columns[kx][part]
            target = target.reshape(len(target), -1)
            source, target = (source, target) if forward else (target, source)
            pairs = list(zip(source, target, strict=True))
        targets = (
            packed_exchange(self._transport, plan, pairs)
            if whole or self.beside
            else pack_targets(self._transport, plan, pairs, self._store is not False)
        )
        self._exchanges[key] = SlabExchange(targets, source)
        if whole or self.beside or not has_tables:
            return self._exchanges[key]
        # Tables are made for whole blocks; a chunk has a part of each.
        starts = {block.peer: block.offset for block in all_blocks.sends}
        blocks, origin = [], geometry.physical_box.start[0] if forward else 0
        for number, places in enumerate(targets.blocks):
            for block in plan.sends:
                first, target = block.box.start[0] - origin, places[block.peer]
                blocks.append((first, target.reshape(*block.box.shape[:2], -1)))
                if number == 0:
                    distance = address_of(target) - address_of(source)
                    shift = block.offset - starts[block.peer]
                    starts[block.peer] = distance // target.itemsize - shift
        rows = geometry.plane_rows(None, starts) if forward else geometry.column_blocks(starts)
        tables = RowTables(self.devices[0], rows)
        self._exchanges[key] = SlabExchange(targets, source, tables, blocks)
        return self._exchanges[key]


def chunks_of_step(geometry: PlaneGeometry, dtype: np.dtype, device: Device) -> int:
    """Return the number of chunks of planes in which a device sends the fields of a step."""
    size = geometry.block_size * dtype.itemsize
    sent = size * (geometry.ranges[0].geometry.ranks - 1)
    for least, least_sent, chunks in CHUNKS_FROM[device.processor]:
        if size >= least and sent >= least_sent:
            return chunks
    return 1


class PlaneTile:
    """A tile of a pass over planes: the planes of this rank from `low` to `high`, in place.

    In the packed fields, one array for each range of kx, they begin at plane `first`; `packed` has
    for each range a function that returns the first fields of the array, given the number of
    received or sent fields. The methods record operations in the graph `work`.
    """

    def __init__(
        self,
        transforms: PlanePass | PencilPass,
        work: StepGraph,
        packed: Sequence[Callable[[int, bool], Array]],
        low: int,
        high: int,
        first: int,
    ) -> None:
        self._transforms, self.work, self.device = transforms, work, work.device
        self._packed, self.low, self.high, self._first = packed, low, high, first
        self._range = first, first + high - low

    def record(
        self, task: PlaneTask, exchanges: Sequence[SlabExchange], closing: StepGraph | None
    ) -> None:
        """Record a task.

        The last tile of a chunk gets the graph `closing`: there it closes the exchange of each
        range of kx, as soon as it has written the planes of that range.
        """
        transforms, product = self._transforms, task.product
        if product is not None and self.low > self._first:
            rows = (self.low - self._first) * transforms.geometry.plane_points[0]
            task = replace(task, product=replace(product, maxima=product.maxima[rows:]))
        sources = [
            transforms.packed(number, packed(task.inputs, False))
            for number, packed in enumerate(self._packed if task.arrives else ())
        ]
        targets = []
        for number, exchange in enumerate(exchanges):
            planes, close = self._packed[number](task.outputs, True), None
            if closing is not None:
                close = partial(exchange.targets.record_close, closing, "transpose")
            targets.append(
                transforms.packed(number, planes, close)
                if exchange.tables is None
                else PackedPlanes(planes, exchange.tables, exchange.places, close)
            )
        transforms.record(self.work, task, sources, targets, *self._range)


class ColumnTile:
    """A tile of a pass over columns: the ky of this rank from `low` to `high`, in place.

    `columns` has the shape (fields, nz, ky of the tile, row). It has the modes from physical space,
    and `leaving`, often the same array, the modes to go there. The tile has the `kx` of this rank.
    The methods record operations in the graph `work`.
    """

    signs = NO_SIGNS

    def __init__(
        self,
        transforms: ColumnPass,
        work: StepGraph,
        columns: Array,
        leaving: Array,
        low: int,
        high: int,
        kx: slice = slice(None),
    ) -> None:
        self._transforms, self.work, self.device = transforms, work, work.device
        self.columns, self.leaving = columns, leaving
        self.low, self.high, self._kx = low, high, kx

    def part(self, array: Array) -> Array:
        """Return the tile's part of a spectral array: (fields, kz, ky of the tile, row)."""
        return array[:, :, self.low : self.high, self._kx]

    def kx_among(self, kept: int) -> tuple[int, int]:
        """Return the tile's first kx among the `kept` ones of this rank, and their number."""
        first, last, _ = self._kx.indices(kept)
        return first, last - first

    def record_forward(self, fields: int, target: Any = None) -> None:
        """Record the end of the forward transform of `fields` fields.

        Their modes stay in the columns, or are stored in the spectral array `target`.
        """
        part = None if target is None else self.part(target)
        arrived = self.columns[:fields]
        self._transforms.record_forward(self.work, arrived, part, self.signs.arriving)

    def record_backward(
        self, source: Array, fields: slice, exchanges: Sequence[SlabExchange], scale: float = 1.0
    ) -> None:
        """Record the start of the backward transform of a spectral field into some columns."""
        part, columns = self.part(source), self.leaving[fields]
        self.record_in([part])
        stored = None
        if exchanges[0].tables is not None:
            # One operation stores all chunks of planes, since their tables are the same.
            blocks = [block for one in exchanges for _, block in one.blocks]
            accessed = [block[:, self.low : self.high] for block in blocks]
            stored = Rows(exchanges[0].source, accessed, exchanges[0].tables, self.low)
        signs = self.signs.leaving
        self._transforms.record_backward(self.work, part, columns, stored, signs, scale)

    def record_update(self, update: ColumnUpdate) -> TileUpdate:
        """Record an update of the tile's modes, and return it."""
        done = update(self)
        self.record_in(done.reads)
        self.work.add(
            done.operation,
            reads=done.reads,
            writes=done.writes,
            label="substage",
            category="compute",
            moves=done.moves,
        )
        return done

    # Tiles in place need no copies between host and device.

    def record_in(self, arrays: Sequence[Array]) -> None:
        """Record copies from the host, of the arrays that are parts of fields there."""

    def record_out(self, columns: int) -> None:
        """Record copies to the host: of the first `columns` fields, and of `TileUpdate.kept`."""


@dataclass(frozen=True)
class TileUpdate:
    """An operation that advances the modes of a tile.

    `reads` and `writes` are the arrays that it accesses: parts of fields, products and constants.
    `kept` are the written arrays that later passes read; the others can stay on the device.
    For `moves` see `StepGraph.add`.
    """

    operation: Operation
    reads: list[Array]
    writes: list[Array]
    kept: list[Array]
    moves: tuple[float, float] | None = None


@dataclass(frozen=True)
class SlabExchange:
    """An exchange of some fields of a range of kx, and of one chunk of their planes.

    Without `tables`, passes store the blocks in the working array `source`, and `targets` sends
    them from there. With `tables`, passes store every row at its place for the exchange: `tables`
    has the places, as offsets from the source, and `blocks` has the first plane and the memory of
    each field's block for each receiver.
    """

    targets: PackTargets
    source: Array
    tables: RowTables | None = None
    blocks: Sequence[tuple[int, Array]] = ()

    def places(self, low: int, high: int) -> list[Array]:
        """Return the memory for planes of this rank from `low` to `high`."""
        return [block[low - z :][: high - low] for z, block in self.blocks]
