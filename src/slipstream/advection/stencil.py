"""The Lax-Wendroff scheme, and the points of a rank that one device advances.

The scheme is the tensor product of the one-dimensional scheme of Lax and Wendroff (1960): second
order in one stage, stable while no Courant number exceeds 1, and exact if all are 1. Two
traversals give the same bits: by rows for CPUs, whose vectors advance neighbouring points, and by
strips for GPUs, whose threads keep rows in registers. Both take several steps in one pass over
memory.

Reference: J. B. White III and J. J. Dongarra, "Overlapping computation and communication for
advection on hybrid parallel computers", IPDPS 2011.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.decomposition import Box, PaddedBox, split
from slipstream.engine.device import (
    REAL_NAMES,
    BlockLaunch,
    Device,
    Operation,
    RowLaunch,
    cache_bytes,
)
from slipstream.engine.errors import InputError, is_finite
from slipstream.engine.exchange import copy_boxes
from slipstream.engine.schedule import StepGraph

# Floating-point operations per point as the paper counts them: 27 products and 26 sums.
FLOPS = 53
# The rows that stay in a core's cache while a thread marches through the planes: at least one group
# of the kernel.
_FEWEST_ROWS = 8
# With this many, the rows around them, which two tiles compute, matter little.
_MOST_ROWS = 32
# The planes of a GPU's tile; a CPU's tiles have all planes of a box.
_FEWEST_PLANES = 8
# The least alignment of rows in bytes, for vectors and cache lines.
_LINE = 64
# The points that a CPU advances in a few milliseconds.
_CHUNK = 1 << 22
# The rows that march through all planes together.
_CHUNK_ROWS = 32
# Units of alignment before the first row of an array, and after the last: vector loads reach there.
_SPARE = 4


def check_courant(courant: Sequence[float]) -> tuple[float, float, float]:
    """Return the Courant numbers z, y, x; beyond 1 the scheme would be unstable."""
    numbers = tuple(courant) if isinstance(courant, Iterable) else ()
    if len(numbers) != 3 or not all(is_finite(number) and abs(number) <= 1 for number in numbers):
        raise InputError(f"courant is {courant}; accepted: three numbers from -1 to 1 (stability)")
    z, y, x = map(float, numbers)
    return z, y, x


@dataclass(frozen=True)
class TileSize:
    """The points that a GPU's block of threads advances in each plane."""

    rows: int = 4  # of one thread
    columns: int = 1  # of one thread: 1, 2 or 4, up to 16 bytes in one access
    strips: int = 1  # of 32 threads, each with its own rows
    blocks: int = 1  # that a multiprocessor should hold, which bounds the registers of a thread

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.strips


# By steps of a pass and bytes of a number, the fastest on an H200.
_TILES = {
    (1, 8): TileSize(rows=3, columns=2, blocks=16),
    (1, 4): TileSize(rows=3, columns=4, blocks=16),
    (2, 8): TileSize(rows=6, blocks=12),
    (2, 4): TileSize(rows=4, columns=4, blocks=8),
}


class Stencil:
    """Advances the points of a layout, by one or more steps in one pass over memory."""

    def __init__(
        self,
        device: Device,
        layout: PaddedBox,
        dtype: Any,
        courant: Sequence[float],
        steps: int = 1,
        tile: TileSize | None = None,
    ) -> None:
        self._device, self._layout, self._steps = device, layout, steps
        dtype = np.dtype(dtype)
        real = REAL_NAMES[dtype.name]
        _, rows, row = layout.shape
        periods = tuple(
            0 if width else size for width, size in zip(layout.halo, layout.box.shape, strict=True)
        )
        # The weights of the points at -1, 0 and +1 along each axis.
        weights = [(n * (1 + n) / 2, 1 - n**2, -n * (1 - n) / 2) for n in courant]
        numbers = [dtype.type(weight) for weight in itertools.chain(*weights)]
        self._arguments: tuple[Any, ...] = (rows * row, row, *periods, *numbers)
        self._launch: Callable[[int], BlockLaunch | RowLaunch]
        if device.tiled_transforms():
            size = tile or _TILES[steps, dtype.itemsize]
            if layout.alignment % size.columns or periods[2] % size.columns:
                size = replace(size, columns=1)  # accesses to several points would not be aligned
            # The rows and columns of a tile, and the alignment of tiles along a row.
            margin = -(-steps // size.columns) * size.columns
            self._tile = size.rows * size.strips, 32 * size.columns - 2 * margin, size.columns
            blocks = min(size.blocks, device.blocks_per_multiprocessor)
            self._resident = device.multiprocessors * blocks
            self._kernel = device.kernel(
                "lax_wendroff_tiles.hpp",
                "advect_tiles",
                REAL=real,
                STEPS=steps,
                ROWS=size.rows,
                COLUMNS=size.columns,
                STRIPS=size.strips,
                THREADS=size.threads,
                BLOCKS_PER_SM=size.blocks,
            )
            self._launch = lambda count: BlockLaunch(count, size.threads, 0)
        else:
            size_bytes = math.prod(layout.shape) * dtype.itemsize
            self._tile = _rows_in_cache(row * dtype.itemsize, steps), 1 << 62, 1
            self._arguments += (steps,)
            self._resident = max(1, getattr(device, "threads", 1) // device.lanes)
            self._kernel = device.kernel(
                "lax_wendroff_rows.hpp",
                "advect_rows",
                REAL=real,
                STREAMS=2 * size_bytes > cache_bytes(),
            )
            self._launch = lambda count: RowLaunch(count, 1)

    def advance(self, source: Array, target: Array, boxes: Sequence[Box]) -> Operation:
        """Return the operation that advances the points of boxes, given by global index.

        Points within a distance of as many points as there are steps must be valid in `source`.
        Along an axis that is periodic in place, a box covers the whole axis or keeps that distance
        from its ends.
        """
        back = [-start for start in self._layout.box.start]
        work = np.concatenate([self._tiles(box.shifted(back)) for box in boxes])
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

    def _tiles(self, box: Box) -> np.ndarray:
        """Return the first plane, row and column of each tile of a box, and the number of each."""
        rows, columns, unit = self._tile
        (z0, y0, x0), (z1, y1, x1) = box.start, box.stop
        across, along = _pieces(y0, y1, rows, 1), _pieces(x0, x1, columns, unit)
        planes, beside = z1 - z0, len(across) * len(along)

        def planes_in_turn(pieces: int) -> int:
            """Return the number of planes that processors march through, tile by tile."""
            rounds = -(-pieces * beside // self._resident)
            return rounds * (-(-planes // pieces) + 2 * self._steps)

        pieces = min(range(1, max(1, planes // _FEWEST_PLANES) + 1), key=planes_in_turn)
        down = _pieces(z0, z1, max(1, -(-planes // pieces)), 1)
        entries = [
            (z, y, x, deep, high, wide)
            for (z, deep), (y, high), (x, wide) in itertools.product(down, across, along)
        ]
        return np.array(entries, np.int64).reshape(-1, 6)


def _pieces(start: int, stop: int, size: int, unit: int) -> list[tuple[int, int]]:
    """Divide a range; return the starts of pieces, all but the first at multiples of a unit."""
    edges = [start, *range(start - start % unit + size, stop, size), stop]
    return [(low, high - low) for low, high in itertools.pairwise(edges) if low < high]


def _rows_in_cache(row_bytes: int, steps: int) -> int:
    """Return the rows of a CPU's tile: the cache holds some planes of every step of a pass."""
    if steps == 1:
        return _MOST_ROWS
    rows = cache_bytes("SC_LEVEL2_CACHE_SIZE", 1 << 20) // (4 * steps * row_bytes)
    return min(_MOST_ROWS, max(_FEWEST_ROWS, rows - rows % _FEWEST_ROWS))


@dataclass(frozen=True)
class Region:
    """The points that one device advances."""

    layout: PaddedBox  # their layout in memory; axes without a halo are periodic in place
    boxes: tuple[Box, ...]  # the layout's box, or the part that no other device has
    core: Box  # points that no other rank or device reads, so that they can be advanced last

    def outer(self) -> list[Box]:
        """Return the points to advance first."""
        return [edge for box in self.boxes for edge in box.without(self.core)]

    def inner(self) -> list[Box]:
        """Return the other points."""
        return [inner for box in self.boxes if (inner := box.intersect(self.core)).size]

    def copied(self) -> tuple[list[Box], list[Box]]:
        """Return the points of a GPU's block that its shell reads, and vice versa."""
        box = self.layout.box
        return box.without(self.core), box.grown(self.layout.halo).without(box)


def padded(device: Device, box: Box, halo: Sequence[int], dtype: Any) -> PaddedBox:
    """Return the layout of a box, its rows aligned as the device prefers."""
    unit = max(_LINE, device.row_bytes) // np.dtype(dtype).itemsize
    z, y, x = halo
    return PaddedBox(box, (z, y, x), unit)


class DeviceRegion:
    """A region on its device, with two arrays that take turns; a pass takes `steps` steps."""

    def __init__(
        self,
        device: Device,
        region: Region,
        dtype: Any,
        courant: Sequence[float],
        empty: Callable[[tuple[int, ...], Any], Array],
        steps: int = 1,
    ) -> None:
        self.device, self.region = device, region
        layout = region.layout
        size, spare = math.prod(layout.shape), _SPARE * layout.alignment
        self.arrays = []
        for _ in range(2):
            memory = empty((size + 2 * spare,), dtype)
            device.run(device.fill(memory, 0))
            self.arrays.append(memory[spare : spare + size].reshape(layout.shape))
        self._stencils = {
            count: Stencil(device, layout, dtype, courant, count) for count in {1, steps}
        }

    def view(self, number: int, box: Box) -> Array:
        """Return the points of a box in one of the two arrays."""
        return self.arrays[number][self.region.layout.slices(box)]

    def record(
        self, graph: StepGraph, boxes: Sequence[Box], target: int, label: str, steps: int
    ) -> None:
        """Record an advance of the points of boxes, from the other array to array `target`."""
        source, lanes, stencil = self.arrays[1 - target], self.device.lanes, self._stencils[steps]
        for lane in range(lanes):
            mine = [_box_of_lane(box, lane, lanes) for box in boxes]
            small = [box for box in mine if 0 < box.size <= _CHUNK]
            large = [box for box in mine if box.size > _CHUNK]
            chunks = [[chunk] for box in large for chunk in _chunks(box, self.device)]
            for group in [small, *chunks] if small else chunks:
                # Each point is read and written once: neighbours are in cache.
                size = sum(box.size for box in group) * source.itemsize
                graph.add(
                    stencil.advance(source, self.arrays[target], group),
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
    """Return one lane's part of a box: some planes, or some rows if there are few planes."""
    axis = 0 if box.shape[0] >= min(8 * lanes, box.shape[1]) else 1
    start, stop = list(box.start), list(box.stop)
    low, high = split(box.shape[axis], lanes)[lane]
    start[axis], stop[axis] = box.start[axis] + low, box.start[axis] + high
    return Box(tuple(start), tuple(stop))


def _chunks(box: Box, device: Device) -> list[Box]:
    """Divide a box along y into chunks for a CPU; a GPU advances the whole box in one launch."""
    planes, rows, columns = box.shape
    height = max(1, _CHUNK // (planes * columns * _CHUNK_ROWS)) * _CHUNK_ROWS
    if device.kind != "cpu" or height >= rows:
        return [box]
    (z0, y0, x0), (z1, y1, x1) = box.start, box.stop
    return [Box((z0, y, x0), (z1, min(y + height, y1), x1)) for y in range(y0, y1, height)]
