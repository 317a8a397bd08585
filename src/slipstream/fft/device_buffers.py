"""What tiles need on a device: rotating buffers, and memory for the transforms themselves.

While one tile is transformed, the next is copied in and the one before is copied out: with a lane
each for copies in, for computing and for copies out, three slots make the pipeline. Or everything
that a tile needs happens in one of several streams, a slot each, as in GHOST.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.decomposition import Box
from slipstream.device import Device
from slipstream.fft.host_device_copy import Bus
from slipstream.fft.layout_stages import AxisTransform
from slipstream.fft.padded_rows import padded_row, whole_rows
from slipstream.fft.tile_geometry import PassGeometry
from slipstream.fft.truncation import Modes
from slipstream.schedule import MAIN_LANE, StepGraph

PIPELINE_SLOTS = 3
# Buffers begin at multiples of this many bytes, as cuFFT and vector code like it.
ALIGNMENT = 256


def aligned(size: int) -> int:
    """Return the bytes after which the next buffer may begin."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class TooLittleMemory(Exception):
    """The limit does not allow it."""


@dataclass(frozen=True)
class Kind:
    """What of a transform every pass has to know.

    Attributes
    ----------
    modes : tuple of Modes
        The modes kept along each axis.
    real : bool
        Whether physical fields are real.
    complex_dtype : numpy.dtype
        complex64 or complex128.
    """

    modes: tuple[Modes, ...]
    real: bool
    complex_dtype: np.dtype

    @property
    def real_dtype(self) -> np.dtype:
        """The dtype of real fields."""
        return np.zeros(0, self.complex_dtype).real.dtype

    def shapes(self, before: Sequence[int], axes: Sequence[int]) -> list[tuple[int, ...]]:
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
        return self.real_dtype if real else self.complex_dtype


class Workspace:
    """Buffers on one device for tiles of several passes.

    Parameters
    ----------
    device : Device
        Where.
    bus : Bus
        How tiles get there.
    kind : Kind
        Of the transform.
    tiles : sequence of (shape, axes)
        The different tiles: shapes before the transforms along some axes.
    streams : int
        0 for the pipeline, or how many streams there are.
    limit : int
        How many bytes may be allocated on the device.

    Raises
    ------
    TooLittleMemory
        If that is not enough.
    """

    def __init__(
        self,
        device: Device,
        bus: Bus,
        kind: Kind,
        tiles: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
        streams: int,
        limit: int,
    ) -> None:
        self.device, self._bus, self._kind = device, bus, kind
        self.slots = streams or PIPELINE_SLOTS
        self._streams, self._turn = streams, 0
        lanes = streams or 1
        sizes = self._buffer_sizes(tiles)
        spare = max((self._spare_size(shape, axes) for shape, axes in tiles), default=0)
        self.bytes = self.slots * sum(sizes) + lanes * spare
        if self.bytes > limit:
            raise TooLittleMemory
        self._buffers = [[device.empty((n,), np.uint8) for n in sizes] for _ in range(self.slots)]
        self._staging = [[bus.staging(max(sizes)) for _ in "io"] for _ in range(self.slots)]
        self._spare = [device.empty((spare,), np.uint8) for _ in range(lanes)]
        self._scratch = [device.fft_scratch() for _ in range(lanes)]
        self._transforms: dict[tuple, list[AxisTransform]] = {}
        self._provide_scratch(tiles, limit)

    def _buffer_sizes(self, tiles) -> list[int]:
        """Return the bytes of the two buffers between which a tile goes to and fro."""
        sizes = [0, 0]
        for before, axes in tiles:
            for step, shape in enumerate(self._kind.shapes(before, axes)):
                dtype = self._kind.dtype(step, axes)
                row = padded_row(shape[-1]) if dtype.kind == "f" else shape[-1]
                size = math.prod(shape[:-1]) * row * dtype.itemsize
                sizes[step % 2] = max(sizes[step % 2], size)
        return [aligned(size) for size in sizes]

    def _spare_size(self, before, axes) -> int:
        """Return the bytes of the largest array of all modes that a transform has on the way."""
        shapes, largest = self._kind.shapes(before, axes), 0
        for shape, axis in zip(shapes, axes, strict=False):
            width = shape[axis] // 2 + 1 if self._kind.is_real_axis(axis) else shape[axis]
            size = math.prod(shape) // max(1, shape[axis]) * width
            largest = max(largest, size * self._kind.complex_dtype.itemsize)
        return largest

    def _provide_scratch(self, tiles, limit: int) -> None:
        """Find out what transforms need to work in, allocate it, and plan them again."""
        self._plan_all(tiles)
        needed = max(scratch.needed for scratch in self._scratch)
        self.bytes += needed * len(self._scratch)
        if self.bytes > limit:
            raise TooLittleMemory
        for scratch in self._scratch:
            scratch.provide(self.device.empty((needed,), np.uint8))

    def _plan_all(self, tiles) -> None:
        for slot in range(self.slots):
            for before, axes in tiles:
                padded = {False, self._kind.dtype(0, axes).kind == "f"}
                for forward, is_padded in itertools.product((True, False), padded):
                    arrays = self._arrays(slot, before, axes, is_padded)
                    graph = StepGraph(self.device)
                    self._record_transforms(graph, slot, arrays, axes, forward, 1.0)

    def record(
        self,
        graph: StepGraph,
        geometry: PassGeometry,
        tile: tuple[Box, Box],
        source: Any,
        target: Any,
        forward: bool,
        scale: float,
    ) -> None:
        """Record that a tile is copied in, transformed, and copied out.

        Parameters
        ----------
        graph : StepGraph
            Where nodes are added.
        geometry : PassGeometry
            The pass.
        tile : (Box, Box)
            The tile before and after the transforms.
        source, target : store
            Where it comes from and goes to, see `stores`.
        forward : bool
            Whether to go from physical to spectral space; if not, from after to before.
        scale : float
            What the result of the way back is multiplied by.
        """
        slot, self._turn = self._turn, (self._turn + 1) % self.slots
        padded = (source if forward else target).padded
        arrays = self._arrays(slot, tile[0].shape, geometry.axes, padded)
        first, last = (0, -1) if forward else (-1, 0)
        lane = f"stream {slot}" if self._streams else ""
        for box, view in source.read_views(tile[first]):
            place = arrays[first][box.slices(tile[first])]
            if source.padded:
                place, view = whole_rows(place), whole_rows(view)
            if source.read_on_device:
                self._record_kept(graph, place, view, lane)
            else:
                staging = self._staging[slot][0]
                self._bus.record(graph, place, view, True, lane or "copy in", staging)
        self._record_transforms(graph, slot, arrays, geometry.axes, forward, scale)
        for box, view in target.write_views(tile[last]):
            part = arrays[last][box.slices(tile[last])]
            if target.padded:
                part, view = whole_rows(part), whole_rows(view)
            if target.written_on_device:
                self._record_kept(graph, view, part, lane)
            else:
                staging = self._staging[slot][1]
                self._bus.record(graph, view, part, False, lane or "copy out", staging)

    def _record_kept(self, graph: StepGraph, target: Any, source: Any, lane: str) -> None:
        """Record a copy from, or to, an array on the device."""
        graph.add_copy(target, source, label="keep", lane=lane or MAIN_LANE, device=self.device)

    def _record_transforms(self, graph, slot: int, arrays, axes, forward: bool, scale) -> None:
        steps = list(enumerate(self._transforms_of(slot, arrays[0].shape, axes)))
        for step, transform in steps if forward else reversed(steps):
            if forward:
                transform.record_forward(graph, arrays[step], arrays[step + 1])
            else:
                transform.record_backward(graph, arrays[step + 1], arrays[step], scale)
                scale = 1.0

    def _arrays(self, slot: int, before, axes, padded: bool = False) -> list[Any]:
        """Return a tile's arrays, one before each transform and one after the last.

        The first may have the padded rows of transforms in place.
        """
        result = []
        for step, shape in enumerate(self._kind.shapes(before, axes)):
            dtype = self._kind.dtype(step, axes)
            row = padded_row(shape[-1]) if padded and step == 0 else shape[-1]
            size = math.prod(shape[:-1]) * row * dtype.itemsize
            whole = self._buffers[slot][step % 2][:size].view(dtype)
            result.append(whole.reshape(*shape[:-1], row)[..., : shape[-1]])
        return result

    def _transforms_of(self, slot: int, before, axes) -> list[AxisTransform]:
        lane = slot if self._streams else 0
        key = lane, tuple(before), tuple(axes)
        if key not in self._transforms:
            spare = self._spare[lane]

            def empty(shape: tuple[int, ...], dtype: Any) -> Any:
                size = math.prod(shape) * np.dtype(dtype).itemsize
                return spare[:size].view(dtype).reshape(shape)

            self._transforms[key] = [
                AxisTransform(
                    self.device,
                    shape,
                    axis,
                    self._kind.modes[axis - 1],
                    self._kind.is_real_axis(axis),
                    self._kind.complex_dtype,
                    f"stream {slot}" if self._streams else MAIN_LANE,
                    self._scratch[lane],
                    empty,
                )
                for shape, axis in zip(self._kind.shapes(before, axes), axes, strict=False)
            ]
        return self._transforms[key]
