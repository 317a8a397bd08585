"""Parts: the points of a rank that one device advances, and the memory that they lie in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.advection.stencil import Stencil
from slipstream.decomposition import Box, PaddedBox, split
from slipstream.device import Device
from slipstream.exchange import copy_boxes
from slipstream.schedule import StepGraph

# Rows start at multiples of so many bytes at least, for vectors and cache lines.
_LINE = 64
# Points that a CPU advances in a few milliseconds, and rows that go through all planes together.
_PIECE, _ROWS = 1 << 22, 32


@dataclass(frozen=True)
class Region:
    """What a part advances.

    Attributes
    ----------
    layout : PaddedBox
        Where its points lie. Axes without a halo are periodic in place.
    boxes : tuple of Box
        The points that it advances; all of the layout's box, or what another device leaves of it.
    core : Box
        The points that need not be advanced first, since other ranks, or a CPU, do not read them.
    """

    layout: PaddedBox
    boxes: tuple[Box, ...]
    core: Box

    def outer(self) -> list[Box]:
        """Return the points to advance first."""
        return [part for box in self.boxes for part in box.without(self.core)]

    def inner(self) -> list[Box]:
        """Return the other points."""
        return [part for box in self.boxes if (part := box.intersect(self.core)).size]


def padded(device: Device, box: Box, halo: Sequence[int], dtype: Any) -> PaddedBox:
    """Return the layout of a box in arrays that a device likes."""
    unit = max(_LINE, device.row_bytes) // np.dtype(dtype).itemsize
    return PaddedBox(box, tuple(halo), unit)


class Part:
    """A region on a device, with two arrays that take turns.

    Parameters
    ----------
    device : Device
        What advances it.
    region : Region
        Its points.
    dtype : dtype
        float32 or float64.
    courant : sequence of float
        Courant numbers along z, y and x.
    empty : callable
        ``empty(shape, dtype)`` allocates memory that the device, and whoever exchanges, reach.
    """

    def __init__(
        self,
        device: Device,
        region: Region,
        dtype: Any,
        courant: Sequence[float],
        empty: Callable[[tuple[int, ...], Any], Any],
    ) -> None:
        self.device, self.region = device, region
        layout = region.layout
        # Vectors may read, and not use, some elements before the first row and after the last.
        size, spare = math.prod(layout.shape), 4 * layout.alignment
        self.arrays = []
        for _ in range(2):
            memory = empty((size + 2 * spare,), dtype)
            device.run(device.fill(memory, 0))
            self.arrays.append(memory[spare : spare + size].reshape(layout.shape))
        self._stencil = Stencil(device, layout, dtype, courant)

    def view(self, number: int, box: Box) -> Any:
        """Return the points of a box in one of the two arrays."""
        return self.arrays[number][self.region.layout.slices(box)]

    def record(self, graph: StepGraph, boxes: Sequence[Box], target: int, label: str) -> None:
        """Record that points are advanced, from the other array to array `target`.

        Each lane of the device has its share of every box. A CPU has it in pieces, between which a
        rank with a single core looks for messages.
        """
        source, lanes = self.arrays[1 - target], self.device.lanes
        for lane in range(lanes):
            shares = [_share(box, lane, lanes) for box in boxes]
            small = [share for share in shares if 0 < share.size <= _PIECE]
            groups = [small] if small else []
            for share in shares:
                if share.size > _PIECE:
                    groups += [[piece] for piece in _pieces(share, self.device)]
            for group in groups:
                graph.add(
                    self._stencil.advance(source, self.arrays[target], group),
                    reads=[source],
                    writes=[self.view(target, box) for box in group],
                    label=label,
                    category="compute",
                    device=self.device,
                    lane=graph.lane_of_batch(lane, self.device)[1],
                )


def record_copies(graph: StepGraph, cpu: Part, gpu: Part, number: int) -> None:
    """Record what CPU and GPU need of each other: the GPU moves it, from and to pinned memory."""
    layout = gpu.region.layout
    edges = layout.box.without(gpu.region.core)
    halo = layout.box.grown(layout.halo).without(layout.box)
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


def _share(box: Box, lane: int, lanes: int) -> Box:
    """Return one lane's share of a box: some of its planes, or of its rows if there are few."""
    axis = 0 if box.shape[0] >= min(8 * lanes, box.shape[1]) else 1
    start, stop = list(box.start), list(box.stop)
    low, high = split(box.shape[axis], lanes)[lane]
    start[axis], stop[axis] = box.start[axis] + low, box.start[axis] + high
    return Box(tuple(start), tuple(stop))


def _pieces(box: Box, device: Device) -> list[Box]:
    """Return parts of a box for a CPU, each of all planes; a GPU has the box as a whole."""
    planes, rows, columns = box.shape
    height = max(1, _PIECE // (planes * columns * _ROWS)) * _ROWS
    if device.kind != "cpu" or height >= rows:
        return [box]
    return [
        Box(
            (box.start[0], y, box.start[2]),
            (box.stop[0], min(y + height, box.stop[1]), box.stop[2]),
        )
        for y in range(box.start[1], box.stop[1], height)
    ]
