"""Spectral fields to physical space and back: passes over columns and planes, and exchanges.

What every pseudospectral model records, for any number of fields. Around the exchanges everything
is fused: one pass over the columns finishes the forward transform in z, lets the model advance its
fields, and starts the next backward transform; one pass over the planes goes to physical space,
applies a product, and returns.

A pass goes tile by tile. Where fields are on the device, its tiles are in place, with nothing to
load and store (`FieldTransforms`); fields on the host stream through devices (`out_of_core_step`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from numpy.typing import DTypeLike

from slipstream.array_types import Array
from slipstream.decomposition import split
from slipstream.device import Device, Operation
from slipstream.exchange import (
    ExchangePlan,
    PackTargets,
    Transport,
    pack_targets,
    packed_exchange,
)
from slipstream.fft import (
    ColumnPass,
    PlanePass,
    PointOperation,
    PointProduct,
    SlabGeometry,
)
from slipstream.schedule import StepGraph

# Chunks of planes in which products are sent: the first travel while the last are computed.
PLANE_CHUNKS = 4


@dataclass(frozen=True)
class TileUpdate:
    """An operation that advances modes of a tile, to be recorded.

    It accesses `reads` and `writes`: parts of fields, products, and what is constant. Later passes
    read `kept`: the rest of what it writes need not leave a device. It `moves` so many bytes, see
    `StepGraph.add`.
    """

    operation: Operation
    reads: list[Array]
    writes: list[Array]
    kept: list[Array]
    moves: tuple[float, float] | None = None


class ColumnTile:
    """Columns of some ky, in place: what transforms in z and updates of modes work on.

    `low` to `high` are ky of this rank; `columns`, shape (fields, nz, ky of the tile, row), have
    the modes of what comes back from physical space, and then of what goes there. All that is done
    to them is recorded in `work`.
    """

    def __init__(
        self, transforms: ColumnPass, work: StepGraph, columns: Array, low: int, high: int
    ) -> None:
        self._transforms, self.work, self.device = transforms, work, work.device
        self.columns, self.low, self.high = columns, low, high

    def part(self, array: Array) -> Array:
        """Return what the tile has of a spectral field, shape (fields, kz, ky of the tile, row)."""
        return array[:, :, self.low : self.high]

    def record_forward(self, fields: int) -> None:
        """Record the end of the forward transform of so many fields, which stay in the columns."""
        columns = self.columns[:fields]
        self._transforms.record_forward(self.work, columns, 0, self.high - self.low)

    def record_backward(self, source: Array, fields: slice) -> None:
        """Record the start of the backward transform of a spectral field into some columns."""
        part, columns = self.part(source), self.columns[fields]
        self.record_in([part])
        self._transforms.record_backward(self.work, part, columns, 0, self.high - self.low)

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

    # In place, nothing comes and goes.

    def record_columns_in(self, fields: int) -> None:
        """Record that columns come from the host."""

    def record_columns_out(self, fields: int) -> None:
        """Record that columns go back to the host."""

    def record_blocks_out(self, fields: slice, targets: PackTargets) -> None:
        """Record that columns go where they are exchanged."""

    def record_in(self, arrays: Sequence[Array]) -> None:
        """Record that those of some arrays come from the host which are parts of fields there."""

    def record_kept_out(self) -> None:
        """Record that what updates have written, and later passes read, goes to the host."""


ColumnUpdate = Callable[[ColumnTile], TileUpdate]
# Products are computed on the device where the points are.
ProductOf = Callable[[Device], PointProduct]


class PlaneTile:
    """Some planes, in place: those from `first` to `last` of packed fields.

    All that is done to them is recorded in `work`.
    """

    def __init__(
        self, transforms: PlanePass, work: StepGraph, packed: Array, first: int, last: int
    ) -> None:
        self._transforms, self.work, self.device = transforms, work, work.device
        self.packed, self._range = packed, (first, last)

    def record_through(self, product: PointProduct | None, inputs: int, outputs: int) -> None:
        """Record the way to physical space, the product there, and the way back."""
        source, target = self.packed[:inputs], self.packed[:outputs]
        self._transforms.record_through(self.work, source, target, product, *self._range)

    # In place, nothing comes and goes.

    def record_in(self, fields: int) -> None:
        """Record that planes come from the host."""

    def record_blocks_out(self, fields: int, targets: PackTargets) -> None:
        """Record that planes go where they are exchanged."""


class Passes(Protocol):
    """Where fields are, and by which tiles passes take them through a step."""

    geometry: SlabGeometry
    # Where passes run.
    devices: list[Device]
    # Whether the last pass of a step had better begin the next step, too.
    goes_ahead: bool
    # Whether fields go to physical space one by one, so that the first travels while others are
    # transformed.
    sends_field_by_field: bool

    @property
    def plane_chunks(self) -> int:
        """In how many chunks of planes products come back."""

    @property
    def updating(self) -> Passes:
        """The passes that update modes: these, or those of the host."""

    def column_tiles(self, graph: StepGraph) -> Iterator[ColumnTile]:
        """Yield the tiles of a pass over the columns, each to be recorded at once."""

    def plane_tiles(self, graph: StepGraph, first: int, last: int) -> Iterator[PlaneTile]:
        """Yield the tiles of a pass over planes of this rank, each to be recorded at once."""

    def exchange(
        self, fields: Iterable[int], forward: bool, chunk: int = 0, chunks: int = 1
    ) -> PackTargets:
        """Return the exchange of columns and planes; see `FieldTransforms.arrays`. Collective."""


def record_columns(
    graph: StepGraph,
    passes: Passes,
    source: Array = None,
    updates: Sequence[ColumnUpdate] = (),
    forward: int = 0,
) -> None:
    """Record one pass over the columns. Collective.

    The forward transform of so many fields is finished; modes are updated; and the backward
    transform of spectral fields `source`, shape (count, kz, ky of this rank, row), is started.
    """
    if updates and passes.updating is not passes:
        if forward:
            record_columns(graph, passes, forward=forward)
        record_columns(graph, passes.updating, updates=updates)
        updates, forward = (), 0
    if source is not None and not passes.sends_field_by_field:
        _record_column_tiles(graph, passes, forward, updates, source)
        return
    if forward or updates:
        _record_column_tiles(graph, passes, forward, updates)
    for field in range(0 if source is None else len(source)):
        _record_column_tiles(graph, passes, source=source[field : field + 1], first=field)


def _record_column_tiles(
    graph: StepGraph,
    passes: Passes,
    forward: int = 0,
    updates: Sequence[ColumnUpdate] = (),
    source: Array = None,
    first: int = 0,
) -> None:
    """Record a pass that sends all of its source together; it goes to columns from `first` on."""
    fields = slice(first, first if source is None else first + len(source))
    targets = None
    if source is not None:
        targets = passes.exchange(range(fields.start, fields.stop), False)
        targets.record_open(graph, "transpose")
    for tile in passes.column_tiles(graph):
        if forward:
            tile.record_columns_in(forward)
            tile.record_forward(forward)
        for update in updates:
            tile.record_update(update)
        if targets is not None:
            tile.record_backward(source, fields)
            tile.record_blocks_out(fields, targets)
        elif not updates:
            tile.record_columns_out(forward)
        tile.record_kept_out()
    if targets is not None:
        targets.record_close(graph, "transpose")


def record_through(
    graph: StepGraph, passes: Passes, product_of: ProductOf | None, inputs: int, outputs: int
) -> None:
    """Record what follows `record_columns`: to physical space, the product, and back. Collective.

    So many fields go there, and come back; without a product, values are left alone.
    """
    chunks = passes.plane_chunks
    for chunk, (first, last) in enumerate(split(passes.geometry.planes, chunks)):
        targets = passes.exchange(range(outputs), True, chunk, chunks)
        targets.record_open(graph, "transpose")
        for tile in passes.plane_tiles(graph, first, last):
            tile.record_in(inputs)
            tile.record_through(product_of(tile.device) if product_of else None, inputs, outputs)
            tile.record_blocks_out(outputs, targets)
        targets.record_close(graph, "transpose")


class FieldTransforms:
    """Working arrays for transforms of several real fields, and the passes over them in place.

    At most `fields` fields are transformed together.

    Attributes
    ----------
    columns : array, shape (fields, nz, ky of this rank, row)
        Where forward transforms leave their modes: all nz of them, unnormalised; those that the
        truncation discards are undefined.
    planes : array, shape (fields, planes_size)
        Packed planes; on one rank in the memory of the columns.
    """

    goes_ahead = False

    def __init__(
        self,
        device: Device,
        geometry: SlabGeometry,
        fields: int,
        complex_dtype: DTypeLike,
        transport: Transport | None,
    ) -> None:
        self.geometry, self.devices, self._transport = geometry, [device], transport
        self.sends_field_by_field = transport is not None
        self.plane_chunks = PLANE_CHUNKS if transport else 1
        self._plans: dict[int, list[ExchangePlan]] = {}
        empty = transport.empty if transport else device.empty
        self.columns = empty((fields, *geometry.columns_shape), complex_dtype)
        self.planes = self.columns.reshape(fields, -1)
        if transport is not None:
            self.planes = empty((fields, geometry.planes_size), complex_dtype)
        for array in (self.columns, self.planes):
            device.run(device.fill(array, 0))
        self._column_pass = ColumnPass(device, geometry, fields, complex_dtype)
        self._plane_pass = PlanePass(device, geometry, fields, complex_dtype)

    @property
    def updating(self) -> Passes:
        return self

    def column_tiles(self, graph: StepGraph) -> Iterator[ColumnTile]:
        """Yield batches of columns, each in the lane that works on it."""
        device, passes = self.devices[0], self._column_pass
        for number, (low, high) in enumerate(passes.batches()):
            work = graph.on(device, graph.lane_of_batch(number, device)[1])
            yield ColumnTile(passes, work, self.columns[:, :, low:high], low, high)

    def plane_tiles(self, graph: StepGraph, first: int, last: int) -> Iterator[PlaneTile]:
        """Yield these planes as one tile, whose batches are dealt out to lanes."""
        yield PlaneTile(self._plane_pass, graph.on(self.devices[0]), self.planes, first, last)

    def exchange(
        self, fields: Iterable[int], forward: bool, chunk: int = 0, chunks: int = 1
    ) -> PackTargets:
        """Return the exchange of arrays that are whole; parameters as of `arrays`. Collective."""
        arrays = self.arrays(fields, forward, chunk, chunks)
        return packed_exchange(self._transport, *arrays)

    def pack_targets(
        self, fields: Iterable[int], forward: bool, chunk: int = 0, chunks: int = 1
    ) -> PackTargets:
        """Return where to write what is exchanged; parameters as of `arrays`. Collective."""
        return pack_targets(self._transport, *self.arrays(fields, forward, chunk, chunks))

    def arrays(
        self, fields: Iterable[int], forward: bool, chunk: int = 0, chunks: int = 1
    ) -> tuple[ExchangePlan, list[tuple[Array, Array]]]:
        """Return the plan and the arrays of an exchange of some fields.

        It goes from planes to columns if `forward`, else back, and may be one chunk of planes of
        so many.
        """
        if chunks not in self._plans:
            self._plans[chunks] = self.geometry.plan.split(chunks)
        plan = self._plans[chunks][chunk]
        pairs = [(self.planes[field], self.columns[field]) for field in fields]
        if forward:
            return plan, pairs
        return plan.reversed(), [(columns, planes) for planes, columns in pairs]

    def record_backward(self, graph: StepGraph, source: Array, store: PointOperation) -> None:
        """Record spectral fields -> physical space.

        Spectral fields have shape (count, kz, ky of this rank, row), and are kept; for `store` see
        `PlanePass.record_backward`.
        """
        record_columns(graph, self, source)
        planes = self._plane_pass.packed(0, self.planes[: len(source)])
        self._plane_pass.record_backward(graph, [planes], store)

    def record_forward(self, graph: StepGraph, load: PointOperation, target: Array) -> None:
        """Record physical space -> spectral fields, unnormalised; see `record_backward`."""
        count = len(target)
        planes = self._plane_pass.packed(0, self.planes[:count])
        self._plane_pass.record_forward(graph, [planes], load)
        self.exchange(range(count), True).record_close(graph, "transpose")
        for low, high in self._column_pass.batches():
            self._column_pass.record_forward(graph, self.columns[:count], low, high, target)
