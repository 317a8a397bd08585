"""Transforms in x and y, plane by plane, while the data are in cache.

A pass takes planes in batches: it gathers a batch of the packed planes into a small working array
and transforms it. The points are in a user's array, or exist for one batch only: a solver's pass
transforms to physical space, applies a pointwise product and transforms back. So the real fields of
a pseudospectral code stay in cache, and need no other memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from slipstream.engine.array_types import Array
from slipstream.engine.device import (
    Device,
    Operation,
    RowLaunch,
    Scratch,
    address_of,
    gpu_fft_launch,
    vector_fft,
)
from slipstream.engine.fft.line_transforms import (
    LineTransform,
    RealRows,
    Rows,
    RowsOfShares,
    SharedRows,
    balanced_batch,
    in_strides,
)
from slipstream.engine.fft.pack_unpack import RowTables, real_name
from slipstream.engine.fft.slab_layout import (
    NOT_KEPT,
    KxRange,
    PlaneGeometry,
    SlabGeometry,
    planes_of_run,
)
from slipstream.engine.schedule import StepGraph

# ``function(points, plane)`` returns the operation on a batch ``points[field, z, y, x]`` whose
# first plane is local plane `plane`, and the other arrays that the operation accesses.
PointOperation = Callable[[Array, int], tuple[Operation, list[Array]]]

# Working set of one batch in bytes: what fits a core's caches, or keeps a GPU busy.
BATCH_BYTES = {"cpu": 3 << 19, "gpu": 1 << 31}
_CACHE_LINE = 64
# On a CPU the most bytes of a batch of planes of a user's array, points and modes: it stays in
# cache.
_USER_BATCH_BYTES_ON_CPU = 3 << 20
# On a GPU the modes of such a batch take at most this fraction (1/16) of the memory. Few large
# batches are better: kx chunks leave after the last batch, and at 1024³ on two H200s two batches
# instead of one cost a sixth.
_USER_BATCH_SHARE_ON_GPU = 16


@dataclass(frozen=True)
class PointProduct:
    """A function of the fields at a single point.

    `header` defines ``pointwise``, see `fused_product.hpp`; `parameters` (float64, on the device)
    are what it takes besides the fields. `maxima` (int64, zero before) receives the maximum of the
    function's rate, as ordered bits, in parts: one entry per row of points is enough.

    The points of the inputs `stored` go to `points` as well, shape (stored, planes, rows, nx), with
    all planes of a pass; on GPUs three may be in chunks, shape (3, planes, rows, chunks, points of
    each): see `point_chunks.hpp`.
    """

    header: str
    inputs: int
    outputs: int
    parameters: Any
    maxima: Any
    stored: tuple[int, ...] = ()
    points: Any = None

    def constants(self) -> dict[str, Any]:
        """Return the compile-time constants."""
        header = f'"{self.header}"'
        return {"INPUTS": self.inputs, "OUTPUTS": self.outputs, "PRODUCT_HEADER": header}

    def get_store_constants(self) -> dict[str, Any]:
        """Return the constants for a kernel that stores points."""
        if not self.stored:
            return {}
        constants = {
            "STORES": len(self.stored),
            "STORED": f"{{{', '.join(map(str, self.stored))}}}",
        }
        return constants | ({"CHUNK": self.points.shape[-1]} if self.points.ndim == 5 else {})

    def places(self, low: int, high: int) -> list[Any]:
        """Return the array for the points of planes, and the elements of a field in it."""
        if not self.stored:
            return []
        return [self.points[:, low:high], self.points.strides[0] // self.points.itemsize]


@dataclass(frozen=True)
class PlaneTask:
    """The work of a pass over planes: `inputs` fields to physical space, `outputs` back.

    With `points`, an array (fields, planes, ny, nx), it goes one way, there or from there, and
    scales along x. They may also be an operation that uses, or fills, each batch of points, and
    may overwrite it. Without them the task makes a product at each point; without that either, the
    values do not change.
    """

    inputs: int
    outputs: int
    points: Any = None  # Array | PointOperation | None
    product: PointProduct | None = None
    scale: float = 1.0

    @property
    def arrives(self) -> bool:
        """Whether fields arrive in physical space."""
        return self.points is None or self.inputs > 0

    @property
    def leaves(self) -> bool:
        """Whether fields leave physical space."""
        return self.points is None or self.outputs > 0


@dataclass(frozen=True)
class PackedPlanes:
    """The place where a pass over planes reads or stores the rows of a range of kx.

    The tables, of rows or `Shares` of them, have offsets in elements of the array, which begins at
    plane `origin`; `accessed` returns the memory of a range of local planes. After the last plane
    of a pass has been stored, `record_close` records further nodes.
    """

    array: Array
    tables: Any
    accessed: Callable[[int, int], list[Array]]
    record_close: Callable[[], None] | None = None
    origin: int = 0

    def rows(self, low: int, high: int) -> Rows:
        """Return the rows of local planes from `low` to `high`."""
        low, high = low - self.origin, high - self.origin
        return Rows(self.array, self.accessed(low, high), self.tables, low)


class PlaneTables:
    """Tables of `held` planes that are packed in this rank's order."""

    def __init__(self, device: Device, geometry: SlabGeometry, held: int) -> None:
        self._device, self._geometry, self._held = device, geometry, held
        self._runs = geometry.packed_runs(held)
        self._tables: dict[int, RowTables] = {}

    def of(self, array: Array, record_close: Callable[[], None] | None = None) -> PackedPlanes:
        """Return packed planes: (fields, planes_size), or (fields, rows, row).

        In the second form the rows of all fields lie side by side.
        """
        beside = 1 if array.ndim == 2 else array.strides[1] // (array.shape[2] * array.itemsize)
        if beside not in self._tables:
            offset, pitch = self._geometry.plane_rows(self._held)
            offset = np.where(offset == NOT_KEPT, NOT_KEPT, beside * offset)
            self._tables[beside] = RowTables(self._device, (offset, beside * pitch))

        def accessed(low: int, high: int) -> list[Array]:
            return [planes_of_run(array, run, self._held, low, high) for run in self._runs]

        return PackedPlanes(array, self._tables[beside], accessed, record_close)


@dataclass(frozen=True)
class PlaneBatches:
    """The batches in which a pass transforms planes, by default all of a rank.

    The points are in a user's arrays (`of_user`), or exist for one batch at a time (`of_step`).
    """

    # Planes of the packed arrays.
    planes: int
    # Planes that are transformed together: they fit a core's cache, or a share of a GPU's memory.
    batch: int
    # Batches that are transformed at a time; a streamed tile is in one lane.
    lanes: int
    # Elements from one row of a batch's modes to the next.
    row: int
    # Working memory of all lanes.
    bytes: int
    # Whether points are real, and kernels of Slipstream are used if the device has them.
    real: bool = True
    tiled: bool = True
    # Whether the points are in a user's arrays.
    are_given: bool = False

    @classmethod
    def of_user(
        cls,
        device: Device,
        geometry: PlaneGeometry,
        fields: int,
        complex_dtype: np.dtype,
        real: bool,
        tiled: bool = True,
        planes: int | None = None,
        lanes: int | None = None,
    ) -> PlaneBatches:
        """Return the batches of points in a user's arrays."""
        lanes, planes = lanes or device.lanes, geometry.planes if planes is None else planes
        ny, nx = geometry.plane_points
        row = batch_row(device, nx // 2 + 1 if real else nx, complex_dtype)
        modes_bytes = fields * ny * row * complex_dtype.itemsize
        # The points of a batch stay in a core's cache too.
        limit = _USER_BATCH_BYTES_ON_CPU // (2 * modes_bytes)
        if device.kind != "cpu":
            limit = device.memory_total() // (_USER_BATCH_SHARE_ON_GPU * modes_bytes)
        batch = max(1, balanced_batch(planes, max(1, limit), lanes))
        return cls(planes, batch, lanes, row, lanes * batch * modes_bytes, real, tiled, True)

    @classmethod
    def of_step(
        cls,
        device: Device,
        geometry: PlaneGeometry,
        fields: int,
        complex_dtype: DTypeLike,
        planes: int | None = None,
        lanes: int | None = None,
    ) -> PlaneBatches:
        """Return the batches of real points that exist in working memory only."""
        lanes, planes = lanes or device.lanes, geometry.planes if planes is None else planes
        ny, nx = geometry.plane_points
        width = nx // 2 + 1
        row = batch_row(device, width, np.dtype(complex_dtype))
        most = max(row, batch_row(device, geometry.x_row, complex_dtype))
        elements = most + width  # modes, and as many pairs of points
        plane_bytes = fields * ny * elements * np.dtype(complex_dtype).itemsize
        limit = max(1, BATCH_BYTES[device.processor] // plane_bytes)
        batch = max(1, balanced_batch(planes, limit, lanes))
        return cls(planes, batch, lanes, row, lanes * batch * plane_bytes)


# Binds x, the product and x again to rows of modes, given their first plane.
_FusedKernel: TypeAlias = Callable[[Array, int], tuple[Operation, list[Array]]]


Line: TypeAlias = LineTransform | SharedRows | RowsOfShares


class PlanePass:
    """Transforms in x and y, batch by batch, between packed planes and physical space.

    One call handles at most `fields` fields. By default points exist for one batch at a time.
    `lines` moves rows to and from packed planes, by default with transforms along y.
    """

    def __init__(
        self,
        device: Device,
        geometry: PlaneGeometry,
        fields: int,
        complex_dtype: Any,
        batches: PlaneBatches | None = None,
        scratch: Scratch | None = None,
        lines: Sequence[Line] | None = None,
    ) -> None:
        chosen = batches or PlaneBatches.of_step(device, geometry, fields, complex_dtype)
        self._device, self.geometry, self._scratch = device, geometry, scratch
        self._held, self.batch, self._ranges = chosen.planes, chosen.batch, geometry.ranges
        self._real_dtype = np.zeros(0, complex_dtype).real.dtype
        (ny, nx), x = geometry.plane_points, geometry.x_modes
        geometries = [kx_range.geometry for kx_range in self._ranges]
        self._ny = ny
        self._lines = lines or [
            SharedRows(x)
            if geometry.flat
            else LineTransform(device, "y", ny, complex_dtype, chosen.tiled, scratch)
            for _ in geometries
        ]
        self.line: Line = self._lines[0]  # of the first range
        self._packed = [PlaneTables(device, one, self._held) for one in geometries]
        if self.line.of_gpus:
            self._roots = device.array(gpu_fft_launch.roots(nx, self._real_dtype))
        self._rows: RealRows | None = None
        if chosen.real and chosen.tiled and device.tiled_transforms():
            supported = RealRows.supports(device, nx, self._real_dtype)
            self._rows = RealRows(device, nx, self._real_dtype) if supported else None
        # The modes of x that a library transforms, and the places of the modes that are not kept.
        width = nx // 2 + 1 if chosen.real else nx
        self._active, self._rest = x.count, slice(x.low, width - x.high)
        most = batch_row(device, geometry.x_row, complex_dtype)
        size, rest = (fields, self.batch, ny), () if chosen.are_given else (most, nx)
        self._arrays = [
            BatchArrays(device, size, width, chosen.row, complex_dtype, *rest)
            for _ in range(chosen.lanes)
        ]
        self._ffts: dict[tuple[Any, ...], Operation] = {}

    def packed(
        self,
        number: int,
        array: Array,
        record_close: Callable[[], None] | None = None,
    ) -> PackedPlanes:
        """Return the planes of a range of kx, packed in this rank's order; see `PlaneTables`."""
        return self._packed[number].of(array, record_close)

    def record(
        self,
        graph: StepGraph,
        task: PlaneTask,
        sources: Sequence[PackedPlanes],
        targets: Sequence[PackedPlanes],
        first: int = 0,
        last: int | None = None,
    ) -> None:
        """Record a task between packed planes, from `first` to `last`, by default all.

        Sources and targets may be the same memory.
        """
        last = self._held if last is None else last
        points, product, fused = task.points, task.product, None
        if points is None:
            if self._device.kind == "cpu" and isinstance(self.line, RowsOfShares):
                product = product or self._no_product(task.inputs, task.outputs)
                self._record_in_shares(graph, sources[0], targets[0], product, first, last)
                return
            fused = self._get_fused_kernel(product, task.inputs, task.outputs)
        for number, low in enumerate(range(first, last, self.batch)):
            turn, lane = graph.lane_of_batch(number)
            high = min(low + self.batch, last)
            batch = Batch(graph.on(graph.device, lane), self._arrays[turn])
            if fused:
                self._record_fused(batch, fused, sources, targets, low, high, high == last)
                continue
            inward, outward = (
                batch.points(count, low, high)
                if points is None or callable(points)
                else points[:, low:high]
                for count in (task.inputs, task.outputs)
            )
            if callable(points) and targets:
                batch.apply(points, task.outputs, low, high, "load", "pack")
            if sources:
                self._to_points(batch, sources, inward, low, high, task.scale)
            if product is not None:
                for place, number_stored in enumerate(product.stored):
                    target = product.points[place, low:high]
                    kept = inward[number_stored].reshape(target.shape)
                    batch.graph.add_copy(target, kept, label="keep points")
                function = self.product_operation(product)
                batch.apply(function, product.outputs, low, high, "product", "compute")
            if callable(points) and sources:
                batch.apply(points, task.inputs, low, high, "store", "pack")
            if targets:
                self._from_points(batch, targets, outward, low, high, high == last, task.scale)

    def plan(self, product: PointProduct | None, inputs: int, outputs: int, planes: int) -> None:
        """Plan a library's transforms of a task without points, so that scratch is known."""
        if self._get_fused_kernel(product, inputs, outputs):
            return
        for low in range(0, planes, self.batch):
            for fields, forward in ((inputs, False), (outputs, True)):
                work = self._arrays[0]
                number = min(self.batch, planes - low)
                modes, points = work.modes[:fields, :number], work.points[:fields, :number]
                if self._rows is None:
                    source, target = (points, modes) if forward else (modes, points)
                    self._fft(source, target, forward)
                self.line.plan(modes[..., : self._active])

    def plan_points(self, points: Array) -> None:
        """Plan a library's transforms of a user's points, if any, so that scratch is known."""
        for low in range(0, points.shape[1], self.batch):
            part = points[:, low : low + self.batch]
            modes = self._arrays[0].modes[: len(part), : part.shape[1]]
            if self._rows is None:
                self._fft(part, modes, True)
                self._fft(modes, part, False)
            for line, one in zip(self._lines, self._ranges, strict=True):
                line.plan(self._part(modes, one))

    def _get_fused_kernel(
        self, product: PointProduct | None, inputs: int, outputs: int
    ) -> _FusedKernel | None:
        """Return the kernel for x, the product and x again, if the device has one."""
        product = product or self._no_product(inputs, outputs)
        if self.line.of_gpus:
            tile = gpu_fft_launch.fused_product(
                self.geometry.shape[2],
                self._real_dtype,
                product.inputs,
                product.outputs,
                product.header,
                self._device.shared_memory_limit,
                self._ny,
                self._active,
            )
            return None if tile is None else partial(self._bind_tiled, tile, product)
        if self._device.kind != "cpu":
            return None

        def bind(rows: Array, plane: int) -> tuple[Operation, list[Array]]:
            side = vector_fft.whole_rows(rows[..., : self._active])
            return self._bind_vectors(product, side, side, plane, plane + rows.shape[1])

        return bind

    def _record_fused(
        self,
        batch: Batch,
        fused: _FusedKernel,
        sources: Sequence[PackedPlanes],
        targets: Sequence[PackedPlanes],
        low: int,
        high: int,
        is_last: bool,
    ) -> None:
        inputs, outputs = (len(one[0].array) for one in (sources, targets))
        # The working array of modes for every y, with stored rows.
        row = width = self.geometry.x_row
        if not self.line.of_gpus:
            row = batch_row(self._device, row, batch.arrays.memory.dtype)
        shape = max(inputs, outputs), high - low, self._ny, row
        rows = batch.arrays.memory[: math.prod(shape)].reshape(shape)[..., :width]
        inward, outward = rows[:inputs], rows[:outputs]
        self._load(batch, sources, inward, low, high)
        operation, written = fused(rows, low)
        batch.add(operation, [inward], [outward, *written], "fft x, product, fft x", "fft")
        self._store(batch, targets, outward, low, high, is_last)

    def _record_in_shares(
        self,
        graph: StepGraph,
        source: PackedPlanes,
        target: PackedPlanes,
        product: PointProduct,
        first: int,
        last: int,
    ) -> None:
        """Record x, the product and x again, reading and writing rows in ranks' shares.

        There is no working memory, so each lane has one batch.
        """
        size = max(1, -(-(last - first) // len(self._arrays)))
        for number, low in enumerate(range(first, last, size)):
            high = min(low + size, last)
            rows_read, rows_left = (
                side.tables.of_rows(side.array, (low - side.origin) * self._ny)
                for side in (source, target)
            )
            read, left = (
                side.accessed(low - side.origin, high - side.origin) for side in (source, target)
            )
            operation, written = self._bind_vectors(product, rows_read, rows_left, low, high)
            lane_graph = graph.on(graph.device, graph.lane_of_batch(number)[1])
            label = "fft x, product, fft x"
            lane_graph.add(
                operation, reads=read, writes=[*left, *written], label=label, category="fft"
            )
        if target.record_close is not None:
            target.record_close()

    def _bind_vectors(
        self,
        product: PointProduct,
        source: tuple[Array, np.ndarray],
        target: tuple[Array, np.ndarray],
        low: int,
        high: int,
    ) -> tuple[Operation, list[Array]]:
        """Bind a CPU's kernel to planes from `low` to `high`."""
        maxima, stored = product.maxima[low * self._ny : high * self._ny], product.places(low, high)
        operation = vector_fft.bind_products(
            self._device,
            source,
            target,
            (high - low) * self._ny,
            self.geometry.shape[2],
            product.constants() | product.get_store_constants(),
            maxima,
            product.parameters,
            stored,
        )
        return operation, [maxima, *stored[:1]]

    def _bind_tiled(
        self, tile: gpu_fft_launch.TiledKernel, product: PointProduct, rows: Array, plane: int
    ) -> tuple[Operation, list[Array]]:
        """Bind a GPU's kernel."""
        constants = dict(tile.constants) | product.get_store_constants()
        kernel = self._device.kernel(tile.header, tile.name, **constants)
        _, planes, ny, _ = rows.shape
        field, row = rows.strides[0] // rows.itemsize, rows.strides[2] // rows.itemsize
        maxima = product.maxima[plane * ny : (plane + planes) * ny]
        scale, stored = self._real_dtype.type(1), product.places(plane, plane + planes)
        operation = kernel.bind(
            tile.launch(planes * (ny + ny % 2)),
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
            *stored,
        )
        return operation, [maxima, *stored[:1]]

    def _no_product(self, inputs: int, outputs: int) -> PointProduct:
        maxima = self._device.zeros((max(1, self.geometry.planes * self._ny),), np.int64)
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

    def _to_points(
        self,
        batch: Batch,
        sources: Sequence[PackedPlanes],
        points: Array,
        low: int,
        high: int,
        scale: float = 1.0,
    ) -> None:
        modes = batch.arrays.modes[: len(points), : high - low]
        self._load(batch, sources, modes, low, high)
        if self._rows:
            kept = modes[..., : self._active]
            operation = self._rows.bind(points, kept, False, scale)
            batch.add(operation, [kept], [kept, points], "fft x", "fft")
            return
        rest = modes[..., self._rest]
        if rest.size:
            batch.add(self._device.fill(rest, 0), [], [rest], "pad modes", "pack")
        # Transforms to real numbers may use their source as working memory.
        transform = self._fft(modes, points, False, scale)
        batch.add(transform, [modes], [modes, points], "fft x", "fft")

    def _from_points(
        self,
        batch: Batch,
        targets: Sequence[PackedPlanes],
        points: Array,
        low: int,
        high: int,
        is_last: bool,
        scale: float = 1.0,
    ) -> None:
        modes = batch.arrays.modes[: len(points), : high - low]
        if self._rows:
            kept = modes[..., : self._active]
            operation = self._rows.bind(points, kept, True, scale)
            batch.add(operation, [points], [kept], "fft x", "fft")
        else:
            batch.add(self._fft(points, modes, True, scale), [points], [modes], "fft x", "fft")
        self._store(batch, targets, modes, low, high, is_last)

    def _load(
        self, batch: Batch, sources: Sequence[PackedPlanes], modes: Array, low: int, high: int
    ) -> None:
        """Record packed planes -> rows of the kept x modes for every y."""
        for line, one, source in zip(self._lines, self._ranges, sources, strict=True):
            part = in_strides(self._part(modes, one))
            line.record(batch.graph, source.rows(low, high), part, False)

    def _store(
        self,
        batch: Batch,
        targets: Sequence[PackedPlanes],
        modes: Array,
        low: int,
        high: int,
        is_last: bool,
    ) -> None:
        """Record rows of the kept x modes for every y -> packed planes.

        The ranges are sent one by one after the last batch.
        """
        for line, one, target in zip(self._lines, self._ranges, targets, strict=True):
            part = in_strides(self._part(modes, one))
            line.record(batch.graph, target.rows(low, high), part, True)
            if is_last and target.record_close is not None:
                target.record_close()

    def _part(self, modes: Array, kx: KxRange) -> Array:
        return modes if self.geometry.flat else modes[..., kx.among_all]

    def _fft(self, source: Array, target: Array, forward: bool, scale: float = 1.0) -> Operation:
        def plan() -> Operation:
            return self._device.fft(
                source, target, 3, forward, self._scratch, scale, among_many=True
            )

        if self._arrays[0].points is None:
            return plan()
        # Batches of one lane share their memory, and thus their plans.
        views = [(address_of(one), one.shape, one.strides) for one in (source, target)]
        key = forward, scale, *views
        if key not in self._ffts:
            self._ffts[key] = plan()
        return self._ffts[key]


class BatchArrays:
    """The working memory of one lane, for batches of `size` (fields, planes, ny).

    `modes` is (fields, planes, ny, width), in rows of `row` elements. `memory` is the memory of the
    modes, with room for rows of `most` elements. `points` is (fields, planes, ny, nx), if `nx` is
    given.
    """

    def __init__(
        self,
        device: Device,
        size: tuple[int, int, int],
        width: int,
        row: int,
        complex_dtype: Any,
        most: int = 0,
        nx: int | None = None,
    ) -> None:
        rows = math.prod(size)
        self.memory = device.in_cache((rows * max(row, most),), complex_dtype)
        self.modes = self.memory[: rows * row].reshape(*size, row)[..., :width]
        real_dtype = np.zeros(0, complex_dtype).real.dtype
        self.points: Any = None if nx is None else device.in_cache((*size, nx), real_dtype)


@dataclass(frozen=True)
class Batch:
    """The recording of one batch: the graph's view of its lane, and its arrays."""

    graph: StepGraph
    arrays: BatchArrays

    def points(self, fields: int, low: int, high: int) -> Array:
        """Return the points of local planes `low` to `high`, which exist for this batch only."""
        points: Array = self.arrays.points[:fields, : high - low]
        return points

    def apply(
        self, function: PointOperation, fields: int, low: int, high: int, label: str, category: str
    ) -> None:
        """Record a function of the points of local planes `low` to `high`."""
        operation, accessed = function(self.points(fields, low, high), low)
        self.add(operation, [], [self.arrays.points[:, : high - low], *accessed], label, category)

    def add(
        self,
        operation: Operation,
        reads: list[Array],
        writes: list[Array],
        label: str,
        category: str,
    ) -> None:
        """Record an operation in this batch's lane."""
        self.graph.add(operation, reads=reads, writes=writes, label=label, category=category)


def row_alignment(device: Device, complex_dtype: np.dtype) -> int:
    """Return the alignment of rows of modes for fast access, in complex elements."""
    return max(1, device.row_bytes // complex_dtype.itemsize)


def batch_row(device: Device, width: int, complex_dtype: DTypeLike) -> int:
    """Return the complex elements from one row of a batch's modes to the next.

    On a CPU, rows begin at cache lines, an odd number of lines apart: so columns use all sets of
    the first-level cache.
    """
    dtype = np.dtype(complex_dtype)
    if device.kind != "cpu" or device.tiled_transforms():
        alignment = row_alignment(device, dtype)
        return -(-width // alignment) * alignment
    line = _CACHE_LINE // dtype.itemsize
    return (-(-width // line) | 1) * line
