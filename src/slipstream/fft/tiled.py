"""Passes for GPUs: tiled kernels that transform, truncate and re-order in one trip through memory.

A transform along a strided axis, with its padding or truncation and in the order that the
exchange wants, is one kernel (`fft.hpp`). Transforms in x, the product and the way back are another
one (`physical_pass.hpp`), so that a Runge-Kutta substage passes over memory five times: backward z,
backward y, x and product, forward y, forward z, each with only the modes that are kept. Lengths
that the kernels do not support are left to cuFFT, by the passes that these classes refine.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.device import Device, Operation, tiled_fft
from slipstream.fft.columns import ColumnPass
from slipstream.fft.planes import PlanePass, PointProduct
from slipstream.fft.rows import RowTables
from slipstream.fft.slab import NOT_KEPT, SlabGeometry


class StridedTransform:
    """The tiled transform of one length and precision, in both directions.

    Parameters
    ----------
    device : Device
        Where the arrays live.
    n : int
        Length.
    real_dtype : dtype
        float32 or float64.
    """

    def __init__(self, device: Device, n: int, real_dtype: np.dtype) -> None:
        self._real = np.dtype(real_dtype).type
        self._roots = device.array(tiled_fft.roots(n, real_dtype))
        self._kernels = {}
        for forward in (True, False):
            sign = -1 if forward else 1
            tile = tiled_fft.strided_fft(n, real_dtype, sign, device.shared_memory_limit)
            self._kernels[forward] = tile, device.kernel(tile.header, tile.name, **tile.constants)

    @staticmethod
    def supports(device: Device, n: int, real_dtype: np.dtype) -> bool:
        """Return whether the device has a kernel for this length."""
        limit = device.shared_memory_limit
        return tiled_fft.strided_fft(n, real_dtype, -1, limit) is not None

    def bind(
        self,
        modes: Any,
        points: Any,
        tables: RowTables,
        first: int,
        forward: bool,
        scale: float = 1.0,
    ) -> Operation:
        """Return the transform between modes and points.

        Parameters
        ----------
        modes : array, shape (fields, ...)
            Addressed by the leading stride and the tables.
        points : array, shape (fields, outer, n, columns)
            The transformed axis is the third; columns are contiguous.
        tables : RowTables
            Where the modes of each row are.
        first : int
            The plane of the modes that is plane 0 of the points.
        forward : bool
            From points to modes, or back.
        scale : float
            Factor of the result.
        """
        tile, kernel = self._kernels[forward]
        fields, outer, _, columns = points.shape
        strides = [stride // points.itemsize for stride in points.strides[:3]]
        source, target = (points, modes) if forward else (modes, points)
        return kernel.bind(
            tile.launch(columns, fields * outer), source, target, self._roots, self._real(scale),
            tables.offset, tables.pitch, first, fields, outer, columns,
            modes.strides[0] // modes.itemsize, *strides,
        )  # fmt: skip


class TiledColumnPass(ColumnPass):
    """`ColumnPass` with one kernel per transform."""

    def __init__(
        self, device: Device, geometry: SlabGeometry, fields: int, complex_dtype: Any
    ) -> None:
        super().__init__(device, geometry, fields, complex_dtype)
        nz, ky, row = geometry.columns_shape
        self._transform = StridedTransform(device, nz, np.zeros(0, complex_dtype).real.dtype)
        kept = geometry.modes[0].positions() >= 0
        offset = np.where(kept, ky * row * np.arange(nz, dtype=np.int64), NOT_KEPT)
        self._in_place = RowTables(device, (offset, np.zeros_like(offset)))

    def record_backward(self, graph, spectral, columns, low, high) -> None:
        source, target = spectral[:, :, low:high], columns[:, :, low:high]
        operation = self._transform.bind(source, self._flat(target), self._tables, 0, False)
        self._add(graph, operation, source, target, "fft z", "fft", low)

    def record_forward(self, graph, columns, low, high, spectral=None) -> None:
        source = columns[:, :, low:high]
        target, tables = (source, self._in_place)
        if spectral is not None:
            target, tables = spectral[:, :, low:high], self._tables
        operation = self._transform.bind(target, self._flat(source), tables, 0, True)
        self._add(graph, operation, source, target, "fft z", "fft", low)

    @staticmethod
    def _flat(columns: Any) -> Any:
        """Return columns (fields, nz, ky, row) as (fields, 1, nz, ky row)."""
        fields, nz, ky, row = columns.shape
        return columns.reshape(fields, 1, nz, ky * row)


class TiledPlanePass(PlanePass):
    """`PlanePass` with one kernel for y, and one for x, the product and x again."""

    def __init__(
        self, device: Device, geometry: SlabGeometry, fields: int, real: bool, complex_dtype: Any
    ) -> None:
        super().__init__(device, geometry, fields, real, complex_dtype)
        _, ny, nx = geometry.shape
        self._transform = StridedTransform(device, ny, self._real_dtype)
        self._roots = device.array(tiled_fft.roots(nx, self._real_dtype))

    def _load_modes(self, work, planes, modes, low, high) -> None:
        active, rest = modes[..., : self._active], modes[..., self._active :]
        operation = self._transform.bind(planes, active, self._tables, low, False)
        work.add(operation, self._packed(planes, low, high), [active], "fft y", "fft")
        if rest.size:
            work.add(self._device.fill(rest, 0), [], [rest], "pad modes", "pack")

    def _store_modes(self, work, planes, modes, low, high) -> None:
        active = modes[..., : self._active]
        operation = self._transform.bind(planes, active, self._tables, low, True)
        work.add(operation, [active], self._packed(planes, low, high), "fft y", "fft")

    def record_through(self, graph, source, target, product, first=0, last=None) -> None:
        product = product or self._no_product(len(source), len(target))
        tile = tiled_fft.physical_pass(
            self._geometry.shape[2], self._real_dtype, product.inputs, product.outputs,
            product.header, self._device.shared_memory_limit,
        )  # fmt: skip
        if tile is None:
            super().record_through(graph, source, target, product, first, last)
            return
        kernel = self._device.kernel(tile.header, tile.name, **tile.constants)
        for work, low, high in self._chunks(graph, first, last):
            rows = self._rows(work.arrays.memory, len(target), high - low)
            inward = rows[: len(source)]
            operation = self._transform.bind(source, inward, self._tables, low, False)
            work.add(operation, self._packed(source, low, high), [inward], "fft y", "fft")
            operation, maxima = self._bind_through(kernel, tile, product, rows, low)
            work.add(operation, [inward], [rows, maxima], "fft x, product, fft x", "fft")
            operation = self._transform.bind(target, rows, self._tables, low, True)
            work.add(operation, [rows], self._packed(target, low, high), "fft y", "fft")

    def _bind_through(self, kernel, tile, product: PointProduct, rows: Any, plane: int):
        _, planes, ny, _ = rows.shape
        field, row = rows.strides[0] // rows.itemsize, rows.strides[2] // rows.itemsize
        maxima = product.maxima[plane * ny : (plane + planes) * ny]
        scale = self._real_dtype.type(1)
        operation = kernel.bind(
            tile.launch(planes * ny), rows, rows, self._roots, scale, maxima, product.parameters,
            planes * ny, self._active, field, row, field, row,
        )  # fmt: skip
        return operation, maxima

    def _rows(self, memory: Any, fields: int, planes: int) -> Any:
        """Return the working array of modes for every y, with stored rows."""
        shape = (fields, planes, self._geometry.shape[1], self._geometry.row)
        return memory[: math.prod(shape)].reshape(shape)

    def _no_product(self, inputs: int, outputs: int) -> PointProduct:
        ny = self._geometry.shape[1]
        maxima = self._device.zeros((max(1, self._geometry.planes * ny),), np.int64)
        parameters = self._device.zeros((1,), np.float64)
        return PointProduct("identity_product.hpp", inputs, outputs, parameters, maxima)
