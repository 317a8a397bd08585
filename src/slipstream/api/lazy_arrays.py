"""Lazy arrays for xarray: values are read when they are used, and no others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from xarray.backends import BackendArray
from xarray.core import indexing

if TYPE_CHECKING:
    pass


class LazyArray(BackendArray):
    """An array whose parts a function reads, given integers and slices with positive steps."""

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
        # The array cannot be written through it; the reader may hold a whole simulation.
        return self


def lazily(
    shape: Sequence[int], dtype: Any, read: Callable[[tuple[Any, ...]], np.ndarray]
) -> indexing.LazilyIndexedArray:
    """Return an array for xarray, which indexes it before anything is read."""
    return indexing.LazilyIndexedArray(LazyArray(shape, np.dtype(dtype), read))
