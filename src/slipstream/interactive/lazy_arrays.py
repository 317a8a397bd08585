"""Arrays of xarray that are read when they are asked for, and no more of them than that.

Only what needs xarray imports this module: it comes with no installation of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xarray.backends import BackendArray
from xarray.core import indexing


class LazyArray(BackendArray):
    """An array of which a function reads a part, given integers and slices of positive steps."""

    def __init__(
        self, shape: Sequence[int], dtype: np.dtype, read: Callable[[tuple[Any, ...]], np.ndarray]
    ) -> None:
        self.shape, self.dtype, self._read = tuple(shape), dtype, read

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        support = indexing.IndexingSupport.BASIC
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._part)

    def _part(self, key: tuple[Any, ...]) -> np.ndarray:
        return np.asarray(self._read(key)).astype(self.dtype, copy=False)

    def __deepcopy__(self, memo: Any) -> LazyArray:
        # What is read cannot be changed through it; what reads may hold a whole simulation.
        return self


def lazily(
    shape: Sequence[int], dtype: Any, read: Callable[[tuple[Any, ...]], np.ndarray]
) -> indexing.LazilyIndexedArray:
    """Return what xarray takes for an array, and indexes before anything of it is read."""
    return indexing.LazilyIndexedArray(LazyArray(shape, np.dtype(dtype), read))
