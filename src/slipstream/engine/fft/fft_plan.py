"""A plan: the parts of a transform, for one set of choices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import DTypeLike

from slipstream.engine.array_types import Array, Comm
from slipstream.engine.decomposition import slabs
from slipstream.engine.device import Device, fourier_factors, period
from slipstream.engine.errors import bytes_text
from slipstream.engine.exchange import NarrowWire, RankPlace, Transport, make_transport
from slipstream.engine.fft.fft_arguments import (
    Arguments,
    Stage,
    checked_arguments,
    inverse_kind,
    with_fields,
)
from slipstream.engine.fft.plane_transforms import PlaneBatches, row_alignment
from slipstream.engine.fft.route_transform import RouteTransform
from slipstream.engine.fft.slab_engine import (
    SlabEngine,
    record_columns,
    record_from_points,
    record_to_points,
)
from slipstream.engine.fft.slab_layout import chunk_geometry
from slipstream.engine.fft.transform_parts import (
    AxisTransform,
    Part,
    Redistribution,
    along,
    in_lanes,
    split_scale,
)
from slipstream.engine.schedule import MAIN_LANE, StepGraph

# The most chunks of kx between the stages of pencils: on two H200s, 1024³, 1, 2, 4 and 8 took 13.0,
# 14.5, 13.2 and 13.8 ms forward, 13.2, 12.8, 12.5 and 12.3 ms backward.
_ROUTE_CHUNKS = 4


@dataclass(frozen=True)
class SlabOptions:
    """The tuned choices, which change the speed but not the result.

    `kx_chunks` and `plane_chunks` are numbers of chunks. With `store`, transforms store into the
    memory of other ranks if the transport supports it. With `tiled`, strided transforms use the
    kernels of Slipstream if the device has them. With `whole`, one rank computes a forward
    transform that keeps all modes with a single plan of the library.
    """

    kx_chunks: int = 1
    plane_chunks: int = 1
    store: bool = True
    tiled: bool = True
    whole: bool = False


class SlabTransform(Part):
    """Records the transforms of one rank between its planes and its columns. Collective.

    The array is divided among `ranks` ranks, and this one is number `rank`. If one rank alone holds
    the array, it makes the transform for a single rank, without a transport.
    """

    def __init__(
        self,
        device: Device,
        transport: Transport | None,
        arguments: Arguments,
        rank: int,
        ranks: int,
        options: SlabOptions,
    ) -> None:
        self._device, self._options, self._fields = device, options, arguments.fields
        nz, ny, nx = arguments.shape
        z, y, x = arguments.modes
        fields, complex_dtype = arguments.fields, arguments.complex_dtype
        width = nx // 2 + 1 if arguments.real else nx
        # On a CPU columns are transformed in a user's array, without gaps.
        has_gaps = device.kind != "cpu" or device.tiled_transforms()
        alignment = row_alignment(device, complex_dtype) if has_gaps else 1
        geometry = chunk_geometry(
            (nz, ny, nx), (z, y, x), rank, ranks, alignment, chunks=options.kx_chunks
        )
        # A single plan of the library cannot scale between its axes.
        self._whole = options.whole and ranks == 1 and arguments.factors[0] == 1.0
        self._whole &= arguments.spectral_shape == (nz, ny, width)
        batches = PlaneBatches.of_user(
            device, geometry, fields, complex_dtype, arguments.real, options.tiled
        )
        self._engine = SlabEngine(
            device, geometry, fields, complex_dtype, transport, batches, options.store
        )
        self.buffer_bytes = self._engine.buffer_bytes + batches.bytes
        self.exchanges = int(transport is not None)
        # Complex elements of all fields that this rank sends to others in one transform.
        self.wire_elements = fields * geometry.off_rank_elements if transport else 0
        # Making an exchange is collective; recording it later is not.
        made = [
            self._engine.exchange(kx, range(fields), forward, chunk, options.plane_chunks)
            for kx in range(len(geometry.ranges))
            for forward in (True, False)
            for chunk in range(options.plane_chunks)
        ]
        self._stores = all(one.targets.stores for one in made)

    def describe(self) -> str:
        if not self.exchanges:
            return "transforms along x, y, z" + (" (forward: one plan)" if self._whole else "")
        how = "stored by the transforms" if self._stores else "copied"
        division = f"{len(self._engine.geometry.ranges)} x {self._options.plane_chunks} chunks"
        return f"slab transform: x, y, exchange ({division}, {how}), z"

    def record_forward(
        self, graph: StepGraph, physical: Array, spectral: Array, scale: float = 1.0
    ) -> None:
        """Record (fields, planes, ny, nx) -> (fields, kz, ky of this rank, kx), times a constant.

        The source is not changed, unless the two arrays share memory. The spectral array may be
        a strided view whose kx is contiguous.
        """
        if self._whole and physical.flags.c_contiguous and spectral.flags.c_contiguous:
            graph.add(
                self._device.fft_all(physical, spectral, True),
                reads=[physical],
                writes=[spectral],
                label="fft",
                category="fft",
            )
            return
        fields, chunks = self._fields, self._options.plane_chunks
        if self._holds_columns(physical, spectral):
            engine = self._engine.with_memory(spectral)
            record_from_points(graph, engine, physical, fields, chunks, scale)
            record_columns(graph, engine, forward=fields)
            return
        record_from_points(graph, self._engine, physical, fields, chunks, scale)
        record_columns(graph, self._engine, forward=fields, target=spectral)

    def record_backward(
        self, graph: StepGraph, spectral: Array, physical: Array, scale: float = 1.0
    ) -> None:
        """Record spectral -> physical, times a constant; parameters as in `record_forward`."""
        fields, chunks = self._fields, self._options.plane_chunks
        first, last = split_scale(scale, self._engine.geometry.shape)
        record_columns(graph, self._engine, spectral, chunks=chunks, scale=first)
        record_to_points(graph, self._engine, physical, fields, chunks, last)

    def _holds_columns(self, physical: Array, spectral: Array) -> bool:
        """Return whether columns may be transformed along z in the array of their modes.

        On a CPU this saves a third of a transform's memory traffic.
        """
        return (
            self._device.kind == "cpu"
            and not self.exchanges
            and spectral.shape[1:] == self._engine.columns[0].shape[1:]
            and spectral.flags.c_contiguous
            and not np.may_share_memory(physical, spectral)
        )


class CosineTransform(Part):
    """A cosine or sine transform along one axis of local arrays, and its inverse.

    With `orthonormal` the first or last mode of types II and III, and both ends of type I, are
    scaled such that the transform is orthogonal up to a factor common to all modes.
    """

    def __init__(
        self,
        device: Device,
        shape: tuple[int, ...],
        axis: int,
        kind: str,
        orthonormal: bool,
        dtype: DTypeLike,
    ) -> None:
        self._device, self._kind, self._axis = device, kind, axis
        self._dtype = np.dtype(dtype)
        self._real = np.zeros(0, dtype).real.dtype
        # Complex numbers are viewed as an axis of two real ones.
        self._shape = (*shape, 2) if self._dtype.kind == "c" else shape
        n = shape[axis]
        self._tables: dict[bool, tuple[Array, Array]] = {}
        if not math.prod(shape):
            return
        self._library, self._orthonormal = device.has_cosine_transforms(), orthonormal
        if self._library:
            return
        complex_dtype = np.result_type(self._real, np.complex64)
        broadcast = [-1 if a == axis else 1 for a in range(len(self._shape))]
        for forward in (True, False):
            one = kind if forward else inverse_kind(kind)
            before, after = (
                device.array(table.reshape(broadcast), complex_dtype)
                for table in fourier_factors(one, n, orthonormal)
            )
            self._tables[forward] = before, after
        long = [period(kind, n) if a == axis else m for a, m in enumerate(self._shape)]
        self._work = device.empty(tuple(long), complex_dtype)
        self.buffer_bytes = self._work.nbytes

    def describe(self) -> str:
        return f"{self._kind} along axis {self._axis - 1}"

    def record_forward(
        self, graph: StepGraph, source: Array, target: Array, scale: float = 1.0
    ) -> None:
        """Record points -> modes, times a constant; the source is not changed."""
        self._record(graph, source, target, True, scale)

    def record_backward(
        self, graph: StepGraph, source: Array, target: Array, scale: float = 1.0
    ) -> None:
        """Record modes -> points, times a constant; the source is not changed."""
        self._record(graph, source, target, False, scale)

    def _record(
        self, graph: StepGraph, source: Array, target: Array, forward: bool, scale: float
    ) -> None:
        if not source.size:
            return
        source, target = self._view_as_real(source), self._view_as_real(target)
        if self._library:
            self._record_library(graph, source, target, forward, scale)
            return
        self._record_fourier(graph, source, target, forward)
        if scale != 1.0:
            self._add(graph, self._device.scale(target, scale), target, target, "scale")

    def _record_library(
        self, graph: StepGraph, source: Array, target: Array, forward: bool, scale: float
    ) -> None:
        kind = self._kind if forward else inverse_kind(self._kind)
        for lane, (points, modes) in in_lanes(graph, self._axis, source, target):
            operation = self._device.cosine_transform(
                points, modes, self._axis, kind, self._orthonormal, scale
            )
            self._add(graph, operation, points, modes, kind, "fft", lane=lane)

    def _record_fourier(
        self, graph: StepGraph, source: Array, target: Array, forward: bool
    ) -> None:
        device, xp, n = self._device, self._device.array_module, source.shape[self._axis]
        work, (before, after) = self._work, self._tables[forward]
        points = along(work, self._axis, 0, n)
        rest = along(work, self._axis, n, work.shape[self._axis])
        self._add(
            graph,
            lambda stream: xp.multiply(source, before, out=points),
            source,
            points,
            "before",
            "pack",
        )
        if rest.size:
            self._add(graph, device.fill(rest, 0), rest, rest, "pad", "pack")
        operation = device.fft(work, work, self._axis, True)
        self._add(graph, operation, work, work, self._kind, "fft")

        def finish(stream: Any) -> None:
            xp.multiply(points, after, out=points)
            xp.copyto(target, points.real)

        self._add(graph, finish, points, target, "after", "pack", also=points)

    def _add(
        self,
        graph: StepGraph,
        operation: Any,
        source: Array,
        target: Array,
        label: str,
        category: str = "compute",
        also: Array | None = None,
        lane: str = MAIN_LANE,
    ) -> None:
        writes = [target] if also is None else [target, also]
        label = f"{label} axis {self._axis - 1}"
        graph.add(
            operation, reads=[source], writes=writes, label=label, category=category, lane=lane
        )

    def _view_as_real(self, array: Array) -> Array:
        if self._dtype.kind != "c":
            return array
        return array.view(self._real).reshape(self._shape)


# A part of a transform, and the shape and type of the array after it.
Link: TypeAlias = tuple[Part, tuple[int, ...], np.dtype]


@dataclass(frozen=True)
class Choices:
    """The tuned choices, which do not change the result of a transform."""

    transport: str
    workers: int
    slab: SlabOptions


class Plan:
    """The parts of a transform on one rank, in forward order. Collective.

    It `is_alone` if there is nothing to overlap: on a CPU, one exchange in one chunk.
    """

    residency: Literal["device", "host", "disk"] = "device"
    is_alone = False

    def __init__(
        self,
        arguments: Arguments,
        device: Device,
        comm: Comm,
        choices: Choices,
        noting: tuple[int, Transport | None] | None = None,
    ) -> None:
        # One rank of many can be planned alone, by its number and a transport that notes traffic.
        rank, transport = noting or (
            0 if comm is None else comm.rank,
            make_transport(choices.transport, comm, device),
        )
        self.arguments, self.choices, self.workers = arguments, choices, choices.workers
        self._device, self._rank = device, rank
        self._full = self.transport = transport
        if arguments.wire and transport:
            self.transport = NarrowWire(transport, device, comm, arguments.wire)
        self._connect(list(self._parts(arguments.route(choices.workers))))
        slab = choices.slab
        is_single = device.lanes * slab.kx_chunks * slab.plane_chunks == 1
        self.is_alone = device.kind == "cpu" and is_single and self.exchanges <= 1

    def _connect(self, parts: Sequence[Link], turns: int = 2) -> None:
        """Connect parts; the arrays between them alternate between some buffers."""
        self.parts = [part for part, _, _ in parts]
        # The shape and type of the array after each part.
        self._behind = [(shape, dtype) for _, shape, dtype in parts]
        self.exchanges = sum(part.exchanges for part in self.parts)
        between = self._behind[:-1]
        sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in between]
        buffers = [
            self._device.empty((max(sizes[turn::turns], default=0),), np.uint8)
            for turn in range(turns)
        ]
        self.buffer_bytes = sum(one.nbytes for one in buffers)
        self.buffer_bytes += sum(part.buffer_bytes for part in self.parts)
        self._between: list[Array] = [
            buffers[number % turns][:size].view(dtype).reshape(shape)
            for number, (size, (shape, dtype)) in enumerate(zip(sizes, between, strict=True))
        ]

    def describe_parts(self) -> list[str]:
        """Return a line for each part, and one for their memory, for users."""
        lines = [part.describe() for part in self.parts]
        return [*lines, f"buffers of {bytes_text(self.buffer_bytes)} on this rank"]

    @property
    def wire_bytes(self) -> int:
        """Bytes that leave this rank in one transform."""
        itemsize = {"float32": 8, "bfloat16": 4}.get(self.arguments.wire or "")
        total = 0
        for part, (_, dtype) in zip(self.parts, self._behind, strict=True):
            size = dtype.itemsize
            if dtype.kind == "c":
                size = itemsize or self.arguments.complex_dtype.itemsize
            total += part.wire_elements * size
            total += part.real_wire_elements * self.arguments.dtype.itemsize
        return total

    def record_forward(self, graph: StepGraph, physical: Array, spectral: Array) -> None:
        """Record physical -> spectral; arrays (fields, ...) in this device's memory."""
        arrays = [physical, *self._between, spectral]
        scale = self.arguments.factors[0]
        for number, part in enumerate(self.parts):
            # The first transform scales, before the sums of the others can overflow; there is
            # always one.
            scales = not isinstance(part, Redistribution)
            part.record_forward(graph, arrays[number], arrays[number + 1], scale if scales else 1.0)
            scale = 1.0 if scales else scale

    def record_backward(self, graph: StepGraph, spectral: Array, physical: Array) -> None:
        """Record spectral -> physical, normalised."""
        arrays = [physical, *self._between, spectral]
        scale = self.arguments.factors[1]
        for number, part in reversed(list(enumerate(self.parts))):
            scales = not isinstance(part, Redistribution)
            part.record_backward(
                graph, arrays[number + 1], arrays[number], scale if scales else 1.0
            )
            scale = 1.0 if scales else scale

    def _parts(self, route: Sequence[Stage]) -> Iterator[Link]:
        """Make the parts of a route, with shape and type of the array after each. Collective."""
        a, device, rank, slab = self.arguments, self._device, self._rank, self.choices.slab
        dtype, number = a.dtype, 0
        part: Part
        while number < len(route):
            engine, count = engine_of(a, device, slab, route, number)
            stage = route[number]
            if number:
                before, after = route[number - 1].after, stage.before
                # Real arrays, which only bricks exchange, are never sent in reduced precision.
                transport = self.transport if dtype.kind == "c" else self._full
                part = Redistribution(device, transport, before, after, rank, dtype)
                yield part, after[rank].shape, dtype
            number += count
            if engine == "axes":
                shape = stage.before[rank].shape
                for axis in stage.axes:
                    kind = a.kinds[a.axes.index(axis - 1)]
                    if kind == "fft":
                        dtype, half = a.complex_dtype, axis - 1 == a.half_axis
                        modes, of_planes = a.modes[axis - 1], a.has_planes
                        part = AxisTransform(device, shape, axis, modes, half, dtype, of_planes)
                    else:
                        ortho = a.norm == "ortho"
                        part = CosineTransform(device, shape, axis, kind, ortho, dtype)
                    if math.prod(shape):
                        kept = a.modes[axis - 1].count
                        shape = tuple(kept if i == axis else n for i, n in enumerate(shape))
                    yield part, shape, dtype
                continue
            if engine == "route":
                both = cast("tuple[Transport, Transport]", (self.transport, self._full))
                part = RouteTransform(
                    device, *both, a, route, rank, min(slab.kx_chunks, _ROUTE_CHUNKS)
                )
            elif engine == "slabs":
                part = SlabTransform(device, self.transport, a, rank, a.ranks, slab)
            elif stage.before[rank].size:
                part = SlabTransform(device, None, a, 0, 1, slab)
            else:
                part = Part()
            dtype = a.complex_dtype
            yield part, route[number - 1].after[rank].shape, dtype


def engine_of(
    arguments: Arguments, device: Device, options: SlabOptions, route: Sequence[Stage], number: int
) -> tuple[Literal["slabs", "root", "route", "axes"], int]:
    """Return the engine for a route from stage `number` on, and how many stages it takes.

    All choices between engines on a device are here. Slabs take two stages, and three axes on one
    rank ("root") take one. A route without either is one transform if the device has kernels for
    it. Else each axis of a stage has a separate transform.
    """
    a, ranks = arguments, arguments.ranks
    if not a.has_planes:
        return "axes", 1
    planes = with_fields(slabs(a.shape, 0, ranks), a.fields)
    columns = with_fields(slabs(a.spectral_shape, 1, ranks), a.fields)

    def by_slab_engine(first: int) -> tuple[Literal["slabs", "root"], int] | None:
        stage, following = route[first], route[first + 1 : first + 2]
        if stage.axes == (3, 2, 1) and sum(box.size > 0 for box in stage.before) == 1:
            return "root", 1
        if stage.axes != (3, 2) or [one.axes for one in following] != [(1,)]:
            return None
        are_slabs = stage.before == planes and following[0].after == columns
        return ("slabs", 2) if are_slabs else None

    if engine := by_slab_engine(number):
        return engine
    if (
        ranks > 1
        and options.tiled
        and RouteTransform.supports(device, a)
        and not any(map(by_slab_engine, range(len(route))))
    ):
        return "route", len(route)
    return "axes", 1


def noted_transform(
    device: Any,
    rank_place: RankPlace,
    shape: tuple[int, int, int],
    name: str,
    transport: Transport | None,
    **options: Any,
) -> StepGraph:
    """Record the forward transform of one rank of many, with a noting transport."""
    a = checked_arguments(rank_place.ranks, shape=shape, **options)
    choices = Choices(name, rank_place.ranks, SlabOptions())
    plan = Plan(a, device, None, choices, (rank_place.rank, transport))
    graph = StepGraph(device)
    physical = device.empty((1, *a.input_boxes[rank_place.rank].shape), a.dtype)
    spectral = device.empty((1, *a.output_boxes[rank_place.rank].shape), a.complex_dtype)
    plan.record_forward(graph, physical, spectral)
    return graph
