"""Transforms of whole arrays along any axes, of any kinds, by numpy.fft and the sums themselves."""

import math

import numpy as np


def sums(kind, n, ortho=False):
    """Return the matrix of a cosine or sine transform, as scipy.fft defines it."""
    k, j = np.ogrid[:n, :n]
    at_ends = (j == 0) | (j == n - 1)
    matrix = {
        "dct1": lambda: np.where(at_ends, 1, 2) * np.cos(np.pi * k * j / (n - 1)),
        "dct2": lambda: 2 * np.cos(np.pi * k * (2 * j + 1) / (2 * n)),
        "dct3": lambda: np.where(j == 0, 1, 2) * np.cos(np.pi * (2 * k + 1) * j / (2 * n)),
        "dct4": lambda: 2 * np.cos(np.pi * (2 * k + 1) * (2 * j + 1) / (4 * n)),
        "dst1": lambda: 2 * np.sin(np.pi * (k + 1) * (j + 1) / (n + 1)),
        "dst2": lambda: 2 * np.sin(np.pi * (k + 1) * (2 * j + 1) / (2 * n)),
        "dst3": lambda: (
            np.where(j == n - 1, 1, 2) * np.sin(np.pi * (2 * k + 1) * (j + 1) / (2 * n))
        ),
        "dst4": lambda: 2 * np.sin(np.pi * (2 * k + 1) * (2 * j + 1) / (4 * n)),
    }[kind]()
    if not ortho:
        return matrix
    # The matrix with orthonormal rows that differs from it by factors of rows and columns only.
    scaled = matrix / math.sqrt(period(kind, n))
    if kind[3] in "13":
        columns = np.linalg.norm(scaled, axis=0)
        scaled = scaled * np.where(columns < columns.max() * 0.8, math.sqrt(2), 1)
    if kind == "dct1":
        scaled[[0, -1]] /= math.sqrt(2)
    elif kind[3] == "2":
        scaled[0 if kind == "dct2" else -1] /= math.sqrt(2)
    return scaled


def period(kind, n):
    return {"fft": n, "dct1": 2 * (n - 1), "dst1": 2 * (n + 1)}.get(kind, 2 * n)


def transform(whole, axes, kinds, norm="backward"):
    """Return the transform of a whole array."""
    fourier = [axis for axis, kind in zip(axes, kinds, strict=True) if kind == "fft"]
    for axis, kind in zip(axes, kinds, strict=True):
        if kind != "fft":
            n = whole.shape[axis]
            factor = 1 / period(kind, n) if norm == "forward" else 1
            matrix = factor * sums(kind, n, norm == "ortho")
            whole = np.moveaxis(np.tensordot(matrix, whole, (1, axis)), 0, axis)
    if not fourier:
        return whole
    forward = np.fft.rfftn if whole.dtype.kind == "f" else np.fft.fftn
    return forward(whole, axes=fourier, norm=norm)
