"""Transforms in x and y, plane by plane, while the data are in cache.

A pass takes planes in chunks: it gathers a chunk of the packed planes into a small working array,
transforms it, and lets physical space exist for that chunk only. `PlanePass.record_through` goes
to physical space, applies a pointwise product and comes back: the real fields of a pseudospectral
code never travel to memory, let alone occupy it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.device import Device, Operation, RowLaunch
from slipstream.fft.modes import Modes
from slipstream.fft.rows import RowMover, RowTables, real_name
from slipstream.fft.slab import SlabGeometry
from slipstream.schedule import StepGraph

# ``function(points, plane)`` returns the operation on a chunk ``points[field, z, y, x]`` whose
# first plane is local plane `plane`, and the other arrays that the operation accesses.
PointOperation = Callable[[Any, int], tuple[Operation, list[Any]]]

# Working set of one chunk in bytes: what the caches of a few cores hold, or what keeps a GPU busy.
CHUNK_BYTES = {"cpu": 3 << 20, "cuda": 1 << 31}


@dataclass(frozen=True)
class PointProduct:
    """A function of the fields at each point.

    Attributes
    ----------
    header : str
        Kernel header that defines ``pointwise``; see `physical_pass.hpp`.
    inputs, outputs : int
        Number of fields before and after.
    parameters : array of float64
        What the function takes besides the fields, in device memory.
    maxima : array of int64
        Receives the maximum of the function's rate, as ordered bits, in parts: one entry per row
        of points is enough. Must be zero before.
    """

    header: str
    inputs: int
    outputs: int
    parameters: Any
    maxima: Any

    def constants(self) -> dict[str, Any]:
        """Return the compile-time constants."""
        header = f'"{self.header}"'
        return {"INPUTS": self.inputs, "OUTPUTS": self.outputs, "PRODUCT_HEADER": header}


class PlanePass:
    """Chunked transforms in x and y between packed planes and physical space.

    Parameters
    ----------
    device : Device
        Where all arrays live.
    geometry : SlabGeometry
        Shapes and tables.
    fields : int
        Largest number of fields that one call handles.
    real : bool
        Whether physical fields are real.
    complex_dtype : dtype
        complex64 or complex128.
    """

    def __init__(
        self, device: Device, geometry: SlabGeometry, fields: int, real: bool, complex_dtype: Any
    ) -> None:
        self._device, self._geometry = device, geometry
        self._real_dtype = np.zeros(0, complex_dtype).real.dtype
        self._tables = RowTables(device, geometry.plane_rows)
        _, ny, nx = geometry.shape
        width = nx // 2 + 1 if real else nx
        x = geometry.modes[2]
        self._columns = x if x.high else Modes(width, x.low, 0)
        # Columns that the transform in y has to touch; high ones are spread to the row's end.
        self._active = nx if x.high else x.count
        self._mover = RowMover(device, complex_dtype, self._columns)
        self.chunk = chunk_planes(geometry, fields, real, complex_dtype, device.kind)
        shape = (fields, self.chunk, ny, width)
        self._memory = device.empty(
            (math.prod(shape[:3]) * max(width, geometry.row),), complex_dtype
        )
        self._modes = self._memory[: math.prod(shape)].reshape(shape)
        points = (fields, self.chunk, ny, nx)
        self._points = device.empty(points, self._real_dtype) if real else self._modes

    def chunks(self, first: int = 0, last: int | None = None) -> list[tuple[int, int]]:
        """Return the ranges of local planes from `first` to `last`, chunk by chunk."""
        last = self._geometry.planes if last is None else last
        return [(z, min(z + self.chunk, last)) for z in range(first, last, self.chunk)]

    def points(self, fields: int, planes: int) -> Any:
        """Return the chunk of physical space, ``[field, z, y, x]``, that graphs work in."""
        return self._points[:fields, :planes]

    def record_backward(self, graph: StepGraph, planes: Any, store: PointOperation) -> None:
        """Record packed planes -> physical space.

        Parameters
        ----------
        graph : StepGraph
            Where nodes are added.
        planes : array, shape (fields, planes_size)
            Packed modes; kept.
        store : callable
            Called with each chunk of points (unnormalised), which it may overwrite.
        """
        for low, high in self.chunks():
            self._to_points(graph, planes, low, high)
            self._at_points(graph, store, len(planes), low, high, "store", "pack")

    def record_forward(self, graph: StepGraph, planes: Any, load: PointOperation) -> None:
        """Record physical space -> packed planes; `load` fills each chunk of points."""
        for low, high in self.chunks():
            self._at_points(graph, load, len(planes), low, high, "load", "pack")
            self._from_points(graph, planes, low, high)

    def record_through(
        self,
        graph: StepGraph,
        source: Any,
        target: Any,
        product: PointProduct | None,
        first: int = 0,
        last: int | None = None,
    ) -> None:
        """Record packed planes -> physical space -> product -> packed planes.

        Parameters
        ----------
        graph : StepGraph
            Where nodes are added.
        source, target : array, shape (fields, planes_size)
            Packed modes before and after; may be parts of the same array.
        product : PointProduct or None
            Applied at every point; None leaves the values alone.
        first, last : int
            Range of local planes.
        """
        for low, high in self.chunks(first, last):
            self._to_points(graph, source, low, high)
            if product is not None:
                function = self.product_operation(product)
                self._at_points(graph, function, product.outputs, low, high, "product", "compute")
            self._from_points(graph, target, low, high)

    def product_operation(self, product: PointProduct) -> PointOperation:
        """Return the product as an operation on chunks of points."""
        constants = product.constants() | {"REAL": real_name(self._real_dtype)}
        kernel = self._device.kernel("pointwise.hpp", "apply_pointwise", **constants)

        def function(points: Any, plane: int) -> tuple[Operation, list[Any]]:
            _, planes, ny, nx = points.shape
            maxima = product.maxima[plane * ny : (plane + planes) * ny]
            operation = kernel.bind(
                RowLaunch(planes * ny, nx, reduces=True), points, maxima, product.parameters,
                planes * ny, nx, self._points.strides[0] // self._points.itemsize,
            )  # fmt: skip
            return operation, [maxima]

        return function

    def _at_points(self, graph, function, fields, low, high, label, category) -> None:
        operation, accessed = function(self.points(fields, high - low), low)
        everything = [self._points[:, : high - low], *accessed]
        graph.add(operation, writes=everything, label=label, category=category)

    def _to_points(self, graph: StepGraph, planes: Any, low: int, high: int) -> None:
        fields, count = len(planes), high - low
        modes, points = self._modes[:fields, :count], self.points(fields, count)
        self._load_modes(graph, planes, modes, low, high)
        self._add(graph, self._fft(modes, points, 3, False), [modes], [points], "fft x", "fft")

    def _from_points(self, graph: StepGraph, planes: Any, low: int, high: int) -> None:
        fields, count = len(planes), high - low
        modes, points = self._modes[:fields, :count], self.points(fields, count)
        self._add(graph, self._fft(points, modes, 3, True), [points], [modes], "fft x", "fft")
        self._store_modes(graph, planes, modes, low, high)

    def _load_modes(self, graph, planes, modes, low: int, high: int) -> None:
        """Record packed planes -> rows of x modes for every y, those not kept being zero."""
        gather = self._mover.gather(planes, modes, self._tables, low)
        self._add(graph, gather, self._packed(planes, low, high), [modes], "gather modes", "pack")
        active = modes[..., : self._active]
        self._add(graph, self._fft(active, active, 2, False), [active], [active], "fft y", "fft")

    def _store_modes(self, graph, planes, modes, low: int, high: int) -> None:
        """Record rows of x modes for every y -> packed planes."""
        active = modes[..., : self._active]
        self._add(graph, self._fft(active, active, 2, True), [active], [active], "fft y", "fft")
        scatter = self._mover.scatter(modes, planes, self._tables, low)
        self._add(graph, scatter, [modes], self._packed(planes, low, high), "scatter modes", "pack")

    def _packed(self, planes: Any, low: int, high: int) -> list[Any]:
        """Return the views of the packed array that hold local planes `low` to `high`."""
        views = []
        for block in self._geometry.plan.sends:
            pitch = block.count // block.box.shape[0]
            start = block.offset
            views.append(planes[:, start + low * pitch : start + high * pitch])
        return views

    def _fft(self, source: Any, target: Any, axis: int, forward: bool) -> Operation:
        return self._device.fft(source, target, axis, forward)

    @staticmethod
    def _add(graph, operation, reads, writes, label, category) -> None:
        graph.add(operation, reads=reads, writes=writes, label=label, category=category)


def plane_bytes(geometry: SlabGeometry, fields: int, real: bool, complex_dtype: Any) -> int:
    """Return the bytes of the working arrays per plane of a chunk."""
    _, ny, nx = geometry.shape
    width = nx // 2 + 1 if real else nx
    elements = max(width, geometry.row) + (width if real else 0)
    return fields * ny * elements * np.dtype(complex_dtype).itemsize


def chunk_planes(
    geometry: SlabGeometry, fields: int, real: bool, complex_dtype: Any, kind: str
) -> int:
    """Return how many planes a chunk has on a device of this kind."""
    planes = CHUNK_BYTES[kind] // plane_bytes(geometry, fields, real, complex_dtype)
    # An even number: rows that are transformed in pairs then stay together in every chunking.
    return max(1, min(planes & ~1 or 1, geometry.planes))
