"""Real rows on a CPU by complex transforms of half their length.

For some lengths FFTW's own plans for real rows, even measured ones, take up to twice as long: its
code for real numbers makes little use of vector instructions.
"""

from __future__ import annotations

import functools
import math
from typing import Any, cast

import numpy as np

from slipstream.device import fftw
from slipstream.device.array_addresses import REAL_NAMES
from slipstream.device.device_interface import Device, Operation, RowLaunch
from slipstream.device.host_calls import HostCall
from slipstream.device.lane_programs import in_sequence

# Row lengths for which the second pass pays, by a factor of 1.4 to 2. For most others FFTW's
# estimated plan is worse for the half length than for the whole, and this took up to 1.8 times as
# long.
_LENGTHS = (64, 96, 128, 256, 512)
# Bytes that one thread transforms, and passes over again while they are in its cache; and the
# number of rows of which a part is a multiple, so that all parts are aligned alike and share a
# plan.
_PART = 1 << 18
_ALIKE = 8


def possible(source: np.ndarray, target: np.ndarray, axis: int) -> bool:
    """Return whether a transform is of real, contiguous rows of one of these lengths."""
    real = [array for array in (source, target) if array.dtype.kind != "c"]
    if not real or axis % source.ndim != source.ndim - 1 or not 2 <= source.ndim <= 4:
        return False
    points = real[0]
    without_gaps = all(array.strides[-1] == array.itemsize for array in (source, target))
    # Rows of points must be aligned for complex numbers.
    whole = all(stride % (2 * points.itemsize) == 0 for stride in points.strides[:-1])
    # In place, the result overwrites the source, in arrays that FFTW's planner accepts.
    alike = source.strides[:-1] == target.strides[:-1] and min(source.strides) > 0
    fits = alike or source.ctypes.data != target.ctypes.data
    n = points.shape[-1]
    return bool(without_gaps and whole and fits and points.size > 0 and n in _LENGTHS)


def plan(
    device: Device, source: np.ndarray, target: np.ndarray, forward: bool, threads: int
) -> Operation:
    """Return the transform along the last axis; see `Device.fft`."""
    points, modes = (source, target) if forward else (target, source)
    n = points.shape[-1]
    numbers = points.view(modes.dtype)
    parts: list[tuple] = [()]
    if threads == 1:
        height = max(1, _PART // (2 * n * points.itemsize * _ALIKE)) * _ALIKE
        rows = [slice(low, low + height) for low in range(0, points.shape[-2], height)]
        parts = [(*outer, part) for outer in np.ndindex(points.shape[:-2]) for part in rows]
    calls: list[HostCall] = []
    for part in parts:
        mix = _mix(device, modes[part], n, forward)
        halves = numbers[part], modes[part][..., : n // 2]
        first, second = halves if forward else halves[::-1]
        axis = first.ndim - 1
        transform = cast(HostCall, fftw.plan(first, second, (axis,), forward, threads))
        calls += [transform, mix] if forward else [mix, transform]
    return in_sequence(device, calls)


def _mix(device: Device, modes: np.ndarray, n: int, forward: bool) -> HostCall:
    """Return the pass that turns half-length modes into those of the rows, or the reverse."""
    real = np.zeros(0, modes.dtype).real.dtype
    lacking = 4 - modes.ndim
    shape = [*[1] * lacking, *modes.shape[:-1]]
    strides = [*[0] * lacking, *(stride // real.itemsize for stride in modes.strides[:-1])]
    kernel = device.kernel("half_length_fft.hpp", "mix_modes", REAL=REAL_NAMES[real.name], N=n)
    turns, rows = _turns(n, real.name, forward), math.prod(shape)
    sizes = int(forward), rows, *shape[1:], *strides
    return cast(HostCall, kernel.bind(RowLaunch(rows, n), modes, turns, *sizes))


@functools.cache
def _turns(n: int, real: str, forward: bool) -> Any:
    """Return the factors of `mix_modes`."""
    angle = 2 * np.pi * np.arange(n // 2) / n
    turn = -0.5j * np.exp(-1j * angle) if forward else 1j * np.exp(1j * angle)
    table = np.concatenate([np.repeat(turn.real, 2), np.stack([-turn.imag, turn.imag], 1).ravel()])
    return table.astype(real)
