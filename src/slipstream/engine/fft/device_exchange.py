"""Exchanges of tiles from device to device, and the padded rows of these tiles."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from slipstream.engine.array_types import Array, Comm
from slipstream.engine.collective import on_every_rank
from slipstream.engine.decomposition import Box
from slipstream.engine.exchange import (
    ExchangePlan,
    PackTargets,
    Transport,
    Views,
    pack_targets,
    part_of,
)
from slipstream.engine.fft.slab_layout import KxRange, PlaneGeometry, SlabGeometry
from slipstream.engine.outofcore.tile_slots import HostDeviceCopier, Slot, aligned
from slipstream.engine.schedule import StepGraph

# The number of groups of tiles that are exchanged at the same time.
_AT_ONCE = 2


def padded_row(count: int) -> int:
    """Return the length of a row of `count` points in real numbers, in the memory of its modes."""
    return 2 * (count // 2 + 1)


def has_padding(points: Array, modes: Array) -> bool:
    """Return whether rows of points are padded, within the memory of the modes."""
    if points.dtype.kind != "f" or not points.size or not modes.flags.c_contiguous:
        return False
    row = padded_row(points.shape[-1])
    if points.strides[-2:] != (row * points.itemsize, points.itemsize):
        return False
    own, around = (byte_bounds(np.asarray(one)) for one in (points, modes))
    end = own[1] + (row - points.shape[-1]) * points.itemsize
    return around[0] <= own[0] and end <= around[1]


def placed_points(slot: Slot[Any], shape: tuple[int, ...], dtype: np.dtype, padded: bool) -> Array:
    """Return the view of a slot for some points, perhaps in padded rows."""
    *outer, nx = shape
    return slot.allocate((*outer, padded_row(nx) if padded else nx), dtype)[..., :nx]


def crossing(target: Any, source: Any, padded: bool) -> tuple[Any, Any]:
    """Return the views to copy of points, whose rows may be `padded`."""
    return (whole_rows(target), whole_rows(source)) if padded else (target, source)


def whole_rows(points: Any) -> Any:
    """Return an array of real points with the padding of its rows, on whichever device it is."""
    stored = (*points.shape[:-1], padded_row(points.shape[-1]))
    if isinstance(points, np.ndarray):
        return np.lib.stride_tricks.as_strided(points, stored, points.strides)
    import cupy

    return cupy.lib.stride_tricks.as_strided(points, stored, points.strides)


@dataclass(frozen=True)
class _Group:
    """Tiles that are exchanged together, up to plane or column `last` of this rank.

    `arrivals` are pairs of a place on the host and the data for it.
    """

    last: int
    targets: PackTargets
    arrivals: Sequence[tuple[Array, Array]]


class _Groups:
    """The groups of one field, by range of kx, in the order in which all ranks exchange them.

    Ranks have different numbers of tiles, or none of a range, and transports match exchanges by
    their order. Each tile of planes is written range by range, columns one whole range after the
    other.
    """

    def __init__(self, groups: Sequence[Sequence[_Group]], forward: bool) -> None:
        self._groups = groups
        places = [(kx, number) for kx, one in enumerate(groups) for number in range(len(one))]
        self._order = sorted(places, key=lambda group: group[::-1]) if forward else places
        # The number of complete groups of each range, and of exchanged groups of all ranges.
        self._complete, self._closed = [0] * len(groups), 0

    def of_range(self, kx: int) -> Sequence[_Group]:
        """Return the groups of a range."""
        return self._groups[kx]

    def begin(self, kx: int) -> None:
        """Begin with the first group of a range; all ranges begin before any of them is written."""
        self._complete[kx] = self._closed = 0

    def due(self, kx: int, last: int | None) -> Iterator[tuple[_Group, _Group | None]]:
        """Yield the groups to exchange when a range is written up to `last`, or completely.

        With each comes the group to open next.
        """
        groups = self._groups[kx]
        while self._complete[kx] < len(groups):
            if last is not None and groups[self._complete[kx]].last > last:
                break
            self._complete[kx] += 1
        while self._closed < len(self._order):
            of, number = self._order[self._closed]
            if number >= self._complete[of]:
                break
            self._closed += 1
            yield self._groups[of][number], next(iter(self._groups[of][number + 1 :]), None)


class DeviceTargets(PackTargets):
    """The targets of the blocks of a range of kx: buffers on the device, by group."""

    stores = closes_early = True

    def __init__(
        self, groups: _Groups, kx: int, bus: HostDeviceCopier, staging: Array | None
    ) -> None:
        super().__init__(groups.of_range(kx)[0].targets.plan, [])
        self._groups, self._kx, self._bus, self._label = groups, kx, bus, ""
        self._staging = staging

    def views(self, number: int, box: Box, peer: int | None = None) -> Views:
        groups = self._groups.of_range(self._kx)
        return [view for one in groups for view in one.targets.views(number, box, peer)]

    def record_open(self, graph: StepGraph, label: str) -> None:
        self._label = label
        self._groups.begin(self._kx)
        self._groups.of_range(self._kx)[0].targets.record_open(graph, label)

    def record_written(self, graph: StepGraph, last: int) -> None:
        self._record_due(graph, last)

    def record_close(self, graph: StepGraph, label: str) -> None:
        self._record_due(graph, None)

    def _record_due(self, graph: StepGraph, last: int | None) -> None:
        for group, following in self._groups.due(self._kx, last):
            group.targets.record_close(graph, self._label)
            for target, source in group.arrivals:
                self._bus.record(graph, target, source, False, "copy out", self._staging)
            if following:
                following.targets.record_open(graph, self._label)


class DeviceExchanges:
    """The exchanges of a transform between devices. Collective.

    `together` tiles of a field are exchanged together. `buffers` are memory to send from and to
    receive in, for each range of kx and each of the groups that are exchanged at the same time.
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
        """Return the bytes of buffers on a device if a field is cut into `tiles` tiles."""
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
        """Return the exchanges by field, range of kx and direction.

        Received data go to the working arrays on the host.
        """
        self.buffers = on_every_rank(comm, lambda: self._empty(tiles))
        staging = bus.staging(max(received for _, received in self._most(tiles)))
        result = {}
        for field, forward in itertools.product(range(len(planes[0])), (True, False)):
            groups = [
                [
                    self._group(
                        kx_range.geometry, last, plan, buffers[number % _AT_ONCE], arrays, forward
                    )
                    for number, (last, plan) in enumerate(self._plans(kx_range, forward, tiles))
                ]
                for kx_range, buffers, arrays in (
                    (kx_range, self.buffers[kx], (planes[kx][field], columns[kx][field]))
                    for kx, kx_range in enumerate(self._geometry.ranges)
                )
            ]
            in_order = _Groups(groups, forward)
            for kx in range(len(groups)):
                result[field, kx, forward] = DeviceTargets(in_order, kx, bus, staging)
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
        working: tuple[Array, Array],
        forward: bool,
    ) -> _Group:
        item, arriving = self._dtype.itemsize, sum(block.count for block in plan.receives)
        sent = buffers[0][: plan.send_size * item].view(self._dtype)
        received = buffers[1][: arriving * item].view(self._dtype)
        arrivals = []
        for block in plan.receives:
            if forward:
                target = working[1][block.box.slices(g.column_boxes[g.rank])]
            else:
                # A block of packed planes belongs to the rank that sends it.
                whole = g.plane_boxes[g.rank].intersect(g.column_boxes[block.peer])
                start, _ = g.packed_block(block.peer)
                packed = working[0][start : start + whole.size].reshape(whole.shape)
                target = packed[block.box.slices(whole)]
            arrivals.append((target, part_of(received, block).reshape(block.box.shape)))
        return _Group(last, pack_targets(self.transport, plan, [(sent, received)]), arrivals)

    def _plans(
        self, kx_range: KxRange, forward: bool, tiles: int
    ) -> Iterator[tuple[int, ExchangePlan]]:
        """Yield the end of each group of this rank, and its exchange."""
        g = kx_range.geometry
        ends, axis = (g.plane_boxes, g.column_boxes), 0 if forward else 1
        sources, targets = ends if forward else ends[::-1]
        for number in range(-(-tiles // self._together)):
            boxes = []
            for box in sources:
                length = box.shape[axis]
                step = max(1, -(-length // tiles)) * self._together
                low, high = (min(length, group * step) for group in (number, number + 1))
                start = box.start[axis]
                boxes.append(box.with_range(axis, start + low, start + high))
            last = boxes[g.rank].stop[axis] - sources[g.rank].start[axis]
            yield last, ExchangePlan.redistribution(boxes, targets, g.rank)

    def _most(self, tiles: int) -> list[tuple[int, int]]:
        """Return the most bytes that a group of each range sends or receives."""
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
