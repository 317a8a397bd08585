"""Distributed fast Fourier transforms: local transforms, exchanges and truncation.

`DistributedFFT` is the plan that users call. `SlabGeometry`, `PlanePass` and `ColumnPass` are its
parts, from which the spectral solvers record fused steps. Arrays on the host take the same routes
tile by tile: see `out_of_core_fft`.
"""

from slipstream.fft.column_transforms import ColumnPass
from slipstream.fft.distributed_fft import DistributedFFT
from slipstream.fft.pending_transforms import PendingTransform
from slipstream.fft.plane_transforms import (
    PlanePass,
    PointOperation,
    PointProduct,
    plane_pass_bytes,
)
from slipstream.fft.slab_layout import SlabGeometry
from slipstream.fft.truncation import Modes, truncate
from slipstream.outofcore.streaming_options import Streaming

__all__ = [
    "ColumnPass",
    "DistributedFFT",
    "Modes",
    "PendingTransform",
    "PlanePass",
    "PointOperation",
    "PointProduct",
    "SlabGeometry",
    "Streaming",
    "plane_pass_bytes",
    "truncate",
]
