"""Transforms of arrays that stay on the host: slabs, tile by tile through devices.

The passes are those of the slab engine (`streamed_slabs.py`). Arrays that are not divided into
slabs are first redistributed on the host, and so are the results. So only the memory of the host
limits the size.

The algorithm is by Ravikumar, Appelhans and Yeung (SC 2019); their pencils are tiles here. With
streams instead of the pipeline it is GHOST's (Rosenberg et al., Atmosphere 11, 178 (2020)).
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from slipstream.engine.array_types import Array, Comm
from slipstream.engine.decomposition import Box, slabs, whole
from slipstream.engine.device import Device
from slipstream.engine.exchange import Transport, make_transport
from slipstream.engine.fft.device_exchange import DeviceExchanges, DeviceTargets, has_padding
from slipstream.engine.fft.fft_arguments import Arguments, Boxes, with_fields
from slipstream.engine.fft.fft_plan import Link, Plan
from slipstream.engine.fft.slab_engine import (
    SlabEngine,
    SlabExchange,
    record_columns,
    record_from_points,
    record_to_points,
)
from slipstream.engine.fft.slab_layout import (
    PlaneGeometry,
    SlabGeometry,
    chunk_geometry,
    pencil_geometry,
)
from slipstream.engine.fft.slab_tiles import SlabTiles, TileNeeds
from slipstream.engine.fft.streamed_slabs import OwnColumns, ResidentColumns, StreamedPasses
from slipstream.engine.fft.transform_parts import Modes, Part, Redistribution, split_scale
from slipstream.engine.outofcore.file_arrays import FileHome
from slipstream.engine.outofcore.memory_budget import Streaming
from slipstream.engine.outofcore.tile_slots import HostDeviceCopier, aligned
from slipstream.engine.schedule import StepGraph


class TransformTiles(SlabTiles):
    """The tiles of a transform: their number, and their memory."""

    key, what, _usual_chunks = "memory", "transform", 1

    def __init__(
        self,
        needs: TileNeeds,
        devices: Sequence[Device],
        home: Device,
        streaming: Streaming,
        by_device: DeviceExchanges | None,
        stays: bool,
    ) -> None:
        super().__init__(needs, None, devices, home, streaming)
        self._by_device, self._stays = by_device, stays

    def staying_tiles(self, count: int, left: int) -> int:
        return super().staying_tiles(count, left) if self._stays else 0

    def chunks(self, count: int) -> int:
        return 1 if self._by_device else super().chunks(count)

    def _bytes_beside(self, count: int, device: Device) -> int:
        buffers = self._by_device.device_bytes(count) if self._by_device else 0
        return super()._bytes_beside(count, device) + buffers


class TransformPasses(StreamedPasses):
    """The passes of one field after the other."""

    _adds_columns = False
    _place = 0
    by_device: dict[tuple[int, int, bool], DeviceTargets] | None = None

    def of_field(
        self,
        engine: SlabEngine,
        field: int,
        padded: bool,
        resident: Sequence[ResidentColumns],
        apart: Sequence[OwnColumns],
    ) -> TransformPasses:
        """Return the passes of a field in an engine's arrays, or in separate columns."""
        result = copy.copy(self)
        result._host, result._place = engine, field
        result.fields = replace(
            self.fields,
            engine=engine,
            first=field,
            resident=resident,
            by_device=self.by_device is not None,
            padded=padded,
            apart=[one.of_field(field) for one in apart],
        )
        return result

    def exchange(
        self, kx: int, fields: range, forward: bool, chunk: int = 0, chunks: int = 1
    ) -> SlabExchange:
        if self.by_device is not None:
            return SlabExchange(self.by_device[self._place, kx, forward], self._host.planes[kx])
        own = fields if self.fields.apart else range(self._place, self._place + 1)
        return super().exchange(kx, own, forward, chunk, chunks)


class StreamedPlan(Plan):
    """The parts of a transform of arrays on the host, on one rank. Collective.

    At most `limit` bytes are allocated on each device: `InputError` names the smallest sufficient
    limit.
    """

    def __init__(
        self,
        arguments: Arguments,
        devices: Sequence[Device],
        home: Device,
        comm: Comm,
        streaming: Streaming,
        limit: int,
    ) -> None:
        a = self.arguments = arguments
        self.devices, self._device, self.streaming = list(devices), home, streaming
        self.residency = "disk" if isinstance(home, FileHome) else "host"
        self.workers, rank = a.workers or a.ranks, 0 if comm is None else comm.rank
        # The rank that has all data, or None.
        alone = _find_only_rank(a.input_boxes)
        if alone is None or alone != _find_only_rank(a.output_boxes):
            alone = 0 if self.workers == 1 or len(a.shape) == 1 else None
        layout = _choose_layout(a, rank, alone, self.workers)
        of_user, ends = (a.input_boxes, a.output_boxes), (layout.points, layout.modes)
        moved = layout.exchanged(a)
        from_device = streaming.from_device and a.ranks > 1
        self.transport = from_host = make_transport(
            a.transport, comm, devices[0] if from_device else home
        )
        if from_device and any(moved):
            from_host = make_transport("auto", comm, home)
        transport = None if alone is not None else self.transport
        slab = self.slabs = StreamedSlabs(
            a, layout.geometry, layout.swapped, devices, home, comm, transport, streaming, limit
        )
        # Other layouts are redistributed in the memory of the slabs' exchange, if they fit there.
        memory: tuple[Array, Array] | None = None
        if from_host is not None and any(moved):
            need = max(
                aligned(a.fields * box.size * dtype.itemsize)
                for side, dtype in enumerate((a.dtype, a.complex_dtype))
                for box in (*of_user[side], *ends[side])
                if moved[side]
            )
            memory = None if from_device else slab.exchange_memory()
            if memory is None or need > min(array.nbytes for array in memory):
                memory = (
                    from_host.pack_buffer((need,), np.uint8),
                    from_host.empty((need,), np.uint8),
                )
        (points, user_points), (modes, user_modes) = (
            [with_fields(boxes[side], a.fields) for boxes in (ends, of_user)] for side in (0, 1)
        )
        parts: list[Link] = [(slab, modes[rank].shape, a.complex_dtype)]
        if moved[0]:
            into = Redistribution(home, from_host, user_points, points, rank, a.dtype, memory)
            parts.insert(0, (into, points[rank].shape, a.dtype))
        if moved[1]:
            out = Redistribution(home, from_host, modes, user_modes, rank, a.complex_dtype, memory)
            parts.append((out, user_modes[rank].shape, a.complex_dtype))
        # Points and modes of slabs share one memory, unless one rank exchanges nothing.
        self._connect(parts, 1 if transport else 2)

    @property
    def goes_both_ways(self) -> bool:
        """Whether copies in and out can overlap: not if all copies in precede those out."""
        return not self.slabs.all_stays or self.arguments.fields > 1

    @property
    def tiles(self) -> int:
        """The number of tiles of a field in a pass."""
        return self.slabs.passes.tiles

    @property
    def device_bytes(self) -> int:
        """Bytes allocated on each device."""
        return self.slabs.passes.device_bytes

    def describe_parts(self) -> list[str]:
        """Return a line for each part, and one for the devices, for users."""
        where = "on the device" if self.slabs.all_stays else "on the host"
        streaming = self.streaming
        return [
            *(part.describe() for part in self.parts),
            f"{self.device_bytes / 2**20:.4g} MiB of each of {len(self.devices)} devices; between "
            f"passes the array is {where}; {streaming.copies} copies, "
            + (f"{streaming.streams} streams" if streaming.streams else "pipelined"),
        ]

    def record_forward(self, graph: StepGraph, physical: Array, spectral: Array) -> None:
        super().record_forward(graph.on(self._device), physical, spectral)

    def record_backward(self, graph: StepGraph, spectral: Array, physical: Array) -> None:
        super().record_backward(graph.on(self._device), spectral, physical)


def _find_only_rank(boxes: Boxes) -> int | None:
    """Return the only rank with a nonempty box, or None."""
    filled = [rank for rank, box in enumerate(boxes) if box.size]
    return filled[0] if len(filled) == 1 else None


def _are_different(boxes: Boxes, boxes_there: Boxes) -> bool:
    return any(a != b and (a.size or b.size) for a, b in zip(boxes, boxes_there, strict=True))


@dataclass(frozen=True)
class _Layout:
    """The boxes of ranks while an array is transformed.

    `points` and `modes` are boxes of the array. If it is `swapped`, planes are normal to y.
    """

    geometry: PlaneGeometry
    points: Boxes
    modes: Boxes
    swapped: bool = False

    def exchanged(self, a: Arguments) -> list[bool]:
        """Return whether points, and modes, are not in the layout of the user's arrays."""
        return [
            _are_different(a.input_boxes, self.points),
            _are_different(a.output_boxes, self.modes),
        ]


def _choose_layout(a: Arguments, rank: int, alone: int | None, workers: int) -> _Layout:
    """Return the layout with the fewest exchanges; without any if rank `alone` has all data."""
    if alone is not None:
        boxes = [
            tuple(whole(shape if one == alone else (0,) * len(shape)) for one in range(a.ranks))
            for shape in (a.shape, a.spectral_shape)
        ]
        place = (0, 1, 1) if rank == alone else (1, 2, 1)
        return _Layout(_make_slab_geometry(a, *place), boxes[0], boxes[1])
    ways = [_make_layout_along(a, rank, workers, axis) for axis in range(min(2, len(a.shape) - 1))]
    # Of equal layouts, as on a device, the points stay in place.
    return min(ways, key=lambda way: (sum(way.exchanged(a)), way.exchanged(a)))


def _make_layout_along(a: Arguments, rank: int, workers: int, axis: int) -> _Layout:
    """Return the layout with planes normal to z or y, and columns along it.

    Columns are slabs, or in the user's layout of the modes.
    """
    points, modes = (
        slabs(shape, along, workers, a.ranks)
        for shape, along in ((a.shape, axis), (a.spectral_shape, 1 - axis))
    )
    idle = not any(box.size for box in a.output_boxes[workers:])
    if len(a.shape) == 3 and idle and _are_different(a.output_boxes, modes):
        boxes = [_swap_axes(box) for box in a.output_boxes] if axis else a.output_boxes
        pencils = pencil_geometry(*_order_axes(a, axis), rank, a.ranks, boxes, workers)
        if pencils:
            return _Layout(pencils, points, a.output_boxes, axis == 1)
    return _Layout(_make_slab_geometry(a, rank, a.ranks, workers, axis), points, modes, axis == 1)


def _swap_axes(box: Box) -> Box:
    (a, b, c), (d, e, f) = box.start, box.stop
    return Box((b, a, c), (e, d, f))


def _make_slab_geometry(
    a: Arguments, rank: int, ranks: int, workers: int, axis: int = 0
) -> PlaneGeometry:
    """Return the slabs of a rank, also for an array of one or two axes."""
    if len(a.shape) < 3:
        z, x = [Modes(1, 1, 0), *a.modes][-2:]
        return SlabGeometry.of_rows((z, x), rank, ranks, workers)
    # Rows of modes are not padded: they would be longer than the rows of the user's array.
    return chunk_geometry(*_order_axes(a, axis), rank, ranks, workers=workers)


def _order_axes(a: Arguments, axis: int) -> tuple[tuple[int, int, int], tuple[Modes, Modes, Modes]]:
    """Return the points and modes of three axes, first the axis normal to planes."""
    (z, y, x), (of_z, of_y, of_x) = a.shape, a.modes
    return ((y, z, x), (of_y, of_z, of_x)) if axis else ((z, y, x), (of_z, of_y, of_x))


class StreamedSlabs(Part):
    """The transform between planes and columns of one rank. Collective.

    Without a transport, one rank has all of the array. Planes are normal to z, or if `swapped` to
    y, and columns run along the same axis.
    """

    def __init__(
        self,
        a: Arguments,
        geometry: PlaneGeometry,
        swapped: bool,
        devices: Sequence[Device],
        home: Device,
        comm: Comm,
        transport: Transport | None,
        streaming: Streaming,
        limit: int,
    ) -> None:
        self._home, self._geometry, self._transport = home, geometry, transport
        self._fields, dtype, self._swapped = a.fields, a.complex_dtype, swapped
        self._shape = a.shape
        self._point_bytes = a.dtype.itemsize
        tables = len(streaming.lanes) * 64 * (sum(geometry.shape) + geometry.plane_points[1])
        if all(device.kind == "cpu" for device in devices):
            tables = 0
        needs = TileNeeds(
            geometry=geometry,
            dtype=dtype,
            inputs=1,
            products=1,
            spectral=1,
            reals=0,
            constants=tables,
            has_user_points=True,
            real=a.real,
            exchanges_on_device=transport is not None and streaming.from_device,
        )
        by_device = None
        if transport and streaming.from_device:
            together = streaming.tiles_per_exchange or 1
            by_device = DeviceExchanges(transport, geometry, dtype, together)
        self.by_device = by_device
        stays = transport is None and len(devices) == 1
        tiles = TransformTiles(needs, devices, home, streaming, by_device, stays)
        tiles.check(comm, limit)
        # Memory that tiles exchange, or receive in; a single rank may need none.
        self._engine = SlabEngine(
            home,
            geometry,
            a.fields if transport else 0,
            dtype,
            None if by_device else transport,
            store=True,
            works=False,
        )
        self._own: dict[bool, list[OwnColumns]] = {}
        passes = self.passes = TransformPasses(self._engine, tiles, comm, limit, 0)
        self.all_stays = passes.resident.tiles > 0
        self.all_stays &= passes.resident.ky == geometry.most_ky
        most = tiles.shape(passes.tiles).ky
        self._nothing = [
            ResidentColumns(kx_range.geometry, devices[0], 1, dtype, most, 0)
            for kx_range in geometry.ranges
        ]
        self.exchanges = int(transport is not None)
        self.wire_elements = a.fields * geometry.off_rank_elements if transport else 0
        if by_device:
            bus = HostDeviceCopier(devices[0], home, "memcpy2D")
            arrays = self._engine.planes, self._engine.columns
            passes.by_device = by_device.make(comm, passes.tiles, *arrays, bus)
        elif transport:
            # Making an exchange is collective; recording it later is not.
            for kx, field, forward, chunk in itertools.product(
                range(len(geometry.ranges)),
                range(a.fields),
                (True, False),
                range(passes.plane_chunks),
            ):
                part = range(field, field + 1)
                self._engine.exchange(kx, part, forward, chunk, passes.plane_chunks, whole=False)

    def exchange_memory(self) -> tuple[Array, Array] | None:
        """Return the memory of the exchange on the host, as bytes."""
        return self._engine.exchange_memory() if self._transport else None

    def describe(self) -> str:
        planes = self._geometry.physical_box.shape
        columns = [one.geometry.spectral_box.shape for one in self._geometry.ranges]
        largest = max(columns, key=math.prod)
        axes = ("x and z", "y") if self._swapped else ("x and y", "z")
        exchange = "then"
        if self._transport:
            where = "between devices" if self.by_device else "from host to host"
            size = self._engine.buffer_bytes / 2**20
            exchange = f"exchange {where} ({size:.4g} MiB of the host),"
        return (
            f"slabs in {self.passes.tiles} tiles: transforms along {axes[0]} of {planes}, "
            f"{exchange} along {axes[1]} of {largest}"
        )

    @property
    def bus_bytes(self) -> tuple[int, int]:
        """Bytes that cross the bus inward and outward in a forward transform, on this rank."""
        g, item = self._geometry, self.passes.fields.needs.dtype.itemsize
        points = g.planes * math.prod(g.plane_points) * self._point_bytes
        columns = modes = leaving = 0
        for part in (of_kx.geometry for of_kx in g.ranges):
            kz, ky, kx = part.spectral_box.shape
            modes += kz * ky * kx
            columns += g.shape[0] * (ky - self.passes.resident.ky) * kx
            leaving += g.planes * g.spectral_shape[1] * part.spectral_shape[2]
        if g.shape[0] == 1 and not self._transport:
            return self._fields * points, self._fields * modes * item
        if self.by_device or not self._transport:  # a device sends what it has received
            leaving = columns
        between = 0
        if not self.passes.fields.shape.has_whole_planes:
            # Rows of modes leave after one transform of a plane, and return for the other.
            between = g.planes * g.shape[1] * g.x_modes.count
        inward = points + (columns + between) * item
        return self._fields * inward, self._fields * (leaving + between + modes) * item

    def record_forward(
        self, graph: StepGraph, source: Array, target: Array, scale: float = 1.0
    ) -> None:
        """Record planes -> columns, times a constant; arrays (fields, ...) on the host."""
        self._record(graph, source, target, True, scale)

    def record_backward(
        self, graph: StepGraph, source: Array, target: Array, scale: float = 1.0
    ) -> None:
        """Record columns -> planes, times a constant."""
        self._record(graph, target, source, False, scale)

    def _record(
        self, graph: StepGraph, physical: Array, spectral: Array, forward: bool, scale: float
    ) -> None:
        graph = graph.on(self.passes.devices[0])
        points, modes = self._view_as_slabs(physical, spectral)
        passes, shares, skips = self._of_fields(physical, spectral, modes, forward)
        first, last = (1.0, scale) if forward or skips else split_scale(scale, self._shape)
        # The passes over planes and over columns, in order: field by field, or if arrays share
        # memory the first pass of all fields before the second.
        fields, of_planes = range(self._fields), (forward, not forward)
        order = [(field, planes) for field in fields for planes in of_planes]
        if shares:
            order = [(field, planes) for planes in of_planes for field in fields]
        for field, is_planes in order:
            tiles, part = passes[field], slice(field, field + 1)
            chunks = tiles.plane_chunks
            if is_planes and forward:
                record_from_points(graph, tiles, points[part], 1, chunks, last)
            elif is_planes:
                record_to_points(graph, tiles, points[part], 1, chunks, last)
            elif forward and not skips:
                record_columns(graph, tiles, forward=1, target=modes[part])
            elif not skips:
                record_columns(graph, tiles, modes[part], chunks=chunks, scale=first)

    def _view_as_slabs(self, physical: Array, spectral: Array) -> tuple[Array, Array]:
        """Return arrays as (fields, z, y, x) and (fields, kz, ky, kx), whatever axes they have."""
        if physical.ndim == 2:
            physical, spectral = physical[:, None], spectral[:, None]
        if physical.ndim == 3:
            physical, spectral = physical[:, :, None], spectral[..., None]
        if self._swapped:
            physical, spectral = physical.swapaxes(1, 2), spectral.swapaxes(1, 2)
        return physical, spectral

    def _of_fields(
        self, physical: Array, spectral: Array, modes: Array, forward: bool
    ) -> tuple[list[TransformPasses], bool, bool]:
        """Return the passes by field, whether arrays share memory, and whether z needs no pass."""
        fields, in_place = self._fields, np.may_share_memory(physical, spectral)
        padded, shares = has_padding(physical, spectral), fields > 1 and in_place
        engine, places, skips = self._engine, list(range(fields)), False
        apart: list[OwnColumns] = []
        holds = not shares and self._holds_columns(physical, spectral, modes, forward)
        if holds:
            engine, skips = engine.with_memory(modes), self._geometry.shape[0] == 1
        resident = self._nothing if shares or skips else self.passes.residents
        if self._transport is None and not holds:
            places = places if shares else [0] * fields
            if shares not in self._own:
                self._own[shares] = self.passes.own_columns(fields if shares else 1, resident)
            apart = self._own[shares]
        made = [self.passes.of_field(engine, n, padded, resident, apart) for n in places]
        return made, shares, skips

    def _holds_columns(self, physical: Array, spectral: Array, modes: Array, forward: bool) -> bool:
        """Return whether a single rank has its columns in the memory of the modes."""
        g = self._geometry
        columns = self._fields, *g.ranges[0].geometry.columns_shape
        if self._transport or modes.shape != columns or not modes.flags.c_contiguous:
            return False
        # Backward in place, planes of points overwrite planes of modes: if they are longer, they
        # would overwrite modes that have not been read yet.
        in_place = np.may_share_memory(physical, spectral)
        follows = in_place and physical.strides[1] <= spectral.strides[1]
        return forward or g.shape[0] == 1 or follows
