"""Spectral fields to physical space and back: passes over columns and planes, and exchanges.

What every pseudospectral model records, for any number of fields. Around the exchanges everything
is fused: one pass over the columns finishes the forward transform in z, lets the model advance its
fields, and starts the next backward transform; one pass over the planes goes to physical space,
applies a product, and returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slipstream.decomposition import split
from slipstream.device import Device, Operation
from slipstream.exchange import Transport
from slipstream.fft import (
    ColumnPass,
    PlanePass,
    PointOperation,
    PointProduct,
    SlabGeometry,
)
from slipstream.schedule import StepGraph

# ``update(low, high)`` returns the operation on this rank's ky from `low` to `high`, and the arrays
# that it reads and writes.
ColumnUpdate = Callable[[int, int], tuple[Operation, list[Any], list[Any]]]

# Parts in which products are sent, so that the first travel while the last are computed.
_PARTS = 4


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
    columns : array, shape (fields, nz, ky of this rank, row)
        Where forward transforms leave their modes: all nz of them, unnormalised; those that the
        truncation discards are undefined.
    """

    def __init__(
        self,
        device: Device,
        geometry: SlabGeometry,
        fields: int,
        complex_dtype: Any,
        transport: Transport | None,
    ) -> None:
        self._geometry, self._transport = geometry, transport
        empty = transport.empty if transport else device.empty
        self.columns = empty((fields, *geometry.columns_shape), complex_dtype)
        self._planes = self.columns.reshape(fields, -1)
        if transport is not None:
            self._planes = empty((fields, geometry.planes_size), complex_dtype)
        for array in (self.columns, self._planes):
            device.run(device.fill(array, 0))
        self._column_pass = ColumnPass(device, geometry, fields, complex_dtype)
        self._plane_pass = PlanePass(device, geometry, fields, complex_dtype)

    def record_columns(
        self,
        graph: StepGraph,
        source: Any = None,
        update: ColumnUpdate | None = None,
        forward: int = 0,
    ) -> None:
        """Record one pass over the columns.

        Parameters
        ----------
        graph : StepGraph
            Where nodes are added.
        source : array, shape (count, kz, ky of this rank, row), optional
            Spectral fields whose backward transform is started.
        update : callable, optional
            What is done first to each range of ky.
        forward : int
            Number of fields whose forward transform is finished before that.
        """
        passes, columns = self._column_pass, self.columns
        one_rank = self._transport is None
        for low, high in passes.chunks():
            if forward:
                passes.record_forward(graph, columns[:forward], low, high)
            if update is not None:
                operation, reads, writes = update(low, high)
                graph.add(
                    operation, reads=reads, writes=writes, label="substage", category="compute",
                    lane=passes.lane(graph, low),
                )  # fmt: skip
            if source is not None and one_rank:
                passes.record_backward(graph, source, columns[: len(source)], low, high)
        if source is None or one_rank:
            return
        # Field by field, so that the first is on its way while the next is transformed.
        for field in range(len(source)):
            part = slice(field, field + 1)
            for low, high in passes.chunks():
                passes.record_backward(graph, source[part], columns[part], low, high)
            self._record_exchange(graph, [field], forward=False)

    def record_through(
        self, graph: StepGraph, product: PointProduct | None, inputs: int, outputs: int
    ) -> None:
        """Record what follows `record_columns`: to physical space, the product, and back.

        Parameters
        ----------
        graph : StepGraph
            Where nodes are added.
        product : PointProduct or None
            Applied at every point; None leaves values alone.
        inputs, outputs : int
            Number of fields that were transformed backward, and that come back.
        """
        planes, sources = self._planes[:outputs], self._planes[:inputs]
        if self._transport is None:
            self._plane_pass.record_through(graph, sources, planes, product)
            return
        for part, (first, last) in enumerate(split(self._geometry.planes, _PARTS)):
            self._plane_pass.record_through(graph, sources, planes, product, first, last)
            self._record_exchange(graph, range(len(planes)), forward=True, part=part)

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
        self._plane_pass.record_backward(graph, self._planes[: len(source)], store)

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
        self._plane_pass.record_forward(graph, self._planes[:count], load)
        self._record_exchange(graph, range(count), forward=True)
        for low, high in self._column_pass.chunks():
            self._column_pass.record_forward(graph, self.columns[:count], low, high, target)

    def product_operation(self, product: PointProduct) -> PointOperation:
        """Return a product as an operation on chunks of points."""
        return self._plane_pass.product_operation(product)

    def _record_exchange(self, graph, fields, forward: bool, part: int | None = None) -> None:
        if self._transport is None:
            return
        plan = self._geometry.plan
        plan = plan if part is None else plan.split(_PARTS)[part]
        pairs = [(self._planes[field], self.columns[field]) for field in fields]
        if not forward:
            plan, pairs = plan.reversed(), [(columns, planes) for planes, columns in pairs]
        self._transport.record(graph, plan, pairs, "transpose")
