"""Spectral fields to physical space and back: passes over columns and planes, and exchanges.

What every pseudospectral model records, for any number of fields. Around the exchanges everything
is fused: one pass over the columns finishes the forward transform in z, lets the model advance its
fields, and starts the next backward transform; one pass over the planes goes to physical space,
applies a product, and returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from slipstream.decomposition import split
from slipstream.device import Device, Operation
from slipstream.exchange import ExchangePlan, PackTargets, Transport, pack_targets
from slipstream.fft import (
    ColumnPass,
    PlanePass,
    PointOperation,
    PointProduct,
    SlabGeometry,
)
from slipstream.schedule import StepGraph


@dataclass(frozen=True)
class ColumnChunk:
    """Some ky of this rank's columns: what an update of modes works on.

    Attributes
    ----------
    device : Device
        Where.
    low, high : int
        Which ky, among those of this rank.
    products : array, shape (fields, nz, ky of the chunk, row)
        Modes of what came back from physical space.
    part : callable
        Returns what the chunk has of a spectral field, shape (fields, kz, ky of this rank, row).
    """

    device: Device
    low: int
    high: int
    products: Any
    part: Callable[[Any], Any]


@dataclass(frozen=True)
class ChunkUpdate:
    """What is done to a chunk.

    Attributes
    ----------
    operation : callable
        To be recorded.
    reads, writes : list of arrays
        What it accesses: parts, products, and what is constant.
    kept : list of arrays
        What of that later passes read: the rest need not leave a device.
    """

    operation: Operation
    reads: list[Any]
    writes: list[Any]
    kept: list[Any]


ColumnUpdate = Callable[[ColumnChunk], ChunkUpdate]
# Products are computed on the device where the points are.
ProductOf = Callable[[Device], PointProduct]

# Parts in which products are sent, so that the first travel while the last are computed.
_PARTS = 4


class Passes(Protocol):
    """What takes fields through a step, wherever they are.

    Attributes
    ----------
    devices : list of Device
        Where passes run.
    goes_ahead : bool
        Whether the last pass of a step had better begin the next step, too.
    """

    devices: list[Device]
    goes_ahead: bool

    def record_columns(
        self,
        graph: StepGraph,
        source: Any = None,
        updates: Sequence[ColumnUpdate] = (),
        forward: int = 0,
    ) -> None:
        """Record one pass over the columns, see `FieldTransforms`."""

    def record_through(
        self, graph: StepGraph, product_of: ProductOf | None, inputs: int, outputs: int
    ) -> None:
        """Record a pass over the planes, see `FieldTransforms`."""


class FieldTransforms:
    """Working arrays and passes for the transforms of several real fields.

    Parameters
    ----------
    device : Device
        Where all arrays are.
    geometry : SlabGeometry
        This rank's part of physical and of spectral space.
    fields : int
        Largest number of fields that are transformed together.
    complex_dtype : dtype
        complex64 or complex128.
    transport : Transport or None
        How ranks exchange; None on one rank.

    Attributes
    ----------
    devices : list of Device
        Where passes run: one device, where the arrays are.
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
        complex_dtype: Any,
        transport: Transport | None,
    ) -> None:
        self.geometry, self.transport, self.devices = geometry, transport, [device]
        empty = transport.empty if transport else device.empty
        self.columns = empty((fields, *geometry.columns_shape), complex_dtype)
        self.planes = self.columns.reshape(fields, -1)
        if transport is not None:
            self.planes = empty((fields, geometry.planes_size), complex_dtype)
        for array in (self.columns, self.planes):
            device.run(device.fill(array, 0))
        self._column_pass = ColumnPass(device, geometry, fields, complex_dtype)
        self._plane_pass = PlanePass(device, geometry, fields, complex_dtype)

    def record_columns(
        self,
        graph: StepGraph,
        source: Any = None,
        updates: Sequence[ColumnUpdate] = (),
        forward: int = 0,
    ) -> None:
        """Record one pass over the columns.

        Parameters
        ----------
        graph : StepGraph
            Where nodes are added.
        source : array, shape (count, kz, ky of this rank, row), optional
            Spectral fields whose backward transform is started.
        updates : sequence of callables
            What is done first to each range of ky, one after the other.
        forward : int
            Number of fields whose forward transform is finished before that.
        """
        passes, columns = self._column_pass, self.columns
        one_rank = self.transport is None
        for low, high in passes.batches():
            if forward:
                passes.record_forward(graph, columns[:forward], low, high)
            for update in updates:
                done = update(self._chunk(low, high))
                graph.add(
                    done.operation,
                    reads=done.reads,
                    writes=done.writes,
                    label="substage",
                    category="compute",
                    lane=passes.lane(graph, low),
                )
            if source is not None and one_rank:
                passes.record_backward(graph, source, columns[: len(source)], low, high)
        if source is None or one_rank:
            return
        # Field by field, so that the first is on its way while the next is transformed.
        for field in range(len(source)):
            part = slice(field, field + 1)
            for low, high in passes.batches():
                passes.record_backward(graph, source[part], columns[part], low, high)
            self._record_exchange(graph, [field], False)

    def _chunk(self, low: int, high: int) -> ColumnChunk:
        def part(array: Any) -> Any:
            return array[:, :, low:high]

        return ColumnChunk(self.devices[0], low, high, part(self.columns), part)

    def record_through(
        self, graph: StepGraph, product_of: ProductOf | None, inputs: int, outputs: int
    ) -> None:
        """Record what follows `record_columns`: to physical space, the product, and back.

        Parameters
        ----------
        graph : StepGraph
            Where nodes are added.
        product_of : callable or None
            Returns what is applied at every point on a device; None leaves values alone.
        inputs, outputs : int
            Number of fields that were transformed backward, and that come back.
        """
        product = product_of(self.devices[0]) if product_of else None
        planes, sources = self.planes[:outputs], self.planes[:inputs]
        if self.transport is None:
            self._plane_pass.record_through(graph, sources, planes, product)
            return
        for part, (first, last) in enumerate(split(self.geometry.planes, _PARTS)):
            self._plane_pass.record_through(graph, sources, planes, product, first, last)
            self._record_exchange(graph, range(len(planes)), True, part, _PARTS)

    def record_backward(self, graph: StepGraph, source: Any, store: PointOperation) -> None:
        """Record spectral fields -> physical space.

        Parameters
        ----------
        graph : StepGraph
            Where nodes are added.
        source : array, shape (count, kz, ky of this rank, row)
            Kept.
        store : callable
            Called with each chunk of points, see `PlanePass.record_backward`.
        """
        self.record_columns(graph, source)
        self._plane_pass.record_backward(graph, self.planes[: len(source)], store)

    def record_forward(self, graph: StepGraph, load: PointOperation, target: Any) -> None:
        """Record physical space -> spectral fields, unnormalised.

        Parameters
        ----------
        graph : StepGraph
            Where nodes are added.
        load : callable
            Called with each chunk of points, see `PlanePass.record_forward`.
        target : array, shape (count, kz, ky of this rank, row)
            Result.
        """
        count = len(target)
        self._plane_pass.record_forward(graph, self.planes[:count], load)
        self._record_exchange(graph, range(count), True)
        for low, high in self._column_pass.batches():
            self._column_pass.record_forward(graph, self.columns[:count], low, high, target)

    def pack_targets(
        self, fields: Iterable[int], forward: bool, part: int = 0, parts: int = 1
    ) -> PackTargets:
        """Return where what is exchanged belongs; parameters as of `exchange`. Collective."""
        return pack_targets(self.transport, *self.exchange(fields, forward, part, parts))

    def exchange(
        self, fields: Iterable[int], forward: bool, part: int = 0, parts: int = 1
    ) -> tuple[ExchangePlan, list[tuple[Any, Any]]]:
        """Return the plan, and the arrays, of an exchange between planes and columns.

        Parameters
        ----------
        fields : iterable of int
            Which fields.
        forward : bool
            From planes to columns, or back.
        part, parts : int
            Which of so many ranges of planes.
        """
        plan = self.geometry.plan.split(parts)[part] if parts > 1 else self.geometry.plan
        pairs = [(self.planes[field], self.columns[field]) for field in fields]
        if forward:
            return plan, pairs
        return plan.reversed(), [(columns, planes) for planes, columns in pairs]

    def _record_exchange(self, graph: StepGraph, *arguments: Any) -> None:
        """Record an exchange, if there is anybody to exchange with; arguments as of `exchange`."""
        if self.transport is not None:
            self.transport.record(graph, *self.exchange(*arguments), "transpose")
