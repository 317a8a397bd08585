"""Raw voxel images: files of bare values, whose shape and type have to be told.

One process maps such a file into memory; several read it together through MPI-IO, each its box.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.decomposition import Box
from slipstream.errors import InputError
from slipstream.io.image_formats import Source


def raw_source(
    path: Path,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    byte_order: str = "little",
    offset: int = 0,
) -> Source:
    """Return a file of bare values.

    Raises
    ------
    InputError
        If an argument is missing or wrong, or the file has another size than they ask for.
    """
    if shape is None and dtype is None:
        raise InputError(
            "image.shape and image.dtype are missing: a raw file does not tell them; accepted: "
            "three positive whole numbers; bool, uint8, int16, float32 and the like"
        )
    shape, kind = _checked_shape(shape), _checked_dtype(dtype, byte_order)
    if not isinstance(offset, int | np.integer) or offset < 0:
        raise InputError(f"image.offset is {offset!r}; accepted: a number of bytes, 0 or more")
    size, wanted = path.stat().st_size, offset + math.prod(shape) * kind.itemsize
    if size != wanted:
        raise InputError(
            f"image.path: {path} has {size} bytes, but image.shape {shape} of {kind.name} after "
            f"image.offset {offset} makes {wanted}"
        )

    def open_raw() -> AbstractContextManager[Any]:
        return contextlib.nullcontext(np.memmap(path, kind, "r", int(offset), shape))

    return Source(str(path), shape, kind, open_raw, threaded=True, raw=(path, int(offset)))


class RawView:
    """A box of a raw file that ranks read together, from its begin to its end. All is collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        The ranks.
    source : Source
        The file.
    box : Box
        This rank's voxels; there may be none.

    Raises
    ------
    mpi4py.MPI.Exception, EOFError
        If the file cannot be opened, or has become shorter. That may be on some ranks only: use a
        view, in a ``with`` statement, where all have one.
    """

    def __init__(self, comm: Any, source: Source, box: Box) -> None:
        from mpi4py import MPI

        path, self._offset = source.raw
        self._file = MPI.File.Open(comm, str(path), MPI.MODE_RDONLY)
        # Reading beyond the end is no error to all MPIs, and not all tell how much they read.
        if self._file.Get_size() < self._offset + math.prod(source.shape) * source.dtype.itemsize:
            raise EOFError("it has become shorter")
        self._element = MPI.BYTE.Create_contiguous(source.dtype.itemsize).Commit()
        if box.size:
            self._box = self._element.Create_subarray(source.shape, box.shape, box.start)
        else:
            self._box = self._element.Dup()
        self._box.Commit()

    def __enter__(self) -> RawView:
        self._file.Set_view(self._offset, self._element, self._box)
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.Close()
        self._box.Free()
        self._element.Free()

    def read_next(self, values: np.ndarray) -> None:
        """Fill an array with the next values of this rank's box.

        Raises
        ------
        mpi4py.MPI.Exception
            If they cannot be read.
        """
        self._file.Read_all([values, values.size, self._element])


def _checked_shape(shape: Any) -> tuple[int, int, int]:
    """Return the number of voxels along z, y and x."""
    if shape is None:
        raise InputError(
            "image.shape is missing: a raw file does not tell it; accepted: three positive "
            "whole numbers"
        )
    try:
        numbers = tuple(operator.index(value) for value in shape)
    except TypeError:
        numbers = ()
    if len(numbers) != 3 or min(numbers) < 1:
        raise InputError(f"image.shape is {shape}; accepted: three positive whole numbers")
    return numbers


def _checked_dtype(dtype: Any, byte_order: str) -> np.dtype:
    """Return the type of the stored values, with their byte order."""
    accepted = "accepted: bool, uint8, int16, float32 and the like"
    if dtype is None:
        raise InputError(f"image.dtype is missing: a raw file does not tell it; {accepted}")
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = None
    if kind is None or kind.kind not in "biuf":
        raise InputError(f"image.dtype is {dtype!r}; {accepted}")
    if not kind.isnative:
        raise InputError(f"image.dtype is {dtype!r}; image.byte_order tells the order of bytes")
    if byte_order not in ("little", "big"):
        raise InputError(f"image.byte_order is {byte_order!r}; accepted: little, big")
    return kind.newbyteorder(byte_order)
