"""Transforms of arrays that stay on the host: tile by tile through devices.

The route is that of arrays on devices (`route`). What a rank transforms in one layout becomes one
or two passes over its array (`tiles`); each tile is copied to a device, transformed there, and
copied back (`workspace`), and while it is transformed the next is on its way in and the one before
on its way out. Tiles leave packed for the ranks that get them (`stores`), and are sent as soon as
enough of them have left. What does not fit on a device is thus no limit: the host's memory is.

The algorithm is that of Ravikumar, Appelhans and Yeung (SC 2019); with streams instead of the
pipeline it is GHOST's (Rosenberg et al., Atmosphere 11, 178 (2020)).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from slipstream.byte_sizes import bytes_text
from slipstream.collective import largest, on_every_rank
from slipstream.decomposition import Box
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.fft.device_buffers import Kind, TooLittleMemory, Workspace
from slipstream.fft.fft_arguments import Arguments
from slipstream.fft.host_device_copy import Bus
from slipstream.fft.layout_search import Stage, find_route, with_fields
from slipstream.fft.padded_rows import has_padding
from slipstream.fft.streaming_options import Streaming
from slipstream.fft.tile_exchanges import Exchanges
from slipstream.fft.tile_geometry import PassGeometry, passes_of, tile_counts
from slipstream.fft.tile_targets import ArrayStore
from slipstream.schedule import StepGraph


class StreamedPlan:
    """The passes of a transform on one rank, whose arrays are on the host. Collective.

    Parameters
    ----------
    arguments : Arguments
        What to transform.
    devices : sequence of Device
        Where tiles are transformed, in turn.
    home : Device
        The host, whose arrays all devices copy from and to.
    comm : mpi4py.MPI.Comm or None
        The ranks.
    transport : str
        How ranks exchange, from where `streaming` says.
    workers : int
        How many ranks transform.
    streaming : Streaming
        How.
    limit : int
        How many bytes may be allocated on each device.

    Attributes
    ----------
    devices : list of Device
        Where tiles are transformed.
    passes : list of PassGeometry
        What is done one after the other going forward.
    tiles : list of int
        Into how many tiles each pass cuts a field.
    transport : Transport or None
        How ranks exchange.
    workers : int
        How many ranks transform.
    is_alone : bool
        Whether there is nothing to overlap.

    Raises
    ------
    InputError
        If the limit is too low; the message names the smallest that would do.
    """

    is_alone = False

    def __init__(
        self,
        arguments: Arguments,
        devices: Sequence[Device],
        home: Device,
        comm: Any,
        transport: str,
        workers: int,
        streaming: Streaming,
        limit: int,
    ) -> None:
        self.arguments, self.devices, self._home = arguments, list(devices), home
        self.workers = workers
        self._rank, self.streaming = (comm.rank if comm is not None else 0), streaming
        a = arguments
        self._kind = Kind(a.modes, a.real, a.complex_dtype)
        route = find_route(
            (a.fields, *a.shape),
            a.modes,
            a.real,
            with_fields(a.input_boxes, a.fields),
            with_fields(a.output_boxes, a.fields),
            workers,
        )
        self.passes, self._exchanged = _passes(route, a)
        self._exchanges = Exchanges(
            a,
            self.passes,
            self._exchanged,
            self._rank,
            streaming,
            transport,
            comm,
            self.devices[0],
            home,
        )
        self.transport = self._exchanges.transport
        self._on_device: list[Any] = []
        self._workspaces, count = self._fitting(comm, limit)
        self.tiles = self._cut(count)
        self._exchanges.provide(self.tiles)
        # The way back is made when it is first taken, which all ranks do together.
        self._exchanges.stores(forward=True)
        self._turn = 0
        self._own: dict[int | str, Any] = {}

    # -- memory ------------------------------------------------------------------------------

    def _fitting(self, comm: Any, limit: int) -> tuple[list[Workspace], int]:
        """Return workspaces within the limit, and the number of tiles. Collective."""
        reserve = self._field_bytes() if not any(self._exchanged) and len(self.passes) > 1 else 0
        reserve = reserve if len(self.devices) == 1 else 0
        counts = list(self._counts())
        # An array that stays on the device is not worth tiles that are many times smaller.
        larger = [count for count in counts if count <= 4 * counts[0]]
        for kept, tried in ((reserve, larger if reserve else []), (0, counts)):
            for count in tried:
                made = self._tried(comm, count, limit - kept)
                if made is not None:
                    if kept:
                        self._on_device = [on_every_rank(comm, self._field_on_device)]
                    return made, count
        smallest = largest(comm, self._smallest(counts[-1]))
        raise InputError(
            f"memory {bytes_text(limit)} on each device is too little for this transform; it "
            f"takes at least {math.ceil(smallest / 2**20)} MiB"
        )

    def _field_on_device(self) -> Any:
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

    def _tried(self, comm: Any, count: int, limit: int) -> list[Workspace] | None:
        """Return workspaces for so many tiles if they fit on all ranks. Collective."""
        made, problem = None, ""
        try:
            left = limit - self._exchanges.device_bytes(self._cut(count))
            made = self._workspaces_of(count, left)
        except TooLittleMemory:
            pass
        except InputError as error:  # the device has less than it said
            problem = str(error)
        outcomes = [(made is not None, problem)]
        if comm is not None:
            outcomes = comm.allgather(outcomes[0])
        for rank, (_, said) in enumerate(outcomes):
            if said:
                raise InputError(said if said == problem else f"rank {rank}: {said}")
        return made if all(fits for fits, _ in outcomes) else None

    def _smallest(self, count: int) -> int:
        """Return how many bytes of each device the smallest tiles need."""
        largest_one = max((one.bytes for one in self._workspaces_of(count, 1 << 62)), default=0)
        return largest_one + self._exchanges.device_bytes(self._cut(count))

    def _cut(self, count: int) -> list[int]:
        """Return into how many tiles passes cut a field where the finest cuts it into so many."""
        return [min(count, max(1, one.longest_cut)) for one in self.passes]

    def _workspaces_of(self, count: int, limit: int) -> list[Workspace]:
        kinds = {
            (before.shape, one.axes): None
            for one, tiles in zip(self.passes, self._cut(count), strict=True)
            if one.axes
            for field in range(self.arguments.fields)
            for before, _ in one.tiles(self._rank, field, tiles)
            if before.size
        }
        return [
            Workspace(
                device,
                Bus(device, self._home, self.streaming.copies),
                self._kind,
                list(kinds),
                self.streaming.streams,
                limit,
            )
            for device in self.devices
        ]

    @property
    def device_bytes(self) -> int:
        """Bytes allocated on each device."""
        resident = sum(array.nbytes for array in self._on_device)
        resident += self._exchanges.device_bytes(self.tiles)
        return max((one.bytes for one in self._workspaces), default=0) + resident

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

    def record_forward(self, graph: StepGraph, physical: Any, spectral: Any) -> None:
        """Record physical -> spectral; arrays (fields, ...) on the host."""
        self._record(graph, physical, spectral, True)

    def record_backward(self, graph: StepGraph, spectral: Any, physical: Any) -> None:
        """Record spectral -> physical, normalised."""
        self._record(graph, physical, spectral, False)

    def _record(self, graph: StepGraph, physical: Any, spectral: Any, forward: bool) -> None:
        source, target = (physical, spectral) if forward else (spectral, physical)
        if self.arguments.fields > 1 and np.may_share_memory(source, target):
            # The result of a field would lie where others have not been read yet.
            name = "spectral" if forward else "physical"
            if name not in self._own:
                self._own[name] = self._home.empty(target.shape, target.dtype)
            own = self._own[name]
            self._record(graph, *((physical, own) if forward else (own, spectral)), forward)
            graph.add(
                self._home.copy(target, own),
                reads=[own],
                writes=[target],
                label="move",
                category="pack",
                device=self._home,
            )
            return
        stores = self._stores(physical, spectral, forward)
        order = list(enumerate(self.passes))
        for field in range(self.arguments.fields):
            scale = 1.0 / math.prod(self.arguments.shape)
            for number, geometry in order if forward else order[::-1]:
                ends = stores[number], stores[number + 1]
                source, target = ends if forward else ends[::-1]
                for place, tile in enumerate(geometry.tiles(self._rank, field, self.tiles[number])):
                    target.record_before(graph, field, place)
                    self._record_tile(graph, geometry, tile, source, target, forward, scale)
                    target.record_written(graph, field, place)
                scale = 1.0 if geometry.axes else scale

    def _record_tile(self, graph, geometry, tile, source, target, forward, scale) -> None:
        if not geometry.axes:
            self._record_move(graph, tile[0], source, target)
        elif tile[0].size:
            workspace = self._workspaces[self._turn]
            self._turn = (self._turn + 1) % len(self._workspaces)
            workspace.record(graph, geometry, tile, source, target, forward, scale)

    def _record_move(self, graph: StepGraph, box: Box, source: Any, target: Any) -> None:
        """Record that a box goes from one store to the next, on the host."""
        for part, view in source.read_views(box):
            for inner, place in target.write_views(part):
                values = view[inner.slices(part)]
                graph.add(
                    self._home.copy(place, values),
                    reads=[values],
                    writes=[place],
                    label="move",
                    category="pack",
                    device=self._home,
                )

    def _stores(self, physical: Any, spectral: Any, forward: bool) -> list[Any]:
        """Return where each pass finds, and leaves, its tiles."""
        padded = has_padding(physical, spectral)
        box = self.passes[0].before[self._rank]
        stores: list[Any] = [ArrayStore(box, physical, padded=padded)]
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

    def _array_between(self, number: int, physical, spectral, forward: bool) -> Any:
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


def _passes(route: Sequence[Stage], arguments: Arguments) -> tuple[list[PassGeometry], list[bool]]:
    """Return all passes, and whether there is an exchange behind each but the last."""
    passes: list[PassGeometry] = []
    exchanged: list[bool] = []
    for stage in route:
        own = passes_of(stage, arguments.modes)
        if passes:
            exchanged.append(True)
        exchanged += [False] * (len(own) - 1)
        passes += own
    return passes, exchanged
