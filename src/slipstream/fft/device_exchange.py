"""Exchanges of tiles from device to device, for arrays on the host.

Some tiles leave for buffers on the device, which are exchanged there as soon as these tiles are
complete; what has arrived is copied to the host. Such groups are tiles that follow each other:
planes on the way forward, columns on the way back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.array_types import Array, Comm
from slipstream.collective import on_every_rank
from slipstream.decomposition import Box
from slipstream.exchange import ExchangePlan, PackTargets, Transport, Views, pack_targets, part_of
from slipstream.fft.slab_layout import KxRange, PlaneGeometry, SlabGeometry
from slipstream.outofcore.host_device_copy import HostDeviceCopier
from slipstream.outofcore.tile_slots import aligned
from slipstream.schedule import StepGraph

# Groups of tiles that are exchanged at the same time.
_AT_ONCE = 2


@dataclass(frozen=True)
class _Group:
    """Tiles that are exchanged together, up to plane or column `last` of this rank.

    `arrivals` are pairs of a place on the host and what belongs there.
    """

    last: int
    targets: PackTargets
    arrivals: Sequence[tuple[Array, Array]]


class DeviceTargets(PackTargets):
    """Where a pass leaves the blocks of a field: in buffers on the device, group after group."""

    stores = True

    def __init__(self, groups: Sequence[_Group], bus: HostDeviceCopier) -> None:
        super().__init__(groups[0].targets.plan, [])
        self._groups, self._bus = groups, bus
        self._closed, self._label = 0, ""

    def views(self, number: int, box: Box, peer: int | None = None) -> Views:
        return [view for one in self._groups for view in one.targets.views(number, box, peer)]

    def record_open(self, graph: StepGraph, label: str) -> None:
        self._closed, self._label = 0, label
        self._groups[0].targets.record_open(graph, label)

    def record_written(self, graph: StepGraph, last: int) -> None:
        while self._closed < len(self._groups) and self._groups[self._closed].last <= last:
            self._record_group(graph)

    def record_close(self, graph: StepGraph, label: str) -> None:
        while self._closed < len(self._groups):  # a rank may have fewer tiles than others
            self._record_group(graph)

    def _record_group(self, graph: StepGraph) -> None:
        group = self._groups[self._closed]
        group.targets.record_close(graph, self._label)
        for target, source in group.arrivals:
            self._bus.record(graph, target, source, False, "copy out", None)
        self._closed += 1
        if self._closed < len(self._groups):
            self._groups[self._closed].targets.record_open(graph, self._label)


class DeviceExchanges:
    """The exchanges of a transform between devices. Collective.

    `together` tiles of a field are exchanged together. `buffers` are those of the groups that are
    exchanged at the same time, for each range of kx: memory to send from, and to receive in.
    """

    def __init__(
        self,
        transport: Transport,
        geometry: PlaneGeometry,
        dtype: np.dtype,
        together: int,
    ) -> None:
        self.transport, self._geometry, self._dtype = transport, geometry, dtype
        self._together = together
        self.buffers: list[list[tuple[Array, Array]]] = []
        self._sizes: dict[int, list[tuple[int, int]]] = {}

    def device_bytes(self, tiles: int) -> int:
        """Return the bytes of a device that buffers take if a field is cut into `tiles` tiles."""
        transport = self.transport
        return _AT_ONCE * sum(
            transport.pack_buffer_bytes(sent) + transport.allocated_bytes(received)
            for sent, received in self._most(tiles)
        )

    def make(
        self,
        comm: Comm,
        tiles: int,
        planes: Sequence[Array],
        columns: Sequence[Array],
        bus: HostDeviceCopier,
    ) -> dict[tuple[int, int, bool], DeviceTargets]:
        """Return the exchanges by field, range of kx and whether they go forward.

        What arrives goes to the working arrays on the host.
        """
        self.buffers = on_every_rank(comm, lambda: self._empty(tiles))
        result = {}
        for kx, one in enumerate(self._geometry.ranges):
            for field in range(len(planes[kx])):
                own = planes[kx][field], columns[kx][field]
                for forward in (True, False):
                    groups = [
                        self._group(
                            one.geometry,
                            last,
                            plan,
                            self.buffers[kx][number % _AT_ONCE],
                            own,
                            forward,
                        )
                        for number, (last, plan) in enumerate(self._plans(one, forward, tiles))
                    ]
                    result[field, kx, forward] = DeviceTargets(groups, bus)
        return result

    def _empty(self, tiles: int) -> list[list[tuple[Array, Array]]]:
        """Return memory in which some groups of each range are sent and received."""
        transport = self.transport
        return [
            [
                (transport.pack_buffer((sent,), np.uint8), transport.empty((received,), np.uint8))
                for _ in range(_AT_ONCE)
            ]
            for sent, received in self._most(tiles)
        ]

    def _group(
        self,
        g: SlabGeometry,
        last: int,
        plan: ExchangePlan,
        buffers: tuple[Array, Array],
        own: tuple[Array, Array],
        forward: bool,
    ) -> _Group:
        item, arriving = self._dtype.itemsize, sum(block.count for block in plan.receives)
        sent = buffers[0][: plan.send_size * item].view(self._dtype)
        received = buffers[1][: arriving * item].view(self._dtype)
        arrivals = []
        for block in plan.receives:
            if forward:
                target = own[1][block.box.slices(g.column_boxes[g.rank])]
            else:
                # A block of packed planes belongs to the rank that sends it.
                whole = g.plane_boxes[g.rank].intersect(g.column_boxes[block.peer])
                start, _ = g.packed_blocks()[block.peer]
                packed = own[0][start : start + whole.size].reshape(whole.shape)
                target = packed[block.box.slices(whole)]
            arrivals.append((target, part_of(received, block).reshape(block.box.shape)))
        return _Group(last, pack_targets(self.transport, plan, [(sent, received)]), arrivals)

    def _plans(self, one: KxRange, forward: bool, tiles: int) -> Iterator[tuple[int, ExchangePlan]]:
        """Yield where each group of this rank ends, and its exchange."""
        g = one.geometry
        ends, axis = (g.plane_boxes, g.column_boxes), 0 if forward else 1
        sources, targets = ends if forward else ends[::-1]
        for number in range(-(-tiles // self._together)):
            boxes = []
            for box in sources:
                length = box.shape[axis]
                step = max(1, -(-length // tiles)) * self._together
                low, high = (min(length, place * step) for place in (number, number + 1))
                start = box.start[axis]
                boxes.append(box.with_range(axis, start + low, start + high))
            last = boxes[g.rank].stop[axis] - sources[g.rank].start[axis]
            yield last, ExchangePlan.redistribution(boxes, targets, g.rank)

    def _most(self, tiles: int) -> list[tuple[int, int]]:
        """Return the bytes that a group of each range sends and receives at most, either way."""
        if tiles not in self._sizes:
            self._sizes[tiles] = []
            for one in self._geometry.ranges:
                plans = [plan for way in (True, False) for _, plan in self._plans(one, way, tiles)]
                most = (
                    max(plan.send_size for plan in plans),
                    max(sum(block.count for block in plan.receives) for plan in plans),
                )
                sent, received = (aligned(count * self._dtype.itemsize) for count in most)
                self._sizes[tiles].append((sent, received))
        return self._sizes[tiles]
