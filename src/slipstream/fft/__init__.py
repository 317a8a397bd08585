"""Distributed fast Fourier transforms: local transforms, exchanges and truncation.

`DistributedFFT` is the plan that users call. `SlabGeometry`, `PlanePass` and `ColumnPass` are its
parts, from which the spectral solvers record fused steps. Arrays on the host take the same routes
pencil by pencil: see `streamed_plan`.
"""

from slipstream.fft.columns import ColumnPass
from slipstream.fft.distributed import DistributedFFT
from slipstream.fft.modes import Modes, truncate
from slipstream.fft.planes import PlanePass, PointOperation, PointProduct, plane_pass_bytes
from slipstream.fft.slab import SlabGeometry
from slipstream.fft.streaming import Streaming

__all__ = [
    "ColumnPass",
    "DistributedFFT",
    "Modes",
    "PlanePass",
    "PointOperation",
    "PointProduct",
    "SlabGeometry",
    "Streaming",
    "plane_pass_bytes",
    "truncate",
]
