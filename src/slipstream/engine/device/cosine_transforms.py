"""Cosine and sine transforms, unnormalised as in `scipy.fft`, by Fourier transforms."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from slipstream.engine.device import gpu_fft_launch


def period(kind: str, n: int) -> int:
    """Return the points of a full period: the factor of a transform followed by its inverse."""
    return {"fft": n, "dct1": 2 * (n - 1), "dst1": 2 * (n + 1)}.get(kind, 2 * n)


def _edge_factors(kind: str, n: int, orthonormal: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors of an orthonormal transform: of points before it, and of modes after."""
    before, after = np.ones(n), np.ones(n)
    if orthonormal and kind[3] in "123":
        edge = 0 if kind.startswith("dct") else n - 1
        edges = {"dct1": [0, n - 1], "dst1": []}.get(kind, [edge])
        if kind[3] in "13":
            before[edges] = math.sqrt(2.0)
        if kind[3] in "12":
            after[edges] = math.sqrt(0.5)
    return before, after


def fourier_factors(kind: str, n: int, orthonormal: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors of points before, and of modes after, the Fourier transform of a period.

    The modes' real parts are the result.
    """
    size, index = period(kind, n), np.arange(n)

    def wave(numerator: np.ndarray | int, denominator: int) -> np.ndarray:
        return np.exp(-2j * np.pi * numerator / denominator)

    before, after = np.full(n, 2.0 + 0j), np.ones(n, complex)
    if kind == "dct1":
        before[[0, -1]] = 1
    elif kind == "dst1":
        before, after = 2 * wave(index, size), 1j * wave(index + 1, size)
    elif kind == "dct2":
        after = wave(index, 2 * size)
    elif kind == "dst2":
        before, after = 2 * wave(index, size), 1j * wave(index + 1, 2 * size)
    elif kind == "dct3":
        before = 2 * wave(index, 2 * size)
        before[0] = 1
    elif kind == "dst3":
        before, after = 2 * wave(index, 2 * size), 1j * wave(2 * index + 1, 2 * size)
        before[-1] /= 2
    else:
        before = 2 * wave(index, 2 * size)
        after = (1 if kind == "dct4" else 1j) * wave(2 * index + 1, 4 * size)
    edges = _edge_factors(kind, n, orthonormal)
    return before * edges[0], after * edges[1]


@dataclass(frozen=True)
class ShortTransform:
    """A cosine or sine transform by a complex Fourier transform without zeros, if it can be.

    Element i is ``point_factors[i] @ x[points[i]]``, and result j is the real part of
    ``mode_factors[j] * modes[mode_of[j]]``. If it `is_half`, the elements of a forward transform
    are pairs of neighbours among `2 size` real numbers, whose `size + 1` modes are meant; a
    backward one is from such modes to pairs.
    """

    size: int
    is_half: bool
    forward: bool
    points: np.ndarray
    point_factors: np.ndarray
    mode_of: np.ndarray
    mode_factors: np.ndarray

    def results_of_modes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return up to two results of each mode, -1 for none, and their factors."""
        order = np.argsort(self.mode_of, kind="stable")
        modes, column = self.mode_of[order], np.zeros(len(order), np.int64)
        column[1:] = modes[1:] == modes[:-1]
        shape = self.size + (self.is_half and self.forward), 2
        results, factors = np.full(shape, -1, np.int64), np.zeros(shape, complex)
        results[modes, column], factors[modes, column] = order, self.mode_factors[order]
        return results, factors


def shorten(kind: str, n: int, orthonormal: bool = False) -> ShortTransform:
    """Return the Fourier transform for a kind: of n / 2 elements if n is even, else of n.

    That of type I has n - 1 or n + 1. Sines are cosines, of points with alternating signs or in
    the reverse order, with modes in the reverse order or with alternating signs.
    """
    is_sine = kind.startswith("dst")
    if kind[3] == "1":
        short = _of_period(n, is_sine)
    else:
        signs = (-1.0) ** np.arange(n) if is_sine else np.ones(n)
        find = {"2": _to_modes, "3": _to_points, "4": _between_halves}[kind[3]]
        short = find(n, signs)
    if is_sine and kind[3] in "24":
        modes, factors = short.mode_of[::-1], short.mode_factors[::-1]
        short = replace(short, mode_of=modes, mode_factors=factors)
    elif is_sine and kind[3] == "3":
        short = replace(short, points=n - 1 - short.points)
    before, after = _edge_factors(kind, n, orthonormal)
    return replace(
        short,
        point_factors=short.point_factors * before[short.points],
        mode_factors=short.mode_factors * after,
    )


def _of_period(n: int, is_sine: bool) -> ShortTransform:
    """Type I: all points of a period, in pairs."""
    half = n + 1 if is_sine else n - 1
    index = np.arange(2 * half)
    rows = np.minimum(index, 2 * half - index) - is_sine
    signs = np.where(index > half, -1.0, 1.0) if is_sine else np.ones(2 * half)
    signs[(rows < 0) | (rows >= n)] = 0
    pairs = _elements(np.clip(rows, 0, n - 1), signs, True)
    return ShortTransform(half, True, True, *pairs, np.arange(n) + is_sine, np.full(n, 1j**is_sine))


def _to_modes(n: int, signs: np.ndarray) -> ShortTransform:
    """Type II: a real transform of `n` points in another order (Makhoul 1980)."""
    is_half, order, index = n % 2 == 0, _makhoul_order(n), np.arange(n)
    elements = _elements(order, signs[order], is_half)
    modes = np.minimum(index, n - index)
    factors = 2 * _wave(modes, 4 * n) * np.where(index > modes, 1j, 1)
    return ShortTransform(len(elements[0]), is_half, True, *elements, modes, factors)


def _to_points(n: int, signs: np.ndarray) -> ShortTransform:
    """Type III: the reverse."""
    is_half, order, index = n % 2 == 0, _makhoul_order(n), np.arange(n)
    modes = np.arange(n // 2 + 1 if is_half else n)
    point_factors = _wave(-modes, 4 * n)[:, None] * [1, -1j]
    point_factors[0, 1] = 0
    places, mode_factors = np.empty(n, np.int64), np.empty(n, complex)
    places[order] = index // 2 if is_half else index
    mode_factors[order] = signs[order] * np.where(index % 2 * is_half, -1j, 1)
    size, points = n // 2 if is_half else n, np.stack([modes, -modes % n], 1)
    return ShortTransform(size, is_half, False, points, point_factors, places, mode_factors)


def _between_halves(n: int, signs: np.ndarray) -> ShortTransform:
    """Type IV: pairs of points from both ends, turned before and after; or, if `n` is odd, reals.

    With m = (n - 1) / 2 + 4 i, which meets an image of each point once, the turns
    (2 k + 1) (2 m + 1) / (8 n) of point m in mode k are (2 k + 1) / 8 + (2 k + 1) i / n.
    """
    index = np.arange(n)
    if n % 2 == 0:
        m = np.arange(n // 2)
        points = np.stack([2 * m, n - 1 - 2 * m], 1)
        point_factors = _wave(4 * m + 1, 8 * n)[:, None] * [1, 1j] * signs[points]
        places = np.where(index % 2, n - 1 - index, index) // 2
        mode_factors = 2 * _wave(places, 2 * n) * np.where(index % 2, 1j, 1)
        return ShortTransform(n // 2, False, True, points, point_factors, places, mode_factors)
    quarter, rest = np.divmod((n // 2 + 4 * index) % (4 * n), n)
    rows = np.where(quarter % 2, n - 1 - rest, rest)
    elements = _elements(rows, signs[rows] * np.array([1, -1, -1, 1])[quarter], False)
    modes = 2 * index + 1
    return ShortTransform(n, False, True, *elements, modes % n, 2 * _wave(modes, 8))


def _elements(
    points: np.ndarray, signs: np.ndarray, is_half: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the points and factors of elements that are real, or pairs if `is_half`."""
    if is_half:
        return points.reshape(-1, 2), signs.reshape(-1, 2) * [1, 1j]
    return np.stack([points, points], 1), np.stack([signs + 0j, 0 * signs], 1)


def _makhoul_order(n: int) -> np.ndarray:
    """Return the even numbers below n, and then the odd ones, the largest first."""
    return np.concatenate([np.arange(0, n, 2), np.arange(1, n, 2)[::-1]])


def _wave(numerator: np.ndarray, denominator: int) -> np.ndarray:
    """Return exp(-2 pi i numerator / denominator), rounded once."""
    return gpu_fft_launch.roots_at(numerator % denominator, denominator, np.float64)
