"""VTK's image data (``.vti``), which ParaView reads: values in cells, or at points, of a grid.

A short XML header says which arrays there are and where; the values follow as they are in memory,
so that they can be written a few planes at a time, in any order, and by several ranks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

_TYPES = {"f4": "Float32", "f8": "Float64", "u1": "UInt8", "i4": "Int32", "i8": "Int64"}
# Each array begins with the number of its bytes.
_SIZE = np.dtype("<u8")


class ImageDataFile:
    """A new file, a context manager, that one process fills plane by plane.

    `spacing` is the edge of a cell, or one for each of x, y and z; the first cell, or the first
    point, begins at the origin. Each array has a type and a number of components.
    """

    def __init__(
        self,
        path: str | Path,
        shape: Sequence[int],
        spacing: float | Sequence[float],
        arrays: Mapping[str, tuple[Any, int]],
        origin: Sequence[float] = (0, 0, 0),
        on_points: bool = False,
    ) -> None:
        self._shape, self._origin, self._on_points = tuple(shape), tuple(origin), on_points
        self._spacing = tuple(spacing) if isinstance(spacing, Sequence) else (spacing,) * 3
        self._dtypes = {name: _little(dtype) for name, (dtype, _) in arrays.items()}
        self._components = {name: components for name, (_, components) in arrays.items()}
        # Where the values of each array begin.
        self.starts: dict[str, int] = {}
        self._file = open(path, "wb")  # noqa: SIM115
        self._write_frame()

    def __enter__(self) -> ImageDataFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _write_frame(self) -> None:
        """Write all but the values: header, sizes and end."""
        offset, offsets, sizes = 0, {}, {}
        for name, dtype in self._dtypes.items():
            offsets[name] = offset
            sizes[name] = math.prod(self._shape) * self._components[name] * dtype.itemsize
            offset += _SIZE.itemsize + sizes[name]
        head = self._head(offsets).encode()
        self._file.write(head)
        for name, size in sizes.items():
            self._file.seek(len(head) + offsets[name])
            self._file.write(np.array(size, _SIZE).tobytes())
            self.starts[name] = self._file.tell()
        self._file.seek(len(head) + offset)
        self._file.write(b"\n  </AppendedData>\n</VTKFile>\n")

    def _head(self, offsets: Mapping[str, int]) -> str:
        extent = " ".join(f"0 {size - self._on_points}" for size in reversed(self._shape))
        kind = "PointData" if self._on_points else "CellData"
        origin, spacing = (
            " ".join(repr(float(one)) if one else "0" for one in three)
            for three in (self._origin, self._spacing)
        )
        arrays = "".join(
            f'        <DataArray type="{_TYPES[dtype.str[1:]]}" Name={quoteattr(name)}'
            f' NumberOfComponents="{self._components[name]}" format="appended"'
            f' offset="{offsets[name]}"/>\n'
            for name, dtype in self._dtypes.items()
        )
        return (
            '<?xml version="1.0"?>\n'
            '<VTKFile type="ImageData" version="1.0" byte_order="LittleEndian"'
            ' header_type="UInt64">\n'
            f'  <ImageData WholeExtent="{extent}" Origin="{origin}" Spacing="{spacing}">\n'
            f'    <Piece Extent="{extent}">\n      <{kind}>\n{arrays}      </{kind}>\n'
            "    </Piece>\n  </ImageData>\n"
            '  <AppendedData encoding="raw">\n   _'
        )

    def write(self, name: str, plane: int, values: np.ndarray) -> None:
        """Write planes from number `plane` on, of shape (planes, rows, columns[, components])."""
        components, dtype = self._components[name], self._dtypes[name]
        wanted = (*self._shape[1:], *([components] if components > 1 else []))
        planes = len(values)
        if values.shape[1:] != wanted or not 0 <= plane <= self._shape[0] - planes:
            raise ValueError(
                f"{name}: planes {plane} to {plane + planes} of shape {values.shape[1:]}; accepted:"
                f" up to {self._shape[0]}, of shape {wanted}"
            )
        self._file.seek(self.starts[name] + plane * math.prod(wanted) * dtype.itemsize)
        self._file.write(np.ascontiguousarray(values, dtype).data)


def _little(dtype: Any) -> np.dtype:
    """Return a type with the byte order of the file."""
    found: np.dtype = np.dtype(dtype).newbyteorder("<")
    if found.str[1:] not in _TYPES:
        raise ValueError(f"type {np.dtype(dtype)}; accepted: float32, float64, uint8, int32, int64")
    return found
