"""Kernels for GPUs that transform, truncate and re-order in one trip through memory.

A transform along a strided axis, with its padding or truncation and in the order of the exchange,
is one kernel (`strided_fft.hpp`). So is a transform of real rows (`real_fft.hpp`), or one with a
product and the transform back (`fused_product.hpp`). A Runge-Kutta substage thus passes over memory
five times: backward z, backward y, x and product, forward y, forward z, each with the kept modes
only. A library transforms lengths that the kernels do not support.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from slipstream.array_types import Array
from slipstream.device import Device, Operation, gpu_fft_launch, vector_fft
from slipstream.device.array_addresses import address_of
from slipstream.fft.pack_unpack import RowTables


class StridedTransform:
    """The tiled transform of one length and precision, in both directions."""

    def __init__(self, device: Device, n: int, real_dtype: np.dtype) -> None:
        self._device, self._n, self._real_dtype = device, n, np.dtype(real_dtype)
        self._roots = device.array(gpu_fft_launch.roots(n, real_dtype))
        if not self.supports(device, n, real_dtype):
            raise ValueError(f"there is no kernel for transforms of {n} points")

    @staticmethod
    def supports(device: Device, n: int, real_dtype: np.dtype) -> bool:
        """Return whether the device has a kernel for this length."""
        limit = device.shared_memory_limit
        return gpu_fft_launch.strided_fft(n, real_dtype, -1, limit) is not None

    def bind(
        self,
        modes: Array,
        points: Array,
        tables: RowTables,
        first: int,
        forward: bool,
        stored: tuple[Array, RowTables, int] | None = None,
    ) -> Operation:
        """Return the transform between modes and points.

        Points are (fields, outer, n, columns), transformed along the third axis; the modes' fields
        are addressed by the leading stride, their rows by the tables. Plane 0 of the points is
        plane `first` of the modes. With `stored`, an array (fields, ...), its tables and their
        first plane, the points are there, and only the shape of `points` matters.
        """
        fields, outer, _, columns = points.shape
        strides = [stride // points.itemsize for stride in points.strides[:3]]
        if stored:
            strides[0] = stored[0].strides[0] // points.itemsize
        place, point_tables, point_first = stored or (points, None, 0)
        sides = (modes, tables, first), (place, point_tables, point_first)
        return self._bind(*sides, strides, (fields, outer, columns), forward)

    def bind_between(
        self,
        modes: tuple[Array, RowTables],
        points: tuple[Array, RowTables],
        shape: tuple[int, int, int],
        forward: bool,
    ) -> Operation:
        """Return the transform between modes and points, both addressed by tables.

        Each side is an array and tables of offsets into it; fields are addressed by the leading
        strides. The shape is (fields, planes, columns).
        """
        field = points[0].strides[0] // points[0].itemsize
        return self._bind((*modes, 0), (*points, 0), [field, 0, 0], shape, forward)

    def _bind(
        self,
        modes: tuple[Array, RowTables, int],
        points: tuple[Array, RowTables | None, int],
        strides: list[int],
        shape: tuple[int, int, int],
        forward: bool,
    ) -> Operation:
        """Bind the kernel for two sides: arrays, tables of rows, and their first plane.

        Points without tables have `strides` of fields, planes and rows.
        """
        mode_base, mode_tables, mode_first = modes
        point_base, point_tables, point_first = points
        mode_field = mode_base.strides[0] // mode_base.itemsize
        tables = [mode_tables] if point_tables is None else [mode_tables, point_tables]
        # Two columns are one access if every row of both sides begins at an even element.
        are_even = all(one.are_even for one in tables)
        are_even = are_even and not any(one % 2 for one in (mode_field, *strides))
        are_even = are_even and not any(address_of(one) % 16 for one in (mode_base, point_base))
        limit, sign = self._device.shared_memory_limit, -1 if forward else 1
        tile = gpu_fft_launch.strided_fft(self._n, self._real_dtype, sign, limit, are_even)
        assert tile is not None  # checked in the constructor
        radices = cast("tuple[int, ...]", tile.constants["RADICES"])
        constants = {
            **tile.constants,
            "POINT_TABLES": int(point_tables is not None),
            "STORED_PARTS": mode_tables.stored_parts(radices[-1] if forward else radices[0]),
        }
        fields, outer, columns = shape
        return self._device.kernel(tile.header, tile.name, **constants).bind(
            tile.launch(columns, outer, fields),
            point_base if forward else mode_base,
            mode_base if forward else point_base,
            self._roots,
            mode_tables.entries,
            mode_first,
            fields,
            outer,
            columns,
            mode_field,
            *strides,
            (point_tables or mode_tables).entries,
            point_first,
        )


class VectorTransform:
    """The transform of a CPU's own kernel, of any length; as `StridedTransform`."""

    def __init__(self, device: Device, n: int) -> None:
        self._device, self._n = device, n

    def bind(
        self,
        modes: Array,
        points: Array,
        tables: RowTables,
        first: int,
        forward: bool,
        stored: tuple[Array, RowTables, int] | None = None,
    ) -> Operation:
        """Return the transform between modes and points; see `StridedTransform.bind`."""
        strides = [stride // points.itemsize for stride in points.strides[:3]]
        point_side: tuple[Any, Any, Any] = points, strides, (None, None, 0)
        if stored:
            base, point_tables, point_first = stored
            field = base.strides[0] // base.itemsize
            point_side = base, (field, 0, 0), (*point_tables.both, point_first)
        mode_side = modes, (modes.strides[0] // modes.itemsize, 0, 0), (*tables.both, first)
        source, target = (point_side, mode_side) if forward else (mode_side, point_side)
        fields, outer, n, columns = points.shape
        if source[1][0] == target[1][0] == columns:
            # Fields side by side count as more columns.
            fields, columns = 1, fields * columns
        shape = fields, outer, n, columns
        return vector_fft.bind_lines(self._device, source, target, shape, forward)


class RealRows:
    """The tiled transform of real rows along the contiguous axis, in both directions."""

    def __init__(self, device: Device, n: int, real_dtype: np.dtype) -> None:
        self._real = np.dtype(real_dtype).type
        self._roots = device.array(gpu_fft_launch.roots(n, real_dtype))
        self._device, self._kernels = device, {}
        for forward in (True, False):
            sign = -1 if forward else 1
            tile = gpu_fft_launch.real_rows(n, real_dtype, sign, device.shared_memory_limit)
            if tile is None:
                raise ValueError(f"there is no kernel for rows of {n} points")
            self._kernels[forward] = tile, device.kernel(tile.header, tile.name, **tile.constants)
        self._no_tables = [device.zeros((1,), np.int64)] * 3

    @staticmethod
    def supports(device: Device, n: int, real_dtype: np.dtype) -> bool:
        """Return whether the device has a kernel for this length."""
        limit = device.shared_memory_limit
        return gpu_fft_launch.real_rows(n, real_dtype, -1, limit) is not None

    def bind(self, points: Array, modes: Array, forward: bool, scale: float = 1.0) -> Operation:
        """Return the transform between points and kept modes.

        Points are (fields, outer, rows, n), real; modes (fields, outer, rows, kept), complex.
        Further modes are zero, and not accessed. Rows are contiguous; points to which modes go
        backward may lie in chunks of rows instead, (fields, outer, rows, chunks, points of each).
        """
        tile, kernel = self._kernels[forward]
        if points.ndim == 5:
            constants = {**tile.constants, "CHUNK": points.shape[-1]}
            kernel = self._device.kernel(tile.header, tile.name, **constants)
        fields, outer, rows, kept = modes.shape
        strides = [s // array.itemsize for array in (points, modes) for s in array.strides[:3]]
        return kernel.bind(
            tile.launch(-(-rows // 2) * fields * outer),
            points,
            modes,
            self._roots,
            self._real(scale),
            fields,
            outer,
            rows,
            kept,
            *strides,
            *self._no_tables,
        )

    def bind_stored(
        self, points: Array, base: Array, tables: tuple[Array, Array, Array], kept: int
    ) -> Operation:
        """Return the forward transform whose modes are stored at places given by tables.

        Mode k of row r of plane o lies at ``offset[k] + o * plane[k] + r * pitch[k]`` of the
        base, whose leading stride is that of the fields; points are as for `bind`.
        """
        tile, _ = self._kernels[True]
        constants = {**tile.constants, "MODE_TABLES": 1}
        kernel = self._device.kernel(tile.header, tile.name, **constants)
        fields, outer, rows, _ = points.shape
        return kernel.bind(
            tile.launch(-(-rows // 2) * fields * outer),
            points,
            base,
            self._roots,
            self._real(1),
            fields,
            outer,
            rows,
            kept,
            *(stride // points.itemsize for stride in points.strides[:3]),
            base.strides[0] // base.itemsize,
            0,
            0,
            *tables,
        )
