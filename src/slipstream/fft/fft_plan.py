"""A plan: the parts that a transform consists of, for one choice of how to do it.

Parts are put together along a route (`route`). Two stages that are slabs along z and then along ky
are one part, the fused slab transform; every other exchange and transform is a part of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.decomposition import slabs
from slipstream.device import Device
from slipstream.exchange import NarrowWire, Transport, make_transport
from slipstream.fft.fft_arguments import Arguments
from slipstream.fft.layout_search import Stage, find_route, with_fields
from slipstream.fft.layout_stages import AxisTransform, Nothing, Redistribution
from slipstream.fft.slab_chunks import SlabOptions
from slipstream.fft.slab_transform import SlabTransform
from slipstream.schedule import StepGraph


@dataclass(frozen=True)
class Choices:
    """What does not change the result of a transform, and is tuned."""

    transport: str
    workers: int
    slab: SlabOptions


class Plan:
    """The parts of a transform on one rank. Collective.

    `parts` are in the order of going forward.
    """

    def __init__(self, arguments: Arguments, device: Device, comm: Any, choices: Choices) -> None:
        self.arguments, self.device, self.choices = arguments, device, choices
        self.transport: Transport | None = make_transport(choices.transport, comm, device)
        self._full = self.transport
        if arguments.wire and self.transport:
            self.transport = NarrowWire(self.transport, device, comm, arguments.wire)
        self._rank = comm.rank if comm is not None else 0
        self.parts: list[Any] = []
        self._arrays: list[tuple[tuple[int, ...], Any]] = []
        a = arguments
        route = find_route(
            (a.fields, *a.shape),
            a.modes,
            a.real,
            with_fields(a.input_boxes, a.fields),
            with_fields(a.output_boxes, a.fields),
            choices.workers,
        )
        number = 0
        while number < len(route):
            if self._is_on_one_rank(route[number]):
                works = route[number].before[self._rank].size
                part: Any = self._slab(None, 0, 1) if works else Nothing()
                self._append(part, route[number].after[self._rank].shape, a.complex_dtype)
            elif self._is_slab(route[number : number + 2]):
                number += 1 if a.ranks > 1 else 0
                part = self._slab(self.transport, self._rank, a.ranks)
                self._append(part, route[number].after[self._rank].shape, a.complex_dtype)
            else:
                self._add_stage(route[number])
            number += 1
            if number < len(route):
                self._add_exchange(route[number - 1], route[number])
        self._work = self._allocate()

    @property
    def exchanges(self) -> int:
        """How often the array is redistributed on the way."""
        return sum(part.exchanges for part in self.parts)

    @property
    def workers(self) -> int:
        """How many ranks transform."""
        return self.choices.workers

    @property
    def is_alone(self) -> bool:
        """Whether there is nothing to overlap: on a CPU, one exchange in one piece."""
        slab, device = self.choices.slab, self.device
        alone = device.kind == "cpu" and device.lanes * slab.kx_chunks * slab.plane_chunks == 1
        return alone and self.exchanges <= 1

    def describe_parts(self) -> list[str]:
        """Return a line for each part, for people."""
        return [part.describe() for part in self.parts]

    @property
    def wire_bytes(self) -> int:
        """Bytes that leave this rank in one transform."""
        itemsize = {"float32": 8, "bfloat16": 4}.get(self.arguments.wire or "")
        total = 0
        for part, (_, dtype) in zip(self.parts, self._arrays, strict=True):
            size = np.dtype(dtype).itemsize
            if isinstance(part, SlabTransform) or np.dtype(dtype).kind == "c":
                size = itemsize or self.arguments.complex_dtype.itemsize
            total += part.wire_elements * size
        return total

    def record_forward(self, graph: StepGraph, physical: Any, spectral: Any) -> None:
        """Record physical -> spectral; arrays (fields, ...) in this device's memory."""
        arrays = [physical, *self._work, spectral]
        for number, part in enumerate(self.parts):
            part.record_forward(graph, arrays[number], arrays[number + 1])

    def record_backward(self, graph: StepGraph, spectral: Any, physical: Any) -> None:
        """Record spectral -> physical, normalised."""
        arrays = [physical, *self._work, spectral]
        scale = 1.0 / math.prod(self.arguments.shape)
        for number, part in reversed(list(enumerate(self.parts))):
            # One transform normalises, and there is always one.
            transforms = not isinstance(part, Redistribution)
            part.record_backward(
                graph, arrays[number + 1], arrays[number], scale if transforms else 1.0
            )
            scale = 1.0 if transforms else scale

    def _is_slab(self, stages: Sequence[Stage]) -> bool:
        a = self.arguments
        if len(a.shape) != 3:
            return False
        planes = with_fields(slabs(a.shape, 0, a.ranks), a.fields)
        columns = with_fields(slabs(a.spectral_shape, 1, a.ranks), a.fields)
        if stages[0].before != planes:
            return False
        if a.ranks == 1:
            return stages[0].axes == (3, 2, 1)
        axes = [stage.axes for stage in stages]
        return axes == [(3, 2), (1,)] and stages[1].after == columns

    def _is_on_one_rank(self, stage: Stage) -> bool:
        """Return whether one rank, of several, does all transforms."""
        filled = [box for box in stage.before if box.size]
        return self.arguments.ranks > 1 and len(filled) == 1 and stage.axes == (3, 2, 1)

    def _slab(self, transport: Transport | None, rank: int, ranks: int) -> SlabTransform:
        a = self.arguments
        nz, ny, nx = a.shape
        z, y, x = a.modes
        return SlabTransform(
            self.device,
            transport,
            (nz, ny, nx),
            (z, y, x),
            rank,
            ranks,
            a.fields,
            a.real,
            a.complex_dtype,
            self.choices.slab,
        )

    def _add_stage(self, stage: Stage) -> None:
        a = self.arguments
        shape = stage.before[self._rank].shape
        for axis in stage.axes:
            modes, real = a.modes[axis - 1], a.real and axis == len(a.shape)
            part = AxisTransform(self.device, shape, axis, modes, real, a.complex_dtype)
            if math.prod(shape):
                shape = tuple(modes.count if i == axis else n for i, n in enumerate(shape))
            self._append(part, shape, a.complex_dtype)

    def _add_exchange(self, before: Stage, after: Stage) -> None:
        a = self.arguments
        dtype = self._arrays[-1][1] if self._arrays else a.dtype
        # Real arrays, which only bricks exchange, are never narrowed.
        transport = self.transport if np.dtype(dtype).kind == "c" else self._full
        part = Redistribution(self.device, transport, before.after, after.before, self._rank, dtype)
        self._append(part, after.before[self._rank].shape, dtype)

    def _append(self, part: Any, shape: tuple[int, ...], dtype: Any) -> None:
        """Append a part, and the array behind it."""
        self.parts.append(part)
        self._arrays.append((shape, dtype))

    def _allocate(self) -> list[Any]:
        """Return the arrays between the parts, which take turns in two buffers."""
        between = self._arrays[:-1]
        sizes = [math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in between]
        buffers = [
            self.device.empty((max(sizes[turn::2], default=0),), np.uint8) for turn in (0, 1)
        ]
        return [
            buffers[number % 2][:size].view(dtype).reshape(shape)
            for number, (size, (shape, dtype)) in enumerate(zip(sizes, between, strict=True))
        ]
