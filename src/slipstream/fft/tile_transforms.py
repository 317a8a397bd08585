"""Transforms of tiles along some of their axes: what they need on a device, and who does them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from slipstream.array_types import Array
from slipstream.device import Device
from slipstream.fft.padded_rows import padded_row
from slipstream.fft.transform_parts import AxisTransform
from slipstream.fft.truncation import Modes
from slipstream.outofcore.tile_slots import Slot, aligned
from slipstream.schedule import MAIN_LANE, StepGraph

Shape = tuple[int, ...]
# The shape of a tile before its transforms, and their axes.
Tile = tuple[Shape, tuple[int, ...]]


@dataclass(frozen=True)
class TileShapes:
    """Shapes and types of tiles between their transforms, and the bytes that these take.

    A tile goes to and fro between two buffers; the modes kept along each axis, whether physical
    fields are real, and their complex type say what it becomes.
    """

    modes: tuple[Modes, ...]
    real: bool
    complex_dtype: np.dtype

    def shapes(self, before: Shape, axes: Sequence[int]) -> list[Shape]:
        """Return the shapes of a tile, from before its transforms to after the last."""
        result = [tuple(before)]
        for axis in axes:
            count = self.modes[axis - 1].count
            result.append(tuple(count if a == axis else n for a, n in enumerate(result[-1])))
        return result

    def is_real_axis(self, axis: int) -> bool:
        """Return whether the transform along an axis is that of real numbers."""
        return self.real and axis == len(self.modes)

    def dtype(self, step: int, axes: Sequence[int]) -> np.dtype:
        """Return the type of a tile before the transform of a number."""
        real = step == 0 and bool(axes) and self.is_real_axis(axes[0])
        return np.zeros(0, self.complex_dtype).real.dtype if real else self.complex_dtype

    def buffer_sizes(self, tiles: Sequence[Tile]) -> list[int]:
        """Return the bytes of the two buffers that all of these tiles fit into."""
        sizes = [0, 0]
        for before, axes in tiles:
            for step, shape in enumerate(self.shapes(before, axes)):
                dtype = self.dtype(step, axes)
                row = padded_row(shape[-1]) if dtype.kind == "f" else shape[-1]
                size = math.prod(shape[:-1]) * row * dtype.itemsize
                sizes[step % 2] = max(sizes[step % 2], size)
        return [aligned(size) for size in sizes]

    def spare_bytes(self, tiles: Sequence[Tile]) -> int:
        """Return the bytes of the largest array of all modes that a transform has on the way."""
        largest = 0
        for before, axes in tiles:
            for shape, axis in zip(self.shapes(before, axes), axes, strict=False):
                width = shape[axis] // 2 + 1 if self.is_real_axis(axis) else shape[axis]
                size = math.prod(shape) // max(1, shape[axis]) * width
                largest = max(largest, size * self.complex_dtype.itemsize)
        return largest


class TileTransforms:
    """The transforms of tiles in one lane of a device, which share memory; a `Worker`."""

    def __init__(
        self, device: Device, shapes: TileShapes, tiles: Sequence[Tile], lane: str
    ) -> None:
        self._device, self._lane, self._shapes, self._tiles = device, lane, shapes, tiles
        self._spare = device.empty((shapes.spare_bytes(tiles),), np.uint8)
        self.scratch = device.fft_scratch()
        self._known: dict[Tile, list[AxisTransform]] = {}

    def plan(self, slot: Slot[TileTransforms]) -> None:
        for before, axes in self._tiles:
            padded = {False, self._shapes.dtype(0, axes).kind == "f"}
            for forward, is_padded in itertools.product((True, False), padded):
                arrays = self.arrays(slot, before, axes, is_padded)
                self.record(StepGraph(self._device), arrays, axes, forward)

    def arrays(
        self, slot: Slot[TileTransforms], before: Shape, axes: Sequence[int], padded: bool
    ) -> list[Array]:
        """Return a tile's arrays in a slot, one before each transform and one after the last.

        The first may have the padded rows of transforms in place.
        """
        result = []
        for step, shape in enumerate(self._shapes.shapes(before, axes)):
            dtype = self._shapes.dtype(step, axes)
            row = padded_row(shape[-1]) if padded and step == 0 else shape[-1]
            size = math.prod(shape[:-1]) * row * dtype.itemsize
            whole = slot.buffers[step % 2][:size].view(dtype)
            result.append(whole.reshape(*shape[:-1], row)[..., : shape[-1]])
        return result

    def record(
        self,
        graph: StepGraph,
        arrays: Sequence[Array],
        axes: Sequence[int],
        forward: bool,
        scale: float = 1.0,
        scales_points: bool = False,
    ) -> None:
        """Record the transforms of a tile.

        The result of the first one on the way back is multiplied by `scale`, or that of the last.
        """
        steps = list(enumerate(self._transforms(arrays[0].shape, tuple(axes))))
        scaling = 0 if scales_points else len(steps) - 1
        for step, transform in steps if forward else reversed(steps):
            if forward:
                transform.record_forward(graph, arrays[step], arrays[step + 1])
            else:
                factor = scale if step == scaling else 1.0
                transform.record_backward(graph, arrays[step + 1], arrays[step], factor)

    def _transforms(self, before: Shape, axes: tuple[int, ...]) -> list[AxisTransform]:
        def empty(shape: Shape, dtype: DTypeLike) -> Any:
            size = math.prod(shape) * np.dtype(dtype).itemsize
            return self._spare[:size].view(dtype).reshape(shape)

        if (before, axes) not in self._known:
            self._known[before, axes] = [
                AxisTransform(
                    self._device,
                    shape,
                    axis,
                    self._shapes.modes[axis - 1],
                    self._shapes.is_real_axis(axis),
                    self._shapes.complex_dtype,
                    self._lane or MAIN_LANE,
                    self.scratch,
                    empty,
                )
                for shape, axis in zip(self._shapes.shapes(before, axes), axes, strict=False)
            ]
        return self._known[before, axes]
