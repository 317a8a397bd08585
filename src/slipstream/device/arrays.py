"""What kernels are told of arrays: where they begin, and the C++ names of their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

# By the name of the dtype.
REAL_NAMES = {"float32": "float", "float64": "double"}


def address_of(array: Any) -> int:
    """Return where the first element of an array is in memory.

    Parameters
    ----------
    array : numpy.ndarray or cupy.ndarray
        An array or a view.
    """
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
