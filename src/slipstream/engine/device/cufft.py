"""Local transforms on the GPU: cuFFT plans over strided views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np
from cupy.cuda import cufft

from slipstream.engine.device.device_interface import Operation, Scratch, Stream, address_of
from slipstream.engine.device.memory import note
from slipstream.engine.device.pool_limit import allocate_pooled

_KINDS = {
    ("f", "F"): cufft.CUFFT_R2C,
    ("F", "f"): cufft.CUFFT_C2R,
    ("F", "F"): cufft.CUFFT_C2C,
    ("d", "D"): cufft.CUFFT_D2Z,
    ("D", "d"): cufft.CUFFT_Z2D,
    ("D", "D"): cufft.CUFFT_Z2Z,
}

# Lines side by side from which on accesses of memory are in long enough runs.
_NEIGHBOURS = 16


class CufftScratch(Scratch):
    """Plans by their arguments, and one work area for all of them."""

    def __init__(self) -> None:
        self._plans: dict[tuple[Any, ...], cufft.PlanNd] = {}
        self._memory: cupy.ndarray | None = None
        self._tiny = cupy.empty((256,), np.uint8)

    def provide(self, memory: cupy.ndarray) -> None:
        """Take the work area."""
        self._memory = memory
        self._plans.clear()

    def plan(self, *arguments: Any) -> cufft.PlanNd:
        """Return the plan of these arguments of cuFFT's, whose work area is the shared one."""
        if arguments not in self._plans:
            with cupy.cuda.using_allocator(self._allocate):
                self._plans[arguments] = cufft.PlanNd(*arguments)
        return self._plans[arguments]

    def _allocate(self, size: int) -> cupy.cuda.MemoryPointer:
        self.needed = max(self.needed, size)
        # Until there is memory, plans are only made to learn their needs, and never run.
        if self._memory is None:
            return self._tiny.data
        if size > self._memory.nbytes:  # which nobody has planned: transforms between steps
            return allocate_pooled(size)
        return self._memory.data


def strided_plan(
    source: cupy.ndarray,
    target: cupy.ndarray,
    axis: int,
    forward: bool,
    scratch: CufftScratch | None = None,
) -> Operation:
    """Return the planned transform ``source -> target`` along `axis`; see `Device.fft`.

    cuFFT knows one batch dimension, at a fixed distance. One run of axes that can be merged is
    taken; the axes that remain are looped over.
    """
    axis %= source.ndim
    if source.size == 0 or target.size == 0:
        return lambda stream: None
    real = target if target.dtype.kind == "f" else source
    others = [i for i in range(source.ndim) if i != axis]
    batch, looped = _merge(source, target, others)
    if _is_misaligned(real, looped):
        return _plan_aligned_copy(source, target, axis, forward, scratch)
    last = batch[-1] if batch else None
    distance = [a.strides[last] // a.itemsize if batch else 1 for a in (source, target)]
    stride = [a.strides[axis] // a.itemsize for a in (source, target)]
    count = int(np.prod([source.shape[i] for i in batch]))
    # Unit embedding: with one dimension only strides and distances matter.
    plan = (scratch.plan if scratch else cufft.PlanNd)(
        (real.shape[axis],),
        (1,),
        stride[0],
        distance[0],
        (1,),
        stride[1],
        distance[1],
        _KINDS[source.dtype.char, target.dtype.char],
        count,
        "C",
        0,
        None,
    )
    direction = cufft.CUFFT_FORWARD if forward else cufft.CUFFT_INVERSE
    loop = [source.shape[i] for i in looped]
    pairs = []
    for index in np.ndindex(*loop):
        where: list[Any] = [slice(None)] * source.ndim
        for i, position in zip(looped, index, strict=True):
            where[i] = slice(position, position + 1)
        pairs.append((source[tuple(where)], target[tuple(where)]))

    def operation(stream: Stream) -> None:
        for part, result in pairs:
            plan.fft(part, result, direction)

    return operation


def _is_misaligned(real: cupy.ndarray, looped: Sequence[int]) -> bool:
    """Return whether a part of an array, taken one by one along `looped`, begins amiss for cuFFT.

    It wants real numbers to begin where a complex one may. Planes of odd sizes begin at any number.
    """
    pair = 2 * real.itemsize
    steps = [real.strides[i] for i in looped if real.shape[i] > 1]
    return real.dtype.kind == "f" and any(n % pair for n in (address_of(real), *steps))


def _plan_aligned_copy(
    source: cupy.ndarray,
    target: cupy.ndarray,
    axis: int,
    forward: bool,
    scratch: CufftScratch | None,
) -> Operation:
    """Return `strided_plan` from or to a copy of the real array whose rows begin at even places."""
    real = source if forward else target
    shape = list(real.shape)
    shape.append(shape.pop(axis))
    row = shape[-1]
    copy = note(cupy.empty((*shape[:-1], row + row % 2), real.dtype))[..., :row]
    copy = cupy.moveaxis(copy, -1, axis)
    pair = (copy, target) if forward else (source, copy)
    transform = strided_plan(*pair, axis, forward, scratch)

    def operation(stream: Stream) -> None:
        if forward:
            cupy.copyto(copy, source)
        transform(stream)
        if not forward:
            cupy.copyto(target, copy)

    return operation


def whole_plan(source: cupy.ndarray, target: cupy.ndarray, forward: bool) -> Operation:
    """Return the planned transform along all axes but the first; see `Device.fft_all`."""
    if source.size == 0 or target.size == 0:
        return lambda stream: None
    real = target if target.dtype.kind == "f" else source
    kind = _KINDS[source.dtype.char, target.dtype.char]
    shape = real.shape[1:]
    embedded = [array.shape[1:] for array in (source, target)]
    distances = [math.prod(extent) for extent in embedded]
    plan = cufft.PlanNd(
        shape,
        embedded[0],
        1,
        distances[0],
        embedded[1],
        1,
        distances[1],
        kind,
        real.shape[0],
        "C",
        len(shape) - 1,
        None,
    )
    direction = cufft.CUFFT_FORWARD if forward else cufft.CUFFT_INVERSE
    return lambda stream: plan.fft(source, target, direction)


def _merge(
    source: cupy.ndarray, target: cupy.ndarray, axes: list[int]
) -> tuple[list[int], list[int]]:
    """Split `axes` into axes that form one evenly spaced batch and axes to loop over.

    Lines that are neighbours in memory are taken together if there are enough of them to use whole
    lines of the cache; else the longest run is.
    """
    runs: list[list[int]] = []
    for i in axes:
        if source.shape[i] == 1:
            continue
        previous = runs[-1][-1] if runs else None
        if previous is not None and all(
            array.strides[previous] == array.shape[i] * array.strides[i]
            for array in (source, target)
        ):
            runs[-1].append(i)
        else:
            runs.append([i])
    if not runs:
        return [], []

    def rank_run(run: list[int]) -> tuple[bool, int]:
        size = math.prod(source.shape[i] for i in run)
        near = all(array.strides[run[-1]] == array.itemsize for array in (source, target))
        return near and size >= _NEIGHBOURS, size

    batch = max(runs, key=rank_run)
    return batch, [i for run in runs if run is not batch for i in run]
