"""The Lax-Wendroff scheme, and the points of a rank that one device advances by it.

The scheme is a tensor product of the one-dimensional one of Lax and Wendroff (1960): second order
in one stage, stable while no Courant number exceeds one, and exact where all are one. Two
traversals give the same bits: by rows for CPUs, whose vectors advance neighbouring points, and by
tiles for GPUs, whose threads share memory.

Reference: J. B. White III and J. J. Dongarra, "Overlapping computation and communication for
advection on hybrid parallel computers", IPDPS 2011.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.argument_checks import is_finite
from slipstream.array_types import Array
from slipstream.decomposition import Box, PaddedBox, split
from slipstream.device import REAL_NAMES, BlockLaunch, Device, Operation, RowLaunch
from slipstream.errors import InputError
from slipstream.exchange import copy_boxes
from slipstream.schedule import StepGraph

# Floating-point operations per point as the paper counts them: 27 products and 26 sums.
FLOPS = 53
# Groups of rows that stay in a core's cache while work marches through the planes, and the numbers
# of rows that a group may have in the kernel.
_GROUPS_IN_CACHE = 4
_ROWS = (8, 4, 2, 1)
# Rows start at multiples of so many bytes at least, for vectors and cache lines.
_LINE = 64
# Points that a CPU advances in a few milliseconds, and rows that pass through all planes together.
_CHUNK, _CHUNK_ROWS = 1 << 22, 32
# Units of alignment before the first row of an array, and after the last: vector loads reach there.
_SPARE = 4


def lax_wendroff_weights(courant: float) -> tuple[float, float, float]:
    """Return the weights of the points at -1, 0 and +1 along an axis of this Courant number."""
    return courant * (1 + courant) / 2, 1 - courant**2, -courant * (1 - courant) / 2


def check_courant(courant: Sequence[float]) -> tuple[float, float, float]:
    """Return the Courant numbers z, y, x; beyond 1 the scheme would be unstable."""
    given = tuple(courant) if isinstance(courant, Iterable) else ()
    if len(given) != 3 or not all(is_finite(number) and abs(number) <= 1 for number in given):
        raise InputError(f"courant is {courant}; accepted: three numbers from -1 to 1 (stability)")
    z, y, x = map(float, given)
    return z, y, x


@dataclass(frozen=True)
class TileSize:
    """How many points a GPU's block of threads advances.

    Small blocks are best on an H200: many of them are in different phases of their work at once.
    """

    planes: int = 6
    rows: int = 8
    columns: int = 62
    group: int = 4  # rows of one thread; a divisor of `rows`

    @property
    def threads(self) -> int:
        """Threads of a block: for each group of rows, the columns and a neighbour at both ends."""
        return self.rows // self.group * (self.columns + 2)


class Stencil:
    """Advances the points of a layout."""

    def __init__(
        self,
        device: Device,
        layout: PaddedBox,
        dtype: Any,
        courant: Sequence[float],
        tile: TileSize | None = None,
    ) -> None:
        self._device, self._layout = device, layout
        self._tile = tile = tile or TileSize()
        dtype = np.dtype(dtype)
        real = REAL_NAMES[dtype.name]
        _, rows, row = layout.shape
        own = (
            0 if width else size for width, size in zip(layout.halo, layout.box.shape, strict=True)
        )
        numbers = [
            dtype.type(weight) for number in courant for weight in lax_wendroff_weights(number)
        ]
        self._arguments = (rows * row, row, *own, *numbers)
        self._by_tiles = device.tiled_transforms()
        self._launch: Callable[[int], BlockLaunch | RowLaunch]
        if self._by_tiles:
            self._kernel = device.kernel(
                "lax_wendroff_tiles.hpp",
                "advect_tiles",
                REAL=real,
                TILE_PLANES=tile.planes,
                TILE_ROWS=tile.rows,
                TILE_COLUMNS=tile.columns,
                GROUP=tile.group,
                THREADS=tile.threads,
                BLOCKS_PER_SM=1,
            )
            shared = tile.planes * tile.rows * (tile.columns + 2) * dtype.itemsize
            self._launch = lambda count: BlockLaunch(count, tile.threads, shared)
        else:
            size = int(np.prod(layout.shape)) * dtype.itemsize
            self._kernel = device.kernel(
                "lax_wendroff_rows.hpp", "advect_rows", REAL=real, STREAMS=2 * size > cache_bytes()
            )
            self._launch = lambda count: RowLaunch(count, 1)

    def advance(self, source: Array, target: Array, boxes: Sequence[Box]) -> Operation:
        """Return the operation that advances the points of boxes, given by global index.

        Their neighbours must be valid in `source`. Where an axis is periodic in place, a box must
        either take all of it or keep a point's distance from both of its ends.
        """
        listed = self._tiles if self._by_tiles else self._groups
        back = [-start for start in self._layout.box.start]
        work = np.concatenate([listed(box.shifted(back)) for box in boxes])
        first = self._layout.slices(Box(self._layout.box.start, self._layout.box.start))
        at = tuple(slice(one.start, None) for one in first)
        return self._kernel.bind(
            self._launch(len(work)),
            source[at],
            target[at],
            self._device.array(work),
            len(work),
            *self._arguments,
        )

    def _groups(self, box: Box) -> np.ndarray:
        """Return the groups of rows of a box, a few at a time through all planes."""
        (z0, y0, x0), columns = box.start, box.shape[2]
        groups, y = [], y0
        while y < box.stop[1]:
            rows = next(rows for rows in _ROWS if y + rows <= box.stop[1])
            groups.append((y, rows))
            y += rows
        entries = [
            (z, y, rows, x0, columns, z + 1 < box.stop[0])
            for low in range(0, len(groups), _GROUPS_IN_CACHE)
            for z in range(z0, box.stop[0])
            for y, rows in groups[low : low + _GROUPS_IN_CACHE]
        ]
        return np.array(entries, np.int64).reshape(-1, 6)

    def _tiles(self, box: Box) -> np.ndarray:
        """Return the tiles of a box, of about equal size, adjacent ones first."""
        ranges = []
        sizes = (self._tile.planes, self._tile.rows, self._tile.columns)
        for start, length, size in zip(box.start, box.shape, sizes, strict=True):
            tiles = split(length, max(1, -(-length // size)))
            ranges.append([(start + low, high - low) for low, high in tiles])
        # Full depth wherever possible, for which the kernel is fastest.
        z0, z1, deep = box.start[0], box.stop[0], sizes[0]
        ranges[0] = [(z, min(deep, z1 - z)) for z in range(z0, z1, deep)]
        entries = [
            (z, y, x, deep, high, wide)
            for z, deep in ranges[0]
            for y, high in ranges[1]
            for x, wide in ranges[2]
        ]
        return np.array(entries, np.int64).reshape(-1, 6)


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
        for _ in range(2):
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
    height = max(1, _CHUNK // (planes * columns * _CHUNK_ROWS)) * _CHUNK_ROWS
    if device.kind != "cpu" or height >= rows:
        return [box]
    (z0, y0, x0), (z1, y1, x1) = box.start, box.stop
    return [Box((z0, y, x0), (z1, min(y + height, y1), x1)) for y in range(y0, y1, height)]


def cache_bytes() -> int:
    """Return the size of the last cache before memory, as far as the system gives it."""
    try:
        size = os.sysconf("SC_LEVEL3_CACHE_SIZE")
    except (OSError, ValueError):
        size = 0
    return size if size > 0 else 32 << 20
