"""Kernels for GPUs that transform, truncate, pack and re-order in one trip through memory."""

from __future__ import annotations

import functools
from typing import Any, cast

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.device import (
    REAL_NAMES,
    Device,
    Kernel,
    Operation,
    RowLaunch,
    gpu_fft_launch,
    vector_fft,
)
from slipstream.engine.device.device_interface import address_of
from slipstream.engine.fft.slab_layout import NOT_KEPT
from slipstream.engine.fft.transform_parts import Modes


def real_name(dtype: Any) -> str:
    """Return the C++ name of the real type behind a real or complex dtype."""
    return REAL_NAMES[np.zeros(0, dtype).real.dtype.name]


class RowTables:
    """The tables of `SlabGeometry.plane_rows` or `column_rows` in device memory.

    `are_even` is whether all rows begin an even number of complex numbers after their array.
    """

    def __init__(self, device: Device, tables: tuple[np.ndarray, np.ndarray]) -> None:
        self._device, self._tables = device, tables
        self.are_even = not any((table % 2).any() for table in tables)

    @functools.cached_property
    def both(self) -> tuple[Array, Array]:
        """Offsets and pitches, as two arrays."""
        offset, pitch = (self._device.array(table) for table in self._tables)
        return offset, pitch

    @functools.cached_property
    def entries(self) -> Array:
        """Offset, pitch and whether it is kept, for each row, as kernels of GPUs read them."""
        offset, pitch = self._tables
        is_kept = offset != NOT_KEPT
        kept_pitch = np.where(is_kept, pitch, 0)
        if kept_pitch.min(initial=0) < 0 or kept_pitch.max(initial=0) >= 1 << 32:
            raise ValueError("planes of rows lie at most 2^32 complex numbers apart")
        return self._device.array(
            np.stack([offset, kept_pitch | is_kept.astype(np.int64) << 32], axis=1)
        )

    def stored_parts(self, parts: int) -> tuple[int, ...]:
        """Return for each of `parts` parts whether none (0), some (1) or all (2) rows are kept."""
        kept = (self._tables[0] != NOT_KEPT).reshape(parts, -1)
        return tuple(2 if part.all() else int(part.any()) for part in kept)


class RowMover:
    """Gathers and scatters rows of complex numbers.

    Packed rows have all columns of working rows, or the ones that `columns` keeps.
    """

    def __init__(self, device: Device, complex_dtype: Any, columns: Modes | None = None) -> None:
        self._columns = columns
        real = real_name(complex_dtype)
        self._gather = device.kernel("gather_scatter.hpp", "gather_rows", REAL=real)
        self._scatter = device.kernel("gather_scatter.hpp", "scatter_rows", REAL=real)

    def gather(self, packed: Array, work: Array, tables: RowTables, first: int = 0) -> Operation:
        """Return the operation that fills `work`, with zeros for modes that are not kept.

        Fields of `packed` are addressed by the leading stride, rows by the tables; `work` is
        (fields, planes, rows, columns), its plane 0 the packed plane `first`.
        """
        return self._bind(self._gather, packed, work, tables, first)

    def scatter(self, work: Array, packed: Array, tables: RowTables, first: int = 0) -> Operation:
        """Return the operation that stores the kept rows and columns of `work`."""
        return self._bind(self._scatter, packed, work, tables, first)

    def _bind(
        self, kernel: Kernel, packed: Array, work: Array, tables: RowTables, first: int
    ) -> Operation:
        fields, planes, rows, width = work.shape
        columns = self._columns or Modes(width, width, 0)
        strides = [stride // work.itemsize for stride in work.strides[:3]]
        return kernel.bind(
            RowLaunch(fields * planes * rows, columns.count),
            packed,
            work,
            *tables.both,
            first,
            fields,
            planes,
            rows,
            columns.count,
            columns.low,
            columns.gap,
            packed.strides[0] // packed.itemsize,
            *strides,
        )


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
