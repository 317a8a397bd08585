"""Choice of the passes that suit a device and a grid, and the memory that they take."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.device import Device
from slipstream.fft.columns import ColumnPass
from slipstream.fft.planes import PlanePass, chunk_planes, plane_bytes
from slipstream.fft.slab import SlabGeometry
from slipstream.fft.tiled import StridedTransform, TiledColumnPass, TiledPlanePass


def make_column_pass(
    device: Device, geometry: SlabGeometry, fields: int, complex_dtype: Any
) -> ColumnPass:
    """Return the pass over columns that suits the device; parameters as for `ColumnPass`."""
    tiled = _tiled(device, geometry.shape[0], complex_dtype)
    return (TiledColumnPass if tiled else ColumnPass)(device, geometry, fields, complex_dtype)


def make_plane_pass(
    device: Device, geometry: SlabGeometry, fields: int, real: bool, complex_dtype: Any
) -> PlanePass:
    """Return the pass over planes that suits the device; parameters as for `PlanePass`."""
    x = geometry.modes[2]
    # Tiles are contiguous in x: they cannot hold negative wavenumbers apart from positive ones.
    tiled = _tiled(device, geometry.shape[1], complex_dtype) and not (x.high and x.gap)
    kind = TiledPlanePass if tiled else PlanePass
    return kind(device, geometry, fields, real, complex_dtype)


def plane_pass_bytes(
    geometry: SlabGeometry, fields: int, real: bool, complex_dtype: Any, device: Device
) -> int:
    """Return the bytes of working memory of a plane pass on a device."""
    planes = chunk_planes(geometry, fields, real, complex_dtype, device)
    return device.lanes * planes * plane_bytes(geometry, fields, real, complex_dtype)


def _tiled(device: Device, n: int, complex_dtype: Any) -> bool:
    real_dtype = np.zeros(0, complex_dtype).real.dtype
    return device.tiled_transforms() and StridedTransform.supports(device, n, real_dtype)
