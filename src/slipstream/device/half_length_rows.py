"""Real rows on a CPU by complex transforms of half their length.

FFTW's own plans of real rows of some lengths, also those that it measures, take up to twice as
long: its code for real numbers makes little use of vector instructions.
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

# Points for which the second pass over rows is worth it: by a factor of 1.4 to 2. Of most others
# FFTW estimates worse plans for the half than for the whole, and the way here took up to 1.8 times
# as long.
_LENGTHS = (64, 96, 128, 256, 512)
# Bytes that one thread transforms, and passes over again while they are in its cache; and of how
# many rows there is a multiple: all parts then lie alike in lines of the cache, and share a plan.
_PART = 1 << 18
_ALIKE = 8


def possible(source: np.ndarray, target: np.ndarray, axis: int) -> bool:
    """Return whether a transform is one of real rows of such a length, without gaps."""
    real = [array for array in (source, target) if array.dtype.kind != "c"]
    if not real or axis % source.ndim != source.ndim - 1 or not 2 <= source.ndim <= 4:
        return False
    points = real[0]
    without_gaps = all(array.strides[-1] == array.itemsize for array in (source, target))
    # Rows of points begin where complex numbers can.
    whole = all(stride % (2 * points.itemsize) == 0 for stride in points.strides[:-1])
    # In place numbers go where they come from, in arrays that FFTW's planner does not fail on.
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
    """Return what makes modes of rows of those of half the length, or the reverse."""
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
