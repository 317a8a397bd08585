"""The order in which the rows of a box have their sites."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# Rows of a tile along z and y.
_TILE = 8


def _raster(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.arange(z.size)


def _row_tiles(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.lexsort((y, z, y // _TILE, z // _TILE))


# Of rows at z and y, listed in raster order, the one that is first, second and so on.
ORDERS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "raster": _raster,
    "row-tiles": _row_tiles,
}


def row_order(planes: int, rows: int, order: str) -> np.ndarray:
    """Return the indices of rows, ``z * rows + y``, in the order of their sites."""
    z, y = np.indices((planes, rows)).reshape(2, -1)
    return ORDERS[order](z, y)
