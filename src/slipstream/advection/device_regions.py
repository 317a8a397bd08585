"""Regions: the points of a rank that one device advances, and the memory that holds them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.advection.stencil import Stencil
from slipstream.array_types import Array
from slipstream.decomposition import Box, PaddedBox, split
from slipstream.device import Device
from slipstream.exchange import copy_boxes
from slipstream.schedule import StepGraph

# Rows start at multiples of so many bytes at least, for vectors and cache lines.
_LINE = 64
# Points that a CPU advances in a few milliseconds, and rows that pass through all planes together.
_CHUNK, _ROWS = 1 << 22, 32
# Arrays that take turns; units of alignment before the first row of each, and after the last, which
# vector loads may reach; bytes of a step's list of work per row: six 64-bit numbers for eight rows.
_ARRAYS, _SPARE, _WORK = 2, 4, 6


@dataclass(frozen=True)
class Region:
    """The points that one device advances."""

    layout: PaddedBox  # where they lie in memory; axes without a halo are periodic in place
    boxes: tuple[Box, ...]  # all of the layout's box, or what another device leaves of it
    core: Box  # points that no other rank or device reads, so that they can be advanced last

    def outer(self) -> list[Box]:
        """Return the points to advance first."""
        return [edge for box in self.boxes for edge in box.without(self.core)]

    def inner(self) -> list[Box]:
        """Return the other points."""
        return [inner for box in self.boxes if (inner := box.intersect(self.core)).size]

    def copied(self) -> tuple[list[Box], list[Box]]:
        """Return which points of a GPU's block its shell reads, and which of the shell it reads."""
        box = self.layout.box
        return box.without(self.core), box.grown(self.layout.halo).without(box)

    def bytes(self, dtype: np.dtype) -> int:
        """Return the memory of its arrays, and of what advances them."""
        shape = self.layout.shape
        elements = math.prod(shape) + 2 * _SPARE * self.layout.alignment
        return _ARRAYS * (elements * dtype.itemsize + _WORK * math.prod(shape[:2]))


def padded(device: Device, box: Box, halo: Sequence[int], dtype: Any) -> PaddedBox:
    """Return the layout of a box, its rows aligned as the device prefers."""
    unit = max(_LINE, device.row_bytes) // np.dtype(dtype).itemsize
    z, y, x = halo
    return PaddedBox(box, (z, y, x), unit)


class DeviceRegion:
    """A region on its device, with two arrays that take turns.

    ``empty(shape, dtype)`` allocates memory that the device and the halo exchange can access.
    """

    def __init__(
        self,
        device: Device,
        region: Region,
        dtype: Any,
        courant: Sequence[float],
        empty: Callable[[tuple[int, ...], Any], Array],
    ) -> None:
        self.device, self.region = device, region
        layout = region.layout
        size, spare = math.prod(layout.shape), _SPARE * layout.alignment
        self.arrays = []
        for _ in range(_ARRAYS):
            memory = empty((size + 2 * spare,), dtype)
            device.run(device.fill(memory, 0))
            self.arrays.append(memory[spare : spare + size].reshape(layout.shape))
        self._stencil = Stencil(device, layout, dtype, courant)

    def view(self, number: int, box: Box) -> Array:
        """Return the points of a box in one of the two arrays."""
        return self.arrays[number][self.region.layout.slices(box)]

    def record(self, graph: StepGraph, boxes: Sequence[Box], target: int, label: str) -> None:
        """Record that the points of boxes are advanced from the other array to array `target`.

        Each lane of the device takes its part of every box. On a CPU large boxes are divided into
        chunks, between which a rank with a single core checks for messages.
        """
        source, lanes = self.arrays[1 - target], self.device.lanes
        for lane in range(lanes):
            mine = [_box_of_lane(box, lane, lanes) for box in boxes]
            small = [box for box in mine if 0 < box.size <= _CHUNK]
            large = [box for box in mine if box.size > _CHUNK]
            chunks = [[chunk] for box in large for chunk in _chunks(box, self.device)]
            for group in [small, *chunks] if small else chunks:
                # Each point is read and written once: neighbours are in cache.
                size = sum(box.size for box in group) * source.itemsize
                graph.add(
                    self._stencil.advance(source, self.arrays[target], group),
                    reads=[source],
                    writes=[self.view(target, box) for box in group],
                    label=label,
                    category="compute",
                    device=self.device,
                    lane=graph.lane_of_batch(lane, self.device)[1],
                    moves=(size, size),
                )


def record_copies(graph: StepGraph, cpu: DeviceRegion, gpu: DeviceRegion, number: int) -> None:
    """Record the copies between CPU and GPU, which the GPU makes from and to pinned memory."""
    edges, halo = gpu.region.copied()
    for boxes, source, place, lane in ((edges, gpu, cpu, "copy out"), (halo, cpu, gpu, "copy in")):
        pairs = [(source.view(number, box), place.view(number, box)) for box in boxes]
        graph.add(
            copy_boxes(gpu.device, pairs),
            reads=[pair[0] for pair in pairs],
            writes=[pair[1] for pair in pairs],
            label=lane,
            category="copy",
            lane=lane,
            device=gpu.device,
        )


def _box_of_lane(box: Box, lane: int, lanes: int) -> Box:
    """Return what one lane advances of a box: some planes, or some rows if planes are few."""
    axis = 0 if box.shape[0] >= min(8 * lanes, box.shape[1]) else 1
    start, stop = list(box.start), list(box.stop)
    low, high = split(box.shape[axis], lanes)[lane]
    start[axis], stop[axis] = box.start[axis] + low, box.start[axis] + high
    return Box(tuple(start), tuple(stop))


def _chunks(box: Box, device: Device) -> list[Box]:
    """Divide a box along y into chunks for a CPU; a GPU advances the whole box at once."""
    planes, rows, columns = box.shape
    height = max(1, _CHUNK // (planes * columns * _ROWS)) * _ROWS
    if device.kind != "cpu" or height >= rows:
        return [box]
    (z0, y0, x0), (z1, y1, x1) = box.start, box.stop
    return [Box((z0, y, x0), (z1, min(y + height, y1), x1)) for y in range(y0, y1, height)]
