"""Geometry of the slab transform: planes, columns and modes of a rank, and their layout.

Arrays are indexed [z, y, x]. In physical space each rank has a slab of z planes. After the
transforms in x and y, a rank has some planes of all kept (ky, kx); one exchange later all z of
some ky, where the transform in z completes the work. Spectral space stays divided along ky: there
is no exchange back to the original layout.

That exchange connects two working arrays. Each has the packed layout of its side, so nothing is
packed:

planes
    [receiver][z][ky of receiver][kx], a block for each receiving rank;
columns
    [z][ky of this rank][kx], which is also [sender][z of sender][ky][kx].

On one rank both have the same layout, and one array is both.

An array of two axes (`SlabGeometry.of_rows`) is divided in the same way. Its rows are the planes,
and its modes along x replace ky, in rows of one element: there is no transform in y.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from slipstream.engine.decomposition import Box, factorisations, grid_boxes, slabs, split, whole
from slipstream.engine.exchange import ExchangePlan
from slipstream.engine.fft.transform_parts import Modes

# Marks a row that is not kept in tables of rows, see `row_tables.hpp`.
NOT_KEPT = -(2**62)


class PackedBlocks:
    """Some planes of one rank, as blocks [z][its part of an axis][row], one block per rank.

    Rank r has `part_counts[r]` of the axis, from `part_starts[r]` on. `planes` is the number of
    planes that are packed by default, and `row` the number of contiguous elements.
    """

    planes: int
    row: int
    part_starts: np.ndarray
    part_counts: np.ndarray

    def __init__(
        self, planes: int, row: int, parts: Sequence[tuple[int, int]] | np.ndarray
    ) -> None:
        bounds = np.asarray(parts, np.int64).reshape(-1, 2)
        self.planes, self.row = planes, row
        self.part_starts, self.part_counts = bounds[:, 0], bounds[:, 1] - bounds[:, 0]

    def alike(self, planes: int, row: int) -> PackedBlocks:
        """Return the same parts of other planes, in rows of another length."""
        ends = self.part_starts + self.part_counts
        return PackedBlocks(planes, row, np.stack([self.part_starts, ends], axis=1))

    def _starts_and_sizes(self, planes: int | None) -> tuple[np.ndarray, np.ndarray]:
        planes = self.planes if planes is None else planes
        sizes = self.row * self.part_counts
        return planes * (np.cumsum(sizes) - sizes), sizes

    def packed_blocks(self, planes: int | None = None) -> list[tuple[int, int]]:
        """Return the start of each rank's block among `planes` planes, and its size per plane."""
        starts, sizes = self._starts_and_sizes(planes)
        return list(zip(starts.tolist(), sizes.tolist(), strict=True))

    def packed_block(self, rank: int, planes: int | None = None) -> tuple[int, int]:
        """Return the start and size of the block of one rank."""
        starts, sizes = self._starts_and_sizes(planes)
        return int(starts[rank]), int(sizes[rank])

    def packed_runs(
        self, planes: int | None = None, apart: int | None = None
    ) -> list[tuple[int, int, int]]:
        """Return runs of contiguous blocks of equal size: start, size per plane and count.

        Thousands of ranks make two or three runs; the block for rank `apart` is in none.
        """
        starts, sizes = self._starts_and_sizes(planes)
        kept = sizes > 0
        if apart is not None:
            kept[apart] = False
        # A run begins where a block is not followed by another of its size.
        begins = kept.copy()
        begins[1:] &= ~kept[:-1] | (sizes[1:] != sizes[:-1])
        first = np.flatnonzero(begins)
        counts = np.add.reduceat(kept.astype(np.int64), first) if len(first) else first
        return list(
            zip(starts[first].tolist(), sizes[first].tolist(), counts.tolist(), strict=True)
        )

    def packed_rows(
        self, planes: int | None = None, starts: dict[int, int] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Tables for `gather_scatter.hpp`: row y of plane z lies at ``offset[y] + z * pitch[y]``.

        The arrays hold `planes` planes, by default all of this rank; or their blocks start at the
        elements `starts`, by rank.
        """
        counts, ranks = self.part_counts, len(self.part_counts)
        begin = np.zeros(ranks, np.int64)
        if starts is None:
            begin = self._starts_and_sizes(planes)[0]
        else:
            begin[list(starts)] = list(starts.values())
        offset = np.full(int(counts.sum()), NOT_KEPT, dtype=np.int64)
        pitch = np.zeros_like(offset)
        if self.planes:
            # The parts of all ranks, one rank after the other: their owners, and their numbers
            # there.
            owner = np.repeat(np.arange(ranks), counts)
            number = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
            place = self.part_starts[owner] + number
            offset[place] = begin[owner] + self.row * number
            pitch[place] = self.row * counts[owner]
        return offset, pitch


class PlaneGeometry:
    """The planes of one rank, and the ranges of kx in which they are exchanged.

    Ranks may have no planes, or no modes; those after the first `workers` ranks have none. Rows of
    modes are stored with `row` elements, a multiple of `row_alignment`: elements beyond the kept
    modes are undefined. The attributes `plane_points` and `x_modes` are the points (y, x) of a
    plane and the modes of its rows, in working rows of `x_row` elements; `flat` is whether there is
    no transform along y. `planes` is the number of z planes of this rank. With `apart`, ranges
    belong to different ranks.
    """

    apart = False
    # The numbers of ranks along z and along y, for pencils.
    grid: tuple[int, int] | None = None
    # The modes of this rank.
    spectral_box: Box

    def __init__(
        self,
        shape: tuple[int, int, int],
        modes: tuple[Modes, Modes, Modes],
        rank: int = 0,
        ranks: int = 1,
        row_alignment: int = 1,
        workers: int | None = None,
    ) -> None:
        self.shape, self.modes, self.rank, self.ranks = shape, modes, rank, ranks
        self.workers = ranks if workers is None else workers
        self.row_alignment = row_alignment
        self.plane_points, self.x_modes, self.flat = shape[1:], modes[2], False
        self.spectral_shape = tuple(m.count for m in modes)
        self.physical_boxes: Sequence[Box] = slabs(shape, 0, self.workers, ranks)
        self.physical_box = self.physical_boxes[rank]
        self.planes = self.physical_box.shape[0]
        self.row = -(-modes[2].count // row_alignment) * row_alignment
        self.x_row = self.row
        self._ranges: list[KxRange] = []

    @property
    def ranges(self) -> Sequence[KxRange]:
        """The ranges of kx."""
        return self._ranges

    @cached_property
    def field_size(self) -> int:
        """Elements that hold one field in either layout, on every rank."""
        parts = [part.geometry for part in self.ranges]
        # The first rank has the most planes.
        planes = sum(part.plane_boxes[0].size for part in parts)
        columns = sum(self.shape[0] * part.row * part.part_counts for part in parts)
        return max(planes, int(np.max(columns)))

    @cached_property
    def block_size(self) -> int:
        """Elements of the largest block of a field that any rank sends to another."""
        planes = self.physical_boxes[0].shape[0]  # the first rank has the most
        widest = (one.geometry.row * int(one.geometry.part_counts.max()) for one in self.ranges)
        return planes * max(widest)

    @property
    def off_rank_elements(self) -> int:
        """Complex elements of one field that this rank sends to others."""
        return sum(one.geometry.plan.off_rank_elements() for one in self.ranges)

    @cached_property
    def most_ky(self) -> int:
        """The largest number of ky that a rank has of a range."""
        return max(int(one.geometry.part_counts.max()) for one in self.ranges)


class SlabGeometry(PlaneGeometry, PackedBlocks):
    """Boxes, exchange plan and row tables of one rank, for one range of kx.

    `ky` are the first and last ky of ranks; by default ranks have equal numbers.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        modes: tuple[Modes, Modes, Modes],
        rank: int = 0,
        ranks: int = 1,
        row_alignment: int = 1,
        workers: int | None = None,
        ky: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        super().__init__(shape, modes, rank, ranks, row_alignment, workers)
        mixed = (shape[0], self.spectral_shape[1], self.row)
        self.plane_boxes = slabs(mixed, 0, self.workers, ranks)
        self.column_boxes, self.spectral_boxes = (
            slabs(sizes, 1, self.workers, ranks)
            if ky is None
            else tuple(whole(sizes).with_range(1, low, high) for low, high in ky)
            for sizes in (mixed, self.spectral_shape)
        )
        # Parts are ranges of ky.
        parts = list(ky or split(mixed[1], self.workers))
        parts += [(0, 0)] * (ranks - len(parts))
        PackedBlocks.__init__(self, self.planes, self.row, parts)
        self.spectral_box = self.spectral_boxes[rank]
        # Number of complex elements of one field in the layout of planes.
        self.planes_size = self.plane_boxes[rank].size
        # Shape (nz, ky of this rank, row) of one field in the columns layout, and of this rank's
        # spectral array in memory.
        count = self.spectral_box.shape[1]
        self.columns_shape: tuple[int, int, int] = (shape[0], count, self.row)
        self.stored_shape: tuple[int, int, int] = (self.spectral_shape[0], count, self.row)

    @property
    def ranges(self) -> Sequence[KxRange]:
        return [KxRange(self, slice(0, self.modes[2].count), slice(None))]

    @classmethod
    def of_rows(
        cls, modes: tuple[Modes, Modes], rank: int = 0, ranks: int = 1, workers: int | None = None
    ) -> SlabGeometry:
        """Return the geometry of an array of two axes, given the modes kept along each."""
        z, x = modes
        single = Modes(1, 1, 0)
        along_ky = Modes(x.count, x.count, 0)
        result = cls((z.size, x.count, 1), (z, along_ky, single), rank, ranks, 1, workers)
        result.plane_points, result.x_modes, result.flat = (1, x.size), x, True
        result.x_row = x.count
        return result

    @cached_property
    def plan(self) -> ExchangePlan:
        """The exchange of one field, from planes to columns."""
        return ExchangePlan.redistribution(self.plane_boxes, self.column_boxes, self.rank)

    def plane_rows(
        self, planes: int | None = None, starts: dict[int, int] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the tables of `packed_rows` for all ky."""
        return _spread(self.modes[1], *self.packed_rows(planes, starts))

    def spread_ky(self, offset: np.ndarray, pitch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Extend tables over the kept ky to all of them."""
        return _spread(self.modes[1], offset, pitch)

    def column_blocks(self, starts: dict[int, int]) -> tuple[np.ndarray, np.ndarray]:
        """Return tables of the columns layout whose blocks start at given elements, by rank.

        Point z of the ky-th column is at ``offset[z] + ky * pitch[z]``; a block has the z of one
        rank.
        """
        nz, ky, row = self.columns_shape
        offset = np.zeros(nz, dtype=np.int64)
        for block in self.plan.receives:
            low, high = block.box.start[0], block.box.stop[0]
            offset[low:high] = starts[block.peer] + ky * row * np.arange(high - low)
        return offset, np.full(nz, row, dtype=np.int64)

    def mode_rows(self, z: int, y: int) -> tuple[np.ndarray, np.ndarray]:
        """Return tables of modes [kz, ky, kx] with strides of `z` and `y` elements.

        Mode z of the ky-th column is at ``offset[z] + ky * pitch[z]``.
        """
        offset = z * np.arange(self.spectral_shape[0], dtype=np.int64)
        return _spread(self.modes[0], offset, np.full_like(offset, y))

    def packed_size(self, planes: int) -> int:
        """Return the number of complex elements of `planes` packed planes of one field."""
        return planes * self.spectral_shape[1] * self.row


def _spread(modes: Modes, offset: np.ndarray, pitch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Extend tables over the kept modes to all modes."""
    positions = modes.positions()
    offset, pitch = (np.where(positions < 0, NOT_KEPT, t[positions]) for t in (offset, pitch))
    return offset, pitch


class PencilGeometry(PlaneGeometry):
    """Boxes and plans of one rank of a process grid, with parts along z and along y.

    At the points the parts along y divide the rows of planes, and for modes they divide kx. Ranks
    with the same kx exchange planes and columns, like slabs of a narrower array: `ranges` has this
    array alone, with ranks numbered among these. Before that, ranks with the same planes exchange
    rows by the plans of `across`. In between each has whole columns along y of its kx.

    The attributes `columns_along_y`, of each range of kx, and `rows` are the packed layouts on both
    sides of this exchange: blocks [z][y of receiver][kx of this rank], and [z][y of this rank][kx
    of sender].

    Slabs are pencils too (`of_slabs`): each rank has all rows of its planes, sends none, and has a
    block of rows for each of its ranges of kx.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        modes: tuple[Modes, Modes, Modes],
        rank: int,
        grid: tuple[int, int],
        row_alignment: int = 1,
    ) -> None:
        along, over = grid
        super().__init__(shape, modes, rank, along * over)
        slab, self.part = divmod(rank, over)
        self.grid, self.over, kx = grid, over, modes[2].count
        low, high = split(kx, over)[self.part]
        kx_modes = Modes(high - low, high - low, 0)
        slabs_of_kx = SlabGeometry(shape, (*modes[:2], kx_modes), slab, along, row_alignment)
        self._ranges = [KxRange(slabs_of_kx, slice(low, high), slice(None))]
        # Kernels of GPUs transform rows in pairs: no pair is divided.
        self.physical_boxes = grid_boxes(shape, (along, over, 1), units=(1, 2, 1))
        self.physical_box = self.physical_boxes[rank]
        self.spectral_boxes = grid_boxes(self.spectral_shape, (1, along, over))
        self.spectral_box = self.spectral_boxes[rank]
        self.row, self.columns_shape = slabs_of_kx.row, slabs_of_kx.columns_shape
        self.stored_shape = slabs_of_kx.stored_shape
        self.planes, rows = self.physical_box.shape[:2]
        # The same for all ranks, so that all choose the same chunks.
        self._widest_row = -(-self.widest_kx // row_alignment) * row_alignment
        self.plane_points = rows, shape[2]
        self._divide_planes()

    def _divide_planes(self) -> None:
        parts = split(self.shape[1], self.over, 2)
        self.columns_along_y = [
            PackedBlocks(self.planes, one.geometry.modes[2].count, parts) for one in self._ranges
        ]
        self.rows = RowGeometry(self, self.planes, self.plane_points[0])

    @classmethod
    def of_slabs(cls, slabs: PlaneGeometry) -> PencilGeometry:
        """Return slabs as pencils with all rows of their planes."""
        if isinstance(slabs, cls):
            return slabs
        result, numbers = cls.__new__(cls), (slabs.rank, slabs.ranks)
        PlaneGeometry.__init__(
            result, slabs.shape, slabs.modes, *numbers, slabs.row_alignment, slabs.workers
        )
        result.grid, result.over, result.part = (slabs.workers, 1), 1, 0
        result._ranges = list(slabs.ranges)
        result._divide_planes()
        return result

    @cached_property
    def block_size(self) -> int:
        of_kx = self._ranges[0].geometry
        return of_kx.plane_boxes[0].shape[0] * int(of_kx.part_counts.max()) * self._widest_row

    @property
    def widest_kx(self) -> int:
        """The largest number of kx that a rank has."""
        return -(-self.modes[2].count // self.over)

    @property
    def most_rows(self) -> int:
        """The largest number of rows of a plane that a rank has."""
        return min(self.shape[1], 2 * -(-self.shape[1] // (2 * self.over)))

    def across(self, planes: int) -> ExchangePlan:
        """Return the exchange of a field among ranks with the same planes, from kx to rows."""
        sizes, over = (planes, self.shape[1], self.modes[2].count), self.over
        of_kx = grid_boxes(sizes, (1, 1, over))
        of_rows = grid_boxes(sizes, (1, over, 1), units=(1, 2, 1))
        return ExchangePlan.redistribution(of_kx, of_rows, self.part)

    @property
    def off_rank_elements(self) -> int:
        return super().off_rank_elements + self.across(self.planes).off_rank_elements()


def pencil_grid(
    shape: tuple[int, int, int], modes: tuple[Modes, Modes, Modes], ranks: int
) -> tuple[int, int] | None:
    """Return the parts along z and y of the most even process grid.

    None if no grid has work for all ranks. Of equal grids, it has the fewest ranks in one exchange.
    """
    (nz, ny, _), (_, ky, kx) = shape, (m.count for m in modes)
    pairs = -(-ny // 2)

    def cost(grid: tuple[int, ...]) -> tuple[float, int]:
        along, over = grid
        points = -(-nz // along) * -(-pairs // over) / (nz * pairs)
        columns = -(-ky // along) * -(-kx // over) / (ky * kx)
        return round(points + columns, 12), along + over

    fitting = [
        grid
        for grid in factorisations(ranks, 2)
        if grid[0] <= min(nz, ky) and grid[1] <= most_over_y(shape, modes)
    ]
    along, over = min(fitting, key=cost, default=(0, 0))
    return (along, over) if along else None


def most_over_y(shape: tuple[int, int, int], modes: tuple[Modes, Modes, Modes]) -> int:
    """Return the largest number of nonempty parts along y, which divide kx of modes."""
    return min(-(-shape[1] // 2), modes[2].count)


class RowGeometry(PlaneGeometry, PackedBlocks):
    """Rows of points of a rank of a process grid, all x of some y and z, as `planes` of `rows`.

    Their modes are received in blocks by kx: see `PencilGeometry`.
    """

    def __init__(self, pencils: PencilGeometry, planes: int, rows: int) -> None:
        super().__init__(pencils.shape, pencils.modes, pencils.rank, pencils.ranks)
        kx = split(self.x_modes.count, pencils.over)
        # The starts of the modes of runs of blocks in a row.
        self.places: list[int] | None = None
        if pencils.over == 1:
            stops = itertools.accumulate(one.geometry.modes[2].count for one in pencils.ranges)
            kx = list(itertools.pairwise([0, *stops]))
            self.places = [one.among_all.start for one in pencils.ranges]
        PackedBlocks.__init__(self, planes, rows, kx)
        self.plane_points, self.flat = (rows, pencils.shape[2]), True
        self.x_row = self.x_modes.count

    def packed_runs(
        self, planes: int | None = None, apart: int | None = None
    ) -> list[tuple[int, int, int]]:
        if self.places is None:
            return super().packed_runs(planes, apart)
        return [(*block, 1) for block in self.packed_blocks(planes)]

    @property
    def ranges(self) -> list[KxRange]:
        """A range of all kx, with only the attributes for these blocks."""
        # Not cached: a reference to itself would leave the geometry to the garbage collector.
        return [KxRange(cast(Any, self), slice(None), slice(None))]

    plane_rows = PackedBlocks.packed_rows


def planes_of_run(packed: Any, run: tuple[int, int, int], held: int, low: int, high: int) -> Any:
    """Return planes of a run of blocks, (fields, blocks, elements), of arrays (fields, all).

    Of arrays (fields, rows, row) it returns (fields, blocks, rows, row). The arrays hold `held`
    planes; for runs see `PackedBlocks.packed_runs`.
    """
    start, size, count = run
    if packed.ndim == 3:
        start, size = start // packed.shape[2], size // packed.shape[2]
    part = packed[:, start : start + count * held * size]
    blocks = part.reshape(len(packed), count, held * size, *packed.shape[2:])
    return blocks[:, :, low * size : high * size]


def planes_beside(
    packed: Any, fields: int, run: tuple[int, int, int], held: int, low: int, high: int
) -> Any:
    """Return planes of a run of blocks with fields side by side, plane by plane.

    Blocks are [z][field][elements], and the result is (fields, blocks, planes, elements); for
    parameters see `planes_of_run`.
    """
    start, size, count = run
    blocks = packed.reshape(-1)[fields * start : fields * (start + count * held * size)]
    return blocks.reshape(count, held, fields, size)[:, low:high].transpose(2, 0, 1, 3)


@dataclass(frozen=True)
class KxRange:
    """A range of the kept modes of x, with a separate exchange.

    Along x, its geometry has the modes of this range only. `among_all` is their slice of the modes
    of a plane, `among_kept` their slice of the kept modes of a rank with its columns.
    """

    geometry: SlabGeometry
    among_all: slice
    among_kept: slice


def chunk_geometry(
    shape: tuple[int, int, int],
    modes: tuple[Modes, Modes, Modes],
    rank: int,
    ranks: int,
    row_alignment: int = 1,
    workers: int | None = None,
    chunks: int = 1,
) -> PlaneGeometry:
    """Return slabs whose kept modes of x are divided into `chunks` ranges.

    No range contains a gap: if truncation leaves one between the signs, each sign has `chunks`
    ranges.
    """
    bounds = [
        low + min(stop * row_alignment, high - low)
        for low, high in _close_gap(modes[2])
        for _, stop in split(-(-(high - low) // row_alignment), chunks)
    ]
    parts = [(low, high) for low, high in itertools.pairwise([0, *bounds]) if low < high]
    if len(parts) == 1:
        return SlabGeometry(shape, modes, rank, ranks, row_alignment, workers)
    result = PlaneGeometry(shape, modes, rank, ranks, row_alignment, workers)
    result._ranges = [_range(result, *part, part[0], row_alignment) for part in parts]
    return result


def pencil_geometry(
    shape: tuple[int, int, int],
    modes: tuple[Modes, Modes, Modes],
    rank: int,
    ranks: int,
    boxes: Sequence[Box],
    workers: int | None = None,
) -> PlaneGeometry | None:
    """Return planes whose modes go to boxes of any ky and some ranges of kx, by rank.

    None if ranges of kx overlap, or if boxes divide kz.
    """
    (nz, _, nx), filled = (m.count for m in modes), [box for box in boxes if box.size]
    ends = sorted({(box.start[2], box.stop[2]) for box in filled})
    covers = [0, *(high for _, high in ends)] == [*(low for low, _ in ends), nx]
    if not covers or any(box.shape[0] != nz for box in filled):
        return None
    result = PlaneGeometry(shape, modes, rank, ranks, workers=workers)
    result.apart = len(ends) > 1
    for start, stop in ends:
        ky = [
            (box.start[1], box.stop[1])
            if box.size and (box.start[2], box.stop[2]) == (start, stop)
            else (0, 0)
            for box in boxes
        ]
        for low, high in _close_gap(modes[2]):
            low, high = max(low, start), min(high, stop)
            if low < high:
                result._ranges.append(_range(result, low, high, low - start, 1, ky))
    return result


def _close_gap(x: Modes) -> list[tuple[int, int]]:
    """Return the kept modes of x as contiguous ranges."""
    return [(0, x.low), (x.low, x.count)] if x.high and x.gap else [(0, x.count)]


def _range(
    planes: PlaneGeometry,
    low: int,
    high: int,
    kept: int,
    row_alignment: int,
    ky: Sequence[tuple[int, int]] | None = None,
) -> KxRange:
    """Return the range of the kept modes of x from `low` to `high`."""
    z, y, x = planes.modes
    modes = z, y, Modes(high - low, high - low, 0)
    part = SlabGeometry(
        planes.shape, modes, planes.rank, planes.ranks, row_alignment, planes.workers, ky
    )
    first, count = low + x.gap if x.high and low >= x.low else low, high - low
    return KxRange(part, slice(first, first + count), slice(kept, kept + count))
