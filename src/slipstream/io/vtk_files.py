"""VTK's image data (``.vti``), which ParaView reads: cells of a regular grid, with values in each.

A short XML header says which arrays there are and where; the values follow as they are in memory,
so that they can be written a few planes at a time, in any order.
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

    `spacing` is the edge of a cell; the first one begins at the origin. Each array has a type and a
    number of components.
    """

    def __init__(
        self,
        path: str | Path,
        shape: Sequence[int],
        spacing: float,
        arrays: Mapping[str, tuple[Any, int]],
    ) -> None:
        self._shape = tuple(shape)
        self._dtypes = {name: _little(dtype) for name, (dtype, _) in arrays.items()}
        self._components = {name: components for name, (_, components) in arrays.items()}
        self._starts: dict[str, int] = {}
        self._file = open(path, "wb")  # noqa: SIM115
        self._write_frame(spacing)

    def __enter__(self) -> ImageDataFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _write_frame(self, spacing: float) -> None:
        """Write all but the values: header, sizes and end."""
        offset, offsets, sizes = 0, {}, {}
        for name, dtype in self._dtypes.items():
            offsets[name] = offset
            sizes[name] = math.prod(self._shape) * self._components[name] * dtype.itemsize
            offset += _SIZE.itemsize + sizes[name]
        head = self._head(spacing, offsets).encode()
        self._file.write(head)
        for name, size in sizes.items():
            self._file.seek(len(head) + offsets[name])
            self._file.write(np.array(size, _SIZE).tobytes())
            self._starts[name] = self._file.tell()
        self._file.seek(len(head) + offset)
        self._file.write(b"\n  </AppendedData>\n</VTKFile>\n")

    def _head(self, spacing: float, offsets: Mapping[str, int]) -> str:
        extent = " ".join(f"0 {size}" for size in reversed(self._shape))
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
            f'  <ImageData WholeExtent="{extent}" Origin="0 0 0"'
            f' Spacing="{" ".join([repr(float(spacing))] * 3)}">\n'
            f'    <Piece Extent="{extent}">\n      <CellData>\n{arrays}      </CellData>\n'
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
        self._file.seek(self._starts[name] + plane * math.prod(wanted) * dtype.itemsize)
        self._file.write(np.ascontiguousarray(values, dtype).data)


def _little(dtype: Any) -> np.dtype:
    """Return a type with the byte order of the file."""
    found = np.dtype(dtype).newbyteorder("<")
    if found.str[1:] not in _TYPES:
        raise ValueError(f"type {np.dtype(dtype)}; accepted: float32, float64, uint8, int32, int64")
    return found
