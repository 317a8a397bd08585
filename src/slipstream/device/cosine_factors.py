"""Cosine and sine transforms as Fourier transforms of a full period, of which points are a part.

With one factor for each point before the transform, and one for each mode after it::

    X_k = Re(after_k * sum_n before_n x_n exp(-2 pi i n k / period))
"""

from __future__ import annotations

import numpy as np


def period(kind: str, n: int) -> int:
    """Return the points of a full period: the factor of a transform followed by its inverse."""
    return {"fft": n, "dct1": 2 * (n - 1), "dst1": 2 * (n + 1)}.get(kind, 2 * n)


def fourier_factors(kind: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors of points before, and of modes after, the Fourier transform of a kind."""
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
    return before, after
