"""Cosine and sine transforms along one axis that is not divided among ranks.

Each is a complex Fourier transform of the points, padded with zeros and multiplied by factors
before and after it (`fourier_factors`): in cache if the device has a kernel for it, else in memory.
Complex arrays are transformed as pairs of real ones.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from slipstream.array_types import Array
from slipstream.device import Device, fourier_factors, period
from slipstream.fft.transform_kinds import inverse_kind
from slipstream.fft.transform_parts import Part, in_lanes
from slipstream.schedule import MAIN_LANE, StepGraph


class CosineTransform(Part):
    """A cosine or sine transform along one axis of local arrays, and its inverse.

    With `orthonormal` the first or last mode of types II and III, and both ends of type I, are
    scaled such that the transform is orthogonal up to a factor common to all modes.
    """

    def __init__(
        self,
        device: Device,
        shape: tuple[int, ...],
        axis: int,
        kind: str,
        orthonormal: bool,
        dtype: DTypeLike,
    ) -> None:
        self._device, self._kind, self._axis = device, kind, axis
        self._dtype = np.dtype(dtype)
        self._real = np.zeros(0, dtype).real.dtype
        # Complex numbers are viewed as an axis of two real ones.
        self._shape = (*shape, 2) if self._dtype.kind == "c" else shape
        n = shape[axis]
        self._tables: dict[bool, tuple[Array, Array]] = {}
        if not math.prod(shape):
            return
        self._edges = {
            forward: _edge_factors(kind if forward else inverse_kind(kind), n, orthonormal)
            for forward in (True, False)
        }
        self._library = device.has_cosine_transforms()
        if self._library:
            # Sources are not changed: their ends are scaled in a copy.
            copies = any(before for before, _ in self._edges.values())
            self._work = device.empty(self._shape if copies else (0,), self._real)
        else:
            for forward in (True, False):
                one = kind if forward else inverse_kind(kind)
                tables = fourier_factors(one, n)
                for table, edges in zip(tables, self._edges[forward], strict=True):
                    for index, factor in edges.items():
                        table[index] *= factor
                broadcast = [-1 if a == axis else 1 for a in range(len(self._shape))]
                complex_dtype = np.result_type(self._real, np.complex64)
                before, after = (
                    device.array(table.reshape(broadcast), complex_dtype) for table in tables
                )
                self._tables[forward] = before, after
            long = [period(kind, n) if a == axis else m for a, m in enumerate(self._shape)]
            self._work = device.empty(tuple(long), np.result_type(self._real, np.complex64))
        self.buffer_bytes = self._work.nbytes

    def describe(self) -> str:
        return f"{self._kind} along axis {self._axis - 1}"

    def record_forward(self, graph: StepGraph, source: Array, target: Array) -> None:
        """Record points -> modes; the source is not changed."""
        self._record(graph, source, target, True)

    def record_backward(
        self, graph: StepGraph, source: Array, target: Array, scale: float = 1.0
    ) -> None:
        """Record modes -> points, times a constant; the source is not changed."""
        self._record(graph, source, target, False)
        if scale != 1.0 and target.size:
            self._add(graph, self._device.scale(target, scale), target, target, "scale")

    def _record(self, graph: StepGraph, source: Array, target: Array, forward: bool) -> None:
        if not source.size:
            return
        source, target = self._as_real(source), self._as_real(target)
        if self._library:
            self._record_library(graph, source, target, forward)
        else:
            self._record_fourier(graph, source, target, forward)

    def _record_library(
        self, graph: StepGraph, source: Array, target: Array, forward: bool
    ) -> None:
        device, kind = self._device, self._kind if forward else inverse_kind(self._kind)
        before, after = self._edges[forward]
        if before:
            graph.add_copy(self._work, source, label="copy")
            source = self._work
            self._record_edges(graph, source, before)
        for lane, (points, modes) in in_lanes(graph, self._axis, source, target):
            operation = device.cosine_transform(points, modes, self._axis, kind)
            self._add(graph, operation, points, modes, kind, "fft", lane=lane)
        self._record_edges(graph, target, after)

    def _record_edges(self, graph: StepGraph, array: Array, edges: dict[int, float]) -> None:
        for index, factor in edges.items():
            edge = self._along(array, index, index + 1)
            self._add(graph, self._device.scale(edge, factor), edge, edge, "scale")

    def _record_fourier(
        self, graph: StepGraph, source: Array, target: Array, forward: bool
    ) -> None:
        device, xp, n = self._device, self._device.array_module, source.shape[self._axis]
        work, (before, after) = self._work, self._tables[forward]
        points, rest = self._along(work, 0, n), self._along(work, n, work.shape[self._axis])
        self._add(
            graph,
            lambda stream: xp.multiply(source, before, out=points),
            source,
            points,
            "before",
            "pack",
        )
        if rest.size:
            self._add(graph, device.fill(rest, 0), rest, rest, "pad", "pack")
        operation = device.fft(work, work, self._axis, True)
        self._add(graph, operation, work, work, self._kind, "fft")

        def finish(stream: Any) -> None:
            xp.multiply(points, after, out=points)
            xp.copyto(target, points.real)

        self._add(graph, finish, points, target, "after", "pack", also=points)

    def _add(
        self,
        graph: StepGraph,
        operation: Any,
        source: Array,
        target: Array,
        label: str,
        category: str = "compute",
        also: Array | None = None,
        lane: str = MAIN_LANE,
    ) -> None:
        writes = [target] if also is None else [target, also]
        label = f"{label} axis {self._axis - 1}"
        graph.add(
            operation, reads=[source], writes=writes, label=label, category=category, lane=lane
        )

    def _as_real(self, array: Array) -> Array:
        if self._dtype.kind != "c":
            return array
        return array.view(self._real).reshape(self._shape)

    def _along(self, array: Array, low: int, high: int) -> Array:
        return array[(slice(None),) * self._axis + (slice(low, high),)]


def _edge_factors(
    kind: str, n: int, orthonormal: bool
) -> tuple[dict[int, float], dict[int, float]]:
    """Return the factors of points before, and of modes after, an orthonormal transform."""
    if not orthonormal:
        return {}, {}
    root = math.sqrt(2.0)
    edge = 0 if kind.startswith("dct") else n - 1
    return {
        "dct1": ({0: root, n - 1: root}, {0: 1 / root, n - 1: 1 / root}),
        "dct2": ({}, {edge: 1 / root}),
        "dst2": ({}, {edge: 1 / root}),
        "dct3": ({edge: root}, {}),
        "dst3": ({edge: root}, {}),
    }.get(kind, ({}, {}))
