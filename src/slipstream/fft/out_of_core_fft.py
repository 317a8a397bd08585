"""Transforms of arrays that stay on the host: tile by tile through devices.

The route is that of arrays on devices (`layout_search`). What a rank transforms in one layout
becomes one or two passes over its array; each tile is copied to a device, transformed there, and
copied back (`slipstream.outofcore`), and while it is transformed the next is on its way in and the
one before on its way out. Tiles leave packed for the ranks that get them, and are sent as soon as
enough of them have left. What does not fit on a device is thus no limit: the host's memory is.

The algorithm is that of Ravikumar, Appelhans and Yeung (SC 2019), who say pencils; with streams
instead of the pipeline it is GHOST's (Rosenberg et al., Atmosphere 11, 178 (2020)).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from slipstream.array_types import Array, Comm
from slipstream.collective import largest, on_every_rank
from slipstream.decomposition import Box
from slipstream.device import Device
from slipstream.fft.fft_arguments import Arguments
from slipstream.fft.fft_plan import slab_stages
from slipstream.fft.layout_search import Stage
from slipstream.fft.padded_rows import has_padding, whole_rows
from slipstream.fft.tile_exchanges import Exchanges
from slipstream.fft.tile_transforms import Tile, TileShapes, TileTransforms
from slipstream.fft.truncation import Modes
from slipstream.outofcore.memory_budget import NO_LIMIT, fewest_tiles, too_little
from slipstream.outofcore.streaming_options import Streaming
from slipstream.outofcore.tile_slots import TileDevice, TileSlots
from slipstream.outofcore.tile_stores import ArrayStore, Store
from slipstream.outofcore.tiles import TiledPass, tile_counts
from slipstream.schedule import StepGraph


class StreamedPlan:
    """The passes of a transform on one rank, whose arrays are on the host. Collective.

    Each pass cuts a field into tiles and transforms them on the devices in turn. At most `limit`
    bytes are allocated on each device: `InputError` names the smallest limit that would do.
    """

    # Whether there is nothing to overlap.
    is_alone = False

    def __init__(
        self,
        arguments: Arguments,
        devices: Sequence[Device],
        home: Device,
        comm: Comm,
        streaming: Streaming,
        limit: int,
    ) -> None:
        self.arguments, self.devices, self._home = arguments, list(devices), home
        self.workers = arguments.workers or arguments.ranks
        self._rank, self.streaming = (comm.rank if comm is not None else 0), streaming
        a = arguments
        self._shapes = TileShapes(a.modes, a.real, a.complex_dtype)
        route = a.route(self.workers)
        self.passes, self._exchanged = _passes(route, a)
        # As on a device: transforms of slabs normalise points, others the modes they begin with.
        self._scales_points = any(slab_stages(a, route, n) for n in range(len(route)))
        self._exchanges = Exchanges(
            a,
            self.passes,
            self._exchanged,
            self._rank,
            streaming,
            comm,
            self.devices[0],
            home,
        )
        self.transport = self._exchanges.transport
        self._on_device: list[Array] = []
        self._slots, count = self._fitting(comm, limit)
        self.tiles = self._cut(count)
        self._exchanges.provide(self.tiles)
        # The way back is made when it is first taken, which all ranks do together.
        self._exchanges.stores(forward=True)
        self._own: dict[int | str, Array] = {}

    # -- memory ------------------------------------------------------------------------------

    def _fitting(self, comm: Comm, limit: int) -> tuple[TileSlots[TileTransforms], int]:
        """Return devices within the limit, and the number of tiles. Collective."""
        reserve = self._field_bytes() if not any(self._exchanged) and len(self.passes) > 1 else 0
        reserve = reserve if len(self.devices) == 1 else 0
        counts = list(self._counts())
        if reserve:
            # An array that stays on the device is not worth tiles that are many times smaller.
            larger = [count for count in counts if count <= 4 * counts[0]]
            found = fewest_tiles(comm, larger, limit - reserve, self._bytes, self._made)
            if found:
                self._on_device = [on_every_rank(comm, self._field_on_device)]
                return found
        found = fewest_tiles(comm, counts, limit, self._bytes, self._made)
        if found:
            return found
        smallest = largest(comm, on_every_rank(comm, lambda: self._needed(counts[-1])))
        raise too_little("memory", limit, "transform", smallest)

    def _field_on_device(self) -> Array:
        shape = self.passes[0].after[self._rank].shape[1:]
        return self.devices[0].empty(shape, self.arguments.complex_dtype)

    def _field_bytes(self) -> int:
        """Return the bytes of the largest part of a field that any rank has between two passes."""
        size = max(box.size for box in self.passes[0].after) // self.arguments.fields
        return size * self.arguments.complex_dtype.itemsize

    def _counts(self) -> Iterator[int]:
        """Yield numbers of tiles to try, larger ones when smaller ones do not fit."""
        longest = max(one.longest_cut for one in self.passes)
        largest_box = max(box.size for one in self.passes for box in one.before)
        size = largest_box // max(1, self.arguments.fields) * self.arguments.complex_dtype.itemsize
        return tile_counts(size, longest, self.streaming.tiles)

    def _needed(self, count: int) -> int:
        """Return how many bytes of each device `count` tiles need."""
        if all(device.kind == "cpu" for device in self.devices):
            return self._bytes(count)
        made = self._made(count, NO_LIMIT)
        return made.bytes + self._exchanges.device_bytes(self._cut(count))

    def _bytes(self, count: int) -> int:
        """Return the same without a library's work area, which does not exist on CPUs."""
        tiles, shapes, streaming = self._tiles(count), self._shapes, self.streaming
        buffers = streaming.slots * sum(shapes.buffer_sizes(tiles))
        spare = len(streaming.lanes) * shapes.spare_bytes(tiles)
        return buffers + spare + self._exchanges.device_bytes(self._cut(count))

    def _tiles(self, count: int) -> list[Tile]:
        """Return the different kinds of tiles if a field is cut into `count` tiles."""
        return [
            (shape, one.axes)
            for one, tiles in zip(self.passes, self._cut(count), strict=True)
            if one.axes
            for shape in one.tile_shapes(self._rank, tiles)
        ]

    def _cut(self, count: int) -> list[int]:
        """Return the number of tiles of each pass if the pass with the most has `count`."""
        return [min(count, max(1, one.longest_cut)) for one in self.passes]

    def _made(self, count: int, limit: int) -> TileSlots[TileTransforms]:
        """Return devices for `count` tiles, or raise `TooLittleMemory`."""
        different, shapes, streaming = self._tiles(count), self._shapes, self.streaming
        return TileSlots(
            [
                TileDevice(
                    device,
                    self._home,
                    streaming,
                    shapes.buffer_sizes(different),
                    partial(TileTransforms, device, shapes, different),
                    len(streaming.lanes) * shapes.spare_bytes(different),
                    limit - self._exchanges.device_bytes(self._cut(count)),
                )
                for device in self.devices
            ]
        )

    @property
    def device_bytes(self) -> int:
        """Bytes allocated on each device."""
        resident = sum(array.nbytes for array in self._on_device)
        return self._slots.bytes + self._exchanges.device_bytes(self.tiles) + resident

    # -- recording ---------------------------------------------------------------------------

    @property
    def exchanges(self) -> int:
        """How often the array is redistributed on the way."""
        return sum(self._exchanged)

    @property
    def wire_bytes(self) -> int:
        """Bytes that leave this rank in one transform."""
        return sum(one.bytes for one in self._exchanges.stores(True) if one)

    @property
    def bus_bytes(self) -> tuple[int, int]:
        """Bytes that cross the bus inward and outward in a forward transform, on this rank."""
        inward = outward = 0
        for number, one in enumerate(self.passes):
            if not one.axes:
                continue
            itemsize = self._exchanges.dtype(number - 1).itemsize
            # Between two passes the array may stay on the device.
            if number == 0 or not self._on_device:
                inward += one.before[self._rank].size * itemsize
            if number > 0 or not self._on_device:
                # From a device goes what arrives there, not what is sent.
                arrives = number + 1 < len(self.passes) and self._exchanges.leaves_device(
                    number, True
                )
                box = (self.passes[number + 1].before if arrives else one.after)[self._rank]
                outward += box.size * self.arguments.complex_dtype.itemsize
        return inward, outward

    @property
    def goes_both_ways(self) -> bool:
        """Whether copies in and out can go at once: not if all has to be in before any is out."""
        return not self._on_device or self.arguments.fields > 1

    def describe_parts(self) -> list[str]:
        """Return a line for each pass, for people."""
        lines = []
        for number, (one, tiles) in enumerate(zip(self.passes, self.tiles, strict=True)):
            axes = ", ".join(str(axis - 1) for axis in one.axes)
            what = f"along axes {axes}, " if one.axes else "no transform, "
            shape = one.before[self._rank].shape
            lines.append(f"pass {number + 1}: {what}{tiles} tiles of {shape}")
        exchanged = sum(one.allocated for one in self._exchanges.stores(True) if one)
        if exchanged:
            where = "between devices" if self._exchanges.from_device else "from host to host"
            lines.append(
                f"exchanges {where}, for which {exchanged / 2**20:.4g} MiB of the host are taken, "
                "each way"
            )
        where = "on the device" if self._on_device else "on the host"
        lines.append(
            f"{self.device_bytes / 2**20:.4g} MiB of each of {len(self.devices)} devices; between "
            f"passes the array is {where}; {self.streaming.copies} copies, "
            + (f"{self.streaming.streams} streams" if self.streaming.streams else "pipelined")
        )
        return lines

    def record_forward(self, graph: StepGraph, physical: Array, spectral: Array) -> None:
        """Record physical -> spectral; arrays (fields, ...) on the host."""
        self._record(graph, physical, spectral, True)
        factor = self.arguments.factors[0]
        if factor != 1.0 and spectral.size:
            scaled, both = self._home.scale(spectral, factor), [spectral]
            graph.add(
                scaled,
                reads=both,
                writes=both,
                label="scale",
                category="compute",
                device=self._home,
            )

    def record_backward(self, graph: StepGraph, spectral: Array, physical: Array) -> None:
        """Record spectral -> physical, normalised."""
        self._record(graph, physical, spectral, False)

    def _record(self, graph: StepGraph, physical: Array, spectral: Array, forward: bool) -> None:
        first, last = (physical, spectral) if forward else (spectral, physical)
        if self.arguments.fields > 1 and np.may_share_memory(first, last):
            # The result of a field would lie where others have not been read yet.
            name = "spectral" if forward else "physical"
            if name not in self._own:
                self._own[name] = self._home.empty(last.shape, last.dtype)
            own = self._own[name]
            self._record(graph, *((physical, own) if forward else (own, spectral)), forward)
            self._record_copy(graph, last, own)
            return
        padded = has_padding(physical, spectral)
        stores = self._stores(physical, spectral, forward, padded)
        order = list(enumerate(self.passes))
        transforming = [number for number, one in order if one.axes]
        scaling = transforming[0 if self._scales_points else -1]
        for field in range(self.arguments.fields):
            for number, one in order if forward else order[::-1]:
                ends = stores[number], stores[number + 1]
                source, target = ends if forward else ends[::-1]
                is_padded = padded and number == 0
                for place, tile in enumerate(one.tiles(self._rank, field, self.tiles[number])):
                    target.record_before(graph, field, place)
                    if not one.axes:
                        self._record_move(graph, tile[0], source, target)
                    elif tile[0].size:
                        scale = self.arguments.factors[1] if number == scaling else 1.0
                        self._record_tile(
                            graph, one.axes, tile, source, target, is_padded, forward, scale
                        )
                    target.record_written(graph, field, place)

    def _record_tile(
        self,
        graph: StepGraph,
        axes: tuple[int, ...],
        tile: tuple[Box, Box],
        source: Store,
        target: Store,
        padded: bool,
        forward: bool,
        scale: float,
    ) -> None:
        """Record that a tile, before and after transforms, is copied in, transformed, stored."""
        slot = self._slots.next_slot()
        arrays = slot.worker.arrays(slot, tile[0].shape, axes, padded)
        first, last = (0, -1) if forward else (-1, 0)
        slot.record_load(graph, arrays[first], tile[first], source)
        slot.worker.record(graph, arrays, axes, forward, scale, self._scales_points)
        slot.record_store(graph, arrays[last], tile[last], target)

    def _record_move(self, graph: StepGraph, box: Box, source: Store, target: Store) -> None:
        """Record that a box goes from one store to the next, on the host."""
        for part, view in source.read_views(box):
            for inner, place in target.write_views(part):
                self._record_copy(graph, place, view[inner.slices(part)])

    def _record_copy(self, graph: StepGraph, target: Array, source: Array) -> None:
        graph.add_copy(target, source, label="move", device=self._home)

    def _stores(self, physical: Array, spectral: Array, forward: bool, padded: bool) -> list[Store]:
        """Return where each pass finds, and leaves, its tiles."""
        box = self.passes[0].before[self._rank]
        stores: list[Store] = [ArrayStore(box, physical, whole_rows=whole_rows if padded else None)]
        for number, exchange in enumerate(self._exchanges.stores(forward)):
            box = self.passes[number].after[self._rank]
            if exchange:
                stores.append(exchange)
            elif self._on_device:
                stores.append(ArrayStore(box, self._on_device[0], stays=True))
            else:
                stores.append(
                    ArrayStore(box, self._array_between(number, physical, spectral, forward))
                )
        return [*stores, ArrayStore(self.passes[-1].after[self._rank], spectral)]

    def _array_between(self, number: int, physical: Array, spectral: Array, forward: bool) -> Array:
        """Return the array on the host that two passes share: the result's memory, if it fits."""
        shape = self.passes[number].after[self._rank].shape
        is_last = number + 2 == len(self.passes)
        # Going back in place, planes of points follow those of modes through the memory of both:
        # where they are longer, they would run into modes that have not been read yet.
        may_write = forward or (
            np.may_share_memory(physical, spectral) and physical.strides[1] <= spectral.strides[1]
        )
        if is_last and may_write and spectral.shape == shape:
            return spectral
        if number not in self._own:
            self._own[number] = self._home.empty(shape, self._exchanges.dtype(number))
        return self._own[number]


def _passes(route: Sequence[Stage], arguments: Arguments) -> tuple[list[TiledPass], list[bool]]:
    """Return all passes, and whether there is an exchange behind each but the last."""
    passes: list[TiledPass] = []
    exchanged: list[bool] = []
    for stage in route:
        own = passes_of(stage, arguments.modes)
        if passes:
            exchanged.append(True)
        exchanged += [False] * (len(own) - 1)
        passes += own
    return passes, exchanged


def passes_of(stage: Stage, modes: Sequence[Modes]) -> list[TiledPass]:
    """Divide the transforms of a stage into passes, each of which leaves an axis to cut along."""
    last = len(modes)
    free = [axis for axis in range(1, last + 1) if axis not in stage.axes]
    if free or last == 1:
        cut = free[0] if free and stage.axes else 0
        return [TiledPass(stage.before, stage.after, stage.axes, cut)]
    # The slowest axis is left for a pass of its own, which is cut along the next one.
    first, second = stage.axes[:-1], stage.axes[-1:]
    between = tuple(_transformed(box, first, modes) for box in stage.before)
    return [
        TiledPass(stage.before, between, first, second[0]),
        TiledPass(between, stage.after, second, first[-1]),
    ]


def _transformed(box: Box, axes: Sequence[int], modes: Sequence[Modes]) -> Box:
    if not box.size:
        return box
    stop = list(box.stop)
    for axis in axes:
        stop[axis] = box.start[axis] + modes[axis - 1].count
    return Box(box.start, tuple(stop))
