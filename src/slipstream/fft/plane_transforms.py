"""Transforms in x and y, plane by plane, while the data are in cache.

A pass takes planes in batches: it gathers a batch of the packed planes into a small working array,
transforms it, and lets physical space exist for that batch only. `PlanePass.record_through` goes
to physical space, applies a pointwise product and comes back: the real fields of a pseudospectral
code never travel to memory, let alone occupy it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from slipstream.array_types import Array
from slipstream.device import (
    Device,
    Kernel,
    Operation,
    RowLaunch,
    Scratch,
    address_of,
    gpu_fft_launch,
)
from slipstream.fft.batch_size import balanced_batch
from slipstream.fft.line_transforms import LineTransform
from slipstream.fft.pack_unpack import RowTables, real_name
from slipstream.fft.slab_layout import SlabGeometry
from slipstream.schedule import StepGraph

# ``function(points, plane)`` returns the operation on a batch ``points[field, z, y, x]`` whose
# first plane is local plane `plane`, and the other arrays that the operation accesses.
PointOperation = Callable[[Array, int], tuple[Operation, list[Array]]]

# Working set of one batch in bytes: what a core's caches hold, or what keeps a GPU busy.
BATCH_BYTES = {"cpu": 3 << 19, "gpu": 1 << 31}


@dataclass(frozen=True)
class PointProduct:
    """A function of the fields at each point.

    `header` defines ``pointwise``, see `fused_product.hpp`; `parameters` (float64, on the device)
    are what it takes besides the fields. `maxima` (int64, zero before) receives the maximum of the
    function's rate, as ordered bits, in parts: one entry per row of points is enough.
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


# x, the product and x again: how to launch it, the kernel, and the product.
_FusedKernel: TypeAlias = tuple[gpu_fft_launch.TiledKernel, Kernel, PointProduct]


class PlanePass:
    """Transforms in x and y, batch by batch, between packed planes and physical space.

    One call handles at most so many (real) fields; packed arrays hold `planes` planes, by default
    all of this rank.
    """

    def __init__(
        self,
        device: Device,
        geometry: SlabGeometry,
        fields: int,
        complex_dtype: Any,
        planes: int | None = None,
        scratch: Scratch | None = None,
    ) -> None:
        self._device, self._geometry, self._scratch = device, geometry, scratch
        self._held = geometry.planes if planes is None else planes
        self._blocks = geometry.packed_blocks(self._held)
        self._real_dtype = np.zeros(0, complex_dtype).real.dtype
        self._tables = RowTables(device, geometry.plane_rows(self._held))
        # Columns that the transform in y has to touch.
        self._active = geometry.modes[2].count
        self.line = LineTransform(
            device, "y", geometry.shape[1], complex_dtype, self._active, scratch=scratch
        )
        self._roots = device.array(gpu_fft_launch.roots(geometry.shape[2], self._real_dtype))
        self.batch = batch_planes(geometry, fields, complex_dtype, device, self._held)
        self._arrays = [
            BatchArrays(device, geometry, fields, self.batch, complex_dtype)
            for _ in range(device.lanes)
        ]
        self._ffts: dict[tuple, Operation] = {}

    def _batches(
        self, graph: StepGraph, first: int = 0, last: int | None = None
    ) -> Iterator[tuple[Batch, int, int]]:
        """Yield (batch, low, high) for the batches of local planes from `first` to `last`."""
        last = self._held if last is None else last
        for number, low in enumerate(range(first, last, self.batch)):
            lane, name = graph.lane_of_batch(number)
            yield Batch(graph, name, self._arrays[lane]), low, min(low + self.batch, last)

    def record_backward(self, graph: StepGraph, planes: Array, store: PointOperation) -> None:
        """Record packed planes -> physical space.

        Planes are (fields, planes_size). `store` gets each batch of points, unnormalised, which it
        may overwrite.
        """
        for batch, low, high in self._batches(graph):
            self._to_points(batch, planes, low, high)
            batch.apply(store, len(planes), low, high, "store", "pack")

    def record_forward(self, graph: StepGraph, planes: Array, load: PointOperation) -> None:
        """Record physical space -> packed planes; `load` fills each batch of points."""
        for batch, low, high in self._batches(graph):
            batch.apply(load, len(planes), low, high, "load", "pack")
            self._from_points(batch, planes, low, high)

    def record_through(
        self,
        graph: StepGraph,
        source: Array,
        target: Array,
        product: PointProduct | None,
        first: int = 0,
        last: int | None = None,
    ) -> None:
        """Record packed planes -> physical space -> product -> packed planes.

        Source and target are (fields, planes_size), perhaps of the same array; without a product
        the values are left alone. Planes from `first` to `last` are taken, by default all.
        """
        fused = self._fused_kernel(product, len(source), len(target))
        for batch, low, high in self._batches(graph, first, last):
            if fused:
                self._record_fused(batch, fused, source, target, low, high)
                continue
            self._to_points(batch, source, low, high)
            if product is not None:
                function = self.product_operation(product)
                batch.apply(function, product.outputs, low, high, "product", "compute")
            self._from_points(batch, target, low, high)

    def plan(self, product: PointProduct | None, inputs: int, outputs: int, planes: int) -> None:
        """Plan a library's transforms in `record_through`, if any, so that scratch is known."""
        if self._fused_kernel(product, inputs, outputs):
            return
        for low in range(0, planes, self.batch):
            for fields, forward in ((inputs, False), (outputs, True)):
                work = self._arrays[0]
                number = min(self.batch, planes - low)
                modes, points = work.modes[:fields, :number], work.points[:fields, :number]
                pair = (points, modes) if forward else (modes, points)
                self._fft(*pair, forward)
                self.line.plan(modes[..., : self._active])

    def _fused_kernel(
        self, product: PointProduct | None, inputs: int, outputs: int
    ) -> _FusedKernel | None:
        """Return the kernel for x, the product and x again, if the device has one."""
        if not self.line.tiled:
            return None
        product = product or self._no_product(inputs, outputs)
        tile = gpu_fft_launch.fused_product(
            self._geometry.shape[2],
            self._real_dtype,
            product.inputs,
            product.outputs,
            product.header,
            self._device.shared_memory_limit,
        )
        if tile is None:
            return None
        return tile, self._device.kernel(tile.header, tile.name, **tile.constants), product

    def _record_fused(
        self, batch: Batch, fused: _FusedKernel, source: Array, target: Array, low: int, high: int
    ) -> None:
        rows = self._rows(batch.arrays.memory, max(len(source), len(target)), high - low)
        inward, outward = rows[: len(source)], rows[: len(target)]
        self._load(batch, source, inward, low, high)
        operation, maxima = self._bind_through(fused, rows, low)
        batch.add(operation, [inward], [outward, maxima], "fft x, product, fft x", "fft")
        self._store(batch, target, outward, low, high)

    def _bind_through(
        self, fused: _FusedKernel, rows: Array, plane: int
    ) -> tuple[Operation, Array]:
        tile, kernel, product = fused
        _, planes, ny, _ = rows.shape
        field, row = rows.strides[0] // rows.itemsize, rows.strides[2] // rows.itemsize
        maxima = product.maxima[plane * ny : (plane + planes) * ny]
        scale = self._real_dtype.type(1)
        operation = kernel.bind(
            tile.launch(planes * ny),
            rows,
            rows,
            self._roots,
            scale,
            maxima,
            product.parameters,
            planes * ny,
            self._active,
            field,
            row,
            field,
            row,
        )
        return operation, maxima

    def _rows(self, memory: Any, fields: int, planes: int) -> Any:
        """Return the working array of modes for every y, with stored rows."""
        shape = (fields, planes, self._geometry.shape[1], self._geometry.row)
        return memory[: math.prod(shape)].reshape(shape)

    def _no_product(self, inputs: int, outputs: int) -> PointProduct:
        ny = self._geometry.shape[1]
        maxima = self._device.zeros((max(1, self._geometry.planes * ny),), np.int64)
        parameters = self._device.zeros((1,), np.float64)
        return PointProduct("identity_product.hpp", inputs, outputs, parameters, maxima)

    def product_operation(self, product: PointProduct) -> PointOperation:
        """Return the product as an operation on batches of points."""
        constants = product.constants() | {"REAL": real_name(self._real_dtype)}
        kernel = self._device.kernel("pointwise.hpp", "apply_pointwise", **constants)

        def function(points: Array, plane: int) -> tuple[Operation, list[Any]]:
            _, planes, ny, nx = points.shape
            maxima = product.maxima[plane * ny : (plane + planes) * ny]
            operation = kernel.bind(
                RowLaunch(planes * ny, nx, reduces=True),
                points,
                maxima,
                product.parameters,
                planes * ny,
                nx,
                points.strides[0] // points.itemsize,
            )
            return operation, [maxima]

        return function

    def _to_points(self, batch: Batch, planes: Array, low: int, high: int) -> None:
        modes, points = batch.views(len(planes), high - low)
        self._load(batch, planes, modes, low, high)
        rest = modes[..., self._active :]
        if rest.size:
            batch.add(self._device.fill(rest, 0), [], [rest], "pad modes", "pack")
        batch.add(self._fft(modes, points, False), [modes], [modes, points], "fft x", "fft")

    def _from_points(self, batch: Batch, planes: Array, low: int, high: int) -> None:
        modes, points = batch.views(len(planes), high - low)
        batch.add(self._fft(points, modes, True), [points], [modes], "fft x", "fft")
        self._store(batch, planes, modes, low, high)

    def _load(self, batch: Batch, planes: Array, modes: Array, low: int, high: int) -> None:
        """Record packed planes -> rows of the kept x modes for every y."""
        accessed, active = self._packed(planes, low, high), modes[..., : self._active]
        self.line.record_backward(
            batch.graph, planes, active, self._tables, low, accessed, batch.lane
        )

    def _store(self, batch: Batch, planes: Array, modes: Array, low: int, high: int) -> None:
        """Record rows of the kept x modes for every y -> packed planes."""
        accessed, active = self._packed(planes, low, high), modes[..., : self._active]
        self.line.record_forward(
            batch.graph, active, planes, self._tables, low, accessed, batch.lane
        )

    def _packed(self, planes: Array, low: int, high: int) -> list[Any]:
        """Return the views of the packed array that hold local planes `low` to `high`."""
        return [planes[:, start + low * size : start + high * size] for start, size in self._blocks]

    def _fft(self, source: Array, target: Array, forward: bool) -> Operation:
        # Batches of one lane share their memory, and so their plans.
        views = [(address_of(one), one.shape, one.strides) for one in (source, target)]
        key = forward, *views
        if key not in self._ffts:
            self._ffts[key] = self._device.fft(source, target, 3, forward, self._scratch)
        return self._ffts[key]


class BatchArrays:
    """The working memory of one lane.

    `modes` is (fields, planes, ny, nx // 2 + 1), `points` (fields, planes, ny, nx); `memory` is all
    of that of `modes`, with room for rows of the geometry's length.
    """

    def __init__(
        self,
        device: Device,
        geometry: SlabGeometry,
        fields: int,
        planes: int,
        complex_dtype: Any,
    ) -> None:
        _, ny, nx = geometry.shape
        width = nx // 2 + 1
        rows = fields * planes * ny
        self.memory = device.empty((rows * max(width, geometry.row),), complex_dtype)
        self.modes = self.memory[: rows * width].reshape(fields, planes, ny, width)
        real_dtype = np.zeros(0, complex_dtype).real.dtype
        self.points = device.empty((fields, planes, ny, nx), real_dtype)


@dataclass(frozen=True)
class Batch:
    """One batch's recording: the graph, the lane that works on it and the lane's arrays."""

    graph: StepGraph
    lane: str
    arrays: BatchArrays

    def views(self, fields: int, planes: int) -> tuple[Any, Any]:
        """Return the modes and the points of a batch."""
        return self.arrays.modes[:fields, :planes], self.arrays.points[:fields, :planes]

    def apply(
        self, function: PointOperation, fields: int, low: int, high: int, label: str, category: str
    ) -> None:
        """Record a function of the points of local planes `low` to `high`."""
        points = self.arrays.points[:fields, : high - low]
        operation, accessed = function(points, low)
        self.add(operation, [], [self.arrays.points[:, : high - low], *accessed], label, category)

    def add(
        self, operation: Operation, reads: list, writes: list, label: str, category: str
    ) -> None:
        """Record an operation in this batch's lane."""
        self.graph.add(
            operation, reads=reads, writes=writes, label=label, category=category, lane=self.lane
        )


def plane_pass_bytes(
    geometry: SlabGeometry,
    fields: int,
    complex_dtype: Any,
    device: Device,
    planes: int | None = None,
) -> int:
    """Return the bytes of working memory of a `PlanePass` on a device."""
    planes = batch_planes(geometry, fields, complex_dtype, device, planes)
    return device.lanes * planes * _plane_bytes(geometry, fields, complex_dtype)


def _plane_bytes(geometry: SlabGeometry, fields: int, complex_dtype: Any) -> int:
    """Return the bytes of the working arrays per plane of a batch."""
    _, ny, nx = geometry.shape
    width = nx // 2 + 1
    elements = max(width, geometry.row) + width
    return fields * ny * elements * np.dtype(complex_dtype).itemsize


def batch_planes(
    geometry: SlabGeometry,
    fields: int,
    complex_dtype: Any,
    device: Device,
    planes: int | None = None,
) -> int:
    """Return how many planes a batch has on a device, where arrays hold so many planes."""
    planes = geometry.planes if planes is None else planes
    limit = max(1, BATCH_BYTES[device.processor] // _plane_bytes(geometry, fields, complex_dtype))
    planes = balanced_batch(planes, limit, device.lanes)
    # An even number: rows that are transformed in pairs stay together however planes are divided.
    return max(1, min(planes + planes % 2, limit & ~1 or 1))
