"""Transforms along an axis that is not contiguous, between working arrays and packed rows.

One kernel (`strided_fft.hpp`) transforms, truncates or pads, and stores in the order of an
exchange. For other lengths a library transforms, and another pass gathers or scatters rows.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from slipstream.array_types import Array
from slipstream.device import Device, Operation, Scratch
from slipstream.fft.pack_unpack import RowMover, RowTables
from slipstream.fft.slab_layout import PackedBlocks
from slipstream.fft.strided_fft import StridedTransform, VectorTransform
from slipstream.fft.truncation import Modes
from slipstream.schedule import StepGraph


def balanced_batch(size: int, limit: int, lanes: int) -> int:
    """Return the size of batches, at most `limit`, with the same number for every lane."""
    rounds = -(-size // (limit * lanes))
    return -(-size // max(1, rounds * lanes))


class MovedRows(ABC):
    """Moves rows without a transform in y; as `LineTransform`."""

    of_gpus = False

    def record_forward(
        self,
        graph: StepGraph,
        points: Array,
        packed: Array,
        tables: RowTables,
        first: int,
        accessed: list[Array],
    ) -> None:
        """Record rows of modes -> the ranks' shares; for parameters see `LineTransform`."""
        self._record(graph, points, (packed, tables), first, accessed, True)

    def record_backward(
        self,
        graph: StepGraph,
        packed: Array,
        points: Array,
        tables: RowTables,
        first: int,
        accessed: list[Array],
    ) -> None:
        """Record the ranks' shares -> rows of modes; only the kept modes are written."""
        self._record(graph, points, (packed, tables), first, accessed, False)

    @abstractmethod
    def _record(
        self,
        graph: StepGraph,
        points: Array,
        packed: tuple[Array, Any],
        first: int,
        accessed: list[Array],
        forward: bool,
    ) -> None:
        """Record one direction: `packed` is an array and its tables."""

    def plan(self, points: Array) -> None:  # noqa: B027
        """Do nothing: there is no transform to plan."""


class SharedRows(MovedRows):
    """Rows of arrays of two axes, which have no transform in y.

    Each rank gets a share of every row of modes; `kept` of a row's modes are kept.
    """

    def __init__(self, kept: Modes) -> None:
        # The places of the modes of each sign: among the kept modes, and among all.
        self._sides = [(0, kept.low, 0), (kept.low, kept.count, kept.gap)]

    def _record(
        self,
        graph: StepGraph,
        points: Array,
        packed: tuple[Array, Any],
        first: int,
        accessed: list[Array],
        forward: bool,
    ) -> None:
        for share, part in self._pairs(points, accessed):
            target, source = (share, part) if forward else (part, share)
            graph.add_copy(target, source, label="pack x")

    def _pairs(self, modes: Array, accessed: list[Array]) -> Iterator[tuple[Array, Array]]:
        fields, planes, _, _ = modes.shape
        first = 0
        for run in accessed:
            for number in range(run.shape[1]):
                share = run[:, number].reshape(fields, planes, -1)
                last = first + share.shape[2]
                for low, high, gap in self._sides:
                    a, b = max(low, first), min(high, last)
                    if a < b:
                        part = modes[:, :, 0, a + gap : b + gap]
                        yield share[:, :, a - first : b - first], part
                first = last


class Shares:
    """Tables of blocks [z][y][kx], one for each rank; every row has a share in each block.

    Blocks begin at the elements `starts`, by rank; by default they are contiguous in arrays of all
    planes of `rows`. `together` fields are side by side: blocks are [z][y][field][kx]. The ranks of
    a run have equally many kx, and one operation moves them. It accesses `views`, by run; by
    default one. The modes of runs are contiguous in a row, unless `places` has their starts.
    """

    def __init__(
        self,
        device: Device,
        rows: PackedBlocks,
        starts: Sequence[int] | None = None,
        together: int = 0,
        views: Sequence[int] | None = None,
        places: Sequence[int] | None = None,
    ) -> None:
        self._together, beside = together, max(1, together)
        if starts is None:
            starts = [beside * start for start, _ in rows.packed_blocks()]
        self.runs: list[tuple[RowTables, int, int, int]] = []
        shares = []
        first = rank = 0
        counts = enumerate(rows.part_counts.tolist())
        for (kx, _), ranks in itertools.groupby(
            counts, lambda one: (one[1], one[0] if places else 0)
        ):
            count = len(list(ranks))
            offset = np.array(starts[rank : rank + count], np.int64)
            tables = RowTables(device, (offset, np.full_like(offset, beside * kx)))
            if places is not None:
                first = places[len(self.runs)]
            if kx:
                self.runs.append((tables, first, count, kx))
                shares += [
                    (first + n * kx, kx, start, beside * kx) for n, start in enumerate(offset)
                ]
            first, rank = first + count * kx, rank + count
        self.views = views or [1] * len(self.runs)
        self._shares = np.array(shares, np.int64).reshape(-1, 4)

    def of_rows(self, packed: Array, first: int) -> tuple[Array, np.ndarray]:
        """Return rows of a packed array, from row `first` on, as a side of `bind_products`."""
        place, kx, start, pitch = self._shares.T
        field = kx if self._together else np.full_like(kx, packed.strides[0] // packed.itemsize)
        return packed, np.stack([place, kx, start + first * pitch, pitch, field], axis=1)

    def seen_from(self, packed: Array, kx: int) -> Array:
        """Return an array with the stride between fields of blocks of `kx` modes."""
        return fields_beside(packed, kx) if self._together else packed


def fields_beside(packed: Array, kx: int) -> Array:
    """Return a view (fields, kx) of the memory of packed fields, with one row of each."""
    flat = packed.reshape(-1)
    return flat[: len(packed) * kx].reshape(len(packed), kx)


class RowsOfShares(MovedRows):
    """Rows that are shared by ranks; the tables of packed arrays are `Shares`."""

    def __init__(self, device: Device, complex_dtype: Any, of_gpus: bool) -> None:
        self.of_gpus = of_gpus
        self._mover = RowMover(device, complex_dtype)

    def _record(
        self,
        graph: StepGraph,
        points: Array,
        packed: tuple[Array, Any],
        first: int,
        accessed: list[Array],
        forward: bool,
    ) -> None:
        array, shares = packed
        rows = points.reshape(len(points), -1, points.shape[3])
        left = iter(accessed)
        for views, (tables, low, count, kx) in zip(shares.views, shares.runs, strict=True):
            part = rows[..., low : low + count * kx]
            work = part.reshape(*part.shape[:2], count, kx)
            there = list(itertools.islice(left, views))
            sides = shares.seen_from(array, kx), work, tables, first * points.shape[2]
            move, reads, writes = (
                (self._mover.scatter(work, sides[0], *sides[2:]), [work], there)
                if forward
                else (self._mover.gather(*sides), there, [work])
            )
            graph.add(move, reads=reads, writes=writes, label="pack x", category="pack")


class LineTransform:
    """Transforms of one length along one axis, in both directions.

    Timelines show the name `axis`. Without `scratch` each transform of a library has separate
    memory. The attribute `tiled` is whether one kernel transforms and moves the rows, and `of_gpus`
    whether it is a kernel for GPUs.
    """

    def __init__(
        self,
        device: Device,
        axis: str,
        n: int,
        complex_dtype: Any,
        tiled: bool = True,
        scratch: Scratch | None = None,
    ) -> None:
        real_dtype = np.zeros(0, complex_dtype).real.dtype
        able = device.tiled_transforms() and StridedTransform.supports(device, n, real_dtype)
        self.of_gpus = tiled and able
        self.tiled = self.of_gpus or device.kind == "cpu"
        self._device, self._axis, self._scratch = device, axis, scratch
        self._kernel: StridedTransform | VectorTransform
        if self.of_gpus:
            self._kernel = StridedTransform(device, n, real_dtype)
        elif self.tiled:
            self._kernel = VectorTransform(device, n)
        else:
            self._mover = RowMover(device, complex_dtype)

    def record_forward(
        self,
        graph: StepGraph,
        points: Array,
        packed: Array,
        tables: RowTables,
        first: int,
        accessed: list[Array],
        moves: tuple[float, float] | None = None,
    ) -> None:
        """Record points -> packed modes.

        Points are (fields, outer, n, columns), and may be overwritten. The fields of the packed
        array are addressed by its leading stride, its rows by the tables, in the memory `accessed`;
        plane 0 of the points is plane `first` of the modes. For `moves`, of a tiled kernel, see
        `StepGraph.add`.
        """
        if self.tiled:
            operation = self._kernel.bind(packed, points, tables, first, True)
            self._add(graph, operation, [points], accessed, "fft", moves)
            return
        self.record_in_place(graph, points, True)
        scatter = self._mover.scatter(points, packed, tables, first)
        self._add(graph, scatter, [points], accessed, "pack")

    def record_backward(
        self,
        graph: StepGraph,
        packed: Array,
        points: Array,
        tables: RowTables,
        first: int,
        accessed: list[Array],
    ) -> None:
        """Record packed modes -> points; as `record_forward`."""
        if self.tiled:
            operation = self._kernel.bind(packed, points, tables, first, False)
            self._add(graph, operation, accessed, [points], "fft")
            return
        gather = self._mover.gather(packed, points, tables, first)
        self._add(graph, gather, accessed, [points], "pack")
        self.record_in_place(graph, points, False)

    def record_backward_stored(
        self,
        graph: StepGraph,
        packed: Array,
        points: Array,
        tables: RowTables,
        stored: tuple[Array, RowTables, int, list[Array]],
    ) -> None:
        """Record packed modes -> points, stored at places given by tables.

        `stored` is the array that the tables of the points refer to, these tables, the first of
        their planes, and the memory that they address. The points are working memory for a
        library's transform; else only their shape matters.
        """
        base, point_tables, first, accessed = stored
        if self.tiled:
            place = base, point_tables, first
            operation = self._kernel.bind(packed, points, tables, 0, False, place)
            self._add(graph, operation, [packed], accessed, "fft")
            return
        self.record_backward(graph, packed, points, tables, 0, [packed])
        scatter = self._mover.scatter(points, base, point_tables, first)
        self._add(graph, scatter, [points], accessed, "pack")

    def record_between(
        self,
        graph: StepGraph,
        modes: tuple[Array, RowTables, list[Array], int],
        points: tuple[Array, RowTables, list[Array], int],
        forward: bool,
        work: Array,
    ) -> None:
        """Record packed modes -> packed points, or back.

        Each side is an array, its tables, the memory that they address for these planes, and the
        first plane. Only the shape of the working memory (fields, planes, n, columns) matters if
        the transform is tiled.
        """
        source, target = (points, modes) if forward else (modes, points)
        if self.tiled:
            place = *points[:2], points[3]
            operation = self._kernel.bind(modes[0], work, modes[1], modes[3], forward, place)
            self._add(graph, operation, source[2], target[2], "fft")
            return
        gather = self._mover.gather(source[0], work, source[1], source[3])
        self._add(graph, gather, source[2], [work], "pack")
        self.record_in_place(graph, work, forward)
        scatter = self._mover.scatter(work, target[0], target[1], target[3])
        self._add(graph, scatter, [work], target[2], "pack")

    def record_in_place(self, graph: StepGraph, points: Array, forward: bool) -> None:
        """Record a library's transform of points in place; all modes are there afterwards."""
        operation = self._device.fft(points, points, 2, forward, self._scratch)
        self._add(graph, operation, [points], [points], "fft")

    def plan(self, points: Array) -> None:
        """Plan a library's transforms of points, if there are any, so that scratch is known."""
        if not self.tiled:
            for forward in (True, False):
                self._device.fft(points, points, 2, forward, self._scratch)

    def _add(
        self,
        graph: StepGraph,
        operation: Operation,
        reads: list[Array],
        writes: list[Array],
        category: str,
        moves: tuple[float, float] | None = None,
    ) -> None:
        graph.add(
            operation,
            reads=reads,
            writes=writes,
            label=f"fft {self._axis}" if category == "fft" else f"pack {self._axis}",
            category=category,
            moves=moves,
        )
