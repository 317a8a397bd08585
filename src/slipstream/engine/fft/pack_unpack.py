"""Recording of the kernels in `gather_scatter.hpp`: packed arrays to working arrays and back."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.device import REAL_NAMES, Device, Operation, RowLaunch
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

    def bind(
        self,
        packed: Array,
        work: Array,
        tables: RowTables,
        first: int,
        forward: bool,
        scale: float = 1.0,
    ) -> Operation:
        """Return the operation that stores the kept rows of `work` if `forward`, else fills it.

        What it is filled with is multiplied by a constant.
        Fields of `packed` are addressed by the leading stride, rows by the tables; `work` is
        (fields, planes, rows, columns), its plane 0 the packed plane `first`. It is filled with
        zeros for modes that are not kept.
        """
        fields, planes, rows, width = work.shape
        columns = self._columns or Modes(width, width, 0)
        strides = [stride // work.itemsize for stride in work.strides[:3]]
        kernel = self._scatter if forward else self._gather
        factor = () if forward else (work.real.dtype.type(scale),)
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
            *factor,
        )
