"""The order of the rows of a box, in which their sites are numbered."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# Rows of a tile along z and y.
_TILE = 8


# For rows at z and y, given in raster order: the index of the first row, the second and so on.
ORDERS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "raster": lambda z, y: np.arange(z.size),
    "row-tiles": lambda z, y: np.lexsort((y, z, y // _TILE, z // _TILE)),
}


def row_order(planes: int, rows: int, order: str) -> np.ndarray:
    """Return the indices of rows, ``z * rows + y``, in the order of their sites."""
    z, y = np.indices((planes, rows)).reshape(2, -1)
    return ORDERS[order](z, y)
