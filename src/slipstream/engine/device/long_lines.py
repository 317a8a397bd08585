"""Long lines on a CPU (`vector_fft_lines.hpp`): each is a matrix, and fills vectors by itself."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.device.device_interface import (
    REAL_NAMES,
    Device,
    Kernel,
    Operation,
    RowLaunch,
    address_of,
)
from slipstream.engine.device.fft_lengths import (
    call_kernel,
    find_divisors,
    find_next_smooth,
    find_radices,
    get_length,
)
from slipstream.engine.device.gpu_fft_launch import roots_at
from slipstream.engine.device.lane_programs import HostCall

# From this many complex points on, a single row takes a seventh of its time in a lane of a tile,
# and many rows take about as long as in lanes.
_LONG = 2048
# Bytes of the numbers that share turns: the widest vectors.
_WIDE = 64


@dataclass(frozen=True)
class LineKernel:
    """The kernel for lines of a length, the description of the length, and a `TileTransform`."""

    kernel: Kernel
    line: Line
    transform: Operation
    # What completes the description before the first call.
    fill: Callable[[], None] | None

    def bind(
        self, source: Array | int, target: Array | int, arguments: list[int], kept: tuple[Any, ...]
    ) -> Operation:
        """Return the call from one array to another; `arguments` begin a `LinesOf`."""
        call = call_kernel(
            self.kernel, self.line, source, target, arguments, [self.transform], kept
        )
        if self.fill is not None and isinstance(call, HostCall):
            call.fillers.append(self.fill)
        return call


def find_line_kernel(
    device: Device, n: int, real: str, is_real: bool, forward: bool
) -> LineKernel | None:
    """Return the kernel for lines of `n` points; None for short ones, and for a few lengths."""
    # Real numbers as half as many complex ones, unless the transform is a convolution.
    is_half = is_real and n % 2 == 0 and find_radices(n // 2) != ()
    points = n // 2 if is_half else n
    if points < _LONG:
        return None
    is_chirp = not find_radices(points)
    length = 64 * find_next_smooth(-(-(2 * points - 1) // 64)) if is_chirp else points
    matrix = _split(length, 2 * _WIDE // np.dtype(real).itemsize)
    if matrix is None:
        return None
    line = _get_line(points, matrix, real, is_half, forward or not is_half)
    constants: dict[str, Any] = {
        "REAL": REAL_NAMES[real],
        "SIGN": -1 if forward else 1,
        "HALVES": is_half,
        "REALS": is_real and not is_half,
        "CHIRP": is_chirp,
    }
    kernel = device.kernel("vector_fft_lines.hpp", "fft_lines", **constants)
    sign = -1 if forward or is_chirp else 1
    tiles = device.kernel(
        "vector_fft_tile.hpp", "transform_whole_tile", REAL=REAL_NAMES[real], SIGN=sign, CHIRP=False
    )
    fill = line.prepare_spectrum(device) if is_chirp else None
    return LineKernel(kernel, line, tiles.bind(RowLaunch(1, 1)), fill)


def _split(n: int, least: int) -> tuple[int, int] | None:
    """Return height and width of a line's matrix, as even as possible, the smaller one first.

    None if one of them would be less than `least`.
    """
    smaller = max(divisor for divisor in find_divisors(n) if divisor * divisor <= n)
    return (smaller, n // smaller) if smaller >= least else None


class Line:
    """The description of a length for `vector_fft_lines.hpp`: the address of a `Line`.

    If the points of the line are fewer than those of the matrix, its transform is a convolution.
    """

    def __init__(
        self, points: int, matrix: tuple[int, int], real: str, is_half: bool, forward: bool
    ) -> None:
        self._points, self._size = points, math.prod(matrix)
        self._complex = np.result_type(real, np.complex64)
        self._wide = _WIDE // np.dtype(real).itemsize
        self._lock, self._is_filled = threading.Lock(), False
        lengths = [get_length(one, real) for one in matrix]
        groups = _group_columns(matrix[1], self._wide, is_half and not forward)
        nothing = np.zeros(0)
        halves = self._make_turns_of_halves(matrix, forward) if is_half else [nothing, nothing]
        convolution = self._make_chirp() if points < self._size else [nothing, nothing]
        tables = [groups, *self._make_turns(matrix[0], groups), *halves, *convolution]
        self._kept = [np.ascontiguousarray(table) for table in tables], lengths
        addresses = [address_of(one) for one in (*(one.plan for one in lengths), *self._kept[0])]
        self.plan = np.array([points, len(groups), *matrix, *addresses], np.int64)

    def _make_turns(self, height: int, groups: np.ndarray) -> list[np.ndarray]:
        """Return the turns of modes by places in a group, and by first columns of groups."""
        k = np.arange(height, dtype=np.int64)
        places = _make_roots(k[:, None] * np.arange(self._wide), self._size, self._complex)
        between = _make_roots(groups[:, :1] * k, self._size, self._complex)
        return [np.stack([places.real, places.imag], axis=1), between]

    def _make_turns_of_halves(self, matrix: tuple[int, int], forward: bool) -> list[np.ndarray]:
        """Return the turns of rows and of columns of modes, between halves and the whole."""
        # Modes that are the result are the transposed matrix.
        across, down = matrix if forward else matrix[::-1]
        return [
            _make_roots(np.arange(down), 2 * down, self._complex),
            _make_roots(np.arange(across // 2 + 1), 2 * self._size, self._complex),
        ]

    def _make_chirp(self) -> list[np.ndarray]:
        """Return exp(-pi i k^2 / points), with room to load vectors, and room for its spectrum."""
        n = self._points
        squares = np.arange(n, dtype=np.int64) ** 2 % (2 * n)
        self._chirp = np.zeros(n + self._wide, complex)
        self._chirp[:n] = _make_roots(squares, 2 * n, complex)
        self._spectrum = np.empty(self._size, self._complex)
        return [self._chirp.astype(self._complex, copy=False), self._spectrum]

    def prepare_spectrum(self, device: Device) -> Callable[[], None]:
        """Return a function that computes the spectrum of the chirp, once, in double precision."""
        transform = find_line_kernel(device, self._size, "float64", False, True)
        assert transform is not None  # a multiple of 64, of small primes
        n, m = self._points, self._size

        def fill() -> None:
            with self._lock:
                if self._is_filled:
                    return
                spectrum = self._spectrum
                wave = spectrum if spectrum.dtype == complex else np.empty(m, complex)
                # Conjugates of the chirp, forwards from the first number and backwards from it.
                np.conjugate(self._chirp[:n], out=wave[:n])
                wave[n : m - n + 1] = 0
                wave[m - n + 1 :] = wave[n - 1 : 0 : -1]
                scale = int(np.float64(1 / m).view(np.int64))
                device.run(transform.bind(wave, wave, [scale, *[1] * 3, *[0] * 6], ()))
                spectrum[...] = wave
                self._is_filled = True

        return fill


def _group_columns(columns: int, wide: int, in_pairs: bool) -> np.ndarray:
    """Return the first column of each `Group`, and whether it is mirrored.

    The last group begins early enough to be whole. Of modes of halves, columns j and -j are
    transformed together.
    """
    used = columns // 2 + 1 if in_pairs else columns
    first = np.minimum(np.arange(0, used, wide), used - wide)
    groups = np.stack([first, np.zeros_like(first)], axis=1)
    if not in_pairs:
        return groups
    return np.concatenate([groups, np.stack([columns - first, np.ones_like(first)], axis=1)])


@functools.cache
def _get_line(
    points: int, matrix: tuple[int, int], real: str, is_half: bool, forward: bool
) -> Line:
    return Line(points, matrix, real, is_half, forward)


def _make_roots(k: np.ndarray, n: int, complex_type: Any) -> np.ndarray:
    """Return exp(-2 pi i k / n) for integers k, as products of a few that are rounded once."""
    step = math.isqrt(n) + 1
    coarse = roots_at(np.arange(0, n, step, dtype=np.int64), n, np.float64)
    fine = roots_at(np.arange(step, dtype=np.int64), n, np.float64)
    quotient, rest = np.divmod(k % n, step)
    roots: np.ndarray = (coarse[quotient] * fine[rest]).astype(complex_type, copy=False)
    return roots
